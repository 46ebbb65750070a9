//! What the node decides: a pure model, ports to the outside, and one actor per process.
//!
//! Nothing in this package reads a clock, draws a random number, opens a file or a socket: those come in through
//! [`ports`]. That is what lets the whole tree run on virtual time against an in-memory disk that can lose power.

pub mod admin;
pub mod dispatch;
pub mod edge;
pub mod model;
pub mod node;
pub mod ports;
pub mod queue;
pub mod sources;
pub mod steady;
pub mod store;
pub mod supervision;
mod sync;
pub mod tree;
pub mod upkeep;

/// Whether this build carries the in-memory ports.
pub const SIM: bool = cfg!(feature = "sim");
