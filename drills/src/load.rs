//! The clients: a plan of requests that follows from a seed, and keep-alive connections that carry it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ankusa_drills_check::{Digest, Outcome, Request};
use ankusa_drills_replay::Rng;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use sha2::Sha256;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::http::{Answer, Connection, NoAnswer};
use crate::journal::Journal;
use crate::timings::End;

/// The sources of a drilled node: each has its own tenant.
pub const SOURCES: [SourcePlan; 3] = [
    SourcePlan { id: "alpha", tenant: "acme", dedupes: true },
    SourcePlan { id: "beta", tenant: "globex", dedupes: false },
    SourcePlan { id: "gamma", tenant: SHARED, dedupes: true },
];

/// The source that holds what does not verify. All it gets is forged.
pub const HOLDING: SourcePlan = SourcePlan { id: "delta", tenant: "acme", dedupes: false };

/// One request in so many is, where a plan forges: of a multiple of [`AT_ONCE`], the last.
const FORGED_ONE_IN: u64 = 16;

/// The tenant of a source that answers the URLs of every tenant.
const SHARED: &str = "default";

/// Tenants of that source, where URLs name them.
const TENANTS: u64 = 50;

/// How often a repeated event is sent at once.
const AT_ONCE: u64 = 4;

/// How many requests ago an event was, that is sent once more.
const LATE: std::ops::Range<u64> = 200..2_000;

/// The header with the key of the event.
pub const KEY_HEADER: &str = "x-github-delivery";

/// The source whose hooks are delivered in order, where a node is set up so.
pub const ORDERED_SOURCE: &str = "beta";

/// The header whose value its hooks are in order by.
pub const LANE_HEADER: &str = "x-drill-lane";

/// Values of it.
const LANES: u64 = 8;

/// The secret every source verifies with, the way GitHub signs.
pub const SECRET: &str = "a secret known to every client of a drill";

/// The path prefix of ingest.
pub const PREFIX: &str = "/webhooks";

/// Longest wait for an answer. Longer than any answer of a node that works.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Wait before connecting again to a node that is not there.
const RECONNECT: Duration = Duration::from_millis(5);

/// Wait after a refusal: a provider would wait longer, and a client that does not wait at all spends the whole plan on
/// refusals.
const AFTER_REFUSAL: Duration = Duration::from_millis(20);

/// A source.
#[derive(Clone, Copy, Debug)]
pub struct SourcePlan {
    pub id: &'static str,
    pub tenant: &'static str,
    /// Whether it tells repetitions by the key of the event.
    pub dedupes: bool,
}

/// What is sent: request `n` of a plan is the same whenever it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    pub seed: u64,
    /// Events are sent more than once, with the key of the first time, and one source has many tenants.
    repeats: bool,
    /// Some requests are signed by somebody who does not know the secret.
    forges: bool,
}

