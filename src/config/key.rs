//! Dotted keys, as mistakes name them: `sources.a.verify.secret[1]`.

/// The key of `name` inside `parent`; the empty key is the whole file.
pub(crate) fn child(parent: &str, name: &str) -> String {
    let plain = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let name = if plain { name.to_owned() } else { format!("{name:?}") };
    if parent.is_empty() { name } else { format!("{parent}.{name}") }
}

/// The key of the list element `at` inside `parent`.
pub(crate) fn element(parent: &str, at: usize) -> String {
    format!("{parent}[{at}]")
}
