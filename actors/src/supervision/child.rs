//! One row of a supervisor's table: how a child is started, asked to leave, and made to crash.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorCell, Message, SpawnErr};

use super::{Slot, Supervisor, SupervisorArgs, SupervisorMsg};

/// How a child is asked to leave before it is killed.
#[derive(Clone, Copy, Debug)]
pub enum Shutdown {
    /// Finish the message in hand, drop the rest of the mailbox.
    Stop(Duration),
    /// Work through the mailbox first.
    Drain(Duration),
}

/// A message that makes its actor panic: what `ctl crash` and the drills send.
pub trait Crash {
    fn crash() -> Self;
}

/// What a worker does with its [`Crash`] message: a panic like any other, through its handler.
#[expect(clippy::panic, reason = "this is what it is for")]
pub fn told_to_crash() -> ! {
    panic!("told to crash")
}

pub(super) struct Running {
    pub(super) cell: ActorCell,
    pub(super) task: JoinHandle<()>,
}

type StartFuture = Pin<Box<dyn Future<Output = Result<Running, SpawnErr>> + Send>>;
type CrashFn = Arc<dyn Fn() -> bool + Send + Sync>;

/// A child of a supervisor.
pub struct ChildSpec {
    pub(super) id: Arc<str>,
    pub(super) shutdown: Shutdown,
    /// Empty for a worker.
    pub(super) strategy: &'static str,
    pub(super) start: Box<dyn Fn(ActorCell) -> StartFuture + Send + Sync>,
    pub(super) crash: CrashFn,
}

impl ChildSpec {
    /// A child built afresh by `make` at every start, and published in `slot`.
    pub fn new<A>(
        id: &str,
        shutdown: Shutdown,
        slot: &Slot<A::Msg>,
        make: impl Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    ) -> Self
    where
        A: Actor,
        A::Msg: Crash,
    {
        Self::build(id, shutdown, "", slot, make)
    }

    /// A supervisor as a child. `make` lists its children afresh at every start.
    pub fn supervisor(
        id: &str,
        shutdown: Shutdown,
        make: impl Fn() -> SupervisorArgs + Send + Sync + 'static,
    ) -> Self {
        let strategy = make().strategy.as_str();
        Self::build(id, shutdown, strategy, &Slot::<SupervisorMsg>::default(), move || {
            (Supervisor, make())
        })
    }

    fn build<A>(
        id: &str,
        shutdown: Shutdown,
        strategy: &'static str,
        slot: &Slot<A::Msg>,
        make: impl Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    ) -> Self
    where
        A: Actor,
        A::Msg: Crash,
    {
        let start_slot = slot.clone();
        let start = move |supervisor: ActorCell| -> StartFuture {
            let (actor, args) = make();
            let slot = start_slot.clone();
            Box::pin(async move {
                let (actor, task) = Actor::spawn_linked(None, actor, args, supervisor).await?;
                let cell = actor.get_cell();
                slot.publish(actor);
                Ok(Running { cell, task })
            })
        };
        let crash = crasher(slot.clone());
        Self { id: Arc::from(id), shutdown, strategy, start: Box::new(start), crash }
    }
}

fn crasher<M: Message + Crash>(slot: Slot<M>) -> CrashFn {
    Arc::new(move || slot.get().is_some_and(|actor| actor.cast(M::crash()).is_ok()))
}
