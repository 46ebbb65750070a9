//! The role of the instance the node runs on, from its metadata service in the version that asks for a token first.

use ankusa_actors::ports::BlobError;
use bytes::Bytes;
use http::{HeaderValue, Method};
use reqwest::Request;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use super::super::address::{Slash, encoded, endpoint_url};
use super::super::signing::Keys;
use super::{Environment, Told};
use crate::blob::answer::short;
use crate::blob::cached::Fetched;
use crate::blob::side::SideChannel;
use crate::blob::spec_error::BlobSpecError;

/// Where it is on every instance.
const ENDPOINT: &str = "http://169.254.169.254";

/// How long the token of one fetch is good for.
const TOKEN_TTL_S: &str = "60";

const ROLES: &str = "latest/meta-data/iam/security-credentials/";

pub(in super::super) struct Instance {
    endpoint: Url,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKeys {
    code: Option<String>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    token: Option<String>,
    expiration: Option<String>,
}

impl Instance {
    /// The one of the environment; `None` if it says that none is to be asked.
    ///
    /// # Errors
    /// The service is nowhere a request could be sent to.
    pub(super) fn of(environment: &Environment) -> Result<Option<Self>, BlobSpecError> {
        let disabled = environment.get("AWS_EC2_METADATA_DISABLED");
        if disabled.is_some_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let name = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
        let endpoint = environment.get(name).unwrap_or_else(|| ENDPOINT.to_owned());
        let wrong = |text| BlobSpecError::new("access_key_id", format!("{name}: {text}"));
        let mut endpoint = endpoint_url(&endpoint).map_err(wrong)?;
        // A path of it is in front of what is asked for.
        let path = format!("{}/", endpoint.path().trim_end_matches('/'));
        endpoint.set_path(&path);
        Ok(Some(Self { endpoint }))
    }

    /// # Errors
    /// `forbidden` if the instance has no role; `transport` if it does not answer.
    pub(super) async fn fetch(
        &self,
        side: &SideChannel,
        deadline: Instant,
    ) -> Result<Fetched<Keys>, BlobError> {
        let ttl = ("x-aws-ec2-metadata-token-ttl-seconds", HeaderValue::from_static(TOKEN_TTL_S));
        let token = self.ask(side, Method::PUT, "latest/api/token", ttl, deadline).await?;
        let token = HeaderValue::from_bytes(&token)
            .map_err(|_| BlobError::Transport("the instance's token is none".to_owned()))?;
        let token = || ("x-aws-ec2-metadata-token", token.clone());

        let roles = self.ask(side, Method::GET, ROLES, token(), deadline).await?;
        let Some(role) = parse_role(&roles) else {
            return Err(BlobError::Forbidden("the instance has no role".to_owned()));
        };
        let path = format!("{ROLES}{}", encoded(&role, Slash::Encoded));
        let answer = self.ask(side, Method::GET, &path, token(), deadline).await?;
        parse_instance_keys(&answer)
    }

    async fn ask(
        &self,
        side: &SideChannel,
        method: Method,
        path: &str,
        (name, value): (&'static str, HeaderValue),
        deadline: Instant,
    ) -> Result<Bytes, BlobError> {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}{path}", self.endpoint.path()));
        let mut request = Request::new(method, url);
        request.headers_mut().insert(name, value);
        let answer = side.ask(request, deadline).await?;
        match answer.status.as_u16() {
            200 => Ok(answer.body),
            // There is no role, or no such service.
            403..=405 => Err(BlobError::Forbidden(format!(
                "the instance gives no credentials: {}",
                answer.status
            ))),
            _other => Err(BlobError::Transport(format!("the instance answers {}", answer.status))),
        }
    }
}

/// The first of the roles an instance says it has.
pub fn parse_role(roles: &[u8]) -> Option<String> {
    let roles = String::from_utf8_lossy(roles);
    roles.lines().map(str::trim).find(|role| !role.is_empty()).map(str::to_owned)
}

/// Reads the keys of a role.
///
/// # Errors
/// `transport` if they are not whole, `forbidden` if the instance says that it has none.
pub fn parse_instance_keys(json: &[u8]) -> Result<Fetched<Keys>, BlobError> {
    let no =
        |why: &str| BlobError::Transport(format!("the instance gives no whole credentials: {why}"));
    // Not a word of it: it may be half of them.
    let told: RoleKeys =
        serde_json::from_slice(json).map_err(|_| no("it is none of their answers"))?;
    match told.code.as_deref() {
        Some("Success") | None => {}
        Some(code) => {
            return Err(BlobError::Forbidden(format!(
                "the instance cannot take on its role: {}",
                short(code)
            )));
        }
    }
    let told = Told {
        access_key_id: told.access_key_id,
        secret_access_key: told.secret_access_key,
        session_token: told.token,
        expiration: told.expiration,
    };
    told.keys().ok_or_else(|| no("something is missing"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_keys_of_a_role_are_read_if_they_are_whole() {
        let json = r#"{"Code":"Success","LastUpdated":"x","Type":"AWS-HMAC","AccessKeyId":"a","SecretAccessKey":"s",
            "Token":"t","Expiration":"1970-01-01T00:00:02Z"}"#;
        let value = Keys {
            access_key_id: "a".into(),
            secret_access_key: "s".into(),
            session_token: Some("t".into()),
        };
        assert_eq!(
            parse_instance_keys(json.as_bytes()),
            Ok(Fetched { value, expires_at_ms: Some(2_000) })
        );
        let failed = json.replace("Success", "AssumeRoleUnauthorizedAccess");
        assert_eq!(
            parse_instance_keys(failed.as_bytes()).unwrap_err().to_string(),
            "forbidden: the instance cannot take on its role: AssumeRoleUnauthorizedAccess"
        );
        let half = parse_instance_keys(br#"{"Code":"Success","SecretAccessKey":["secret"]}"#);
        assert!(!half.unwrap_err().to_string().contains("secret"));
        let half = parse_instance_keys(br#""secret""#);
        assert!(!half.unwrap_err().to_string().contains("secret"));
        let failed = json.replace("Success", &"x".repeat(9_999));
        assert!(parse_instance_keys(failed.as_bytes()).unwrap_err().to_string().len() < 400);
        for wrong in ["", "[]", "{}", &json.replace("Token", "Tokens")] {
            assert_eq!(
                parse_instance_keys(wrong.as_bytes()).unwrap_err().as_str(),
                "transport",
                "{wrong}"
            );
        }
    }
}
