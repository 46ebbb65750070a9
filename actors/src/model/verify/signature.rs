//! The check itself. Its order is documented, and seen from outside in the reason: scheme, signature header, timestamp,
//! headers of the signed text, secrets, body, match.

use std::borrow::Cow;

use subtle::{Choice, ConstantTimeEq};

use super::descriptor::{BodyForm, Descriptor, Parse, Timestamp, TimestampSource};
use super::request::{Request, Slices};
use super::secrets::Key;
use super::template::{MAX_PARTS, Piece};
use super::{Judge, Keys, Reason, SignatureVerifier, form, inflate, public_key, timestamp};

/// How many signatures of one request are looked at; the rest are ignored. Providers send one for each secret in force.
pub const MAX_CANDIDATES: usize = 32;

pub(super) fn check<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    verifier: &SignatureVerifier,
    request: &Request<'_, N, V>,
    judge: &Judge,
) -> Result<(), Reason> {
    let descriptor = &verifier.descriptor;
    let needs_url = descriptor.signed.covers_url();
    if !descriptor.is_consistent() || (needs_url && verifier.url.is_none()) {
        return Err(Reason::BadScheme);
    }
    let separator = match &descriptor.parse {
        Parse::Pairs { separator, .. } => separator.byte(),
        Parse::Whole { .. } | Parse::SpaceVersions { .. } => b',',
    };
    let header = &descriptor.signature_header;
    let value = request.joined(header, separator).ok_or(Reason::MissingSignature)?;
    let candidates = candidates(&descriptor.parse, &value);
    if candidates.as_slice().is_empty() {
        return Err(Reason::MalformedSignature);
    }
    let dated = dated(descriptor, request, &value)?;
    if let Some((text, timestamp)) = dated {
        in_time(text, timestamp, verifier, judge)?;
    }
    find_headers(descriptor, request)?;
    if verifier.keys.is_empty() {
        return Err(Reason::BadSecret);
    }
    let body = match descriptor.body {
        BodyForm::Received => Cow::Borrowed(request.body),
        BodyForm::Inflated => {
            let encoding = request.value("content-encoding");
            inflate::inflated(encoding, request.body, judge.max_inflated_bytes)?
        }
    };
    let computed = Computed::new(descriptor, request, &body)?;
    let text = SignedText {
        body: &body,
        timestamp: dated.map(|(text, _)| text),
        url: verifier.url.as_deref(),
        computed: &computed,
    };
    let parts = text.parts(descriptor, request)?;
    if !is_signed(verifier, parts.as_slice(), candidates.as_slice())? {
        return Err(Reason::NoMatch);
    }
    match &descriptor.timestamp {
        Some(timestamp @ Timestamp { source: TimestampSource::Json(key), .. }) => {
            let text = timestamp::in_json(&body, key).ok_or(Reason::MissingSignature)?;
            in_time(text.as_bytes(), timestamp, verifier, judge)
        }
        Some(_) | None => Ok(()),
    }
}

fn in_time(
    text: &[u8],
    timestamp: &Timestamp,
    verifier: &SignatureVerifier,
    judge: &Judge,
) -> Result<(), Reason> {
    let signed_at_unix_s =
        timestamp::unix_s(text, timestamp.format).ok_or(Reason::MalformedSignature)?;
    if judge.now_unix_s.abs_diff(signed_at_unix_s) > verifier.tolerance_seconds {
        return Err(Reason::TimestampOutOfTolerance);
    }
    Ok(())
}

fn is_signed(
    verifier: &SignatureVerifier,
    parts: &[&[u8]],
    candidates: &[&[u8]],
) -> Result<bool, Reason> {
    let encoding = verifier.descriptor.encoding;
    match &verifier.keys {
        Keys::Hmac(secrets) => {
            let matches = |key: &Key| is_among(key.sign(parts, encoding).as_bytes(), candidates);
            Ok(secrets.keys().iter().any(matches))
        }
        Keys::Public(keys) => {
            let signatures = public_key::signatures(candidates, encoding);
            if signatures.is_empty() {
                return Err(Reason::MalformedSignature);
            }
            Ok(keys.verify(parts, &signatures))
        }
    }
}

/// Compares with every candidate, in a time that tells nothing of how much of one was right. A candidate of another
/// length is no match; lengths are no secret.
fn is_among(expected: &[u8], candidates: &[&[u8]]) -> bool {
    candidates.iter().fold(Choice::from(0), |found, it| found | it.ct_eq(expected)).into()
}

/// What may be a signature in the header; none if it is malformed.
fn candidates<'a>(parse: &Parse, value: &'a [u8]) -> Slices<'a, MAX_CANDIDATES> {
    match parse {
        Parse::Whole { prefix } => {
            let prefix = prefix.as_deref().unwrap_or_default();
            value.strip_prefix(prefix.as_bytes()).into_iter().collect()
        }
        Parse::Pairs { key, separator } => pairs(value, key, separator.byte()).collect(),
        Parse::SpaceVersions { version } => {
            let version = version.as_deref().unwrap_or_default().as_bytes();
            let tokens = value.split(|byte| *byte == b' ').filter(|token| !token.is_empty());
            tokens.flat_map(|token| versioned(token, version)).collect()
        }
    }
}

