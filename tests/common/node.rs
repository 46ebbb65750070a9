//! The node: its configuration, its process, and what it says about itself.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{Answer, Client, Gone, request};
use super::worker::Worker;
use super::{Chance, until};

/// Lines of the log that a failed test shows.
const LOG_LINES: usize = 40;

/// What a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Told {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub fn value(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

/// A node and its directory. The process is killed and the directory removed when it is dropped.
pub struct TestNode {
    folder: TempDir,
    pub http_port: u16,
    pub admin_port: u16,
    /// Where routes are managed, if they are.
    pub routes_port: u16,
    config: Value,
    child: Option<Child>,
    /// Not a file: a node that may write no more files still tells what it does.
    log: Arc<Mutex<Vec<String>>>,
}

/// The sources of a test that is about something else: one open source `demo`, delivering to `worker`.
pub fn demo(worker: &Worker) -> Value {
    json!({"demo": {"sinks": [sink(worker)]}})
}

/// A sink that delivers to `worker`, unsigned.
pub fn sink(worker: &Worker) -> Value {
    json!({"type": "http", "url": worker.url("/hooks"), "allow_unsigned": true})
}

impl TestNode {
    /// A node that has not been started. `config` goes over what every test wants.
    pub fn new(config: Value) -> Self {
        let folder = tempfile::Builder::new().prefix("node").tempdir().unwrap();
        let (http_port, admin_port, routes_port) = free_ports();
        let mut all = json!({
            "node": {"data_dir": folder.path().join("data")},
            "http": {"ip": "127.0.0.1", "port": http_port},
            "admin": {"port": admin_port, "gauge_interval_ms": 100},
            "control": {"allow_crash": true},
            "egress": {"allow_http": true, "allow_private": true},
            // A busy machine may take its time without being refused.
            "batcher": {"stall_ms": 20_000, "start_deadline_ms": 20_000},
            "dispatch": {"retry": {"base_ms": 20, "max_ms": 200}, "breaker_failures": 0},
            "routes": {"admin": {"port": routes_port}},
            "shutdown": {"drain_ms": 5_000},
        });
        merge(&mut all, config);
        Self {
            folder,
            http_port,
            admin_port,
            routes_port,
            config: all,
            child: None,
            log: Arc::default(),
        }
    }

    /// A node that takes hooks.
    pub async fn start(config: Value) -> Self {
        let mut node = Self::new(config);
        node.boot().await;
        node
    }

    /// One with the single open source `demo`.
    pub async fn demo(worker: &Worker) -> Self {
        Self::start(json!({"sources": demo(worker)})).await
    }

