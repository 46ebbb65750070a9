//! What can be asked and told, and the request that does it.

use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use url::form_urlencoded::{Serializer, byte_serialize};

use super::blob::BlobVerb;
use super::limits::{QuarantineVerb, RateLimitsVerb};
use super::routes::RoutesVerb;
use super::sources::SourcesVerb;

/// How long most answers may take to begin.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// The same where the node opens its store or works through its queues first.
const LONG_LIMIT: Duration = Duration::from_secs(180);
/// The same where it reads every row first, and may have been asked before.
const RECOUNT_LIMIT: Duration = Duration::from_secs(3_600);

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
    /// What the queue holds, of the node or of one tenant
    Stats {
        /// Only of this tenant
        tenant: Option<String>,
    },
    /// What the queue holds of each tenant
    Tenants(PageArgs),
    /// Deliveries that were given up
    #[command(subcommand)]
    Dlq(DlqVerb),
    /// How much is taken of each tenant
    #[command(subcommand)]
    RateLimits(RateLimitsVerb),
    /// Hooks that did not verify and are held
    #[command(subcommand)]
    Quarantine(QuarantineVerb),
    /// Sources that the API keeps
    #[command(subcommand)]
    Sources(SourcesVerb),
    /// Which requests may reach ingest, where routes.enabled is on
    #[command(subcommand)]
    Routes(RoutesVerb),
    /// Objects in the stores of this node
    #[command(subcommand)]
    Blob(BlobVerb),
    /// Remove delivery rows of a tenant for good, and the hooks that owe nothing else; told again, it does what is left
    Purge(PurgeArgs),
    /// Count every row against the counters of the running node: exit 0 if they are right, 3 if they are not
    Recount {
        /// Make them right: exit 0 then
        #[arg(long)]
        repair: bool,
    },
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

#[derive(Debug, Args)]
pub(super) struct PageArgs {
    /// At most so many
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(super) limit: u32,
    /// Go on where another page ended: its next_cursor
    #[arg(long, value_name = "CURSOR")]
    pub(super) cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct PurgeArgs {
    /// Whose rows
    pub(super) tenant: String,
    /// Which: those that wait (pending), are claimed (inflight), were given up (dead); several with commas
    #[arg(long, required = true, value_name = "STATES")]
    pub(super) state: String,
}

#[derive(Debug, Args)]
pub(super) struct DlqListArgs {
    /// Only of this source
    #[arg(long, value_name = "ID")]
    source: Option<String>,
    /// Only of this tenant
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Only those given up since, in Unix milliseconds
    #[arg(long, value_name = "MS")]
    since: Option<u64>,
    /// Only those given up until then, in Unix milliseconds
    #[arg(long, value_name = "MS")]
    until: Option<u64>,
    /// Only for such a reason: source_gone, sink_gone, unreadable, timeout, panicked or sink
    #[arg(long, value_name = "CLASS")]
    reason: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum DlqVerb {
    /// The newest first
    List(DlqListArgs),
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
            Self::RateLimits(verb) => verb.method(),
            Self::Quarantine(verb) => verb.method(),
            Self::Status
            | Self::Tree
            | Self::Ready
            | Self::Metrics
            | Self::Hooks(_)
            | Self::Stats { .. }
            | Self::Tenants(_)
            | Self::Dlq(DlqVerb::List(_))
            | Self::Sources(_)
            | Self::Routes(_)
            | Self::Blob(_)
            | Self::Scrub { now: false }
            | Self::Dump => Method::GET,
            Self::Store(StoreVerb::Reopen)
            | Self::Purge(_)
            | Self::Recount { .. }
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
            Self::Stats { tenant: None } => "/v1/queue".to_owned(),
            Self::Stats { tenant: Some(tenant) } => format!("{}/queue", of_tenant(tenant)),
            Self::Tenants(PageArgs { limit, cursor }) => with_query(
                "/v1/queue/tenants",
                [("limit", Some(limit.to_string())), ("cursor", cursor.clone())],
            ),
            Self::Dlq(DlqVerb::List(DlqListArgs {
                source,
                tenant,
                since,
                until,
                reason,
                page,
            })) => with_query(
                "/v1/dlq",
                [
                    ("source_id", source.clone()),
                    ("tenant_id", tenant.clone()),
                    ("since", since.map(|ms| ms.to_string())),
                    ("until", until.map(|ms| ms.to_string())),
                    ("reason", reason.clone()),
                    ("limit", Some(page.limit.to_string())),
                    ("cursor", page.cursor.clone()),
                ],
            ),
            Self::RateLimits(verb) => verb.path_and_query(),
            Self::Quarantine(verb) => verb.path_and_query(),
            // These ask for themselves.
            Self::Sources(_) | Self::Routes(_) | Self::Blob(_) => String::new(),
            Self::Purge(args) => args.path_and_query(None),
            Self::Recount { repair } => {
                with_query("/v1/recount", [("repair", Some(repair.to_string()))])
            }
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
            | Self::Stats { .. }
            | Self::Purge(_)
            | Self::Sources(_)
            | Self::Routes(_)
            | Self::Blob(_)
            | Self::Store(_)
            | Self::Scrub { .. }
            | Self::Crash { .. }
            | Self::Stop => Shape::Facts,
            Self::RateLimits(verb) => verb.shape(),
            Self::Quarantine(verb) => verb.shape(),
            Self::Tree => Shape::Tree,
            Self::Metrics | Self::Dump => Shape::Lines,
            Self::Hooks(_) => Shape::Rows("hooks"),
            Self::Tenants(_) => Shape::Rows("tenants"),
            Self::Dlq(_) => Shape::Rows("entries"),
            Self::Recount { .. } => Shape::Rows("miscounts"),
        }
    }

