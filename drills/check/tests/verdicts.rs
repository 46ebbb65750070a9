//! The judge on a small store in order, and on the same store with one thing broken at a time.
#![allow(clippy::unwrap_used)]

mod scene;

use ankusa_drills_check::{
    Delivery, Family, Invariant, Moment, Outcome, Request, SeqHistory, only_stalled_lanes,
};
use scene::{Scene, at, body, counter, digest, envelope, held, id, key, row, stored_bytes};

#[test]
fn a_store_in_order_is_in_order() {
    assert_eq!(Scene::in_order().verdict(), Vec::<String>::new());
}

// I1

#[test]
fn an_acked_hook_that_is_nowhere_is_lost() {
    let mut scene = Scene::in_order();
    scene.deliveries.retain(|delivery| delivery.id != id(1));
    let lost = format!(
        "I1: hook {} of acme, body {}, was acked and was neither delivered nor is it stored with a delivery owed",
        id(1),
        digest(1)
    );
    assert_eq!(scene.verdict(), [lost]);
}

#[test]
fn a_delivery_the_sink_refused_is_no_delivery() {
    let mut scene = Scene::in_order();
    scene.deliveries[0].accepted = false;
    assert_eq!(scene.verdict_on(Invariant::AckedIsKept).len(), 1);
}

#[test]
fn an_acked_hook_kept_for_the_archive_alone_was_still_to_be_delivered() {
    let mut scene = Scene::in_order();
    scene.deliveries.retain(|delivery| delivery.id != id(6));
    assert_eq!(scene.verdict_on(Invariant::AckedIsKept).len(), 1);
}

#[test]
fn after_the_drain_being_stored_is_not_enough() {
    let mut scene = Scene::in_order();
    scene.moment = Moment::Drained;
    let lost: Vec<String> = [2, 3, 4, 5]
        .map(|seq| {
            format!(
                "hook {} of {}, body {}, was acked and was never delivered",
                id(seq),
                if seq < 4 { "acme" } else { "default" },
                digest(seq)
            )
        })
        .into();
    assert_eq!(scene.verdict_on(Invariant::AckedIsKept), lost);
}

// I2

#[test]
fn a_refused_hook_that_is_stored_or_delivered_is_a_ghost() {
    let mut scene = Scene::in_order();
    scene.deliveries.push(Delivery { id: id(8), body: digest(8), attempt: 1, accepted: false });
    assert_eq!(
        scene.verdict(),
        [format!("I2: body {} was refused, and it is delivered as hook {}", digest(8), id(8))]
    );

    let mut scene = Scene::in_order();
    scene.requests[6].outcome = Outcome::Refused;
    assert_eq!(
        scene.verdict(),
        [format!("I2: body {} was refused, and it is stored as hook {}", digest(7), id(7))]
    );
}

#[test]
fn what_was_held_is_in_the_pen_and_nowhere_else() {
    assert_eq!(Scene::holding().verdict(), Vec::<String>::new());

    let mut scene = Scene::holding();
    scene.rows.retain(|(family, _), _| *family != Family::Quarantine);
    let missing =
        format!("I1: body {} of acme was said to be held, and is not in the pen", digest(10));
    assert_eq!(scene.verdict(), [missing]);

    let mut scene = Scene::holding();
    scene.deliveries.push(Delivery { id: id(10), body: digest(10), attempt: 1, accepted: true });
    let taken =
        format!("I2: body {} did not verify, and it is delivered as hook {}", digest(10), id(10));
    assert_eq!(scene.verdict(), [taken]);
}

#[test]
fn what_was_refused_or_never_sent_is_not_in_the_pen() {
    let mut scene = Scene::in_order();
    scene.hold(8);
    let ghost = format!("I2: body {} was refused, and it is held as hook {}", digest(8), id(8));
    assert_eq!(scene.verdict(), [ghost]);

    let mut scene = Scene::in_order();
    scene.hold(11);
    let nobodys =
        format!("I14: hook {} is held with the body {}, which no client sent", id(11), digest(11));
    assert_eq!(scene.verdict(), [nobodys]);
}

#[test]
fn a_held_hook_is_two_rows() {
    for part in [b'b', b's'] {
        let mut scene = Scene::holding();
        scene.rows.remove(&(Family::Quarantine, held(part, 10)));
        assert_eq!(scene.verdict_on(Invariant::RowsFitTogether).len(), 1, "{part}");
    }
    let mut scene = Scene::holding();
    let moved = scene.rows.remove(&(Family::Quarantine, held(b's', 10))).unwrap();
    scene.rows.insert((Family::Quarantine, held(b's', 11)), moved);
    assert_eq!(scene.verdict_on(Invariant::RowsFitTogether).len(), 2);
}

