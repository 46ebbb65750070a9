//! Pages of a listing: what must be on one, and what all of them come to.

use std::collections::BTreeSet;

use ankusa_actors::ports::{BlobEntry, BlobError};

use super::address::decoded;
use crate::blob::answer::short;
use crate::blob::xml::elements;

/// One page, as ListObjectsV2 answers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    pub entries: Vec<BlobEntry>,
    /// What asks for the page after this one; `None` for the last.
    pub next: Option<String>,
    /// What asked for this one, where the store repeats it.
    pub asked_for: Option<String>,
}

/// What has been read of a page.
#[derive(Default)]
struct Page {
    entries: Vec<BlobEntry>,
    /// Of the entry that is being read.
    key: Option<String>,
    bytes: Option<u64>,
    is_truncated: Option<bool>,
    next: Option<String>,
    asked_for: Option<String>,
    is_encoded: bool,
    wrong: Option<&'static str>,
}

/// Reads one page.
///
/// # Errors
/// `transport`: it is none, it is not whole, or it lacks what every page has.
pub fn parse_listing(xml: &[u8]) -> Result<ListPage, BlobError> {
    read(xml).map_err(|why| BlobError::Transport(format!("its listing cannot be read: {why}")))
}

fn read(xml: &[u8]) -> Result<ListPage, String> {
    let mut page = Page::default();
    elements(xml, |path, text| page.element(path, text)).map_err(|error| error.to_string())?;
    if let Some(wrong) = page.wrong {
        return Err(wrong.to_owned());
    }
    let is_truncated = page.is_truncated.ok_or("it does not say whether there is more")?;
    if is_truncated && page.next.as_deref().unwrap_or_default().is_empty() {
        return Err("there is more, and it does not say how to ask for it".to_owned());
    }
    // There are stores that say so and do not do it. A key that was never encoded gives them away; without one, each
    // means the same.
    if page.is_encoded && page.entries.iter().all(|entry| may_be_encoded(&entry.key)) {
        for entry in &mut page.entries {
            entry.key = decoded(&entry.key).ok_or("a key is encoded wrong")?;
        }
    }
    let Page { entries, next, asked_for, .. } = page;
    Ok(ListPage { entries, next: next.filter(|_| is_truncated), asked_for })
}

impl Page {
    fn element(&mut self, path: &[&str], text: &str) {
        match path {
            ["ListBucketResult", "Contents", "Key"] => self.key = Some(text.to_owned()),
            ["ListBucketResult", "Contents", "Size"] => self.bytes = text.trim().parse().ok(),
            ["ListBucketResult", "Contents"] => match (self.key.take(), self.bytes.take()) {
                (Some(key), Some(bytes)) if !key.is_empty() => {
                    self.entries.push(BlobEntry { key, bytes });
                }
                _lacking => self.wrong = Some("an object has no key or no size"),
            },
            ["ListBucketResult", "IsTruncated"] => match text.trim() {
                "true" => self.is_truncated = Some(true),
                "false" => self.is_truncated = Some(false),
                _other => self.wrong = Some("it does not say whether there is more"),
            },
            ["ListBucketResult", "NextContinuationToken"] => self.next = Some(text.to_owned()),
            ["ListBucketResult", "ContinuationToken"] => {
                self.asked_for = Some(text.to_owned()).filter(|token| !token.is_empty());
            }
            ["ListBucketResult", "EncodingType"] => self.is_encoded = text.trim() == "url",
            ["ListBucketResult", "CommonPrefixes"] => {
                self.wrong = Some("it has folders, which nobody asked for");
            }
            ["ListBucketResult", ..] => {}
            _other => self.wrong = Some("it is no listing"),
        }
    }
}

/// Whether a key could be what an encoding made.
fn may_be_encoded(key: &str) -> bool {
    let is_left_alone = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}#?".contains(c);
    key.chars().all(is_left_alone) && decoded(key).is_some()
}

/// The pages of one listing, one after the other.
#[derive(Default)]
pub struct Pages {
    entries: Vec<BlobEntry>,
    asked_for: BTreeSet<String>,
    /// What asks for the page that is to come.
    next: Option<String>,
}

impl Pages {
    /// Adds a page, and answers what asks for the next.
    ///
    /// # Errors
    /// `transport`: it is another page than was asked for, which would leave a gap; or the next one was there already, and
    /// it would go on for ever.
    pub fn add(&mut self, page: ListPage) -> Result<Option<String>, BlobError> {
        if !self.expects(&page) {
            let why = "its listing is wrong: a page came that was not asked for";
            return Err(BlobError::Transport(why.to_owned()));
        }
        self.entries.extend(page.entries);
        self.next.clone_from(&page.next);
        let Some(next) = page.next else { return Ok(None) };
        if self.asked_for.insert(next.clone()) {
            return Ok(Some(next));
        }
        Err(BlobError::Transport("its listing runs in a circle".to_owned()))
    }

