//! The Writer, the Syncer and whoever waits, in thousands of orders: every caller is answered once, and nobody is acked
//! for a group that was fenced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc as StdArc, Mutex as StdMutex};

use shuttle::{check_random, thread};

use super::*;
use crate::queue::admission::Admission;
use crate::queue::reply::{Waiting, reply};

const ORDERS: usize = 3_000;

/// A group of one hook, and who waits for it.
fn group(seq: u64, room: &Arc<Admission>) -> (Group, Waiting) {
    let (reply, waiting) = reply();
    assert!(reply.start());
    let caller = Caller {
        reply,
        answer: CommitAnswer::Committed(Seq(seq)),
        permit: room.admit("acme", 1, 100).unwrap(),
    };
    let group =
        Group { first: Seq(seq), last: Seq(seq), opened_at: Instant::now(), callers: vec![caller] };
    (group, waiting)
}

/// What the Syncer does after an fsync that began when `covered` was applied.
fn ack(ledger: &Ledger, covered: Seq) {
    for group in ledger.take_synced(covered) {
        for caller in group.callers {
            caller.reply.send(caller.answer);
        }
    }
}

#[test]
fn a_group_is_either_acked_or_fenced() {
    check_random(
        || {
            let (ledger, room) = (Ledger::default(), Admission::new(10, 10));
            let deleted = StdArc::<StdMutex<Vec<Seq>>>::default();
            let (writer, syncer) = (ledger.clone(), ledger.clone());
            let of_writer = Arc::clone(&room);
            let writes = thread::spawn(move || {
                let mut waiting = Vec::new();
                for seq in 1..=3 {
                    let (group, waits) = group(seq, &of_writer);
                    waiting.push((seq, waits));
                    match writer.enter(group) {
                        Ok(()) => {
                            thread::yield_now();
                            writer.applied();
                        }
                        Err(group) => group.refuse(),
                    }
                }
                waiting
            });
            let syncs = thread::spawn(move || {
                for _ in 0..3 {
                    if let Some(covered) = syncer.syncable() {
                        // The fsync.
                        thread::yield_now();
                        ack(&syncer, covered);
                    }
                }
            });
            // Something fails, and what is not answered by then is deleted and refused.
            ledger.fail();
            thread::yield_now();
            for (first, _) in ledger.fence() {
                deleted.lock().unwrap().push(first);
            }
            let waiting = writes.join().unwrap();
            syncs.join().unwrap();
            ledger.fence().iter().for_each(|(first, _)| deleted.lock().unwrap().push(*first));
            ledger.fenced();
            for (seq, waiting) in waiting {
                match waiting.answered() {
                    CommitAnswer::Committed(acked) => {
                        assert_eq!(acked, Seq(seq));
                        assert!(!deleted.lock().unwrap().contains(&acked), "{acked} was deleted");
                    }
                    CommitAnswer::Refused(refusal) => {
                        assert_eq!(refusal, Refusal::StoreUnavailable);
                    }
                    CommitAnswer::Duplicate(_) | CommitAnswer::Unknown => {
                        panic!("{seq}: it repeats nobody, and nobody gave it up")
                    }
                }
            }
            assert!(ledger.is_clean());
            assert_eq!((room.records(), room.bytes()), (0, 0), "every permit came back");
        },
        ORDERS,
    );
}

#[test]
fn an_fsync_covers_only_what_was_applied_before_it_began() {
    check_random(
        || {
            let (ledger, room) = (Ledger::default(), Admission::new(10, 10));
            let applied = StdArc::<StdMutex<Seq>>::new(StdMutex::new(Seq(0)));
            let (writer, seen) = (ledger.clone(), StdArc::clone(&applied));
            let of_writer = Arc::clone(&room);
            let writes = thread::spawn(move || {
                let mut waiting = Vec::new();
                for seq in 1..=3 {
                    let (group, waits) = group(seq, &of_writer);
                    waiting.push(waits);
                    assert!(writer.enter(group).is_ok());
                    thread::yield_now();
                    *seen.lock().unwrap() = Seq(seq);
                    writer.applied();
                }
                waiting
            });
            for _ in 0..4 {
                let Some(covered) = ledger.syncable() else { continue };
                assert!(covered <= *applied.lock().unwrap(), "{covered} is not applied yet");
                thread::yield_now();
                let synced = ledger.take_synced(covered);
                assert!(synced.iter().all(|group| group.last <= covered));
                synced.into_iter().for_each(Group::refuse);
            }
            drop(writes.join().unwrap());
        },
        ORDERS,
    );
}
