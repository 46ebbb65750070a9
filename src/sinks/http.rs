//! The HTTP sink: one request a delivery, the body as it was received ("HTTP sink").
//!
//! Nothing the worker says is followed: no redirect, no cookie, no proxy from the environment, no compression. The
//! status decides; the rest of an answer is read, up to a bound, only so that the connection can be used again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderValue, Method};
use reqwest::{Body, Client, Request, Response};
use tokio::time::{Instant, timeout_at};
use url::Url;

use ankusa_actors::model::http_answer::Verdict;
use ankusa_actors::model::sink_spec::{HttpSinkMethod, HttpSinkSpec, SinkSpecError};
use ankusa_actors::ports::{Clock, Delivery, Outcome, Sink};

use super::egress::check_url;
use super::failure;
use super::headers::SinkHeaders;
use super::outbound::Outbound;

/// Delivers to one URL.
pub struct HttpSink {
    client: Client,
    method: Method,
    url: Url,
    /// `host:port`, for reasons: a URL may say more than a dead letter should.
    authority: String,
    headers: SinkHeaders,
    timeout_ms: u64,
    max_response_bytes: usize,
    /// Why the URL may not be used, if it may not.
    denied: Option<String>,
    clock: Arc<dyn Clock>,
}

impl HttpSink {
    /// Builds a sink.
    ///
    /// # Errors
    ///
    /// The first key of the spec that is out of bounds, cannot be read or is denied by the egress rules.
    pub fn new(spec: &HttpSinkSpec, outbound: &Outbound) -> Result<Self, SinkSpecError> {
        let sink = Self::for_backlog(spec, outbound)?;
        match sink.denied {
            Some(denied) => Err(SinkSpecError::new("url", denied)),
            None => Ok(sink),
        }
    }

    /// Builds the sink of a source that was accepted under other egress rules. A URL that is denied by now does not keep
    /// the node from starting: each of its deliveries fails for good, and says why.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], but for what is denied.
    pub fn for_backlog(spec: &HttpSinkSpec, outbound: &Outbound) -> Result<Self, SinkSpecError> {
        spec.check_bounds()?;
        let url = parse_url(&spec.url)?;
        let denied = check_url(outbound.egress(), &url).err();
        let method = match spec.method {
            HttpSinkMethod::Post => Method::POST,
            HttpSinkMethod::Put => Method::PUT,
            HttpSinkMethod::Patch => Method::PATCH,
        };
        let client = outbound.client(url.scheme() == "https");
        let client = client
            .map_err(|why| SinkSpecError::new("url", format!("cannot be connected to: {why}")))?;
        // Moves credentials from the URL into a header.
        let template = client.request(method.clone(), url).build();
        let template =
            template.map_err(|error| SinkSpecError::new("url", error.without_url().to_string()))?;
        let url = template.url().clone();
        Ok(Self {
            client,
            method,
            authority: authority(&url),
            url,
            headers: SinkHeaders::new(spec, template.headers().get(AUTHORIZATION).cloned())?,
            timeout_ms: spec.timeout_ms,
            max_response_bytes: spec.max_response_bytes,
            denied,
            clock: outbound.clock(),
        })
    }

    fn request(&self, delivery: &Delivery) -> Request {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = self.headers.of(delivery, self.clock.now_ms());
        // The client does not announce a body of no bytes, and some servers will not have a POST without a length.
        if delivery.envelope.body.is_empty() {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        *request.body_mut() = Some(Body::from(delivery.envelope.body.clone()));
        request
    }

    /// Judges the head of an answer.
    fn outcome(&self, response: &Response) -> Outcome {
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).map(HeaderValue::as_bytes);
        match Verdict::new(status, retry_after, self.clock.now_ms()) {
            Verdict::Delivered => Outcome::Ok,
            Verdict::Permanent => Outcome::Permanent(answered(status)),
            Verdict::RetryAfter { ms } => Outcome::RetryAfter { ms, reason: answered(status) },
            Verdict::Retry => Outcome::Retry(answered(status)),
        }
    }

    /// Reads on until the answer ends, or has said enough: then it is dropped, which closes the connection.
    async fn finish(&self, mut response: Response) {
        let announced_bytes =
            response.content_length().and_then(|bytes| usize::try_from(bytes).ok());
        if announced_bytes.is_some_and(|bytes| bytes > self.max_response_bytes) {
            return;
        }
        let mut read_bytes = 0_usize;
        while read_bytes < self.max_response_bytes {
            match response.chunk().await {
                Ok(Some(chunk)) => read_bytes = read_bytes.saturating_add(chunk.len()),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

#[async_trait]
impl Sink for HttpSink {
    fn module(&self) -> &'static str {
        "Elixir.Ankusa.Sink.Http"
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        if let Some(denied) = &self.denied {
            return Outcome::Permanent(denied.clone());
        }
        let deadline = Instant::now() + Duration::from_millis(self.timeout_ms);
        let response = match timeout_at(deadline, self.client.execute(self.request(delivery))).await
        {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Outcome::Retry(failure::reason(
                    &error,
                    &self.authority,
                    self.url.scheme() == "https",
                ));
            }
            Err(_elapsed) => {
                return Outcome::Retry(format!(
                    "no answer from {} within {} ms",
                    self.authority, self.timeout_ms
                ));
            }
        };
        let outcome = self.outcome(&response);
        // The worker has decided. How the rest of its answer arrives changes nothing, and takes no longer than the rest
        // of the attempt.
        let _ = timeout_at(deadline, self.finish(response)).await;
        outcome
    }
}

fn answered(status: u16) -> String {
    match status {
        300..=399 => format!("worker answered {status}, and redirects are not followed"),
        _other => format!("worker answered {status}"),
    }
}

/// The URL, if the HTTP client can use it.
fn parse_url(text: &str) -> Result<Url, SinkSpecError> {
    let refuse = |problem: String| SinkSpecError::new("url", problem);
    let url = Url::parse(text).map_err(|error| refuse(format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = url.scheme();
        return Err(refuse(format!(
            "has the scheme {scheme}: only https and http are delivered to"
        )));
    }
    let sendable = url.as_str().parse::<http::Uri>();
    sendable.map_err(|error| refuse(format!("cannot be sent: {error}")))?;
    Ok(url)
}

fn authority(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
}
