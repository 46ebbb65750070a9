//! What the Blob service says when it refuses, and the error that is.

use ankusa_actors::ports::BlobError;

use super::sas::Sas;
use crate::blob::answer::{Answer, Refusal, short, told};
use crate::blob::xml::read;

/// The header that says the code even where there is no body.
pub(super) const CODE_HEADER: &str = "x-ms-error-code";

/// Another write of the same object came between the blocks and their list.
pub(super) const INVALID_BLOCK_LIST: &str = "InvalidBlockList";

/// The code and sentence of a refusal: `header` is its `x-ms-error-code`, which is believed before the body. Neither is
/// ever missed: an answer of something between here and there has no code.
pub fn parse_error(header: Option<&str>, body: &[u8]) -> Refusal {
    let mut refusal = Refusal::default();
    let document = read(body, |element| {
        match element.path {
            ["Error", "Code"] => element.text.trim().clone_into(&mut refusal.code),
            // Its other lines are the request's id and the time.
            ["Error", "Message"] => {
                let sentence = element.text.trim().lines().next();
                sentence.unwrap_or_default().clone_into(&mut refusal.message);
            }
            _other => {}
        }
        Ok(())
    });
    if document.is_err() {
        refusal = Refusal::default();
    }
    if let Some(code) = header {
        code.clone_into(&mut refusal.code);
    }
    refusal
}

/// The same of a whole answer to one who asks with `sas`. Whatever answers may repeat the URL it was asked for: what gives
/// the signature away is not told.
pub fn refusal(answer: &Answer, sas: Option<&Sas>) -> Refusal {
    let refusal = parse_error(answer.header(CODE_HEADER), &answer.body);
    // As it would be told: what is left out there must not hide it here.
    let gives_away = |text: &str| sas.is_some_and(|sas| sas.is_in(&short(text)));
    if gives_away(&refusal.message) || gives_away(&refusal.code) {
        return Refusal::default();
    }
    refusal
}

/// The error of an answer that is final.
pub fn error(answer: &Answer, refusal: &Refusal, now_ms: u64, sas: Option<&Sas>) -> BlobError {
    let status = answer.status.as_u16();
    match (status, refusal.code.as_str()) {
        (404, "BlobNotFound") => BlobError::NotFound,
        (400, "Md5Mismatch") => BlobError::Integrity(told(answer.status, refusal)),
        (400 | 401 | 403, "InvalidAuthenticationInfo" | "AuthenticationFailed")
        | (401 | 403, "" | "NoAuthenticationInformation") => unproven(answer, refusal, now_ms, sas),
        // It knows who asks, and that is not allowed: no clock makes that better.
        (401 | 403, _) => lapsed(answer, refusal, now_ms, sas)
            .unwrap_or_else(|| BlobError::Forbidden(told(answer.status, refusal))),
        // No such container or account, or somebody else who answers. A lease is a 412 too.
        (404 | 409 | 412, _) => BlobError::Misconfigured(told(answer.status, refusal)),
        (_, INVALID_BLOCK_LIST) => BlobError::Transport(told(answer.status, refusal)),
        _other => answer.error(refusal, now_ms),
    }
}

/// It does not believe who asks.
fn unproven(answer: &Answer, refusal: &Refusal, now_ms: u64, sas: Option<&Sas>) -> BlobError {
    let is_denial = matches!(answer.status.as_u16(), 401 | 403);
    lapsed(answer, refusal, now_ms, sas).unwrap_or_else(|| {
        if is_denial {
            answer.error(refusal, now_ms)
        } else {
            BlobError::Forbidden(told(answer.status, refusal))
        }
    })
}

/// The signature's time has passed or not begun, by the service's clock, which is the one that counts.
fn lapsed(answer: &Answer, refusal: &Refusal, now_ms: u64, sas: Option<&Sas>) -> Option<BlobError> {
    let now_s = i64::try_from(now_ms / 1_000).unwrap_or(i64::MAX);
    let lapse = sas?.lapse(now_s.saturating_sub(answer.ahead_s(now_ms).unwrap_or(0)))?;
    Some(BlobError::Forbidden(format!("{}: {lapse}", told(answer.status, refusal))))
}

