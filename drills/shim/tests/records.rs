//! The recorder at work: this test program runs itself again with the library preloaded, and reads what it logged.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ankusa_drills_replay::control::{FILTER_OFFSET, PAGE_BYTES, Word};
use ankusa_drills_replay::{Disk, NameRule, Op, Policy, Rng, decode};

/// Cargo builds the library of a package beside the tests of the package.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let name = "libankusa_drills_shim.so";
    tests
        .ancestors()
        .map(|directory| directory.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is not built"))
}

/// One run of a child below a scratch directory.
struct Session {
    scratch: tempfile::TempDir,
}

impl Session {
    fn new() -> Self {
        let scratch = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
        fs::create_dir(scratch.path().join("root")).unwrap();
        File::create(scratch.path().join("ctl")).unwrap().set_len(PAGE_BYTES).unwrap();
        Self { scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn set(&self, word: Word, value: u64) {
        let page = OpenOptions::new().write(true).open(self.path("ctl")).unwrap();
        page.write_all_at(&value.to_le_bytes(), word.offset()).unwrap();
    }

    fn get(&self, word: Word) -> u64 {
        let mut bytes = [0; 8];
        File::open(self.path("ctl")).unwrap().read_exact_at(&mut bytes, word.offset()).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Runs one of the `child_` functions below with the library preloaded, and answers the log.
    fn run(&self, child: &str) -> Vec<u8> {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", child, "--nocapture", "--test-threads=1"])
            .env("DRILLED", self.scratch.path())
            .env("LD_PRELOAD", library())
            .env("DRILL_ROOT", self.path("root"))
            .env("DRILL_LOG", self.path("log"))
            .env("DRILL_MARK", self.path("mark"))
            .env("DRILL_CTL", self.path("ctl"))
            .output()
            .unwrap();
        assert!(output.status.success(), "the child failed: {output:?}");
        fs::read(self.path("log")).unwrap()
    }

    /// Runs a child and tells its log, one operation a line, with the root left out.
    fn story(&self, child: &str) -> Vec<String> {
        let log = self.run(child);
        let root = self.path("root").display().to_string();
        decode(&log).unwrap().iter().map(|op| tell(op).replace(&root, "")).collect()
    }
}

fn tell(op: &Op<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match *op {
        Op::Create { file, path } => format!("create {file} {path}"),
        Op::Found { file, path } => format!("found {file} {path}"),
        Op::Write { file, offset, bytes } => format!("write {file} @{offset} {}", text(bytes)),
        Op::Truncate { file, length } => format!("truncate {file} {length}"),
        Op::Extend { file, length } => format!("extend {file} {length}"),
        Op::SyncBegin { file, token } => format!("begin {file} #{token}"),
        Op::SyncEnd { file, token } => format!("end {file} #{token}"),
        Op::DirSyncEnd { path, token } => format!("end {path}/ #{token}"),
        Op::SyncFailed { file, token } => format!("failed {file} #{token}"),
        Op::Rename { from, to } => format!("rename {from} {to}"),
        Op::Link { from, to } => format!("link {from} {to}"),
        Op::Unlink { path } => format!("unlink {path}"),
        Op::MakeDir { path } => format!("mkdir {path}"),
        Op::RemoveDir { path } => format!("rmdir {path}"),
        Op::Mark { bytes } => format!("mark {}", text(bytes)),
    }
}

/// The root, in the child. Outside of one there is none, and the `child_` functions do nothing.
fn drilled() -> Option<PathBuf> {
    std::env::var_os("DRILLED").map(PathBuf::from)
}

#[test]
fn child_writes_syncs_and_renames() {
    let Some(scratch) = drilled() else { return };
    let root = scratch.join("root");
    let mut mark = File::create(scratch.join("mark")).unwrap();
    let mut file = File::create(root.join("tmp")).unwrap();
    file.write_all(b"hello").unwrap();
    file.write_all_at(b"J", 0).unwrap();
    mark.write_all(b"before the sync").unwrap();
    file.sync_data().unwrap();
    mark.write_all(b"after the sync").unwrap();
    fs::rename(root.join("tmp"), root.join("CURRENT")).unwrap();
    File::open(&root).unwrap().sync_all().unwrap();
    file.seek(SeekFrom::Start(2)).unwrap();
    file.write_all(b"!").unwrap();
}

#[test]
fn every_operation_is_logged_in_order_with_the_marks_between() {
    assert_eq!(
        Session::new().story("child_writes_syncs_and_renames"),
        [
            "create 1 /tmp",
            "write 1 @0 hello",
            "write 1 @0 J",
            "mark before the sync",
            "begin 1 #1",
            "end 1 #1",
            "mark after the sync",
            "rename /tmp /CURRENT",
            "begin 0 #2",
            "end / #2",
            "write 1 @2 !",
        ]
    );
}

#[test]
fn child_uses_names_and_descriptors() {
    let Some(scratch) = drilled() else { return };
    let root = scratch.join("root");
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("d/a"), b"one").unwrap();
    let again = OpenOptions::new().append(true).open(root.join("d/a")).unwrap();
    let mut copy = again.try_clone().unwrap();
    drop(again);
    copy.write_all(b"two").unwrap();
    assert_eq!(copy.write_vectored(&[IoSlice::new(b"th"), IoSlice::new(b"ree")]).unwrap(), 5);
    copy.set_len(4).unwrap();
    fs::hard_link(root.join("d/a"), root.join("d/b")).unwrap();
    fs::rename(root.join("d"), root.join("moved")).unwrap();
    OpenOptions::new().write(true).truncate(true).open(root.join("moved/a")).unwrap();
    fs::copy(root.join("moved/b"), root.join("c")).unwrap();
    fs::write(root.join("c"), b"four").unwrap();
    fs::remove_file(root.join("c")).unwrap();
    fs::write(root.join("c"), b"").unwrap();
    fs::remove_dir_all(root.join("moved/e")).unwrap();
    fs::write(scratch.join("outside"), b"not ours").unwrap();
}

#[test]
fn a_file_keeps_its_number_through_copies_of_its_descriptor_links_and_moves() {
    assert_eq!(
        Session::new().story("child_uses_names_and_descriptors"),
        [
            "mkdir /d",
            "mkdir /d/e",
            "create 1 /d/a",
            "write 1 @0 one",
            "write 1 @3 two",
            "write 1 @6 three",
            "truncate 1 4",
            "link /d/a /d/b",
            "rename /d /moved",
            "truncate 1 0",
            "create 2 /c",
            "truncate 2 0",
            "write 2 @0 four",
            "unlink /c",
            "create 3 /c",
            "rmdir /moved/e",
        ]
    );
}

#[test]
fn child_plays_tricks_with_descriptors() {
    let Some(scratch) = drilled() else { return };
    let root = scratch.join("root");
    fs::create_dir(root.join("d")).unwrap();
    let directory = File::open(root.join("d")).unwrap();
    fs::rename(root.join("d"), root.join("e")).unwrap();
    directory.sync_all().unwrap();

    let number = File::create(root.join("a")).unwrap().into_raw_fd();
    // SAFETY: the descriptor is open and nobody else's; the stream it becomes is closed once.
    unsafe { libc::fclose(libc::fdopen(number, c"w".as_ptr())) };
    // Something else has the number now, and no hook was told that the first owner let go of it.
    let mut elsewhere = File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(elsewhere.as_raw_fd(), number);
    elsewhere.write_all(b"not ours").unwrap();
}

#[test]
fn a_directory_is_synced_under_its_new_name_and_a_number_closed_by_libc_is_forgotten() {
    assert_eq!(
        Session::new().story("child_plays_tricks_with_descriptors"),
        ["mkdir /d", "rename /d /e", "begin 0 #1", "end /e/ #1", "create 1 /a"]
    );
}

#[test]
fn child_meets_faults() {
    let Some(scratch) = drilled() else { return };
    let root = scratch.join("root");
    let page = OpenOptions::new().read(true).write(true).open(scratch.join("ctl")).unwrap();
    let set =
        |word: Word, value: u64| page.write_all_at(&value.to_le_bytes(), word.offset()).unwrap();
    let mut file =
        File::options().create(true).read(true).append(true).open(root.join("a")).unwrap();
    file.write_all(b"0123").unwrap();

    set(Word::SyncErrno, u64::try_from(libc::EIO).unwrap());
    set(Word::FailSync, 2);
    file.sync_all().unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync_all().unwrap();

    set(Word::WriteErrno, u64::try_from(libc::ENOSPC).unwrap());
    set(Word::ShortWrite, 2);
    set(Word::FailWrite, 1);
    assert_eq!(file.write_all(b"4567").unwrap_err().kind(), ErrorKind::StorageFull);
    set(Word::FailWrite, 1);
    assert_eq!(File::create(root.join("b")).unwrap_err().kind(), ErrorKind::StorageFull);

    let mut back = String::new();
    set(Word::FlipRead, 1);
    File::open(root.join("a")).unwrap().take(6).read_to_string(&mut back).unwrap();
    assert_eq!(back, "012245");
    set(Word::ReadErrno, u64::try_from(libc::EIO).unwrap());
    set(Word::FailRead, 1);
    assert_eq!(fs::read(root.join("a")).unwrap_err().raw_os_error(), Some(libc::EIO));

    set(Word::Dead, 1);
    assert_eq!(file.write_all(b"x").unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(fs::remove_file(root.join("a")).unwrap_err().raw_os_error(), Some(libc::EIO));
    set(Word::Dead, 0);
    file.write_all(b"alive").unwrap();
}

#[test]
fn faults_come_when_they_were_asked_for_and_only_what_landed_is_logged() {
    let session = Session::new();
    assert_eq!(
        session.story("child_meets_faults"),
        [
            "create 1 /a",
            "write 1 @0 0123",
            "begin 1 #1",
            "end 1 #1",
            "begin 1 #2",
            "failed 1 #2",
            "begin 1 #3",
            "end 1 #3",
            "write 1 @4 45",
            "write 1 @6 alive",
        ]
    );
    assert_eq!(session.get(Word::SeenSyncs), 3);
    assert_eq!(session.get(Word::SeenFaults), 5, "a write that is cut short is one fault");
}

#[test]
fn child_meets_faults_of_some_paths() {
    let Some(scratch) = drilled() else { return };
    let root = scratch.join("root");
    let page = OpenOptions::new().read(true).write(true).open(scratch.join("ctl")).unwrap();
    let set =
        |word: Word, value: u64| page.write_all_at(&value.to_le_bytes(), word.offset()).unwrap();
    let full = Some(libc::ENOSPC);
    let mut other = File::create(root.join("other")).unwrap();
    let mut meant = File::create(root.join("MANIFEST-1")).unwrap();
    page.write_all_at(b"MANIFEST-", FILTER_OFFSET).unwrap();
    set(Word::FilterLength, 9);
    set(Word::WriteErrno, u64::try_from(libc::ENOSPC).unwrap());
    set(Word::FailWrite, 2);
    other.write_all(b"not meant").unwrap();
    meant.write_all(b"the first").unwrap();
    other.write_all(b", nor this").unwrap();
    // Half of a write that is cut short lands, and the rest is refused, whoever writes something else in between.
    set(Word::ShortWrite, 3);
    assert_eq!(meant.write(b"second").unwrap(), 3);
    other.write_all(b" or this").unwrap();
    assert_eq!(meant.write(b"ond").unwrap_err().raw_os_error(), full);
    meant.write_all(b"third").unwrap();

    set(Word::FailWrite, 1);
    set(Word::Sticky, 1);
    let fails = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == full;
    assert!(fails(meant.write_all(b"never")));
    assert!(fails(meant.write_all(b"ever")));
    assert!(fails(fs::rename(root.join("other"), root.join("MANIFEST-2"))));
    fs::rename(root.join("other"), root.join("another")).unwrap();
    fs::remove_file(root.join("MANIFEST-1")).unwrap();
}

#[test]
fn a_filter_says_which_paths_meet_faults_and_a_full_disk_still_removes_files() {
    let session = Session::new();
    assert_eq!(
        session.story("child_meets_faults_of_some_paths"),
        [
            "create 1 /other",
            "create 2 /MANIFEST-1",
            "write 1 @0 not meant",
            "write 2 @0 the first",
            "write 1 @9 , nor this",
            "write 2 @9 sec",
            "write 1 @19  or this",
            "write 2 @12 third",
            "rename /other /another",
            "unlink /MANIFEST-1",
        ]
    );
    assert_eq!(session.get(Word::SeenFaults), 4);
}

#[test]
fn child_appends_and_syncs() {
    let Some(scratch) = drilled() else { return };
    let mut mark = File::create(scratch.join("mark")).unwrap();
    let mut file = File::create(scratch.join("root/log")).unwrap();
    for record in 0_u8..40 {
        file.write_all(&[record; 700]).unwrap();
        file.sync_data().unwrap();
        mark.write_all(&[record]).unwrap();
    }
}

/// The calibration of the whole instrument: a program known to be right loses nothing at any cut.
#[test]
fn a_program_that_syncs_before_it_acknowledges_loses_nothing_at_any_cut() {
    let session = Session::new();
    session.set(Word::SyncDelayUs, 10);
    let log = session.run("child_appends_and_syncs");
    let root = session.path("root").display().to_string();
    let mut disk = Disk::new(&root, NameRule::Journal);
    let (mut acknowledged, mut cuts) = (0, 0);
    for op in decode(&log).unwrap() {
        disk.apply(&op).unwrap();
        if let Op::Mark { .. } = op {
            acknowledged += 1;
        }
        for policy in Policy::ALL {
            let image = disk.image(policy, &mut Rng::new(cuts));
            let survived = image.file("log").map_or(0, <[u8]>::len);
            assert!(
                survived >= acknowledged * 700,
                "{policy:?} after {acknowledged} records kept {survived} bytes"
            );
            cuts += 1;
        }
    }
    assert_eq!((acknowledged, cuts), (40, 5 * (1 + 4 * 40)));
}

#[test]
fn child_does_nothing() {}

#[test]
fn a_process_that_touches_nothing_below_the_root_logs_nothing() {
    assert_eq!(Session::new().story("child_does_nothing"), Vec::<String>::new());
    assert!(Path::new(&library()).exists());
}
