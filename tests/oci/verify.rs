//! Checks a request's signature, from the documentation and not from the code under test.

use std::collections::BTreeMap;

use ankusa_actors::ports::Clock;
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Request};
use sha2::{Digest, Sha256};

/// How far a date may be from the server's.
const APART_MAX_MS: u64 = 300_000;

/// Who is asked, and by what rules.
pub struct Verifier<'a> {
    pub clock: &'a dyn Clock,
    /// `127.0.0.1:1234`.
    pub host: &'a str,
    /// Names that must be signed in any request.
    pub generic: &'a [&'a str],
    /// Whether the digest of a body must be there and signed, or only what is sent of it.
    pub body_is_signed: bool,
}

/// The parameters of an `authorization`, each once.
pub fn parameters(authorization: &str) -> Option<BTreeMap<&str, &str>> {
    let mut rest = authorization.strip_prefix("Signature ")?;
    let mut parameters = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        if parameters.insert(name, value).is_some() {
            return None;
        }
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => return after.is_empty().then_some(parameters),
        }
    }
}

impl Verifier<'_> {
    /// The key id that signed the request, or why nobody did.
    pub fn verify<'r>(
        &self,
        request: &'r Request<Bytes>,
        key_of: impl FnOnce(&str) -> Option<Vec<u8>>,
    ) -> Result<&'r str, &'static str> {
        let authorization = header(request, "authorization").ok_or("no authorization")?;
        let parameters = parameters(authorization).ok_or("no parameters")?;
        let names = ["version", "headers", "keyId", "algorithm", "signature"];
        let are = |name: &str| parameters.get(name).copied().ok_or("a parameter is missing");
        if parameters.len() != names.len() || are("version")? != "1" {
            return Err("another version");
        }
        if are("algorithm")? != "rsa-sha256" {
            return Err("another algorithm");
        }
        self.check_date(request)?;
        if header(request, "host") != Some(self.host) {
            return Err("another host");
        }
        let signed: Vec<&str> = are("headers")?.split(' ').collect();
        self.check_names(request, &signed)?;
        let signature = BASE64_STANDARD.decode(are("signature")?).map_err(|_| "no signature")?;
        let text = text_of(request, &signed)?;
        let key = key_of(are("keyId")?).ok_or("nobody's key")?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(text.as_bytes(), &signature)
            .map_err(|_| "another signature")?;
        are("keyId")
    }

    fn check_date(&self, request: &Request<Bytes>) -> Result<(), &'static str> {
        let date = header(request, "date").ok_or("no date")?;
        let date = httpdate::parse_http_date(date).map_err(|_| "no date")?;
        let date = date.duration_since(std::time::UNIX_EPOCH).map_err(|_| "no date")?;
        let date_ms = u64::try_from(date.as_millis()).map_err(|_| "no date")?;
        let apart_ms = date_ms.abs_diff(self.clock.now_ms());
        if apart_ms > APART_MAX_MS { Err("another date") } else { Ok(()) }
    }

    fn check_names(&self, request: &Request<Bytes>, signed: &[&str]) -> Result<(), &'static str> {
        if self.generic.iter().any(|name| !signed.contains(name)) {
            return Err("a name is not signed");
        }
        let has_body = [Method::PUT, Method::POST].contains(request.method());
        if !has_body {
            return Ok(());
        }
        for name in ["content-length", "content-type", "x-content-sha256"] {
            let needed = self.body_is_signed || header(request, name).is_some();
            if needed && !signed.contains(&name) {
                return Err("a name of the body is not signed");
            }
        }
        let length = request.body().len().to_string();
        if header(request, "content-length") != Some(&length) {
            return Err("another length");
        }
        let digest = BASE64_STANDARD.encode(Sha256::digest(request.body()));
        match header(request, "x-content-sha256") {
            Some(told) if told != digest => Err("another body"),
            Some(_) | None => Ok(()),
        }
    }
}

fn text_of(request: &Request<Bytes>, signed: &[&str]) -> Result<String, &'static str> {
    let mut lines = Vec::new();
    for name in signed {
        let value = if *name == "(request-target)" {
            let target = request.uri().path_and_query().ok_or("no target")?;
            format!("{} {target}", request.method().as_str().to_lowercase())
        } else {
            header(request, name).ok_or("a signed header is missing")?.to_owned()
        };
        lines.push(format!("{name}: {value}"));
    }
    Ok(lines.join("\n"))
}

pub fn header<'r>(request: &'r Request<Bytes>, name: &str) -> Option<&'r str> {
    request.headers().get(name)?.to_str().ok()
}