/// Whether a conditional write was refused because the object is there, or may be: whoever is told looks at it.
pub(super) fn says_it_exists(refusal: &Refusal) -> bool {
    matches!(
        refusal.code.as_str(),
        "BlobAlreadyExists"
            | "ConditionNotMet"
            // Of a signature that may create and not replace.
            | "UnauthorizedBlobOverwrite"
            | "BlobImmutableDueToPolicy"
            | "BlobImmutableDueToLegalHold"
            // Of a block, where the object that is there is of another kind.
            | "InvalidBlobType"
            | INVALID_BLOCK_LIST
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    /// Mon, 30 Nov 2026 10:00:00 GMT.
    const NOW_MS: u64 = 1_796_032_800_000;

    fn answer(status: u16, date: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("date", HeaderValue::from_static(date));
        Answer { status: StatusCode::from_u16(status).unwrap(), headers, body: Bytes::new() }
    }

    fn refused(code: &str) -> Refusal {
        Refusal { code: code.to_owned(), message: "Why.".to_owned(), region: None }
    }

    #[test]
    fn the_code_is_the_headers_and_the_sentence_the_first_line_of_the_message() {
        let body = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>AuthenticationFailed</Code>\
            <Message>Server failed to authenticate the request.\nRequestId:1\nTime:2026</Message>\
            <AuthenticationErrorDetail>The MAC 'secret' is not the same</AuthenticationErrorDetail></Error>";
        let sentence = "Server failed to authenticate the request.";
        let read = |header, body: &str| {
            let Refusal { code, message, region } = parse_error(header, body.as_bytes());
            assert_eq!(region, None);
            (code, message)
        };
        let expected = ("AuthenticationFailed".to_owned(), sentence.to_owned());
        assert_eq!(read(None, body), expected);
        assert_eq!(read(Some("Other"), body), ("Other".to_owned(), sentence.to_owned()));
        assert_eq!(read(Some("Other"), ""), ("Other".to_owned(), String::new()));
        for nothing in ["", "<html><Code>1</Code></html>", "<Error><Code>half</Code>"] {
            assert_eq!(read(None, nothing), (String::new(), String::new()), "{nothing}");
        }
    }

    #[test]
    fn every_refusal_is_the_error_that_says_what_to_do() {
        let text = |status: u16, code: &str| format!("{status} {code}: Why.");
        let table = [
            (404, "BlobNotFound", "not_found"),
            (404, "ContainerNotFound", "misconfigured"),
            (404, "ResourceNotFound", "misconfigured"),
            (404, "", "misconfigured"),
            (409, "ContainerBeingDeleted", "misconfigured"),
            (409, "SnapshotsPresent", "misconfigured"),
            (409, "LeaseAlreadyPresent", "misconfigured"),
            (412, "LeaseIdMissing", "misconfigured"),
            (412, "ConditionNotMet", "misconfigured"),
            (400, "Md5Mismatch", "integrity"),
            (400, "InvalidMd5", "misconfigured"),
            (400, "InvalidBlockList", "transport"),
            (400, "InvalidAuthenticationInfo", "forbidden"),
            (401, "InvalidAuthenticationInfo", "forbidden"),
            (401, "NoAuthenticationInformation", "forbidden"),
            (403, "AuthenticationFailed", "forbidden"),
            (403, "AuthorizationFailure", "forbidden"),
            (403, "AuthorizationPermissionMismatch", "forbidden"),
            (403, "InsufficientAccountPermissions", "forbidden"),
            (403, "", "forbidden"),
            (302, "", "misconfigured"),
            (503, "ServerBusy", "transport"),
        ];
        for (status, code, word) in table {
            let (answer, refusal) =
                (answer(status, "Mon, 30 Nov 2026 09:56:00 GMT"), refused(code));
            let error = error(&answer, &refusal, NOW_MS, None);
            assert_eq!(error.as_str(), word, "{status} {code}");
            let (BlobError::Forbidden(told)
            | BlobError::Misconfigured(told)
            | BlobError::Integrity(told)
            | BlobError::Transport(told)) = error
            else {
                continue;
            };
            assert!(code.is_empty() || told == text(status, code), "{told}");
        }
    }

    #[test]
    fn a_clock_that_is_wrong_is_blamed_for_what_is_not_believed_and_for_nothing_else() {
        let late = answer(403, "Mon, 30 Nov 2026 09:40:00 GMT");
        let skew = BlobError::ClockSkew { ahead_s: 1_200 };
        for code in ["AuthenticationFailed", ""] {
            assert_eq!(error(&late, &refused(code), NOW_MS, None), skew, "{code}");
        }
        let denied = error(&late, &refused("AuthorizationPermissionMismatch"), NOW_MS, None);
        assert_eq!(denied.as_str(), "forbidden");
    }

    #[test]
    fn a_signature_that_has_expired_by_the_services_clock_is_said_to() {
        let sas = Sas::new("se=2026-11-30T09:50:00Z&sig=a").unwrap();
        let failed = refused("AuthenticationFailed");
        let expired =
            "403 AuthenticationFailed: Why.: the SAS token expired at 2026-11-30T09:50:00Z";
        let on_time = answer(403, "Mon, 30 Nov 2026 09:56:00 GMT");
        let forbidden = BlobError::Forbidden(expired.to_owned());
        assert_eq!(error(&on_time, &failed, NOW_MS, Some(&sas)), forbidden);
        // It has by ours, and not by the one that counts.
        let late = answer(403, "Mon, 30 Nov 2026 09:40:00 GMT");
        let skew = BlobError::ClockSkew { ahead_s: 1_200 };
        assert_eq!(error(&late, &failed, NOW_MS, Some(&sas)), skew);
    }

    #[test]
    fn an_answer_that_repeats_the_signature_is_not_told() {
        let sas = Sas::new("se=2026-11-30T09:50:00Z&sig=ab%2Fcd").unwrap();
        for told in ["sig=ab%2Fcd", "ab/cd", "ab/\u{1}cd", "a\u{7f}b%2Fcd"] {
            let body = format!("<Error><Code>A</Code><Message>of {told}</Message></Error>");
            let body = Bytes::from(body);
            let answer = Answer { body, ..answer(403, "Mon, 30 Nov 2026 09:56:00 GMT") };
            assert_eq!(refusal(&answer, Some(&sas)), Refusal::default(), "{told:?}");
            assert_eq!(refusal(&answer, None).code, "A");
        }
    }

    #[test]
    fn only_some_conflicts_say_that_the_object_is_there() {
        for code in ["BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite"] {
            assert!(says_it_exists(&refused(code)), "{code}");
        }
        for code in
            ["ContainerBeingDeleted", "LeaseIdMissing", "LeaseAlreadyPresent", "BlobNotFound", ""]
        {
            assert!(!says_it_exists(&refused(code)), "{code}");
        }
    }
}
