//! What is in the way of a create, compared with what was to be created: an answer may have been lost after its write had
//! landed ("same_object").

use ankusa_actors::ports::{BlobBody, BlobError, GET_MAX_BYTES};
use bytes::Bytes;
use tokio::time::Instant;

use super::body::{read_in_time, total};

/// Whether an object holds exactly `body`. Both are read `at_once_bytes` at a time, the object by `range`, which is told
/// an offset and a length.
///
/// # Errors
/// One of both cannot be read. An object that is gone by now is `transport`: whoever asks again writes it.
pub(super) async fn holds<R>(
    body: &BlobBody,
    at_once_bytes: u64,
    deadline: Instant,
    range: impl Fn(u64, u64) -> R,
) -> Result<bool, BlobError>
where
    R: Future<Output = Result<Bytes, BlobError>>,
{
    let at_once_bytes = at_once_bytes.clamp(1, GET_MAX_BYTES - 1);
    let mut at = 0;
    loop {
        let end = body.bytes().min(at + at_once_bytes);
        let is_last = end == body.bytes();
        // One byte more at the end: a longer object is another.
        let found = match range(at, end - at + u64::from(is_last)).await {
            Err(BlobError::NotFound) => {
                let why = "the object that was in the way is gone";
                return Err(BlobError::Transport(why.to_owned()));
            }
            found => found?,
        };
        if !is_made_of(&found, &read_in_time(body, at..end, deadline).await?) {
            return Ok(false);
        }
        if is_last {
            return Ok(true);
        }
        at = end;
    }
}

fn is_made_of(found: &Bytes, pieces: &[Bytes]) -> bool {
    if total(pieces) != total(std::slice::from_ref(found)) {
        return false;
    }
    let mut rest = &found[..];
    for piece in pieces {
        let Some(after) = rest.strip_prefix(&piece[..]) else { return false };
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    struct Hangs;

    #[async_trait::async_trait]
    impl ankusa_actors::ports::BlobSource for Hangs {
        fn bytes(&self) -> u64 {
            1
        }

        async fn read(&self, _: std::ops::Range<u64>) -> Result<Bytes, BlobError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_cannot_be_read_in_time_is_not_waited_for() {
        let body = BlobBody::of_source(std::sync::Arc::new(Hangs));
        let range = |_, _| std::future::ready(Ok(Bytes::from_static(b"a")));
        assert_eq!(holds(&body, 8, soon(), range).await, Err(BlobError::Deadline));
        assert_eq!(read_in_time(&body, 0..1, soon()).await, Err(BlobError::Deadline));
    }

    /// Of an object of these bytes, as every store answers it.
    async fn held(object: &'static [u8], body: &[&'static [u8]], at_once: u64) -> bool {
        let body = BlobBody::of_pieces(body.iter().map(|piece| Bytes::from_static(piece)));
        holds(&body, at_once, soon(), |offset, length| async move {
            let from = usize::try_from(offset).unwrap().min(object.len());
            let to = usize::try_from(offset + length).unwrap().min(object.len());
            Ok(Bytes::from_static(&object[from..to]))
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn only_the_same_bytes_are_the_same_object_however_they_are_cut() {
        for at_once in 1..=8 {
            assert!(held(b"abcdef", &[b"ab", b"cdef"], at_once).await, "{at_once}");
            assert!(held(b"", &[], at_once).await);
            for (object, body) in [
                (&b"abcdef"[..], &b"abcdeg"[..]),
                (b"abcdef", b"bbcdef"),
                (b"abcdef", b"abcdefg"),
                (b"abcdefg", b"abcdef"),
                (b"a", b""),
                (b"", b"a"),
            ] {
                assert!(!held(object, &[body], at_once).await, "{at_once} {object:?} {body:?}");
            }
        }
    }

    #[tokio::test]
    async fn an_object_that_has_gone_is_to_be_written_again_and_another_error_is_told() {
        for (said, told) in [(BlobError::NotFound, "transport"), (BlobError::Deadline, "deadline")]
        {
            let body = BlobBody::from(b"a".as_slice());
            let done = holds(&body, 8, soon(), |_, _| std::future::ready(Err(said.clone()))).await;
            assert_eq!(done.unwrap_err().as_str(), told);
        }
    }
}
