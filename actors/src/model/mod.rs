//! Values and rules. Nothing here is async, nothing here does IO.

pub mod batch;
pub mod cf;
pub mod delivery;
pub mod envelope;
pub mod failure;
pub mod ids;
