//! Object storage in memory, with faults on demand. It outlives the node that writes to it, as a bucket does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use crate::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, BlobVerb, GET_MAX_BYTES, is_range_asked,
};

mod fault;
#[cfg(test)]
mod tests;

pub use fault::BlobFault;
use fault::{Effect, Faults};

/// How much of a body is read at a time, in bytes: a source is asked more than once.
const READ_AT_ONCE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Object {
    bytes: Bytes,
    /// They are no longer what was written.
    damaged: bool,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    faults: Faults,
    delay: Duration,
    journal: Vec<String>,
}

/// A store of objects.
#[derive(Debug, Default)]
pub struct SimBlob {
    state: Mutex<State>,
}

impl SimBlob {
    pub fn empty() -> Arc<Self> {
        Arc::default()
    }

    pub fn fail(&self, fault: BlobFault) {
        self.state().faults.add(fault);
    }

    /// Switches every fault off.
    pub fn heal(&self) {
        self.state().faults.heal();
    }

    /// Every call from now on takes this long. One whose deadline is earlier ends then, and has done nothing.
    pub fn slow(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Everything that is stored.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        let state = self.state();
        state.objects.iter().map(|(key, object)| (key.clone(), object.bytes.clone())).collect()
    }

    pub fn keys(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// Another writer puts an object there, under any name.
    pub fn plant(&self, key: &str, bytes: impl Into<Bytes>) {
        self.state().land(key, bytes.into());
    }

    /// Somebody removes an object behind the node's back. Answers whether there was one.
    pub fn lose(&self, key: &str) -> bool {
        self.state().objects.remove(key).is_some()
    }

    /// The byte at `offset` of an object rots: a whole `get` finds out, by the digest, and a part of it does not. Answers
    /// whether there is such a byte.
    pub fn damage(&self, key: &str, offset: usize) -> bool {
        let mut state = self.state();
        let Some(object) = state.objects.get_mut(key) else { return false };
        let mut bytes = object.bytes.to_vec();
        let Some(byte) = bytes.get_mut(offset) else { return false };
        *byte ^= 1;
        *object = Object { bytes: bytes.into(), damaged: true };
        true
    }

    /// Every call, as it was made: `put a/b 12`, `put_if_absent a/b 12`, `get a/b`, `get_range a/b 0+4`, `delete a/b`,
    /// `list a/`.
    pub fn journal(&self) -> Vec<String> {
        self.state().journal.clone()
    }

    /// The same, and forgets it.
    pub fn take_journal(&self) -> Vec<String> {
        std::mem::take(&mut self.state().journal)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Journals a call and lets its time pass.
    ///
    /// # Errors
    /// `deadline`.
    async fn begin(&self, call: String, deadline: Option<Instant>) -> Result<(), BlobError> {
        let delay = {
            let mut state = self.state();
            state.journal.push(call);
            state.delay
        };
        let done_at = Instant::now() + delay;
        match deadline {
            Some(deadline) if deadline <= done_at => {
                sleep_until(deadline).await;
                return Err(BlobError::Deadline);
            }
            Some(_) | None => {}
        }
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep_until(done_at).await;
        }
        Ok(())
    }

    /// What happens to a change that has reached the store.
    fn change<T>(
        &self,
        (verb, key): (BlobVerb, &BlobKey),
        change: impl FnOnce(&mut State) -> Result<T, BlobError>,
    ) -> Result<T, BlobError> {
        let mut state = self.state();
        match state.faults.hit(verb, key.as_str()) {
            None => change(&mut state),
            Some((error, Effect::Landed)) => {
                let _lost = change(&mut state);
                Err(error)
            }
            Some((error, Effect::Nothing | Effect::Half)) => Err(error),
        }
    }

    fn read<T>(
        &self,
        (verb, key): (BlobVerb, &BlobKey),
        read: impl FnOnce(&Object) -> Result<T, BlobError>,
    ) -> Result<T, BlobError> {
        let mut state = self.state();
        if let Some((error, _effect)) = state.faults.hit(verb, key.as_str()) {
            return Err(error);
        }
        read(state.objects.get(key.as_str()).ok_or(BlobError::NotFound)?)
    }
}

impl State {
    fn land(&mut self, key: &str, bytes: Bytes) {
        self.objects.insert(key.to_owned(), Object { bytes, damaged: false });
    }
}

/// Reads a body, as it is sent.
async fn read(body: &BlobBody) -> Result<Bytes, BlobError> {
    let mut read = Vec::new();
    let mut at = 0;
    while at < body.bytes() {
        let end = body.bytes().min(at + READ_AT_ONCE_BYTES);
        for piece in body.read(at..end).await? {
            read.extend_from_slice(&piece);
        }
        at = end;
    }
    Ok(read.into())
}

#[async_trait]
impl Blob for SimBlob {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        self.begin(format!("put {key} {}", body.bytes()), deadline).await?;
        let bytes = read(&body).await?;
        self.change((BlobVerb::Put, key), |state| {
            state.land(key.as_str(), bytes);
            Ok(())
        })
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        self.begin(format!("put_if_absent {key} {}", body.bytes()), deadline).await?;
        let bytes = read(&body).await?;
        self.change((BlobVerb::PutIfAbsent, key), |state| match state.objects.get(key.as_str()) {
            Some(there) if there.bytes == bytes => Ok(()),
            Some(_others) => Err(BlobError::AlreadyExists),
            None => {
                state.land(key.as_str(), bytes);
                Ok(())
            }
        })
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        self.begin(format!("get {key}"), deadline).await?;
        self.read((BlobVerb::Get, key), |object| {
            if object.damaged {
                return Err(BlobError::Integrity("its digest is another".to_owned()));
            }
            if object.bytes.len() > usize::try_from(GET_MAX_BYTES).unwrap_or(usize::MAX) {
                return Err(BlobError::too_much());
            }
            Ok(object.bytes.clone())
        })
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        if !is_range_asked(length)? {
            return Ok(Bytes::new());
        }
        self.begin(format!("get_range {key} {offset}+{length}"), deadline).await?;
        self.read((BlobVerb::GetRange, key), |object| {
            let place = |at| usize::try_from(at).unwrap_or(usize::MAX).min(object.bytes.len());
            Ok(object.bytes.slice(place(offset)..place(offset.saturating_add(length))))
        })
    }

    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        self.begin(format!("delete {key}"), deadline).await?;
        self.change((BlobVerb::Delete, key), |state| {
            state.objects.remove(key.as_str());
            Ok(())
        })
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        self.begin(format!("list {prefix}"), deadline).await?;
        let mut state = self.state();
        if let Some((error, _effect)) = state.faults.hit(BlobVerb::List, prefix) {
            return Err(error);
        }
        let below = state.objects.iter().filter(|(key, _)| key.starts_with(prefix));
        let entry = |(key, object): (&String, &Object)| BlobEntry {
            key: key.clone(),
            bytes: u64::try_from(object.bytes.len()).unwrap_or(u64::MAX),
        };
        Ok(below.map(entry).collect())
    }
}
