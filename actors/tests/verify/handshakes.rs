//! What a provider asks before it sends hooks, and what it is told.

use ankusa_actors::model::handshake::{
    Handshake, HandshakeRefusal, HandshakeSpec, MAX_CHALLENGE_BYTES, MAX_RESPONSE_BYTES, Reply,
    ResponseSpec,
};
use ankusa_actors::model::source::SourceSpec;
use ankusa_actors::model::verify::VerifySpec;
use proptest::prelude::*;
use serde_json::{Value, json};

const MALFORMED: Result<Reply, HandshakeRefusal> = Err(HandshakeRefusal::Malformed);
const FORBIDDEN: Result<Reply, HandshakeRefusal> = Err(HandshakeRefusal::Forbidden);

fn handshake(block: Value, verify: Value) -> Handshake {
    let verify: VerifySpec = serde_json::from_value(verify).unwrap();
    serde_json::from_value::<HandshakeSpec>(block).unwrap().build(&verify).unwrap()
}

fn all() -> [Handshake; 5] {
    let key = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
    [
        handshake(json!({"type": "slack"}), json!({"type": "slack", "secret": "s"})),
        handshake(json!({"type": "discord"}), json!({"type": "discord", "public_key": key})),
        handshake(json!({"type": "microsoft_graph"}), json!({"type": "none"})),
        meta(),
        handshake(
            json!({"type": "twitter_crc"}),
            json!({"type": "twitter", "secret": ["s", "old"]}),
        ),
    ]
}

fn meta() -> Handshake {
    handshake(
        json!({"type": "meta", "verify_token": ["new one", "old"]}),
        json!({"type": "meta", "secret": "s"}),
    )
}

fn text(body: &str) -> Reply {
    let content_type = "text/plain; charset=utf-8";
    Reply { status: 200, content_type, body: body.to_owned() }
}

#[test]
fn meta_hears_its_challenge_if_it_knows_the_token() {
    let meta = meta();
    assert!(meta.answers_get());
    for (query, expected) in [
        (
            "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=old",
            Ok(text("1158201444")),
        ),
        ("hub.verify_token=new+one&hub.challenge=a-b_c.d&hub.mode=subscribe", Ok(text("a-b_c.d"))),
        ("hub.mode=subscribe&hub.challenge=1&hub.verify_token=new%20one", Ok(text("1"))),
        ("hub.mode=subscribe&hub.challenge=1&hub.verify_token=ol", FORBIDDEN),
        ("hub.mode=subscribe&hub.challenge=1&hub.verify_token=", FORBIDDEN),
        ("hub.mode=subscribe&hub.challenge=%3Cscript%3E&hub.verify_token=old", MALFORMED),
        ("hub.mode=subscribe&hub.challenge=&hub.verify_token=old", MALFORMED),
        ("hub.mode=subscribe&hub.verify_token=old", MALFORMED),
        ("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=old", MALFORMED),
        ("hub.challenge=1&hub.verify_token=old", MALFORMED),
        ("hub.mode=subscribe&hub.challenge=1", MALFORMED),
        ("", MALFORMED),
    ] {
        assert_eq!(meta.on_get(Some(query)), expected, "{query}");
    }
    assert_eq!(meta.on_get(None), MALFORMED);
    let long = |bytes: usize| {
        let challenge = "7".repeat(bytes);
        let query = format!("hub.mode=subscribe&hub.challenge={challenge}&hub.verify_token=old");
        meta.on_get(Some(&query)) == Ok(text(&challenge))
    };
    assert!(long(MAX_CHALLENGE_BYTES) && !long(MAX_CHALLENGE_BYTES + 1));
}

