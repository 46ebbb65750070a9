//! Who the other end of a connection proved to be.

use super::certificate::{AltNames, BadCertificate, Certificate};

/// What the certificate says that a client showed in its TLS handshake, and that a configured authority has signed. A
/// client without one has no identity, and one whose certificate is not good has no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The distinguished name as text, the most specific part first: `CN=billing,O=Acme`.
    pub subject: String,
    /// The most specific `CN` of the subject.
    pub common_name: Option<String>,
    /// The names of the extension subjectAltName.
    pub alt_names: AltNames,
    /// SHA-256 of the SubjectPublicKeyInfo: the same for every certificate of one key.
    pub spki_sha256: [u8; 32],
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
            common_name: certificate.common_name,
            alt_names: certificate.alt_names,
            spki_sha256: certificate.spki_sha256,
        })
    }
}
