//! What every load sends: signed webhooks as GitHub sends them, made before the clock starts.

use std::cell::Cell;

use ankusa_drills_replay::Rng;

use crate::load::{PREFIX, sign};

/// The source the requests go to.
pub(in crate::bench) const SOURCE: &str = "github";

/// Different requests. Enough that no two neighbours are alike, few enough to stay in a cache.
const DIFFERENT: u64 = 256;

/// Bytes of a body.
pub(super) const BODY_BYTES: usize = 1024;

/// Hexadecimal digits of an event's id that are its own.
pub(in crate::bench) const EVENT_DIGITS: usize = 12;

/// What is before them.
pub(in crate::bench) const EVENT_PREFIX: &str = "72d3162e-cc78-11e3-81ab-";

/// Requests as they go over the wire, head and body.
#[derive(Debug)]
pub(super) struct Requests {
    wire: Vec<Vec<u8>>,
    /// Where the digits of the event are, the same in all.
    event_at: usize,
    /// The next event that has not been told of: a node that has served one load would answer its events in the next as
    /// repeated, and commit nothing.
    next: Cell<u64>,
}

impl Requests {
    /// The same bodies at every call.
    pub(super) fn new() -> Self {
        let wire: Vec<Vec<u8>> = (0..DIFFERENT).map(request).collect();
        let first = wire.first().map_or(&[][..], Vec::as_slice);
        let prefix = EVENT_PREFIX.as_bytes();
        let event_at = first.windows(prefix.len()).position(|bytes| bytes == prefix);
        let event_at = event_at.map_or(usize::MAX - EVENT_DIGITS, |at| at + prefix.len());
        Self { wire, event_at, next: Cell::new(0) }
    }

    /// Puts the next request into `into`: bodies repeat, events do not, whoever asks.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let number = self.next.replace(self.next.get() + 1);
        let at = usize::try_from(number % DIFFERENT).unwrap_or_default();
        into.clear();
        into.extend_from_slice(self.wire.get(at).map_or(&[], Vec::as_slice));
        if let Some(id) = into.get_mut(self.event_at..self.event_at + EVENT_DIGITS) {
            id.copy_from_slice(&event(number));
        }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

/// Its digits. Neighbours are far apart, as ids drawn at random are.
pub(in crate::bench) fn event(number: u64) -> [u8; EVENT_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut left = number.wrapping_mul(0x9e37_79b9_7f4b) & 0xffff_ffff_ffff;
    [(); EVENT_DIGITS].map(|()| {
        let digit = usize::try_from(left & 15).unwrap_or_default();
        left >>= 4;
        DIGITS.get(digit).copied().unwrap_or(b'0')
    })
}

fn request(number: u64) -> Vec<u8> {
    let body = body(number);
    let head = format!(
        "POST {PREFIX}/{SOURCE} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: GitHub-Hookshot/044aadd\r\n\
         Accept: */*\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\n\
         X-GitHub-Delivery: {EVENT_PREFIX}{number:012x}\r\nX-Hub-Signature-256: {}\r\n\
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
    fn bodies_repeat_and_events_do_not() {
        let requests = Requests::new();
        let next = || {
            let mut bytes = Vec::new();
            requests.write(&mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.starts_with("POST /webhooks/github HTTP/1.1\r\nHost: "));
            let (before, rest) = text.split_once(EVENT_PREFIX).unwrap();
            let (event, after) = rest.split_at(EVENT_DIGITS);
            (event.to_owned(), format!("{before}{after}"))
        };
        let (events, rests): (std::collections::BTreeSet<_>, Vec<_>) =
            (0..10_000).map(|_| next()).unzip();
        assert_eq!(events.len(), 10_000);
        let again = usize::try_from(DIFFERENT).unwrap();
        assert_eq!(rests[1], rests[1 + again]);
        assert_ne!(rests[1], rests[2]);
    }
}
