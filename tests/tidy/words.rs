//! Words that must not appear: RocksDB settings that would break the promise, and names of machines and registries.

use super::source::{Failure, Kind, Source, Token, follows};

/// Settings under which a write could be answered before it is in the log, or the log's order could differ from the
/// memtable's. With each, the argument that would be harmless.
const SETTINGS: [(&str, &str); 5] = [
    ("disable_wal", "false"),
    ("enable_pipelined_write", "false"),
    ("unordered_write", "false"),
    ("manual_wal_flush", "false"),
    ("wal_bytes_per_sync", "0"),
];

/// Split, so that this file does not hold what it looks for.
const WORDS: [(&str, &str); 8] = [
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("../sha", "red"), "a path outside of the repository"),
    (concat!("shared/", "spec"), "a path outside of the repository"),
    (concat!("shared/", "design"), "a path outside of the repository"),
    (concat!("crates", ".io"), "the name of a registry"),
    (concat!("py", "pi.org"), "the name of a registry"),
    (concat!("npm", "js.org"), "the name of a registry"),
];

pub(crate) fn forbidden_words_and_options_are_absent(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in sources {
        // Cargo writes its lock file itself.
        if !source.path.ends_with("Cargo.lock") {
            failures.extend(words(source));
        }
        if source.is_rust() && source.path.starts_with("src/") {
            failures.extend(options(source));
        }
    }
    failures
}

fn words(source: &Source) -> Vec<Failure> {
    let mut failures = Vec::new();
    for (n, line) in source.text.lines().enumerate() {
        let found = WORDS.iter().filter(|(word, _)| line.contains(word));
        failures.extend(
            found.map(|(word, what)| source.failure(n + 1, "words", format!("`{word}` is {what}"))),
        );
    }
    failures
}

fn options(source: &Source) -> Vec<Failure> {
    let tokens = &source.shipped().tokens;
    let broken = |token: &Token, name: &str| {
        source.failure(
            token.line,
            "rocksdb",
            format!("`{name}` would break the promise of an answered write"),
        )
    };
    let mut failures = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        for (name, harmless) in SETTINGS {
            // The call of a setter, or the name in an options string.
            let called = token.kind == Kind::Ident
                && token.text.strip_prefix("set_").unwrap_or(&token.text) == name;
            let dangerous =
                follows(tokens, at + 1, &["("]) && !follows(tokens, at + 1, &["(", harmless, ")"]);
            let spelled = token.kind == Kind::Str && token.text.contains(name);
            if (called && dangerous) || spelled {
                failures.push(broken(token, name));
            }
        }
        if token.text.contains("disableWAL") {
            failures.push(broken(token, "disableWAL"));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::super::source::file;
    use super::*;

    #[test]
    fn no_file_names_a_machine_or_a_registry() {
        let text = format!(
            "fine: framework/a\n{}x\n\n{}\n",
            concat!("/wo", "rk/"),
            concat!("https://crates", ".io")
        );
        let failures = forbidden_words_and_options_are_absent(&[
            file("docs/a.md", &text),
            file("Cargo.lock", &text),
        ]);
        let places: Vec<usize> = failures.iter().map(|failure| failure.line).collect();
        assert_eq!(places, [2, 4]);
        assert!(WORDS.iter().all(|(word, _)| words(&file("a", word)).len() == 1));
    }

    #[test]
    fn dangerous_options_are_found_unless_switched_off() {
        let text = "// disableWAL and set_unordered_write(true) are never used\n\
                    o.set_unordered_write(false);\no.set_wal_bytes_per_sync(0);\no.disable_wal(false);\n\
                    o.set_enable_pipelined_write(true);\no.set_unordered_write(flag);\no.set_wal_bytes_per_sync(1024);\n\
                    o.set_manual_wal_flush(\n    true,\n);\nw.disable_wal(true);\nf(\"disableWAL=1;manual_wal_flush=true\");\n";
        let promise = |name: &str| format!("`{name}` would break the promise of an answered write");
        let sources = [file("src/rocks/options.rs", text), file("drills/src/floors.rs", text)];
        let failures = forbidden_words_and_options_are_absent(&sources);
        let found: Vec<(usize, String)> =
            failures.iter().map(|f| (f.line, f.what.clone())).collect();
        assert_eq!(
            found,
            [
                (5, promise("enable_pipelined_write")),
                (6, promise("unordered_write")),
                (7, promise("wal_bytes_per_sync")),
                (8, promise("manual_wal_flush")),
                (11, promise("disable_wal")),
                (12, promise("manual_wal_flush")),
                (12, promise("disableWAL")),
            ]
        );
    }
}
