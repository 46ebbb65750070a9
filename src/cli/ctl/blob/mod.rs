//! `ankusa ctl blob`: objects in the stores of a node.
//!
//! Whatever their size, only a part of them is in memory: an object is sent as it is read, and one of more than 8 MiB is
//! read in ranges of that size.

mod get;
mod list;
mod progress;
mod put;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::super::http::{ask, whole};
use super::super::{complain, print};
use super::verbs::with_query;
use super::{ended, render, socket, sources};

/// How long an answer may take to begin: the store has a deadline of its own, and the configuration says which.
const LIMIT: Duration = Duration::from_secs(86_400);

/// What a verb exits with that a store refused.
pub(super) const EXITS: [(&str, u8); 11] = [
    ("not_found", 10),
    ("already_exists", 11),
    ("integrity", 12),
    ("throttled", 13),
    ("deadline", 14),
    ("breaker_open", 15),
    ("forbidden", 16),
    ("clock_skew", 17),
    ("wrong_region", 18),
    ("misconfigured", 19),
    ("transport", 20),
];

/// What it exits with if the node cannot make sense of what it was asked: as where the command line makes none.
const EXIT_NONSENSE: u8 = 2;

#[derive(Debug, Subcommand)]
pub(super) enum BlobVerb {
    /// Objects in the order of their keys
    Ls(LsArgs),
    /// Write an object, over what is there
    Put(PutArgs),
    /// Read an object
    Get(GetArgs),
    /// How large an object is
    Stat(ObjectArgs),
    /// Remove an object; one that is not there has been removed
    Rm(ObjectArgs),
}

#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// Which store: segments, backup, claims; claims[1] for the second of several
    #[arg(long, value_name = "STORE")]
    store: String,
}

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    #[command(flatten)]
    of: StoreArgs,
    /// Only those whose keys begin with it
    #[arg(default_value = "")]
    prefix: String,
}

#[derive(Debug, Args)]
pub(super) struct ObjectArgs {
    #[command(flatten)]
    of: StoreArgs,
    /// The whole key
    key: String,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// What to write; `-` for standard input
    file: PathBuf,
    /// Only if there is no object with this key
    #[arg(long)]
    if_absent: bool,
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// Where to, whole or not at all; `-` for standard output
    file: PathBuf,
}

