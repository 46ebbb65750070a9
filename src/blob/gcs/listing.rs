//! Listings: page after page, as the JSON API writes them.

use std::collections::BTreeSet;

use ankusa_actors::ports::{BlobEntry, BlobError};
use http::Method;
use serde::Deserialize;
use tokio::time::Instant;

use super::Gcs;
use super::refusal::{About, error};
use crate::blob::answer::short;
use crate::blob::transport::Ask;

/// What is asked for of it. A size is a tenth of all that is told of an object.
const FIELDS: &str = "kind,nextPageToken,items(name,size)";

/// Every object whose key begins with `prefix`.
///
/// # Errors
/// Any page of it failed, or the pages do not make one listing.
pub(super) async fn all(
    gcs: &Gcs,
    prefix: &str,
    deadline: Instant,
) -> Result<Vec<BlobEntry>, BlobError> {
    let broken = |why: String| BlobError::Transport(format!("its listing: {why}"));
    let mut entries = Vec::new();
    let mut tokens = BTreeSet::new();
    let mut token: Option<String> = None;
    loop {
        let mut query = vec![("prefix", prefix), ("fields", FIELDS)];
        if let Some(token) = &token {
            query.push(("pageToken", token));
        }
        let ask = Ask::new(Method::GET, gcs.places.objects(&query)?);
        let answer = gcs.transport.send(gcs, &ask, deadline).await?;
        if !answer.status.is_success() {
            return Err(error(&answer, About::Bucket, gcs.transport.now_ms()));
        }
        let page = parse_listing(&answer.body).map_err(broken)?;
        entries.extend(page.entries);
        let Some(next) = page.next else { break };
        if !tokens.insert(next.clone()) {
            return Err(broken("it goes round in circles".to_owned()));
        }
        token = Some(next);
    }
    entries.sort_unstable_by(|one: &BlobEntry, other| one.key.cmp(&other.key));
    // One page in the place of another is a page that is missing.
    let mut before: Option<&BlobEntry> = None;
    for entry in &entries {
        if before.is_some_and(|before| before.key == entry.key) {
            return Err(broken(format!("{:?} comes twice", short(&entry.key))));
        }
        before = Some(entry);
    }
    Ok(entries)
}

/// A page, and what to ask for the next with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<BlobEntry>,
    /// `None` on the last.
    pub next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    kind: String,
    items: Option<Vec<Item>>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
    size: Size,
}

/// A text, as 64-bit numbers are in this API; a number, as emulators write them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Text(String),
    Number(u64),
}

/// What a page says it is. An answer of something else is no empty page.
const KIND: &str = "storage#objects";

/// Reads a page. One without objects has no `items`.
///
/// # Errors
/// What is wrong with it: nothing is left out silently.
pub fn parse_listing(body: &[u8]) -> Result<Page, String> {
    let told: Told = serde_json::from_slice(body).map_err(|error| short(&error.to_string()))?;
    if told.kind != KIND {
        return Err(format!("{:?} is no listing", short(&told.kind)));
    }
    let entries = told.items.unwrap_or_default().into_iter().map(entry);
    let next = told.next_page_token.filter(|token| !token.is_empty());
    Ok(Page { entries: entries.collect::<Result<_, _>>()?, next })
}

fn entry(item: Item) -> Result<BlobEntry, String> {
    let bytes = match item.size {
        Size::Number(bytes) => bytes,
        Size::Text(text) => {
            text.parse().map_err(|_| format!("{:?} has no size", short(&item.name)))?
        }
    };
    Ok(BlobEntry { key: item.name, bytes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn page(body: &str) -> Page {
        parse_listing(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_page_is_its_objects_and_the_token_of_the_next() {
        let body = r#"{"kind":"storage#objects","nextPageToken":"CgV4","prefixes":[],"items":[
            {"name":"a/ü \"x\"","size":"18446744073709551615","md5Hash":"x","acl":[{"a":1}]},
            {"size":0,"name":"b"}]}"#;
        let entries = vec![
            BlobEntry { key: "a/ü \"x\"".into(), bytes: u64::MAX },
            BlobEntry { key: "b".into(), bytes: 0 },
        ];
        assert_eq!(page(body), Page { entries, next: Some("CgV4".into()) });
    }

    #[test]
    fn the_last_page_has_no_token_and_may_have_no_objects() {
        for more in ["", r#","items":[],"nextPageToken":"""#, r#","items":null"#] {
            let body = format!(r#"{{"kind":"storage#objects"{more}}}"#);
            assert_eq!(page(&body), Page::default());
        }
    }

    #[test]
    fn what_is_told_of_a_page_that_is_none_is_no_longer_than_a_sentence() {
        let long = "x".repeat(9_999);
        for body in [
            format!(r#"{{"kind":"{long}"}}"#),
            format!(r#"{{"kind":"storage#objects","items":"{long}"}}"#),
            format!(r#"{{"kind":"storage#objects","items":[{{"name":"{long}","size":""}}]}}"#),
        ] {
            let why = parse_listing(body.as_bytes()).unwrap_err();
            assert!((300..350).contains(&why.len()), "{why}");
        }
    }

    #[test]
    fn a_page_that_is_not_whole_is_none() {
        let whole = r#"{"kind":"storage#objects","items":[{"name":"a","size":"1"},{"name":"b","size":"2"}]}"#;
        for end in 0..whole.len() {
            assert!(parse_listing(&whole.as_bytes()[..end]).is_err(), "{end}");
        }
        let wrong = [
            r#""items":[{"name":"a"}]"#,
            r#""items":[{"size":"1"}]"#,
            r#""items":[{"name":"a","size":"-1"}]"#,
            r#""items":[{"name":"a","size":""}]"#,
            r#""items":[{"name":"a","size":1.5}]"#,
            r#""items":{}"#,
        ];
        for more in wrong {
            let body = format!(r#"{{"kind":"storage#objects",{more}}}"#);
            assert!(parse_listing(body.as_bytes()).is_err(), "{body}");
        }
        for body in ["{}", r#"{"kind":"storage#buckets","items":[]}"#, "[]", "<html>"] {
            assert!(parse_listing(body.as_bytes()).is_err(), "{body}");
        }
    }
}
