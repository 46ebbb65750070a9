//! `ctl status` and `ctl tree`.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Admin, AdminError};
use crate::model::counters::Field;
use crate::model::failure::FailureClass;
use crate::ports::StoreCut;
use crate::store::{RECOUNT_ROWS_MAX, Recount};

/// The counters a person reads first.
const SHOWN: [Field; 11] = [
    Field::Pending,
    Field::Scheduled,
    Field::Inflight,
    Field::Dead,
    Field::Bytes,
    Field::ArchivePending,
    Field::Dedupe,
    Field::DeadBytes,
    Field::Lanes,
    Field::LanesBlocked,
    Field::LaneMembers,
];

impl Admin {
    /// Roles, seqs, queue counters, sync mark, uptime. Parts that need the store are null while it is closed.
    pub fn status(&self) -> Value {
        let opened = self.handles.store.notes();
        let counters: Map<String, Value> = SHOWN
            .into_iter()
            .map(|field| (field.as_str().to_owned(), json!(self.counter(field).ok())))
            .collect();
        json!({
            "instance": self.settings.instance,
            "version": self.version,
            "roles": self.settings.roles.names(),
            "uptime_ms": millis(self.started.elapsed()),
            "draining": *self.handles.stopping.borrow(),
            "store": self.store(),
            "opened": {
                "closed_cleanly": opened.closed_cleanly,
                "recount": recounted(opened.recount),
                "cut": opened.cut.map(|cut| cut_off(&cut)),
            },
            "scrub": self.scrub(),
            "next_seq": self.next_seq().ok().map(|seq| seq.0),
            "synced_through": self.handles.mark.get().0,
            "unsynced_groups": self.handles.ledger.open_groups(),
            "fencing": self.handles.ledger.is_failed(),
            "buffered_hooks": self.handles.batchers.iter().map(|b| b.admission().records()).sum::<usize>(),
            "queue": counters,
        })
    }

    /// Where the scrub of the store stands, and what it has found.
    pub fn scrub(&self) -> Value {
        let scrub = self.handles.scrub.snapshot();
        let findings = scrub.findings.iter().map(|found| {
            json!({"family": found.family.name(), "file": found.file, "detail": found.detail})
        });
        let last = scrub.last.map(|last| {
            json!({
                "took_ms": millis(last.took),
                "rows": last.rows,
                "bytes": last.bytes,
                "findings": last.findings,
            })
        });
        json!({
            "reading": scrub.reading.map(crate::model::cf::Cf::name),
            "rows": scrub.rows,
            "bytes": scrub.bytes,
            "disk_bytes": scrub.disk_bytes,
            "findings": findings.collect::<Vec<_>>(),
            "last": last,
        })
    }

    /// Begins a round of the scrub, unless one is under way.
    ///
    /// # Errors
    /// `scrub_disabled` where `store.scrub_bytes_per_s` is 0.
    pub fn begin_scrub(&self) -> Result<(), AdminError> {
        if self.settings.store.scrub_bytes_per_s == 0 {
            return Err(AdminError::ScrubDisabled);
        }
        self.handles.scrub.begin();
        Ok(())
    }

    /// The supervision tree, supervisors before their children.
    pub fn tree(&self) -> Value {
        let children = self.handles.board.report().into_iter().map(|child| {
            json!({
                "id": &*child.id,
                "parent": &*child.parent,
                "strategy": Some(child.strategy).filter(|strategy| !strategy.is_empty()),
                "state": child.state.as_str(),
                "for_ms": millis(child.since.elapsed()),
                "restarts": child.restarts,
                "downs": child.downs,
                "last_failure": child.last_failure,
            })
        });
        json!({
            "instance": self.settings.instance,
            "children": children.collect::<Vec<_>>(),
            "store": self.store(),
        })
    }

    /// How the store stands: what failed last, when it is tried again, how much room there is. What is not known is null.
    fn store(&self) -> Value {
        let state = self.handles.store.state();
        let (room, limits) = (state.room, state.limits);
        let now = Instant::now();
        let closed = state.since.filter(|_| !state.open);
        json!({
            "open": state.open,
            "generation": state.generation,
            "accepting": state.takes_hooks(),
            "failing": state.failing.map(FailureClass::as_str),
            "writer_blocked": self.handles.writer.blocked().map(FailureClass::as_str),
            "closed_for_ms": closed.map(|since| millis(now.duration_since(since))),
            "next_attempt_in_ms": state.next_attempt.map(|at| millis(at.duration_since(now))),
            "last_failure": state.last_failure.map(|failure| json!({
                "class": failure.class.as_str(),
                "op": failure.op,
                "ago_ms": millis(now.duration_since(failure.at)),
            })),
            "free_bytes": room.map(|room| room.free_bytes),
            "wal_bytes": room.map(|room| room.wal_bytes),
            "reserve_bytes": room.map(|room| room.reserve_bytes),
            "reserve_wanted_bytes": limits.reserve_bytes,
            "min_free_bytes": limits.min_free_bytes,
            "resume_free_bytes": limits.resume_free_bytes,
        })
    }
}

fn recounted(recount: Recount) -> String {
    match recount {
        Recount::NotNeeded => "not needed".to_owned(),
        Recount::Right { rows } => format!("right, {rows} rows"),
        Recount::Repaired { rows, counters } => format!("{counters} repaired, {rows} rows"),
        Recount::Skipped => format!("skipped, more than {RECOUNT_ROWS_MAX} rows"),
    }
}

fn cut_off(cut: &StoreCut) -> Value {
    json!({
        "file": cut.file,
        "at_byte": cut.at_byte,
        "bytes": cut.bytes,
        "records": cut.records,
        "why": cut.why,
        "kept_in": cut.kept_in,
    })
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
