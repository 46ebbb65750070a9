//! A store with hooks in it, made once and copied for every trial that is about reading.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ankusa_drills_check::Request;

use crate::drill::{CannotInject, OrCannot};
use crate::journal::Journal;
use crate::load::{Load, LoadPlan};
use crate::node::NodeSetup;
use crate::scratch::Scratch;

/// Hooks in it.
const HOOKS: u64 = 300;

/// Concurrent clients.
const CLIENTS: usize = 16;

/// The store of a node that was killed before it could deliver anything.
pub(super) struct Held {
    data_dir: PathBuf,
    /// What it was sent, with what clients were told.
    pub(super) requests: Vec<Request>,
}

impl Held {
    /// Makes it in a directory below `scratch`.
    pub(super) async fn make(seed: u64, scratch: &Scratch) -> Result<Self, CannotInject> {
        let directory = scratch.subdirectory("held")?;
        let data_dir = scratch.subdirectory("held/data")?;
        let journal = Arc::new(Journal::new());
        // A sink that never answers: every attempt is cut off by the kill. One that refused would put the rows off.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).or_cannot("listen as the sink")?;
        let port = silent.local_addr().or_cannot("listen as the sink")?.port();
        let sink = format!("http://127.0.0.1:{port}/hooks");
        let setup = NodeSetup::new(&directory, &data_dir, &sink)?;
        let node = setup.start().await.or_cannot("start a node to fill a store")?;
        let (plan, next) = (LoadPlan::new(seed), Arc::new(AtomicU64::new(0)));
        Load::start(CLIENTS, setup.http_port(), plan, &next, HOOKS, &journal).finish().await;
        node.kill()?;
        let acked = journal.tally().acked;
        if acked < HOOKS {
            return Err(CannotInject(format!("fill a store: {acked} of {HOOKS} hooks were acked")));
        }
        Ok(Self { data_dir, requests: journal.requests(&plan) })
    }

    /// The number of the first request it was not sent.
    pub(super) fn end(&self) -> u64 {
        HOOKS
    }

    /// Copies it to a directory that is there and empty.
    pub(super) fn copy_to(&self, target: &Path) -> Result<(), CannotInject> {
        copy(&self.data_dir, target).or_cannot("copy a store")
    }
}

/// Files and directories; what a process left of its own (a socket) is not copied.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