/// The digest was computed with OpenSSL.
#[test]
fn x_hears_the_hmac_of_its_token_and_of_nothing_that_could_be_a_hook() {
    let [_, _, _, _, twitter] = all();
    assert!(twitter.answers_get());
    let token = "MTc3NTI2-x_Y.z~=+/".replace('+', "%2B");
    let body = r#"{"response_token":"sha256=DLl910vkkXAVx6KGA8gO2jTWjRaSyId/S2AlFSCdc7A="}"#;
    let expected = Reply { status: 200, content_type: "application/json", body: body.to_owned() };
    assert_eq!(twitter.on_get(Some(&format!("crc_token={token}&nonce=1"))), Ok(expected));
    for refused in [
        "crc_token=%7B%22a%22%3A1%7D",
        "crc_token=%22text%22",
        "crc_token=%5B1%5D",
        "crc_token=a%20b",
        "crc_token=",
        "token=a",
        "",
    ] {
        assert_eq!(twitter.on_get(Some(refused)), MALFORMED, "{refused}");
    }
    // And what was had signed here is no hook.
    let (hook, signed) = (b"{\"a\":1}".as_slice(), b"MTc3NTI2-x_Y.z~=+/".as_slice());
    let longer = [b'1'; MAX_CHALLENGE_BYTES + 1];
    for (body, expected) in
        [(signed, true), (b"1", true), (hook, false), (b"", false), (&longer, false)]
    {
        assert_eq!(twitter.may_have_signed(body), expected, "{body:?}");
    }
    assert!(!meta().may_have_signed(signed));
    let long = format!("crc_token={}", "a".repeat(MAX_CHALLENGE_BYTES + 1));
    assert_eq!(twitter.on_get(Some(&long)), MALFORMED);
}

