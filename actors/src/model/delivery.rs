//! A delivery row: what is owed to one sink of one hook.

use std::borrow::Cow;
use std::iter::Peekable;
use std::slice;

use super::etf::{EtfError, MapWriter, Reader, Term, TermWriter};
use super::value_version::{ValueVersion, Versioned};

/// The letters of a row with a version.
const KIND: [u8; 2] = *b"AD";

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    Pending,
    Dead,
}

impl RowState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dead => "dead",
        }
    }
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
    /// The lane it keeps its place in, where its sink is ordered.
    pub lane: Option<u128>,
    /// Bytes of the stored hook value.
    pub size: u32,
    pub source_id: Option<String>,
    /// The replay job that revived it.
    pub replay: Option<String>,
    /// Keys this release does not know, as encoded terms `(key, value)`: kept when the row is written again.
    /// Sorted by name, keys that are no atoms last, so that all keys of the written row rise.
    pub unknown: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Why bytes are no delivery row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryRowError {
    #[error("delivery row version {0} is not known to this release")]
    UnsupportedDeliveryRowVersion(u8),
    #[error("undecodable delivery row: {0}")]
    Undecodable(#[from] EtfError),
}

impl DeliveryRowError {
    /// The documented word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnsupportedDeliveryRowVersion(_) => "unsupported_delivery_row_version",
            Self::Undecodable(_) => "undecodable",
        }
    }
}

impl DeliveryRow {
    /// A row as it is first committed.
    pub fn pending(module: &str, source_id: &str, size: u32, at_ms: u64) -> Self {
        Self {
            module: Some(module.to_owned()),
            state: RowState::Pending,
            attempts: 0,
            at_ms,
            error: None,
            lane: None,
            size,
            source_id: Some(source_id.to_owned()),
            replay: None,
            unknown: Vec::new(),
        }
    }

    /// The stored value, keys in alphabetical order. The same row always gives the same bytes.
    pub fn encode(&self, version: ValueVersion) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.encode_into(version, &mut out);
        out
    }

    /// Appends the stored value to `out`. A row that was never replayed has no `replay`, one outside every lane no `lane`,
    /// and one whose source is not known no `source_id`: that is how rows without them were always written.
    pub fn encode_into(&self, version: ValueVersion, out: &mut Vec<u8>) {
        let fields = RowFields {
            module: self.module.as_deref(),
            state: self.state,
            attempts: self.attempts,
            at_ms: self.at_ms,
            error: self.error.as_deref(),
            lane: self.lane,
            size: self.size,
            source_id: self.source_id.as_deref(),
            replay: self.replay.as_deref(),
            unknown: &self.unknown,
        };
        fields.encode_into(version, out);
    }

    /// Reads a stored value.
    ///
    /// # Errors
    /// A version this release does not know, or bytes that are no row.
    pub fn decode(value: &[u8]) -> Result<Self, DeliveryRowError> {
        match Versioned::of(KIND, value) {
            Versioned::Term(term) => Ok(Fields::read(term)?.row()?),
            Versioned::Unsupported(version) => {
                Err(DeliveryRowError::UnsupportedDeliveryRowVersion(version))
            }
        }
    }
}

/// A row about to be written, wherever its texts are kept.
struct RowFields<'a> {
    module: Option<&'a str>,
    state: RowState,
    attempts: u32,
    at_ms: u64,
    error: Option<&'a str>,
    lane: Option<u128>,
    size: u32,
    source_id: Option<&'a str>,
    replay: Option<&'a str>,
    unknown: &'a [(Vec<u8>, Vec<u8>)],
}

impl RowFields<'_> {
    fn encode_into(&self, version: ValueVersion, out: &mut Vec<u8>) {
        version.begin(KIND, out);
        let optional = [self.lane.is_some(), self.replay.is_some(), self.source_id.is_some()];
        let optional = optional.into_iter().filter(|is_there| *is_there).count();
        TermWriter::versioned(out).map(6 + optional + self.unknown.len(), |map| {
            let mut keys = Keys { map, unknown: self.unknown.iter().peekable() };
            keys.next("at").uint(self.at_ms);
            keys.next("attempts").uint(self.attempts.into());
            keys.next("error").optional_text(self.error);
            if let Some(lane) = self.lane {
                keys.next("lane").binary(&lane.to_be_bytes());
            }
            keys.next("module").optional_atom(self.module);
            if let Some(replay) = self.replay {
                keys.next("replay").text(replay);
            }
            keys.next("size").uint(self.size.into());
            if let Some(source_id) = self.source_id {
                keys.next("source_id").text(source_id);
            }
            keys.next("state").atom(self.state.as_str());
            keys.rest();
        });
    }
}

/// Puts the unknown keys where they belong between the known ones.
struct Keys<'m, 'w, 'b, 'k> {
    map: &'m mut MapWriter<'w, 'b, 'k>,
    unknown: Peekable<slice::Iter<'k, (Vec<u8>, Vec<u8>)>>,
}

impl<'b> Keys<'_, '_, 'b, '_> {
    fn next(&mut self, name: &'static str) -> &mut TermWriter<'b> {
        let before = |key: &[u8]| atom_name(key).is_some_and(|unknown| *unknown < *name);
        while let Some((key, value)) = self.unknown.next_if(|(key, _)| before(key)) {
            self.map.raw_pair(key, value);
        }
        self.map.key(name)
    }

    fn rest(self) {
        self.unknown.for_each(|(key, value)| self.map.raw_pair(key, value));
    }
}

