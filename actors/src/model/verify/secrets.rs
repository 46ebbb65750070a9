//! The keys of a source. Keyed once, when the source is loaded, so that a check starts with the body.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::descriptor::{Encoding, HashFunction, SecretDecode};
use super::form::nibble;

/// How many secrets a source may have: each is tried for every hook that the ones before it do not match.
pub const MAX_SECRETS: usize = 8;

/// Bits after the last whole byte are let go, as the other libraries do: a hand-made test secret rarely has them zero.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Why one of the secrets cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("must not be empty")]
    Empty,
    #[error("must be base64, after a leading whsec_ if it has one")]
    NotWhsecBase64,
    #[error("must be base64")]
    NotBase64,
    #[error("must be hex")]
    NotHex,
}

/// The keys to try, newest first. Never printed.
#[derive(Clone)]
pub struct Secrets {
    keys: Vec<Key>,
}

impl Secrets {
    /// No key at all: every hook is refused with `bad_secret`, which keeps a source with a damaged secret in its place
    /// instead of opening it.
    pub const fn unusable() -> Self {
        Self { keys: Vec::new() }
    }

    /// Keys every secret. One that cannot be used spoils the list, and its place in it is told: during a rotation
    /// nobody would notice that only half of it is in force.
    ///
    /// # Errors
    ///
    /// The index of the first secret that is empty or cannot be decoded, and why.
    pub fn new<S: AsRef<str>>(
        secrets: &[S],
        decode: SecretDecode,
        hash: HashFunction,
    ) -> Result<Self, (usize, SecretError)> {
        let keyed = |(index, secret): (usize, &S)| {
            Key::new(secret.as_ref(), decode, hash).map_err(|why| (index, why))
        };
        Ok(Self { keys: secrets.iter().enumerate().map(keyed).collect::<Result<_, _>>()? })
    }

    /// What the newest of them makes of a message, in base64; none if there is no secret.
    pub(in super::super) fn sign_newest(&self, message: &[u8]) -> Option<String> {
        let written = self.keys.first()?.sign(&[message], Encoding::Base64);
        String::from_utf8(written.as_bytes().to_vec()).ok()
    }

    pub(super) fn keys(&self) -> &[Key] {
        &self.keys
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} redacted)", self.keys.len())
    }
}

/// The state of an HMAC that has taken its key and nothing else.
#[derive(Clone)]
pub(super) enum Key {
    Sha256(Hmac<Sha256>),
    Sha512(Hmac<Sha512>),
    Sha1(Hmac<Sha1>),
}

impl Key {
    fn new(secret: &str, decode: SecretDecode, hash: HashFunction) -> Result<Self, SecretError> {
        if secret.trim().is_empty() {
            return Err(SecretError::Empty);
        }
        let decoded;
        let bytes = match decode {
            SecretDecode::Raw => secret.as_bytes(),
            SecretDecode::WhsecBase64 => {
                let text = secret.strip_prefix("whsec_").unwrap_or(secret);
                decoded = from_base64(text).ok_or(SecretError::NotWhsecBase64)?;
                decoded.as_slice()
            }
            SecretDecode::Base64 => {
                decoded = from_base64(secret).ok_or(SecretError::NotBase64)?;
                decoded.as_slice()
            }
            SecretDecode::Hex => {
                decoded = from_hex(secret).ok_or(SecretError::NotHex)?;
                decoded.as_slice()
            }
        };
        if bytes.is_empty() {
            return Err(SecretError::Empty);
        }
        // An HMAC takes a key of any length: the error below has no way to happen.
        let keyed = match hash {
            HashFunction::Sha256 => Hmac::new_from_slice(bytes).map(Self::Sha256),
            HashFunction::Sha512 => Hmac::new_from_slice(bytes).map(Self::Sha512),
            HashFunction::Sha1 => Hmac::new_from_slice(bytes).map(Self::Sha1),
        };
        keyed.map_err(|_| SecretError::Empty)
    }

    /// The signature of the parts, one after the other, as the header would write it.
    pub(super) fn sign(&self, parts: &[&[u8]], encoding: Encoding) -> Written {
        match self {
            Self::Sha256(keyed) => sign(keyed.clone(), parts, encoding),
            Self::Sha512(keyed) => sign(keyed.clone(), parts, encoding),
            Self::Sha1(keyed) => sign(keyed.clone(), parts, encoding),
        }
    }
}

fn sign(mut mac: impl Mac, parts: &[&[u8]], encoding: Encoding) -> Written {
    for part in parts {
        mac.update(part);
    }
    let digest = mac.finalize().into_bytes();
    match encoding {
        Encoding::Hex => Written::hex(&digest),
        Encoding::Base64 => Written::base64(&digest),
    }
}

/// The longest signature an HMAC makes is 64 bytes, twice that in hex.
const MAX_WRITTEN_BYTES: usize = 128;

/// A signature as text, without a string on the heap.
#[derive(Debug)]
pub(super) struct Written {
    text: [u8; MAX_WRITTEN_BYTES],
    len: usize,
}

impl Written {
    fn hex(digest: &[u8]) -> Self {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        let mut text = [0; MAX_WRITTEN_BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        Self { text, len: (digest.len() * 2).min(MAX_WRITTEN_BYTES) }
    }

    fn base64(digest: &[u8]) -> Self {
        let mut text = [0; MAX_WRITTEN_BYTES];
        // There is room for every digest: see above.
        let len = BASE64.encode_slice(digest, &mut text).unwrap_or_default();
        Self { text, len }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }
}

/// A SHA-256 in lower-case hex.
pub(super) fn write_hex(digest: &[u8]) -> Written {
    Written::hex(digest)
}

/// Standard alphabet; padding, where there is any, must be right.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// In either case.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks();
    let byte = |[high, low]: &[u8; 2]| Some(nibble(*high)? << 4 | nibble(*low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}
