//! The Azure adapter: against Azurite, which keeps objects and checks digests, signatures and tokens; and against a service
//! that says what a real one says on a bad day.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub
)]

/// What each answer comes to.
#[path = "azure/answers.rs"]
mod answers;
#[path = "azure/mod.rs"]
mod azure;
#[path = "support/fault_table.rs"]
mod fault_table;
/// What breaks on the way to Azurite.
#[path = "azure/faults.rs"]
mod faults;
/// Objects that Azurite keeps.
#[path = "azure/objects.rs"]
mod objects;
/// Managed identities.
#[path = "azure/tokens.rs"]
mod tokens;