impl LoadPlan {
    /// Every request is another event.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, repeats: false, forges: false }
    }

    /// Of the sources that know keys, half of the events are sent four times at once, and one request in eight is one of
    /// an event of a while ago. The URL names the tenant.
    #[must_use]
    pub fn with_repeats(seed: u64) -> Self {
        Self { seed, repeats: true, forges: false }
    }

    /// One request in [`FORGED_ONE_IN`] is forged, and sent to the source that holds what does not verify.
    #[must_use]
    pub const fn with_forgeries(self) -> Self {
        Self { forges: true, ..self }
    }

    /// Whether request `number` is one of these. None is of an event that is told of more than once.
    #[must_use]
    pub const fn is_forged(&self, number: u64) -> bool {
        self.forges && number % FORGED_ONE_IN == FORGED_ONE_IN - 1
    }

    /// The request that first told of the event that request `number` tells of.
    #[must_use]
    pub fn event(&self, number: u64) -> u64 {
        if self.is_forged(number) {
            return number;
        }
        let late = self.late(number).filter(|at| !self.is_forged(*at));
        let late = late.map(|at| self.event_at_once(at));
        let event = late.filter(|event| self.late(*event).is_none());
        let event = event.unwrap_or_else(|| self.event_at_once(number));
        if self.repeats && self.source_of(event).dedupes { event } else { number }
    }

    /// Of four requests in a row, all tell of one event, or each of its own.
    fn event_at_once(&self, number: u64) -> u64 {
        let first = number - number % AT_ONCE;
        let is_repeated = Rng::new(self.seed.rotate_left(23) ^ first).below(2) == 0;
        if is_repeated { first } else { number }
    }

    /// The request of a while ago whose event this one may tell of once more. Never one that comes first.
    fn late(&self, number: u64) -> Option<u64> {
        let mut chance = Rng::new(self.seed.rotate_left(17) ^ number);
        let back = LATE.start + chance.below(LATE.end - LATE.start);
        let is_late = number % AT_ONCE == AT_ONCE - 1 && chance.below(2) == 0;
        number.checked_sub(back).filter(|_| is_late)
    }

    /// The source request `number` goes to.
    #[must_use]
    pub fn source(&self, number: u64) -> SourcePlan {
        self.source_of(self.event(number))
    }

    fn source_of(&self, event: u64) -> SourcePlan {
        if self.is_forged(event) {
            return HOLDING;
        }
        let [alpha, beta, gamma] = SOURCES;
        match self.rng(event).below(3) {
            0 => alpha,
            1 => beta,
            _ => gamma,
        }
    }

    /// Where request `number` is posted to.
    #[must_use]
    pub fn path(&self, number: u64) -> String {
        let SourcePlan { id, tenant, .. } = self.source(number);
        if !self.repeats {
            format!("{PREFIX}/{id}")
        } else if tenant == SHARED {
            let tenant = self.rng(self.event(number)).draw() % TENANTS;
            format!("{PREFIX}/crowd-{tenant}/{id}")
        } else {
            format!("{PREFIX}/{tenant}/{id}")
        }
    }

    /// What request `number` says to be in order by.
    #[must_use]
    pub fn lane(&self, number: u64) -> u64 {
        let mut rng = self.rng(number);
        rng.draw();
        rng.draw();
        rng.below(LANES)
    }

    /// The lane of a request that is to be delivered in order.
    #[must_use]
    pub fn ordered_lane(&self, number: u64) -> Option<String> {
        let source = self.source(number).id;
        (source == ORDERED_SOURCE).then(|| format!("{source} {}", self.lane(number)))
    }

    /// The body of request `number`: the number of its event, then bytes of every value, up to 2 KiB or, for one in 64, 16 KiB. Some
    /// bodies lie in the hooks family and some, beyond 4 KiB, in its blob files.
    #[must_use]
    pub fn body(&self, number: u64) -> Vec<u8> {
        let number = self.event(number);
        let mut rng = self.rng(number);
        rng.draw();
        let most = if rng.below(64) == 0 { 16 << 10 } else { 2 << 10 };
        let length = 64 + rng.up_to(most - 64);
        let mut body = format!("drill {} request {number} ", self.seed).into_bytes();
        while body.len() < length {
            body.extend_from_slice(&rng.draw().to_le_bytes());
        }
        body
    }

    /// Request `number`, as a ledger has it.
    #[must_use]
    pub fn request(&self, number: u64, outcome: Outcome) -> Request {
        Request {
            source: self.source(number).id.to_owned(),
            body: Digest::of(&self.body(number)),
            outcome,
        }
    }

    fn rng(&self, number: u64) -> Rng {
        Rng::new(self.seed.rotate_left(32) ^ number)
    }
}

