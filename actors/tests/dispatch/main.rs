//! Delivery, from a synced hook to its last obligation: on a simulated disk, with sinks that do as they are told, on
//! virtual time. Behind every scenario the whole store is held against the invariants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod breakers;
mod chaos;
mod claims;
mod crashes;
mod damage;
mod deliveries;
mod dlq;
mod fairness;
mod faults;
mod lane_crashes;
mod lanes;
mod markers;
mod purge;
mod retries;
mod states;
mod world;
