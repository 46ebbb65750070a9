//! Every preset and generic type against requests that somebody else has signed, and each of those spoiled in every way
//! that has its own answer.

use std::collections::BTreeSet;

use ankusa_actors::model::verify::{
    Judge, Reason, Request, Verifier, VerifySpec, VerifyType, verdict,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::support::{Headers, MAX_INFLATED_BYTES, verifier};

/// A request of the golden file.
#[derive(Clone, Debug)]
struct Sent {
    name: String,
    block: Value,
    /// Keys that did not sign it.
    wrong: Value,
    method: String,
    query: Option<String>,
    headers: Headers,
    body: Vec<u8>,
    other_body: Vec<u8>,
    now_unix_s: i64,
    is_dated: bool,
}

fn golden() -> Vec<Sent> {
    let file = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/golden/provider_signatures.json"
    ));
    let golden: Value = serde_json::from_str(file).unwrap();
    golden["cases"].as_array().unwrap().iter().map(sent).collect()
}

fn sent(case: &Value) -> Sent {
    let text = |key: &str| case[key].as_str().map(str::to_owned);
    let headers = case["headers"].as_object().unwrap().iter();
    let plain = text("body").map(String::into_bytes);
    let body = plain
        .unwrap_or_else(|| BASE64_STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap());
    assert!(text("origin").is_some_and(|origin| !origin.is_empty()));
    Sent {
        name: text("preset").unwrap(),
        block: case["verify"].clone(),
        wrong: case["wrong"].clone(),
        method: text("method").unwrap(),
        query: text("query"),
        headers: headers
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().as_bytes().to_vec()))
            .collect(),
        body,
        other_body: text("other_body").unwrap().into_bytes(),
        now_unix_s: case["now"].as_i64().unwrap(),
        is_dated: case["dated"].as_bool().unwrap(),
    }
}

impl Sent {
    fn verifier(&self) -> Verifier {
        verifier(self.block.clone())
    }

    /// With other keys in the block.
    fn verifier_with(&self, keys: &Value) -> Verifier {
        let mut block = self.block.clone();
        block.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        verifier(block)
    }

    fn request(&self) -> Request<'_, String, Vec<u8>> {
        Request {
            method: &self.method,
            path: "/webhooks/source",
            query: self.query.as_deref(),
            headers: &self.headers,
            body: &self.body,
            peer: None,
        }
    }

    fn judge(&self) -> Judge {
        Judge { now_unix_s: self.now_unix_s, max_inflated_bytes: MAX_INFLATED_BYTES }
    }

    fn answer(&self) -> Result<(), Reason> {
        self.verifier().check(&self.request(), &self.judge())
    }
}

#[test]
fn every_type_that_signs_has_a_vector() {
    let covered: BTreeSet<String> = golden().into_iter().map(|sent| sent.name).collect();
    let signs = |kind: &VerifyType| {
        kind.preset().is_some()
            || matches!(kind, VerifyType::Ed25519 | VerifyType::EcdsaP256 | VerifyType::Rsa)
    };
    let all = VerifyType::ALL.into_iter().filter(signs).map(|kind| kind.as_str().to_owned());
    assert_eq!(covered, all.collect());
}

#[test]
fn every_vector_verifies_with_its_header_names_in_any_case() {
    let cases: [fn(&str) -> String; 3] = [str::to_owned, str::to_uppercase, str::to_lowercase];
    for sent in golden() {
        for rename in cases {
            let headers: Headers =
                sent.headers.iter().map(|(name, value)| (rename(name), value.clone())).collect();
            let sent = Sent { headers, ..sent.clone() };
            assert_eq!(sent.answer(), Ok(()), "{sent:?}");
        }
        let spec: VerifySpec = serde_json::from_value(sent.block.clone()).unwrap();
        assert_eq!(verdict(&spec, &sent.request(), &sent.judge()), Ok(Ok(())), "{}", sent.name);
    }
}

#[test]
fn no_vector_verifies_for_another_body_method_or_url() {
    for sent in golden() {
        let other = Sent { body: sent.other_body.clone(), ..sent.clone() };
        let expected = match sent.headers.iter().any(|(name, _)| name == "Content-Encoding") {
            true => Reason::MalformedBody,
            false => Reason::NoMatch,
        };
        assert_eq!(other.answer(), Err(expected), "{}", sent.name);
        let covers_url = sent.block["url"].is_string();
        let other = Sent { query: Some("a=b".to_owned()), ..sent.clone() };
        match (covers_url, sent.name.as_str(), &sent.query) {
            (false, _, _) => assert_eq!(other.answer(), Ok(()), "{}", sent.name),
            // Without its digest in the query, nothing proves a body that is no form.
            (true, "twilio", Some(query)) if query.contains("bodySHA256") => {
                assert_eq!(other.answer(), Err(Reason::MissingSignature));
            }
            (true, _, _) => assert_eq!(other.answer(), Err(Reason::NoMatch), "{}", sent.name),
        }
        let other = Sent { method: "PUT".to_owned(), ..sent.clone() };
        let expected = if sent.name == "hubspot" { Err(Reason::NoMatch) } else { Ok(()) };
        assert_eq!(other.answer(), expected, "{}", sent.name);
    }
}

