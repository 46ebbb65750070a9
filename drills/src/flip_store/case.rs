//! One damaged store under a real node, and what becomes of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ankusa_drills_check::Dump;
use tokio::time::timeout;

use super::flips::Damage;
use super::rest::{self, AtRest};
use crate::drill::{CannotInject, OrCannot};
use crate::node::{Node, NodeSetup, NotReady};

/// A node that has not come up or ended by then hangs. Longer than its own deadline for an open.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// What a node ends with that refuses to boot.
const REFUSED: &str = "exit status: 1";

/// What it ends with whose configuration is wrong, or gone: somebody has taken the drill's files away.
const MISCONFIGURED: &str = "exit status: 78";

const HANGING_MANIFEST: &[u8] = include_bytes!("../../fixtures/manifest-hang.tgz");

/// What became of a damaged store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is not opened; the node says why.
    Refused(String),
    /// It is opened, and a read that meets the damage is an error.
    Reported,
    /// It is opened, and every row is there.
    Harmless,
    /// The end of its log was taken for one that a power cut had torn: that is told, and no hook is missing.
    CutOff,
    /// Rows are missing or differ, and nobody said so; or hooks are missing.
    Lost(String),
    /// The node ended in another way than by refusing.
    Died(String),
    Hung,
}

impl Fate {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Reported => "reported",
            Self::Harmless => "harmless",
            Self::CutOff => "cut off",
            Self::Lost(_) => "LOST",
            Self::Died(_) => "DIED",
            Self::Hung => "HUNG",
        }
    }
}

/// A place for one node at a time.
pub(super) struct Bench {
    setup: NodeSetup,
}

impl Bench {
    pub(super) fn new(directory: &Path) -> Result<Self, CannotInject> {
        Ok(Self { setup: rest::setup(directory)? })
    }

    /// Damages a copy of a store and starts a node on it.
    pub(super) async fn fate(
        &self,
        damage: &Damage,
        stores: &[AtRest],
    ) -> Result<Fate, CannotInject> {
        let expected = self.lay_out(damage, stores)?;
        let mut node = match self.setup.spawn() {
            Ok(node) => node,
            Err(error) => return Err(CannotInject(error.to_string())),
        };
        match timeout(HANGS_AFTER, node.wait_until_ready()).await {
            Err(_) | Ok(Err(NotReady::TooLate { .. })) => Ok(Fate::Hung),
            Ok(Err(NotReady::CannotStart(error))) => Err(CannotInject(error)),
            Ok(Err(NotReady::Ended { status, log })) if status == MISCONFIGURED => {
                Err(CannotInject(format!("the node has no configuration: {log}")))
            }
            Ok(Err(NotReady::Ended { status, log })) => Ok(ended(&status, &log)),
            Ok(Ok(())) => compare(&node, expected).await,
        }
    }

    /// Answers what the store held before it was damaged, where a node may come up on it.
    fn lay_out<'a>(
        &self,
        damage: &Damage,
        stores: &'a [AtRest],
    ) -> Result<Option<&'a Dump>, CannotInject> {
        let path = self.setup.store();
        match damage {
            Damage::Flip { store, file, byte, bit, .. } => {
                let at_rest = stores.get(*store).ok_or_else(no_store)?;
                rest::write_files(&path, &at_rest.files)?;
                let mut bytes = at_rest.files.get(file).cloned().unwrap_or_default();
                if let Some(byte) = bytes.get_mut(*byte) {
                    *byte ^= 1 << bit;
                }
                std::fs::write(path.join(file), bytes).or_cannot("flip a bit")?;
                Ok(Some(&at_rest.dump))
            }
            Damage::HangingManifest => {
                rest::write_files(&path, &Default::default())?;
                let archive = path.with_extension("tgz");
                std::fs::write(&archive, HANGING_MANIFEST).or_cannot("unpack a store")?;
                let mut tar = Command::new("tar");
                tar.arg("xzf").arg(&archive).arg("-C").arg(&path).arg("--strip-components=1");
                succeeds(&mut tar)?;
                Ok(None)
            }
            Damage::UnreadableLog => {
                let at_rest = stores.first().ok_or_else(no_store)?;
                rest::write_files(&path, &at_rest.files)?;
                for log in at_rest.files.keys().filter(|file| file.ends_with(".log")) {
                    std::fs::remove_file(path.join(log)).or_cannot("remove a log")?;
                    succeeds(Command::new("mkfifo").arg(path.join(log)))?;
                }
                Ok(None)
            }
        }
    }
}

fn no_store() -> CannotInject {
    CannotInject("there is no such store".to_owned())
}

