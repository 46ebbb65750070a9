//! What the check of a hook's signature answered, as it travels with the hook.

use crate::model::etf::{EtfError, MAX_ATOM_CHARS, Reader, Term, TermWriter};

const STRUCT: &str = "Elixir.Ankusa.Verification";

/// Bytes of a foreign reason that are shown to a person.
const MAX_REASON_BYTES: usize = 1024;

/// How the check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerificationStatus {
    Ok,
    /// Only seen on a hook that was accepted all the same, flagged.
    Failed,
    /// The source checks nothing.
    Skipped,
}

impl VerificationStatus {
    pub const ALL: [Self; 3] = [Self::Ok, Self::Failed, Self::Skipped];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The verification map of an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationTerm {
    pub status: VerificationStatus,
    /// The verifier's module atom, e.g. `Elixir.Ankusa.Verifier.Hmac`.
    pub provider: Option<String>,
    /// The signature scheme, e.g. `github`.
    pub scheme: Option<String>,
    /// Why it failed. Written as an atom of this name; when read, any other term becomes its text.
    pub reason_text: Option<String>,
    /// Whether the hook was accepted despite a failed check.
    pub flagged: bool,
}

impl VerificationTerm {
    /// The bytes of [`super::Envelope::verification`]: the term, without a version byte.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        TermWriter::bare(&mut out).map(6, |map| {
            map.key("__struct__").atom(STRUCT);
            map.key("flagged").bool(self.flagged);
            map.key("provider").optional_atom(self.provider.as_deref());
            match self.reason_text.as_deref() {
                // No atom is that long.
                Some(text) if text.chars().nth(MAX_ATOM_CHARS).is_some() => {
                    map.key("reason").text(text);
                }
                reason => map.key("reason").optional_atom(reason),
            }
            map.key("scheme").optional_text(self.scheme.as_deref());
            map.key("status").atom(self.status.as_str());
        });
        out
    }

    /// Reads the bytes of [`super::Envelope::verification`]. Missing keys are nil, except the status.
    ///
    /// # Errors
    /// A term of another shape.
    pub fn decode(term: &[u8]) -> Result<Self, EtfError> {
        let (mut status, mut provider, mut scheme) = (None, None, None);
        let (mut reason_text, mut flagged) = (None, false);
        let mut reader = Reader::bare(term);
        reader.map(|key, value| {
            match key.as_atom() {
                Some("flagged") => flagged = value.bool()?,
                Some("provider") => provider = value.optional_atom()?.map(String::from),
                Some("reason") => reason_text = reason(&value.term()?),
                Some("scheme") => scheme = value.optional_text()?.map(str::to_owned),
                Some("status") => {
                    let name = value.atom()?;
                    let known = VerificationStatus::ALL.into_iter().find(|s| s.as_str() == name);
                    status = Some(known.ok_or_else(|| value.unexpected("a status"))?);
                }
                Some(_) | None => value.skip()?,
            }
            Ok::<_, EtfError>(())
        })?;
        reader.end()?;
        let status = status.ok_or(EtfError::MissingKey("status"))?;
        Ok(Self { status, provider, scheme, reason_text, flagged })
    }
}

fn reason(term: &Term<'_>) -> Option<String> {
    match term.as_atom() {
        Some("nil") => None,
        Some(name) => Some(name.to_owned()),
        None => Some(term.text(MAX_REASON_BYTES)),
    }
}
