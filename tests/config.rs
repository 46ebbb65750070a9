//! The configuration, from the outside: what is refused and with which words, and that the reference, the examples and
//! the structs say the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ankusa_actors::model::dedupe::{DedupeBy, DedupePreset, DedupeSpec};
use ankusa_actors::model::ordering::OrderBy;
use ankusa_actors::model::sink_spec::{HttpSinkSpec, SinkSpec};
use ankusa_actors::model::source::SourceSpec;
use ankusa_node::blob::azure::AzureSpec;
use ankusa_node::blob::gcs::GcsSpec;
use ankusa_node::blob::oci::OciSpec;
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::s3::S3Spec;
use ankusa_node::config::schema::{KEYS, Kind};
use ankusa_node::config::{Config, ConfigErrors, Environment, NamedStore, Role, redacted};
use serde_json::{Value, json};

/// Long enough for a token, and base64 after `whsec_`.
const SECRET: &str = "whsec_c2VjcmV0IGZvciB0aGVzZSB0ZXN0cw==";

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().copied().collect()
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text, "test.yml", &Environment::default())
}

/// The line that `text` is refused with.
fn refused(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(errors) => errors.to_string(),
    }
}

/// A source `a` with these keys beside a log sink.
fn source(keys: &str) -> String {
    format!("sources:\n  a:\n    sinks: [{{type: log}}]\n{}", indented(keys, 4))
}

/// A source `a` with this HTTP sink alone.
fn sink(keys: &str) -> String {
    format!("sources:\n  a:\n    sinks:\n      - type: http\n{}", indented(keys, 8))
}

