//! Each rule of the model disk, one by one: a short story of operations, a cut, and what is left.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ankusa_drills_replay::disk::{DiskError, FILE_MAX_BYTES};
use ankusa_drills_replay::{Disk, Mirror, NameRule, Op, Policy, Rng};

const ROOT: &str = "/r";

/// Replays a story over an empty root.
fn after(rule: NameRule, story: &[Op<'_>]) -> Disk {
    let mut disk = Disk::new(ROOT, rule);
    for op in story {
        disk.apply(op).unwrap();
    }
    disk
}

/// The files an image holds, as text.
fn cut(disk: &Disk, policy: Policy, seed: u64) -> Vec<(String, String)> {
    let image = disk.image(policy, &mut Rng::new(seed));
    image
        .paths()
        .filter_map(|path| {
            Some((path.to_owned(), String::from_utf8(image.file(path)?.to_vec()).unwrap()))
        })
        .collect()
}

fn dropped(disk: &Disk) -> Vec<(String, String)> {
    cut(disk, Policy::DropUnsynced, 1)
}

fn files(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, bytes)| ((*path).to_owned(), (*bytes).to_owned())).collect()
}

fn create<'a>(file: u32, path: &'a str) -> Op<'a> {
    Op::Create { file, path }
}

fn write(file: u32, offset: u64, bytes: &str) -> Op<'_> {
    Op::Write { file, offset, bytes: bytes.as_bytes() }
}

fn begin(file: u32, token: u64) -> Op<'static> {
    Op::SyncBegin { file, token }
}

fn end(file: u32, token: u64) -> Op<'static> {
    Op::SyncEnd { file, token }
}

fn directory_end(path: &str, token: u64) -> Op<'_> {
    Op::DirSyncEnd { path, token }
}

#[test]
fn what_was_never_synced_is_gone_and_a_killed_process_keeps_it() {
    let disk = after(NameRule::Journal, &[create(1, "/r/a"), write(1, 0, "hello")]);
    assert_eq!(dropped(&disk), files(&[]));
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&[("a", "hello")]));
}

#[test]
fn an_fsync_keeps_what_was_written_before_it_began_and_no_more() {
    let story = [
        create(1, "/r/a"),
        write(1, 0, "one"),
        begin(1, 7),
        write(1, 3, "two"),
        end(1, 7),
        write(1, 6, "three"),
    ];
    let disk = after(NameRule::Journal, &story);
    assert_eq!(dropped(&disk), files(&[("a", "one")]));
}

#[test]
fn an_fsync_that_has_not_returned_keeps_nothing() {
    let disk = after(NameRule::Journal, &[create(1, "/r/a"), write(1, 0, "one"), begin(1, 7)]);
    assert_eq!(dropped(&disk), files(&[]));
}

#[test]
fn two_fsyncs_of_one_file_each_keep_their_own_share_whichever_returns_first() {
    let story =
        [create(1, "/r/a"), write(1, 0, "one"), begin(1, 7), write(1, 3, "two"), begin(1, 8)];
    let mut early = after(NameRule::Journal, &story);
    early.apply(&end(1, 7)).unwrap();
    assert_eq!(dropped(&early), files(&[("a", "one")]));

    let mut late = after(NameRule::Journal, &story);
    late.apply(&end(1, 8)).unwrap();
    assert_eq!(dropped(&late), files(&[("a", "onetwo")]));
    late.apply(&end(1, 7)).unwrap();
    assert_eq!(dropped(&late), files(&[("a", "onetwo")]));
}

#[test]
fn under_a_journal_an_fsync_of_any_file_commits_the_names_before_it() {
    let story = [create(1, "/r/a"), create(2, "/r/b"), begin(2, 7), create(3, "/r/c"), end(2, 7)];
    assert_eq!(dropped(&after(NameRule::Journal, &story)), files(&[("a", ""), ("b", "")]));
}

#[test]
fn under_the_strict_rule_a_synced_file_without_a_synced_directory_has_no_name() {
    let mut disk =
        after(NameRule::Strict, &[create(1, "/r/a"), write(1, 0, "hello"), begin(1, 7), end(1, 7)]);
    assert_eq!(dropped(&disk), files(&[]));
    disk.apply(&begin(0, 8)).unwrap();
    disk.apply(&directory_end("/r", 8)).unwrap();
    assert_eq!(dropped(&disk), files(&[("a", "hello")]));
}

#[test]
fn a_directory_fsync_keeps_its_own_names_alone() {
    let story = [
        Op::MakeDir { path: "/r/d" },
        begin(0, 1),
        directory_end("/r", 1),
        create(1, "/r/d/in"),
        create(2, "/r/out"),
        begin(0, 2),
        create(3, "/r/d/late"),
        directory_end("/r/d", 2),
    ];
    assert_eq!(dropped(&after(NameRule::Strict, &story)), files(&[("d/in", "")]));
    assert_eq!(dropped(&after(NameRule::Journal, &story)), files(&[("d/in", ""), ("out", "")]));
}