    /// Whether it is the page that was asked for, as far as it says. A store may repeat nothing, or encoded, or the wrong
    /// one of the two tokens of its page.
    fn expects(&self, page: &ListPage) -> bool {
        let Some(told) = &page.asked_for else { return true };
        let is_asked = |token: &str| self.next.as_deref() == Some(token);
        is_asked(told)
            || decoded(told).is_some_and(|token| is_asked(&token))
            || page.next == page.asked_for
    }

    /// Those of them that begin with `prefix`, in the order of their keys, each once. Stores are known to read `a//` as
    /// `a/`, and to answer more than was asked for.
    ///
    /// # Errors
    /// `transport`: one is there with two sizes.
    pub fn into_listing(self, prefix: &str) -> Result<Vec<BlobEntry>, BlobError> {
        let mut entries = self.entries;
        entries.retain(|entry| entry.key.starts_with(prefix));
        entries.sort_unstable_by(|a, b| (&a.key, a.bytes).cmp(&(&b.key, b.bytes)));
        entries.dedup();
        let twice = entries.windows(2).find_map(|two| match two {
            [first, second] if first.key == second.key => Some(&first.key),
            _different => None,
        });
        match twice {
            Some(key) => {
                let key = short(&key.escape_debug().to_string());
                Err(BlobError::Transport(format!(
                    "its listing is wrong: {key} is there with two sizes"
                )))
            }
            None => Ok(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::blob::s3::parse_error;

    fn entry(key: &str, bytes: u64) -> BlobEntry {
        BlobEntry { key: key.to_owned(), bytes }
    }

    fn page(inside: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix/>{inside}</ListBucketResult>"
        )
    }

    fn contents(key: &str, bytes: u64) -> String {
        format!(
            "<Contents><Key>{key}</Key><ETag>&quot;x&quot;</ETag><Owner><ID>1</ID></Owner><Size>{bytes}</Size></Contents>"
        )
    }

    const LAST: &str = "<IsTruncated>false</IsTruncated>";

    #[test]
    fn a_page_has_its_objects_and_what_asks_for_the_next() {
        let xml = page(
            &(contents("a&amp;b+c%20d", 7)
                + &contents("e", 0)
                + "<IsTruncated>true</IsTruncated><NextContinuationToken>t&lt;+%20</NextContinuationToken>"),
        );
        let entries = vec![entry("a&b+c%20d", 7), entry("e", 0)];
        let next = Some("t<+%20".to_owned());
        assert_eq!(
            parse_listing(xml.as_bytes()),
            Ok(ListPage { entries, next, ..ListPage::default() })
        );

        let xml =
            page(&(contents("a%26b+c%2Bd%C3%A4", 7) + LAST + "<EncodingType>url</EncodingType>"));
        let entries = vec![entry("a&b c+dä", 7)];
        assert_eq!(parse_listing(xml.as_bytes()), Ok(ListPage { entries, ..ListPage::default() }));
        assert_eq!(parse_listing(page(LAST).as_bytes()), Ok(ListPage::default()));
    }

    #[test]
    fn a_store_that_says_it_encodes_and_does_not_is_found_out_by_a_key_that_never_was() {
        for telltale in ["näh", "a b", "a%zz", "a&lt;"] {
            let xml = page(
                &(contents("a+b%20c", 1)
                    + &contents(telltale, 2)
                    + LAST
                    + "<EncodingType>url</EncodingType>"),
            );
            let read = parse_listing(xml.as_bytes()).unwrap();
            assert_eq!(read.entries[0], entry("a+b%20c", 1), "{telltale}");
        }
    }

    #[test]
    fn a_page_that_lacks_what_it_must_have_is_an_error() {
        let whole = page(&(contents("a", 1) + LAST));
        let cut = whole.strip_suffix("</ListBucketResult>").unwrap();
        for (xml, why) in [
            (cut.to_owned(), "it ends before its end"),
            (page(&contents("a", 1)), "it does not say whether there is more"),
            (page("<IsTruncated>yes</IsTruncated>"), "it does not say whether there is more"),
            (
                page("<IsTruncated>true</IsTruncated>"),
                "there is more, and it does not say how to ask for it",
            ),
            (
                page(&format!("<Contents><Key>a</Key></Contents>{LAST}")),
                "an object has no key or no size",
            ),
            (
                page(&format!("<Contents><Size>1</Size></Contents>{LAST}")),
                "an object has no key or no size",
            ),
            (page(&(contents("", 1) + LAST)), "an object has no key or no size"),
            (
                page(&format!("<Contents><Key>a</Key><Size>-1</Size></Contents>{LAST}")),
                "an object has no key or no size",
            ),
            (
                page(&format!("{LAST}<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>")),
                "it has folders, which nobody asked for",
            ),
            ("<html><body>fine</body></html>".to_owned(), "it is no listing"),
        ] {
            let error = parse_listing(xml.as_bytes()).unwrap_err();
            assert_eq!(
                error,
                BlobError::Transport(format!("its listing cannot be read: {why}")),
                "{xml}"
            );
        }
        assert!(parse_listing(b"").is_err());
    }

    #[test]
    fn no_part_of_a_page_is_a_page_and_no_damage_to_one_a_panic() {
        let whole = page(
            &(contents("a&#228;%20<![CDATA[b]]>", 7) + LAST + "<EncodingType>url</EncodingType>"),
        );
        let whole = whole.into_bytes();
        assert_eq!(parse_listing(&whole).unwrap().entries, [entry("aä%20b", 7)]);
        for at in 0..whole.len() {
            assert!(parse_listing(&whole[..at]).is_err(), "{at} bytes of it");
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _any = parse_listing(&damaged);
                let _any = parse_error(&damaged);
            }
        }
    }

    #[test]
    fn pages_come_to_one_listing_in_order() {
        let mut pages = Pages::default();
        let next = |token: &str| Some(token.to_owned());
        let first = vec![entry("p/c", 1), entry("p/a", 2)];
        let first = ListPage { entries: first, next: next("1"), asked_for: None };
        let second = vec![entry("p/b", 3), entry("p/c", 1)];
        let second = ListPage { entries: second, next: None, asked_for: next("1") };
        assert_eq!(pages.add(first), Ok(next("1")));
        assert_eq!(pages.add(second), Ok(None));
        let listing = vec![entry("p/a", 2), entry("p/b", 3), entry("p/c", 1)];
        assert_eq!(pages.into_listing("p/"), Ok(listing));
    }

    #[test]
    fn pages_that_repeat_or_contradict_each_other_are_an_error() {
        let page = |token: &str| ListPage { next: Some(token.to_owned()), ..ListPage::default() };
        let mut pages = Pages::default();
        pages.add(page("1")).unwrap();
        pages.add(page("2")).unwrap();
        let circle = BlobError::Transport("its listing runs in a circle".to_owned());
        assert_eq!(pages.add(page("1")), Err(circle));

        let twice = vec![entry("p/a", 1), entry("p/a", 2)];
        let wrong = Pages { entries: twice, ..Pages::default() }.into_listing("p/");
        let why = "its listing is wrong: p/a is there with two sizes";
        assert_eq!(wrong, Err(BlobError::Transport(why.to_owned())));
    }

    #[test]
    fn a_page_that_answers_another_request_is_an_error() {
        let token = |token: &str| Some(token.to_owned());
        let told = |asked_for: Option<String>, next: Option<String>| {
            let mut pages = Pages { next: token("a+b"), ..Pages::default() };
            pages.add(ListPage { asked_for, next, ..ListPage::default() }).is_ok()
        };
        for (asked_for, next) in [
            (None, None),
            (token("a+b"), None),
            (token("a%2Bb"), token("c")),
            (token("c"), token("c")),
        ] {
            assert!(told(asked_for.clone(), next), "{asked_for:?}");
        }
        assert!(!told(token("c"), None));
        assert!(!told(token("c"), token("d")));
        let unasked = ListPage { asked_for: token("a"), ..ListPage::default() };
        assert!(Pages::default().add(unasked).is_err());

        let xml = page(&format!("{LAST}<ContinuationToken>a&lt;</ContinuationToken>"));
        assert_eq!(parse_listing(xml.as_bytes()).unwrap().asked_for, token("a<"));
        let xml = page(&format!("{LAST}<ContinuationToken/>"));
        assert_eq!(parse_listing(xml.as_bytes()).unwrap().asked_for, None);
    }

    #[test]
    fn what_was_not_asked_for_is_not_listed() {
        let entries = vec![entry("p/a", 1), entry("p//b", 1), entry("q", 1), entry("p", 1)];
        let listed = Pages { entries, ..Pages::default() }.into_listing("p//");
        assert_eq!(listed, Ok(vec![entry("p//b", 1)]));
    }
}
