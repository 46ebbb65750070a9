//! The queue's counters: per tenant and for the node, moved only by merge operands in the batch of the rows they count.
//!
//! A value is the term of an integer; an operand is the term `{int_add, N}`. Both are what the documented system's
//! merge operator reads and writes, and either may also be ASCII decimal, which its other operator uses. The fold cannot
//! fail, or the key would become unreadable: what it cannot read counts as 0 and is reported. It is associative, since
//! the database folds operands among themselves and in any grouping: sums are 128 bits wide, which no chain of 64-bit
//! deltas fills.

/// The name the operator is registered under, and so recorded in the database's options.
pub const OPERATOR_NAME: &str = "ErlangMergeOperator";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// First attempts waiting.
    Pending,
    /// Retries waiting; one whose backoff has ended counts here until it is claimed.
    Scheduled,
    /// Rows claimed by dispatch.
    Inflight,
    /// Dead rows.
    Dead,
    /// Stored bytes of every delivery row: a hook of three sinks counts three times.
    Bytes,
    /// Archive obligations.
    ArchivePending,
    /// Dedupe keys.
    Dedupe,
    /// Stored bytes of the dead rows.
    DeadBytes,
    /// Leases on claim packs.
    ClaimLeases,
    /// Lane heads.
    Lanes,
    /// Lane heads waiting for a retry.
    LanesBlocked,
    /// Rows waiting in a lane.
    LaneMembers,
}

impl Field {
    pub const COUNT: usize = 12;

    pub const ALL: [Self; Self::COUNT] = [
        Self::Pending,
        Self::Scheduled,
        Self::Inflight,
        Self::Dead,
        Self::Bytes,
        Self::ArchivePending,
        Self::Dedupe,
        Self::DeadBytes,
        Self::ClaimLeases,
        Self::Lanes,
        Self::LanesBlocked,
        Self::LaneMembers,
    ];

    /// Its number in the key. Of these 7, 8 and 9 are documented; the others follow the order they are listed in.
    pub const fn number(self) -> u8 {
        match self {
            Self::Pending => 1,
            Self::Scheduled => 2,
            Self::Inflight => 3,
            Self::Dead => 4,
            Self::Bytes => 5,
            Self::ArchivePending => 6,
            Self::Dedupe => 7,
            Self::DeadBytes => 8,
            Self::ClaimLeases => 9,
            Self::Lanes => 10,
            Self::LanesBlocked => 11,
            Self::LaneMembers => 12,
        }
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.number() == number)
    }

    /// Its documented name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Inflight => "inflight",
            Self::Dead => "dead",
            Self::Bytes => "bytes",
            Self::ArchivePending => "archive_pending",
            Self::Dedupe => "dedupe",
            Self::DeadBytes => "dead_bytes",
            Self::ClaimLeases => "claim_leases",
            Self::Lanes => "lanes",
            Self::LanesBlocked => "lanes_blocked",
            Self::LaneMembers => "lane_members",
        }
    }

    /// Its place in [`Field::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

const VERSION: u8 = 131;
const SMALL_INTEGER: u8 = 97;
const INTEGER: u8 = 98;
const SMALL_BIG: u8 = 110;
/// Version, a 2-tuple, a small atom of 7 bytes.
const INT_ADD: &[u8] = b"\x83\x68\x02\x77\x07int_add";
/// The same with the atom tags of older virtual machines.
const INT_ADD_OLD: [&[u8]; 2] =
    [b"\x83\x68\x02\x64\x00\x07int_add", b"\x83\x68\x02\x73\x07int_add"];

/// The operand that adds `delta`.
pub fn operand(delta: i64) -> Vec<u8> {
    wide_operand(i128::from(delta))
}

/// The operand that makes a counter which said `stored` say `counted`, whatever is added to it before or behind. What is
/// no number counts as 0, as it does in a fold.
pub fn correction(stored: Option<i128>, counted: i64) -> Vec<u8> {
    wide_operand(i128::from(counted).saturating_sub(stored.unwrap_or(0)))
}

/// The stored value `count`.
pub fn value(count: i64) -> Vec<u8> {
    wide_value(i128::from(count))
}

