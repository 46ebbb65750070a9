use std::fmt::Debug;

use proptest::prelude::*;
use proptest::strategy::Union;

use super::*;
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::ids::{HookId, Seq, TenantOrd};

/// Numbers that collide and that carry: small ones, the largest, and any.
fn number(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, 254..258_u64, max - 2..=max, 0..=max]
}

fn seq() -> impl Strategy<Value = Seq> {
    number(u64::MAX).prop_map(Seq)
}

fn tenant() -> impl Strategy<Value = TenantOrd> {
    number(u32::MAX.into()).prop_map(|ord| TenantOrd(u32::try_from(ord).unwrap()))
}

fn sink() -> impl Strategy<Value = u16> {
    number(u16::MAX.into()).prop_map(|sink| u16::try_from(sink).unwrap())
}

fn lane() -> impl Strategy<Value = u128> {
    prop_oneof![0..3_u128, any::<u128>()]
}

fn due() -> impl Strategy<Value = DueKey> {
    (tenant(), number(u64::MAX), seq(), sink()).prop_map(|(tenant, at_ms, seq, sink)| DueKey {
        tenant,
        at_ms,
        seq,
        sink,
    })
}

fn claimed() -> impl Strategy<Value = ClaimedKey> {
    due().prop_map(|DueKey { tenant, seq, sink, .. }| ClaimedKey { tenant, seq, sink })
}

fn dead() -> impl Strategy<Value = DeadKey> {
    due().prop_map(|DueKey { at_ms, seq, sink, .. }| DeadKey { at_ms, seq, sink })
}

fn active() -> impl Strategy<Value = ActiveKey> {
    (number(u64::MAX), tenant()).prop_map(|(second, tenant)| ActiveKey { second, tenant })
}

fn cleared() -> impl Strategy<Value = ClearedKey> {
    let kind = prop_oneof![Just(ClearedKind::Delivery), Just(ClearedKind::Archive)];
    (seq(), kind, sink()).prop_map(|(seq, kind, sink)| ClearedKey { seq, kind, sink })
}

fn lane_member() -> impl Strategy<Value = LaneMemberKey> {
    (claimed(), lane()).prop_map(|(ClaimedKey { tenant, seq, sink }, lane)| LaneMemberKey {
        tenant,
        lane,
        seq,
        sink,
    })
}

fn field() -> impl Strategy<Value = Field> {
    Union::new(Field::ALL.map(Just))
}

/// Order, round trip and width of a key of fixed width, for any two values of it.
fn holds<T: Ord + Copy + Debug, const N: usize>(
    (a, b): (T, T),
    encode: impl Fn(T) -> [u8; N],
    decode: impl Fn(&[u8]) -> Option<T>,
) {
    let (bytes_a, bytes_b) = (encode(a), encode(b));
    assert_eq!(bytes_a.cmp(&bytes_b), a.cmp(&b), "{a:?} and {b:?} sort as their bytes do");
    assert_eq!(decode(&bytes_a), Some(a));
    for len in 0..N {
        assert_eq!(decode(&bytes_a[..len]), None, "{len} bytes of {a:?}");
    }
    assert_eq!(decode(&[bytes_a.as_slice(), &[0]].concat()), None, "{a:?} and a byte more");
}

fn pair<T: Debug + Clone>(of: impl Strategy<Value = T>) -> impl Strategy<Value = (T, T)> {
    prop::collection::vec(of, 2).prop_map(|pair| (pair[0].clone(), pair[1].clone()))
}

