//! Values and rules. Nothing here is async, nothing here does IO.

pub mod batch;
pub mod certificate;
pub mod cf;
pub mod client_ip;
pub mod counters;
pub mod dedupe;
pub mod delivery;
pub mod digest;
pub mod egress;
pub mod envelope;
pub mod etf;
pub mod failure;
pub mod forward;
pub mod gcra;
pub mod handshake;
pub mod http_answer;
pub mod idempotency;
pub mod ids;
pub mod invariants;
pub mod keys;
pub mod network;
pub mod ops;
pub mod ordering;
pub mod peer_identity;
pub mod quarantine;
pub mod rate_limit;
pub mod reason;
pub mod retry;
pub mod route;
pub mod sink_spec;
pub mod source;
pub mod standard_webhooks;
pub mod stored_source;
pub mod value_version;
pub mod verify;

#[cfg(test)]
mod map_store;
