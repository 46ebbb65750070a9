//! Where a hook is delivered to.

use std::sync::Arc;

use async_trait::async_trait;

use crate::model::envelope::Envelope;

/// One attempt to deliver one hook to one sink.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub envelope: Arc<Envelope>,
    /// `default` when the envelope names none.
    pub tenant_id: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The replay job that sent it, if one did.
    pub replay_id: Option<String>,
    /// Provider headers the source forwards: lowercase names, repeats joined.
    pub forwarded: Vec<(String, String)>,
}

/// What a sink said. The text is what a person reads in the dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durably handled downstream.
    Ok,
    /// Will never succeed: dead at once.
    Permanent(String),
    /// Not before this many milliseconds.
    RetryAfter { ms: u64, reason: String },
    /// Try again by the retry policy.
    Retry(String),
}

#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// The module atom stored in delivery rows, e.g. `Elixir.Ankusa.Sink.Http`.
    fn module(&self) -> &'static str;

    /// A short name for metrics: `http`, `log`.
    fn kind(&self) -> &'static str;

    async fn deliver(&self, delivery: &Delivery) -> Outcome;
}
