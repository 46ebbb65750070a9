//! Signals to a running node, and what it says about itself besides its status.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::sleep;

use super::{CONTROL_PATIENCE, LOOK_AGAIN, Node};
use crate::drill::{CannotInject, OrCannot};
use crate::http::{Answer, Connection, NoAnswer};
use crate::series::Series;

/// Longest wait for `/ready`, which promises not to hang behind a disk.
const READY_PATIENCE: Duration = Duration::from_secs(10);

/// What `/ready` answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    pub status: StatusCode,
    pub body: Value,
}

impl Readiness {
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// Why the store is not ready: `reasons.store`.
    #[must_use]
    pub fn store_reason(&self) -> Option<&str> {
        self.body.pointer("/reasons/store").and_then(Value::as_str)
    }
}

/// A child of the supervision tree, as `ctl tree` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChild {
    pub id: String,
    pub is_running: bool,
    pub restarts: u64,
}

impl Node {
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), CannotInject> {
        kill_process(self.pid()?, signal).or_cannot("send the node a signal")
    }

    /// # Errors
    /// When it has none any more.
    pub fn pid(&self) -> Result<Pid, CannotInject> {
        let raw = i32::try_from(self.child.id()).or_cannot("name the node's process")?;
        Pid::from_raw(raw).ok_or_else(|| CannotInject("name the node's process".to_owned()))
    }

    /// Waits for the process to end by itself. Nothing when it does not within `within`.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn ended(&mut self, within: Duration) -> Result<Option<ExitStatus>, CannotInject> {
        let began = Instant::now();
        loop {
            let status = self.child.try_wait().or_cannot("wait for the node")?;
            if status.is_some() || began.elapsed() >= within {
                return Ok(status);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// What `/ready` of the ingest port answers.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ready(&self) -> Result<Readiness, NoAnswer> {
        ready_at(self.setup.http_port).await
    }

    /// Whether `/health` of the ingest port is green.
    pub async fn is_alive(&self) -> bool {
        let Ok(mut connection) = Connection::to_port(self.setup.http_port).await else {
            return false;
        };
        let answer =
            connection.send(Method::GET, "/health", &[], Bytes::new(), READY_PATIENCE).await;
        answer.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    /// Whether the control socket answers.
    pub async fn control_answers(&self) -> bool {
        self.control(Method::GET, "/v1/status").await.is_ok()
    }

    /// A scrape.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn series(&self) -> Result<Series, CannotInject> {
        let answer =
            self.control(Method::GET, "/metrics").await.or_cannot("scrape the node's metrics")?;
        Ok(Series(String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// Makes a child of the tree panic. Answers the status, 404 when it does not run at the moment.
    ///
    /// # Errors
    /// When there is no answer: whoever crashes the server it asks may not hear of it.
    pub async fn crash(&self, child: &str) -> Result<StatusCode, NoAnswer> {
        let answer = self.control(Method::POST, &format!("/v1/crash?child={child}")).await?;
        Ok(answer.status)
    }

    /// Every child of the supervision tree.
    ///
    /// # Errors
    /// When the control socket does not answer: between two incarnations of it, say.
    pub async fn tree(&self) -> Result<Vec<TreeChild>, NoAnswer> {
        let answer = self.control(Method::GET, "/v1/tree").await?;
        let tree: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let children = tree.get("children").and_then(Value::as_array);
        Ok(children.into_iter().flatten().filter_map(child).collect())
    }

    /// An object of the node's segments: put, got or removed, by its control socket.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn object(&self, method: Method, key: &str, body: Bytes) -> Result<Answer, NoAnswer> {
        let path = format!("/v1/blob/object?store=segments&key={key}");
        let mut connection = Connection::to_socket(&self.setup.control_socket()).await?;
        connection.send(method, &path, &[], body, CONTROL_PATIENCE).await
    }

    /// The last lines the node wrote.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.setup.log_tail()
    }
}

/// What `/ready` answers on a port of this machine.
///
/// # Errors
/// When there is no answer.
pub async fn ready_at(port: u16) -> Result<Readiness, NoAnswer> {
    let mut connection = Connection::to_port(port).await?;
    let answer = connection.send(Method::GET, "/ready", &[], Bytes::new(), READY_PATIENCE).await?;
    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
    Ok(Readiness { status: answer.status, body })
}

fn child(line: &Value) -> Option<TreeChild> {
    Some(TreeChild {
        id: line.get("id")?.as_str()?.to_owned(),
        is_running: line.get("state")?.as_str()? == "running",
        restarts: line.get("restarts")?.as_u64()?,
    })
}
