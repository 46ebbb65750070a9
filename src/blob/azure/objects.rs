//! What is asked of a container for each operation.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, Entropy, GET_MAX_BYTES, is_range_asked,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, HeaderName, HeaderValue, IF_MATCH, RANGE};
use http::{Method, StatusCode};
use tokio::time::Instant;
use url::Url;

use super::blocks::BLOCKS_MAX;
use super::dialect::Language;
use super::listing::{Page, parse_listing};
use super::percent::encoded;
use super::refusal::says_it_exists;
use crate::blob::answer::Answer;
use crate::blob::body::read_in_time;
use crate::blob::checksum::{DigestKind, base64_digest, check};
use crate::blob::multipart::parts;
use crate::blob::read_back;
use crate::blob::transport::{Ask, Dialect as _, PAGE_MAX_BYTES, Transport};

/// More than any object has: ranges that begin behind it begin here, since not every server reads larger numbers.
const OBJECT_MAX_BYTES: u64 = 1 << 50;

/// One container.
pub(super) struct Container {
    pub url: Url,
    pub transport: Transport,
    pub language: Language,
    pub encryption_scope: Option<HeaderValue>,
    pub entropy: Arc<dyn Entropy>,
}

/// What a write does to an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Anything,
    Nothing,
}

/// How a write ended.
pub(super) enum Written {
    Done,
    /// It was refused, in these words, because there seems to be an object.
    IsThere(BlobError),
}

impl Over {
    pub(super) fn insert(self, ask: &mut Ask) -> Result<(), BlobError> {
        match self {
            Self::Anything => Ok(()),
            Self::Nothing => insert(ask, "if-none-match", "*"),
        }
    }
}

/// The port, over a container.
pub(super) struct Azure(Arc<Container>);

impl Azure {
    pub(super) fn new(container: Container) -> Self {
        Self(Arc::new(container))
    }
}

#[async_trait]
impl Blob for Azure {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let deadline = self.0.transport.deadline(deadline);
        match self.0.put(key, &body, Over::Anything, deadline).await? {
            Written::Done => Ok(()),
            Written::IsThere(error) => Err(error),
        }
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let deadline = self.0.transport.deadline(deadline);
        match self.0.put(key, &body, Over::Nothing, deadline).await? {
            Written::Done => Ok(()),
            Written::IsThere(_) => match self.0.holds(key, &body, deadline).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(BlobError::AlreadyExists),
                // It was there, and is gone again; or another write was half done.
                Err(BlobError::NotFound) => {
                    Err(BlobError::Transport("the object came and went meanwhile".to_owned()))
                }
                Err(error) => Err(error),
            },
        }
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        let deadline = self.0.transport.deadline(deadline);
        let mut ask = Ask::new(Method::GET, self.0.object(key)?);
        ask.answer_max_bytes = GET_MAX_BYTES;
        let answer = self.0.send(&ask, deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(self.0.language.error(&answer));
        }
        check(DigestKind::Md5, answer.header("content-md5"), &answer.body).await?;
        Ok(answer.body)
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        if !is_range_asked(length)? {
            return Ok(Bytes::new());
        }
        let offset = offset.min(OBJECT_MAX_BYTES);
        let deadline = self.0.transport.deadline(deadline);
        self.0.range(key, offset..offset + length, None, deadline).await
    }

    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        let deadline = self.0.transport.deadline(deadline);
        let ask = Ask::new(Method::DELETE, self.0.object(key)?);
        let answer = self.0.send(&ask, deadline).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let error = self.0.language.error(&answer);
        if error == BlobError::NotFound { Ok(()) } else { Err(error) }
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        let deadline = self.0.transport.deadline(deadline);
        let mut entries = Vec::new();
        let mut seen = BTreeSet::new();
        let mut marker = String::new();
        loop {
            let page = self.0.page(prefix, &marker, deadline).await?;
            // Another page in its place would leave a gap.
            if page.this.is_some_and(|this| this != marker) {
                return Err(unlisted("a page came that was not asked for"));
            }
            entries.extend(page.entries);
            let Some(next) = page.next else { break };
            if !seen.insert(next.clone()) {
                return Err(unlisted("its pages go round in a circle"));
            }
            marker = next;
        }
        // Its order is not ours: it is that of UTF-16, and folders may come first.
        entries.sort_unstable_by(|one, two| one.key.cmp(&two.key));
        if entries.windows(2).any(|two| matches!(two, [one, two] if one.key == two.key)) {
            return Err(unlisted("an object is in it twice"));
        }
        Ok(entries)
    }
}

impl Container {
    /// Where an object is.
    ///
    /// # Errors
    /// The service would take the name for another's: a backslash is a slash to it, and a dot that ends a part nothing.
    pub(super) fn object(&self, key: &BlobKey) -> Result<Url, BlobError> {
        if key.parts().any(|part| part.contains('\\') || part.ends_with('.')) {
            let why = "Azure keeps no name with a backslash, or with a dot at the end of a part";
            return Err(BlobError::Misconfigured(format!("{why}: {key}")));
        }
        let mut url = self.url.clone();
        let parts = key.parts().map(encoded);
        let path = parts.fold(url.path().to_owned(), |path, part| format!("{path}/{part}"));
        url.set_path(&path);
        Ok(url)
    }

    pub(super) fn encrypt(&self, ask: &mut Ask) {
        if let Some(scope) = &self.encryption_scope {
            let name = HeaderName::from_static("x-ms-encryption-scope");
            ask.headers.insert(name, scope.clone());
        }
    }

    async fn send(&self, ask: &Ask, deadline: Instant) -> Result<Answer, BlobError> {
        self.transport.send(&self.language, ask, deadline).await
    }

