//! What Object Storage says when it refuses: `{"code", "message"}`, and the error it means.

use ankusa_actors::ports::BlobError;
use serde::Deserialize;

use super::super::answer::{Answer, Refusal, told};

/// The longest answer that is read for a code, in bytes: others come from something in between.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    code: Option<String>,
    message: Option<String>,
}

/// Reads a refusal. What is none has neither code nor message.
pub fn parse_error(body: &[u8]) -> Refusal {
    let said = Some(body).filter(|body| body.len() <= REFUSAL_MAX_BYTES);
    let said: Option<Said> = said.and_then(|body| serde_json::from_slice(body).ok());
    let Said { code, message } = said.unwrap_or_default();
    let (code, message) = (code.unwrap_or_default(), message.unwrap_or_default());
    Refusal { code, message, region: None }
}

/// The error of an answer that is final.
pub fn error(answer: &Answer, now_ms: u64) -> BlobError {
    let refusal = parse_error(&answer.body);
    match (answer.status.as_u16(), refusal.code.as_str()) {
        (404, "ObjectNotFound") => BlobError::NotFound,
        // What may be seen by nobody else is denied in the same words as what is not there.
        (404, "NotAuthorizedOrNotFound") => BlobError::Forbidden(told(answer.status, &refusal)),
        // No bucket, no namespace, or no Object Storage at all: that says nothing of the object.
        (404, _other) => BlobError::Misconfigured(told(answer.status, &refusal)),
        (400, "UnmatchedContentMD5") => BlobError::Integrity(told(answer.status, &refusal)),
        _as_of_any_store => answer.error(&refusal, now_ms),
    }
}
