//! What every request to the Blob service carries, and what its answers mean to the transport.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ankusa_actors::ports::{BlobError, Clock};
use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::Request;
use tokio::time::Instant;

use super::identity::Identity;
use super::refusal::{error, refusal};
use super::sas::Sas;
use crate::blob::answer::{Answer, Refusal};
use crate::blob::transport::Dialect;

const VERSION: HeaderName = HeaderName::from_static("x-ms-version");
const DATE: HeaderName = HeaderName::from_static("x-ms-date");

/// The version of the service's protocol that is spoken.
const PROTOCOL: HeaderValue = HeaderValue::from_static("2024-11-04");

/// The last second an HTTP date can say.
const DATE_MAX_S: u64 = 253_402_300_799;

/// What proves who asks.
pub(super) enum Credentials {
    /// Nothing: a container that is open to everybody, or an emulator.
    None,
    Sas(Sas),
    Identity(Identity),
}

pub(super) struct Language {
    pub credentials: Credentials,
    pub clock: Arc<dyn Clock>,
}

impl Language {
    /// The error of an answer that is final.
    pub(super) fn error(&self, answer: &Answer) -> BlobError {
        error(answer, &self.refusal(answer), self.clock.now_ms(), self.sas())
    }

    const fn sas(&self) -> Option<&Sas> {
        match &self.credentials {
            Credentials::Sas(sas) => Some(sas),
            Credentials::None | Credentials::Identity(_) => None,
        }
    }
}

#[async_trait]
impl Dialect for Language {
    async fn authorize(&self, request: &mut Request, deadline: Instant) -> Result<(), BlobError> {
        let headers = request.headers_mut();
        headers.insert(VERSION, PROTOCOL);
        headers.insert(DATE, date(self.clock.now_ms()));
        match &self.credentials {
            Credentials::None => {}
            Credentials::Sas(sas) => sas.append(request.url_mut()),
            Credentials::Identity(identity) => {
                let bearer = identity.bearer(&*self.clock, deadline).await?;
                request.headers_mut().insert(AUTHORIZATION, bearer);
            }
        }
        Ok(())
    }

    fn refusal(&self, answer: &Answer) -> Refusal {
        refusal(answer, self.sas())
    }

    async fn drops_credentials(&self, answer: &Answer, _refusal: &Refusal) -> bool {
        match &self.credentials {
            Credentials::Identity(identity) if answer.status == StatusCode::UNAUTHORIZED => {
                identity.forget().await;
                true
            }
            Credentials::None | Credentials::Sas(_) | Credentials::Identity(_) => false,
        }
    }

    fn is_throttle(&self, refusal: &Refusal) -> bool {
        refusal.code == "ServerBusy"
    }
}

fn date(now_ms: u64) -> HeaderValue {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs((now_ms / 1_000).min(DATE_MAX_S));
    // A date is always a header value.
    HeaderValue::try_from(httpdate::fmt_http_date(now)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_date_can_be_said() {
        let said = |now_ms| date(now_ms).to_str().map(str::to_owned).unwrap_or_default();
        assert_eq!(said(784_111_777_250), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(said(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(said(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
