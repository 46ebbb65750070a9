//! What was written down outside the node: what clients sent and were told, and what the sink saw.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::dump::{from_hex, to_hex};

/// The SHA-256 of a body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest computed elsewhere.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(hex: &str) -> Result<Self, NotADigest> {
        from_hex(hex).and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(NotADigest)
    }
}

/// What was given is not 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hex digits")]
pub struct NotADigest;

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// How a request ended, as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 201, with the id of the hook.
    Acked { id: String },
    /// 202: it did not verify, and is held in the pen.
    Held,
    /// 503 or 429: the node says it does not have it, and never will.
    Refused,
    /// No answer: the connection was closed, or the wait was over.
    Unknown,
}

/// One request a client made. Its body was sent by no other request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The id of the source it was posted to.
    pub source: String,
    pub body: Digest,
    pub outcome: Outcome,
}

/// One request the sink saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The hook's id, as the node told it.
    pub id: String,
    pub body: Digest,
    /// Which time this hook was seen, from 1.
    pub attempt: u32,
    /// Whether the sink answered 2xx. What it refused was not delivered.
    pub accepted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_from_its_hex() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        assert_eq!(empty[1..].parse::<Digest>(), Err(NotADigest));
        assert_eq!(empty[2..].parse::<Digest>(), Err(NotADigest));
    }
}
