//! Every row of a store, as JSON lines.
//!
//! One object a line: `{"cf":"hooks","key":"<hex>","value":"<hex>"}` for every row of every family, the families in the
//! order of [`Family::ALL`], the rows of each in key order; counters with their merged value. The last line is
//! `{"end":true,"rows":N,"synced_through":S,"next_seq":N}`: a dump without it was cut short and proves nothing.

use std::io::BufRead;

use serde::Deserialize;
use thiserror::Error;

/// A column family, in dump order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Default,
    Hooks,
    Deliveries,
    Index,
    Archive,
    Quarantine,
    Audit,
    Tenants,
    Counters,
}

impl Family {
    /// All nine, in dump order.
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::Hooks,
        Self::Deliveries,
        Self::Index,
        Self::Archive,
        Self::Quarantine,
        Self::Audit,
        Self::Tenants,
        Self::Counters,
    ];

    /// The family's name in the database and in a dump.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Hooks => "hooks",
            Self::Deliveries => "deliveries",
            Self::Index => "index",
            Self::Archive => "archive",
            Self::Quarantine => "quarantine",
            Self::Audit => "audit",
            Self::Tenants => "tenants",
            Self::Counters => "counters",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub family: Family,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A whole store at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// In dump order, sentinels included.
    pub rows: Vec<Row>,
    /// Every seq up to here is durable.
    pub synced_through: u64,
    /// The next seq to be assigned.
    pub next_seq: u64,
}

/// Why a dump cannot be judged. Lines count from 1.
#[derive(Debug, Error)]
pub enum DumpError {
    #[error("cannot read the dump")]
    Read(#[from] std::io::Error),
    #[error("line {line} is not a dump line: {error}")]
    Json { line: usize, error: serde_json::Error },
    #[error("line {line} has a key or value that is not hex")]
    Hex { line: usize },
    #[error("line {line} names the unknown family {family:?}")]
    UnknownFamily { line: usize, family: String },
    #[error("line {line} is out of order: a row was skipped or repeated")]
    Order { line: usize },
    #[error("line {line} comes after the end")]
    AfterEnd { line: usize },
    #[error("the dump has {found} rows and says it has {said}")]
    RowCount { found: usize, said: usize },
    #[error("the dump ends without its last line")]
    NoEnd,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Row(RowLine),
    End(EndLine),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowLine {
    cf: String,
    key: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    #[serde(rename = "end")]
    _end: bool,
    rows: usize,
    synced_through: u64,
    next_seq: u64,
}

impl Dump {
    /// Reads a dump.
    ///
    /// # Errors
    /// When a line is not one, rows are out of order, or the end is missing or disagrees with the number of rows.
    pub fn read(lines: impl BufRead) -> Result<Self, DumpError> {
        let mut rows: Vec<Row> = Vec::new();
        let mut end: Option<EndLine> = None;
        for (index, text) in lines.lines().enumerate() {
            let line = index + 1;
            if end.is_some() {
                return Err(DumpError::AfterEnd { line });
            }
            match serde_json::from_str(&text?).map_err(|error| DumpError::Json { line, error })? {
                Line::End(last) => end = Some(last),
                Line::Row(row) => {
                    let row = row.decode(line)?;
                    if rows
                        .last()
                        .is_some_and(|last| (last.family, &last.key) >= (row.family, &row.key))
                    {
                        return Err(DumpError::Order { line });
                    }
                    rows.push(row);
                }
            }
        }
        let end = end.ok_or(DumpError::NoEnd)?;
        if end.rows != rows.len() {
            return Err(DumpError::RowCount { found: rows.len(), said: end.rows });
        }
        Ok(Self { rows, synced_through: end.synced_through, next_seq: end.next_seq })
    }
}

impl RowLine {
    fn decode(self, line: usize) -> Result<Row, DumpError> {
        let family = Family::from_name(&self.cf)
            .ok_or(DumpError::UnknownFamily { line, family: self.cf })?;
        let bytes = |hex: &str| from_hex(hex).ok_or(DumpError::Hex { line });
        Ok(Row { family, key: bytes(&self.key)?, value: bytes(&self.value)? })
    }
}

/// The bytes of an even number of hex digits.
pub(crate) fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Bytes as lower-case hex, for evidence.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = r#"{"end":true,"rows":2,"synced_through":1,"next_seq":3}"#;
    const FIRST: &str = r#"{"cf":"hooks","key":"0000000000000001","value":"83"}"#;
    const SECOND: &str = r#"{"cf":"counters","key":"0000000001","value":"836103"}"#;

    fn read(lines: &[&str]) -> Result<Dump, String> {
        Dump::read(lines.join("\n").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_dump_is_read() {
        let row = |family, key: &[u8], value: &[u8]| Row {
            family,
            key: key.to_vec(),
            value: value.to_vec(),
        };
        let rows = vec![
            row(Family::Hooks, &[0, 0, 0, 0, 0, 0, 0, 1], &[0x83]),
            row(Family::Counters, &[0, 0, 0, 0, 1], &[0x83, 97, 3]),
        ];
        assert_eq!(read(&[FIRST, SECOND, END]), Ok(Dump { rows, synced_through: 1, next_seq: 3 }));
    }

    #[test]
    fn a_dump_that_was_cut_short_is_refused() {
        assert_eq!(read(&[FIRST, SECOND]), Err("the dump ends without its last line".into()));
        assert_eq!(read(&[FIRST, END]), Err("the dump has 1 rows and says it has 2".into()));
        assert!(
            read(&[FIRST, &SECOND[..20]])
                .is_err_and(|error| error.starts_with("line 2 is not a dump line"))
        );
    }

    #[test]
    fn rows_out_of_order_and_rows_told_twice_are_refused() {
        let disorder = Err("line 2 is out of order: a row was skipped or repeated".into());
        assert_eq!(read(&[SECOND, FIRST, END]), disorder);
        assert_eq!(read(&[FIRST, FIRST, END]), disorder);
    }

    #[test]
    fn a_line_of_another_shape_is_refused() {
        assert_eq!(
            read(&[END.replace('2', "0").as_str(), FIRST]),
            Err("line 2 comes after the end".into())
        );
        let unknown = r#"{"cf":"lost","key":"","value":""}"#;
        assert_eq!(read(&[unknown]), Err("line 1 names the unknown family \"lost\"".into()));
        for hex in ["0", "0g", "ä"] {
            let line = format!(r#"{{"cf":"hooks","key":"{hex}","value":""}}"#);
            assert_eq!(
                read(&[&line]),
                Err("line 1 has a key or value that is not hex".into()),
                "{hex}"
            );
        }
    }
}
