//! What is checked between opening the database and letting anybody in.

use crate::model::cf::Cf;
use crate::model::keys::{META_FORMAT_VERSION, decode_format_version};
use crate::model::ops::Ops;
use crate::ports::{Direction, Kv, KvError, Lane, Scan};

/// The store format this release reads and writes ("Upgrading between releases"): 8, ordering lanes.
pub const STORE_FORMAT: u64 = 8;

/// Why a database that opened is not used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("store format {0} is newer than the {STORE_FORMAT} this release knows; run the release that wrote it")]
    Newer(u64),
    #[error(
        "store format {0} is older than {STORE_FORMAT} and this release has no migrations; run the release that wrote it"
    )]
    Older(u64),
    #[error("the store holds rows but no readable format stamp; it is not taken as empty")]
    Unstamped,
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// Stamps an empty store, accepts one of our format, refuses every other.
pub async fn check_format(kv: &dyn Kv) -> Result<(), BootError> {
    match kv.get(Cf::Default, META_FORMAT_VERSION)? {
        Some(stamp) => match decode_format_version(&stamp) {
            Some(STORE_FORMAT) => Ok(()),
            Some(newer) if newer > STORE_FORMAT => Err(BootError::Newer(newer)),
            Some(older) => Err(BootError::Older(older)),
            None => Err(BootError::Unstamped),
        },
        None if is_empty(kv).await? => stamp(kv).await,
        None => Err(BootError::Unstamped),
    }
}

async fn stamp(kv: &dyn Kv) -> Result<(), BootError> {
    let mut ops = Ops::new();
    ops.stamp_format(STORE_FORMAT);
    kv.apply(ops.finish(), Lane::Background).await?;
    Ok(kv.sync().await?)
}

async fn is_empty(kv: &dyn Kv) -> Result<bool, KvError> {
    for cf in Cf::ALL {
        let first = Scan {
            cf,
            range: Vec::new()..vec![0xff; 64],
            direction: Direction::Forward,
            max_rows: 1,
            max_bytes: usize::MAX,
        };
        if !kv.scan(first).await?.pairs.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}
