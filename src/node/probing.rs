//! Tries the stores whose conditions need proof, before the node runs and, where there is no answer, while it does.
//!
//! A store that answers and does something else keeps the node from running. One that cannot be reached, or that refuses,
//! does not: it is told, the node runs, since no hook needs a store to be accepted, and the store is tried again until
//! there is an answer. If that answer is a bad one, the node ends as if it had refused to boot.

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::{BlobError, Entropy};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::stores::Distinct;
use crate::blob::advice::what_to_do;
use crate::blob::probe::{Verdict, probe, probe_key};

/// How long a boot waits for all of them.
const AT_BOOT: Duration = Duration::from_secs(5);

/// How long one of them may take that is tried again.
const LATER: Duration = Duration::from_secs(60);

/// The wait before it is tried again, and the longest one, twice as long each time.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Why a node must not run.
pub(super) type Unsafe = Option<String>;

/// Tries all of them at once.
///
/// # Errors
/// One of them must not be used.
pub(super) async fn at_boot(
    stores: &[Distinct],
    entropy: &Arc<dyn Entropy>,
) -> Result<Vec<Distinct>, String> {
    let deadline = Instant::now() + AT_BOOT;
    let tried = stores
        .iter()
        .filter(|store| store.probes)
        .map(|store| async move { (store, verdict(store, entropy, deadline).await) });
    let mut unknown = Vec::new();
    for (store, verdict) in futures_util::future::join_all(tried).await {
        match told(store, &verdict) {
            Told::Safe => {}
            Told::Unsafe(why) => return Err(why),
            Told::Unknown => unknown.push(store.clone()),
        }
    }
    Ok(unknown)
}

/// Goes on trying those that gave no answer, until each has.
pub(super) fn go_on(
    stores: Vec<Distinct>,
    entropy: &Arc<dyn Entropy>,
    found: &Arc<watch::Sender<Unsafe>>,
) {
    for store in stores {
        let (entropy, found) = (Arc::clone(entropy), Arc::clone(found));
        tokio::spawn(async move {
            let mut wait = FIRST_WAIT;
            loop {
                sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
                let verdict = verdict(&store, &entropy, Instant::now() + LATER).await;
                match told(&store, &verdict) {
                    Told::Safe => return,
                    Told::Unsafe(why) => {
                        found.send_replace(Some(why));
                        return;
                    }
                    Told::Unknown => {}
                }
            }
        });
    }
}

async fn verdict(store: &Distinct, entropy: &Arc<dyn Entropy>, deadline: Instant) -> Verdict {
    match probe_key(&store.prefix, entropy.as_ref()) {
        Ok(key) => probe(store.store.as_ref(), &key, deadline).await.verdict(),
        Err(why) => {
            let error = BlobError::Misconfigured(format!("storage.key_prefix: {why}"));
            Verdict::Unknown { check: crate::blob::probe::Check::Create, error }
        }
    }
}

enum Told {
    Safe,
    Unsafe(String),
    Unknown,
}

fn told(store: &Distinct, verdict: &Verdict) -> Told {
    let Distinct { names, shown, .. } = store;
    match verdict {
        Verdict::Safe => {
            info!("the store of {names} ({shown}) does what its answers say");
            Told::Safe
        }
        Verdict::Unsafe { check, why } => {
            let check = check.as_str();
            Told::Unsafe(format!("the store of {names} ({shown}) must not be used: {check}: {why}"))
        }
        Verdict::Unknown { check, error } => {
            let (check, advice) = (check.as_str(), what_to_do(error));
            let text = format!(
                "the store of {names} ({shown}) could not be tried: {check}: {error}; {advice}"
            );
            match error.advice() {
                ankusa_actors::ports::BlobAdvice::Operator => error!("{text}"),
                ankusa_actors::ports::BlobAdvice::Answer
                | ankusa_actors::ports::BlobAdvice::Retry { .. }
                | ankusa_actors::ports::BlobAdvice::Distrust => warn!("{text}"),
            }
            Told::Unknown
        }
    }
}