// I3

#[test]
fn a_request_without_an_answer_may_have_been_lost() {
    let mut scene = Scene::in_order();
    scene.requests.push(Request {
        source: "acme".into(),
        body: digest(9),
        outcome: Outcome::Unknown,
    });
    assert_eq!(scene.verdict(), Vec::<String>::new());
}

#[test]
fn a_request_without_an_answer_never_became_two_hooks() {
    let mut scene = Scene::in_order();
    scene.deliveries.push(Delivery { id: id(70), body: digest(7), attempt: 1, accepted: true });
    let twice = format!(
        "I3: body {} was sent once without an answer and became the hooks {:?}",
        digest(7),
        [id(7), id(70)]
    );
    assert_eq!(scene.verdict(), [twice]);
}

// I4

#[test]
fn each_counter_is_recounted_for_its_tenant_and_for_the_node() {
    for (field, name) in [
        (1, "pending"),
        (2, "scheduled"),
        (3, "inflight"),
        (4, "dead"),
        (5, "bytes"),
        (6, "archive_pending"),
    ] {
        let mut scene = Scene::in_order();
        scene.set_counter(0, field, -1);
        scene.set_counter(3, field, 7);
        let verdict = scene.verdict();
        assert!(
            verdict[0]
                .starts_with(&format!("I4: {name} of tenant ordinal 3 is 7, and a recount says 0")),
            "{verdict:?}"
        );
        assert!(
            verdict[1].starts_with(&format!("I4: {name} of the node is -1, and a recount says ")),
            "{verdict:?}"
        );
        assert_eq!(verdict.len(), 2);
    }
}

#[test]
fn a_counter_that_is_missing_counts_nothing() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Counters, &[0, 0, 0, 1, 1]);
    assert_eq!(scene.verdict(), ["I4: pending of tenant acme is 0, and a recount says 1"]);
}

// I5

#[test]
fn every_stored_seq_is_below_the_next_one() {
    let mut scene = Scene::in_order();
    scene.put(Family::Default, b"m:next_seq", &7_u64.to_be_bytes());
    assert_eq!(scene.verdict(), ["I5: seq 7 is stored and the next seq is 7"]);
    scene.remove(Family::Default, b"m:next_seq");
    assert_eq!(scene.verdict(), ["I5: seq 7 is stored and the next seq is 1"]);
}

#[test]
fn a_hook_has_one_seq() {
    let mut scene = Scene::in_order();
    scene.put(Family::Hooks, &8_u64.to_be_bytes(), &envelope(7, "default", &body(7)));
    assert_eq!(
        scene.verdict_on(Invariant::SeqsAreNeverReused),
        [format!("hook {} is stored under the seqs 7 and 8", id(7))]
    );
}

/// What a judge learnt from the scene in order, whose seqs are durable through 8.
fn learnt() -> SeqHistory {
    let mut history = SeqHistory::default();
    history.learn(&Scene::in_order().dump());
    history
}

#[test]
fn a_seq_that_was_durable_is_never_another_hook() {
    let mut scene = Scene::in_order();
    scene.history = learnt();
    assert_eq!(scene.verdict(), Vec::<String>::new());

    scene.put(Family::Hooks, &7_u64.to_be_bytes(), &envelope(70, "default", &body(7)));
    assert_eq!(scene.verdict(), [format!("I5: seq 7 is hook {} and was hook {}", id(70), id(7))]);
}

#[test]
fn a_seq_that_was_never_durable_may_become_another_hook_after_a_crash() {
    let mut scene = Scene::in_order();
    let mut dump = scene.dump();
    dump.synced_through = 6;
    scene.history.learn(&dump);
    scene.put(Family::Hooks, &7_u64.to_be_bytes(), &envelope(70, "default", &body(7)));
    assert_eq!(scene.verdict(), Vec::<String>::new());
}

#[test]
fn the_next_seq_never_goes_back_behind_what_was_durable() {
    let mut scene = Scene::in_order();
    scene.history = learnt();
    scene.put(Family::Default, b"m:next_seq", &8_u64.to_be_bytes());
    assert_eq!(
        scene.verdict(),
        ["I5: the next seq is 8, and every seq below 9 was durable before"]
    );
}

// I7

