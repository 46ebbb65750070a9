//! Who we are: a bearer token, given or had from the metadata server of the machine.

use std::time::Duration;

use ankusa_actors::ports::{BlobError, Clock};
use http::{HeaderValue, Method};
use reqwest::Request;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use crate::blob::answer::told;
use crate::blob::cached::{Cached, Fetched};
use crate::blob::side::SideChannel;

use super::refusal::parse_error;

/// The metadata server of Google's machines and clusters, by the name that is the same on all of them.
pub(super) const METADATA_HOST: &str = "metadata.google.internal";

const TOKEN_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// A token is fetched anew so long before its end.
const EARLY: Duration = Duration::from_secs(60);

/// What a request proves who asks with.
pub(super) enum Credentials {
    None,
    Token(HeaderValue),
    Metadata(MetadataServer),
}

/// The tokens of the machine's service account, one at a time.
pub(super) struct MetadataServer {
    place: Url,
    side: SideChannel,
    kept: Cached<HeaderValue>,
}

impl Credentials {
    /// The value of `authorization`, if there is to be one.
    ///
    /// # Errors
    /// `transport` if the metadata server may answer another time, `forbidden` if it has no token for us.
    pub(super) async fn bearer(
        &self,
        clock: &dyn Clock,
        deadline: Instant,
    ) -> Result<Option<HeaderValue>, BlobError> {
        match self {
            Self::None => Ok(None),
            Self::Token(bearer) => Ok(Some(bearer.clone())),
            Self::Metadata(server) => {
                server.kept.get(clock, server.fetch(clock, deadline)).await.map(Some)
            }
        }
    }

    /// Drops a token that is not taken any more. Answers whether another can be had: it can where this one came from,
    /// even if somebody else who held it has just dropped it.
    pub(super) async fn drop_token(&self) -> bool {
        match self {
            Self::None | Self::Token(_) => false,
            Self::Metadata(server) => {
                server.kept.forget().await;
                true
            }
        }
    }
}

impl MetadataServer {
    /// # Errors
    /// Why nobody can be asked there.
    pub(super) fn at(host: &str) -> Result<Self, String> {
        let place = format!("http://{host}{TOKEN_PATH}");
        let place = Url::parse(&place).map_err(|error| format!("{place}: {error}"))?;
        Ok(Self { place, side: SideChannel::new()?, kept: Cached::new(EARLY) })
    }

    async fn fetch(
        &self,
        clock: &dyn Clock,
        deadline: Instant,
    ) -> Result<Fetched<HeaderValue>, BlobError> {
        let mut request = Request::new(Method::GET, self.place.clone());
        // Without it nothing is told: no browser or redirected request has it.
        request.headers_mut().insert("metadata-flavor", HeaderValue::from_static("Google"));
        let answer = self.side.ask(request, deadline).await?;
        if !answer.status.is_success() {
            let told = told(answer.status, &parse_error(&answer.body));
            let told = format!("the metadata server: {told}");
            return Err(match answer.status.as_u16() {
                400..=404 => BlobError::Forbidden(told),
                _passes => BlobError::Transport(told),
            });
        }
        parse_token(&answer.body, clock.now_ms()).map_err(BlobError::Transport)
    }
}

#[derive(Deserialize)]
struct Told {
    access_token: String,
    expires_in: u64,
}

/// A token of the metadata server, that came at `now_ms`.
///
/// # Errors
/// Why it is none. What it says is not repeated.
pub fn parse_token(body: &[u8], now_ms: u64) -> Result<Fetched<HeaderValue>, String> {
    let none = || "the metadata server gave no token".to_owned();
    let told: Told = serde_json::from_slice(body).map_err(|_unsaid| none())?;
    let value = bearer(&told.access_token).ok_or_else(none)?;
    let expires_at_ms = now_ms.saturating_add(told.expires_in.saturating_mul(1_000));
    Ok(Fetched { value, expires_at_ms: Some(expires_at_ms) })
}

/// `Bearer <token>`, unless the token cannot be one.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    bearer.set_sensitive(true);
    Some(bearer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_token_ends_when_it_says() {
        let body = br#"{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}"#;
        let token = parse_token(body, 1_000).unwrap();
        assert_eq!(token.value, "Bearer ya29.x");
        assert_eq!(token.expires_at_ms, Some(3_600_000));
        assert!(token.value.is_sensitive());
    }

    #[test]
    fn what_is_no_token_is_not_repeated() {
        let wrong: [&[u8]; 6] = [
            b"",
            b"<html>secret</html>",
            br#"{"access_token":"secret"}"#,
            br#"{"access_token":"","expires_in":1}"#,
            br#"{"access_token":"secret\n","expires_in":1}"#,
            br#"{"access_token":"secret","expires_in":-1}"#,
        ];
        for body in wrong {
            let why = parse_token(body, 0).unwrap_err();
            assert_eq!(why, "the metadata server gave no token");
        }
    }
}
