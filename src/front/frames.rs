//! Follows the frames of an HTTP/2 connection for what its parser has no limit on: whether a frame other than a body's,
//! or a head of several frames, has begun and not ended; and how many requests the client has taken back.

/// Length, type, flags and stream.
const FRAME_HEAD_BYTES: usize = 9;

/// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

/// The flag of HEADERS and CONTINUATION that ends a head.
const END_HEADERS: u8 = 0x4;

/// The frames of one connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the preface to come.
    preface: usize,
    head: [u8; FRAME_HEAD_BYTES],
    /// Bytes of the frame's own head that are there.
    head_bytes: usize,
    /// Bytes of its payload to come.
    payload: usize,
    /// A head has begun that goes on in the next frame.
    goes_on: bool,
    heads: u64,
    resets: u64,
}

impl Frames {
    /// Of a connection that begins with a preface of so many bytes.
    pub(super) fn after(preface: usize) -> Self {
        Self {
            preface,
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            payload: 0,
            goes_on: false,
            heads: 0,
            resets: 0,
        }
    }

    /// Frames and heads so far that came to their end.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Requests that the client has taken back.
    pub(super) fn resets(&self) -> u64 {
        self.resets
    }

    /// Whether something has begun that has to end soon.
    pub(super) fn is_in_head(&self) -> bool {
        let in_frame_head = (1..FRAME_HEAD_BYTES).contains(&self.head_bytes);
        let in_payload = self.payload > 0 && self.kind() != DATA;
        in_frame_head || in_payload || self.goes_on
    }

    fn kind(&self) -> u8 {
        let [_, _, _, kind, ..] = self.head;
        kind
    }

    /// What arrived next.
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        bytes = past(bytes, &mut self.preface);
        while let Some(first) = bytes.first() {
            if self.payload > 0 {
                bytes = past(bytes, &mut self.payload);
                if self.payload == 0 {
                    self.end_frame();
                }
            } else {
                if let Some(place) = self.head.get_mut(self.head_bytes) {
                    *place = *first;
                }
                self.head_bytes += 1;
                bytes = bytes.get(1..).unwrap_or_default();
                if self.head_bytes == FRAME_HEAD_BYTES {
                    let [high, middle, low, ..] = self.head;
                    self.payload =
                        usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                    if self.payload == 0 {
                        self.end_frame();
                    }
                }
            }
        }
    }

    fn end_frame(&mut self) {
        self.head_bytes = 0;
        let [_, _, _, kind, flags, ..] = self.head;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.goes_on = flags & END_HEADERS == 0;
        }
        if kind == RST_STREAM {
            self.resets = self.resets.saturating_add(1);
        }
        if !self.goes_on {
            self.heads += 1;
        }
    }
}

/// What follows `count` bytes, which are taken from it.
fn past<'a>(bytes: &'a [u8], count: &mut usize) -> &'a [u8] {
    let here = (*count).min(bytes.len());
    *count -= here;
    bytes.get(here..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Whether something has to end after each of `pieces`, whole and byte by byte alike.
    fn told(pieces: &[&[u8]]) -> Vec<bool> {
        let (mut whole, mut bytes) = (Frames::after(3), Frames::after(3));
        let see = |piece: &&[u8]| {
            whole.see(piece);
            piece.chunks(1).for_each(|byte| bytes.see(byte));
            assert_eq!((whole.heads(), whole.is_in_head()), (bytes.heads(), bytes.is_in_head()));
            whole.is_in_head()
        };
        pieces.iter().map(see).collect()
    }

    #[test]
    fn what_has_begun_has_to_end_and_a_body_has_not() {
        let data = frame(DATA, 0, b"body");
        let settings = frame(4, 0, b"123456");
        let empty = frame(4, 1, b"");
        let pieces: [&[u8]; 9] = [
            b"pre",
            &settings[..1],
            &settings[1..14],
            &settings[14..],
            &empty,
            &data[..8],
            &data[8..10],
            &data[10..12],
            &data[12..],
        ];
        let expected = [false, true, true, false, false, true, false, false, false];
        assert_eq!(told(&pieces), expected);
    }

    #[test]
    fn what_is_taken_back_is_counted() {
        let mut frames = Frames::after(0);
        for kind in [RST_STREAM, DATA, RST_STREAM, HEADERS] {
            frames.see(&frame(kind, END_HEADERS, b"1234"));
        }
        assert_eq!(frames.resets(), 2);
    }

    #[test]
    fn a_head_ends_with_the_frame_that_says_so() {
        let begun = frame(HEADERS, 1, b"h");
        let more = frame(CONTINUATION, 0, b"");
        let last = frame(CONTINUATION, END_HEADERS, b"h");
        let whole = frame(HEADERS, END_HEADERS, b"h");
        let pieces: [&[u8]; 5] = [b"pre", &begun, &more, &last, &whole];
        assert_eq!(told(&pieces), [false, true, true, false, false]);
    }
}
