//! Terms as a person reads them, in the notation the documented system's own texts use.

use std::fmt::{self, Write};

use super::Term;

impl Term<'_> {
    /// The term as text, cut off after `max_bytes` (at a whole character) with an ellipsis.
    pub fn text(&self, max_bytes: usize) -> String {
        let mut out = Bounded { text: String::new(), max_bytes };
        // The only error is that the bound was reached, and then the rest is not even walked.
        if write!(out, "{self}").is_err() {
            out.text.push('…');
        }
        out.text
    }
}

struct Bounded {
    text: String,
    max_bytes: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = self.max_bytes - self.text.len();
        let ends = (0..=room.min(piece.len())).rev();
        let fitting = ends.into_iter().find(|end| piece.is_char_boundary(*end)).unwrap_or(0);
        self.text.push_str(piece.get(..fitting).unwrap_or_default());
        if fitting == piece.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::BigInt { negative, magnitude } => big(f, *negative, magnitude),
            // Debug, because it keeps the point of a whole number.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Atom(name) => atom(f, name),
            Self::Binary(bytes) => binary(f, bytes),
            Self::Bits { bytes, bits } => bitstring(f, bytes, *bits),
            Self::List(items) => list(f, items),
            Self::ImproperList(list) => {
                f.write_str("[")?;
                joined(f, list.0.iter())?;
                write!(f, " | {}]", list.1)
            }
            Self::Tuple(elements) => {
                f.write_str("{")?;
                joined(f, elements.iter())?;
                f.write_str("}")
            }
            Self::Map(pairs) => {
                f.write_str("%{")?;
                for (at, (key, value)) in pairs.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    match key.as_atom().filter(|name| is_plain(name)) {
                        Some(name) => write!(f, "{name}: {value}")?,
                        None => write!(f, "{key} => {value}")?,
                    }
                }
                f.write_str("}")
            }
            Self::Opaque(_) => f.write_str("#Opaque<>"),
        }
    }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = impl fmt::Display>,
) -> fmt::Result {
    for (at, item) in items.enumerate() {
        write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

/// Decimal as far as a machine integer goes, then hexadecimal: dividing a foreign number of megabytes takes for ever.
fn big(f: &mut fmt::Formatter<'_>, negative: bool, magnitude: &[u8]) -> fmt::Result {
    f.write_str(if negative { "-" } else { "" })?;
    let mut wide = [0; 16];
    if let Some(low) = wide.get_mut(..magnitude.len()) {
        low.copy_from_slice(magnitude);
        return write!(f, "{}", u128::from_le_bytes(wide));
    }
    f.write_str("0x")?;
    magnitude.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn atom(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    match name {
        "nil" | "true" | "false" => f.write_str(name),
        name if is_plain(name) => write!(f, ":{name}"),
        name => match name.strip_prefix("Elixir.") {
            Some(module) if module.split('.').all(is_plain) => f.write_str(module),
            Some(_) | None => write!(f, ":{name:?}"),
        },
    }
}

/// Whether an atom needs no quotes.
fn is_plain(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@'))
}

fn binary(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) => write!(f, "{text:?}"),
        Err(_) => {
            f.write_str("<<")?;
            joined(f, bytes.iter())?;
            f.write_str(">>")
        }
    }
}

fn bitstring(f: &mut fmt::Formatter<'_>, bytes: &[u8], bits: u8) -> fmt::Result {
    let Some((last, whole)) = bytes.split_last() else { return f.write_str("<<>>") };
    f.write_str("<<")?;
    whole.iter().try_for_each(|byte| write!(f, "{byte}, "))?;
    // `bits` is 1 to 7, so the shift is too.
    write!(f, "{}::size({bits})>>", last >> (8 - bits))
}

/// A list of printable characters is the text that an Erlang function answered.
fn list(f: &mut fmt::Formatter<'_>, items: &[Term<'_>]) -> fmt::Result {
    let printable = |item: &Term<'_>| {
        let code = if let Term::Int(code) = item { u8::try_from(*code).ok() } else { None };
        code.filter(|byte| (b' '..=b'~').contains(byte))
    };
    let text: Option<String> = items.iter().map(|item| printable(item).map(char::from)).collect();
    match text {
        Some(text) if !text.is_empty() => write!(f, "~c{text:?}"),
        Some(_) | None => {
            f.write_str("[")?;
            joined(f, items.iter())?;
            f.write_str("]")
        }
    }
}
