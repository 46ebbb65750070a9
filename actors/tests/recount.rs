//! What a boot makes of rows and counters that do not fit each other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::invariants::Miscount;
use ankusa_actors::model::keys::{CounterKey, DueKey, DueValue};
use ankusa_actors::model::ops::Ops;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimEngine, SimOp};
use ankusa_actors::ports::{Direction, Engine, Lane, Scan};
use ankusa_actors::store::{OfflineError, RECOUNT_ROWS_MAX, Recount, Recounted, recount_offline};
use common::{Bench, EPOCH_MS, millis, secs};

const ACME: TenantOrd = TenantOrd(1);

/// A disk with these hooks of `acme` on it, as a node left it that nobody stopped.
async fn left_behind(hooks: usize) -> Bench {
    let bench = Bench::default();
    let node = bench.start().await;
    for n in 0..hooks {
        bench.acked(&node, "acme", &n.to_string()).await;
    }
    drop(node);
    bench.disk.cut_power();
    bench
}

/// Changes rows as no node would.
async fn tamper(bench: &Bench, change: impl FnOnce(&mut Batch)) {
    let engine = SimEngine::on(&bench.disk);
    let kv = engine.open().await.unwrap();
    let mut batch = Batch::default();
    change(&mut batch);
    kv.apply(batch, Lane::Background).await.unwrap();
    kv.sync().await.unwrap();
    engine.close(kv).await;
}

/// Deletes every row of a family.
async fn lose(bench: &Bench, cf: Cf) {
    let rows = bench.disk.rows(cf);
    tamper(bench, |batch| rows.iter().for_each(|(key, _)| batch.delete(cf, key))).await;
}

fn counter(tenant: TenantOrd, field: Field) -> Vec<u8> {
    CounterKey { tenant, field }.encode().to_vec()
}

#[tokio::test(start_paused = true)]
async fn counters_that_are_right_are_left_alone() {
    let bench = left_behind(3).await;
    let before = bench.disk.durable_rows(Cf::Counters);
    let node = bench.start().await;
    // A due row and its marker each; all came in the same second.
    assert_eq!(node.handles().store.notes().recount, Recount::Right { rows: 4 });
    assert!(bench.disk.durable_rows(Cf::Counters) == before);
}