#[test]
fn a_hook_nobody_owes_anything_for_is_gone() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Index, &key(b'a', &[&6_u64.to_be_bytes()]));
    scene.set_counter(1, 6, 0);
    scene.set_counter(0, 6, 0);
    // Its cleared marker says that it is about to be reclaimed, which a crash can come between.
    assert_eq!(scene.verdict(), Vec::<String>::new());
    scene.moment = Moment::Drained;
    assert!(
        scene
            .verdict_on(Invariant::RowsFitTogether)
            .contains(&"hook 6 has no obligation left and is still stored".to_owned())
    );
    scene.moment = Moment::Crash;
    scene.remove(Family::Index, &key(b'c', &[&6_u64.to_be_bytes(), &[0, 0, 0]]));
    assert_eq!(scene.verdict(), ["I7: hook 6 has no obligation left and is still stored"]);
}

#[test]
fn a_delivery_without_its_hook_is_an_orphan() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Hooks, &7_u64.to_be_bytes());
    assert_eq!(scene.verdict(), ["I7: delivery 7/0 has no hook"]);
}

#[test]
fn a_pending_row_has_exactly_one_place() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Index, &Scene::claimed_key(4, "default"));
    scene.set_counter(2, 3, 0);
    scene.set_counter(0, 3, 0);
    assert_eq!(scene.verdict(), ["I7: delivery 4/0 is Pending and has the index keys []"]);

    let mut scene = Scene::in_order();
    let size = u32::try_from(stored_bytes(2, "acme")).unwrap().to_be_bytes();
    scene.put(Family::Index, &Scene::claimed_key(2, "acme"), &size);
    scene.set_counter(1, 3, 1);
    scene.set_counter(0, 3, 2);
    assert_eq!(
        scene.verdict(),
        ["I7: delivery 2/0 is Pending and has the index keys [DueFirst, Claimed]"]
    );
}

#[test]
fn a_dead_row_has_both_its_keys() {
    let mut scene = Scene::in_order();
    let [by_time, _] = Scene::dead_keys(5, "default");
    scene.remove(Family::Index, &by_time);
    assert_eq!(scene.verdict(), ["I7: delivery 5/0 is Dead and has the index keys [DeadByTenant]"]);
}

#[test]
fn an_index_key_without_its_row_is_an_orphan() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Deliveries, &Scene::delivery_key(4));
    let verdict = scene.verdict_on(Invariant::RowsFitTogether);
    assert_eq!(
        verdict,
        [
            "hook 4 has no obligation left and is still stored",
            "the Claimed key of delivery 4/0 has no row"
        ]
    );
}

#[test]
fn a_due_key_has_its_active_marker() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Index, &Scene::active_key(3, "acme"));
    let second = at(3) / 1000;
    assert_eq!(
        scene.verdict(),
        [format!(
            "I7: the DueRetry key of delivery 3/0 has no active marker for second {second} of tenant ordinal 1"
        )]
    );
}

fn lane_key(tag: u8, rest: &[u8]) -> Vec<u8> {
    key(tag, &[&1_u32.to_be_bytes(), &9_u128.to_be_bytes(), rest])
}

/// The scene with hook 2 in a lane behind hook 3, which is to be tried again.
fn with_a_lane() -> Scene {
    let mut scene = Scene::in_order();
    let size = |seq| u32::try_from(stored_bytes(seq, "acme")).unwrap().to_be_bytes();
    scene.remove(Family::Index, &Scene::due_key(2, "acme"));
    let member = lane_key(b'O', &Scene::delivery_key(2));
    scene.put(Family::Index, &member, &size(2));
    let due = [size(3).as_slice(), &[3]].concat();
    scene.put(Family::Index, &Scene::due_key(3, "acme"), &due);
    scene.put(Family::Index, &lane_key(b'H', &[]), &Scene::delivery_key(3));
    for (ord, field, value) in [
        (1, 1, 0),
        (0, 1, 1),
        (1, 10, 1),
        (0, 10, 1),
        (1, 11, 1),
        (0, 11, 1),
        (1, 12, 1),
        (0, 12, 1),
    ] {
        scene.set_counter(ord, field, value);
    }
    scene
}

