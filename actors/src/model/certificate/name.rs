//! A distinguished name as the text of RFC 4514: what `openssl x509 -noout -subject -nameopt RFC2253` prints.

use super::BadCertificate;
use super::der::{Der, Element, Tag};

/// The attributes that have a short name, by the content bytes of their identifier.
const SHORT_NAMES: [(&[u8], &str); 11] = [
    (&[0x55, 0x04, 0x03], COMMON_NAME),
    (&[0x55, 0x04, 0x05], "serialNumber"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x09], "street"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01], "emailAddress"),
];

const COMMON_NAME: &str = "CN";

/// The whole name, the most specific part first, and its common names in their order.
///
/// # Errors
/// What is no name.
pub(super) fn texts(content: &[u8]) -> Result<(String, Vec<String>), BadCertificate> {
    let (mut parts, mut common_names) = (Vec::new(), Vec::new());
    let mut sets = Der::new(content);
    while !sets.is_empty() {
        let mut set = Der::new(sets.expect(Tag::SET)?.content);
        let mut of_set = Vec::new();
        while !set.is_empty() {
            let mut pair = Der::new(set.expect(Tag::SEQUENCE)?.content);
            let (id, value) = (pair.expect(Tag::OBJECT_IDENTIFIER)?, pair.next()?);
            pair.end()?;
            let short = SHORT_NAMES.iter().find(|(bytes, _)| *bytes == id.content);
            let text = string(value);
            of_set.push(match (short, &text) {
                (Some((_, short)), Some(text)) => format!("{short}={}", escaped(text)),
                (Some((_, short)), None) => format!("{short}=#{}", hex(value.whole)),
                (None, _) => format!("{}=#{}", dotted(id.content)?, hex(value.whole)),
            });
            if short.is_some_and(|(_, short)| *short == COMMON_NAME) {
                common_names.extend(text);
            }
        }
        // Backwards as well: what prints names elsewhere does so, and both are compared as texts.
        of_set.reverse();
        parts.push(of_set.join("+"));
    }
    parts.reverse();
    Ok((parts.join(","), common_names))
}

/// The text of the string types that are in use; of others nothing.
fn string(value: Element<'_>) -> Option<String> {
    let is_text = [Tag::UTF8_STRING, Tag::PRINTABLE_STRING, Tag::IA5_STRING].contains(&value.tag);
    let text = std::str::from_utf8(value.content).ok().filter(|_| is_text)?;
    (value.tag == Tag::UTF8_STRING || text.is_ascii()).then(|| text.to_owned())
}

/// What would be read as something else has a backslash before it; what cannot be printed is in hex.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let is_last = at + character.len_utf8() == text.len();
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', character]),
            '#' if at == 0 => escaped.push_str("\\#"),
            ' ' if at == 0 || is_last => escaped.push_str("\\ "),
            control if control.is_control() => {
                let mut bytes = [0; 4];
                for byte in control.encode_utf8(&mut bytes).bytes() {
                    escaped.push_str(&format!("\\{byte:02X}"));
                }
            }
            plain => escaped.push(plain),
        }
    }
    escaped
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// An object identifier as numbers with dots.
fn dotted(content: &[u8]) -> Result<String, BadCertificate> {
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    let mut is_between = true;
    for byte in content {
        // Seven bits a byte, and no leading zeros.
        if (is_between && *byte == 0x80) || number >> 57 != 0 {
            return Err(BadCertificate::Encoding);
        }
        number = number << 7 | u64::from(byte & 0x7f);
        is_between = byte & 0x80 == 0;
        if is_between {
            numbers.push(std::mem::take(&mut number));
        }
    }
    let (first, rest) = numbers.split_first().ok_or(BadCertificate::Encoding)?;
    if !is_between {
        return Err(BadCertificate::Short);
    }
    // The first two share a byte.
    let (root, second) = match first {
        0..=39 => (0, *first),
        40..=79 => (1, first - 40),
        _more => (2, first - 80),
    };
    let rest: String = rest.iter().map(|number| format!(".{number}")).collect();
    Ok(format!("{root}.{second}{rest}"))
}
