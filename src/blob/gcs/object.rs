//! What the store says of an object: in the answer to an upload, in the headers of a download.

use http::HeaderMap;
use serde_json::Value;

use crate::blob::answer::short;

/// The object an upload has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    pub bytes: u64,
    /// In base64; composite objects have none.
    pub md5: Option<String>,
    /// Which of the objects that were ever there.
    pub generation: Option<String>,
}

/// The fields of it that are asked for.
pub(super) const UPLOADED_FIELDS: &str = "name,size,md5Hash,generation";

/// Reads the answer to an upload. `None` if it names no object with a size: whoever said that is not the store.
pub fn parse_uploaded(body: &[u8]) -> Option<Uploaded> {
    let told: Value = serde_json::from_slice(body).ok()?;
    let text = |field: &str| told.get(field).and_then(Value::as_str).map(str::to_owned);
    let size = told.get("size")?;
    let bytes = size.as_u64().or_else(|| size.as_str()?.parse().ok())?;
    Some(Uploaded { bytes, md5: text("md5Hash"), generation: text("generation") })
}

/// The MD5 among the digests of a download, in base64. They come in one header or in several.
pub fn md5_of(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all("x-goog-hash").into_iter();
    let mut digests = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    digests.find_map(|digest| digest.trim().strip_prefix("md5="))
}

/// How many bytes an unfinished upload has, by the `Range` of a 308: none if there is no such header.
///
/// # Errors
/// It is not one that begins at the beginning.
pub fn persisted(range: Option<&str>) -> Result<u64, String> {
    let Some(range) = range else { return Ok(0) };
    let last = range.trim().strip_prefix("bytes=0-").and_then(|last| last.parse::<u64>().ok());
    match last {
        // A store that takes whole steps of 256 KiB never has one byte, and emulators say so of none. One that is sent
        // again does no harm: what is there already is skipped.
        Some(0) => Ok(0),
        Some(last) => Ok(last.saturating_add(1)),
        None => Err(format!("its upload has the bytes {:?}", short(range))),
    }
}

/// The first byte and the size of the object, by the `Content-Range` of a part: `bytes 2-5/10`.
pub fn content_range(told: &str) -> Option<(u64, u64)> {
    let (range, whole) = told.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _last) = range.split_once('-')?;
    Some((first.parse().ok()?, whole.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_answer_to_an_upload_is_an_object_or_nothing() {
        let whole = br#"{"name":"a","size":"12","md5Hash":"bQ==","generation":"7","acl":[]}"#;
        let uploaded =
            Uploaded { bytes: 12, md5: Some("bQ==".into()), generation: Some("7".into()) };
        assert_eq!(parse_uploaded(whole), Some(uploaded));
        let bare = Uploaded { bytes: 3, md5: None, generation: None };
        assert_eq!(parse_uploaded(br#"{"size":3}"#), Some(bare));
        for no in [&b""[..], b"{}", b"ok", b"[]", br#"{"size":"x"}"#, br#"{"size":null}"#] {
            assert_eq!(parse_uploaded(no), None);
        }
    }

    #[test]
    fn the_md5_is_found_wherever_it_stands() {
        let cases: [(&[&'static str], Option<&str>); 5] = [
            (&["crc32c=AAAA==,md5=bQ=="], Some("bQ==")),
            (&["crc32c=AAAA==", "md5=bQ=="], Some("bQ==")),
            (&["md5=bQ==, crc32c=AAAA=="], Some("bQ==")),
            (&["crc32c=AAAA=="], None),
            (&[], None),
        ];
        for (values, md5) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-goog-hash", HeaderValue::from_static(value));
            }
            assert_eq!(md5_of(&headers), md5);
        }
    }

    #[test]
    fn what_an_upload_has_is_counted_from_its_beginning() {
        assert_eq!(persisted(None), Ok(0));
        assert_eq!(persisted(Some("bytes=0-0")), Ok(0));
        assert_eq!(persisted(Some("bytes=0-262143")), Ok(262_144));
        assert_eq!(persisted(Some("bytes=0-18446744073709551615")), Ok(u64::MAX));
        for wrong in ["", "bytes=1-5", "bytes=0-", "0-5", "bytes=0-x", "bytes 0-5/6"] {
            assert!(persisted(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_says_where_it_begins_and_how_much_there_is() {
        assert_eq!(content_range("bytes 2-5/10"), Some((2, 10)));
        for no in ["", "bytes */10", "bytes 2-5/*", "bytes 2/10", "2-5/10", "bytes x-5/10"] {
            assert_eq!(content_range(no), None, "{no}");
        }
    }
}
