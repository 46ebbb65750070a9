//! The tree's own rules, held by reading the sources: what may import what, how long a file and a function may be, what
//! every actor says of itself, and words that must not appear.
//!
//! Plain `std`, no crate: `make check` compiles this file alone, in seconds. Each failure names the file, the line, the
//! rule, and the way out. The rules are functions over a list of files, and each is tested on good and bad snippets, so
//! that none can pass by looking at nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::{env, fs};

use source::{Failure, Source};

#[path = "tidy/actors.rs"]
mod actors;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

type Rule = fn(&[Source]) -> Vec<Failure>;

const RULES: [Rule; 12] = [
    imports::model_is_pure,
    imports::rooms_of_actors_keep_to_their_imports,
    imports::supervision_uses_ractor_and_tokio_alone,
    imports::adapters_know_no_other_adapter_and_no_actor,
    imports::front_and_node_use_processes_through_handles,
    imports::drills_see_the_node_from_outside,
    sizes::files_are_short,
    sizes::functions_fit_a_screen,
    actors::actor_files_say_who_they_are,
    actors::every_select_is_biased,
    manifests::panics_unwind_and_canaries_stay_behind_features,
    words::forbidden_words_and_options_are_absent,
];

#[test]
fn the_tree_keeps_its_rules() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".to_owned()));
    let sources = tracked_files(&root);
    for landmark in ["Cargo.toml", "actors/src/lib.rs", "src/main.rs"] {
        assert!(
            sources.iter().any(|source| source.path == landmark),
            "{landmark} was not read: wrong folder?"
        );
    }

    let mut failures: Vec<Failure> = RULES.iter().flat_map(|rule| rule(&sources)).collect();
    failures.sort();
    let list: String = failures.iter().map(|failure| format!("\n  {failure}")).collect();
    assert!(failures.is_empty(), "{} failures:{list}\n", failures.len());
}

/// Every text file of the checkout, except what `.gitignore` names at the root, git's own, and hidden or linked folders
/// of tools.
fn tracked_files(root: &Path) -> Vec<Source> {
    let ignored: Vec<String> = fs::read_to_string(root.join(".gitignore"))
        .unwrap_or_default()
        .lines()
        .map(|line| line.trim_matches('/').to_owned())
        .filter(|line| !line.is_empty())
        .chain([".git".to_owned()])
        .collect();
    let mut sources = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let name = path.to_string_lossy().replace('\\', "/");
            let kind = entry.file_type().unwrap();
            if ignored.contains(&name) || kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                sources.push(Source::new(name, text));
            }
        }
    }
    sources
}
