//! A node process: its configuration, its start, its death, and what it says about itself.

mod adjusting;
pub mod asking;
mod configuration;

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ankusa_drills_check::Dump;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::Value;
use tokio::time::sleep;

pub use self::configuration::limits;
use self::configuration::{configuration, is_configuration};
use crate::drill::{CannotInject, OrCannot};
use crate::http::{Answer, Connection, NoAnswer};
use crate::ports;

/// The hidden command under which the binary is a node.
pub const COMMAND: &str = "node";

/// Longest wait for a node to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for a node that was asked to stop.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for an answer of the control socket; a dump of a big store takes a while.
const CONTROL_PATIENCE: Duration = Duration::from_secs(120);

/// Longest wait for a drained store to hold still.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// Time in which a store must not change to be called settled.
const SETTLING: Duration = Duration::from_millis(250);

/// Wait between two looks at something that will come about.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Lines of a node's log that go into an error.
const LOG_LINES: usize = 12;

/// Everything a node is started with. The same setup starts the same node again: same store, same ports.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    data_dir: PathBuf,
    config: PathBuf,
    log: PathBuf,
    http_port: u16,
    environment: Vec<(OsString, OsString)>,
    /// A program, with its first arguments, that becomes the node.
    wrapper: Vec<OsString>,
}

impl NodeSetup {
    /// Writes a configuration: the sources of the load, delivering to `sink_url`, on free ports. Configuration and log go
    /// into `directory`, the store below `data_dir`.
    ///
    /// # Errors
    /// When there is no free port, or the configuration cannot be written.
    pub fn new(directory: &Path, data_dir: &Path, sink_url: &str) -> Result<Self, CannotInject> {
        Self::write(directory, data_dir, sink_url, false)
    }

    /// The same, but one source of the load is delivered in order.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_lanes(
        directory: &Path,
        data_dir: &Path,
        sink_url: &str,
    ) -> Result<Self, CannotInject> {
        Self::write(directory, data_dir, sink_url, true)
    }

    fn write(
        directory: &Path,
        data_dir: &Path,
        sink_url: &str,
        lanes: bool,
    ) -> Result<Self, CannotInject> {
        let [http_port, admin_port] = ports::free()?;
        let config = directory.join("ankusa.yml");
        // JSON is YAML.
        let text = configuration(data_dir, http_port, admin_port, sink_url, lanes).to_string();
        std::fs::write(&config, text).or_cannot("write the node's configuration")?;
        Ok(Self {
            data_dir: data_dir.to_owned(),
            config,
            log: directory.join("node.log"),
            http_port,
            environment: Vec::new(),
            wrapper: Vec::new(),
        })
    }

    /// Adds variables to the environment of the node.
    #[must_use]
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        self.environment.extend(variables);
        self
    }

    /// The port of ingest.
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.http_port
    }

    /// Where the database is.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        store_below(&self.data_dir)
    }

    fn control_socket(&self) -> PathBuf {
        self.data_dir.join("default/control.sock")
    }

    /// Starts the node and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started ([`NotReady::CannotStart`]), ends by itself, or is not ready in time.
    pub async fn start(&self) -> Result<Node, NotReady> {
        let mut node = self.spawn()?;
        node.wait_until_ready().await?;
        Ok(node)
    }

    /// Starts the node and waits for nothing.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self) -> Result<Node, NotReady> {
        let cannot = |error: std::io::Error| NotReady::CannotStart(error.to_string());
        let log = File::options().create(true).append(true).open(&self.log).map_err(cannot)?;
        let errors = log.try_clone().map_err(cannot)?;
        let this = std::env::current_exe().map_err(cannot)?;
        let mut words = self.wrapper.iter().cloned().chain([this.into_os_string()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg(COMMAND)
            .args(["start", "--config"])
            .arg(&self.config)
            .envs(self.environment.iter().cloned());
        // The node is what its configuration says, whatever the drill's own environment says.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_configuration(name)) {
            command.env_remove(name);
        }
        let child =
            command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().map_err(cannot)?;
        Ok(Node { setup: self.clone(), child, ready_after: Duration::ZERO })
    }

    /// The last lines the node wrote.
    fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n")
    }
}

/// The database below a data directory.
#[must_use]
pub fn store_below(data_dir: &Path) -> PathBuf {
    data_dir.join("default/store")
}

/// Why a node did not come up.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// Nothing about the node: the process could not be made.
    #[error("the node process cannot be started: {0}")]
    CannotStart(String),
    #[error("the node ended by itself ({status}); it said last:\n{log}")]
    Ended { status: String, log: String },
    #[error("the node was not ready within {READY_WITHIN:?}; it said last:\n{log}")]
    TooLate { log: String },
}

impl NotReady {
    /// In one line: what the node said last, without what it said before.
    #[must_use]
    pub fn brief(&self) -> String {
        let last = |log: &str| log.lines().last().unwrap_or_default().to_owned();
        match self {
            Self::CannotStart(_) => self.to_string(),
            Self::Ended { status, log } => {
                format!("the node ended by itself ({status}); it said last: {}", last(log))
            }
            Self::TooLate { log } => {
                format!(
                    "the node was not ready within {READY_WITHIN:?}; it said last: {}",
                    last(log)
                )
            }
        }
    }
}

/// A running node. Dropped, it is killed.
pub struct Node {
    setup: NodeSetup,
    child: Child,
    ready_after: Duration,
}

