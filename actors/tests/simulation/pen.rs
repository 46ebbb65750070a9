//! What was promised of hooks that did not verify and of limits that were set.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ankusa_actors::edge::Answer;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::ports::Pair;
use ankusa_actors::ports::sim::SimDisk;

/// What a client knows of a hook for the pen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waiting,
    Held,
    Refused,
    /// Its connection was closed, or broke.
    Unknown,
}

#[derive(Default)]
struct Books {
    /// By body: every body is sent once.
    sent: BTreeMap<String, Fate>,
    /// The row of each tenant after the last change that was answered; `None` where one was not answered well.
    limits: BTreeMap<String, Option<String>>,
}

/// Keeps the books of the pen.
#[derive(Clone)]
pub struct PenJudge {
    disk: Arc<SimDisk>,
    books: Arc<Mutex<Books>>,
}

/// Bodies of the held hooks in these rows.
fn bodies(rows: &[Pair]) -> Vec<String> {
    let held = rows.iter().filter(|(key, _)| key.first() == Some(&b'b') && key.len() > 9);
    let body = |(_, value): &Pair| Envelope::decode(value).unwrap().body.to_vec();
    held.map(body).map(|body| String::from_utf8(body).unwrap()).collect()
}

impl PenJudge {
    pub fn new(disk: &Arc<SimDisk>) -> Self {
        Self { disk: Arc::clone(disk), books: Arc::default() }
    }

    pub fn is_sent(&self, body: &str) {
        self.books.lock().unwrap().sent.insert(body.to_owned(), Fate::Waiting);
    }

    pub fn is_lost(&self, body: &str) {
        if let Some(fate @ Fate::Waiting) = self.books.lock().unwrap().sent.get_mut(body) {
            *fate = Fate::Unknown;
        }
    }

    /// A client reads its answer. What is wrong with it.
    pub fn is_answered(&self, body: &str, answer: &Answer) -> Vec<String> {
        let fate = match answer {
            Answer::CloseUnanswered => Fate::Unknown,
            Answer::Send { status: 202, .. } => Fate::Held,
            Answer::Send { .. } | Answer::Said { .. } => Fate::Refused,
        };
        self.books.lock().unwrap().sent.insert(body.to_owned(), fate);
        let mut wrong = self.objections();
        if let Answer::Send { status, body, .. } = answer
            && ![202, 429, 503].contains(status)
        {
            wrong.push(format!("a hook for the pen is answered {status} {body}"));
        }
        wrong
    }

    /// What the rows say that they must not.
    pub fn objections(&self) -> Vec<String> {
        let rows = self.disk.rows(Cf::Quarantine);
        let durable = self.disk.durable_rows(Cf::Quarantine);
        let (seen, durable) = (bodies(&rows), bodies(&durable));
        let mut wrong = Vec::new();
        for (body, fate) in &self.books.lock().unwrap().sent {
            match fate {
                Fate::Held if !durable.contains(body) => {
                    wrong.push(format!("{body} was held and a power cut would lose it"));
                }
                Fate::Refused if durable.contains(body) || seen.contains(body) => {
                    wrong.push(format!("{body} was refused and is in the pen"));
                }
                Fate::Held | Fate::Refused | Fate::Waiting | Fate::Unknown => {}
            }
        }
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        if once.len() != seen.len() {
            wrong.push(format!("a hook is in the pen twice: {seen:?}"));
        }
        wrong
    }

    /// An operator was told how setting a limit ended, or that is not known.
    pub fn is_limited(&self, tenant: &str, row: Option<String>) {
        self.books.lock().unwrap().limits.insert(tenant.to_owned(), row);
    }

    /// What the rows of limits say that they must not.
    pub fn objections_to_limits(&self) -> Vec<String> {
        let rows = self.disk.durable_rows(Cf::Default);
        let mut wrong = Vec::new();
        for (tenant, told) in &self.books.lock().unwrap().limits {
            let key = format!("r:{tenant}");
            let row = rows.iter().find(|(stored, _)| stored == key.as_bytes());
            let row = row.map_or("", |(_, value)| std::str::from_utf8(value).unwrap());
            if told.as_ref().is_some_and(|told| told != row) {
                wrong.push(format!("the limit of {tenant} was {told:?} and is {row:?}"));
            }
        }
        wrong
    }

    /// Nobody waits any more.
    pub fn unanswered(&self) -> Vec<String> {
        let books = self.books.lock().unwrap();
        let waiting = books.sent.iter().filter(|(_, fate)| **fate == Fate::Waiting);
        waiting.map(|(body, _)| format!("{body} was never answered")).collect()
    }

    pub fn held(&self) -> usize {
        let books = self.books.lock().unwrap();
        books.sent.values().filter(|fate| **fate == Fate::Held).count()
    }
}
