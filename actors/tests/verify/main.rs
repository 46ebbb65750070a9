//! Inbound verification: every preset against its provider's own example, the documented rules, and what no request may
//! do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod credentials;
mod handshakes;
mod presets;
mod properties;
mod providers;
mod rules;
mod schemes;
mod spec;
mod support;