#[tokio::test(start_paused = true)]
async fn counters_that_are_wrong_missing_or_unreadable_are_put_right_durably_and_counted() {
    let bench = left_behind(3).await;
    let right = bench.disk.durable_rows(Cf::Counters);
    tamper(&bench, |batch| {
        batch.put(Cf::Counters, &counter(ACME, Field::Pending), &counters::value(7));
        batch.put(Cf::Counters, &counter(ACME, Field::Bytes), b"no number");
        batch.delete(Cf::Counters, &counter(TenantOrd::NODE, Field::Pending));
        batch.put(Cf::Counters, &counter(TenantOrd(9), Field::Dead), &counters::value(1));
    })
    .await;
    let node = bench.start().await;
    assert_eq!(node.handles().store.notes().recount, Recount::Repaired { rows: 4, counters: 4 });
    let mut expected = right;
    expected.push((counter(TenantOrd(9), Field::Dead), counters::value(0)));
    assert_eq!(bench.disk.durable_rows(Cf::Counters), expected);
    let repaired = "CountersRepaired { counters: 4 }".to_owned();
    assert_eq!(bench.events.lines().iter().filter(|line| **line == repaired).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn more_rows_than_a_boot_counts_are_left_uncounted_and_that_is_said() {
    let mut bench = left_behind(1).await;
    bench.stays_sound = false;
    tamper(&bench, |batch| {
        batch.put(Cf::Counters, &counter(ACME, Field::Pending), &counters::value(7));
        for row in 0..=RECOUNT_ROWS_MAX {
            batch.put(Cf::Deliveries, &row.to_be_bytes(), b"a row");
        }
    })
    .await;
    let node = bench.start().await;
    assert_eq!(node.handles().store.notes().recount, Recount::Skipped);
    let stored = bench.disk.rows(Cf::Counters);
    assert!(stored.contains(&(counter(ACME, Field::Pending), counters::value(7))));
}

#[tokio::test(start_paused = true)]
async fn a_family_that_came_up_empty_while_others_need_it_refuses_the_boot() {
    for (lost, why) in [
        (Cf::Index, "hooks holds rows and index holds none: rows are missing"),
        (Cf::Hooks, "deliveries holds rows and hooks holds none: rows are missing"),
    ] {
        let mut bench = left_behind(3).await;
        bench.stays_sound = false;
        lose(&bench, lost).await;
        let before = bench.disk.durable_rows(Cf::Counters);
        let Err(refused) = bench.try_start().await else { panic!("it booted") };
        assert!(refused.contains(why), "{refused}");
        assert!(bench.disk.durable_rows(Cf::Counters) == before, "nothing is put right");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recount_of_many_pages_is_one_of_all_rows() {
    let bench = left_behind(1_500).await;
    tamper(&bench, |batch| {
        batch.put(Cf::Counters, &counter(ACME, Field::Pending), &counters::value(0));
    })
    .await;
    let node = bench.start().await;
    let Recount::Repaired { rows, counters: 1 } = node.handles().store.notes().recount else {
        panic!("{:?}", node.handles().store.notes());
    };
    assert!(rows > 1_500);
    let stored = bench.disk.rows(Cf::Counters);
    assert!(stored.contains(&(counter(ACME, Field::Pending), counters::value(1_500))));
}

/// Damages two counters of `acme` as no commit would.
async fn damage(bench: &Bench) {
    tamper(bench, |batch| {
        batch.put(Cf::Counters, &counter(ACME, Field::Pending), &counters::value(7));
        batch.put(Cf::Counters, &counter(ACME, Field::Bytes), b"no number");
    })
    .await;
}

/// The same while a node runs.
async fn damage_running(node: &Node) {
    let mut batch = Batch::default();
    batch.put(Cf::Counters, &counter(ACME, Field::Pending), &counters::value(7));
    // More than any count, and more than 64 bits.
    let huge = [&[131, 110, 12, 0][..], &[9; 12]].concat();
    batch.put(Cf::Counters, &counter(ACME, Field::Bytes), &huge);
    node.handles().store.apply(batch, Lane::Commit).await.unwrap();
}

fn wrong(report: &Recounted) -> Vec<(TenantOrd, Field, Option<i64>, i64)> {
    let shown = |wrong: &Miscount| {
        let stored = wrong.stored.map(counters::clamped);
        (wrong.key.tenant, wrong.key.field, stored, wrong.recounted)
    };
    report.wrong.iter().map(shown).collect()
}

fn counters_of(bench: &Bench) -> Vec<(Vec<u8>, Vec<u8>)> {
    bench.disk.rows(Cf::Counters)
}

#[tokio::test(start_paused = true)]
async fn a_running_node_tells_which_counters_are_wrong_and_leaves_them() {
    let mut bench = left_behind(3).await;
    bench.stays_sound = false;
    let node = bench.start().await;
    let told = node.handles().recount.recount(true).await.unwrap();
    assert_eq!((told.counted, told.repaired), (Recounted { rows: 4, wrong: Vec::new() }, false));
    damage_running(&node).await;
    let before = counters_of(&bench);
    let told = node.handles().recount.recount(false).await.unwrap();
    let size = bench.disk.rows(Cf::Hooks).iter().map(|(_, value)| value.len()).sum::<usize>();
    let bytes = i64::try_from(size).unwrap();
    assert_eq!(
        wrong(&told.counted),
        [(ACME, Field::Pending, Some(7), 3), (ACME, Field::Bytes, Some(i64::MAX), bytes),]
    );
    assert!(!told.repaired && counters_of(&bench) == before);
}

#[tokio::test(start_paused = true)]
async fn a_repair_of_a_running_node_keeps_what_commits_between_the_count_and_it() {
    let bench = left_behind(3).await;
    let node = bench.start().await;
    damage_running(&node).await;
    // The count sees the moment before; these land while it is under way.
    bench.disk.slow(SimOp::Read, Duration::from_millis(50));
    let handle = node.handles().recount.clone();
    let counting = tokio::spawn(async move { handle.recount(true).await });
    millis(10).await;
    for n in 0..5 {
        bench.acked(&node, "acme", &format!("meanwhile {n}")).await;
    }
    let told = counting.await.unwrap().unwrap();
    assert_eq!(wrong(&told.counted)[0], (ACME, Field::Pending, Some(7), 3), "as it was then");
    assert!(told.repaired);
    let pending =
        counters_of(&bench).into_iter().find(|row| row.0 == counter(ACME, Field::Pending));
    assert_eq!(pending.unwrap().1, counters::value(8));
    bench.disk.cut_power();
    let repaired = "CountersRepaired { counters: 2 }".to_owned();
    assert_eq!(bench.events.lines().iter().filter(|line| **line == repaired).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_repairs_at_once_correct_once() {
    let bench = left_behind(3).await;
    let node = bench.start().await;
    damage_running(&node).await;
    let recount = &node.handles().recount;
    let (first, second) = tokio::join!(recount.recount(true), recount.recount(true));
    assert_eq!((first.unwrap().repaired, second.unwrap().repaired), (true, false));
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_may_have_landed_is_told_as_failed_and_the_next_count_says_what_is_left() {
    for fault in [
        Fault::apply_landed(FailureClass::IoError),
        Fault::refuse(SimOp::Apply, FailureClass::IoError),
    ] {
        let bench = left_behind(3).await;
        let node = bench.start().await;
        damage_running(&node).await;
        bench.disk.fail(fault.on(Lane::Background));
        let failed = node.handles().recount.recount(true).await.unwrap_err();
        assert_eq!(failed.class, FailureClass::IoError);
        secs(20).await;
        node.handles().recount.recount(true).await.unwrap();
        let told = node.handles().recount.recount(false).await.unwrap();
        assert_eq!(wrong(&told.counted), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_gives_way_to_a_store_that_is_to_be_closed() {
    let bench = left_behind(3).await;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Read, Duration::from_secs(5));
    let (counted, reopened) = tokio::join!(node.handles().recount.recount(false), async {
        millis(10).await;
        node.handles().store.reopen().await
    });
    assert_eq!(counted.unwrap_err().class, FailureClass::NotRunning);
    reopened.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_node_the_counters_are_counted_and_put_right_durably() {
    let bench = left_behind(3).await;
    let right = counters_of(&bench);
    damage(&bench).await;
    let damaged = bench.disk.durable_rows(Cf::Counters);
    let engine = SimEngine::on(&bench.disk);
    let found = recount_offline(&engine, false).await.unwrap();
    let names = BTreeMap::from([(ACME, "acme".to_owned())]);
    assert_eq!((found.counted.rows, found.counted.wrong.len()), (4, 2));
    assert_eq!((&found.names, found.repaired, found.is_right()), (&names, false, false));
    assert!(bench.disk.durable_rows(Cf::Counters) == damaged, "nothing has changed");
    assert!(!bench.disk.is_open());
    let found = recount_offline(&engine, true).await.unwrap();
    assert_eq!((found.counted.wrong.len(), found.repaired, found.is_right()), (2, true, true));
    assert!(bench.disk.durable_rows(Cf::Counters) == right && !bench.disk.is_open());
    let found = recount_offline(&engine, true).await.unwrap();
    assert_eq!((found.counted, found.repaired), (Recounted { rows: 4, wrong: Vec::new() }, false));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_a_node_has_open_is_not_recounted_from_outside() {
    let bench = left_behind(1).await;
    let _node = bench.start().await;
    let refused = recount_offline(&SimEngine::on(&bench.disk), true).await.unwrap_err();
    let OfflineError::Open(error) = refused else { panic!("{refused}") };
    assert_eq!(error.class, FailureClass::Busy);
}

#[tokio::test(start_paused = true)]
async fn a_dead_row_that_cannot_be_read_counts_with_the_bytes_of_its_hook() {
    let mut bench = left_behind(1).await;
    bench.stays_sound = false;
    let right = {
        let engine = SimEngine::on(&bench.disk);
        let kv = engine.open().await.unwrap();
        let due = kv
            .scan(Scan {
                cf: Cf::Index,
                range: DueKey::all(),
                direction: Direction::Forward,
                max_rows: 1,
                max_bytes: usize::MAX,
            })
            .await
            .unwrap();
        let (key, value) = due.pairs.first().unwrap();
        let mut ops = Ops::default();
        let claimed = ops.claim(&DueKey::decode(key).unwrap(), DueValue::decode(value).unwrap());
        ops.dead(&claimed, b"no row", EPOCH_MS, "src", "id");
        kv.apply(ops.finish(), Lane::Background).await.unwrap();
        kv.sync().await.unwrap();
        engine.close(kv).await;
        recount_offline(&SimEngine::on(&bench.disk), false).await.unwrap()
    };
    assert_eq!(wrong(&right.counted), []);
}
