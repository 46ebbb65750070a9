//! What was written down outside the node: what clients sent and were told, and what the sink saw.

use std::fmt;

use sha2::{Digest as _, Sha256};

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

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
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
    /// 503: the node says it does not have it, and never will.
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
