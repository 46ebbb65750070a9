//! The managed identity of the machine or app the node runs on: tokens that somebody else gives out and renews.

use std::time::Duration;

use ankusa_actors::ports::{BlobError, Clock};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use reqwest::Request;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::blob::answer::{Answer, Refusal, told};
use crate::blob::cached::{Cached, Fetched};
use crate::blob::side::SideChannel;

/// Where every virtual machine has its own.
const METADATA_HOST: &str = "http://169.254.169.254";

/// What the tokens are for.
const RESOURCE: &str = "https://storage.azure.com/";

/// So long before its end a token is renewed.
const EARLY: Duration = Duration::from_secs(300);

/// What the environment says of identities.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `IDENTITY_ENDPOINT`: App Service's and Container Apps' place, used only with the next.
    pub identity_endpoint: Option<String>,
    /// `IDENTITY_HEADER`: the secret it wants to hear.
    pub identity_header: Option<String>,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: instead of the metadata server's own address.
    pub metadata_host: Option<String>,
}

impl Environment {
    /// Of the variables of this process.
    pub fn of_process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Of any variables. Empty ones are none.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        Self {
            identity_endpoint: variable("IDENTITY_ENDPOINT"),
            identity_header: variable("IDENTITY_HEADER"),
            metadata_host: variable("AZURE_POD_IDENTITY_AUTHORITY_HOST"),
        }
    }
}

/// A source of tokens.
pub(super) struct Identity {
    side: SideChannel,
    ask: TokenAsk,
    bearer: Cached<HeaderValue>,
}

/// The request for one.
#[derive(Clone)]
struct TokenAsk {
    url: Url,
    header: (HeaderName, HeaderValue),
}

impl Identity {
    /// That of `client_id`, or the only one there is.
    ///
    /// # Errors
    /// What is wrong with the environment, or the machine.
    pub(super) fn new(client_id: Option<&str>, environment: &Environment) -> Result<Self, String> {
        let ask = TokenAsk::new(client_id, environment)?;
        Ok(Self { side: SideChannel::new()?, ask, bearer: Cached::new(EARLY) })
    }

    /// The value of `Authorization`.
    ///
    /// # Errors
    /// `transport` where asking again may help; else `forbidden`.
    pub(super) async fn bearer(
        &self,
        clock: &dyn Clock,
        deadline: Instant,
    ) -> Result<HeaderValue, BlobError> {
        let fetch = async {
            let answer = self.side.ask(self.ask.request(), deadline).await?;
            if answer.status == StatusCode::OK {
                parse_token(&answer.body, clock.now_ms())
            } else {
                Err(refused(&answer))
            }
        };
        self.bearer.get(clock, fetch).await
    }

    /// The next request brings a new one.
    pub(super) async fn forget(&self) {
        self.bearer.forget().await;
    }
}

impl TokenAsk {
    fn new(client_id: Option<&str>, environment: &Environment) -> Result<Self, String> {
        let app = environment.identity_endpoint.as_ref().zip(environment.identity_header.as_ref());
        let (mut url, version, header) = if let Some((endpoint, secret)) = app {
            let url = web_url(endpoint).ok_or("IDENTITY_ENDPOINT is no http URL")?;
            let mut secret = HeaderValue::from_str(secret)
                .map_err(|_| "IDENTITY_HEADER is no value of a header")?;
            secret.set_sensitive(true);
            (url, "2019-08-01", (HeaderName::from_static("x-identity-header"), secret))
        } else {
            let host = environment.metadata_host.as_deref().unwrap_or(METADATA_HOST);
            let mut url =
                web_url(host).ok_or("AZURE_POD_IDENTITY_AUTHORITY_HOST is no http URL")?;
            url.set_path("/metadata/identity/oauth2/token");
            let header = (HeaderName::from_static("metadata"), HeaderValue::from_static("true"));
            (url, "2018-02-01", header)
        };
        url.query_pairs_mut().append_pair("api-version", version).append_pair("resource", RESOURCE);
        if let Some(client_id) = client_id {
            url.query_pairs_mut().append_pair("client_id", client_id);
        }
        Ok(Self { url, header })
    }

    fn request(&self) -> Request {
        let mut request = Request::new(Method::GET, self.url.clone());
        let (name, value) = self.header.clone();
        request.headers_mut().insert(name, value);
        request
    }
}

fn web_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// What an answer with a token says. The times are numbers, or digits in a text.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// Seconds from now on.
    #[serde(default)]
    expires_in: Value,
    /// Seconds since the Unix epoch.
    #[serde(default)]
    expires_on: Value,
}

