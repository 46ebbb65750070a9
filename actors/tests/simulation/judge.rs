//! What was promised to whom, and whether it was kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::ids::{HookId, Seq};
use ankusa_actors::model::invariants::{self, Dump, Violation};
use ankusa_actors::model::keys::{
    DedupeKey, DeliveryKey, ExpiryKey, HookKey, LaneMemberKey, is_sentinel,
};
use ankusa_actors::ports::sim::{SimCounts, SimDisk};
use ankusa_actors::ports::{Clock, Delivery, Event, Events, Pair};
use ankusa_actors::queue::{CommitAnswer, DedupeConfig, NewHook};
use tokio::time::Instant;

use super::pen::PenJudge;
use super::plan::{Plan, Step};
use crate::common::EPOCH_MS;

/// What a client knows of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Waiting,
    Answered(CommitAnswer),
    /// Its connection broke: the node died, or the client left.
    Lost,
}

#[derive(Clone, Debug)]
struct Sent {
    sinks: usize,
    /// Tenant, source and key of a hook that is stored and has one.
    key: Option<String>,
    sent_at: Instant,
    answered_at: Option<Instant>,
    fate: Fate,
    /// The highest seq anybody had been answered when it was sent.
    after: Seq,
    /// Sinks that have taken it.
    taken: BTreeSet<usize>,
    /// Sinks that have said they never will.
    declined: BTreeSet<usize>,
    /// Sink and attempt.
    asked: BTreeSet<(usize, u32)>,
}

/// The header whose value hooks of an ordered sink go by.
pub const LANE_HEADER: &str = "lane";

/// The sink that takes its hooks in order, where a source has so many.
pub const ORDERED_SINK: usize = 1;

/// The keys of a source with so many sinks outlive every run, and whatever is done to its clock.
pub const LASTING_SINKS: usize = 2;

pub const LASTING_TTL_MS: u64 = 30 * 86_400_000;

/// How long other keys live.
pub const TTL_MS: u64 = 20_000;

/// A key that has expired is gone by then.
const SWEPT_BY_MS: u64 = 30_000;

/// What the sink of a lane has seen.
#[derive(Clone, Debug)]
struct LaneSeen {
    /// The hook it was asked to take last.
    seq: Seq,
    body: String,
    under_way: usize,
}

#[derive(Default)]
struct Record {
    /// By body: every body is sent once.
    sent: BTreeMap<String, Sent>,
    by_seq: BTreeMap<Seq, String>,
    by_id: BTreeMap<String, String>,
    highest: Seq,
    /// By source, tenant and value of the header.
    lanes: BTreeMap<String, LaneSeen>,
    journal: Vec<String>,
    violations: Vec<String>,
    /// A write of the store has failed.
    write_failed: bool,
    /// Bodies of values that were decoded before.
    bodies: BTreeMap<Vec<u8>, String>,
    /// Nothing is excused any more.
    is_over: bool,
    /// What the disk had been asked when the rows were last inspected.
    inspected: SimCounts,
}

/// Keeps the books of one run. Shared by the clients, the sinks and the plan.
#[derive(Clone)]
pub struct Judge {
    disk: Arc<SimDisk>,
    clock: Arc<dyn Clock>,
    archive: bool,
    dispatch: bool,
    max_attempts: u32,
    dedupe: DedupeConfig,
    /// Nobody sets the clock: keys live as long as they are to.
    keeps_time: bool,
    /// Nothing in the plan makes an attempt be made twice.
    asks_once: bool,
    pub pen: PenJudge,
    record: Arc<Mutex<Record>>,
}

fn body_of(value: &[u8]) -> String {
    String::from_utf8(Envelope::decode(value).unwrap().body.to_vec()).unwrap()
}

impl Judge {
    pub fn new(disk: &Arc<SimDisk>, clock: Arc<dyn Clock>, plan: &Plan) -> Self {
        Self {
            disk: Arc::clone(disk),
            clock,
            archive: plan.settings.storage_runs,
            dispatch: plan.settings.dispatch_runs,
            max_attempts: plan.settings.dispatch.retry.max_attempts,
            dedupe: plan.settings.dedupe.clone(),
            keeps_time: !plan.steps.iter().any(|step| matches!(step, Step::SetClock { .. })),
            asks_once: !plan.steps.iter().any(Step::disturbs),
            pen: PenJudge::new(disk),
            record: Arc::default(),
        }
    }

