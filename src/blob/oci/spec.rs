//! What a bucket of OCI Object Storage is configured with.

use std::fmt;

use http::HeaderValue;
use serde::{Deserialize, Serialize};
use url::Url;

use super::super::options::{Sse, TransportOptions};
use super::super::spec_error::BlobSpecError;
use super::instance_principal::InstancePrincipalSpec;
use super::signing::{Identity, SigningKey};

/// What a key id of a session token begins with.
pub(super) const SESSION_PREFIX: &str = "ST$";

/// How requests are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OciAuth {
    /// With the API key of a user: `tenancy_ocid`, `user_ocid`, `key_fingerprint` and `private_key`.
    #[default]
    ApiKey,
    /// As the compute instance the node runs on, by its certificate; nothing is configured.
    InstancePrincipal,
    /// With a session token and its key, `key_id` and `private_key`, which somebody else renews.
    SessionToken,
}

/// One bucket of OCI Object Storage.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OciSpec {
    /// The region, such as `us-ashburn-1`. `endpoint` makes up for it; an instance principal asks the instance then.
    pub region: Option<String>,
    /// The Object Storage namespace of the tenancy.
    pub namespace: String,
    /// The bucket.
    pub bucket: String,
    /// Scheme, host and port; `None` for `https://objectstorage.<region>.oraclecloud.com`. Realms of another domain need
    /// it.
    pub endpoint: Option<String>,
    /// How requests are signed; `api_key` by default.
    pub auth: OciAuth,
    /// The tenancy of the API key's user.
    pub tenancy_ocid: Option<String>,
    /// The user the API key belongs to.
    pub user_ocid: Option<String>,
    /// The fingerprint of the API key, as the console shows it: `20:3b:97:...`.
    pub key_fingerprint: Option<String>,
    /// The RSA key itself, 2048 bits or more: PEM, PKCS#1 or PKCS#8, not encrypted. A secret.
    pub private_key: Option<String>,
    /// `ST$<token>`, the key id of a session token. A secret.
    pub key_id: Option<String>,
    /// Asked for with every put: `kms` names a key of the customer's. Objects are encrypted at rest in any case.
    pub sse: Option<Sse>,
    /// Where an instance principal finds the instance's metadata; `None` for `http://169.254.169.254`.
    pub metadata_endpoint: Option<String>,
    /// Where it exchanges its certificate for a token; `None` for `https://auth.<region>.oraclecloud.com`.
    pub federation_endpoint: Option<String>,
    /// Timeouts, retries, breaker, parts and connections.
    #[serde(flatten)]
    pub transport: TransportOptions,
}

impl fmt::Debug for OciSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OciSpec")
            .field("region", &self.region)
            .field("namespace", &self.namespace)
            .field("bucket", &self.bucket)
            .field("endpoint", &self.endpoint)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

/// Who signs, before anything is asked.
pub(super) enum Signs {
    Fixed(Identity),
    Instance(InstancePrincipalSpec),
}

impl OciSpec {
    pub(super) fn check_names(&self) -> Result<(), BlobSpecError> {
        for (key, name) in [("namespace", &self.namespace), ("bucket", &self.bucket)] {
            let of_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let is_name = !matches!(name.as_str(), "" | "." | "..") && name.bytes().all(of_a_name);
            if !is_name || name.len() > 256 {
                let text = "must be 1 to 256 letters, digits, '-', '_' and '.'";
                return Err(BlobSpecError::new(key, text));
            }
        }
        let of_a_region = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        match &self.region {
            Some(region) if region.is_empty() || !region.bytes().all(of_a_region) => {
                Err(BlobSpecError::new("region", "must be a name such as us-ashburn-1"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn endpoint_url(&self) -> Result<Url, BlobSpecError> {
        match (&self.endpoint, &self.region) {
            (Some(endpoint), _) => origin("endpoint", endpoint),
            (None, Some(region)) => {
                origin("region", &format!("https://objectstorage.{region}.oraclecloud.com"))
            }
            (None, None) => Err(BlobSpecError::new("region", "is required without an endpoint")),
        }
    }

    /// The key of the customer's that objects are encrypted with, as a header.
    pub(super) fn sse_key(&self) -> Result<Option<HeaderValue>, BlobSpecError> {
        match &self.sse {
            // What is done anyway.
            None | Some(Sse::Aes256 {}) => Ok(None),
            Some(Sse::Kms { key_id }) if is_token(key_id) => HeaderValue::from_str(key_id)
                .map(Some)
                .map_err(|error| BlobSpecError::new("sse.key_id", error.to_string())),
            Some(Sse::Kms { .. }) => {
                Err(BlobSpecError::new("sse.key_id", "must be the OCID of a key"))
            }
        }
    }

    pub(super) fn signs(&self) -> Result<Signs, BlobSpecError> {
        match self.auth {
            OciAuth::ApiKey => {
                let tenancy = required("tenancy_ocid", self.tenancy_ocid.as_deref())?;
                let user = required("user_ocid", self.user_ocid.as_deref())?;
                let fingerprint = required("key_fingerprint", self.key_fingerprint.as_deref())?;
                self.identity(format!("{tenancy}/{user}/{fingerprint}"))
            }
            OciAuth::SessionToken => {
                let key_id = required("key_id", self.key_id.as_deref())?;
                if !key_id.starts_with(SESSION_PREFIX) {
                    return Err(BlobSpecError::new("key_id", "must be ST$ and a session token"));
                }
                self.identity(key_id.to_owned())
            }
            OciAuth::InstancePrincipal => {
                let metadata = self.metadata_endpoint.as_deref();
                let metadata = metadata.unwrap_or("http://169.254.169.254");
                let metadata = origin("metadata_endpoint", metadata)?;
                let federation = self.federation_endpoint.as_deref();
                let federation =
                    federation.map(|url| origin("federation_endpoint", url)).transpose()?;
                let region = self.region.clone();
                Ok(Signs::Instance(InstancePrincipalSpec { metadata, federation, region }))
            }
        }
    }

    fn identity(&self, key_id: String) -> Result<Signs, BlobSpecError> {
        let pem = self.private_key.as_deref().unwrap_or_default();
        let key = SigningKey::from_pem(pem)
            .map_err(|error| BlobSpecError::new("private_key", error.to_string()))?;
        Ok(Signs::Fixed(Identity { key_id, key }))
    }
}

fn required<'a>(key: &str, value: Option<&'a str>) -> Result<&'a str, BlobSpecError> {
    match value {
        Some(value) if is_token(value) => Ok(value),
        Some(_) => Err(BlobSpecError::new(key, "must be printable, without spaces and quotes")),
        None => Err(BlobSpecError::new(key, "is required")),
    }
}

/// Whether it can stand between quotes in a header.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

/// A scheme, a host and a port, and nothing else.
pub(super) fn origin(key: &str, text: &str) -> Result<Url, BlobSpecError> {
    let wrong =
        || BlobSpecError::new(key, "must be http:// or https://, a host and a port at most");
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_origin = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    is_origin.then_some(url).ok_or_else(wrong)
}
