//! One page of a listing: names, sizes, and where the next page begins.

use ankusa_actors::ports::BlobEntry;

use super::percent::decoded;
use crate::blob::xml::{Element, XmlError, read};

/// One answer of List Blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order of the answer.
    pub entries: Vec<BlobEntry>,
    /// The marker of the page after this one; `None` for the last.
    pub next: Option<String>,
    /// The marker this page was asked for with, which the service repeats.
    pub this: Option<String>,
}

/// Reads a page, whole. The folders an account with a hierarchical namespace lists among its objects are left out.
///
/// # Errors
/// It is none: a page that is cut off, or lacks the name or size of an object, is not a shorter one.
pub fn parse_listing(document: &[u8]) -> Result<Page, XmlError> {
    let mut reading = Reading::default();
    read(document, |element| reading.ended(element))?;
    if !reading.has_objects {
        return Err(XmlError::Unexpected("it is no listing"));
    }
    let next = reading.next.ok_or(XmlError::Unexpected("it does not say whether it goes on"))?;
    let next = Some(next).filter(|marker| !marker.is_empty());
    Ok(Page { entries: reading.entries, next, this: reading.this })
}

#[derive(Default)]
struct Reading {
    entries: Vec<BlobEntry>,
    has_objects: bool,
    next: Option<String>,
    this: Option<String>,
    /// Of the object that is being read.
    key: Option<String>,
    bytes: Option<u64>,
    is_folder: bool,
}

impl Reading {
    fn ended(&mut self, element: &Element<'_>) -> Result<(), XmlError> {
        match element.path {
            ["EnumerationResults", "Blobs"] => self.has_objects = true,
            ["EnumerationResults", "Marker"] => {
                self.this = Some(element.text.to_owned()).filter(|marker| !marker.is_empty());
            }
            ["EnumerationResults", "NextMarker"] => self.next = Some(element.text.to_owned()),
            ["EnumerationResults", "Blobs", "Blob"] => self.object_ended()?,
            ["EnumerationResults", "Blobs", "Blob", "Name"] => {
                let name = element.text.to_owned();
                let name = if element.is_encoded { decoded(&name) } else { Some(name) };
                self.key = Some(name.ok_or(XmlError::Unexpected("a name is encoded wrongly"))?);
            }
            ["EnumerationResults", "Blobs", "Blob", "Properties", "Content-Length"] => {
                let bytes = element.text.parse();
                self.bytes = Some(bytes.map_err(|_| XmlError::Unexpected("a size is no number"))?);
            }
            ["EnumerationResults", "Blobs", "Blob", "Properties", "ResourceType"] => {
                self.is_folder = element.text == "directory";
            }
            _other => {}
        }
        Ok(())
    }

