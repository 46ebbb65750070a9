//! Builds the node from its configuration and runs it until it is told to stop.

mod assembly;
mod limits;
mod memory;
mod probing;
mod sockets;
pub(crate) mod stores;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ankusa_actors::node::Node;
use rustix::process::{getpid, kill_process};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::config::{Config, SourceStoreType};

pub(crate) use assembly::rocks_options;

/// The tree has given up: whoever manages the process starts it again.
const EXIT_GAVE_UP: u8 = 70;

/// How long the whole tree may take to stop on top of the drain: batchers, dispatch, writer, syncer, store.
const STOP_EXTRA: Duration = Duration::from_secs(60);

/// How long blocking work of the runtime is waited for once the tree is gone.
const SHUTDOWN_RUNTIME: Duration = Duration::from_secs(5);

/// Runs a node until SIGTERM, SIGINT or `ctl stop`. Exit codes: 0 stopped, 1 refused to boot, 70 gave up. Told twice to
/// stop it ends as if killed.
pub fn start(config: Config) -> ExitCode {
    if let Err(error) = limits::raise(&config) {
        error!("{error}");
        return ExitCode::FAILURE;
    }
    if let Some(warning) = memory::warning(&config) {
        warn!("{warning}");
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
    let (found_unsafe, unsafe_found) = watch::channel(None);
    let found_unsafe = Arc::new(found_unsafe);
    let mut booting = pin!(assembly::start(&config, Arc::new(stop), &found_unsafe));
    let mut told_to_stop = false;
    let booted = loop {
        tokio::select! {
            biased;
            () = signals.asked() => {
                if told_to_stop {
                    exit_at_once();
                }
                // An open cannot be left half-way: the threads of RocksDB would outlive what they use.
                info!("told to stop while starting; stopping once the store is open");
                told_to_stop = true;
            }
            booted = &mut booting => break booted,
        }
    };
    let node = match booted {
        Ok(node) => node,
        Err(error) => {
            error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    info!(took_ms = started.elapsed().as_millis(), "started");
    if told_to_stop {
        return stop_node(node, &config, signals).await;
    }
    serve(node, &config, signals, stop_asked, unsafe_found).await
}

async fn serve(
    mut node: Node,
    config: &Config,
    mut signals: Signals,
    mut stop_asked: watch::Receiver<bool>,
    mut unsafe_found: watch::Receiver<probing::Unsafe>,
) -> ExitCode {
    let mut code = None;
    tokio::select! {
        biased;
        () = signals.asked() => info!("told to stop by a signal"),
        // An error is no order: whoever could give one went down with the tree.
        Ok(_) = stop_asked.wait_for(|asked| *asked) => info!("told to stop by ctl"),
        Ok(why) = unsafe_found.wait_for(Option::is_some) => {
            error!("stopping: {}", why.as_deref().unwrap_or_default());
            code = Some(ExitCode::FAILURE);
        }
        () = node.gave_up() => {
            error!("the supervision tree gave up; exiting to be started again");
            return ExitCode::from(EXIT_GAVE_UP);
        }
    }
    let stopped = stop_node(node, config, signals).await;
    code.unwrap_or(stopped)
}

async fn stop_node(node: Node, config: &Config, mut signals: Signals) -> ExitCode {
    let limit = Duration::from_millis(config.shutdown.drain_ms) + STOP_EXTRA;
    tokio::select! {
        biased;
        () = signals.asked() => exit_at_once(),
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

/// What a second signal asks for. The process kills itself: it promises to lose nothing when it is killed, while the exit
/// handlers of an ordinary exit would take away what RocksDB's threads are using, and end in a crash.
fn exit_at_once() -> ! {
    warn!("told to stop twice; exiting at once");
    // One's own process can always be killed; the abort is for the compiler.
    let _ = kill_process(getpid(), rustix::process::Signal::KILL);
    std::process::abort()
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
    let stored = match config.source_store.kind {
        SourceStoreType::Static => "hooks",
        SourceStoreType::Persistent => "hooks, and the sources of the API with their secrets,",
    };
    info!("{stored} are stored in plaintext: no key is configured");
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
