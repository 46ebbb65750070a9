//! Schemes that sign nothing: whoever has the credential is believed, whatever the body says.

use std::fmt;

use subtle::{Choice, ConstantTimeEq};

use super::super::peer_identity::PeerIdentity;
use super::Reason;
use super::request::Request;
use super::secrets::{SecretError, from_base64, from_hex};

/// What stands before a token in the header `Authorization`, in any case.
const BEARER: &[u8] = b"bearer ";

/// The tokens any of which lets a hook in. Never printed.
#[derive(Clone)]
pub struct Tokens(Vec<String>);

impl Tokens {
    /// # Errors
    ///
    /// The index of the first that is empty.
    pub fn new<S: AsRef<str>>(tokens: &[S]) -> Result<Self, (usize, SecretError)> {
        if let Some(index) = tokens.iter().position(|token| token.as_ref().trim().is_empty()) {
            return Err((index, SecretError::Empty));
        }
        Ok(Self(tokens.iter().map(|token| token.as_ref().to_owned()).collect()))
    }

    /// Compares with every token, in a time that tells nothing of how much of one was right.
    pub fn contains(&self, token: &[u8]) -> bool {
        let found = |found, it: &String| found | it.as_bytes().ct_eq(token);
        self.0.iter().fold(Choice::from(0), found).into()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({} redacted)", self.0.len())
    }
}

/// A token in a header.
#[derive(Clone, Debug)]
pub struct BearerVerifier {
    /// The header whose whole value is the token; `Authorization: Bearer <token>` if none is named.
    pub header: Option<String>,
    pub tokens: Tokens,
}

impl BearerVerifier {
    pub(super) fn check<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        request: &Request<'_, N, V>,
    ) -> Result<(), Reason> {
        let token = match &self.header {
            Some(name) => request.value(name).ok_or(Reason::MissingSignature)?,
            None => {
                let value = request.value("authorization").ok_or(Reason::MissingSignature)?;
                let (scheme, token) =
                    value.split_at_checked(BEARER.len()).ok_or(Reason::MalformedSignature)?;
                if !scheme.eq_ignore_ascii_case(BEARER) {
                    return Err(Reason::MalformedSignature);
                }
                token.trim_ascii()
            }
        };
        if token.is_empty() {
            return Err(Reason::MalformedSignature);
        }
        if self.tokens.contains(token) { Ok(()) } else { Err(Reason::NoMatch) }
    }
}

/// Client certificates: who of those that the listener lets in may send to this source.
#[derive(Clone, Debug)]
pub struct MtlsVerifier {
    /// Any of them lets a client in.
    pub peers: Vec<Peer>,
}

impl MtlsVerifier {
    pub(super) fn check(&self, peer: Option<&PeerIdentity>) -> Result<(), Reason> {
        let peer = peer.ok_or(Reason::MissingSignature)?;
        let is_listed = self.peers.iter().any(|listed| listed.is(peer));
        if is_listed { Ok(()) } else { Err(Reason::NoMatch) }
    }
}

/// One client, by one thing that its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `subject:`, the whole subject to the letter, the most specific part first, as in `CN=billing,O=Acme`.
    Subject(String),
    /// `cn:`, a common name of the subject, to the letter.
    CommonName(String),
    /// `dns:`, to the letter but for its case.
    Dns(String),
    /// `email:`, to the letter.
    Email(String),
    /// `uri:`, to the letter, as in `spiffe://example.org/sender`.
    Uri(String),
    /// `cert_sha256:`, hex or base64 of the SHA-256 of the certificate.
    Certificate([u8; 32]),
    /// `spki_sha256:`, likewise of its public key.
    PublicKey([u8; 32]),
}

/// What is wrong with an entry that names a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("must begin with subject:, cn:, dns:, email:, uri:, cert_sha256: or spki_sha256:")]
    UnknownKind,
    #[error("must name something after the colon")]
    Empty,
    #[error("must be the 32 bytes of a SHA-256, as hex or base64")]
    NotADigest,
}

impl Peer {
    /// # Errors
    ///
    /// An unknown kind, and what is no value of a known one.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        let (kind, value) = text.split_once(':').ok_or(PeerError::UnknownKind)?;
        let owned = value.to_owned();
        let peer = match kind {
            "subject" => Self::Subject(owned),
            "cn" => Self::CommonName(owned),
            "dns" => Self::Dns(owned),
            "email" => Self::Email(owned),
            "uri" => Self::Uri(owned),
            "cert_sha256" => Self::Certificate(digest(value)?),
            "spki_sha256" => Self::PublicKey(digest(value)?),
            _other => return Err(PeerError::UnknownKind),
        };
        if value.trim().is_empty() { Err(PeerError::Empty) } else { Ok(peer) }
    }

    fn is(&self, peer: &PeerIdentity) -> bool {
        match self {
            Self::Subject(subject) => peer.subject == *subject,
            Self::CommonName(name) => peer.common_names.contains(name),
            Self::Dns(name) => peer.dns_names.iter().any(|it| it.eq_ignore_ascii_case(name)),
            Self::Email(address) => peer.emails.contains(address),
            Self::Uri(uri) => peer.uris.contains(uri),
            Self::Certificate(digest) => peer.certificate_sha256 == *digest,
            Self::PublicKey(digest) => peer.public_key_sha256 == *digest,
        }
    }
}

/// Also with colons between the bytes, as tools print it.
fn digest(text: &str) -> Result<[u8; 32], PeerError> {
    let bytes = from_hex(&text.replace(':', "")).or_else(|| from_base64(text));
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(PeerError::NotADigest)
}