proptest! {
    #[test]
    fn keys_of_fixed_width_sort_and_read_back_as_what_they_stand_for(
        dues in pair(due()),
        claims in pair(claimed()),
        deads in pair(dead()),
        actives in pair(active()),
        cleareds in pair(cleared()),
        members in pair(lane_member()),
        fields in pair(field()),
    ) {
        let both = |of: fn(DueKey) -> Seq| (of(dues.0), of(dues.1));
        let seqs = both(|due| due.seq);
        holds((HookKey(seqs.0), HookKey(seqs.1)), HookKey::encode, HookKey::decode);
        holds((dues.0.row(), dues.1.row()), DeliveryKey::encode, DeliveryKey::decode);
        holds(dues, DueKey::encode, DueKey::decode);
        holds(claims, ClaimedKey::encode, ClaimedKey::decode);
        holds(deads, DeadKey::encode, DeadKey::decode);
        let by_tenant = (deads.0.by_tenant(claims.0.tenant), deads.1.by_tenant(claims.1.tenant));
        holds(by_tenant, DeadByTenantKey::encode, DeadByTenantKey::decode);
        holds(actives, ActiveKey::encode, ActiveKey::decode);
        holds((ArchiveKey(seqs.0), ArchiveKey(seqs.1)), ArchiveKey::encode, ArchiveKey::decode);
        holds(cleareds, ClearedKey::encode, ClearedKey::decode);
        holds((ClaimRefKey(seqs.0), ClaimRefKey(seqs.1)), ClaimRefKey::encode, ClaimRefKey::decode);
        holds((SegmentKey(seqs.0), SegmentKey(seqs.1)), SegmentKey::encode, SegmentKey::decode);
        holds(members, LaneMemberKey::encode, LaneMemberKey::decode);
        let head = |m: LaneMemberKey| LaneHeadKey { tenant: m.tenant, lane: m.lane };
        holds((head(members.0), head(members.1)), LaneHeadKey::encode, LaneHeadKey::decode);
        let marker = |m: LaneMemberKey| LaneMarkerKey { tenant: m.tenant, lane: m.lane };
        holds((marker(members.0), marker(members.1)), LaneMarkerKey::encode, LaneMarkerKey::decode);
        let tenants = (TenantKey(claims.0.tenant), TenantKey(claims.1.tenant));
        holds(tenants, TenantKey::encode, TenantKey::decode);
        let counter = |claim: ClaimedKey, field| CounterKey { tenant: claim.tenant, field };
        let counters = (counter(claims.0, fields.0), counter(claims.1, fields.1));
        holds(counters, CounterKey::encode, CounterKey::decode);
        let audit = |due: DueKey| AuditKey { audit_seq: due.seq.0, at_ms: due.at_ms };
        holds((audit(dues.0), audit(dues.1)), AuditKey::encode, AuditKey::decode);
        let pending = |due: DueKey| AuditPendingKey { audit_seq: due.seq.0 };
        holds((pending(dues.0), pending(dues.1)), AuditPendingKey::encode, AuditPendingKey::decode);
    }

    #[test]
    fn values_of_fixed_width_read_back(
        size in any::<u32>(),
        (kind, due, at_ms) in (Union::new(DueKind::ALL.map(Just)), due(), number(u64::MAX)),
    ) {
        let value = DueValue { size, kind };
        holds((value, value), DueValue::encode, DueValue::decode);
        holds((SizeValue(size), SizeValue(size)), SizeValue::encode, SizeValue::decode);
        let owed = ArchiveValue { size, tenant: due.tenant };
        holds((owed, owed), ArchiveValue::encode, ArchiveValue::decode);
        let head = LaneHeadValue { seq: due.seq, sink: due.sink };
        holds((head, head), LaneHeadValue::encode, LaneHeadValue::decode);
        let original = HookId::v7(at_ms, u128::from(due.seq.0));
        let live = DedupeValue { expires_at_ms: at_ms, original };
        prop_assert_eq!(DedupeValue::decode(&live.encode()), Some(live));
        prop_assert_eq!(DedupeValue::decode(&live.encode()[..43]), None);
        prop_assert_eq!(TenantNameKey::read_value(&TenantNameKey::value(due.tenant)), Some(due.tenant));
        prop_assert_eq!(read_u64(&u64_value(at_ms)), Some(at_ms));
    }

    #[test]
    fn what_a_decoder_takes_is_what_the_encoder_writes(
        tag in prop::sample::select(b"DFxXAackOHPulSLtnbsapvr".to_vec()),
        colon in prop::option::of(Just(b':')),
        body in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0x61), any::<u8>()], 0..40),
        cut in 0..40_usize,
    ) {
        let bytes: Vec<_> = std::iter::once(tag).chain(colon).chain(body).collect();
        for bytes in [bytes.as_slice(), &bytes[cut.min(bytes.len())..]] {
            prop_assert!(rewritten(bytes).iter().flatten().all(|again| again == bytes));
            // None of these may panic, whatever they make of it.
            let _ = (is_sentinel(Cf::Index, bytes, &[]), read_tolerant(bytes), read_u64(bytes));
            let _ = (DeadValue::decode(bytes), TenantNameKey::read_value(bytes));
        }
    }

    #[test]
    fn a_dead_value_reads_back(source_id in ".{0,20}", hook_id in ".{0,40}", tenant in prop::option::of(tenant())) {
        let value = DeadValue { source_id: &source_id, hook_id: &hook_id, tenant };
        let bytes = value.encode();
        prop_assert_eq!(DeadValue::decode(&bytes), Some(value));
    }

    #[test]
    fn dedupe_keys_and_their_expiry_read_back(
        tenant in "[^\0]{0,8}",
        source_id in ".{0,8}",
        key in prop::collection::vec(any::<u8>(), 0..12),
        (at_ms, now_ms) in (number(u64::MAX), number(u64::MAX)),
    ) {
        let dedupe = DedupeKey::new(&tenant, &source_id, &key).unwrap();
        let bytes = dedupe.encode();
        prop_assert_eq!(DedupeKey::decode(&bytes), Some(dedupe));
        let expiry = ExpiryKey { expires_at_ms: at_ms, dedupe };
        let bytes = expiry.encode();
        prop_assert_eq!(ExpiryKey::decode(&bytes), Some(expiry));
        prop_assert_eq!(ExpiryKey::expired_by(now_ms).contains(&expiry.encode()), at_ms <= now_ms);
        prop_assert!(ExpiryKey::all().contains(&expiry.encode()));
        prop_assert!(DedupeKey::all().contains(&dedupe.encode()));
    }

    #[test]
    fn keys_of_any_width_sort_and_read_back_as_what_they_stand_for(
        names in pair("[a-b\u{1}\u{fc}]{1,3}"),
        ids in pair(prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 1..4)),
        dues in pair(due()),
        is_body in pair(any::<bool>()),
        pack in pair(prop::array::uniform26(0x30..0x32_u8)),
    ) {
        let text = |name: fn(&str) -> Vec<u8>| (name(&names.0), name(&names.1));
        for (a, b) in [
            text(|name| TenantNameKey(name).encode()),
            text(|name| RateLimitKey(name).encode()),
            text(|name| ReplayKey(name).encode()),
            text(|name| RouteKey(name).encode()),
        ] {
            prop_assert_eq!(a.cmp(&b), names.0.cmp(&names.1));
        }
        assert_eq!(TenantNameKey::decode(&TenantNameKey(&names.0).encode()), Some(TenantNameKey(&names.0)));
        assert_eq!(RateLimitKey::decode(&RateLimitKey(&names.0).encode()), Some(RateLimitKey(&names.0)));
        assert_eq!(ReplayKey::decode(&ReplayKey(&names.0).encode()), Some(ReplayKey(&names.0)));
        assert_eq!(RouteKey::decode(&RouteKey(&names.0).encode()), Some(RouteKey(&names.0)));
        let source = SourceKey { tenant: &names.0, name: &names.1 };
        assert_eq!(SourceKey::decode(&source.encode()), Some(source));
        let revision = SourceRevisionKey { tenant: &names.0, name: &names.1 };
        assert_eq!(SourceRevisionKey::decode(&revision.encode()), Some(revision));

        let (a, b) = (LegacyLocationKey(&ids.0), LegacyLocationKey(&ids.1));
        prop_assert_eq!(a.encode().cmp(&b.encode()), ids.0.cmp(&ids.1));
        assert_eq!(LegacyLocationKey::decode(&a.encode()), Some(a));
        let part = |is_body| if is_body { QuarantinePart::Body } else { QuarantinePart::Summary };
        let a = QuarantineKey { part: part(is_body.0), received_at_ms: dues.0.at_ms, id: &ids.0 };
        let b = QuarantineKey { part: part(is_body.1), received_at_ms: dues.1.at_ms, id: &ids.1 };
        prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
        assert_eq!(QuarantineKey::decode(&a.encode()), Some(a));
        let a = LeaseKey { tenant: &names.0, pack_id: pack.0, seq: dues.0.seq };
        let b = LeaseKey { tenant: &names.1, pack_id: pack.1, seq: dues.1.seq };
        let order = |lease: &LeaseKey<'_>| (lease.tenant.to_owned(), lease.pack_id, lease.seq);
        prop_assert_eq!(a.encode().cmp(&b.encode()), order(&a).cmp(&order(&b)));
        assert_eq!(LeaseKey::decode(&a.encode()), Some(a));
        let dedupe = DedupeKey::new(&names.0, "s", &ids.0).unwrap();
        let a = ExpiryKey { expires_at_ms: dues.0.at_ms, dedupe };
        let b = ExpiryKey { expires_at_ms: dues.1.at_ms, dedupe };
        prop_assert_eq!(a.encode().cmp(&b.encode()), dues.0.at_ms.cmp(&dues.1.at_ms));
    }

    #[test]
    fn a_range_holds_exactly_the_keys_it_names(
        (key, other) in pair(due()),
        (from_ms, until_ms) in pair(number(u64::MAX)),
        member in lane_member(),
        lane in lane(),
        cleared in cleared(),
    ) {
        let within = |range: Range<Vec<u8>>, key: &[u8]| range.contains(&key.to_vec());
        let (tenant, seq) = (other.tenant, other.seq);
        let in_time = (from_ms..=until_ms).contains(&key.at_ms) && key.tenant == tenant;
        prop_assert_eq!(within(DueKey::due_between(tenant, from_ms, until_ms), &key.encode()), in_time);
        let due = key.tenant == tenant && key.at_ms <= until_ms;
        prop_assert_eq!(within(DueKey::due_by(tenant, until_ms), &key.encode()), due);
        prop_assert_eq!(within(DueKey::of_tenant(tenant), &key.encode()), key.tenant == tenant);
        prop_assert_eq!(within(DueKey::of_active(other.active()), &key.encode()), key.active() == other.active());

        let hook = HookKey(key.seq).encode();
        prop_assert_eq!(within(HookKey::after(seq), &hook), key.seq > seq);
        prop_assert_eq!(within(HookKey::between(seq, Seq(until_ms)), &hook), key.seq >= seq && key.seq.0 < until_ms);
        let row = key.row().encode();
        prop_assert_eq!(within(DeliveryKey::of_hook(seq), &row), key.seq == seq);
        prop_assert_eq!(within(DeliveryKey::between(seq, Seq(until_ms)), &row), key.seq >= seq && key.seq.0 < until_ms);
        prop_assert_eq!(within(ArchiveKey::after(seq), &ArchiveKey(key.seq).encode()), key.seq > seq);
        prop_assert_eq!(within(ClearedKey::of_hook(seq), &cleared.encode()), cleared.seq == seq);

        let claim = ClaimedKey { tenant: key.tenant, seq: key.seq, sink: key.sink };
        prop_assert_eq!(within(ClaimedKey::of_tenant(tenant), &claim.encode()), key.tenant == tenant);
        let dead = DeadKey { at_ms: key.at_ms, seq: key.seq, sink: key.sink };
        let died = key.at_ms >= from_ms && key.at_ms <= until_ms;
        prop_assert_eq!(within(DeadKey::died_between(from_ms, until_ms), &dead.encode()), died);
        let dead = dead.by_tenant(key.tenant);
        prop_assert_eq!(within(DeadByTenantKey::of_tenant(tenant), &dead.encode()), key.tenant == tenant);
        let between = DeadByTenantKey::died_between(tenant, from_ms, until_ms);
        prop_assert_eq!(within(between, &dead.encode()), key.tenant == tenant && died);
        let active = key.active();
        prop_assert_eq!(within(ActiveKey::up_to(until_ms), &active.encode()), active.second <= until_ms);
        prop_assert_eq!(within(ActiveKey::after(until_ms), &active.encode()), active.second > until_ms);
        let same_lane = (member.tenant, member.lane) == (tenant, lane);
        prop_assert_eq!(within(LaneMemberKey::of_lane(tenant, lane), &member.encode()), same_lane);
        let counter = CounterKey { tenant: key.tenant, field: Field::Dead };
        prop_assert_eq!(within(CounterKey::of_tenant(tenant), &counter.encode()), key.tenant == tenant);
        let held = QuarantineKey { part: QuarantinePart::Summary, received_at_ms: key.at_ms, id: b"id" };
        let in_time = (from_ms..=until_ms).contains(&key.at_ms);
        prop_assert_eq!(within(QuarantineKey::between(QuarantinePart::Summary, from_ms, until_ms), &held.encode()), in_time);
        prop_assert!(!within(QuarantineKey::between(QuarantinePart::Body, 0, u64::MAX), &held.encode()));

        for (all, key) in [
            (HookKey::all(), hook.to_vec()),
            (DeliveryKey::all(), row.to_vec()),
            (DueKey::all(), key.encode().to_vec()),
            (ClaimedKey::all(), claim.encode().to_vec()),
            (DeadKey::all(), dead.dead().encode().to_vec()),
            (DeadByTenantKey::all(), dead.encode().to_vec()),
            (ActiveKey::all(), active.encode().to_vec()),
            (ArchiveKey::all(), ArchiveKey(key.seq).encode().to_vec()),
            (ClearedKey::all(), cleared.encode().to_vec()),
            (LaneMemberKey::all(), member.encode().to_vec()),
            (CounterKey::all(), counter.encode().to_vec()),
        ] {
            prop_assert!(within(all, &key));
        }
    }

    #[test]
    fn no_real_row_is_taken_for_a_sentinel(key in due(), member in lane_member(), cleared in cleared()) {
        // Of those whose value is empty. Seqs and ordinals start at 1, and neither reaches its end.
        let tenant = TenantOrd(key.tenant.0.clamp(1, u32::MAX - 1));
        let seq = Seq(key.seq.0.clamp(1, u64::MAX - 1));
        let active = ActiveKey { second: key.at_ms, tenant };
        prop_assert!(!is_sentinel(Cf::Index, &active.encode(), &[]));
        let dead = DeadByTenantKey { tenant, at_ms: key.at_ms, seq, sink: key.sink };
        prop_assert!(!is_sentinel(Cf::Index, &dead.encode(), &[]));
        let cleared = ClearedKey { seq, ..cleared };
        prop_assert!(!is_sentinel(Cf::Index, &cleared.encode(), &[]));
        let marker = LaneMarkerKey { tenant, lane: member.lane };
        prop_assert!(!is_sentinel(Cf::Index, &marker.encode(), &[]));
        let expiry = ExpiryKey { expires_at_ms: 0, dedupe: DedupeKey::new("t", "", b"").unwrap() };
        prop_assert!(!is_sentinel(Cf::Index, &expiry.encode(), &[]));
    }
}

