//! How long a file and a function may be. Tests do not count.

use super::source::{Failure, Source, past_item};

const RULE: &str = "size";
const FILE_LINES: usize = 400;
const FILE_LINES_AT_MOST: usize = 600;
const FUNCTION_LINES: usize = 70;

/// Files allowed between 400 and 600 lines, each with the reason why it is plainer whole. Empty is best.
const LONG_FILES: [(&str, &str); 0] = [];

pub(crate) fn files_are_short(sources: &[Source]) -> Vec<Failure> {
    judge_files(sources, &LONG_FILES)
}

fn judge_files(sources: &[Source], long_files: &[(&str, &str)]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in code(sources) {
        let tests: usize =
            source.shipped().test_lines.iter().map(|lines| lines.end() + 1 - lines.start()).sum();
        let lines = source.text.lines().count() - tests;
        let listed = long_files.iter().any(|(path, _)| *path == source.path);
        if lines > FILE_LINES_AT_MOST {
            let what = format!(
                "{lines} lines without tests; {FILE_LINES_AT_MOST} is the end: split it by what it does"
            );
            failures.push(source.failure(1, RULE, what));
        } else if lines > FILE_LINES && !listed {
            let what = format!(
                "{lines} lines without tests, over {FILE_LINES}: split it, or give the reason in LONG_FILES"
            );
            failures.push(source.failure(1, RULE, what));
        } else if lines <= FILE_LINES && listed {
            failures.push(source.failure(
                1,
                RULE,
                format!("{lines} lines: take it off LONG_FILES"),
            ));
        }
    }
    failures
}

pub(crate) fn functions_fit_a_screen(sources: &[Source]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for source in code(sources) {
        let tokens = &source.shipped().tokens;
        for (at, pair) in tokens.windows(2).enumerate() {
            let [keyword, name] = pair else { continue };
            // `fn(u8)` is a type.
            if !keyword.is("fn") || name.is("(") {
                continue;
            }
            let last = tokens.get(past_item(tokens, at) - 1).map_or(keyword.line, |last| last.line);
            let lines = last + 1 - keyword.line;
            if lines > FUNCTION_LINES {
                let what =
                    format!("fn {} has {lines} lines, over {FUNCTION_LINES}: split it", name.text);
                failures.push(source.failure(keyword.line, RULE, what));
            }
        }
    }
    failures
}

fn code(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.is_rust() && !source.is_test())
}

#[cfg(test)]
mod tests {
    use super::super::source::{file, told};
    use super::*;

    fn lines(count: usize) -> String {
        "// a line\n".repeat(count)
    }

    #[test]
    fn a_file_may_have_400_lines_and_tests_beside_them() {
        let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(400), lines(300));
        assert_eq!(judge_files(&[file("src/a.rs", &text)], &[]), []);
        assert_eq!(
            judge_files(&[file("tests/a.rs", &lines(900)), file("a.md", &lines(900))], &[]),
            []
        );
    }

    #[test]
    fn a_longer_file_needs_a_reason_and_no_reason_helps_past_600() {
        let sources = [
            file("src/a.rs", &lines(401)),
            file("src/b.rs", &lines(600)),
            file("src/c.rs", &lines(601)),
        ];
        let long = [("src/b.rs", "a table"), ("src/c.rs", "a table")];
        assert_eq!(
            told(&judge_files(&sources, &long)),
            [
                (
                    1,
                    "401 lines without tests, over 400: split it, or give the reason in LONG_FILES"
                ),
                (1, "601 lines without tests; 600 is the end: split it by what it does"),
            ]
        );
    }

    #[test]
    fn the_list_of_long_files_forgets_none_that_got_short() {
        let failures = judge_files(&[file("src/a.rs", &lines(9))], &[("src/a.rs", "was long")]);
        assert_eq!(told(&failures), [(1, "9 lines: take it off LONG_FILES")]);
    }

    #[test]
    fn a_function_has_70_lines_from_its_name_to_its_brace() {
        let body = |count: usize| format!("{{\n{}}}\n", "    x();\n".repeat(count - 2));
        let text = format!(
            "trait T {{ fn declared(&self) -> [u8; 3]; }}\ntype F = fn(u8) -> u8;\n\
             const fn fits() {}fn is_long<T>(a: T) -> Vec<T> {}#[test]\nfn is_a_test() {}\
             static F: fn(u8) =\n{}f;\n",
            body(70),
            body(71),
            body(99),
            lines(99)
        );
        let failures =
            functions_fit_a_screen(&[file("src/a.rs", &text), file("src/tests.rs", &text)]);
        assert_eq!(told(&failures), [(73, "fn is_long has 71 lines, over 70: split it")]);
    }

    #[test]
    fn a_long_closure_counts_in_its_function_and_inner_functions_count_alone() {
        let text = format!(
            "fn outer() {{\n  let f = || {{\n{}  }};\n  fn inner() {{\n{}  }}\n}}\n",
            lines(40),
            lines(69)
        );
        let failures = functions_fit_a_screen(&[file("drills/src/a.rs", &text)]);
        assert_eq!(
            told(&failures),
            [
                (1, "fn outer has 115 lines, over 70: split it"),
                (44, "fn inner has 71 lines, over 70: split it")
            ]
        );
    }
}
