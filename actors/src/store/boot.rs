//! What is checked between opening the database and letting anybody in.

use super::OpenNotes;
use super::recount::{self, Recount};
use crate::model::cf::Cf;
use crate::model::keys::{META_FORMAT_VERSION, is_sentinel, read_tolerant};
use crate::model::ops::{Ops, STORE_FORMAT};
use crate::ports::{Direction, Events, Kv, KvError, Lane, OpenReport, Scan};

/// Why a database that opened is not used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(
        "store format {0} is newer than the {STORE_FORMAT} this release knows; run the release that wrote it"
    )]
    Newer(u64),
    #[error(
        "store format {0} is older than {STORE_FORMAT} and this release has no migrations; run the release that wrote it"
    )]
    Older(u64),
    #[error("the store holds rows but no readable format stamp; it is not taken as empty")]
    Unstamped,
    #[error("{0} holds rows and {1} holds none: rows are missing")]
    FamilyLost(&'static str, &'static str),
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// What is checked between the open and letting anybody in.
///
/// # Errors
/// The database is not used.
pub(super) async fn look_around(
    kv: &dyn Kv,
    report: OpenReport,
    events: &dyn Events,
) -> Result<OpenNotes, BootError> {
    check(kv).await?;
    let OpenReport { closed_cleanly, cut } = report;
    let recount =
        if closed_cleanly { Recount::NotNeeded } else { recount::at_boot(kv, events).await? };
    Ok(OpenNotes { closed_cleanly, cut, recount })
}

/// The format before lanes. A store without lanes is the same in both, so it takes no more than the stamp: from then on
/// a release that does not know lanes refuses it.
const BEFORE_LANES: u64 = 7;

/// Whether this release may use the store at all.
pub(super) async fn check(kv: &dyn Kv) -> Result<(), BootError> {
    check_format(kv).await?;
    check_families(kv).await
}

/// Stamps an empty store and one of the format before, accepts one of our format, refuses every other.
async fn check_format(kv: &dyn Kv) -> Result<(), BootError> {
    match kv.get(Cf::Default, META_FORMAT_VERSION)? {
        Some(format) => match read_tolerant(&format) {
            Some(STORE_FORMAT) => Ok(()),
            Some(BEFORE_LANES) => stamp(kv).await,
            Some(newer) if newer > STORE_FORMAT => Err(BootError::Newer(newer)),
            Some(older) => Err(BootError::Older(older)),
            None => Err(BootError::Unstamped),
        },
        None if is_empty(kv).await? => stamp(kv).await,
        None => Err(BootError::Unstamped),
    }
}

/// A family that came up empty although another holds rows which stand for rows of it. A hook is deleted with the last
/// of its obligations, and so are its rows.
async fn check_families(kv: &dyn Kv) -> Result<(), BootError> {
    let owed = [(Cf::Hooks, Cf::Index), (Cf::Deliveries, Cf::Index), (Cf::Deliveries, Cf::Hooks)];
    for (of, needs) in owed {
        if has_rows(kv, of).await? && !has_rows(kv, needs).await? {
            return Err(BootError::FamilyLost(of.name(), needs.name()));
        }
    }
    Ok(())
}

async fn stamp(kv: &dyn Kv) -> Result<(), BootError> {
    let mut ops = Ops::default();
    ops.stamp_format();
    kv.apply(ops.finish(), Lane::Background).await?;
    Ok(kv.sync().await?)
}

async fn is_empty(kv: &dyn Kv) -> Result<bool, KvError> {
    for cf in Cf::ALL {
        if has_rows(kv, cf).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn has_rows(kv: &dyn Kv, cf: Cf) -> Result<bool, KvError> {
    let first = Scan {
        cf,
        range: Vec::new()..vec![0xff; 64],
        direction: Direction::Forward,
        max_rows: 2,
        max_bytes: usize::MAX,
    };
    let rows = kv.scan(first).await?.pairs;
    Ok(rows.iter().any(|(key, value)| !is_sentinel(cf, key, value)))
}