/// What each decoder that takes `bytes` would write again.
fn rewritten(bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    vec![
        HookKey::decode(bytes).map(|key| key.encode().to_vec()),
        DeliveryKey::decode(bytes).map(|key| key.encode().to_vec()),
        DueKey::decode(bytes).map(|key| key.encode().to_vec()),
        DueValue::decode(bytes).map(|value| value.encode().to_vec()),
        SizeValue::decode(bytes).map(|value| value.encode().to_vec()),
        ClaimedKey::decode(bytes).map(|key| key.encode().to_vec()),
        ActiveKey::decode(bytes).map(|key| key.encode().to_vec()),
        DeadKey::decode(bytes).map(|key| key.encode().to_vec()),
        DeadByTenantKey::decode(bytes).map(|key| key.encode().to_vec()),
        ArchiveKey::decode(bytes).map(|key| key.encode().to_vec()),
        ArchiveValue::decode(bytes).map(|value| value.encode().to_vec()),
        ClearedKey::decode(bytes).map(|key| key.encode().to_vec()),
        ClaimRefKey::decode(bytes).map(|key| key.encode().to_vec()),
        LeaseKey::decode(bytes).map(|key| key.encode()),
        SegmentKey::decode(bytes).map(|key| key.encode().to_vec()),
        LegacyLocationKey::decode(bytes).map(|key| key.encode()),
        LaneMemberKey::decode(bytes).map(|key| key.encode().to_vec()),
        LaneHeadKey::decode(bytes).map(|key| key.encode().to_vec()),
        LaneHeadValue::decode(bytes).map(|value| value.encode().to_vec()),
        LaneMarkerKey::decode(bytes).map(|key| key.encode().to_vec()),
        DedupeKey::decode(bytes).map(|key| key.encode()),
        DedupeValue::decode(bytes).map(|value| value.encode().to_vec()),
        ExpiryKey::decode(bytes).map(|key| key.encode()),
        TenantKey::decode(bytes).map(|key| key.encode().to_vec()),
        TenantNameKey::decode(bytes).map(|key| key.encode()),
        CounterKey::decode(bytes).map(|key| key.encode().to_vec()),
        QuarantineKey::decode(bytes).map(|key| key.encode()),
        AuditKey::decode(bytes).map(|key| key.encode().to_vec()),
        AuditPendingKey::decode(bytes).map(|key| key.encode().to_vec()),
        SourceKey::decode(bytes).map(|key| key.encode()),
        SourceRevisionKey::decode(bytes).map(|key| key.encode()),
        RateLimitKey::decode(bytes).map(|key| key.encode()),
        ReplayKey::decode(bytes).map(|key| key.encode()),
        RouteKey::decode(bytes).map(|key| key.encode()),
    ]
}

