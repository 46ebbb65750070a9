//! The data plane beside a mailbox: batches wait here, the mailbox only carries the wake-up.
//!
//! A message a hook would cost as much as the hook. Admission is somebody else's: whatever is pushed already holds its
//! permit, so the queue is as bounded as the permits are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Made with the tree; survives its owner, so a restarted owner finds what was left.
pub(crate) struct Inbox<T> {
    items: Arc<Mutex<VecDeque<T>>>,
}

impl<T> Inbox<T> {
    pub(crate) fn push(&self, item: T) {
        self.items().push_back(item);
    }

    /// The next item, if `fits` says that it may be taken.
    pub(crate) fn pop_if(&self, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut items = self.items();
        items.front().is_some_and(fits).then(|| items.pop_front()).flatten()
    }

    /// Up to `max` items, oldest first.
    pub(crate) fn take(&self, max: usize) -> Vec<T> {
        let mut items = self.items();
        let count = items.len().min(max);
        items.drain(..count).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items().len()
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: Arc::default() }
    }
}

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self { items: Arc::clone(&self.items) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_the_order_they_came_and_what_does_not_fit_stays_in_front() {
        let inbox = Inbox::default();
        (1..=4).for_each(|item| inbox.push(item));
        assert_eq!(inbox.take(2), [1, 2]);
        assert_eq!(inbox.pop_if(|item| *item > 3), None);
        assert_eq!(inbox.pop_if(|item| *item == 3), Some(3));
        assert_eq!((inbox.len(), inbox.is_empty()), (1, false));
    }
}
