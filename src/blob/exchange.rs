//! One request and its whole answer, in the time there is; or why there is none, and whether that says something of the
//! store.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Client, Request, Response};
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::body::total;
use super::options::{SMALL_MAX_BYTES, TransportOptions};
use super::transport::Ask;

/// A store that is well begins to answer within this, once it has what was asked of it.
const BEGINS_WITHIN: Duration = Duration::from_millis(250);

/// How much of a request is on its way in a second over the slowest line that is reckoned with, in bytes.
const LEAST_BYTES_PER_S: u64 = 1 << 20;

/// How an attempt ended that was sent.
pub(super) enum Exchanged {
    Whole(Answer),
    /// Why there is no whole answer.
    Broken(String),
    /// The operation's time was over first.
    CutOff {
        /// Not a word came, and there was time enough for one: of this attempt alone, whatever was waited for before it.
        is_silent: bool,
    },
    /// The answer is more than is read.
    TooLong,
}

/// How long one attempt has.
pub(super) struct Times<'a> {
    pub(super) began: Instant,
    /// The operation's.
    pub(super) deadline: Instant,
    pub(super) options: &'a TransportOptions,
}

impl Times<'_> {
    fn until(&self, bytes: u64) -> Instant {
        (self.began + self.options.timeout(bytes)).min(self.deadline)
    }

    /// Whether a store that is well would have begun to answer a request of so many bytes by now. What is slow may be our
    /// own line, and says nothing of the store.
    fn was_enough(&self, bytes: u64) -> bool {
        let sending = Duration::from_millis(bytes.saturating_mul(1_000) / LEAST_BYTES_PER_S);
        self.began.elapsed() >= sending.saturating_add(BEGINS_WITHIN)
    }

    /// How long it took, if it is one that is slow only because the store is.
    pub(super) fn small(&self, ask: &Ask, answer: &Answer) -> Option<Duration> {
        let carried = ask.bytes().max(total(std::slice::from_ref(&answer.body)));
        (carried <= SMALL_MAX_BYTES).then(|| self.began.elapsed())
    }
}

/// Sends the request made of `ask`, and reads what comes.
pub(super) async fn exchange(
    client: &Client,
    request: Request,
    ask: &Ask,
    times: &Times<'_>,
) -> Exchanged {
    let until = times.until(ask.bytes());
    let response = match timeout_at(until, client.execute(request)).await {
        Err(_) if until == times.deadline => {
            return Exchanged::CutOff { is_silent: times.was_enough(ask.bytes()) };
        }
        Err(_) => return Exchanged::Broken("no answer in time".to_owned()),
        // Without the URL: it may hold a signature.
        Ok(Err(error)) => return Exchanged::Broken(root_cause(&error.without_url())),
        Ok(Ok(response)) => response,
    };
    let until = times.until(ask.bytes().max(response.content_length().unwrap_or(0)));
    let (status, headers) = (response.status(), response.headers().clone());
    match timeout_at(until, read(response, ask.answer_max_bytes)).await {
        Err(_) if until == times.deadline => Exchanged::CutOff { is_silent: false },
        Err(_) => Exchanged::Broken("its answer stopped coming".to_owned()),
        Ok(Err(Unread::TooLong)) => Exchanged::TooLong,
        Ok(Err(Unread::Broken(why))) => Exchanged::Broken(why),
        Ok(Ok(body)) => Exchanged::Whole(Answer { status, headers, body }),
    }
}

pub(super) enum Unread {
    TooLong,
    Broken(String),
}

pub(super) async fn read(mut response: Response, max_bytes: u64) -> Result<Bytes, Unread> {
    let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let said = response.content_length().unwrap_or(0);
    if said > max_bytes {
        return Err(Unread::TooLong);
    }
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body.freeze()),
            Ok(Some(chunk)) if body.len() + chunk.len() > max => return Err(Unread::TooLong),
            Ok(Some(chunk)) => {
                // Once some of it is there: a length alone is no reason to take that much memory.
                if body.is_empty() {
                    body.reserve(usize::try_from(said).unwrap_or(0).max(chunk.len()));
                }
                body.extend_from_slice(&chunk);
            }
            Err(error) => return Err(Unread::Broken(root_cause(&error.without_url()))),
        }
    }
}

/// What went wrong, without the layers it went through.
pub(super) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
