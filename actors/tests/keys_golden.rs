//! Keys, fixed-width values and counter operands against bytes that never change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Debug;

use ankusa_actors::model::counters;
use ankusa_actors::model::ids::{HookId, Seq, TenantOrd};
use ankusa_actors::model::keys::*;
use serde_json::Value;

const KEYS: &str = include_str!("../../tests/golden/keys.json");
const COUNTERS: &str = include_str!("../../tests/golden/counters.json");

const AT_MS: u64 = 1_688_169_000_086;
const EXPIRES_AT_MS: u64 = AT_MS + 259_200_000;
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const PACK_ID: [u8; 26] = *b"01H47BDB4P04HMASW9NF6YY000";
const TENANT: TenantOrd = TenantOrd(1);
const SEQ: Seq = Seq(42);
const LANE: u128 = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f;

/// The vectors of a file by name; each is taken once, and none may be left.
struct Vectors(BTreeMap<String, &'static [u8]>);

impl Vectors {
    fn read(file: &str) -> Self {
        let file: Value = serde_json::from_str(file).unwrap();
        let vector = |v: &Value| {
            let bytes: &'static [u8] = unhex(v["hex"].as_str().unwrap()).leak();
            (v["name"].as_str().unwrap().to_owned(), bytes)
        };
        Self(file["vectors"].as_array().unwrap().iter().map(vector).collect())
    }

    fn take(&mut self, name: &str) -> &'static [u8] {
        self.0.remove(name).unwrap_or_else(|| panic!("no vector {name}"))
    }

    /// `value` is written as the vector's bytes, and read back from them.
    fn check<T: PartialEq + Debug + Copy, E: AsRef<[u8]>>(
        &mut self,
        name: &str,
        value: T,
        encode: impl Fn(T) -> E,
        decode: impl Fn(&'static [u8]) -> Option<T>,
    ) {
        let golden = self.take(name);
        assert_eq!(encode(value).as_ref(), golden, "{name}");
        assert_eq!(decode(golden), Some(value), "{name}");
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn every_key_and_every_fixed_value_has_its_documented_bytes() {
    let mut vectors = Vectors::read(KEYS);
    let all = &mut vectors;
    let (tenant, seq, sink, at_ms) = (TENANT, SEQ, 0, AT_MS);
    all.check("hook", HookKey(seq), |v| v.encode(), HookKey::decode);
    all.check("delivery", DeliveryKey { seq, sink }, |v| v.encode(), DeliveryKey::decode);
    all.check("due", DueKey { tenant, at_ms, seq, sink }, |v| v.encode(), DueKey::decode);
    all.check("claimed", ClaimedKey { tenant, seq, sink }, |v| v.encode(), ClaimedKey::decode);
    all.check("dead", DeadKey { at_ms, seq, sink }, |v| v.encode(), DeadKey::decode);
    all.check(
        "dead_by_tenant",
        DeadByTenantKey { tenant, at_ms, seq, sink },
        |v| v.encode(),
        DeadByTenantKey::decode,
    );
    all.check("active", ActiveKey::at(at_ms, tenant), |v| v.encode(), ActiveKey::decode);
    all.check("archive", ArchiveKey(seq), |v| v.encode(), ArchiveKey::decode);
    all.check(
        "cleared_delivery",
        ClearedKey::delivery(seq, sink),
        |v| v.encode(),
        ClearedKey::decode,
    );
    all.check("cleared_archive", ClearedKey::archive(seq), |v| v.encode(), ClearedKey::decode);
    all.check("claim_ref", ClaimRefKey(seq), |v| v.encode(), ClaimRefKey::decode);
    all.check("segment", SegmentKey(seq), |v| v.encode(), SegmentKey::decode);
    all.check(
        "legacy_location",
        LegacyLocationKey(ID.as_bytes()),
        |v| v.encode(),
        LegacyLocationKey::decode,
    );
    all.check("tenant", TenantKey(tenant), |v| v.encode(), TenantKey::decode);
    all.check("tenant_name", TenantNameKey("acme"), |v| v.encode(), TenantNameKey::decode);

    let lease = LeaseKey { tenant: "acme", pack_id: PACK_ID, seq };
    all.check("lease", lease, |v| v.encode(), LeaseKey::decode);
    let dedupe = DedupeKey::new("acme", "github", b"d1").unwrap();
    all.check("dedupe", dedupe, |v| v.encode(), DedupeKey::decode);
    all.check(
        "expiry",
        ExpiryKey { expires_at_ms: EXPIRES_AT_MS, dedupe },
        |v| v.encode(),
        ExpiryKey::decode,
    );

    let (lane, third) = (LANE, 3);
    all.check(
        "lane_member",
        LaneMemberKey { tenant, lane, seq, sink: third },
        |v| v.encode(),
        LaneMemberKey::decode,
    );
    all.check("lane_head", LaneHeadKey { tenant, lane }, |v| v.encode(), LaneHeadKey::decode);
    all.check(
        "lane_head_value",
        LaneHeadValue { seq, sink: third },
        |v| v.encode(),
        LaneHeadValue::decode,
    );
    all.check("lane_marker", LaneMarkerKey { tenant, lane }, |v| v.encode(), LaneMarkerKey::decode);

    let node = TenantOrd::NODE;
    let pending = CounterKey { tenant: node, field: counters::Field::Pending };
    all.check("counter_node_pending", pending, |v| v.encode(), CounterKey::decode);
    let dead_bytes = CounterKey { tenant, field: counters::Field::DeadBytes };
    all.check("counter_tenant_dead_bytes", dead_bytes, |v| v.encode(), CounterKey::decode);

    let held = |part| QuarantineKey { part, received_at_ms: at_ms, id: ID.as_bytes() };
    all.check(
        "quarantine_summary",
        held(QuarantinePart::Summary),
        |v| v.encode(),
        QuarantineKey::decode,
    );
    all.check("quarantine_body", held(QuarantinePart::Body), |v| v.encode(), QuarantineKey::decode);
    all.check("audit", AuditKey { audit_seq: 7, at_ms }, |v| v.encode(), AuditKey::decode);
    all.check(
        "audit_pending",
        AuditPendingKey { audit_seq: 7 },
        |v| v.encode(),
        AuditPendingKey::decode,
    );
    all.check(
        "source",
        SourceKey { tenant: "acme", name: "github" },
        |v| v.encode(),
        SourceKey::decode,
    );
    let revision = SourceRevisionKey { tenant: "acme", name: "github" };
    all.check("source_revision", revision, |v| v.encode(), SourceRevisionKey::decode);
    all.check("rate_limit", RateLimitKey("acme"), |v| v.encode(), RateLimitKey::decode);
    all.check("replay", ReplayKey(ID), |v| v.encode(), ReplayKey::decode);

    all.check("size_value", SizeValue(1234), |v| v.encode(), SizeValue::decode);
    all.check(
        "due_value",
        DueValue { size: 1234, kind: DueKind::First },
        |v| v.encode(),
        DueValue::decode,
    );
    all.check(
        "due_value_retry",
        DueValue { size: 1234, kind: DueKind::Retry },
        |v| v.encode(),
        DueValue::decode,
    );
    all.check(
        "archive_value",
        ArchiveValue { size: 1234, tenant },
        |v| v.encode(),
        ArchiveValue::decode,
    );
    let original = HookId::parse(ID).unwrap();
    let live = DedupeValue { expires_at_ms: EXPIRES_AT_MS, original };
    all.check("dedupe_value", live, |v| v.encode(), DedupeValue::decode);
    let dead = DeadValue { source_id: "github", hook_id: ID, tenant: Some(tenant) };
    all.check("dead_value", dead, |v| v.encode(), DeadValue::decode);
    let old = DeadValue { tenant: None, ..dead };
    all.check("dead_value_without_ordinal", old, |v| v.encode(), DeadValue::decode);

    assert_eq!(all.take("tenant_name_value"), TenantNameKey::value(tenant));
    for (name, key) in [
        ("next_seq", META_NEXT_SEQ),
        ("next_ord", META_NEXT_ORD),
        ("format_version", META_FORMAT_VERSION),
        ("synced_through", META_SYNCED_THROUGH),
        ("store_id", META_STORE_ID),
        ("imported_wal", &imported_key("wal")),
        ("erase_acme", &erase_progress_key("acme")),
        ("erased_acme", &erased_key("acme")),
    ] {
        assert_eq!(all.take(name), key, "{name}");
    }
    assert_eq!(vectors.0, BTreeMap::new(), "every vector is checked");
}

#[test]
fn counter_operands_and_values_have_their_documented_bytes() {
    let mut vectors = Vectors::read(COUNTERS);
    assert_eq!(counters::operand(1), vectors.take("int_add_+1"));
    assert_eq!(counters::operand(-1), vectors.take("int_add_-1"));
    assert_eq!(counters::operand(5_000_000_000), vectors.take("int_add_+5000000000"));
    assert_eq!(counters::value(3), vectors.take("int_3"));
    assert_eq!(vectors.0, BTreeMap::new(), "every vector is checked");
}
