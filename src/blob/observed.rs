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
