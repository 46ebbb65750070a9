//! Google Cloud Storage for tests: a strict server of our own, emulators of others, and our adapter before them.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod creates;
mod crosscheck;
mod digests;
pub mod emulators;
mod fake;
mod faults;
mod listings;
mod metadata;
mod objects;
mod oracle;
mod parts;
mod refusals;
mod request;
mod specs;
mod tokens;
mod uploads;
mod xml;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::sim::{JournalEvents, SimClock};
use ankusa_actors::ports::{Blob, BlobKey, BlobScope, Entropy};
use ankusa_node::blob::gcs::{GcsAuth, GcsSpec, open_at};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::transport::World;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

pub use fake::Fake;
pub use request::{Fault, Said};

pub const BUCKET: &str = "bucket";

/// The least the store takes in a part that is not the last.
pub const STEP: usize = 256 << 10;

/// When the tests take place.
pub const NOW_MS: u64 = 1_796_000_000_000;

/// Numbers that differ and waits that are none.
#[derive(Default)]
struct Hasty(std::sync::atomic::AtomicU64);

impl Entropy for Hasty {
    fn bits(&self) -> u128 {
        let n = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        0xb0b0 << 96 | u128::from(n) << 64
    }

    fn unit(&self) -> f64 {
        0.0
    }
}

/// What adapters live in, of which a test sees the date and the events.
pub struct Surroundings {
    pub world: World,
    pub clock: Arc<SimClock>,
    pub events: Arc<JournalEvents>,
}

impl Surroundings {
    pub fn new() -> Self {
        let clock = Arc::new(SimClock::at(NOW_MS));
        let events = Arc::new(JournalEvents::default());
        let world = World {
            clock: clock.clone(),
            entropy: Arc::new(Hasty::default()),
            events: events.clone(),
            pools: Arc::default(),
            breakers: Arc::default(),
        };
        Self { world, clock, events }
    }

    pub fn open(&self, spec: &GcsSpec) -> Arc<dyn Blob> {
        self.open_at(spec, "metadata.invalid")
    }

    pub fn open_at(&self, spec: &GcsSpec, metadata_host: &str) -> Arc<dyn Blob> {
        open_at(spec, BlobScope::Claims, &self.world, metadata_host).unwrap()
    }
}

/// A bucket at `endpoint`, with parts as small as they can be and nobody asked who he is.
pub fn spec(endpoint: &str) -> GcsSpec {
    GcsSpec {
        bucket: BUCKET.to_owned(),
        endpoint: endpoint.to_owned(),
        auth: GcsAuth::None,
        // A busy machine is not a store that is slow.
        transport: TransportOptions {
            timeout_ms: 60_000,
            breaker_failures: 0,
            multipart_threshold_bytes: STEP as u64,
            multipart_part_bytes: STEP as u64,
            ..TransportOptions::default()
        },
        ..GcsSpec::default()
    }
}

pub fn key(text: &str) -> BlobKey {
    BlobKey::new(text).unwrap()
}

pub fn md5_base64(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

/// `count` bytes that do not repeat anywhere near.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
