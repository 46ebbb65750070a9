//! Reads the bodies of requests, exactly and within limits: of one body, and of all that are being received together.

use std::sync::atomic::AtomicU64;

use ankusa_actors::edge::BodyFailure;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use prometheus_client::metrics::gauge::Gauge;

/// The largest body a declared length makes room for before it has arrived.
const MAX_RESERVED_BYTES: usize = 64 * 1024;

/// The memory of all bodies that are being received. Bytes count once they are there: what a client only declares takes
/// nothing from the others.
#[derive(Clone, Debug)]
pub struct BodyMemory {
    used_bytes: Gauge<u64, AtomicU64>,
    max_bytes: u64,
}

/// Why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    Failed(BodyFailure),
    /// All bodies together would need more memory than there is for them.
    NoRoom,
}

impl BodyMemory {
    /// Of at most so many bytes, shown by `used_bytes`.
    pub fn new(max_bytes: usize, used_bytes: Gauge<u64, AtomicU64>) -> Self {
        Self { used_bytes, max_bytes: u64::try_from(max_bytes).unwrap_or(u64::MAX) }
    }

    /// Whether nothing more can be received now.
    pub(super) fn is_full(&self) -> bool {
        self.used_bytes.get() >= self.max_bytes
    }
}

/// What one body has taken of the memory; given back when it is dropped.
struct Taken<'a> {
    memory: &'a BodyMemory,
    bytes: u64,
}

impl Taken<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), NoBody> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let before = self.memory.used_bytes.inc_by(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        if before.saturating_add(bytes) > self.memory.max_bytes {
            return Err(NoBody::NoRoom);
        }
        Ok(())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.memory.used_bytes.dec_by(self.bytes);
    }
}

/// The exact bytes, held to `limit` and to what `memory` has room for while they arrive.
pub(super) async fn read(
    mut body: Incoming,
    limit: usize,
    memory: &BodyMemory,
) -> Result<Bytes, NoBody> {
    let mut taken = Taken { memory, bytes: 0 };
    let declared = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut first = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_closed| NoBody::Failed(BodyFailure::Disconnected))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(NoBody::Failed(BodyFailure::TooLarge));
        }
        taken.take(data.len())?;
        match first.take() {
            // Most bodies are one frame: nothing is copied.
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(before) => {
                whole.reserve(declared.unwrap_or(0).min(MAX_RESERVED_BYTES));
                whole.extend_from_slice(&before);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bodies_take_is_bounded_together_and_given_back() {
        let memory = BodyMemory::new(10, Gauge::default());
        let taken = || Taken { memory: &memory, bytes: 0 };
        let (mut one, mut other) = (taken(), taken());
        assert_eq!((one.take(6), memory.is_full()), (Ok(()), false));
        assert_eq!((other.take(4), memory.is_full()), (Ok(()), true));
        assert_eq!(other.take(1), Err(NoBody::NoRoom));
        drop(other);
        assert_eq!(memory.used_bytes.get(), 6);
        assert_eq!(one.take(4), Ok(()));
        drop(one);
        assert_eq!(memory.used_bytes.get(), 0);
    }
}
