//! The end-to-end floor: hyper, HMAC, UUIDv7, a writer thread, a syncer thread, and a 201 after the fsync. No actors, no
//! refusals, no fences: a receiver that keeps the one promise and cannot fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::{mpsc, oneshot};

use super::FloorError;
use super::check::now_ms;
use super::database::{Database, HEAD_BYTES, VALUE_BYTES};
use super::server::{self, Hook, Keep};

/// Hooks that wait for the writer.
const WAITING_MAX: usize = 8_192;

/// Hooks of one group, as the node has it by default.
const GROUP_HOOKS_MAX: usize = 4_096;

/// Groups applied ahead of their fsync, as the node has it by default.
const UNSYNCED_MAX: usize = 8;

type Callers = Vec<oneshot::Sender<()>>;

struct Job {
    value: Vec<u8>,
    caller: oneshot::Sender<()>,
}

#[derive(Clone)]
struct ToWriter(mpsc::Sender<Job>);

impl Keep for ToWriter {
    async fn keep(&self, hook: Hook) -> bool {
        let mut value = Vec::with_capacity(VALUE_BYTES);
        value.extend_from_slice(&hook.id);
        value.extend_from_slice(&hook.at_ms.to_be_bytes());
        value.resize(HEAD_BYTES, b'h');
        value.extend_from_slice(&hook.body);
        let (caller, durable) = oneshot::channel();
        self.0.send(Job { value, caller }).await.is_ok() && durable.await.is_ok()
    }
}

pub(super) fn serve(directory: &Path, like: &Path) -> Result<(), FloorError> {
    let database = Arc::new(Database::open(directory, like)?);
    let (to_writer, jobs) = mpsc::channel(WAITING_MAX);
    // One more is in the syncer's hands.
    let (applied, groups) = sync_channel(UNSYNCED_MAX - 1);
    let writes = Arc::clone(&database);
    // A thread that fails drops its end: every caller is then refused, and the load generator says so.
    std::thread::spawn(move || write(&writes, jobs, &applied));
    std::thread::spawn(move || sync(&database, &groups));
    server::serve(ToWriter(to_writer))
}

/// Group after group, each of everything that waits.
fn write(
    database: &Database,
    mut jobs: mpsc::Receiver<Job>,
    applied: &SyncSender<Callers>,
) -> Result<(), FloorError> {
    let (mut waiting, mut seq) = (Vec::with_capacity(GROUP_HOOKS_MAX), 1);
    while jobs.blocking_recv_many(&mut waiting, GROUP_HOOKS_MAX) > 0 {
        database.apply(seq, now_ms(), waiting.iter().map(|job| job.value.as_slice()))?;
        seq += u64::try_from(waiting.len())?;
        applied.send(waiting.drain(..).map(|job| job.caller).collect())?;
    }
    Ok(())
}

/// One sync for every group applied so far, and their answers.
fn sync(database: &Database, groups: &Receiver<Callers>) -> Result<(), FloorError> {
    while let Ok(mut callers) = groups.recv() {
        groups.try_iter().for_each(|more| callers.extend(more));
        database.sync()?;
        for caller in callers {
            // The caller may be gone.
            let _ = caller.send(());
        }
    }
    Ok(())
}