fn indented(text: &str, spaces: usize) -> String {
    text.lines().map(|line| format!("{}{line}\n", " ".repeat(spaces))).collect()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file an operator may start from: name and text.
fn shipped() -> Vec<(String, String)> {
    let config = repository().join("config");
    let examples = std::fs::read_dir(config.join("examples")).unwrap();
    let mut paths: Vec<PathBuf> = examples.map(|entry| entry.unwrap().path()).collect();
    paths.extend([config.join("ankusa.yml"), config.join("reference.yml")]);
    paths.sort();
    let read =
        |path: &PathBuf| (path.display().to_string(), std::fs::read_to_string(path).unwrap());
    paths.iter().map(read).collect()
}

/// Every variable that `text` refers to, set to a secret.
fn variables_of(text: &str) -> Environment {
    let references = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    references.map(|(name, _)| (name.to_owned(), SECRET)).collect()
}

#[test]
fn an_empty_file_is_the_defaults() {
    for nothing in ["", "# only a comment\n", "node:\nsources:\ndispatch: {}\n", "{}"] {
        assert_eq!(parse(nothing).unwrap(), Config::default(), "{nothing:?}");
    }
}

#[test]
fn a_section_may_set_one_key_only() {
    let config = parse("dispatch: {retry: {max_attempts: 3}}").unwrap();
    let mut expected = Config::default();
    expected.dispatch.retry.max_attempts = 3;
    assert_eq!(config, expected);
}

#[test]
fn a_number_out_of_bounds_is_told_with_its_bound() {
    for (text, line) in [
        ("dispatch: {batch: 0}", "dispatch.batch must be > 0, got 0"),
        ("dispatch: {batch: -1}", "dispatch.batch must be > 0, got -1"),
        ("dispatch: {batch: 100001}", "dispatch.batch must be <= 100000, got 100001"),
        (
            "batcher: {max_queue_bytes: 99999999999999999999}",
            "batcher.max_queue_bytes must be <= 1099511627776, got 100000000000000000000",
        ),
        ("batcher: {max_delay_ms: -1}", "batcher.max_delay_ms must be >= 0, got -1"),
        (
            "store: {open_deadline_ms: 86400001}",
            "store.open_deadline_ms must be <= 86400000, got 86400001",
        ),
        ("http: {port: 65536}", "http.port must be in 0..65535, got 65536"),
        ("admin: {port: -1}", "admin.port must be in 0..65535, got -1"),
        ("http: {max_header_bytes: 8191}", "http.max_header_bytes must be >= 8192, got 8191"),
        ("queue: {value_version: 2}", "queue.value_version must be <= 1, got 2"),
        (
            "queue: {rocksdb: {write_buffers: {index_bytes: 65535}}}",
            "queue.rocksdb.write_buffers.index_bytes must be >= 65536, got 65535",
        ),
        (
            "queue: {rocksdb: {compaction_style: fifo}}",
            "queue.rocksdb.compaction_style must be one of level, universal, got \"fifo\"",
        ),
        (
            "queue: {rocksdb: {rate_limit_bytes_per_s: 1048575}}",
            "queue.rocksdb.rate_limit_bytes_per_s must be 0 or >= 1048576, got 1048575",
        ),
        (
            "queue: {rocksdb: {max_open_files: 63}}",
            "queue.rocksdb.max_open_files must be >= 64, got 63",
        ),
        ("tenants: {max: 4294967296}", "tenants.max must be <= 4294967295, got 4294967296"),
        ("node: {runtime_workers: 0}", "node.runtime_workers must be > 0, got 0"),
        ("dispatch: {sink_concurrency: 0}", "dispatch.sink_concurrency must be > 0, got 0"),
        (
            "dispatch: {tenants: {share_percent: 101}}",
            "dispatch.tenants.share_percent must be <= 100, got 101",
        ),
        (
            "dispatch: {tenants: {weights: {acme: 0}}}",
            "dispatch.tenants.weights.acme must be > 0, got 0",
        ),
        (
            "batcher: {tenant_share_percent: 101}",
            "batcher.tenant_share_percent must be <= 100, got 101",
        ),
        ("quarantine: {rate: 0}", "quarantine.rate must be > 0, got 0"),
        ("quarantine: {rate: 1000001}", "quarantine.rate must be <= 1000000, got 1000001"),
        (
            "quarantine: {rate: 0.0000001}",
            "quarantine.rate must be a number >= 0.000001, got 0.0000001",
        ),
        ("quarantine: {rate: x}", "quarantine.rate must be a number >= 0.000001, got \"x\""),
        ("quarantine: {retention_days: 0}", "quarantine.retention_days must be > 0, got 0"),
        (
            "quarantine: {burst: 1000000, rate: 0.001}",
            "quarantine.burst: takes longer than 366 days to come back at quarantine.rate",
        ),
        (
            "rate_limits: {default: {rate: -1, burst: 1}}",
            "rate_limits.default.rate must be > 0, got -1",
        ),
        (
            "rate_limits: {default: {rate: 1, burst: 0}}",
            "rate_limits.default.burst must be > 0, got 0",
        ),
        ("rate_limits: {node: {rate: 1}}", "rate_limits.node.burst: is required with rate"),
        (
            "rate_limits: {client_ip: {bytes_rate: 1, bytes_burst: 7999999}}",
            "rate_limits.client_ip.bytes_burst: must be >= http.max_body_bytes (8000000), got 7999999",
        ),
        (
            "rate_limits: {default: 5}",
            "rate_limits.default must be a mapping of rate and burst, got 5",
        ),
        (
            "rate_limits: {default: {}}",
            "rate_limits.default: must have rate and burst, or bytes_rate and bytes_burst; null for no limit",
        ),
        (
            "rate_limits: {default: {overload_share_percent: 5}}",
            "rate_limits.default.overload_share_percent: unknown key; known here: rate, burst, bytes_rate, bytes_burst",
        ),
        (
            "rate_limits: {tenants: {acme: {overload_share_percent: 101}}}",
            "rate_limits.tenants.acme.overload_share_percent must be <= 100, got 101",
        ),
        (
            "rate_limits: {tenants: {a/b: {rate: 1, burst: 1}}}",
            "rate_limits.tenants.\"a/b\": a tenant must be 1 to 64 of A-Z a-z 0-9 _ -",
        ),
        (
            "http: {trusted_proxies: [10.0.0.0/8, proxy]}",
            "http.trusted_proxies[1]: \"proxy\" is not a network: write it like 10.1.0.0/16 or fd12::/48",
        ),
    ] {
        assert_eq!(refused(text), line, "{text}");
    }
}

#[test]
fn bounds_themselves_are_in() {
    for text in [
        "http: {port: 0}",
        "http: {port: 65535}",
        "dispatch: {batch: 1}",
        "dispatch: {batch: 100000}",
        "dispatch: {breaker_failures: 0}",
        "store: {open_deadline_ms: 86400000}",
        "tenants: {max: 4294967295}",
        "node: {runtime_workers: null}",
        "dispatch: {sink_concurrency: 32}",
        "dispatch: {max_stalled: 1, tenants: {start_percent: 100, max_inflight: 4096, weights: {acme: 100, b-c_1: 1}}}",
        "http: {max_body_bytes: 268435456}",
    ] {
        assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
    }
}

#[test]
fn a_value_of_the_wrong_type_is_told_with_what_it_must_be() {
    for (text, line) in [
        ("dispatch: {batch: many}", "dispatch.batch must be a whole number > 0, got \"many\""),
        ("dispatch: {batch: 1.5}", "dispatch.batch must be a whole number > 0, got 1.5"),
        ("dispatch: {batch: null}", "dispatch.batch must be a whole number > 0, got null"),
        ("dispatch: {batch: [1]}", "dispatch.batch must be a whole number > 0, got a list"),
        ("dispatch: {batch: true}", "dispatch.batch must be a whole number > 0, got true"),
        (
            "batcher: {max_delay_ms: x}",
            "batcher.max_delay_ms must be a whole number >= 0, got \"x\"",
        ),
        ("http: {port: http}", "http.port must be in 0..65535, got \"http\""),
        ("dispatch: 5", "dispatch must be a mapping, got 5"),
        ("sources: [a]", "sources must be a mapping, got a list"),
        ("sources: {a: x}", "sources.a must be a mapping, got \"x\""),
        ("node: {roles: edge}", "node.roles must be a list, got \"edge\""),
        ("node: {data_dir: 7}", "node.data_dir must be a string, got 7"),
        (
            "dispatch: {retry: {jitter: no}}",
            "dispatch.retry.jitter must be true or false, got \"no\"",
        ),
        ("dispatch: {retry: {jitter: 1}}", "dispatch.retry.jitter must be true or false, got 1"),
        (
            "log: {level: trace}",
            "log.level must be one of debug, info, warning, error, got \"trace\"",
        ),
        ("log: {level: 1}", "log.level must be one of debug, info, warning, error, got 1"),
        ("log: {format: xml}", "log.format must be one of text, json, got \"xml\""),
        (
            "http: {routing: {path: null}}",
            "http.routing must be one of path, tenant_path, got a mapping",
        ),
        (
            "node: {roles: [edge, cook]}",
            "node.roles[1] must be one of edge, dispatch, storage, got \"cook\"",
        ),
        ("http: {ip: localhost}", "http.ip must be an IPv4 or IPv6 literal, got \"localhost\""),
        ("admin: {ip: 10}", "admin.ip must be an IPv4 or IPv6 literal, got 10"),
        ("admin: {ip: 127.0.0.01}", "admin.ip must be an IPv4 or IPv6 literal, got \"127.0.0.01\""),
        ("wal: {type: tape}", "wal.type must be disk, got \"tape\""),
    ] {
        assert_eq!(refused(text), line, "{text}");
    }
}

#[test]
fn a_key_nobody_knows_is_refused_with_those_that_are() {
    for (text, line) in [
        (
            "dispatch: {retry: {max: 1}}",
            "dispatch.retry.max: unknown key; known here: base_ms, max_ms, max_attempts, jitter",
        ),
        ("log: {levels: info}", "log.levels: unknown key; known here: level, format"),
        ("tenants: {maximum: 1}", "tenants.maximum: unknown key; known here: max"),
        ("log: {\"le\\nvel\": info}", "log.\"le\\nvel\": unknown key; known here: level, format"),
    ] {
        assert_eq!(refused(text), line, "{text}");
    }
    let top = refused("sinks: []");
    assert!(
        top.starts_with("sinks: unknown key; known here: node, log, http, admin, control, wal,"),
        "{top}"
    );
    let poll = refused("dispatch: {poll_ms: 100}");
    assert!(
        poll.starts_with("dispatch.poll_ms: unknown key; known here: batch, concurrency,"),
        "{poll}"
    );
    let tolerance = refused(&source("verify: {type: stripe, secret: s, tolerance: 5}"));
    assert!(
        tolerance.starts_with("sources.a.verify.tolerance: unknown key; known here: type,"),
        "{tolerance}"
    );
    let ordered = refused(&sink("url: https://w\nordering: true"));
    assert!(
        ordered.starts_with("sources.a.sinks[0].ordering: unknown key; known here: type,"),
        "{ordered}"
    );
}

#[test]
fn what_the_documentation_has_and_this_release_has_not_is_said_so() {
    for section in ["archive", "audit", "health", "intake", "lifecycle", "metrics", "secrets"] {
        assert_eq!(refused(&format!("{section}: {{}}")), format!("{section}: not in this release"));
    }
    for key in [
        "backup.enabled",
        "backup.secondary",
        "claim_check.port",
        "claim_check.retention_days",
        "storage.catalogue_retention_days",
        "storage.max_segments_per_tick",
        "storage.roll_bytes",
    ] {
        let (section, name) = key.split_once('.').unwrap();
        let text = format!("{section}: {{{name}: 1}}");
        assert_eq!(refused(&text), format!("{key}: not in this release"));
    }
    for (text, line) in [
        (
            "claim_check: {store: {type: s3}}".to_owned(),
            "claim_check.store: name it in claim_check.stores, which is a list",
        ),
        ("queue: {dlq: {max_rows: 1}}".to_owned(), "queue.dlq: not in this release"),
        ("wal: {publish_timeout_ms: 1}".to_owned(), "wal.publish_timeout_ms: not in this release"),
        (
            "source_store: {type: redis}".to_owned(),
            "source_store.type: redis is not in this release, only: static, persistent",
        ),
        ("source_store: {tick_ms: 1}".to_owned(), "source_store.tick_ms: not in this release"),
        (
            "routes: {store: {type: ets}}".to_owned(),
            "routes.store: there is nothing to choose: routes are kept in the node's own store",
        ),
        (
            "routes: {cache: {ttl_ms: 1}}".to_owned(),
            "routes.cache: there is nothing to set: every route is in memory, and a change counts at once",
        ),
        ("wal: {type: dual}".to_owned(), "wal.type: dual is not in this release, only: disk"),
        ("wal: {type: none}".to_owned(), "wal.type: none is not in this release, only: disk"),
        (
            "node: {roles: [claim_check]}".to_owned(),
            "node.roles[0]: claim_check is not in this release, only: edge, dispatch, storage",
        ),
        (
            "sources: {a: {sinks: [{type: kafka}]}}".to_owned(),
            "sources.a.sinks[0].type: kafka is not in this release, only: http, log",
        ),
    ] {
        assert_eq!(refused(&text), line, "{text}");
    }
}

#[test]
fn keys_that_bound_each_other_are_told_together() {
    for (text, line) in [
        (
            "dispatch: {breaker_open_ms: 300001}",
            "dispatch.breaker_max_open_ms must be >= dispatch.breaker_open_ms (300001), got 300000",
        ),
        (
            "dispatch: {retry: {base_ms: 300001}}",
            "dispatch.retry.max_ms must be >= dispatch.retry.base_ms (300001), got 300000",
        ),
        (
            "store: {reopen_backoff_ms: 60001}",
            "store.reopen_max_backoff_ms must be >= store.reopen_backoff_ms (60001), got 60000",
        ),
        (
            "store: {min_free_bytes: 134217729}",
            "store.resume_free_bytes must be >= store.min_free_bytes (134217729), got 134217728",
        ),
        (
            "batcher: {max_queue_bytes: 7999999}",
            "batcher.max_queue_bytes must be >= http.max_body_bytes (8000000), got 7999999",
        ),
        (
            "dispatch: {sink_concurrency: 33}",
            "dispatch.sink_concurrency must be <= dispatch.concurrency (32), got 33",
        ),
        ("dispatch: {max_stalled: 0}", "dispatch.max_stalled must be > 0, got 0"),
        (
            "dispatch: {tenants: {start_percent: 101}}",
            "dispatch.tenants.start_percent must be <= 100, got 101",
        ),
        (
            "dispatch: {tenants: {max_inflight: 4097}}",
            "dispatch.tenants.max_inflight must be <= dispatch.max_inflight (4096), got 4097",
        ),
        (
            "dispatch: {tenants: {weights: {a/b: 2}}}",
            "dispatch.tenants.weights.\"a/b\": a tenant must be 1 to 64 of A-Z a-z 0-9 _ -",
        ),
        ("admin: {port: 4000}", "admin.port must be another than http.port, got 4000"),
        (
            "egress: {allow: [10.0.0.0/8, hosts]}",
            "egress.allow[1]: \"hosts\" is not a network: write it like 10.1.0.0/16 or fd12::/48",
        ),
    ] {
        assert_eq!(refused(text), line, "{text}");
    }
    assert!(parse("{admin: {port: 4000, enabled: false}}").is_ok());
    assert!(parse("{admin: {port: 0}, http: {port: 0}}").is_ok());
}

#[test]
fn names_and_paths_are_held_to_their_shape() {
    let long = "x".repeat(110);
    for (text, line) in [
        ("node: {roles: []}".to_owned(), "node.roles: must name at least one role".to_owned()),
        (
            "node: {instance: a/b}".to_owned(),
            "node.instance must be 1 to 64 of A-Z a-z 0-9 _ -, got \"a/b\"".to_owned(),
        ),
        ("node: {data_dir: \"\"}".to_owned(), "node.data_dir: must not be empty".to_owned()),
        ("control: {socket: \"\"}".to_owned(), "control.socket: must not be empty; null for the default".to_owned()),
        (
            format!("control: {{socket: /{}}}", &long[..107]),
            format!(
                "control.socket: the path /{} has 108 bytes, and a unix socket can have 107: name a shorter one",
                &long[..107]
            ),
        ),
        (
            format!("node: {{data_dir: /{long}}}"),
            format!(
                "control.socket: the path /{long}/default/control.sock has 132 bytes, and a unix socket can have 107: \
                 name a shorter one"
            ),
        ),
        (
            "http: {prefix: webhooks}".to_owned(),
            "http.prefix must be / or a path like /webhooks, of A-Z a-z 0-9 . _ ~ -, got \"webhooks\"".to_owned(),
        ),
        (
            "http: {prefix: /a//b}".to_owned(),
            "http.prefix must be / or a path like /webhooks, of A-Z a-z 0-9 . _ ~ -, got \"/a//b\"".to_owned(),
        ),
        (
            "http: {prefix: /..}".to_owned(),
            "http.prefix must be / or a path like /webhooks, of A-Z a-z 0-9 . _ ~ -, got \"/..\"".to_owned(),
        ),
    ] {
        assert_eq!(refused(&text), line, "{text}");
    }
    assert!(parse(&format!("control: {{socket: /{}}}", &long[..106])).is_ok());
    for (prefix, normal) in [("/", ""), ("/hooks", "/hooks"), ("/hooks/in/", "/hooks/in")] {
        let config = parse(&format!("http: {{prefix: {prefix}}}")).unwrap();
        assert_eq!(config.http.ingest().prefix, normal);
    }
}

#[test]
fn an_admin_port_beyond_loopback_needs_tokens_that_are_some() {
    let admin = |tokens: &str| format!("admin: {{ip: 0.0.0.0, tokens: {tokens}}}");
    for (text, line) in [
        (
            "admin: {ip: 0.0.0.0}".to_owned(),
            "admin.tokens: must name at least one token, because admin.ip 0.0.0.0 is not loopback",
        ),
        (
            "admin: {ip: \"::\"}".to_owned(),
            "admin.tokens: must name at least one token, because admin.ip :: is not loopback",
        ),
        (
            admin("[{name: a, token: short, scopes: [\"*\"]}]"),
            "admin.tokens[0].token: must be at least 16 bytes long",
        ),
        (
            admin("[{name: a, token: 1234567890123456, scopes: [\"*\"]}]"),
            "admin.tokens[0].token must be a string, got a number",
        ),
        (
            admin("[{name: \"\", token: long-enough-token, scopes: [\"*\"]}]"),
            "admin.tokens[0].name: must not be empty",
        ),
        (
            admin("[{name: a, token: long-enough-token, scopes: []}]"),
            "admin.tokens[0].scopes: must name at least one scope",
        ),
        (admin("[{name: a, token: long-enough-token}]"), "admin.tokens[0].scopes: is required"),
        (
            admin("[{name: a, token: long-enough-token, scopes: [\"*\", \"dlq:eat\"]}]"),
            "admin.tokens[0].scopes[1] must be * or <resource>:read, <resource>:write or <resource>:*, got \"dlq:eat\"",
        ),
        (
            admin(
                "[{name: a, token: long-enough-token, scopes: [\"*\"]}, {name: a, token: another-long-token, scopes: [\"*\"]}]",
            ),
            "admin.tokens[1].name: \"a\" is the name of two tokens",
        ),
    ] {
        assert_eq!(refused(&text), line, "{text}");
    }
    assert!(parse("admin: {ip: 127.0.0.9}").is_ok() && parse("admin: {ip: \"::1\"}").is_ok());
    assert!(parse("admin: {ip: 0.0.0.0, enabled: false}").is_ok());
    let tokens = "[{name: a, token: exactly-16-bytes, scopes: [\"dlq:read\", \"node:*\", \"*\"]}]";
    assert!(parse(&admin(tokens)).is_ok());
}

#[test]
fn a_source_is_refused_at_the_key_that_is_wrong() {
    for (text, line) in [
        ("sources: {a: {}}".to_owned(), "sources.a.sinks: must hold at least one sink"),
        ("sources: {a: {sinks: []}}".to_owned(), "sources.a.sinks: must hold at least one sink"),
        ("sources: {a: {sinks: [{url: x}]}}".to_owned(), "sources.a.sinks[0].type: is required"),
        (
            "sources: {a.b: {sinks: [{type: log}]}}".to_owned(),
            "sources.\"a.b\": a source id must be 1 to 64 of A-Z a-z 0-9 _ -",
        ),
        (
            "sources: {\"ankusa:lifecycle\": {sinks: [{type: log}]}}".to_owned(),
            "sources.\"ankusa:lifecycle\": this id is reserved",
        ),
        (source("tenant: a b"), "sources.a.tenant must be 1 to 64 of A-Z a-z 0-9 _ -, got \"a b\""),
        (source("verify: github"), "sources.a.verify must be a mapping, got \"github\""),
        (source("verify: {secret: s}"), "sources.a.verify.type: is required"),
        (
            source("verify: {type: paypal}"),
            "sources.a.verify.type must be one of none, adyen, discord, github, hubspot, intercom, linear, meta, paddle, sendgrid, shopify, slack, square, standard_webhooks, stream, stripe, svix, twilio, twitter, zendesk, hmac, ed25519, ecdsa_p256, rsa, bearer, mtls, got \"paypal\"",
        ),
        (source("verify: {type: github}"), "sources.a.verify.secret: is required with type github"),
        (
            source("verify: {type: github, secret: 12345}"),
            "sources.a.verify.secret must be a string, got a number",
        ),
        (
            source("verify: {type: github, secret: [a, \"\"]}"),
            "sources.a.verify.secret[1]: must not be empty",
        ),
        (
            source("verify: {type: github, secret: [a, 5]}"),
            "sources.a.verify.secret[1] must be a string, got a number",
        ),
        (
            source("verify: {type: discord}"),
            "sources.a.verify.public_key: is required with type discord",
        ),
        (
            source("verify: {type: discord, public_key: [\"00\"]}"),
            "sources.a.verify.public_key[0]: must be an Ed25519 public key",
        ),
        (
            source("verify: {type: twilio, secret: s}"),
            "sources.a.verify.url: is required with type twilio: the URL is signed",
        ),
        (
            source("verify: {type: bearer, secret: [a, \" \"]}"),
            "sources.a.verify.secret[1]: must not be empty",
        ),
        (
            source("verify: {type: mtls, peers: acme}"),
            "sources.a.verify.peers: must begin with subject:, cn:, dns:, email:, uri:, cert_sha256: or spki_sha256:",
        ),
        (
            source("handshake: {type: slack}"),
            "sources.a.handshake.type: slack needs verify.type slack",
        ),
        (
            source("handshake: {type: meta, verify_token: [\"\"]}"),
            "sources.a.handshake.verify_token[0]: must not be empty",
        ),
        (source("response: {status: 404}"), "sources.a.response.status must be <= 299, got 404"),
        (
            source("response: {status: 204, body: x}"),
            "sources.a.response.body: must be empty with status 204",
        ),
        (
            source("verify: {type: hmac, secret: s}"),
            "sources.a.verify.signature_header: is required with type hmac",
        ),
        (
            source("verify: {type: stripe, secret: s, tolerance_seconds: 0}"),
            "sources.a.verify.tolerance_seconds must be > 0, got 0",
        ),
        (source("forward_headers: x-a"), "sources.a.forward_headers must be a list, got \"x-a\""),
        (sink("secret: s"), "sources.a.sinks[0].url: is required"),
        (
            sink("url: https://w.example/\nsecret: s\ntimeout_ms: 600001"),
            "sources.a.sinks[0].timeout_ms must be <= 600000, got 600001",
        ),
        (
            sink("url: https://w.example/\nsecret: s\nmethod: get"),
            "sources.a.sinks[0].method must be one of post, put, patch, got \"get\"",
        ),
        (
            sink("url: https://w.example/\nsecret: [s, \" \"]"),
            "sources.a.sinks[0].secret[1]: must not be empty",
        ),
        (
            sink("url: https://w.example/"),
            "sources.a.sinks[0].secret: is missing: give the worker a secret to check, or say allow_unsigned: true",
        ),
        (
            sink("url: ftp://w.example/\nsecret: s"),
            "sources.a.sinks[0].url: has the scheme ftp: only https and http are delivered to",
        ),
        (
            sink("url: http://w.example/\nsecret: s"),
            "sources.a.sinks[0].url: egress denied: plain http, unless egress.allow_http is true",
        ),
        (
            sink("url: https://10.0.0.1/\nsecret: s"),
            "sources.a.sinks[0].url: egress denied: 10.0.0.1 (private), unless egress.allow names it",
        ),
        (
            sink("url: https://w.example/\nsecret: s\nheaders: {x-ankusa-id: x}"),
            "sources.a.sinks[0].headers.x-ankusa-id: cannot be set: the node sets it itself",
        ),
        (
            sink("url: https://w.example/\nsecret: s\nheaders: {x-a: 5}"),
            "sources.a.sinks[0].headers.x-a must be a string, got a number",
        ),
        (
            sink("url: https://w.example/\nsecret: s\nordered: {by: {header: x order}}"),
            "sources.a.sinks[0].ordered.by.header: must be the name of a header, got \"x order\"",
        ),
        (
            "sources: {a: {sinks: [{type: log, ordered: {by: {json: id}}}]}}".to_owned(),
            "sources.a.sinks[0].ordered.by.json: must be a JSON pointer as /customer/id, ~0 and ~1 for ~ and /, got \"id\"",
        ),
    ] {
        assert_eq!(refused(&text), line, "{text}");
    }
    let open = "{egress: {allow_http: true, allow: [10.0.0.0/8]}, sources: {a: {sinks: [{type: http, url: \"http://10.0.0.1/\", allow_unsigned: true}]}}}";
    assert!(parse(open).is_ok(), "{:?}", parse(open));
}

#[test]
fn a_source_says_where_the_key_of_a_hook_is() {
    let dedupe = |text: &str| {
        parse(&source(&format!("dedupe: {text}"))).unwrap().sources["a"].dedupe.clone().unwrap()
    };
    let preset = DedupeBy::Preset(DedupePreset::StandardWebhooks);
    let spec = |by, ttl_seconds| DedupeSpec { by, ttl_seconds };
    assert_eq!(dedupe("standard_webhooks"), spec(preset.clone(), 259_200));
    assert_eq!(dedupe("{preset: standard_webhooks, ttl_seconds: \"60\"}"), spec(preset, 60));
    assert_eq!(dedupe("{header: X-Id}"), spec(DedupeBy::Header("X-Id".to_owned()), 259_200));
    assert_eq!(
        dedupe("{json: data.id, ttl_seconds: 31622400}"),
        spec(DedupeBy::Json("data.id".to_owned()), 31_622_400)
    );
    let must = "sources.a.dedupe must be a preset (github, standard_webhooks, svix, shopify, stripe) or a mapping with \
                exactly one of preset, header and json, and perhaps ttl_seconds, got";
    let one = "sources.a.dedupe: must have exactly one of preset, header, json, got";
    for (text, line) in [
        ("gitlab", format!("{must} \"gitlab\"")),
        ("true", format!("{must} true")),
        ("[github]", format!("{must} a list")),
        ("{}", format!("{one} 0")),
        ("{ttl_seconds: 5}", format!("{one} 0")),
        ("{preset: github, header: x}", format!("{one} 2")),
        (
            "{header: x, ttl_seconds: 0}",
            "sources.a.dedupe.ttl_seconds must be > 0, got 0".to_owned(),
        ),
        (
            "{header: x, ttl_seconds: 31622401}",
            "sources.a.dedupe.ttl_seconds must be <= 31622400, got 31622401".to_owned(),
        ),
        (
            "{header: x, ttl: 5}",
            "sources.a.dedupe.ttl: unknown key; known here: preset, header, json, ttl_seconds"
                .to_owned(),
        ),
        (
            "{preset: gitlab}",
            "sources.a.dedupe.preset must be one of github, standard_webhooks, svix, shopify, stripe, got \"gitlab\""
                .to_owned(),
        ),
        ("{header: 5}", "sources.a.dedupe.header must be a string, got 5".to_owned()),
        (
            "{header: x y}",
            "sources.a.dedupe.header: must be the name of a header, got \"x y\"".to_owned(),
        ),
        (
            "{json: a..b}",
            "sources.a.dedupe.json: must be names of objects with dots between them as data.object.id, at most 32 and \
             256 bytes, got \"a..b\""
                .to_owned(),
        ),
    ] {
        assert_eq!(refused(&source(&format!("dedupe: {text}"))), line, "{text}");
    }
}

#[test]
fn a_sink_says_what_it_is_ordered_by_in_one_of_five_ways() {
    let log =
        |ordered: &str| format!("sources: {{a: {{sinks: [{{type: log, ordered: {ordered}}}]}}}}");
    let by = |ordered: &str| parse(&log(ordered)).unwrap().sources["a"].sinks[0].ordered().cloned();
    assert_eq!(by("false"), None);
    assert_eq!((by("true"), by("{by: source}")), (Some(OrderBy::Source), Some(OrderBy::Source)));
    assert_eq!(by("{by: {header: X-Order}}"), Some(OrderBy::Header("X-Order".to_owned())));
    assert_eq!(by("{by: {json: /order/id}}"), Some(OrderBy::Json("/order/id".to_owned())));
    let http = parse(&sink("url: https://w.example/\nsecret: s\nordered: true")).unwrap();
    assert_eq!(http.sources["a"].sinks[0].ordered(), Some(&OrderBy::Source));
    for (ordered, got) in [
        ("yes", "\"yes\""),
        ("1", "1"),
        ("[source]", "a list"),
        ("{}", "a mapping"),
        ("{by: tenant}", "a mapping"),
        ("{by: {header: x, json: /a}}", "a mapping"),
        ("{by: {header: 5}}", "a mapping"),
        ("{by: {path: /a}}", "a mapping"),
        ("{by: source, key: x}", "a mapping"),
        ("{header: x}", "a mapping"),
    ] {
        let line = format!(
            "sources.a.sinks[0].ordered must be true, false, {{by: source}}, {{by: {{header: NAME}}}} or \
             {{by: {{json: /pointer}}}}, got {got}"
        );
        assert_eq!(refused(&log(ordered)), line);
    }
}

#[test]
fn routes_are_refused_at_the_key_that_is_wrong() {
    let guard = |keys: &str| format!("routes: {{enabled: true, {keys}}}");
    let seed = |routes: &str| guard(&format!("seed: [{routes}]"));
    for (text, line) in [
        (guard("max_routes: 0"), "routes.max_routes must be > 0, got 0"),
        (guard("max_routes: 100001"), "routes.max_routes must be <= 100000, got 100001"),
        (guard("log_sample: 1000001"), "routes.log_sample must be <= 1000000, got 1000001"),
        (guard("ip_denied_status: 402"), "routes.ip_denied_status must be >= 403, got 402"),
        (guard("ip_denied_status: 405"), "routes.ip_denied_status must be <= 404, got 405"),
        (
            guard("trusted_proxies: [10.0.0.1/8]"),
            "routes.trusted_proxies[0]: \"10.0.0.1/8\" has bits set after its prefix",
        ),
        (
            guard("ip_rules: {default: maybe}"),
            "routes.ip_rules.default must be one of allow, deny, got \"maybe\"",
        ),
        (
            guard("ip_rules: {rules: [{action: deny, cidr: \"::ffff:1.2.3.4\"}]}"),
            "routes.ip_rules.rules[0].cidr: \"::ffff:1.2.3.4\" must be written as IPv4",
        ),
        (
            guard("admin: {port: 4000}"),
            "routes.admin.port must be another than http.port and admin.port, got 4000",
        ),
        (
            guard("admin: {port: 4002}"),
            "routes.admin.port must be another than http.port and admin.port, got 4002",
        ),
        (
            guard("admin: {ip: 0.0.0.0}"),
            "admin.tokens: must name at least one token, because routes.admin.ip 0.0.0.0 is not loopback",
        ),
        (
            guard("admin: {ip: localhost}"),
            "routes.admin.ip must be an IPv4 or IPv6 literal, got \"localhost\"",
        ),
        (seed("{path: /a}"), "routes.seed[0].id: is required"),
        (seed("{id: a}"), "routes.seed[0].path: is required"),
        (seed("{id: test, path: /a}"), "routes.seed[0].id: this id is reserved"),
        (seed("{id: a, path: a}"), "routes.seed[0].path: must begin with /"),
        (
            seed("{id: A, path: /a}"),
            "routes.seed[0].id: must be 1 to 64 of a-z 0-9 _ -, with a letter or a digit at both ends",
        ),
        (
            seed("{id: a, path: /a, methods: [post]}"),
            "routes.seed[0].methods[0]: must be 1 to 16 of A-Z, as POST",
        ),
        (
            seed("{id: a, path: /a, metadata: 7}"),
            "routes.seed[0].metadata must be a mapping, got 7",
        ),
        (
            seed("{id: a, path: /a, colour: 7}"),
            "routes.seed[0].colour: unknown key; known here: id, path, methods, enabled, ip_rules, metadata",
        ),
        (
            seed("{id: a, path: /a, ip_rules: [{action: deny, cidr: x}]}"),
            "routes.seed[0].ip_rules[0].cidr: \"x\" is not a network: write it like 10.1.0.0/16 or fd12::/48",
        ),
        (seed("{id: a, path: /a}, {id: a, path: /b}"), "routes.seed[1].id: \"a\" is there twice"),
        (
            seed("{id: a, path: \"/:x\"}, {id: b, path: \"/:y\"}"),
            "routes.seed[1].path: takes a method of the same path as the route \"a\"",
        ),
        (
            guard("max_routes: 1, seed: [{id: a, path: /a}, {id: b, path: /b}]"),
            "routes.seed: has 2 routes, over routes.max_routes",
        ),
    ] {
        assert_eq!(refused(&text), line, "{text}");
    }
    let whole = seed(
        "{id: a, path: \"/a/*\", methods: [POST, GET], enabled: false, metadata: {team: [1, x]}, ip_rules: [{action: allow, cidr: \"fd12::/48\"}]}",
    );
    let config = parse(&whole).unwrap();
    let settings = config.routes.settings().unwrap();
    assert_eq!(settings.seed["a"].metadata["team"], json!([1, "x"]));
    assert_eq!((settings.max_routes, settings.ip_denied_status), (10_000, 403));
    assert!(parse("routes: {admin: {port: 4000, ip: 0.0.0.0}}").is_ok(), "it does not listen");
    assert_eq!(parse("").unwrap().routes.settings(), None);
    let on = environment(&[("ANKUSA_ROUTES_ENABLED", "true")]);
    assert!(Config::parse("", "file", &on).unwrap().routes.enabled);
}

#[test]
fn whoever_knows_the_url_of_an_open_shared_source_must_be_trusted_with_its_tenants() {
    let routed = |keys: &str| format!("http: {{routing: tenant_path}}\n{}", source(keys));
    let line = "sources.a.trust_url_tenant: must be true: with http.routing tenant_path, anyone who knows the URL of this \
                source puts hooks into any tenant, because it verifies nothing and its tenant is default";
    assert_eq!(refused(&routed("")), line);
    for accepted in ["trust_url_tenant: true", "tenant: acme", "verify: {type: github, secret: s}"]
    {
        assert!(parse(&routed(accepted)).is_ok(), "{accepted}");
    }
    assert!(parse(&source("")).is_ok());
}

#[test]
fn every_mistake_is_told_at_once_a_line_each() {
    let text = "log: {level: loud}\ndispatch: {batch: 0, poll_ms: 1}\nsources: {a: {tenant: 7}}";
    let lines = refused(text);
    let lines: Vec<&str> = lines.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["dispatch.batch", "dispatch.poll_ms:", "log.level", "sources.a.tenant"]);
}

