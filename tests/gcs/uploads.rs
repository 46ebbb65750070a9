//! The three kinds of uploads.

use bytes::Bytes;
use serde_json::Value;

use super::fake::State;
use super::objects::{Object, condition_not_met, masked};
use super::request::{Asked, Said};
use super::{STEP, md5_base64};

/// An upload in parts.
pub struct Session {
    name: String,
    /// Its `ifGenerationMatch`.
    condition: Option<String>,
    kms_key: Option<String>,
    /// Of the metadata it began with.
    md5: Option<String>,
    size: usize,
    data: Vec<u8>,
    finished: Option<Value>,
    cancelled: bool,
}

/// `multipart/related`: what stands in the parts.
fn parts(asked: &Asked) -> Option<(Value, Bytes)> {
    let kind = asked.header("content-type")?;
    let boundary = kind.strip_prefix("multipart/related; boundary=")?;
    let delimiter = format!("\r\n--{boundary}");
    let body = [b"\r\n", &asked.body[..]].concat();
    let at = |from: usize| {
        let found = body[from..].windows(delimiter.len()).position(|w| w == delimiter.as_bytes());
        found.map(|at| from + at)
    };
    let first = at(0).filter(|&at| at == 0)? + delimiter.len();
    let second = at(first)?;
    let end = at(second + delimiter.len())?;
    if &body[end + delimiter.len()..] != b"--\r\n" {
        return None;
    }
    let content = |part: &[u8]| {
        let head = part.windows(4).position(|w| w == b"\r\n\r\n")?;
        Some(Bytes::copy_from_slice(&part[head + 4..]))
    };
    let metadata = content(&body[first..second])?;
    let media = content(&body[second + delimiter.len()..end])?;
    Some((serde_json::from_slice(&metadata).ok()?, media))
}

fn invalid(message: &str) -> Said {
    Said::error(400, "invalid", message)
}

fn wrong_md5(told: &str, bytes: &[u8]) -> Option<Said> {
    let is = md5_base64(bytes);
    let message =
        format!("Provided MD5 hash \"{told}\" doesn't match calculated MD5 hash \"{is}\".");
    (told != is).then(|| invalid(&message))
}

impl State {
    pub fn upload(&mut self, verb: &str, asked: &Asked) -> Said {
        let (metadata, media) = match verb {
            "media" => (Value::Null, asked.body.clone()),
            _ => match parts(asked) {
                Some(parts) => parts,
                None => return invalid("Malformed multipart body."),
            },
        };
        let Some(name) = asked.parameter("name").or(metadata["name"].as_str()) else {
            return Said::error(400, "required", "Required");
        };
        if let Some(other) = metadata["name"].as_str().filter(|other| *other != name) {
            return invalid(&format!("{other} is not {name}"));
        }
        let told = [self.hash_header(asked), self.hash_of(metadata["md5Hash"].as_str())];
        let wrong = told.into_iter().flatten().find_map(|told| wrong_md5(told, &media));
        if let Some(said) = wrong {
            return said;
        }
        self.make(asked, name, media)
    }

