//! The two threads of the commit path.
//!
//! A group costs one hand-over, one wake-up and one answer: about 9 us, where the blocking pool costs 32 us and now and
//! then a few milliseconds. Both threads end when their owner is dropped, after what they were already handed.

use std::io;
use std::thread::JoinHandle;

use ankusa_actors::ports::KvError;
use tokio::sync::{mpsc, oneshot};

use super::error::not_running;

/// Jobs that wait for the thread. The Writer and the Syncer hand over one at a time; the rest is for fences and for
/// those who write outside the commit path and need it durable.
const WAITING_MAX: usize = 16;

type Answer = Result<(), KvError>;

struct Job<T> {
    what: T,
    answer: oneshot::Sender<Answer>,
}

/// A thread that does one kind of work.
pub(super) struct Worker<T> {
    op: &'static str,
    jobs: Option<mpsc::Sender<Job<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    /// One job after the other, in the order they were handed over.
    pub(super) fn one_by_one(
        name: &str,
        op: &'static str,
        mut work: impl FnMut(T) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, op, move |mut jobs| {
            while let Some(Job { what, answer }) = jobs.blocking_recv() {
                // Whoever asked may be gone; the work was still asked for.
                let _ = answer.send(work(what));
            }
        })
    }

    fn spawn(
        name: &str,
        op: &'static str,
        serve: impl FnOnce(mpsc::Receiver<Job<T>>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let named = std::thread::Builder::new().name(name.to_owned());
        let thread = named.spawn(move || serve(receiver))?;
        Ok(Self { op, jobs: Some(sender), thread: Some(thread) })
    }

    /// Hands `what` over and waits for the answer. Once handed over it is done, whether or not anybody still waits.
    pub(super) async fn ask(&self, what: T) -> Answer {
        let gone = || not_running(self.op, "its thread has ended");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        let (answer, answered) = oneshot::channel();
        jobs.send(Job { what, answer }).await.map_err(|_closed| gone())?;
        answered.await.map_err(|_dropped| gone())?
    }
}

impl Worker<()> {
    /// Everybody who waits when the work begins gets the same answer: one sync covers all that was applied before it.
    /// A failure is the answer for good: after it, only an open tells what is on the disk.
    pub(super) fn all_at_once(
        name: &str,
        op: &'static str,
        mut work: impl FnMut() -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, op, move |mut jobs| {
            let mut waiting = Vec::with_capacity(WAITING_MAX);
            let mut last = Ok(());
            while jobs.blocking_recv_many(&mut waiting, WAITING_MAX) > 0 {
                last = last.and_then(|()| work());
                for Job { what: (), answer } in waiting.drain(..) {
                    let _ = answer.send(last.clone());
                }
            }
        })
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there was printed where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn failed() -> KvError {
        not_running("test", "failed")
    }

    #[tokio::test]
    async fn jobs_are_done_in_order_and_each_has_its_own_answer() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let journal = Arc::clone(&done);
        let worker = Worker::one_by_one("test", "test", move |n| {
            journal.lock().unwrap().push(n);
            if n == 2 { Err(failed()) } else { Ok(()) }
        });
        let worker = worker.unwrap();
        let answers = tokio::join!(worker.ask(1), worker.ask(2), worker.ask(3));
        assert_eq!((answers.0.is_ok(), answers.1.is_ok(), answers.2.is_ok()), (true, false, true));
        assert_eq!(*done.lock().unwrap(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn what_was_handed_over_is_done_before_the_thread_ends() {
        let done = Arc::new(Mutex::new(0));
        let count = Arc::clone(&done);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let worker = Worker::one_by_one("test", "test", move |()| {
            let _ = held.recv();
            *count.lock().unwrap() += 1;
            Ok(())
        });
        let worker = worker.unwrap();
        for _ in 0..3 {
            let gave_up = tokio::time::timeout(std::time::Duration::ZERO, worker.ask(())).await;
            assert!(gave_up.is_err());
        }
        drop(hold);
        drop(worker);
        assert_eq!(*done.lock().unwrap(), 3);
    }

    #[tokio::test]
    async fn one_piece_of_work_answers_everybody_who_waited_for_it() {
        let done = Arc::new(Mutex::new(0));
        let count = Arc::clone(&done);
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        let (began, has_begun) = std::sync::mpsc::channel::<()>();
        let worker = Worker::all_at_once("test", "test", move || {
            began.send(()).unwrap();
            may_go.recv().unwrap();
            *count.lock().unwrap() += 1;
            Ok(())
        });
        let worker = worker.unwrap();
        let steps = async {
            tokio::task::yield_now().await;
            has_begun.recv().unwrap();
            go.send(()).unwrap();
            go.send(()).unwrap();
        };
        // The first may be alone; the others were handed over while it waited.
        let (a, b, c, ()) = tokio::join!(worker.ask(()), worker.ask(()), worker.ask(()), steps);
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        let runs = *done.lock().unwrap();
        assert!(runs == 1 || runs == 2, "{runs} runs for three that waited together");
    }

    #[tokio::test]
    async fn a_failed_sync_is_never_followed_by_one_that_succeeds() {
        let mut answers = vec![Ok(()), Err(failed()), Ok(())];
        let worker = Worker::all_at_once("test", "test", move || answers.remove(0)).unwrap();
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(worker.ask(()).await.is_ok());
        }
        assert_eq!(seen, [true, false, false, false]);
    }

    #[tokio::test]
    async fn a_thread_that_panicked_is_an_error_not_a_hang() {
        let worker = Worker::one_by_one("test", "test", |()| panic!("broken")).unwrap();
        for _ in 0..2 {
            let error = worker.ask(()).await.unwrap_err();
            assert_eq!(error.detail, "its thread has ended");
        }
    }
}
