//! Tokens and client certificates.

use ankusa_actors::model::envelope::VerificationStatus;
use ankusa_actors::model::peer_identity::PeerIdentity;
use ankusa_actors::model::verify::{Judge, Reason, Request, Verifier};
use serde_json::{Value, json};

use crate::support::{MAX_INFLATED_BYTES, NOW, check, headers, verifier};

const MISSING: Result<(), Reason> = Err(Reason::MissingSignature);
const MALFORMED: Result<(), Reason> = Err(Reason::MalformedSignature);
const NO_MATCH: Result<(), Reason> = Err(Reason::NoMatch);

#[test]
fn a_bearer_token_is_one_of_the_list() {
    let bearer = verifier(json!({"type": "bearer", "secret": ["new token", "old"]}));
    for (value, expected) in [
        ("Bearer new token", Ok(())),
        ("bearer old", Ok(())),
        ("BEARER  old ", Ok(())),
        ("Bearer olD", NO_MATCH),
        ("Bearer ol", NO_MATCH),
        ("Bearer oldd", NO_MATCH),
        ("Bearer ", MALFORMED),
        ("Bearer", MALFORMED),
        ("old", MALFORMED),
        ("Basic b2xkOm9sZA==", MALFORMED),
        ("", MALFORMED),
    ] {
        for name in ["Authorization", "AUTHORIZATION", "authorization"] {
            assert_eq!(check(&bearer, &[(name, value)], "body"), expected, "{value}");
        }
    }
    assert_eq!(check(&bearer, &[("X-Token", "old")], "body"), MISSING);
    // Whoever comes second may have put it there.
    let twice = [("Authorization", "Bearer wrong"), ("Authorization", "Bearer old")];
    assert_eq!(check(&bearer, &twice, "body"), NO_MATCH);
}

#[test]
fn a_token_header_of_its_own_is_the_token_and_nothing_else() {
    let block = json!({"type": "bearer", "secret": "t", "token_header": "X-Gitlab-Token"});
    let gitlab = verifier(block);
    for (sent, expected) in [
        (("x-gitlab-token", "t"), Ok(())),
        (("X-GITLAB-TOKEN", "t"), Ok(())),
        (("X-Gitlab-Token", "Bearer t"), NO_MATCH),
        (("X-Gitlab-Token", "t "), NO_MATCH),
        (("X-Gitlab-Token", ""), MALFORMED),
        (("Authorization", "Bearer t"), MISSING),
    ] {
        assert_eq!(check(&gitlab, &[sent], "body"), expected, "{sent:?}");
    }
}

fn peer() -> PeerIdentity {
    PeerIdentity {
        subject: "CN=sender,O=Acme".to_owned(),
        common_names: vec!["sender".to_owned()],
        dns_names: vec!["a.acme.example".to_owned(), "*.b.example".to_owned()],
        emails: vec!["ops@acme.example".to_owned()],
        uris: vec!["spiffe://acme.example/sender".to_owned()],
        ips: Vec::new(),
        certificate_sha256: [0xab; 32],
        public_key_sha256: [0xcd; 32],
    }
}

fn shown(verifier: &Verifier, peer: Option<&PeerIdentity>) -> Result<(), Reason> {
    let headers = headers::<&str>(&[]);
    let (method, path, query) = ("POST", "/webhooks/source", None);
    let request = Request { method, path, query, headers: &headers, body: b"x", peer };
    verifier.check(&request, &Judge { now_unix_s: NOW, max_inflated_bytes: MAX_INFLATED_BYTES })
}

fn mtls(peers: Value) -> Verifier {
    verifier(json!({"type": "mtls", "peers": peers}))
}

#[test]
fn a_client_is_known_by_any_one_thing_its_certificate_says() {
    let (certificate, key) = ("ab".repeat(32), "zc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc0=");
    let with_colons = vec!["AB"; 32].join(":");
    for (entry, expected) in [
        ("subject:CN=sender,O=Acme".to_owned(), Ok(())),
        ("subject:CN=sender".to_owned(), NO_MATCH),
        ("cn:sender".to_owned(), Ok(())),
        ("cn:Sender".to_owned(), NO_MATCH),
        ("cn:a.acme.example".to_owned(), NO_MATCH),
        ("dns:A.ACME.example".to_owned(), Ok(())),
        ("dns:acme.example".to_owned(), NO_MATCH),
        // A name with a star is a name: nothing is matched against it.
        ("dns:x.b.example".to_owned(), NO_MATCH),
        ("dns:*.b.example".to_owned(), Ok(())),
        ("dns:sender".to_owned(), NO_MATCH),
        ("email:ops@acme.example".to_owned(), Ok(())),
        ("uri:spiffe://acme.example/sender".to_owned(), Ok(())),
        ("uri:spiffe://acme.example/sender/".to_owned(), NO_MATCH),
        (format!("cert_sha256:{certificate}"), Ok(())),
        (format!("cert_sha256:{with_colons}"), Ok(())),
        (format!("spki_sha256:{key}"), Ok(())),
        (format!("spki_sha256:{certificate}"), NO_MATCH),
    ] {
        assert_eq!(shown(&mtls(json!(entry)), Some(&peer())), expected, "{entry}");
        let beside = mtls(json!(["cn:nobody", entry]));
        assert_eq!(shown(&beside, Some(&peer())), expected, "{entry}");
    }
}

#[test]
fn a_client_without_a_certificate_is_missing_it() {
    assert_eq!(shown(&mtls(json!("cn:sender")), None), MISSING);
    let nameless = PeerIdentity {
        subject: String::new(),
        common_names: Vec::new(),
        dns_names: Vec::new(),
        emails: Vec::new(),
        uris: Vec::new(),
        ..peer()
    };
    assert_eq!(shown(&mtls(json!(["cn:sender", "dns:a"])), Some(&nameless)), NO_MATCH);
}

#[test]
fn what_made_the_check_is_told_with_the_hook() {
    let key = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
    for (block, provider, scheme) in [
        (json!({"type": "intercom", "secret": "s"}), "Hmac", "intercom"),
        (json!({"type": "discord", "public_key": key}), "Ed25519", "discord"),
        (json!({"type": "bearer", "secret": "s"}), "Bearer", "bearer"),
        (json!({"type": "mtls", "peers": "cn:a"}), "Mtls", "mtls"),
    ] {
        let term = verifier(block).verification(Ok(()));
        assert_eq!(term.status, VerificationStatus::Ok);
        assert_eq!(term.provider, Some(format!("Elixir.Ankusa.Verifier.{provider}")));
        assert_eq!(term.scheme.as_deref(), Some(scheme));
    }
}
