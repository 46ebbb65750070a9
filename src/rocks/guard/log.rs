//! RocksDB's log format, which the write-ahead log and the manifest share: blocks of 32 KiB, and in them fragments of
//! records, each with a checksum over its type and its bytes.
//!
//! RocksDB reads such a file up to the first thing it cannot make sense of, takes some kinds of damage for the end of the
//! file, and spins for ever on others. This reader goes on behind damage, so that somebody can decide what it was.

use std::io::{self, Read};

use super::checksum;

const BLOCK_BYTES: usize = 32_768;

/// Checksum, length, type.
const HEADER_BYTES: usize = 7;

/// What a file holds, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole record, from the offset of its first header.
    Record {
        start: u64,
        end: u64,
        bytes: Vec<u8>,
    },
    Damage(Damage),
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// Where they begin: the first header of a record that is damaged later on.
    pub(super) at: u64,
    /// All there is from here to the end of the file is the beginning of a record: RocksDB drops that by itself.
    pub(super) cut_short: bool,
    pub(super) why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    First,
    Middle,
    Last,
    /// For readers that know what it is.
    Ignorable,
}

impl Kind {
    /// The types that recycled files have are none here: files are never recycled, and RocksDB does not survive one.
    const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Full),
            2 => Some(Self::First),
            3 => Some(Self::Middle),
            4 => Some(Self::Last),
            130 => Some(Self::Ignorable),
            _other => None,
        }
    }
}

/// A fragment at some place of a block.
struct Fragment<'a> {
    kind: Kind,
    bytes: &'a [u8],
    /// Where the next one begins.
    end: usize,
}

/// Why there is no fragment.
enum NoFragment {
    /// It would be one if the file went on.
    CutShort,
    Bad(&'static str),
}

/// A record whose end has not been read.
struct Begun {
    start: u64,
    bytes: Vec<u8>,
}

/// Reads one file. Holds one block and one record.
pub(super) struct LogReader<R> {
    source: R,
    /// Bytes that have not been read yet.
    unread: u64,
    block: Vec<u8>,
    /// Where the block is in the file.
    base: u64,
    at: usize,
    begun: Option<Begun>,
    /// Behind damage, fragments whose beginning it took are passed over.
    lost: bool,
}

impl<R: Read> LogReader<R> {
    /// Reads the first `len` bytes of `source`.
    pub(super) fn new(source: R, len: u64) -> Self {
        let block = Vec::with_capacity(BLOCK_BYTES);
        Self { source, unread: len, block, base: 0, at: 0, begun: None, lost: false }
    }

    /// The next piece; `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            if self.block.len().saturating_sub(self.at) < HEADER_BYTES {
                if self.at < self.block.len() && self.block.len() < BLOCK_BYTES {
                    return Ok(Some(self.damaged(NoFragment::CutShort)));
                }
                if !self.next_block()? {
                    return Ok(self.begun.take().map(|begun| {
                        Piece::Damage(Damage { at: begun.start, cut_short: true, why: NO_END })
                    }));
                }
                continue;
            }
            let piece = match fragment(&self.block, self.at) {
                Ok(Fragment { kind, bytes, end }) => {
                    let start = self.base + as_offset(self.at);
                    let bytes = bytes.to_vec();
                    let next = self.base + as_offset(end);
                    let misplaced =
                        self.begun.is_some() && matches!(kind, Kind::Full | Kind::First);
                    if misplaced {
                        // Looked at again, as the beginning that it is.
                        self.begun.take().map(|begun| {
                            let why = NO_END;
                            Piece::Damage(Damage { at: begun.start, cut_short: false, why })
                        })
                    } else {
                        self.at = end;
                        self.take(kind, start, next, bytes)
                    }
                }
                Err(bad) => Some(self.damaged(bad)),
            };
            if piece.is_some() {
                return Ok(piece);
            }
        }
    }

    fn take(&mut self, kind: Kind, start: u64, end: u64, bytes: Vec<u8>) -> Option<Piece> {
        match (kind, self.begun.take()) {
            (Kind::Full, _) => {
                self.lost = false;
                Some(Piece::Record { start, end, bytes })
            }
            (Kind::First, _) => {
                self.lost = false;
                self.begun = Some(Begun { start, bytes });
                None
            }
            (Kind::Middle, Some(mut begun)) => {
                begun.bytes.extend_from_slice(&bytes);
                self.begun = Some(begun);
                None
            }
            (Kind::Last, Some(mut begun)) => {
                begun.bytes.extend_from_slice(&bytes);
                Some(Piece::Record { start: begun.start, end, bytes: begun.bytes })
            }
            (Kind::Middle | Kind::Last, None) if self.lost => None,
            (Kind::Middle | Kind::Last, None) => {
                self.lost = true;
                let why = "a record without its beginning";
                Some(Piece::Damage(Damage { at: start, cut_short: false, why }))
            }
            (Kind::Ignorable, begun) => {
                self.begun = begun;
                None
            }
        }
    }

    /// Passes over what is damaged, to the next thing in this block that is whole.
    fn damaged(&mut self, how: NoFragment) -> Piece {
        let at = self.base + as_offset(self.at);
        let start = self.begun.take().map_or(at, |begun| begun.start);
        self.lost = true;
        let is_last = self.unread == 0;
        let whole = next_whole(&self.block, self.at);
        self.at = whole.unwrap_or(self.block.len());
        let (cut_short, why) = match how {
            NoFragment::CutShort => (is_last && whole.is_none(), "a record longer than its file"),
            NoFragment::Bad(why) => (false, why),
        };
        Piece::Damage(Damage { at: start, cut_short, why })
    }

    fn next_block(&mut self) -> io::Result<bool> {
        self.base += as_offset(self.block.len());
        self.at = 0;
        self.block.clear();
        let wanted = self.unread.min(as_offset(BLOCK_BYTES));
        let read = self.source.by_ref().take(wanted).read_to_end(&mut self.block)?;
        // A file that has become shorter ends here.
        self.unread = if as_offset(read) < wanted { 0 } else { self.unread - wanted };
        Ok(read > 0)
    }
}