    /// Seq and body of every hook in these rows.
    fn hooks(&self, rows: &[Pair]) -> Vec<(Seq, String)> {
        let bodies = &mut self.record.lock().unwrap().bodies;
        let hooks = rows.iter().filter(|(key, value)| !is_sentinel(Cf::Hooks, key, value));
        let mut hook = |(key, value): &Pair| {
            let body = bodies.entry(value.clone()).or_insert_with(|| body_of(value));
            (HookKey::decode(key).unwrap().0, body.clone())
        };
        hooks.map(&mut hook).collect()
    }

    pub fn note(&self, what: &str) {
        self.record.lock().unwrap().note(self.clock.as_ref(), what);
    }

    pub fn object(&self, what: String) {
        self.note(&format!("VIOLATION {what}"));
        self.record.lock().unwrap().violations.push(what);
    }

    pub fn is_sent(&self, body: &str, sinks: usize, hook: &NewHook) {
        let Envelope { id, source_id, dedupe_key, .. } = &hook.envelope;
        let is_stored = self.archive || sinks > 0;
        let key = dedupe_key.as_ref().filter(|_| is_stored);
        let key = key.map(|key| format!("{} {source_id} {key:?}", hook.envelope.tenant()));
        let mut record = self.record.lock().unwrap();
        let after = record.highest;
        let (taken, declined, asked) = Default::default();
        let (fate, sent_at, answered_at) = (Fate::Waiting, Instant::now(), None);
        let sent = Sent { sinks, key, sent_at, answered_at, fate, after, taken, declined, asked };
        record.sent.insert(body.to_owned(), sent);
        record.by_id.insert(id.to_string(), body.to_owned());
    }

    pub fn is_lost(&self, body: &str) {
        let mut record = self.record.lock().unwrap();
        if let Some(sent) = record.sent.get_mut(body)
            && sent.fate == Fate::Waiting
        {
            sent.fate = Fate::Lost;
        }
    }

    /// A client reads its answer.
    pub fn is_answered(&self, body: &str, answer: CommitAnswer) {
        self.note(&format!("{body}: {answer:?}"));
        {
            let mut record = self.record.lock().unwrap();
            let sent = record.sent.get_mut(body).unwrap();
            (sent.fate, sent.answered_at) = (Fate::Answered(answer), Some(Instant::now()));
        }
        match answer {
            CommitAnswer::Committed(seq) => {
                self.is_committed(body, seq);
                self.is_the_only_one(body);
            }
            CommitAnswer::Duplicate(original) => self.is_a_duplicate(body, original),
            CommitAnswer::Refused(_) => self.is_refused(body),
            CommitAnswer::Unknown => {}
        }
    }

    fn is_committed(&self, body: &str, seq: Seq) {
        let sent = self.record.lock().unwrap().sent[body].clone();
        if seq <= sent.after {
            self.object(format!("{body} has seq {seq}, and {} was answered before", sent.after));
        }
        let same = self.record.lock().unwrap().by_seq.insert(seq, body.to_owned());
        if let Some(other) = same {
            self.object(format!("{body} and {other} both have seq {seq}"));
        }
        let mut record = self.record.lock().unwrap();
        record.highest = record.highest.max(seq);
        drop(record);
        let is_durable =
            self.hooks(&self.disk.durable_rows(Cf::Hooks)).contains(&(seq, body.to_owned()));
        if !is_durable && !self.may_be_gone(&sent) {
            self.object(format!("{body} is acked and a power cut would lose it"));
        }
    }

    fn ttl(&self, sent: &Sent) -> Duration {
        let lasting = sent.sinks == LASTING_SINKS;
        Duration::from_millis(if lasting { LASTING_TTL_MS } else { TTL_MS })
    }

