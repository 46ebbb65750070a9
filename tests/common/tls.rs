//! An authority, the certificates it signs, and connections that trust it.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{TestNode, in_time};

/// One that clients or nodes trust.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate of this common name, for `localhost`.
    pub fn sign(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// Clients that trust this authority and show `pair`.
    pub fn client(&self, pair: Option<&Pair>, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match pair {
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// # Errors
/// Nobody listens, or the two cannot agree.
pub async fn connect(
    port: u16,
    client: Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = in_time("connecting", TcpStream::connect(("127.0.0.1", port))).await?;
    let name = ServerName::try_from("localhost").unwrap();
    in_time("the handshake", TlsConnector::from(client).connect(name, stream)).await
}

impl TestNode {
    /// Puts a text where the configuration can name it.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        // Another file in its place, as those do it who renew certificates.
        let beside = self.path(&format!("{name}.new"));
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        path
    }
}