const NO_END: &str = "a record without its end";

fn as_offset(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn fragment(block: &[u8], at: usize) -> Result<Fragment<'_>, NoFragment> {
    let here = block.get(at..).unwrap_or_default();
    let Some(([c0, c1, c2, c3, l0, l1, kind], rest)) = here.split_first_chunk::<HEADER_BYTES>()
    else {
        return Err(NoFragment::CutShort);
    };
    let stored = u32::from_le_bytes([*c0, *c1, *c2, *c3]);
    let len = usize::from(u16::from_le_bytes([*l0, *l1]));
    let end = at + HEADER_BYTES + len;
    let known = Kind::of(*kind);
    let Some(bytes) = rest.get(..len) else {
        let could_be = end <= BLOCK_BYTES && known.is_some();
        return Err(if could_be {
            NoFragment::CutShort
        } else {
            NoFragment::Bad("a length past its block")
        });
    };
    if checksum::masked(checksum::of(&[&[*kind], bytes])) != stored {
        return Err(NoFragment::Bad("a checksum that does not match"));
    }
    let Some(kind) = known else { return Err(NoFragment::Bad("a record of an unknown type")) };
    Ok(Fragment { kind, bytes, end })
}

/// The first fragment behind `at` that is whole. Where the damaged one says it ends is the likeliest place, and the only
/// one where its own bytes cannot be mistaken for a fragment.
fn next_whole(block: &[u8], at: usize) -> Option<usize> {
    let is_whole = |at: &usize| {
        let header = block.get(*at..at + HEADER_BYTES);
        // Most bytes are no type; and a fragment of nothing says nothing.
        let may_be = header
            .is_some_and(|header| matches!(header, [.., l0, l1, 1..=4] if (*l0, *l1) != (0, 0)));
        may_be && fragment(block, *at).is_ok()
    };
    let length = block.get(at + 4..at + 6).and_then(|length| <[u8; 2]>::try_from(length).ok());
    let told = length.map(|length| at + HEADER_BYTES + usize::from(u16::from_le_bytes(length)));
    told.filter(is_whole).or_else(|| (at + 1..block.len()).find(is_whole))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file that holds these records.
    pub(in crate::rocks::guard) fn file_of(records: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for record in records {
            let mut rest = *record;
            let mut first = true;
            loop {
                let room = BLOCK_BYTES - file.len() % BLOCK_BYTES;
                if room < HEADER_BYTES {
                    file.resize(file.len() + room, 0);
                    continue;
                }
                let (bytes, more) = rest.split_at(rest.len().min(room - HEADER_BYTES));
                let kind = match (first, more.is_empty()) {
                    (true, true) => 1,
                    (true, false) => 2,
                    (false, false) => 3,
                    (false, true) => 4,
                };
                let crc = checksum::masked(checksum::of(&[&[kind], bytes]));
                file.extend_from_slice(&crc.to_le_bytes());
                file.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_le_bytes());
                file.push(kind);
                file.extend_from_slice(bytes);
                (rest, first) = (more, false);
                if rest.is_empty() {
                    break;
                }
            }
        }
        file
    }

    fn pieces(file: &[u8]) -> Vec<Piece> {
        let mut reader = LogReader::new(file, file.len() as u64);
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    /// The first bytes of the records, and the damage, in order.
    fn outline(file: &[u8]) -> Vec<String> {
        let told = pieces(file).into_iter().map(|piece| match piece {
            Piece::Record { bytes, .. } => format!("{} of {}", bytes.len(), bytes[0]),
            Piece::Damage(Damage { at, cut_short, why }) => {
                format!("{}{at}: {why}", if cut_short { "cut short at " } else { "" })
            }
        });
        told.collect()
    }

    const A: &[u8] = &[1; 10];
    const B: &[u8] = &[2; 20];
    const C: &[u8] = &[3; 30];

    #[test]
    fn records_of_every_size_come_out_as_they_went_in() {
        let sizes = [1, 100, 32_768 - 7, 32_768 - 8, 32_768 - 14, 40_000, 100_000, 5, 32_740];
        let records: Vec<Vec<u8>> = sizes.map(|size| vec![7; size]).into();
        let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let file = file_of(&slices);
        let mut end_before = 0;
        for (piece, record) in pieces(&file).into_iter().zip(&records) {
            let Piece::Record { start, end, bytes } = piece else { panic!("{piece:?}") };
            assert!(start - end_before < 7, "{start} after {end_before}");
            assert!(bytes == *record);
            end_before = end;
        }
        assert_eq!((pieces(&file).len(), end_before), (sizes.len(), file.len() as u64));
    }

    #[test]
    fn a_file_may_end_anywhere_and_what_is_whole_is_read() {
        let file = file_of(&[A, B]);
        for len in 0..file.len() {
            let cut = &file[..len];
            let expected: &[&str] = match len {
                0 => &[],
                1..17 => &["cut short at 0: a record longer than its file"],
                17 => &["10 of 1"],
                _ => &["10 of 1", "cut short at 17: a record longer than its file"],
            };
            assert_eq!(outline(cut), expected, "{len} bytes");
        }
        let long = file_of(&[A, &[9; 50_000]]);
        let expected = ["10 of 1", "cut short at 17: a record without its end"];
        assert_eq!(outline(&long[..BLOCK_BYTES]), expected);
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed_and_none_hides_what_follows() {
        let file = file_of(&[A, B, C]);
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = outline(&flipped);
            assert_ne!(found, outline(&file), "bit {bit}");
            let damaged =
                [0..17, 17..44, 44..81].iter().position(|range| range.contains(&(bit / 8)));
            let damaged = damaged.unwrap();
            for (n, record) in ["10 of 1", "20 of 2", "30 of 3"].into_iter().enumerate() {
                let is_there = found.iter().any(|piece| piece == record);
                assert_eq!(is_there, n != damaged, "bit {bit}: {found:?}");
            }
        }
    }

    #[test]
    fn damage_of_a_record_in_parts_takes_all_of_it() {
        let file = file_of(&[A, &[9; 80_000], B]);
        // Zeros where the middle part was.
        let mut zeros = file.clone();
        zeros[BLOCK_BYTES..2 * BLOCK_BYTES].fill(0);
        let why = "a checksum that does not match";
        assert_eq!(
            outline(&zeros),
            ["10 of 1".to_owned(), format!("17: {why}"), "20 of 2".to_owned()]
        );
        // The first part is gone, the others stand alone.
        let mut headless = file;
        headless.drain(..BLOCK_BYTES);
        assert_eq!(outline(&headless), ["0: a record without its beginning", "20 of 2"]);
    }

    #[test]
    fn a_record_that_holds_a_record_is_one_record_even_when_it_is_damaged() {
        let inner = file_of(&[C]);
        let mut file = file_of(&[A, &inner, B]);
        file[17] ^= 1;
        let why = "17: a checksum that does not match";
        assert_eq!(outline(&file), ["10 of 1", why, "20 of 2"]);
    }

    #[test]
    fn types_of_recycled_files_are_damage() {
        for kind in [5_u8, 6, 7, 8, 11, 131, 0, 99] {
            let mut file = file_of(&[A, B, C]);
            file[17 + 6] = kind;
            let crc = checksum::masked(checksum::of(&[&file[17 + 6..44]]));
            file[17..21].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(outline(&file), ["10 of 1", "17: a record of an unknown type", "30 of 3"]);
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1_u64;
        for len in 0..40_usize {
            let noise: Vec<u8> = (0..len * 300)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    state.to_le_bytes()[5] % 8
                })
                .collect();
            let _ = pieces(&noise);
        }
    }
}
