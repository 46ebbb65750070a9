//! A listing of three pages, of which some come twice, in another order, in half or not at all.

use ankusa_actors::ports::{BlobEntry, BlobError};
use ankusa_drills_proxy::{Fault, Rule};

use super::{Bench, Word, options, word, world};

/// What stands on a page.
pub struct Page<'a> {
    pub keys: &'a [String],
    /// What it was asked for with, as its server repeats it, where it does.
    pub this: Option<&'a str>,
    /// What asks for the page after this one; `None` for the last.
    pub next: Option<&'a str>,
}

impl Page<'_> {
    /// The size of every object.
    pub const BYTES: u64 = 7;
}

/// One answer of a script.
enum Says {
    Page(usize),
    /// The first half of one, which is all there is by its length.
    Half(usize),
    Broken(Fault),
}

struct Listing {
    what: &'static str,
    script: Vec<Says>,
    word: Word,
    /// Requests there are at most.
    sent: usize,
    op_deadline_ms: u64,
    /// Can be told only where pages say which they are.
    needs_names: bool,
}

fn rows() -> Vec<Listing> {
    use Says::{Broken, Half, Page};
    let row = |what, script, word, sent| Listing {
        what,
        script,
        word,
        sent,
        op_deadline_ms: options().op_deadline_ms,
        needs_names: false,
    };
    let failing = |n: u64| (0..n).map(|_| Broken(Fault::status(500)));
    vec![
        row("all of its pages", vec![Page(0), Page(1), Page(2)], "ok", 3),
        row("its first page twice", vec![Page(0), Page(0)], "transport", 2),
        row("its second page twice", vec![Page(0), Page(1), Page(1)], "transport", 3),
        row("its first page again at the end", vec![Page(0), Page(1), Page(0)], "transport", 3),
        row("its second page first", vec![Page(1), Page(0), Page(1), Page(0)], "transport", 4),
        Listing {
            needs_names: true,
            ..row("its last page second", vec![Page(0), Page(2)], "transport", 2)
        },
        Listing { needs_names: true, ..row("its last page first", vec![Page(2)], "transport", 1) },
        row("half of its first page", vec![Half(0)], "transport", 1),
        row("half of its second page", vec![Page(0), Half(1)], "transport", 2),
        row("half of its last page", vec![Page(0), Page(1), Half(2)], "transport", 3),
        row("nothing for a page", vec![Page(0), Broken(Fault::status(200))], "transport", 2),
        row("no second page", vec![Page(0), Broken(Fault::status(404))], "misconfigured", 2),
        row("a forbidden page", vec![Page(0), Broken(Fault::status(403))], "forbidden", 2),
        row(
            "a page for later",
            vec![Page(0), Broken(Fault::throttle(429, "3600"))],
            "throttled",
            2,
        ),
        row("a page that fails", [Page(0)].into_iter().chain(failing(3)).collect(), "transport", 4),
        row(
            "a page that fails twice",
            [Page(0)].into_iter().chain(failing(2)).chain([Page(1), Page(2)]).collect(),
            "ok",
            5,
        ),
        row("a reset", vec![Page(0), Broken(Fault::Reset), Page(1), Page(2)], "ok", 4),
        Listing {
            op_deadline_ms: 2_000,
            ..row("silence", vec![Page(0), Broken(Fault::Blackhole)], "deadline", 2)
        },
    ]
}

/// What is not as a row says.
pub(super) async fn wrong(bench: &Bench) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows() {
        if row.needs_names && !bench.subject.pages_say_which {
            continue;
        }
        let prefix = bench.key().as_str().to_owned();
        let keys: Vec<String> =
            ["a", "b", "c", "d", "e"].map(|end| format!("{prefix}/{end}")).into();
        let pages = pages(bench, &keys);
        let options = super::TransportOptions { op_deadline_ms: row.op_deadline_ms, ..options() };
        let store = bench.store(options, world());
        drop(bench.proxy.take_seen());
        bench.proxy.break_by(row.script.iter().map(|says| said(says, &pages)));
        let listed = store.list(&prefix, None).await;
        bench.proxy.heal();
        let sent = bench.proxy.take_seen().len();
        let all: Vec<BlobEntry> = keys
            .iter()
            .map(|key| BlobEntry { key: key.clone(), bytes: super::Page::BYTES })
            .collect();
        // Whatever breaks: all of it, or an error.
        let is_whole = listed.as_ref().is_ok_and(|found| *found == all) || listed.is_err();
        let done: Result<(), BlobError> = listed.map(drop);
        if word(&done) != row.word || sent > row.sent || !is_whole {
            let word = word(&done);
            wrong.push(format!(
                "{} on list: {word} after {sent}, whole: {is_whole}, not {} after {}",
                row.what, row.word, row.sent
            ));
        }
    }
    wrong
}

/// Two keys on each but the last. A page is asked for with the key it begins with.
fn pages(bench: &Bench, keys: &[String]) -> Vec<String> {
    let cut: Vec<&[String]> = keys.chunks(2).collect();
    let begins = |at: usize| cut.get(at).map(|keys| keys[0].as_str());
    let page = |(at, keys): (usize, &&[String])| {
        let this = begins(at).filter(|_| at > 0);
        (bench.subject.page)(&Page { keys, this, next: begins(at + 1) })
    };
    cut.iter().enumerate().map(page).collect()
}

fn said(says: &Says, pages: &[String]) -> Rule {
    let body = |text: &str| Fault::Answer { status: 200, headers: vec![], body: text.into() };
    let fault = match says {
        Says::Page(at) => body(&pages[*at]),
        Says::Half(at) => body(&pages[*at][..pages[*at].len() / 2]),
        Says::Broken(fault) => fault.clone(),
    };
    fault.times(1)
}
