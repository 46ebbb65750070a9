//! Where a bucket is, and how the names of objects are written into addresses: each character once, as the signature
//! wants it, so that what is signed is what is sent.

use http::HeaderValue;
use url::{Host, Url};

use super::spec::S3Spec;
use crate::blob::spec_error::BlobSpecError;

/// The address of one bucket.
#[derive(Clone, Debug)]
pub(super) struct Address {
    base: Url,
    /// The path up to the bucket or, where the host names it, up to the keys; without a slash at its end.
    path: String,
    host: HeaderValue,
}

impl Address {
    /// # Errors
    /// The endpoint or the bucket is none.
    pub(super) fn new(spec: &S3Spec) -> Result<Self, BlobSpecError> {
        let endpoint = match &spec.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => service("s3", &spec.region),
        };
        let mut base =
            endpoint_url(&endpoint).map_err(|text| BlobSpecError::new("endpoint", text))?;
        check_bucket(&spec.bucket).map_err(|text| BlobSpecError::new("bucket", text))?;
        let mut path = reencoded(base.path().trim_end_matches('/'));
        if spec.path_style {
            path.push('/');
            path.push_str(&encoded(&spec.bucket, Slash::Kept));
        } else {
            let Some(Host::Domain(domain)) = base.host() else {
                let text =
                    "false needs an endpoint with a name: no bucket goes in front of an address";
                return Err(BlobSpecError::new("path_style", text));
            };
            let named = format!("{}.{domain}", spec.bucket);
            if base.set_host(Some(&named)).is_err() || base.host_str() != Some(named.as_str()) {
                let text =
                    format!("false needs a bucket that a host can be named after, {named} is none");
                return Err(BlobSpecError::new("path_style", text));
            }
        }
        let host = host_header(&base).map_err(|text| BlobSpecError::new("endpoint", text))?;
        Ok(Self { base, path, host })
    }

    /// Scheme, host and port.
    pub(super) const fn endpoint(&self) -> &Url {
        &self.base
    }

    /// The `Host` of every request.
    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(super) fn of_key(&self, key: &str, query: &[(&str, &str)]) -> Url {
        self.at(&format!("{}/{}", self.path, encoded(key, Slash::Kept)), query)
    }

    /// The bucket itself.
    pub(super) fn of_bucket(&self, query: &[(&str, &str)]) -> Url {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        self.at(path, query)
    }

    fn at(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| {
                format!("{}={}", encoded(name, Slash::Encoded), encoded(value, Slash::Encoded))
            })
            .collect();
        url.set_query(Some(query.join("&")).filter(|query| !query.is_empty()).as_deref());
        url
    }
}

/// Where AWS has a service in a region.
pub(super) fn service(name: &str, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{name}.{region}.amazonaws.com{suffix}")
}

