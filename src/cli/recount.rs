//! `ankusa recount`: the counters of a store against its rows, without a node.
//!
//! Opens the store as a boot does, with everything that is checked then, and closes it again. A running node is asked with
//! `ankusa ctl recount`.

use std::path::Path;
use std::process::ExitCode;

use ankusa_actors::admin::recounted;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::store::{OfflineError, OfflineRecount, recount_offline};
use clap::Args;

use super::{ConfigFile, EXIT_WRONG_COUNTERS, complain, converse, ctl, print};
use crate::config::Config;
use crate::node;
use crate::rocks::RocksEngine;
use crate::telemetry;

#[derive(Debug, Args)]
pub(super) struct RecountArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Make the counters right that are wrong: exit 0 then
    #[arg(long)]
    repair: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RecountArgs) -> ExitCode {
    let config = match args.config.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    telemetry::logs::start(&config.log);
    match count(&config, args.repair) {
        Ok(told) => {
            let value = recounted(&told.counted, told.repaired, &told.names);
            let text =
                if args.json { format!("{value}\n") } else { ctl::table("miscounts", &value) };
            let printed = print(&text);
            if told.is_right() { printed } else { ExitCode::from(EXIT_WRONG_COUNTERS) }
        }
        Err(why) => {
            complain(why);
            ExitCode::FAILURE
        }
    }
}

fn count(config: &Config, repair: bool) -> Result<OfflineRecount, String> {
    let store = config.instance_dir().join("store");
    // Opening it would make one.
    if !store.join("CURRENT").exists() {
        return Err(format!("there is no store at {}", store.display()));
    }
    let engine = RocksEngine::new(&store, node::rocks_options(config));
    let counted = converse(recount_offline(&engine, repair)).map_err(|error| error.to_string())?;
    counted.map_err(|error| why_not(&error, &store))
}

fn why_not(error: &OfflineError, store: &Path) -> String {
    match error {
        OfflineError::Open(open) if open.class == FailureClass::Busy => format!(
            "a node has the store at {} open: stop it first, or ask it with `ankusa ctl recount`",
            store.display()
        ),
        OfflineError::Open(_) | OfflineError::Refused(_) => error.to_string(),
    }
}
