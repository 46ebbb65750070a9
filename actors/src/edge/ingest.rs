//! From a request to an answer: the order of checks, and every status and body a provider can see.
//!
//! Two halves around the body, because the body is read only for a request that has passed the first: [`Ingest::admit`]
//! needs the head alone, [`Ingest::accept`] verifies the exact bytes and waits for the commit. An internal fault is
//! always a 5xx with a Retry-After: several senders never retry a 4xx.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

use super::answer::Answer;
use super::config::{IngestConfig, Routing};
use super::guard::Guard;
use super::handshake;
use super::limits::LimitsHandle;
use super::pen::{Promise, QuarantineHandle};
use crate::model::dedupe::DedupeRule;
use crate::model::envelope::Envelope;
use crate::model::ids::{DEFAULT_TENANT, HookId, LIFECYCLE_SOURCE, is_name};
use crate::model::peer_identity::PeerIdentity;
use crate::model::source::OnVerifyFailure;
use crate::model::verify::{Judge, Request};
use crate::ports::{Clock, Entropy, Event, Events, IngestOutcome, RefusedReason};
use crate::queue::{BatcherHandle, CommitAnswer, NewHook, Refusal};
use crate::sources::{Found, Source, SourceTable};

/// Everything of a request but its body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Without the question mark.
    pub query: Option<String>,
    /// As received, names and values.
    pub headers: Vec<(Bytes, Bytes)>,
    /// The one parseable Content-Length, if there is one.
    pub content_length: Option<u64>,
    /// The address of whoever opened the connection, where it has one.
    pub remote: Option<IpAddr>,
    /// Whose verified certificate the connection has; never what a header says.
    pub peer: Option<Arc<PeerIdentity>>,
}

/// How a request ends, for the metrics and for its sender.
pub(super) type Decided = (IngestOutcome, Answer);

/// A request whose body may be read.
#[derive(Clone, Debug)]
pub struct Admitted {
    source: Arc<Source>,
    tenant_id: Option<String>,
    started: Instant,
}

/// Why a body did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFailure {
    TooLarge,
    /// The connection broke or the framing was wrong.
    Disconnected,
    /// It did not arrive within `http.body_timeout_ms`.
    Timeout,
    /// The head says in two ways where it ends, or is written so that two parsers read it differently.
    Ambiguous,
}

/// The edge's part of one node. Shared by every connection.
pub struct Ingest {
    pub config: IngestConfig,
    /// Nothing where every request may come in.
    pub guard: Option<Guard>,
    pub sources: SourceTable,
    pub batchers: Arc<[BatcherHandle]>,
    pub limits: LimitsHandle,
    pub quarantine: QuarantineHandle,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub events: Arc<dyn Events>,
    /// Spreads hooks over the batcher partitions.
    pub turn: AtomicUsize,
}

impl Ingest {
    /// The checks before the body, in the documented order: route, URL, declared length, source, header bytes.
    ///
    /// # Errors
    /// The answer to give without reading the body.
    pub fn admit(&self, head: &RequestHead) -> Result<Admitted, Answer> {
        let started = Instant::now();
        self.guard(head)?;
        if head.method != "POST" {
            return Err(Answer::not_found());
        }
        let refuse = |reason, answer| {
            self.events.emit(&Event::IngestRefused { reason });
            Err(answer)
        };
        let Some((url_tenant, source_id)) = self.resolve(&head.path) else {
            return refuse(RefusedReason::UnknownSource, Answer::unknown_source());
        };
        let limit = self.config.max_body_bytes;
        let declared = head.content_length.map(usize::try_from);
        if declared.is_some_and(|declared| declared.map_or(true, |bytes| bytes > limit)) {
            return refuse(RefusedReason::PayloadTooLarge, Answer::too_large(limit));
        }
        let source = match self.source(source_id) {
            Ok(source) => source,
            Err(refused) => return refuse(refused.0, refused.1),
        };
        // Unknown and not of this tenant are one answer: nothing can be probed.
        let Some(tenant) = source.tenant_of(url_tenant) else {
            return refuse(RefusedReason::UnknownSource, Answer::unknown_source());
        };
        if let Some(bad) = head.headers.iter().find(|(name, value)| !is_clean(name, value)) {
            return refuse(RefusedReason::InvalidHeader, Answer::invalid_header(&bad.0));
        }
        if let Some(answer) = self.post_handshake(&source, head, started) {
            return Err(answer);
        }
        let tenant_id = (tenant != DEFAULT_TENANT).then(|| tenant.to_owned());
        Ok(Admitted { source, tenant_id, started })
    }