    /// Sends a part of a write, or all of it.
    pub(super) async fn write(
        &self,
        ask: &Ask,
        over: Over,
        deadline: Instant,
    ) -> Result<Written, BlobError> {
        let answer = self.send(ask, deadline).await?;
        if answer.status.is_success() {
            return Ok(Written::Done);
        }
        let error = self.language.error(&answer);
        if over == Over::Nothing && says_it_exists(&self.language.refusal(&answer)) {
            return Ok(Written::IsThere(error));
        }
        Err(error)
    }

    async fn put(
        self: &Arc<Self>,
        key: &BlobKey,
        body: &BlobBody,
        over: Over,
        deadline: Instant,
    ) -> Result<Written, BlobError> {
        if let Some(parts) = parts(self.transport.options(), body.bytes(), BLOCKS_MAX) {
            return self.put_blocks(key, (body, parts), over, deadline).await;
        }
        let mut ask = Ask::new(Method::PUT, self.object(key)?);
        ask.body = read_in_time(body, 0..body.bytes(), deadline).await?;
        let digest = base64_digest(DigestKind::Md5, &ask.body).await;
        insert(&mut ask, "x-ms-blob-type", "BlockBlob")?;
        // Checked as it comes, and kept to be sent back with it.
        insert(&mut ask, "content-md5", &digest)?;
        insert(&mut ask, "x-ms-blob-content-md5", &digest)?;
        over.insert(&mut ask)?;
        self.encrypt(&mut ask);
        self.write(&ask, over, deadline).await
    }

    /// Those bytes of the object, cut to what there is; of that version of it, if one is given, or `already_exists` if
    /// there is another by now.
    async fn range(
        &self,
        key: &BlobKey,
        range: Range<u64>,
        etag: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<Bytes, BlobError> {
        let mut ask = Ask::new(Method::GET, self.object(key)?);
        let last = range.end.saturating_sub(1);
        insert(&mut ask, RANGE.as_str(), &format!("bytes={}-{last}", range.start))?;
        if let Some(etag) = etag {
            ask.headers.insert(IF_MATCH, etag.clone());
        }
        // A refusal must fit in, too.
        ask.answer_max_bytes = (range.end - range.start).max(PAGE_MAX_BYTES);
        let answer = self.send(&ask, deadline).await?;
        match answer.status {
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(Bytes::new()),
            StatusCode::PARTIAL_CONTENT if is_range(&answer, &range) => Ok(answer.body),
            StatusCode::PARTIAL_CONTENT => {
                Err(BlobError::Integrity("another range came than was asked for".to_owned()))
            }
            StatusCode::PRECONDITION_FAILED if etag.is_some() => Err(BlobError::AlreadyExists),
            status if status.is_success() => {
                Err(BlobError::Misconfigured(format!("{status}: the range was not heard")))
            }
            _refused => Err(self.language.error(&answer)),
        }
    }

    /// Whether the object holds exactly these bytes. Of neither more than a part is in memory.
    async fn holds(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        deadline: Instant,
    ) -> Result<bool, BlobError> {
        let answer = self.send(&Ask::new(Method::HEAD, self.object(key)?), deadline).await?;
        if !answer.status.is_success() {
            return Err(self.language.error(&answer));
        }
        let bytes = answer.header(CONTENT_LENGTH.as_str()).and_then(|bytes| bytes.parse().ok());
        if bytes != Some(body.bytes()) {
            return Ok(false);
        }
        let etag = answer.headers.get(ETAG);
        let range = |at, length| self.range(key, at..at + length, etag, deadline);
        let at_once = self.transport.options().multipart_part_bytes;
        read_back::holds(body, at_once, deadline, range).await
    }

    async fn page(&self, prefix: &str, marker: &str, deadline: Instant) -> Result<Page, BlobError> {
        let mut query = String::from("restype=container&comp=list");
        for (name, value) in [("prefix", prefix), ("marker", marker)] {
            if !value.is_empty() {
                query.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        let mut url = self.url.clone();
        url.set_query(Some(&query));
        let answer = self.send(&Ask::new(Method::GET, url), deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(self.language.error(&answer));
        }
        let page = parse_listing(&answer.body).map_err(|error| unlisted(&error.to_string()))?;
        if page.entries.iter().any(|entry| !entry.key.starts_with(prefix)) {
            return Err(unlisted("an object in it does not begin with the prefix"));
        }
        Ok(page)
    }
}

/// A listing that is not to be believed: never a shorter one.
fn unlisted(why: &str) -> BlobError {
    BlobError::Transport(format!("the listing: {why}"))
}

/// Whether an answer is that range of its object, up to the end of one of them.
pub fn is_range(answer: &Answer, range: &Range<u64>) -> bool {
    let number = |digits: &str| digits.parse::<u64>().ok();
    let judge = || {
        let said = answer.header("content-range")?.strip_prefix("bytes ")?;
        let (places, whole) = said.split_once('/')?;
        let whole = number(whole)?;
        if whole == 0 {
            // Azurite's `0--1/0`; the service says 416.
            return Some(answer.body.is_empty());
        }
        let (first, last) = places.split_once('-')?;
        let (first, end) = (number(first)?, number(last)?.checked_add(1)?);
        let bytes = u64::try_from(answer.body.len()).ok()?;
        Some(first == range.start && end == range.end.min(whole) && first + bytes == end)
    };
    judge().unwrap_or(false)
}

/// Of a value that always is one: digits and base64.
pub(super) fn insert(ask: &mut Ask, name: &'static str, value: &str) -> Result<(), BlobError> {
    let value = HeaderValue::from_str(value)
        .map_err(|_| BlobError::Misconfigured(format!("{name} cannot be '{value}'")))?;
    ask.headers.insert(HeaderName::from_static(name), value);
    Ok(())
}
