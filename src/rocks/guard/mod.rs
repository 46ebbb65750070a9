//! What stands between a damaged store and an open that loses rows without a word.
//!
//! RocksDB takes some damage for the end of a file, and reads for ever on some. So the files that say what there is are
//! read here first, before it may touch anything: the manifest is compared with the seal, and every record of the log is
//! checked. What it then opens is compared with what must be there, and sealed again.
//!
//! Which states a power cut can leave, and what is made of them. RocksDB writes a new manifest at each open, names it in
//! `CURRENT`, and only then is there a new seal. So `CURRENT` names the sealed manifest, whose sealed bytes are the same
//! and may be followed by more; or a newer one, because an open (or a manifest grown too long) was not sealed any more:
//! then the seal says nothing of it, but the next seq, which was on the disk at the time, still may not go back. A
//! manifest older than the sealed one never is. A seal that says the store was closed cleanly is replaced by one that
//! does not before anything is opened.

mod aside;
mod batch;
mod bytes;
mod checksum;
mod log;
mod manifest;
mod seal;
mod wal;

use std::fs;
use std::io;
use std::path::Path;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::{META_NEXT_SEQ, read_u64};
use ankusa_actors::ports::{OpenReport, StoreCut};
use rocksdb::{DB, IteratorMode};
use tracing::{error, info, warn};

use self::manifest::Manifest;
use self::seal::{Closed, Found, Seal};
use self::wal::{Known, LogFile, Verdict, WalDamage};
use super::error::{class_of, class_of_io};

/// Why a store is not opened.
pub(super) type Refusal = (FailureClass, String);

/// How often the name of a manifest that is just being replaced is read again.
const LOOKS: usize = 3;

/// What the files said before the open.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The store may not have a lower one.
    next_seq: u64,
    /// It was closed cleanly, and not touched since.
    closed: Option<Closed>,
    cut: Option<StoreCut>,
}

/// What is read from an open database for its seal.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloseFacts {
    next_seq: u64,
    rows: [u64; Cf::ALL.len()],
}

/// Checks the files of a store that is not open, and cuts off what a power cut left of its log.
///
/// # Errors
/// It is damaged. Nothing has been changed.
pub(super) fn before_open(store: &Path) -> Result<Before, Refusal> {
    let found = if cfg!(feature = "canary-no-seal") {
        Found::Nothing
    } else {
        seal::read(store).map_err(|error| refused_by_io(store, seal::NAME, &error))?
    };
    let seal = match found {
        Found::Nothing => None,
        Found::Sealed(seal) => Some(seal),
        Found::Damaged => {
            return Err(corrupt(
                "SEAL is damaged, so nothing tells whether the database is whole; if you know that it is, remove the \
                 file SEAL, and the next start opens what is there and seals it",
            ));
        }
    };
    let Some(name) =
        manifest::current(store).map_err(|error| refused_by_io(store, "CURRENT", &error))?
    else {
        return match seal {
            None => Ok(Before::default()),
            Some(seal) => Err(corrupt(format!(
                "CURRENT is missing, yet SEAL names {}: this is no new store",
                seal.manifest
            ))),
        };
    };
    check_name(&name, seal.as_ref())?;
    let path = store.join(&name);
    let by_io = |what: &str, error: io::Error| refused_by_io(store, what, &error);
    let manifest = match manifest::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(corrupt(format!("CURRENT names {name}, which is not there")));
        }
        read => read.map_err(|error| by_io(&name, error))?,
    };
    if let Some(seal) = seal.as_ref().filter(|seal| seal.manifest == name) {
        check_prefix(&path, seal).map_err(|error| by_io(&name, error))??;
    }
    let mut logs = wal::files(store).map_err(|error| by_io("the log", error))?;
    logs.retain(|log| log.number >= manifest.first_log());
    let wal = wal::read(&logs).map_err(|error| by_io("the log", error))?;
    let starts = wal.before.first_sequence.or(wal.behind.first_sequence);
    let manifest_end = check_manifest(&name, &manifest, starts)?;
    let is_untouched =
        |seal: &&Seal| seal.manifest == name && seal.manifest_bytes == manifest.bytes;
    let closed = seal.as_ref().filter(is_untouched).and_then(|seal| seal.closed.clone());
    if let Some(closed) = &closed {
        check_closed_logs(closed, &logs)?;
    }
    let sealed_next_seq = seal.as_ref().map_or(0, |seal| seal.next_seq);
    let known = Known {
        next_seq: sealed_next_seq,
        written_past: manifest.written_past(),
        closed: closed.is_some(),
    };
    let found = match wal::judge(&wal, known) {
        Verdict::Open => None,
        Verdict::Cut(found) => Some(found),
        Verdict::Refuse(why) => return Err(corrupt(why)),
    };
    let cut = cut(store, &path, manifest_end, &logs, found, wal.behind.records)
        .map_err(|error| by_io("what the power cut left of the log", error))?;
    if let Some(seal) = seal.filter(|seal| seal.closed.is_some()) {
        let reopened = Seal { closed: None, ..seal };
        seal::write(store, &reopened).map_err(|error| by_io(seal::NAME, error))?;
    }
    let next_seq = sealed_next_seq.max(wal.before.next_seq.unwrap_or(0));
    Ok(Before { next_seq, closed, cut })
}

