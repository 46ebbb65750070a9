//! The file's text as a tree of values, before anyone knows what the keys mean.

use figment::value::{Dict, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// No hand-written configuration comes near these.
const MAX_EVENTS: usize = 200_000;
const MAX_ALIASES: usize = 1_000;
const MAX_DEPTH: usize = 32;

/// Reads one document. An empty one is an empty tree.
///
/// # Errors
/// The text is not YAML, has a key twice, or expands beyond what a configuration needs. One line, with its place.
pub(super) fn parse(text: &str) -> Result<Dict, String> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        // `no` is a text, as in YAML 1.2; the schema says so where a boolean is wanted.
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_EVENTS },
        budget: serde_saphyr::budget! {
            max_events: MAX_EVENTS,
            max_aliases: MAX_ALIASES,
            // One list of sinks may serve a thousand sources: what aliases come to is bounded above.
            enforce_alias_anchor_ratio: false,
            max_depth: MAX_DEPTH,
            max_documents: 1,
        },
    };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Dict(_, dict)) => Ok(dict),
        Ok(Value::Empty(..)) => Ok(Dict::new()),
        Ok(_) => Err("the document must be a mapping of sections".to_owned()),
        Err(error) => Err(one_line(&error.to_string())),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
