//! Whether a hook was signed by who it says it is from.
//!
//! Every scheme here is an HMAC over the exact bytes received, before anything has parsed them: a body that was decoded
//! and encoded again no longer matches. What differs between providers is data ([`HmacDescriptor`]), never code.
//!
//! * [`VerifySpec`] is the `verify` block of a source. It is refused when the source is loaded, not at the first hook.
//! * [`Verifier`] is what it builds: keyed once, then asked for every hook.
//! * [`VerificationTerm`] is the answer that travels with the hook.

mod descriptor;
pub mod presets;
mod secrets;
mod signature;
mod spec;

use std::fmt;

pub use descriptor::{
    Encoding, HashFunction, HmacDescriptor, Parse, Piece, SecretDecode, Template, TemplateError,
    TimestampSource,
};
pub use secrets::{MAX_SECRETS, SecretError, Secrets};
pub use signature::MAX_CANDIDATES;
pub use spec::{ParseName, SecretSpec, VerifySpec, VerifySpecError, VerifyType};

use super::envelope::{VerificationStatus, VerificationTerm};

/// Names the HMAC verifier in stored hooks: the text of the documented system's module atom.
pub const HMAC_PROVIDER: &str = "Elixir.Ankusa.Verifier.Hmac";

/// The scheme name of a descriptor that is no preset.
pub const CUSTOM_SCHEME: &str = "custom";

/// The replay window when a source names none, in seconds to either side.
pub const DEFAULT_TOLERANCE_SECONDS: u64 = 300;

/// Why a hook was not verified. The text is an atom in stored hooks and a label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A header that the scheme needs is not there: the signature, its timestamp, or one the signed text names.
    MissingSignature,
    /// The header is there, but nothing in it can be read as a signature, or its timestamp as a number.
    MalformedSignature,
    /// The scheme contradicts itself. A spec that does is refused by [`VerifySpec::build`], so no hook meets this.
    BadScheme,
    /// There is no key to check with: see [`Secrets::unusable`].
    BadSecret,
    /// Signed too long ago, or too far in the future.
    TimestampOutOfTolerance,
    /// No signature of the request is one that any configured secret makes.
    NoMatch,
}

impl Reason {
    /// Every reason there is, for whoever registers a series for each.
    pub const ALL: [Self; 6] = [
        Self::MissingSignature,
        Self::MalformedSignature,
        Self::BadScheme,
        Self::BadSecret,
        Self::TimestampOutOfTolerance,
        Self::NoMatch,
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
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a source asks of its hooks. Cheap to share, not to build.
#[derive(Clone, Debug)]
pub enum Verifier {
    /// Every hook passes, and is marked as skipped.
    None,
    Hmac(HmacVerifier),
}

/// One scheme with the keys of one source.
#[derive(Clone, Debug)]
pub struct HmacVerifier {
    /// The preset's name, or [`CUSTOM_SCHEME`].
    pub scheme: String,
    pub descriptor: HmacDescriptor,
    pub secrets: Secrets,
    /// How far the signed timestamp may be from now, to either side and inclusive. Unused by schemes that sign none.
    pub tolerance_seconds: u64,
}

impl Verifier {
    /// Checks one hook. `headers` as received: names in any case, repeats kept. `now_unix_s` is the time to judge the
    /// replay window by, in Unix seconds; for a quarantined hook that is when it was received.
    ///
    /// # Errors
    ///
    /// The first [`Reason`] found, in the documented order: scheme, signature header, timestamp, headers of the signed
    /// text, secrets, match.
    pub fn verify<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        headers: &[(N, V)],
        body: &[u8],
        now_unix_s: i64,
    ) -> Result<(), Reason> {
        match self {
            Self::None => Ok(()),
            Self::Hmac(verifier) => signature::check(verifier, headers, body, now_unix_s),
        }
    }

    /// The preset's name, `custom`, or none where nothing is verified: the `scheme` label of metrics.
    pub fn scheme_name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Hmac(verifier) => Some(&verifier.scheme),
        }
    }

    /// The result of [`Self::verify`] as it is stored and delivered with the hook, unflagged.
    pub fn verification(&self, result: Result<(), Reason>) -> VerificationTerm {
        let status = match (self, result) {
            (_, Err(_)) => VerificationStatus::Failed,
            (Self::None, Ok(())) => VerificationStatus::Skipped,
            (Self::Hmac(_), Ok(())) => VerificationStatus::Ok,
        };
        let scheme = self.scheme_name().map(str::to_owned);
        let provider = scheme.is_some().then(|| HMAC_PROVIDER.to_owned());
        let reason_text = result.err().map(|reason| reason.as_str().to_owned());
        VerificationTerm { status, provider, scheme, reason_text, flagged: false }
    }
}
