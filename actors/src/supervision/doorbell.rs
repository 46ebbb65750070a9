//! A wake-up that never piles up.
//!
//! Mailboxes are unbounded, so work waits in queues of its own and the mailbox carries at most one message saying that
//! there is some: however often the bell is rung, it rings once until it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ractor::Message;

use super::Slot;

pub struct Doorbell<M: Message> {
    slot: Slot<M>,
    rung: Arc<AtomicBool>,
    message: fn() -> M,
}

impl<M: Message> Doorbell<M> {
    pub fn new(slot: &Slot<M>, message: fn() -> M) -> Self {
        Self { slot: slot.clone(), rung: Arc::default(), message }
    }

    /// Sends the wake-up, unless one is already under way.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) && !self.slot.cast((self.message)()) {
            self.rung.store(false, Ordering::Release);
        }
    }

    /// Called by the owner before it looks for work, and when it starts: a predecessor may have died with the wake-up
    /// unread.
    pub fn answered(&self) {
        self.rung.store(false, Ordering::Release);
    }
}

impl<M: Message> Clone for Doorbell<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot.clone(), rung: Arc::clone(&self.rung), message: self.message }
    }
}

#[cfg(test)]
mod tests {
    use ractor::{Actor, ActorProcessingErr, ActorRef};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::task::yield_now;

    use super::*;

    /// Passes on every wake-up that reaches it.
    struct Sleeper;

    impl Actor for Sleeper {
        type Msg = ();
        type State = UnboundedSender<()>;
        type Arguments = UnboundedSender<()>;

        async fn pre_start(
            &self,
            _: ActorRef<()>,
            woken: UnboundedSender<()>,
        ) -> Result<UnboundedSender<()>, ActorProcessingErr> {
            Ok(woken)
        }

        async fn handle(
            &self,
            _: ActorRef<()>,
            (): (),
            woken: &mut UnboundedSender<()>,
        ) -> Result<(), ActorProcessingErr> {
            Ok(woken.send(())?)
        }
    }

    async fn move_in(slot: &Slot<()>) -> UnboundedReceiver<()> {
        let (sender, woken) = unbounded_channel();
        slot.publish(Actor::spawn(None, Sleeper, sender).await.unwrap().0);
        woken
    }

    async fn wakes(woken: &mut UnboundedReceiver<()>) -> usize {
        for _ in 0..10 {
            yield_now().await;
        }
        std::iter::from_fn(|| woken.try_recv().ok()).count()
    }

    #[tokio::test]
    async fn it_rings_once_until_it_is_answered() {
        let slot = Slot::default();
        let bell = Doorbell::new(&slot, || ());
        let mut woken = move_in(&slot).await;
        bell.ring();
        bell.clone().ring();
        assert_eq!(wakes(&mut woken).await, 1);
        bell.ring();
        assert_eq!(wakes(&mut woken).await, 0, "it has not looked yet");
        bell.answered();
        bell.ring();
        assert_eq!(wakes(&mut woken).await, 1);
    }

    #[tokio::test]
    async fn rung_while_nobody_is_in_it_rings_for_the_next_one_again() {
        let slot = Slot::default();
        let bell = Doorbell::new(&slot, || ());
        bell.ring();
        let mut woken = move_in(&slot).await;
        bell.ring();
        assert_eq!(wakes(&mut woken).await, 1);
    }

    #[tokio::test]
    async fn a_wake_up_that_died_unread_with_its_owner_does_not_silence_it() {
        let slot = Slot::default();
        let bell = Doorbell::new(&slot, || ());
        let _gone = move_in(&slot).await;
        let owner = slot.get().unwrap();
        bell.ring();
        owner.kill();
        let mut woken = move_in(&slot).await;
        bell.answered();
        bell.ring();
        assert_eq!(wakes(&mut woken).await, 1);
    }
}