    /// Starts it on what it left behind, and waits until it takes hooks.
    pub async fn boot(&mut self) {
        self.spawn();
        until("the node is ready", async || {
            assert_eq!(self.ended(), None, "the node ended: {}", self.log());
            let answer = self.control("GET", "/ready").await.ok()?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    /// Starts it and does not wait.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let mut command = self.command();
        command.args(["start", "--config"]).arg(self.config_file());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (errors, log) = (child.stderr.take().unwrap(), Arc::clone(&self.log));
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                log.lock().unwrap().push(line);
            }
        });
        self.child = Some(child);
    }

    /// Changes the configuration of the next start.
    pub fn configure(&mut self, config: Value) {
        merge(&mut self.config, config);
    }

    /// The next start knows this source no more.
    pub fn forget_source(&mut self, id: &str) {
        self.config["sources"].as_object_mut().expect("it has sources").remove(id);
    }

    /// The binary, in an environment of its own.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ankusa"));
        command.env_clear();
        command
    }

    /// Writes the configuration down.
    pub fn config_file(&self) -> PathBuf {
        let path = self.path("ankusa.yml");
        // JSON is YAML.
        std::fs::write(&path, self.config.to_string()).unwrap();
        path
    }

    /// A path in the node's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("data/default/control.sock")
    }

    /// Everything it logged, of all its starts.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The limit on the size of its files, from now on; `None` lifts it.
    pub fn limit_file_size(&self, bytes: Option<u64>) {
        use rustix::process::{Resource, Rlimit, prlimit};
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(self.pid()), Resource::Fsize, limit).unwrap();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        assert_eq!(child.try_wait().unwrap(), None, "it died by itself: {}", self.log());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().expect("it was started").try_wait().unwrap()
    }

    /// It has ended, and may be started again.
    pub fn forget(&mut self) {
        assert_ne!(self.ended(), None, "it runs");
        self.child = None;
    }

    /// Waits for its end.
    pub async fn exit(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        until("the node has ended", async || child.try_wait().unwrap()).await
    }

    /// SIGTERM, and waits for its end. What it leaves on the disk must be sound. Answers its exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        let code = self.exit().await.code();
        self.assert_left_sound().await;
        code
    }

    /// A connection to the ingest port.
    pub async fn client(&self) -> Client {
        Client::tcp(self.http_port).await
    }

    /// Sends bytes on a connection of their own.
    ///
    /// # Errors
    /// It was closed unanswered.
    pub async fn ask(&self, bytes: &[u8]) -> Result<Answer, Gone> {
        self.client().await.ask(bytes).await
    }

    pub async fn post(&self, target: &str, body: &[u8]) -> Answer {
        self.ask(&request("POST", target, &[], body)).await.unwrap()
    }

    /// A hook for `demo` that must be taken. Answers its id.
    pub async fn accepted(&self, body: &[u8]) -> String {
        self.post("/webhooks/demo", body).await.id()
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.ask(&request("GET", target, &[], b"")).await.unwrap()
    }

    pub async fn admin(&self, target: &str) -> Answer {
        self.admin_with("GET", target, &[]).await
    }

    pub async fn admin_with(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        Client::once(self.admin_port, method, target, headers, "").await
    }

    /// Asks the control socket, as `curl --unix-socket` would.
    ///
    /// # Errors
    /// Nobody listens, or it was closed unanswered.
    pub async fn control(&self, method: &str, target: &str) -> Result<Answer, Gone> {
        let mut client = Client::try_unix(&self.socket()).await.map_err(|_| Gone)?;
        client.ask(&request(method, target, &[], b"")).await
    }

    /// Runs `ankusa ctl` with these arguments.
    pub async fn ctl(&self, args: &[&str]) -> Told {
        self.ctl_at(&self.socket(), args).await
    }

    /// The same on another socket.
    pub async fn ctl_at(&self, socket: &Path, args: &[&str]) -> Told {
        let mut command = self.command();
        command.args(["ctl", "--socket"]).arg(socket).args(args);
        run(command).await
    }

    pub async fn status(&self) -> Value {
        self.control("GET", "/v1/status").await.unwrap().value()
    }

    /// The stored hooks, oldest first.
    pub async fn hooks(&self) -> Vec<Value> {
        let answer = self.control("GET", "/v1/hooks?limit=1000").await.unwrap().value();
        assert_eq!(answer["more"], false);
        answer["hooks"].as_array().unwrap().clone()
    }

    /// One number of the status's queue counters.
    pub async fn counter(&self, name: &str) -> i64 {
        self.status().await["queue"][name].as_i64().unwrap()
    }

    /// Waits until nothing waits for delivery any more.
    pub async fn drained(&self) {
        until("everything is delivered", async || {
            let queue = self.status().await["queue"].clone();
            let waiting = ["pending", "scheduled", "inflight"].map(|name| queue[name].as_i64());
            (waiting == [Some(0); 3]).then_some(())
        })
        .await;
    }

    /// The restarts of a child, as the tree tells them.
    pub async fn restarts(&self, child: &str) -> u64 {
        let tree = self.control("GET", "/v1/tree").await.unwrap().value();
        let children = tree["children"].as_array().unwrap().clone();
        let found = children.iter().find(|found| found["id"] == child);
        found.unwrap_or_else(|| panic!("no {child} in {tree}"))["restarts"].as_u64().unwrap()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // What is gone already cannot be killed, and is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
            eprintln!("the node's log ended:\n{}", last.join("\n"));
        }
    }
}

/// Runs a command to its end without holding up the runtime.
pub async fn run(mut command: Command) -> Told {
    let ran = tokio::task::spawn_blocking(move || command.output());
    Told::of(ran.await.unwrap().unwrap())
}

/// `over` wins, key by key.
pub fn merge(into: &mut Value, over: Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            for (key, value) in over {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, over) => *into = over,
    }
}

/// Three ports nobody listens on, below those the kernel gives to clients: a port it gave out and took back could be some
/// client's a moment later.
fn free_ports() -> (u16, u16, u16) {
    static GIVEN_OUT: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given_out = GIVEN_OUT.lock().unwrap();
    let mut chance = Chance::of(rand::random());
    let mut free = || loop {
        let port = u16::try_from(10_000 + chance.below(20_000)).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && given_out.insert(port) {
            return port;
        }
    };
    (free(), free(), free())
}
