//! The headers of an answer of any store: how long to wait, whose clock is wrong, which bytes came, what they come to, how
//! far an upload is and where, which region a bucket is in.
//!
//! Two bytes of a status, eight each of the time, of an offset and of a length, then lines of headers and a body behind an
//! empty one.
#![no_main]

mod answers;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ankusa_actors::ports::{BlobError, GET_MAX_BYTES};
use ankusa_node::blob::answer::{Answer, Refusal};
use ankusa_node::blob::azure::{self, Sas};
use ankusa_node::blob::checksum::{DigestKind, base64_digest, check};
use ankusa_node::blob::gcs::{self, About, Places};
use ankusa_node::blob::retry::retry_after;
use ankusa_node::blob::xml::elements;
use ankusa_node::blob::{oci, s3};
use answers::{one_line, said};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use url::Url;

fuzz_target!(|bytes: &[u8]| {
    let Some((numbers, rest)) = bytes.split_at_checked(26) else { return };
    let number = |at: usize| u64::from_be_bytes(numbers[at..at + 8].try_into().unwrap());
    let status = u16::from_be_bytes([numbers[0], numbers[1]]) % 900 + 100;
    let answer = read(StatusCode::from_u16(status).unwrap(), rest);
    let now_ms = number(2);
    wait(&answer, now_ms);
    errors(&answer, now_ms);
    parts(&answer, number(10), number(18) % GET_MAX_BYTES + 1);
    digests(&answer);
    uploads(&answer, number(18));
});

fn read(status: StatusCode, rest: &[u8]) -> Answer {
    let end = rest.windows(2).position(|pair| pair == b"\n\n").unwrap_or(rest.len());
    let (head, body) = rest.split_at(end);
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    Answer { status, headers, body: Bytes::copy_from_slice(body.get(2..).unwrap_or_default()) }
}

/// A wait is some time, and of a date the one that the other reader of dates has.
fn wait(answer: &Answer, now_ms: u64) {
    let wait = retry_after(answer.status, &answer.headers, now_ms);
    assert!(wait.is_none() || matches!(answer.status.as_u16(), 429 | 503));
    assert!(wait.is_none_or(|wait| !wait.is_zero()));
    // Whoever waits adds it to a point in time.
    assert!(wait.is_none_or(|wait| std::time::Instant::now().checked_add(wait).is_some()));
    let Some(told) = answer.header("retry-after") else { return };
    if let (Some(wait), Ok(seconds)) = (wait, told.parse::<u64>()) {
        assert_eq!(wait.as_millis(), u128::from(seconds.saturating_mul(1_000)));
    }
    let is_fixed_form = told.len() == 29 && told.ends_with(" GMT");
    if let (503, true, Ok(date)) =
        (answer.status.as_u16(), is_fixed_form, httpdate::parse_http_date(told))
    {
        let date_ms = date.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let left = date_ms.saturating_sub(u128::from(now_ms));
        assert_eq!(wait.map_or(0, |wait| wait.as_millis()), left, "{told}");
    }
}

fn errors(answer: &Answer, now_ms: u64) {
    let ahead = answer.ahead_s(now_ms);
    if let Some(ahead_s) = ahead {
        let date = httpdate::parse_http_date(answer.header("date").unwrap()).unwrap();
        let date_s = date.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(i128::from(ahead_s) + i128::from(date_s), i128::from(now_ms / 1_000));
    }
    let of_s3 = s3::refusal(answer, "eu-west-1");
    said(&of_s3, answer.body.len());
    let sas = Sas::new("st=2026-11-30&se=2026-12-01T10:00:30Z&sig=ab%2Fcd").unwrap();
    let of_azure = azure::refusal(answer, Some(&sas));
    for error in [
        answer.error(&Refusal::default(), now_ms),
        s3::error(answer, &of_s3, now_ms),
        azure::error(answer, &of_azure, now_ms, None),
        azure::error(answer, &of_azure, now_ms, Some(&sas)),
        gcs::error(answer, About::Object, now_ms),
        gcs::error(answer, About::Bucket, now_ms),
        oci::error(answer, now_ms),
        azure::refused(answer),
    ] {
        one_line(&error);
        if let BlobError::ClockSkew { ahead_s } = error {
            assert_eq!(Some(ahead_s), ahead);
        }
        if let BlobError::WrongRegion { region } = &error {
            assert_ne!(region, "eu-west-1");
        }
    }
    let told = azure::error(answer, &of_azure, now_ms, Some(&sas)).to_string();
    assert!(!told.contains("ab%2Fcd") && !told.contains("ab/cd"), "{told}");
}