    fn hash_header<'a>(&self, asked: &'a Asked) -> Option<&'a str> {
        asked.hash_header().filter(|_| !self.deaf_to.contains(&"header"))
    }

    fn hash_of<'a>(&self, metadata: Option<&'a str>) -> Option<&'a str> {
        metadata.filter(|_| !self.deaf_to.contains(&"metadata"))
    }

    fn make(&mut self, asked: &Asked, name: &str, bytes: Bytes) -> Said {
        if !self.holds(asked.parameter("ifGenerationMatch"), name) {
            return condition_not_met();
        }
        match kms_key(asked) {
            Ok(kms_key) => {
                let told = self.insert(name, bytes, kms_key);
                Said::json(&masked(told, asked.parameter("fields")))
            }
            Err(said) => said,
        }
    }

    /// Whether the generation of what is there is this one. Of nothing it is 0.
    pub fn holds(&self, condition: Option<&str>, name: &str) -> bool {
        let generation = self.objects.get(name).map_or(0, |object| object.generation);
        condition.is_none_or(|condition| condition == generation.to_string())
    }

    pub fn insert(&mut self, name: &str, bytes: Bytes, kms_key: Option<String>) -> Value {
        self.born += 1;
        let (generation, name) = (1_700_000_000_000_000 + self.born, name.to_owned());
        let object = Object { name: name.clone(), bytes, generation, kms_key, composite: false };
        let told = object.described();
        self.objects.insert(name, object);
        told
    }

    pub fn begin(&mut self, asked: &Asked) -> Said {
        let metadata: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let Some(name) = asked.parameter("name").or(metadata["name"].as_str()) else {
            return Said::error(400, "required", "Required");
        };
        let condition = asked.parameter("ifGenerationMatch");
        if !self.holds(condition, name) {
            return condition_not_met();
        }
        let kms_key = match kms_key(asked) {
            Ok(kms_key) => kms_key,
            Err(said) => return said,
        };
        let Some(size) = asked.header("x-upload-content-length") else {
            return invalid("Without the size of the object");
        };
        self.born += 1;
        let id = format!("session/{}", self.born);
        let session = Session {
            name: name.to_owned(),
            condition: condition.map(str::to_owned),
            kms_key,
            md5: metadata["md5Hash"].as_str().map(str::to_owned),
            size: size.parse().unwrap(),
            data: Vec::new(),
            finished: None,
            cancelled: false,
        };
        self.sessions.insert(id.clone(), session);
        let fields = asked.parameter("fields");
        let fields = fields.map(|fields| format!("&fields={fields}")).unwrap_or_default();
        // The address it is known by to others, not to us.
        let location = format!(
            "https://storage.googleapis.com/upload/storage/v1/b/{}/o?uploadType=resumable\
             {fields}&upload_id={}",
            super::BUCKET,
            id.replace('/', "%2F")
        );
        Said::new(200, "").with("location", location)
    }

    pub fn part(&mut self, asked: &Asked) -> Said {
        let id = asked.parameter("upload_id").unwrap_or_default();
        let told = self.hash_header(asked);
        let Some(session) = self.sessions.get_mut(id) else {
            return Said::error(404, "notFound", "Not Found");
        };
        if session.cancelled {
            return Said::new(499, "");
        }
        if let Some(told) = &session.finished {
            return Said::json(&masked(told.clone(), asked.parameter("fields")));
        }
        if let Err(said) = session.take(asked) {
            return said;
        }
        if session.data.len() < session.size {
            let said = Said::new(308, "");
            return match session.data.len() {
                0 => said,
                have => said.with("range", format!("bytes=0-{}", have - 1)),
            };
        }
        let told = [told, session.md5.as_deref()];
        let wrong = told.into_iter().flatten().find_map(|told| wrong_md5(told, &session.data));
        if let Some(said) = wrong {
            return said;
        }
        let (name, condition) = (session.name.clone(), session.condition.clone());
        let (data, kms_key) = (std::mem::take(&mut session.data), session.kms_key.clone());
        if !self.holds(condition.as_deref(), &name) {
            return condition_not_met();
        }
        let told = self.insert(&name, data.into(), kms_key);
        self.sessions.get_mut(id).unwrap().finished = Some(told.clone());
        Said::json(&masked(told, asked.parameter("fields")))
    }

    /// Some of a part arrives; the store keeps whole steps of it.
    pub fn part_that_breaks(&mut self, asked: &Asked, bytes: usize) {
        let id = asked.parameter("upload_id").unwrap();
        let session = self.sessions.get_mut(id).unwrap();
        let kept = (session.data.len() + bytes) / STEP * STEP - session.data.len();
        session.data.extend_from_slice(&asked.body[..kept]);
    }

    pub fn cancel(&mut self, asked: &Asked) -> Said {
        assert_eq!(asked.header("content-length"), Some("0"));
        let id = asked.parameter("upload_id").unwrap_or_default();
        let Some(session) = self.sessions.get_mut(id) else {
            return Said::error(404, "notFound", "Not Found");
        };
        session.cancelled = true;
        Said::new(499, "")
    }

    /// Sessions that could still make an object.
    pub fn open_sessions(&self) -> usize {
        self.sessions.values().filter(|one| !one.cancelled && one.finished.is_none()).count()
    }
}

impl Session {
    /// Takes a part that follows, or looks at a question.
    fn take(&mut self, asked: &Asked) -> Result<(), Said> {
        let range = asked.header("content-range").and_then(|range| range.strip_prefix("bytes "));
        let Some((range, size)) = range.and_then(|range| range.split_once('/')) else {
            return Err(invalid("Without a range"));
        };
        if size != self.size.to_string() {
            return Err(invalid("The size has changed"));
        }
        let Some((first, last)) = range.split_once('-') else {
            let asks = range == "*" && asked.body.is_empty();
            return if asks { Ok(()) } else { Err(invalid("No range")) };
        };
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        if asked.body.len() != last + 1 - first || last >= self.size {
            return Err(invalid("The range is not that of the body"));
        }
        let is_last = last + 1 == self.size;
        if !is_last && !asked.body.len().is_multiple_of(STEP) {
            return Err(invalid("A part that is not the last is a multiple of 256 KiB"));
        }
        if !is_last && asked.hash_header().is_some() {
            return Err(invalid("The digest of the object is known with its last part"));
        }
        if first > self.data.len() {
            return Err(invalid("There is a gap"));
        }
        let known = self.data.len() - first;
        self.data.extend_from_slice(asked.body.get(known..).unwrap_or_default());
        Ok(())
    }
}

fn kms_key(asked: &Asked) -> Result<Option<String>, Said> {
    let parameter = asked.parameter("kmsKeyName");
    if asked.header("x-goog-encryption-kms-key-name") != parameter {
        return Err(invalid("The header names another key"));
    }
    Ok(parameter.map(str::to_owned))
}