impl Node {
    /// How long it took from the start of the process until it was ready.
    #[must_use]
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Waits until the node is ready.
    ///
    /// # Errors
    /// When it ends by itself, or is not ready in time.
    pub async fn wait_until_ready(&mut self) -> Result<(), NotReady> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(NotReady::Ended {
                    status: status.to_string(),
                    log: self.setup.log_tail(),
                });
            }
            if is_ready(self.setup.http_port).await {
                self.ready_after = started.elapsed();
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
        }
        Err(NotReady::TooLate { log: self.setup.log_tail() })
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Errors
    /// When it cannot be killed, or was already dead: then it died by itself.
    pub fn kill(mut self) -> Result<(), CannotInject> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(CannotInject(format!(
                "kill the node: it had ended by itself ({status}); it said last:\n{}",
                self.setup.log_tail()
            )));
        }
        self.child.kill().or_cannot("kill the node")?;
        self.child.wait().or_cannot("wait for the killed node")?;
        Ok(())
    }

    /// Asks the node to stop and waits until it has. Answers its exit status in words, `exit status: 0` for a clean stop.
    ///
    /// # Errors
    /// When it cannot be asked, or does not end in time.
    pub async fn stop(mut self) -> Result<String, CannotInject> {
        self.control(Method::POST, "/v1/stop").await.or_cannot("ask the node to stop")?;
        let asked = Instant::now();
        while asked.elapsed() < STOPPED_WITHIN {
            if let Some(status) = self.child.try_wait().or_cannot("wait for the node to stop")? {
                return Ok(status.to_string());
            }
            sleep(LOOK_AGAIN).await;
        }
        Err(CannotInject(format!(
            "stop the node: it still ran {STOPPED_WITHIN:?} after it was asked to stop"
        )))
    }

    /// Every row of the store, as the node tells them.
    ///
    /// # Errors
    /// When the node does not answer, or its dump is none.
    pub async fn dump(&self) -> Result<Dump, CannotInject> {
        let answer =
            self.control(Method::GET, "/v1/dump").await.or_cannot("get a dump from the node")?;
        if answer.status != StatusCode::OK {
            return Err(CannotInject(format!(
                "get a dump from the node: it answered {}",
                answer.status
            )));
        }
        Dump::read(BufReader::new(answer.body.as_ref())).or_cannot("read the node's dump")
    }

    /// Every row, once nothing moves any more: two dumps in a row are the same. A dump is read in pages, and what
    /// follows a last delivery (the reclaiming of its hook, markers that expire) takes a moment.
    ///
    /// # Errors
    /// When the node does not answer, its dump is none, or something still moves after [`SETTLED_WITHIN`].
    pub async fn settled_dump(&self) -> Result<Dump, CannotInject> {
        let started = Instant::now();
        let mut last = self.dump().await?;
        while started.elapsed() < SETTLED_WITHIN {
            sleep(SETTLING).await;
            let dump = self.dump().await?;
            if dump == last {
                return Ok(dump);
            }
            last = dump;
        }
        Err(CannotInject(format!("get a dump that holds still within {SETTLED_WITHIN:?}")))
    }

    /// What the node says about itself.
    ///
    /// # Errors
    /// When it does not answer, or not with JSON.
    pub async fn status(&self) -> Result<Value, CannotInject> {
        let answer = self
            .control(Method::GET, "/v1/status")
            .await
            .or_cannot("ask the node for its status")?;
        serde_json::from_slice(&answer.body).or_cannot("read the node's status")
    }

    /// Waits until the node says that nothing is pending, scheduled or in flight. Answers whether that came about.
    ///
    /// # Errors
    /// When the node does not say.
    pub async fn drain(&self, within: Duration) -> Result<bool, CannotInject> {
        let started = Instant::now();
        while started.elapsed() < within {
            // A node whose store is closed for a moment cannot say.
            if matches!(is_drained(&self.status().await?), Ok(true)) {
                return Ok(true);
            }
            sleep(LOOK_AGAIN * 4).await;
        }
        Ok(false)
    }

    async fn control(&self, method: Method, path: &str) -> Result<Answer, NoAnswer> {
        let mut connection = Connection::to_socket(&self.setup.control_socket()).await?;
        connection.send(method, path, &[], Bytes::new(), CONTROL_PATIENCE).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing to do about a process that cannot be killed, and one that is gone is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn is_ready(port: u16) -> bool {
    let Ok(mut connection) = Connection::to_port(port).await else { return false };
    let answer =
        connection.send(Method::GET, "/ready", &[], Bytes::new(), Duration::from_secs(5)).await;
    answer.is_ok_and(|answer| answer.status == StatusCode::OK)
}

/// Whether a status says that the queue waits for nothing.
fn is_drained(status: &Value) -> Result<bool, CannotInject> {
    let counter = |name: &str| {
        let value = status.get("queue").and_then(|queue| queue.get(name)).and_then(Value::as_i64);
        value.ok_or_else(|| CannotInject(format!("read the node's status: it has no queue.{name}")))
    };
    for waits in ["pending", "scheduled", "inflight", "lane_members"] {
        if counter(waits)? != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_queue_is_drained_when_nothing_waits_in_any_way() {
        let status = |[pending, scheduled, inflight, lane_members]: [u8; 4]| {
            json!({"queue": {"pending": pending, "scheduled": scheduled, "inflight": inflight,
                "lane_members": lane_members, "dead": 3}})
        };
        assert!(is_drained(&status([0; 4])).is_ok_and(|drained| drained));
        for waiting in [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]].map(status) {
            assert!(is_drained(&waiting).is_ok_and(|drained| !drained), "{waiting}");
        }
        assert!(
            is_drained(&json!({"queue": {}}))
                .is_err_and(|error| error.to_string().ends_with("it has no queue.pending"))
        );
    }
}
