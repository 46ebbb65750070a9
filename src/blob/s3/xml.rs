//! Reading the XML of answers: from untrusted bytes, within bounds, whole or not at all.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};

/// Elements within elements: what S3 and STS answer has four.
const DEPTH_MAX: usize = 16;

/// The text of one element, in bytes: a key has 1,024, a token some hundreds more.
const TEXT_MAX_BYTES: usize = 64 << 10;

/// The elements that are not closed yet.
#[derive(Default)]
struct Open {
    names: Vec<String>,
    texts: Vec<String>,
    root_is_over: bool,
}

/// Reads a whole document, and tells each element as it ends: the names from the root to it, and the text in it that is
/// in no element further inside.
///
/// # Errors
/// It is no document, is cut short, or exceeds a bound. Elements may have been told before.
pub(super) fn elements(xml: &[u8], mut each: impl FnMut(&[&str], &str)) -> Result<(), String> {
    let text = std::str::from_utf8(xml).map_err(|error| error.to_string())?;
    let mut reader = Reader::from_str(text);
    let mut open = Open::default();
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => open.begin(start.local_name().as_ref())?,
            Event::Empty(empty) => {
                open.begin(empty.local_name().as_ref())?;
                open.end(&mut each);
            }
            Event::End(_) => open.end(&mut each),
            Event::Text(text) => open.text(&text)?,
            Event::CData(text) => open.text(&text)?,
            Event::GeneralRef(reference) => open.text(&resolved(&reference)?)?,
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
            Event::DocType(_) => return Err("it declares a document type".to_owned()),
            Event::Eof if open.root_is_over && open.names.is_empty() => return Ok(()),
            Event::Eof => return Err("it ends too early".to_owned()),
        }
    }
}

impl Open {
    fn begin(&mut self, name: &str) -> Result<(), String> {
        if self.names.len() >= DEPTH_MAX {
            return Err(format!("its elements are nested deeper than {DEPTH_MAX}"));
        }
        if self.names.is_empty() && self.root_is_over {
            return Err("something follows its root".to_owned());
        }
        self.names.push(name.to_owned());
        self.texts.push(String::new());
        Ok(())
    }

    /// That the names of both ends are the same, the reader has seen to.
    fn end(&mut self, each: &mut impl FnMut(&[&str], &str)) {
        let path: Vec<&str> = self.names.iter().map(String::as_str).collect();
        each(&path, &self.texts.pop().unwrap_or_default());
        self.names.pop();
        self.root_is_over = self.names.is_empty();
    }

    fn text(&mut self, more: &str) -> Result<(), String> {
        match self.texts.last_mut() {
            Some(text) if text.len() + more.len() <= TEXT_MAX_BYTES => {
                text.push_str(more);
                Ok(())
            }
            Some(_) => Err(format!("an element's text is longer than {TEXT_MAX_BYTES} bytes")),
            None if more.trim_start_matches('\u{feff}').trim().is_empty() => Ok(()),
            None => Err("there is text outside of its root".to_owned()),
        }
    }
}

/// What stands for `&...;`.
fn resolved(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(c) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(c.to_string());
    }
    let known = resolve_xml_entity(reference);
    known.map(str::to_owned).ok_or_else(|| "it has an unknown entity".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(xml: &str) -> Result<Vec<String>, String> {
        let mut told = Vec::new();
        elements(xml.as_bytes(), |path, text| told.push(format!("{}={text}", path.join("/"))))?;
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
        assert!(elements(b"<a>\xff</a>", |_, _| {}).is_err());
    }
}
