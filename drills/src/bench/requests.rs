//! What every load sends: signed webhooks as GitHub sends them, made before the clock starts.

use ankusa_drills_replay::Rng;

use crate::load::{PREFIX, sign};

/// The source the requests go to.
pub(super) const SOURCE: &str = "github";

/// Different requests. Enough that no two neighbours are alike, few enough to stay in a cache.
const DIFFERENT: u64 = 256;

/// Bytes of a body.
pub(super) const BODY_BYTES: usize = 1024;

/// Requests as they go over the wire, head and body.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    wire: Vec<Vec<u8>>,
}

impl Requests {
    /// The same ones at every call.
    pub(super) fn new() -> Self {
        Self { wire: (0..DIFFERENT).map(request).collect() }
    }

    /// The request a client sends as its `number`th; they repeat.
    pub(super) fn get(&self, number: usize) -> &[u8] {
        let at = number.checked_rem(self.wire.len()).unwrap_or_default();
        self.wire.get(at).map_or(&[], Vec::as_slice)
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

fn request(number: u64) -> Vec<u8> {
    let body = body(number);
    let head = format!(
        "POST {PREFIX}/{SOURCE} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: GitHub-Hookshot/044aadd\r\n\
         Accept: */*\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\n\
         X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-{number:012x}\r\nX-Hub-Signature-256: {}\r\n\
         Content-Length: {BODY_BYTES}\r\n\r\n",
        sign(&body)
    );
    [head.as_bytes(), &body].concat()
}

/// JSON of the kind pushes are made of, names and hashes, of exactly [`BODY_BYTES`] bytes: it compresses as one does.
pub(super) fn body(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut text = format!("{{\"ref\":\"refs/heads/main\",\"number\":{number},\"commits\":[");
    while text.len() < BODY_BYTES - 200 {
        let [one, two, three] = [rng.draw(), rng.draw(), rng.below(1 << 32)];
        text.push_str(&format!(
            "{{\"id\":\"{one:016x}{two:016x}{three:08x}\",\"message\":\"change {}\",\"distinct\":true}},",
            rng.below(10_000)
        ));
    }
    text.push_str("{}],\"pad\":\"");
    let end = "\"}";
    while text.len() < BODY_BYTES - end.len() {
        text.push(if rng.coin() { 'a' } else { 'b' });
    }
    text.push_str(end);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_json_of_the_same_length_and_none_like_another() {
        let bodies: std::collections::BTreeSet<Vec<u8>> = (0..DIFFERENT).map(body).collect();
        assert_eq!(bodies.len(), 256);
        for body in &bodies {
            assert_eq!(body.len(), BODY_BYTES);
            serde_json::from_slice::<serde_json::Value>(body).unwrap();
        }
        assert_eq!(body(3), body(3));
    }

    #[test]
    fn requests_repeat_after_the_last() {
        let requests = Requests::new();
        assert_eq!(requests.get(0), requests.get(256));
        assert_ne!(requests.get(0), requests.get(1));
        assert!(requests.get(7).starts_with(b"POST /webhooks/github HTTP/1.1\r\nHost: "));
    }
}
