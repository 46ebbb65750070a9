//! The check itself. Its order is documented, and seen from outside in the reason: scheme, signature header, timestamp,
//! headers of the signed text, secrets, match.

use std::borrow::Cow;

use subtle::{Choice, ConstantTimeEq};

use super::descriptor::{HmacDescriptor, Parse, Piece, Template, TimestampSource};
use super::secrets::Key;
use super::{HmacVerifier, Reason};

/// How many signatures of one request are looked at; the rest are ignored. Providers send one for each secret in force.
pub const MAX_CANDIDATES: usize = 32;

pub(super) fn check<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    verifier: &HmacVerifier,
    headers: &[(N, V)],
    body: &[u8],
    now_unix_s: i64,
) -> Result<(), Reason> {
    let descriptor = &verifier.descriptor;
    if !descriptor.is_consistent() {
        return Err(Reason::BadScheme);
    }
    let value = joined(headers, &descriptor.signature_header).ok_or(Reason::MissingSignature)?;
    let candidates = candidates(&descriptor.parse, &value);
    if candidates.is_empty() {
        return Err(Reason::MalformedSignature);
    }
    let timestamp = timestamp(descriptor, headers, &value)?;
    if let Some(text) = timestamp {
        let signed_at_unix_s = leading_integer(text).ok_or(Reason::MalformedSignature)?;
        if now_unix_s.abs_diff(signed_at_unix_s) > verifier.tolerance_seconds {
            return Err(Reason::TimestampOutOfTolerance);
        }
    }
    let parts = signed_parts(&descriptor.signed, headers, timestamp, body)?;
    let keys = verifier.secrets.keys();
    if keys.is_empty() {
        return Err(Reason::BadSecret);
    }
    let matches = |key: &Key| is_among(&key.sign(&parts, descriptor.encoding), &candidates);
    if keys.iter().any(matches) { Ok(()) } else { Err(Reason::NoMatch) }
}

/// Compares with every candidate, in a time that tells nothing of how much of one was right. A candidate of another
/// length is no match; lengths are no secret.
fn is_among(expected: &str, candidates: &[&[u8]]) -> bool {
    candidates
        .iter()
        .fold(Choice::from(0), |found, it| found | it.ct_eq(expected.as_bytes()))
        .into()
}

/// Every value of a header, in order.
fn values<'a, N: AsRef<[u8]>, V: AsRef<[u8]>>(
    headers: &'a [(N, V)],
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    let named = |key: &N| key.as_ref().eq_ignore_ascii_case(name.as_bytes());
    headers.iter().filter(move |(key, _)| named(key)).map(|(_, value)| value.as_ref())
}

/// The signature header. One that is repeated means the same as one with commas between (RFC 9110, section 5.3): it may
/// have been taken apart on its way here.
fn joined<'a, N: AsRef<[u8]>, V: AsRef<[u8]>>(
    headers: &'a [(N, V)],
    name: &'a str,
) -> Option<Cow<'a, [u8]>> {
    let mut values = values(headers, name);
    let first = Cow::Borrowed(values.next()?);
    Some(values.fold(first, |mut line, value| {
        let text = line.to_mut();
        text.push(b',');
        text.extend_from_slice(value);
        line
    }))
}

/// What may be a signature in the header; none if it is malformed.
fn candidates<'a>(parse: &Parse, value: &'a [u8]) -> Vec<&'a [u8]> {
    match parse {
        Parse::Whole { prefix } => {
            let prefix = prefix.as_deref().unwrap_or_default();
            value.strip_prefix(prefix.as_bytes()).into_iter().collect()
        }
        Parse::CsvPairs { key } => pairs(value, key).take(MAX_CANDIDATES).collect(),
        Parse::SpaceVersions { version } => {
            let version = version.as_deref().unwrap_or_default().as_bytes();
            let tokens = value.split(|byte| *byte == b' ').filter(|token| !token.is_empty());
            tokens.flat_map(|token| versioned(token, version)).take(MAX_CANDIDATES).collect()
        }
    }
}

/// The values of one key in `k=v,k=v`.
fn pairs<'a>(value: &'a [u8], key: &str) -> impl Iterator<Item = &'a [u8]> {
    value
        .split(|byte| *byte == b',')
        .filter_map(|pair| pair.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
}

/// The signatures in one token. It holds more than one only where a repeated header was joined (`v1,a,v1,b`), which no
/// signature can be mistaken for: none has a comma in it.
fn versioned<'a>(token: &'a [u8], version: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(token);
    std::iter::from_fn(move || {
        loop {
            let text = rest?;
            let stripped = text.strip_prefix(version);
            let mut split = stripped.unwrap_or(text).splitn(2, |byte| *byte == b',');
            let head = split.next();
            rest = split.next();
            if stripped.is_some() {
                return head;
            }
        }
    })
}

/// The timestamp as it was sent, if the scheme has one.
fn timestamp<'a, N: AsRef<[u8]>, V: AsRef<[u8]>>(
    descriptor: &'a HmacDescriptor,
    headers: &'a [(N, V)],
    signature: &'a [u8],
) -> Result<Option<&'a [u8]>, Reason> {
    let found = match &descriptor.timestamp {
        TimestampSource::None => return Ok(None),
        TimestampSource::Header(name) => {
            values(headers, name).next().filter(|text| !text.is_empty())
        }
        TimestampSource::Pair(key) => pairs(signature, key).next(),
    };
    found.map(Some).ok_or(Reason::MissingSignature)
}

/// The integer at the head of a text; what follows it is left alone, as documented: it is signed with the rest. One too
/// large is the largest there is, which no window reaches.
fn leading_integer(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    digits.first().filter(|byte| byte.is_ascii_digit())?;
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number: i64, byte| {
        let digit = i64::from(byte - b'0');
        number.saturating_mul(10).saturating_add(sign * digit)
    }))
}

/// The signed text, in the pieces it is put together from.
fn signed_parts<'a, N: AsRef<[u8]>, V: AsRef<[u8]>>(
    template: &'a Template,
    headers: &'a [(N, V)],
    timestamp: Option<&'a [u8]>,
    body: &'a [u8],
) -> Result<Vec<&'a [u8]>, Reason> {
    let part = |piece: &'a Piece| match piece {
        Piece::Literal(text) => Some(text.as_bytes()),
        Piece::Body => Some(body),
        Piece::Timestamp => timestamp,
        Piece::Header(name) => values(headers, name).next(),
    };
    template.pieces.iter().map(|piece| part(piece).ok_or(Reason::MissingSignature)).collect()
}