/// What is taken for a range is no longer than was asked for, and begins there by all who take it.
fn parts(answer: &Answer, offset: u64, length: u64) {
    let offset = offset.min(i64::MAX.unsigned_abs());
    let of_s3 = s3::part_of(answer, offset, length);
    let of_gcs = gcs::part_of(answer, offset, length);
    for part in [&of_s3, &of_gcs, &oci::part_of(answer, offset, length)] {
        match part {
            Ok(part) => {
                assert_eq!(part, &answer.body);
                assert!(u64::try_from(part.len()).unwrap() <= length);
            }
            Err(error) => one_line(error),
        }
    }
    // Who says most is believed by those who ask for less.
    assert!(of_s3.is_err() || of_gcs.is_ok(), "{answer:?}");
    let offset = offset.min(1 << 50);
    if azure::is_range(answer, &(offset..offset + length)) && !answer.body.is_empty() {
        assert_eq!(s3::part_of(answer, offset, length).as_ref(), Ok(&answer.body));
    }
}

/// A digest counts when it is a whole one, and then it must be that of the body.
fn digests(answer: &Answer) {
    let goog = gcs::md5_of(&answer.headers);
    assert!(goog.is_none_or(|goog| !goog.contains(',')));
    for (kind, bytes, told) in [
        (DigestKind::Sha256, 32, answer.header("x-amz-checksum-sha256")),
        (DigestKind::Md5, 16, answer.header("content-md5")),
        (DigestKind::Md5, 16, goog),
    ] {
        let right = now(base64_digest(kind, std::slice::from_ref(&answer.body)));
        assert_eq!(now(check(kind, Some(&right), &answer.body)), Ok(()));
        let is_whole = |told: &str| STANDARD.decode(told).is_ok_and(|it| it.len() == bytes);
        let is_another = told.is_some_and(|told| is_whole(told) && told != right);
        let checked = now(check(kind, told, &answer.body));
        assert_eq!(checked.is_err(), is_another, "{told:?}");
        if let Err(error) = checked {
            assert_eq!(error.as_str(), "integrity");
        }
    }
}

/// What never waits is ready at once.
fn now<T>(it: impl Future<Output = T>) -> T {
    match pin!(it).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(it) => it,
        Poll::Pending => panic!("it waits"),
    }
}

fn uploads(answer: &Answer, sent_to: u64) {
    match gcs::reached(answer, sent_to) {
        Ok(at) => assert!(at <= sent_to),
        Err(error) => one_line(&error),
    }
    if let Some(location) = answer.header("location") {
        let endpoint = Url::parse("https://store.example:8443/base").unwrap();
        match Places::new(endpoint.clone(), "bucket").session(location) {
            Ok(session) => {
                assert_eq!(session.origin(), endpoint.origin());
                assert!(session.username().is_empty() && session.password().is_none());
            }
            Err(error) => one_line(&error),
        }
    }
    let tags: Vec<HeaderValue> = answer.headers.get_all("etag").iter().cloned().collect();
    if let Ok(list) = s3::list_of(&tags) {
        let mut read = Vec::new();
        let done = elements(&list, |path, text| {
            if path.ends_with(&["ETag"]) {
                read.push(text.to_owned());
            }
        });
        assert_eq!(done, Ok(()));
        assert!(read.iter().map(String::as_bytes).eq(tags.iter().map(HeaderValue::as_bytes)));
    }
}
