//! Stories: commands to a whole node on a simulated disk, and everything that follows from them, word by word.
//!
//! A story is a file in `stories`. With `UPDATE_GOLDENFILES=1` what happens is written into it, to be read before it is
//! committed. After every block the rows must be sound, as readers see them and as a power cut would leave them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

#[path = "../common/mod.rs"]
mod common;
mod show;
#[path = "../simulation/mod.rs"]
mod simulation;
mod stage;
mod teller;

use std::path::{Path, PathBuf};

use teller::Teller;

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/stories");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_story_goes_as_it_is_told() {
    let stories = stories();
    assert!(stories.len() >= 30, "{} stories", stories.len());
    let only = std::env::var("ANKUSA_STORY").ok();
    let mut broken = Vec::new();
    for path in stories {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if only.as_ref().is_none_or(|only| only == name) {
            eprintln!("{name}");
            if let Err(why) = goldenscript::run(&mut Teller::default(), &path) {
                broken.push(format!("{name}: {why}"));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}
