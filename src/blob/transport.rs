//! One operation on a remote store: attempts, waits, credentials and the breaker, all before one deadline.
//!
//! What is asked and how it is signed is the [`Dialect`]'s; a request is signed as it is sent, so that a later attempt
//! carries a later date.

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::{BlobError, BlobEvent, BlobScope, Clock, Entropy, Event, Events};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::{Body, Request};
use tokio::time::{Instant, sleep_until, timeout_at};
use url::Url;

use super::answer::{Answer, Refusal};
use super::body::{PiecesBody, total};
use super::breaker::{Breaker, BreakerOptions, Breakers, Ended, Pass};
use super::exchange::{Exchanged, Times, exchange};
use super::options::TransportOptions;
use super::pool::{Pool, Pools};
use super::retry::{is_transient, retry_after, wait};
use super::spec_error::BlobSpecError;

/// The longest answer that is no object, in bytes: a page of a listing, or what an error says.
pub const PAGE_MAX_BYTES: u64 = 16 << 20;

/// What the adapters of a node share.
#[derive(Clone)]
pub struct World {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub events: Arc<dyn Events>,
    pub pools: Arc<Pools>,
    pub breakers: Arc<Breakers>,
}

/// The language of one provider.
#[async_trait]
pub trait Dialect: Send + Sync {
    /// Adds what proves who asks, as of now. Called once an attempt.
    ///
    /// # Errors
    /// There are no credentials: `transport` is tried again, anything else is final.
    async fn authorize(&self, request: &mut Request, deadline: Instant) -> Result<(), BlobError>;

    /// The status an answer stands for: S3 can begin one with 200 and fail afterwards.
    fn status(&self, answer: &Answer) -> StatusCode {
        answer.status
    }

    /// What an answer says that is no success.
    fn refusal(&self, answer: &Answer) -> Refusal;

    /// Whether it says that credentials have run out which can be had anew; they are dropped then. Asked once an
    /// operation, of an answer that would be final.
    async fn drops_credentials(&self, answer: &Answer, refusal: &Refusal) -> bool;

    /// Whether the store asks to be left alone, in words of its own.
    fn is_throttle(&self, _refusal: &Refusal) -> bool {
        false
    }

    /// Whether a status that is no failure of others' stands for one that passes here.
    fn passes(&self, _status: StatusCode, _refusal: &Refusal) -> bool {
        false
    }
}

/// One request, as often as it is sent.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Vec<Bytes>,
    /// How many bytes the store moves for it, where that is more than it carries: it has the time of so many.
    pub moves_bytes: u64,
    /// More is not read: the answer is an error then, in bytes.
    pub answer_max_bytes: u64,
}

impl Ask {
    pub fn new(method: Method, url: Url) -> Self {
        let (headers, body) = (HeaderMap::new(), Vec::new());
        Self { method, url, headers, body, moves_bytes: 0, answer_max_bytes: PAGE_MAX_BYTES }
    }

    /// How many bytes its time is for.
    pub(super) fn bytes(&self) -> u64 {
        total(&self.body).max(self.moves_bytes)
    }
}

/// What has become of the attempts so far that are made for one thing.
#[derive(Debug, Default)]
pub struct Tries {
    failures: u32,
    renewed: bool,
}

/// The way to one bucket.
pub struct Transport {
    scope: BlobScope,
    options: TransportOptions,
    world: World,
    pool: Arc<Pool>,
    breaker: Arc<Breaker>,
}

/// What became of an attempt that was made.
enum Attempt {
    Answered(Answer, Refusal),
    Failed(Failure),
}

/// Why an attempt may be made again.
struct Failure {
    error: BlobError,
    /// The store said how long it wants to be left alone.
    not_before: Option<Duration>,
}

impl Transport {
    /// To `bucket` at `endpoint`, which is a scheme, a host and a port.
    ///
    /// # Errors
    /// Why there can be none: the key of an option that is wrong, or another than that of a store it shares with.
    pub fn new(
        scope: BlobScope,
        endpoint: &Url,
        bucket: &str,
        options: &TransportOptions,
        world: &World,
    ) -> Result<Self, BlobSpecError> {
        let origin = endpoint.origin().ascii_serialization();
        let pool = world.pools.of(&origin, options)?;
        let breaker =
            world.breakers.of(&origin, bucket, BreakerOptions::from(options), &world.events)?;
        let (options, world) = (options.clone(), world.clone());
        Ok(Self { scope, options, world, pool, breaker })
    }

    pub const fn options(&self) -> &TransportOptions {
        &self.options
    }

    pub fn now_ms(&self) -> u64 {
        self.world.clock.now_ms()
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.world.clock
    }

    /// When an operation that begins now must have ended.
    pub fn deadline(&self, asked: Option<Instant>) -> Instant {
        let own = Instant::now() + self.options.op_deadline();
        asked.map_or(own, |asked| asked.min(own))
    }

    /// Asks until there is an answer that another attempt would not better. It may be a refusal still.
    ///
    /// # Errors
    /// There is none, or none in time.
    pub async fn send(
        &self,
        dialect: &dyn Dialect,
        ask: &Ask,
        deadline: Instant,
    ) -> Result<Answer, BlobError> {
        let mut tries = Tries::default();
        loop {
            if let Some(answer) = self.try_once(dialect, ask, deadline, &mut tries).await? {
                return Ok(answer);
            }
        }
    }

