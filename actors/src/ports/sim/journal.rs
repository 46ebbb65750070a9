//! What happened, as lines a test can compare.

use std::sync::{Mutex, PoisonError};

use crate::ports::{Event, Events};

/// Keeps every event as the text of its value.
#[derive(Debug, Default)]
pub struct JournalEvents {
    lines: Mutex<Vec<String>>,
}

impl JournalEvents {
    /// All lines so far, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines so far, and an empty journal from here on.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Events for JournalEvents {
    fn emit(&self, event: &Event<'_>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{event:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::failure::FailureClass;

    #[test]
    fn events_are_kept_as_text_in_the_order_they_happened() {
        let journal = JournalEvents::default();
        journal.emit(&Event::LoadShed);
        journal.emit(&Event::StoreWriteFailed { class: FailureClass::NoSpace });
        let lines = ["LoadShed", "StoreWriteFailed { class: NoSpace }"];
        assert_eq!(journal.lines(), lines);
        assert_eq!(journal.take(), lines);
        assert_eq!(journal.lines(), Vec::<String>::new());
    }
}
