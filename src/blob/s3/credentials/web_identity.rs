//! A role that is taken on with a token which somebody else has signed and keeps fresh in a file: pods on EKS have one.

use std::path::PathBuf;

use ankusa_actors::ports::BlobError;
use http::{HeaderValue, Method, header};
use reqwest::{Body, Request};
use tokio::time::Instant;
use url::Url;

use super::super::address::{Slash, encoded, endpoint_url, service};
use super::super::refusal::parse_error;
use super::super::signing::Keys;
use super::{Environment, Told};
use crate::blob::answer::told;
use crate::blob::cached::Fetched;
use crate::blob::side::SideChannel;
use crate::blob::spec_error::BlobSpecError;
use crate::blob::xml::elements;

/// The largest token that is sent, in bytes: STS takes 20,000 characters.
const TOKEN_MAX_BYTES: u64 = 64 << 10;

pub(in super::super) struct WebIdentity {
    token_file: PathBuf,
    role_arn: String,
    session_name: String,
    sts: Url,
}

impl WebIdentity {
    /// That of the environment, if it has one.
    ///
    /// # Errors
    /// It has half of one.
    pub(super) fn of(
        environment: &Environment,
        region: &str,
    ) -> Result<Option<Self>, BlobSpecError> {
        // A role alone may be meant for somebody else: it is a token that makes an identity.
        let Some(token_file) = environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") else {
            return Ok(None);
        };
        let wrong = |text: String| BlobSpecError::new("access_key_id", text);
        let Some(role_arn) = environment.get("AWS_ROLE_ARN") else {
            return Err(wrong(
                "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not".to_owned(),
            ));
        };
        let sts = environment.get("AWS_ENDPOINT_URL_STS").unwrap_or_else(|| service("sts", region));
        let sts =
            endpoint_url(&sts).map_err(|text| wrong(format!("AWS_ENDPOINT_URL_STS: {text}")))?;
        let session_name =
            environment.get("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "ankusa".to_owned());
        Ok(Some(Self { token_file: token_file.into(), role_arn, session_name, sts }))
    }

    /// # Errors
    /// `forbidden` if STS does not give the role to this token; `transport` otherwise.
    pub(super) async fn fetch(
        &self,
        side: &SideChannel,
        deadline: Instant,
    ) -> Result<Fetched<Keys>, BlobError> {
        let token = self.token().await?;
        let form = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", &self.role_arn),
            ("RoleSessionName", &self.session_name),
            ("WebIdentityToken", token.trim()),
        ];
        let form = form.map(|(name, value)| format!("{name}={}", encoded(value, Slash::Encoded)));
        let mut request = Request::new(Method::POST, self.sts.clone());
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        *request.body_mut() = Some(Body::from(form.join("&")));

        let answer = side.ask(request, deadline).await?;
        if answer.status.is_success() {
            return parse_sts_keys(&answer.body).ok_or_else(|| {
                BlobError::Transport("STS answered without whole credentials".to_owned())
            });
        }
        let refusal = parse_error(&answer.body);
        let why = format!("STS: {}", told(answer.status, &refusal));
        // It asks the identity provider, and says that this has failed as if the token were wrong.
        let passes = matches!(
            refusal.code.as_str(),
            "IDPCommunicationError" | "Throttling" | "RequestLimitExceeded"
        );
        match answer.status.as_u16() {
            400 | 401 | 403 | 404 if !passes => Err(BlobError::Forbidden(why)),
            _other => Err(BlobError::Transport(why)),
        }
    }

    /// What is in the file now: it is replaced while the node runs.
    async fn token(&self) -> Result<String, BlobError> {
        let path = self.token_file.display();
        let unread = |error: std::io::Error| {
            BlobError::Transport(format!("the token in {path} cannot be read: {error}"))
        };
        let bytes = tokio::fs::metadata(&self.token_file).await.map_err(unread)?.len();
        if bytes > TOKEN_MAX_BYTES {
            return Err(BlobError::Forbidden(format!("{path} is no token: it has {bytes} bytes")));
        }
        tokio::fs::read_to_string(&self.token_file).await.map_err(unread)
    }
}

/// Reads the keys that STS gives; `None` unless they are whole.
pub fn parse_sts_keys(xml: &[u8]) -> Option<Fetched<Keys>> {
    let mut told = Told::default();
    let of =
        ["AssumeRoleWithWebIdentityResponse", "AssumeRoleWithWebIdentityResult", "Credentials"];
    elements(xml, |path, text| {
        let Some((name, parents)) = path.split_last() else { return };
        if parents != of {
            return;
        }
        let place = match *name {
            "AccessKeyId" => &mut told.access_key_id,
            "SecretAccessKey" => &mut told.secret_access_key,
            "SessionToken" => &mut told.session_token,
            "Expiration" => &mut told.expiration,
            _other => return,
        };
        *place = Some(text.trim().to_owned());
    })
    .ok()?;
    told.keys()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_keys_of_an_answer_are_read_if_it_is_whole() {
        let xml = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
            <AssumeRoleWithWebIdentityResult><AssumedRoleUser><AssumedRoleId>x</AssumedRoleId></AssumedRoleUser>\
            <Credentials><SessionToken>t/+=</SessionToken><SecretAccessKey>s</SecretAccessKey>\
            <Expiration>1970-01-01T00:00:02.500Z</Expiration><AccessKeyId>a</AccessKeyId></Credentials>\
            </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
        let fetched = parse_sts_keys(xml.as_bytes()).unwrap();
        let expected = Keys {
            access_key_id: "a".into(),
            secret_access_key: "s".into(),
            session_token: Some("t/+=".into()),
        };
        assert_eq!(fetched, Fetched { value: expected, expires_at_ms: Some(2_000) });
        assert_eq!(parse_sts_keys(&xml.as_bytes()[..xml.len() - 3]), None);
        assert_eq!(parse_sts_keys(xml.replace("Expiration", "Expires").as_bytes()), None);
    }
}
