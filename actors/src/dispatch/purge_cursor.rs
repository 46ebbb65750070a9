//! Where a purge stands, as its caller keeps it: text that only dispatch makes sense of.

use std::fmt;
use std::str::FromStr;

use super::purge::start;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{DeadByTenantKey, DueKey};

/// The longest key of the index that a purge stands at, and some.
const MAX_KEY_BYTES: usize = 64;

/// What rows can be in, as an operator tells them apart; in the order a purge goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purgeable {
    /// Waiting for an attempt, be it the first or another.
    Pending,
    /// Claimed by dispatch.
    Inflight,
    /// Given up.
    Dead,
}

impl Purgeable {
    pub const ALL: [Self; 3] = [Self::Pending, Self::Inflight, Self::Dead];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Inflight => "inflight",
            Self::Dead => "dead",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// Between two chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeCursor {
    /// Rows of later hooks stay.
    pub(super) through: Seq,
    /// Unix milliseconds.
    pub(super) began_ms: u64,
    /// Nothing dispatch wrote before is left, so rounds begin there.
    pub(super) is_later_round: bool,
    /// This round has removed something.
    pub(super) removed: bool,
    pub(super) state: Purgeable,
    /// The first key of the index that has not been looked at.
    pub(super) from: Vec<u8>,
}

impl PurgeCursor {
    pub(super) fn begin(tenant: TenantOrd, first: Purgeable, through: Seq, began_ms: u64) -> Self {
        let from = start(tenant, first);
        Self { through, began_ms, is_later_round: false, removed: false, state: first, from }
    }

    pub(super) fn next_round(self, tenant: TenantOrd, first: Purgeable) -> Self {
        let next = Self { is_later_round: true, removed: false, state: first, ..self };
        Self { from: next.start_of(tenant, first), ..next }
    }

    /// Where this round begins in a state.
    pub(super) fn start_of(&self, tenant: TenantOrd, state: Purgeable) -> Vec<u8> {
        if !self.is_later_round {
            return start(tenant, state);
        }
        match state {
            // Nobody joins a lane with a seq that was there before.
            Purgeable::Pending => DueKey::due_between(tenant, self.began_ms, self.began_ms).start,
            // Few, and in no order of time.
            Purgeable::Inflight => start(tenant, state),
            Purgeable::Dead => {
                DeadByTenantKey::died_between(tenant, self.began_ms, self.began_ms).start
            }
        }
    }

    /// Whether it stands at the start of a round.
    pub(super) fn is_at_start_of(&self, tenant: TenantOrd, first: Purgeable) -> bool {
        self.state == first && self.from == self.start_of(tenant, first)
    }

    /// The state it stands in.
    pub fn state(&self) -> Purgeable {
        self.state
    }
}

impl fmt::Display for PurgeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { through, began_ms, is_later_round, removed, state, from } = self;
        let (round, removed) = (u8::from(*is_later_round), u8::from(*removed));
        write!(f, "{}.{began_ms}.{round}.{removed}.{}.", through.0, state.as_str())?;
        from.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// It is not one that a purge answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no cursor of a purge")]
pub struct NoCursor;

impl FromStr for PurgeCursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        read(text).ok_or(NoCursor)
    }
}

fn read(text: &str) -> Option<PurgeCursor> {
    let mut parts = text.split('.');
    let through = Seq(parts.next()?.parse().ok()?);
    let began_ms = parts.next()?.parse().ok()?;
    let is_later_round = flag(parts.next()?)?;
    let removed = flag(parts.next()?)?;
    let state = Purgeable::parse(parts.next()?)?;
    let from = bytes(parts.next()?)?;
    let cursor = PurgeCursor { through, began_ms, is_later_round, removed, state, from };
    // One cursor has one form.
    (parts.next().is_none() && cursor.to_string() == text).then_some(cursor)
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _neither => None,
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex.len() > 2 * MAX_KEY_BYTES || !hex.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> PurgeCursor {
        PurgeCursor::begin(TenantOrd(7), Purgeable::Inflight, Seq(42), 1_700)
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let written = "42.1700.0.0.inflight.4600000007";
        assert_eq!(cursor().to_string(), written);
        assert_eq!(written.parse(), Ok(cursor()));
        let later =
            PurgeCursor { removed: true, ..cursor() }.next_round(TenantOrd(7), Purgeable::Dead);
        assert_eq!(later.to_string(), "42.1700.1.0.dead.580000000700000000000006a4");
        assert_eq!(later.to_string().parse(), Ok(later));
    }

    #[test]
    fn what_no_purge_answered_is_no_cursor() {
        for text in [
            "",
            "42",
            "42.1700.0.0.inflight",
            "42.1700.0.0.inflight.46.",
            "42.1700.2.0.inflight.46",
            "42.1700.0.0.asleep.46",
            "42.1700.0.0.inflight.4",
            "42.1700.0.0.inflight.4G",
            "42.1700.0.0.inflight.+6",
            "42.1700.0.0.inflight.AB",
            "042.1700.0.0.inflight.46",
            "+42.1700.0.0.inflight.46",
            "-1.1700.0.0.inflight.46",
            "42.99999999999999999999.0.0.inflight.46",
        ] {
            assert_eq!(text.parse::<PurgeCursor>(), Err(NoCursor), "{text:?}");
        }
        let long = format!("42.1700.0.0.inflight.{}", "46".repeat(MAX_KEY_BYTES + 1));
        assert_eq!(long.parse::<PurgeCursor>(), Err(NoCursor));
    }

    #[test]
    fn a_later_round_begins_with_what_was_written_since_the_purge_began() {
        let tenant = TenantOrd(7);
        let first = PurgeCursor::begin(tenant, Purgeable::Pending, Seq(42), 1_700);
        assert!(first.is_at_start_of(tenant, Purgeable::Pending));
        let later = first.next_round(tenant, Purgeable::Pending);
        assert!(later.is_at_start_of(tenant, Purgeable::Pending));
        let at = |at_ms| DueKey { tenant, at_ms, seq: Seq(1), sink: 0 }.encode().to_vec();
        assert!(at(1_699) < later.from && later.from < at(1_700));
        let moved = PurgeCursor { from: at(1_800), ..later };
        assert!(!moved.is_at_start_of(tenant, Purgeable::Pending));
    }
}