/// # Errors
/// Why it is none.
pub(super) fn endpoint_url(endpoint: &str) -> Result<Url, String> {
    let url = Url::parse(endpoint).map_err(|error| format!("'{endpoint}' is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("'{endpoint}' does not begin with http:// or https:// and a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name or a password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("'{endpoint}' has more than a path behind its host"));
    }
    Ok(url)
}

/// A port is named only where it is not the scheme's own, by whoever sends it and by whoever checks it.
pub(super) fn host_header(url: &Url) -> Result<HeaderValue, String> {
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    HeaderValue::try_from(&host).map_err(|_| format!("'{host}' is no host"))
}

/// What S3 takes, and what it took once.
fn check_bucket(bucket: &str) -> Result<(), &'static str> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    if bucket.is_empty() {
        return Err("is missing");
    }
    if !(3..=255).contains(&bucket.len())
        || !bucket.bytes().all(fits)
        || bucket.starts_with(['.', '-'])
        || bucket.contains("..")
    {
        return Err("is no name of a bucket: 3 to 255 letters, digits, dots and dashes");
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slash {
    Kept,
    Encoded,
}

/// Everything but letters, digits and `-._~` as `%XX`.
pub(super) fn encoded(text: &str, slash: Slash) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            b'/' if slash == Slash::Kept => encoded.push('/'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// The other way; `None` for what is not encoded right. A `+` is a space: so listings have it, where a plus is `%2B`.
pub(super) fn decoded(text: &str) -> Option<String> {
    percent_decoded(text, b' ')
}

fn percent_decoded(text: &str, plus: u8) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => nibble(bytes.next()?)? << 4 | nibble(bytes.next()?)?,
            b'+' => plus,
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

fn nibble(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

/// A path somebody wrote, with each character as the signature has it.
fn reencoded(path: &str) -> String {
    percent_decoded(path, b'+').map_or_else(|| path.to_owned(), |path| encoded(&path, Slash::Kept))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn address(endpoint: Option<&str>, bucket: &str, path_style: bool) -> Result<Address, String> {
        let (endpoint, bucket) = (endpoint.map(str::to_owned), bucket.to_owned());
        let spec = S3Spec { bucket, endpoint, path_style, ..S3Spec::default() };
        Address::new(&spec).map_err(|error| error.to_string())
    }

    fn shown(address: &Address) -> (String, String, String) {
        let host = address.host().to_str().unwrap().to_owned();
        (address.of_key("a/b", &[]).into(), address.of_bucket(&[("list-type", "2")]).into(), host)
    }

    #[test]
    fn a_bucket_is_in_the_path_unless_the_configuration_says_otherwise() {
        for (endpoint, bucket, path_style, key, list, host) in [
            (
                None,
                "my.bucket",
                true,
                "https://s3.us-east-1.amazonaws.com/my.bucket/a/b",
                "https://s3.us-east-1.amazonaws.com/my.bucket?list-type=2",
                "s3.us-east-1.amazonaws.com",
            ),
            (
                None,
                "bucket",
                false,
                "https://bucket.s3.us-east-1.amazonaws.com/a/b",
                "https://bucket.s3.us-east-1.amazonaws.com/?list-type=2",
                "bucket.s3.us-east-1.amazonaws.com",
            ),
            (
                Some("http://localhost:9000/"),
                "bucket",
                true,
                "http://localhost:9000/bucket/a/b",
                "http://localhost:9000/bucket?list-type=2",
                "localhost:9000",
            ),
            (
                Some("http://[::1]:9000"),
                "bucket",
                true,
                "http://[::1]:9000/bucket/a/b",
                "http://[::1]:9000/bucket?list-type=2",
                "[::1]:9000",
            ),
            (
                Some("https://h:443/tenant/s3+!%2f%41/"),
                "my.bucket",
                true,
                "https://h/tenant/s3%2B%21/A/my.bucket/a/b",
                "https://h/tenant/s3%2B%21/A/my.bucket?list-type=2",
                "h",
            ),
            (
                Some("http://h:80/tenant"),
                "my.bucket",
                false,
                "http://my.bucket.h/tenant/a/b",
                "http://my.bucket.h/tenant?list-type=2",
                "my.bucket.h",
            ),
        ] {
            let address = address(endpoint, bucket, path_style).unwrap();
            assert_eq!(shown(&address), (key.to_owned(), list.to_owned(), host.to_owned()));
        }
    }

    #[test]
    fn what_is_no_endpoint_and_no_bucket_is_said() {
        let name = "is no name of a bucket: 3 to 255 letters, digits, dots and dashes";
        for (endpoint, bucket, path_style, why) in [
            (None, "", true, "bucket: is missing".to_owned()),
            (None, "ab", true, format!("bucket: {name}")),
            (None, "a/b", true, format!("bucket: {name}")),
            (None, "...", true, format!("bucket: {name}")),
            (Some("localhost:9000"), "bkt", true,
             "endpoint: 'localhost:9000' does not begin with http:// or https:// and a host".to_owned()),
            (Some(""), "bkt", true, "endpoint: '' is no URL: relative URL without a base".to_owned()),
            (Some("http://u:p@h"), "bkt", true, "endpoint: holds a user name or a password".to_owned()),
            (Some("http://h?a"), "bkt", true,
             "endpoint: 'http://h?a' has more than a path behind its host".to_owned()),
            (Some("http://127.0.0.1:1"), "bkt", false,
             "path_style: false needs an endpoint with a name: no bucket goes in front of an address".to_owned()),
            (Some("http://h"), "Bkt", false,
             "path_style: false needs a bucket that a host can be named after, Bkt.h is none".to_owned()),
        ] {
            assert_eq!(address(endpoint, bucket, path_style).unwrap_err(), why);
        }
    }

    #[test]
    fn every_character_of_a_key_is_encoded_once() {
        let address = address(Some("http://h"), "bkt", true).unwrap();
        let key = "näh + %2F%25 &<>\"'#?:\\*~/..a/!$(),;=@[]^`{|}-_.";
        let url = address.of_key(key, &[("uploadId", "a/b+c %"), ("x", "")]);
        assert_eq!(
            url.as_str(),
            "http://h/bkt/n%C3%A4h%20%2B%20%252F%2525%20%26%3C%3E%22%27%23%3F%3A%5C%2A~/..a/\
             %21%24%28%29%2C%3B%3D%40%5B%5D%5E%60%7B%7C%7D-_.?uploadId=a%2Fb%2Bc%20%25&x="
        );
        assert_eq!(decoded(&encoded(key, Slash::Encoded)).unwrap(), key);
    }

    #[test]
    fn what_is_encoded_wrong_is_not_decoded() {
        assert_eq!(decoded("a%20b+c%2Bd%c3%A4").unwrap(), "a b c+dä");
        for wrong in ["%", "%2", "%zz", "%+1", "%ff", "a%C3"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
