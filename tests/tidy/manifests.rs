//! Rules over `Cargo.toml` and cargo's configuration. Reads TOML line by line, which is how these files are written.

use super::source::{Failure, Source};

/// Supervision lives on unwinding: no profile and no flag may abort on a panic. A canary, a rule broken on purpose for a
/// drill to catch, exists only as a feature that is named so and that nothing switches on but another such feature.
pub(crate) fn panics_unwind_and_canaries_stay_behind_features(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    let is_manifest = |source: &&Source| {
        source.path.ends_with("Cargo.toml") || source.path.ends_with(".cargo/config.toml")
    };
    for source in sources.iter().filter(is_manifest) {
        for (line, section, code) in code_lines(&source.text) {
            let plain: String =
                code.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect();
            if plain.contains("panic=abort") {
                let what = "a panic must unwind in every profile: supervision lives on it";
                failures.push(source.failure(line, "panic", what));
            }
            if plain.contains("canary") && !(section == "features" && plain.starts_with("canary")) {
                let what =
                    "a canary is switched on only by name, as a feature that starts with `canary`";
                failures.push(source.failure(line, "canary", what));
            }
        }
    }
    failures
}

/// The crates a manifest depends on, by the name code uses, with their lines; development and build ones too.
pub(crate) fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for (line, section, code) in code_lines(manifest) {
        let name = if let Some((_, name)) = section.split_once("dependencies.") {
            Some(name).filter(|_| code.starts_with('['))
        } else if section.ends_with("dependencies") && !code.starts_with('[') {
            code.split(['=', '.']).next()
        } else {
            None
        };
        names.extend(name.map(|name| (line, name.trim().trim_matches('"').replace('-', "_"))));
    }
    names.retain(|(_, name)| !name.is_empty());
    names
}

/// Each line that says something: its number, the section it stands in, and its text without comment. A section's own
/// header belongs to it.
fn code_lines(text: &str) -> Vec<(usize, String, &str)> {
    let mut section = String::new();
    let mut lines = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let code = without_comment(line).trim();
        if code.starts_with('[') && code.ends_with(']') && !code.contains('=') {
            section = code.trim_matches(['[', ']']).to_owned();
        }
        if !code.is_empty() {
            lines.push((n + 1, section.clone(), code));
        }
    }
    lines
}

fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return line.get(..at).unwrap_or(line),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (_, _) => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::source::{file, told};
    use super::*;

    #[test]
    fn every_spelling_of_an_aborting_panic_is_found() {
        let abort = "a panic must unwind in every profile: supervision lives on it";
        let text = "# panic = \"abort\" must never appear\n[profile.release]\npanic = \"abort\"\n\
                    [profile.x]\npanic='abort'\nrustflags = [\"-C\", \"panic=abort\"]\npanic = \"unwind\" # \"abort\", no\n\
                    a = \"#\" # panic = \"abort\"\n";
        let manifest =
            panics_unwind_and_canaries_stay_behind_features(&[file("drills/Cargo.toml", text)]);
        assert_eq!(told(&manifest), [(3, abort), (5, abort), (6, abort)]);
        let flags =
            panics_unwind_and_canaries_stay_behind_features(&[file(".cargo/config.toml", text)]);
        assert_eq!(flags.len(), 3);
        assert_eq!(panics_unwind_and_canaries_stay_behind_features(&[file("README.md", text)]), []);
    }

    #[test]
    fn a_canary_is_a_feature_nothing_else_switches_on() {
        let text = "[features]\ncanary_ack_early = [\"ankusa-actors/canary_ack_early\"] # canary\n\
                    default = [\"canary_ack_early\"]\n\
                    [dependencies]\nankusa-node = { path = \"..\", features = [\"canary_x\"] }\n\
                    canary_crate = \"1\"\n";
        let canary = "a canary is switched on only by name, as a feature that starts with `canary`";
        let failures = panics_unwind_and_canaries_stay_behind_features(&[file("Cargo.toml", text)]);
        assert_eq!(told(&failures), [(3, canary), (5, canary), (6, canary)]);
    }

    #[test]
    fn dependencies_are_read_in_every_form() {
        let text = "[package]\nname = \"x\"\n[dependencies]\n# serde = \"0\"\nserde.workspace = true\n\"a-b\" = \"1\"\n\
                    [dev-dependencies]\nc = { path = \"#\" }\n[target.'cfg(unix)'.dependencies]\nlibc = \"0\"\n\
                    [dependencies.tokio]\nversion = \"1\"\n[lints]\nworkspace = true\n";
        let names: Vec<(usize, String)> = dependencies(text);
        let wanted = [(5, "serde"), (6, "a_b"), (8, "c"), (10, "libc"), (11, "tokio")];
        assert_eq!(names, wanted.map(|(line, name)| (line, name.to_owned())));
    }
}
