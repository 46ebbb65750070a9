//! Gives a body to what the HTTP parser answers by itself.
//!
//! hyper refuses a head that it cannot read before any service is asked, and says nothing but a status. A sender is
//! owed the same JSON it gets everywhere. hyper has no way to be told, so the answer is completed on its way out: it is
//! the last thing written on its connection, and no answer of the node's own has one of these statuses and no body.

use crate::telemetry::metrics::ParseFailure;

const HEAD_END: &[u8] = b"\r\n\r\n";
const NO_BODY: &[u8] = b"content-length: 0\r\n";

/// An answer of the parser's own is not longer than this.
const MAX_BYTES: usize = 256;

const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 ";
const TOO_LONG: &[u8] = b"HTTP/1.1 414 ";
const TOO_LARGE: &[u8] = b"HTTP/1.1 431 ";

/// The body of 400.
const INVALID: &str = r#"{"error":"invalid_request"}"#;
/// The body of 414.
pub(super) const URI_TOO_LONG: &str = r#"{"error":"uri_too_long"}"#;
/// The body of 431.
pub(super) const HEADERS_TOO_LARGE: &str = r#"{"error":"headers_too_large"}"#;

/// `written` with a body where it ends in an answer of the parser's own. With `in_request_line` the head that was
/// refused had not come to the end of its first line.
pub(super) fn completed(written: &[u8], in_request_line: bool) -> Option<(Vec<u8>, ParseFailure)> {
    // Answers with a body end in it: this is as far as they get.
    if !written.ends_with(HEAD_END) {
        return None;
    }
    let from = written.len().saturating_sub(MAX_BYTES);
    let last = written.get(from..)?;
    let begins = last
        .windows(BAD_REQUEST.len())
        .rposition(|window| [BAD_REQUEST, TOO_LONG, TOO_LARGE].contains(&window))?;
    let (before, answer) = written.split_at_checked(from + begins)?;
    let at = answer.windows(NO_BODY.len()).position(|window| window == NO_BODY)?;
    let (status, kind, body) = if answer.starts_with(BAD_REQUEST) {
        (None, ParseFailure::Invalid, INVALID)
    } else if answer.starts_with(TOO_LONG) || in_request_line {
        (Some("HTTP/1.1 414 URI Too Long"), ParseFailure::UriTooLong, URI_TOO_LONG)
    } else {
        (None, ParseFailure::HeadersTooLarge, HEADERS_TOO_LARGE)
    };
    let line_end = answer.iter().position(|byte| *byte == b'\r')?;
    let mut whole = before.to_vec();
    whole.extend_from_slice(status.map_or(answer.get(..line_end)?, str::as_bytes));
    whole.extend_from_slice(answer.get(line_end..at)?);
    let headers = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    whole.extend_from_slice(headers.as_bytes());
    whole.extend_from_slice(answer.get(at + NO_BODY.len()..)?);
    whole.extend_from_slice(body.as_bytes());
    Some((whole, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(status: &str) -> String {
        let date = "date: Mon, 30 Nov 2026 06:22:25 GMT";
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n{date}\r\n\r\n")
    }

    fn with_body(status: &str, body: &str) -> String {
        let length =
            format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        bare(status).replace("content-length: 0\r\n", &length) + body
    }

    #[test]
    fn an_answer_of_the_parsers_own_gets_its_body() {
        let (bad, long) = ("400 Bad Request", "414 URI Too Long");
        let large = "431 Request Header Fields Too Large";
        for (status, in_request_line, expected, body, kind) in [
            (bad, false, bad, INVALID, ParseFailure::Invalid),
            (bad, true, bad, INVALID, ParseFailure::Invalid),
            (long, false, long, URI_TOO_LONG, ParseFailure::UriTooLong),
            (large, false, large, HEADERS_TOO_LARGE, ParseFailure::HeadersTooLarge),
            (large, true, long, URI_TOO_LONG, ParseFailure::UriTooLong),
        ] {
            for before in ["", "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"] {
                let written = format!("{before}{}", bare(status));
                let (whole, told) = completed(written.as_bytes(), in_request_line).unwrap();
                let whole = String::from_utf8(whole).unwrap();
                assert_eq!(whole, format!("{before}{}", with_body(expected, body)));
                assert_eq!(told, kind);
            }
        }
    }

    #[test]
    fn every_other_answer_is_left_alone() {
        for written in [
            "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 27\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "\r\n\r\n",
            "",
            &with_body("400 Bad Request", INVALID),
        ] {
            assert_eq!(completed(written.as_bytes(), false), None, "{written:?}");
        }
    }
}
