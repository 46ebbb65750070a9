//! A bucket that fails again and again is left alone for a while: nobody waits for its timeouts ("A breaker per
//! {endpoint, bucket}").

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ankusa_actors::ports::{BlobEvent, Event, Events};
use tokio::time::Instant;

use super::options::TransportOptions;
use super::spec_error::BlobSpecError;

/// The p99 is of so many small requests; fewer say nothing.
const WINDOW: usize = 100;

/// What opens and closes a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Failures in a row; 0 turns the breaker off.
    pub failures: u32,
    pub slow: Duration,
    pub open: Duration,
}

impl From<&TransportOptions> for BreakerOptions {
    fn from(options: &TransportOptions) -> Self {
        Self {
            failures: options.breaker_failures,
            slow: Duration::from_millis(options.breaker_slow_ms),
            open: Duration::from_millis(options.breaker_open_ms),
        }
    }
}

/// The breakers of a node: one an endpoint and bucket, whatever stores talk to it.
#[derive(Default)]
pub struct Breakers {
    by_bucket: Mutex<BTreeMap<(String, String), Arc<Breaker>>>,
}

impl Breakers {
    /// That of a bucket.
    ///
    /// # Errors
    /// A store that talks to the bucket already says something else of when it opens and closes.
    pub fn of(
        &self,
        endpoint: &str,
        bucket: &str,
        options: BreakerOptions,
        events: &Arc<dyn Events>,
    ) -> Result<Arc<Breaker>, BlobSpecError> {
        let mut by_bucket = self.by_bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (endpoint.to_owned(), bucket.to_owned());
        let new = || Arc::new(Breaker::new(endpoint, bucket, options, Arc::clone(events)));
        let breaker = by_bucket.entry(key).or_insert_with(new);
        let known = breaker.options;
        for (key, is_same) in [
            ("breaker_failures", known.failures == options.failures),
            ("breaker_slow_ms", known.slow == options.slow),
            ("breaker_open_ms", known.open == options.open),
        ] {
            if !is_same {
                let text = format!("must be the same for every store of {bucket} at {endpoint}");
                return Err(BlobSpecError::new(key, text));
            }
        }
        Ok(Arc::clone(breaker))
    }
}

/// Whether requests are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    Closed,
    Open,
    /// One request is let through to see.
    HalfOpen,
}

impl BreakerState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

pub struct Breaker {
    endpoint: String,
    bucket: String,
    options: BreakerOptions,
    events: Arc<dyn Events>,
    inner: Mutex<Inner>,
}

struct Inner {
    state: BreakerState,
    failed_in_a_row: u32,
    /// How long the last small requests took, oldest first.
    took: VecDeque<Duration>,
    open_until: Option<Instant>,
    /// Whether the one request of a half-open breaker is on its way.
    probing: bool,
}

/// How a request ended, as the breaker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The store answered, whatever it said; so late, if the request was small.
    Answered {
        small: Option<Duration>,
    },
    /// A throttle, or a failure of this node: it says nothing of the store's health.
    Unsaid,
    Failed,
}

/// One request that was let through. Dropped without an end, it says nothing.
pub struct Pass {
    breaker: Arc<Breaker>,
    /// It is the one of a half-open breaker.
    probes: bool,
    ended: bool,
}

impl Breaker {
    fn new(endpoint: &str, bucket: &str, options: BreakerOptions, events: Arc<dyn Events>) -> Self {
        let inner = Inner {
            state: BreakerState::Closed,
            failed_in_a_row: 0,
            took: VecDeque::with_capacity(WINDOW),
            open_until: None,
            probing: false,
        };
        let (endpoint, bucket) = (endpoint.to_owned(), bucket.to_owned());
        Self { endpoint, bucket, options, events, inner: Mutex::new(inner) }
    }

    pub fn state(&self) -> BreakerState {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).state
    }

    /// Lets a request through, or not. Of a breaker that has been open long enough, one.
    pub fn ask(self: &Arc<Self>) -> Option<Pass> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let over = inner.open_until.is_none_or(|until| Instant::now() >= until);
        let probes = match inner.state {
            BreakerState::Closed => false,
            BreakerState::Open if over => {
                self.turn(&mut inner, BreakerState::HalfOpen);
                true
            }
            BreakerState::HalfOpen if !inner.probing => true,
            BreakerState::Open | BreakerState::HalfOpen => return None,
        };
        inner.probing = probes;
        Some(Pass { breaker: Arc::clone(self), probes, ended: false })
    }

    fn ended(&self, probes: bool, ended: Ended) {
        if self.options.failures == 0 {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        // What was asked before it opened says nothing of how the store is by now.
        if !probes && inner.state != BreakerState::Closed {
            return;
        }
        match ended {
            Ended::Unsaid => {}
            Ended::Failed => {
                inner.failed_in_a_row = inner.failed_in_a_row.saturating_add(1);
                if probes || inner.failed_in_a_row >= self.options.failures {
                    self.open(inner);
                }
            }
            Ended::Answered { small } => {
                inner.failed_in_a_row = 0;
                if probes {
                    inner.took.clear();
                    self.turn(inner, BreakerState::Closed);
                }
                if let Some(took) = small {
                    inner.add(took);
                    if inner.p99().is_some_and(|p99| p99 > self.options.slow) {
                        self.open(inner);
                    }
                }
            }
        }
        if probes {
            inner.probing = false;
        }
    }

    fn open(&self, inner: &mut Inner) {
        inner.open_until = Some(Instant::now() + self.options.open);
        inner.took.clear();
        self.turn(inner, BreakerState::Open);
    }

    fn turn(&self, inner: &mut Inner, to: BreakerState) {
        if inner.state == to {
            return;
        }
        inner.state = to;
        self.events.emit(&Event::Blob(BlobEvent::Breaker {
            endpoint: &self.endpoint,
            bucket: &self.bucket,
            state: to.as_str(),
        }));
    }
}

impl Inner {
    fn add(&mut self, took: Duration) {
        if self.took.len() == WINDOW {
            self.took.pop_front();
        }
        self.took.push_back(took);
    }

    /// The second slowest of a hundred.
    fn p99(&self) -> Option<Duration> {
        if self.took.len() < WINDOW {
            return None;
        }
        let mut sorted: Vec<Duration> = self.took.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(WINDOW - 2).copied()
    }
}

impl Pass {
    pub fn ended(mut self, ended: Ended) {
        self.ended = true;
        self.breaker.ended(self.probes, ended);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.ended {
            self.breaker.ended(self.probes, Ended::Unsaid);
        }
    }
}
