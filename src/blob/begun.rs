//! Uploads in parts that have begun, and must end: put together, or taken back. Parts of one that does neither take room,
//! unseen, until a rule of the bucket ends it.
//!
//! One whose call is dropped in the middle, by a node that stops or by whoever has waited long enough, is taken back
//! without anybody waiting for it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::{BlobError, BlobKey};
use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::{Instrument as _, warn};

/// How long it may take when nobody waits for it.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(10);

/// An upload that a store keeps the parts of.
#[async_trait]
pub(super) trait Upload: Send + Sync + 'static {
    fn key(&self) -> &BlobKey;

    /// As the store calls it.
    fn id(&self) -> &str;

    /// Has its parts thrown away. One that is over already is as good.
    ///
    /// # Errors
    /// They may be there still.
    async fn take_back(&self, deadline: Instant) -> Result<(), BlobError>;
}

/// Takes an upload back when it is dropped, unless it is over by then.
pub(super) struct Begun<U: Upload> {
    upload: Arc<U>,
    is_over: bool,
}

impl<U: Upload> Begun<U> {
    pub(super) fn new(upload: U) -> Self {
        Self { upload: Arc::new(upload), is_over: false }
    }

    /// It has been put together.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }

    /// Takes it back before `deadline`; what does not succeed by then is tried once more, without being waited for.
    pub(super) async fn take_back(mut self, deadline: Instant) {
        self.is_over = self.upload.take_back(deadline).await.is_ok();
    }
}

impl<U: Upload> Deref for Begun<U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.upload
    }
}

impl<U: Upload> Drop for Begun<U> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let left =
            Left { upload: Arc::clone(&self.upload), why: Some("the node has ended".to_owned()) };
        let Ok(runtime) = Handle::try_current() else { return };
        let take_back = async move {
            let deadline = Instant::now() + TAKEN_BACK_WITHIN;
            let taken = left.upload.take_back(deadline).await;
            left.became(taken);
        };
        runtime.spawn(take_back.in_current_span());
    }
}

/// Says so when it is dropped while there is a reason why the parts of an upload are still there: its task may be, too.
struct Left<U: Upload> {
    upload: Arc<U>,
    why: Option<String>,
}

impl<U: Upload> Left<U> {
    fn became(mut self, taken: Result<(), BlobError>) {
        self.why = taken.err().map(|error| error.to_string());
    }
}

impl<U: Upload> Drop for Left<U> {
    fn drop(&mut self) {
        if let Some(error) = &self.why {
            let (key, upload) = (self.upload.key(), self.upload.id());
            warn!(%key, upload, error, "parts of an upload may be left in the bucket");
        }
    }
}

/// Begins an upload to the end of its beginning, even if nobody waits for that any more: only then is there an id to take
/// it back by.
///
/// # Errors
/// As `begins`.
pub(super) async fn to_its_end<T: Send + 'static>(
    begins: impl Future<Output = Result<T, BlobError>> + Send + 'static,
) -> Result<T, BlobError> {
    let begun = tokio::spawn(begins.in_current_span()).await;
    // It is cancelled only with the runtime.
    begun.unwrap_or_else(|error| {
        Err(BlobError::Transport(format!("an upload was not begun: {error}")))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// Tells how long there was to take it back, and does as often as it is to.
    struct Told {
        key: BlobKey,
        told: UnboundedSender<Duration>,
        fails: Mutex<u32>,
    }

    #[async_trait]
    impl Upload for Told {
        fn key(&self) -> &BlobKey {
            &self.key
        }

        fn id(&self) -> &str {
            "id"
        }

        async fn take_back(&self, deadline: Instant) -> Result<(), BlobError> {
            self.told.send(deadline - Instant::now()).unwrap();
            let mut fails = self.fails.lock().unwrap();
            let fails_now = *fails > 0;
            *fails = fails.saturating_sub(1);
            if fails_now { Err(BlobError::Deadline) } else { Ok(()) }
        }
    }

    fn begun(fails: u32) -> (Begun<Told>, UnboundedReceiver<Duration>) {
        let (told, hears) = unbounded_channel();
        let key = BlobKey::new("k").unwrap();
        (Begun::new(Told { key, told, fails: Mutex::new(fails) }), hears)
    }

    async fn all(mut hears: UnboundedReceiver<Duration>) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(within) = hears.recv().await {
            all.push(within.as_secs());
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_is_over_is_not_taken_back_and_one_that_is_dropped_is() {
        let (upload, hears) = begun(0);
        upload.over();
        assert_eq!(all(hears).await, [] as [u64; 0]);
        let (upload, hears) = begun(0);
        drop(upload);
        assert_eq!(all(hears).await, [10]);
        let (upload, hears) = begun(1);
        drop(upload);
        assert_eq!(all(hears).await, [10], "it is told then, and not tried for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_back_in_time_is_tried_once_more() {
        for (fails, tries) in [(0, &[3][..]), (1, &[3, 10]), (2, &[3, 10])] {
            let (upload, hears) = begun(fails);
            upload.take_back(Instant::now() + Duration::from_secs(3)).await;
            assert_eq!(all(hears).await, tries);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_begun_by_the_time_nobody_waits_for_it_is_taken_back() {
        let (upload, hears) = begun(0);
        let slow = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(upload)
        };
        let waits = tokio::time::timeout(Duration::from_secs(1), to_its_end(slow)).await;
        assert!(waits.is_err());
        assert_eq!(all(hears).await, [10]);
    }
}
