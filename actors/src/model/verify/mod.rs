//! Whether a hook was signed by who it says it is from.
//!
//! Nearly every scheme here is a signature over the exact bytes received, before anything has parsed them: a body that was
//! decoded and encoded again no longer matches. What differs between providers is data ([`Descriptor`]), never code.
//!
//! * [`VerifySpec`] is the `verify` block of a source. It is refused when the source is loaded, not at the first hook.
//! * [`Verifier`] is what it builds: keyed once, then asked for every hook.
//! * [`VerificationTerm`] is the answer that travels with the hook.
//! * [`verdict`] is all of it in one step.

mod build;
mod credential;
mod descriptor;
mod form;
mod inflate;
pub mod presets;
mod public_key;
mod request;
mod secrets;
mod signature;
mod spec;
mod template;
mod timestamp;

use std::fmt;

use bytes::Bytes;

pub(super) use build::refuse;
pub use credential::{BearerVerifier, MtlsVerifier, Peer, PeerError, Tokens};
pub use descriptor::{
    BodyForm, Descriptor, Encoding, HashFunction, Parse, SecretDecode, Separator, Timestamp,
    TimestampFormat, TimestampSource,
};
pub use form::MAX_FORM_FIELDS;
pub(super) use form::fields;
pub use public_key::{
    Algorithm, MAX_PUBLIC_KEYS, MAX_SIGNATURES, PublicKeyError, PublicKeys, RsaPadding,
};
pub use request::Request;
pub use secrets::{MAX_SECRETS, SecretError, Secrets};
pub use signature::MAX_CANDIDATES;
pub use spec::{ParseName, SecretSpec, TextsSpec, VerifySpec, VerifySpecError, VerifyType};
pub use template::{Piece, Template, TemplateError};
pub use timestamp::rfc3339_unix_s;

use super::envelope::{VerificationStatus, VerificationTerm};

/// Names the HMAC verifier in stored hooks: the text of the documented system's module atom.
pub const HMAC_PROVIDER: &str = "Elixir.Ankusa.Verifier.Hmac";

/// The names of the others, made likewise.
const ED25519_PROVIDER: &str = "Elixir.Ankusa.Verifier.Ed25519";
const ECDSA_PROVIDER: &str = "Elixir.Ankusa.Verifier.Ecdsa";
const RSA_PROVIDER: &str = "Elixir.Ankusa.Verifier.Rsa";
const BEARER_PROVIDER: &str = "Elixir.Ankusa.Verifier.Bearer";
const MTLS_PROVIDER: &str = "Elixir.Ankusa.Verifier.Mtls";

/// The scheme name of a descriptor that is no preset.
pub const CUSTOM_SCHEME: &str = "custom";

/// The replay window when a source names none, in seconds to either side.
pub const DEFAULT_TOLERANCE_SECONDS: u64 = 300;

/// Why a hook was not verified. The text is an atom in stored hooks and a label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// What the scheme needs is not there: the signature, its timestamp, a header the signed text names, the token, the
    /// client's certificate.
    MissingSignature,
    /// The header is there, but nothing in it can be read as a signature, or its timestamp as a number.
    MalformedSignature,
    /// The scheme contradicts itself. A spec that does is refused by [`VerifySpec::build`], so no hook meets this.
    BadScheme,
    /// There is no key to check with: see [`Secrets::unusable`].
    BadSecret,
    /// Signed too long ago, or too far in the future.
    TimestampOutOfTolerance,
    /// No signature of the request is one that any configured secret or key makes, and no token or certificate is listed.
    NoMatch,
    /// The signature is over the body before it was compressed, and the body is not what its headers say.
    MalformedBody,
    /// The same, and that body is larger than a body may be.
    InflatedBodyTooLarge,
}

impl Reason {
    /// Every reason there is, for whoever registers a series for each.
    pub const ALL: [Self; 8] = [
        Self::MissingSignature,
        Self::MalformedSignature,
        Self::BadScheme,
        Self::BadSecret,
        Self::TimestampOutOfTolerance,
        Self::NoMatch,
        Self::MalformedBody,
        Self::InflatedBodyTooLarge,
    ];

