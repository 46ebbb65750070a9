//! Keys that are fetched: from STS, from an instance; and such as run out.

use std::io::Write;

use ankusa_actors::ports::{Blob, BlobError, BlobScope};
use ankusa_node::blob::s3::credentials::Environment;
use ankusa_node::blob::s3::{S3Spec, open_in};

use crate::relay::{Act, Heard, Relay};
use crate::s3_servers::{moto, raw, spec};
use crate::{Arc, body, key, world};

/// Before a store at this port, with no keys but what the environment leads to.
fn store(port: u16, environment: &[(&str, &str)]) -> Arc<dyn Blob> {
    let spec = S3Spec { access_key_id: None, secret_access_key: None, ..spec(port, "keys") };
    open_in(&spec, BlobScope::Segments, &world(), &Environment::of(environment)).unwrap()
}

/// Whose keys a request was signed with.
fn signer(heard: &Heard) -> &str {
    let authorization = &heard.headers["authorization"];
    let after = authorization.split_once("Credential=").unwrap().1;
    after.split_once('/').unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_identity_takes_on_its_role_with_the_token_of_now() {
    let server = moto();
    raw(server.port, "PUT", "/keys", &[], b"").await;
    let sts = Relay::before(server.port, |_| Act::Forward).await;
    // Every other request finds its keys expired.
    let bucket = Relay::before(server.port, |heard| {
        if heard.n == 1 { Act::error(400, "ExpiredToken") } else { Act::Forward }
    })
    .await;
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"first.token\n").unwrap();
    let endpoint = format!("http://127.0.0.1:{}", sts.port);
    let ours = store(
        bucket.port,
        &[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path().to_str().unwrap()),
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/node"),
            ("AWS_ENDPOINT_URL_STS", &endpoint),
        ],
    );
    assert_eq!(sts.told(), [] as [&str; 0], "nobody asked yet");
    ours.put(&key("k"), body(b"hello"), None).await.unwrap();

    std::fs::write(token.path(), "second/token+").unwrap();
    assert_eq!(ours.get(&key("k"), None).await.unwrap(), &b"hello"[..]);
    assert_eq!(ours.get(&key("k"), None).await.unwrap(), &b"hello"[..]);

    let forms: Vec<String> =
        sts.heard().iter().map(|heard| String::from_utf8(heard.body.clone()).unwrap()).collect();
    let form = |token: &str| {
        format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fnode\
             &RoleSessionName=ankusa&WebIdentityToken={token}"
        )
    };
    assert_eq!(forms, [form("first.token"), form("second%2Ftoken%2B")]);
    assert_eq!(sts.told(), ["POST /", "POST /"]);

    let heard = bucket.heard();
    assert_eq!(bucket.told(), ["PUT /keys/k", "GET /keys/k", "GET /keys/k", "GET /keys/k"]);
    assert!(heard.iter().all(|heard| heard.headers.contains_key("x-amz-security-token")));
    let signers: Vec<&str> = heard.iter().map(signer).collect();
    assert_eq!(signers[0], signers[1], "kept until they are refused");
    assert_ne!(signers[1], signers[2], "and fetched anew then");
    assert_eq!(signers[2], signers[3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_gives_the_keys_of_its_role() {
    let server = moto();
    raw(server.port, "PUT", "/keys", &[], b"").await;
    let metadata = Relay::before_as(server.port, "169.254.169.254").await;
    let bucket = Relay::before(server.port, |_| Act::Forward).await;
    let endpoint = format!("http://127.0.0.1:{}", metadata.port);
    let ours = store(bucket.port, &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)]);
    ours.put(&key("i"), body(b"hello"), None).await.unwrap();
    assert_eq!(ours.get(&key("i"), None).await.unwrap(), &b"hello"[..]);

    let [token, roles, keys] = &metadata.heard()[..] else { panic!("{:?}", metadata.told()) };
    assert_eq!((token.method.as_str(), token.target.as_str()), ("PUT", "/latest/api/token"));
    assert_eq!(token.headers["x-aws-ec2-metadata-token-ttl-seconds"], "60");
    assert_eq!(roles.target, "/latest/meta-data/iam/security-credentials/");
    assert!(
        keys.target.starts_with("/latest/meta-data/iam/security-credentials/"),
        "{}",
        keys.target
    );
    for asked in [roles, keys] {
        assert_eq!(asked.headers["x-aws-ec2-metadata-token"], "fake-imdsv2-token");
    }
    for asked in bucket.heard() {
        assert_eq!(signer(&asked), "test-key");
        assert_eq!(asked.headers["x-amz-security-token"], "test-session-token");
    }
}

