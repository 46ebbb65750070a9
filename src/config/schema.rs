//! Every key there is, with its type and bounds: one row a key.
//!
//! The file is held against this table before serde sees it, so that a mistake is told in one documented shape whatever
//! it is, and all mistakes at once. `tests/config.rs` holds the table, the structs and `config/reference.yml` together.

mod stores;

use std::sync::LazyLock;

use ankusa_actors::model::rate_limit::{MAX_BYTES_BURST, MAX_BYTES_RATE, MAX_HOOKS};
use ankusa_actors::model::sink_spec::{MAX_RESPONSE_BYTES, MAX_TIMEOUT_MS};

/// What the value of a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Flag,
    FlagOrNull,
    /// A whole number from `min` to `max`.
    Whole {
        min: u64,
        max: u64,
    },
    /// A whole number or `null`.
    WholeOrNull {
        min: u64,
        max: u64,
    },
    /// Like `Whole`, but the documented text of the bound is the range.
    Port,
    Text,
    TextOrNull,
    /// A text that must never be repeated in a message.
    Secret,
    SecretOrNull,
    /// One such text, or a list of them.
    Secrets,
    /// One of these.
    Word(&'static [&'static str]),
    /// An IPv4 or IPv6 literal.
    Ip,
    /// A flag, or a mapping that says what hooks are ordered by.
    Ordered,
    /// A preset, or a mapping that says where the key of a hook is.
    Dedupe,
    /// A number a second, more than 0 and at most so much, with or without a fraction.
    Rate {
        max: u64,
    },
    /// A mapping of rates and bursts, or `null`.
    Limit,
    /// The same of a tenant, which has a share too.
    TenantLimit,
    /// Any mapping.
    Object,
}

/// A day: no wait of a node is longer, and no sum of two overflows anything.
const MAX_MS: u64 = 86_400_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Memory budgets end here.
const MAX_BUDGET_BYTES: u64 = 1 << 40;
const MANY: u64 = 1_000_000;
/// Dedupe keys: more fill a disk of two terabytes.
const MAX_KEYS: u64 = 10_000_000_000;

const MS: Kind = over_zero(MAX_MS);
const MS_OR_ZERO: Kind = Kind::Whole { min: 0, max: MAX_MS };

const WRITE_BUFFER: Kind = Kind::Whole { min: 65_536, max: 64 * GIB };
const OWN_WRITE_BUFFER: Kind = Kind::WholeOrNull { min: 65_536, max: 64 * GIB };

/// HTTP/2 begins with the least one, and nothing is gained past the most.
const WINDOW: Kind = Kind::Whole { min: 65_535, max: 16 * MIB };

const ACCESS: Kind = Kind::Word(&["allow", "deny"]);

const fn over_zero(max: u64) -> Kind {
    Kind::Whole { min: 1, max }
}

/// A row is a leaf. In a pattern `*` stands for any name and `[]` for any place in a list.
pub static KEYS: LazyLock<Vec<(String, Kind)>> = LazyLock::new(|| {
    let own = OWN_KEYS.iter().map(|(key, kind)| ((*key).to_owned(), *kind));
    own.chain(stores::keys()).collect()
});