    /// What the route guard says, where there is one.
    pub(super) fn guard(&self, head: &RequestHead) -> Result<(), Answer> {
        let Some(guard) = &self.guard else { return Ok(()) };
        guard.check(head).map_err(|(reason, answer)| {
            self.events.emit(&Event::IngestRefused { reason });
            answer
        })
    }

    /// The source as it is now; a request that has begun stays with it.
    pub(super) fn source(&self, id: &str) -> Result<Arc<Source>, (RefusedReason, Answer)> {
        self.sources.look(|set| match set.find(id) {
            Found::Source(source) if !source.switches.takes_nothing => Ok(Arc::clone(source)),
            Found::Source(_) | Found::Unknown => {
                Err((RefusedReason::UnknownSource, Answer::unknown_source()))
            }
            Found::Unreadable => {
                let answer = Answer::unavailable("store_unavailable");
                Err((RefusedReason::StoreUnavailable, answer))
            }
        })
    }

    /// The body did not arrive whole: nothing was stored.
    pub fn body_failed(&self, failure: BodyFailure) -> Answer {
        let (reason, answer) = match failure {
            BodyFailure::TooLarge => {
                (RefusedReason::PayloadTooLarge, Answer::too_large(self.config.max_body_bytes))
            }
            BodyFailure::Disconnected => {
                (RefusedReason::BodyReadFailed, Answer::body_read_failed("closed"))
            }
            BodyFailure::Timeout => {
                (RefusedReason::BodyReadFailed, Answer::body_read_failed("timeout"))
            }
            BodyFailure::Ambiguous => {
                (RefusedReason::BodyReadFailed, Answer::body_read_failed("framing"))
            }
        };
        self.events.emit(&Event::IngestRefused { reason });
        answer
    }

    /// There is no memory for its body: an overload that has not reached the batchers yet.
    pub fn no_room(&self, admitted: Admitted) -> Answer {
        self.events.emit(&Event::LoadShed);
        let Admitted { source, tenant_id: _, started } = admitted;
        let (outcome, took) = (IngestOutcome::Overload, started.elapsed());
        self.events.emit(&Event::IngestAnswered { source_id: &source.id, outcome, took });
        Answer::unavailable("overload")
    }

    /// Verifies, queues and waits for the commit.
    pub async fn accept(&self, admitted: Admitted, head: RequestHead, body: Bytes) -> Answer {
        let Admitted { source, tenant_id, started } = admitted;
        let decided = self.decide(&source, tenant_id, head, body).await;
        let (outcome, answer) = decided.unwrap_or_else(|refused| refused);
        let took = started.elapsed();
        self.events.emit(&Event::IngestAnswered { source_id: &source.id, outcome, took });
        handshake::in_its_words(&source, outcome, answer)
    }

    async fn decide(
        &self,
        source: &Source,
        tenant_id: Option<String>,
        head: RequestHead,
        body: Bytes,
    ) -> Result<Decided, Decided> {
        let now_ms = self.clock.now_ms();
        let now_s = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
        let judge = Judge { now_unix_s: now_s, max_inflated_bytes: self.config.max_body_bytes };
        let checked = source.verifier.check(&seen(&head, &body), &judge);
        let checked = checked.and_then(|()| handshake::is_no_forgery(source, &body));
        let (verification, place) = match checked {
            Ok(()) => {
                if let Some(answer) = handshake::of_hook(source, &body) {
                    return Ok((IngestOutcome::Handshake, answer));
                }
                self.charge(source, tenant_id.as_deref(), &head, body.len())?;
                (source.passed.clone(), None)
            }
            Err(reason) => {
                let (verification, place) = self.unverified(source, reason)?;
                (verification.encode().into(), Some(place))
            }
        };
        // A hook that did not verify never gets a key: whoever forged it could keep the real one away.
        let rule = source.dedupe.as_ref().filter(|_| checked.is_ok());
        let dedupe_key = rule.and_then(|rule| rule.key(&head.headers, &body));
        let id = HookId::v7(now_ms, self.entropy.bits());
        let lanes = source.lanes.lanes(&source.id, &head.headers, &body);
        let content_type = header(&head.headers, b"content-type");
        let envelope = Envelope {
            id,
            source_id: source.id.clone(),
            tenant_id,
            received_at_ms: now_ms,
            method: head.method,
            path: head.path,
            headers: head.headers,
            content_type,
            body,
            dedupe_key,
            verification: Some(verification),
        };
        let is_for_the_pen = source.on_verify_failure == OnVerifyFailure::Quarantine;
        match (checked, place) {
            (Err(reason), Some(place)) if is_for_the_pen => {
                Ok(self.hold(&envelope, reason, place).await)
            }
            (_, place) => {
                let key_ttl_ms = rule.map(DedupeRule::ttl_ms);
                let sinks = Arc::clone(&source.modules);
                let hook = NewHook { envelope, sinks, lanes, key_ttl_ms };
                Ok(self.commit(id, hook, place).await)
            }
        }
    }

