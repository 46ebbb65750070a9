//! From PEM files to what a handshake needs.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ankusa_actors::model::certificate::Certificate;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use crate::config::{ClientAuth, TlsConfig};

/// No chain, key or bundle of authorities is larger.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What cannot be used, at its key below `tls`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tls.{key}: {problem}")]
pub struct TlsError {
    pub key: &'static str,
    pub problem: String,
}

impl TlsError {
    fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self { key, problem: problem.into() }
    }
}

/// What the named files hold, or why they cannot be read.
pub(super) struct Files {
    certificates: Named,
    key: Named,
    authorities: Named,
}

type Named = Option<Result<Vec<u8>, String>>;

pub(super) struct Loaded {
    pub(super) server: Arc<ServerConfig>,
    /// When the own certificate runs out, in Unix seconds.
    pub(super) not_after_s: i64,
}

/// Whether the files that `config` names can be used.
///
/// # Errors
/// What is wrong with them first.
pub fn load(config: &TlsConfig) -> Result<(), TlsError> {
    Files::read(config).load(config, false).map(|_loaded| ())
}

impl Files {
    pub(super) fn read(config: &TlsConfig) -> Self {
        Self {
            certificates: config.cert_file.as_deref().map(read),
            key: config.key_file.as_deref().map(read),
            authorities: config.client_ca_file.as_deref().map(read),
        }
    }

    /// Two that are equal hold the same, or cannot be read for the same reason.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for file in [&self.certificates, &self.key, &self.authorities] {
            let part: [u8; 32] = match file {
                None => [0; 32],
                Some(Ok(bytes)) => Sha256::digest(bytes).into(),
                Some(Err(problem)) => Sha256::digest(problem).into(),
            };
            digest.update(part);
        }
        digest.finalize().into()
    }

    /// Nothing, if none are named.
    pub(super) fn load(&self, config: &TlsConfig, http2: bool) -> Result<Option<Loaded>, TlsError> {
        let (certificates, key) = match (&self.certificates, &self.key) {
            (Some(certificates), Some(key)) => (certificates, key),
            (Some(_), None) => return Err(TlsError::new("key_file", "is required with cert_file")),
            (None, Some(_)) => return Err(TlsError::new("cert_file", "is required with key_file")),
            (None, None) if self.authorities.is_some() => {
                return Err(TlsError::new("cert_file", "is required with client_ca_file"));
            }
            (None, None) => return Ok(None),
        };
        let chain = certificates_in("cert_file", certificates)?;
        let not_after_s = chain.first().map(|leaf| Certificate::from_der(leaf).map_err(refused));
        let not_after_s = not_after_s.transpose()?.map_or(0, |leaf| leaf.not_after_s);
        let key = PrivateKeyDer::from_pem_slice(text("key_file", key)?)
            .map_err(|error| TlsError::new("key_file", format!("holds no private key: {error}")))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new("cert_file", error.to_string()))?;
        let builder = match self.clients(config, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                TlsError::new("key_file", "is not the key of the certificate in cert_file")
            } else {
                TlsError::new("cert_file", error.to_string())
            }
        })?;
        let protocols: &[&[u8]] = if http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        server.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        if self.authorities.is_some() {
            // A resumed session would bring back a certificate that nobody has looked at again.
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        Ok(Some(Loaded { server: Arc::new(server), not_after_s }))
    }

    fn clients(
        &self,
        config: &TlsConfig,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        const KEY: &str = "client_ca_file";
        let Some(authorities) = &self.authorities else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for authority in certificates_in(KEY, authorities)? {
            roots.add(authority).map_err(|error| TlsError::new(KEY, error.to_string()))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match config.client_auth {
            ClientAuth::Optional => builder.allow_unauthenticated(),
            ClientAuth::Required => builder,
        };
        let built = builder.build().map_err(|error| TlsError::new(KEY, error.to_string()))?;
        Ok(Some(built))
    }
}

fn refused(error: impl std::fmt::Display) -> TlsError {
    TlsError::new("cert_file", error.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let mut bytes = Vec::new();
    let mut bounded = File::open(path).map_err(cannot)?.take(MAX_FILE_BYTES + 1);
    bounded.read_to_end(&mut bytes).map_err(cannot)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_FILE_BYTES) {
        Ok(bytes)
    } else {
        Err(format!("{} is larger than {MAX_FILE_BYTES} bytes", path.display()))
    }
}

fn text<'a>(key: &'static str, file: &'a Result<Vec<u8>, String>) -> Result<&'a [u8], TlsError> {
    file.as_deref().map_err(|problem| TlsError::new(key, problem))
}

/// At least one.
fn certificates_in(
    key: &'static str,
    file: &Result<Vec<u8>, String>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text(key, file)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_none) => Err(TlsError::new(key, "holds no certificate in PEM")),
        Err(error) => Err(TlsError::new(key, format!("is not PEM: {error}"))),
    }
}
