//! A sink that says what it was told to say and remembers what it was sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::model::ids::HookId;
use crate::ports::{Delivery, Outcome, Sink};

#[derive(Debug, Default)]
struct State {
    /// What the next attempts of one hook are answered.
    of_hook: BTreeMap<HookId, VecDeque<Outcome>>,
    /// What the next attempts of any hook without a script of its own are answered.
    of_any: VecDeque<Outcome>,
    /// Everything after that.
    otherwise: Option<Outcome>,
    delay: Duration,
    deliveries: Vec<Delivery>,
    in_flight: usize,
    in_flight_max: usize,
}

/// A sink with a script. Without one it answers `Ok` at once.
#[derive(Debug)]
pub struct SimSink {
    module: &'static str,
    kind: &'static str,
    state: Mutex<State>,
}

impl SimSink {
    pub fn new(module: &'static str, kind: &'static str) -> Self {
        Self { module, kind, state: Mutex::default() }
    }

    /// The next attempts of this hook are answered so, in order.
    pub fn answer_hook(&self, id: HookId, outcomes: impl IntoIterator<Item = Outcome>) {
        self.state().of_hook.entry(id).or_default().extend(outcomes);
    }

    /// The next attempts of hooks without a script of their own are answered so, in order.
    pub fn answer(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.state().of_any.extend(outcomes);
    }

    /// Every attempt no script speaks of is answered so.
    pub fn answer_otherwise(&self, outcome: Outcome) {
        self.state().otherwise = Some(outcome);
    }

    /// Every attempt from now on takes this long.
    pub fn slow(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Every attempt that reached the sink, in the order they came, answered or not.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.state().deliveries.clone()
    }

    /// The same as `<hook id> #<attempt>` lines.
    pub fn journal(&self) -> Vec<String> {
        let line = |delivery: &Delivery| format!("{} #{}", delivery.envelope.id, delivery.attempt);
        self.state().deliveries.iter().map(line).collect()
    }

    /// The most attempts that were ever under way at once.
    pub fn in_flight_max(&self) -> usize {
        self.state().in_flight_max
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Journals an attempt and draws its answer.
    fn begin(&self, delivery: &Delivery) -> (Outcome, Duration) {
        let mut state = self.state();
        state.deliveries.push(delivery.clone());
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        let scripted = match state.of_hook.get_mut(&delivery.envelope.id) {
            Some(script) => script.pop_front(),
            None => state.of_any.pop_front(),
        };
        let outcome = scripted.or_else(|| state.otherwise.clone()).unwrap_or(Outcome::Ok);
        (outcome, state.delay)
    }
}

/// An attempt under way; one that is given up on ends too.
struct InFlight<'a>(&'a SimSink);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

#[async_trait]
impl Sink for SimSink {
    fn module(&self) -> &'static str {
        self.module
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let (outcome, delay) = self.begin(delivery);
        let _in_flight = InFlight(self);
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay).await;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::model::envelope::Envelope;

    fn delivery(id: HookId, attempt: u32) -> Delivery {
        let envelope = Envelope {
            id,
            source_id: "s".to_owned(),
            tenant_id: None,
            received_at_ms: 0,
            method: "POST".to_owned(),
            path: "/s".to_owned(),
            headers: Vec::new(),
            content_type: None,
            body: Bytes::new(),
            dedupe_key: None,
            verification: None,
        };
        Delivery {
            envelope: Arc::new(envelope),
            tenant_id: "default".to_owned(),
            attempt,
            replay_id: None,
            forwarded: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_follows_its_script_and_journals_every_attempt() {
        let (a, b) = (HookId::v7(1, 0), HookId::v7(2, 0));
        let sink = SimSink::new("Elixir.Sim", "sim");
        sink.answer_hook(a, [Outcome::Retry("busy".to_owned()), Outcome::Ok]);
        sink.answer([Outcome::Permanent("no".to_owned())]);
        sink.answer_otherwise(Outcome::RetryAfter { ms: 5, reason: "later".to_owned() });
        let mut outcomes = Vec::new();
        for attempt in [delivery(a, 1), delivery(b, 1), delivery(a, 2), delivery(b, 2)] {
            outcomes.push(sink.deliver(&attempt).await);
        }
        assert_eq!(
            outcomes,
            [
                Outcome::Retry("busy".to_owned()),
                Outcome::Permanent("no".to_owned()),
                Outcome::Ok,
                Outcome::RetryAfter { ms: 5, reason: "later".to_owned() },
            ]
        );
        assert_eq!(
            sink.journal(),
            [format!("{a} #1"), format!("{b} #1"), format!("{a} #2"), format!("{b} #2")]
        );
        assert_eq!(sink.in_flight_max(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_given_up_on_is_no_longer_in_flight() {
        let sink = SimSink::new("Elixir.Sim", "sim");
        sink.slow(Duration::from_secs(60));
        let late = delivery(HookId::v7(1, 0), 1);
        let answer = tokio::time::timeout(Duration::from_secs(1), sink.deliver(&late)).await;
        assert!(answer.is_err());
        sink.slow(Duration::from_secs(1));
        let (one, two) = tokio::join!(sink.deliver(&late), sink.deliver(&late));
        assert_eq!((one, two), (Outcome::Ok, Outcome::Ok));
        assert_eq!(sink.in_flight_max(), 2);
    }
}
