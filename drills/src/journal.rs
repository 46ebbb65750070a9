//! What clients were told and what the sink saw, written down as it happens.
//!
//! Under the recorder each line is also appended to the operation log as a mark, so that it has its place among the
//! operations on the disk: an answer is written down after it arrived, a delivery before it is answered. Both are on the
//! safe side: the log never says that something was promised before it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ankusa_drills_check::{Delivery, Digest, LaneRequest, Outcome, Request};
use ankusa_drills_replay::oplog::{Kind, encode};

use crate::load::LoadPlan;
use crate::timings::Timings;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client was answered. Requests are numbered by the load plan.
    Answered { number: u64, outcome: Outcome },
    /// The sink saw a request, and is about to answer it.
    Seen(Delivery),
}

impl Event {
    /// The event as a mark.
    #[must_use]
    pub fn to_mark(&self) -> String {
        match self {
            Self::Answered { number, outcome: Outcome::Acked { id } } => {
                format!("acked {number} {id}")
            }
            Self::Answered { number, outcome: Outcome::Held } => format!("held {number}"),
            Self::Answered { number, outcome: Outcome::Refused } => format!("refused {number}"),
            Self::Answered { number, outcome: Outcome::Unknown } => format!("unknown {number}"),
            Self::Seen(Delivery { id, body, attempt, accepted }) => {
                format!("seen {id} {body} {attempt} {accepted}")
            }
        }
    }

    /// The event a mark says; nothing when it is none of ours.
    #[must_use]
    pub fn from_mark(mark: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(mark).ok()?.split(' ').collect();
        let answered =
            |number: &str, outcome| Some(Self::Answered { number: number.parse().ok()?, outcome });
        match words.as_slice() {
            ["acked", number, id] => answered(number, Outcome::Acked { id: (*id).to_owned() }),
            ["held", number] => answered(number, Outcome::Held),
            ["refused", number] => answered(number, Outcome::Refused),
            ["unknown", number] => answered(number, Outcome::Unknown),
            ["seen", id, body, attempt, accepted] => Some(Self::Seen(Delivery {
                id: (*id).to_owned(),
                body: Digest::from_str(body).ok()?,
                attempt: attempt.parse().ok()?,
                accepted: accepted.parse().ok()?,
            })),
            _ => None,
        }
    }
}

/// How many requests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub acked: u64,
    pub held: u64,
    pub refused: u64,
    pub unknown: u64,
}

/// How much of a journal was settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Settled {
    acked: u64,
    unknown: u64,
    deliveries: u64,
}

#[derive(Default)]
struct Pages {
    /// By the number of the request.
    answers: BTreeMap<u64, Outcome>,
    /// Requests that were told that their event was known.
    repeats: BTreeSet<u64>,
    deliveries: Vec<Delivery>,
    /// When each request was sent, and when it was answered: counted in what was written here.
    times: BTreeMap<u64, (u64, Option<u64>)>,
    now: u64,
    /// How often the sink saw each hook.
    attempts: BTreeMap<String, u32>,
    /// What was settled and is no longer written here.
    settled: Settled,
    /// The marks could not all be written: the log is of no use.
    torn: bool,
}

/// The journal of one drill. Shared by all its clients and the sink.
#[derive(Default)]
pub struct Journal {
    pages: Mutex<Pages>,
    marks: Option<File>,
    timings: Timings,
}

