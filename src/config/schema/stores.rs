//! The keys of a store of objects, which are the same wherever one is configured.

use super::{Kind, MAX_MS, MIB, MS, over_zero};

/// Where a store is configured.
const STORES: [&str; 3] = ["storage", "backup.store", "claim_check.stores[]"];

/// The blocks of stores that are reached over HTTP.
const REMOTE: [&str; 4] = ["s3", "gcs", "azure", "oci"];

/// The largest part: S3's bound is 5 GiB, and each of those under way is in memory.
const MAX_PART_BYTES: u64 = 256 * MIB;

#[rustfmt::skip]
const KEYS: &[(&str, Kind)] = &[
    ("type", Kind::Word(&["local", "s3", "gcs", "azure", "oci"])),
    ("probe", Kind::FlagOrNull),
    ("local.root", Kind::TextOrNull),
    ("s3.bucket", Kind::Text),
    ("s3.region", Kind::Text),
    ("s3.endpoint", Kind::TextOrNull),
    ("s3.path_style", Kind::Flag),
    ("s3.access_key_id", Kind::SecretOrNull),
    ("s3.secret_access_key", Kind::SecretOrNull),
    ("s3.session_token", Kind::SecretOrNull),
    ("gcs.bucket", Kind::Text),
    ("gcs.endpoint", Kind::Text),
    ("gcs.auth", Kind::Word(&["metadata", "token", "none"])),
    ("gcs.token", Kind::SecretOrNull),
    ("azure.account_name", Kind::Text),
    ("azure.container", Kind::Text),
    ("azure.endpoint", Kind::TextOrNull),
    ("azure.auth", Kind::Word(&["sas", "managed_identity", "none"])),
    ("azure.sas_token", Kind::SecretOrNull),
    ("azure.client_id", Kind::TextOrNull),
    ("oci.region", Kind::TextOrNull),
    ("oci.namespace", Kind::Text),
    ("oci.bucket", Kind::Text),
    ("oci.endpoint", Kind::TextOrNull),
    ("oci.auth", Kind::Word(&["api_key", "instance_principal", "session_token"])),
    ("oci.tenancy_ocid", Kind::TextOrNull),
    ("oci.user_ocid", Kind::TextOrNull),
    ("oci.key_fingerprint", Kind::TextOrNull),
    ("oci.private_key", Kind::SecretOrNull),
    ("oci.key_id", Kind::SecretOrNull),
    ("oci.metadata_endpoint", Kind::TextOrNull),
    ("oci.federation_endpoint", Kind::TextOrNull),
];

/// In each block of [`REMOTE`].
#[rustfmt::skip]
pub(super) const TRANSPORT: &[(&str, Kind)] = &[
    ("sse.type", Kind::Word(&["aes256", "kms"])),
    ("sse.key_id", Kind::Text),
    ("op_deadline_ms", MS),
    ("timeout_ms", MS),
    ("upload_timeout_ms", MS),
    ("retries", Kind::Whole { min: 0, max: 100 }),
    ("breaker_failures", Kind::Whole { min: 0, max: 1_000_000 }),
    ("breaker_slow_ms", MS),
    ("breaker_open_ms", MS),
    ("multipart_threshold_bytes", Kind::Whole { min: 5 * MIB, max: MAX_PART_BYTES }),
    ("multipart_part_bytes", Kind::Whole { min: 5 * MIB, max: MAX_PART_BYTES }),
    ("pool_size", over_zero(10_000)),
    ("pool_count", over_zero(100)),
    ("pool_timeout", over_zero(MAX_MS)),
    ("cacertfile", Kind::TextOrNull),
];

/// What the documented system has beside stores, and this release has not.
pub(super) const LATER_KEYS: &[&str] = &[
    "backup.enabled",
    "backup.final_timeout_ms",
    "backup.interval_ms",
    "backup.keep",
    "backup.max_age_ms",
    "backup.require_fresh",
    "backup.secondary",
    "backup.signing_key",
    "backup.timeout_ms",
    "backup.verify_interval_ms",
    "claim_check.auth",
    "claim_check.ip",
    "claim_check.key_layout",
    "claim_check.pack_max_bytes",
    "claim_check.port",
    "claim_check.read_deadline_ms",
    "claim_check.retention_days",
    "claim_check.sweep_interval_ms",
    "storage.catalogue_retention_days",
    "storage.interval_ms",
    "storage.max_segments_per_tick",
    "storage.roll_bytes",
    "storage.roll_ms",
];

/// Every key of every store.
pub(super) fn keys() -> impl Iterator<Item = (String, Kind)> {
    STORES.into_iter().flat_map(|store| {
        let own = |(key, kind): &(&str, Kind)| (format!("{store}.{key}"), *kind);
        let prefix = (store == "storage").then(|| ("storage.key_prefix".to_owned(), Kind::Text));
        let local = KEYS.iter().filter(|(key, _)| !REMOTE.iter().any(|name| key.starts_with(name)));
        let remote = REMOTE.into_iter().flat_map(move |name| {
            let block = KEYS.iter().filter(move |(key, _)| {
                key.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            });
            let shared = TRANSPORT.iter();
            block
                .map(own)
                .chain(shared.map(move |(key, kind)| (format!("{store}.{name}.{key}"), *kind)))
        });
        let local: Vec<_> = local.map(own).collect();
        let remote: Vec<_> = remote.collect();
        prefix.into_iter().chain(local).chain(remote)
    })
}