fn succeeds(command: &mut Command) -> Result<(), CannotInject> {
    let name = format!("run {}", command.get_program().to_string_lossy());
    let status = command.status().or_cannot(&name)?;
    if status.success() { Ok(()) } else { Err(CannotInject(format!("cannot {name}: {status}"))) }
}

/// The reason is the last thing a node says that refuses to boot.
fn ended(status: &str, log: &str) -> Fate {
    let last = log.lines().last().unwrap_or_default();
    match last.split_once("cannot start: cannot open the store at ") {
        Some((_, reason)) if status == REFUSED => {
            let reason = reason.split_once(": ").map_or(reason, |(_path, reason)| reason);
            Fate::Refused(reason.to_owned())
        }
        _other => refused_by_a_check(status, last),
    }
}

/// The node itself refuses what opens and does not fit.
fn refused_by_a_check(status: &str, last: &str) -> Fate {
    match last.split_once("cannot start: ") {
        Some((_, reason)) if status == REFUSED => Fate::Refused(reason.to_owned()),
        _other => Fate::Died(format!("it ended with {status}; it said last: {last}")),
    }
}

async fn compare(node: &Node, expected: Option<&Dump>) -> Result<Fate, CannotInject> {
    let Some(expected) = expected else {
        return Ok(Fate::Lost("it came up on a store that cannot be read".to_owned()));
    };
    // A dump that meets damage breaks off, and says so by that.
    let Ok(found) = rest::dump(node).await else { return Ok(Fate::Reported) };
    let was_cut =
        !node.status().await?.pointer("/opened/cut").is_none_or(serde_json::Value::is_null);
    Ok(differ(&found, expected, was_cut))
}

fn differ(found: &Dump, expected: &Dump, was_cut: bool) -> Fate {
    if found.rows == expected.rows && found.next_seq == expected.next_seq {
        return Fate::Harmless;
    }
    let there: BTreeSet<&[u8]> = rest::hooks_of(found).collect();
    let missing = rest::hooks_of(expected).filter(|key| !there.contains(key)).count();
    if was_cut && missing == 0 {
        return Fate::CutOff;
    }
    let (rows, next) = (found.rows.len(), found.next_seq);
    Fate::Lost(format!(
        "{missing} hooks are missing; {rows} rows of {}, next seq {next} of {}, cut off: {was_cut}",
        expected.rows.len(),
        expected.next_seq
    ))
}

#[cfg(test)]
mod tests {
    use ankusa_drills_check::{Family, Row};

    use super::*;

    fn dump(seqs: &[u64], note: u8) -> Dump {
        let hook = |seq: &u64| Row {
            family: Family::Hooks,
            key: seq.to_be_bytes().to_vec(),
            value: b"v".to_vec(),
        };
        let note = Row { family: Family::Default, key: b"m:note".to_vec(), value: vec![note] };
        let rows = [note].into_iter().chain(seqs.iter().map(hook)).collect();
        Dump { rows, synced_through: 0, next_seq: 4 }
    }

    #[test]
    fn a_store_is_what_it_was_or_something_is_lost() {
        let whole = dump(&[1, 2, 3], 1);
        assert_eq!(differ(&whole, &whole, false), Fate::Harmless);
        let lost = differ(&dump(&[1, 3], 1), &whole, false);
        assert!(matches!(&lost, Fate::Lost(what) if what.starts_with("1 hooks are missing")));
        // What was cut off is told; a hook it took is lost all the same.
        assert_eq!(differ(&dump(&[1, 2, 3], 0), &whole, true), Fate::CutOff);
        assert!(matches!(differ(&dump(&[1, 2, 3], 0), &whole, false), Fate::Lost(_)));
        assert!(matches!(differ(&dump(&[1, 2], 1), &whole, true), Fate::Lost(_)));
        let shorter = Dump { next_seq: 3, ..dump(&[1, 2, 3], 1) };
        assert!(matches!(differ(&shorter, &whole, false), Fate::Lost(_)));
    }

    #[test]
    fn a_refusal_is_an_exit_with_a_reason() {
        let log = "before\nERROR cannot start: cannot open the store at /d/store: SEAL is damaged";
        assert_eq!(ended(REFUSED, log), Fate::Refused("SEAL is damaged".to_owned()));
        let log = "ERROR cannot start: hooks holds rows and index holds none";
        let reason = "hooks holds rows and index holds none";
        assert_eq!(ended(REFUSED, log), Fate::Refused(reason.to_owned()));
        assert!(matches!(ended("signal: 11 (SIGSEGV)", log), Fate::Died(_)));
        assert!(matches!(ended(REFUSED, "panicked"), Fate::Died(_)));
    }
}
