//! `ankusa ctl purge`: one call after the other until nothing is left, and how far it has come.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::super::http::{ask, whole};
use super::super::{complain, print};
use super::verbs::{PurgeArgs, Shape, Verb};
use super::{ended, render, socket};

/// Runs a purge to its end. What was removed until something went wrong is told too: it is gone, and the same command
/// goes on.
pub(super) async fn run(
    path: &Path,
    verb: &Verb,
    args: &PurgeArgs,
    json: bool,
) -> Result<ExitCode, String> {
    let mut purged: BTreeMap<String, u64> = BTreeMap::new();
    let mut cursor: Option<String> = None;
    loop {
        let answer = match call(path, verb, args, cursor.as_deref()).await? {
            Ok(answer) => answer,
            Err(refusal) => {
                let total: u64 = purged.values().sum();
                let so_far = if total > 0 {
                    format!("; {total} rows were removed before")
                } else {
                    String::new()
                };
                return Err(format!("{refusal}{so_far}"));
            }
        };
        let removed = answer.get("purged").and_then(Value::as_object).into_iter().flatten();
        for (state, rows) in removed {
            *purged.entry(state.clone()).or_default() += rows.as_u64().unwrap_or(0);
        }
        cursor = answer.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            let left = answer.get("left").cloned().unwrap_or_default();
            let told = json!({"tenant_id": args.tenant, "purged": purged, "left": left});
            let text =
                if json { ended(&told.to_string()) } else { render::answer(Shape::Facts, &told) };
            return Ok(print(&text));
        }
        let so_far: Vec<String> =
            purged.iter().map(|(state, rows)| format!("{rows} {state}")).collect();
        complain(format_args!("removed so far: {}", so_far.join(", ")));
    }
}

/// One call: what the node says, or why it would not.
async fn call(
    path: &Path,
    verb: &Verb,
    args: &PurgeArgs,
    cursor: Option<&str>,
) -> Result<Result<Value, String>, String> {
    let connection = socket::connect(path).await?;
    let asked = ask(connection, verb.method(), &args.path_and_query(cursor), verb.limit()).await;
    let (status, body) = whole(asked.map_err(|error| error.to_string())?)
        .await
        .map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(if status.is_success() { Ok(value) } else { Err(render::refusal(status, &value)) })
}