    /// No other hook was acked as new under its key while that was certainly live.
    fn is_the_only_one(&self, body: &str) {
        let sent = self.record.lock().unwrap().sent.clone();
        let this = &sent[body];
        if this.key.is_none() || !(self.keeps_time || this.sinks == LASTING_SINKS) {
            return;
        }
        for (other_body, other) in sent.iter().filter(|(_, other)| other.key == this.key) {
            let is_acked = matches!(other.fate, Fate::Answered(CommitAnswer::Committed(_)));
            let first_at = this.sent_at.min(other.sent_at);
            let last_at = this.answered_at.max(other.answered_at).unwrap();
            if other_body != body && is_acked && last_at - first_at < self.ttl(this) {
                self.object(format!("{other_body} and {body} are both new under {:?}", this.key));
            }
        }
    }

    /// It repeats a hook that was sent under its key, and a power cut would not lose that one.
    fn is_a_duplicate(&self, body: &str, original: HookId) {
        let (sent, by_id) = {
            let record = self.record.lock().unwrap();
            (record.sent.clone(), record.by_id.get(&original.to_string()).cloned())
        };
        let this = &sent[body];
        let Some(first_body) = by_id else {
            return self.object(format!("{body} is said to repeat {original}, which nobody sent"));
        };
        let first = &sent[&first_body];
        if first.key != this.key || this.key.is_none() || first_body == body {
            self.object(format!("{body} is said to repeat {first_body}, which has another key"));
        }
        if matches!(
            first.fate,
            Fate::Answered(CommitAnswer::Refused(_) | CommitAnswer::Duplicate(_))
        ) {
            self.object(format!("{body} is said to repeat {first_body}: {:?}", first.fate));
        }
        let durable = self.hooks(&self.disk.durable_rows(Cf::Hooks));
        let is_durable = durable.iter().any(|(_, stored)| *stored == first_body);
        if !is_durable && !self.may_be_gone(first) {
            self.object(format!("{body} repeats {first_body}, which a power cut would lose"));
        }
        let is_over = first.answered_at.is_some_and(|at| this.sent_at > at + self.ttl(first));
        if self.keeps_time && is_over {
            self.object(format!("{body} repeats {first_body}, whose key had expired"));
        }
    }

    /// It owes nobody anything any more, or never did.
    fn may_be_gone(&self, sent: &Sent) -> bool {
        !self.archive && sent.taken.len() == sent.sinks
    }

    fn is_refused(&self, body: &str) {
        for (rows, whose) in [
            (self.disk.rows(Cf::Hooks), "readers see it"),
            (self.disk.durable_rows(Cf::Hooks), "it is on the disk"),
        ] {
            if self.hooks(&rows).iter().any(|(_, stored)| stored == body) {
                self.object(format!("{body} is refused and {whose}"));
            }
        }
        let taken = &self.record.lock().unwrap().sent[body].taken.clone();
        if !taken.is_empty() {
            self.object(format!("{body} is refused and was delivered"));
        }
    }

    /// A sink is asked to take it. It is under way for as long as the answer lives.
    pub fn is_delivered(&self, body: &str, sink: usize, delivery: &Delivery) -> UnderWay {
        self.note(&format!("{body}: attempt {} at sink {sink}", delivery.attempt));
        let durable = self.hooks(&self.disk.durable_rows(Cf::Hooks));
        let stored = durable.iter().find(|(_, stored)| stored == body);
        if stored.is_none() {
            self.object(format!("{body} is delivered and a power cut would lose it"));
        }
        let attempt = delivery.attempt;
        let sent = self.record.lock().unwrap().sent[body].clone();
        if matches!(
            sent.fate,
            Fate::Answered(CommitAnswer::Refused(_) | CommitAnswer::Duplicate(_))
        ) {
            self.object(format!("{body} was {:?} and is delivered", sent.fate));
        }
        if self.asks_once && sent.taken.contains(&sink) {
            self.object(format!("{body} was taken by sink {sink}, and is delivered again"));
        }
        let is_new = {
            let mut record = self.record.lock().unwrap();
            record.sent.get_mut(body).unwrap().asked.insert((sink, attempt))
        };
        let last = sent.asked.range((sink, 0)..=(sink, u32::MAX)).next_back();
        let follows = last.map_or(1, |(_, attempt)| attempt + 1) == attempt;
        if self.asks_once && !(is_new && follows) {
            self.object(format!("attempt {attempt} of {body} at sink {sink} comes after {last:?}"));
        }
        let lane = stored.filter(|_| sink == ORDERED_SINK).map(|(seq, _)| {
            let Envelope { source_id, headers, .. } = &*delivery.envelope;
            let lane = format!("{source_id} {} {headers:?}", delivery.tenant_id);
            self.is_in_turn(&lane, *seq, body);
            lane
        });
        UnderWay { judge: self.clone(), lane }
    }