#[test]
fn no_message_repeats_a_secret() {
    for text in [
        source("verify: {type: github, secret: {hunter2: hunter2}}"),
        source("verify: {type: github, secret: [hunter2, \"\"]}"),
        source("verify: {type: standard_webhooks, secret: hunter2!}"),
        sink("url: https://me:hunter2@10.0.0.1/\nsecret: s"),
        sink("url: http://me:hunter2@w.example/?k=hunter2\nsecret: s"),
        sink("url: https://w.example/\nsecret: [s, whsec_hunter2!]"),
        "admin: {tokens: [{name: a, token: hunter2, scopes: [\"*\"]}]}".to_owned(),
    ] {
        let line = refused(&text);
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[test]
fn references_stand_for_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "from a file ${NOT_A_REFERENCE}\n").unwrap();
    let variables =
        environment(&[("DIR", "/srv"), ("EMPTY", ""), ("PORT_VALUE", "5000"), ("ON", "true")]);
    let text = format!(
        "node: {{data_dir: \"${{DIR}}/a-${{NAME:-b}}${{EMPTY:-c}}${{EMPTY}}\"}}\n\
         http: {{port: \"${{PORT_VALUE}}\"}}\n\
         control: {{allow_crash: \"${{ON}}\", socket: \"${{file:{}}}\"}}\n",
        file.display()
    );
    let config = Config::parse(&text, "test.yml", &variables).unwrap();
    assert_eq!(config.node.data_dir, Path::new("/srv/a-bc"));
    assert_eq!((config.http.port, config.control.allow_crash), (5000, true));
    assert_eq!(config.control_socket(), Path::new("from a file ${NOT_A_REFERENCE}"));
}

