//! A sound store has no violation, and each violation is found in a store damaged by hand.

use bytes::Bytes;

use super::*;
use crate::model::counters;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::ids::HookId;
use crate::model::keys::*;
use crate::model::map_store::MapStore;
use crate::model::ops::{NewHook, Ops, stored_size};
use crate::model::quarantine::Summary;
use crate::model::value_version::ValueVersion;

const ACME: TenantOrd = TenantOrd(1);
const OTHER: TenantOrd = TenantOrd(2);
const NOW_MS: u64 = 7_500;
const LANE: u128 = 9;

fn envelope(tenant: &str) -> Bytes {
    let envelope = Envelope {
        id: HookId::v7(NOW_MS, 0),
        source_id: "github".to_owned(),
        tenant_id: Some(tenant.to_owned()),
        received_at_ms: NOW_MS,
        method: "POST".to_owned(),
        path: "/in/github".to_owned(),
        headers: Vec::new(),
        content_type: None,
        body: Bytes::from_static(b"{}"),
        dedupe_key: None,
        verification: None,
    };
    Bytes::from(envelope.encode(ValueVersion::V0))
}

fn size() -> u32 {
    stored_size(&envelope("acme"))
}

fn row() -> DeliveryRow {
    DeliveryRow::pending("Elixir.Ankusa.Sink.Http", "github", size(), NOW_MS)
}

fn due(seq: u64, sink: u16) -> DueKey {
    DueKey { tenant: ACME, at_ms: NOW_MS, seq: Seq(seq), sink }
}

fn row_key(seq: u64, sink: u16) -> DeliveryKey {
    DeliveryKey { seq: Seq(seq), sink }
}

fn claimed(seq: u64, sink: u16) -> ClaimedKey {
    ClaimedKey { tenant: ACME, seq: Seq(seq), sink }
}

const DEAD: DeadKey = DeadKey { at_ms: 8_000, seq: Seq(2), sink: 0 };

/// Hook 1 is due to sink 0, claimed for sink 1 and owed to the archive; hook 2 is dead; hook 3 is delivered and not yet
/// reclaimed.
fn sound() -> MapStore {
    let mut ops = Ops::default();
    ops.stamp_format();
    ops.new_tenant(ACME, "acme", OTHER);
    ops.new_tenant(OTHER, "other", TenantOrd(3));
    let bytes = row().encode(ValueVersion::V0);
    for (seq, sinks, archive) in [(1, 2, true), (2, 1, false), (3, 1, false)] {
        let rows: Vec<_> = (0..sinks).map(|sink| (sink, bytes.as_slice())).collect();
        let (value, at_ms) = (envelope("acme"), NOW_MS);
        ops.commit_hook(NewHook {
            seq: Seq(seq),
            tenant: ACME,
            at_ms,
            value,
            rows: &rows,
            archive,
        });
    }
    let value = DueValue { size: size(), kind: DueKind::First };
    ops.claim(&due(1, 1), value);
    let dying = ops.claim(&due(2, 0), value);
    let dead = DeliveryRow { state: RowState::Dead, at_ms: DEAD.at_ms, ..row() };
    ops.dead(&dying, &dead.encode(ValueVersion::V0), DEAD.at_ms, "github", "id");
    let done = ops.claim(&due(3, 0), value);
    ops.delivered(&done);
    ops.set_next_seq(Seq(4));
    ops.batch_mut().put(Cf::Index, &ClaimRefKey(Seq(1)).encode(), b"a term");
    let mut store = MapStore::default();
    store.apply(&ops.finish());
    store
}

/// A dedupe key that expires at one moment, and its entry at another.
fn put_key(store: &mut MapStore, tenant: &str, expires_at_ms: u64, entry_ms: u64) {
    let dedupe = DedupeKey::new(tenant, "github", b"d1").unwrap();
    let value = DedupeValue { expires_at_ms, original: HookId::v7(NOW_MS, 0) };
    store.put(Cf::Index, &dedupe.encode(), &value.encode());
    store.put(Cf::Index, &ExpiryKey { expires_at_ms: entry_ms, dedupe }.encode(), b"");
}

/// What is wrong with the sound store after `damage`, the counters aside.
fn after(damage: impl FnOnce(&mut MapStore)) -> Vec<Violation> {
    let mut store = sound();
    damage(&mut store);
    let mut found = store.violations();
    found.retain(|violation| !matches!(violation, Violation::Counter { .. }));
    found
}

