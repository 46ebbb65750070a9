//! A node under a bench: one source that verifies as GitHub signs, knows events by their ids and has limits, one sink, and
//! what it is to do with its hooks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::json;

use super::process::{Process, free_port};
use super::requests::SOURCE;
use crate::drill::{CannotInject, OrCannot};
use crate::http::Connection;
use crate::load::{PREFIX, SECRET};
use crate::node::{COMMAND, store_below};

/// Longest wait for a node to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for an answer of the admin port, under full load.
const PATIENCE: Duration = Duration::from_secs(20);

/// Wait between two looks at a node that is starting.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What the node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    /// Roles edge and storage: rows and archive obligations are written, and nothing is delivered.
    AcksAndObligations,
    /// Role edge alone: rows are written and nothing is delivered.
    Acks,
    /// Roles edge and dispatch: hooks are delivered to this port, and gone.
    Deliveries { sink_port: u16 },
}

/// A node that is ready.
pub(super) struct Node {
    process: Process,
    store: PathBuf,
    pub(super) http_port: u16,
    admin_port: u16,
}

/// What the node has counted since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    /// Fsyncs of the log that answers waited for.
    pub(super) fsyncs: f64,
    pub(super) hooks: f64,
    /// Keys and values handed to the database.
    pub(super) bytes: f64,
}

impl Node {
    /// Starts one on an empty store in `directory`, which must exist.
    pub(super) fn start(directory: &Path, serves: Serves) -> Result<Self, CannotInject> {
        let (http_port, admin_port) = (free_port()?, free_port()?);
        let data_dir = directory.join("data");
        let config = directory.join("ankusa.yml");
        // JSON is YAML.
        std::fs::write(&config, configuration(&data_dir, http_port, admin_port, serves))
            .or_cannot("write the node's configuration")?;
        let arguments = [COMMAND, "start", "--config", &config.display().to_string()];
        let log = directory.join("node.log");
        let process = Process::start("the node", arguments.map(str::to_owned), &log)?;
        let mut node = Self { process, store: store_below(&data_dir), http_port, admin_port };
        let ready = on_a_runtime(node.wait_until_ready());
        ready.map_err(|CannotInject(why)| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            CannotInject(format!("{why}; it said:\n{said}"))
        })?;
        Ok(node)
    }

    /// Where its database is.
    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    pub(super) fn cpu(&self) -> Result<Duration, CannotInject> {
        self.process.cpu()
    }

    async fn wait_until_ready(&mut self) -> Result<(), CannotInject> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            if !self.process.is_alive() {
                return Err(CannotInject("cannot start the node: it has ended".to_owned()));
            }
            if get(self.http_port, "/ready").await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(CannotInject(format!("cannot start the node: it is not ready after {READY_WITHIN:?}")))
    }

    /// What its metrics say.
    pub(super) async fn counted(&self) -> Result<Counted, CannotInject> {
        let text = get(self.admin_port, "/metrics").await?;
        let of = |name: &str| {
            sample(&text, name)
                .ok_or_else(|| CannotInject(format!("cannot find {name} in the node's metrics")))
        };
        Ok(Counted {
            fsyncs: of("ankusa_wal_sync_duration_seconds_count")?,
            hooks: of("ankusa_wal_commit_batch_size")?,
            bytes: of("ankusa_wal_commit_bytes_total")?,
        })
    }
}

fn on_a_runtime<T>(
    future: impl Future<Output = Result<T, CannotInject>>,
) -> Result<T, CannotInject> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.or_cannot("start a runtime")?.block_on(future)
}

async fn get(port: u16, path: &str) -> Result<String, CannotInject> {
    let what = format!("ask the node for {path}");
    let mut connection = Connection::to_port(port).await.or_cannot(&what)?;
    let answer = connection.send(Method::GET, path, &[], Bytes::new(), PATIENCE).await;
    let answer = answer.or_cannot(&what)?;
    if answer.status != StatusCode::OK {
        return Err(CannotInject(format!("cannot {what}: it answered {}", answer.status)));
    }
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// The value of the one series of a name.
fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn configuration(data_dir: &Path, http_port: u16, admin_port: u16, serves: Serves) -> String {
    let (roles, sink_port): (&[&str], u16) = match serves {
        // Nobody listens there, and nobody is to: no role delivers.
        Serves::AcksAndObligations => (&["edge", "storage"], 9),
        Serves::Acks => (&["edge"], 9),
        Serves::Deliveries { sink_port } => (&["edge", "dispatch"], sink_port),
    };
    // Limits that nobody reaches: each is looked at for every hook.
    let limit = json!({
        "rate": 1_000_000,
        "burst": 1_000_000,
        "bytes_rate": 1_000_000_000,
        "bytes_burst": 1_000_000_000,
    });
    json!({
        "node": {"data_dir": data_dir, "roles": roles},
        "log": {"level": "warning"},
        "http": {"ip": "127.0.0.1", "port": http_port, "prefix": PREFIX},
        "admin": {"port": admin_port},
        "egress": {"allow_private": true, "allow_http": true},
        "rate_limits": {"default": limit, "client_ip": limit, "node": limit},
        "sources": {SOURCE: {
            "verify": {"type": "github", "secret": SECRET},
            "dedupe": "github",
            "rate_limit": limit,
            "sinks": [{
                "type": "http",
                "url": format!("http://127.0.0.1:{sink_port}/"),
                "allow_unsigned": true,
            }],
        }},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_found_by_its_whole_name() {
        let text = "# TYPE a_count counter\na_count_more{i=\"x\"} 1\na_count{i=\"x y\"} 2.5\nb 3\n";
        assert_eq!(sample(text, "a_count"), Some(2.5));
        assert_eq!(sample(text, "b"), Some(3.0));
        assert_eq!(sample(text, "a"), None);
    }
}
