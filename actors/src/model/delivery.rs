//! A delivery row: what is owed to one sink of one hook.

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    Pending,
    Dead,
}

/// The row stored under `(seq, sink)` ("Encoding and versions").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The sink's module atom, e.g. `Elixir.Ankusa.Sink.Http`; bound at ack time.
    pub module: Option<String>,
    pub state: RowState,
    pub attempts: u32,
    /// Unix milliseconds: when it is due while pending, when it died once dead.
    pub at_ms: u64,
    /// The last failure, for a person to read.
    pub error: Option<String>,
    /// Bytes of the stored hook value.
    pub size: u32,
    pub source_id: Option<String>,
    /// The replay job that revived it.
    pub replay: Option<String>,
    /// Keys this release does not know, as encoded terms `(key, value)`: kept when the row is written again.
    pub unknown: Vec<(Vec<u8>, Vec<u8>)>,
}
