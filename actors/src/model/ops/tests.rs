//! Each builder against the whole of what it writes.

use bytes::Bytes;

use super::*;
use crate::model::delivery::{DeliveryRow, PendingRow};
use crate::model::keys::*;
use crate::model::map_store::{MapStore, lines};
use crate::model::value_version::ValueVersion;

const TENANT: TenantOrd = TenantOrd(1);
const CLAIMED: Claimed = Claimed { tenant: TENANT, seq: Seq(42), sink: 3, size: 5 };

fn hook<'a>(seq: u64, rows: &'a [(u16, &'a str)], archive: bool) -> NewHook<'a, &'a str> {
    let value = Bytes::from_static(b"value");
    NewHook { seq: Seq(seq), tenant: TENANT, at_ms: 7_500, value, rows, archive }
}

/// What the batch of one builder holds.
fn written<T>(build: impl FnOnce(&mut Ops) -> T) -> Vec<String> {
    let mut ops = Ops::default();
    build(&mut ops);
    lines(&ops.finish())
}

#[test]
fn a_hook_is_written_with_all_it_owes() {
    let written = written(|ops| ops.commit_hook(hook(42, &[(0, "r0"), (1, "r1")], true)));
    assert_eq!(
        written,
        [
            "put hook 42 = value",
            "put row 42/0 = r0",
            "put D t1 @7500 42/0 = 5 First",
            "put A 7 t1 = ",
            "put row 42/1 = r1",
            "put D t1 @7500 42/1 = 5 First",
            "put a 42 = 5 t1",
            "add node pending +2",
            "add node bytes +10",
            "add node archive_pending +1",
            "add t1 pending +2",
            "add t1 bytes +10",
            "add t1 archive_pending +1",
        ]
    );
}

#[test]
fn a_hook_that_owes_nothing_is_not_written() {
    assert_eq!(written(|ops| ops.commit_hook(hook(42, &[], false))), Vec::<String>::new());
}

#[test]
fn a_hook_without_sinks_is_kept_for_the_archive() {
    assert_eq!(
        written(|ops| ops.commit_hook(hook(42, &[], true))),
        [
            "put hook 42 = value",
            "put a 42 = 5 t1",
            "add node archive_pending +1",
            "add t1 archive_pending +1",
        ]
    );
}

#[test]
fn a_row_encoded_ahead_is_stamped_as_it_is_written() {
    let rows = [(0, PendingRow::new("Elixir.Ankusa.Sink.Http", "github", 5, ValueVersion::V0))];
    let mut ops = Ops::default();
    let value = Bytes::from_static(b"value");
    let (seq, tenant, archive) = (Seq(42), TENANT, false);
    ops.commit_hook(NewHook { seq, tenant, at_ms: 7_500, value, rows: &rows, archive });
    let mut store = MapStore::default();
    store.apply(&ops.finish());
    let row = DeliveryRow::pending("Elixir.Ankusa.Sink.Http", "github", 5, 7_500);
    let stored = store.get(Cf::Deliveries, &DeliveryKey { seq, sink: 0 }.encode());
    assert_eq!(stored.map(DeliveryRow::decode), Some(Ok(row)));
}

#[test]
fn a_group_moves_each_counter_once_and_marks_each_second_once() {
    let written = written(|ops| {
        ops.commit_hook(hook(42, &[(0, "r")], false));
        ops.commit_hook(NewHook { tenant: TenantOrd(2), ..hook(43, &[(0, "r")], false) });
        ops.commit_hook(NewHook { at_ms: 7_999, ..hook(44, &[(0, "r")], false) });
        ops.commit_hook(NewHook { at_ms: 8_000, ..hook(45, &[(0, "r")], false) });
    });
    let of = |what: &str| -> Vec<_> {
        written.iter().filter(|line| line.starts_with(what)).cloned().collect()
    };
    assert_eq!(of("put A"), ["put A 7 t1 = ", "put A 7 t2 = ", "put A 8 t1 = "]);
    assert_eq!(
        of("add"),
        [
            "add node pending +4",
            "add node bytes +20",
            "add t1 pending +3",
            "add t1 bytes +15",
            "add t2 pending +1",
            "add t2 bytes +5",
        ]
    );
}

#[test]
fn a_counter_that_ends_where_it_began_is_not_written() {
    let written = written(|ops| {
        let claimed = ops.claim(&CLAIMED.due(7_500), DueValue { size: 5, kind: DueKind::First });
        ops.park(&claimed, b"row", 9_000, DueKind::First);
    });
    assert_eq!(written.iter().filter(|line| line.starts_with("add")).count(), 0);
    assert_eq!(written.len(), 6);
}

#[test]
fn a_fence_takes_back_what_the_commit_wrote() {
    let row = |sink| FencedRow { sink, at_ms: 7_500, lane: None };
    let rows = [row(0), row(1)];
    let fenced = FencedHook { seq: Seq(42), tenant: TENANT, size: 5, rows: &rows, archive: true };
    assert_eq!(
        written(|ops| ops.fence_hook(&fenced)),
        [
            "delete hook 42",
            "delete row 42/0",
            "delete D t1 @7500 42/0",
            "delete row 42/1",
            "delete D t1 @7500 42/1",
            "delete a 42",
            "add node pending -2",
            "add node bytes -10",
            "add node archive_pending -1",
            "add t1 pending -2",
            "add t1 bytes -10",
            "add t1 archive_pending -1",
        ]
    );
    let nothing = FencedHook { rows: &[], archive: false, ..fenced };
    assert_eq!(written(|ops| ops.fence_hook(&nothing)), Vec::<String>::new());
}

#[test]
fn a_new_tenant_is_found_both_ways() {
    assert_eq!(
        written(|ops| ops.new_tenant(TenantOrd(3), "acme", TenantOrd(4))),
        ["put t 3 = acme", "put n acme = 3", "put m:next_ord = 4",]
    );
}

#[test]
fn the_markers_of_the_writer_are_plain_facts() {
    let written = written(|ops| {
        ops.set_next_seq(Seq(43));
        ops.set_synced_through(Seq(41));
        ops.stamp_format();
    });
    assert_eq!(
        written,
        ["put m:next_seq = 43", "put m:synced_through = 41", "put m:format_version = 8"]
    );
}

#[test]
fn a_claim_moves_the_row_from_due_to_claimed() {
    for (kind, from) in [
        (DueKind::First, ["pending"].as_slice()),
        (DueKind::Retry, &["scheduled"]),
        (DueKind::LaneHeadFirst, &["pending"]),
        (DueKind::LaneHeadRetry, &["scheduled", "lanes_blocked"]),
    ] {
        let mut ops = Ops::default();
        let claimed = ops.claim(&CLAIMED.due(7_500), DueValue { size: 5, kind });
        assert_eq!(claimed, CLAIMED);
        let mut expected = vec!["delete D t1 @7500 42/3".to_owned(), "put F t1 42/3 = 5".into()];
        for whose in ["node", "t1"] {
            let (first, rest) = from.split_first().unwrap();
            expected.push(format!("add {whose} {first} -1"));
            expected.push(format!("add {whose} inflight +1"));
            expected.extend(rest.iter().map(|field| format!("add {whose} {field} -1")));
        }
        assert_eq!(lines(&ops.finish()), expected, "{kind:?}");
    }
}

#[test]
fn a_delivered_row_is_gone_and_its_hook_is_to_be_looked_at() {
    let mut ops = Ops::default();
    assert_eq!(ops.delivered(&CLAIMED), ClearedKey::delivery(Seq(42), 3));
    let delivered = lines(&ops.finish());
    assert_eq!(
        delivered,
        [
            "delete F t1 42/3",
            "delete row 42/3",
            "put c 42 Delivery 3 = ",
            "add node inflight -1",
            "add node bytes -5",
            "add t1 inflight -1",
            "add t1 bytes -5",
        ]
    );
    // A row whose hook is missing goes the same way.
    assert_eq!(written(|ops| ops.drop_row(&CLAIMED)), delivered);
}

#[test]
fn a_retry_waits_under_a_new_due_key_and_marker() {
    let retried = [
        "put row 42/3 = row",
        "delete F t1 42/3",
        "put D t1 @9000 42/3 = 5 Retry",
        "put A 9 t1 = ",
        "add node scheduled +1",
        "add node inflight -1",
        "add t1 scheduled +1",
        "add t1 inflight -1",
    ];
    assert_eq!(written(|ops| ops.retry(&CLAIMED, b"row", 9_000)), retried);
}

#[test]
fn a_parked_row_waits_as_what_it_was() {
    assert_eq!(
        written(|ops| ops.park(&CLAIMED, b"row", 9_000, DueKind::First)),
        [
            "put row 42/3 = row",
            "delete F t1 42/3",
            "put D t1 @9000 42/3 = 5 First",
            "put A 9 t1 = ",
            "add node pending +1",
            "add node inflight -1",
            "add t1 pending +1",
            "add t1 inflight -1",
        ]
    );
}

#[test]
fn a_recovered_claim_is_due_again_and_its_row_is_left_alone() {
    assert_eq!(
        written(|ops| ops.recover(&CLAIMED, 9_000, DueKind::LaneHeadRetry)),
        [
            "delete F t1 42/3",
            "put D t1 @9000 42/3 = 5 LaneHeadRetry",
            "put A 9 t1 = ",
            "add node scheduled +1",
            "add node inflight -1",
            "add node lanes_blocked +1",
            "add t1 scheduled +1",
            "add t1 inflight -1",
            "add t1 lanes_blocked +1",
        ]
    );
}

#[test]
fn a_dead_row_is_listed_in_time_and_by_tenant() {
    assert_eq!(
        written(|ops| ops.dead(&CLAIMED, b"row", 9_000, "github", "id")),
        [
            "delete F t1 42/3",
            "put row 42/3 = row",
            "put x @9000 42/3 = github id t1",
            "put X t1 @9000 42/3 = ",
            "add node inflight -1",
            "add node dead +1",
            "add node dead_bytes +5",
            "add t1 inflight -1",
            "add t1 dead +1",
            "add t1 dead_bytes +5",
        ]
    );
}

#[test]
fn index_keys_without_a_row_go_alone() {
    assert_eq!(
        written(|ops| ops.drop_claim(&CLAIMED)),
        ["delete F t1 42/3", "add node inflight -1", "add t1 inflight -1",]
    );
    let value = DueValue { size: 5, kind: DueKind::Retry };
    assert_eq!(
        written(|ops| ops.drop_due(&CLAIMED.due(7_500), value)),
        ["delete D t1 @7500 42/3", "add node scheduled -1", "add t1 scheduled -1",]
    );
}

#[test]
fn a_purged_row_leaves_its_place_and_its_hook_is_to_be_looked_at() {
    let value = DueValue { size: 5, kind: DueKind::Retry };
    let marker = ClearedKey::delivery(Seq(42), 3);
    let mut ops = Ops::default();
    assert_eq!(ops.purge_due(&CLAIMED.due(7_500), value), marker);
    assert_eq!(
        lines(&ops.finish()),
        [
            "delete D t1 @7500 42/3",
            "delete row 42/3",
            "put c 42 Delivery 3 = ",
            "add node scheduled -1",
            "add node bytes -5",
            "add t1 scheduled -1",
            "add t1 bytes -5",
        ]
    );
    let mut ops = Ops::default();
    assert_eq!(ops.purge_claimed(&CLAIMED), marker);
    assert_eq!(lines(&ops.finish()), written(|ops| ops.delivered(&CLAIMED)));
    let dead = DeadKey { at_ms: 9_000, seq: Seq(42), sink: 3 };
    let mut ops = Ops::default();
    assert_eq!(ops.purge_dead(&dead, TENANT, 5), marker);
    assert_eq!(
        lines(&ops.finish()),
        [
            "delete x @9000 42/3",
            "delete X t1 @9000 42/3",
            "delete row 42/3",
            "put c 42 Delivery 3 = ",
            "add node dead -1",
            "add node bytes -5",
            "add node dead_bytes -5",
            "add t1 dead -1",
            "add t1 bytes -5",
            "add t1 dead_bytes -5",
        ]
    );
    assert_eq!(
        written(|ops| ops.drop_dead(&dead, TENANT)),
        ["delete x @9000 42/3", "delete X t1 @9000 42/3", "add node dead -1", "add t1 dead -1"]
    );
}

#[test]
fn an_archived_hook_is_to_be_looked_at_and_one_that_cannot_be_read_is_not() {
    let mut ops = Ops::default();
    assert_eq!(ops.clear_archive(Seq(42), TENANT), ClearedKey::archive(Seq(42)));
    assert_eq!(
        lines(&ops.finish()),
        [
            "delete a 42",
            "put c 42 Archive 0 = ",
            "add node archive_pending -1",
            "add t1 archive_pending -1",
        ]
    );
    assert_eq!(
        written(|ops| ops.drop_archive(Seq(42), TENANT)),
        ["delete a 42", "add node archive_pending -1", "add t1 archive_pending -1",]
    );
}

#[test]
fn a_reclaimed_hook_takes_its_markers_and_its_reference_along() {
    let cleared = [ClearedKey::delivery(Seq(42), 0), ClearedKey::archive(Seq(42))];
    assert_eq!(
        written(|ops| ops.reclaim(Seq(42), cleared, true)),
        ["delete hook 42", "delete k 42", "delete c 42 Delivery 0", "delete c 42 Archive 0",]
    );
    assert_eq!(
        written(|ops| ops.reclaim(Seq(42), cleared, false)),
        ["delete hook 42", "delete c 42 Delivery 0", "delete c 42 Archive 0",]
    );
    assert_eq!(written(|ops| ops.unmark_cleared(cleared[0])), ["delete c 42 Delivery 0"]);
}

#[test]
fn a_marker_removed_in_a_batch_is_put_again_when_a_row_needs_it() {
    let active = ActiveKey { second: 9, tenant: TENANT };
    let written = written(|ops| {
        ops.recover(&CLAIMED, 9_000, DueKind::First);
        ops.unmark_active(active);
        ops.mark_active(active);
        ops.mark_active(active);
    });
    let markers: Vec<_> = written.iter().filter(|line| line.contains(" A ")).collect();
    assert_eq!(markers, ["put A 9 t1 = ", "delete A 9 t1", "put A 9 t1 = "]);
}

#[test]
fn what_no_counter_counts_lands_in_the_same_batch() {
    let mut ops = Ops::with_capacity(4, 64);
    assert!(ops.is_empty());
    ops.batch_mut().delete(Cf::Default, b"j:job");
    assert!(!ops.is_empty());
    assert_eq!(ops.bytes(), 5);
    assert_eq!(lines(&ops.finish()), ["delete j:job"]);
}

#[test]
fn a_size_past_32_bits_would_saturate_and_none_is_near() {
    assert_eq!(stored_size(b""), 0);
    assert_eq!(stored_size(b"value"), 5);
}

const LANE: LaneKey = LaneKey { tenant: TENANT, lane: 9 };
const MEMBER: Member =
    Member { key: LaneMemberKey { tenant: TENANT, lane: 9, seq: Seq(42), sink: 3 }, size: 5 };

fn in_lane(lane: u128) -> PendingRow {
    PendingRow::in_lane(Some(lane), "Elixir.Ankusa.Sink.Http", "github", 5, ValueVersion::V0)
}

#[test]
fn a_row_of_an_ordered_sink_waits_in_its_lane_and_a_group_marks_each_lane_once() {
    let outside = PendingRow::new("Elixir.Ankusa.Sink.Http", "github", 5, ValueVersion::V0);
    let (tenant, archive, at_ms) = (TENANT, false, 7_500);
    let rows = [(0, outside), (1, in_lane(9)), (2, in_lane(9))];
    let written = written(|ops| {
        for seq in [42, 43] {
            let value = Bytes::from_static(b"value");
            ops.commit_hook(NewHook { seq: Seq(seq), tenant, at_ms, value, rows: &rows, archive });
        }
    });
    let index =
        written.into_iter().filter(|line| !line.contains("hook ") && !line.contains("row "));
    assert_eq!(
        index.collect::<Vec<_>>(),
        [
            "put D t1 @7500 42/0 = 5 First",
            "put A 7 t1 = ",
            "put O t1 9 42/1 = 5",
            "put P t1 9 = ",
            "put O t1 9 42/2 = 5",
            "put D t1 @7500 43/0 = 5 First",
            "put O t1 9 43/1 = 5",
            "put O t1 9 43/2 = 5",
            "add node pending +2",
            "add node bytes +30",
            "add node lane_members +4",
            "add t1 pending +2",
            "add t1 bytes +30",
            "add t1 lane_members +4",
        ]
    );
}

#[test]
fn a_row_in_a_lane_says_so_and_is_stamped_like_any_other() {
    let mut row = DeliveryRow::pending("Elixir.Ankusa.Sink.Http", "github", 5, 7_500);
    row.lane = Some(9);
    assert_eq!(DeliveryRow::decode(&in_lane(9).bytes(7_500)), Ok(row.clone()));
    assert_eq!(in_lane(9).bytes(7_500), row.encode(ValueVersion::V0));
}

#[test]
fn a_fence_takes_a_member_back_and_leaves_its_marker() {
    let rows = [FencedRow { sink: 3, at_ms: 7_500, lane: Some(9) }];
    let fenced = FencedHook { seq: Seq(42), tenant: TENANT, size: 5, rows: &rows, archive: false };
    assert_eq!(
        written(|ops| ops.fence_hook(&fenced)),
        [
            "delete hook 42",
            "delete row 42/3",
            "delete O t1 9 42/3",
            "add node bytes -5",
            "add node lane_members -1",
            "add t1 bytes -5",
            "add t1 lane_members -1",
        ]
    );
}

#[test]
fn the_first_member_of_an_idle_lane_becomes_its_head_and_is_due() {
    assert_eq!(
        written(|ops| ops.promote(MEMBER, LaneWas::Idle, 9_000)),
        [
            "delete O t1 9 42/3",
            "put H t1 9 = 42/3",
            "delete P t1 9",
            "put D t1 @9000 42/3 = 5 LaneHeadFirst",
            "put A 9 t1 = ",
            "add node pending +1",
            "add node lanes +1",
            "add node lane_members -1",
            "add t1 pending +1",
            "add t1 lanes +1",
            "add t1 lane_members -1",
        ]
    );
}

#[test]
fn a_head_that_ends_hands_its_lane_to_the_next_in_the_same_batch() {
    let ending = Claimed { seq: Seq(41), ..CLAIMED };
    let mut ops = Ops::default();
    ops.delivered(&ending);
    assert_eq!(ops.promote_claimed(MEMBER, LaneWas::Busy), CLAIMED);
    assert_eq!(
        lines(&ops.finish()),
        [
            "delete F t1 41/3",
            "delete row 41/3",
            "put c 41 Delivery 3 = ",
            "delete O t1 9 42/3",
            "put H t1 9 = 42/3",
            "delete P t1 9",
            "put F t1 42/3 = 5",
            "add node bytes -5",
            "add node lane_members -1",
            "add t1 bytes -5",
            "add t1 lane_members -1",
        ]
    );
}

#[test]
fn a_lane_without_a_next_is_idle_and_its_marker_is_left_alone() {
    assert_eq!(
        written(|ops| ops.end_lane(LANE)),
        ["delete H t1 9", "add node lanes -1", "add t1 lanes -1"]
    );
    assert_eq!(
        written(|ops| {
            ops.mark_lane(LANE);
            ops.mark_lane(LANE);
            ops.unmark_lane(LANE);
            ops.mark_lane(LANE);
        }),
        ["put P t1 9 = ", "delete P t1 9", "put P t1 9 = "]
    );
}

#[test]
fn a_member_can_end_without_having_been_a_head() {
    let mut ops = Ops::default();
    assert_eq!(ops.drop_member(MEMBER), ClearedKey::delivery(Seq(42), 3));
    assert_eq!(
        lines(&ops.finish()),
        [
            "delete O t1 9 42/3",
            "delete row 42/3",
            "put c 42 Delivery 3 = ",
            "add node bytes -5",
            "add node lane_members -1",
            "add t1 bytes -5",
            "add t1 lane_members -1",
        ]
    );
    assert_eq!(
        written(|ops| ops.dead_member(MEMBER, b"row", 9_000, "github", "id")),
        [
            "delete O t1 9 42/3",
            "put row 42/3 = row",
            "put x @9000 42/3 = github id t1",
            "put X t1 @9000 42/3 = ",
            "add node dead +1",
            "add node dead_bytes +5",
            "add node lane_members -1",
            "add t1 dead +1",
            "add t1 dead_bytes +5",
            "add t1 lane_members -1",
        ]
    );
    assert_eq!(
        written(|ops| ops.drop_member_key(MEMBER)),
        ["delete O t1 9 42/3", "add node lane_members -1", "add t1 lane_members -1"]
    );
}
