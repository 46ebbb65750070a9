//! Any store, with what is asked of it told: metrics, and a span an operation.

use std::sync::Arc;

use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobEvent, BlobKey, BlobScope, BlobVerb, Event, Events,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug_span};

/// Tells of every operation.
pub struct Observed {
    scope: BlobScope,
    inner: Arc<dyn Blob>,
    events: Arc<dyn Events>,
}

impl Observed {
    pub fn new(scope: BlobScope, inner: Arc<dyn Blob>, events: Arc<dyn Events>) -> Self {
        Self { scope, inner, events }
    }

    async fn told<T>(
        &self,
        (verb, key): (BlobVerb, &str),
        bytes: impl FnOnce(&T) -> u64,
        operation: impl Future<Output = Result<T, BlobError>>,
    ) -> Result<T, BlobError> {
        let began = Instant::now();
        let span = debug_span!(
            "blob",
            store = self.scope.as_str(),
            verb = verb.as_str(),
            key,
            outcome = tracing::field::Empty
        );
        let done = operation.instrument(span.clone()).await;
        self.tell(verb, &span, done.as_ref().map(bytes), began);
        done
    }

    fn tell(&self, verb: BlobVerb, span: &Span, done: Result<u64, &BlobError>, began: Instant) {
        let outcome = done.as_ref().map_or_else(|error| error.as_str(), |_bytes| "ok");
        span.record("outcome", outcome);
        self.events.emit(&Event::Blob(BlobEvent::Done {
            scope: self.scope,
            verb,
            outcome,
            bytes: done.unwrap_or(0),
            took: began.elapsed(),
        }));
    }
}

fn len(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Blob for Observed {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let bytes = body.bytes();
        let put = self.inner.put(key, body, deadline);
        self.told((BlobVerb::Put, key.as_str()), |()| bytes, put).await
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let bytes = body.bytes();
        let put = self.inner.put_if_absent(key, body, deadline);
        self.told((BlobVerb::PutIfAbsent, key.as_str()), |()| bytes, put).await
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        self.told((BlobVerb::Get, key.as_str()), len, self.inner.get(key, deadline)).await
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        let get = self.inner.get_range(key, offset, length, deadline);
        self.told((BlobVerb::GetRange, key.as_str()), len, get).await
    }

    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        let delete = self.inner.delete(key, deadline);
        self.told((BlobVerb::Delete, key.as_str()), |()| 0, delete).await
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        self.told((BlobVerb::List, prefix), |_| 0, self.inner.list(prefix, deadline)).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::sync::Mutex;
    use std::time::Duration;

    use ankusa_actors::ports::sim::{BlobFault, SimBlob};

    use super::*;

    /// `segments put ok 12 5s`
    #[derive(Default)]
    struct Journal(Mutex<Vec<String>>);

    impl Events for Journal {
        fn emit(&self, event: &Event<'_>) {
            let Event::Blob(BlobEvent::Done { scope, verb, outcome, bytes, took }) = event else {
                panic!("{event:?}");
            };
            let (scope, verb) = (scope.as_str(), verb.as_str());
            let line = format!("{scope} {verb} {outcome} {bytes} {took:?}");
            self.0.lock().unwrap().push(line);
        }
    }

    fn body() -> BlobBody {
        Bytes::from_static(b"0123456789").into()
    }

    #[tokio::test(start_paused = true)]
    async fn every_operation_is_told_of_once_with_how_it_ended_and_what_it_moved() {
        let (sim, journal) = (SimBlob::empty(), Arc::new(Journal::default()));
        sim.slow(Duration::from_millis(20));
        let events = Arc::clone(&journal) as Arc<dyn Events>;
        let store = Observed::new(BlobScope::Claims, Arc::clone(&sim) as Arc<dyn Blob>, events);
        let (a, b) = (BlobKey::new("a").unwrap(), BlobKey::new("b").unwrap());
        let soon = Some(Instant::now());
        sim.plant("b", "another's");

        assert_eq!(store.put(&a, body(), None).await, Ok(()));
        assert_eq!(store.put_if_absent(&a, body(), None).await, Ok(()));
        assert_eq!(store.put_if_absent(&b, body(), None).await, Err(BlobError::AlreadyExists));
        assert_eq!(store.get(&a, None).await.unwrap(), "0123456789");
        assert_eq!(store.get_range(&a, 7, 100, None).await.unwrap(), "789");
        assert_eq!(store.list("", None).await.unwrap().len(), 2);
        assert_eq!(store.delete(&a, None).await, Ok(()));
        assert_eq!(store.get(&a, None).await, Err(BlobError::NotFound));
        assert_eq!(store.put(&a, body(), soon).await, Err(BlobError::Deadline));
        for error in [
            BlobError::Integrity(String::new()),
            BlobError::Throttled { seconds: 1 },
            BlobError::BreakerOpen,
            BlobError::Forbidden(String::new()),
            BlobError::ClockSkew { ahead_s: 1 },
            BlobError::WrongRegion { region: String::new() },
            BlobError::Misconfigured(String::new()),
            BlobError::Transport(String::new()),
        ] {
            sim.fail(BlobFault::refuse(BlobVerb::List, error.clone()));
            assert_eq!(store.list("", None).await, Err(error));
        }
        assert_eq!(
            *journal.0.lock().unwrap(),
            [
                "claims put ok 10 20ms",
                "claims put_if_absent ok 10 20ms",
                "claims put_if_absent already_exists 0 20ms",
                "claims get ok 10 20ms",
                "claims get_range ok 3 20ms",
                "claims list ok 0 20ms",
                "claims delete ok 0 20ms",
                "claims get not_found 0 20ms",
                "claims put deadline 0 0ns",
                "claims list integrity 0 20ms",
                "claims list throttled 0 20ms",
                "claims list breaker_open 0 20ms",
                "claims list forbidden 0 20ms",
                "claims list clock_skew 0 20ms",
                "claims list wrong_region 0 20ms",
                "claims list misconfigured 0 20ms",
                "claims list transport 0 20ms",
            ]
        );
    }
}