#[test]
fn a_key_with_another_tag_or_code_is_refused() {
    let due = DueKey { tenant: TenantOrd(1), at_ms: 2, seq: Seq(3), sink: 4 };
    let mut wrong = due.encode();
    wrong[0] = DeadByTenantKey::TAG;
    assert_eq!(DueKey::decode(&wrong), None);
    assert_eq!(DueValue::decode(&[0, 0, 0, 1, 4]), None);
    let mut cleared = ClearedKey::archive(Seq(3)).encode();
    cleared[9] = 2;
    assert_eq!(ClearedKey::decode(&cleared), None);
    assert_eq!(CounterKey::decode(&[0, 0, 0, 1, 0]), None);
    assert_eq!(CounterKey::decode(&[0, 0, 0, 1, 13]), None);
}

#[test]
fn every_tag_of_a_family_is_its_own() {
    let index = [
        DueKey::TAG,
        ClaimedKey::TAG,
        DeadKey::TAG,
        DeadByTenantKey::TAG,
        ActiveKey::TAG,
        ArchiveKey::TAG,
        ClearedKey::TAG,
        ClaimRefKey::TAG,
        LeaseKey::TAG,
        LaneMemberKey::TAG,
        LaneHeadKey::TAG,
        LaneMarkerKey::TAG,
        DedupeKey::TAG,
        ExpiryKey::TAG,
    ];
    assert_eq!(&index, b"DFxXAacklOHPue");
    assert_eq!([SegmentKey::TAG, LegacyLocationKey::TAG], *b"SL");
    assert_eq!([TenantKey::TAG, TenantNameKey::TAG], *b"tn");
    assert_eq!([QuarantinePart::Summary.tag(), QuarantinePart::Body.tag()], *b"sb");
    assert_eq!([AuditKey::TAG, AuditPendingKey::TAG], *b"ap");
}

