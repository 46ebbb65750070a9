//! When the store is closed and opened again, on virtual time, and what everybody can see of it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::{META_READY_PROBE, u64_value};
use ankusa_actors::ports::sim::{Fault, SimClock, SimDisk, SimEngine, SimOp};
use ankusa_actors::ports::{Clock, Entropy, Event, Events, KvError, Lane};
use ankusa_actors::store::ready::Readiness;
use ankusa_actors::store::{Store, StoreArgs, StoreConfig, StoreHandle};
use ankusa_actors::supervision::*;
use common::{EPOCH_MS, millis, secs};
use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorRef};
use tokio::time::Instant;

/// Chance that always falls the same way.
struct Loaded(f64);

impl Entropy for Loaded {
    fn bits(&self) -> u128 {
        0
    }

    fn unit(&self) -> f64 {
        self.0
    }
}

/// Events with the milliseconds at which they came.
struct Timed {
    began: Instant,
    lines: Mutex<Vec<String>>,
}

impl Events for Timed {
    fn emit(&self, event: &Event<'_>) {
        let at_ms = self.began.elapsed().as_millis();
        let line = if let Event::StoreReopened { result, took } = event {
            format!("{at_ms} {result:?} {took:?}")
        } else if let Event::StoreUnavailable { for_ } = event {
            format!("{at_ms} closed for {for_:?}")
        } else if let Event::StoreWriteFailed { class } = event {
            format!("{at_ms} failed {}", class.as_str())
        } else {
            format!("{at_ms} {event:?}")
        };
        self.lines.lock().unwrap().push(line);
    }
}

/// A store under a supervisor of its own.
struct Bench {
    disk: Arc<SimDisk>,
    store: StoreHandle,
    events: Arc<Timed>,
    board: Board,
    supervisor: ActorRef<SupervisorMsg>,
    task: JoinHandle<()>,
}

async fn bench() -> Bench {
    with_chance(0.0).await
}

async fn with_chance(unit: f64) -> Bench {
    let (disk, store) = (SimDisk::empty(), StoreHandle::default());
    let events = Arc::new(Timed { began: Instant::now(), lines: Mutex::default() });
    let args = StoreArgs {
        config: StoreConfig::default(),
        engine: Arc::new(SimEngine::on(&disk)),
        entropy: Arc::new(Loaded(unit)),
        events: Arc::clone(&events) as _,
        handle: store.clone(),
    };
    let stop = Shutdown::Stop(Duration::from_secs(30));
    let child = ChildSpec::new("store", stop, store.slot(), move || (Store, args.clone()));
    let board = Board::default();
    let args = SupervisorArgs {
        id: "core",
        board: board.clone(),
        strategy: Strategy::OneForOne,
        intensity: Intensity { restarts: 5, within: Duration::from_secs(60) },
        exhausted: Exhausted::Fail,
        retry_delay: Duration::from_secs(1),
        children: vec![child],
    };
    let (supervisor, task) = Actor::spawn(None, Supervisor, args).await.unwrap();
    Bench { disk, store, events, board, supervisor, task }
}

fn row() -> Batch {
    let mut batch = Batch::default();
    batch.put(Cf::Default, META_READY_PROBE, &u64_value(7));
    batch
}

impl Bench {
    async fn write(&self) -> Result<(), FailureClass> {
        let written = self.store.apply_synced(row(), Lane::Background).await;
        written.map_err(|KvError { class, .. }| class)
    }