    /// The atom's text, as in `no_match`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingSignature => "missing_signature",
            Self::MalformedSignature => "malformed_signature",
            Self::BadScheme => "bad_scheme",
            Self::BadSecret => "bad_secret",
            Self::TimestampOutOfTolerance => "timestamp_out_of_tolerance",
            Self::NoMatch => "no_match",
            Self::MalformedBody => "malformed_body",
            Self::InflatedBodyTooLarge => "inflated_body_too_large",
        }
    }

    /// The atom as a printed term, as in `:no_match`: what the answers 401 and 202 show.
    pub const fn as_term_text(self) -> &'static str {
        match self {
            Self::MissingSignature => ":missing_signature",
            Self::MalformedSignature => ":malformed_signature",
            Self::BadScheme => ":bad_scheme",
            Self::BadSecret => ":bad_secret",
            Self::TimestampOutOfTolerance => ":timestamp_out_of_tolerance",
            Self::NoMatch => ":no_match",
            Self::MalformedBody => ":malformed_body",
            Self::InflatedBodyTooLarge => ":inflated_body_too_large",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a check is made by, besides the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judge {
    /// The time to judge the replay window by, in Unix seconds; for a quarantined hook that is when it was received.
    pub now_unix_s: i64,
    /// How large a body may be that was compressed, in bytes: `http.max_body_bytes`.
    pub max_inflated_bytes: usize,
}

/// What a source asks of its hooks. Cheap to share, not to build.
#[derive(Clone, Debug)]
pub enum Verifier {
    /// Every hook passes, and is marked as skipped.
    None,
    Signature(Box<SignatureVerifier>),
    Bearer(BearerVerifier),
    Mtls(MtlsVerifier),
}

/// One scheme with the keys of one source.
#[derive(Clone, Debug)]
pub struct SignatureVerifier {
    /// The preset's name, or [`CUSTOM_SCHEME`].
    pub scheme: String,
    pub descriptor: Descriptor,
    pub keys: Keys,
    /// How far the signed timestamp may be from now, to either side and inclusive. Unused by schemes that sign none.
    pub tolerance_seconds: u64,
    /// The URL the provider was given, for schemes that sign it.
    pub url: Option<String>,
}

/// What a signature is checked with.
#[derive(Clone, Debug)]
pub enum Keys {
    Hmac(Secrets),
    Public(PublicKeys),
}

impl Keys {
    fn is_empty(&self) -> bool {
        match self {
            Self::Hmac(secrets) => secrets.keys().is_empty(),
            Self::Public(keys) => keys.is_empty(),
        }
    }

    fn provider(&self) -> &'static str {
        match self {
            Self::Hmac(_) => HMAC_PROVIDER,
            Self::Public(keys) => match keys.algorithm() {
                Algorithm::Ed25519 => ED25519_PROVIDER,
                Algorithm::EcdsaP256 => ECDSA_PROVIDER,
                Algorithm::Rsa(_) => RSA_PROVIDER,
            },
        }
    }
}

impl Verifier {
    /// Checks one hook.
    ///
    /// # Errors
    ///
    /// The first [`Reason`] found, in the documented order: scheme, signature header, timestamp, headers of the signed
    /// text, secrets, body, match.
    pub fn check<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        request: &Request<'_, N, V>,
        judge: &Judge,
    ) -> Result<(), Reason> {
        match self {
            Self::None => Ok(()),
            Self::Signature(verifier) => signature::check(verifier, request, judge),
            Self::Bearer(verifier) => verifier.check(request),
            Self::Mtls(verifier) => verifier.check(request.peer),
        }
    }

    /// The preset's name, `custom`, what else it is, or none where nothing is verified: the `scheme` label of metrics.
    pub fn scheme_name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Signature(verifier) => Some(&verifier.scheme),
            Self::Bearer(_) => Some(VerifyType::Bearer.as_str()),
            Self::Mtls(_) => Some(VerifyType::Mtls.as_str()),
        }
    }

    /// What makes the check: the `provider` label of metrics.
    pub fn provider(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Signature(verifier) => Some(verifier.keys.provider()),
            Self::Bearer(_) => Some(BEARER_PROVIDER),
            Self::Mtls(_) => Some(MTLS_PROVIDER),
        }
    }

    /// The result of [`Self::check`] as it is stored and delivered with the hook, unflagged.
    pub fn verification(&self, result: Result<(), Reason>) -> VerificationTerm {
        let provider = self.provider().map(str::to_owned);
        let status = match (&provider, result) {
            (_, Err(_)) => VerificationStatus::Failed,
            (None, Ok(())) => VerificationStatus::Skipped,
            (Some(_), Ok(())) => VerificationStatus::Ok,
        };
        let scheme = self.scheme_name().map(str::to_owned);
        let reason_text = result.err().map(|reason| reason.as_str().to_owned());
        VerificationTerm { status, provider, scheme, reason_text, flagged: false }
    }

    /// What a hook that verified is stored and delivered with: the same for each of them.
    pub fn passed(&self) -> Bytes {
        self.verification(Ok(())).encode().into()
    }
}

/// From a `verify` block and a request to what becomes of it: all of verification, for whoever asks once.
///
/// # Errors
///
/// What is wrong with the block. Within, why the request does not verify.
pub fn verdict<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    spec: &VerifySpec,
    request: &Request<'_, N, V>,
    judge: &Judge,
) -> Result<Result<(), Reason>, VerifySpecError> {
    Ok(spec.build()?.check(request, judge))
}
