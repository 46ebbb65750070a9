//! What a boot makes of rows and counters that do not fit each other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::keys::CounterKey;
use ankusa_actors::ports::sim::SimEngine;
use ankusa_actors::ports::{Engine, Lane};
use ankusa_actors::store::{RECOUNT_ROWS_MAX, Recount};
use common::Bench;

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