#[test]
fn a_reference_that_stands_for_nothing_is_refused_at_its_key() {
    for (value, line) in [
        ("${MISSING}", "sources.a.verify.secret[1]: ${MISSING} is not set"),
        ("${MISSING", "sources.a.verify.secret[1]: `${` is never closed"),
        (
            "${}",
            "sources.a.verify.secret[1]: not a reference: write ${VAR}, ${VAR:-default} or ${file:/path}",
        ),
        (
            "${1A}",
            "sources.a.verify.secret[1]: not a reference: write ${VAR}, ${VAR:-default} or ${file:/path}",
        ),
        (
            "${A-b}",
            "sources.a.verify.secret[1]: not a reference: write ${VAR}, ${VAR:-default} or ${file:/path}",
        ),
        (
            "${A:-${B}}",
            "sources.a.verify.secret[1]: not a reference: write ${VAR}, ${VAR:-default} or ${file:/path}",
        ),
        ("${file:secret}", "sources.a.verify.secret[1]: ${file:...} needs an absolute path"),
        (
            "${sm:vault:key}",
            "sources.a.verify.secret[1]: secret managers (${sm:...}) are not in this release",
        ),
        (
            "${file:/does/not/exist}",
            "sources.a.verify.secret[1]: cannot read /does/not/exist: No such file or directory (os error 2)",
        ),
        ("${MISSING:-}", "sources.a.verify.secret[1]: must not be empty"),
    ] {
        let text = source(&format!("verify: {{type: github, secret: [a, \"{value}\"]}}"));
        assert_eq!(refused(&text), line, "{value}");
    }
}

