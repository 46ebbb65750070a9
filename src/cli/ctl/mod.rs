//! `ankusa ctl`: asks or tells the node on this machine, through its control socket.
//!
//! The socket speaks HTTP/1.1, so `curl --unix-socket` says the same. Tables are for people; `--json` hands the node's
//! answer on as it came.

mod blob;
mod limits;
mod purge;
mod render;
mod routes;
mod socket;
mod sources;
mod verbs;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde_json::Value;

use super::http::{AskError, ask_with, whole};
use super::{ConfigFile, EXIT_WRONG_COUNTERS, complain, converse, print};
use verbs::{Shape, Verb};

#[derive(Debug, Args)]
pub(super) struct CtlArgs {
    /// The control socket; unless given, where the configuration says it is
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
    /// Print the node's own JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

pub(super) fn run(args: &CtlArgs) -> ExitCode {
    let path = match socket::path(args.socket.as_deref(), &args.config.path) {
        Ok(path) => path,
        Err(why) => {
            complain(why);
            return ExitCode::FAILURE;
        }
    };
    let conversation = async {
        let verb = &args.verb;
        if let Verb::Purge(purge) = verb {
            return purge::run(&path, verb, purge, args.json).await;
        }
        if let Verb::Sources(sources) = verb {
            return sources::run(&path, sources, args.json).await;
        }
        if let Verb::Blob(blob) = verb {
            return blob::run(&path, blob, args.json).await;
        }
        if let Verb::Routes(routes) = verb {
            return routes::run(&path, routes, args.json).await;
        }
        let connection = socket::connect(&path).await?;
        let answer = ask_with(connection, verb.request()?, verb.limit()).await;
        show(answer.map_err(|error| error.to_string())?, verb, args.json)
            .await
            .map_err(|error| error.to_string())
    };
    match converse(conversation) {
        Ok(Ok(code)) => code,
        Ok(Err(why)) => {
            complain(why);
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

async fn show(answer: Response<Incoming>, verb: &Verb, json: bool) -> Result<ExitCode, AskError> {
    if answer.status() == StatusCode::OK && verb.shape() == Shape::Lines {
        return pass_on(answer).await;
    }
    let (status, body) = whole(answer).await?;
    let text = String::from_utf8_lossy(&body);
    let is_an_answer = status.is_success() || verb.answers_with(status);
    let printed = match serde_json::from_str::<Value>(&text) {
        Ok(value) if is_an_answer && !json => print(&render::answer(verb.shape(), &value)),
        Ok(value) if !json => {
            complain(render::refusal(status, &value));
            return Ok(ExitCode::FAILURE);
        }
        // `--json`, or an answer that is none.
        Ok(_) | Err(_) => print(&ended(&text)),
    };
    let counted = serde_json::from_str::<Value>(&text).ok().filter(|_| status.is_success());
    if matches!(verb, Verb::Recount { .. }) && counted.is_some_and(|told| leaves_wrong(&told)) {
        return Ok(ExitCode::from(EXIT_WRONG_COUNTERS));
    }
    Ok(if status.is_success() { printed } else { ExitCode::FAILURE })
}

/// A list of alike objects under `key`, as a table.
pub(super) fn table(key: &'static str, value: &Value) -> String {
    render::answer(Shape::Rows(key), value)
}

/// Whether a count found counters wrong and left them so.
fn leaves_wrong(told: &Value) -> bool {
    let wrong = told.get("wrong_counters").and_then(Value::as_u64).unwrap_or(0);
    wrong > 0 && told.get("repaired") != Some(&Value::Bool(true))
}

/// Copies a long answer as it comes.
async fn pass_on(answer: Response<Incoming>) -> Result<ExitCode, AskError> {
    let mut body = answer.into_body();
    let mut out = io::stdout().lock();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| AskError::Broken(error.to_string()))?;
        if let Some(data) = frame.data_ref()
            && out.write_all(data).is_err()
        {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(if out.flush().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `text` with a newline at its end, unless there is nothing.
fn ended(text: &str) -> String {
    let text = text.trim_end_matches('\n');
    if text.is_empty() { String::new() } else { format!("{text}\n") }
}
