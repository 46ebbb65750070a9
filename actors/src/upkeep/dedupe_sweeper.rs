//! Ends the dedupe keys that have expired, outside the Writer.
//!
//! Reads the expiry index and what is held under the keys it names, and hands each chunk to the Writer, which ends a key
//! only if it still expires when this process read that it does: a key that was taken again meanwhile is left alone. One
//! full chunk follows the other at once, so that a node that was off for days catches up; otherwise it looks again after
//! the interval.
//!
//! What is deleted stays in the way of a scan until it is compacted, so each look begins where the last one ended. Nothing
//! can come in behind: what is written later expires later.
//!
//! * **Owns:** nothing. Killing it at any point loses nothing: the next sweep finds what is left.
//! * **Talks to:** the store (reads), the Writer (`end_expired`).
//! * **Supervised by:** `services`, one_for_one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::warn;

use crate::model::cf::Cf;
use crate::model::keys::{ExpiryKey, Held, is_sentinel};
use crate::ports::{Clock, Direction, Event, Events, KvError, Page, Scan};
use crate::queue::{DedupeConfig, Ended, ExpiredKey, WriterHandle};
use crate::store::StoreHandle;
use crate::supervision::{Crash, told_to_crash};

pub enum DedupeSweeperMsg {
    /// Sweep one chunk, then look again: at once if it was full, else after the interval.
    Sweep,
    /// Panic, for a drill.
    Crash,
}

impl Crash for DedupeSweeperMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct DedupeSweeperArgs {
    pub config: DedupeConfig,
    /// The one that the Writer stamps keys by.
    pub clock: Arc<dyn Clock>,
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub writer: WriterHandle,
}

pub struct DedupeSweeperState {
    args: DedupeSweeperArgs,
    /// The first entry that was not handed over yet, and the open of the store it was read in.
    from: Option<(Vec<u8>, u64)>,
}

pub struct DedupeSweeper;

impl Actor for DedupeSweeper {
    type Msg = DedupeSweeperMsg;
    type State = DedupeSweeperState;
    type Arguments = DedupeSweeperArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<DedupeSweeperMsg>,
        args: DedupeSweeperArgs,
    ) -> Result<DedupeSweeperState, ActorProcessingErr> {
        myself.cast(DedupeSweeperMsg::Sweep)?;
        Ok(DedupeSweeperState { args, from: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<DedupeSweeperMsg>,
        message: DedupeSweeperMsg,
        state: &mut DedupeSweeperState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DedupeSweeperMsg::Sweep => {
                let look_again = state.sweep().await;
                myself.send_after(look_again, || DedupeSweeperMsg::Sweep);
            }
            DedupeSweeperMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

/// What is to be ended, and the entry behind it.
struct Chunk {
    keys: Vec<ExpiredKey>,
    seen: u64,
    next: Option<Vec<u8>>,
    is_full: bool,
}

impl DedupeSweeperState {
    /// Sweeps one chunk. Answers how long to wait before the next.
    async fn sweep(&mut self) -> Duration {
        let idle = Duration::from_millis(self.args.config.sweep_interval_ms);
        let generation = self.args.store.state().generation;
        // Where the store was opened again, what was ended last may be back.
        let from = self.from.take().filter(|(_, read_in)| *read_in == generation);
        // A store that is closed is looked at again like one with nothing to end.
        let Ok(Chunk { keys, seen, next, is_full }) = self.read(from.as_ref()).await else {
            return idle;
        };
        let ended = if keys.is_empty() {
            Some(Ended { looked: true, ..Ended::default() })
        } else {
            self.args.writer.end_expired(keys, seen).await
        };
        // Nobody could, and the next look begins at the beginning.
        let Some(ended) = ended else { return idle };
        if !ended.looked {
            self.from = from;
            return Duration::ZERO;
        }
        self.tell(ended);
        self.from = next.map(|next| (next, generation)).or(from);
        if is_full { Duration::ZERO } else { idle }
    }

    async fn read(&self, from: Option<&(Vec<u8>, u64)>) -> Result<Chunk, KvError> {
        let DedupeSweeperArgs { config, clock, store, writer, .. } = &self.args;
        let mut range = ExpiryKey::expired_by(clock.now_ms());
        if let Some((from, _)) = from {
            range.start.clone_from(from);
        }
        let (cf, direction) = (Cf::Index, Direction::Forward);
        let max_rows = config.sweep_chunk;
        let scan = Scan { cf, range, direction, max_rows, max_bytes: usize::MAX };
        let Page { pairs, more } = store.scan(scan).await?;
        let next = pairs.last().map(|(last, _)| [last.as_slice(), &[0]].concat());
        let entries = pairs.into_iter().filter(|(key, value)| !is_sentinel(cf, key, value));
        let mut keys: Vec<ExpiredKey> = entries.map(|(entry, _)| expired(entry)).collect();
        let seen = writer.look_at_keys();
        if keys.is_empty() {
            return Ok(Chunk { keys, seen, next, is_full: more });
        }
        let wanted = keys.iter().filter_map(|key| Some(key.key.as_ref()?.to_vec())).collect();
        let held = store.multi_get(cf, wanted).await?;
        let named = keys.iter_mut().filter(|key| key.key.is_some());
        for (key, held) in named.zip(held) {
            key.held = Held::read(held.as_deref());
        }
        Ok(Chunk { keys, seen, next, is_full: more })
    }

    fn tell(&self, ended: Ended) {
        let Ended { keys, entries, unreadable, looked: _ } = ended;
        if unreadable > 0 {
            warn!(
                unreadable,
                "dedupe keys, or entries of their expiry, could not be read: removed"
            );
        }
        if entries > 0 {
            warn!(entries, "entries in the expiry of dedupe keys stood for no key: removed");
        }
        let pruned = keys.saturating_add(unreadable);
        if pruned > 0 {
            self.args.events.emit(&Event::DedupePruned { keys: pruned });
        }
    }
}

/// Nothing is known yet of who holds the key.
fn expired(entry: Vec<u8>) -> ExpiredKey {
    let read = ExpiryKey::decode(&entry);
    let expires_at_ms = read.map_or(0, |read| read.expires_at_ms);
    let key = read.map(|read| Bytes::from(read.dedupe.encode()));
    ExpiredKey { entry, key, expires_at_ms, held: Held::Nothing }
}