    pub(super) const fn limit(&self) -> Duration {
        match self {
            Self::Store(_) | Self::Stop => LONG_LIMIT,
            Self::Recount { .. } => RECOUNT_LIMIT,
            Self::Status
            | Self::Tree
            | Self::Ready
            | Self::Metrics
            | Self::Hooks(_)
            | Self::Stats { .. }
            | Self::Tenants(_)
            | Self::Dlq(_)
            | Self::RateLimits(_)
            | Self::Quarantine(_)
            | Self::Purge(_)
            | Self::Sources(_)
            | Self::Routes(_)
            | Self::Blob(_)
            | Self::Dump
            | Self::Scrub { .. }
            | Self::Crash { .. } => LIMIT,
        }
    }

    /// The whole of it: with JSON, or with nothing.
    pub(super) fn request(&self) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::builder().method(self.method()).uri(self.path_and_query());
        let request = request.header(HOST, "localhost");
        let request = if let Self::RateLimits(verb) = self {
            request.header(CONTENT_TYPE, "application/json").body(Full::new(verb.body()))
        } else {
            request.body(Full::default())
        };
        request.map_err(|error| error.to_string())
    }

    /// Whether `status`, though no success, is an answer to the question and not a refusal.
    pub(super) fn answers_with(&self, status: StatusCode) -> bool {
        matches!(self, Self::Ready) && status == StatusCode::SERVICE_UNAVAILABLE
    }
}

impl PurgeArgs {
    /// The next call of a purge.
    pub(super) fn path_and_query(&self, cursor: Option<&str>) -> String {
        with_query(
            &format!("{}/purge", of_tenant(&self.tenant)),
            [("state", Some(self.state.clone())), ("cursor", cursor.map(str::to_owned))],
        )
    }
}

/// Whatever is in the name stays one part of the path.
pub(super) fn of_tenant(tenant: &str) -> String {
    format!("/v1/tenants/{}", in_path(tenant))
}

/// One part of a path.
pub(super) fn in_path(name: &str) -> String {
    let encoded: String = byte_serialize(name.as_bytes()).collect();
    encoded.replace('+', "%20")
}

pub(super) fn with_query<const N: usize>(
    path: &str,
    fields: [(&str, Option<String>); N],
) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    format!("{path}?{}", query.finish())
}