fn corrupt(detail: impl Into<String>) -> Refusal {
    (FailureClass::Corruption, detail.into())
}

fn refused_by_io(store: &Path, what: &str, error: &io::Error) -> Refusal {
    (class_of_io(error), format!("{what} in {}: {error}", store.display()))
}

/// What `CURRENT` says.
fn check_name(name: &str, seal: Option<&Seal>) -> Result<(), Refusal> {
    let Some(number) = manifest::number(name) else {
        return Err(corrupt("CURRENT is damaged: it names no manifest"));
    };
    let sealed = seal.and_then(|seal| Some((manifest::number(&seal.manifest)?, &seal.manifest)));
    match sealed {
        Some((sealed, older)) if number < sealed => Err(corrupt(format!(
            "CURRENT names {name}, yet SEAL names {older}, which is newer: an older database has come in the place of \
             this one"
        ))),
        Some(_) | None => Ok(()),
    }
}

fn check_prefix(path: &Path, seal: &Seal) -> io::Result<Result<(), Refusal>> {
    let Seal { manifest, manifest_bytes, manifest_sha256, .. } = seal;
    let (bytes, sha256) = seal::sealed_prefix(path, Some(*manifest_bytes))?;
    let why = if bytes < *manifest_bytes {
        format!("{manifest} has {bytes} bytes of the {manifest_bytes} that were sealed")
    } else if sha256 != *manifest_sha256 {
        format!("the first {manifest_bytes} bytes of {manifest} are not those that were sealed")
    } else {
        return Ok(Ok(()));
    };
    Ok(Err(corrupt(format!(
        "{why}: the list of the database's files is damaged, and what it would open is not this store"
    ))))
}

/// Damage behind the sealed bytes. Answers where the manifest is to end, if RocksDB would not see that by itself.
fn check_manifest(
    name: &str,
    manifest: &Manifest,
    log_starts: Option<u64>,
) -> Result<Option<u64>, Refusal> {
    let Some(damage) = manifest.damage.filter(|_| !cfg!(feature = "canary-no-seal")) else {
        return Ok(None);
    };
    let what = format!("{name} is damaged at byte {} ({})", damage.at, damage.why);
    if manifest.whole_behind > 0 {
        return Err(corrupt(format!("{what}, and records behind it are whole")));
    }
    // The last write of a manifest may be torn. If it was not, the log it let go of is gone.
    if log_starts.is_some_and(|starts| starts > manifest.last_sequence.saturating_add(1)) {
        return Err(corrupt(format!("{what}, and the log does not go on where it ends")));
    }
    Ok((!damage.cut_short).then_some(damage.at))
}

fn check_closed_logs(closed: &Closed, logs: &[LogFile]) -> Result<(), Refusal> {
    for (number, bytes) in &closed.logs {
        let there = logs.iter().find(|log| log.number == *number);
        let there = there.map_or(0, |log| log.bytes);
        if there != *bytes {
            return Err(corrupt(format!(
                "the log {number:06}.log has {there} bytes; it had {bytes} when the store was closed"
            )));
        }
    }
    Ok(())
}

/// Keeps the store as it is, and then takes off the end of its log, or of its manifest.
fn cut(
    store: &Path,
    manifest: &Path,
    manifest_end: Option<u64>,
    logs: &[LogFile],
    found: Option<WalDamage>,
    records: u64,
) -> io::Result<Option<StoreCut>> {
    if manifest_end.is_none() && found.is_none() {
        return Ok(None);
    }
    let kept_in = aside::keep(store)?;
    if let Some(end) = manifest_end {
        warn!(path = %manifest.display(), at = end, kept_in = %kept_in.display(), "cut off the torn end of the manifest");
        aside::shorten(manifest, end)?;
    }
    let Some(WalDamage { file, damage, .. }) = found else { return Ok(None) };
    // The newest first: whenever this is interrupted, what is left is judged as before.
    for later in logs.iter().rev().take_while(|log| log.number > file.number) {
        fs::remove_file(&later.path)?;
    }
    aside::shorten(&file.path, damage.at)?;
    let bytes: u64 = logs.iter().filter(|log| log.number >= file.number).map(|log| log.bytes).sum();
    let cut = StoreCut {
        file: format!("{:06}.log", file.number),
        at_byte: damage.at,
        bytes: bytes.saturating_sub(damage.at),
        records,
        why: damage.why.to_owned(),
        kept_in,
    };
    warn!(
        path = %file.path.display(), at = cut.at_byte, bytes = cut.bytes, records = cut.records, why = cut.why,
        kept_in = %cut.kept_in.display(),
        "cut off the end of the log: a power cut left it in pieces, and nothing in them was known to be synced"
    );
    Ok(Some(cut))
}

