//! Azurite, the access it wants to see, and a service that says whatever it is told to.

pub mod access;
pub mod azurite;
pub mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ankusa_actors::ports::sim::JournalEvents;
use ankusa_actors::ports::{Blob, BlobKey, BlobScope, Clock, Entropy};
use ankusa_node::blob::azure::{AzureSpec, Environment, open_in};
use ankusa_node::blob::transport::World;
use ankusa_node::host::HostClock;

/// Numbers that are never the same twice, and so small that no wait before another attempt is one.
#[derive(Default)]
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn bits(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst)) << 64
    }
}

/// A node's, on this machine's clock.
pub fn world() -> World {
    world_at(Arc::new(HostClock))
}

pub fn world_at(clock: Arc<dyn Clock>) -> World {
    World {
        clock,
        entropy: Arc::new(Counter::default()),
        events: Arc::new(JournalEvents::default()),
        pools: Arc::default(),
        breakers: Arc::default(),
    }
}

/// The store of a section, in a world and an environment of its own.
pub fn store(spec: &AzureSpec) -> Arc<dyn Blob> {
    open_in(spec, BlobScope::Segments, &world(), &Environment::default()).unwrap()
}

/// What a part is here, in bytes: a debug build takes its time over each.
pub const PART_BYTES: usize = 1 << 20;

/// Cuts objects into such parts.
pub fn with_small_parts(mut spec: AzureSpec) -> AzureSpec {
    spec.transport.multipart_threshold_bytes = PART_BYTES as u64;
    spec.transport.multipart_part_bytes = PART_BYTES as u64;
    spec
}

pub fn key(key: &str) -> BlobKey {
    BlobKey::new(key).unwrap()
}

/// So many bytes, other ones for another seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}
