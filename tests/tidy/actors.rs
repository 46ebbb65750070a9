//! What every actor says of itself, and the one way to wait for several things.

use super::source::{Failure, Source, follows, lex};

/// The three lines in the header of a file with an actor.
const HEADER: [&str; 3] = ["* **Owns:**", "* **Talks to:**", "* **Supervised by:**"];

pub(crate) fn actor_files_say_who_they_are(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test()) {
        let tokens = &source.shipped().tokens;
        let Some(actor) = (0..tokens.len()).find(|at| follows(tokens, *at, &["Actor", "for"]))
        else {
            continue;
        };
        let line = tokens.get(actor).map_or(1, |token| token.line);
        for wanted in HEADER {
            let says = |text: &str| {
                let said = text.strip_prefix("//! ").and_then(|text| text.strip_prefix(wanted));
                said.is_some_and(|said| !said.trim().is_empty())
            };
            if !source.text.lines().any(says) {
                failures.push(source.failure(
                    line,
                    "actor header",
                    format!("an actor's file says `//! {wanted} ...`"),
                ));
            }
        }
    }
    failures
}

/// An unbiased `select!` draws lots: the same seed would tell another story.
pub(crate) fn every_select_is_biased(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in
        sources.iter().filter(|source| source.is_rust() && source.path.starts_with("actors/"))
    {
        let tokens = lex(&source.text);
        for (at, token) in tokens.iter().enumerate() {
            if follows(&tokens, at, &["select", "!"]) && !follows(&tokens, at + 3, &["biased", ";"])
            {
                failures.push(source.failure(
                    token.line,
                    "select",
                    "every `select!` begins with `biased;`",
                ));
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::super::source::{file, told};
    use super::*;

    #[test]
    fn an_actor_file_has_the_three_lines() {
        let whole = "//! Does.\n//!\n//! * **Owns:** nothing.\n//! * **Talks to:** the store.\n\
                     //! * **Supervised by:** `services`.\n\nimpl Actor for Sweeper {}\n";
        let without = whole.replace(" the store.", "").replace("//! * **Owns", "// * **Owns");
        assert_eq!(actor_files_say_who_they_are(&[file("actors/src/a.rs", whole)]), []);
        assert_eq!(
            told(&actor_files_say_who_they_are(&[file("src/front/a.rs", &without)])),
            [
                (7, "an actor's file says `//! * **Owns:** ...`"),
                (7, "an actor's file says `//! * **Talks to:** ...`"),
            ]
        );
    }

    #[test]
    fn only_files_with_an_actor_need_them() {
        let plain = "//! No impl Actor for anything.\nfn start<A: Actor>() {}\n#[cfg(test)]\nimpl Actor for Probe {}\n";
        assert_eq!(actor_files_say_who_they_are(&[file("actors/src/a.rs", plain)]), []);
        let generic = "impl<T: Kv> ractor::Actor for Writer<T> {}\n";
        assert_eq!(actor_files_say_who_they_are(&[file("actors/src/a.rs", generic)]).len(), 3);
        assert_eq!(actor_files_say_who_they_are(&[file("actors/tests/a.rs", generic)]), []);
    }

    #[test]
    fn a_select_without_biased_is_found_in_code_and_tests() {
        let text = "// select! {\nselect! {\n    // first come\n    biased;\n    _ = a => {} }\ntokio::select! { _ = a => {} }\n";
        let sources = [
            file("actors/src/a.rs", text),
            file("actors/tests/a.rs", text),
            file("src/a.rs", text),
        ];
        let failures = every_select_is_biased(&sources);
        assert_eq!(told(&failures), [(6, "every `select!` begins with `biased;`"); 2]);
    }
}