/// The name of an encoded key, unless it is no atom.
fn atom_name(key: &[u8]) -> Option<Cow<'_, str>> {
    Reader::bare(key).atom().ok()
}

/// The keys as they come, in any order.
#[derive(Default)]
struct Fields {
    module: Option<String>,
    state: Option<RowState>,
    attempts: Option<u32>,
    at_ms: Option<u64>,
    error: Option<String>,
    lane: Option<u128>,
    size: Option<u32>,
    source_id: Option<String>,
    replay: Option<String>,
    unknown: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Fields {
    fn read(term: &[u8]) -> Result<Self, EtfError> {
        let mut fields = Self::default();
        let mut reader = Reader::versioned(term)?;
        reader.map(|key, value| fields.take(key, value))?;
        reader.end()?;
        // `None` sorts first, so its absence is asked for first.
        fields.unknown.sort_by(|(one, _), (other, _)| {
            let place = |key| (atom_name(key).is_none(), atom_name(key));
            place(one).cmp(&place(other))
        });
        Ok(fields)
    }

    fn take(&mut self, key: &Term<'_>, value: &mut Reader<'_>) -> Result<(), EtfError> {
        // No known key is the empty atom.
        match key.as_atom().unwrap_or_default() {
            "at" => self.at_ms = Some(value.uint()?),
            "attempts" => self.attempts = Some(value.uint32()?),
            "error" => self.error = value.optional_binary()?.map(lossy),
            "lane" => {
                let raw = value.raw()?;
                self.lane = lane(raw);
                // Another release may mean something else by it.
                if self.lane.is_none() {
                    self.unknown.push((key.canonical(), raw.to_vec()));
                }
            }
            "module" => self.module = value.optional_atom()?.map(Cow::into_owned),
            "replay" => self.replay = value.optional_text()?.map(str::to_owned),
            "size" => self.size = Some(value.uint32()?),
            "source_id" => self.source_id = value.optional_text()?.map(str::to_owned),
            "state" => {
                let state = match value.atom()?.as_ref() {
                    "pending" => Some(RowState::Pending),
                    "dead" => Some(RowState::Dead),
                    _unknown => None,
                };
                self.state = Some(state.ok_or_else(|| value.unexpected("pending or dead"))?);
            }
            _unknown => self.unknown.push((key.canonical(), value.raw()?.to_vec())),
        }
        Ok(())
    }

    fn row(self) -> Result<DeliveryRow, EtfError> {
        let missing = EtfError::MissingKey;
        Ok(DeliveryRow {
            module: self.module,
            state: self.state.ok_or(missing("state"))?,
            attempts: self.attempts.ok_or(missing("attempts"))?,
            at_ms: self.at_ms.ok_or(missing("at"))?,
            error: self.error,
            lane: self.lane,
            size: self.size.ok_or(missing("size"))?,
            source_id: self.source_id,
            replay: self.replay,
            unknown: self.unknown,
        })
    }
}

/// A lane, from its encoded term.
fn lane(raw: &[u8]) -> Option<u128> {
    let bytes = Reader::bare(raw).binary().ok()?;
    bytes.try_into().ok().map(u128::from_be_bytes)
}

/// The text of an error, which cuts foreign bytes at any place.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A new row, encoded before it is known when it is committed and so due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// Due at the time zero.
    encoded: Vec<u8>,
    /// Where in it the value of `at` begins, a row's first key.
    at: usize,
    lane: Option<u128>,
}

impl PendingRow {
    pub fn new(module: &str, source_id: &str, size: u32, version: ValueVersion) -> Self {
        Self::in_lane(None, module, source_id, size, version)
    }

    /// Of an ordered sink, where there is a lane.
    pub fn in_lane(
        lane: Option<u128>,
        module: &str,
        source_id: &str,
        size: u32,
        version: ValueVersion,
    ) -> Self {
        /// The version byte, the map's tag and count, and the key.
        const AT_VALUE: usize = 1 + 5 + 2 + "at".len();
        /// All but the two names: keys, tags, lengths and numbers.
        const FIXED: usize = 128;
        let mut encoded = Vec::with_capacity(FIXED + module.len() + source_id.len());
        let row = RowFields {
            module: Some(module),
            state: RowState::Pending,
            attempts: 0,
            at_ms: 0,
            error: None,
            lane,
            size,
            source_id: Some(source_id),
            replay: None,
            unknown: &[],
        };
        row.encode_into(version, &mut encoded);
        Self { encoded, at: version.prefix_bytes() + AT_VALUE, lane }
    }

    /// The lane it waits in.
    pub const fn lane(&self) -> Option<u128> {
        self.lane
    }

    /// The encoded row up to the value of `at`, and from behind it.
    fn around_at(&self) -> (&[u8], &[u8]) {
        /// A time of zero, as an integer of one byte.
        const AT_ZERO: usize = 2;
        let (before, rest) = self.encoded.split_at_checked(self.at).unwrap_or_default();
        (before, rest.get(AT_ZERO..).unwrap_or_default())
    }

    /// What [`DeliveryRow::encode`] gives for the row due at `at_ms`.
    pub fn bytes(&self, at_ms: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded.len() + 16);
        self.write_stamped(at_ms, &mut out);
        out
    }

    /// Appends what [`DeliveryRow::encode`] gives for the row due at `at_ms`.
    pub fn write_stamped(&self, at_ms: u64, out: &mut Vec<u8>) {
        let (before, after) = self.around_at();
        out.extend_from_slice(before);
        TermWriter::bare(out).uint(at_ms);
        out.extend_from_slice(after);
    }
}