#[test]
fn microsoft_graph_hears_the_token_of_its_query() {
    let [_, _, graph, _, _] = all();
    assert!(!graph.answers_get());
    let token =
        "Validation: Testing client application reachability for subscription Request-Id: 1";
    for (query, expected) in [
        (format!("validationToken={}", token.replace(' ', "+")), Some(Ok(text(token)))),
        (format!("a=b&validationToken={}", token.replace(' ', "%20")), Some(Ok(text(token)))),
        ("validationToken=".to_owned(), Some(MALFORMED)),
        ("validationToken=%00".to_owned(), Some(MALFORMED)),
        ("validationToken=%C3%A9".to_owned(), Some(MALFORMED)),
        ("validationtoken=a".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(graph.on_post(Some(&query)), expected, "{query}");
    }
    assert_eq!(graph.on_post(None), None);
}

#[test]
fn slack_hears_the_challenge_of_a_hook_that_asks_for_it() {
    let [slack, ..] = all();
    assert!(!slack.answers_get());
    let asks = |challenge: &str| {
        json!({"token": "t", "challenge": challenge, "type": "url_verification"}).to_string()
    };
    let challenge = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P";
    for (body, expected) in [
        (asks(challenge), Some(text(challenge))),
        (asks("a\nb"), None),
        (asks(""), None),
        (asks(&"a".repeat(MAX_CHALLENGE_BYTES + 1)), None),
        (format!("{}{}", asks("a"), " ".repeat(4_096)), None),
        (json!({"type": "event_callback", "challenge": "a"}).to_string(), None),
        (json!({"type": "url_verification"}).to_string(), None),
        (json!([{"type": "url_verification", "challenge": "a"}]).to_string(), None),
        ("payload=%7B%22type%22%3A%22url_verification%22%7D".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(slack.on_verified(body.as_bytes()), expected, "{body}");
    }
}

#[test]
fn discord_hears_what_each_of_its_pings_wants() {
    let [_, discord, ..] = all();
    let pong =
        Reply { status: 200, content_type: "application/json", body: r#"{"type":1}"#.to_owned() };
    let empty = Reply { status: 204, ..text("") };
    for (body, expected) in [
        (json!({"version": 1, "application_id": "1", "type": 0}), Some(empty)),
        (json!({"application_id": "1", "type": 1, "id": "2"}), Some(pong)),
        (json!({"version": 1, "type": 1, "event": {"type": "ENTITLEMENT_CREATE"}}), None),
        (json!({"type": 2}), None),
        (json!({"type": "0"}), None),
        (json!({}), None),
    ] {
        assert_eq!(discord.on_verified(body.to_string().as_bytes()), expected, "{body}");
    }
}

#[test]
fn each_handshake_answers_only_in_its_own_way() {
    let query =
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=old&crc_token=a&validationToken=a";
    let body = br#"{"type":"url_verification","challenge":"a"}"#;
    let ways = all().map(|handshake| {
        (
            handshake.answers_get() && handshake.on_get(Some(query)).is_ok(),
            handshake.on_post(Some(query)).is_some(),
            handshake.on_verified(body).is_some(),
        )
    });
    let (by_get, by_query, by_hook) =
        ((true, false, false), (false, true, false), (false, false, true));
    let discord_alone = (false, false, false);
    assert_eq!(ways, [by_hook, discord_alone, by_query, by_get, by_get]);
}

#[test]
fn a_source_whose_answers_could_not_be_trusted_is_refused() {
    for (keys, expected) in [
        (json!({"handshake": {"type": "slack"}}), "handshake.type: slack needs verify.type slack"),
        (
            json!({"handshake": {"type": "discord"}}),
            "handshake.type: discord needs verify.type discord",
        ),
        (
            json!({"handshake": {"type": "twitter_crc"}, "verify": {"type": "slack", "secret": "s"}}),
            "handshake.type: twitter_crc needs verify.type twitter",
        ),
        (
            json!({"handshake": {"type": "meta"}}),
            "handshake.verify_token: is required with type meta",
        ),
        (
            json!({"handshake": {"type": "meta", "verify_token": []}}),
            "handshake.verify_token: must be 1 to 8 tokens, got 0",
        ),
        (
            json!({"handshake": {"type": "meta", "verify_token": ["a", " "]}}),
            "handshake.verify_token[1]: must not be empty",
        ),
        (
            json!({"handshake": {"type": "microsoft_graph", "verify_token": "a"}}),
            "handshake.verify_token: has no effect with type microsoft_graph",
        ),
        (
            json!({"response": {"status": 302}}),
            "response.status: must be 200 to 299, got 302: the hook was taken",
        ),
        (
            json!({"response": {"body": "a".repeat(MAX_RESPONSE_BYTES + 1)}}),
            "response.body: must be at most 4096 bytes",
        ),
        (
            json!({"response": {"status": 205, "body": "a"}}),
            "response.body: must be empty with status 205",
        ),
        (
            json!({"response": {"content_type": "text/plain\r\nx: y"}}),
            "response.content_type: must be a media type, as in text/plain",
        ),
        (json!({"verify": {"type": "github"}}), "verify.secret: is required with type github"),
    ] {
        let mut spec = json!({"sinks": [{"type": "log"}]});
        spec.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let spec: SourceSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(spec.protocol().unwrap_err().to_string(), expected, "{keys}");
    }
}

#[test]
fn a_fixed_answer_is_200_and_empty_unless_it_says_more() {
    let built = |block: Value| {
        let built = serde_json::from_value::<ResponseSpec>(block).unwrap().build().unwrap();
        (built.status, built.content_type, built.body)
    };
    assert_eq!(built(json!({})), (200, "text/plain; charset=utf-8".into(), "".into()));
    let said = json!({"status": 202, "body": "<ok/>", "content_type": "text/xml"});
    assert_eq!(built(said), (202, "text/xml".into(), "<ok/>".into()));
    let longest = "a".repeat(MAX_RESPONSE_BYTES);
    assert_eq!(built(json!({"body": longest})).2, longest);
}

proptest! {
    #[test]
    fn nothing_that_is_asked_panics_or_comes_back_unsafe(
        query in "(hub.mode=subscribe&hub.verify_token=old&hub.challenge=|crc_token=|validationToken=)?[ -~]{0,60}",
        body in "(\\{\"type\":(0|1|\"url_verification\")(,\"challenge\":\")?)?.{0,40}(\"\\})?",
    ) {
        for handshake in all() {
            let by_post = handshake.on_post(Some(&query)).and_then(Result::ok);
            let replies = [handshake.on_get(Some(&query)).ok(), by_post, handshake.on_verified(body.as_bytes())];
            for reply in replies.into_iter().flatten() {
                prop_assert!(reply.body.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
                prop_assert!(reply.content_type != "text/html" && reply.body.len() <= 2_048);
            }
        }
    }
}
