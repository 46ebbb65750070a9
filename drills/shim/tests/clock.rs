//! The wall clock of a process that is loaded with the library, shifted while everybody else's is right.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use ankusa_drills_replay::control::{PAGE_BYTES, Word};

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

/// What `date` says in milliseconds, with the clock put ahead by so many.
fn date_ms(shift_ms: i64) -> i64 {
    let page = tempfile::NamedTempFile::new().unwrap();
    let file = File::options().write(true).open(page.path()).unwrap();
    file.set_len(PAGE_BYTES).unwrap();
    file.write_all_at(&shift_ms.to_le_bytes(), Word::WallShiftMs.offset()).unwrap();
    let output = Command::new("date")
        .arg("+%s%3N")
        .env("LD_PRELOAD", library())
        .env("DRILL_CTL", page.path())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[test]
fn the_wall_clock_is_ahead_by_what_the_page_says() {
    for shift_ms in [0, 1, -1, 1_500, -3_600_001, 30 * 86_400_000] {
        let before = now_ms();
        let said = date_ms(shift_ms) - shift_ms;
        let after = now_ms();
        assert!((before..=after).contains(&said), "{shift_ms}: {before} <= {said} <= {after}");
    }
}