/// Takes the seal away: the next open seals what it finds.
pub(super) fn unseal(store: &Path) {
    // Where it cannot be, the next open says so.
    let _ = std::fs::remove_file(store.join(seal::NAME));
}

/// Compares what was opened with what must be there, and seals it.
///
/// # Errors
/// Rows are missing, or the seal cannot be written.
pub(super) fn after_open(store: &Path, db: &DB, before: Before) -> Result<OpenReport, Refusal> {
    let next_seq = next_seq(db).map_err(corrupt)?;
    if next_seq < before.next_seq && !cfg!(feature = "canary-no-seal") {
        return Err(corrupt(format!(
            "the next seq is {next_seq}, and it was {} before: hooks are missing",
            before.next_seq
        )));
    }
    if let Some(closed) = &before.closed {
        check_rows(db, closed)?;
    }
    let was_sealed = store.join(seal::NAME).exists();
    reseal(store, next_seq, None).map_err(|error| refused_by_io(store, seal::NAME, &error))?;
    if !was_sealed {
        info!(path = %store.display(), next_seq, "the store had no seal; it has one now");
    }
    Ok(OpenReport { closed_cleanly: before.closed.is_some(), cut: before.cut })
}

fn check_rows(db: &DB, closed: &Closed) -> Result<(), Refusal> {
    let rows = match count_rows(db) {
        Ok(rows) => rows,
        Err(error) => {
            // A block that is damaged is an error of each read that meets it, and of no other.
            error!(error, "the rows of the store cannot be counted");
            return Ok(());
        }
    };
    let mut families = Cf::ALL.into_iter().zip(rows.iter().zip(&closed.rows));
    let differs = families.find(|(_, (rows, sealed))| rows != sealed);
    differs.map_or(Ok(()), |(cf, (rows, sealed))| {
        Err(corrupt(format!(
            "{} has {rows} rows, and it had {sealed} when the store was closed (counted up to {})",
            cf.name(),
            seal::counted_up_to(cf)
        )))
    })
}

fn next_seq(db: &DB) -> Result<u64, String> {
    match db.get(META_NEXT_SEQ).map_err(rocksdb::Error::into_string)? {
        None => Ok(1),
        Some(stored) => read_u64(&stored).ok_or_else(|| "the next seq cannot be read".to_owned()),
    }
}

fn count_rows(db: &DB) -> Result<[u64; Cf::ALL.len()], String> {
    let mut counts = [0; Cf::ALL.len()];
    for (cf, count) in Cf::ALL.into_iter().zip(&mut counts) {
        let family = db.cf_handle(cf.name()).ok_or_else(|| format!("{} is missing", cf.name()))?;
        let limit = usize::try_from(seal::counted_up_to(cf)).unwrap_or(usize::MAX);
        for row in db.iterator_cf(family, IteratorMode::Start).take(limit) {
            row.map_err(rocksdb::Error::into_string)?;
            *count += 1;
        }
    }
    Ok(counts)
}

/// What to seal a database with that is about to be closed: `None` if it cannot be read, or not all of its log is on the
/// disk.
pub(super) fn facts_for_closing(db: &DB) -> Option<CloseFacts> {
    db.flush_wal(true).ok()?;
    Some(CloseFacts { next_seq: next_seq(db).ok()?, rows: count_rows(db).ok()? })
}

/// Seals a database that has been closed cleanly. If it cannot be, the seal of its open stands.
pub(super) fn after_close(store: &Path, facts: CloseFacts) {
    let CloseFacts { next_seq, rows } = facts;
    if let Err(error) = reseal(store, next_seq, Some(rows)) {
        let class = class_of_io(&error).as_str();
        warn!(%error, class, "the closed store could not be sealed; the next open counts it as not closed cleanly");
    }
}

fn reseal(store: &Path, next_seq: u64, closed: Option<[u64; Cf::ALL.len()]>) -> io::Result<()> {
    let mut looks = 1;
    let (manifest, (manifest_bytes, manifest_sha256)) = loop {
        let name = manifest::current(store)?.unwrap_or_default();
        match seal::sealed_prefix(&store.join(&name), None) {
            // It has just been replaced by a newer one.
            Err(error) if error.kind() == io::ErrorKind::NotFound && looks < LOOKS => looks += 1,
            sealed => break (name, sealed?),
        }
    };
    let closed = match closed {
        None => None,
        Some(rows) => {
            let first_log = manifest::read(&store.join(&manifest))?.first_log();
            let logs = wal::files(store)?.into_iter().filter(|log| log.number >= first_log);
            Some(Closed { rows, logs: logs.map(|log| (log.number, log.bytes)).collect() })
        }
    };
    seal::write(store, &Seal { manifest, manifest_bytes, manifest_sha256, next_seq, closed })
}

/// What RocksDB said, as a refusal.
pub(super) fn refused(error: rocksdb::Error) -> Refusal {
    let detail = error.into_string();
    (class_of(&detail), detail)
}