/// What a stored counter says; `None` where it says no number. Out of range is clamped.
pub fn read(stored: &[u8]) -> Option<i64> {
    number(stored).map(clamped)
}

/// `number`, or the nearest there is.
pub fn clamped(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// What a fold came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    pub bytes: Vec<u8>,
    /// How many of the inputs were no number, and counted as 0. Above 0, the counter is to be recounted.
    pub unreadable: usize,
}

/// The value of a counter that held `existing` once `operands` are added.
pub fn fold<'a>(existing: Option<&[u8]>, operands: impl IntoIterator<Item = &'a [u8]>) -> Folded {
    let (start, unreadable) = match existing.map(number) {
        None => (0, 0),
        Some(Some(number)) => (number, 0),
        Some(None) => (0, 1),
    };
    let (sum, more) = sum(operands);
    Folded { bytes: wide_value(start.saturating_add(sum)), unreadable: unreadable + more }
}

/// One operand that does what `operands` do in turn.
pub fn fold_operands<'a>(operands: impl IntoIterator<Item = &'a [u8]>) -> Folded {
    let (sum, unreadable) = sum(operands);
    Folded { bytes: wide_operand(sum), unreadable }
}

fn sum<'a>(operands: impl IntoIterator<Item = &'a [u8]>) -> (i128, usize) {
    operands.into_iter().fold((0, 0), |(sum, unreadable), operand| match number(operand) {
        Some(number) => (number.saturating_add(sum), unreadable),
        None => (sum, unreadable + 1),
    })
}

/// The number in an operand or a value, in any of the documented forms.
pub fn number(bytes: &[u8]) -> Option<i128> {
    let tail =
        std::iter::once(INT_ADD).chain(INT_ADD_OLD).find_map(|head| bytes.strip_prefix(head));
    match (tail, bytes) {
        (Some(tail), _) => integer(tail),
        (None, [VERSION, tail @ ..]) => integer(tail),
        (None, _) => ascii(bytes),
    }
}

/// The whole of `tail` as the term of one integer of up to 16 bytes.
fn integer(tail: &[u8]) -> Option<i128> {
    match tail {
        [SMALL_INTEGER, value] => Some(i128::from(*value)),
        [INTEGER, value @ ..] => Some(i128::from(i32::from_be_bytes(value.try_into().ok()?))),
        [SMALL_BIG, len, sign, digits @ ..] => {
            if digits.len() != usize::from(*len) || digits.len() > 16 {
                return None;
            }
            let mut wide = [0; 16];
            wide.iter_mut().zip(digits).for_each(|(to, from)| *to = *from);
            let magnitude = u128::from_le_bytes(wide);
            match sign {
                0 => i128::try_from(magnitude).ok(),
                1 => 0_i128.checked_sub_unsigned(magnitude),
                _other => None,
            }
        }
        _other => None,
    }
}

fn ascii(bytes: &[u8]) -> Option<i128> {
    // `parse` also takes a plus sign and refuses an empty text and one that overflows.
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn wide_operand(delta: i128) -> Vec<u8> {
    let mut out = Vec::with_capacity(INT_ADD.len() + 11);
    out.extend_from_slice(INT_ADD);
    write_integer(&mut out, delta);
    out
}

fn wide_value(count: i128) -> Vec<u8> {
    let mut out = Vec::with_capacity(12);
    out.push(VERSION);
    write_integer(&mut out, count);
    out
}

fn write_integer(out: &mut Vec<u8>, number: i128) {
    if let Ok(small) = u8::try_from(number) {
        out.extend_from_slice(&[SMALL_INTEGER, small]);
    } else if let Ok(word) = i32::try_from(number) {
        out.push(INTEGER);
        out.extend_from_slice(&word.to_be_bytes());
    } else {
        let bytes = number.unsigned_abs().to_le_bytes();
        let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        out.extend_from_slice(&[SMALL_BIG, u8::try_from(len).unwrap_or(16), u8::from(number < 0)]);
        out.extend(bytes.iter().take(len));
    }
}

#[cfg(test)]
mod tests;
