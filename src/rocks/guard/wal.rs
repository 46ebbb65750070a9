//! The write-ahead log as it lies on the disk, and whether what is damaged in it was ever promised to anybody.
//!
//! RocksDB does not know how far a log was synced, so it cannot tell a write that the power cut from one that has rotted
//! since: one of its modes refuses to open after an honest power cut, the other drops acked hooks without a word. The
//! records know. Every group says how far the log was synced when it was built; a whole group behind the damage that
//! says so of a seq at or behind it proves that what is damaged was on the disk, and acked.
//!
//! What stays undecided: damage in the last groups, with nothing behind that says they were synced, looks like a torn
//! tail, and is taken for one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::batch;
use super::log::{Damage, LogReader, Piece};

/// A log file by its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogFile {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// Every log file in `store`, oldest first.
pub(super) fn files(store: &Path) -> io::Result<Vec<LogFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(store)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| is_log) {
            let bytes = std::fs::metadata(&path)?.len();
            files.push(LogFile { number, path, bytes });
        }
    }
    files.sort();
    Ok(files)
}

/// What some stretch of the log says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) records: u64,
    /// The seq after the last hook.
    pub(super) next_seq: Option<u64>,
    /// The highest seq it says was synced.
    pub(super) synced_through: Option<u64>,
    /// RocksDB's number of its first change, and the one after its last.
    pub(super) first_sequence: Option<u64>,
    pub(super) next_sequence: Option<u64>,
}

impl Told {
    fn add(&mut self, facts: batch::BatchFacts) {
        self.records += 1;
        self.next_seq = self.next_seq.max(facts.next_seq);
        self.synced_through = self.synced_through.max(facts.synced_through);
        self.first_sequence = self.first_sequence.or(Some(facts.sequence));
        self.next_sequence = Some(facts.sequence.saturating_add(facts.changes.into()));
    }
}

/// The first damage of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WalDamage {
    pub(super) file: LogFile,
    pub(super) damage: Damage,
    /// Whether there is a later file.
    pub(super) in_an_older_file: bool,
}

/// The whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wal {
    /// Up to the damage, or to the end.
    pub(super) before: Told,
    pub(super) damage: Option<WalDamage>,
    /// What is whole behind it.
    pub(super) behind: Told,
}

/// Reads `files`, which are in order, to their ends.
pub(super) fn read(files: &[LogFile]) -> io::Result<Wal> {
    let mut wal = Wal::default();
    for (n, file) in files.iter().enumerate() {
        let mut starts_here = true;
        let mut reader = LogReader::new(File::open(&file.path)?, file.bytes);
        while let Some(piece) = reader.next()? {
            match piece {
                Piece::Damage(damage) => {
                    let in_an_older_file = n + 1 < files.len();
                    let found = || WalDamage { file: file.clone(), damage, in_an_older_file };
                    wal.damage.get_or_insert_with(found);
                }
                Piece::Record { bytes, start, .. } => {
                    let Some(facts) = batch::read(&bytes) else {
                        let why = "a record that is no batch";
                        let damage = Damage { at: start, cut_short: false, why };
                        let in_an_older_file = n + 1 < files.len();
                        let found = || WalDamage { file: file.clone(), damage, in_an_older_file };
                        wal.damage.get_or_insert_with(found);
                        continue;
                    };
                    let previous = n.checked_sub(1).and_then(|n| files.get(n));
                    if let Some(previous) = previous.filter(|_| starts_here && wal.damage.is_none())
                        && wal.before.next_sequence.is_some_and(|next| facts.sequence > next)
                    {
                        // Whole records are missing from the end of the file before.
                        let why = "records missing from its end";
                        let damage = Damage { at: previous.bytes, cut_short: false, why };
                        let file = previous.clone();
                        wal.damage = Some(WalDamage { file, damage, in_an_older_file: true });
                    }
                    starts_here = false;
                    let told = if wal.damage.is_none() { &mut wal.before } else { &mut wal.behind };
                    told.add(facts);
                }
            }
        }
    }
    Ok(wal)
}

/// What is to be done with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Open it: there is no damage, or only the torn end that RocksDB drops by itself.
    Open,
    /// Take away everything from the damage on: nothing of it was promised to anybody.
    Cut(WalDamage),
    /// Leave it alone: acked hooks are damaged, or may be.
    Refuse(String),
}

/// What is known of a store besides its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The next seq when the store was last opened or closed: all before it are in tables.
    pub(super) next_seq: u64,
    /// The newest log a family has been written past: everything before it has been synced.
    pub(super) written_past: u64,
    /// The store was closed cleanly, so all of its log was synced.
    pub(super) closed: bool,
}

