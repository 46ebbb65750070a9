//! Which of the provider's headers a sink is told ("Sources": `forward_headers`).

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;

use super::envelope::Envelope;

/// Never forwarded, whatever a source lists: credentials, and what belongs to one connection or one body.
const EXCLUDED: [&str; 14] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "host",
    "content-length",
    "content-type",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// The node's own names: a provider cannot set them.
const OWN_PREFIX: &str = "x-ankusa-";

/// What stands between the values of a repeated header.
const JOINT: &str = ", ";

/// Which headers a source forwards. The exclusions hold for both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForwardPolicy {
    /// All that are not excluded.
    #[default]
    All,
    /// Those named, in lowercase.
    Only(BTreeSet<String>),
}

impl ForwardPolicy {
    /// The policy of a source's `forward_headers`: names in any case, or absent for the default set.
    pub fn new(forward_headers: Option<&[String]>) -> Self {
        match forward_headers {
            None => Self::All,
            Some(names) => Self::Only(names.iter().map(|name| name.to_ascii_lowercase()).collect()),
        }
    }

    fn takes(&self, lowercase: &str) -> bool {
        let listed = match self {
            Self::All => true,
            Self::Only(names) => names.contains(lowercase),
        };
        listed && !EXCLUDED.contains(&lowercase) && !lowercase.starts_with(OWN_PREFIX)
    }
}

/// The headers to forward: lowercase names in the order they first came, the values of a repeated one joined by `, `.
///
/// A name that is no HTTP token is left out. Bytes of a value that are not UTF-8 become U+FFFD here; a sink that can
/// send bytes asks [`exact`] for them.
pub fn headers(envelope: &Envelope, policy: &ForwardPolicy) -> Vec<(String, String)> {
    let mut forwarded: Vec<(String, String)> = Vec::with_capacity(envelope.headers.len());
    for (name, value) in &envelope.headers {
        let Some(name) = token(name).filter(|name| policy.takes(name)) else { continue };
        let value = String::from_utf8_lossy(value);
        match forwarded.iter_mut().find(|(known, _)| *known == name) {
            Some((_, joined)) => {
                joined.push_str(JOINT);
                joined.push_str(&value);
            }
            None => forwarded.push((name, value.into_owned())),
        }
    }
    forwarded
}

/// The bytes behind a forwarded value: `text` itself, or, where it lost some on the way, the received values joined.
pub fn exact<'a>(envelope: &Envelope, name: &str, text: &'a str) -> Cow<'a, [u8]> {
    if !text.contains(char::REPLACEMENT_CHARACTER) {
        return Cow::Borrowed(text.as_bytes());
    }
    let named = |(key, _): &&(Bytes, Bytes)| key.eq_ignore_ascii_case(name.as_bytes());
    let values: Vec<&[u8]> =
        envelope.headers.iter().filter(named).map(|(_, value)| value.as_ref()).collect();
    Cow::Owned(values.join(JOINT.as_bytes()))
}

/// The name in lowercase, if HTTP has such names.
fn token(name: &[u8]) -> Option<String> {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(legal) {
        return None;
    }
    Some(name.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::HookId;

    fn hook(headers: &[(&'static [u8], &'static [u8])]) -> Envelope {
        let header = |(name, value): &(&'static [u8], &'static [u8])| {
            (Bytes::from_static(name), Bytes::from_static(value))
        };
        Envelope {
            id: HookId::v7(0, 0),
            source_id: "github".into(),
            tenant_id: None,
            received_at_ms: 0,
            method: "POST".into(),
            path: "/in/github".into(),
            headers: headers.iter().map(header).collect(),
            content_type: None,
            body: Bytes::new(),
            dedupe_key: None,
            verification: None,
        }
    }

    fn forwarded(envelope: &Envelope, policy: &ForwardPolicy) -> Vec<(String, String)> {
        headers(envelope, policy)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn names_are_lowercase_in_first_order_and_repeats_are_joined() {
        let hook = hook(&[
            (b"X-GitHub-Event", b"push"),
            (b"Accept", b"a"),
            (b"x-github-EVENT", b""),
            (b"User-Agent", b"GitHub-Hookshot/1"),
            (b"accept", b"b, c"),
        ]);
        let expected = pairs(&[
            ("x-github-event", "push, "),
            ("accept", "a, b, c"),
            ("user-agent", "GitHub-Hookshot/1"),
        ]);
        assert_eq!(forwarded(&hook, &ForwardPolicy::All), expected);
    }

    #[test]
    fn the_exclusions_hold_for_the_default_set_and_for_a_list() {
        let names: [&'static [u8]; 17] = [
            b"Authorization",
            b"Proxy-Authorization",
            b"Cookie",
            b"X-Api-Key",
            b"Host",
            b"Content-Length",
            b"Content-Type",
            b"Connection",
            b"Keep-Alive",
            b"Transfer-Encoding",
            b"TE",
            b"Trailer",
            b"Upgrade",
            b"Expect",
            b"X-Ankusa-Id",
            b"X-ANKUSA-",
            b"X-Ankus",
        ];
        let hook = hook(&names.map(|name| (name, &b"v"[..])));
        let listed: Vec<String> =
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let expected = pairs(&[("x-ankus", "v")]);
        assert_eq!(forwarded(&hook, &ForwardPolicy::new(None)), expected);
        assert_eq!(forwarded(&hook, &ForwardPolicy::new(Some(&listed))), expected);
    }

    #[test]
    fn a_list_forwards_what_it_names_in_any_case() {
        let hook = hook(&[(b"Stripe-Signature", b"t=1"), (b"Accept", b"*/*")]);
        let policy = ForwardPolicy::new(Some(&["STRIPE-signature".into()]));
        assert_eq!(forwarded(&hook, &policy), pairs(&[("stripe-signature", "t=1")]));
        assert_eq!(forwarded(&hook, &ForwardPolicy::new(Some(&[]))), pairs(&[]));
    }

    #[test]
    fn a_name_that_is_no_token_is_left_out() {
        let hook = hook(&[
            (b"", b"1"),
            (b"a b", b"2"),
            (b"caf\xc3\xa9", b"3"),
            (b"a:", b"4"),
            (b"a!~", b"5"),
        ]);
        assert_eq!(forwarded(&hook, &ForwardPolicy::All), pairs(&[("a!~", "5")]));
    }

    #[test]
    fn the_bytes_of_a_value_that_is_not_text_are_found_again() {
        let hook = hook(&[
            (b"X-Name", b"J\xfcrgen"),
            (b"x-name", b"caf\xc3\xa9"),
            (b"X-Plain", b"caf\xc3\xa9"),
        ]);
        let headers = forwarded(&hook, &ForwardPolicy::All);
        assert_eq!(headers, pairs(&[("x-name", "J\u{fffd}rgen, café"), ("x-plain", "café")]));
        let bytes: Vec<Vec<u8>> =
            headers.iter().map(|(name, text)| exact(&hook, name, text).into_owned()).collect();
        assert_eq!(bytes, [&b"J\xfcrgen, caf\xc3\xa9"[..], b"caf\xc3\xa9"]);
    }
}