/// Clients at work.
pub struct Load {
    clients: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts `clients` keep-alive clients that post the requests from `next` on, until `next` reaches `end` or they are
    /// stopped. Every answer goes to the journal.
    #[must_use]
    pub fn start(
        clients: usize,
        port: u16,
        plan: LoadPlan,
        next: &Arc<AtomicU64>,
        end: u64,
        journal: &Arc<Journal>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for _ in 0..clients {
            let client = Client {
                port,
                plan,
                next: Arc::clone(next),
                end,
                journal: Arc::clone(journal),
                stop: Arc::clone(&stop),
            };
            running.spawn(client.run());
        }
        Self { clients: running, stop }
    }

    /// Lets every client finish the request it is at, and no other.
    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.finish().await;
    }

    /// Waits for the last request to be answered.
    pub async fn finish(mut self) {
        while self.clients.join_next().await.is_some() {}
    }
}

struct Client {
    port: u16,
    plan: LoadPlan,
    next: Arc<AtomicU64>,
    end: u64,
    journal: Arc<Journal>,
    stop: Arc<AtomicBool>,
}

impl Client {
    async fn run(self) {
        let mut kept: Option<Connection> = None;
        while !self.stop.load(Ordering::SeqCst) {
            // Connected before a number is drawn: a request that was never sent is in no ledger.
            let connected = match kept.take() {
                Some(connection) => Ok(connection),
                None => Connection::to_port(self.port).await,
            };
            let Ok(mut connection) = connected else {
                sleep(RECONNECT).await;
                continue;
            };
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= self.end {
                return;
            }
            self.journal.sending(number);
            let sent = Instant::now();
            let answer = self.post(&mut connection, number).await;
            if matches!(answer, Err(NoAnswer::NotSent(_))) {
                self.journal.not_sent(number);
                continue;
            }
            self.journal.timings().add(sent.elapsed(), End::of(&answer));
            if is_duplicate(&answer) {
                self.journal.repeats(number);
            }
            if answer.is_ok() {
                kept = Some(connection);
            }
            let outcome = outcome(answer);
            let refused = outcome == Outcome::Refused;
            self.journal.answered(number, outcome);
            if refused {
                sleep(AFTER_REFUSAL).await;
            }
        }
    }

    async fn post(&self, connection: &mut Connection, number: u64) -> Result<Answer, NoAnswer> {
        let body = self.plan.body(number);
        let path = self.plan.path(number);
        let signature = if self.plan.is_forged(number) { sign(b"") } else { sign(&body) };
        let headers = [
            (KEY_HEADER, self.plan.event(number).to_string()),
            ("x-hub-signature-256", signature),
            (LANE_HEADER, self.plan.lane(number).to_string()),
        ];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        connection.send(Method::POST, &path, &headers, Bytes::from(body), PATIENCE).await
    }
}

/// `sha256=` and the HMAC of the body under [`SECRET`].
#[must_use]
pub fn sign(body: &[u8]) -> String {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()) else {
        return String::new();
    };
    mac.update(body);
    let digest = Digest::from_bytes(mac.finalize().into_bytes().into());
    format!("sha256={digest}")
}

/// Whether the answer says that the event was known.
fn is_duplicate(answer: &Result<Answer, NoAnswer>) -> bool {
    let accepted = answer
        .as_ref()
        .ok()
        .and_then(|Answer { body, .. }| serde_json::from_slice::<serde_json::Value>(body).ok());
    accepted.is_some_and(|accepted| accepted.get("duplicate") == Some(&true.into()))
}

#[derive(Deserialize)]
struct Accepted {
    id: String,
    status: String,
}

