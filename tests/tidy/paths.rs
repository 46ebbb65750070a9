//! Every path that shipped code names, from `use` trees and from the code itself, resolved to its crate.

use std::collections::BTreeMap;

use super::source::{Kind, Source, Token, follows, past_group};

/// One path. Ours start with `crate`; the rest start with the name of a crate or with something local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathUse {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

impl PathUse {
    pub(crate) fn segment(&self, n: usize) -> &str {
        self.segments.get(n).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// The paths of `source`, a file of the crate whose root is the folder `root` (`actors/src/`).
pub(crate) fn paths(source: &Source, root: &str) -> Vec<PathUse> {
    let tokens = &source.shipped().tokens;
    let mut collector = Collector {
        tokens,
        module: source.module_below(root).unwrap_or_default(),
        inline: Vec::new(),
        aliases: BTreeMap::new(),
        found: Vec::new(),
        plain: Vec::new(),
    };
    collector.collect();
    collector.resolve_plain()
}

struct Collector<'a> {
    tokens: &'a [Token],
    /// The module we are in.
    module: Vec<String>,
    /// Where each `mod name { ... }` that we are in ends.
    inline: Vec<usize>,
    /// What a `use` has given a name to.
    aliases: BTreeMap<String, Vec<String>>,
    found: Vec<PathUse>,
    /// Paths outside of `use`: resolved last, when all names are known.
    plain: Vec<PathUse>,
}

impl Collector<'_> {
    fn collect(&mut self) {
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            while self.inline.last().is_some_and(|end| *end <= at) {
                self.inline.pop();
                self.module.pop();
            }
            let next = self.tokens.get(at + 1);
            if token.is("mod") && follows(self.tokens, at + 2, &["{"]) {
                self.module.extend(next.map(|name| name.text.clone()));
                self.inline.push(past_group(self.tokens, at + 2));
                at += 3;
            } else if token.is("use") {
                at = self.tree(at + 1, &[]);
            } else if token.kind == Kind::Ident {
                at = self.plain_path(at);
            } else {
                at += 1;
            }
        }
    }

    /// A use tree from `at`, below `prefix`. Answers where it ends.
    fn tree(&mut self, mut at: usize, prefix: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        while let Some(token) = self.tokens.get(at) {
            if token.is("::") {
                at += 1;
            } else if token.is("{") {
                let end = past_group(self.tokens, at);
                at += 1;
                while at + 1 < end {
                    at = self.tree(at, &segments);
                    at += usize::from(follows(self.tokens, at, &[","]));
                }
                return end;
            } else if token.is("*") {
                segments.push("*".to_owned());
                self.import(segments, None, token.line);
                return at + 1;
            } else if token.kind == Kind::Ident {
                // `a::{self, b}` names `a` itself.
                if token.text != "self" || segments.is_empty() {
                    segments.push(token.text.clone());
                }
                at += 1;
                if follows(self.tokens, at, &["::"]) {
                    continue;
                }
                let renamed =
                    if follows(self.tokens, at, &["as"]) { self.tokens.get(at + 1) } else { None };
                self.import(segments, renamed.map(|name| name.text.clone()), token.line);
                return at + if renamed.is_some() { 2 } else { 0 };
            } else {
                return at + 1;
            }
        }
        at
    }

    fn import(&mut self, segments: Vec<String>, renamed: Option<String>, line: usize) {
        let segments = self.absolute(segments);
        if let Some(name) = renamed.or_else(|| segments.last().cloned()) {
            self.aliases.insert(name, segments.clone());
        }
        self.found.push(PathUse { line, segments });
    }

    /// A path in code from `at`, if it has two segments or more. Answers where to go on.
    fn plain_path(&mut self, mut at: usize) -> usize {
        let mut segments = Vec::new();
        let line = self.tokens.get(at).map_or(0, |token| token.line);
        while let Some(token) = self.tokens.get(at).filter(|token| token.kind == Kind::Ident) {
            segments.push(token.text.clone());
            at += 1;
            if !follows(self.tokens, at, &["::"]) {
                break;
            }
            at += 1;
        }
        if segments.len() > 1 {
            let segments = self.absolute(segments);
            self.plain.push(PathUse { line, segments });
        }
        at
    }

    /// `self` and `super` replaced by what they stand for here.
    fn absolute(&self, segments: Vec<String>) -> Vec<String> {
        let mut module = self.module.clone();
        let mut rest = segments.as_slice();
        let mut relative = false;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "self" => {}
                "super" => {
                    module.pop();
                }
                _ => break,
            }
            relative = true;
            rest = others;
        }
        if !relative {
            return segments;
        }
        ["crate".to_owned()].into_iter().chain(module).chain(rest.iter().cloned()).collect()
    }

    /// A path below an imported module is the module's path and its own. One below an imported type is left out: the
    /// import has been judged, and once is enough.
    fn resolve_plain(mut self) -> Vec<PathUse> {
        for PathUse { line, segments } in self.plain {
            let (first, rest) = segments
                .split_first()
                .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            match self.aliases.get(first) {
                Some(whole)
                    if whole.last().is_some_and(|name| name.starts_with(char::is_uppercase)) => {}
                Some(whole) => {
                    let segments = whole.iter().chain(rest).cloned().collect();
                    self.found.push(PathUse { line, segments });
                }
                None => self.found.push(PathUse { line, segments }),
            }
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::file;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = file("actors/src/queue/writer.rs", text);
        paths(&source, "actors/src/").iter().map(PathUse::text).collect()
    }

    #[test]
    fn use_trees_are_spelled_out() {
        assert_eq!(
            found(
                "use std::{fmt, io::{self, Read as R}};\npub(crate) use crate::ports::*;\nuse ::tokio::time;"
            ),
            ["std::fmt", "std::io", "std::io::Read", "crate::ports::*", "tokio::time"]
        );
    }

    #[test]
    fn relative_paths_are_resolved_also_inside_inline_modules() {
        assert_eq!(
            found(
                "use super::syncer::X;\nmod a {\n  use super::Y;\n  mod b { use super::super::Z; }\n}\nuse self::W;"
            ),
            [
                "crate::queue::syncer::X",
                "crate::queue::writer::Y",
                "crate::queue::writer::Z",
                "crate::queue::writer::W"
            ]
        );
    }

    #[test]
    fn paths_in_code_follow_the_names_that_use_gave() {
        let text = "fn f() { w::WriterMsg::Go; crate::store::Open::<u8>::now(); local.call::<u8>(); Seq::new(1) }\n\
                    use crate::queue::writer as w;\nuse crate::model::Seq;";
        assert_eq!(
            found(text),
            [
                "crate::queue::writer",
                "crate::model::Seq",
                "crate::queue::writer::WriterMsg::Go",
                "crate::store::Open"
            ]
        );
    }

    #[test]
    fn each_path_has_its_line_and_tests_have_none() {
        let source = file(
            "src/x.rs",
            "use a::{\n  b,\n  c,\n};\n#[cfg(test)]\nmod tests { use super::*; }\n",
        );
        let lines: Vec<(usize, String)> =
            paths(&source, "src/").iter().map(|p| (p.line, p.text())).collect();
        assert_eq!(lines, [(2, "a::b".to_owned()), (3, "a::c".to_owned())]);
    }

    #[test]
    fn precise_capturing_is_no_import() {
        assert_eq!(found("fn f<'a>() -> impl Sized + use<'a> { a::b() }"), ["a::b"]);
    }
}
