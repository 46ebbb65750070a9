//! Lanes when something fails or dies: the order stays, nothing stalls, and no lane has two heads.

use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::Field;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::{DeliveryKey, HookKey, LaneMarkerKey};
use ankusa_actors::model::ordering::OrderBy;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::ports::{Lane, Outcome};

use crate::lanes::{bodies, by_json, by_source};
use crate::world::{HTTP, World, millis, rest, retry, secs, stop};

/// The next life of a world with one ordered sink.
fn next_life(world: &World, by: OrderBy) -> World {
    let mut next = world.next_life(&[vec![HTTP]]);
    next.order(0, &[Some(by)]);
    next
}

/// Each hook of a lane is begun only after the one before it had its last attempt.
fn is_in_order(attempts: &[String], lane: &str) {
    let of_lane = attempts.iter().filter(|line| line.starts_with(&format!(r#"["{lane}","#)));
    let numbers: Vec<&str> = of_lane.map(|line| line.split([',', ']']).nth(1).unwrap()).collect();
    let numbers: Vec<u32> = numbers.into_iter().map(|n| n.parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "{lane}: {attempts:?}");
}

fn is_empty(world: &World) {
    world.is_sound();
    assert_eq!((world.hooks(), world.index().as_str()), (0, ""));
}

/// Two lanes, one of whose heads fails once, while hooks keep coming.
async fn traffic(world: &World, node: &ankusa_actors::node::Node) {
    world.probe().script.slow(Duration::from_millis(3));
    world.probe().script.answer([Outcome::Ok, retry("busy")]);
    world.send_all(node, &bodies(&["a", "b"], 4)).await;
}

async fn comes_right(world: &World) {
    rest().await;
    is_empty(world);
}

#[tokio::test(start_paused = true)]
async fn whenever_a_child_crashes_the_order_stays_and_everything_is_delivered() {
    for child in ["dispatch", "writer", "store"] {
        for at_ms in 0..16 {
            let world = by_json();
            let node = world.start().await;
            traffic(&world, &node).await;
            millis(at_ms).await;
            assert!(node.handles().board.crash(child), "{child}");
            comes_right(&world).await;
            let attempts = world.probe().attempts();
            for lane in ["a", "b"] {
                is_in_order(&attempts, lane);
            }
            let mut hooks: Vec<_> =
                attempts.iter().map(|line| line.split(" #").next().unwrap()).collect();
            hooks.sort_unstable();
            hooks.dedup();
            assert_eq!(hooks.len(), 8, "{child} at {at_ms}");
            stop(node).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_the_process_dies_the_next_goes_on_with_the_head() {
    for cuts_power in [false, true] {
        for at_ms in 0..16 {
            let world = by_json();
            let node = world.start().await;
            traffic(&world, &node).await;
            millis(at_ms).await;
            if cuts_power {
                world.cut_power()
            } else {
                world.kill()
            }
            world.is_sound();
            let done = world.probe().attempts();
            let next = next_life(&world, OrderBy::Json("/0".to_owned()));
            let other = next.start().await;
            comes_right(&next).await;
            let attempts = next.probe().attempts();
            for lane in ["a", "b"] {
                is_in_order(&attempts, lane);
                // What the machine forgets is begun again; a process that dies redelivers the head at most.
                if !cuts_power {
                    is_in_order(&[done.clone(), attempts.clone()].concat(), lane);
                }
            }
            stop(other).await;
            drop(node);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_write_fails_the_order_stays_and_nothing_is_delivered_twice() {
    let refused = Fault::refuse(SimOp::Apply, FailureClass::NoSpace);
    let faults = [
        refused,
        refused.until_reopened(),
        Fault::apply_logged_unseen(FailureClass::IoError),
        Fault::apply_landed(FailureClass::IoError),
    ];
    for fault in faults {
        for after in 0..12 {
            let world = by_json();
            let node = world.start().await;
            rest().await;
            world.disk.fail(fault.on(Lane::Background).after(after));
            traffic(&world, &node).await;
            comes_right(&world).await;
            let attempts = world.probe().attempts();
            for lane in ["a", "b"] {
                is_in_order(&attempts, lane);
            }
            assert_eq!(attempts.len(), 9, "{fault:?} after {after}: {attempts:?}");
            stop(node).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_claimed_comes_back_as_the_retry_of_its_lane() {
    let world = by_source();
    let node = world.start().await;
    world.probe().script.answer([retry("busy")]);
    world.send_many(&node, 0, "acme", 2).await;
    millis(50).await;
    assert_eq!((world.count(Field::LanesBlocked), world.count(Field::Scheduled)), (1, 1));
    world.probe().script.slow(Duration::from_secs(20));
    secs(1).await;
    assert_eq!((world.count(Field::LanesBlocked), world.count(Field::Inflight)), (0, 1));
    node.handles().board.crash("dispatch");
    secs(100).await;
    assert_eq!(world.probe().attempts(), ["acme0 #1", "acme0 #2", "acme0 #2", "acme1 #1"]);
    rest().await;
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_head_and_begins_nothing_behind_it() {
    let world = by_source();
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(5));
    world.send_many(&node, 0, "acme", 3).await;
    secs(1).await;
    stop(node).await;
    assert_eq!(world.probe().attempts(), ["acme0 #1"]);
    assert_eq!((world.count(Field::Inflight), world.count(Field::Pending)), (0, 1));
    assert_eq!((world.count(Field::Lanes), world.count(Field::LaneMembers)), (1, 1));
    world.is_sound();
    let next = next_life(&world, OrderBy::Source);
    let node = next.start().await;
    rest().await;
    assert_eq!(next.probe().attempts(), ["acme1 #1", "acme2 #1"]);
    is_empty(&next);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn the_marker_of_hooks_that_were_refused_goes() {
    let world = by_source();
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1).await;
    world.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    world.try_send_to(&node, 0, "acme", "refused").await;
    secs(60).await;
    is_empty(&world);
    world.send(&node, "two").await;
    secs(1).await;
    assert_eq!(world.probe().attempts(), ["one #1", "two #1"]);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_lost_its_marker_is_found_at_the_start() {
    let mut world = by_json();
    world.roles.dispatch = false;
    let node = world.start().await;
    let lanes: Vec<String> = (0..600).map(|lane| format!("{lane}")).collect();
    let lanes: Vec<&str> = lanes.iter().map(String::as_str).collect();
    world.send_all(&node, &bodies(&lanes[..1], 600)).await;
    world.send_all(&node, &bodies(&lanes[1..], 1)).await;
    let mut batch = Batch::default();
    for (key, _) in world.disk.rows(Cf::Index) {
        if LaneMarkerKey::decode(&key).is_some() {
            batch.delete(Cf::Index, &key);
        }
    }
    world.write(&node, batch).await;
    stop(node).await;
    // Without ordered sinks, too.
    let mut next = world.next_life(&[vec![HTTP]]);
    next.roles.dispatch = true;
    let node = next.start().await;
    rest().await;
    assert_eq!(next.probe().attempts().len(), 1_199);
    is_empty(&next);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_at_the_head_of_a_lane_does_not_stop_it() {
    // What is damaged, and what becomes of it.
    let damage: [(&str, i64); 3] = [("row", 0), ("hook", 0), ("unreadable", 1)];
    for (what, dead) in damage {
        for claimed in [false, true] {
            let mut world = by_source();
            world.roles.dispatch = claimed;
            let node = world.start().await;
            world.probe().script.slow(Duration::from_secs(1_000));
            let seq = world.send(&node, "one").await;
            world.send(&node, "two").await;
            secs(1).await;
            let mut batch = Batch::default();
            let row = DeliveryKey { seq, sink: 0 }.encode();
            match what {
                "row" => batch.delete(Cf::Deliveries, &row),
                "hook" => batch.delete(Cf::Hooks, &HookKey(seq).encode()),
                _unreadable => batch.put(Cf::Deliveries, &row, b"no row"),
            }
            world.write(&node, batch).await;
            world.kill();
            let mut next = next_life(&world, OrderBy::Source);
            next.roles.dispatch = true;
            let other = next.start().await;
            rest().await;
            assert_eq!(next.probe().attempts(), ["two #1"], "{what} {claimed}");
            assert_eq!(next.count(Field::Dead), dead, "{what} {claimed}");
            assert_eq!((next.count(Field::Lanes), next.count(Field::LaneMembers)), (0, 0));
            stop(other).await;
            drop(node);
        }
    }
}
