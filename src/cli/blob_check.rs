//! `ankusa blob-check`: tries every store of a configuration, without a node.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::Entropy;
use tokio::time::Instant;

use super::{ConfigFile, complain, converse, print};
use crate::blob::advice::what_to_do;
use crate::blob::probe::{Finding, Report, Verdict, probe, probe_key};
use crate::blob::transport::World;
use crate::config::Config;
use crate::host::{HostClock, HostEntropy, NoEvents};
use crate::node::stores::{self, Distinct};
use crate::telemetry;

/// How long all checks of one store may take, if its own deadlines are not shorter.
const WITHIN: Duration = Duration::from_secs(300);

pub(super) fn run(file: &ConfigFile) -> ExitCode {
    let config = match file.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    telemetry::logs::start(&config.log);
    match converse(check(&config)) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(why)) => {
            complain(why);
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

/// Whether all of them are safe.
async fn check(config: &Config) -> Result<bool, String> {
    let entropy: Arc<dyn Entropy> = Arc::new(HostEntropy);
    let world = World {
        clock: Arc::new(HostClock),
        entropy: Arc::clone(&entropy),
        events: Arc::new(NoEvents),
        pools: Arc::default(),
        breakers: Arc::default(),
    };
    let mut all_safe = true;
    for Distinct { names, shown, prefix, store, .. } in stores::open(config, &world)?.distinct {
        // A reader that went away is no failure of the store's.
        let _ = print(&format!("{names}: {shown}\n"));
        let key = probe_key(&prefix, entropy.as_ref())
            .map_err(|why| format!("storage.key_prefix: {why}"))?;
        let report = probe(store.as_ref(), &key, Instant::now() + WITHIN).await;
        let _ = print(&lines(&report));
        all_safe &= report.verdict() == Verdict::Safe;
    }
    Ok(all_safe)
}

/// A line a check.
fn lines(report: &Report) -> String {
    let line = |name: &str, said: &str| format!("  {name:<12}  {said}\n");
    let checks = report.0.iter().map(|(check, finding)| match finding {
        Finding::Kept => line(check.as_str(), "ok"),
        Finding::Broken(why) => line(check.as_str(), &format!("BROKEN: {why}")),
        Finding::Failed(error) => {
            line(check.as_str(), &format!("failed: {error}; {}", what_to_do(error)))
        }
    });
    let verdict = match report.verdict() {
        Verdict::Safe => "safe",
        Verdict::Unsafe { .. } => "UNSAFE: a node must not use it",
        Verdict::Unknown { .. } => "unknown: it could not be tried to the end",
    };
    checks.chain([line("", verdict)]).collect()
}
