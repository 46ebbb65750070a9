//! `ankusa ctl sources`: sources of the API, read from a file and shown without their secrets.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::{Args, Subcommand};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, IF_MATCH};
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};

use super::super::http::{ask_with, whole};
use super::super::print;
use super::verbs::{LIMIT, Shape, in_path, of_tenant};
use super::{ended, render, socket, table};
use crate::config;

/// More is no source.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Subcommand)]
pub(super) enum SourcesVerb {
    /// Sources of a tenant, those of the configuration too
    List {
        /// Whose; sources of `default` are shared
        tenant: String,
    },
    /// One source, without its secrets
    Get(SourceArgs),
    /// Make or replace a source, at once
    Put(PutArgs),
    /// Remove a source; refused while deliveries of it are not finished
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Whose
    tenant: String,
    /// Hooks arrive for `<tenant>.<name>`
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// What stands under a source in the configuration, as YAML or JSON; `-` for standard input
    file: PathBuf,
    /// Only if it is at this revision
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Let its deliveries that wait end in the dead letters
    #[arg(long)]
    dead_letter: bool,
    /// Only if it is at this revision
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
}

/// Asks, and shows what the node says.
pub(super) async fn run(path: &Path, verb: &SourcesVerb, json: bool) -> Result<ExitCode, String> {
    match verb {
        SourcesVerb::List { tenant } => {
            let listed = ask(path, Method::GET, &of(tenant), None, None).await?.told()?;
            let text = if json { ended(&listed.to_string()) } else { list(&listed) };
            Ok(print(&text))
        }
        SourcesVerb::Get(source) => {
            let found = ask(path, Method::GET, &source.path(), None, None).await?.told()?;
            Ok(print(&shown(&found, json)))
        }
        SourcesVerb::Put(args) => put(path, args, json).await,
        SourcesVerb::Delete(DeleteArgs { source, dead_letter, revision }) => {
            let query = if *dead_letter { "?deliveries=dead_letter" } else { "" };
            let target = format!("{}{query}", source.path());
            ask(path, Method::DELETE, &target, *revision, None).await?.told()?;
            let gone = json!({"deleted": format!("{}.{}", source.tenant, source.name)});
            Ok(print(&shown(&gone, json)))
        }
    }
}

async fn put(path: &Path, args: &PutArgs, json: bool) -> Result<ExitCode, String> {
    let PutArgs { source, file, revision } = args;
    let spec = read(file)?;
    let body = Value::Object(spec.clone());
    let replaced = ask(path, Method::PUT, &source.path(), *revision, Some(&body)).await?;
    let is_new = replaced.status == StatusCode::NOT_FOUND && revision.is_none();
    let told = if is_new {
        let mut spec = spec;
        spec.insert("name".to_owned(), json!(source.name));
        let body = Value::Object(spec);
        ask(path, Method::POST, &of(&source.tenant), None, Some(&body)).await?.told()?
    } else {
        replaced.told()?
    };
    Ok(print(&shown(&told, json)))
}

impl SourceArgs {
    fn path(&self) -> String {
        format!("{}/{}", of(&self.tenant), in_path(&self.name))
    }
}

fn of(tenant: &str) -> String {
    format!("{}/sources", of_tenant(tenant))
}

pub(super) struct Answer {
    status: StatusCode,
    body: Value,
}

impl Answer {
    pub(super) fn told(self) -> Result<Value, String> {
        let Self { status, body } = self;
        if status.is_success() { Ok(body) } else { Err(render::refusal(status, &body)) }
    }
}

pub(super) async fn ask(
    path: &Path,
    method: Method,
    target: &str,
    revision: Option<u64>,
    body: Option<&Value>,
) -> Result<Answer, String> {
    let connection = socket::connect(path).await?;
    let mut request = Request::builder().method(method).uri(target).header(HOST, "localhost");
    if let Some(revision) = revision {
        request = request.header(IF_MATCH, format!("\"{revision}\""));
    }
    let request = match body {
        Some(body) => request
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string()))),
        None => request.body(Full::default()),
    };
    let request = request.map_err(|error| error.to_string())?;
    let answer = ask_with(connection, request, LIMIT).await.map_err(|error| error.to_string())?;
    let (status, body) = whole(answer).await.map_err(|error| error.to_string())?;
    Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() })
}

pub(super) fn read(file: &Path) -> Result<Map<String, Value>, String> {
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(MAX_FILE_BYTES).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(file).map_err(|error| named(&error))?;
        file.take(MAX_FILE_BYTES).read_to_string(&mut text)
    };
    read.map_err(|error| named(&error))?;
    config::source_of(&text).map_err(|error| named(&error))
}

pub(super) fn shown(value: &Value, json: bool) -> String {
    if json { ended(&value.to_string()) } else { render::answer(Shape::Facts, value) }
}

/// A row a source, with as much as fits.
fn list(listed: &Value) -> String {
    let of = |key: &str| listed.get(key).and_then(Value::as_array).into_iter().flatten();
    let row = |entry: &Value| {
        let sinks = entry.get("sinks").and_then(Value::as_array).into_iter().flatten();
        let sinks: Vec<&str> =
            sinks.filter_map(|sink| sink.get("type").and_then(Value::as_str)).collect();
        json!({
            "name": entry["name"],
            "source_id": entry["source_id"],
            "ingest_path": entry["ingest_path"],
            "origin": entry["origin"],
            "revision": entry["revision"],
            "verify": entry["verify"]["type"],
            "sinks": sinks.join(","),
        })
    };
    let rows: Vec<Value> = of("entries").map(row).collect();
    let mut text = table("entries", &json!({"entries": rows}));
    let unreadable: Vec<&Value> = of("unreadable").collect();
    if !unreadable.is_empty() {
        text.push_str("\nnot to be read:\n");
        text.push_str(&table("unreadable", &json!({"unreadable": unreadable})));
    }
    text
}
