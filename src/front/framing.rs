//! Follows the requests on one connection, byte by byte, for what the HTTP parser does not pass on: where one ends, and
//! whether its head was written in a way that two parsers can read differently.
//!
//! Three things make a head ambiguous: a Content-Length beside a Transfer-Encoding, of which the parser forgets the
//! first; a Transfer-Encoding that is more than one `chunked`; a line that ends with LF alone. Whoever relayed such a
//! request may have seen another body or another header than this node would, so it is refused. What is not HTTP at all
//! the parser refuses by itself.

/// A head line longer than this is not followed: the parser refuses it too.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Where in a request the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the request line; empty lines are passed over.
    Start,
    Head,
    /// So many bytes of a body or a chunk are to come, then this.
    Body(u64),
    ChunkSize(u64),
    /// Behind the size of a chunk, to the end of its line.
    ChunkExtension(u64),
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    Trailer,
    /// This is no HTTP, or more than is followed.
    Lost,
}

/// The requests of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    at: At,
    /// The line so far, where it came in pieces.
    line: Vec<u8>,
    /// The head under way is past its first line.
    has_request_line: bool,
    /// Something in the head under way can be read differently.
    is_ambiguous: bool,
    length: Option<u64>,
    is_chunked: bool,
    heads: u64,
    first_ambiguous: Option<u64>,
}

impl Framing {
    pub(super) fn new() -> Self {
        Self {
            at: At::Start,
            line: Vec::new(),
            has_request_line: false,
            is_ambiguous: false,
            length: None,
            is_chunked: false,
            heads: 0,
            first_ambiguous: None,
        }
    }

    /// The first ambiguous head, counted from 0. Nothing behind it is followed: its connection is to be closed.
    pub(super) fn first_ambiguous(&self) -> Option<u64> {
        self.first_ambiguous
    }

    /// Heads so far that came to their end.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a head has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.at == At::Head
    }

    /// Whether a head has begun whose first line has not ended.
    pub(super) fn is_in_request_line(&self) -> bool {
        self.at == At::Head && !self.has_request_line
    }

    /// Whether every request so far came to its end.
    pub(super) fn is_between_requests(&self) -> bool {
        self.at == At::Start
    }

    /// What arrived next.
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        while let (Some(first), true) = (bytes.first(), self.at != At::Lost) {
            bytes = match self.at {
                At::Start if matches!(first, b'\r' | b'\n') => skip(bytes, 1),
                At::Start => {
                    self.at = At::Head;
                    bytes
                }
                At::Head | At::Trailer => self.see_line(bytes),
                At::Body(left) => self.pass(bytes, left, At::Body, At::Start),
                At::Chunk(left) => self.pass(bytes, left, At::Chunk, At::ChunkEnd),
                At::ChunkSize(size) => {
                    self.at = chunk_size(size, *first);
                    skip(bytes, 1)
                }
                At::ChunkExtension(size) => {
                    if *first == b'\n' {
                        self.at = if size == 0 { At::Trailer } else { At::Chunk(size) };
                    }
                    skip(bytes, 1)
                }
                At::ChunkEnd => {
                    if *first == b'\n' {
                        self.at = At::ChunkSize(0);
                    }
                    skip(bytes, 1)
                }
                At::Lost => return,
            };
        }
    }

    fn pass<'a>(&mut self, bytes: &'a [u8], left: u64, more: fn(u64) -> At, then: At) -> &'a [u8] {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        // No slice is longer than 64 bits can say.
        let left = left.saturating_sub(u64::try_from(here).unwrap_or(u64::MAX));
        self.at = if left == 0 { then } else { more(left) };
        skip(bytes, here)
    }

    fn see_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            if self.line.len() > MAX_LINE_BYTES {
                self.at = At::Lost;
            }
            return &[];
        };
        let (line, rest) = bytes.split_at(end);
        if self.line.is_empty() {
            self.end_line(line);
        } else {
            let mut whole = std::mem::take(&mut self.line);
            whole.extend_from_slice(line);
            self.end_line(&whole);
            whole.clear();
            self.line = whole;
        }
        skip(rest, 1)
    }

    /// A line without its LF.
    fn end_line(&mut self, line: &[u8]) {
        let (line, bare) = line.strip_suffix(b"\r").map_or((line, true), |line| (line, false));
        if self.at == At::Trailer {
            if line.is_empty() {
                self.at = At::Start;
            }
            return;
        }
        self.is_ambiguous |= bare;
        self.has_request_line = !line.is_empty();
        if line.is_empty() {
            self.end_head();
        } else if let Some(value) = value_of(line, b"content-length") {
            self.length = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
        } else if let Some(value) = value_of(line, b"transfer-encoding") {
            self.is_ambiguous |=
                self.is_chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked");
            self.is_chunked = true;
        }
    }

    fn end_head(&mut self) {
        let (length, is_chunked) = (self.length.take(), std::mem::take(&mut self.is_chunked));
        let is_ambiguous = std::mem::take(&mut self.is_ambiguous);
        if is_ambiguous || (length.is_some() && is_chunked) {
            self.first_ambiguous = Some(self.heads);
            self.at = At::Lost;
            return;
        }
        self.heads += 1;
        self.at = match length {
            _ if is_chunked => At::ChunkSize(0),
            Some(length) if length > 0 => At::Body(length),
            Some(_) | None => At::Start,
        };
    }
}

