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

    use std::io::Write;
    use std::sync::Mutex;

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

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

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<u8>>>);

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What our log says of a dropped upload, in a node that goes on for so long.
    fn told(fails: u32, goes_on: Duration) -> String {
        let heard = Heard::default();
        let writer = heard.clone();
        let layer =
            fmt::layer().with_writer(move || writer.clone()).with_ansi(false).without_time();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
            let (upload, _hears) = begun(fails);
            runtime.block_on(async {
                drop(upload);
                if !goes_on.is_zero() {
                    tokio::time::sleep(goes_on).await;
                }
            });
        });
        let bytes = heard.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().trim().to_owned()
    }

    #[test]
    fn parts_that_may_be_left_are_told_with_the_id_of_their_upload() {
        let line = |why: &str| {
            let said = "parts of an upload may be left in the bucket";
            format!("WARN ankusa_node::blob::begun: {said} key=k upload=\"id\" error=\"{why}\"")
        };
        let minute = Duration::from_secs(60);
        assert_eq!(told(0, minute), "");
        assert_eq!(told(1, minute), line("deadline"));
        assert_eq!(told(0, Duration::ZERO), line("the node has ended"));
    }
}
