//! The calibration of the power-cut instrument: a program known to be right, run under the recorder first.
//!
//! It appends a record, syncs it, and only then acknowledges it. An instrument that sees it lose a record is wrong, and a
//! drill that uses it is void.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ankusa_drills_replay::{Disk, NameRule, Op, Policy, Rng, decode};

use crate::drill::{CannotInject, OrCannot};
use crate::recorded::recorder::Recorder;
use crate::scratch::Scratch;

/// The hidden command the binary runs it under.
pub const COMMAND: &str = "control";

/// Records it appends.
pub const RECORDS: usize = 40;

/// Bytes of a record: no divisor of a page or a sector.
const RECORD_BYTES: usize = 700;

/// Longest wait for the program to write them.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);

/// What a record is made of.
const RECORD_BYTE: u8 = b'c';

/// What is written once a record is synced.
const ACKNOWLEDGEMENT: &[u8] = b"one more";

/// The program. Appends to `file`, acknowledges in `mark`.
///
/// # Errors
/// When it cannot write.
pub fn run(file: &Path, mark: &Path) -> io::Result<()> {
    let mut mark = File::create(mark)?;
    let mut file = File::create(file)?;
    for _ in 0..RECORDS {
        file.write_all(&[RECORD_BYTE; RECORD_BYTES])?;
        file.sync_data()?;
        mark.write_all(ACKNOWLEDGEMENT)?;
    }
    Ok(())
}

/// The program while it runs, for an instrument that cuts it off.
pub struct Running(Child);

/// Starts the program. It goes on until its records are written or it is killed.
///
/// # Errors
/// When it cannot be started.
pub fn start(file: &Path, mark: &Path) -> Result<Running, CannotInject> {
    // What an earlier trial acknowledged is not this one's.
    File::create(mark).or_cannot("prepare the control program")?;
    let this = std::env::current_exe().or_cannot("find this program")?;
    let mut command = Command::new(this);
    command.arg(COMMAND).arg(file).arg(mark).stderr(Stdio::null());
    Ok(Running(command.spawn().or_cannot("run the control program")?))
}

impl Running {
    /// Waits until it has acknowledged so many records.
    ///
    /// # Errors
    /// When that takes longer than [`WRITTEN_WITHIN`].
    pub fn wait_for(&self, records: usize, mark: &Path) -> Result<(), CannotInject> {
        let began = Instant::now();
        while acknowledged(mark)? < records {
            if began.elapsed() > WRITTEN_WITHIN {
                return Err(CannotInject("run the control program: it does not go on".to_owned()));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Ends the program, if it has not ended, and waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(mut self) -> Result<(), CannotInject> {
        // It may have ended by itself.
        let _ = self.0.kill();
        self.0.wait().or_cannot("wait for the control program")?;
        Ok(())
    }
}

/// How many records the program has acknowledged.
///
/// # Errors
/// When that cannot be read.
pub fn acknowledged(mark: &Path) -> Result<usize, CannotInject> {
    let marked = std::fs::metadata(mark).or_cannot("read what was acknowledged")?.len();
    Ok(usize::try_from(marked).unwrap_or(0) / ACKNOWLEDGEMENT.len())
}

/// Holds the instrument to having kept so many records.
///
/// # Errors
/// When one is missing: the instrument is wrong.
pub fn holds(file: &Path, acknowledged: usize) -> Result<(), CannotInject> {
    let records = std::fs::read(file).unwrap_or_default();
    let whole = records.iter().take_while(|byte| **byte == RECORD_BYTE).count() / RECORD_BYTES;
    if whole < acknowledged {
        return Err(CannotInject(format!(
            "the instrument is wrong: it lost {} of {acknowledged} synced records",
            acknowledged - whole
        )));
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
