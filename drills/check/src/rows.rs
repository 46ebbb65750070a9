//! Decoders of keys and values: what a row means, from its bytes alone.
//!
//! Numbers in keys are big endian and fixed in width, so a key of the wrong length is no key.

use crate::dump::{Family, Row};
use crate::ledger::Digest;
use crate::term::{self, Term};

/// A decoder's refusal, in words.
pub type Refusal = String;

/// A delivery row's identity: the hook's seq and the index of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    pub seq: u64,
    pub sink: u16,
}

/// The parts of a stored hook that invariants are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    pub id: String,
    pub source: String,
    /// The tenant, with `default` for a hook that names none.
    pub tenant: String,
    pub body: Digest,
    /// Bytes of the stored value.
    pub stored_bytes: u64,
}

/// What a delivery row waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    Dead,
}

/// A delivery row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub state: State,
    /// When it is due, or when it died, in Unix milliseconds.
    pub at: u64,
    /// Bytes of the stored hook.
    pub size: u64,
}

/// A row of the index family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// `D`: due at a time. Kinds 0 and 2 are first attempts, 1 and 3 are retries.
    Due { slot: Slot, ord: u32, at: u64, size: u32, kind: u8 },
    /// `F`: claimed by dispatch.
    Claimed { slot: Slot, ord: u32, size: u32 },
    /// `x`: dead, in order of time.
    DeadByTime { slot: Slot, ord: u32, at: u64, id: String },
    /// `X`: dead, by tenant.
    DeadByTenant { slot: Slot, ord: u32, at: u64 },
    /// `A`: the tenant has a due row in that second.
    Active { second: u64, ord: u32 },
    /// `a`: to be archived.
    Archive { seq: u64, ord: u32, size: u32 },
    /// `O`: waits in a lane.
    Member { slot: Slot, ord: u32, lane: u128, size: u32 },
    /// `H`: the one row of the lane that is due or claimed.
    Head { slot: Slot, ord: u32, lane: u128 },
    /// `P`: the lane may have members and no head.
    LaneMarker { ord: u32, lane: u128 },
    /// `c`: an obligation of this hook was cleared.
    Cleared { seq: u64 },
    /// `u`: a provider's key is taken. Of its bytes the tag is left out.
    DedupeKey { tenant: String, key: Vec<u8>, expires_at: u64 },
    /// `e`: when it is to be given up.
    DedupeExpiry { key: Vec<u8>, expires_at: u64 },
    /// A claim reference: well formed, and no invariant asks about it yet.
    Other,
}

/// Bytes of a hook's id.
const HOOK_ID_BYTES: usize = 36;

/// Whether a row is a sentinel: an empty value under a key that is nothing but a prefix, or a prefix and then `FF`s.
/// Every scanned family has one at each end, put there at every open.
#[must_use]
pub fn is_sentinel(row: &Row) -> bool {
    let all = |bytes: &[u8], byte: u8| bytes.iter().all(|each| *each == byte);
    row.value.is_empty()
        && match row.family {
            Family::Hooks | Family::Deliveries | Family::Counters => {
                all(&row.key, 0) || all(&row.key, 0xFF)
            }
            Family::Index
            | Family::Archive
            | Family::Quarantine
            | Family::Audit
            | Family::Tenants => row.key.get(1..).is_some_and(|rest| all(rest, 0xFF)),
            // `s:` and its like.
            Family::Default => {
                row.key.get(1) == Some(&b':')
                    && row.key.get(2..).is_some_and(|rest| all(rest, 0xFF))
            }
        }
}

/// Fixed-width fields, read one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("is too short")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Refusal> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Refusal> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_be_bytes)
    }

    fn u128(&mut self) -> Result<u128, Refusal> {
        self.array().map(u128::from_be_bytes)
    }

    fn slot(&mut self) -> Result<Slot, Refusal> {
        Ok(Slot { seq: self.u64()?, sink: self.u16()? })
    }

    fn rest(self) -> &'a [u8] {
        self.0
    }

    fn end(self) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("is {} bytes too long", self.0.len())) }
    }
}

/// A whole key or value that is one `u64`.
///
/// # Errors
/// When it is not 8 bytes.
pub fn whole_u64(bytes: &[u8]) -> Result<u64, Refusal> {
    let mut fields = Fields(bytes);
    let value = fields.u64()?;
    fields.end().map(|()| value)
}