#[test]
fn a_sound_store_and_an_empty_one_have_no_violations() {
    assert_eq!(sound().violations(), []);
    assert_eq!(MapStore::default().violations(), []);
}

#[test]
fn a_held_hook_has_both_rows_and_says_its_size() {
    let summary = |id: &str| Summary {
        id: id.to_owned(),
        source_id: "github".to_owned(),
        tenant_id: None,
        received_at_ms: 7,
        reason: "no_match",
    };
    let held =
        |id: &'static str, what| Violation::Held { received_at_ms: 7, id: id.to_owned(), what };
    let found = after(|store| {
        let mut put = |id: &str, part: QuarantinePart, value: &[u8]| {
            store.put(Cf::Quarantine, &summary(id).key().of(part), value);
        };
        put("a", QuarantinePart::Summary, &summary("a").encode(3).0);
        put("a", QuarantinePart::Body, b"abc");
        put("b", QuarantinePart::Summary, &summary("b").encode(3).0);
        put("c", QuarantinePart::Body, b"abc");
        put("d", QuarantinePart::Summary, &summary("d").encode(4).0);
        put("d", QuarantinePart::Body, b"abc");
        put("e", QuarantinePart::Summary, b"rot");
    });
    let key = summary("e").key().of(QuarantinePart::Summary);
    let unreadable = Violation::Unreadable { cf: Cf::Quarantine, key };
    assert_eq!(
        found,
        [
            unreadable,
            held("b", "has no envelope"),
            held("d", "has another size"),
            held("c", "has no summary")
        ]
    );
}

#[test]
fn sentinels_and_families_without_invariants_are_passed_over() {
    let found = after(|store| {
        store.put(Cf::Index, b"D", b"");
        store.put(Cf::Index, &[b'D'; 1].into_iter().chain([0xff; 22]).collect::<Vec<_>>(), b"");
        store.put(Cf::Hooks, &[0xff; 8], b"");
        store.put(Cf::Archive, &SegmentKey(Seq(1)).encode(), b"anything");
        store.put(Cf::Audit, b"anything", b"anything");
        store.put(Cf::Default, b"anything", b"anything");
        store.put(Cf::Index, b"oanything", b"anything");
        // A counter of a newer release.
        store.put(Cf::Counters, &[0, 0, 0, 1, 200], b"anything");
    });
    assert_eq!(found, []);
}

#[test]
fn what_cannot_be_read_is_told() {
    let wrong: [(Cf, &[u8], &[u8]); 9] = [
        (Cf::Default, META_NEXT_SEQ, b"9"),
        (Cf::Default, META_NEXT_ORD, b"three"),
        (Cf::Hooks, b"short", b"value"),
        (Cf::Deliveries, b"short", b"value"),
        (Cf::Index, b"Dshort", b"value"),
        (Cf::Index, b"?", b"value"),
        (Cf::Tenants, b"t\x00\x00\x00\x09", b"\xff"),
        (Cf::Tenants, b"nname", b"short"),
        (Cf::Counters, b"short key", b"1"),
    ];
    for (cf, key, value) in wrong {
        let unreadable = Violation::Unreadable { cf, key: key.to_vec() };
        let found = after(|store| store.put(cf, key, value));
        assert_eq!(found.first(), Some(&unreadable), "{cf:?}");
    }
    let found = after(|store| store.put(Cf::Counters, &[0, 0, 0, 1, 5], b"junk"));
    assert_eq!(found, [Violation::Unreadable { cf: Cf::Counters, key: vec![0, 0, 0, 1, 5] }]);
}

#[test]
fn a_row_that_cannot_be_read_still_has_its_place() {
    let key = row_key(1, 0).encode();
    let mut expected = vec![Violation::Unreadable { cf: Cf::Deliveries, key: key.to_vec() }];
    // Its bytes are counted as the index has them, so no counter is off either.
    let mut store = sound();
    store.put(Cf::Deliveries, &key, b"junk");
    assert_eq!(store.violations(), expected);
    store.delete(Cf::Index, &due(1, 0).encode());
    let (row, state, waiting, dead, by_tenant) = (row_key(1, 0), None, 0, 0, 0);
    expected.push(Violation::Misplaced { row, state, waiting, dead, by_tenant });
    assert_eq!(store.violations()[..2], expected);
}