    /// The next write fails.
    async fn fail_a_write(&self) {
        self.disk.fail(Fault::refuse(SimOp::Apply, FailureClass::IoError));
        assert_eq!(self.write().await, Err(FailureClass::IoError));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lines.lock().unwrap())
    }

    /// Milliseconds at which a reopen ended so.
    fn reopens(&self, result: &str) -> Vec<u64> {
        let lines = self.events.lines.lock().unwrap();
        let at_ms = |line: &String| {
            let (at_ms, what) = line.split_once(' ')?;
            what.starts_with(result).then(|| at_ms.parse().unwrap())
        };
        lines.iter().filter_map(at_ms).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_has_the_store_reopened_at_once_and_then_at_most_every_five_seconds() {
    let bench = bench().await;
    bench.fail_a_write().await;
    millis(1).await;
    assert_eq!(bench.take(), ["0 failed io_error", "0 Ok 0ns", "0 closed for 0ns"]);
    bench.fail_a_write().await;
    secs(2).await;
    bench.fail_a_write().await;
    secs(4).await;
    assert_eq!(
        bench.take(),
        ["1 failed io_error", "2001 failed io_error", "5000 Ok 0ns", "5000 closed for 0ns"],
        "both are settled by the one reopen"
    );
    secs(60).await;
    bench.fail_a_write().await;
    millis(1).await;
    assert_eq!(bench.reopens("Ok"), [66_001], "after a quiet while at once again");
    assert_eq!(bench.store.state().generation, 4);
}

#[tokio::test(start_paused = true)]
async fn a_report_of_a_generation_that_is_over_is_counted_and_reopens_nothing() {
    let bench = bench().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::Timeout));
    let store = bench.store.clone();
    let slow = tokio::spawn(async move { store.sync().await.unwrap_err().class });
    millis(100).await;
    // The operator's reopen waits for the fsync, whose failure is of the generation before.
    bench.store.reopen().await.unwrap();
    assert_eq!(slow.await.unwrap(), FailureClass::Timeout);
    secs(30).await;
    let expected = ["500 Ok 400ms", "500 closed for 0ns", "500 failed timeout"];
    assert_eq!(bench.take(), expected);
    assert_eq!(bench.store.state().failing, None);
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_takes_no_writes_the_reopen_is_deferred_and_everything_stays_readable() {
    let bench = bench().await;
    bench.write().await.unwrap();
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::IoError).times(3));
    bench.fail_a_write().await;
    millis(600).await;
    let state = bench.store.state();
    assert_eq!(
        (state.generation, state.open, state.failing),
        (1, true, Some(FailureClass::IoError))
    );
    assert_eq!(
        bench.store.get(Cf::Default, META_READY_PROBE).unwrap(),
        Some(u64_value(7).to_vec())
    );
    secs(10).await;
    assert_eq!(
        bench.take(),
        [
            "0 failed io_error",
            "0 Deferred 0ns",
            "0 closed for 0ns",
            "250 Deferred 0ns",
            "250 closed for 0ns",
            "500 Deferred 0ns",
            "500 closed for 0ns",
            "750 Ok 0ns",
            "750 closed for 0ns",
        ]
    );
    assert_eq!(bench.disk.counts().opens, 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_open_stays_closed_and_waits_twice_as_long_each_time_up_to_a_minute()
{
    let bench = bench().await;
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::Corruption).times(6));
    bench.fail_a_write().await;
    secs(300).await;
    assert_eq!(bench.reopens("Error"), [0, 5_000, 15_000, 35_000, 75_000, 135_000]);
    assert_eq!(bench.reopens("Ok"), [195_000]);
    let closed =
        ["0ns", "5s", "15s", "35s", "75s", "135s", "0ns"].map(|s| format!("closed for {s}"));
    let lines = bench.take();
    let lines = lines.iter().filter_map(|line| line.split_once(' '));
    let seen: Vec<_> =
        lines.map(|(_, what)| what).filter(|what| what.starts_with("closed")).collect();
    assert_eq!(seen, closed);
    // Once it has been open the waits begin again.
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::Corruption));
    bench.fail_a_write().await;
    secs(6).await;
    assert_eq!((bench.reopens("Error"), bench.reopens("Ok")), (vec![300_000], vec![305_000]));
}

#[tokio::test(start_paused = true)]
async fn the_waits_are_cut_by_up_to_a_quarter_so_that_a_fleet_does_not_come_back_in_step() {
    let bench = with_chance(1.0).await;
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::IoError).times(6));
    bench.fail_a_write().await;
    secs(300).await;
    assert_eq!(bench.reopens("Error"), [0, 3_750, 11_250, 26_250, 56_250, 101_250]);
    assert_eq!(bench.reopens("Ok"), [146_250]);
}

