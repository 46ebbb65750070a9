//! The addresses of the JSON API. A key is one segment of the path, whatever is in it: every byte that could mean
//! something there is encoded, slashes too.

use std::fmt::Write as _;

use ankusa_actors::ports::{BlobError, BlobKey};
use url::Url;

/// Where the things of one bucket are.
pub struct Places {
    endpoint: Url,
    bucket: String,
}

impl Places {
    /// Those of `bucket` at `endpoint`.
    pub fn new(endpoint: Url, bucket: &str) -> Self {
        Self { endpoint, bucket: encoded(bucket) }
    }

    /// The objects, to be listed.
    pub(super) fn objects(&self, query: &[(&str, &str)]) -> Result<Url, BlobError> {
        self.place(&format!("/storage/v1/b/{}/o", self.bucket), query)
    }

    /// One object.
    pub(super) fn object(&self, key: &BlobKey, query: &[(&str, &str)]) -> Result<Url, BlobError> {
        let key = encoded(key.as_str());
        self.place(&format!("/storage/v1/b/{}/o/{key}", self.bucket), query)
    }

    /// Where uploads begin.
    pub(super) fn uploads(&self, query: &[(&str, &str)]) -> Result<Url, BlobError> {
        self.place(&format!("/upload/storage/v1/b/{}/o", self.bucket), query)
    }

    /// An upload that has begun, by the `Location` of the answer. Always at our endpoint: what is configured is where
    /// credentials go, whatever host a store, or a proxy before it, takes itself for.
    ///
    /// # Errors
    /// `transport`: it is no address.
    pub fn session(&self, location: &str) -> Result<Url, BlobError> {
        let told = self.endpoint.join(location);
        let told = told.map_err(|error| BlobError::Transport(format!("its session: {error}")))?;
        let mut session = self.endpoint.clone();
        session.set_path(told.path());
        session.set_query(told.query());
        Ok(session)
    }

    fn place(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, BlobError> {
        let mut place = self.endpoint.as_str().trim_end_matches('/').to_owned();
        place.push_str(path);
        for (n, (name, value)) in query.iter().enumerate() {
            place.push(if n == 0 { '?' } else { '&' });
            place.push_str(name);
            place.push('=');
            place.push_str(&encoded(value));
        }
        Url::parse(&place).map_err(|error| BlobError::Misconfigured(format!("{place}: {error}")))
    }
}

/// Every byte but those that never mean anything.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn places(endpoint: &str) -> Places {
        Places::new(Url::parse(endpoint).unwrap(), "a-bucket")
    }

    #[test]
    fn a_key_is_one_segment_and_a_parameter_one_value() {
        let key = BlobKey::new("a/b c+d%2F?x=1&#\"'ä..~/..e").unwrap();
        let places = places("https://gcs.test");
        let object = places.object(&key, &[("alt", "media")]).unwrap();
        assert_eq!(
            object.as_str(),
            "https://gcs.test/storage/v1/b/a-bucket/o/\
             a%2Fb%20c%2Bd%252F%3Fx%3D1%26%23%22%27%C3%A4..~%2F..e?alt=media"
        );
        let listing = places.objects(&[("prefix", "a b+&"), ("pageToken", "=")]).unwrap();
        assert_eq!(
            listing.as_str(),
            "https://gcs.test/storage/v1/b/a-bucket/o?prefix=a%20b%2B%26&pageToken=%3D"
        );
    }

    #[test]
    fn an_endpoint_may_have_a_path_before() {
        for endpoint in ["http://127.0.0.1:1/gcs", "http://127.0.0.1:1/gcs/"] {
            assert_eq!(
                places(endpoint).uploads(&[]).unwrap().as_str(),
                "http://127.0.0.1:1/gcs/upload/storage/v1/b/a-bucket/o"
            );
        }
    }

    #[test]
    fn a_session_is_at_our_endpoint_whatever_it_says() {
        let places = places("https://gcs.test:8443");
        let told = [
            "https://evil.test/upload/x?upload_id=a%2Fb",
            "/upload/x?upload_id=a%2Fb",
            "https://gcs.test:8443/upload/x?upload_id=a%2Fb",
            "//evil.test/upload/x?upload_id=a%2Fb",
        ];
        for location in told {
            let session = places.session(location).unwrap();
            assert_eq!(session.as_str(), "https://gcs.test:8443/upload/x?upload_id=a%2Fb");
        }
        assert_eq!(places.session("http://[").unwrap_err().as_str(), "transport");
    }
}
