//! Object storage: whole objects under keys, kept somewhere that survives this host ("Ankusa.BlobStore").
//!
//! One contract for every adapter, held by `contract::blob`: a missing object is [`BlobError::NotFound`]; a listing that
//! fails midway is an error, never a shorter list; a create that finds its own bytes there has succeeded. Every call is
//! idempotent, so whoever is in doubt calls again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

pub use super::blob_body::{BlobBody, BlobSource};
pub use super::blob_key::{BlobKey, BlobKeyError};

/// Which of the configured stores something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobScope {
    /// Segments of the archive, their indexes and the manifests of the days.
    Segments,
    Backup,
    /// Claim packs.
    Claims,
}

impl BlobScope {
    pub const ALL: [Self; 3] = [Self::Segments, Self::Backup, Self::Claims];

    /// The `store` label of every metric, and the word of `--store`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Backup => "backup",
            Self::Claims => "claims",
        }
    }
}

/// What is asked of a store: the `verb` label of its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobVerb {
    Put,
    PutIfAbsent,
    Get,
    GetRange,
    Delete,
    List,
}

impl BlobVerb {
    pub const ALL: [Self; 6] =
        [Self::Put, Self::PutIfAbsent, Self::Get, Self::GetRange, Self::Delete, Self::List];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PutIfAbsent => "put_if_absent",
            Self::Get => "get",
            Self::GetRange => "get_range",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobEntry {
    /// The full key, as the store has it: other writers' may be none that [`BlobKey`] takes.
    pub key: String,
    pub bytes: u64,
}

/// A store of objects. A deadline of `None` is the store's own (`op_deadline_ms`); one that is given is kept to if it is
/// earlier. Nothing is sent past it.
#[async_trait]
pub trait Blob: Send + Sync + 'static {
    /// Writes the whole object, over what is there. Durable when it returns.
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError>;

    /// Writes the whole object unless there is one. An object that holds exactly `body` is this one: an answer may have
    /// been lost after its write had landed.
    ///
    /// # Errors
    /// [`BlobError::AlreadyExists`]: the object is another's and untouched.
    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError>;

    /// The whole object, checked against the digest the store keeps of it, if it keeps one.
    ///
    /// # Errors
    /// [`BlobError::Misconfigured`] beyond [`GET_MAX_BYTES`]: read it in ranges.
    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError>;

    /// `length` bytes from `offset` on; fewer where the object ends, none from its end on. A `length` of 0 is answered
    /// without asking. Not checked against any digest: whoever reads a part has a checksum of it.
    ///
    /// # Errors
    /// [`BlobError::Misconfigured`] for a `length` beyond [`GET_MAX_BYTES`].
    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError>;

    /// Removes the object. One that is not there has been removed.
    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError>;

    /// Every object whose key begins with `prefix`, which is any text, in the order of the keys' bytes.
    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError>;
}

/// The largest object a `get` or a `get_range` holds in memory, in bytes.
pub const GET_MAX_BYTES: u64 = 256 << 20;

/// Whether a store is asked at all for a range of `length` bytes.
///
/// # Errors
/// [`BlobError::Misconfigured`]: it is more than [`GET_MAX_BYTES`].
pub fn is_range_asked(length: u64) -> Result<bool, BlobError> {
    if length > GET_MAX_BYTES { Err(BlobError::too_much()) } else { Ok(length > 0) }
}

/// What a store answers that did not do what it was asked. Each says what the caller should do, see
/// [`BlobError::advice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    #[error("not_found")]
    NotFound,
    #[error("already_exists")]
    AlreadyExists,
    /// What arrived is not what was sent, on the way there or back.
    #[error("integrity: {0}")]
    Integrity(String),
    /// The store is there and wants to be left alone for so long.
    #[error("throttled: not before {seconds} s")]
    Throttled { seconds: u64 },
    #[error("deadline")]
    Deadline,
    /// Nothing was sent: the store failed too often a moment ago.
    #[error("breaker_open")]
    BreakerOpen,
    /// The credentials are wrong, have expired or allow less than was asked.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The store refuses our signature for the date on it: one of the two clocks is wrong.
    #[error("clock_skew: this host's clock is {ahead_s} s ahead of the store's")]
    ClockSkew { ahead_s: i64 },
    #[error("wrong_region: the bucket is in {region}")]
    WrongRegion { region: String },
    /// The store understood and will never do it: no such bucket, a request it does not know.
    #[error("misconfigured: {0}")]
    Misconfigured(String),
    /// It could not be reached, or failed; for a local store, the disk did.
    #[error("transport: {0}")]
    Transport(String),
}

/// What to do about a [`BlobError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobAdvice {
    /// It is an answer: there is no such object, or there is one.
    Answer,
    /// The same again may succeed, after a wait of the caller's own, and not before this long.
    Retry { after: Duration },
    /// Somebody has to change something: the same again fails again.
    Operator,
    /// The bytes are not to be trusted. A write may be made again; what was read is to be told.
    Distrust,
}

impl BlobError {
    /// More than [`GET_MAX_BYTES`] at once.
    pub fn too_much() -> Self {
        Self::Misconfigured(format!("{GET_MAX_BYTES} bytes are the most that is read at once"))
    }

    /// The word of it in metrics, logs and answers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Integrity(_) => "integrity",
            Self::Throttled { .. } => "throttled",
            Self::Deadline => "deadline",
            Self::BreakerOpen => "breaker_open",
            Self::Forbidden(_) => "forbidden",
            Self::ClockSkew { .. } => "clock_skew",
            Self::WrongRegion { .. } => "wrong_region",
            Self::Misconfigured(_) => "misconfigured",
            Self::Transport(_) => "transport",
        }
    }

    pub const fn advice(&self) -> BlobAdvice {
        match self {
            Self::NotFound | Self::AlreadyExists => BlobAdvice::Answer,
            Self::Integrity(_) => BlobAdvice::Distrust,
            Self::Throttled { seconds } => {
                BlobAdvice::Retry { after: Duration::from_secs(*seconds) }
            }
            Self::Deadline | Self::BreakerOpen | Self::Transport(_) => {
                BlobAdvice::Retry { after: Duration::ZERO }
            }
            Self::Forbidden(_)
            | Self::ClockSkew { .. }
            | Self::WrongRegion { .. }
            | Self::Misconfigured(_) => BlobAdvice::Operator,
        }
    }
}

/// The stores of a node, by what is in them. Two scopes may share one.
#[derive(Clone)]
pub struct BlobStores {
    pub segments: Arc<dyn Blob>,
    pub backup: Arc<dyn Blob>,
    /// In the order they are written to; the next one is for when one fails.
    pub claims: Vec<Arc<dyn Blob>>,
}