/// What an answer means. A 201 promises a hook, a 202 that what came is held, and every other answer says that nothing was
/// stored.
pub(crate) fn outcome(answer: Result<Answer, NoAnswer>) -> Outcome {
    let Ok(Answer { status, body }) = answer else { return Outcome::Unknown };
    if status == StatusCode::ACCEPTED {
        return Outcome::Held;
    }
    if status != StatusCode::CREATED {
        return Outcome::Refused;
    }
    match serde_json::from_slice::<Accepted>(&body) {
        Ok(Accepted { id, status }) if status == "accepted" => Outcome::Acked { id },
        // A 201 that does not say what it accepted still promised it: an id no hook has will be found missing.
        _ => Outcome::Acked { id: String::from_utf8_lossy(&body).into_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_the_same_thing_twice_and_never_the_same_body() {
        let plan = LoadPlan::new(7);
        let bodies: std::collections::BTreeSet<Vec<u8>> =
            (0..500).map(|number| plan.body(number)).collect();
        assert_eq!(bodies.len(), 500);
        assert_eq!(plan.body(3), plan.body(3));
        assert!(bodies.iter().all(|body| (64..(16 << 10) + 8).contains(&body.len())));
        assert!(bodies.iter().any(|body| body.len() > 4 << 10));
        let sources: std::collections::BTreeSet<&str> =
            (0..500).map(|number| plan.source(number).id).collect();
        assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["alpha", "beta", "gamma"]);
    }

    #[test]
    fn a_repeated_event_is_the_same_request_and_comes_at_once_and_late() {
        let plan = LoadPlan::with_repeats(7);
        let repeated: Vec<u64> =
            (0..4_000).filter(|number| plan.event(*number) != *number).collect();
        assert!((1_000..2_500).contains(&repeated.len()), "{}", repeated.len());
        for number in &repeated {
            let event = plan.event(*number);
            assert_eq!(plan.event(event), event, "{number}");
            assert_eq!(plan.body(*number), plan.body(event));
            assert_eq!(plan.path(*number), plan.path(event));
            assert!(plan.source(*number).dedupes);
        }
        assert!(repeated.iter().any(|number| number - plan.event(*number) > 200));
        let paths: std::collections::BTreeSet<String> =
            (0..4_000).map(|number| plan.path(number)).collect();
        assert_eq!(paths.len(), 2 + 50);
    }

    #[test]
    fn a_forged_request_is_of_no_other_event_and_goes_to_the_source_that_holds_it() {
        let plan = LoadPlan::with_repeats(7).with_forgeries();
        let forged: Vec<u64> = (0..64).filter(|number| plan.is_forged(*number)).collect();
        assert_eq!(forged, [15, 31, 47, 63]);
        for number in 0..4_000 {
            let (event, is_forged) = (plan.event(number), plan.is_forged(number));
            assert_eq!(is_forged, plan.source(number).id == "delta", "{number}");
            assert_eq!(is_forged, plan.is_forged(event), "{number}");
            assert!(!is_forged || event == number, "{number}");
        }
        assert_eq!(plan.path(15), "/webhooks/acme/delta");
        assert!(!LoadPlan::new(7).is_forged(15));
    }

    #[test]
    fn an_answer_is_acked_held_refused_or_unknown() {
        let answer = |status, body: &'static str| Ok(Answer { status, body: Bytes::from(body) });
        assert_eq!(
            outcome(answer(StatusCode::CREATED, r#"{"id":"x","status":"accepted"}"#)),
            Outcome::Acked { id: "x".into() }
        );
        assert_eq!(outcome(answer(StatusCode::ACCEPTED, "{}")), Outcome::Held);
        assert_eq!(outcome(answer(StatusCode::CREATED, "?")), Outcome::Acked { id: "?".into() });
        assert_eq!(
            outcome(answer(StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"overload"}"#)),
            Outcome::Refused
        );
        assert_eq!(outcome(Err(NoAnswer::TimedOut(PATIENCE))), Outcome::Unknown);
    }

    #[test]
    fn a_body_is_signed_as_github_signs() {
        // As `openssl dgst -sha256 -hmac` has it.
        assert_eq!(
            sign(b"{}"),
            "sha256=4cceb881015806c7f2a8c999dab1e3da6e86f58f6d026b6d3049d055c15af708"
        );
    }
}