#[test]
fn a_row_is_due_again_by_its_attempts() {
    assert_eq!(DueKind::after_attempts(0), DueKind::First);
    assert_eq!(DueKind::after_attempts(1), DueKind::Retry);
    assert_eq!(DueKind::ALL.map(DueKind::code), [0, 1, 2, 3]);
}

#[test]
fn an_active_marker_stands_for_exactly_its_second() {
    let active = ActiveKey { second: 7, tenant: TenantOrd(1) };
    let range = DueKey::of_active(active);
    for (at_ms, stands) in [(6_999, false), (7_000, true), (7_999, true), (8_000, false)] {
        let due = DueKey { tenant: TenantOrd(1), at_ms, seq: Seq(1), sink: 0 };
        assert_eq!(range.contains(&due.encode().to_vec()), stands, "{at_ms}");
        assert_eq!(due.active() == active, stands, "{at_ms}");
    }
}

#[test]
fn a_tenant_with_a_nul_never_dedupes() {
    assert_eq!(DedupeKey::new("a\0b", "github", b"d1"), None);
    let long = "s".repeat(65_536);
    assert_eq!(DedupeKey::new("acme", &long, b"d1"), None);
    assert!(DedupeKey::new("acme", &long[1..], b"d1").is_some());
    let key = DedupeKey::new("acme", "github", b"d1").unwrap();
    assert_eq!((key.tenant(), key.source_id(), key.key()), ("acme", "github", b"d1".as_slice()));
}