#[test]
fn a_counter_that_is_not_its_recount_is_told_for_the_tenant_and_the_node() {
    let mut store = sound();
    let key = |tenant, field| CounterKey { tenant, field }.encode();
    store.put(Cf::Counters, &key(ACME, Field::Inflight), &counters::value(7));
    store.delete(Cf::Counters, &key(TenantOrd::NODE, Field::Dead));
    store.put(Cf::Counters, &key(TenantOrd(9), Field::Lanes), &counters::value(1));
    let counter =
        |tenant, field, stored, recounted| Violation::Counter { tenant, field, stored, recounted };
    assert_eq!(
        store.violations(),
        [
            counter(TenantOrd::NODE, Field::Dead, 0, 1),
            counter(ACME, Field::Inflight, 7, 1),
            counter(TenantOrd(9), Field::Lanes, 1, 0),
        ]
    );
}

#[test]
fn every_counter_is_recounted_from_its_rows() {
    let mut store = sound();
    put_key(&mut store, "other", 100, 100);
    let lease = LeaseKey { tenant: "other", pack_id: [b'0'; 26], seq: Seq(1) };
    store.put(Cf::Index, &lease.encode(), &u64_value(0));
    let (tenant, lane, seq, sink) = (ACME, LANE, Seq(1), 0);
    let blocked = DueValue { size: size(), kind: DueKind::LaneHeadRetry };
    store.put(Cf::Index, &due(1, 0).encode(), &blocked.encode());
    store.put(
        Cf::Index,
        &LaneHeadKey { tenant, lane }.encode(),
        &LaneHeadValue { seq, sink }.encode(),
    );
    store.put(Cf::Deliveries, &row_key(1, 2).encode(), &row().encode(ValueVersion::V0));
    let member = LaneMemberKey { tenant, lane, seq, sink: 2 };
    store.put(Cf::Index, &member.encode(), &SizeValue(size()).encode());

    let size = i64::from(size());
    let acme = [0, 1, 1, 1, 4 * size, 1, 0, size, 0, 1, 1, 1];
    let other = [0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
    let node = [0, 1, 1, 1, 4 * size, 1, 1, size, 1, 1, 1, 1];
    let counts = [(TenantOrd::NODE, node), (ACME, acme), (OTHER, other)];
    let recounted = recount(&store.dump());
    assert_eq!(recounted.counts, BTreeMap::from(counts));
    assert!(recounted.nameless.is_empty());
}

#[test]
fn a_hook_is_there_exactly_while_something_is_owed() {
    let cleared = ClearedKey::delivery(Seq(3), 0);
    let found = after(|store| store.delete(Cf::Index, &cleared.encode()));
    assert_eq!(found, [Violation::HookWithoutObligation(Seq(3))]);

    let found = after(|store| store.delete(Cf::Hooks, &HookKey(Seq(3)).encode()));
    assert_eq!(found, [Violation::ClearedWithoutHook(cleared)]);

    let found = after(|store| store.delete(Cf::Hooks, &HookKey(Seq(1)).encode()));
    assert_eq!(
        found,
        [
            Violation::RowWithoutHook(row_key(1, 0)),
            Violation::RowWithoutHook(row_key(1, 1)),
            Violation::ArchiveWithoutHook(Seq(1)),
            Violation::ClaimRefWithoutHook(Seq(1)),
        ]
    );
}

#[test]
fn a_key_of_the_index_has_its_row() {
    let found = after(|store| {
        for row in [row_key(1, 0), row_key(1, 1), row_key(2, 0)] {
            store.delete(Cf::Deliveries, &row.encode());
        }
        let member = LaneMemberKey { tenant: ACME, lane: LANE, seq: Seq(1), sink: 5 };
        store.put(Cf::Index, &member.encode(), &SizeValue(size()).encode());
        let marker = LaneMarkerKey { tenant: ACME, lane: LANE };
        store.put(Cf::Index, &marker.encode(), b"");
        // Still owed to the archive, and marked.
        store.put(Cf::Index, &ClearedKey::delivery(Seq(2), 0).encode(), b"");
    });
    assert_eq!(
        found,
        [
            Violation::DueWithoutRow(due(1, 0)),
            Violation::ClaimedWithoutRow(claimed(1, 1)),
            Violation::MemberWithoutRow(LaneMemberKey {
                tenant: ACME,
                lane: LANE,
                seq: Seq(1),
                sink: 5
            }),
            Violation::DeadWithoutRow(DEAD),
            Violation::DeadByTenantWithoutRow(DEAD.by_tenant(ACME)),
        ]
    );
}

#[test]
fn a_pending_row_waits_in_exactly_one_place() {
    let misplaced = |row, waiting, dead, by_tenant| {
        let state = Some(RowState::Pending);
        [Violation::Misplaced { row, state, waiting, dead, by_tenant }]
    };
    let size = SizeValue(size()).encode();
    let found = after(|store| store.delete(Cf::Index, &claimed(1, 1).encode()));
    assert_eq!(found, misplaced(row_key(1, 1), 0, 0, 0));
    let found = after(|store| store.put(Cf::Index, &claimed(1, 0).encode(), &size));
    assert_eq!(found, misplaced(row_key(1, 0), 2, 0, 0));
    // Twice due is two places as well.
    let again = DueKey { at_ms: NOW_MS + 1, ..due(1, 0) };
    let value = DueValue { size: stored_size(&envelope("acme")), kind: DueKind::Retry };
    let found = after(|store| store.put(Cf::Index, &again.encode(), &value.encode()));
    assert_eq!(found, misplaced(row_key(1, 0), 2, 0, 0));
    let found = after(|store| {
        let key = DeadKey { seq: Seq(1), ..DEAD };
        let value = DeadValue { source_id: "github", hook_id: "id", tenant: Some(ACME) };
        store.put(Cf::Index, &key.encode(), &value.encode());
    });
    assert_eq!(found, misplaced(row_key(1, 0), 1, 1, 0));
    // A row waiting in a lane is in place.
    let found = after(|store| {
        store.delete(Cf::Index, &claimed(1, 1).encode());
        let member = LaneMemberKey { tenant: ACME, lane: LANE, seq: Seq(1), sink: 1 };
        store.put(Cf::Index, &member.encode(), &size);
        store.put(Cf::Index, &LaneMarkerKey { tenant: ACME, lane: LANE }.encode(), b"");
    });
    assert_eq!(found, []);
}

#[test]
fn a_dead_row_has_one_dead_key_of_each_kind() {
    let misplaced = |waiting, dead, by_tenant| {
        let (row, state) = (row_key(2, 0), Some(RowState::Dead));
        [Violation::Misplaced { row, state, waiting, dead, by_tenant }]
    };
    let found = after(|store| store.delete(Cf::Index, &DEAD.encode()));
    assert_eq!(found, misplaced(0, 0, 1));
    let found = after(|store| store.delete(Cf::Index, &DEAD.by_tenant(ACME).encode()));
    assert_eq!(found, misplaced(0, 1, 0));
    let size = SizeValue(size()).encode();
    let found = after(|store| store.put(Cf::Index, &claimed(2, 0).encode(), &size));
    assert_eq!(found, misplaced(1, 1, 1));
}

#[test]
fn the_two_dead_keys_and_the_row_agree() {
    let differ = [Violation::DeadKeysDiffer(row_key(2, 0))];
    let value = |tenant| DeadValue { source_id: "github", hook_id: "id", tenant }.encode();
    let found = after(|store| store.put(Cf::Index, &DEAD.encode(), &value(Some(OTHER))));
    assert_eq!(found, differ);
    // The first formats named no ordinal.
    let found = after(|store| store.put(Cf::Index, &DEAD.encode(), &value(None)));
    assert_eq!(found, []);
    let found = after(|store| {
        store.delete(Cf::Index, &DEAD.by_tenant(ACME).encode());
        store.put(Cf::Index, &DeadKey { at_ms: 1, ..DEAD }.by_tenant(ACME).encode(), b"");
    });
    assert_eq!(found, differ);
    let found = after(|store| {
        let dead = DeliveryRow { state: RowState::Dead, at_ms: 1, ..row() };
        store.put(Cf::Deliveries, &row_key(2, 0).encode(), &dead.encode(ValueVersion::V0));
    });
    assert_eq!(found, differ);
}

#[test]
fn every_size_is_that_of_the_stored_hook() {
    let stored = size();
    let wrong = |of| [Violation::Size { seq: Seq(1), of, says: 1, stored }];
    let found = after(|store| {
        let row = DeliveryRow { size: 1, ..row() };
        store.put(Cf::Deliveries, &row_key(1, 0).encode(), &row.encode(ValueVersion::V0));
    });
    assert_eq!(found, wrong(SizeOf::Row(0)));
    let found = after(|store| {
        let value = DueValue { size: 1, kind: DueKind::First };
        store.put(Cf::Index, &due(1, 0).encode(), &value.encode());
    });
    assert_eq!(found, wrong(SizeOf::Waiting(0)));
    let found =
        after(|store| store.put(Cf::Index, &claimed(1, 1).encode(), &SizeValue(1).encode()));
    assert_eq!(found, wrong(SizeOf::Waiting(1)));
    let found = after(|store| {
        let value = ArchiveValue { size: 1, tenant: ACME };
        store.put(Cf::Index, &ArchiveKey(Seq(1)).encode(), &value.encode());
    });
    assert_eq!(found, wrong(SizeOf::Archive));
}

#[test]
fn a_due_row_has_its_active_marker() {
    let found = after(|store| store.delete(Cf::Index, &ActiveKey::at(NOW_MS, ACME).encode()));
    assert_eq!(found, [Violation::DueWithoutMarker(due(1, 0))]);
}

#[test]
fn a_lane_is_busy_exactly_while_it_has_a_head() {
    let (tenant, lane) = (ACME, LANE);
    let head = LaneHeadKey { tenant, lane };
    let names = |seq, sink| {
        move |store: &mut MapStore| {
            store.put(Cf::Index, &head.encode(), &LaneHeadValue { seq: Seq(seq), sink }.encode());
        }
    };
    let is_due_as = |store: &mut MapStore, kind| {
        let value = DueValue { size: size(), kind };
        store.put(Cf::Index, &due(1, 0).encode(), &value.encode());
    };
    for kind in [DueKind::LaneHeadFirst, DueKind::LaneHeadRetry] {
        let found = after(|store| {
            is_due_as(store, kind);
            names(1, 0)(store);
        });
        assert_eq!(found, []);
        assert_eq!(after(|store| is_due_as(store, kind)), [Violation::LaneHeadKind(due(1, 0))]);
    }
    assert_eq!(after(names(1, 0)), [Violation::LaneHeadKind(due(1, 0))]);
    assert_eq!(after(names(1, 1)), []);
    assert_eq!(after(names(2, 0)), [Violation::LaneHeadIdle(head)]);
    let found = after(|store| {
        store.delete(Cf::Index, &claimed(1, 1).encode());
        let member = LaneMemberKey { tenant, lane, seq: Seq(1), sink: 1 };
        store.put(Cf::Index, &member.encode(), &SizeValue(size()).encode());
    });
    assert_eq!(found, [Violation::LaneStalled(LaneMarkerKey { tenant, lane })]);
}

#[test]
fn ordinals_are_dense_and_lead_back_and_forth() {
    let other = TenantKey(OTHER).encode();
    let found = after(|store| store.delete(Cf::Tenants, &other));
    assert_eq!(
        found,
        [
            Violation::NameNotBack { id: "other".to_owned(), tenant: OTHER, back: None },
            Violation::NextOrd { stored: Some(3), last: ACME },
        ]
    );
    let found = after(|store| store.delete(Cf::Tenants, &TenantNameKey("other").encode()));
    let not_back = |back| Violation::TenantNotBack { tenant: OTHER, id: "other".to_owned(), back };
    assert_eq!(found, [not_back(None)]);
    let found = after(|store| {
        store.put(Cf::Tenants, &TenantNameKey("other").encode(), &TenantNameKey::value(ACME));
    });
    let back = Some("acme".to_owned());
    let name = Violation::NameNotBack { id: "other".to_owned(), tenant: ACME, back };
    assert_eq!(found, [not_back(Some(ACME)), name]);
    let found = after(|store| {
        store.delete(Cf::Tenants, &other);
        store.put(Cf::Tenants, &TenantKey(TenantOrd(4)).encode(), b"other");
        store.put(
            Cf::Tenants,
            &TenantNameKey("other").encode(),
            &TenantNameKey::value(TenantOrd(4)),
        );
        store.put(Cf::Default, META_NEXT_ORD, &u32_value(5));
    });
    assert_eq!(found, [2, 3].map(|ord| Violation::OrdinalMissing(TenantOrd(ord))));
}

#[test]
fn the_markers_are_past_everything_that_was_given_out() {
    for stored in [Some(2), Some(4), None] {
        let found = after(|store| match stored {
            Some(next) => store.put(Cf::Default, META_NEXT_ORD, &u32_value(next)),
            None => store.delete(Cf::Default, META_NEXT_ORD),
        });
        let stored = stored.map(u64::from);
        assert_eq!(found, [Violation::NextOrd { stored, last: OTHER }]);
    }
    for stored in [Some(3), None] {
        let found = after(|store| match stored {
            Some(next) => store.put(Cf::Default, META_NEXT_SEQ, &u64_value(next)),
            None => store.delete(Cf::Default, META_NEXT_SEQ),
        });
        let stored = stored.map(Seq);
        assert_eq!(found, [Violation::NextSeq { stored, last: Seq(3) }]);
    }
}

#[test]
fn a_dedupe_key_and_its_expiry_are_there_together_and_say_the_same() {
    let key = DedupeKey::new("acme", "github", b"d1").unwrap().encode();
    let untagged = key[1..].to_vec();
    let (without_expiry, without_key) = (
        Violation::KeyWithoutExpiry { key: untagged.clone(), expires_at_ms: 100 },
        Violation::ExpiryWithoutKey { key: untagged.clone(), expires_at_ms: 101 },
    );
    assert_eq!(after(|store| put_key(store, "acme", 100, 100)), []);
    assert_eq!(
        after(|store| put_key(store, "acme", 100, 101)),
        [without_expiry.clone(), without_key]
    );
    let found = after(|store| {
        put_key(store, "acme", 100, 100);
        store.delete(Cf::Index, &key);
    });
    assert_eq!(found, [Violation::ExpiryWithoutKey { key: untagged.clone(), expires_at_ms: 100 }]);
    let found = after(|store| {
        put_key(store, "acme", 100, 100);
        store.put(Cf::Index, &key, &[0; 44]);
    });
    let unreadable = Violation::Unreadable { cf: Cf::Index, key: key.clone() };
    assert_eq!(found[..1], [unreadable], "and it still counts");
}

#[test]
fn rows_are_filed_under_the_tenant_of_their_hook() {
    let found = after(|store| {
        store.put(Cf::Hooks, &HookKey(Seq(2)).encode(), &envelope("othr"));
        let value = ArchiveValue { size: size(), tenant: OTHER };
        store.put(Cf::Index, &ArchiveKey(Seq(1)).encode(), &value.encode());
        store.delete(Cf::Index, &claimed(1, 1).encode());
        let key = ClaimedKey { tenant: OTHER, ..claimed(1, 1) };
        store.put(Cf::Index, &key.encode(), &SizeValue(size()).encode());
    });
    let foreign = |seq, named: &str, filed| Violation::ForeignTenant {
        seq: Seq(seq),
        named: named.to_owned(),
        filed,
    };
    assert_eq!(
        found,
        [foreign(1, "acme", OTHER), foreign(1, "acme", OTHER), foreign(2, "othr", ACME),]
    );
}

#[test]
fn rows_belong_to_a_known_tenant() {
    let found = after(|store| {
        for tenant in [TenantOrd::NODE, TenantOrd(9)] {
            let value = ArchiveValue { size: size(), tenant };
            let seq = Seq(if tenant == TenantOrd::NODE { 1 } else { 3 });
            store.put(Cf::Index, &ArchiveKey(seq).encode(), &value.encode());
        }
        put_key(store, "nobody", 100, 100);
    });
    assert_eq!(
        found,
        [
            Violation::UnknownTenant(TenantOrd::NODE),
            Violation::UnknownTenant(TenantOrd(9)),
            Violation::UnknownTenantName("nobody".to_owned()),
        ]
    );
}

#[test]
fn a_violation_says_what_is_wrong() {
    let size = Violation::Size { seq: Seq(7), of: SizeOf::Waiting(2), says: 1, stored: 9 };
    assert_eq!(size.to_string(), "hook 7 has 9 bytes, and the index of its row 2 says 1");
    let unreadable = Violation::Unreadable { cf: Cf::Index, key: vec![0x44, 1] };
    assert_eq!(unreadable.to_string(), "index holds a row that cannot be read, under [44, 01]");
}
