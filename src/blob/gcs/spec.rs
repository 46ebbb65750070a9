//! What an operator says of a bucket of Google Cloud Storage, and the store it makes.

use std::fmt;
use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobScope};
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use url::Url;

use super::places::Places;
use super::token::{Credentials, METADATA_HOST, MetadataServer, bearer};
use super::{Gcs, Store};
use crate::blob::options::{Sse, TransportOptions};
use crate::blob::spec_error::BlobSpecError;
use crate::blob::transport::{Transport, World};

/// The environment's word for where the metadata server is: a host, or a host and a port.
const METADATA_HOST_VARIABLE: &str = "GCE_METADATA_HOST";

/// Who we are to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GcsAuth {
    /// The service account of the machine or the pod, by its metadata server.
    #[default]
    Metadata,
    /// A token that is given and never renewed.
    Token,
    /// Nobody: emulators and public buckets.
    None,
}

/// Section `gcs`: one bucket.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcsSpec {
    /// Its name: lower-case letters, digits, `-`, `_` and `.`.
    pub bucket: String,
    /// Scheme, host and port of the service, and a path before its own if there is one.
    pub endpoint: String,
    /// Who we are to it.
    pub auth: GcsAuth,
    /// The OAuth 2.0 access token, with `auth: token` and never without it.
    pub token: Option<String>,
    /// Encryption asked for with every put. `aes256` sends nothing: objects are encrypted whether asked or not.
    pub sse: Option<Sse>,
    /// How it is talked to.
    #[serde(flatten)]
    pub transport: TransportOptions,
}

impl Default for GcsSpec {
    fn default() -> Self {
        Self {
            bucket: String::new(),
            endpoint: "https://storage.googleapis.com".to_owned(),
            auth: GcsAuth::default(),
            token: None,
            sse: None,
            transport: TransportOptions::default(),
        }
    }
}

/// Everything but the token.
impl fmt::Debug for GcsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GcsSpec")
            .field("bucket", &self.bucket)
            .field("endpoint", &self.endpoint)
            .field("auth", &self.auth)
            .field("token", &self.token.as_ref().map(|_hidden| "[REDACTED]"))
            .field("sse", &self.sse)
            .field("transport", &self.transport)
            .finish()
    }
}

/// The store of `spec`. Nothing is asked of it yet.
///
/// # Errors
/// The first mistake in `spec`.
pub fn open(
    spec: &GcsSpec,
    scope: BlobScope,
    world: &World,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    let host = std::env::var(METADATA_HOST_VARIABLE).ok().filter(|host| !host.is_empty());
    open_at(spec, scope, world, host.as_deref().unwrap_or(METADATA_HOST))
}

/// The same, with the metadata server at `metadata_host`: a host, or a host and a port.
///
/// # Errors
/// The first mistake in `spec`.
pub fn open_at(
    spec: &GcsSpec,
    scope: BlobScope,
    world: &World,
    metadata_host: &str,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    let is_of_a_name =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if spec.bucket.is_empty() || !spec.bucket.chars().all(is_of_a_name) {
        let text = "must be the name of a bucket: lower-case letters, digits, '-', '_' and '.'";
        return Err(BlobSpecError::new("bucket", text));
    }
    let endpoint = endpoint(&spec.endpoint)?;
    let kms_key = kms_key(spec.sse.as_ref())?;
    let credentials = credentials(spec, metadata_host)?;
    let transport = Transport::new(scope, &endpoint, &spec.bucket, &spec.transport, world)?;
    let places = Places::new(endpoint, &spec.bucket);
    let entropy = Arc::clone(&world.entropy);
    Ok(Arc::new(Store(Arc::new(Gcs { transport, places, credentials, kms_key, entropy }))))
}

fn endpoint(text: &str) -> Result<Url, BlobSpecError> {
    let refused = |text: &str| BlobSpecError::new("endpoint", text);
    let url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refused("must be an http or https address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("must hold no credentials"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refused("must end with its path"));
    }
    Ok(url)
}

/// The key every put names, as a parameter and as a header.
fn kms_key(sse: Option<&Sse>) -> Result<Option<(String, HeaderValue)>, BlobSpecError> {
    let key_id = match sse {
        None | Some(Sse::Aes256 {}) => return Ok(None),
        Some(Sse::Kms { key_id }) => key_id,
    };
    match HeaderValue::from_str(key_id) {
        Ok(header) if !key_id.is_empty() => Ok(Some((key_id.clone(), header))),
        Ok(_) | Err(_) => {
            Err(BlobSpecError::new("sse.key_id", "must be the name of a Cloud KMS key"))
        }
    }
}

fn credentials(spec: &GcsSpec, metadata_host: &str) -> Result<Credentials, BlobSpecError> {
    let refused = |text: &str| BlobSpecError::new("token", text);
    match (spec.auth, &spec.token) {
        (GcsAuth::Token, None) => Err(refused("is required with auth: token")),
        (GcsAuth::Token, Some(token)) => {
            let token = bearer(token).ok_or_else(|| refused("must be an access token"))?;
            Ok(Credentials::Token(token))
        }
        (GcsAuth::Metadata | GcsAuth::None, Some(_)) => {
            Err(refused("is used with auth: token alone"))
        }
        (GcsAuth::None, None) => Ok(Credentials::None),
        (GcsAuth::Metadata, None) => {
            let server =
                MetadataServer::at(metadata_host).map_err(|why| BlobSpecError::new("auth", why))?;
            Ok(Credentials::Metadata(server))
        }
    }
}
