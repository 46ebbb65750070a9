//! What can be asked and told of rate limits and of the quarantine pen.

use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Number, Value};

use super::verbs::{Shape, of_tenant, with_query};

#[derive(Debug, Subcommand)]
pub(super) enum RateLimitsVerb {
    /// Every tenant that has a limit of its own, and the default
    List,
    /// The limit of one tenant, and where it is from
    Get { tenant: String },
    /// Give a tenant a limit, at once and across restarts; its bucket is full then
    Set(SetArgs),
    /// Take away what was set: the configuration counts again
    Unset { tenant: String },
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    tenant: String,
    /// Hooks a second
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Hooks at once
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// Body bytes a second
    #[arg(long, value_name = "BYTES")]
    bytes_rate: Option<u64>,
    /// Body bytes at once
    #[arg(long, value_name = "BYTES")]
    bytes_burst: Option<u64>,
    /// Of the room in the batchers that others leave, in percent
    #[arg(long, value_name = "PERCENT")]
    share: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(super) enum QuarantineVerb {
    /// Held hooks, the newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: u32,
    },
    /// Delete held hooks for good, the oldest first
    Purge(HeldArgs),
}

#[derive(Debug, Args)]
pub(super) struct HeldArgs {
    /// Only of this source
    #[arg(long, value_name = "ID")]
    source: Option<String>,
    /// Only this one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Only those received since, in Unix milliseconds
    #[arg(long, value_name = "MS")]
    since: Option<u64>,
    /// Only those received until then, in Unix milliseconds
    #[arg(long, value_name = "MS")]
    until: Option<u64>,
    /// At most so many
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    limit: u32,
}

impl RateLimitsVerb {
    pub(super) const fn method(&self) -> Method {
        match self {
            Self::List | Self::Get { .. } => Method::GET,
            Self::Set(_) => Method::PUT,
            Self::Unset { .. } => Method::DELETE,
        }
    }

    pub(super) fn path_and_query(&self) -> String {
        match self {
            Self::List => "/v1/rate-limits".to_owned(),
            Self::Get { tenant } | Self::Unset { tenant } | Self::Set(SetArgs { tenant, .. }) => {
                format!("{}/rate-limit", of_tenant(tenant))
            }
        }
    }

    /// The limit that is set, as JSON.
    pub(super) fn body(&self) -> Bytes {
        let Self::Set(SetArgs { tenant: _, rate, burst, bytes_rate, bytes_burst, share }) = self
        else {
            return Bytes::new();
        };
        let fields = [
            ("rate", rate.and_then(Number::from_f64)),
            ("burst", burst.map(Number::from)),
            ("bytes_rate", bytes_rate.map(Number::from)),
            ("bytes_burst", bytes_burst.map(Number::from)),
            ("overload_share_percent", share.map(Number::from)),
        ];
        let given =
            fields.into_iter().filter_map(|(name, number)| Some((name.to_owned(), number?)));
        let limit: Map<String, Value> =
            given.map(|(name, number)| (name, Value::Number(number))).collect();
        Bytes::from(Value::Object(limit).to_string())
    }

    pub(super) const fn shape(&self) -> Shape {
        match self {
            Self::List => Shape::Rows("tenants"),
            Self::Get { .. } | Self::Set(_) | Self::Unset { .. } => Shape::Facts,
        }
    }
}

impl QuarantineVerb {
    pub(super) const fn method(&self) -> Method {
        match self {
            Self::List { .. } => Method::GET,
            Self::Purge(_) => Method::DELETE,
        }
    }

    pub(super) fn path_and_query(&self) -> String {
        match self {
            Self::List { limit } => {
                with_query("/v1/quarantine", [("limit", Some(limit.to_string()))])
            }
            Self::Purge(HeldArgs { source, id, since, until, limit }) => with_query(
                "/v1/quarantine",
                [
                    ("source_id", source.clone()),
                    ("id", id.clone()),
                    ("since", since.map(|ms| ms.to_string())),
                    ("until", until.map(|ms| ms.to_string())),
                    ("limit", Some(limit.to_string())),
                ],
            ),
        }
    }

    pub(super) const fn shape(&self) -> Shape {
        match self {
            Self::List { .. } => Shape::Rows("entries"),
            Self::Purge(_) => Shape::Facts,
        }
    }
}