    /// Per lane hooks are begun in the order of their seqs, each once the one before it was taken or given up.
    fn is_in_turn(&self, lane: &str, seq: Seq, body: &str) {
        let mut record = self.record.lock().unwrap();
        let under_way = record.lanes.get(lane).map_or(0, |seen| seen.under_way);
        let this = LaneSeen { seq, body: body.to_owned(), under_way: under_way + 1 };
        let before = record.lanes.insert(lane.to_owned(), this);
        let Some(before) = before else { return };
        let sent = &record.sent[&before.body];
        let is_over = sent.taken.contains(&ORDERED_SINK)
            || sent.declined.contains(&ORDERED_SINK)
            || sent.asked.contains(&(ORDERED_SINK, self.max_attempts));
        drop(record);
        let is_next = before.body == body || is_over;
        if before.seq > seq || before.under_way > 0 || !is_next {
            self.object(format!("{body} is begun with seq {seq} behind {before:?}"));
        }
    }

    /// A power cut undoes what was written of the ends of deliveries.
    pub fn lanes_may_begin_again(&self) {
        self.record.lock().unwrap().lanes.clear();
    }

    /// A sink has said that it will never take it.
    pub fn is_declined(&self, body: &str, sink: usize) {
        self.record.lock().unwrap().sent.get_mut(body).unwrap().declined.insert(sink);
    }

    /// A sink has taken it for good.
    pub fn is_taken(&self, body: &str, sink: usize) {
        self.record.lock().unwrap().sent.get_mut(body).unwrap().taken.insert(sink);
    }

    /// What the rows say, at any moment.
    pub fn inspect(&self, when: &str) {
        let disk = &self.disk;
        self.inspect_rows(when, |cf| disk.rows(cf));
        if disk.unsynced_batches() > 0 {
            self.inspect_rows(when, |cf| disk.durable_rows(cf));
        }
    }

    /// A group that failed and shows up after a reopen may find that dispatch has removed the marker of its second, which
    /// nobody could see it share. It is fenced, or the next start gives the marker back: an acked hook is never in it.
    /// So with the marker of a lane.
    fn is_excused(&self, violation: &Violation, hooks: &[(Seq, String)], index: &[Pair]) -> bool {
        let seqs: Vec<Seq> = if let Violation::DueWithoutMarker(due) = violation {
            vec![due.seq]
        } else if let Violation::LaneStalled(lane) = violation {
            let members = index.iter().filter_map(|(key, _)| LaneMemberKey::decode(key));
            members.filter(|member| member.of() == lane.of()).map(|member| member.seq).collect()
        } else {
            return false;
        };
        let record = self.record.lock().unwrap();
        let is_acked = |body: &String| {
            matches!(record.sent[body].fate, Fate::Answered(CommitAnswer::Committed(_)))
        };
        let is_hook_acked = |seq: &Seq| {
            let hook = hooks.iter().find(|(stored, _)| stored == seq);
            hook.is_none_or(|(_, body)| is_acked(body))
        };
        // A marker is removed and then looked behind, once the store is settled if the removal was said to have failed.
        let is_looked_behind =
            matches!(violation, Violation::LaneStalled(_)) && record.write_failed;
        !record.is_over && (is_looked_behind || !seqs.iter().any(is_hook_acked))
    }

    /// The same, unless nothing was written since.
    pub fn inspect_changes(&self, when: &str) {
        let counts = SimCounts { reads: 0, probes: 0, ..self.disk.counts() };
        let before = std::mem::replace(&mut self.record.lock().unwrap().inspected, counts);
        if before != counts {
            self.inspect(when);
        }
    }

