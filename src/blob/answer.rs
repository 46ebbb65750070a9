//! What a store sent back, and the error it means.

use ankusa_actors::ports::BlobError;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What an answer that is no success says, read by the adapter from its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The store's word for it, such as `SlowDown`; empty when it gave none.
    pub code: String,
    /// Its sentence.
    pub message: String,
    /// The region the bucket is in, where it says so.
    pub region: Option<String>,
}

/// How far two clocks may be apart before a refused signature is taken for theirs, in seconds: OCI's bound, the
/// strictest.
const CLOCKS_APART_MAX_S: i64 = 300;

/// The longest sentence of a store that is repeated, in characters.
const MESSAGE_MAX_CHARS: usize = 300;

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How many seconds this host's clock is ahead of the store's, by its `Date`.
    pub fn ahead_s(&self, now_ms: u64) -> Option<i64> {
        let date = httpdate::parse_http_date(self.header("date")?).ok()?;
        let date = date.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
        i64::try_from(now_ms / 1_000).ok()?.checked_sub(i64::try_from(date).ok()?)
    }

    /// The error of an answer that is final. Each adapter looks at what it knows better first.
    pub fn error(&self, refusal: &Refusal, now_ms: u64) -> BlobError {
        let told = told(self.status, refusal);
        match self.status.as_u16() {
            404 => BlobError::NotFound,
            412 => BlobError::AlreadyExists,
            401 | 403 => match self.ahead_s(now_ms) {
                Some(ahead_s) if ahead_s.abs() > CLOCKS_APART_MAX_S => {
                    BlobError::ClockSkew { ahead_s }
                }
                _near_or_unsaid => BlobError::Forbidden(told),
            },
            300..=399 => match &refusal.region {
                Some(region) => BlobError::WrongRegion { region: region.clone() },
                None => BlobError::Misconfigured(format!("{told}: redirects are not followed")),
            },
            408 | 429 | 500..=599 => BlobError::Transport(told),
            _other => match &refusal.region {
                Some(region) => BlobError::WrongRegion { region: region.clone() },
                None => BlobError::Misconfigured(told),
            },
        }
    }
}

/// What was said, on one line: `403 SignatureDoesNotMatch: The request signature ...`
pub(super) fn told(status: StatusCode, refusal: &Refusal) -> String {
    let mut told = status.as_u16().to_string();
    if !refusal.code.is_empty() {
        told.push(' ');
        told.extend(printable(&refusal.code));
    }
    if !refusal.message.is_empty() {
        told.push_str(": ");
        told.extend(printable(&refusal.message));
    }
    told
}

/// What somebody else wrote, on one line and no longer than a sentence.
pub(super) fn short(text: &str) -> String {
    printable(text).collect()
}

fn printable(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_MAX_CHARS)
}
