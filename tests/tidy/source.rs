//! A source file as the rules see it: tokens with their lines, no comments, tests told apart.

use std::cell::OnceCell;
use std::fmt;
use std::ops::RangeInclusive;

/// One file of the checkout. The path is relative to its root, with forward slashes.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    shipped: OnceCell<Shipped>,
}

impl Source {
    pub(crate) fn new(path: String, text: String) -> Self {
        Self { path, text, shipped: OnceCell::new() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// A file that is tests from end to end: below a `tests/` folder, or a `tests.rs` beside what it tests.
    pub(crate) fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        let name = parts.next_back().unwrap_or_default();
        name == "tests.rs" || name.ends_with("_tests.rs") || parts.any(|folder| folder == "tests")
    }

    /// The code that ships: tokens outside of tests, and the lines that tests take.
    pub(crate) fn shipped(&self) -> &Shipped {
        self.shipped.get_or_init(|| without_tests(lex(&self.text)))
    }

    /// The folders below `root` and the file's own name as a module path: `queue`, `writer` for `<root>queue/writer.rs`.
    /// None for a file that is not below `root`.
    pub(crate) fn module_below(&self, root: &str) -> Option<Vec<String>> {
        let inner = self.path.strip_prefix(root)?.strip_suffix(".rs")?;
        let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        Some(module)
    }

    pub(crate) fn failure(
        &self,
        line: usize,
        rule: &'static str,
        what: impl Into<String>,
    ) -> Failure {
        Failure { path: self.path.clone(), line, rule, what: what.into() }
    }
}

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Failure {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.what)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident,
    Punct,
    /// The text of a string literal, without its quotes.
    Str,
    /// Numbers, characters, lifetimes.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    /// Whether this is that keyword, name or sign, and not a string that reads the same.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != Kind::Str
    }

    fn opens(&self) -> bool {
        self.kind == Kind::Punct && matches!(self.text.as_str(), "(" | "[" | "{")
    }

    fn closes(&self) -> bool {
        self.kind == Kind::Punct && matches!(self.text.as_str(), ")" | "]" | "}")
    }
}

/// Whether the tokens from `at` on are these.
pub(crate) fn follows(tokens: &[Token], at: usize, wanted: &[&str]) -> bool {
    tokens.len() >= at + wanted.len()
        && tokens.iter().skip(at).zip(wanted).all(|(token, text)| token.is(text))
}

/// The index just past the bracketed group that opens at `open`.
pub(crate) fn past_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.opens() {
            depth += 1;
        } else if token.closes() {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at + 1;
            }
        }
    }
    tokens.len()
}

/// The index just past the item, statement or declaration that starts at `at`: its body, or its semicolon.
pub(crate) fn past_item(tokens: &[Token], mut at: usize) -> usize {
    while let Some(token) = tokens.get(at) {
        if token.is("{") {
            return past_group(tokens, at);
        }
        if token.is(";") {
            return at + 1;
        }
        if token.closes() {
            return at; // a field or a variant: at worst the rest of its list goes with it
        }
        at = if token.opens() { past_group(tokens, at) } else { at + 1 };
    }
    tokens.len()
}

#[derive(Debug)]
pub(crate) struct Shipped {
    pub(crate) tokens: Vec<Token>,
    pub(crate) test_lines: Vec<RangeInclusive<usize>>,
}

fn without_tests(tokens: Vec<Token>) -> Shipped {
    let mut shipped = Shipped { tokens: Vec::new(), test_lines: Vec::new() };
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let end = if follows(&tokens, at, &["#", "["]) { past_group(&tokens, at + 1) } else { at };
        if end > at && is_test_attribute(tokens.get(at + 2..end).unwrap_or_default()) {
            let next = past_item(&tokens, end);
            let last_line = tokens.get(next - 1).map_or(token.line, |last| last.line);
            shipped.test_lines.push(token.line..=last_line);
            at = next;
        } else {
            shipped.tokens.push(token.clone());
            at += 1;
        }
    }
    shipped
}