/// An instance whose keys have the number of the fetch in them.
async fn instance() -> Relay {
    Relay::alone(|heard| match heard.target.as_str() {
        "/latest/api/token" => Act::ok("t"),
        "/latest/meta-data/iam/security-credentials/" => Act::ok("the role\n"),
        "/latest/meta-data/iam/security-credentials/the%20role" => Act::ok(format!(
            r#"{{"Code":"Success","AccessKeyId":"key-{}","SecretAccessKey":"s","Token":"t","Expiration":"2999-01-01T00:00:00Z"}}"#,
            heard.n / 3,
        )),
        _ => Act::status(404),
    })
    .await
}

#[tokio::test]
async fn keys_that_have_run_out_are_tried_once_more_and_no_more() {
    let metadata = instance().await;
    let bucket = Relay::alone(|_| Act::error(400, "ExpiredToken")).await;
    let endpoint = format!("http://127.0.0.1:{}", metadata.port);
    let ours = store(bucket.port, &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)]);
    let refused = ours.get(&key("k"), None).await;
    assert_eq!(refused, Err(BlobError::Forbidden("400 ExpiredToken: Because.".into())));
    assert_eq!(bucket.heard().iter().map(signer).collect::<Vec<_>>(), ["key-0", "key-1"]);
    assert_eq!(metadata.heard().len(), 6);
}

#[tokio::test]
async fn keys_of_the_configuration_are_not_tried_twice() {
    let bucket = Relay::alone(|_| Act::error(400, "ExpiredToken")).await;
    let refused = crate::store(&spec(bucket.port, "keys")).get(&key("k"), None).await;
    assert_eq!(refused, Err(BlobError::Forbidden("400 ExpiredToken: Because.".into())));
    assert_eq!(bucket.heard().len(), 1);
}

#[tokio::test]
async fn without_keys_nothing_is_sent() {
    let bucket = Relay::alone(|_| Act::ok("")).await;
    let metadata = Relay::alone(|_| Act::status(404)).await;
    let endpoint = format!("http://127.0.0.1:{}", metadata.port);
    let ours = store(bucket.port, &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)]);
    let error = ours.get(&key("k"), None).await.unwrap_err();
    assert_eq!(error.to_string(), "forbidden: the instance gives no credentials: 404 Not Found");
    assert_eq!(metadata.heard().len(), 1);

    let ours = store(bucket.port, &[("AWS_EC2_METADATA_DISABLED", "true")]);
    assert_eq!(ours.get(&key("k"), None).await.unwrap_err().as_str(), "forbidden");
    assert_eq!(bucket.heard().len(), 0);
}

#[tokio::test]
async fn sts_that_refuses_is_final_and_sts_that_fails_is_asked_again() {
    let token = tempfile::NamedTempFile::new().unwrap();
    for (status, code, asked, expected) in [
        (403, "AccessDenied", 1, "forbidden: STS: 403 AccessDenied: Because."),
        (400, "InvalidIdentityToken", 1, "forbidden: STS: 400 InvalidIdentityToken: Because."),
        (400, "IDPCommunicationError", 3, "transport: STS: 400 IDPCommunicationError: Because."),
        (503, "ServiceUnavailable", 3, "transport: STS: 503 ServiceUnavailable: Because."),
    ] {
        let sts = Relay::alone(move |_| {
            let error = format!("<ErrorResponse><Error><Code>{code}</Code><Message>Because.</Message></Error></ErrorResponse>");
            Act::Answer(status, Vec::new(), error)
        })
        .await;
        let endpoint = format!("http://127.0.0.1:{}", sts.port);
        let ours = store(
            1,
            &[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path().to_str().unwrap()),
                ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
                ("AWS_ENDPOINT_URL_STS", &endpoint),
            ],
        );
        assert_eq!(ours.get(&key("k"), None).await.unwrap_err().to_string(), expected);
        assert_eq!(sts.heard().len(), asked, "{code}");
    }
}
