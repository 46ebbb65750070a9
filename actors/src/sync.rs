//! What threads share by hand is made of these: the standard library's, or those of a scheduler that tries one
//! interleaving after the other. Neither sees into tokio or ractor, so few places are worth it: the door of the store, the
//! ledger with the replies and permits in it, and the slots.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, atomic};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, atomic};

/// Somebody else may run here, as on any line; that scheduler only looks where it is shown.
#[cfg(not(feature = "shuttle"))]
pub(crate) const fn others_may_run() {}

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::thread::yield_now as others_may_run;