    /// One of the attempts of [`Self::send`], for those who look how far they came before they ask again. `None` if it
    /// failed and another may be made: the wait before that is over then.
    ///
    /// # Errors
    /// There is no answer, or none in time.
    pub async fn try_once(
        &self,
        dialect: &dyn Dialect,
        ask: &Ask,
        deadline: Instant,
        tries: &mut Tries,
    ) -> Result<Option<Answer>, BlobError> {
        let failure = match self.attempt(dialect, ask, deadline).await? {
            Attempt::Answered(answer, refusal) => {
                let may_renew = !tries.renewed && !answer.status.is_success();
                if may_renew && dialect.drops_credentials(&answer, &refusal).await {
                    tries.renewed = true;
                    return Ok(None);
                }
                return Ok(Some(answer));
            }
            Attempt::Failed(failure) => failure,
        };
        tries.failures += 1;
        if tries.failures > self.options.retries {
            return Err(failure.error);
        }
        let wait = wait(tries.failures, self.world.entropy.unit());
        let wait = failure.not_before.map_or(wait, |least| wait.max(least));
        let again_at = Instant::now() + wait;
        if again_at >= deadline {
            let throttled = failure.not_before.is_some();
            return Err(if throttled { failure.error } else { BlobError::Deadline });
        }
        self.world.events.emit(&Event::Blob(BlobEvent::Retried { scope: self.scope }));
        sleep_until(again_at).await;
        Ok(None)
    }

    /// # Errors
    /// No further attempt is to be made.
    async fn attempt(
        &self,
        dialect: &dyn Dialect,
        ask: &Ask,
        deadline: Instant,
    ) -> Result<Attempt, BlobError> {
        if Instant::now() >= deadline {
            return Err(BlobError::Deadline);
        }
        let Some(pass) = self.breaker.ask() else { return Err(BlobError::BreakerOpen) };
        let _connection = self.pool.checkout(deadline).await?;
        let mut request = request(ask);
        match timeout_at(deadline, dialect.authorize(&mut request, deadline)).await {
            Err(_) => return Err(BlobError::Deadline),
            Ok(Err(error @ BlobError::Transport(_))) => {
                return Ok(Attempt::Failed(Failure { error, not_before: None }));
            }
            Ok(Err(error)) => return Err(error),
            Ok(Ok(())) => {}
        }
        let times = Times { began: Instant::now(), deadline, options: &self.options };
        match exchange(self.pool.client(), request, ask, &times).await {
            Exchanged::Whole(answer) => {
                let small = times.small(ask, &answer);
                Ok(self.judged(dialect, answer, pass, small))
            }
            Exchanged::Broken(why) => {
                pass.ended(Ended::Failed);
                let error = BlobError::Transport(why);
                Ok(Attempt::Failed(Failure { error, not_before: None }))
            }
            Exchanged::CutOff { is_silent } => {
                pass.ended(if is_silent { Ended::Failed } else { Ended::Unsaid });
                Err(BlobError::Deadline)
            }
            Exchanged::TooLong => Err(BlobError::Misconfigured(format!(
                "{} bytes are the most that is read at once",
                ask.answer_max_bytes
            ))),
        }
    }

    fn judged(
        &self,
        dialect: &dyn Dialect,
        answer: Answer,
        pass: Pass,
        small: Option<Duration>,
    ) -> Attempt {
        let answer = Answer { status: dialect.status(&answer), ..answer };
        if answer.status.is_success() {
            pass.ended(Ended::Answered { small });
            return Attempt::Answered(answer, Refusal::default());
        }
        let refusal = dialect.refusal(&answer);
        let not_before = retry_after(answer.status, &answer.headers, self.now_ms());
        let throttles = answer.status == StatusCode::TOO_MANY_REQUESTS
            || not_before.is_some()
            || dialect.is_throttle(&refusal);
        let is_transient = is_transient(answer.status);
        let passes = dialect.passes(answer.status, &refusal);
        if throttles && (is_transient || passes) {
            pass.ended(Ended::Unsaid);
            let seconds = not_before.map_or(1, |least| least.as_millis().div_ceil(1_000).max(1));
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            let error = BlobError::Throttled { seconds };
            return Attempt::Failed(Failure { error, not_before });
        }
        if is_transient {
            pass.ended(Ended::Failed);
            let error = answer.error(&refusal, self.now_ms());
            return Attempt::Failed(Failure { error, not_before: None });
        }
        pass.ended(Ended::Answered { small });
        if passes {
            let error = BlobError::Transport(format!("{} {}", answer.status, refusal.code));
            return Attempt::Failed(Failure { error, not_before: None });
        }
        Attempt::Answered(answer, refusal)
    }
}

fn request(ask: &Ask) -> Request {
    let mut request = Request::new(ask.method.clone(), ask.url.clone());
    *request.headers_mut() = ask.headers.clone();
    if total(&ask.body) > 0 {
        *request.body_mut() = Some(Body::wrap(PiecesBody::new(&ask.body)));
    } else if matches!(ask.method, Method::PUT | Method::POST) {
        // Where a body is expected its length is, even of none; hyper says nothing about an empty one.
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    request
}