#[tokio::test(start_paused = true)]
async fn a_closed_store_says_why_and_answers_that_it_is_not_running() {
    let bench = bench().await;
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::NoSpace));
    bench.fail_a_write().await;
    millis(1).await;
    let state = bench.store.state();
    assert_eq!((state.open, state.failing), (false, Some(FailureClass::NoSpace)));
    assert_eq!(bench.write().await, Err(FailureClass::NotRunning));
    let read = bench.store.get(Cf::Default, META_READY_PROBE).unwrap_err();
    assert_eq!(read.class, FailureClass::NotRunning);
    bench.take();
    secs(5).await;
    let state = bench.store.state();
    assert_eq!((state.open, state.failing, state.generation), (true, None, 2));
    bench.write().await.unwrap();
    assert_eq!(bench.reopens("failed"), Vec::<u64>::new(), "a closed store is no failed write");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_shows_before_the_store_has_heard_of_it() {
    let bench = bench().await;
    bench.disk.slow(SimOp::Probe, Duration::from_secs(3));
    let store = bench.store.clone();
    let busy = tokio::spawn(async move { store.reopen().await });
    millis(100).await;
    bench.fail_a_write().await;
    assert_eq!(bench.store.state().failing, Some(FailureClass::IoError));
    busy.await.unwrap().unwrap();
    assert_eq!(bench.store.state().failing, None);
    secs(10).await;
    assert_eq!(bench.store.state().generation, 2, "the reopen under way has settled it");
}

#[tokio::test(start_paused = true)]
async fn a_reopen_turns_new_calls_away_and_waits_for_those_in_flight() {
    let bench = bench().await;
    let lease = bench.store.lease().unwrap();
    let store = bench.store.clone();
    let reopening = tokio::spawn(async move { store.reopen().await });
    secs(20).await;
    assert!(!reopening.is_finished());
    assert!(bench.disk.is_open(), "it is still in use");
    assert!(bench.store.lease().is_err());
    assert_eq!(lease.kv().get(Cf::Default, b"m:nothing").unwrap(), None);
    drop(lease);
    reopening.await.unwrap().unwrap();
    assert_eq!(bench.take(), ["20000 Ok 20s", "20000 closed for 0ns"]);
    assert_eq!(bench.store.lease().unwrap().generation(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_operator_is_told_why_the_store_is_not_open_after_a_reopen() {
    let bench = bench().await;
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::ReadOnly));
    let why = bench.store.reopen().await.unwrap_err();
    assert_eq!(why, "store probe failed (read_only): injected");
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::Busy));
    let why = bench.store.reopen().await.unwrap_err();
    assert_eq!(why, "cannot open the store at sim/store: injected");
    bench.store.reopen().await.unwrap();
    bench.supervisor.stop(None);
    bench.task.await.unwrap();
    let why = bench.store.reopen().await.unwrap_err();
    assert_eq!(why, "the store is between incarnations");
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_fsync_every_later_one_fails_until_the_store_has_been_reopened() {
    let bench = bench().await;
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::IoError).times(2));
    bench.disk.fail(Fault::sync_drops_pages(FailureClass::IoError));
    assert_eq!(bench.store.sync().await.unwrap_err().class, FailureClass::IoError);
    let syncs = bench.disk.counts().syncs;
    assert_eq!(bench.write().await, Err(FailureClass::IoError));
    assert_eq!(bench.disk.counts().syncs, syncs, "the disk is not asked again");
    secs(5).await;
    bench.write().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_crashed_is_closed_and_opened_by_the_next() {
    let bench = bench().await;
    let lease = bench.store.lease().unwrap();
    assert!(bench.board.crash("store"));
    millis(100).await;
    assert!(!bench.store.slot().is_running(), "the next one waits for the lease");
    drop(lease);
    millis(1).await;
    let state = bench.store.state();
    assert_eq!((state.generation, state.open), (2, true));
    assert_eq!(bench.disk.counts().opens, 2);
    bench.write().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_the_store_and_leaves_it_closed() {
    let bench = bench().await;
    bench.fail_a_write().await;
    bench.supervisor.stop(None);
    bench.task.await.unwrap();
    assert!(!bench.disk.is_open());
    secs(60).await;
    assert!(!bench.disk.is_open(), "no wake-up of it is left");
}

fn readiness(bench: &Bench) -> Readiness {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::at(EPOCH_MS));
    Readiness::new(bench.store.clone(), clock)
}

