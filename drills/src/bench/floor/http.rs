//! The HTTP floor: nothing is kept.

use super::FloorError;
use super::server::{self, Hook, Keep};

#[derive(Clone, Copy)]
struct Nowhere;

impl Keep for Nowhere {
    async fn keep(&self, _: Hook) -> bool {
        true
    }
}

pub(super) fn serve() -> Result<(), FloorError> {
    server::serve(Nowhere)
}