fn chunk_size(size: u64, byte: u8) -> At {
    match char::from(byte).to_digit(16) {
        Some(digit) => match size.checked_mul(16) {
            Some(size) => At::ChunkSize(size | u64::from(digit)),
            None => At::Lost,
        },
        None if matches!(byte, b'\r' | b';' | b' ' | b'\t') => At::ChunkExtension(size),
        None => At::Lost,
    }
}

/// The value of a header line with this name, given in lowercase.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (given, rest) = line.split_at_checked(name.len())?;
    rest.strip_prefix(b":").filter(|_| given.eq_ignore_ascii_case(name))
}

fn skip(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(count..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of these bytes, whole and a byte at a time: ambiguous head, and whether all is at its end.
    fn followed(bytes: &str) -> (Option<u64>, bool) {
        let mut whole = Framing::new();
        whole.see(bytes.as_bytes());
        let mut pieces = Framing::new();
        bytes.as_bytes().chunks(1).for_each(|byte| pieces.see(byte));
        let told = |framing: &Framing| (framing.first_ambiguous(), framing.is_between_requests());
        assert_eq!(told(&whole), told(&pieces), "{bytes:?}");
        told(&whole)
    }

    const PLAIN: &str = "POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhe\r\no";
    const CHUNKED: &str = "POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked \r\n\r\n5;x=\"y\"\r\nhe\r\no\r\n1A \r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nx: 1\r\n\r\n";
    const NONE: &str = "GET /a HTTP/1.1\r\nhost: x\r\n\r\n";
    const BOTH: &str =
        "POST /a HTTP/1.1\r\nContent-LENGTH: 5\r\nTRANSFER-encoding: chunked\r\n\r\n0\r\n\r\n";
    const BARE: &str = "POST /a HTTP/1.1\r\nhost: x\ncontent-length: 5\r\n\r\nhello";

    #[test]
    fn requests_are_followed_to_their_ends() {
        for text in [PLAIN, CHUNKED, NONE] {
            assert_eq!(followed(text), (None, true), "{text:?}");
            let cut = text.len() - 1;
            assert_eq!(followed(&text[..cut]), (None, false), "{text:?}");
        }
        assert_eq!(followed(""), (None, true));
        assert_eq!(followed(&format!("\r\n{NONE}\n{PLAIN}{CHUNKED}{NONE}{PLAIN}")), (None, true));
    }

    #[test]
    fn an_ambiguous_head_is_told_by_its_number() {
        for bad in [BOTH, BARE, &BARE.replace('\r', ""), &NONE.replace("\r\n\r\n", "\r\n\n")] {
            assert_eq!(followed(bad), (Some(0), false), "{bad:?}");
            let behind = format!("{NONE}{CHUNKED}{PLAIN}{bad}{NONE}");
            assert_eq!(followed(&behind), (Some(3), false), "{bad:?}");
        }
        for headers in [
            "transfer-encoding: chunked\r\ncontent-length: 0",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: identity",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        ] {
            let text = format!("POST /a HTTP/1.1\r\n{headers}\r\n\r\n");
            assert_eq!(followed(&text), (Some(0), false), "{headers}");
        }
    }

    #[test]
    fn a_request_line_is_under_way_until_its_end() {
        let told = |text: &str| {
            let mut framing = Framing::new();
            framing.see(text.as_bytes());
            framing.is_in_request_line()
        };
        for under_way in ["P", "\r\nP", "POST /a HTTP/1.1\r", &format!("{PLAIN}{CHUNKED}G")] {
            assert!(told(under_way), "{under_way:?}");
        }
        for past in ["", "POST /a HTTP/1.1\r\n", "POST /a HTTP/1.1\r\nhost", PLAIN, NONE] {
            assert!(!told(past), "{past:?}");
        }
    }

    #[test]
    fn a_body_that_looks_like_a_head_is_none() {
        let body = format!("POST /a HTTP/1.1\r\ncontent-length: {}\r\n\r\n{BOTH}", BOTH.len());
        assert_eq!(followed(&body), (None, true));
        let chunk = format!(
            "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:X}\r\n{BOTH}\r\n0\r\n\r\n",
            BOTH.len()
        );
        assert_eq!(followed(&chunk), (None, true));
    }

    #[test]
    fn what_is_no_http_is_not_followed() {
        for lost in [
            "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        ] {
            assert_eq!(followed(&format!("{lost}{BOTH}")), (None, false), "{lost:?}");
        }
    }
}
