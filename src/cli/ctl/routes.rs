//! `ankusa ctl routes`: which requests may reach ingest, and what the guard would say of one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::super::print;
use super::sources::{ask, read, shown};
use super::verbs::{PageArgs, in_path, with_query};
use super::{ended, table};

#[derive(Debug, Subcommand)]
pub(super) enum RoutesVerb {
    /// Routes in the order of their ids
    List(PageArgs),
    /// One route
    Get {
        /// Its id
        id: String,
    },
    /// Make or replace a route, at once
    Put(PutArgs),
    /// Remove a route, at once: what only it took is denied
    Delete {
        /// Its id
        id: String,
    },
    /// What the guard would say of a request: exit 0 if it is allowed
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// Its id: a-z 0-9 _ -
    id: String,
    /// path, and where wanted methods, enabled, ip_rules, metadata, as YAML or JSON; `-` for standard input
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// As POST
    method: String,
    /// As a client sends it
    path: String,
    /// The client's address
    ip: String,
}

/// Asks, and shows what the node says.
pub(super) async fn run(path: &Path, verb: &RoutesVerb, json: bool) -> Result<ExitCode, String> {
    let told = match verb {
        RoutesVerb::List(args) => {
            let listed = ask(path, Method::GET, &page(args), None, None).await?.told()?;
            let text = if json { ended(&listed.to_string()) } else { list(&listed) };
            return Ok(print(&text));
        }
        RoutesVerb::Get { id } => ask(path, Method::GET, &of(id), None, None).await?.told()?,
        RoutesVerb::Put(PutArgs { id, file }) => {
            let route = Value::Object(read(file)?);
            ask(path, Method::PUT, &of(id), None, Some(&route)).await?.told()?
        }
        RoutesVerb::Delete { id } => {
            ask(path, Method::DELETE, &of(id), None, None).await?.told()?;
            json!({"deleted": id})
        }
        RoutesVerb::Test(TestArgs { method, path: asked, ip }) => {
            let question = json!({"method": method, "path": asked, "ip": ip});
            ask(path, Method::POST, "/admin/routes/test", None, Some(&question)).await?.told()?
        }
    };
    let printed = print(&shown(&told, json));
    let is_denied = told.get("decision").and_then(Value::as_str) == Some("deny");
    Ok(if is_denied { ExitCode::FAILURE } else { printed })
}

fn of(id: &str) -> String {
    format!("/admin/routes/{}", in_path(id))
}

fn page(PageArgs { limit, cursor }: &PageArgs) -> String {
    let limit = Some(limit.to_string());
    with_query("/admin/routes", [("limit", limit), ("cursor", cursor.clone())])
}

/// A row a route, with as much as fits.
fn list(listed: &Value) -> String {
    let count = |route: &Value, key: &str| route[key].as_array().map_or(0, Vec::len);
    let row = |route: &Value| {
        let methods = route["methods"].as_array().into_iter().flatten();
        let methods: Vec<&str> = methods.filter_map(Value::as_str).collect();
        json!({
            "id": route["id"],
            "path": route["path"],
            "methods": methods.join(","),
            "enabled": route["enabled"],
            "ip_rules": count(route, "ip_rules"),
            "revision": route["revision"],
        })
    };
    let routes = listed.get("routes").and_then(Value::as_array).into_iter().flatten();
    let rows: Vec<Value> = routes.map(row).collect();
    let next_cursor = listed.get("next_cursor").cloned().unwrap_or_default();
    table("routes", &json!({"routes": rows, "next_cursor": next_cursor}))
}
