//! Writes terms, in one pass and always the same way.

use super::{MAX_ATOM_CHARS, Term, VERSION, tag};

/// Appends terms to a buffer.
///
/// Sizes that the format cannot hold (a binary of 4 GiB, an atom of 256 characters) are bugs of the caller and panic.
#[derive(Debug)]
pub struct TermWriter<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> TermWriter<'b> {
    /// Starts a value with the version byte.
    pub fn versioned(out: &'b mut Vec<u8>) -> Self {
        out.push(VERSION);
        Self { out }
    }

    /// For a term inside another.
    pub fn bare(out: &'b mut Vec<u8>) -> Self {
        Self { out }
    }

    #[inline]
    pub fn atom(&mut self, name: &str) {
        if let Ok(length) = u8::try_from(name.len()) {
            self.out.extend_from_slice(&[tag::SMALL_ATOM_UTF8, length]);
        } else {
            assert!(name.chars().count() <= MAX_ATOM_CHARS, "an atom has at most 255 characters");
            let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
            self.out.push(tag::ATOM_UTF8);
            self.out.extend_from_slice(&length.to_be_bytes());
        }
        self.out.extend_from_slice(name.as_bytes());
    }

    pub fn nil(&mut self) {
        self.atom("nil");
    }

    pub fn bool(&mut self, value: bool) {
        self.atom(if value { "true" } else { "false" });
    }

    #[inline]
    pub fn binary(&mut self, bytes: &[u8]) {
        self.counted(tag::BINARY, bytes.len());
        self.out.extend_from_slice(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.binary(text.as_bytes());
    }

    /// A binary, or the atom `nil`.
    #[inline]
    pub fn optional_binary(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.binary(bytes),
            None => self.nil(),
        }
    }

    /// A binary, or the atom `nil`.
    pub fn optional_text(&mut self, text: Option<&str>) {
        self.optional_binary(text.map(str::as_bytes));
    }

    /// An atom, `nil` for none.
    pub fn optional_atom(&mut self, name: Option<&str>) {
        self.atom(name.unwrap_or("nil"));
    }

    pub fn int(&mut self, value: i64) {
        if let Ok(byte) = u8::try_from(value) {
            self.out.extend_from_slice(&[tag::SMALL_INTEGER, byte]);
        } else if let Ok(word) = i32::try_from(value) {
            self.out.push(tag::INTEGER);
            self.out.extend_from_slice(&word.to_be_bytes());
        } else {
            self.big(value < 0, &value.unsigned_abs().to_le_bytes());
        }
    }

    pub fn uint(&mut self, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.int(value),
            Err(_) => self.big(false, &value.to_le_bytes()),
        }
    }

    /// `magnitude` least significant byte first; zeros at its end are dropped.
    fn big(&mut self, negative: bool, magnitude: &[u8]) {
        let used = magnitude.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match u8::try_from(used) {
            Ok(length) => self.out.extend_from_slice(&[tag::SMALL_BIG, length]),
            Err(_) => self.counted(tag::LARGE_BIG, used),
        }
        self.out.push(u8::from(negative));
        self.out.extend(magnitude.iter().take(used));
    }

    /// Opens a tuple: the caller writes `arity` terms next.
    pub fn tuple(&mut self, arity: u8) {
        self.out.extend_from_slice(&[tag::SMALL_TUPLE, arity]);
    }

    /// A proper list of what `write` writes for each item, which must be one term.
    pub fn list<I: ExactSizeIterator>(
        &mut self,
        items: I,
        mut write: impl FnMut(&mut Self, I::Item),
    ) {
        if items.len() > 0 {
            self.counted(tag::LIST, items.len());
            items.for_each(|item| write(self, item));
        }
        self.out.push(tag::NIL);
    }

    /// A map of exactly `pairs` pairs, written by `write` in rising order of their keys.
    pub fn map<'k>(&mut self, pairs: usize, write: impl FnOnce(&mut MapWriter<'_, 'b, 'k>)) {
        self.counted(tag::MAP, pairs);
        let mut map = MapWriter { writer: self, written: 0, last: None };
        write(&mut map);
        debug_assert_eq!(map.written, pairs, "a map holds as many pairs as it announced");
    }

    /// A term that is already encoded, without a version byte.
    pub fn raw(&mut self, term: &[u8]) {
        self.out.extend_from_slice(term);
    }

    #[inline]
    fn counted(&mut self, tag: u8, count: usize) {
        let word = u32::try_from(count);
        assert!(word.is_ok(), "a term holds less than 4 GiB");
        self.out.push(tag);
        self.out.extend_from_slice(&word.unwrap_or(u32::MAX).to_be_bytes());
    }
}

/// Writes the pairs of one map: a key, then one term with the writer it answers.
#[derive(Debug)]
pub struct MapWriter<'w, 'b, 'k> {
    writer: &'w mut TermWriter<'b>,
    written: usize,
    last: Option<&'k [u8]>,
}

impl<'b, 'k> MapWriter<'_, 'b, 'k> {
    /// A pair whose key is an atom.
    #[inline]
    pub fn key(&mut self, name: &'k str) -> &mut TermWriter<'b> {
        self.rising(name.as_bytes());
        self.writer.atom(name);
        self.writer
    }

    /// A pair whose key is a binary.
    pub fn binary_key(&mut self, name: &'k [u8]) -> &mut TermWriter<'b> {
        self.rising(name);
        self.writer.binary(name);
        self.writer
    }

    /// A pair that is already encoded. The caller answers for its place.
    pub fn raw_pair(&mut self, key: &[u8], value: &[u8]) {
        self.written += 1;
        self.writer.raw(key);
        self.writer.raw(value);
    }

    fn rising(&mut self, name: &'k [u8]) {
        debug_assert!(self.last.is_none_or(|last| last < name), "map keys rise");
        self.written += 1;
        self.last = Some(name);
    }
}

/// See [`Term::canonical`].
pub(super) fn write_canonical(term: &Term<'_>, out: &mut Vec<u8>) {
    let mut writer = TermWriter::bare(out);
    match term {
        Term::Int(value) => writer.int(*value),
        Term::BigInt { negative, magnitude } => writer.big(*negative, magnitude),
        Term::Float(value) => {
            writer.raw(&[tag::NEW_FLOAT]);
            writer.raw(&value.to_be_bytes());
        }
        Term::Atom(name) => writer.atom(name),
        Term::Binary(bytes) => writer.binary(bytes),
        Term::Bits { bytes, bits } => {
            writer.counted(tag::BIT_BINARY, bytes.len());
            writer.raw(&[*bits]);
            if let Some((last, whole)) = bytes.split_last() {
                writer.raw(whole);
                writer.raw(&[last & !(u8::MAX >> bits)]);
            }
        }
        Term::List(items) => writer.list(items.iter(), |writer, item| {
            write_canonical(item, writer.out);
        }),
        Term::ImproperList(list) => {
            let (items, tail) = list.as_ref();
            writer.counted(tag::LIST, items.len());
            items.iter().chain([tail]).for_each(|item| write_canonical(item, writer.out));
        }
        Term::Tuple(elements) => {
            writer.counted(tag::LARGE_TUPLE, elements.len());
            elements.iter().for_each(|element| write_canonical(element, writer.out));
        }
        Term::Map(pairs) => {
            let mut sorted: Vec<_> =
                pairs.iter().map(|(key, value)| (key.canonical(), value)).collect();
            sorted.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            writer.counted(tag::MAP, sorted.len());
            for (key, value) in sorted {
                writer.raw(&key);
                write_canonical(value, writer.out);
            }
        }
        Term::Opaque(raw) => writer.raw(raw),
    }
}