    fn inspect_rows(&self, when: &str, rows: impl Fn(Cf) -> Vec<Pair>) {
        let family = |cf| rows(cf).into_iter().map(move |(key, value)| (cf, key, value));
        let dump = Dump::from_rows(Cf::ALL.into_iter().flat_map(family));
        for objection in self.pen.objections() {
            self.object(format!("{when}: {objection}"));
        }
        let hooks = self.hooks(&rows(Cf::Hooks));
        let index = rows(Cf::Index);
        for violation in invariants::check(&dump) {
            if !self.is_excused(&violation, &hooks, &index) {
                self.object(format!("{when}: {violation}"));
            }
        }
        let bodies: BTreeSet<_> = hooks.iter().map(|(_, body)| body).collect();
        if bodies.len() != hooks.len() {
            self.object(format!("{when}: a hook is stored twice: {hooks:?}"));
        }
        let sent = self.record.lock().unwrap().sent.clone();
        for (body, sent) in sent {
            match sent.fate {
                Fate::Answered(CommitAnswer::Refused(_) | CommitAnswer::Duplicate(_))
                    if bodies.contains(&body) =>
                {
                    self.object(format!("{when}: {body} was {:?} and is stored", sent.fate));
                }
                Fate::Waiting
                | Fate::Lost
                | Fate::Answered(
                    CommitAnswer::Refused(_)
                    | CommitAnswer::Duplicate(_)
                    | CommitAnswer::Unknown
                    | CommitAnswer::Committed(_),
                ) => {}
            }
        }
        self.inspect_keys(when, &bodies, &index);
    }

    /// One stored hook for a key that lasts, and no more keys than there may be.
    fn inspect_keys(&self, when: &str, stored: &BTreeSet<&String>, index: &[Pair]) {
        let sent = self.record.lock().unwrap().sent.clone();
        let mut holders: BTreeMap<&String, &String> = BTreeMap::new();
        for body in stored {
            let Some(sent) = sent.get(*body).filter(|sent| sent.sinks == LASTING_SINKS) else {
                continue;
            };
            let Some(key) = &sent.key else { continue };
            if let Some(other) = holders.insert(key, body) {
                self.object(format!("{when}: {other} and {body} are both stored under {key}"));
            }
        }
        let keys: Vec<_> = index.iter().filter_map(|(key, _)| DedupeKey::decode(key)).collect();
        let mut by_tenant: BTreeMap<&str, u64> = BTreeMap::new();
        keys.iter().for_each(|key| *by_tenant.entry(key.tenant()).or_default() += 1);
        let most = by_tenant.values().max().copied().unwrap_or_default();
        let DedupeConfig { max_entries, max_entries_per_tenant, .. } = self.dedupe;
        if keys.len() as u64 > max_entries || most > max_entries_per_tenant {
            self.object(format!("{when}: {} keys, {most} of one tenant", keys.len()));
        }
    }

    /// What has expired is gone.
    fn inspect_sweep(&self) {
        let now_ms = self.clock.now_ms();
        for (key, _) in self.disk.durable_rows(Cf::Index) {
            let expiry = ExpiryKey::decode(&key).map(|entry| entry.expires_at_ms);
            if expiry.is_some_and(|at_ms| at_ms + SWEPT_BY_MS < now_ms) && self.keeps_time {
                self.object(format!("a key that expired at {expiry:?} is still there"));
            }
        }
    }

    /// After a power cut, or at the end: what was acked is there.
    pub fn inspect_acked(&self, when: &str) {
        self.inspect(when);
        let durable: BTreeSet<_> =
            self.hooks(&self.disk.durable_rows(Cf::Hooks)).into_iter().collect();
        let sent = self.record.lock().unwrap().sent.clone();
        for (body, sent) in sent {
            let Fate::Answered(CommitAnswer::Committed(seq)) = sent.fate else { continue };
            if !durable.contains(&(seq, body.clone())) && !self.may_be_gone(&sent) {
                self.object(format!("{when}: {body} was acked with seq {seq} and is gone"));
            }
        }
    }