#[test]
fn files_have_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let at = file.display();
    let text = source(&format!("verify: {{type: github, secret: \"${{file:{at}}}\"}}"));
    std::fs::write(&file, "x".repeat(65_536)).unwrap();
    assert!(parse(&text).is_ok());
    std::fs::write(&file, "x".repeat(65_537)).unwrap();
    assert_eq!(refused(&text), format!("sources.a.verify.secret: {at} is larger than 65536 bytes"));

    let load = || Config::load(&file, &Environment::default());
    std::fs::write(&file, format!("#{}", " ".repeat((4 << 20) - 1))).unwrap();
    assert_eq!(load().unwrap(), Config::default());
    std::fs::write(&file, format!("#{}", " ".repeat(4 << 20))).unwrap();
    assert_eq!(load().unwrap_err().to_string(), format!("{at}: is larger than 4194304 bytes"));
}

#[test]
fn a_mistake_is_one_line_whatever_it_names() {
    let headers = sink("url: https://w.example/\nsecret: s\nheaders: {\"x\\ny\\r\": z}");
    assert_eq!(refused(&headers), "sources.a.sinks[0].headers.x\\ny\\r: is not a header name");
}

#[test]
fn the_environment_beats_the_file_and_is_named_when_it_is_wrong() {
    let text = "node: {data_dir: /file, roles: [storage]}\nhttp: {port: 1}\nlog: {level: error}";
    let variables = [
        ("ANKUSA_ROLES", "edge, dispatch"),
        ("ANKUSA_DATA_DIR", "/env"),
        ("ANKUSA_LOG_LEVEL", ""),
        ("ANKUSA_ADMIN_PORT", "7"),
        ("ANKUSA_ADMIN_IP", "::1"),
        ("ANKUSA_WAL_TYPE", "disk"),
        ("PORT", "2"),
    ];
    let config = Config::parse(text, "test.yml", &environment(&variables)).unwrap();
    let mut expected = parse("log: {level: error}").unwrap();
    expected.node.data_dir = "/env".into();
    expected.http.port = 2;
    expected.admin.port = 7;
    expected.admin.ip = "::1".parse().unwrap();
    assert_eq!(config, expected);

    let both = environment(&[("PORT", "2"), ("ANKUSA_HTTP_PORT", "3")]);
    assert_eq!(Config::parse("", "test.yml", &both).unwrap().http.port, 3);

    for (name, value, line) in [
        (
            "ANKUSA_HTTP_PORT",
            "x",
            "http.port must be in 0..65535, got \"x\" (from ANKUSA_HTTP_PORT)",
        ),
        ("PORT", "65536", "http.port must be in 0..65535, got \"65536\" (from PORT)"),
        (
            "ANKUSA_ROLES",
            "edge,cook",
            "node.roles[1] must be one of edge, dispatch, storage, got \"cook\" (from ANKUSA_ROLES)",
        ),
        ("ANKUSA_WAL_TYPE", "none", "wal.type: none is not in this release, only: disk"),
    ] {
        let errors = Config::parse("", "test.yml", &environment(&[(name, value)])).unwrap_err();
        assert_eq!(errors.to_string(), line);
    }
}

#[test]
fn a_file_that_is_no_yaml_is_one_line_with_its_place() {
    for (text, start) in [
        ("a: [", "test.yml: "),
        ("node: {}\nnode: {}\n", "test.yml: "),
        ("log: {level: info, level: error}", "test.yml: "),
        ("- a\n- b\n", "test.yml: the document must be a mapping of sections"),
        ("a: 1\n---\nb: 2\n", "test.yml: "),
        ("log: !custom {level: info}", "test.yml: "),
    ] {
        let line = refused(text);
        assert!(line.starts_with(start) && line.lines().count() == 1, "{text:?}: {line}");
    }
    let duplicate = refused("node: {}\nnode: {}\n");
    assert!(duplicate.contains("duplicate") && duplicate.contains("line 2"), "{duplicate}");
}

#[test]
fn aliases_that_expand_without_end_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let line = refused(&bomb);
    assert!(line.starts_with("test.yml: ") && line.lines().count() == 1, "{line}");
    // Without expanding to much, only many of them.
    let aliases = |count| format!("x: [&x y, {}]", "*x, ".repeat(count));
    assert!(refused(&aliases(1_001)).starts_with("test.yml: "));
    assert!(refused(&aliases(1_000)).starts_with("x: unknown key"));
    let honest = "x: &x {type: log}\nsources: {a: {sinks: [*x]}}";
    assert!(refused(honest).starts_with("x: unknown key"));
    assert!(parse("sources: {a: {sinks: &s [{type: log}]}, b: {sinks: *s}}").is_ok());
}

#[test]
fn every_shipped_file_loads() {
    let files = shipped();
    assert!(files.len() >= 5);
    for (name, text) in files {
        let loaded = Config::parse(&text, &name, &variables_of(&text));
        let config = loaded.unwrap_or_else(|errors| panic!("{name}:\n{errors}"));
        assert!(!config.sources.is_empty(), "{name}");
    }
}

#[test]
fn the_image_runs_one_open_source_into_the_log() {
    let text = std::fs::read_to_string(repository().join("config/ankusa.yml")).unwrap();
    let config = parse(&text).unwrap();
    assert_eq!(config.sources.keys().collect::<Vec<_>>(), ["demo"]);
    assert_eq!(config.node.data_dir, Path::new("/var/lib/ankusa"));
    assert!(config.sources["demo"].verifies_nothing());
}

/// The patterns of every leaf of `value`, as the schema writes them.
fn patterns(value: &Value, pattern: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let below = match pattern {
                    "" => name.clone(),
                    "sources" => "sources.*".to_owned(),
                    headers if headers.ends_with(".headers") => format!("{headers}.*"),
                    section => format!("{section}.{name}"),
                };
                patterns(value, &below, found);
            }
        }
        Value::Array(values) if !values.is_empty() && !pattern.ends_with(".secret") => {
            for value in values {
                patterns(value, &format!("{pattern}[]"), found);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_)
        | Value::Array(_) => {
            found.insert(pattern.to_owned());
        }
    }
}

fn patterns_of(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    patterns(value, "", &mut found);
    found
}

