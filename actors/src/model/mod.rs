//! Values and rules. Nothing here is async, nothing here does IO.

pub mod batch;
pub mod cf;
pub mod counters;
pub mod delivery;
pub mod envelope;
pub mod etf;
pub mod failure;
pub mod ids;
pub mod invariants;
pub mod keys;
pub mod ops;
pub mod retry;
pub mod value_version;

#[cfg(test)]
mod map_store;