#[test]
fn a_file_written_fsynced_and_renamed_without_a_directory_fsync_keeps_its_old_name() {
    let story = [
        create(1, "/r/tmp"),
        write(1, 0, "new"),
        begin(1, 1),
        end(1, 1),
        begin(0, 2),
        directory_end("/r", 2),
        Op::Rename { from: "/r/tmp", to: "/r/CURRENT" },
    ];
    for rule in [NameRule::Journal, NameRule::Strict] {
        let mut disk = after(rule, &story);
        assert_eq!(dropped(&disk), files(&[("tmp", "new")]), "{rule:?}");
        disk.apply(&begin(0, 3)).unwrap();
        disk.apply(&directory_end("/r", 3)).unwrap();
        assert_eq!(dropped(&disk), files(&[("CURRENT", "new")]), "{rule:?}");
    }
}

#[test]
fn a_rename_between_directories_is_kept_by_an_fsync_of_either() {
    for synced in ["/r/from", "/r/to"] {
        let story = [
            Op::MakeDir { path: "/r/from" },
            Op::MakeDir { path: "/r/to" },
            begin(0, 1),
            directory_end("/r", 1),
            create(1, "/r/from/a"),
            begin(0, 2),
            directory_end("/r/from", 2),
            Op::Rename { from: "/r/from/a", to: "/r/to/a" },
            begin(0, 3),
            directory_end(synced, 3),
        ];
        assert_eq!(dropped(&after(NameRule::Strict, &story)), files(&[("to/a", "")]), "{synced}");
    }
}

#[test]
fn a_rename_takes_the_place_of_what_was_there() {
    let story = [
        create(1, "/r/a"),
        write(1, 0, "old"),
        create(2, "/r/b"),
        write(2, 0, "new"),
        Op::Rename { from: "/r/b", to: "/r/a" },
    ];
    assert_eq!(cut(&after(NameRule::Journal, &story), Policy::KeepAll, 1), files(&[("a", "new")]));
}

#[test]
fn a_rename_of_a_directory_takes_along_what_is_in_it() {
    let story = [
        Op::MakeDir { path: "/r/d" },
        create(1, "/r/d/a"),
        create(2, "/r/d2"),
        Op::Rename { from: "/r/d", to: "/r/e" },
    ];
    assert_eq!(
        cut(&after(NameRule::Journal, &story), Policy::KeepAll, 1),
        files(&[("d2", ""), ("e/a", "")])
    );
}

#[test]
fn a_rename_of_a_file_the_recorder_never_saw_changes_nothing() {
    let disk = after(NameRule::Journal, &[Op::Rename { from: "/r/LOG", to: "/r/LOG.old" }]);
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&[]));
}

#[test]
fn an_unlink_that_was_not_synced_comes_undone() {
    let story = [
        create(1, "/r/a"),
        write(1, 0, "hello"),
        begin(1, 1),
        end(1, 1),
        Op::Unlink { path: "/r/a" },
    ];
    let disk = after(NameRule::Journal, &story);
    assert_eq!(dropped(&disk), files(&[("a", "hello")]));
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&[]));
}

#[test]
fn a_path_made_again_is_a_new_file() {
    let story = [
        create(1, "/r/a"),
        write(1, 0, "old"),
        begin(1, 1),
        end(1, 1),
        Op::Unlink { path: "/r/a" },
        create(2, "/r/a"),
        begin(2, 2),
        end(2, 2),
    ];
    assert_eq!(dropped(&after(NameRule::Journal, &story)), files(&[("a", "")]));
}

#[test]
fn a_link_shares_its_bytes_and_outlives_the_first_name() {
    let story = [
        create(1, "/r/a"),
        Op::Link { from: "/r/a", to: "/r/b" },
        write(1, 0, "both"),
        Op::Unlink { path: "/r/a" },
        begin(1, 1),
        end(1, 1),
    ];
    assert_eq!(dropped(&after(NameRule::Journal, &story)), files(&[("b", "both")]));
}

#[test]
fn what_hangs_below_a_lost_directory_is_lost_with_it() {
    let story = [
        Op::MakeDir { path: "/r/d" },
        create(1, "/r/d/a"),
        begin(1, 1),
        end(1, 1),
        begin(0, 2),
        directory_end("/r/d", 2),
    ];
    assert_eq!(dropped(&after(NameRule::Strict, &story)), files(&[]));
    assert_eq!(dropped(&after(NameRule::Journal, &story)), files(&[("d/a", "")]));
}

