//! Watches `/ready` of a node while a drill goes on, and remembers every change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::node::asking::ready_at;

/// Wait between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// What `/ready` said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Ready,
    /// 503, with `reasons.store` if it has one.
    NotReady(Option<String>),
    /// No answer.
    Nothing,
}

type Changes = Arc<Mutex<Vec<(Instant, Said)>>>;

/// A watch. It ends when this is dropped.
pub struct Watch {
    changes: Changes,
    task: JoinHandle<()>,
}

impl Watch {
    /// Watches the node on this port.
    #[must_use]
    pub fn start(port: u16) -> Self {
        let changes = Changes::default();
        let task = tokio::spawn(watch(port, Arc::clone(&changes)));
        Self { changes, task }
    }

    /// The first moment from `from` on at which it said something that `wanted` answers yes to. What it said before and has
    /// not taken back since counts as said at `from`.
    #[must_use]
    pub fn first(&self, from: Instant, wanted: impl Fn(&Said) -> bool) -> Option<Instant> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = changes.iter().rfind(|(at, _)| *at < from);
        let before = before.map(|(_, said)| (from, said));
        let later = changes.iter().filter(|(at, _)| *at >= from).map(|(at, said)| (*at, said));
        before.into_iter().chain(later).find(|(_, said)| wanted(said)).map(|(at, _)| at)
    }

    /// Waits for such a moment. None when it does not come within `within`.
    pub async fn wait_for(
        &self,
        from: Instant,
        within: Duration,
        wanted: impl Fn(&Said) -> bool,
    ) -> Option<Instant> {
        let began = Instant::now();
        loop {
            let first = self.first(from, &wanted);
            if first.is_some() || began.elapsed() >= within {
                return first;
            }
            sleep(EVERY).await;
        }
    }

    /// Everything that was said from `from` on, in words.
    #[must_use]
    pub fn told(&self, from: Instant) -> Vec<String> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let later = changes.iter().filter(|(at, _)| *at >= from);
        later
            .map(|(at, said)| format!("{} ms: {said:?}", at.duration_since(from).as_millis()))
            .collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(port: u16, changes: Changes) {
    loop {
        let said = match ready_at(port).await {
            Ok(answer) if answer.is_ready() => Said::Ready,
            Ok(answer) => Said::NotReady(answer.store_reason().map(str::to_owned)),
            Err(_) => Said::Nothing,
        };
        {
            let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
            if changes.last().is_none_or(|(_, last)| *last != said) {
                changes.push((Instant::now(), said));
            }
        }
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_finds_what_was_said_first_and_what_still_holds() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let failing = Said::NotReady(Some("io_error".to_owned()));
        let said = vec![(at(10), Said::Ready), (at(20), failing.clone()), (at(30), Said::Ready)];
        let watch = Watch { changes: Arc::new(Mutex::new(said)), task: tokio::spawn(async {}) };
        assert_eq!(watch.first(at(15), |said| *said == Said::Ready), Some(at(15)));
        assert_eq!(watch.first(at(15), |said| *said == failing), Some(at(20)));
        assert_eq!(watch.first(at(20), |said| *said == Said::Ready), Some(at(20)));
        assert_eq!(watch.first(at(30), |said| *said == failing), Some(at(30)));
        assert_eq!(watch.first(at(31), |said| *said == failing), None);
        assert_eq!(watch.first(at(0), |said| *said == Said::Nothing), None);
        assert_eq!(watch.told(at(20)).len(), 2);
    }
}
