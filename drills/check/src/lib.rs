//! The judge of the drills.
//!
//! It is given three things that were written down outside the node, and decides whether the node kept its promises:
//!
//! * what the clients sent and were answered ([`ledger::Request`]),
//! * what the sink saw ([`ledger::Delivery`]),
//! * every row of the store ([`dump::Dump`]).
//!
//! It shares no code with the node: it has its own reader of Erlang terms ([`term`]), its own decoders of keys and values
//! ([`rows`]), and its own statement of the invariants ([`judge()`]). A mistake the node makes in writing a row and in
//! reading it back would go unnoticed by the node's own tests; it does not go unnoticed here.

pub mod dump;
mod judge;
pub mod ledger;
pub mod merge;
pub mod rows;
pub mod store;
pub mod term;

pub use dump::{Dump, DumpError, Family, Row};
pub use judge::{
    Evidence, Invariant, LaneRequest, Moment, SeqHistory, Violation, judge, judge_lanes,
    only_stalled_lanes,
};
pub use ledger::{Delivery, Digest, Outcome, Request};
