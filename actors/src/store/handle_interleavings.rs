//! A close against calls, in thousands of orders: whoever closes gets the database once the last call is over, and not
//! before, and nobody gets at it after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc as StdArc, Mutex as StdMutex};

use async_trait::async_trait;
use shuttle::future::block_on;
use shuttle::{check_random, thread};

use super::*;

const ORDERS: usize = 3_000;

/// Counts the calls under way.
#[derive(Default)]
struct Busy {
    calls: AtomicUsize,
    done: StdMutex<Vec<&'static str>>,
}

struct Database(StdArc<Busy>);

impl Drop for Database {
    fn drop(&mut self) {
        assert_eq!(self.0.calls.load(Ordering::Relaxed), 0, "closed under a call");
        self.0.done.lock().unwrap().push("closed");
    }
}

#[async_trait]
impl Kv for Database {
    async fn apply(&self, _: Batch, _: Lane) -> Result<(), KvError> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        // Anything may happen meanwhile.
        shuttle::future::yield_now().await;
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.done.lock().unwrap().push("applied");
        Ok(())
    }

    async fn sync(&self) -> Result<(), KvError> {
        shuttle::future::yield_now().await;
        Ok(())
    }

    fn get(&self, _: Cf, _: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(None)
    }

    async fn multi_get(&self, _: Cf, _: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        Ok(Vec::new())
    }

    async fn scan(&self, _: Scan) -> Result<Page, KvError> {
        Ok(Page::default())
    }

    async fn at_one_moment(&self, _: crate::ports::Look) -> Result<(), KvError> {
        Ok(())
    }

    async fn stats(&self) -> Result<StoreStats, KvError> {
        Ok(StoreStats::default())
    }

    async fn verify(&self, _: Cf, _: Vec<u8>, _: u64) -> Result<Verified, KvError> {
        Ok(Verified::default())
    }
}

fn opened(busy: &StdArc<Busy>) -> Arc<Door> {
    let door = Door {
        opened: Mutex::new(None),
        notes: Mutex::default(),
        state: watch::channel(StoreState::CLOSED).0,
    };
    door.put(Box::new(Database(StdArc::clone(busy))), OpenNotes::default());
    Arc::new(door)
}

fn call(door: &Arc<Door>) -> bool {
    let store = StoreHandle { door: Arc::clone(door), slot: Slot::default() };
    let Ok(lease) = store.lease() else { return false };
    block_on(lease.kv().apply(Batch::default(), Lane::Commit)).unwrap();
    true
}

#[test]
fn a_close_gets_the_database_once_the_last_call_is_over() {
    check_random(
        || {
            let busy = StdArc::<Busy>::default();
            let door = opened(&busy);
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let door = Arc::clone(&door);
                    thread::spawn(move || usize::from(call(&door)) + usize::from(call(&door)))
                })
                .collect();
            let kv = block_on(door.take());
            assert!(kv.is_some(), "it is there, and nobody else holds it");
            assert_eq!(busy.calls.load(Ordering::Relaxed), 0, "a call is under way");
            let before = busy.done.lock().unwrap().len();
            drop(kv);
            let served: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
            assert_eq!(served, before, "nothing was applied after the close");
            assert_eq!(busy.done.lock().unwrap().last(), Some(&"closed"));
            assert!(!call(&door));
        },
        ORDERS,
    );
}

#[test]
fn one_of_two_closers_gets_it() {
    check_random(
        || {
            let busy = StdArc::<Busy>::default();
            let door = opened(&busy);
            let other = Arc::clone(&door);
            let caller = Arc::clone(&door);
            let other = thread::spawn(move || usize::from(block_on(other.take()).is_some()));
            let caller = thread::spawn(move || call(&caller));
            let mine = usize::from(block_on(door.take()).is_some());
            assert_eq!(mine + other.join().unwrap(), 1);
            let _ = caller.join().unwrap();
        },
        ORDERS,
    );
}

#[test]
fn a_call_carries_the_generation_of_the_database_it_uses() {
    check_random(
        || {
            let (first, second) = (StdArc::<Busy>::default(), StdArc::<Busy>::default());
            let door = opened(&first);
            let caller = Arc::clone(&door);
            let caller = thread::spawn(move || {
                let store = StoreHandle { door: caller, slot: Slot::default() };
                let Ok(lease) = store.lease() else { return None };
                block_on(lease.kv().apply(Batch::default(), Lane::Commit)).unwrap();
                Some(lease.generation())
            });
            drop(block_on(door.take()));
            door.put(Box::new(Database(StdArc::clone(&second))), OpenNotes::default());
            let applied = |busy: &Busy| busy.done.lock().unwrap().contains(&"applied");
            match caller.join().unwrap() {
                None => assert!(!applied(&first) && !applied(&second)),
                Some(1) => assert!(applied(&first)),
                Some(2) => assert!(applied(&second)),
                Some(other) => panic!("generation {other}"),
            }
        },
        ORDERS,
    );
}