/// All but those of stores.
#[rustfmt::skip]
const OWN_KEYS: &[(&str, Kind)] = &[
    ("node.roles[]", Kind::Word(&["edge", "dispatch", "storage"])),
    ("node.instance", Kind::Text),
    ("node.data_dir", Kind::Text),
    ("node.runtime_workers", Kind::WholeOrNull { min: 1, max: 1_024 }),
    ("log.level", Kind::Word(&["debug", "info", "warning", "error"])),
    ("log.format", Kind::Word(&["text", "json"])),
    ("http.port", Kind::Port),
    ("http.ip", Kind::Ip),
    ("http.max_body_bytes", over_zero(256 * MIB)),
    ("http.routing", Kind::Word(&["path", "tenant_path"])),
    ("http.prefix", Kind::Text),
    ("http.header_timeout_ms", MS),
    ("http.body_timeout_ms", MS),
    ("http.idle_timeout_ms", MS),
    ("http.max_connections", over_zero(MANY)),
    ("http.max_body_memory_bytes", over_zero(MAX_BUDGET_BYTES)),
    ("http.max_headers", over_zero(1_000)),
    // Below 8 KiB the HTTP parser refuses to work.
    ("http.max_header_bytes", Kind::Whole { min: 8_192, max: MIB }),
    ("http.trusted_proxies[]", Kind::Text),
    ("http.http2.enabled", Kind::Flag),
    ("http.http2.max_streams", over_zero(10_000)),
    ("http.http2.stream_window_bytes", WINDOW),
    ("http.http2.connection_window_bytes", WINDOW),
    ("http.http2.max_frame_bytes", Kind::Whole { min: 16_384, max: 16 * MIB - 1 }),
    ("http.http2.max_resets", over_zero(MANY)),
    ("http.tls.cert_file", Kind::TextOrNull),
    ("http.tls.key_file", Kind::TextOrNull),
    ("http.tls.client_ca_file", Kind::TextOrNull),
    ("http.tls.client_auth", Kind::Word(&["optional", "required"])),
    ("http.tls.handshake_timeout_ms", MS),
    ("http.tls.reload_interval_ms", MS),
    ("admin.enabled", Kind::Flag),
    ("admin.port", Kind::Port),
    ("admin.ip", Kind::Ip),
    ("admin.gauge_interval_ms", MS),
    ("admin.tokens[].name", Kind::Text),
    ("admin.tokens[].token", Kind::Secret),
    ("admin.tokens[].scopes[]", Kind::Text),
    ("admin.tls.cert_file", Kind::TextOrNull),
    ("admin.tls.key_file", Kind::TextOrNull),
    ("admin.tls.client_ca_file", Kind::TextOrNull),
    ("admin.tls.client_auth", Kind::Word(&["optional", "required"])),
    ("admin.tls.handshake_timeout_ms", MS),
    ("admin.tls.reload_interval_ms", MS),
    ("control.socket", Kind::TextOrNull),
    ("control.allow_crash", Kind::Flag),
    ("wal.type", Kind::Word(&["disk"])),
    ("batcher.partitions", over_zero(64)),
    ("batcher.max_batch", over_zero(65_536)),
    ("batcher.max_delay_ms", MS_OR_ZERO),
    ("batcher.max_queue", over_zero(10 * MANY)),
    ("batcher.max_queue_bytes", over_zero(MAX_BUDGET_BYTES)),
    ("batcher.tenant_share_percent", over_zero(100)),
    ("batcher.group_commit_max_bytes", over_zero(GIB)),
    ("batcher.group_commit_max_records", over_zero(MANY)),
    ("batcher.group_commit_delay_ms", MS_OR_ZERO),
    ("batcher.start_deadline_ms", MS),
    ("batcher.stall_ms", MS),
    ("batcher.max_unsynced_groups", over_zero(1_024)),
    ("queue.value_version", Kind::Whole { min: 0, max: 1 }),
    ("queue.rocksdb.block_cache_bytes", over_zero(MAX_BUDGET_BYTES)),
    ("queue.rocksdb.bloom_bits_per_key", Kind::Whole { min: 0, max: 64 }),
    ("queue.rocksdb.max_open_files", Kind::Whole { min: 64, max: MANY }),
    ("queue.rocksdb.write_buffer_bytes", WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.default_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.hooks_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.deliveries_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.index_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.archive_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.quarantine_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.audit_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.tenants_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.write_buffers.counters_bytes", OWN_WRITE_BUFFER),
    ("queue.rocksdb.compaction_style", Kind::Word(&["level", "universal"])),
    ("queue.rocksdb.rate_limit_bytes_per_s", Kind::Whole { min: 0, max: MAX_BUDGET_BYTES }),
    ("queue.rocksdb.max_background_jobs", over_zero(64)),
    ("store.open_deadline_ms", MS),
    ("store.reopen_min_interval_ms", MS),
    ("store.reopen_backoff_ms", MS),
    ("store.reopen_max_backoff_ms", MS),
    ("store.fence_deadline_ms", MS),
    ("store.scrub_bytes_per_s", Kind::Whole { min: 0, max: MAX_BUDGET_BYTES }),
    ("store.scrub_interval_ms", over_zero(366 * MAX_MS)),
    ("store.reserve_bytes", Kind::Whole { min: 0, max: 64 * GIB }),
    ("store.min_free_bytes", Kind::Whole { min: 0, max: MAX_BUDGET_BYTES }),
    ("store.resume_free_bytes", Kind::Whole { min: 0, max: MAX_BUDGET_BYTES }),
    ("dedupe.max_entries", over_zero(MAX_KEYS)),
    ("dedupe.max_entries_per_tenant", over_zero(MAX_KEYS)),
    ("dedupe.sweep_interval_ms", MS),
    ("dedupe.sweep_chunk", over_zero(10_000)),
    ("tenants.max", over_zero(u32::MAX as u64)),
    ("rate_limits.default", Kind::Limit),
    ("rate_limits.tenants.*", Kind::TenantLimit),
    ("rate_limits.client_ip", Kind::Limit),
    ("rate_limits.node", Kind::Limit),
    ("quarantine.burst", over_zero(MANY)),
    ("quarantine.rate", Kind::Rate { max: MANY }),
    ("quarantine.max_bytes", over_zero(MAX_BUDGET_BYTES)),
    ("quarantine.retention_days", Kind::WholeOrNull { min: 1, max: 36_500 }),
    ("dispatch.batch", over_zero(100_000)),
    ("dispatch.concurrency", over_zero(100_000)),
    ("dispatch.max_stalled", Kind::WholeOrNull { min: 1, max: 10 * MANY }),
    ("dispatch.max_inflight", over_zero(10 * MANY)),
    ("dispatch.max_inflight_bytes", over_zero(MAX_BUDGET_BYTES)),
    ("dispatch.attempt_timeout_ms", MS),
    ("dispatch.sink_concurrency", Kind::WholeOrNull { min: 1, max: 100_000 }),
    ("dispatch.breaker_failures", Kind::Whole { min: 0, max: MANY }),
    ("dispatch.breaker_open_ms", MS),
    ("dispatch.breaker_max_open_ms", MS),
    ("dispatch.retry.base_ms", MS),
    ("dispatch.retry.max_ms", MS),
    ("dispatch.retry.max_attempts", over_zero(MANY)),
    ("dispatch.retry.jitter", Kind::Flag),
    ("dispatch.tenants.share_percent", over_zero(100)),
    ("dispatch.tenants.start_percent", over_zero(100)),
    ("dispatch.tenants.max_inflight", Kind::WholeOrNull { min: 1, max: 10 * MANY }),
    ("dispatch.tenants.default_weight", over_zero(100)),
    ("dispatch.tenants.weights.*", over_zero(100)),
    ("egress.allow_http", Kind::Flag),
    ("egress.allow_private", Kind::Flag),
    ("egress.allow[]", Kind::Text),
    ("shutdown.drain_ms", MS_OR_ZERO),
    ("source_store.type", Kind::Word(&["static", "persistent"])),
    ("source_store.max_sources", over_zero(100_000)),
    ("routes.enabled", Kind::Flag),
    ("routes.max_routes", over_zero(100_000)),
    ("routes.log_sample", Kind::Whole { min: 0, max: MANY }),
    ("routes.ip_denied_status", Kind::Whole { min: 403, max: 404 }),
    ("routes.trusted_proxies[]", Kind::Text),
    ("routes.ip_rules.default", ACCESS),
    ("routes.ip_rules.rules[].action", ACCESS),
    ("routes.ip_rules.rules[].cidr", Kind::Text),
    ("routes.seed[].id", Kind::Text),
    ("routes.seed[].path", Kind::Text),
    ("routes.seed[].methods[]", Kind::Text),
    ("routes.seed[].enabled", Kind::Flag),
    ("routes.seed[].ip_rules[].action", ACCESS),
    ("routes.seed[].ip_rules[].cidr", Kind::Text),
    ("routes.seed[].metadata", Kind::Object),
    ("routes.admin.port", Kind::Port),
    ("routes.admin.ip", Kind::Ip),
    ("sources.*.tenant", Kind::Text),
    ("sources.*.enabled", Kind::Flag),
    ("sources.*.verify.type", Kind::Word(&["none", "adyen", "discord", "github", "hubspot", "intercom", "linear", "meta", "paddle", "sendgrid", "shopify", "slack", "square", "standard_webhooks", "stream", "stripe", "svix", "twilio", "twitter", "zendesk", "hmac", "ed25519", "ecdsa_p256", "rsa", "bearer", "mtls"])),
    ("sources.*.verify.secret", Kind::Secrets),
    ("sources.*.verify.public_key", Kind::Secrets),
    ("sources.*.verify.tolerance_seconds", Kind::Whole { min: 1, max: MAX_MS / 1_000 }),
    ("sources.*.verify.url", Kind::Text),
    ("sources.*.verify.signed_body", Kind::Word(&["received", "inflated"])),
    ("sources.*.verify.signature_header", Kind::Text),
    ("sources.*.verify.signed", Kind::Text),
    ("sources.*.verify.parse", Kind::Word(&["whole", "csv_pairs", "space_versions"])),
    ("sources.*.verify.sig_prefix", Kind::Text),
    ("sources.*.verify.sig_key", Kind::Text),
    ("sources.*.verify.separator", Kind::Word(&[",", ";"])),
    ("sources.*.verify.version", Kind::Text),
    ("sources.*.verify.hash", Kind::Word(&["sha256", "sha512", "sha1"])),
    ("sources.*.verify.encoding", Kind::Word(&["hex", "base64"])),
    ("sources.*.verify.secret_decode", Kind::Word(&["raw", "whsec_base64", "base64", "hex"])),
    ("sources.*.verify.padding", Kind::Word(&["pkcs1v15", "pss"])),
    ("sources.*.verify.timestamp_header", Kind::Text),
    ("sources.*.verify.timestamp_pair", Kind::Text),
    ("sources.*.verify.timestamp_json", Kind::Text),
    ("sources.*.verify.timestamp_format", Kind::Word(&["seconds", "milliseconds", "rfc3339"])),
    ("sources.*.verify.token_header", Kind::Text),
    ("sources.*.verify.peers", Kind::Secrets),
    ("sources.*.on_verify_failure", Kind::Word(&["reject", "quarantine", "accept_flag"])),
    ("sources.*.handshake.type", Kind::Word(&["discord", "meta", "microsoft_graph", "slack", "twitter_crc"])),
    ("sources.*.handshake.verify_token", Kind::Secrets),
    ("sources.*.response.status", Kind::Whole { min: 200, max: 299 }),
    ("sources.*.response.body", Kind::Text),
    ("sources.*.response.content_type", Kind::Text),
    ("sources.*.dedupe", Kind::Dedupe),
    ("sources.*.forward_headers[]", Kind::Text),
    ("sources.*.trust_url_tenant", Kind::Flag),
    ("sources.*.rate_limit", Kind::Limit),
    ("sources.*.sinks[].type", Kind::Word(&["http", "log"])),
    ("sources.*.sinks[].url", Kind::Secret),
    ("sources.*.sinks[].enabled", Kind::Flag),
    ("sources.*.sinks[].method", Kind::Word(&["post", "put", "patch"])),
    ("sources.*.sinks[].headers.*", Kind::Secret),
    ("sources.*.sinks[].timeout_ms", over_zero(MAX_TIMEOUT_MS)),
    ("sources.*.sinks[].secret", Kind::Secrets),
    ("sources.*.sinks[].allow_unsigned", Kind::Flag),
    ("sources.*.sinks[].max_response_bytes", Kind::Whole { min: 0, max: MAX_RESPONSE_BYTES as u64 }),
    ("sources.*.sinks[].ordered", Kind::Ordered),
];

/// Keys and sections the documented system has and this release has not.
const LATER_KEYS: &[&str] = &[
    "archive",
    "audit",
    "health",
    "intake",
    "lifecycle",
    "metrics",
    "queue.dlq",
    "secrets",
    "source_store.namespace",
    "source_store.tick_ms",
    "source_store.url",
    "sources.*.retry",
    "wal.publish_timeout_ms",
];

/// Keys of the documented system that mean nothing here, and why.
const MEANINGLESS_KEYS: &[(&str, &str)] = &[
    ("claim_check.store", "name it in claim_check.stores, which is a list"),
    (
        "routes.cache",
        "there is nothing to set: every route is in memory, and a change counts at once",
    ),
    ("routes.store", "there is nothing to choose: routes are kept in the node's own store"),
];

/// Values that the documented system has and this release has not.
const LATER_WORDS: &[(&str, &[&str])] = &[
    ("node.roles[]", &["claim_check"]),
    ("sources.*.sinks[].type", &["google_pubsub", "kafka", "nats", "rabbitmq", "redis", "sqs"]),
    ("source_store.type", &["redis"]),
    ("wal.type", &["dual", "none"]),
];

/// The fields of a limit, and what they can be.
pub(super) const LIMIT_FIELDS: &[(&str, Kind)] = &[
    ("rate", Kind::Rate { max: MAX_HOOKS }),
    ("burst", over_zero(MAX_HOOKS)),
    ("bytes_rate", over_zero(MAX_BYTES_RATE)),
    ("bytes_burst", over_zero(MAX_BYTES_BURST)),
    ("overload_share_percent", over_zero(100)),
];

/// What stands at a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Leaf(Kind),
    /// Named keys.
    Section,
    /// Any names.
    Map,
    List,
    Unknown,
    /// Documented, but not in this release.
    Later,
    /// Documented, but without a meaning here, and why.
    Meaningless(&'static str),
}

/// What stands at `pattern`; the empty one is the whole file.
pub(super) fn place(pattern: &str) -> Place {
    if pattern.is_empty() {
        return Place::Section;
    }
    let below = KEYS.iter().filter_map(|(key, kind)| Some((key.strip_prefix(pattern)?, *kind)));
    for (rest, kind) in below {
        if rest.is_empty() {
            return Place::Leaf(kind);
        } else if rest.starts_with(".*") {
            return Place::Map;
        } else if rest.starts_with('.') {
            return Place::Section;
        } else if rest.starts_with("[]") {
            return Place::List;
        }
    }
    if let Some((_, why)) = MEANINGLESS_KEYS.iter().find(|(key, _)| *key == pattern) {
        return Place::Meaningless(why);
    }
    let is_later = LATER_KEYS.contains(&pattern) || stores::LATER_KEYS.contains(&pattern);
    if is_later { Place::Later } else { Place::Unknown }
}

/// The names a section knows, in the order of the table.
pub(super) fn names_in(section: &str) -> Vec<&'static str> {
    let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
    let mut names: Vec<&str> = Vec::new();
    for (key, _) in KEYS.iter() {
        let Some(rest) = key.strip_prefix(prefix.as_str()) else { continue };
        let name = rest.split(['.', '[']).next().unwrap_or(rest);
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether `word` is a documented value of `pattern` that this release has not.
pub(super) fn is_later_word(pattern: &str, word: &str) -> bool {
    LATER_WORDS.iter().any(|(key, words)| *key == pattern && words.contains(&word))
}