#[test]
fn the_pack_of_a_lease_is_one_range() {
    let lease = |tenant, last, seq| {
        let mut pack_id = *b"01H47BDB4P04HMASW9NF6YY000";
        pack_id[25] = last;
        LeaseKey { tenant, pack_id, seq: Seq(seq) }
    };
    let pack = LeaseKey::of_pack("acme", &lease("acme", b'0', 0).pack_id);
    let held = [0, 1, u64::MAX].map(|seq| pack.contains(&lease("acme", b'0', seq).encode()));
    assert_eq!(held, [true; 3]);
    let others = [lease("acme", b'1', 1), lease("acmf", b'0', 1), lease("acm", b'0', 1)];
    assert_eq!(others.map(|lease| pack.contains(&lease.encode())), [false; 3]);
    assert!(LeaseKey::all().contains(&others[0].encode()));
}

#[test]
fn the_sentinels_of_a_store_that_came_from_elsewhere_are_known() {
    let high = |prefix: &[u8], width: usize| [prefix, &vec![0xff; width]].concat();
    let mut documented = vec![
        (Cf::Hooks, vec![0; 8]),
        (Cf::Hooks, high(b"", 8)),
        (Cf::Deliveries, vec![0; 10]),
        (Cf::Deliveries, high(b"", 10)),
    ];
    for (cf, prefix, width) in [
        (Cf::Index, b"d".as_slice(), 18),
        (Cf::Index, b"f", 10),
        (Cf::Index, b"x", 18),
        (Cf::Index, b"a", 8),
        (Cf::Index, b"c", 11),
        (Cf::Index, b"e", 9),
        (Cf::Archive, b"S", 8),
        (Cf::Quarantine, b"s", 8),
        (Cf::Default, b"s:", 1),
        (Cf::Default, b"r:", 1),
        (Cf::Default, b"j:", 1),
        // By the same rule, for the families that came later.
        (Cf::Index, b"D", 22),
        (Cf::Index, b"F", 14),
        (Cf::Index, b"X", 22),
        (Cf::Index, b"A", 12),
        (Cf::Index, b"O", 30),
        (Cf::Index, b"H", 20),
        (Cf::Index, b"P", 20),
        (Cf::Index, b"l", 9),
        (Cf::Index, b"o", 8),
        (Cf::Audit, b"a", 16),
        (Cf::Audit, b"p", 8),
        (Cf::Tenants, b"t", 4),
        (Cf::Tenants, b"n", 1),
        (Cf::Counters, b"", 5),
    ] {
        documented.push((cf, prefix.to_vec()));
        documented.push((cf, high(prefix, width)));
    }
    for (cf, key) in documented {
        assert!(is_sentinel(cf, &key, &[]), "{cf:?} {key:?}");
        assert!(!is_sentinel(cf, &key, &[0]), "{cf:?} {key:?} with a value");
    }
    assert!(is_sentinel(Cf::Index, &[b'A', 0, 0, 0, 0, 0, 0, 0, 1], &[]), "too short");
    assert!(!is_sentinel(Cf::Default, b"s:acme\0github", &[]));
    assert!(!is_sentinel(Cf::Tenants, b"nacme", &[]));
}

#[test]
fn a_number_of_undocumented_width_is_read_in_any_of_its_forms() {
    for bytes in [
        b"\x08".as_slice(),
        b"\x00\x08",
        b"\x00\x00\x00\x08",
        b"\x00\x00\x00\x00\x00\x00\x00\x08",
        b"8",
        b"08",
        b"\x83\x61\x08",
        b"\x83\x62\x00\x00\x00\x08",
    ] {
        assert_eq!(read_tolerant(bytes), Some(8), "{bytes:?}");
    }
    assert_eq!(read_tolerant(&u64_value(70_000_000_000)), Some(70_000_000_000));
    assert_eq!(read_tolerant(&u32_value(u32::MAX)), Some(u64::from(u32::MAX)));
    assert_eq!(read_tolerant(&counters::value(70_000_000_000)), Some(70_000_000_000));
    for bytes in [b"".as_slice(), b"\x00\x00\x08", b"-8", b"\x83\x61\x08\x00\x00", b"eight"] {
        assert_eq!(read_tolerant(bytes), None, "{bytes:?}");
    }
}