/// Why a verb did not end well.
enum Failed {
    /// The node or the store would not.
    Refused(StatusCode, Value),
    /// Anything else.
    Broken(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

impl Failed {
    /// Says so, and answers what to exit with.
    fn told(self, json: bool) -> ExitCode {
        match self {
            Self::Broken(why) => {
                complain(why);
                ExitCode::FAILURE
            }
            Self::Refused(status, answer) => {
                if json {
                    print(&ended(&answer.to_string()));
                } else {
                    complain(refusal(status, &answer));
                }
                exit_of(status, &answer)
            }
        }
    }
}

/// The error, what is said about it, and what to do.
fn refusal(status: StatusCode, answer: &Value) -> String {
    let text = |key: &str| answer.get(key).and_then(Value::as_str);
    let (Some(error), Some(advice)) = (text("error"), text("advice")) else {
        return render::refusal(status, answer);
    };
    let said = text("message").map(|message| format!(": {message}")).unwrap_or_default();
    format!("{error}{said}\n{advice}")
}

fn exit_of(status: StatusCode, answer: &Value) -> ExitCode {
    let error = answer.get("error").and_then(Value::as_str).unwrap_or_default();
    let known = EXITS.iter().find(|(word, _)| *word == error && answer.get("advice").is_some());
    match known {
        Some((_, code)) => ExitCode::from(*code),
        None if status == StatusCode::BAD_REQUEST => ExitCode::from(EXIT_NONSENSE),
        None => ExitCode::FAILURE,
    }
}

/// Asks, and shows what the node says.
pub(super) async fn run(path: &Path, verb: &BlobVerb, json: bool) -> Result<ExitCode, String> {
    let done = match verb {
        BlobVerb::Ls(args) => list::run(path, args, json).await,
        BlobVerb::Put(args) => put::run(path, args, json).await,
        BlobVerb::Get(args) => get::run(path, args, json).await,
        BlobVerb::Stat(object) => stat(path, object).await.map(|told| show(&told, json)),
        BlobVerb::Rm(object) => {
            let removed = asked(path, Method::DELETE, &object.path_and_query([])).await;
            match removed {
                Ok(answer) => told(answer).await.map(|told| show(&told, json)),
                Err(why) => Err(why),
            }
        }
    };
    Ok(done.unwrap_or_else(|failed| failed.told(json)))
}

fn show(told: &Value, json: bool) -> ExitCode {
    print(&sources::shown(told, json))
}

impl ObjectArgs {
    /// Where the object is.
    fn path_and_query<const N: usize>(&self, more: [(&str, Option<String>); N]) -> String {
        let object = with_query(
            "/v1/blob/object",
            [("store", Some(self.of.store.clone())), ("key", Some(self.key.clone()))],
        );
        let more = with_query("", more);
        match more.trim_start_matches('?') {
            "" => object,
            more => format!("{object}&{more}"),
        }
    }
}

/// How large the object is.
async fn stat(path: &Path, object: &ObjectArgs) -> Result<Value, Failed> {
    let (store, key) = (object.of.store.clone(), object.key.clone());
    let target = with_query("/v1/blob/stat", [("store", Some(store)), ("key", Some(key))]);
    told(asked(path, Method::GET, &target).await?).await
}

/// An answer that is no refusal.
async fn asked(path: &Path, method: Method, target: &str) -> Result<Response<Incoming>, Failed> {
    let connection = socket::connect(path).await?;
    let answer = ask(connection, method, target, LIMIT).await;
    granted(answer.map_err(|error| error.to_string())?).await
}

async fn granted(answer: Response<Incoming>) -> Result<Response<Incoming>, Failed> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (status, body) = whole(answer).await.map_err(|error| error.to_string())?;
    let told = serde_json::from_slice(&body).unwrap_or_else(|_| json!({}));
    Err(Failed::Refused(status, told))
}

async fn bytes(answer: Response<Incoming>) -> Result<Bytes, Failed> {
    Ok(whole(answer).await.map_err(|error| error.to_string())?.1)
}

async fn told(answer: Response<Incoming>) -> Result<Value, Failed> {
    let body = bytes(answer).await?;
    serde_json::from_slice(&body).map_err(|error| Failed::Broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ankusa_actors::ports::BlobError;

    use super::*;

    #[test]
    fn every_error_of_a_store_has_an_exit_code_of_its_own() {
        let text = String::new;
        let errors = [
            BlobError::NotFound,
            BlobError::AlreadyExists,
            BlobError::Integrity(text()),
            BlobError::Throttled { seconds: 1 },
            BlobError::Deadline,
            BlobError::BreakerOpen,
            BlobError::Forbidden(text()),
            BlobError::ClockSkew { ahead_s: 1 },
            BlobError::WrongRegion { region: text() },
            BlobError::Misconfigured(text()),
            BlobError::Transport(text()),
        ];
        assert_eq!(EXITS.map(|(word, _)| word), errors.map(|error| error.as_str()));
        assert_eq!(EXITS.iter().map(|(_, code)| code).collect::<BTreeSet<_>>().len(), 11);
    }

    #[test]
    fn a_refusal_says_what_happened_and_what_to_do() {
        let refused = |error: &str, message: Value| {
            let answer = json!({"error": error, "message": message, "advice": "do this"});
            refusal(StatusCode::BAD_GATEWAY, &answer)
        };
        assert_eq!(refused("forbidden", json!("AccessDenied")), "forbidden: AccessDenied\ndo this");
        assert_eq!(refused("deadline", Value::Null), "deadline\ndo this");
        let other = json!({"error": "invalid_filter", "field": "key"});
        assert_eq!(refusal(StatusCode::BAD_REQUEST, &other), "invalid_filter (field=key)");
    }

    #[test]
    fn a_key_stays_one_field_whatever_is_in_it() {
        let of = StoreArgs { store: "claims[1]".to_owned() };
        let object = ObjectArgs { of, key: "a/b c&d=?%".to_owned() };
        let query = "/v1/blob/object?store=claims%5B1%5D&key=a%2Fb+c%26d%3D%3F%25";
        assert_eq!(object.path_and_query([]), query);
        let absent = [("if_absent", Some("true".to_owned())), ("other", None)];
        assert_eq!(object.path_and_query(absent), format!("{query}&if_absent=true"));
    }
}
