//! What S3 says when it does not do what it was asked, and the error it means.

use ankusa_actors::ports::BlobError;
use http::StatusCode;

use crate::blob::answer::{Answer, Refusal, told};
use crate::blob::xml::elements;

/// Names the region a bucket is in, on many answers.
pub(super) const BUCKET_REGION: &str = "x-amz-bucket-region";

/// The longest name of a region that is believed.
const REGION_MAX_BYTES: usize = 64;

/// Reads an error of S3 or of STS. What cannot be read says nothing.
pub fn parse_error(xml: &[u8]) -> Refusal {
    let mut refusal = Refusal::default();
    // What was told before it stopped making sense still tells something.
    let _ = elements(xml, |path, text| match path {
        ["Error", name] | ["ErrorResponse", "Error", name] => match *name {
            "Code" => text.trim().clone_into(&mut refusal.code),
            "Message" => text.trim().clone_into(&mut refusal.message),
            "Region" => refusal.region = region(text),
            _other => {}
        },
        _other => {}
    });
    refusal
}

/// The same of a whole answer to one who believes the bucket in `own_region`.
pub fn refusal(answer: &Answer, own_region: &str) -> Refusal {
    let mut refusal = parse_error(&answer.body);
    let named = answer.header(BUCKET_REGION).and_then(region);
    refusal.region = refusal.region.or(named).filter(|region| region != own_region);
    refusal
}

fn region(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = !text.is_empty()
        && text.len() <= REGION_MAX_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    fits.then(|| text.to_owned())
}

/// The error of an answer that is final.
pub fn error(answer: &Answer, refusal: &Refusal, now_ms: u64) -> BlobError {
    let told = told(answer.status, refusal);
    match refusal.code.as_str() {
        "NoSuchKey" => BlobError::NotFound,
        "PreconditionFailed" => BlobError::AlreadyExists,
        "NoSuchBucket" | "NotImplemented" => BlobError::Misconfigured(told),
        // Whoever lists unfinished uploads and ends them may have ended ours.
        "NoSuchUpload" => BlobError::Transport(told),
        "BadDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" => {
            BlobError::Integrity(told)
        }
        "RequestTimeTooSkewed" => match answer.ahead_s(now_ms) {
            Some(ahead_s) => BlobError::ClockSkew { ahead_s },
            None => BlobError::Forbidden(told),
        },
        "AccessDenied"
        | "SignatureDoesNotMatch"
        | "InvalidAccessKeyId"
        | "InvalidToken"
        | "ExpiredToken"
        | "TokenRefreshRequired" => BlobError::Forbidden(told),
        _other => answer.error(refusal, now_ms),
    }
}

/// Whether temporary credentials have run out, whatever their end was said to be.
pub(super) fn is_expiry(refusal: &Refusal) -> bool {
    matches!(
        refusal.code.as_str(),
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired"
    )
}

pub(super) fn is_throttle(refusal: &Refusal) -> bool {
    matches!(
        refusal.code.as_str(),
        "SlowDown"
            | "SlowDownRead"
            | "SlowDownWrite"
            | "Throttling"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "TooManyRequests"
            | "BandwidthLimitExceeded"
    )
}

/// Whether another write of the same object was under way: nothing is there for it, and nothing was written.
pub(super) fn is_conflict(status: StatusCode, refusal: &Refusal) -> bool {
    status == StatusCode::CONFLICT
        && matches!(refusal.code.as_str(), "ConditionalRequestConflict" | "OperationAborted")
}

/// Whether it did not get the whole request, which it calls a bad one.
pub(super) fn is_cut_short(status: StatusCode, refusal: &Refusal) -> bool {
    status == StatusCode::BAD_REQUEST
        && matches!(refusal.code.as_str(), "RequestTimeout" | "IncompleteBody")
}

