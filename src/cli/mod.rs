//! The command line.
//!
//! What a command prints for people and scripts goes to standard output, what went wrong to standard error. Exit codes:
//! 0 done, 1 it did not work or the answer is no, 2 the arguments make no sense, 3 a recount found counters that are wrong
//! and left them, 10 to 20 a store of objects would not (`ctl blob`), 78 the configuration is wrong.

mod blob_check;
mod check_config;
mod ctl;
mod demo;
mod healthcheck;
mod http;
mod print_config;
mod recount;
mod start;
mod version;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, DEFAULT_PATH, EXIT_CONFIG, Environment};

/// What a recount exits with that found counters wrong and left them so.
const EXIT_WRONG_COUNTERS: u8 = 3;

#[derive(Debug, Parser)]
#[command(
    name = "ankusa",
    about = "Receives webhooks, and answers 2xx only for what it cannot lose any more"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node until SIGTERM
    Start(ConfigFile),
    /// Run a node with an embedded configuration and a worker beside it, and say what to try
    Demo,
    /// Say what is wrong with the configuration, one line a mistake; opens nothing
    CheckConfig(ConfigFile),
    /// Show the configuration in force as JSON, secrets hidden
    PrintConfig(ConfigFile),
    /// Say which release this is
    Version,
    /// Ask the node on this machine whether it is ready: exit 0 if it is
    Healthcheck(ConfigFile),
    /// Count every row of a store that no node has open against its counters: exit 0 if they are right, 3 if they are not
    Recount(recount::RecountArgs),
    /// Try every object store of the configuration, without a node: exit 0 if each does what its answers say
    BlobCheck(ConfigFile),
    /// Ask or tell the node on this machine through its control socket
    Ctl(ctl::CtlArgs),
}

/// Where the configuration is.
#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(long = "config", env = "ANKUSA_CONFIG", default_value = DEFAULT_PATH, value_name = "FILE")]
    path: PathBuf,
}

impl ConfigFile {
    /// Reads it, or says every mistake and answers what to exit with.
    fn load(&self) -> Result<Config, ExitCode> {
        Config::load(&self.path, &Environment::of_the_process()).map_err(|errors| {
            complain(errors);
            ExitCode::from(EXIT_CONFIG)
        })
    }
}

pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let cli = match Cli::try_parse_from(std::iter::once("ankusa".to_owned()).chain(args)) {
        Ok(cli) => cli,
        Err(usage) => {
            // Nobody is left to tell when even this cannot be printed.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    match cli.command {
        Command::Start(file) => start::run(&file),
        Command::Demo => demo::run(),
        Command::CheckConfig(file) => check_config::run(&file),
        Command::PrintConfig(file) => print_config::run(&file),
        Command::Version => version::run(),
        Command::Healthcheck(file) => healthcheck::run(&file),
        Command::BlobCheck(file) => blob_check::run(&file),
        Command::Recount(args) => recount::run(&args),
        Command::Ctl(args) => ctl::run(&args),
    }
}

/// Prints a whole answer. A reader that went away (`| head`) is no failure worth a message.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(what: impl Display) {
    // Nobody is left to tell when this fails.
    let _ = writeln!(io::stderr(), "{what}");
}

/// Runs one conversation to its end on this thread.
fn converse<T>(conversation: impl Future<Output = T>) -> Result<T, io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(conversation))
}