#[test]
fn a_truncate_and_an_extend_wait_for_a_sync_like_a_write() {
    let mut disk = after(
        NameRule::Journal,
        &[create(1, "/r/a"), write(1, 0, "hello"), begin(1, 1), end(1, 1)],
    );
    disk.apply(&Op::Truncate { file: 1, length: 2 }).unwrap();
    disk.apply(&Op::Extend { file: 1, length: 4 }).unwrap();
    disk.apply(&Op::Extend { file: 1, length: 3 }).unwrap();
    assert_eq!(dropped(&disk), files(&[("a", "hello")]));
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&[("a", "he\0\0")]));
    disk.apply(&begin(1, 2)).unwrap();
    disk.apply(&end(1, 2)).unwrap();
    assert_eq!(dropped(&disk), files(&[("a", "he\0\0")]));
}

#[test]
fn a_failed_fsync_forgets_its_writes_and_a_later_one_does_not_bring_them_back() {
    let story = [
        create(1, "/r/a"),
        begin(1, 1),
        end(1, 1),
        write(1, 0, "lost"),
        begin(1, 2),
        write(1, 4, "kept"),
        Op::SyncFailed { file: 1, token: 2 },
        begin(1, 3),
        end(1, 3),
    ];
    let disk = after(NameRule::Journal, &story);
    assert_eq!(dropped(&disk), files(&[("a", "\0\0\0\0kept")]));
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&[("a", "lostkept")]));
    assert_eq!(disk.forgotten_writes(), 1);
}

#[test]
fn a_hole_reads_as_zeros() {
    let disk = after(NameRule::Journal, &[create(1, "/r/a"), write(1, 2, "x")]);
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&[("a", "\0\0x")]));
}

/// A durable file of 512 `d`, then two unsynced appends of 1,024 bytes: `x` and `y`.
fn with_two_unsynced_appends() -> Disk {
    let (durable, first, second) = ("d".repeat(512), "x".repeat(1024), "y".repeat(1024));
    let story = [
        create(1, "/r/a"),
        write(1, 0, &durable),
        begin(1, 1),
        end(1, 1),
        write(1, 512, &first),
        write(1, 1536, &second),
    ];
    after(NameRule::Journal, &story)
}

/// How often each shape of the file came out of 400 seeds.
fn shapes(policy: Policy, describe: fn(&str) -> String) -> BTreeMap<String, usize> {
    let disk = with_two_unsynced_appends();
    let mut seen = BTreeMap::new();
    for seed in 0..400 {
        let image = cut(&disk, policy, seed);
        assert_eq!(
            image[0].1.get(..512),
            Some("d".repeat(512).as_str()),
            "synced bytes never change"
        );
        *seen.entry(describe(&image[0].1)).or_default() += 1;
    }
    seen
}

