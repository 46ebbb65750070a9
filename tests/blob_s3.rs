//! The S3 adapter before real servers, and before one that says what no server says when asked to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobBody, BlobKey, BlobScope, Event, Events};
use ankusa_node::blob::breaker::Breakers;
use ankusa_node::blob::pool::Pools;
use ankusa_node::blob::s3::{S3Spec, open};
use ankusa_node::blob::transport::World;
use ankusa_node::host::{HostClock, HostEntropy};

#[path = "blob_s3/answers.rs"]
mod answers;
#[path = "blob_s3/credentials.rs"]
mod credentials;
#[path = "support/fault_table.rs"]
mod fault_table;
#[path = "blob_s3/faults.rs"]
mod faults;
#[path = "support/relay.rs"]
mod relay;
#[path = "support/s3_servers.rs"]
mod s3_servers;
#[path = "blob_s3/servers.rs"]
mod servers;
#[path = "blob_s3/uploads.rs"]
mod uploads;

struct Quiet;

impl Events for Quiet {
    fn emit(&self, _: &Event<'_>) {}
}

fn world() -> World {
    World {
        clock: Arc::new(HostClock),
        entropy: Arc::new(HostEntropy),
        events: Arc::new(Quiet),
        pools: Arc::new(Pools::default()),
        breakers: Arc::new(Breakers::default()),
    }
}

fn store(spec: &S3Spec) -> Arc<dyn Blob> {
    open(spec, BlobScope::Segments, &world()).unwrap()
}

fn key(text: &str) -> BlobKey {
    BlobKey::new(text).unwrap()
}

fn body(bytes: &'static [u8]) -> BlobBody {
    bytes.into()
}

/// More than is sent at once.
fn large() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..(9 << 20) + 3).map(|_| next()).collect()
}
