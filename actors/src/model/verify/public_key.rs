//! Signatures that a public key checks: Ed25519, ECDSA over P-256, RSA.
//!
//! The keys are read when the source is loaded. They are no secrets, but they come in as many writings as secrets do.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rsa::PublicEncryptingKey;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, VerificationAlgorithm,
};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use super::descriptor::Encoding;
use super::secrets::from_hex;

/// How many public keys a source may have.
pub const MAX_PUBLIC_KEYS: usize = 8;

/// How many signatures of one request are held against each key: a check is dear, and nobody sends more.
pub const MAX_SIGNATURES: usize = 4;

const RSA_BITS: RangeInclusive<usize> = 2_048..=8_192;

/// The longest signature: RSA with 8192 bits, in hex.
const MAX_SIGNATURE_TEXT_BYTES: usize = 2_048;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What makes a signature. The hash is SHA-256 where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Ed25519,
    /// As ASN.1, or as two numbers of 32 bytes.
    EcdsaP256,
    Rsa(RsaPadding),
}

/// How RSA pads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RsaPadding {
    #[default]
    Pkcs1v15,
    Pss,
}

impl Algorithm {
    /// The schemes under which a signature may be written; the key is the same.
    fn schemes(self) -> &'static [&'static dyn VerificationAlgorithm] {
        match self {
            Self::Ed25519 => &[&ED25519],
            Self::EcdsaP256 => &[&ECDSA_P256_SHA256_ASN1, &ECDSA_P256_SHA256_FIXED],
            Self::Rsa(RsaPadding::Pkcs1v15) => &[&RSA_PKCS1_2048_8192_SHA256],
            Self::Rsa(RsaPadding::Pss) => &[&RSA_PSS_2048_8192_SHA256],
        }
    }

    const fn key_name(self) -> &'static str {
        match self {
            Self::Ed25519 => "an Ed25519",
            Self::EcdsaP256 => "a P-256",
            Self::Rsa(_) => "an RSA (2048 to 8192 bits)",
        }
    }
}

/// Why one of the public keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    #[error("must not be empty")]
    Empty,
    #[error("is a private key: give the public one, and treat this one as known to others")]
    Private,
    #[error("must be PEM, base64 or hex")]
    NotEncoded,
    #[error("must be {0} public key")]
    NotAKey(&'static str),
}

/// The keys to try, newest first.
#[derive(Clone)]
pub struct PublicKeys {
    /// For each key what each scheme of its algorithm makes of it.
    keys: Arc<[ParsedPublicKey]>,
    algorithm: Algorithm,
}

impl PublicKeys {
    /// Reads every key. One that cannot be used spoils the list.
    ///
    /// # Errors
    ///
    /// The index of the first such key, and why.
    pub fn new<S: AsRef<str>>(
        keys: &[S],
        algorithm: Algorithm,
    ) -> Result<Self, (usize, PublicKeyError)> {
        let mut parsed = Vec::new();
        for (index, text) in keys.iter().enumerate() {
            let bytes = key_bytes(text.as_ref()).map_err(|why| (index, why))?;
            let why = PublicKeyError::NotAKey(algorithm.key_name());
            if matches!(algorithm, Algorithm::Rsa(_)) && !is_rsa_of_good_size(&bytes) {
                return Err((index, why));
            }
            for scheme in algorithm.schemes() {
                let key = ParsedPublicKey::new(*scheme, &bytes);
                parsed.push(key.map_err(|_rejected| (index, why))?);
            }
        }
        Ok(Self { keys: parsed.into(), algorithm })
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether any key made any of the signatures of the parts, one after the other.
    pub(super) fn verify(&self, parts: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
        let any = |is_by: &dyn Fn(&ParsedPublicKey, &[u8]) -> bool| {
            self.keys.iter().any(|key| signatures.iter().any(|signature| is_by(key, signature)))
        };
        match self.algorithm {
            // Hashes the text twice, each time with something before it.
            Algorithm::Ed25519 => {
                let text = match parts {
                    [whole] => Cow::Borrowed(*whole),
                    several => Cow::Owned(several.concat()),
                };
                any(&|key, signature| key.verify_sig(&text, signature).is_ok())
            }
            // Hashed once, however many there are to check.
            Algorithm::EcdsaP256 | Algorithm::Rsa(_) => {
                let mut context = Context::new(&SHA256);
                parts.iter().for_each(|part| context.update(part));
                let digest = context.finish();
                any(&|key, signature| key.verify_digest_sig(&digest, signature).is_ok())
            }
        }
    }
}

impl fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKeys({} {:?})", self.keys.len(), self.algorithm)
    }
}

/// The signatures among `candidates`, up to [`MAX_SIGNATURES`]: what is not written as one is passed over.
pub(super) fn signatures(candidates: &[&[u8]], encoding: Encoding) -> Vec<Vec<u8>> {
    let short = candidates.iter().filter(|text| text.len() <= MAX_SIGNATURE_TEXT_BYTES);
    let decoded = short.filter_map(|text| match encoding {
        Encoding::Hex => from_hex(std::str::from_utf8(text).ok()?),
        Encoding::Base64 => BASE64.decode(text).ok(),
    });
    decoded.filter(|signature| !signature.is_empty()).take(MAX_SIGNATURES).collect()
}

/// The key in any of its writings: PEM, hex, base64.
fn key_bytes(text: &str) -> Result<Vec<u8>, PublicKeyError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(PublicKeyError::Empty);
    }
    let bytes = match text.strip_prefix("-----BEGIN ") {
        Some(pem) => pem_bytes(pem)?,
        None => from_hex(text).or_else(|| BASE64.decode(text).ok()),
    };
    bytes.ok_or(PublicKeyError::NotEncoded)
}

/// Whether a key can sign anything at all under the schemes here, which no check of a signature would ever tell.
fn is_rsa_of_good_size(bytes: &[u8]) -> bool {
    let key = PublicEncryptingKey::from_der(bytes).or_else(|_not_spki| {
        PublicEncryptingKey::from_der(&rsa_public_key_info(bytes).unwrap_or_default())
    });
    key.is_ok_and(|key| RSA_BITS.contains(&key.key_size_bits()))
}

/// A bare RSAPublicKey in the SubjectPublicKeyInfo it is otherwise found in: the algorithm, then the key as bits.
fn rsa_public_key_info(key: &[u8]) -> Option<Vec<u8>> {
    const RSA_ENCRYPTION: [u8; 15] =
        [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    let long = |tag: u8, bytes: usize| {
        let [high, low] = u16::try_from(bytes).ok()?.to_be_bytes();
        Some([tag, 0x82, high, low])
    };
    let bits = [&long(0x03, key.len() + 1)?[..], &[0], key].concat();
    let whole = long(0x30, RSA_ENCRYPTION.len() + bits.len())?;
    Some([&whole[..], &RSA_ENCRYPTION, &bits].concat())
}

fn pem_bytes(pem: &str) -> Result<Option<Vec<u8>>, PublicKeyError> {
    let Some((label, rest)) = pem.split_once("-----") else { return Ok(None) };
    if label.contains("PRIVATE") {
        return Err(PublicKeyError::Private);
    }
    let body = rest.split_once("-----END ").map(|(body, _)| body);
    let base64: Option<String> =
        body.map(|body| body.chars().filter(|char| !char.is_whitespace()).collect());
    Ok(base64.and_then(|base64| BASE64.decode(base64).ok()))
}