/// What the file says, before defaults and checks.
fn raw(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn the_reference_shows_every_key_with_its_default() {
    let text = std::fs::read_to_string(repository().join("config/reference.yml")).unwrap();
    let mut reference = raw(&text);

    // What a list is empty by default of, it says in a comment.
    let mut schema: BTreeSet<String> = KEYS.iter().filter_map(|(key, _)| shown_as(key)).collect();
    for (inside, list) in [
        ("egress.allow[]", "egress.allow"),
        ("admin.tokens[].name", "admin.tokens"),
        ("admin.tokens[].token", "admin.tokens"),
        ("admin.tokens[].scopes[]", "admin.tokens"),
        ("dispatch.tenants.weights.*", "dispatch.tenants.weights"),
        ("http.trusted_proxies[]", "http.trusted_proxies"),
        ("rate_limits.tenants.*", "rate_limits.tenants"),
        ("routes.trusted_proxies[]", "routes.trusted_proxies"),
        ("routes.ip_rules.rules[].action", "routes.ip_rules.rules"),
        ("routes.ip_rules.rules[].cidr", "routes.ip_rules.rules"),
        ("routes.seed[].id", "routes.seed"),
        ("routes.seed[].path", "routes.seed"),
        ("routes.seed[].methods[]", "routes.seed"),
        ("routes.seed[].enabled", "routes.seed"),
        ("routes.seed[].ip_rules[].action", "routes.seed"),
        ("routes.seed[].ip_rules[].cidr", "routes.seed"),
        ("routes.seed[].metadata", "routes.seed"),
    ] {
        assert!(schema.remove(inside), "{inside}");
        schema.insert(list.to_owned());
    }
    assert_eq!(patterns_of(&reference), schema);
    assert!(text.contains("#   tokens: [{name: prometheus, token: "));
    assert!(text.contains("as in [10.1.0.0/16]"));
    assert!(text.contains("as in [{action: deny, cidr: 203.0.113.0/24}]"));
    assert!(text.contains("As in [{id: github, path: \"/webhooks/github\"}]"));
    assert!(text.contains("1 to 100 each, as in {acme: 4}"));
    assert!(text.contains("as in {acme: {rate: 500, burst: 1000}}"));

    let mut defaults = serde_json::to_value(Config::default()).unwrap();
    reference.as_object_mut().unwrap().remove("sources").unwrap();
    defaults.as_object_mut().unwrap().remove("sources").unwrap();
    // Blocks that are not selected are not in force, and shown all the same.
    let transport = serde_json::to_value(TransportOptions::default()).unwrap();
    for (name, mut default) in blocks() {
        let block = reference["storage"].as_object_mut().unwrap().remove(name).unwrap();
        if name != "s3" {
            let shared = transport.as_object().unwrap().keys().map(String::as_str);
            for key in shared.chain(["sse"]) {
                default.as_object_mut().unwrap().remove(key).unwrap();
            }
        }
        assert_eq!(block, default, "{name}");
    }
    assert_eq!(reference, defaults);
}

/// The defaults of each block of a store.
fn blocks() -> [(&'static str, Value); 4] {
    [
        ("s3", serde_json::to_value(S3Spec::default()).unwrap()),
        ("gcs", serde_json::to_value(GcsSpec::default()).unwrap()),
        ("azure", serde_json::to_value(AzureSpec::default()).unwrap()),
        ("oci", serde_json::to_value(OciSpec::default()).unwrap()),
    ]
}

/// The key of the reference that tells of `key`: what stores have in common it tells of once.
fn shown_as(key: &str) -> Option<String> {
    for (stores, list) in
        [("backup.store.", "backup.store"), ("claim_check.stores[].", "claim_check.stores")]
    {
        if key.starts_with(stores) {
            return Some(list.to_owned());
        }
    }
    let transport = serde_json::to_value(TransportOptions::default()).unwrap();
    let (section, name) = key.rsplit_once('.').unwrap();
    let is_elsewhere = |block: &str| section.starts_with(&format!("storage.{block}"));
    let is_shared = transport.get(name).is_some() || section.ends_with(".sse");
    match (is_shared, ["gcs", "azure", "oci"].into_iter().any(is_elsewhere)) {
        (true, true) => None,
        (true, false) if section.ends_with(".sse") => Some(section.to_owned()),
        (_, _) => Some(key.to_owned()),
    }
}

#[test]
fn the_reference_shows_the_defaults_of_a_source_and_of_a_sink() {
    let text = std::fs::read_to_string(repository().join("config/reference.yml")).unwrap();
    let reference = raw(&text);
    let shown = |pointer: &str| reference.pointer(pointer).unwrap().clone();

    let source = serde_json::to_value(SourceSpec::open(Vec::new())).unwrap();
    for key in ["tenant", "on_verify_failure", "trust_url_tenant"] {
        assert_eq!(shown(&format!("/sources/github/{key}")), source[key], "{key}");
    }
    let sink = serde_json::to_value(SinkSpec::Http(HttpSinkSpec::new("https://w"))).unwrap();
    for key in ["type", "method", "timeout_ms", "allow_unsigned", "max_response_bytes"] {
        assert_eq!(shown(&format!("/sources/github/sinks/0/{key}")), sink[key], "{key}");
    }
    assert_eq!(shown("/sources/stripe/verify/tolerance_seconds"), json!(300));
    let hmac =
        [("parse", "whole"), ("hash", "sha256"), ("encoding", "hex"), ("secret_decode", "raw")];
    let received = ("signed_body", "received");
    for (key, default) in hmac.into_iter().chain([("timestamp_format", "seconds"), received]) {
        assert_eq!(shown(&format!("/sources/other/verify/{key}")), json!(default), "{key}");
    }
}

#[test]
fn every_key_of_the_reference_has_a_comment_with_its_bounds() {
    let text = std::fs::read_to_string(repository().join("config/reference.yml")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (key, kind) in KEYS
        .iter()
        .filter(|(key, _)| !key.starts_with("sources.") && !key.ends_with(['*', ']']))
        .filter(|(key, _)| shown_as(key).as_ref() == Some(key))
    {
        let Some((section, name)) = key.rsplit_once('.') else { panic!("{key}") };
        if section.ends_with("[]") {
            continue;
        }
        let head = format!("{}:", section.rsplit('.').next().unwrap());
        let begins = lines
            .iter()
            .position(|line| line.trim() == head)
            .unwrap_or_else(|| panic!("{section}"));
        let at = lines[begins..]
            .iter()
            .position(|line| line.trim_start().starts_with(&format!("{name}: ")));
        let at = begins + at.unwrap_or_else(|| panic!("{key}"));
        let comment: Vec<&str> = lines[..at]
            .iter()
            .rev()
            .map(|line| line.trim())
            .take_while(|line| line.starts_with('#'))
            .collect();
        let comment: String = comment.into_iter().rev().map(|line| format!("{line} ")).collect();
        assert!(!comment.is_empty(), "{key} has no comment");
        let (min, max) = match kind {
            Kind::Whole { min, max } | Kind::WholeOrNull { min, max } => (*min, *max),
            Kind::Port => (0, 65_535),
            Kind::Flag
            | Kind::Text
            | Kind::TextOrNull
            | Kind::FlagOrNull
            | Kind::Secret
            | Kind::SecretOrNull
            | Kind::Secrets
            | Kind::Word(_)
            | Kind::Ip
            | Kind::Ordered
            | Kind::Rate { .. }
            | Kind::Limit
            | Kind::TenantLimit
            | Kind::Dedupe
            | Kind::Object => {
                continue;
            }
        };
        let range = format!("{min} to {max}");
        let a_wait = key.ends_with("_ms") && max == 86_400_000;
        let told = match (a_wait, min) {
            (false, _) => comment.contains(&range) || comment.contains(&format!("{min} or {max}")),
            (true, 0) => comment.contains(">= 0"),
            (true, _) => comment.contains("> 0") || comment.contains(">= "),
        } || (*key == "dispatch.sink_concurrency"
            && comment.contains("1 to concurrency"));
        assert!(told, "{key}: {range} is not in {comment:?}");
    }
}

#[test]
fn the_schema_holds_every_number_of_the_structs() {
    // A key the schema lets through and serde does not know would be refused twice; one it does not know could not be
    // set at all. Both ways are in the reference test; here, that every bound fits the field behind it.
    let is_of_a_store = |key: &str| key.starts_with("storage.") || key.starts_with("backup.store.");
    for (key, kind) in
        KEYS.iter().filter(|(key, _)| !key.contains(['*', '[']) && !is_of_a_store(key))
    {
        let (min, max) = match kind {
            Kind::Whole { min, max } | Kind::WholeOrNull { min, max } => (*min, *max),
            Kind::Port => (0, 65_535),
            Kind::Flag
            | Kind::Text
            | Kind::TextOrNull
            | Kind::FlagOrNull
            | Kind::Secret
            | Kind::SecretOrNull
            | Kind::Secrets
            | Kind::Word(_)
            | Kind::Ip
            | Kind::Ordered
            | Kind::Rate { .. }
            | Kind::Limit
            | Kind::TenantLimit
            | Kind::Dedupe
            | Kind::Object => {
                continue;
            }
        };
        for bound in [min, max] {
            let (section, name) = key.rsplit_once('.').unwrap();
            let mut text = format!("{name}: {bound}");
            for name in section.rsplit('.') {
                text = format!("{name}: {{{text}}}");
            }
            // Another key may mind; the field itself must not.
            if let Err(errors) = parse(&text) {
                let told = errors.to_string();
                assert!(
                    told.contains(" must be >= ")
                        || told.contains(" must be <= ")
                        || told.contains("another"),
                    "{told}"
                );
                assert!(!told.contains("a whole number"), "{told}");
            }
        }
    }
}

/// What a store of each type must at least be told.
const REMOTE: [(&str, &str); 4] = [
    ("s3", "bucket: bucket, endpoint: \"http://127.0.0.1:1\""),
    ("gcs", "bucket: bucket, endpoint: \"http://127.0.0.1:1\", auth: none"),
    ("azure", "container: container, endpoint: \"http://127.0.0.1:1/account\", auth: none"),
    (
        "oci",
        "namespace: ns, bucket: bucket, endpoint: \"http://127.0.0.1:1\", auth: instance_principal",
    ),
];

#[test]
fn every_number_of_a_store_fits_what_is_behind_it() {
    for (name, least) in REMOTE {
        let mut numbers = 0;
        for (key, kind) in KEYS.iter() {
            let Some(key) = key.strip_prefix(&format!("storage.{name}.")) else { continue };
            let Kind::Whole { min, max } = kind else { continue };
            numbers += 1;
            for bound in [min, max] {
                let text =
                    format!("storage: {{type: {name}, {name}: {{{least}, {key}: {bound}}}}}");
                match parse(&text) {
                    Ok(config) => {
                        let shown = serde_json::to_value(config).unwrap();
                        assert_eq!(shown["storage"][name][key], json!(bound), "{text}");
                    }
                    Err(errors) => {
                        let told = errors.to_string();
                        let other = format!(
                            "storage.{name}.multipart_threshold_bytes must be >= multipart_part_bytes"
                        );
                        assert!(told.starts_with(&other), "{told}");
                    }
                }
            }
        }
        assert_eq!(numbers, 12, "{name}");
    }
}

#[test]
fn a_store_is_configured_alike_wherever_it_is() {
    let of = |store: &str| -> Vec<(&str, Kind)> {
        let below = KEYS.iter().filter_map(|(key, kind)| Some((key.strip_prefix(store)?, *kind)));
        below.filter(|(key, _)| *key != "key_prefix").collect()
    };
    assert!(of("storage.").len() > 80);
    assert_eq!(of("storage."), of("backup.store."));
    assert_eq!(of("storage."), of("claim_check.stores[]."));
}

fn names(config: &Config) -> Vec<(String, String, String, bool)> {
    let name = |of: NamedStore<'_>| {
        (of.name.clone(), of.key.clone(), of.prefix.to_owned(), of.store.probes())
    };
    config.object_stores().into_iter().map(name).collect()
}

fn row(name: &str, key: &str, prefix: &str, probes: bool) -> (String, String, String, bool) {
    (name.to_owned(), key.to_owned(), prefix.to_owned(), probes)
}

#[test]
fn what_has_no_store_of_its_own_is_in_that_of_storage() {
    let config = parse("storage: {key_prefix: node-a/}").unwrap();
    let expected = [
        row("segments", "storage", "node-a/", false),
        row("backup", "storage", "node-a/", false),
        row("claims", "storage", "", false),
    ];
    assert_eq!(names(&config), expected);
    let [minio, aws] = [
        "bucket: hooks, endpoint: \"http://minio:9000\"",
        "bucket: backups, endpoint: \"https://s3.eu-west-1.amazonaws.com\", region: eu-west-1",
    ];
    let text = format!(
        "storage: {{type: s3, s3: {{{minio}}}}}\n\
         backup: {{store: {{type: s3, s3: {{{aws}}}}}}}\n\
         claim_check:\n  stores:\n    - {{type: local, local: {{root: /mnt/claims}}}}\n    \
           - {{type: s3, probe: false, s3: {{{minio}}}}}\n    - {{type: s3, probe: true, s3: {{{aws}}}}}\n"
    );
    let config = parse(&text).unwrap();
    let expected = [
        row("segments", "storage", "", true),
        row("backup", "backup.store", "", false),
        row("claims", "claim_check.stores[0]", "", false),
        row("claims[1]", "claim_check.stores[1]", "", false),
        row("claims[2]", "claim_check.stores[2]", "", true),
    ];
    assert_eq!(names(&config), expected);
}

#[test]
fn a_store_that_makes_no_sense_is_refused_at_the_key_that_is_wrong() {
    let s3 = |keys: &str| format!("storage: {{type: s3, s3: {{bucket: bucket, {keys}}}}}");
    let shared = |bucket: &str, keys: &str, other: &str, others: &str| {
        let s3 = |bucket, keys| {
            format!("type: s3, s3: {{bucket: {bucket}, endpoint: \"http://h:1\", {keys}}}")
        };
        let (one, two) = (s3(bucket, keys), s3(other, others));
        format!("storage: {{{one}}}\nbackup: {{store: {{{two}}}}}")
    };
    let parts = "multipart_part_bytes: 8388608, multipart_threshold_bytes: 8388607";
    for (text, line) in [
        (
            "storage: {type: ftp}".to_owned(),
            "storage.type must be one of local, s3, gcs, azure, oci, got \"ftp\"",
        ),
        (
            "storage: {probe: maybe}".to_owned(),
            "storage.probe must be true or false, got \"maybe\"",
        ),
        (
            "storage: {key_prefix: node-a}".to_owned(),
            "storage.key_prefix must be \"\" or parts like name/, of A-Z a-z 0-9 . _ -, got \"node-a\"",
        ),
        (
            "storage: {local: {root: segments}}".to_owned(),
            "storage.local.root must be an absolute path, got \"segments\"",
        ),
        (s3("sse: {type: kms}"), "storage.s3.sse.key_id: is required with type kms"),
        (s3("sse: {key_id: k}"), "storage.s3.sse.type: is required"),
        (
            s3("sse: {type: aes256, key_id: k}"),
            "storage.s3.sse.key_id: is used with type kms alone",
        ),
        (
            s3("sse: {type: aes128}"),
            "storage.s3.sse.type must be one of aes256, kms, got \"aes128\"",
        ),
        (
            s3("sse: {type: kms, keyid: k}"),
            "storage.s3.sse.keyid: unknown key; known here: type, key_id",
        ),
        (
            s3("multipart_part_bytes: 5242881"),
            "storage.s3.multipart_part_bytes must be a multiple of 262144, got 5242881",
        ),
        (
            s3("multipart_part_bytes: 5242879"),
            "storage.s3.multipart_part_bytes must be >= 5242880, got 5242879",
        ),
        (
            s3(parts),
            "storage.s3.multipart_threshold_bytes must be >= multipart_part_bytes (8388608), got 8388607",
        ),
        (
            s3("cacertfile: /does/not/exist.pem"),
            "storage.s3.cacertfile: cannot read /does/not/exist.pem: No such file or directory (os error 2)",
        ),
        (
            "storage: {type: s3, s3: {bucket: one, endpoint: \"http://h:1\"}}\n\
             backup: {store: {type: s3, s3: {bucket: two, endpoint: \"http://h:1/\", cacertfile: Cargo.toml}}}"
                .to_owned(),
            "backup.store.s3.cacertfile: must be the same for every store at http://h:1, and \
             storage.s3.cacertfile is another",
        ),
        (
            shared("one", "pool_size: 8", "two", "pool_size: 9"),
            "backup.store.s3.pool_size: must be the same for every store at http://h:1, and storage.s3.pool_size \
             is another",
        ),
        (
            shared("one", "pool_count: 2", "two", ""),
            "backup.store.s3.pool_count: must be the same for every store at http://h:1, and storage.s3.pool_count \
             is another",
        ),
        (
            shared("one", "", "one", "breaker_open_ms: 9"),
            "backup.store.s3.breaker_open_ms: must be the same for every store of one at http://h:1, and \
             storage.s3.breaker_open_ms is another",
        ),
        (
            "claim_check: {stores: [{type: gcs, gcs: {bucket: a, endpoint: \"http://h:2\"}}, \
             {type: s3, s3: {bucket: bbb, endpoint: \"http://h:1\"}}, \
             {type: gcs, gcs: {bucket: c, endpoint: \"http://h:2\", pool_timeout: 9}}]}"
                .to_owned(),
            "claim_check.stores[2].gcs.pool_timeout: must be the same for every store at http://h:2, and \
             claim_check.stores[0].gcs.pool_timeout is another",
        ),
        (
            "storage: {type: gcs, gcs: {bucket: b, auth: token}}".to_owned(),
            "storage.gcs.token: is required with auth: token",
        ),
        ("backup: {store: {s3: {bucket: b}}}".to_owned(), "backup.store.type: is required"),
        (
            "claim_check: {stores: [{type: local}, {type: gcs, gcs: {bucket: b, auth: token}}]}"
                .to_owned(),
            "claim_check.stores[1].gcs.token: is required with auth: token",
        ),
        (
            "backup: {store: {type: local, key_prefix: a/}}".to_owned(),
            "backup.store.key_prefix: unknown key; known here: type, probe, local, s3, gcs, azure, oci",
        ),
    ] {
        assert_eq!(refused(&text), line, "{text}");
    }
    // What is not shared may differ: another bucket has a breaker of its own.
    parse(&shared("one", "breaker_open_ms: 8", "two", "breaker_open_ms: 9")).unwrap();
    parse(&shared("one", "timeout_ms: 8, retries: 1", "one", "op_deadline_ms: 9")).unwrap();
    for prefix in ["/", "a", "a//", "/a/", "../", "a/./", "a b/", "ä/"] {
        let told = refused(&format!("storage: {{key_prefix: \"{prefix}\"}}"));
        assert!(told.starts_with("storage.key_prefix must be "), "{prefix}: {told}");
    }
    for prefix in ["", "a/", "node-a/x.y_z/", ".../"] {
        parse(&format!("storage: {{key_prefix: \"{prefix}\"}}")).unwrap();
    }
}

#[test]
fn the_block_of_a_type_that_is_not_selected_is_held_to_its_spelling_and_dropped() {
    // Nothing of it would do: no bucket, no token, no key.
    let ignored =
        "storage: {s3: {sse: {type: kms}}, gcs: {auth: token}, azure: {}, oci: {region: x}}";
    assert_eq!(parse(ignored).unwrap(), Config::default());
    let told = refused("storage: {gcs: {bukket: b}}");
    assert!(
        told.starts_with("storage.gcs.bukket: unknown key; known here: bucket, endpoint,"),
        "{told}"
    );
    assert_eq!(
        refused("storage: {s3: {retries: 101}}"),
        "storage.s3.retries must be <= 100, got 101"
    );
}

#[test]
fn variables_select_a_store_and_name_its_bucket() {
    let text = "storage: {type: local, s3: {bucket: file, timeout_ms: 7}}";
    let variables = [
        ("ANKUSA_STORAGE_TYPE", "s3"),
        ("ANKUSA_STORAGE_KEY_PREFIX", "node-a/"),
        ("ANKUSA_S3_BUCKET", "variable"),
        ("ANKUSA_S3_REGION", "eu-west-1"),
        ("ANKUSA_S3_ENDPOINT", "http://127.0.0.1:1"),
        ("ANKUSA_GCS_BUCKET", "other"),
    ];
    let config = Config::parse(text, "test.yml", &environment(&variables)).unwrap();
    let storage = serde_json::to_value(config).unwrap()["storage"].clone();
    let mut s3 = serde_json::to_value(S3Spec::default()).unwrap();
    for (key, value) in [
        ("bucket", json!("variable")),
        ("region", json!("eu-west-1")),
        ("endpoint", json!("http://127.0.0.1:1")),
        ("timeout_ms", json!(7)),
    ] {
        s3[key] = value;
    }
    assert_eq!(storage, json!({"key_prefix": "node-a/", "type": "s3", "probe": null, "s3": s3}));
    let gcs = [("ANKUSA_STORAGE_TYPE", "gcs"), ("ANKUSA_GCS_BUCKET", "variable")];
    let config = Config::parse("", "test.yml", &environment(&gcs)).unwrap();
    let shown = serde_json::to_value(config).unwrap();
    assert_eq!(shown["storage"]["gcs"]["bucket"], "variable");
    let wrong = environment(&[("ANKUSA_STORAGE_TYPE", "tape")]);
    assert_eq!(
        Config::parse("", "test.yml", &wrong).unwrap_err().to_string(),
        "storage.type must be one of local, s3, gcs, azure, oci, got \"tape\" (from ANKUSA_STORAGE_TYPE)"
    );
}

#[test]
fn a_shown_store_hides_its_secrets_and_nothing_else() {
    let s3 = format!(
        "bucket: bucket, access_key_id: id, secret_access_key: {SECRET}, session_token: {SECRET}, \
         sse: {{type: kms, key_id: arn}}"
    );
    let text = format!(
        "storage: {{type: s3, s3: {{{s3}}}}}\n\
         backup: {{store: {{type: gcs, gcs: {{bucket: g, auth: token, token: {SECRET}}}}}}}\n\
         claim_check:\n  stores:\n    \
           - {{type: azure, azure: {{account_name: account, container: container, sas_token: \"sig={SECRET}\"}}}}\n"
    );
    let config = parse(&text).unwrap();
    assert!(!format!("{config:?}").contains("whsec_"));
    let shown = redacted(&config);
    assert!(!shown.to_string().contains("whsec_"), "{shown}");
    let mut expected = blocks().map(|(_, default)| default);
    let [s3, gcs, azure, _] = &mut expected;
    s3["bucket"] = json!("bucket");
    for key in ["access_key_id", "secret_access_key", "session_token"] {
        s3[key] = json!("[REDACTED]");
    }
    s3["sse"] = json!({"type": "kms", "key_id": "arn"});
    (gcs["bucket"], gcs["auth"], gcs["token"]) = (json!("g"), json!("token"), json!("[REDACTED]"));
    (azure["account_name"], azure["container"]) = (json!("account"), json!("container"));
    azure["sas_token"] = json!("[REDACTED]");
    assert_eq!(shown["storage"]["s3"], *s3);
    assert_eq!(shown["backup"]["store"], json!({"type": "gcs", "probe": null, "gcs": gcs}));
    assert_eq!(
        shown["claim_check"]["stores"],
        json!([{"type": "azure", "probe": null, "azure": azure}])
    );
}

#[test]
fn a_shown_configuration_hides_what_is_secret_and_nothing_else() {
    let text = format!(
        "admin: {{tokens: [{{name: ops, token: {SECRET}, scopes: [\"*\"]}}]}}\n\
         sources:\n  \
           a:\n    \
             verify: {{type: github, secret: [{SECRET}, {SECRET}]}}\n    \
             handshake: {{type: meta, verify_token: {SECRET}}}\n    \
             response: {{body: ok}}\n    \
             forward_headers: [x-a]\n    \
             sinks:\n      \
               - {{type: http, url: \"https://me:{SECRET}@w.example/h?k={SECRET}\", secret: {SECRET}, headers: {{x-k: {SECRET}}}}}\n      \
               - {{type: log, ordered: {{by: {{header: x-order}}}}}}\n"
    );
    let shown = redacted(&parse(&text).unwrap());
    assert!(!shown.to_string().contains("whsec_"), "{shown}");

    let mut expected = serde_json::to_value(Config::default()).unwrap();
    expected["admin"]["tokens"] = json!([{"name": "ops", "token": "[REDACTED]", "scopes": ["*"]}]);
    expected["sources"] = json!({"a": {
        "tenant": "default",
        "verify": {"type": "github", "secret": "[REDACTED]"},
        "on_verify_failure": "reject",
        "handshake": {"type": "meta", "verify_token": "[REDACTED]"},
        "response": {"status": 200, "body": "ok"},
        "sinks": [
            {"type": "http", "url": "https://[REDACTED]@w.example/h?k=[REDACTED]", "method": "post",
                "headers": {"x-k": "[REDACTED]"}, "timeout_ms": 5000, "secret": "[REDACTED]",
                "allow_unsigned": false, "max_response_bytes": 65536},
            {"type": "log", "ordered": {"by": {"header": "x-order"}}},
        ],
        "forward_headers": ["x-a"],
        "trust_url_tenant": false,
    }});
    assert_eq!(shown, expected);
    assert!(!format!("{:?}", parse(&text).unwrap()).contains("whsec_"));
}

#[test]
fn what_is_worth_a_warning_is_no_mistake() {
    let config = parse("node: {roles: [storage, edge]}\ncontrol: {allow_crash: true}").unwrap();
    assert!(config.has_role(Role::Storage) && !config.has_role(Role::Dispatch));
    let starts: Vec<String> =
        config.warnings().iter().map(|warning| warning.chars().take(25).collect()).collect();
    assert_eq!(
        starts,
        ["node.roles has storage, b", "sources is empty: every h", "control.allow_crash is on"]
    );
    let certificates = source("dedupe: github\nverify: {type: mtls, peers: \"cn:a\"}");
    let warnings = parse(&certificates).unwrap().warnings();
    assert_eq!(
        warnings,
        [
            "sources.a is for clients with a certificate, and without http.tls.client_ca_file nobody is asked for one: all of \
          its hooks are refused"
        ]
    );
    for quiet in [source("dedupe: github").as_str(), "node: {roles: [dispatch]}"] {
        assert_eq!(parse(quiet).unwrap().warnings(), Vec::<String>::new(), "{quiet}");
    }
}

#[test]
fn sources_without_dedupe_are_told_once_and_all_together() {
    let sources = "sources:\n  a: {sinks: [{type: log}]}\n  b: {sinks: [{type: log}], dedupe: svix}\n  \
                   c: {sinks: [{type: log}]}\n";
    assert_eq!(
        parse(sources).unwrap().warnings(),
        [
            "sources without dedupe: a, c: a provider that sends a hook again because its answer was lost makes a second \
          hook of it"
        ]
    );
    let without_edge = format!("node: {{roles: [dispatch]}}\n{sources}");
    assert_eq!(parse(&without_edge).unwrap().warnings(), Vec::<String>::new());
}

/// Runs the binary with this configuration and nothing else in its environment.
fn ankusa(command: &str, config: &Path, variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ankusa"))
        .arg(command)
        .env_clear()
        .env("ANKUSA_CONFIG", config)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_mistake_ends_every_command_with_78_and_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ankusa.yml");
    let data_dir = folder.path().join("data");
    let variables = [("ANKUSA_DATA_DIR", data_dir.to_str().unwrap())];
    std::fs::write(&file, "dispatch: {batch: 0}\nlog: {level: loud}\n").unwrap();
    let lines = "dispatch.batch must be > 0, got 0\n\
                 log.level must be one of debug, info, warning, error, got \"loud\"\n";
    for command in ["start", "check-config", "print-config", "healthcheck"] {
        let output = ankusa(command, &file, &variables);
        assert_eq!(told(&output), (Some(78), String::new(), lines.to_owned()), "{command}");
    }
    assert!(!data_dir.exists());
}

#[test]
fn a_missing_file_ends_with_78() {
    let output = ankusa("check-config", Path::new("/does/not/exist.yml"), &[]);
    let line = "/does/not/exist.yml: cannot be read: No such file or directory (os error 2)\n";
    assert_eq!(told(&output), (Some(78), String::new(), line.to_owned()));
}

#[test]
fn check_config_says_what_it_read() {
    let file = repository().join("config/ankusa.yml");
    let line = "config OK: roles=edge,dispatch sources=demo wal=disk\n";
    assert_eq!(
        told(&ankusa("check-config", &file, &[])),
        (
            Some(0),
            line.to_owned(),
            "warning: sources without dedupe: demo: a provider that sends a hook again because its answer was lost makes \
             a second hook of it\n"
                .to_owned()
        )
    );

    let (code, out, warnings) =
        told(&ankusa("check-config", &file, &[("ANKUSA_ROLES", "storage,dispatch")]));
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "config OK: roles=dispatch,storage sources=demo wal=disk\n")
    );
    assert!(warnings.starts_with("warning: node.roles has storage, but"), "{warnings}");
}