    /// Body and sink of every dead letter, on the disk.
    fn dead(&self) -> BTreeSet<(String, usize)> {
        let hooks: BTreeMap<_, _> =
            self.hooks(&self.disk.durable_rows(Cf::Hooks)).into_iter().collect();
        let rows = self.disk.durable_rows(Cf::Deliveries);
        let rows = rows.iter().filter(|(key, value)| !is_sentinel(Cf::Deliveries, key, value));
        let dead = rows.filter_map(|(key, value)| {
            let (key, row) = (DeliveryKey::decode(key)?, DeliveryRow::decode(value).ok()?);
            let body = hooks.get(&key.seq)?;
            (row.state == RowState::Dead).then(|| (body.clone(), usize::from(key.sink)))
        });
        dead.collect()
    }

    /// Every acked hook was taken by each of its sinks, or lies there dead.
    fn unsettled(&self) -> Vec<(String, usize)> {
        let dead = self.dead();
        let sent = self.record.lock().unwrap().sent.clone();
        let acked = sent
            .iter()
            .filter(|(_, sent)| matches!(sent.fate, Fate::Answered(CommitAnswer::Committed(_))));
        let owed = acked.flat_map(|(body, sent)| {
            let owed = (0..sent.sinks).filter(|sink| !sent.taken.contains(sink));
            owed.map(|sink| (body.clone(), sink))
        });
        owed.filter(|owed| !dead.contains(owed)).collect()
    }

    pub fn is_all_settled(&self) -> bool {
        !self.dispatch || self.unsettled().is_empty()
    }

    /// Nobody waits any more, every acked hook has been taken by every sink or is dead, and what is dead is so with reason.
    pub fn inspect_the_end(&self) {
        self.record.lock().unwrap().is_over = true;
        self.inspect_acked("at the end");
        self.inspect_sweep();
        let wrong = [self.pen.objections_to_limits(), self.pen.unanswered()].concat();
        wrong.into_iter().for_each(|objection| self.object(objection));
        let sent = self.record.lock().unwrap().sent.clone();
        for (body, sent) in &sent {
            if sent.fate == Fate::Waiting {
                self.object(format!("{body} was never answered"));
            }
        }
        for (body, sink) in if self.dispatch { self.unsettled() } else { Vec::new() } {
            self.object(format!("{body} was acked, and sink {sink} has not taken it"));
        }
        for (body, sink) in self.dead() {
            let of = &sent[&body];
            let is_tried = of.asked.range((sink, self.max_attempts)..=(sink, u32::MAX)).count() > 0;
            if !of.declined.contains(&sink) && !is_tried {
                self.object(format!("{body} is dead for sink {sink}: tried {:?}", of.asked));
            }
        }
    }

    pub fn committed(&self) -> usize {
        self.record.lock().unwrap().by_seq.len()
    }

    pub fn taken(&self) -> usize {
        self.record.lock().unwrap().sent.values().map(|sent| sent.taken.len()).sum()
    }

    pub fn journal(&self) -> Vec<String> {
        self.record.lock().unwrap().journal.clone()
    }

    pub fn violations(&self) -> Vec<String> {
        self.record.lock().unwrap().violations.clone()
    }
}

/// A delivery that has begun, however it ends.
pub struct UnderWay {
    judge: Judge,
    lane: Option<String>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut record = self.judge.record.lock().unwrap();
        let seen = self.lane.take().and_then(|lane| record.lanes.get_mut(&lane));
        if let Some(seen) = seen {
            seen.under_way = seen.under_way.saturating_sub(1);
        }
    }
}

impl Record {
    fn note(&mut self, clock: &dyn Clock, what: &str) {
        let at_ms = i128::from(clock.now_ms()) - i128::from(EPOCH_MS);
        self.journal.push(format!("{at_ms} {what}"));
    }
}

impl Events for Judge {
    fn emit(&self, event: &Event<'_>) {
        if matches!(event, Event::StoreWriteFailed { .. }) {
            self.record.lock().unwrap().write_failed = true;
        }
        self.note(&format!("{event:?}"));
    }
}