/// The status of an error in the body of an answer that began with 200.
pub(super) fn status_of(code: &str) -> StatusCode {
    match code {
        "InternalError" => StatusCode::INTERNAL_SERVER_ERROR,
        "SlowDown" | "ServiceUnavailable" => StatusCode::SERVICE_UNAVAILABLE,
        "PreconditionFailed" => StatusCode::PRECONDITION_FAILED,
        "ConditionalRequestConflict" | "OperationAborted" => StatusCode::CONFLICT,
        "NoSuchUpload" | "NoSuchBucket" => StatusCode::NOT_FOUND,
        "AccessDenied" => StatusCode::FORBIDDEN,
        _other => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn answer(status: u16, code: &str, headers: &[(&'static str, &str)]) -> Answer {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let body = if code.is_empty() {
            String::new()
        } else {
            format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Because.</Message></Error>"
            )
        };
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: map,
            body: Bytes::from(body),
        }
    }

    fn meant(answer: &Answer) -> BlobError {
        // 1994-11-06T08:49:37Z
        error(answer, &refusal(answer, "us-east-1"), 784_111_777_000)
    }

    #[test]
    fn an_error_is_read_from_s3_and_from_sts() {
        let of = |code: &str, message: &str, region: Option<&str>| Refusal {
            code: code.into(),
            message: message.into(),
            region: region.map(str::to_owned),
        };
        for (xml, expected) in [
            (
                "<Error><Code> SlowDown\n</Code><Message>a &amp; b</Message><Region>eu-west-1</Region><Hint><Code>x</Code></Hint></Error>",
                of("SlowDown", "a & b", Some("eu-west-1")),
            ),
            (
                "<ErrorResponse xmlns=\"x\"><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code></Error></ErrorResponse>",
                of("InvalidIdentityToken", "", None),
            ),
            ("<Error><Code>SlowDown</Code><Message>cut", of("SlowDown", "", None)),
            ("<Error><Region>a b</Region></Error>", of("", "", None)),
            ("<html><head><title>502</title>", Refusal::default()),
            ("", Refusal::default()),
        ] {
            assert_eq!(parse_error(xml.as_bytes()), expected, "{xml}");
        }
        assert_eq!(parse_error(b"\xff\xfe<Error/>"), Refusal::default());
    }

    #[test]
    fn every_refusal_means_one_error() {
        let forbidden = |told: &str| BlobError::Forbidden(told.into());
        let elsewhere = || BlobError::WrongRegion { region: "eu-west-1".into() };
        let date = ("date", "Sun, 06 Nov 1994 08:29:37 GMT");
        let region = (BUCKET_REGION, "eu-west-1");
        for (status, code, headers, expected) in [
            (404, "NoSuchKey", vec![], BlobError::NotFound),
            (404, "", vec![], BlobError::NotFound),
            (
                404,
                "NoSuchBucket",
                vec![],
                BlobError::Misconfigured("404 NoSuchBucket: Because.".into()),
            ),
            (
                404,
                "NoSuchUpload",
                vec![],
                BlobError::Transport("404 NoSuchUpload: Because.".into()),
            ),
            (412, "PreconditionFailed", vec![], BlobError::AlreadyExists),
            (412, "", vec![], BlobError::AlreadyExists),
            (400, "BadDigest", vec![], BlobError::Integrity("400 BadDigest: Because.".into())),
            (
                400,
                "XAmzContentSHA256Mismatch",
                vec![],
                BlobError::Integrity("400 XAmzContentSHA256Mismatch: Because.".into()),
            ),
            (403, "RequestTimeTooSkewed", vec![date], BlobError::ClockSkew { ahead_s: 1_200 }),
            (403, "RequestTimeTooSkewed", vec![], forbidden("403 RequestTimeTooSkewed: Because.")),
            (403, "AccessDenied", vec![date], forbidden("403 AccessDenied: Because.")),
            (
                403,
                "SignatureDoesNotMatch",
                vec![],
                forbidden("403 SignatureDoesNotMatch: Because."),
            ),
            (403, "InvalidAccessKeyId", vec![], forbidden("403 InvalidAccessKeyId: Because.")),
            (400, "ExpiredToken", vec![], forbidden("400 ExpiredToken: Because.")),
            (403, "", vec![], forbidden("403")),
            (400, "AuthorizationHeaderMalformed", vec![region], elsewhere()),
            (301, "PermanentRedirect", vec![region], elsewhere()),
            (301, "", vec![], BlobError::Misconfigured("301: redirects are not followed".into())),
            (
                400,
                "InvalidArgument",
                vec![(BUCKET_REGION, "us-east-1")],
                BlobError::Misconfigured("400 InvalidArgument: Because.".into()),
            ),
            (
                501,
                "NotImplemented",
                vec![],
                BlobError::Misconfigured("501 NotImplemented: Because.".into()),
            ),
            (503, "SlowDown", vec![], BlobError::Transport("503 SlowDown: Because.".into())),
        ] {
            assert_eq!(meant(&answer(status, code, &headers)), expected, "{status} {code}");
        }
    }

    #[test]
    fn a_malformed_authorization_names_the_region_in_its_body() {
        let mut malformed = answer(400, "", &[]);
        malformed.body =
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
                .into();
        assert_eq!(meant(&malformed), BlobError::WrongRegion { region: "eu-west-1".into() });
    }
}
