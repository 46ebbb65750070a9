//! Credentials that expire: fetched once for all who ask, kept until shortly before their end ("Refreshing
//! credentials").

use std::time::Duration;

use ankusa_actors::ports::{BlobError, Clock};
use tokio::sync::Mutex;

/// What was fetched, and when it ends in milliseconds since the Unix epoch; `None` for never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched<T> {
    pub value: T,
    pub expires_at_ms: Option<u64>,
}

/// One value that is fetched when it is needed.
pub struct Cached<T> {
    kept: Mutex<Option<Fetched<T>>>,
    early_ms: u64,
}

impl<T: Clone + Send> Cached<T> {
    /// Fetches anew from `early` before the end on.
    pub fn new(early: Duration) -> Self {
        let early_ms = u64::try_from(early.as_millis()).unwrap_or(u64::MAX);
        Self { kept: Mutex::new(None), early_ms }
    }

    /// The value, fetched if there is none or it ends soon. Whoever asks meanwhile waits for that fetch. One that fails
    /// does no harm while the value before has not ended.
    ///
    /// # Errors
    /// That of the fetch.
    pub async fn get(
        &self,
        clock: &dyn Clock,
        fetch: impl Future<Output = Result<Fetched<T>, BlobError>> + Send,
    ) -> Result<T, BlobError> {
        let mut kept = self.kept.lock().await;
        let ends_in_ms = |kept: &Fetched<T>, now_ms: u64| {
            kept.expires_at_ms.map_or(u64::MAX, |end| end.saturating_sub(now_ms))
        };
        if let Some(kept) = &*kept
            && ends_in_ms(kept, clock.now_ms()) > self.early_ms
        {
            return Ok(kept.value.clone());
        }
        match fetch.await {
            Ok(fetched) => {
                let value = fetched.value.clone();
                *kept = Some(fetched);
                Ok(value)
            }
            Err(error) => match &*kept {
                Some(kept) if ends_in_ms(kept, clock.now_ms()) > 0 => Ok(kept.value.clone()),
                Some(_) | None => Err(error),
            },
        }
    }

    /// Drops the value: a store does not take it any more. Answers whether there was one.
    pub async fn forget(&self) -> bool {
        self.kept.lock().await.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct At(AtomicU64);

    impl Clock for At {
        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }
    }

    async fn fetched(value: &'static str, end: u64) -> Result<Fetched<&'static str>, BlobError> {
        Ok(Fetched { value, expires_at_ms: Some(end) })
    }

    async fn fails() -> Result<Fetched<&'static str>, BlobError> {
        Err(BlobError::Transport("nobody there".into()))
    }

    #[tokio::test]
    async fn a_value_is_kept_until_shortly_before_its_end_and_used_until_its_end() {
        let clock = At(AtomicU64::new(0));
        let cached = Cached::new(Duration::from_millis(10));
        assert_eq!(cached.get(&clock, fails()).await.unwrap_err().as_str(), "transport");
        assert_eq!(cached.get(&clock, fetched("a", 100)).await, Ok("a"));
        clock.0.store(89, Ordering::SeqCst);
        assert_eq!(cached.get(&clock, fetched("b", 200)).await, Ok("a"));
        clock.0.store(90, Ordering::SeqCst);
        assert_eq!(cached.get(&clock, fails()).await, Ok("a"), "it has not ended");
        clock.0.store(100, Ordering::SeqCst);
        assert_eq!(cached.get(&clock, fails()).await.unwrap_err().as_str(), "transport");
        assert_eq!(cached.get(&clock, fetched("b", 200)).await, Ok("b"));
        assert!(cached.forget().await);
        assert!(!cached.forget().await);
        assert_eq!(cached.get(&clock, fetched("c", 300)).await, Ok("c"));
    }

    #[tokio::test]
    async fn all_who_ask_at_once_wait_for_one_fetch() {
        let clock = At(AtomicU64::new(0));
        let (cached, fetches) = (Cached::new(Duration::ZERO), AtomicU64::new(0));
        let get = || async {
            let fetch = async {
                fetches.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                fetched("a", 100).await
            };
            cached.get(&clock, fetch).await
        };
        let all = tokio::join!(get(), get(), get());
        assert_eq!(all, (Ok("a"), Ok("a"), Ok("a")));
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
    }
}
