//! What reached the server, what it says, and what it is told to do wrong.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

/// One request, whole.
pub struct Asked {
    pub method: Method,
    /// Its segments, decoded.
    pub path: Vec<String>,
    pub query: BTreeMap<String, String>,
    /// As it was sent.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// The MD5 the header names, if it names one.
    pub fn hash_header(&self) -> Option<&str> {
        let mut digests = self.header("x-goog-hash")?.split(',');
        digests.find_map(|digest| digest.trim().strip_prefix("md5="))
    }

    /// The word of what is asked.
    pub fn verb(&self) -> &'static str {
        let is_upload = self.path.first().is_some_and(|first| first == "upload");
        let is_object = self.path.len() == 6 && !is_upload;
        match (self.method.as_str(), is_upload, self.parameter("uploadType")) {
            ("POST", true, Some("media")) => "media",
            ("POST", true, Some("multipart")) => "multipart",
            ("POST", true, Some("resumable")) => "begin",
            ("PUT", true, _) if self.asks_how_far() => "ask",
            ("PUT", true, _) => "part",
            ("DELETE", true, _) => "cancel",
            ("GET", false, _) if !is_object => "list",
            ("GET", false, _) if self.headers.contains_key("range") => "range",
            ("GET", false, _) => "get",
            ("DELETE", false, _) => "delete",
            _ => "unknown",
        }
    }

    fn asks_how_far(&self) -> bool {
        self.header("content-range").is_some_and(|range| range.starts_with("bytes */"))
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

impl Said {
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub fn json(value: &serde_json::Value) -> Self {
        Self::new(200, value.to_string()).with("content-type", "application/json")
    }

    /// An error of the JSON API.
    pub fn error(status: u16, reason: &str, message: &str) -> Self {
        let error = json!({"error": {"code": status, "message": message,
            "errors": [{"message": message, "domain": "global", "reason": reason}]}});
        Self { status, ..Self::json(&error) }
    }

    #[must_use]
    pub fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    pub fn response(self) -> Response<Full<Bytes>> {
        let status = StatusCode::from_u16(self.status).unwrap();
        let mut response = Response::builder().status(status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(Full::new(self.body)).unwrap()
    }
}

/// What is done wrong with one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This is said, and nothing done.
    Says(Said),
    /// Nothing is done, and the connection ends.
    LostOnTheWayThere,
    /// It is done, and the connection ends.
    LostOnTheWayBack,
    /// Of a part, so many bytes arrive before the connection ends.
    ArrivesUpTo(usize),
    /// A bit of what is uploaded changes before the store looks at it.
    BitFlipsOnTheWayThere,
    /// The store takes what is right and keeps something else.
    BitFlipsWithin,
    /// A bit of the body that is answered changes.
    BitFlipsOnTheWayBack,
    /// The session has ended, as all do in the end, and this status says so.
    SessionEnds(u16),
}