#[test]
fn a_missing_header_is_told_as_such_and_never_passes() {
    for sent in golden() {
        for at in 0..sent.headers.len() {
            let mut less = sent.clone();
            let (name, _) = less.headers.remove(at);
            let expected = match name.as_str() {
                // Its body is then taken for what was signed.
                "Content-Encoding" => Reason::NoMatch,
                _ => Reason::MissingSignature,
            };
            assert_eq!(less.answer(), Err(expected), "{} without {name}", sent.name);
        }
    }
}

#[test]
fn keys_that_did_not_sign_are_refused_unless_one_that_did_is_beside_them() {
    for sent in golden() {
        let wrong = sent.verifier_with(&sent.wrong).check(&sent.request(), &sent.judge());
        assert_eq!(wrong, Err(Reason::NoMatch), "{}", sent.name);
        let (key, wrong) = sent.wrong.as_object().unwrap().iter().next().unwrap();
        let right = &sent.block[key];
        for list in [json!([wrong, right]), json!([right, wrong]), json!([wrong, wrong, right])] {
            let either = sent.verifier_with(&json!({key: list}));
            assert_eq!(either.check(&sent.request(), &sent.judge()), Ok(()), "{}", sent.name);
        }
        let neither = sent.verifier_with(&json!({key: [wrong, wrong]}));
        let answer = neither.check(&sent.request(), &sent.judge());
        assert_eq!(answer, Err(Reason::NoMatch), "{}", sent.name);
    }
}

#[test]
fn dated_vectors_verify_in_their_window_and_undated_ones_at_any_time() {
    for sent in golden() {
        let at = |now_unix_s| Sent { now_unix_s, ..sent.clone() }.answer();
        let then = sent.now_unix_s;
        for (now, beyond) in [(then - 300, then - 301), (then + 300, then + 301)] {
            let expected =
                if sent.is_dated { Err(Reason::TimestampOutOfTolerance) } else { Ok(()) };
            assert_eq!((at(now), at(beyond)), (Ok(()), expected), "{}", sent.name);
        }
        let narrow = sent.verifier_with(&json!({"tolerance_seconds": 5}));
        let late = Judge { now_unix_s: then + 6, ..sent.judge() };
        let expected = if sent.is_dated { Err(Reason::TimestampOutOfTolerance) } else { Ok(()) };
        assert_eq!(narrow.check(&sent.request(), &late), expected, "{}", sent.name);
    }
}

#[test]
fn of_the_presets_only_those_of_one_scheme_take_each_others_signatures() {
    let golden = golden();
    let presets = || golden.iter().filter(|sent| sent.block["type"] == sent.name.as_str());
    for sender in presets() {
        for receiver in presets().filter(|receiver| receiver.name != sender.name) {
            let answer = receiver.verifier().check(&sender.request(), &sender.judge());
            assert!(answer.is_err(), "{} to {}", sender.name, receiver.name);
        }
    }
}

proptest! {
    #[test]
    fn no_vector_verifies_with_a_byte_of_a_header_changed(
        sent in select(golden()),
        header in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        change in 1_u8..,
    ) {
        let mut sent = sent;
        let header = header.index(sent.headers.len());
        let (name, value) = &mut sent.headers[header];
        let at = at.index(value.len());
        value[at] ^= change;
        // Letters of hex and names of media types are read in either case, parameters of a type are none of ours, and
        // a pair of another key may say anything.
        let is_loose = change == 0x20
            || name == "Content-Type"
            || name == "Content-Encoding"
            || name == "Paddle-Signature" || name == "Stripe-Signature";
        prop_assert!(is_loose || sent.answer().is_err(), "{sent:?}");
    }

    #[test]
    fn no_request_panics_or_is_accepted_by_a_scheme_it_was_not_signed_for(
        sent in select(golden()),
        headers in proptest::collection::vec(("[a-zA-Z-]{1,20}", "[ -~]{0,80}"), 0..6),
        query in proptest::option::of("[ -~]{0,60}"),
        body in proptest::collection::vec(any::<u8>(), 0..200),
        now_unix_s in any::<i64>(),
    ) {
        let own = sent.headers.iter().map(|(name, _)| name.clone());
        let lied = own.zip(headers.iter().map(|(_, value)| value.clone().into_bytes()));
        let others = headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
        let headers = lied.chain(others.clone()).collect();
        let mut sent = Sent { headers, query, body, now_unix_s, ..sent };
        prop_assert!(sent.answer().is_err());
        sent.headers.clear();
        prop_assert_eq!(sent.answer(), Err(Reason::MissingSignature));
    }
}