/// Reads a token, as the value of `Authorization`, that came at `now_ms`.
///
/// # Errors
/// `transport`: it is none, or it does not say when it ends. Not a word of it is repeated.
pub fn parse_token(body: &[u8], now_ms: u64) -> Result<Fetched<HeaderValue>, BlobError> {
    let unusable = |why: &str| BlobError::Transport(format!("the identity's token: {why}"));
    let answer: TokenAnswer =
        serde_json::from_slice(body).map_err(|_| unusable("the answer holds none"))?;
    // A span needs no clock that is right.
    let end_s = seconds(&answer.expires_in)
        .map(|span_s| (now_ms / 1_000).saturating_add(span_s))
        .or_else(|| seconds(&answer.expires_on))
        .ok_or_else(|| unusable("the answer does not say when it ends"))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", answer.access_token))
        .map_err(|_| unusable("it is no value of a header"))?;
    value.set_sensitive(true);
    Ok(Fetched { value, expires_at_ms: Some(end_s.saturating_mul(1_000)) })
}

fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The error of an answer without a token. The metadata server is restarted now and then, and says 404 or 410 meanwhile.
pub fn refused(answer: &Answer) -> BlobError {
    let word = |name: &str| {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (code, message) = (word("error"), word("error_description"));
    let refusal = Refusal { code, message, region: None };
    let told = format!("no token of the identity: {}", told(answer.status, &refusal));
    match answer.status.as_u16() {
        404 | 408 | 410 | 429 | 500..=599 => BlobError::Transport(told),
        _final => BlobError::Forbidden(told),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn asked(client_id: Option<&str>, variables: &[(&str, &str)]) -> Result<String, String> {
        let environment = Environment::of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        let TokenAsk { url, header: (name, value) } = TokenAsk::new(client_id, &environment)?;
        Ok(format!("{url} {name}: {}", value.to_str().unwrap()))
    }

    #[test]
    fn a_token_is_asked_for_where_the_environment_says() {
        let rest = "resource=https%3A%2F%2Fstorage.azure.com%2F";
        let machine =
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01";
        assert_eq!(asked(None, &[]), Ok(format!("{machine}&{rest} metadata: true")));
        let own = Ok(format!("{machine}&{rest}&client_id=a%26b metadata: true"));
        assert_eq!(asked(Some("a&b"), &[("IDENTITY_HEADER", "unused")]), own);
        let elsewhere = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:7/")];
        let there = "http://127.0.0.1:7/metadata/identity/oauth2/token?api-version=2018-02-01";
        assert_eq!(asked(None, &elsewhere), Ok(format!("{there}&{rest} metadata: true")));
        let app = [
            ("IDENTITY_ENDPOINT", "http://localhost:42356/msi/token"),
            ("IDENTITY_HEADER", "853b"),
        ];
        let there = "http://localhost:42356/msi/token?api-version=2019-08-01";
        let expected = format!("{there}&{rest}&client_id=c x-identity-header: 853b");
        assert_eq!(asked(Some("c"), &app), Ok(expected));
        assert_eq!(
            asked(None, &[("IDENTITY_ENDPOINT", "unix:/x"), ("IDENTITY_HEADER", "853b")]),
            Err("IDENTITY_ENDPOINT is no http URL".to_owned())
        );
    }

    #[test]
    fn a_token_ends_when_its_answer_says_in_whichever_form() {
        let read = |body: &str| parse_token(body.as_bytes(), 1_000_000);
        let ends = |end_s: u64| {
            let value = HeaderValue::from_static("Bearer abc");
            Ok(Fetched { value, expires_at_ms: Some(end_s * 1_000) })
        };
        let machine = r#"{"access_token":"abc","expires_in":"3599","expires_on":"1506484173","token_type":"Bearer"}"#;
        assert_eq!(read(machine), ends(4_599));
        assert_eq!(read(r#"{"access_token":"abc","expires_in":3599}"#), ends(4_599));
        assert_eq!(
            read(r#"{"access_token":"abc","expires_on":"1506484173"}"#),
            ends(1_506_484_173)
        );
        assert_eq!(read(r#"{"access_token":"abc","expires_on":1506484173}"#), ends(1_506_484_173));
        for wrong in [
            r#"{"access_token":"secret"}"#,
            r#"{"access_token":"secret","expires_in":-1}"#,
            r#"{"access_token":"secret\n","expires_in":1}"#,
            r#"{"access_token":"secret","expires_in":1"#,
            r#"{"expires_in":1}"#,
            "[]",
        ] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.as_str(), "transport", "{wrong}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_token_is_asked_for_again_unless_there_is_no_such_identity() {
        let refuse = |status: u16, body: &'static str| {
            let status = StatusCode::from_u16(status).unwrap();
            refused(&Answer { status, headers: HeaderMap::new(), body: Bytes::from(body) })
        };
        let unknown = r#"{"error":"invalid_request","error_description":"Identity not found"}"#;
        let told = "no token of the identity: 400 invalid_request: Identity not found";
        assert_eq!(refuse(400, unknown), BlobError::Forbidden(told.to_owned()));
        assert_eq!(refuse(403, "").as_str(), "forbidden");
        for passing in [404, 410, 429, 500, 503] {
            assert_eq!(refuse(passing, "").as_str(), "transport", "{passing}");
        }
    }
}
