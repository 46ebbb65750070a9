//! Whether a store does what its answers say ("Conditional writes"): asked of a store, not read in its manual.
//!
//! Objects are written once under a key and never again, and what keeps two nodes from owning one key is the store's own
//! `create`. A store that answers such a request and ignores the condition loses data, weeks later and without a word. So
//! it is tried, with an object of a random name.

use ankusa_actors::ports::{Blob, BlobBody, BlobError, BlobKey, BlobKeyError, Entropy};
use bytes::Bytes;
use tokio::time::Instant;

/// The folder, below the prefix, that the object is made in.
pub const PROBE_FOLDER: &str = "_probe/";

/// One thing that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// An object is created.
    Create,
    /// It is created again with other bytes, which must be refused.
    CreateAgain,
    /// It is read whole.
    Get,
    /// Some of its bytes are read, and some behind its end.
    Range,
    /// It is listed.
    List,
    /// It is removed, and gone.
    Delete,
}

impl Check {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::CreateAgain => "create again",
            Self::Get => "get",
            Self::Range => "range",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The store did what it was asked.
    Kept,
    /// It says it did, and did something else: what that means.
    Broken(&'static str),
    /// It did not.
    Failed(BlobError),
}

/// What a store is, as far as it has been tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Safe,
    /// It must not be used, and why.
    Unsafe {
        check: Check,
        why: &'static str,
    },
    /// It could not be tried, or not to the end.
    Unknown {
        check: Check,
        error: BlobError,
    },
}

/// Every check that was made, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(pub Vec<(Check, Finding)>);

impl Report {
    /// One thing that is broken outweighs everything that failed.
    pub fn verdict(&self) -> Verdict {
        let mut unknown = None;
        for (check, finding) in &self.0 {
            match finding {
                Finding::Kept => {}
                Finding::Broken(why) => return Verdict::Unsafe { check: *check, why },
                Finding::Failed(error) => unknown = unknown.or(Some((*check, error))),
            }
        }
        match unknown {
            Some((check, error)) => Verdict::Unknown { check, error: error.clone() },
            None => Verdict::Safe,
        }
    }
}

/// A new key to probe with.
///
/// # Errors
/// The prefix is too long for one.
pub fn probe_key(prefix: &str, entropy: &dyn Entropy) -> Result<BlobKey, BlobKeyError> {
    BlobKey::new(format!("{prefix}{PROBE_FOLDER}{:032x}", entropy.bits()))
}

/// Tries `store` with the object `key`, which nobody else knows. It is removed again, if the store lets it.
pub async fn probe(store: &dyn Blob, key: &BlobKey, deadline: Instant) -> Report {
    let probe = Probe { store, key, deadline };
    let mut checks = vec![(Check::Create, probe.create().await)];
    if matches!(checks.as_slice(), [(_, Finding::Kept)]) {
        checks.push((Check::CreateAgain, probe.create_again().await));
        checks.push((Check::Get, probe.get().await));
        checks.push((Check::Range, probe.range().await));
        checks.push((Check::List, probe.list().await));
        checks.push((Check::Delete, probe.delete().await));
    } else {
        // An answer that was lost may have been a good one.
        let _ = store.delete(key, Some(deadline)).await;
    }
    Report(checks)
}

const IGNORES_THE_CONDITION: &str = "the store ignores If-None-Match: a second create replaced the first, so two nodes could own \
     one key";
const REPLACED_ALL_THE_SAME: &str = "the store refused a second create and replaced the object all the same, so two nodes could \
     own one key";
const EXISTS_WITHOUT_BEING: &str = "the store says that an object exists which nobody wrote";
const OTHER_BYTES: &str = "the store answers other bytes than were written";
const OTHER_RANGE: &str =
    "the store answers other bytes than those of the range that was asked for";
const GONE: &str = "the store does not have the object it said it wrote";
const NOT_LISTED: &str = "the store does not list the object it said it wrote, with its size";
const NOT_DELETED: &str = "the store still has the object it said it deleted";

/// One object of one store.
struct Probe<'a> {
    store: &'a dyn Blob,
    key: &'a BlobKey,
    deadline: Instant,
}

impl Probe<'_> {
    /// What is written.
    fn bytes(&self) -> Bytes {
        Bytes::from(format!("the first object at {}", self.key))
    }

    fn others(&self) -> Bytes {
        Bytes::from(format!("another object at {}!", self.key))
    }

    async fn put(&self, bytes: Bytes) -> Result<(), BlobError> {
        self.store.put_if_absent(self.key, BlobBody::from(bytes), Some(self.deadline)).await
    }

    async fn create(&self) -> Finding {
        match self.put(self.bytes()).await {
            Ok(()) => Finding::Kept,
            Err(BlobError::AlreadyExists) => Finding::Broken(EXISTS_WITHOUT_BEING),
            Err(error) => Finding::Failed(error),
        }
    }

    async fn create_again(&self) -> Finding {
        match self.put(self.others()).await {
            Err(BlobError::AlreadyExists) => Finding::Kept,
            Ok(()) => Finding::Broken(IGNORES_THE_CONDITION),
            Err(error) => Finding::Failed(error),
        }
    }

    async fn get(&self) -> Finding {
        match self.store.get(self.key, Some(self.deadline)).await {
            Ok(bytes) if bytes == self.bytes() => Finding::Kept,
            Ok(bytes) if bytes == self.others() => Finding::Broken(REPLACED_ALL_THE_SAME),
            Ok(_) => Finding::Broken(OTHER_BYTES),
            Err(BlobError::NotFound) => Finding::Broken(GONE),
            Err(error) => Finding::Failed(error),
        }
    }

    async fn range(&self) -> Finding {
        let whole = self.bytes();
        let end = u64::try_from(whole.len()).unwrap_or(u64::MAX);
        // From within, past the end, and behind it.
        for (offset, length, expected) in
            [(4, 5, whole.slice(4..9)), (10, end, whole.slice(10..)), (end, 5, Bytes::new())]
        {
            match self.store.get_range(self.key, offset, length, Some(self.deadline)).await {
                Ok(bytes) if bytes == expected => {}
                Ok(_) => return Finding::Broken(OTHER_RANGE),
                Err(BlobError::NotFound) => return Finding::Broken(GONE),
                Err(error) => return Finding::Failed(error),
            }
        }
        Finding::Kept
    }

    async fn list(&self) -> Finding {
        let bytes = u64::try_from(self.bytes().len()).unwrap_or(u64::MAX);
        match self.store.list(self.key.as_str(), Some(self.deadline)).await {
            Ok(listed) => match listed.as_slice() {
                [entry] if entry.key == self.key.as_str() && entry.bytes == bytes => Finding::Kept,
                _other => Finding::Broken(NOT_LISTED),
            },
            Err(error) => Finding::Failed(error),
        }
    }

    async fn delete(&self) -> Finding {
        if let Err(error) = self.store.delete(self.key, Some(self.deadline)).await {
            return Finding::Failed(error);
        }
        match self.store.get(self.key, Some(self.deadline)).await {
            Err(BlobError::NotFound) => Finding::Kept,
            Ok(_) => Finding::Broken(NOT_DELETED),
            Err(error) => Finding::Failed(error),
        }
    }
}