    async fn commit(&self, id: HookId, hook: NewHook, place: Option<Promise>) -> Decided {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let batcher = self.batchers.get(turn % self.batchers.len().max(1));
        let share = self.limits.share_percent(hook.envelope.tenant());
        let queued = batcher
            .ok_or(Refusal::StoreUnavailable)
            .and_then(|batcher| batcher.submit_within(hook, share));
        let answer = match queued {
            Ok((waiting, deadline)) => waiting.answer(deadline).await,
            Err(refusal) => CommitAnswer::Refused(refusal),
        };
        match answer {
            CommitAnswer::Committed(_) => {
                place.into_iter().for_each(Promise::keep);
                (IngestOutcome::Committed, Answer::accepted(id))
            }
            CommitAnswer::Duplicate(original) => {
                (IngestOutcome::Duplicate, Answer::duplicate(original))
            }
            CommitAnswer::Refused(refusal) => self.refused(refusal),
            CommitAnswer::Unknown => (IngestOutcome::Unknown, Answer::CloseUnanswered),
        }
    }

    pub(super) fn refused(&self, refusal: Refusal) -> Decided {
        match refusal {
            Refusal::Overload => {
                self.events.emit(&Event::LoadShed);
                (IngestOutcome::Overload, Answer::unavailable("overload"))
            }
            Refusal::StoreUnavailable => {
                (IngestOutcome::StoreUnavailable, Answer::unavailable("store_unavailable"))
            }
            Refusal::TenantLimit => (IngestOutcome::TenantLimit, Answer::tenant_limit()),
            Refusal::TenantOverload => (IngestOutcome::TenantOverload, Answer::tenant_overload()),
            Refusal::DedupeQuota => (IngestOutcome::DedupeQuota, Answer::dedupe_quota()),
        }
    }

    /// The tenant, if the URL names one, and the source.
    pub(super) fn resolve<'a>(&self, path: &'a str) -> Option<(Option<&'a str>, &'a str)> {
        let rest = path.strip_prefix(self.config.prefix.as_str())?.strip_prefix('/')?;
        let (tenant, source_id) = match self.config.routing {
            Routing::Path => (None, rest),
            Routing::TenantPath => {
                let (tenant, source_id) = rest.split_once('/')?;
                (Some(tenant), source_id)
            }
        };
        let well_formed = tenant.is_none_or(is_name) && source_id != LIFECYCLE_SOURCE;
        (well_formed && !source_id.is_empty()).then_some((tenant, source_id))
    }
}

/// A request as verification sees it.
fn seen<'a>(head: &'a RequestHead, body: &'a [u8]) -> Request<'a, Bytes, Bytes> {
    Request {
        method: &head.method,
        path: &head.path,
        query: head.query.as_deref(),
        headers: &head.headers,
        body,
        peer: head.peer.as_deref(),
    }
}

/// Visible ASCII, and in values space and tab.
fn is_clean(name: &[u8], value: &[u8]) -> bool {
    let visible = |byte: &u8| (0x21..=0x7e).contains(byte);
    name.iter().all(visible)
        && value.iter().all(|byte| visible(byte) || matches!(byte, b' ' | b'\t'))
}

fn header(headers: &[(Bytes, Bytes)], name: &[u8]) -> Option<Bytes> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
}
