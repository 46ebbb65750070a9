//! Reading the XML of answers: from untrusted bytes, within bounds, whole or not at all.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::answer::short;

/// Elements within elements: twice what any store writes.
const DEPTH_MAX: usize = 16;

/// The text of one element, in bytes: a key has 1,024, a token some hundreds more.
const TEXT_MAX_BYTES: usize = 64 << 10;

/// Why a document is none, or not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it is no XML: {0}")]
    Malformed(String),
    #[error("its elements are nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("an element's text is longer than {TEXT_MAX_BYTES} bytes")]
    TooLong,
    #[error("it ends before its end")]
    CutOff,
    /// It is XML, and not what it should be.
    #[error("{0}")]
    Unexpected(&'static str),
}

/// An element that has ended.
pub(super) struct Element<'a> {
    /// The names from the root to itself, without their prefixes.
    pub path: &'a [&'a str],
    /// The text in it that is in no element further inside.
    pub text: &'a str,
    /// It has `Encoded="true"`, as Azure says that the text is percent-encoded.
    pub is_encoded: bool,
}

/// The elements that are not closed yet.
#[derive(Default)]
struct Open {
    names: Vec<String>,
    texts: Vec<(String, bool)>,
    root_is_over: bool,
}

/// Reads a whole document, and tells each element as it ends.
///
/// # Errors
/// It is no document, is cut short, or exceeds a bound; or what `ended` makes of it. Elements may have been told before.
pub(super) fn read(
    document: &[u8],
    mut ended: impl FnMut(&Element<'_>) -> Result<(), XmlError>,
) -> Result<(), XmlError> {
    let text = std::str::from_utf8(document).map_err(|_| XmlError::NotUtf8)?;
    let mut reader = Reader::from_str(text);
    let mut open = Open::default();
    loop {
        match reader.read_event().map_err(malformed)? {
            Event::Start(start) => open.begin(&start)?,
            Event::Empty(empty) => {
                open.begin(&empty)?;
                open.end(&mut ended)?;
            }
            Event::End(_) => open.end(&mut ended)?,
            Event::Text(text) => open.text(&text.xml10_content())?,
            Event::CData(text) => open.text(&text.xml10_content())?,
            Event::GeneralRef(reference) => open.text(&resolved(&reference)?)?,
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
            Event::DocType(_) => return Err(XmlError::Unexpected("it declares a type of its own")),
            Event::Eof if open.root_is_over && open.names.is_empty() => return Ok(()),
            Event::Eof => return Err(XmlError::CutOff),
        }
    }
}

/// The same for who looks at names and texts alone.
///
/// # Errors
/// As [`read`].
pub fn elements(document: &[u8], mut each: impl FnMut(&[&str], &str)) -> Result<(), XmlError> {
    read(document, |element| {
        each(element.path, element.text);
        Ok(())
    })
}

impl Open {
    fn begin(&mut self, start: &BytesStart<'_>) -> Result<(), XmlError> {
        if self.names.len() >= DEPTH_MAX {
            return Err(XmlError::TooDeep);
        }
        if self.names.is_empty() && self.root_is_over {
            return Err(XmlError::Unexpected("it has two roots"));
        }
        self.names.push(start.local_name().as_ref().to_owned());
        self.texts.push((String::new(), says_encoded(start)?));
        Ok(())
    }

    /// That the names of both ends are the same, the reader has seen to.
    fn end(
        &mut self,
        ended: &mut impl FnMut(&Element<'_>) -> Result<(), XmlError>,
    ) -> Result<(), XmlError> {
        let path: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let (text, is_encoded) = self.texts.pop().unwrap_or_default();
        ended(&Element { path: &path, text: &text, is_encoded })?;
        self.names.pop();
        self.root_is_over = self.names.is_empty();
        Ok(())
    }

    fn text(&mut self, more: &str) -> Result<(), XmlError> {
        match self.texts.last_mut() {
            Some((text, _)) if text.len() + more.len() <= TEXT_MAX_BYTES => {
                text.push_str(more);
                Ok(())
            }
            Some(_) => Err(XmlError::TooLong),
            // Some begin their documents with a byte order mark.
            None if more.trim_start_matches('\u{feff}').trim().is_empty() => Ok(()),
            None => Err(XmlError::Unexpected("there is text outside of its root")),
        }
    }
}

/// It repeats names, which may be long.
fn malformed(error: impl std::fmt::Display) -> XmlError {
    XmlError::Malformed(short(&error.to_string()))
}

fn says_encoded(start: &BytesStart<'_>) -> Result<bool, XmlError> {
    for attribute in start.attributes() {
        let attribute = attribute.map_err(malformed)?;
        if attribute.key.into_inner() == "Encoded" {
            return Ok(&*attribute.value == "true");
        }
    }
    Ok(false)
}

/// What stands for `&...;`.
fn resolved(reference: &BytesRef<'_>) -> Result<String, XmlError> {
    if let Some(character) = reference.resolve_char_ref().map_err(malformed)? {
        return Ok(character.to_string());
    }
    let known = resolve_predefined_entity(reference);
    known.map(str::to_owned).ok_or(XmlError::Unexpected("it refers to what it does not define"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn told(xml: &str) -> Result<Vec<String>, XmlError> {
        let mut told = Vec::new();
        read(xml.as_bytes(), |element| {
            let sign = if element.is_encoded { "%" } else { "=" };
            told.push(format!("{}{sign}{}", element.path.join("/"), element.text));
            Ok(())
        })?;
        Ok(told)
    }

    #[test]
    fn elements_are_told_as_they_end_with_their_own_text() {
        let xml = "\u{feff}\n  <?xml version=\"1.0\"?><!-- a --><n:a xmlns:n=\"x\" b='c'>1<b>&lt;&#228;&#x1;<![CDATA[<&]]></b>2<c/> </n:a>\n";
        assert_eq!(told(xml), Ok(vec!["a/b=<ä\u{1}<&".into(), "a/c=".into(), "a=12 ".into()]));
    }

    #[test]
    fn what_is_no_whole_document_is_an_error() {
        let deep = "<a>".repeat(DEPTH_MAX + 1) + &"</a>".repeat(DEPTH_MAX + 1);
        let long = format!("<a>{}</a>", "x".repeat(TEXT_MAX_BYTES + 1));
        for xml in [
            "",
            " ",
            "<a>",
            "<a><b></a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "text",
            "<a/>text",
            "<a>&nbsp;</a>",
            "<a>&#0;</a>",
            "<a>&#xd800;</a>",
            "<a>&amp</a>",
            "<!DOCTYPE a><a/>",
            "<a",
            "<a b=",
            "<a><![CDATA[",
            "<a><!--",
            &deep,
            &long,
        ] {
            assert!(told(xml).is_err(), "{}", &xml[..xml.len().min(60)]);
        }
        assert!(elements(b"<a>\xff</a>", |_, _| {}) == Err(XmlError::NotUtf8));
    }

    #[test]
    fn whatever_is_cut_off_is_an_error_at_every_byte() {
        let whole = "<?xml version=\"1.0\"?><Error><Code>a&amp;b</Code><Name/></Error>";
        assert!(told(whole).is_ok());
        for end in 0..whole.len() {
            assert!(told(&whole[..end]).is_err(), "{end}");
        }
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bb\">]><a>&b;</a>";
        assert_eq!(told(bomb), Err(XmlError::Unexpected("it declares a type of its own")));
    }

    #[test]
    fn a_name_is_not_repeated_beyond_a_sentence() {
        let xml = format!("<a></{}>", "b".repeat(9_999));
        let error = elements(xml.as_bytes(), |_, _| {}).unwrap_err().to_string();
        assert_eq!(error.len(), "it is no XML: ".len() + 300);
        assert!(error.contains("</bbb"), "{error}");
        let lines = elements(b"<a></b\nc>", |_, _| {}).unwrap_err().to_string();
        assert!(!lines.contains('\n'), "{lines}");
    }

    #[test]
    fn what_is_said_to_be_encoded_is_told_and_so_is_what_whoever_reads_makes_of_it() {
        let document = "<a><b Encoded=\"true\">x</b><b Encoded='false'/><b/></a>";
        let expected = ["a/b%x", "a/b=", "a/b=", "a="].map(str::to_owned);
        assert_eq!(told(document), Ok(expected.into()));
        let no = XmlError::Unexpected("no");
        assert_eq!(read(b"<a/>", |_| Err(no.clone())), Err(no.clone()));
    }
}
