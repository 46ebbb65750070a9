//! An actor that journals its life, for whatever slot of a supervisor it is put in.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::supervision::{Board, ChildSpec, Crash, Shutdown, Slot};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;

/// What happened, with the time since the journal was begun. `+a` is a start of `a`; `-a` is the end of its state after
/// an orderly stop, `xa` after anything else.
#[derive(Clone, Debug)]
pub struct Journal {
    began: Instant,
    entries: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Default for Journal {
    fn default() -> Self {
        Self { began: Instant::now(), entries: Arc::default() }
    }
}

impl Journal {
    pub fn note(&self, what: impl Into<String>) {
        self.entries.lock().unwrap().push((self.began.elapsed(), what.into()));
    }

    /// Everything, oldest first.
    pub fn text(&self) -> String {
        let entries = self.entries.lock().unwrap();
        entries.iter().map(|(_, what)| what.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// The same, and an empty journal from here on.
    pub fn take(&self) -> String {
        let text = self.text();
        self.entries.lock().unwrap().clear();
        text
    }

    /// The whole seconds at which this was noted.
    pub fn seconds_of(&self, what: &str) -> Vec<u64> {
        let entries = self.entries.lock().unwrap();
        entries.iter().filter(|(_, noted)| noted == what).map(|(at, _)| at.as_secs()).collect()
    }
}

/// How a probe behaves, over all of its incarnations.
#[derive(Clone)]
pub struct Probe {
    pub id: String,
    pub journal: Journal,
    pub slot: Slot<ProbeMsg>,
    /// How long its state takes to let go, in real time, as closing a database would.
    pub drop_ms: u64,
    /// Starts that fail from now on.
    pub start_failures: Arc<Mutex<usize>>,
}

impl Probe {
    pub fn new(id: &str, journal: &Journal) -> Self {
        Self {
            id: id.to_owned(),
            journal: journal.clone(),
            slot: Slot::default(),
            drop_ms: 0,
            start_failures: Arc::default(),
        }
    }

    pub fn fail_starts(&self, count: usize) {
        *self.start_failures.lock().unwrap() = count;
    }

    pub fn is_up(&self) -> bool {
        self.slot.get().is_some()
    }

    pub fn child(&self, shutdown: Shutdown) -> ChildSpec {
        let probe = self.clone();
        ChildSpec::new(&self.id, shutdown, &self.slot, move || (ProbeActor, probe.clone()))
    }
}

#[derive(Debug)]
pub enum ProbeMsg {
    /// End with an error.
    Die,
    /// End by itself, as if there were no more to do.
    Leave,
    Panic,
    /// Answer 7 after this long.
    Ask(RpcReplyPort<u8>, Duration),
}

impl Crash for ProbeMsg {
    fn crash() -> Self {
        Self::Panic
    }
}

#[derive(Debug)]
pub struct ProbeActor;

/// The state of one incarnation.
pub struct Held {
    probe: Probe,
    said_goodbye: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(self.probe.drop_ms));
        let sign = if self.said_goodbye { '-' } else { 'x' };
        self.probe.journal.note(format!("{sign}{}", self.probe.id));
    }
}

impl Actor for ProbeActor {
    type Msg = ProbeMsg;
    type State = Held;
    type Arguments = Probe;

    async fn pre_start(
        &self,
        _: ActorRef<ProbeMsg>,
        probe: Probe,
    ) -> Result<Held, ActorProcessingErr> {
        let mut failures = probe.start_failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(format!("{} cannot start", probe.id).into());
        }
        drop(failures);
        probe.journal.note(format!("+{}", probe.id));
        Ok(Held { probe, said_goodbye: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<ProbeMsg>,
        message: ProbeMsg,
        _: &mut Held,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProbeMsg::Die => return Err("told to die".into()),
            ProbeMsg::Leave => myself.stop(None),
            ProbeMsg::Panic => panic!("told to panic"),
            ProbeMsg::Ask(reply, after) => {
                tokio::time::sleep(after).await;
                let _ = reply.send(7);
            }
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<ProbeMsg>,
        held: &mut Held,
    ) -> Result<(), ActorProcessingErr> {
        held.said_goodbye = true;
        Ok(())
    }
}

/// `id: state` of every child, in the order of the board.
pub fn states(board: &Board) -> Vec<String> {
    board.report().iter().map(|child| format!("{}: {}", child.id, child.state.as_str())).collect()
}
