//! Requests to those who give out credentials: a metadata server of the machine, STS, a federation endpoint.

use std::time::Duration;

use ankusa_actors::ports::BlobError;
use reqwest::redirect::Policy;
use reqwest::{Client, Request, retry};
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::exchange::{Unread, read, root_cause};

/// One request, in all: a metadata server that is not there does not refuse, it is silent.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer, in bytes.
const ANSWER_MAX_BYTES: u64 = 256 << 10;

/// A client for them.
pub struct SideChannel {
    client: Client,
}

impl SideChannel {
    /// # Errors
    /// The machine has no root certificates.
    pub fn new() -> Result<Self, String> {
        let client = Client::builder()
            .redirect(Policy::none())
            // Metadata servers are on the machine's own link.
            .no_proxy()
            .referer(false)
            .retry(retry::never())
            .http1_only()
            .build()
            .map_err(|error| root_cause(&error))?;
        Ok(Self { client })
    }

    /// Asks once. The status is for the caller to judge.
    ///
    /// # Errors
    /// `transport` without a whole answer in time: the operation tries again.
    pub async fn ask(&self, request: Request, deadline: Instant) -> Result<Answer, BlobError> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let failed = |why: &str| BlobError::Transport(format!("credentials from {host}: {why}"));
        let until = (Instant::now() + TIMEOUT).min(deadline);
        let exchange = async {
            let response =
                self.client.execute(request).await.map_err(|error| failed(&root_cause(&error)))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = match read(response, ANSWER_MAX_BYTES).await {
                Ok(body) => body,
                Err(Unread::TooLong) => return Err(failed("too long an answer")),
                Err(Unread::Broken(why)) => return Err(failed(&why)),
            };
            Ok(Answer { status, headers, body })
        };
        timeout_at(until, exchange).await.unwrap_or_else(|_| Err(failed("no answer in time")))
    }
}