#[test]
fn a_lane_is_busy_exactly_while_it_has_a_head() {
    assert_eq!(with_a_lane().verdict(), Vec::<String>::new());

    let mut scene = with_a_lane();
    scene.remove(Family::Index, &lane_key(b'H', &[]));
    let lane = format!("{:032x}", 9);
    let headless = "delivery 3/0 is due as the head of a lane, and no lane has it";
    let stalled = format!(
        "lane {lane} of tenant ordinal 1 has deliveries waiting, and neither a head nor a marker"
    );
    let verdict = scene.verdict_on(Invariant::RowsFitTogether);
    assert_eq!(verdict, [headless.to_owned(), stalled.clone()]);
    assert!(!only_stalled_lanes(&scene.violations(), &scene.dump()), "a head without a lane too");
    // The one ahead of it has left the lane.
    let mut alone = with_a_lane();
    alone.remove(Family::Index, &lane_key(b'H', &[]));
    let size = u32::try_from(stored_bytes(3, "acme")).unwrap().to_be_bytes();
    alone.put(Family::Index, &Scene::due_key(3, "acme"), &[size.as_slice(), &[1]].concat());
    assert_eq!(alone.verdict_on(Invariant::RowsFitTogether), [stalled]);
    let violations: Vec<_> = alone.violations();
    let of_the_lane: Vec<_> = violations
        .iter()
        .filter(|found| found.invariant == Invariant::RowsFitTogether)
        .cloned()
        .collect();
    assert!(only_stalled_lanes(&of_the_lane, &alone.dump()));
    assert!(!only_stalled_lanes(&[], &with_a_lane().dump()), "no lane is stalled");
    scene.put(Family::Index, &lane_key(b'P', &[]), b"");
    assert_eq!(scene.verdict_on(Invariant::RowsFitTogether), [headless]);

    let mut scene = with_a_lane();
    scene.put(Family::Index, &lane_key(b'H', &[]), &Scene::delivery_key(2));
    let idle = format!(
        "lane {lane} of tenant ordinal 1 has the head 2/0, which is neither due as one nor claimed"
    );
    let verdict = scene.verdict_on(Invariant::RowsFitTogether);
    assert_eq!(verdict, [headless.to_owned(), idle]);
}

#[test]
fn lanes_and_who_waits_in_them_are_counted() {
    for (field, name) in [(10, "lanes"), (11, "lanes_blocked"), (12, "lane_members")] {
        let mut scene = with_a_lane();
        scene.set_counter(1, field, 7);
        let wrong = format!("I4: {name} of tenant acme is 7, and a recount says 1");
        assert_eq!(scene.verdict(), [wrong]);
    }
}

#[test]
fn keys_and_rows_agree_on_time_and_size() {
    let mut scene = Scene::in_order();
    scene.put(
        Family::Deliveries,
        &Scene::delivery_key(2),
        &row("pending", at(2) + 1, stored_bytes(2, "acme")),
    );
    assert_eq!(
        scene.verdict(),
        [format!(
            "I7: the DueFirst key of delivery 2/0 says {}, and the row says {}",
            at(2),
            at(2) + 1
        )]
    );

    // A claim that came back after a crash is due later than its row says.
    scene.put(
        Family::Deliveries,
        &Scene::delivery_key(2),
        &row("pending", at(2) - 1, stored_bytes(2, "acme")),
    );
    assert_eq!(scene.verdict(), Vec::<String>::new());

    let mut scene = Scene::in_order();
    scene.put(
        Family::Deliveries,
        &Scene::delivery_key(5),
        &row("dead", at(5) - 1, stored_bytes(5, "default")),
    );
    assert_eq!(scene.verdict().len(), 2);

    let mut scene = Scene::in_order();
    let stored = stored_bytes(2, "acme");
    scene.put(Family::Deliveries, &Scene::delivery_key(2), &row("pending", at(2), stored + 1));
    let says = stored + 1;
    assert_eq!(
        scene.verdict_on(Invariant::RowsFitTogether),
        [
            format!("delivery 2/0 says its hook has {says} bytes, and it has {stored}"),
            format!(
                "the DueFirst key of delivery 2/0 says {stored} bytes, and the row says {says}"
            )
        ]
    );
}

#[test]
fn an_index_key_carries_the_ordinal_of_the_hooks_tenant() {
    let mut scene = Scene::in_order();
    scene.put(Family::Tenants, &key(b'n', &[b"acme"]), &9_u32.to_be_bytes());
    let misfits = scene.verdict_on(Invariant::RowsFitTogether);
    for expected in [
        "acme has the tenant ordinal 9, which is nobody's",
        "tenant ordinal 1 is acme, and acme has the ordinal Some(9)",
        "the DueFirst key of delivery 2/0 has the tenant ordinal 1, and the hook's tenant is acme",
        "the archive obligation of hook 6 has the tenant ordinal 1, and the hook's tenant is acme",
    ] {
        assert!(misfits.contains(&expected.to_owned()), "{misfits:?}");
    }
}

