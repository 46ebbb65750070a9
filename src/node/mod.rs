//! Builds the node from its configuration and runs it until it is told to stop.

mod assembly;
mod limits;
mod sockets;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ankusa_actors::node::Node;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::config::Config;

/// The tree has given up: whoever manages the process starts it again.
const EXIT_GAVE_UP: u8 = 70;

/// Told twice to stop.
const EXIT_SECOND_SIGNAL: u8 = 130;

/// How long the whole tree may take to stop on top of the drain: batchers, dispatch, writer, syncer, store.
const STOP_EXTRA: Duration = Duration::from_secs(60);

/// How long blocking work of the runtime is waited for once the tree is gone.
const SHUTDOWN_RUNTIME: Duration = Duration::from_secs(5);

/// Runs a node until SIGTERM, SIGINT or `ctl stop`. Exit codes: 0 stopped, 1 refused to boot, 70 gave up.
pub fn start(config: Config) -> ExitCode {
    if let Err(error) = limits::raise(&config) {
        error!("{error}");
        return ExitCode::FAILURE;
    }
    let runtime = match runtime(&config) {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "cannot start the runtime");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(config));
    // Nothing of RocksDB runs any more: the store closed with the tree.
    runtime.shutdown_timeout(SHUTDOWN_RUNTIME);
    code
}

fn runtime(config: &Config) -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = config.node.runtime_workers {
        builder.worker_threads(workers);
    }
    builder.enable_all().thread_name("ankusa-worker").build()
}

async fn run(config: Config) -> ExitCode {
    let started = Instant::now();
    banner(&config);
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            error!(%error, "cannot listen for signals");
            return ExitCode::FAILURE;
        }
    };
    let (stop, stop_asked) = watch::channel(false);
    let booted = assembly::start(&config, Arc::new(stop));
    let node = tokio::select! {
        biased;
        () = signals.asked() => {
            info!("told to stop while starting");
            return ExitCode::SUCCESS;
        }
        booted = booted => booted,
    };
    let node = match node {
        Ok(node) => node,
        Err(error) => {
            error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    info!(took_ms = started.elapsed().as_millis(), "started");
    serve(node, &config, signals, stop_asked).await
}

async fn serve(
    mut node: Node,
    config: &Config,
    mut signals: Signals,
    mut stop_asked: watch::Receiver<bool>,
) -> ExitCode {
    tokio::select! {
        biased;
        () = signals.asked() => info!("told to stop by a signal"),
        _ = stop_asked.wait_for(|asked| *asked) => info!("told to stop by ctl"),
        () = node.gave_up() => {
            error!("the supervision tree gave up; exiting to be started again");
            return ExitCode::from(EXIT_GAVE_UP);
        }
    }
    let limit = Duration::from_millis(config.shutdown.drain_ms) + STOP_EXTRA;
    tokio::select! {
        biased;
        () = signals.asked() => {
            warn!("told to stop twice; exiting at once");
            // Not a return: waiting for the runtime is what a second signal asks not to do.
            std::process::exit(i32::from(EXIT_SECOND_SIGNAL));
        }
        stopped = node.stop(limit) => {
            if stopped {
                info!("stopped");
                ExitCode::SUCCESS
            } else {
                error!("did not stop in time");
                ExitCode::FAILURE
            }
        }
    }
}

/// The boot lines: what runs, and what an answer of 201 is worth.
fn banner(config: &Config) {
    let roles: Vec<_> = config.node.roles.iter().map(|role| role.as_str()).collect();
    info!(
        "starting instance {} roles=[{}] port={} data_dir={}",
        config.node.instance,
        roles.join(", "),
        config.http.port,
        config.node.data_dir.display()
    );
    let store = config.instance_dir().join("store");
    info!("store at {}. Durable to power loss on THIS host only.", store.display());
    info!(
        "hooks, and secrets of sources in the configuration, are stored in plaintext: no key is configured"
    );
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// A file past its size limit is an error of the write, not the end of the process.
    _file_size: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _file_size: signal(SignalKind::from_raw(limits::SIGXFSZ))?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