/// A whole key or value that is one `u32`.
///
/// # Errors
/// When it is not 4 bytes.
pub fn whole_u32(bytes: &[u8]) -> Result<u32, Refusal> {
    let mut fields = Fields(bytes);
    let value = fields.u32()?;
    fields.end().map(|()| value)
}

/// The key of a delivery row.
///
/// # Errors
/// When it is not 10 bytes.
pub fn delivery_key(key: &[u8]) -> Result<Slot, Refusal> {
    let mut fields = Fields(key);
    let slot = fields.slot()?;
    fields.end().map(|()| slot)
}

/// The key of a counter: tenant ordinal (0 is the node) and field.
///
/// # Errors
/// When it is not 5 bytes.
pub fn counter_key(key: &[u8]) -> Result<(u32, u8), Refusal> {
    let mut fields = Fields(key);
    let (ord, field) = (fields.u32()?, fields.u8()?);
    fields.end().map(|()| (ord, field))
}

/// The merged value of a counter.
///
/// # Errors
/// When it is not an integer term.
pub fn counter_value(value: &[u8]) -> Result<i128, Refusal> {
    let term = term::read(value).map_err(|error| error.to_string())?;
    term.as_int().ok_or_else(|| "is not an integer".to_owned())
}

/// Strips the version prefix of a value: none is version 0, two letters and a 1 are version 1.
fn unversioned<'a>(value: &'a [u8], letters: &[u8; 2]) -> Result<&'a [u8], Refusal> {
    match value.strip_prefix(letters) {
        None => Ok(value),
        Some(versioned) => match versioned.split_first() {
            Some((1, rest)) => Ok(rest),
            Some((version, _)) => Err(format!("has the unknown version {version}")),
            None => Err("ends after its version letters".to_owned()),
        },
    }
}

fn required<'t, 'a, T>(
    map: &'t Term<'a>,
    key: &str,
    read: impl FnOnce(&'t Term<'a>) -> Option<T>,
) -> Result<T, Refusal> {
    map.get(key).and_then(read).ok_or_else(|| format!("has no usable {key}"))
}

fn required_number(map: &Term<'_>, key: &str) -> Result<u64, Refusal> {
    required(map, key, |term| u64::try_from(term.as_int()?).ok())
}

/// A stored hook.
///
/// # Errors
/// When the value is not an envelope, or its `size` is not its body's.
pub fn hook(value: &[u8]) -> Result<Hook, Refusal> {
    let term = term::read(unversioned(value, b"AE")?).map_err(|error| error.to_string())?;
    let body = required(&term, "body", Term::as_binary)?;
    let size = required_number(&term, "size")?;
    if usize::try_from(size) != Ok(body.len()) {
        return Err(format!("says its body has {size} bytes, and it has {}", body.len()));
    }
    let tenant = match term.get("tenant_id") {
        Some(tenant) if !tenant.is_nil() => {
            tenant.as_text().ok_or("has a tenant that is no text")?
        }
        _ => "default",
    };
    Ok(Hook {
        id: required(&term, "id", Term::as_text)?.to_owned(),
        source: required(&term, "source_id", Term::as_text)?.to_owned(),
        tenant: tenant.to_owned(),
        body: Digest::of(body),
        stored_bytes: u64::try_from(value.len()).unwrap_or(u64::MAX),
    })
}

/// A row of the pen: `b`, or `s`, and which held hook it is of.
///
/// # Errors
/// When the key is none.
pub fn held_key(key: &[u8]) -> Result<(u8, HeldKey), Refusal> {
    match key {
        [part @ (b'b' | b's'), at @ ..] if at.len() > 8 => Ok((*part, at.to_vec())),
        _ => Err("is no key of the pen".to_owned()),
    }
}

/// When a held hook was received, and its id.
pub type HeldKey = Vec<u8>;

/// The id and the source that the summary of a held hook names.
///
/// # Errors
/// When the value is none.
pub fn held_summary(value: &[u8]) -> Result<(String, String), Refusal> {
    let term = term::read(value).map_err(|error| error.to_string())?;
    let text = |name| required(&term, name, Term::as_text).map(str::to_owned);
    Ok((text("id")?, text("source_id")?))
}