    fn object_ended(&mut self) -> Result<(), XmlError> {
        let (key, bytes) = (self.key.take(), self.bytes.take());
        if std::mem::take(&mut self.is_folder) {
            return Ok(());
        }
        let key = key.filter(|key| !key.is_empty());
        let key = key.ok_or(XmlError::Unexpected("an object has no name"))?;
        let bytes = bytes.ok_or(XmlError::Unexpected("an object has no size"))?;
        self.entries.push(BlobEntry { key, bytes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// As the service writes it, with a byte order mark and all.
    fn page(objects: &str, rest: &str) -> String {
        format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults \
             ServiceEndpoint=\"https://myaccount.blob.core.windows.net/\" ContainerName=\"c1\">\
             <Prefix>a&amp;b/</Prefix><Marker>1!m&#43;</Marker><MaxResults>4</MaxResults><Blobs>{objects}</Blobs>{rest}\
             </EnumerationResults>"
        )
    }

    fn object(name: &str, bytes: &str) -> String {
        format!(
            "<Blob>{name}<Properties><Creation-Time>Mon, 30 Nov 2026 10:00:00 GMT</Creation-Time>\
             <Etag>0x8CBFF45D8A29A19</Etag><Content-Length>{bytes}</Content-Length>\
             <Content-MD5>sQqNsWTgdUEFt6mb5y4/5Q==</Content-MD5><BlobType>BlockBlob</BlobType>\
             </Properties><OrMetadata /></Blob>"
        )
    }

    fn entry(key: &str, bytes: u64) -> BlobEntry {
        BlobEntry { key: key.to_owned(), bytes }
    }

    #[test]
    fn a_page_has_every_name_as_it_is_its_size_and_the_next_marker() {
        let objects = object("<Name>a&amp;b/x &lt;1&gt; %41+</Name>", "0")
            + &object(
                "<Name Encoded=\"true\">a%26b/%EF%BF%BF+%2541</Name>",
                "18446744073709551615",
            )
            + &object("<Name>a&amp;b/ </Name>", "7");
        let first = page(&objects, "<NextMarker>2!72!MDAw&#43;--</NextMarker>");
        let entries = vec![
            entry("a&b/x <1> %41+", 0),
            entry("a&b/\u{ffff}+%41", u64::MAX),
            entry("a&b/ ", 7),
        ];
        let next = Some("2!72!MDAw+--".to_owned());
        let this = Some("1!m+".to_owned());
        assert_eq!(parse_listing(first.as_bytes()), Ok(Page { entries, next, this: this.clone() }));
        for end in ["<NextMarker />", "<NextMarker></NextMarker>"] {
            let none = Page { this: this.clone(), ..Page::default() };
            assert_eq!(parse_listing(page("", end).as_bytes()), Ok(none));
        }
    }

    #[test]
    fn a_page_says_which_it_is_or_nothing() {
        let this = |marker: &str| {
            let page = page("", "<NextMarker/>").replace("<Marker>1!m&#43;</Marker>", marker);
            parse_listing(page.as_bytes()).unwrap().this
        };
        assert_eq!(this("<Marker>a&lt;</Marker>"), Some("a<".to_owned()));
        assert_eq!((this("<Marker/>"), this("")), (None, None));
    }

    #[test]
    fn folders_are_no_objects() {
        let folder = "<Blob><Name>a</Name><Properties><Content-Length>0</Content-Length>\
                      <ResourceType>directory</ResourceType></Properties></Blob>";
        let file = "<Blob><Name>a/b</Name><Properties><ResourceType>file</ResourceType>\
                    <Content-Length>1</Content-Length></Properties></Blob>";
        let page = page(&format!("{folder}{file}{folder}"), "<NextMarker/>");
        let entries = vec![entry("a/b", 1)];
        assert_eq!(parse_listing(page.as_bytes()).unwrap().entries, entries);
    }

    #[test]
    fn half_a_page_is_an_error_wherever_it_is_cut() {
        let whole = page(&object("<Name>a</Name>", "1"), "<NextMarker/>");
        assert!(parse_listing(whole.as_bytes()).is_ok());
        for end in 0..whole.len() {
            assert!(parse_listing(&whole.as_bytes()[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn what_lacks_something_is_no_page() {
        let lacking = [
            (page("", ""), "it does not say whether it goes on"),
            (page(&object("", "1"), "<NextMarker/>"), "an object has no name"),
            (page(&object("<Name/>", "1"), "<NextMarker/>"), "an object has no name"),
            (page("<Blob><Name>a</Name></Blob>", "<NextMarker/>"), "an object has no size"),
            (page(&object("<Name>a</Name>", "-1"), "<NextMarker/>"), "a size is no number"),
            (page(&object("<Name>a</Name>", ""), "<NextMarker/>"), "a size is no number"),
            (
                page(&object("<Name Encoded=\"true\">%4</Name>", "1"), "<NextMarker/>"),
                "a name is encoded wrongly",
            ),
            ("<EnumerationResults><NextMarker/></EnumerationResults>".into(), "it is no listing"),
            ("<html><NextMarker/></html>".into(), "it is no listing"),
        ];
        for (document, why) in lacking {
            assert_eq!(parse_listing(document.as_bytes()), Err(XmlError::Unexpected(why)));
        }
    }
    #[test]
    fn no_byte_that_is_another_does_more_than_be_refused_or_read() {
        let objects =
            object("<Name>a&amp;b</Name>", "1") + &object("<Name Encoded=\"true\">%26</Name>", "2");
        let whole = page(&objects, "<NextMarker>m&#43;</NextMarker>").into_bytes();
        for at in 0..whole.len() {
            for byte in *b"\0 <>/&;%\"=1a\xff" {
                let mut other = whole.clone();
                other[at] = byte;
                if let Ok(page) = parse_listing(&other) {
                    assert!(page.entries.len() <= 2);
                }
            }
        }
    }
}