/// Judges the first damage by what is behind it.
pub(super) fn judge(wal: &Wal, known: Known) -> Verdict {
    let Some(found) = &wal.damage else { return Verdict::Open };
    let WalDamage { file, damage: Damage { at, why, cut_short }, in_an_older_file } = found;
    let first = wal.before.next_seq.unwrap_or(0).max(known.next_seq).max(1);
    let what = format!("{} is damaged at byte {at} ({why})", file.path.display());
    if known.closed {
        return Verdict::Refuse(format!(
            "{what}, and the store was closed cleanly, with all of its log on the disk; seqs from {first} on may be \
             among what is damaged"
        ));
    }
    if known.written_past > file.number {
        return Verdict::Refuse(format!(
            "{what}, and tables have been written from what came after it, so it was on the disk; seqs from {first} on \
             may be among what is damaged"
        ));
    }
    if let Some(synced) = wal.behind.synced_through.filter(|synced| *synced >= first) {
        return Verdict::Refuse(format!(
            "{what}, and a later record proves that it was on the disk: acked hooks of the seqs {first} to {synced} are \
             damaged"
        ));
    }
    if *cut_short && !in_an_older_file {
        return Verdict::Open;
    }
    Verdict::Cut(found.clone())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::batch::tests::{group, other};
    use super::super::log::tests::file_of;
    use super::*;

    /// Log files that hold these bytes.
    fn written(files: &[&[u8]]) -> (tempfile::TempDir, Vec<LogFile>) {
        let dir = tempfile::tempdir().unwrap();
        for (n, bytes) in files.iter().enumerate() {
            fs::write(dir.path().join(format!("{:06}.log", n + 9)), bytes).unwrap();
        }
        fs::write(dir.path().join("000001.sst"), b"no log").unwrap();
        fs::write(dir.path().join("notes.log"), b"no number").unwrap();
        let found = super::files(dir.path()).unwrap();
        (dir, found)
    }

    /// What is made of files that hold these bytes.
    fn verdict(files: &[&[u8]], known: Known) -> String {
        let (dir, files) = written(files);
        let verdict = match judge(&read(&files).unwrap(), known) {
            Verdict::Open => "open".to_owned(),
            Verdict::Cut(found) => format!("cut {} at {}", found.file.number, found.damage.at),
            Verdict::Refuse(why) => why,
        };
        verdict.replace(&format!("{}/", dir.path().display()), "")
    }

    /// Four groups of ten hooks, each built when the one before it was not known to be synced, and where they begin.
    fn four_groups() -> (Vec<u8>, [usize; 4]) {
        let groups: Vec<Vec<u8>> =
            (0..4).map(|n| group(1 + 4 * n, 11 + 10 * n, (10 * n).saturating_sub(10))).collect();
        let slices: Vec<&[u8]> = groups.iter().map(Vec::as_slice).collect();
        let starts = [0, 1, 2, 3].map(|n| file_of(&slices[..n]).len());
        (file_of(&slices), starts)
    }

    #[test]
    fn the_files_of_a_log_are_read_in_the_order_of_their_numbers() {
        let (_dir, files) =
            written(&[&file_of(&[&group(1, 11, 0)]), &file_of(&[&group(5, 21, 10)])]);
        assert_eq!(files.iter().map(|file| file.number).collect::<Vec<_>>(), [9, 10]);
        let wal = read(&files).unwrap();
        let expected = Told {
            records: 2,
            next_seq: Some(21),
            synced_through: Some(10),
            first_sequence: Some(1),
            next_sequence: Some(9),
        };
        assert_eq!(wal, Wal { before: expected, ..Wal::default() });
    }

    #[test]
    fn a_whole_log_and_one_with_a_torn_end_are_opened() {
        let (file, starts) = four_groups();
        assert_eq!(verdict(&[], Known::default()), "open");
        assert_eq!(verdict(&[&file], Known::default()), "open");
        for len in 0..file.len() {
            assert_eq!(verdict(&[&file[..len]], Known::default()), "open", "{len} bytes");
        }
        // All of it was synced: what ends early has lost something.
        let closed = Known { closed: true, ..Known::default() };
        let why = verdict(&[&file[..starts[3] + 9]], closed);
        assert!(why.contains("closed cleanly"), "{why}");
        assert!(why.contains("seqs from 31 on"), "{why}");
    }

    #[test]
    fn pages_that_came_out_of_order_are_cut_off() {
        let (file, starts) = four_groups();
        // The third group's page never arrived; the fourth was built before the second was known to be synced.
        let mut zeros = file.clone();
        zeros[starts[2]..starts[3]].fill(0);
        assert_eq!(verdict(&[&zeros], Known::default()), format!("cut 9 at {}", starts[2]));
        // Zeros at the end, as of a file whose size arrived and whose bytes did not.
        let mut tail = file;
        tail[starts[3]..].fill(0);
        tail.extend_from_slice(&[0; 5_000]);
        assert_eq!(verdict(&[&tail], Known::default()), format!("cut 9 at {}", starts[3]));
    }

    #[test]
    fn damage_that_a_later_group_knows_was_synced_refuses_and_names_the_seqs() {
        let (file, starts) = four_groups();
        for bit in 0..starts[1] * 8 {
            let mut rotten = file.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            let why = verdict(&[&rotten], Known::default());
            assert!(why.starts_with("000009.log is damaged at byte 0 ("), "bit {bit}: {why}");
            assert!(
                why.ends_with("acked hooks of the seqs 1 to 20 are damaged"),
                "bit {bit}: {why}"
            );
        }
        let mut rotten = file.clone();
        rotten[starts[1] + 30] ^= 1;
        let why = verdict(&[&rotten], Known::default());
        assert!(why.ends_with("acked hooks of the seqs 11 to 20 are damaged"), "{why}");
        // What was in tables when the store was opened is not among it.
        let known = Known { next_seq: 15, ..Known::default() };
        assert!(verdict(&[&rotten], known).ends_with("seqs 15 to 20 are damaged"));
        let known = Known { next_seq: 21, ..Known::default() };
        assert_eq!(verdict(&[&rotten], known), format!("cut 9 at {}", starts[1]));
    }

    #[test]
    fn a_type_of_a_recycled_file_is_judged_like_any_damage() {
        let (file, starts) = four_groups();
        for kind in [5, 6, 7, 8, 11, 131] {
            let mut rotten = file.clone();
            rotten[starts[1] + 6] = kind;
            assert!(verdict(&[&rotten], Known::default()).ends_with("11 to 20 are damaged"));
            let mut tail = file.clone();
            tail[starts[3] + 6] = kind;
            assert_eq!(verdict(&[&tail], Known::default()), format!("cut 9 at {}", starts[3]));
        }
    }

    #[test]
    fn a_batch_without_seqs_proves_nothing_and_a_mark_behind_it_does() {
        let records = [group(1, 11, 0), other(5), group(6, 11, 10)];
        let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let file = file_of(&slices);
        let second = file_of(&slices[..1]).len();
        let mut rotten = file.clone();
        rotten[10] ^= 1;
        assert!(verdict(&[&rotten], Known::default()).ends_with("1 to 10 are damaged"));
        rotten = file;
        rotten[second + 8] ^= 1;
        assert_eq!(verdict(&[&rotten], Known::default()), format!("cut 9 at {second}"));
    }

    #[test]
    fn an_older_file_with_a_damaged_end_is_judged_by_the_files_behind_it() {
        let older = file_of(&[&group(1, 11, 0), &group(5, 21, 0)]);
        let torn = &older[..older.len() - 3];
        let at = file_of(&[&group(1, 11, 0)]).len();
        let unsynced = file_of(&[&group(9, 31, 10)]);
        assert_eq!(verdict(&[torn, &unsynced], Known::default()), format!("cut 9 at {at}"));
        // RocksDB would take this for the end of the older file, and go on with the newer one.
        assert_eq!(verdict(&[torn, b""], Known::default()), format!("cut 9 at {at}"));
        let synced = file_of(&[&group(9, 31, 20)]);
        assert!(verdict(&[torn, &synced], Known::default()).ends_with("11 to 20 are damaged"));
        let written_past = Known { written_past: 10, ..Known::default() };
        let why = verdict(&[torn, &unsynced], written_past);
        assert!(why.contains("tables have been written from what came after it"), "{why}");
        assert_eq!(verdict(&[torn], Known { written_past: 9, ..Known::default() }), "open");
    }

    #[test]
    fn records_that_are_missing_between_two_files_are_damage() {
        let older = file_of(&[&group(1, 11, 0)]);
        let whole = file_of(&[&group(5, 21, 10)]);
        assert_eq!(verdict(&[&older, &whole], Known::default()), "open");
        let gap = file_of(&[&group(9, 31, 10)]);
        let at = older.len();
        assert_eq!(verdict(&[&older, &gap], Known::default()), format!("cut 9 at {at}"));
        let synced = file_of(&[&group(9, 31, 20)]);
        assert!(verdict(&[&older, &synced], Known::default()).ends_with("11 to 20 are damaged"));
    }
}
