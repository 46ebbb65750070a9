//! A source's verification as JSON, then a request against it: whatever can be built never passes a request without
//! anything in it, unless it is `none`.
#![no_main]

use ankusa_actors::model::verify::{Judge, Request, Verifier, VerifySpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The spec, a zero, then lines of headers and a body behind an empty one.
    let (spec, request) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let Ok(spec) = serde_json::from_slice::<VerifySpec>(spec) else { return };
    let Ok(verifier) = spec.build() else { return };
    let judge = Judge { now_unix_s: 1_700_000_000, max_inflated_bytes: 10_000 };
    let check = |headers: &[(&[u8], &[u8])], body: &[u8]| {
        let (method, path, query, peer) = ("POST", "/webhooks/a", Some("b=c"), None);
        verifier.check(&Request { method, path, query, headers, body, peer }, &judge)
    };
    let passed = check(&[], b"").is_ok();
    assert_eq!(passed, matches!(verifier, Verifier::None), "nothing at all was let through");
    let end = request.windows(2).position(|pair| pair == b"\n\n").unwrap_or(request.len());
    let (head, body) = request.split_at(end);
    let headers: Vec<(&[u8], &[u8])> = head
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], &line[colon + 1..]))
        })
        .collect();
    let result = check(&headers, body.get(2..).unwrap_or_default());
    let _ = verifier.verification(result).encode();
});
