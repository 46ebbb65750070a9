//! A proxy before a real server that breaks one thing at a time, as a bucket and the way to it break.
//!
//! It speaks HTTP/1.1 on both sides, hands on what it is sent byte for byte (`Host` too: a signature covers it), and
//! keeps a list of every request that reached it. What is broken is a list of [`Rule`]s, which can change at any time.

mod fault;
mod link;
mod proxy;

pub use fault::{Fault, Rule, When};
pub use proxy::{Proxy, Seen};
