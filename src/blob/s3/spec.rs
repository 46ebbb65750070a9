//! What a store in S3, or in what speaks its language, is configured with.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::blob::options::{Sse, TransportOptions};
use crate::blob::spec_error::BlobSpecError;

/// Section `s3`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Spec {
    /// The bucket. It must exist.
    pub bucket: String,
    /// Its region, which signatures name: `us-east-1` unless said; `auto` for R2, mostly anything for others.
    pub region: String,
    /// The store, as `https://host`, with a port and a path in front of the buckets if it has them; `None` for AWS in
    /// `region`.
    pub endpoint: Option<String>,
    /// Whether the bucket is named in the path, as it is unless this says otherwise, or in front of the host. A dot in the
    /// name of a bucket is no trouble in a path; in front of a host no certificate is good for it.
    pub path_style: bool,
    /// With `secret_access_key`: who asks. Without either, the environment, a web identity and the instance are asked, in
    /// this order.
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    /// What temporary keys come with.
    pub session_token: Option<String>,
    /// The encryption every object is to be kept in; `None` for the bucket's own.
    pub sse: Option<Sse>,
    #[serde(flatten)]
    pub transport: TransportOptions,
}

impl Default for S3Spec {
    fn default() -> Self {
        Self {
            bucket: String::new(),
            region: "us-east-1".to_owned(),
            endpoint: None,
            path_style: true,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            sse: None,
            transport: TransportOptions::default(),
        }
    }
}

impl fmt::Debug for S3Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| "(hidden)");
        f.debug_struct("S3Spec")
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("path_style", &self.path_style)
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &hidden(&self.secret_access_key))
            .field("session_token", &hidden(&self.session_token))
            .field("sse", &self.sse)
            .field("transport", &self.transport)
            .finish()
    }
}

impl S3Spec {
    /// What can be told without the rest of the world. The address is checked as it is made.
    ///
    /// # Errors
    /// The first mistake.
    pub(super) fn check(&self) -> Result<(), BlobSpecError> {
        let wrong = |key: &str, text: &str| Err(BlobSpecError::new(key, text));
        let is_region = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        if self.region.is_empty() || !self.region.bytes().all(is_region) {
            return wrong("region", "is no name of a region: letters, digits and dashes");
        }
        match (&self.access_key_id, &self.secret_access_key, &self.session_token) {
            (Some(_), None, _) => {
                return wrong("secret_access_key", "is missing, and access_key_id is there");
            }
            (None, Some(_), _) => {
                return wrong("access_key_id", "is missing, and secret_access_key is there");
            }
            (None, None, Some(_)) => {
                return wrong("access_key_id", "is missing, and session_token is there");
            }
            (Some(_), Some(_), _) | (None, None, None) => {}
        }
        for (key, value) in [
            ("access_key_id", &self.access_key_id),
            ("secret_access_key", &self.secret_access_key),
            ("session_token", &self.session_token),
        ] {
            if value.as_deref().is_some_and(|value| !is_one_word(value)) {
                return wrong(key, "is empty, or holds what no key does");
            }
        }
        match &self.sse {
            Some(Sse::Kms { key_id }) if !is_one_word(key_id) => {
                wrong("sse.key_id", "is empty, or holds what no key's id does")
            }
            Some(Sse::Kms { .. } | Sse::Aes256 {}) | None => Ok(()),
        }
    }
}

fn is_one_word(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<S3Spec, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_spec_is_read_with_its_transport_beside_it() {
        let spec = read(json!({
            "bucket": "b", "region": "eu-west-1", "endpoint": "http://h", "path_style": false,
            "access_key_id": "a", "secret_access_key": "s", "session_token": "t",
            "sse": {"type": "kms", "key_id": "k"}, "retries": 7, "cacertfile": "/ca.pem",
        }));
        let expected = S3Spec {
            bucket: "b".into(),
            region: "eu-west-1".into(),
            endpoint: Some("http://h".into()),
            path_style: false,
            access_key_id: Some("a".into()),
            secret_access_key: Some("s".into()),
            session_token: Some("t".into()),
            sse: Some(Sse::Kms { key_id: "k".into() }),
            transport: TransportOptions {
                retries: 7,
                cacertfile: Some("/ca.pem".into()),
                ..TransportOptions::default()
            },
        };
        assert_eq!(spec, Ok(expected.clone()));
        assert_eq!(read(serde_json::to_value(&expected).unwrap()), Ok(expected));
        assert_eq!(read(json!({})), Ok(S3Spec::default()));
    }

    #[test]
    fn a_misspelt_key_is_an_error_wherever_it_is() {
        for (wrong, why) in [
            (json!({"buckett": "b"}), "unknown field `buckett`"),
            (json!({"retrys": 1}), "unknown field `retrys`"),
            (json!({"sse": {"type": "kmss"}}), "unknown variant `kmss`"),
            (json!({"sse": {"type": "kms"}}), "missing field `key_id`"),
            (json!({"sse": {"type": "kms", "key": "k"}}), "unknown field `key`"),
            (json!({"sse": {"type": "aes256", "key_id": "k"}}), "unknown field `key_id`"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn the_first_mistake_is_named_with_its_key() {
        let told = |change: fn(&mut S3Spec)| {
            let mut spec = S3Spec::default();
            change(&mut spec);
            spec.check().map_err(|error| error.to_string())
        };
        assert_eq!(told(|_| {}), Ok(()));
        assert_eq!(told(|s| s.sse = Some(Sse::Aes256 {})), Ok(()));
        for (change, why) in [
            (
                (|s| s.region.clear()) as fn(&mut S3Spec),
                "region: is no name of a region: letters, digits and dashes",
            ),
            (
                |s| s.access_key_id = Some("a".into()),
                "secret_access_key: is missing, and access_key_id is there",
            ),
            (
                |s| s.secret_access_key = Some("a".into()),
                "access_key_id: is missing, and secret_access_key is there",
            ),
            (
                |s| s.session_token = Some("a".into()),
                "access_key_id: is missing, and session_token is there",
            ),
            (
                |s| {
                    (s.access_key_id, s.secret_access_key) = (Some("a".into()), Some(String::new()))
                },
                "secret_access_key: is empty, or holds what no key does",
            ),
            (
                |s| s.sse = Some(Sse::Kms { key_id: " ".into() }),
                "sse.key_id: is empty, or holds what no key's id does",
            ),
        ] {
            assert_eq!(told(change), Err(why.to_owned()));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = Some("hush".to_owned());
        let spec = S3Spec {
            secret_access_key: secret.clone(),
            session_token: secret,
            ..S3Spec::default()
        };
        assert!(!format!("{spec:?}").contains("hush"));
    }
}
