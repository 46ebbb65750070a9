//! What can be asked and told, and the request that does it.

use std::time::Duration;

use clap::{Args, Subcommand};
use hyper::{Method, StatusCode};
use url::form_urlencoded::Serializer;

/// How long most answers may take to begin.
const LIMIT: Duration = Duration::from_secs(10);
/// The same where the node opens its store or works through its queues first.
const LONG_LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Roles, seqs, queue counters, sync mark, uptime
    Status,
    /// The supervision tree: states, restarts, last failures
    Tree,
    /// Whether the node takes hooks: exit 0 if it does
    Ready,
    /// The metrics, as a scraper sees them
    Metrics,
    /// Stored hooks in seq order, without their bodies
    Hooks(HooksArgs),
    /// Deliveries that were given up
    #[command(subcommand)]
    Dlq(DlqVerb),
    /// Every row of the store as JSON lines
    Dump,
    #[command(subcommand)]
    Store(StoreVerb),
    /// How far the background scrub of the store is, and which files it found damaged
    Scrub {
        /// Begin a round now, unless one is under way
        #[arg(long)]
        now: bool,
    },
    /// Panic a child of the supervision tree; only with control.allow_crash
    Crash {
        /// Its name, as `ctl tree` shows it
        child: String,
    },
    /// Stop the node as SIGTERM does
    Stop,
}

#[derive(Debug, Args)]
pub(super) struct HooksArgs {
    /// Only hooks behind this seq
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    /// At most so many
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,
}

#[derive(Debug, Subcommand)]
pub(super) enum DlqVerb {
    /// The newest first
    List {
        /// Only of this source
        #[arg(long, value_name = "ID")]
        source: Option<String>,
        /// Only those given up since, in Unix milliseconds
        #[arg(long, value_name = "MS")]
        since: Option<u64>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum StoreVerb {
    /// Close the store and open it again
    Reopen,
}

/// What an answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One object: a line a value.
    Facts,
    /// A list of alike objects under this key.
    Rows(&'static str),
    /// The supervision tree.
    Tree,
    /// Text that may be long and is passed on as it comes.
    Lines,
}

impl Verb {
    pub(super) const fn method(&self) -> Method {
        match self {
            Self::Status
            | Self::Tree
            | Self::Ready
            | Self::Metrics
            | Self::Hooks(_)
            | Self::Dlq(DlqVerb::List { .. })
            | Self::Scrub { now: false }
            | Self::Dump => Method::GET,
            Self::Store(StoreVerb::Reopen)
            | Self::Scrub { now: true }
            | Self::Crash { .. }
            | Self::Stop => Method::POST,
        }
    }

    pub(super) fn path_and_query(&self) -> String {
        match self {
            Self::Status => "/v1/status".to_owned(),
            Self::Tree => "/v1/tree".to_owned(),
            Self::Ready => "/ready".to_owned(),
            Self::Metrics => "/metrics".to_owned(),
            Self::Hooks(HooksArgs { after, limit }) => with_query(
                "/v1/hooks",
                [("after", Some(after.to_string())), ("limit", Some(limit.to_string()))],
            ),
            Self::Dlq(DlqVerb::List { source, since, limit }) => with_query(
                "/v1/dlq",
                [
                    ("source_id", source.clone()),
                    ("since", since.map(|ms| ms.to_string())),
                    ("limit", Some(limit.to_string())),
                ],
            ),
            Self::Dump => "/v1/dump".to_owned(),
            Self::Store(StoreVerb::Reopen) => "/v1/store/reopen".to_owned(),
            Self::Scrub { .. } => "/v1/scrub".to_owned(),
            Self::Crash { child } => with_query("/v1/crash", [("child", Some(child.clone()))]),
            Self::Stop => "/v1/stop".to_owned(),
        }
    }

    pub(super) const fn shape(&self) -> Shape {
        match self {
            Self::Status
            | Self::Ready
            | Self::Store(_)
            | Self::Scrub { .. }
            | Self::Crash { .. }
            | Self::Stop => Shape::Facts,
            Self::Tree => Shape::Tree,
            Self::Metrics | Self::Dump => Shape::Lines,
            Self::Hooks(_) => Shape::Rows("hooks"),
            Self::Dlq(_) => Shape::Rows("entries"),
        }
    }

    pub(super) const fn limit(&self) -> Duration {
        match self {
            Self::Store(_) | Self::Stop => LONG_LIMIT,
            Self::Status
            | Self::Tree
            | Self::Ready
            | Self::Metrics
            | Self::Hooks(_)
            | Self::Dlq(_)
            | Self::Dump
            | Self::Scrub { .. }
            | Self::Crash { .. } => LIMIT,
        }
    }

    /// Whether `status`, though no success, is an answer to the question and not a refusal.
    pub(super) fn answers_with(&self, status: StatusCode) -> bool {
        matches!(self, Self::Ready) && status == StatusCode::SERVICE_UNAVAILABLE
    }
}

fn with_query<const N: usize>(path: &str, fields: [(&str, Option<String>); N]) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    format!("{path}?{}", query.finish())
}