/// A delivery row.
///
/// # Errors
/// When the value is not one.
pub fn delivery(value: &[u8]) -> Result<Delivery, Refusal> {
    let term = term::read(unversioned(value, b"AD")?).map_err(|error| error.to_string())?;
    let state = match term.get("state") {
        Some(Term::Atom("pending")) => State::Pending,
        Some(Term::Atom("dead")) => State::Dead,
        other => return Err(format!("has the state {other:?}")),
    };
    Ok(Delivery { state, at: required_number(&term, "at")?, size: required_number(&term, "size")? })
}

/// A row of the index family.
///
/// # Errors
/// When the key has no known tag, or key or value do not have the fields of the tag.
pub fn index(key: &[u8], value: &[u8]) -> Result<Index, Refusal> {
    let mut fields = Fields(key);
    let mut of_value = Fields(value);
    let row = match fields.u8()? {
        b'D' => {
            let (ord, at, slot) = (fields.u32()?, fields.u64()?, fields.slot()?);
            Index::Due { slot, ord, at, size: of_value.u32()?, kind: of_value.u8()? }
        }
        b'F' => {
            let (ord, slot) = (fields.u32()?, fields.slot()?);
            Index::Claimed { slot, ord, size: of_value.u32()? }
        }
        b'x' => {
            let (at, slot) = (fields.u64()?, fields.slot()?);
            let (id, ord) = dead_value(std::mem::take(&mut of_value.0))?;
            Index::DeadByTime { slot, ord, at, id }
        }
        b'X' => {
            let (ord, at, slot) = (fields.u32()?, fields.u64()?, fields.slot()?);
            Index::DeadByTenant { slot, ord, at }
        }
        b'A' => Index::Active { second: fields.u64()?, ord: fields.u32()? },
        b'a' => Index::Archive { seq: fields.u64()?, size: of_value.u32()?, ord: of_value.u32()? },
        b'c' => {
            let (seq, kind, _sink) = (fields.u64()?, fields.u8()?, fields.u16()?);
            if kind > 1 {
                return Err(format!("clears the unknown kind {kind}"));
            }
            Index::Cleared { seq }
        }
        b'O' => {
            let (ord, lane, slot) = (fields.u32()?, fields.u128()?, fields.slot()?);
            Index::Member { slot, ord, lane, size: of_value.u32()? }
        }
        b'H' => {
            let (ord, lane) = (fields.u32()?, fields.u128()?);
            Index::Head { slot: of_value.slot()?, ord, lane }
        }
        b'P' => Index::LaneMarker { ord: fields.u32()?, lane: fields.u128()? },
        b'k' => {
            fields.u64()?;
            of_value.0 = &[];
            Index::Other
        }
        b'u' => {
            let key = std::mem::take(&mut fields.0);
            let tenant = dedupe_tenant(key)?;
            let expires_at = of_value.u64()?;
            if std::mem::take(&mut of_value.0).len() != HOOK_ID_BYTES {
                return Err("names no hook".to_owned());
            }
            Index::DedupeKey { tenant, key: key.to_vec(), expires_at }
        }
        b'e' => {
            let expires_at = fields.u64()?;
            let key = std::mem::take(&mut fields.0);
            dedupe_tenant(key)?;
            Index::DedupeExpiry { key: key.to_vec(), expires_at }
        }
        tag => return Err(format!("has the unknown tag {tag:#04x}")),
    };
    fields.end().map_err(|refusal| format!("has a key that {refusal}"))?;
    of_value.end().map_err(|refusal| format!("has a value that {refusal}"))?;
    Ok(row)
}

/// `{source_id, id, ord}`.
fn dead_value(value: &[u8]) -> Result<(String, u32), Refusal> {
    let term = term::read(value).map_err(|error| error.to_string())?;
    if let Term::Tuple(parts) = &term
        && let [_, id, ord] = parts.as_slice()
        && let (Some(id), Some(ord)) =
            (id.as_text(), ord.as_int().and_then(|ord| u32::try_from(ord).ok()))
    {
        return Ok((id.to_owned(), ord));
    }
    Err("is not source, id and ordinal".to_owned())
}