/// `d512 x1024` and so on: runs of equal bytes.
fn runs(contents: &str) -> String {
    let mut runs: Vec<(char, usize)> = Vec::new();
    for byte in contents.chars() {
        match runs.last_mut() {
            Some((last, count)) if *last == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs.iter()
        .map(|(byte, count)| format!("{}{count}", if *byte == '\0' { '0' } else { *byte }))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_torn_image_ends_at_a_sector_of_some_write() {
    let seen: Vec<String> = shapes(Policy::Torn512, runs).into_keys().collect();
    assert_eq!(seen, ["d512", "d512 x1024", "d512 x1024 y1024", "d512 x1024 y512", "d512 x512"]);
}

#[test]
fn a_zero_tail_image_has_a_size_and_not_the_bytes() {
    let seen = shapes(Policy::ZeroTail, |contents| {
        assert!(contents[512..].bytes().all(|byte| byte == 0), "unsynced bytes never show");
        contents.len().to_string()
    });
    let sizes: Vec<usize> = seen.into_keys().map(|size| size.parse().unwrap()).collect();
    assert!(sizes.len() > 100 && sizes.iter().all(|size| (512..=2560).contains(size)), "{sizes:?}");
}

#[test]
fn a_reordered_image_has_every_page_or_its_zeros() {
    let page = |byte: &str| byte.repeat(4096);
    let (first, second) = (page("x"), page("y"));
    let disk = after(
        NameRule::Journal,
        &[create(1, "/r/a"), begin(1, 1), end(1, 1), write(1, 0, &first), write(1, 4096, &second)],
    );
    let seen: std::collections::BTreeSet<String> =
        (0..64).map(|seed| runs(&cut(&disk, Policy::PageReorder, seed)[0].1)).collect();
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["04096 y4096", "08192", "x4096 04096", "x4096 y4096"]
    );
}

#[test]
fn a_seeded_image_keeps_a_prefix_of_the_names_in_all_or_in_each_directory() {
    let story = [
        Op::MakeDir { path: "/r/d" },
        begin(0, 1),
        directory_end("/r", 1),
        create(1, "/r/d/a"),
        create(2, "/r/b"),
        create(3, "/r/c"),
    ];
    let seen = |rule| {
        let disk = after(rule, &story);
        let name = |seed| {
            let image = cut(&disk, Policy::Torn512, seed);
            image.iter().filter_map(|(path, _)| path.rsplit('/').next()).collect::<String>()
        };
        (0..64).map(name).collect::<std::collections::BTreeSet<String>>()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(seen(NameRule::Journal), names(&["", "a", "ba", "bca"]));
    assert_eq!(seen(NameRule::Strict), names(&["", "a", "b", "ba", "bc", "bca"]));
}

#[test]
fn the_same_seed_builds_the_same_image() {
    let disk = with_two_unsynced_appends();
    for policy in Policy::ALL {
        assert_eq!(cut(&disk, policy, 42), cut(&disk, policy, 42), "{policy:?}");
    }
}

#[test]
fn a_log_that_cannot_have_been_recorded_is_refused() {
    let mut disk = Disk::new(ROOT, NameRule::Journal);
    assert_eq!(disk.apply(&end(1, 9)), Err(DiskError::SyncNeverBegan { token: 9 }));
    let bytes = FILE_MAX_BYTES + 1;
    let too_large = Err(DiskError::FileTooLarge { file: 1, bytes });
    assert_eq!(disk.apply(&Op::Truncate { file: 1, length: bytes }), too_large);
    assert_eq!(disk.apply(&Op::Extend { file: 1, length: bytes }), too_large);
    assert_eq!(disk.apply(&write(1, FILE_MAX_BYTES, "x")), too_large);
}

#[test]
fn a_mirror_writes_only_what_changed_and_ends_equal_to_a_fresh_one() {
    let scratch = tempfile::tempdir().unwrap();
    let mut mirror = Mirror::new(&scratch.path().join("mirror")).unwrap();
    let mut disk = after(
        NameRule::Journal,
        &[Op::MakeDir { path: "/r/d" }, create(1, "/r/d/a"), write(1, 0, "one"), create(2, "/r/b")],
    );
    let mut show =
        |disk: &Disk| mirror.show(&disk.image(Policy::KeepAll, &mut Rng::new(1))).unwrap();

    assert_eq!(show(&disk), 3);
    assert_eq!(show(&disk), 0);
    disk.apply(&write(1, 3, "two")).unwrap();
    assert_eq!(show(&disk), 1);
    disk.apply(&Op::Unlink { path: "/r/b" }).unwrap();
    disk.apply(&Op::MakeDir { path: "/r/b" }).unwrap();
    assert_eq!(show(&disk), 2);
    assert_eq!(std::fs::read(scratch.path().join("mirror/d/a")).unwrap(), b"onetwo");
    assert!(scratch.path().join("mirror/b").is_dir());
    disk.apply(&Op::Unlink { path: "/r/d/a" }).unwrap();
    disk.apply(&Op::RemoveDir { path: "/r/d" }).unwrap();
    assert_eq!(show(&disk), 2);
    assert!(!scratch.path().join("mirror/d").exists());
}

#[test]
fn a_disk_goes_on_from_what_an_earlier_cut_left() {
    let mut before = after(
        NameRule::Strict,
        &[
            Op::MakeDir { path: "/r/d" },
            create(1, "/r/d/a"),
            write(1, 0, "old"),
            create(2, "/r/d/b"),
            write(2, 0, "gone"),
        ],
    );
    before.apply(&write(2, 0, "kept")).unwrap();
    let image = before.image(Policy::KeepAll, &mut Rng::new(1));
    let mut disk = Disk::holding(&image, "/other", NameRule::Strict);
    assert_eq!(dropped(&disk), files(&[("d/a", "old"), ("d/b", "kept")]), "all of it is durable");
    // The recorder's number 1 is another file than the first recording's, and is used under a name it was moved to.
    for op in [
        Op::Rename { from: "/other/d/b", to: "/other/d/c" },
        Op::Found { file: 1, path: "/other/d/c" },
        write(1, 4, " and more"),
        create(2, "/other/d/b"),
        write(2, 0, "new"),
        Op::Found { file: 3, path: "/other/never heard of" },
    ] {
        disk.apply(&op).unwrap();
    }
    assert_eq!(dropped(&disk), files(&[("d/a", "old"), ("d/b", "kept")]));
    let all = [("d/a", "old"), ("d/b", "new"), ("d/c", "kept and more")];
    assert_eq!(cut(&disk, Policy::KeepAll, 1), files(&all));
    disk.apply(&begin(1, 7)).unwrap();
    disk.apply(&end(1, 7)).unwrap();
    assert_eq!(dropped(&disk), files(&[("d/a", "old"), ("d/b", "kept and more")]));
}
