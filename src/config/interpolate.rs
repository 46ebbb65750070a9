//! References in string values: `${VAR}`, `${VAR:-default}` and `${file:/absolute/path}`.
//!
//! What a reference stands for is taken as it is: a `${` inside it means nothing.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use figment::value::{Dict, Value};

use super::environment::Environment;
use super::error::ConfigError;
use super::key::{child, element};

/// The largest file a reference may name, in bytes.
const MAX_FILE_BYTES: u64 = 65_536;

/// Replaces every reference in every string value.
pub(super) fn interpolate(
    dict: &mut Dict,
    environment: &Environment,
    errors: &mut Vec<ConfigError>,
) {
    fields("", dict, environment, errors);
}

fn fields(key: &str, dict: &mut Dict, environment: &Environment, errors: &mut Vec<ConfigError>) {
    for (name, value) in dict {
        one(&child(key, name), value, environment, errors);
    }
}

fn one(key: &str, value: &mut Value, environment: &Environment, errors: &mut Vec<ConfigError>) {
    match value {
        Value::String(_, text) => match resolve(text, environment) {
            Ok(Cow::Borrowed(_)) => {}
            Ok(Cow::Owned(resolved)) => *text = resolved,
            Err(problem) => errors.push(ConfigError::at(key, problem)),
        },
        Value::Dict(_, dict) => fields(key, dict, environment, errors),
        Value::Array(_, values) => {
            for (at, value) in values.iter_mut().enumerate() {
                one(&element(key, at), value, environment, errors);
            }
        }
        Value::Char(..) | Value::Bool(..) | Value::Num(..) | Value::Empty(..) => {}
    }
}

fn resolve<'t>(text: &'t str, environment: &Environment) -> Result<Cow<'t, str>, String> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut resolved = String::new();
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        let (reference, after) = reference.split_once('}').ok_or("`${` is never closed")?;
        resolved.push_str(before);
        resolved.push_str(&stands_for(reference, environment)?);
        rest = after;
    }
    resolved.push_str(rest);
    Ok(Cow::Owned(resolved))
}

fn stands_for(reference: &str, environment: &Environment) -> Result<String, String> {
    if let Some(path) = reference.strip_prefix("file:") {
        return file(path);
    }
    if reference.starts_with("sm:") {
        return Err("secret managers (${sm:...}) are not in this release".to_owned());
    }
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_variable(name) || default.is_some_and(|default| default.contains("${")) {
        return Err("not a reference: write ${VAR}, ${VAR:-default} or ${file:/path}".to_owned());
    }
    match (environment.get(name)?, default) {
        // As in a shell, `:-` also replaces a variable that is set to nothing.
        (None | Some(""), Some(default)) => Ok(default.to_owned()),
        (Some(value), _) => Ok(value.to_owned()),
        (None, None) => Err(format!("${{{name}}} is not set")),
    }
}

fn is_variable(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// The file's text without the newline that editors put at its end.
fn file(path: &str) -> Result<String, String> {
    if !Path::new(path).is_absolute() {
        return Err("${file:...} needs an absolute path".to_owned());
    }
    let cannot = |error: std::io::Error| format!("cannot read {path}: {error}");
    let mut text = String::new();
    let mut bounded = std::fs::File::open(path).map_err(cannot)?.take(MAX_FILE_BYTES + 1);
    bounded.read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{path} is larger than {MAX_FILE_BYTES} bytes"));
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