/// The tenant of a dedupe key: tenant, zero byte, length of the source id, source id, key.
fn dedupe_tenant(bytes: &[u8]) -> Result<String, Refusal> {
    let tenant_end = bytes.iter().position(|byte| *byte == 0).ok_or("has no end of the tenant")?;
    let mut fields = Fields(bytes.get(tenant_end + 1..).unwrap_or_default());
    let source_bytes = usize::from(fields.u16()?);
    if fields.rest().len() < source_bytes {
        return Err("ends inside the source id".to_owned());
    }
    let tenant = bytes.get(..tenant_end).unwrap_or_default().to_vec();
    String::from_utf8(tenant).map_err(|_| "has a tenant that is no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    /// The golden keys: ordinal 1, at 1688169000086, seq 42, sink 0.
    const SLOT: Slot = Slot { seq: 42, sink: 0 };
    const AT: u64 = 1_688_169_000_086;

    fn index_of(key: &str, value: &str) -> Result<Index, Refusal> {
        index(&bytes(key), &bytes(value))
    }

    #[test]
    fn the_golden_index_keys_are_read() {
        let dead = "8368036d000000066769746875626d0000002430313839306135642d616339362d373734622d626363652d6233303230393961383035376101";
        let id = "01890a5d-ac96-774b-bcce-b302099a8057".to_owned();
        for (key, value, row) in [
            (
                "4400000001000001890eb6ac96000000000000002a0000",
                "000004d200",
                Index::Due { slot: SLOT, ord: 1, at: AT, size: 1234, kind: 0 },
            ),
            (
                "4600000001000000000000002a0000",
                "000004d2",
                Index::Claimed { slot: SLOT, ord: 1, size: 1234 },
            ),
            (
                "78000001890eb6ac96000000000000002a0000",
                dead,
                Index::DeadByTime { slot: SLOT, ord: 1, at: AT, id },
            ),
            (
                "5800000001000001890eb6ac96000000000000002a0000",
                "",
                Index::DeadByTenant { slot: SLOT, ord: 1, at: AT },
            ),
            ("4100000000649f6a2800000001", "", Index::Active { second: 1_688_169_000, ord: 1 }),
            (
                "61000000000000002a",
                "000004d200000001",
                Index::Archive { seq: 42, ord: 1, size: 1234 },
            ),
            ("63000000000000002a000000", "", Index::Cleared { seq: 42 }),
            ("63000000000000002a010000", "", Index::Cleared { seq: 42 }),
            (
                "7561636d650000066769746875626431",
                "000001891e29c09630313839306135642d616339362d373734622d626363652d623330323039396138303537",
                Index::DedupeKey {
                    tenant: "acme".to_owned(),
                    key: bytes("61636d650000066769746875626431"),
                    expires_at: 1_688_428_200_086,
                },
            ),
            (
                "65000001891e29c09661636d650000066769746875626431",
                "",
                Index::DedupeExpiry {
                    key: bytes("61636d650000066769746875626431"),
                    expires_at: 1_688_428_200_086,
                },
            ),
        ] {
            assert_eq!(index_of(key, value), Ok(row), "{key}");
        }
    }

    #[test]
    fn a_key_or_value_of_the_wrong_length_is_refused() {
        let due = "4400000001000001890eb6ac96000000000000002a0000";
        assert_eq!(index_of(&due[2..], "000004d200"), Err("has the unknown tag 0x00".into()));
        assert_eq!(index_of(&due[..due.len() - 2], "000004d200"), Err("is too short".into()));
        assert_eq!(
            index_of(&format!("{due}00"), "000004d200"),
            Err("has a key that is 1 bytes too long".into())
        );
        assert_eq!(
            index_of(due, "000004d20000"),
            Err("has a value that is 1 bytes too long".into())
        );
        assert_eq!(index_of(due, "000004d2"), Err("is too short".into()));
        assert_eq!(
            index_of("63000000000000002a020000", ""),
            Err("clears the unknown kind 2".into())
        );
        assert_eq!(index_of("7561636d65", ""), Err("has no end of the tenant".into()));
    }

    #[test]
    fn the_golden_envelopes_are_read_in_both_versions() {
        let term = bytes(
            "83740000000d7704626f64796d000000077b2261223a317d770c636f6e74656e745f747970656d000000106170706c69636174696f6e2f6a736f6e770a6465647570655f6b657977036e696c7707686561646572736c0000000268026d0000000c636f6e74656e742d747970656d000000106170706c69636174696f6e2f6a736f6e68026d00000011782d6769746875622d64656c69766572796d0000000264316a770269646d0000002430313839306135642d616339362d373734622d626363652d62333032303939613830353777066d6574686f646d00000004504f53547704706174686d0000000a2f696e2f676974687562770b72656365697665645f61746e060096acb60e8901770373657177036e696c770473697a6561077709736f757263655f69646d00000006676974687562770974656e616e745f696477036e696c770c766572696669636174696f6e7400000006770a5f5f7374727563745f5f771a456c697869722e416e6b7573612e566572696669636174696f6e7707666c6167676564770566616c7365770870726f7669646572771b456c697869722e416e6b7573612e56657269666965722e486d61637706726561736f6e77036e696c7706736368656d656d00000006676974687562770673746174757377026f6b",
        );
        let read = Hook {
            id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            source: "github".into(),
            tenant: "default".into(),
            body: Digest::of(br#"{"a":1}"#),
            stored_bytes: 481,
        };
        assert_eq!(hook(&term), Ok(read.clone()));
        assert_eq!(
            hook(&[b"AE\x01".as_slice(), &term].concat()),
            Ok(Hook { stored_bytes: 484, ..read })
        );
        assert_eq!(
            hook(&[b"AE\x02".as_slice(), &term].concat()),
            Err("has the unknown version 2".into())
        );
        assert_eq!(hook(b"AE"), Err("ends after its version letters".into()));
        assert_eq!(hook(b""), Err("does not start with the version byte 131".into()));
    }

    #[test]
    fn an_envelope_whose_size_is_not_its_bodys_is_refused() {
        // One body of one byte, and the size 2.
        let fields =
            [b"\x83t\0\0\0\x02w\x04bodym\0\0\0\x01x".as_slice(), b"w\x04sizea\x02"].concat();
        assert_eq!(hook(&fields), Err("says its body has 2 bytes, and it has 1".into()));
    }

    #[test]
    fn the_golden_rows_are_read() {
        let pending = bytes(
            "837400000007770261746e060096acb60e89017708617474656d707473610077056572726f7277036e696c77066d6f64756c657717456c697869722e416e6b7573612e53696e6b2e48747470770473697a6562000004d27709736f757263655f69646d0000000667697468756277057374617465770770656e64696e67",
        );
        let dead = bytes(
            "837400000008770261746e060096acb60e89017708617474656d707473615477056572726f726d0000000e7b3a7374617475732c203530307d77066d6f64756c657717456c697869722e416e6b7573612e53696e6b2e4874747077067265706c61796d0000002430313839306135642d616339362d373734622d626363652d623330323039396138303537770473697a6562000004d27709736f757263655f69646d0000000667697468756277057374617465770464656164",
        );
        assert_eq!(delivery(&pending), Ok(Delivery { state: State::Pending, at: AT, size: 1234 }));
        assert_eq!(
            delivery(&[b"AD\x01".as_slice(), &dead].concat()),
            Ok(Delivery { state: State::Dead, at: AT, size: 1234 })
        );
        assert_eq!(delivery(&[131, 106]), Err("has the state None".into()));
    }

    #[test]
    fn sentinels_are_told_from_rows() {
        let row = |family, key: &str, value: &[u8]| Row {
            family,
            key: bytes(key),
            value: value.to_vec(),
        };
        for (family, key) in [
            (Family::Hooks, "0000000000000000"),
            (Family::Hooks, "ffffffffffffffff"),
            (Family::Deliveries, "ffffffffffffffffffff"),
            (Family::Index, "44"),
            (Family::Index, "64ffffffffffffffffffffffffffffffffffff"),
            (Family::Index, "41ffffffffffffffffffffffff"),
            (Family::Default, "733a"),
            (Family::Default, "6a3aff"),
            (Family::Counters, "0000000000"),
        ] {
            assert!(is_sentinel(&row(family, key, b"")), "{family:?} {key}");
            assert!(!is_sentinel(&row(family, key, b"x")), "{family:?} {key} with a value");
        }
        for (family, key) in [
            (Family::Hooks, "0000000000000001"),
            (Family::Index, "4100000000649f6a2800000001"),
            (Family::Index, ""),
            (Family::Default, "6d3a6e6578745f736571"),
        ] {
            assert!(!is_sentinel(&row(family, key, b"")), "{family:?} {key}");
        }
    }
}