/// `cfg(test)`, `cfg(all(test, ...))`, `test`, `tokio::test(...)`; not `cfg(any(test, feature = "sim"))`, which ships.
fn is_test_attribute(inside: &[Token]) -> bool {
    if follows(inside, 0, &["cfg"]) {
        return follows(inside, 1, &["(", "test", ")"])
            || follows(inside, 1, &["(", "all", "(", "test"]);
    }
    let path = inside.iter().take_while(|token| !token.opens() && !token.closes());
    path.last().is_some_and(|last| last.is("test"))
}

pub(crate) fn lex(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1, tokens: Vec::new() };
    while lexer.at < lexer.chars.len() {
        lexer.step();
    }
    lexer.tokens
}

/// As much of Rust's lexical grammar as tells code from comments, strings and lifetimes.
struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer {
    /// The character that many places ahead; NUL past the end.
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn bump(&mut self) -> char {
        let next = self.peek(0);
        self.at += 1;
        self.line += usize::from(next == '\n');
        next
    }

    fn push(&mut self, kind: Kind, text: String, line: usize) {
        self.tokens.push(Token { kind, text, line });
    }

    fn step(&mut self) {
        let line = self.line;
        match (self.peek(0), self.peek(1)) {
            (c, _) if c.is_whitespace() => {
                self.bump();
            }
            ('/', '/') => {
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    self.bump();
                }
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(0, true),
            ('\'', _) => self.quote(),
            (':', ':') => {
                self.at += 2;
                self.push(Kind::Punct, "::".to_owned(), line);
            }
            (c, _) if starts_name(c) => self.word(),
            (c, _) if c.is_ascii_digit() => self.number(),
            (c, _) => {
                self.bump();
                self.push(Kind::Punct, c.to_string(), line);
            }
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', '/') => {
                    depth = depth.saturating_sub(1);
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                (_, _) => {
                    self.bump();
                }
            }
        }
    }

    /// From the opening quote; a raw string ends at a quote with as many hashes as it began with.
    fn string(&mut self, hashes: usize, escapes: bool) {
        let line = self.line;
        let mut text = String::new();
        self.bump();
        while self.at < self.chars.len() {
            let c = self.bump();
            if escapes && c == '\\' {
                text.push(c);
                text.push(self.bump());
            } else if c == '"' && (0..hashes).all(|n| self.peek(n) == '#') {
                self.at += hashes;
                break;
            } else {
                text.push(c);
            }
        }
        self.push(Kind::Str, text, line);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let line = self.line;
        let escaped = self.peek(1) == '\\';
        if escaped || self.peek(2) == '\'' {
            self.at += if escaped { 3 } else { 2 };
            while self.at < self.chars.len() && self.bump() != '\'' {}
            self.push(Kind::Other, "''".to_owned(), line);
        } else {
            self.bump();
            while goes_on_name(self.peek(0)) {
                self.bump();
            }
            self.push(Kind::Other, "'".to_owned(), line);
        }
    }

    /// A name, or the letters in front of a string: `r"`, `br#"`, `b'`, `r#type`.
    fn word(&mut self) {
        let line = self.line;
        let mut text = String::new();
        while goes_on_name(self.peek(0)) {
            text.push(self.bump());
        }
        let prefix = matches!(text.as_str(), "r" | "b" | "c" | "br" | "cr");
        let hashes = (0..).take_while(|n| self.peek(*n) == '#').count();
        if prefix && self.peek(hashes) == '"' {
            self.at += hashes;
            self.string(hashes, !text.ends_with('r'));
        } else if text == "b" && self.peek(0) == '\'' {
            self.quote();
        } else if text == "r" && hashes == 1 && starts_name(self.peek(1)) {
            self.bump();
            self.word();
        } else {
            self.push(Kind::Ident, text, line);
        }
    }

    fn number(&mut self) {
        let line = self.line;
        let mut text = String::new();
        while goes_on_name(self.peek(0)) || (self.peek(0) == '.' && self.peek(1).is_ascii_digit()) {
            text.push(self.bump());
        }
        self.push(Kind::Other, text, line);
    }
}

fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn goes_on_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> Source {
    Source::new(path.to_owned(), text.to_owned())
}