#[tokio::test(start_paused = true)]
async fn readiness_is_a_synced_write_whose_answer_stands_for_a_second() {
    let bench = bench().await;
    let readiness = readiness(&bench);
    let syncs = bench.disk.counts().syncs;
    for _ in 0..10 {
        assert_eq!(readiness.store_failure().await, None);
        millis(99).await;
    }
    assert_eq!(bench.disk.counts().syncs, syncs + 1);
    millis(100).await;
    assert_eq!(readiness.store_failure().await, None);
    assert_eq!(bench.disk.counts().syncs, syncs + 2);
    let probed = bench.store.get(Cf::Default, META_READY_PROBE).unwrap();
    assert_eq!(probed, Some(u64_value(EPOCH_MS + 1_090).to_vec()));
}

#[tokio::test(start_paused = true)]
async fn everybody_who_asks_at_once_shares_one_probe() {
    let bench = bench().await;
    let readiness = readiness(&bench);
    bench.disk.slow(SimOp::Sync, Duration::from_secs(1));
    let syncs = bench.disk.counts().syncs;
    let ask = || {
        let readiness = readiness.clone();
        tokio::spawn(async move { readiness.store_failure().await })
    };
    for asked in [ask(), ask(), ask()] {
        assert_eq!(asked.await.unwrap(), None);
    }
    assert_eq!(bench.disk.counts().syncs, syncs + 1);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_says_why_and_has_the_store_reopened() {
    for class in FailureClass::ALL {
        let bench = bench().await;
        let readiness = readiness(&bench);
        bench.disk.fail(Fault::refuse(SimOp::Sync, class));
        assert_eq!(readiness.store_failure().await, Some(class));
        secs(1).await;
        assert_eq!(readiness.store_failure().await, None);
        assert_eq!(bench.store.state().generation, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_known_to_fail_is_not_probed_and_shows_why() {
    let bench = bench().await;
    let readiness = readiness(&bench);
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::IoError).until_healed());
    bench.fail_a_write().await;
    let applies = bench.disk.counts().applies;
    assert_eq!(readiness.store_failure().await, Some(FailureClass::IoError));
    assert_eq!(bench.disk.counts().applies, applies);
    bench.supervisor.stop(None);
    bench.task.await.unwrap();
    assert_eq!(readiness.store_failure().await, Some(FailureClass::IoError), "the last word on it");
}

#[tokio::test(start_paused = true)]
async fn readiness_never_hangs_behind_a_stalled_disk() {
    let bench = bench().await;
    let readiness = readiness(&bench);
    bench.disk.slow(SimOp::Sync, Duration::from_secs(60));
    let began = Instant::now();
    assert_eq!(readiness.store_failure().await, Some(FailureClass::Timeout));
    assert_eq!(began.elapsed().as_secs(), 2);
    bench.disk.slow(SimOp::Sync, Duration::ZERO);
    assert_eq!(readiness.store_failure().await, Some(FailureClass::Timeout), "for a second");
    secs(1).await;
    assert_eq!(readiness.store_failure().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_stopped_is_not_running() {
    let bench = bench().await;
    let readiness = readiness(&bench);
    bench.supervisor.stop(None);
    bench.task.await.unwrap();
    assert_eq!(readiness.store_failure().await, Some(FailureClass::NotRunning));
}
