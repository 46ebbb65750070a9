//! What can be asked of objects that are there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::fake::State;
use super::md5_base64;
use super::request::{Asked, Said};

pub struct Object {
    pub name: String,
    pub bytes: Bytes,
    pub generation: u64,
    pub kms_key: Option<String>,
    /// Made of others: it has no MD5.
    pub composite: bool,
}

impl Object {
    pub fn described(&self) -> Value {
        let mut told = json!({
            "kind": "storage#object",
            "name": self.name,
            "size": self.bytes.len().to_string(),
            "generation": self.generation.to_string(),
            "crc32c": crc32c_base64(&self.bytes),
            "acl": [],
        });
        if !self.composite {
            told["md5Hash"] = md5_base64(&self.bytes).into();
        }
        if let Some(key) = &self.kms_key {
            told["kmsKeyName"] = format!("{key}/cryptoKeyVersions/1").into();
        }
        told
    }

    fn hash_header(&self) -> String {
        let crc = crc32c_base64(&self.bytes);
        let md5 = md5_base64(&self.bytes);
        if self.composite { format!("crc32c={crc}") } else { format!("crc32c={crc},md5={md5}") }
    }
}

fn crc32c_base64(bytes: &[u8]) -> String {
    STANDARD.encode(crc32c::crc32c(bytes).to_be_bytes())
}

/// Only what was asked for, by a list of names.
pub fn masked(told: Value, fields: Option<&str>) -> Value {
    let Some(fields) = fields else { return told };
    let Value::Object(told) = told else { return told };
    told.into_iter().filter(|(name, _)| fields.split(',').any(|wanted| wanted == name)).collect()
}

impl State {
    pub fn read(&self, asked: &Asked) -> Said {
        let name = &asked.path[5];
        let as_media = asked.parameter("alt") == Some("media");
        let Some(object) = self.objects.get(name) else {
            let message = format!("No such object: {}/{name}", super::BUCKET);
            // Downloads are told in a sentence, all else in JSON.
            return if as_media {
                Said::new(404, message).with("content-type", "text/html; charset=UTF-8")
            } else {
                Said::error(404, "notFound", &message)
            };
        };
        if !as_media {
            return Said::json(&masked(object.described(), asked.parameter("fields")));
        }
        let said = |status, body: Bytes| {
            let generation = object.generation.to_string();
            Said::new(status, body)
                .with("x-goog-hash", object.hash_header())
                .with("x-goog-generation", generation)
        };
        let Some(range) = asked.header("range") else { return said(200, object.bytes.clone()) };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (i64, i64) = (first.parse().unwrap(), last.parse().unwrap());
        let (first, size) = (usize::try_from(first).unwrap(), object.bytes.len());
        if first >= size {
            let message = "The requested range cannot be satisfied.";
            return Said::new(416, message).with("content-range", format!("bytes */{size}"));
        }
        let last = usize::try_from(last).unwrap().min(size - 1);
        said(206, object.bytes.slice(first..=last))
            .with("content-range", format!("bytes {first}-{last}/{size}"))
    }

    pub fn delete(&mut self, asked: &Asked) -> Said {
        let name = &asked.path[5];
        if !self.objects.contains_key(name) {
            let message = format!("No such object: {}/{name}", super::BUCKET);
            return Said::error(404, "notFound", &message);
        }
        if !self.holds(asked.parameter("ifGenerationMatch"), name) {
            return condition_not_met();
        }
        self.objects.remove(name);
        Said::new(204, "")
    }

    pub fn list(&self, asked: &Asked) -> Said {
        let prefix = asked.parameter("prefix").unwrap_or_default();
        let most = asked.parameter("maxResults").map_or(self.page_max, |max| max.parse().unwrap());
        let after = match asked.parameter("pageToken").map(|token| STANDARD.decode(token)) {
            None => String::new(),
            Some(Ok(after)) => String::from_utf8(after).unwrap(),
            Some(Err(_)) => return Said::error(400, "invalid", "Invalid page token"),
        };
        let of_prefix = self.objects.values().filter(|object| object.name.starts_with(prefix));
        let mut rest = of_prefix.filter(|object| object.name > after).peekable();
        let page: Vec<&Object> = rest.by_ref().take(most.min(self.page_max)).collect();
        let fields = asked.parameter("fields");
        let of_items = fields.and_then(|fields| fields.split_once("items(")?.1.strip_suffix(')'));
        let mut told = json!({"kind": "storage#objects"});
        if !page.is_empty() {
            let items = page.iter().map(|object| masked(object.described(), of_items));
            told["items"] = items.collect();
        }
        if rest.peek().is_some() {
            let last = page.last().map(|object| object.name.as_str()).unwrap();
            told["nextPageToken"] = STANDARD.encode(last).into();
        }
        Said::json(&told)
    }
}

pub fn condition_not_met() -> Said {
    let message = "At least one of the pre-conditions you specified did not hold.";
    Said::error(412, "conditionNotMet", message)
}
