//! Documents of the Blob service, read from their first byte to their last: one that is cut off is none.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// How many elements may lie within each other: twice what the service writes.
const DEPTH_MAX: usize = 16;

/// The elements anybody looks at. All others are read over.
const KNOWN: [&str; 11] = [
    "EnumerationResults",
    "Blobs",
    "Blob",
    "Name",
    "Properties",
    "Content-Length",
    "ResourceType",
    "NextMarker",
    "Error",
    "Code",
    "Message",
];

/// Why a document is none, or not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it is no XML: {0}")]
    Malformed(String),
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("it ends before its end")]
    CutOff,
    /// It is XML, and not what it should be.
    #[error("{0}")]
    Unexpected(&'static str),
}

/// An element that has ended.
pub(super) struct Element<'a> {
    /// From the root to itself; empty names for those that are not known.
    pub path: &'a [&'static str],
    /// The text after the last element within it.
    pub text: &'a str,
    /// It has `Encoded="true"`: the text is percent-encoded.
    pub is_encoded: bool,
}

/// Calls `ended` for each element as it ends.
pub(super) fn read(
    document: &[u8],
    mut ended: impl FnMut(&Element<'_>) -> Result<(), XmlError>,
) -> Result<(), XmlError> {
    let document = std::str::from_utf8(document).map_err(|_| XmlError::NotUtf8)?;
    // The service begins its documents with a byte order mark.
    let mut reader = Reader::from_str(document.strip_prefix('\u{feff}').unwrap_or(document));
    let mut path: Vec<&'static str> = Vec::new();
    let (mut text, mut is_encoded, mut is_over) = (String::new(), false, false);
    loop {
        match reader.read_event().map_err(|error| XmlError::Malformed(error.to_string()))? {
            Event::Start(_) | Event::Empty(_) if is_over => {
                return Err(XmlError::Unexpected("it has two roots"));
            }
            Event::Start(start) => {
                if path.len() == DEPTH_MAX {
                    return Err(XmlError::TooDeep);
                }
                path.push(known(&start));
                text.clear();
                is_encoded = says_encoded(&start)?;
            }
            Event::Empty(start) => {
                path.push(known(&start));
                ended(&Element { path: &path, text: "", is_encoded: false })?;
                path.pop();
                text.clear();
                is_over = path.is_empty();
            }
            Event::End(_) => {
                ended(&Element { path: &path, text: &text, is_encoded })?;
                path.pop();
                text.clear();
                is_encoded = false;
                is_over = path.is_empty();
            }
            Event::Text(more) => text.push_str(&more.xml10_content()),
            Event::CData(more) => text.push_str(&more.xml10_content()),
            Event::GeneralRef(reference) => referred(&reference, &mut text)?,
            Event::DocType(_) => return Err(XmlError::Unexpected("it declares a type of its own")),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof if is_over && path.is_empty() => return Ok(()),
            Event::Eof => return Err(XmlError::CutOff),
        }
    }
}

fn known(start: &BytesStart<'_>) -> &'static str {
    let name = start.name().into_inner();
    KNOWN.into_iter().find(|known| *known == name).unwrap_or_default()
}

fn says_encoded(start: &BytesStart<'_>) -> Result<bool, XmlError> {
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| XmlError::Malformed(error.to_string()))?;
        if attribute.key.into_inner() == "Encoded" {
            return Ok(&*attribute.value == "true");
        }
    }
    Ok(false)
}

/// `&lt;`, `&#10;`: no others are defined.
fn referred(reference: &BytesRef<'_>, text: &mut String) -> Result<(), XmlError> {
    let malformed = |error: quick_xml::Error| XmlError::Malformed(error.to_string());
    if let Some(character) = reference.resolve_char_ref().map_err(malformed)? {
        text.push(character);
        return Ok(());
    }
    let entity = resolve_predefined_entity(reference);
    text.push_str(entity.ok_or(XmlError::Unexpected("it refers to what it does not define"))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn elements(document: &[u8]) -> Result<Vec<(String, String, bool)>, XmlError> {
        let mut elements = Vec::new();
        read(document, |element| {
            let (path, text) = (element.path.join("/"), element.text.to_owned());
            elements.push((path, text, element.is_encoded));
            Ok(())
        })?;
        Ok(elements)
    }

    #[test]
    fn elements_are_told_as_they_end_with_their_text_as_it_was_meant() {
        let document = "\u{feff}<?xml version=\"1.0\"?>\n<Error><!-- why --><Code> A&amp;B&#x20;</Code>\
            <Other><Message Encoded=\"true\">a<![CDATA[<b>]]></Message></Other><Name/></Error>\n";
        let expected = [
            ("Error/Code", " A&B ", false),
            ("Error//Message", "a<b>", true),
            ("Error/", "", false),
            ("Error/Name", "", false),
            ("Error", "", false),
        ];
        let expected = expected.map(|(path, text, is)| (path.to_owned(), text.to_owned(), is));
        assert_eq!(elements(document.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn whatever_is_cut_off_or_no_document_is_an_error() {
        let whole = b"<?xml version=\"1.0\"?><Error><Code>a&amp;b</Code><Name/></Error>";
        assert!(elements(whole).is_ok());
        for end in 0..whole.len() {
            assert!(elements(&whole[..end]).is_err(), "{end}");
        }
        let deep = "<a>".repeat(17) + &"</a>".repeat(17);
        assert_eq!(elements(deep.as_bytes()), Err(XmlError::TooDeep));
        assert_eq!(elements(b"<a>\xff</a>"), Err(XmlError::NotUtf8));
        for wrong in
            ["", "text", "<a/><b/>", "<a></a><b></b>", "<a></b>", "<a>&b;</a>", "<a>&#0;</a>"]
        {
            assert!(elements(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bb\">]><a>&b;</a>";
        assert_eq!(
            elements(bomb.as_bytes()),
            Err(XmlError::Unexpected("it declares a type of its own"))
        );
    }
}
