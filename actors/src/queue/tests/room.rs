//! The way to the Writer, which has room for so many bytes and no more.

use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep};

use super::super::config::BatcherConfig;
use super::super::reply::{CommitAnswer, Refusal};
use super::super::writer::WriterMsg;
use super::super::writer_handle::{CommitEntry, WriterHandle};
use super::entry;

/// In the Writer's place: looks at nothing.
struct Idle;

impl Actor for Idle {
    type Msg = WriterMsg;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<WriterMsg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

const REFUSED: CommitAnswer = CommitAnswer::Refused(Refusal::StoreUnavailable);

/// A handle with room for two groups of so many bytes, and somebody behind it.
async fn handle(group_commit_max_bytes: usize) -> WriterHandle {
    let config = BatcherConfig { group_commit_max_bytes, ..BatcherConfig::default() };
    let handle = WriterHandle::new(&config);
    handle.slot().publish(Actor::spawn(None, Idle, ()).await.unwrap().0);
    handle
}

fn in_s(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn size() -> usize {
    entry("acme", "", Instant::now()).0.value.len()
}

fn commit(handle: &WriterHandle, entries: Vec<CommitEntry>) -> tokio::task::JoinHandle<()> {
    let handle = handle.clone();
    #[allow(clippy::disallowed_methods)]
    tokio::spawn(async move { handle.commit(entries).await })
}

#[tokio::test(start_paused = true)]
async fn a_batch_waits_until_there_is_room_for_it() {
    let handle = handle(size()).await;
    let (one, _one) = entry("acme", "", in_s(2));
    let (two, _two) = entry("acme", "", in_s(2));
    let (three, _three) = entry("acme", "", in_s(2));
    commit(&handle, vec![one, two]).await.unwrap();
    let third = commit(&handle, vec![three]);
    sleep(Duration::from_secs(1)).await;
    assert!(!third.is_finished());
    let taken = handle.take_if(|_| true).unwrap();
    assert_eq!((taken.entries.len(), taken.bytes), (2, 2 * size()));
    assert!(handle.take_if(|_| true).is_none(), "taken is not applied: its room is still held");
    drop(taken.room);
    third.await.unwrap();
    assert_eq!(handle.take_if(|_| true).unwrap().entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_finds_no_room_in_time_is_dropped_and_its_callers_are_refused() {
    let handle = handle(size()).await;
    let (one, _one) = entry("acme", "", in_s(60));
    let (two, _two) = entry("acme", "", in_s(60));
    commit(&handle, vec![one, two]).await.unwrap();
    let (early, early_waiting) = entry("acme", "", in_s(1));
    let (late, late_waiting) = entry("acme", "", in_s(3));
    let began = Instant::now();
    let waiting = commit(&handle, vec![early, late]);
    assert_eq!(late_waiting.answer(in_s(60)).await, REFUSED);
    assert_eq!(began.elapsed().as_secs(), 3, "as long as any of its hooks can still be started");
    assert_eq!(early_waiting.answer(in_s(60)).await, REFUSED);
    waiting.await.unwrap();
    drop(handle.take_if(|_| true).unwrap());
    assert!(handle.take_if(|_| true).is_none(), "it is not queued any more");
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_the_room_goes_alone() {
    let handle = handle(10).await;
    let (large, _large) = entry("acme", &"x".repeat(1_000), in_s(2));
    commit(&handle, vec![large]).await.unwrap();
    let (next, _next) = entry("acme", "", in_s(2));
    let next = commit(&handle, vec![next]);
    yield_now().await;
    assert!(!next.is_finished());
    drop(handle.take_if(|_| true).unwrap());
    next.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_writer_a_batch_is_dropped_at_once() {
    let handle = WriterHandle::new(&BatcherConfig::default());
    let (one, waiting) = entry("acme", "", in_s(2));
    let began = Instant::now();
    handle.commit(vec![one]).await;
    assert_eq!(waiting.answer(in_s(2)).await, REFUSED);
    assert_eq!(began.elapsed(), Duration::ZERO);
    handle.commit(Vec::new()).await;
    assert!(handle.take_if(|_| true).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_waits_can_be_refused_and_gives_its_room_back() {
    let handle = handle(size()).await;
    let (one, one_waiting) = entry("acme", "", in_s(2));
    let (two, _two) = entry("acme", "", in_s(2));
    let (three, _three) = entry("acme", "", in_s(2));
    commit(&handle, vec![one, two]).await.unwrap();
    handle.refuse_waiting();
    assert_eq!(one_waiting.answer(in_s(2)).await, REFUSED);
    commit(&handle, vec![three]).await.unwrap();
    advance(Duration::from_secs(1)).await;
    assert_eq!(handle.take_if(|_| true).unwrap().entries.len(), 1);
}