/// The values of one key in `k=v,k=v`.
fn pairs<'a>(value: &'a [u8], key: &str, separator: u8) -> impl Iterator<Item = &'a [u8]> {
    value
        .split(move |byte| *byte == separator)
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

/// The timestamp as it was sent, if the scheme has one outside of the body.
fn dated<'a, N: AsRef<[u8]>, V: AsRef<[u8]>>(
    descriptor: &'a Descriptor,
    request: &Request<'a, N, V>,
    signature: &'a [u8],
) -> Result<Option<(&'a [u8], &'a Timestamp)>, Reason> {
    let Some(timestamp) = &descriptor.timestamp else { return Ok(None) };
    let found = match (&timestamp.source, &descriptor.parse) {
        (TimestampSource::Header(name), _) => request.value(name).filter(|text| !text.is_empty()),
        (TimestampSource::Pair(key), Parse::Pairs { separator, .. }) => {
            pairs(signature, key, separator.byte()).next()
        }
        (TimestampSource::Pair(_), Parse::Whole { .. } | Parse::SpaceVersions { .. }) => None,
        (TimestampSource::Json(_), _) => return Ok(None),
    };
    found.map(|text| Some((text, timestamp))).ok_or(Reason::MissingSignature)
}

/// Every header of the signed text must be there.
fn find_headers<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    descriptor: &Descriptor,
    request: &Request<'_, N, V>,
) -> Result<(), Reason> {
    let is_found = |piece: &Piece| match piece {
        Piece::Header(name) => {
            let mut names = request.headers.iter().map(|(name, _)| name.as_ref());
            names.any(|it| it.eq_ignore_ascii_case(name.as_bytes()))
        }
        Piece::Literal(_)
        | Piece::Body
        | Piece::Timestamp
        | Piece::Method
        | Piece::Path
        | Piece::Query
        | Piece::Url
        | Piece::UrlUnescaped
        | Piece::Form => true,
    };
    if descriptor.signed.pieces.iter().all(is_found) {
        Ok(())
    } else {
        Err(Reason::MissingSignature)
    }
}

/// Parts of the signed text that do not stand in the request as they are signed.
struct Computed<'a> {
    form: Vec<u8>,
    query: Cow<'a, [u8]>,
}

impl<'a> Computed<'a> {
    fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        descriptor: &Descriptor,
        request: &Request<'a, N, V>,
        body: &[u8],
    ) -> Result<Self, Reason> {
        let mut computed = Self { form: Vec::new(), query: Cow::Borrowed(&[]) };
        for piece in &descriptor.signed.pieces {
            match piece {
                Piece::Form => computed.form = form::signed_fields(request, body)?,
                Piece::UrlUnescaped => {
                    computed.query = form::partly_unescaped(request.query.unwrap_or_default());
                }
                Piece::Literal(_)
                | Piece::Body
                | Piece::Timestamp
                | Piece::Header(_)
                | Piece::Method
                | Piece::Path
                | Piece::Query
                | Piece::Url => {}
            }
        }
        Ok(computed)
    }
}

/// What the signed text is put together from, besides the request.
struct SignedText<'a> {
    body: &'a [u8],
    timestamp: Option<&'a [u8]>,
    url: Option<&'a str>,
    computed: &'a Computed<'a>,
}

impl<'a> SignedText<'a> {
    fn parts<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        descriptor: &'a Descriptor,
        request: &Request<'a, N, V>,
    ) -> Result<Slices<'a, MAX_PARTS>, Reason> {
        let mut parts = Slices::new();
        for piece in &descriptor.signed.pieces {
            let part = match piece {
                Piece::Literal(text) => Some(text.as_bytes()),
                Piece::Body => Some(self.body),
                Piece::Timestamp => self.timestamp,
                Piece::Header(name) => request.value(name),
                Piece::Method => Some(request.method.as_bytes()),
                Piece::Path => Some(request.path.as_bytes()),
                Piece::Query => Some(request.query.unwrap_or_default().as_bytes()),
                Piece::Url => {
                    self.url_before(request, &mut parts);
                    Some(request.query.unwrap_or_default().as_bytes())
                }
                Piece::UrlUnescaped => {
                    self.url_before(request, &mut parts);
                    Some(self.computed.query.as_ref())
                }
                Piece::Form => Some(self.computed.form.as_slice()),
            };
            // There is room: the template was counted.
            parts.push(part.ok_or(Reason::MissingSignature)?);
        }
        Ok(parts)
    }

    /// The URL as the provider was given it, and the mark if a query follows.
    fn url_before<N, V>(&self, request: &Request<'a, N, V>, parts: &mut Slices<'a, MAX_PARTS>) {
        parts.push(self.url.unwrap_or_default().as_bytes());
        if request.query.is_some() {
            parts.push(b"?");
        }
    }
}
