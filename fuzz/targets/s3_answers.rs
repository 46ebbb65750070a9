//! What S3 answers, STS and an instance's metadata service, or whoever answers in their place: read whole or refused, and
//! what is read, written again, is read as the same. The first byte says which of them it is.
#![no_main]

mod answers;

use ankusa_node::blob::s3::credentials::{parse_instance_keys, parse_role, parse_sts_keys};
use ankusa_node::blob::s3::{self, Keys, ListPage, Pages};
use ankusa_node::blob::xml::elements;
use answers::{NOW_MS, REFUSALS, answer, fit, in_order, one_line, percent, said, whole, xml};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 8 {
        0 => listing(body),
        1 => refusal(body),
        2 => {
            if let Some(id) = whole(body, s3::parse_upload_id) {
                assert!(!id.is_empty() && id.len() <= body.len());
            }
        }
        3 => completion(body),
        4 => sts(body),
        5 => instance(body),
        6 => {
            if let Some(role) = parse_role(body) {
                assert!(
                    !role.is_empty() && role.trim() == role && !role.contains('\n'),
                    "{role:?}"
                );
            }
        }
        _ => pages(body),
    }
});

fn listing(body: &[u8]) {
    let Some(page) = whole(body, s3::parse_listing) else { return };
    fit(&page.entries, body);
    assert_ne!(page.next.as_deref(), Some(""));
    let plain = written(&page, "", xml);
    assert_eq!(s3::parse_listing(plain.as_bytes()), Ok(page.clone()), "{plain}");
    let encoded = written(&page, "<EncodingType>url</EncodingType>", percent);
    assert_eq!(s3::parse_listing(encoded.as_bytes()), Ok(page), "{encoded}");
}

fn written(page: &ListPage, how: &str, key: impl Fn(&str) -> String) -> String {
    let mut out = format!("<ListBucketResult>{how}<IsTruncated>{}", page.next.is_some());
    out.push_str("</IsTruncated>");
    if let Some(next) = &page.next {
        out.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", xml(next)));
    }
    if let Some(asked_for) = &page.asked_for {
        out.push_str(&format!("<ContinuationToken>{}</ContinuationToken>", xml(asked_for)));
    }
    for entry in &page.entries {
        let (key, bytes) = (key(&entry.key), entry.bytes);
        out.push_str(&format!("<Contents><Key>{key}</Key><Size>{bytes}</Size></Contents>"));
    }
    out + "</ListBucketResult>"
}

fn refusal(body: &[u8]) {
    said(&s3::parse_error(body), body.len());
    for status in REFUSALS {
        let answer = answer(status, body);
        let refusal = s3::refusal(&answer, "eu-west-1");
        assert_ne!(refusal.region.as_deref(), Some("eu-west-1"));
        one_line(&s3::error(&answer, &refusal, NOW_MS));
    }
}

/// An object is whole only if that was said, whole.
fn completion(body: &[u8]) {
    if s3::completion_status(&answer(200, body)).is_success() {
        let mut root = String::new();
        let read = elements(body, |path, _| root = path.join("/"));
        assert_eq!((read, root.as_str()), (Ok(()), "CompleteMultipartUploadResult"));
    }
    assert_eq!(s3::completion_status(&answer(412, body)).as_u16(), 412);
}

fn sts(body: &[u8]) {
    let Some(read) = answers::whole_or_none(body, parse_sts_keys) else { return };
    are_whole(&read.value, body);
    let Keys { access_key_id: id, secret_access_key: secret, session_token } = &read.value;
    let token = xml(session_token.as_deref().unwrap_or_default());
    let (id, secret) = (xml(id), xml(secret));
    let again = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{id}\
         </AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken><Expiration>\
         1970-01-01T00:00:02Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>"
    );
    let again = parse_sts_keys(again.as_bytes()).unwrap();
    assert!(again.value == read.value && again.expires_at_ms == Some(2_000));
}

fn instance(body: &[u8]) {
    let Some(read) = whole(body, parse_instance_keys) else { return };
    are_whole(&read.value, body);
    let Keys { access_key_id: id, secret_access_key: secret, session_token } = &read.value;
    let again = json!({"AccessKeyId": id, "SecretAccessKey": secret, "Token": session_token,
        "Expiration": "1970-01-01T00:00:02Z"});
    let again = parse_instance_keys(again.to_string().as_bytes()).unwrap();
    assert!(again.value == read.value && again.expires_at_ms == Some(2_000));
}

fn are_whole(keys: &Keys, body: &[u8]) {
    let token = keys.session_token.as_deref().unwrap_or_default();
    let lens = [keys.access_key_id.len(), keys.secret_access_key.len(), token.len()];
    assert!(!lens.contains(&0) && lens.iter().sum::<usize>() <= body.len(), "{lens:?}");
}

/// Pages with zeros between them.
fn pages(body: &[u8]) {
    let mut pages = Pages::default();
    for page in body.split(|byte| *byte == 0) {
        let Ok(page) = s3::parse_listing(page) else { return };
        match pages.add(page) {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => return one_line(&error),
        }
    }
    match pages.into_listing("a") {
        Ok(entries) => {
            fit(&entries, body);
            in_order(&entries);
            assert!(entries.iter().all(|entry| entry.key.starts_with('a')));
        }
        Err(error) => one_line(&error),
    }
}
