//! Pages of a listing.

use ankusa_actors::ports::{BlobEntry, BlobError};
use serde::Deserialize;

use super::super::answer::short;
use super::super::transport::PAGE_MAX_BYTES;

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<BlobEntry>,
    /// The name the next page begins with, if there is one.
    pub next_start: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    objects: Vec<Object>,
    #[serde(rename = "nextStartWith", default)]
    next_start_with: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    name: String,
    size: u64,
}

/// Reads a page.
///
/// # Errors
/// `transport`: it is cut off, or none. The same again may be whole.
pub fn parse_listing(body: &[u8]) -> Result<Page, BlobError> {
    let max = usize::try_from(PAGE_MAX_BYTES).unwrap_or(usize::MAX);
    if body.len() > max {
        return Err(BlobError::Transport(format!("a page of {} bytes", body.len())));
    }
    let listed: Listed = serde_json::from_slice(body)
        .map_err(|error| BlobError::Transport(short(&format!("no page of a listing: {error}"))))?;
    let entry = |object: Object| BlobEntry { key: object.name, bytes: object.size };
    let entries = listed.objects.into_iter().map(entry).collect();
    Ok(Page { entries, next_start: listed.next_start_with })
}

/// The pages so far.
#[derive(Debug, Default)]
pub struct Pages {
    entries: Vec<BlobEntry>,
    start: Option<String>,
}

impl Pages {
    /// Where the page begins that is to be asked for.
    pub fn start(&self) -> Option<&str> {
        self.start.as_deref()
    }

    /// Adds one. Whether another one is to follow.
    ///
    /// # Errors
    /// `transport`: it begins before the place it was asked for from, or the next one begins no later than this one did,
    /// or within it: it is another page than was asked for, there would be no end to it, or names would be told twice.
    pub fn add(&mut self, page: Page) -> Result<bool, BlobError> {
        let goes_back = match &page.next_start {
            Some(next) => {
                let so_far = self.start.as_deref().max(page.entries.last().map(|e| e.key.as_str()));
                so_far.is_some_and(|so_far| next.as_str() <= so_far) || next.is_empty()
            }
            None => false,
        };
        let is_before =
            |entry: &BlobEntry| self.start.as_ref().is_some_and(|from| entry.key < *from);
        if goes_back || page.entries.iter().any(is_before) {
            let why = "a page of the listing goes back to where the listing has been";
            return Err(BlobError::Transport(why.to_owned()));
        }
        self.entries.extend(page.entries);
        self.start = page.next_start;
        Ok(self.start.is_some())
    }

    /// All of them, in the order of their bytes.
    ///
    /// # Errors
    /// `transport`: one is there twice. One page in the place of another is a page that is missing.
    pub fn into_entries(mut self) -> Result<Vec<BlobEntry>, BlobError> {
        // So they come; a listing is relied upon for it.
        self.entries.sort_by(|a, b| a.key.cmp(&b.key));
        let mut before: Option<&BlobEntry> = None;
        for entry in &self.entries {
            if before.is_some_and(|before| before.key == entry.key) {
                let key = short(&entry.key);
                return Err(BlobError::Transport(format!("its listing: {key:?} comes twice")));
            }
            before = Some(entry);
        }
        Ok(self.entries)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn page(keys: &[&str], next_start: Option<&str>) -> Page {
        let entry = |key: &&str| BlobEntry { key: (*key).to_owned(), bytes: 1 };
        let next_start = next_start.map(str::to_owned);
        Page { entries: keys.iter().map(entry).collect(), next_start }
    }

    #[test]
    fn a_page_is_read_whole_or_not_at_all() {
        let whole = br#"{"objects":[{"name":"a/\u00e4","size":7,"md5":"x"}],"prefixes":[],"nextStartWith":"b"}"#;
        let expected = Page {
            entries: vec![BlobEntry { key: "a/\u{e4}".to_owned(), bytes: 7 }],
            next_start: Some("b".to_owned()),
        };
        assert_eq!(parse_listing(whole), Ok(expected));
        assert_eq!(parse_listing(br#"{"objects":[]}"#), Ok(page(&[], None)));
        assert_eq!(parse_listing(br#"{"objects":[],"nextStartWith":null}"#), Ok(page(&[], None)));
        for end in 0..whole.len() {
            assert_eq!(parse_listing(&whole[..end]).unwrap_err().as_str(), "transport", "{end}");
        }
        for none in [
            &b"{}"[..],
            br#"{"objects":null}"#,
            br#"{"objects":[{"name":"a"}]}"#,
            br#"{"objects":[{"name":"a","size":-1}]}"#,
            br#"{"objects":[{"name":null,"size":1}]}"#,
            br#"{"objects":[],"nextStartWith":1}"#,
            b"<html>",
        ] {
            let error = parse_listing(none).unwrap_err();
            assert_eq!(error.as_str(), "transport", "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn pages_go_on_to_the_end_and_never_back() {
        let mut pages = Pages::default();
        assert_eq!(pages.start(), None);
        assert_eq!(pages.add(page(&["a", "b"], Some("c"))), Ok(true));
        assert_eq!(pages.start(), Some("c"));
        // A page may be empty and still not the last.
        assert_eq!(pages.add(page(&[], Some("d"))), Ok(true));
        for back in ["", "a", "c", "d", "e"] {
            let mut pages = Pages { entries: Vec::new(), start: pages.start.clone() };
            let error = pages.add(page(&["d", "e"], Some(back))).unwrap_err();
            assert_eq!(error.as_str(), "transport", "{back}");
        }
        let mut before = Pages { entries: Vec::new(), start: pages.start.clone() };
        let error = before.add(page(&["c", "e"], None)).unwrap_err();
        assert_eq!(error.as_str(), "transport");
        assert_eq!(pages.add(page(&["d", "e"], None)), Ok(false));
        let keys: Vec<String> = pages.into_entries().unwrap().into_iter().map(|e| e.key).collect();
        assert_eq!(keys, ["a", "b", "d", "e"]);
    }

    #[test]
    fn a_name_that_comes_twice_makes_no_listing() {
        let mut pages = Pages::default();
        assert_eq!(pages.add(page(&["a", "b"], Some("c"))), Ok(true));
        assert_eq!(pages.add(page(&["c", "c"], None)), Ok(false));
        let why = "its listing: \"c\" comes twice".to_owned();
        assert_eq!(pages.into_entries(), Err(BlobError::Transport(why)));
    }

    #[test]
    fn what_is_told_of_a_page_that_is_none_is_no_longer_than_a_sentence() {
        let body = format!(r#"{{"objects":[{{"name":"a","size":"{}"}}]}}"#, "x\\n".repeat(9_999));
        assert_eq!(parse_listing(body.as_bytes()).unwrap_err().to_string().len(), 311);
    }
}
