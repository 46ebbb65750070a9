//! A wake-up that never piles up.
//!
//! Mailboxes are unbounded, so work waits in queues of its own and the mailbox carries at most one message saying that
//! there is some: however often the bell is rung, it rings once until it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ractor::Message;

use super::Slot;

pub struct Doorbell<M: Message> {
    slot: Slot<M>,
    rung: Arc<AtomicBool>,
    message: fn() -> M,
}

impl<M: Message> Doorbell<M> {
    pub fn new(slot: &Slot<M>, message: fn() -> M) -> Self {
        Self { slot: slot.clone(), rung: Arc::default(), message }
    }

    /// Sends the wake-up, unless one is already under way.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) && !self.slot.cast((self.message)()) {
            self.rung.store(false, Ordering::Release);
        }
    }

    /// Called by the owner before it looks for work, and when it starts: a predecessor may have died with the wake-up
    /// unread.
    pub fn answered(&self) {
        self.rung.store(false, Ordering::Release);
    }
}

impl<M: Message> Clone for Doorbell<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot.clone(), rung: Arc::clone(&self.rung), message: self.message }
    }
}