#[test]
fn print_config_is_the_redacted_configuration() {
    let file = repository().join("config/examples/production.yml");
    let text = std::fs::read_to_string(&file).unwrap();
    let names = [
        "ANKUSA_METRICS_TOKEN",
        "ANKUSA_OPERATOR_TOKEN",
        "STRIPE_SECRET",
        "STRIPE_SECRET_OLD",
        "BILLING_WHSEC",
        "GITHUB_SECRET",
        "CI_WHSEC",
    ];
    let variables = names.map(|name| (name, SECRET));
    let (code, out, err) = told(&ankusa("print-config", &file, &variables));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let expected = redacted(&Config::parse(&text, "production.yml", &variables_of(&text)).unwrap());
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
    assert!(!out.contains(SECRET));
}

#[test]
fn limits_are_read_with_fractions_and_from_variables_and_shown_as_they_were() {
    let text = "rate_limits:\n  default: {rate: 0.5, burst: 3}\n  tenants: {acme: {rate: \"${RATE}\", burst: 4, overload_share_percent: 5}}\n\
                quarantine: {rate: 2.25}\n\
                sources: {a: {rate_limit: {bytes_rate: 5, bytes_burst: 8000000}, sinks: [{type: log}]}}";
    let config = Config::parse(text, "test.yml", &environment(&[("RATE", "7")])).unwrap();
    let shown = redacted(&config);
    assert_eq!(
        shown["rate_limits"],
        json!({
            "default": {"rate": 0.5, "burst": 3},
            "tenants": {"acme": {"rate": 7, "burst": 4, "overload_share_percent": 5}},
            "client_ip": null,
            "node": null,
        })
    );
    assert_eq!(shown["quarantine"]["rate"], json!(2.25));
    assert_eq!(
        shown["sources"]["a"]["rate_limit"],
        json!({"bytes_rate": 5, "bytes_burst": 8_000_000})
    );
    assert!(parse("rate_limits: {default: null, tenants: {}}").is_ok());
}