impl Journal {
    /// A journal in memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A journal that also marks the operation log at `log`.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub fn marking(log: &Path) -> io::Result<Self> {
        Ok(Self {
            pages: Mutex::default(),
            marks: Some(File::options().create(true).append(true).open(log)?),
            timings: Timings::default(),
        })
    }

    /// A request is about to be sent: until its answer is written down, its outcome is unknown.
    pub fn sending(&self, number: u64) {
        let mut pages = self.pages();
        pages.now += 1;
        let now = pages.now;
        pages.times.insert(number, (now, None));
        pages.answers.insert(number, Outcome::Unknown);
    }

    /// The request was not sent after all: it is in no ledger.
    pub fn not_sent(&self, number: u64) {
        let mut pages = self.pages();
        pages.times.remove(&number);
        pages.answers.remove(&number);
    }

    /// The answer to this request says that its event was known.
    pub fn repeats(&self, number: u64) {
        self.pages().repeats.insert(number);
    }

    /// Every request so far whose event was known.
    #[must_use]
    pub fn repeated(&self) -> BTreeSet<u64> {
        self.pages().repeats.clone()
    }

    /// A client has its answer, or has given up on it.
    pub fn answered(&self, number: u64, outcome: Outcome) {
        self.write(&Event::Answered { number, outcome });
    }

    /// The sink has a request and will answer 2xx, or not.
    pub fn seen(&self, id: &str, body: Digest, accepts: impl FnOnce(u32) -> bool) -> bool {
        let mut pages = self.pages();
        let attempts = pages.attempts.entry(id.to_owned()).or_default();
        *attempts = attempts.saturating_add(1);
        let attempt = *attempts;
        let accepted = accepts(attempt);
        let delivery = Delivery { id: id.to_owned(), body, attempt, accepted };
        self.write_on(&mut pages, &Event::Seen(delivery));
        accepted
    }

    fn write(&self, event: &Event) {
        self.write_on(&mut self.pages(), event);
    }

    /// The lock is held: memory and log tell the same order.
    fn write_on(&self, pages: &mut Pages, event: &Event) {
        if let Some(mut log) = self.marks.as_ref() {
            let mut record = Vec::new();
            encode(&mut record, Kind::Mark, 0, 0, event.to_mark().as_bytes(), b"");
            // One write to a file opened for append: it lands whole, in its place.
            pages.torn |= !matches!(log.write(&record), Ok(written) if written == record.len());
        }
        match event {
            Event::Answered { number, outcome } => {
                pages.now += 1;
                let now = pages.now;
                if let Some((_, answered)) = pages.times.get_mut(number) {
                    *answered = Some(now);
                }
                pages.answers.insert(*number, outcome.clone());
            }
            Event::Seen(delivery) => pages.deliveries.push(delivery.clone()),
        }
    }

    /// Every request sent so far, with how it ended.
    #[must_use]
    pub fn requests(&self, plan: &LoadPlan) -> Vec<Request> {
        self.pages()
            .answers
            .iter()
            .map(|(number, outcome)| plan.request(*number, outcome.clone()))
            .collect()
    }

    /// Every request so far that is to be delivered in order.
    #[must_use]
    pub fn lane_requests(&self, plan: &LoadPlan) -> Vec<LaneRequest> {
        let pages = self.pages();
        let in_order = |(number, outcome): (&u64, &Outcome)| {
            let (sent_at, answered_at) = *pages.times.get(number)?;
            let is_acked = matches!(outcome, Outcome::Acked { .. });
            Some(LaneRequest {
                body: Digest::of(&plan.body(*number)),
                lane: plan.ordered_lane(*number)?,
                sent_at,
                acked_at: answered_at.filter(|_| is_acked),
            })
        };
        pages.answers.iter().filter_map(in_order).collect()
    }

    /// Every request so far, by its number, with how it ended.
    #[must_use]
    pub fn answers(&self) -> BTreeMap<u64, Outcome> {
        self.pages().answers.clone()
    }

    /// Whatever was answered since then counts as not answered: to the disk of that moment it has not happened.
    pub fn back_to(&self, then: &BTreeMap<u64, Outcome>) {
        for (number, outcome) in &mut self.pages().answers {
            if then.get(number) != Some(outcome) {
                *outcome = Outcome::Unknown;
            }
        }
    }

    /// How this request ended; nothing if it was never sent.
    #[must_use]
    pub fn outcome(&self, number: u64) -> Option<Outcome> {
        self.pages().answers.get(&number).cloned()
    }

    /// Everything the sink saw so far.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.pages().deliveries.clone()
    }

    /// Forgets what is over, so that a long drill's evidence does not grow: every request but the refused, and every
    /// delivery. Answers the ids of the hooks that were acked.
    ///
    /// To be called only with no client at work, once a drained store was judged: every acked hook was delivered, and
    /// nothing is stored but what is held. Whatever comes up again after that is a body that no client sent. The refused stay, so that
    /// one that comes up is called what it is.
    pub fn settle(&self, plan: &LoadPlan) -> Vec<String> {
        let mut pages = self.pages();
        let (mut ids, mut kept) = (Vec::new(), BTreeMap::new());
        for (number, outcome) in std::mem::take(&mut pages.answers) {
            match outcome {
                Outcome::Acked { id } => ids.push(id),
                // What it may have become stays in the pen, too.
                Outcome::Unknown if plan.is_forged(number) => {
                    kept.insert(number, outcome);
                }
                Outcome::Unknown => pages.settled.unknown += 1,
                // It stays in the pen.
                Outcome::Held | Outcome::Refused => {
                    kept.insert(number, outcome);
                }
            }
        }
        pages.answers = kept;
        pages.settled.acked += count_of(&ids);
        pages.settled.deliveries += count_of(&std::mem::take(&mut pages.deliveries));
        pages.attempts.clear();
        pages.times.clear();
        pages.repeats.clear();
        ids
    }

    /// Requests the sink saw, settled ones included.
    #[must_use]
    pub fn sink_requests(&self) -> u64 {
        let pages = self.pages();
        pages.settled.deliveries + count_of(&pages.deliveries)
    }

    #[must_use]
    pub fn tally(&self) -> Tally {
        let pages = self.pages();
        let count = |wanted: fn(&Outcome) -> bool| {
            u64::try_from(pages.answers.values().filter(|outcome| wanted(outcome)).count())
                .unwrap_or(u64::MAX)
        };
        Tally {
            acked: pages.settled.acked + count(|outcome| matches!(outcome, Outcome::Acked { .. })),
            held: count(|outcome| matches!(outcome, Outcome::Held)),
            refused: count(|outcome| matches!(outcome, Outcome::Refused)),
            unknown: pages.settled.unknown + count(|outcome| matches!(outcome, Outcome::Unknown)),
        }
    }

    /// How long clients waited, and for what.
    #[must_use]
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Whether every mark was written whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.pages().torn
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count_of<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_is_counted_and_gone_but_for_what_was_refused_or_forged() {
        let (journal, plan) = (Journal::new(), LoadPlan::new(1).with_forgeries());
        [1, 2, 3, 15, 31].into_iter().for_each(|number| journal.sending(number));
        journal.answered(1, Outcome::Acked { id: "a".to_owned() });
        journal.answered(2, Outcome::Refused);
        journal.answered(15, Outcome::Held);
        journal.seen("a", Digest::of(b""), |_| true);
        assert_eq!(journal.settle(&plan), ["a"]);
        let tally = Tally { acked: 1, held: 1, refused: 1, unknown: 2 };
        assert_eq!(journal.tally(), tally);
        assert_eq!(journal.sink_requests(), 1);
        assert_eq!(journal.deliveries(), []);
        let kept = [(2, Outcome::Refused), (15, Outcome::Held), (31, Outcome::Unknown)];
        assert_eq!(journal.requests(&plan), kept.map(|(n, outcome)| plan.request(n, outcome)));
        journal.sending(4);
        journal.answered(4, Outcome::Acked { id: "d".to_owned() });
        assert_eq!(journal.settle(&plan), ["d"], "each id once");
        assert_eq!(journal.tally(), Tally { acked: 2, ..tally });
    }

    #[test]
    fn marks_say_what_the_journal_says() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057".to_owned();
        for event in [
            Event::Answered { number: 7, outcome: Outcome::Acked { id: id.clone() } },
            Event::Answered { number: 8, outcome: Outcome::Refused },
            Event::Answered { number: 10, outcome: Outcome::Held },
            Event::Answered { number: 9, outcome: Outcome::Unknown },
            Event::Seen(Delivery { id, body: Digest::of(b"body"), attempt: 2, accepted: false }),
        ] {
            assert_eq!(Event::from_mark(event.to_mark().as_bytes()), Some(event));
        }
        assert_eq!(Event::from_mark(b"acked x y"), None);
        assert_eq!(Event::from_mark(b"\xff"), None);
    }

    #[test]
    fn what_is_to_be_in_order_says_when_it_was_sent_and_acked() {
        let (journal, plan) = (Journal::new(), LoadPlan::new(1));
        let ordered: Vec<u64> =
            (0..).filter(|number| plan.ordered_lane(*number).is_some()).take(3).collect();
        let [acked, refused, unknown] = ordered.as_slice() else { panic!("{ordered:?}") };
        let outside = (0..).find(|number| plan.ordered_lane(*number).is_none()).unwrap();
        ordered.iter().chain([&outside]).for_each(|number| journal.sending(*number));
        journal.answered(*refused, Outcome::Refused);
        journal.answered(*acked, Outcome::Acked { id: "a".to_owned() });
        let times: Vec<_> = journal
            .lane_requests(&plan)
            .into_iter()
            .map(|request| (request.sent_at, request.acked_at))
            .collect();
        assert_eq!(times, [(1, Some(6)), (2, None), (3, None)]);
        journal.not_sent(*unknown);
        assert_eq!(journal.lane_requests(&plan).len(), 2);
        journal.settle(&plan);
        assert_eq!(journal.lane_requests(&plan), []);
    }

    #[test]
    fn attempts_are_counted_by_hook() {
        let journal = Journal::new();
        let seen = |id| journal.seen(id, Digest::of(b""), |attempt| attempt > 1);
        assert_eq!([seen("a"), seen("b"), seen("a"), seen("a")], [false, false, true, true]);
        let attempts: Vec<(String, u32)> = journal
            .deliveries()
            .into_iter()
            .map(|delivery| (delivery.id, delivery.attempt))
            .collect();
        assert_eq!(attempts, [("a".into(), 1), ("b".into(), 1), ("a".into(), 2), ("a".into(), 3)]);
    }

    #[test]
    fn a_request_is_unknown_until_its_answer_is_written_down() {
        let journal = Journal::new();
        journal.sending(1);
        journal.sending(2);
        journal.answered(2, Outcome::Refused);
        assert_eq!(journal.tally(), Tally { refused: 1, unknown: 1, ..Tally::default() });
    }

    #[test]
    fn what_was_answered_after_a_moment_is_unknown_to_it() {
        let journal = Journal::new();
        (1..=3).for_each(|number| journal.sending(number));
        journal.answered(1, Outcome::Refused);
        let then = journal.answers();
        journal.answered(2, Outcome::Acked { id: "a".into() });
        journal.sending(4);
        journal.answered(4, Outcome::Refused);
        journal.back_to(&then);
        let unknown = |number| (number, Outcome::Unknown);
        let expected = [(1, Outcome::Refused), unknown(2), unknown(3), unknown(4)];
        assert_eq!(journal.answers(), expected.into());
    }
}
