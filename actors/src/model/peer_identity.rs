//! Who the other end of a connection proved to be.

use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::certificate::{BadCertificate, Certificate};

/// What the certificate says that a client showed in its TLS handshake, and that a configured authority has signed. A
/// client without one has no identity, and one whose certificate is not good has no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The distinguished name as text, the most specific part first: `CN=billing,O=Acme`.
    pub subject: String,
    /// Of the subject, in their order.
    pub common_names: Vec<String>,
    /// The names of the extension subjectAltName, by their kind.
    pub dns_names: Vec<String>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
    pub ips: Vec<IpAddr>,
    /// Of the whole certificate as it was sent.
    pub certificate_sha256: [u8; 32],
    /// Of its SubjectPublicKeyInfo, which stays the same when a certificate is renewed for the same key.
    pub public_key_sha256: [u8; 32],
}

impl PeerIdentity {
    /// Of a verified leaf certificate in DER.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub fn from_certificate(der: &[u8]) -> Result<Self, BadCertificate> {
        let certificate = Certificate::from_der(der)?;
        Ok(Self {
            subject: certificate.subject,
            common_names: certificate.common_names,
            dns_names: certificate.alt_names.dns,
            emails: certificate.alt_names.emails,
            uris: certificate.alt_names.uris,
            ips: certificate.alt_names.ips,
            certificate_sha256: Sha256::digest(der).into(),
            public_key_sha256: certificate.public_key_sha256,
        })
    }
}
