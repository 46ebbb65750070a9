//! The calibration of the power-cut instrument: a program known to be right, run under the recorder first.
//!
//! It appends a record, syncs it, and only then acknowledges it. An instrument that sees it lose a record is wrong, and a
//! drill that uses it is void.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use ankusa_drills_replay::{Disk, NameRule, Op, Policy, Rng, decode};

use crate::drill::{CannotInject, OrCannot};
use crate::recorded::recorder::Recorder;
use crate::scratch::Scratch;

/// The hidden command the binary runs it under.
pub const COMMAND: &str = "control";

/// Records it appends.
const RECORDS: usize = 40;

/// Bytes of a record: no divisor of a page or a sector.
const RECORD_BYTES: usize = 700;

/// The program. Appends to `file`, acknowledges in `mark`.
///
/// # Errors
/// When it cannot write.
pub fn run(file: &Path, mark: &Path) -> io::Result<()> {
    let mut mark = File::create(mark)?;
    let mut file = File::create(file)?;
    for _ in 0..RECORDS {
        file.write_all(&[b'c'; RECORD_BYTES])?;
        file.sync_data()?;
        mark.write_all(b"one more")?;
    }
    Ok(())
}

/// Runs the program under the recorder and checks that no cut, of any kind, loses a record it acknowledged.
///
/// # Errors
/// When it cannot be run, or the instrument says that it loses something.
pub fn calibrate(seed: u64) -> Result<(), CannotInject> {
    let scratch = Scratch::in_memory()?;
    let recorder = Recorder::new(&scratch)?;
    let mut command = Command::new(std::env::current_exe().or_cannot("find this program")?);
    command
        .arg(COMMAND)
        .arg(recorder.root().join("records"))
        .arg(recorder.mark())
        .envs(recorder.environment());
    let status = command.status().or_cannot("run the control program")?;
    if !status.success() {
        return Err(CannotInject(format!("the control program failed: {status}")));
    }
    let log = recorder.read_log()?;
    let ops = decode(&log).or_cannot("read the control program's log")?;
    let mut disk = Disk::new(&recorder.root().display().to_string(), NameRule::Journal);
    let mut acknowledged = 0;
    for (at, op) in ops.iter().enumerate() {
        disk.apply(op).or_cannot("replay the control program")?;
        acknowledged += usize::from(matches!(op, Op::Mark { .. }));
        for policy in Policy::ALL {
            let image = disk.image(policy, &mut Rng::new(seed ^ u64::try_from(at).unwrap_or(0)));
            if image.file("records").map_or(0, <[u8]>::len) < acknowledged * RECORD_BYTES {
                return Err(CannotInject(format!(
                    "the instrument is wrong: {} lost a synced record at operation {at}",
                    policy.name()
                )));
            }
        }
    }
    if acknowledged != RECORDS {
        return Err(CannotInject(format!(
            "the recorder saw {acknowledged} of {RECORDS} acknowledgements: is it loaded?"
        )));
    }
    Ok(())
}
