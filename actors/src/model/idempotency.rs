//! The key by which a receiver recognises a hook it has had before ("Envelope": idempotency key).

use std::borrow::Cow;

use super::digest::sha256_hex;
use super::envelope::Envelope;

/// `tenant:source:dedupe key` where the hook has a dedupe key, else its id. The same for every attempt, replay and sink.
pub fn idempotency_key(envelope: &Envelope) -> Vec<u8> {
    match dedupe_key(envelope) {
        Some(dedupe_key) => scoped(envelope, dedupe_key),
        None => envelope.id.as_str().into(),
    }
}

/// The same where only header text can go: see [`header_form`].
pub fn idempotency_key_header(envelope: &Envelope) -> Vec<u8> {
    match dedupe_key(envelope) {
        Some(dedupe_key) => scoped(envelope, &header_form(dedupe_key)),
        None => envelope.id.as_str().into(),
    }
}

/// The hook's dedupe key, if it has one that says anything.
pub fn dedupe_key(envelope: &Envelope) -> Option<&[u8]> {
    envelope.dedupe_key.as_deref().filter(|key| !key.is_empty())
}

/// A dedupe key as a header can carry it: itself, or its digest (the documented form of a key that is too long) where
/// a control character or blanks at an end would be lost on the way, and two different hooks would look the same.
pub fn header_form(dedupe_key: &[u8]) -> Cow<'_, [u8]> {
    let blank = |byte: Option<&u8>| matches!(byte, None | Some(b' ' | b'\t'));
    let legal = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if !blank(dedupe_key.first()) && !blank(dedupe_key.last()) && dedupe_key.iter().all(legal) {
        return Cow::Borrowed(dedupe_key);
    }
    Cow::Owned(format!("sha256:{}", sha256_hex(dedupe_key)).into_bytes())
}

fn scoped(envelope: &Envelope, dedupe_key: &[u8]) -> Vec<u8> {
    let (tenant, source) = (envelope.tenant(), envelope.source_id.as_str());
    let mut key = Vec::with_capacity(tenant.len() + source.len() + dedupe_key.len() + 2);
    key.extend_from_slice(tenant.as_bytes());
    key.push(b':');
    key.extend_from_slice(source.as_bytes());
    key.push(b':');
    key.extend_from_slice(dedupe_key);
    key
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::ids::HookId;

    fn hook(tenant: Option<&str>, dedupe_key: Option<&'static [u8]>) -> Envelope {
        Envelope {
            id: HookId::v7(1_688_169_000_086, 0),
            source_id: "acme.github".into(),
            tenant_id: tenant.map(Into::into),
            received_at_ms: 1_688_169_000_086,
            method: "POST".into(),
            path: "/in/github".into(),
            headers: Vec::new(),
            content_type: None,
            body: Bytes::new(),
            dedupe_key: dedupe_key.map(Bytes::from_static),
            verification: None,
        }
    }

    #[test]
    fn a_hook_without_a_dedupe_key_is_known_by_its_id() {
        let id = b"01890eb6-ac96-7000-8000-000000000000";
        assert_eq!(idempotency_key(&hook(Some("acme"), None)), id);
        assert_eq!(idempotency_key(&hook(None, Some(b""))), id);
        assert_eq!(idempotency_key_header(&hook(None, None)), id);
    }

    #[test]
    fn a_dedupe_key_is_scoped_to_tenant_and_source() {
        assert_eq!(idempotency_key(&hook(Some("acme"), Some(b"evt:1"))), b"acme:acme.github:evt:1");
        assert_eq!(idempotency_key(&hook(None, Some(b"evt:1"))), b"default:acme.github:evt:1");
        assert_eq!(
            idempotency_key_header(&hook(None, Some(b"evt:1"))),
            b"default:acme.github:evt:1"
        );
    }

    #[test]
    fn a_key_that_a_header_would_change_travels_as_its_digest() {
        for kept in [&b"a b\tc"[..], b"\xff\xc3\xa9"] {
            assert_eq!(header_form(kept), kept);
        }
        for changed in [&b"a\nb"[..], b"a\0", b"\x7f", b"a ", b"\ta", b""] {
            let digest = format!("sha256:{}", sha256_hex(changed)).into_bytes();
            assert_eq!(header_form(changed), digest, "{changed:?}");
        }
        let key = idempotency_key_header(&hook(None, Some(b"a\nb")));
        let digest = sha256_hex(b"a\nb");
        assert_eq!(String::from_utf8(key).unwrap(), format!("default:acme.github:sha256:{digest}"));
        assert_eq!(idempotency_key(&hook(None, Some(b"a\nb"))), b"default:acme.github:a\nb");
    }
}
