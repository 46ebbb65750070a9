//! Paths: those of requests, and the patterns that routes are for.
//!
//! Both are cut at slashes and their segments decoded by one function, so a pattern means what a request says however
//! either is escaped. What could mean another path to somebody else (an escaped slash, `.` and `..`, an empty segment) is
//! no path.

use std::borrow::Cow;

/// Segments of the longest pattern.
pub const MAX_SEGMENTS: usize = 32;
/// Bytes of the longest pattern.
pub const MAX_PATH_BYTES: usize = 1_024;

/// What a segment of a pattern stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// Itself.
    Literal(String),
    /// Any one segment.
    Param,
    /// All that is left, at least one segment. Always the last.
    Rest,
}

/// `/hooks/:tenant/*`: literals, `:param` for one segment, `*` at the end for one or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
}

impl PathPattern {
    /// # Errors
    /// What is wrong with it, as it goes on after its name in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATH_BYTES {
            return Err(format!("must have at most {MAX_PATH_BYTES} bytes"));
        }
        let rest = text.strip_prefix('/').ok_or("must begin with /")?;
        if text.contains(['?', '#']) {
            return Err("must have no query and no fragment".to_owned());
        }
        let all: Vec<&str> = rest.split('/').collect();
        if all.len() > MAX_SEGMENTS {
            return Err(format!("must have at most {MAX_SEGMENTS} segments"));
        }
        let mut params = Vec::new();
        let mut segments = Vec::with_capacity(all.len());
        for (at, raw) in all.iter().copied().enumerate() {
            segments.push(if let Some(name) = raw.strip_prefix(':') {
                if !is_param(name) {
                    return Err(format!("has no parameter name in {raw:?}: letters, digits and _"));
                }
                if params.contains(&name) {
                    return Err(format!("names the parameter {name:?} twice"));
                }
                params.push(name);
                Segment::Param
            } else if raw == "*" {
                if at + 1 < all.len() {
                    return Err("can have * only as its last segment".to_owned());
                }
                Segment::Rest
            } else if raw.contains('*') {
                return Err("can have * only as a whole segment: write %2A for the star".to_owned());
            } else {
                literal(raw)?
            });
        }
        Ok(Self { text: text.to_owned(), segments })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

fn literal(raw: &str) -> Result<Segment, String> {
    if raw.is_empty() {
        return Err("must have no empty segment".to_owned());
    }
    if !raw.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        return Err("must be visible ASCII: escape everything else with %".to_owned());
    }
    match segment(raw) {
        Some(segment) => Ok(Segment::Literal(segment.into_owned())),
        None => Err(format!("cannot have the segment {raw:?}: %2F, . and .. are no segments")),
    }
}

fn is_param(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// The decoded segments of a request's path, which has no query; `None` where they could mean another path, or none.
pub fn segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    path.strip_prefix('/')?.split('/').map(segment).collect()
}

fn segment(raw: &str) -> Option<Cow<'_, str>> {
    let decoded = if raw.contains('%') { Cow::Owned(decoded(raw)?) } else { Cow::Borrowed(raw) };
    let is_control = |c: char| c.is_control() || c == '/';
    let is_segment = !matches!(decoded.as_ref(), "" | "." | "..") && !decoded.contains(is_control);
    is_segment.then_some(decoded)
}

fn decoded(raw: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digit =
                |byte: &u8| char::from(*byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let [high, low] = digits else { return None };
            bytes.push(digit(high)? << 4 | digit(low)?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}
