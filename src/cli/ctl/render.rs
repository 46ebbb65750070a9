//! The node's JSON as tables for people. Knows shapes, not keys: what a newer node says more is shown too.

use std::fmt::Write;

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::verbs::Shape;

/// What stands for nothing.
const NOTHING: &str = "-";
const GAP: &str = "  ";

pub(super) fn answer(shape: Shape, value: &Value) -> String {
    match shape {
        Shape::Facts => facts(value),
        Shape::Rows(key) => rows(key, value),
        Shape::Tree => tree(value),
        Shape::Lines => format!("{value}\n"),
    }
}

/// Why the node would not: its error's name and whatever it says about it.
pub(super) fn refusal(status: StatusCode, value: &Value) -> String {
    let error = value.get("error").map_or_else(|| status.to_string(), cell);
    let more: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "error")
        .map(|(key, value)| format!("{key}={}", cell(value)))
        .collect();
    if more.is_empty() { error } else { format!("{error} ({})", more.join(", ")) }
}

/// A line a value, nested ones under a dotted name.
fn facts(value: &Value) -> String {
    let mut table = Vec::new();
    flatten("", value, &mut table);
    aligned(&table)
}

fn flatten(name: &str, value: &Value, table: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, table);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            table.push(vec![name.to_owned(), cell(value)]);
        }
    }
}

/// The list under `key` as a table, and a line for each of the other values.
fn rows(key: &str, value: &Value) -> String {
    let empty = Vec::new();
    let list = value.get(key).and_then(Value::as_array).unwrap_or(&empty);
    let mut names: Vec<&String> = Vec::new();
    for name in list.iter().filter_map(Value::as_object).flat_map(Map::keys) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut table = vec![names.iter().map(|name| heading(name)).collect::<Vec<_>>()];
    for row in list {
        table.push(
            names.iter().map(|name| row.get(name).map_or(NOTHING.to_owned(), cell)).collect(),
        );
    }
    let mut text = if list.is_empty() { format!("no {key}\n") } else { aligned(&table) };
    let others = value.as_object().into_iter().flatten().filter(|(name, _)| *name != key);
    for (name, value) in others {
        let _ = writeln!(text, "{name}: {}", cell(value));
    }
    text
}

/// Children indented below their supervisors, and what else there is below them, a line a value.
fn tree(value: &Value) -> String {
    let empty = Vec::new();
    let children = value.get("children").and_then(Value::as_array).unwrap_or(&empty);
    let text = |child: &Value, key: &str| child.get(key).map_or(NOTHING.to_owned(), cell);
    let titles = ["CHILD", "STRATEGY", "STATE", "FOR", "RESTARTS", "DOWNS", "LAST FAILURE"];
    let mut table = vec![titles.map(str::to_owned).to_vec()];
    let mut depths: Vec<(String, usize)> = Vec::new();
    for child in children {
        let (id, parent) = (text(child, "id"), text(child, "parent"));
        // Supervisors come before their children.
        let above = depths.iter().rev().find(|(id, _)| *id == parent);
        let depth = above.map_or(0, |(_, depth)| depth + 1);
        let for_ms = child.get("for_ms").and_then(Value::as_u64);
        table.push(vec![
            format!("{}{id}", GAP.repeat(depth)),
            text(child, "strategy"),
            text(child, "state"),
            for_ms.map_or(NOTHING.to_owned(), age),
            text(child, "restarts"),
            text(child, "downs"),
            text(child, "last_failure"),
        ]);
        depths.push((id, depth));
    }
    let mut others = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        if name != "children" && name != "instance" {
            flatten(name, value, &mut others);
        }
    }
    let mut text = aligned(&table);
    if !others.is_empty() {
        text.push('\n');
        text.push_str(&aligned(&others));
    }
    text
}

/// `received_at` as `RECEIVED AT`.
fn heading(name: &str) -> String {
    printable(&name.replace('_', " ").to_uppercase())
}

/// One value on one line, without anything a terminal would obey.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.to_owned(),
        Value::String(text) => printable(text),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => printable(&value.to_string()),
    }
}

fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// The two largest units of a time.
fn age(ms: u64) -> String {
    let s = ms / 1_000;
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, 0) => format!("{ms}ms"),
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s}s"),
        (0, h, m, _) => format!("{h}h{m}m"),
        (d, h, _, _) => format!("{d}d{h}h"),
    }
}

/// Columns as wide as their widest cell.
fn aligned(table: &[Vec<String>]) -> String {
    let columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        table.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in table {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}{GAP}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_are_a_line_each() {
        let value = json!({"instance": "default", "roles": ["dispatch", "edge"], "draining": false,
            "store": {"open": true, "failing": null}, "queue": {"pending": 12}});
        let expected = "instance       default\n\
                        roles          dispatch,edge\n\
                        draining       false\n\
                        store.open     true\n\
                        store.failing  -\n\
                        queue.pending  12\n";
        assert_eq!(answer(Shape::Facts, &value), expected);
    }

    #[test]
    fn rows_are_a_table_and_the_rest_below() {
        let value = json!({"total": 2, "entries": [
            {"id": "a", "dead_lettered_at": 7, "reason": "status 503"},
            {"id": "bbb", "dead_lettered_at": 17, "reason": "line\n\u{1b}[2J", "more": 1},
        ]});
        let expected = "ID   DEAD LETTERED AT  REASON           MORE\n\
                        a    7                 status 503       -\n\
                        bbb  17                line\\n\\u{1b}[2J  1\n\
                        total: 2\n";
        assert_eq!(answer(Shape::Rows("entries"), &value), expected);
        let none = json!({"hooks": [], "more": false});
        assert_eq!(answer(Shape::Rows("hooks"), &none), "no hooks\nmore: false\n");
    }

    #[test]
    fn children_are_indented_below_their_supervisors() {
        let child = |id: &str, parent: &str, strategy: Option<&str>, failure: Option<&str>| {
            json!({"id": id, "parent": parent, "strategy": strategy, "state": "running", "for_ms": 61_000,
                "restarts": 1, "downs": 0, "last_failure": failure})
        };
        let value = json!({"instance": "default", "children": [
            child("core", "", Some("rest_for_one"), None),
            child("store", "core", None, None),
            child("queue", "core", Some("one_for_all"), None),
            child("syncer", "queue", None, Some("panicked")),
            child("front", "", Some("one_for_one"), None),
        ]});
        let expected = "CHILD       STRATEGY      STATE    FOR   RESTARTS  DOWNS  LAST FAILURE\n\
                        core        rest_for_one  running  1m1s  1         0      -\n\
                        ..store     -             running  1m1s  1         0      -\n\
                        ..queue     one_for_all   running  1m1s  1         0      -\n\
                        ....syncer  -             running  1m1s  1         0      panicked\n\
                        front       one_for_one   running  1m1s  1         0      -\n";
        assert_eq!(answer(Shape::Tree, &value), expected.replace("..", GAP));
    }

    #[test]
    fn what_a_tree_says_besides_stands_below_it() {
        let store = json!({"open": false, "last_failure": {"class": "no_space", "op": "open"}});
        let value = json!({"instance": "default", "children": [], "store": store});
        let expected = "CHILD  STRATEGY  STATE  FOR  RESTARTS  DOWNS  LAST FAILURE\n\
                        \n\
                        store.open                false\n\
                        store.last_failure.class  no_space\n\
                        store.last_failure.op     open\n";
        assert_eq!(answer(Shape::Tree, &value), expected);
    }

    #[test]
    fn a_time_is_told_in_its_two_largest_units() {
        for (ms, told) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (61_000, "1m1s"),
            (3_600_000, "1h0m"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(age(ms), told);
        }
    }

    #[test]
    fn a_refusal_names_the_error_and_what_is_known_about_it() {
        let conflict = StatusCode::CONFLICT;
        let role = json!({"error": "role_not_enabled", "role": "dispatch"});
        assert_eq!(refusal(conflict, &role), "role_not_enabled (role=dispatch)");
        assert_eq!(refusal(conflict, &json!({"error": "not_found"})), "not_found");
        assert_eq!(refusal(conflict, &json!({})), "409 Conflict");
    }
}
