//! The complete set of answers to an ingest request: status, JSON body, Retry-After.

use bytes::Bytes;
use serde_json::json;

use crate::model::handshake::{HandshakeRefusal, Reply, Response};
use crate::model::ids::HookId;

/// What the client is told. Bodies are the documented ones, to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Send {
        status: u16,
        body: String,
        /// Whole seconds.
        retry_after_s: Option<u32>,
        /// The answer is a promise: it carries `ankusa-durability: fsync`.
        durable: bool,
    },
    /// What one provider wants to hear. It may be the provider's own words: no browser may take it for more than text.
    Said {
        status: u16,
        content_type: Bytes,
        body: Bytes,
        /// As above.
        durable: bool,
    },
    /// The outcome is unknown, so nothing is said: the connection is closed.
    CloseUnanswered,
}

/// What a sender is asked to wait when the store or a queue is in trouble.
const RETRY_SOON_S: u32 = 1;

/// What a sender is asked to wait when only an operator can help.
const RETRY_LATER_S: u32 = 60;

impl Answer {
    pub fn accepted(id: HookId) -> Self {
        let body = [r#"{"id":""#, id.as_str(), r#"","status":"accepted"}"#].concat();
        Self::Send { status: 201, body, retry_after_s: None, durable: true }
    }

    /// The hook was taken, in the words that its source was told to use.
    pub fn said(response: &Response) -> Self {
        let Response { status, content_type, body } = response.clone();
        Self::Said { status, content_type, body, durable: true }
    }

    pub fn handshake(answered: Result<Reply, HandshakeRefusal>) -> Self {
        match answered {
            Ok(Reply { status, content_type, body }) => {
                let content_type = Bytes::from_static(content_type.as_bytes());
                Self::Said { status, content_type, body: body.into(), durable: false }
            }
            Err(HandshakeRefusal::Malformed) => {
                Self::error(400, r#"{"error":"invalid_handshake"}"#.to_owned(), None)
            }
            Err(HandshakeRefusal::Forbidden) => {
                Self::error(403, r#"{"error":"handshake_forbidden"}"#.to_owned(), None)
            }
        }
    }

    /// It repeats this hook, and nothing of it is stored.
    pub fn duplicate(original: HookId) -> Self {
        let body = format!(r#"{{"id":"{original}","status":"accepted","duplicate":true}}"#);
        Self::Send { status: 201, body, retry_after_s: None, durable: true }
    }

    /// A path or method that is no catch URL.
    pub fn not_found() -> Self {
        Self::error(404, r#"{"error":"not_found"}"#.to_owned(), None)
    }

    pub fn unknown_source() -> Self {
        Self::error(404, r#"{"error":"unknown_source"}"#.to_owned(), None)
    }

    /// Not from this client.
    pub fn ip_denied() -> Self {
        Self::error(403, r#"{"error":"forbidden"}"#.to_owned(), None)
    }

    pub fn too_large(limit: usize) -> Self {
        Self::error(413, format!(r#"{{"error":"payload_too_large","limit":{limit}}}"#), None)
    }

    pub fn body_read_failed(reason: &str) -> Self {
        let body = json!({"error": "body_read_failed", "reason": reason}).to_string();
        Self::error(400, body, None)
    }

    /// Names the header, unless its name is what cannot be printed.
    pub fn invalid_header(name: &[u8]) -> Self {
        let printable = name.iter().all(|byte| (0x21..=0x7e).contains(byte));
        let name = std::str::from_utf8(name).ok().filter(|_| printable);
        Self::error(400, json!({"error": "invalid_header", "header": name}).to_string(), None)
    }

    /// `reason` as term text, e.g. `:no_match`.
    pub fn verification_failed(reason: &str) -> Self {
        let body = json!({"error": "verification_failed", "reason": reason}).to_string();
        Self::error(401, body, None)
    }

    /// 503: nothing was stored and a retry will be.
    pub fn unavailable(error: &str) -> Self {
        Self::error(503, json!({"error": error}).to_string(), Some(RETRY_SOON_S))
    }

    /// 202: the hook is in the quarantine pen, durably. `reason` as term text, e.g. `:no_match`.
    pub fn quarantined(reason: &str) -> Self {
        let body = json!({"status": "quarantined", "reason": reason}).to_string();
        Self::Send { status: 202, body, retry_after_s: None, durable: true }
    }

    pub fn rate_limited(retry_after_s: u32) -> Self {
        Self::too_many("rate_limited", retry_after_s)
    }

    pub fn quarantine_rate_limited(retry_after_s: u32) -> Self {
        Self::too_many("quarantine_rate_limited", retry_after_s)
    }

    pub fn tenant_overload() -> Self {
        Self::too_many("tenant_overload", RETRY_SOON_S)
    }

    /// 503: nothing makes room in the pen but an operator or time.
    pub fn quarantine_full() -> Self {
        let body = r#"{"error":"quarantine_full"}"#.to_owned();
        Self::error(503, body, Some(RETRY_LATER_S))
    }

    fn too_many(error: &str, retry_after_s: u32) -> Self {
        Self::error(429, json!({"error": error}).to_string(), Some(retry_after_s))
    }

    pub fn tenant_limit() -> Self {
        let body = r#"{"error":"tenant_limit"}"#.to_owned();
        Self::error(503, body, Some(RETRY_LATER_S))
    }

    /// A head that is refused before anything in it is looked at, with this body.
    pub fn refused_head(status: u16, body: &str) -> Self {
        Self::error(status, body.to_owned(), None)
    }

    pub fn dedupe_quota() -> Self {
        let body = r#"{"error":"dedupe_quota"}"#.to_owned();
        Self::error(503, body, Some(RETRY_LATER_S))
    }

    fn error(status: u16, body: String, retry_after_s: Option<u32>) -> Self {
        Self::Send { status, body, retry_after_s, durable: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(answer: Answer) -> (u16, String, Option<u32>, bool) {
        match answer {
            Answer::Send { status, body, retry_after_s, durable } => {
                (status, body, retry_after_s, durable)
            }
            Answer::Said { .. } | Answer::CloseUnanswered => panic!("not sent"),
        }
    }

    #[test]
    fn bodies_are_the_documented_ones() {
        let id = HookId::v7(1_688_169_000_086, 0);
        let table = [
            (
                Answer::accepted(id),
                (
                    201,
                    r#"{"id":"01890eb6-ac96-7000-8000-000000000000","status":"accepted"}"#,
                    None,
                    true,
                ),
            ),
            (Answer::not_found(), (404, r#"{"error":"not_found"}"#, None, false)),
            (Answer::unknown_source(), (404, r#"{"error":"unknown_source"}"#, None, false)),
            (
                Answer::too_large(8),
                (413, r#"{"error":"payload_too_large","limit":8}"#, None, false),
            ),
            (
                Answer::body_read_failed("closed"),
                (400, r#"{"error":"body_read_failed","reason":"closed"}"#, None, false),
            ),
            (
                Answer::invalid_header(b"x-a"),
                (400, r#"{"error":"invalid_header","header":"x-a"}"#, None, false),
            ),
            (
                Answer::invalid_header(b"x\xff"),
                (400, r#"{"error":"invalid_header","header":null}"#, None, false),
            ),
            (
                Answer::verification_failed(":no_match"),
                (401, r#"{"error":"verification_failed","reason":":no_match"}"#, None, false),
            ),
            (Answer::unavailable("overload"), (503, r#"{"error":"overload"}"#, Some(1), false)),
            (
                Answer::quarantined(":no_match"),
                (202, r#"{"status":"quarantined","reason":":no_match"}"#, None, true),
            ),
            (Answer::rate_limited(7), (429, r#"{"error":"rate_limited"}"#, Some(7), false)),
            (
                Answer::quarantine_rate_limited(2),
                (429, r#"{"error":"quarantine_rate_limited"}"#, Some(2), false),
            ),
            (Answer::tenant_overload(), (429, r#"{"error":"tenant_overload"}"#, Some(1), false)),
            (Answer::quarantine_full(), (503, r#"{"error":"quarantine_full"}"#, Some(60), false)),
            (
                Answer::handshake(Err(HandshakeRefusal::Malformed)),
                (400, r#"{"error":"invalid_handshake"}"#, None, false),
            ),
            (
                Answer::handshake(Err(HandshakeRefusal::Forbidden)),
                (403, r#"{"error":"handshake_forbidden"}"#, None, false),
            ),
            (
                Answer::duplicate(id),
                (
                    201,
                    r#"{"id":"01890eb6-ac96-7000-8000-000000000000","status":"accepted","duplicate":true}"#,
                    None,
                    true,
                ),
            ),
            (Answer::dedupe_quota(), (503, r#"{"error":"dedupe_quota"}"#, Some(60), false)),
            (Answer::tenant_limit(), (503, r#"{"error":"tenant_limit"}"#, Some(60), false)),
        ];
        for (answer, (status, body, retry_after_s, durable)) in table {
            assert_eq!(sent(answer), (status, body.to_owned(), retry_after_s, durable));
        }
    }
}
