//! Why no answer came, as a sentence for the dead letters. What the HTTP client says is read here and nowhere else.

use std::error::Error;
use std::io;
use std::iter::successors;

use super::egress::ResolveError;

/// Says what went wrong between here and `authority` (`host:port`).
pub(super) fn reason(error: &reqwest::Error, authority: &str, tls: bool) -> String {
    // The client has no timeout but this one.
    if error.is_timeout() {
        return format!("connection to {authority} timed out");
    }
    for cause in causes(error) {
        if let Some(error) = cause.downcast_ref::<ResolveError>() {
            return error.to_string();
        }
        if let Some(said) =
            cause.downcast_ref::<hyper::Error>().and_then(|error| http_reason(error, authority))
        {
            return said;
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return io_reason(error, authority, tls);
        }
    }
    format!("request to {authority} failed: {}", root_cause(error))
}

/// What an error says at its root.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(Some(error as &(dyn Error + 'static)), |error| (*error).source())
}

fn http_reason(error: &hyper::Error, authority: &str) -> Option<String> {
    if error.is_incomplete_message() {
        return Some(closed(authority));
    }
    if error.is_parse_too_large() {
        return Some(format!("{authority} answered with more headers than are read"));
    }
    error
        .is_parse()
        .then(|| format!("{authority} answered something that is not HTTP/1.1: {error}"))
}

// The kinds are the standard library's, and it may add more.
#[allow(clippy::wildcard_enum_match_arm)]
fn io_reason(mut error: &io::Error, authority: &str, tls: bool) -> String {
    // The TLS connector wraps what the system said once more.
    while let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        error = inner;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("connection refused by {authority}"),
        io::ErrorKind::ConnectionReset => format!("connection reset by {authority}"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            format!("no route to {authority}")
        }
        io::ErrorKind::TimedOut => format!("connection to {authority} timed out"),
        // Whatever did not come from the system came from the TLS library.
        _other if tls && error.raw_os_error().is_none() => {
            format!("TLS with {authority} failed: {error}")
        }
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::UnexpectedEof => closed(authority),
        _other => format!("connection to {authority} failed: {error}"),
    }
}

fn closed(authority: &str) -> String {
    format!("{authority} closed the connection without an answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_becomes_a_sentence() {
        let said = |tls, code| io_reason(&io::Error::from_raw_os_error(code), "w:443", tls);
        for (code, expected) in [
            (libc::ECONNREFUSED, "connection refused by w:443"),
            (libc::ECONNRESET, "connection reset by w:443"),
            (libc::EHOSTUNREACH, "no route to w:443"),
            (libc::ENETUNREACH, "no route to w:443"),
            (libc::ETIMEDOUT, "connection to w:443 timed out"),
            (libc::EPIPE, "w:443 closed the connection without an answer"),
            (libc::ECONNABORTED, "w:443 closed the connection without an answer"),
            (libc::EMFILE, "connection to w:443 failed: Too many open files (os error 24)"),
        ] {
            assert_eq!([said(false, code), said(true, code)], [expected; 2]);
        }
    }

    #[test]
    fn what_the_tls_library_says_is_told_from_what_the_system_says_through_it() {
        let bad_certificate =
            || io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate: Expired");
        let reset = || io::Error::from_raw_os_error(libc::ECONNRESET);
        let twice = |error: io::Error| io::Error::other(io::Error::other(error));
        for (error, expected) in [
            (bad_certificate(), "TLS with w:443 failed: invalid peer certificate: Expired"),
            (twice(bad_certificate()), "TLS with w:443 failed: invalid peer certificate: Expired"),
            (twice(reset()), "connection reset by w:443"),
        ] {
            assert_eq!(io_reason(&error, "w:443", true), expected);
        }
        let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(
            io_reason(&ended, "w:80", false),
            "w:80 closed the connection without an answer"
        );
    }
}