#[test]
fn an_archive_obligation_has_its_hook_and_knows_its_size() {
    let mut scene = Scene::in_order();
    scene.remove(Family::Hooks, &6_u64.to_be_bytes());
    let orphans = [
        "I7: hook 6 has a cleared marker and is not stored",
        "I7: the archive obligation of hook 6 has no hook",
    ];
    assert_eq!(scene.verdict(), orphans);

    let mut scene = Scene::in_order();
    scene.put(
        Family::Index,
        &key(b'a', &[&6_u64.to_be_bytes()]),
        &[1_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat(),
    );
    let stored = stored_bytes(6, "acme");
    assert_eq!(
        scene.verdict(),
        [format!("I7: the archive obligation of hook 6 says 1 bytes, and the hook has {stored}")]
    );
}

#[test]
fn a_row_that_does_not_decode_is_evidence() {
    let mut scene = Scene::in_order();
    scene.put(Family::Index, &[b'Z', 1], b"");
    scene.put(Family::Counters, &[0, 0, 0, 1, 9], b"9");
    assert_eq!(
        scene.verdict(),
        [
            "I7: counters row 0000000109 does not start with the version byte 131",
            "I7: index row 5a01 has the unknown tag 0x5a"
        ]
    );
    scene.put(Family::Counters, &[0, 0, 0, 1, 9], &counter(9));
    assert_eq!(scene.verdict(), ["I7: index row 5a01 has the unknown tag 0x5a"]);
}

#[test]
fn nothing_waits_after_a_drain() {
    let mut scene = Scene::in_order();
    scene.moment = Moment::Drained;
    let waiting: Vec<String> = scene
        .verdict_on(Invariant::RowsFitTogether)
        .into_iter()
        .filter(|words| words.ends_with("still waits after the drain"))
        .collect();
    assert_eq!(
        waiting,
        [2, 3, 4, 7].map(|seq| format!("delivery {seq}/0 still waits after the drain"))
    );
}

// I14

#[test]
fn a_body_no_client_sent_is_found_out() {
    let mut scene = Scene::in_order();
    scene.deliveries[2].body = digest(99);
    let strange = format!(
        "I14: hook {} is delivered with the body {}, which no client sent",
        id(6),
        digest(99)
    );
    assert_eq!(scene.verdict(), [strange]);
}

#[test]
fn a_stored_body_that_changed_is_found_out() {
    let mut scene = Scene::in_order();
    scene.put(Family::Hooks, &2_u64.to_be_bytes(), &envelope(2, "acme", b"Body 2"));
    let strange = format!(
        "I14: hook {} is stored with the body {}, which no client sent",
        id(2),
        ankusa_drills_check::Digest::of(b"Body 2")
    );
    assert_eq!(scene.verdict(), [strange]);
}

#[test]
fn a_body_goes_under_the_id_its_client_was_told() {
    let mut scene = Scene::in_order();
    scene.deliveries.push(Delivery { id: id(60), body: digest(6), attempt: 1, accepted: true });
    assert_eq!(
        scene.verdict(),
        [format!(
            "I14: body {} was acked as hook {} and is delivered as hook {}",
            digest(6),
            id(6),
            id(60)
        )]
    );
}

#[test]
fn two_bodies_are_never_acked_as_one_hook() {
    let mut scene = Scene::in_order();
    scene.requests.push(Request {
        source: "acme".into(),
        body: digest(10),
        outcome: Outcome::Acked { id: id(1) },
    });
    assert_eq!(
        scene.verdict(),
        [format!(
            "I14: the bodies {} and {} were both acked as hook {}",
            digest(1),
            digest(10),
            id(1)
        )]
    );
}

#[test]
fn a_hook_is_stored_under_the_source_it_was_sent_to() {
    let mut scene = Scene::in_order();
    scene.requests[1].source = "default".into();
    assert_eq!(
        scene.verdict(),
        [format!("I14: hook {} was sent to default and is stored under acme", id(2))]
    );
}

#[test]
fn a_dedupe_key_goes_with_its_expiry_and_its_count() {
    let mut scene = Scene::in_order();
    let (event, expires_at_ms) = (b"acme\0\0\x06githubd1", 1_688_428_200_086_u64.to_be_bytes());
    let named = "61636d650000066769746875626431";
    let key_row = (Family::Index, key(b'u', &[event]));
    let value = [&expires_at_ms, id(2).as_bytes()].concat();
    scene.rows.insert(key_row.clone(), value);
    assert_eq!(
        scene.verdict(),
        [
            "I4: dedupe of tenant acme is 0, and a recount says 1".to_owned(),
            "I4: dedupe of the node is 0, and a recount says 1".to_owned(),
            format!(
                "I7: the dedupe key {named} of acme has no entry that it expires at 1688428200086"
            ),
        ]
    );
    scene.rows.remove(&key_row);
    scene.rows.insert((Family::Index, key(b'e', &[&expires_at_ms, event])), Vec::new());
    assert_eq!(scene.verdict(), [format!("I7: no dedupe key {named} expires at 1688428200086")]);
}
