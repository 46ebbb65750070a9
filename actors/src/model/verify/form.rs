//! URL encoding, as far as signatures are made over what it encodes.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Reason;
use super::request::Request;
use super::secrets::write_hex;

/// How many fields a form may have whose fields are signed. The list of them is the one thing that a request can make
/// larger than itself.
pub const MAX_FORM_FIELDS: usize = 1_000;

const FORM_TYPE: &[u8] = b"application/x-www-form-urlencoded";

/// The query field with the digest of a body that is no form.
const BODY_DIGEST: &[u8] = b"bodySHA256";

/// What `{form}` stands for: see [`super::Piece::Form`].
///
/// # Errors
///
/// A body that nothing proves, one that is not the proven one, and a form of too many fields.
pub(super) fn signed_fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    request: &Request<'_, N, V>,
    body: &[u8],
) -> Result<Vec<u8>, Reason> {
    let query = request.query.unwrap_or_default().as_bytes();
    if let Some((_, digest)) = fields(query).find(|(name, _)| name.as_ref() == BODY_DIGEST) {
        let expected = write_hex(&Sha256::digest(body));
        let is_right: bool = digest.ct_eq(expected.as_bytes()).into();
        return if is_right { Ok(Vec::new()) } else { Err(Reason::NoMatch) };
    }
    if !body.is_empty() && !is_form(request) {
        return Err(Reason::MissingSignature);
    }
    let mut pairs: Vec<_> = fields(body).take(MAX_FORM_FIELDS + 1).collect();
    if pairs.len() > MAX_FORM_FIELDS {
        return Err(Reason::MalformedBody);
    }
    pairs.sort_unstable();
    pairs.dedup();
    let mut text = Vec::with_capacity(body.len());
    for (name, value) in &pairs {
        text.extend_from_slice(name);
        text.extend_from_slice(value);
    }
    Ok(text)
}

fn is_form<N: AsRef<[u8]>, V: AsRef<[u8]>>(request: &Request<'_, N, V>) -> bool {
    let Some(value) = request.value("content-type") else { return false };
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(FORM_TYPE)
}

type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The fields of a form or a query, decoded, in their order.
pub(in super::super) fn fields(text: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let mut half = || decoded(halves.next().unwrap_or_default());
        (half(), half())
    })
}

/// `+` is a space and `%41` a byte; what is no escape stands for itself.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let spaced = |byte: u8| if byte == b'+' { b' ' } else { byte };
    Cow::Owned(unescaped(text, spaced, |_| true))
}

/// The query with the escapes of a few characters undone, as one provider signs it.
pub(super) fn partly_unescaped(query: &str) -> Cow<'_, [u8]> {
    if !query.contains('%') {
        return Cow::Borrowed(query.as_bytes());
    }
    Cow::Owned(unescaped(query.as_bytes(), |byte| byte, |byte| b":/?@!$'()*,;".contains(&byte)))
}

fn unescaped(text: &[u8], plain: impl Fn(u8) -> u8, undone: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let escape = match tail {
            [high, low, after @ ..] if *first == b'%' => {
                let byte = nibble(*high).zip(nibble(*low)).map(|(high, low)| high << 4 | low);
                byte.filter(|byte| undone(*byte)).map(|byte| (byte, after))
            }
            _ => None,
        };
        let (byte, after) = escape.unwrap_or((plain(*first), tail));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

pub(super) const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        let text_of = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        fields(text.as_bytes()).map(|(name, value)| (text_of(name), text_of(value))).collect()
    }

    #[test]
    fn fields_are_decoded_and_kept_in_order() {
        let expected = [("a b", "1+"), ("", "x"), ("c", ""), ("%", "%zz%4"), ("a b", "=")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read("a+b=1%2b&&=x&c&%=%zz%4&a%20b=%3D"), expected);
        assert_eq!(read(""), []);
    }

    #[test]
    fn only_the_listed_escapes_of_a_query_are_undone() {
        let text = "a=%3A%2f%3F%40%21%24%27%28%29%2A%2C%3B+%20%26%3D%25%3";
        assert_eq!(partly_unescaped(text).as_ref(), b"a=:/?@!$'()*,;+%20%26%3D%25%3");
        assert_eq!(partly_unescaped("a=b").as_ref(), b"a=b");
    }
}
