//! The calibration of the recorder and its faults: a program known to be right, run under them first.
//!
//! It appends a record, syncs it, and only then acknowledges it. After an error it trusts nothing it wrote since it last
//! heard of a success, and writes everything again. An instrument that sees it lose a record is wrong, and a drill that
//! uses it is void.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ankusa_drills_replay::{Disk, NameRule, Op, Policy, Rng, decode};

use crate::drill::{CannotInject, OrCannot};
use crate::recorded::fault::Fault;
use crate::recorded::recorder::Recorder;
use crate::scratch::Scratch;

/// The hidden command the binary runs it under.
pub const COMMAND: &str = "control";

/// Records it appends.
pub const RECORDS: usize = 40;

/// Bytes of a record: no divisor of a page or a sector.
const RECORD_BYTES: usize = 700;

/// How often it tries a step that fails, with [`PAUSE`] between: longer than any fault of a calibration is held.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(2);

/// How long a fault that stays is held.
const HOLD: Duration = Duration::from_millis(40);

/// Longest wait for the program to write its records.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);

/// What is written once a record is synced.
const ACKNOWLEDGEMENT: &[u8] = b"one more";

/// The program. Appends to `path`, acknowledges in `mark`, and reads back what it wrote.
///
/// # Errors
/// When a step fails again and again, or it reads back something else.
pub fn run(path: &Path, mark: &Path) -> io::Result<()> {
    let mut mark = File::create(mark)?;
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true);
    let file = again(|| options.open(path))?;
    for number in 0..RECORDS {
        let mut from = number;
        again(|| {
            let appended = append(&file, from, number);
            if appended.is_err() {
                from = 0;
            }
            appended
        })?;
        mark.write_all(ACKNOWLEDGEMENT)?;
    }
    let mut contents = vec![0; RECORDS * RECORD_BYTES];
    again(|| file.read_exact_at(&mut contents, 0))?;
    if contents == records(RECORDS) { Ok(()) } else { Err(io::Error::other("read back changed")) }
}

/// Writes the records from `from` to `last`, and syncs.
fn append(file: &File, from: usize, last: usize) -> io::Result<()> {
    let bytes = records(last + 1);
    let begin = from * RECORD_BYTES;
    let offset = u64::try_from(begin).map_err(io::Error::other)?;
    file.write_all_at(bytes.get(begin..).unwrap_or_default(), offset)?;
    file.sync_data()
}

/// The first `count` records, each of a byte of its own.
fn records(count: usize) -> Vec<u8> {
    let bytes = (0..count).map(|number| u8::try_from(number + 1).unwrap_or(u8::MAX));
    bytes.flat_map(|byte| [byte; RECORD_BYTES]).collect()
}

fn again<T>(mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tried = 1;
    loop {
        match step() {
            Err(_) if tried < ATTEMPTS => sleep(PAUSE),
            result => return result,
        }
        tried += 1;
    }
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
            sleep(Duration::from_micros(100));
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
    let contents = std::fs::read(file).unwrap_or_default();
    let kept = (0..=acknowledged).rev().find(|count| contents.starts_with(&records(*count)));
    let lost = acknowledged - kept.unwrap_or(0);
    if lost > 0 {
        return Err(CannotInject(format!(
            "the instrument is wrong: it lost {lost} of {acknowledged} synced records"
        )));
    }
    Ok(())
}

/// Runs the program under the recorder and checks that no cut, of any kind, loses a record it acknowledged.
///
/// # Errors
/// When it cannot be run, or the instrument says that it loses something.
pub fn calibrate(seed: u64) -> Result<(), CannotInject> {
    calibrate_under(seed, None)
}

/// The same with a fault, which must come, and after which the program must go on.
///
/// # Errors
/// As [`calibrate`]; and when the fault does not come.
pub fn calibrate_fault(seed: u64, fault: &Fault) -> Result<(), CannotInject> {
    calibrate_under(seed, Some(fault))
}

fn calibrate_under(seed: u64, fault: Option<&Fault>) -> Result<(), CannotInject> {
    let scratch = Scratch::in_memory()?;
    let recorder = Recorder::new(&scratch)?;
    if let Some(fault) = fault {
        recorder.arm(fault)?;
    }
    let mut command = Command::new(std::env::current_exe().or_cannot("find this program")?);
    command
        .arg(COMMAND)
        .arg(recorder.root().join("records"))
        .arg(recorder.mark())
        .envs(recorder.environment());
    let mut child = command.spawn().or_cannot("run the control program")?;
    if fault.is_some() {
        heal(&recorder, &mut child)?;
    }
    let status = child.wait().or_cannot("run the control program")?;
    if !status.success() {
        return Err(CannotInject(format!("the control program failed: {status}")));
    }
    if let Some(fault) = fault
        && !recorder.has_fired()?
    {
        return Err(CannotInject(format!("the control program never met this: {}", fault.place())));
    }
    loses_nothing(seed, &recorder)
}

/// Heals the fault once it was held, or once the program has ended without it.
fn heal(recorder: &Recorder, child: &mut Child) -> Result<(), CannotInject> {
    while !recorder.has_fired()? {
        if child.try_wait().or_cannot("wait for the control program")?.is_some() {
            return Ok(());
        }
        sleep(PAUSE);
    }
    sleep(HOLD);
    recorder.heal()
}

fn loses_nothing(seed: u64, recorder: &Recorder) -> Result<(), CannotInject> {
    let log = recorder.read_log()?;
    let ops = decode(&log).or_cannot("read the control program's log")?;
    let mut disk = Disk::new(&recorder.root().display().to_string(), NameRule::Journal);
    let mut acknowledged = 0;
    for (at, op) in ops.iter().enumerate() {
        disk.apply(op).or_cannot("replay the control program")?;
        acknowledged += usize::from(matches!(op, Op::Mark { .. }));
        let promised = records(acknowledged);
        for policy in Policy::ALL {
            let image = disk.image(policy, &mut Rng::new(seed ^ u64::try_from(at).unwrap_or(0)));
            if !image.file("records").unwrap_or_default().starts_with(&promised) {
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
