//! What every HTTP store shares, before real servers: attempts and waits inside one deadline, credentials, the pool, the
//! breaker, TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/scripted_store.rs"]
mod scripted_store;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::ports::{BlobError, BlobEvent, BlobScope, Clock, Entropy, Event, Events};
use ankusa_node::blob::answer::{Answer, Refusal};
use ankusa_node::blob::breaker::{Breaker, BreakerOptions, BreakerState, Breakers, Ended, Pass};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::pool::Pools;
use ankusa_node::blob::transport::{Ask, Dialect, Transport, World};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method};
use reqwest::Request;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use scripted_store::{Authority, Gate, Say, ScriptedStore};

/// Sun, 06 Nov 1994 08:49:37.800 GMT.
const NOW_MS: u64 = 784_111_777_800;
/// Longer than anything here takes on a busy machine; reached only by what hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct At(u64);

impl Clock for At {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

/// Draws the shortest of all waits, or the longest.
struct Draws(u128);

impl Entropy for Draws {
    fn bits(&self) -> u128 {
        self.0
    }
}

const SHORTEST: u128 = 0;
const LONGEST: u128 = u128::MAX;

/// `retry segments`, `open`, `half_open`, `closed`.
#[derive(Default)]
struct Journal(Mutex<Vec<String>>);

impl Journal {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Events for Journal {
    fn emit(&self, event: &Event<'_>) {
        let Event::Blob(event) = event else { panic!("{event:?}") };
        let line = match event {
            BlobEvent::Retried { scope } => format!("retry {}", scope.as_str()),
            BlobEvent::Breaker { state, .. } => (*state).to_owned(),
            BlobEvent::Done { .. } => panic!("{event:?}"),
        };
        self.0.lock().unwrap().push(line);
    }
}

/// What the dialect has for a request that is to be signed.
#[derive(Clone)]
enum Credentials {
    Fresh,
    Refused(BlobError),
    NeverCome,
}

/// Signs with the number of times its credentials were dropped. The body of a refusal is its code.
struct Plain {
    credentials: Credentials,
    dropped: AtomicU64,
}

impl Plain {
    fn with(credentials: Credentials) -> Self {
        Self { credentials, dropped: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Dialect for Plain {
    async fn authorize(&self, request: &mut Request, _: Instant) -> Result<(), BlobError> {
        match &self.credentials {
            Credentials::Fresh => {}
            Credentials::Refused(error) => return Err(error.clone()),
            Credentials::NeverCome => std::future::pending().await,
        }
        let token = format!("token-{}", self.dropped.load(Ordering::Relaxed));
        request.headers_mut().insert("authorization", HeaderValue::from_str(&token).unwrap());
        Ok(())
    }

    fn refusal(&self, answer: &Answer) -> Refusal {
        let code = String::from_utf8_lossy(&answer.body).into_owned();
        Refusal { code, ..Refusal::default() }
    }

    async fn drops_credentials(&self, answer: &Answer, _: &Refusal) -> bool {
        let drops = answer.status == 401;
        self.dropped.fetch_add(u64::from(drops), Ordering::Relaxed);
        drops
    }

    fn is_throttle(&self, refusal: &Refusal) -> bool {
        refusal.code == "SlowDown"
    }

    fn passes(&self, _: http::StatusCode, refusal: &Refusal) -> bool {
        refusal.code == "OperationAborted"
    }
}

/// No breaker, no waits, and no deadline that a busy machine could miss.
fn options() -> TransportOptions {
    TransportOptions {
        op_deadline_ms: 60_000,
        timeout_ms: 30_000,
        upload_timeout_ms: 30_000,
        breaker_failures: 0,
        ..TransportOptions::default()
    }
}

struct Way {
    world: World,
    journal: Arc<Journal>,
    transport: Arc<Transport>,
    dialect: Arc<Plain>,
    endpoint: Url,
}

fn world(draws: u128) -> (World, Arc<Journal>) {
    let journal = Arc::new(Journal::default());
    let world = World {
        clock: Arc::new(At(NOW_MS)),
        entropy: Arc::new(Draws(draws)),
        events: Arc::clone(&journal) as Arc<dyn Events>,
        pools: Arc::default(),
        breakers: Arc::default(),
    };
    (world, journal)
}

impl Way {
    fn to(server: &ScriptedStore, options: &TransportOptions) -> Self {
        Self::drawing(SHORTEST, server, options)
    }

    fn drawing(draws: u128, server: &ScriptedStore, options: &TransportOptions) -> Self {
        let (world, journal) = world(draws);
        let endpoint = Url::parse(&server.endpoint()).unwrap();
        let transport = new_transport(BlobScope::Segments, &endpoint, "bucket", options, &world);
        let (transport, dialect) =
            (Arc::new(transport.unwrap()), Arc::new(Plain::with(Credentials::Fresh)));
        Self { world, journal, transport, dialect, endpoint }
    }

    fn ask(&self, method: Method, path: &str) -> Ask {
        Ask::new(method, self.endpoint.join(path).unwrap())
    }

    fn put(&self, body: Vec<u8>) -> Ask {
        Ask { body: vec![body.into()], ..self.ask(Method::PUT, "/bucket/key") }
    }

    async fn send(&self, ask: &Ask) -> Result<Answer, BlobError> {
        self.until(ask, self.transport.deadline(None)).await
    }

    async fn until(&self, ask: &Ask, deadline: Instant) -> Result<Answer, BlobError> {
        let sent = self.transport.send(&*self.dialect, ask, deadline);
        timeout(PATIENCE, sent).await.expect("an operation ends")
    }

    async fn get(&self) -> Result<Answer, BlobError> {
        self.send(&self.ask(Method::GET, "/bucket/key")).await
    }

    /// The status that was answered, or the error.
    async fn status(&self) -> Result<u16, BlobError> {
        self.get().await.map(|answer| answer.status.as_u16())
    }

    fn breaker(&self) -> Arc<Breaker> {
        let origin = self.endpoint.origin().ascii_serialization();
        let options = BreakerOptions::from(self.transport.options());
        self.world.breakers.of(&origin, "bucket", options, &self.world.events).unwrap()
    }
}

fn new_transport(
    scope: BlobScope,
    endpoint: &Url,
    bucket: &str,
    options: &TransportOptions,
    world: &World,
) -> Result<Transport, String> {
    Transport::new(scope, endpoint, bucket, options, world).map_err(|error| error.to_string())
}

fn transport_error(why: &str) -> BlobError {
    BlobError::Transport(why.to_owned())
}

// Attempts.

#[tokio::test]
async fn what_passes_is_tried_three_times_and_everything_else_once() {
    let answers = [
        (200, 1, Ok(200)),
        (204, 1, Ok(204)),
        (304, 1, Ok(304)),
        (400, 1, Ok(400)),
        (403, 1, Ok(403)),
        (404, 1, Ok(404)),
        (409, 1, Ok(409)),
        (412, 1, Ok(412)),
        (416, 1, Ok(416)),
        (501, 1, Ok(501)),
        (408, 3, Err(transport_error("408"))),
        (429, 3, Err(BlobError::Throttled { seconds: 1 })),
        (500, 3, Err(transport_error("500"))),
        (502, 3, Err(transport_error("502"))),
        (503, 3, Err(transport_error("503"))),
        (504, 3, Err(transport_error("504"))),
    ];
    for (status, attempts, outcome) in answers {
        let server = ScriptedStore::saying([Say::status(status)]).await;
        let way = Way::to(&server, &options());
        assert_eq!((way.status().await, server.count()), (outcome, attempts), "{status}");
        let again = vec!["retry segments"; attempts - 1];
        assert_eq!(way.journal.lines(), again, "{status}");
    }
}

#[tokio::test]
async fn retries_are_what_they_are_set_to() {
    let server = ScriptedStore::saying([Say::status(500)]).await;
    for (retries, attempts) in [(0, 1), (1, 2), (5, 6)] {
        let before = server.count();
        let way = Way::to(&server, &TransportOptions { retries, ..options() });
        assert_eq!(way.status().await, Err(transport_error("500")));
        assert_eq!(server.count() - before, attempts);
    }
}

#[tokio::test]
async fn the_first_answer_that_is_no_failure_is_the_answer() {
    let script = [Say::status(500), Say::closes(), Say::status(404).body("gone")];
    let server = ScriptedStore::saying(script).await;
    let way = Way::to(&server, &options());
    let answer = way.get().await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..], server.count()), (404, &b"gone"[..], 3));
}

#[tokio::test]
async fn a_store_has_words_of_its_own_for_what_passes() {
    let script = [Say::status(409).body("OperationAborted"), Say::status(200)];
    let server = ScriptedStore::saying(script).await;
    assert_eq!((Way::to(&server, &options()).status().await, server.count()), (Ok(200), 2));

    // A throttle by its word is a throttle where the status is one that passes, and nothing else is.
    let server = ScriptedStore::saying([Say::status(503).body("SlowDown")]).await;
    let throttled = Err(BlobError::Throttled { seconds: 1 });
    assert_eq!((Way::to(&server, &options()).status().await, server.count()), (throttled, 3));
    let server = ScriptedStore::saying([Say::status(400).body("SlowDown")]).await;
    assert_eq!((Way::to(&server, &options()).status().await, server.count()), (Ok(400), 1));
}

#[tokio::test]
async fn a_connection_that_fails_is_tried_again() {
    let server = ScriptedStore::saying([Say::closes(), Say::closes(), Say::status(200)]).await;
    assert_eq!((Way::to(&server, &options()).status().await, server.count()), (Ok(200), 3));

    let way = Way::to(&server, &options());
    drop(server);
    let refused = way.status().await.unwrap_err();
    assert_eq!(refused.as_str(), "transport");
    assert_eq!(way.journal.lines(), ["retry segments"; 2]);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_asked_for_again() {
    let whole = || Say::status(200).body("0123456789");
    for cut in [whole().breaks_off(0), whole().breaks_off(9)] {
        let server = ScriptedStore::saying([cut, whole()]).await;
        let answer = Way::to(&server, &options()).get().await.unwrap();
        assert_eq!((&answer.body[..], server.count()), (&b"0123456789"[..], 2));
    }
    let server = ScriptedStore::saying([whole().breaks_off(9)]).await;
    let cut = Way::to(&server, &options()).get().await.unwrap_err();
    assert_eq!((cut.as_str(), server.count()), ("transport", 3));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read() {
    let says: [fn() -> Say; 2] =
        [|| Say::status(200).body("0123456789"), || Say::status(200).body("0123456789").chunked()];
    for say in says {
        let server = ScriptedStore::saying([say()]).await;
        let way = Way::to(&server, &options());
        let ask = |answer_max_bytes| Ask { answer_max_bytes, ..way.ask(Method::GET, "/k") };
        assert_eq!(way.send(&ask(10)).await.unwrap().body, "0123456789");
        let too_long = BlobError::Misconfigured("9 bytes are the most that is read at once".into());
        assert_eq!(way.send(&ask(9)).await.unwrap_err(), too_long);
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = ScriptedStore::saying([Say::status(200)]).await;
    for status in [301, 302, 303, 307, 308] {
        let moved = Say::status(status).header("location", format!("{}/x", other.endpoint()));
        let server = ScriptedStore::saying([moved]).await;
        let answer = Way::to(&server, &options()).get().await.unwrap();
        assert_eq!((answer.status.as_u16(), server.count(), other.count()), (status, 1, 0));
        let error = answer.error(&Refusal::default(), NOW_MS);
        let why = format!("{status}: redirects are not followed");
        assert_eq!(error, BlobError::Misconfigured(why));
    }
}

// What is sent.

#[tokio::test]
async fn a_request_says_its_length_and_is_never_chunked() {
    let server = ScriptedStore::saying([Say::status(500), Say::status(200)]).await;
    let way = Way::to(&server, &options());
    let pieces = [&b"one "[..], b"", b"two ", b"three"].map(Bytes::from_static).to_vec();
    let asks = [
        (Method::PUT, pieces, Some("13"), "one two three"),
        (Method::PUT, vec![], Some("0"), ""),
        (Method::PUT, vec![Bytes::new()], Some("0"), ""),
        (Method::POST, vec![], Some("0"), ""),
        (Method::GET, vec![], None, ""),
        (Method::HEAD, vec![], None, ""),
        (Method::DELETE, vec![], None, ""),
    ];
    for (method, body, length, sent) in asks {
        let mut ask = Ask { body, ..way.ask(method.clone(), "/bucket/a%20b?part=1&x=%2F") };
        ask.headers.insert("x-meta", HeaderValue::from_static("v"));
        way.send(&ask).await.unwrap();
        let asked = server.asked().pop().unwrap();
        assert_eq!(asked.line(), format!("{method} /bucket/a%20b?part=1&x=%2F"));
        let headers = ["content-length", "transfer-encoding", "x-meta", "expect", "referer"];
        let headers = headers.map(|name| asked.header(name));
        assert_eq!(headers, [length, None, Some("v"), None, None], "{method}");
        assert_eq!(asked.body, sent, "{method}");
    }
    // The first was tried twice: what is sent again is what was sent.
    let (first, second) = (&server.asked()[0], &server.asked()[1]);
    assert_eq!((&first.headers, &first.body), (&second.headers, &second.body));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = ScriptedStore::saying([Say::status(200).body("x")]).await;
    let way = Way::to(&server, &options());
    for _ in 0..3 {
        way.get().await.unwrap();
    }
    // Another store of the same endpoint has the same ones.
    let other =
        new_transport(BlobScope::Backup, &way.endpoint, "other", &options(), &way.world).unwrap();
    let ask = way.ask(Method::GET, "/other/k");
    other.send(&*way.dialect, &ask, other.deadline(None)).await.unwrap();
    assert_eq!((server.count(), server.connections()), (4, 1));
}

// How long.

#[tokio::test]
async fn retry_after_is_kept_to() {
    // In 200 ms, by this node's clock; and in a second.
    for (after, least_ms) in [("Sun, 06 Nov 1994 08:49:38 GMT", 200), ("1", 1_000)] {
        for status in [429, 503] {
            let asks = Say::status(status).header("retry-after", after);
            let server = ScriptedStore::saying([asks, Say::status(200)]).await;
            let began = Instant::now();
            let answered = Way::to(&server, &options()).status().await;
            assert_eq!((answered, server.count()), (Ok(200), 2));
            assert!(began.elapsed() >= Duration::from_millis(least_ms), "{after}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_that_does_not_fit_is_told_at_once() {
    let answers = [
        ("61", 61),
        ("86400", 86_400),
        ("99999999999999999999999", u64::MAX.div_ceil(1_000)),
        // 200 ms and an hour.
        ("Sun, 06 Nov 1994 09:49:38 GMT", 3_601),
    ];
    for (after, seconds) in answers {
        for status in [429, 503] {
            let server =
                ScriptedStore::saying([Say::status(status).header("retry-after", after)]).await;
            let way = Way::to(&server, &options());
            let throttled = Err(BlobError::Throttled { seconds });
            assert_eq!((way.status().await, server.count()), (throttled, 1), "{after}");
            assert_eq!(way.journal.lines(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_retry_after_of_another_failure_says_nothing() {
    for (status, after) in [(500, "3600"), (502, "3600"), (503, "0"), (503, "soon")] {
        let server =
            ScriptedStore::saying([Say::status(status).header("retry-after", after)]).await;
        let failed = Err(transport_error(&status.to_string()));
        assert_eq!((Way::to(&server, &options()).status().await, server.count()), (failed, 3));
    }
}

#[tokio::test]
async fn a_wait_that_does_not_fit_is_not_begun() {
    // At 0, 0.2 and 1.2 s; the next wait is one of five seconds.
    let server = ScriptedStore::saying([Say::status(500)]).await;
    let short = TransportOptions { op_deadline_ms: 4_500, retries: 100, ..options() };
    let way = Way::drawing(LONGEST, &server, &short);
    assert_eq!((way.status().await, server.count()), (Err(BlobError::Deadline), 3));
    assert_eq!(way.journal.lines(), ["retry segments"; 2]);
}

#[tokio::test]
async fn nothing_is_sent_past_the_deadline() {
    let server = ScriptedStore::saying([Say::status(200)]).await;
    let way = Way::to(&server, &options());
    let ask = way.ask(Method::GET, "/k");
    assert_eq!(way.until(&ask, Instant::now()).await.unwrap_err(), BlobError::Deadline);
    assert_eq!((server.count(), server.connections()), (0, 0));
    // The earlier of the store's own and the caller's.
    let now = Instant::now();
    let (soon, late) = (now + Duration::from_secs(1), now + Duration::from_secs(3_600));
    assert_eq!(way.transport.deadline(Some(soon)), soon);
    assert!(way.transport.deadline(Some(late)) < late);
}

#[tokio::test]
async fn a_request_under_way_ends_at_the_deadline() {
    let stalls = Say::status(200).body("0123456789").stalls(5);
    for hangs in [Say::never(), stalls] {
        let server = ScriptedStore::saying([hangs]).await;
        let way = Way::to(&server, &TransportOptions { op_deadline_ms: 1_000, ..options() });
        assert_eq!((way.status().await, server.count()), (Err(BlobError::Deadline), 1));
    }
}

#[tokio::test]
async fn an_attempt_has_the_time_of_its_size() {
    let (small, large) = (vec![0; 1 << 20], vec![0; (1 << 20) + 1]);
    let gate = Gate::closed();
    let opened = gate.clone();
    let server = ScriptedStore::deciding(move |asked| {
        let patient = asked.body.len() > 1 << 20;
        if patient { Say::status(200).once(&opened) } else { Say::never() }
    })
    .await;
    let way = Way::to(&server, &TransportOptions { timeout_ms: 2_000, retries: 0, ..options() });
    let (large, small) = (way.put(large), way.put(small));
    let both = async {
        server.has(1).await;
        // Asked for later, and given up on: the larger one has been on its way for longer by then.
        let late = way.send(&small).await;
        gate.open();
        late
    };
    let (large, small) = tokio::join!(way.send(&large), both);
    assert_eq!(small.unwrap_err(), transport_error("no answer in time"));
    assert_eq!((large.unwrap().status.as_u16(), server.count()), (200, 2));

    // The other way round: each has its own.
    let server = ScriptedStore::saying([Say::never()]).await;
    let way =
        Way::to(&server, &TransportOptions { upload_timeout_ms: 500, retries: 1, ..options() });
    let late = way.send(&way.put(vec![0; (1 << 20) + 1])).await;
    assert_eq!(late.unwrap_err(), transport_error("no answer in time"));
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_large_answer_has_the_time_of_its_size() {
    let (small, large) = (vec![0; 1 << 20], vec![0; (1 << 20) + 1]);
    let gate = Gate::closed();
    let (opened, body) = (gate.clone(), large.clone());
    let server = ScriptedStore::deciding(move |asked| match asked.target.as_str() {
        "/large" => Say::status(200).body(body.clone()).stalls(10).once(&opened),
        _small => Say::status(200).body(small.clone()).stalls(10),
    })
    .await;
    let way = Way::to(&server, &TransportOptions { timeout_ms: 2_000, retries: 0, ..options() });
    let ask = |path| way.ask(Method::GET, path);
    let both = async {
        server.has(1).await;
        let late = way.send(&ask("/small")).await;
        gate.open();
        late
    };
    let ask_large = ask("/large");
    let (answer, late) = tokio::join!(way.send(&ask_large), both);
    assert_eq!(late.unwrap_err(), transport_error("its answer stopped coming"));
    assert!(answer.unwrap().body == large);
}

// Credentials.

#[tokio::test]
async fn credentials_that_are_refused_are_dropped_and_the_request_is_sent_once_more() {
    let server = ScriptedStore::saying([Say::status(401), Say::status(200)]).await;
    let way = Way::to(&server, &TransportOptions { retries: 0, ..options() });
    assert_eq!(way.status().await, Ok(200));
    let tokens = || {
        let asked = server.asked();
        asked.iter().map(|it| it.header("authorization").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tokens(), ["token-0", "token-1"]);
    assert_eq!(way.journal.lines(), Vec::<String>::new(), "it is no retry");

    let server = ScriptedStore::saying([Say::status(401)]).await;
    let way = Way::to(&server, &options());
    assert_eq!((way.status().await, server.count()), (Ok(401), 2));
}

#[tokio::test]
async fn the_try_with_new_credentials_does_not_count() {
    let script = [500, 401, 500, 200].map(Say::status);
    let server = ScriptedStore::saying(script).await;
    assert_eq!((Way::to(&server, &options()).status().await, server.count()), (Ok(200), 4));
    let script = [500, 401, 500, 500, 200].map(Say::status);
    let server = ScriptedStore::saying(script).await;
    let failed = Err(transport_error("500"));
    assert_eq!((Way::to(&server, &options()).status().await, server.count()), (failed, 4));
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let server = ScriptedStore::saying([Say::status(200)]).await;
    let with = |credentials, options| {
        let mut way = Way::to(&server, &options);
        way.dialect = Arc::new(Plain::with(credentials));
        way
    };
    let down = transport_error("the metadata service does not answer");
    let way = with(Credentials::Refused(down.clone()), options());
    assert_eq!(way.status().await, Err(down));
    assert_eq!(way.journal.lines(), ["retry segments"; 2]);

    let none = BlobError::Forbidden("there are no credentials".to_owned());
    let way = with(Credentials::Refused(none.clone()), options());
    assert_eq!(way.status().await, Err(none));
    assert_eq!(way.journal.lines(), Vec::<String>::new());

    let short = TransportOptions { op_deadline_ms: 50, ..options() };
    assert_eq!(with(Credentials::NeverCome, short).status().await, Err(BlobError::Deadline));
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn credentials_that_do_not_come_are_not_the_stores_fault() {
    let server = ScriptedStore::saying([Say::status(200)]).await;
    let mut way = Way::to(&server, &TransportOptions { breaker_failures: 1, ..options() });
    way.dialect = Arc::new(Plain::with(Credentials::Refused(transport_error("down"))));
    assert_eq!(way.status().await, Err(transport_error("down")));
    assert_eq!(way.breaker().state(), BreakerState::Closed);
}

// The pool.

#[tokio::test]
async fn a_pool_that_is_exhausted_is_this_nodes_failure() {
    let gate = Gate::closed();
    let script = [Say::status(200).once(&gate), Say::status(200)];
    let server = ScriptedStore::saying(script).await;
    let one = TransportOptions {
        pool_size: 1,
        pool_count: 1,
        pool_timeout: 50,
        breaker_failures: 1,
        ..options()
    };
    let way = Way::to(&server, &one);
    let others = async {
        server.has(1).await;
        let full = Err(transport_error("no connection was free for 50 ms"));
        assert_eq!(way.status().await, full);
        let soon = Instant::now() + Duration::from_millis(10);
        let late = way.until(&way.ask(Method::GET, "/k"), soon).await;
        assert_eq!(late.unwrap_err(), BlobError::Deadline);
        gate.open();
    };
    let (first, ()) = tokio::join!(way.status(), others);
    assert_eq!((first, way.status().await, server.count()), (Ok(200), Ok(200), 2));
    assert_eq!(way.journal.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn there_are_as_many_connections_as_size_times_count() {
    let gate = Gate::closed();
    let server = ScriptedStore::saying([Say::status(200).once(&gate)]).await;
    let six = TransportOptions { pool_size: 2, pool_count: 3, pool_timeout: 50, ..options() };
    let way = Arc::new(Way::to(&server, &six));
    let asked: Vec<_> = (0..6)
        .map(|_| {
            let way = Arc::clone(&way);
            tokio::spawn(async move { way.status().await })
        })
        .collect();
    server.has(6).await;
    assert_eq!(way.status().await.unwrap_err().as_str(), "transport");
    gate.open();
    for one in asked {
        assert_eq!(one.await.unwrap(), Ok(200));
    }
    assert_eq!(server.count(), 6);
}

// The breaker, as the transport uses it.

fn with_breaker(breaker_failures: u32, breaker_open_ms: u64) -> TransportOptions {
    TransportOptions { breaker_failures, breaker_open_ms, retries: 0, ..options() }
}

#[tokio::test]
async fn a_breaker_that_is_open_sends_nothing() {
    let server = ScriptedStore::saying([Say::status(500)]).await;
    let way = Way::to(&server, &with_breaker(3, 3_600_000));
    for _ in 0..3 {
        assert_eq!(way.status().await, Err(transport_error("500")));
    }
    for _ in 0..3 {
        assert_eq!(way.status().await, Err(BlobError::BreakerOpen));
    }
    assert_eq!((server.count(), way.journal.lines()), (3, vec!["open".to_owned()]));
}

#[tokio::test]
async fn the_attempts_of_one_operation_can_open_it() {
    let server = ScriptedStore::saying([Say::closes()]).await;
    let way = Way::to(&server, &TransportOptions { retries: 5, ..with_breaker(2, 3_600_000) });
    assert_eq!((way.status().await, server.count()), (Err(BlobError::BreakerOpen), 2));
}

#[tokio::test]
async fn one_breaker_is_before_all_stores_of_a_bucket() {
    let server = ScriptedStore::saying([Say::status(500), Say::status(200)]).await;
    let way = Way::to(&server, &with_breaker(1, 3_600_000));
    let store = |scope, bucket| {
        new_transport(scope, &way.endpoint, bucket, way.transport.options(), &way.world).unwrap()
    };
    assert_eq!(way.status().await, Err(transport_error("500")));
    let ask = way.ask(Method::GET, "/k");
    let send = async |store: Transport| {
        store.send(&*way.dialect, &ask, store.deadline(None)).await.map(|it| it.status.as_u16())
    };
    assert_eq!(send(store(BlobScope::Claims, "bucket")).await, Err(BlobError::BreakerOpen));
    assert_eq!(send(store(BlobScope::Claims, "other")).await, Ok(200));
    assert_eq!(server.count(), 2);
}

/// What is known of a store after a put of so many bytes whose caller had so long.
async fn known_after(says: Say, body: usize, within_ms: u64) -> BreakerState {
    let server = ScriptedStore::saying([says]).await;
    let way = Way::to(&server, &with_breaker(1, 3_600_000));
    let deadline = Instant::now() + Duration::from_millis(within_ms);
    let late = way.until(&way.put(vec![0; body]), deadline).await;
    assert_eq!(late.unwrap_err(), BlobError::Deadline);
    way.breaker().state()
}

#[tokio::test]
async fn a_store_that_is_silent_until_its_callers_deadline_has_failed() {
    let stalls = Say::status(200).body("0123456789").stalls(5);
    for (says, body, within_ms, state, why) in [
        (Say::never(), 0, 700, BreakerState::Open, "not a word"),
        (Say::never(), 256 << 10, 1_200, BreakerState::Open, "and time to send it"),
        (Say::never(), 0, 100, BreakerState::Closed, "no store is that fast"),
        (Say::never(), 2 << 20, 1_200, BreakerState::Closed, "it may still be on its way"),
        (stalls, 0, 700, BreakerState::Closed, "it had begun"),
    ] {
        assert_eq!(known_after(says, body, within_ms).await, state, "{why}");
    }
}

#[tokio::test]
async fn a_store_is_silent_only_from_when_it_was_asked() {
    let gate = Gate::closed();
    let script = [Say::status(200).once(&gate), Say::never()];
    let server = ScriptedStore::saying(script).await;
    let one = TransportOptions { pool_size: 1, pool_count: 1, ..with_breaker(1, 3_600_000) };
    let way = Way::to(&server, &one);
    let ask = way.ask(Method::GET, "/k");
    let waits = async {
        server.has(1).await;
        // All of its time but the last of it goes by before there is a connection.
        let deadline = Instant::now() + Duration::from_millis(1_000);
        let opens = async {
            sleep(Duration::from_millis(900)).await;
            gate.open();
        };
        let (late, ()) = tokio::join!(way.until(&ask, deadline), opens);
        assert_eq!(late.unwrap_err(), BlobError::Deadline);
    };
    let (first, ()) = tokio::join!(way.status(), waits);
    assert_eq!((first, way.breaker().state()), (Ok(200), BreakerState::Closed));
}

#[tokio::test]
async fn an_answer_that_the_store_is_there_opens_nothing() {
    let throttles = [
        Say::status(429),
        Say::status(503).header("retry-after", "99"),
        Say::status(503).body("SlowDown"),
    ];
    let answers = [401, 403, 404, 409, 412, 501].map(Say::status);
    for say in throttles.into_iter().chain(answers) {
        let server = ScriptedStore::saying([say.clone()]).await;
        let way = Way::to(&server, &with_breaker(1, 3_600_000));
        for _ in 0..3 {
            let _answer = way.status().await;
        }
        assert_eq!(way.breaker().state(), BreakerState::Closed, "{say:?}");
    }
    // A throttle between two failures neither counts nor forgets.
    let script = [Say::status(500), Say::status(429), Say::status(500), Say::status(200)];
    let server = ScriptedStore::saying(script).await;
    let way = Way::to(&server, &with_breaker(2, 3_600_000));
    for _ in 0..3 {
        let _answer = way.status().await;
    }
    assert_eq!((way.status().await, server.count()), (Err(BlobError::BreakerOpen), 3));
}

#[tokio::test]
async fn one_request_finds_out_whether_the_store_is_back() {
    let gate = Gate::closed();
    let script = [Say::status(500), Say::status(200).once(&gate), Say::status(200)];
    let server = ScriptedStore::saying(script).await;
    let way = Arc::new(Way::to(&server, &with_breaker(1, 1)));
    assert_eq!(way.status().await, Err(transport_error("500")));
    let probing = Arc::clone(&way);
    let probe = tokio::spawn(async move {
        loop {
            match probing.status().await {
                Err(BlobError::BreakerOpen) => sleep(Duration::from_millis(1)).await,
                answered => return answered,
            }
        }
    });
    server.has(2).await;
    for _ in 0..10 {
        assert_eq!(way.status().await, Err(BlobError::BreakerOpen));
    }
    assert_eq!(server.count(), 2);
    gate.open();
    assert_eq!(probe.await.unwrap(), Ok(200));
    assert_eq!(way.status().await, Ok(200));
    assert_eq!(way.journal.lines(), ["open", "half_open", "closed"]);
}

#[tokio::test]
async fn an_operation_that_is_dropped_gives_the_probe_back() {
    let script = [Say::status(500), Say::never(), Say::status(200)];
    let server = ScriptedStore::saying(script).await;
    let way = Arc::new(Way::to(&server, &with_breaker(1, 1)));
    assert_eq!(way.status().await, Err(transport_error("500")));
    let probing = Arc::clone(&way);
    let probe = tokio::spawn(async move {
        while probing.status().await == Err(BlobError::BreakerOpen) {
            sleep(Duration::from_millis(1)).await;
        }
    });
    server.has(2).await;
    assert_eq!(way.status().await, Err(BlobError::BreakerOpen));
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    assert_eq!(way.status().await, Ok(200));
    assert_eq!(way.journal.lines(), ["open", "half_open", "closed"]);
}

#[tokio::test]
async fn small_requests_that_are_slow_open_it_and_large_ones_do_not() {
    let slow = |body: usize| Say::status(200).body(vec![0; body]).after(Duration::from_millis(3));
    for (bytes, state) in [(1 << 20, BreakerState::Open), ((1 << 20) + 1, BreakerState::Closed)] {
        let server = ScriptedStore::saying([slow(bytes)]).await;
        let options = TransportOptions { breaker_slow_ms: 1, ..with_breaker(5, 3_600_000) };
        let way = Way::to(&server, &options);
        for _ in 0..100 {
            assert_eq!(way.breaker().state(), BreakerState::Closed);
            assert_eq!(way.status().await, Ok(200));
        }
        assert_eq!(way.breaker().state(), state, "{bytes}");
    }
}

// The breaker by itself: time stands still.

const OPEN: Duration = Duration::from_secs(30);

fn breaker(failures: u32) -> (Arc<Breaker>, Arc<Journal>) {
    let journal = Arc::new(Journal::default());
    let options = BreakerOptions { failures, slow: Duration::from_secs(5), open: OPEN };
    let events = Arc::clone(&journal) as Arc<dyn Events>;
    (Breakers::default().of("http://localhost", "bucket", options, &events).unwrap(), journal)
}

fn end(breaker: &Arc<Breaker>, ended: Ended) {
    breaker.ask().expect("it lets this through").ended(ended);
}

fn answered_in(ms: u64) -> Ended {
    Ended::Answered { small: Some(Duration::from_millis(ms)) }
}

#[tokio::test(start_paused = true)]
async fn it_opens_after_failures_in_a_row_and_stays_open_for_its_time() {
    let (breaker, journal) = breaker(3);
    // An answer in between begins the count anew; what says nothing does not.
    for ended in [Ended::Failed, Ended::Failed, answered_in(1), Ended::Failed] {
        end(&breaker, ended);
    }
    end(&breaker, Ended::Unsaid);
    drop(breaker.ask());
    end(&breaker, Ended::Failed);
    assert_eq!(breaker.state(), BreakerState::Closed);
    end(&breaker, Ended::Failed);
    assert_eq!(breaker.state(), BreakerState::Open);
    tokio::time::advance(OPEN - Duration::from_millis(1)).await;
    assert!(breaker.ask().is_none());
    tokio::time::advance(Duration::from_millis(1)).await;
    let probe = breaker.ask().unwrap();
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    assert!(breaker.ask().is_none());
    probe.ended(Ended::Failed);
    assert_eq!(breaker.state(), BreakerState::Open);
    tokio::time::advance(OPEN - Duration::from_millis(1)).await;
    assert!(breaker.ask().is_none());
    tokio::time::advance(Duration::from_millis(1)).await;
    end(&breaker, Ended::Answered { small: None });
    assert_eq!(breaker.state(), BreakerState::Closed);
    // It begins anew: two failures are none too many.
    end(&breaker, Ended::Failed);
    end(&breaker, Ended::Failed);
    assert_eq!(breaker.state(), BreakerState::Closed);
    assert_eq!(journal.lines(), ["open", "half_open", "open", "half_open", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_says_nothing_lets_the_next_one_through() {
    let (breaker, _journal) = breaker(1);
    end(&breaker, Ended::Failed);
    tokio::time::advance(OPEN).await;
    for says_nothing in [|probe: Pass| drop(probe), |probe: Pass| probe.ended(Ended::Unsaid)] {
        let probe = breaker.ask().unwrap();
        assert!(breaker.ask().is_none());
        says_nothing(probe);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
    }
    end(&breaker, answered_in(1));
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_before_it_opened_says_nothing_later() {
    for ended in [Ended::Failed, Ended::Unsaid, answered_in(1)] {
        let (breaker, journal) = breaker(1);
        let [old, older] = [breaker.ask().unwrap(), breaker.ask().unwrap()];
        end(&breaker, Ended::Failed);
        tokio::time::advance(OPEN - Duration::from_secs(1)).await;
        old.ended(ended);
        assert_eq!(breaker.state(), BreakerState::Open);
        tokio::time::advance(Duration::from_secs(1)).await;
        let probe = breaker.ask().expect("its time was not prolonged");
        older.ended(ended);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(breaker.ask().is_none(), "one at a time");
        probe.ended(answered_in(1));
        assert_eq!(journal.lines(), ["open", "half_open", "closed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn it_opens_when_the_second_slowest_of_a_hundred_is_slow() {
    let fill = |breaker: &Arc<Breaker>, fast: usize, slow: usize| {
        for _ in 0..slow {
            end(breaker, answered_in(5_001));
        }
        for _ in 0..fast {
            end(breaker, answered_in(5_000));
        }
        breaker.state()
    };
    // Fewer say nothing, and neither do those that carried much.
    let (one, _) = breaker(5);
    assert_eq!(fill(&one, 0, 99), BreakerState::Closed);
    end(&one, Ended::Answered { small: None });
    assert_eq!(one.state(), BreakerState::Closed);
    end(&one, answered_in(0));
    assert_eq!(one.state(), BreakerState::Open);

    let (one, _) = breaker(5);
    assert_eq!(fill(&one, 99, 1), BreakerState::Closed);
    let (one, _) = breaker(5);
    assert_eq!(fill(&one, 98, 2), BreakerState::Open);
    // The last hundred: what was slow before them is forgotten.
    let (one, _) = breaker(5);
    assert_eq!(fill(&one, 97, 1), BreakerState::Closed);
    end(&one, answered_in(0));
    end(&one, answered_in(0));
    end(&one, answered_in(5_001));
    assert_eq!(one.state(), BreakerState::Closed);
    // A hundred that are slow open it once; when it has closed, it counts anew.
    let (one, journal) = breaker(5);
    assert_eq!(fill(&one, 0, 100), BreakerState::Open);
    tokio::time::advance(OPEN).await;
    end(&one, answered_in(5_001));
    assert_eq!(fill(&one, 0, 98), BreakerState::Closed);
    assert_eq!(journal.lines(), ["open", "half_open", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_number_of_failures_there_is_none() {
    let (breaker, journal) = breaker(0);
    for _ in 0..200 {
        end(&breaker, Ended::Failed);
        end(&breaker, answered_in(60_000));
    }
    assert_eq!((breaker.state(), journal.lines()), (BreakerState::Closed, Vec::new()));
}

// TLS.

/// A file that holds `pem`, and the folder it is in.
fn cacertfile(pem: &str) -> (tempfile::TempDir, Option<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    (dir, Some(path))
}

#[tokio::test]
async fn a_certificate_must_descend_from_the_stores_authority() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let server = ScriptedStore::tls(&ours.sign(), |_asked| Say::status(200)).await;
    let both = format!("{}{}", others.pem, ours.pem);
    for pem in [&ours.pem, &both] {
        let (_dir, cacertfile) = cacertfile(pem);
        let way = Way::to(&server, &TransportOptions { cacertfile, ..options() });
        assert_eq!(way.status().await, Ok(200));
    }
    let (_dir, another) = cacertfile(&others.pem);
    for cacertfile in [another, None] {
        let way = Way::to(&server, &TransportOptions { cacertfile, ..options() });
        assert_eq!(way.status().await.unwrap_err().as_str(), "transport");
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_certificate_must_be_the_hosts() {
    let ours = Authority::new("ours");
    let server = ScriptedStore::tls(&ours.sign(), |_asked| Say::status(200)).await;
    let (_dir, cacertfile) = cacertfile(&ours.pem);
    let mut way = Way::to(&server, &TransportOptions { cacertfile, ..options() });
    way.endpoint.set_host(Some("127.0.0.1")).unwrap();
    assert_eq!(way.status().await.unwrap_err().as_str(), "transport");
    assert_eq!(server.count(), 0);
}

#[test]
fn an_authority_that_cannot_be_read_is_refused_beforehand() {
    let (world, _journal) = world(SHORTEST);
    let endpoint = Url::parse("https://localhost:1").unwrap();
    let refused = |cacertfile| {
        let options = TransportOptions { cacertfile, ..options() };
        new_transport(BlobScope::Backup, &endpoint, "b", &options, &world).err().unwrap()
    };
    let (dir, empty) = cacertfile("no certificate\n");
    let path = empty.clone().unwrap();
    assert_eq!(refused(empty), format!("cacertfile: {}: no certificate in it", path.display()));
    let missing = dir.path().join("missing.pem");
    assert_eq!(
        refused(Some(missing.clone())),
        format!("cacertfile: {}: No such file or directory (os error 2)", missing.display())
    );
}

/// What a client offers: the versions of its hello (RFC 8446, 4.2.1).
fn offered_versions(hello: &[u8]) -> Vec<u16> {
    let number = |at: usize| usize::from(hello[at]) << 8 | usize::from(hello[at + 1]);
    // Record and handshake headers, version, random, then the session, the suites and the compressions.
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + number(at);
    at += 1 + usize::from(hello[at]);
    let end = at + 2 + number(at);
    at += 2;
    while at < end {
        let (kind, len) = (number(at), number(at + 2));
        at += 4;
        if kind == 43 {
            let versions = hello[at + 1..at + len].chunks(2);
            return versions.map(|it| u16::from(it[0]) << 8 | u16::from(it[1])).collect();
        }
        at += len;
    }
    Vec::new()
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_offered_and_nothing_older() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let (world, _journal) = world(SHORTEST);
    let (_dir, cacertfile) = cacertfile(&Authority::new("ours").pem);
    let options = TransportOptions { cacertfile, retries: 0, ..options() };
    let endpoint = Url::parse(&endpoint).unwrap();
    let transport = new_transport(BlobScope::Backup, &endpoint, "b", &options, &world).unwrap();
    let (dialect, ask) = (Plain::with(Credentials::Fresh), Ask::new(Method::GET, endpoint));
    let hello = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = vec![0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        let len = usize::from(hello[3]) << 8 | usize::from(hello[4]);
        hello.resize(5 + len, 0);
        stream.read_exact(&mut hello[5..]).await.unwrap();
        hello
    };
    let sent = transport.send(&dialect, &ask, transport.deadline(None));
    let (sent, hello) = timeout(PATIENCE, async { tokio::join!(sent, hello) }).await.unwrap();
    assert_eq!(sent.unwrap_err().as_str(), "transport");
    let mut offered = offered_versions(&hello);
    offered.sort_unstable();
    assert_eq!(offered, [0x0303, 0x0304]);
}

#[test]
fn an_endpoint_has_one_pool() {
    let pools = Pools::default();
    let one = pools.of("http://a", &options()).unwrap();
    assert!(Arc::ptr_eq(&one, &pools.of("http://a", &options()).unwrap()));
    assert!(!Arc::ptr_eq(&one, &pools.of("http://b", &options()).unwrap()));
}

/// What the second of two stores is told that are before the same bucket.
fn disagreement(change: fn(&mut TransportOptions)) -> Option<String> {
    let (world, _journal) = world(SHORTEST);
    let endpoint = Url::parse("http://127.0.0.1:1").unwrap();
    let open = |bucket, options: &TransportOptions| {
        new_transport(BlobScope::Segments, &endpoint, bucket, options, &world).map(drop)
    };
    let mut other = options();
    change(&mut other);
    open("bucket", &options()).unwrap();
    let told = open("bucket", &other).err();
    if told.as_ref().is_some_and(|told| told.starts_with("breaker")) {
        assert_eq!(open("other", &other), Ok(()), "another bucket has its own");
    }
    told
}

#[test]
fn stores_that_share_something_must_say_the_same_of_it() {
    let pool =
        |key: &str| Some(format!("{key}: must be the same for every store at http://127.0.0.1:1"));
    let breaker = |key: &str| {
        let text = "must be the same for every store of bucket at http://127.0.0.1:1";
        Some(format!("{key}: {text}"))
    };
    for (change, told) in [
        ((|_| {}) as fn(&mut TransportOptions), None),
        (|options| options.pool_size = 1, pool("pool_size")),
        (|options| options.pool_count = 2, pool("pool_count")),
        (|options| options.pool_timeout = 1, pool("pool_timeout")),
        (|options| options.cacertfile = Some("/other.pem".into()), pool("cacertfile")),
        (|options| options.breaker_failures = 9, breaker("breaker_failures")),
        (|options| options.breaker_slow_ms = 9, breaker("breaker_slow_ms")),
        (|options| options.breaker_open_ms = 9, breaker("breaker_open_ms")),
        // Everything else is each one's own.
        (
            |options| {
                *options = TransportOptions {
                    op_deadline_ms: 1,
                    timeout_ms: 1,
                    upload_timeout_ms: 1,
                    retries: 9,
                    multipart_threshold_bytes: 1,
                    multipart_part_bytes: 1,
                    ..options.clone()
                };
            },
            None,
        ),
    ] {
        assert_eq!(disagreement(change), told);
    }
}
