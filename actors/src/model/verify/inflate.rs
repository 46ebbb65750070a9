//! The body as it was before it was compressed, for providers that sign it then.
//!
//! A few bytes can stand for gigabytes, and nothing has proven yet whose bytes they are: the output is cut off at a cap
//! while it comes, and no more is reserved than that.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::Reason;

/// How much of the output is asked for at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// Undoes the one coding that `encoding`, the value of `Content-Encoding`, names: gzip, or deflate with or without the
/// zlib wrapping.
///
/// # Errors
///
/// More than `max_bytes`, another coding, or a body that is not what it is said to be.
pub(super) fn inflated<'a>(
    encoding: Option<&[u8]>,
    body: &'a [u8],
    max_bytes: usize,
) -> Result<Cow<'a, [u8]>, Reason> {
    let encoding = encoding.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    let inflated = match encoding.as_slice() {
        b"" | b"identity" => return Ok(Cow::Borrowed(body)),
        b"gzip" | b"x-gzip" => read_capped(MultiGzDecoder::new(body), max_bytes),
        // The name means zlib, and some senders leave its wrapping off.
        b"deflate" if is_zlib(body) => read_capped(ZlibDecoder::new(body), max_bytes),
        b"deflate" => read_capped(DeflateDecoder::new(body), max_bytes),
        _other => Err(Reason::MalformedBody),
    };
    inflated.map(Cow::Owned)
}

/// Whether the two bytes that zlib begins with are there: its method, and a check sum over both.
fn is_zlib(body: &[u8]) -> bool {
    let [method, flags, ..] = body else { return false };
    method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31)
}

fn read_capped(mut from: impl Read, max_bytes: usize) -> Result<Vec<u8>, Reason> {
    let mut whole = Vec::new();
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).map_err(|_damaged| Reason::MalformedBody)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(whole);
        };
        if whole.len() + bytes.len() > max_bytes {
            return Err(Reason::InflatedBodyTooLarge);
        }
        // Doubled, as a list on its own would be, but not past the cap.
        if whole.capacity() - whole.len() < bytes.len() {
            let wanted = (whole.len() * 2).max(whole.len() + bytes.len()).min(max_bytes);
            whole.reserve_exact(wanted - whole.len());
        }
        whole.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn read(encoding: &str, body: &[u8], max_bytes: usize) -> Result<Vec<u8>, Reason> {
        inflated(Some(encoding.as_bytes()), body, max_bytes).map(Cow::into_owned)
    }

    #[test]
    fn each_coding_is_undone() {
        let body = b"{\"a\":1}".repeat(10_000);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(&body).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::best());
        raw.write_all(&body).unwrap();
        let two_members = [gzip(b"one"), gzip(b"two")].concat();
        for (encoding, sent, expected) in [
            ("gzip", gzip(&body), body.as_slice()),
            (" X-GZIP ", gzip(&body), &body),
            ("deflate", zlib.finish().unwrap(), &body),
            ("Deflate", raw.finish().unwrap(), &body),
            ("gzip", two_members, b"onetwo"),
            ("identity", body.clone(), &body),
            ("", body.clone(), &body),
        ] {
            assert_eq!(read(encoding, &sent, body.len()).as_deref(), Ok(expected), "{encoding}");
        }
        assert_eq!(inflated(None, &body, 0), Ok(Cow::Borrowed(body.as_slice())));
    }

    #[test]
    fn a_bomb_is_cut_off_at_the_cap() {
        let bomb = gzip(&vec![0; 8 << 20]);
        assert!(bomb.len() < 16 << 10);
        assert_eq!(read("gzip", &bomb, (8 << 20) - 1), Err(Reason::InflatedBodyTooLarge));
        assert_eq!(read("gzip", &bomb, 0), Err(Reason::InflatedBodyTooLarge));
        let whole = read("gzip", &bomb, 8 << 20).unwrap();
        assert_eq!((whole.len(), whole.capacity()), (8 << 20, 8 << 20));
    }

    #[test]
    fn what_is_no_such_coding_is_malformed() {
        let sent = gzip(b"{}");
        let mut damaged = sent.clone();
        damaged[sent.len() - 8] ^= 1;
        for (encoding, body) in [
            ("gzip", b"{}".as_slice()),
            ("gzip", b""),
            ("gzip", &sent[..sent.len() - 1]),
            ("gzip", &damaged),
            ("gzip", &[&sent, b"more".as_slice()].concat()),
            ("deflate", b"\xff\xff"),
            ("br", b"{}"),
            ("gzip, gzip", &sent),
        ] {
            assert_eq!(read(encoding, body, 1 << 20), Err(Reason::MalformedBody), "{encoding}");
        }
    }
}