/// The place and the complaint of each failure, which is what the rules' tests compare.
#[cfg(test)]
pub(crate) fn told(failures: &[Failure]) -> Vec<(usize, &str)> {
    failures.iter().map(|failure| (failure.line, failure.what.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        lex(text)
            .into_iter()
            .filter(|token| token.kind == Kind::Ident)
            .map(|token| token.text)
            .collect()
    }

    #[test]
    fn comments_strings_characters_and_lifetimes_are_not_names() {
        let text = r####"
            // tokio
            /* ractor /* nested */ async */
            fn f<'tokio>(a: &'tokio str) -> char {
                g("tokio \" async", r#"a " async"#, b"async", '"', '\'', b'x', br##"x"# async"##, '\u{1F600}', 'é', r"\", "async");
                1.5e3
            }"####;
        assert_eq!(names(text), ["fn", "f", "a", "str", "char", "g"]);
    }

    #[test]
    fn a_string_is_no_keyword() {
        let is_fn: Vec<bool> = lex("fn \"fn\"").iter().map(|token| token.is("fn")).collect();
        assert_eq!(is_fn, [true, false]);
    }

    #[test]
    fn raw_names_lose_their_prefix_and_ranges_are_two_numbers() {
        assert_eq!(names("r#type x1 0..y r_name br"), ["type", "x1", "y", "r_name", "br"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let lines: Vec<(String, usize)> =
            lex("a /* \n */ b \"\n\n\" c").into_iter().map(|t| (t.text, t.line)).collect();
        let wanted =
            [("a", 1), ("b", 2), ("\n\n", 2), ("c", 4)].map(|(text, line)| (text.to_owned(), line));
        assert_eq!(lines, wanted);
    }

    #[test]
    fn test_items_do_not_ship_and_everything_else_does() {
        let source = file(
            "src/x.rs",
            "use a::b;\n\
             #[cfg(test)]\nuse tested::{c, d};\n\
             #[cfg(any(test, feature = \"sim\"))]\nfn simulated() {}\n\
             #[cfg(not(test))]\nfn real() {}\n\
             #[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn hidden() { {} }\n}\n\
             #[tokio::test(start_paused = true)]\nasync fn hidden_too() {}\n\
             #[cfg(all(test, unix))]\nconst HIDDEN: u8 = 1;\n\
             #[derive(Debug)]\nstruct Last {\n    kept: u8,\n    #[cfg(test)]\n    hidden: u8,\n}\nfn end() {}\n",
        );
        let shipped = source.shipped();
        let kept: Vec<&str> = shipped
            .tokens
            .iter()
            .filter(|t| t.kind == Kind::Ident)
            .map(|t| t.text.as_str())
            .collect();
        assert_eq!(
            kept.join(" "),
            "use a b cfg any test feature fn simulated cfg not test fn real derive Debug struct Last kept u8 fn end"
        );
        assert_eq!(shipped.test_lines, [2..=3, 8..=12, 13..=14, 15..=16, 20..=21]);
    }

    #[test]
    fn test_files_are_known_by_folder_or_name() {
        let tests = [
            "tests/tidy.rs",
            "actors/tests/writer.rs",
            "actors/src/queue/tests.rs",
            "src/a_tests.rs",
        ];
        assert!(tests.iter().all(|path| file(path, "").is_test()));
        assert!(
            ["src/tests_of_time.rs", "src/lib.rs"].iter().all(|path| !file(path, "").is_test())
        );
    }

    #[test]
    fn a_file_knows_its_module() {
        let module = |path: &str| file(path, "").module_below("actors/src/");
        assert_eq!(module("actors/src/queue/writer.rs").unwrap(), ["queue", "writer"]);
        assert_eq!(module("actors/src/queue/mod.rs").unwrap(), ["queue"]);
        assert_eq!(module("actors/src/lib.rs"), Some(vec![]));
        assert_eq!(module("src/lib.rs"), None);
    }

    #[test]
    fn a_failure_reads_as_file_line_rule_and_what() {
        let failure = file("a.rs", "").failure(3, "size", "too long");
        assert_eq!(failure.to_string(), "a.rs:3: [size] too long");
    }
}
