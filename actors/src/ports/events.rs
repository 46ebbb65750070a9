//! What happened, for the metrics. An adapter counts; nothing in the node depends on it.

use std::time::Duration;

use crate::model::failure::FailureClass;

use super::{BlobScope, BlobVerb};

/// How an ingest request of a known source ended: the `outcome` label of `ankusa_ingest_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IngestOutcome {
    Committed,
    /// It repeats a hook that is stored, or was.
    Duplicate,
    Rejected,
    Overload,
    StoreUnavailable,
    /// The connection was closed unanswered: the fence could not be made durable.
    Unknown,
    TenantLimit,
    RateLimited,
    TenantOverload,
    Quarantined,
    QuarantineRateLimited,
    QuarantineFull,
    /// Nothing was stored: the provider asked something, and was answered.
    Handshake,
    DedupeQuota,
}

impl IngestOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Duplicate => "duplicate",
            Self::Rejected => "rejected",
            Self::Overload => "overload",
            Self::StoreUnavailable => "store_unavailable",
            Self::Unknown => "unknown",
            Self::TenantLimit => "tenant_limit",
            Self::RateLimited => "rate_limited",
            Self::TenantOverload => "tenant_overload",
            Self::Quarantined => "quarantined",
            Self::QuarantineRateLimited => "quarantine_rate_limited",
            Self::QuarantineFull => "quarantine_full",
            Self::Handshake => "handshake",
            Self::DedupeQuota => "dedupe_quota",
        }
    }
}

/// Why a request was refused before its source was known: never a per-source series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedReason {
    UnknownSource,
    PayloadTooLarge,
    BodyReadFailed,
    InvalidHeader,
    StoreUnavailable,
    /// The route guard let nobody have this path.
    NoRoute,
    /// Nor this method of it.
    RouteMethod,
    /// Nor this client.
    IpDenied,
}

impl RefusedReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownSource => "unknown_source",
            Self::PayloadTooLarge => "payload_too_large",
            Self::BodyReadFailed => "body_read_failed",
            Self::InvalidHeader => "invalid_header",
            Self::StoreUnavailable => "store_unavailable",
            Self::NoRoute => "no_route",
            Self::RouteMethod => "method",
            Self::IpDenied => "ip_denied",
        }
    }
}

/// How a reopen of the store ended: the `result` label of `ankusa_store_reopen_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReopenResult {
    Ok,
    Error,
    Deferred,
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryResult {
    Ok,
    Error,
    Timeout,
}

/// Why held hooks were deleted: the `reason` label of `ankusa_quarantine_deleted_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuarantineDeletion {
    Retention,
    Purge,
}

impl QuarantineDeletion {
    pub const ALL: [Self; 2] = [Self::Retention, Self::Purge];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::Purge => "purge",
        }
    }
}

/// What happened to an object store.
#[derive(Clone, Copy, Debug)]
pub enum BlobEvent<'a> {
    /// An operation has ended: `ok`, or the word of its error. Bytes that went there or came back.
    Done { scope: BlobScope, verb: BlobVerb, outcome: &'static str, bytes: u64, took: Duration },
    /// A request is sent again.
    Retried { scope: BlobScope },
    /// The breaker before a bucket is `closed`, `open` or `half_open` from now on.
    Breaker { endpoint: &'a str, bucket: &'a str, state: &'static str },
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    IngestAnswered {
        source_id: &'a str,
        outcome: IngestOutcome,
        took: Duration,
    },
    IngestRefused {
        reason: RefusedReason,
    },
    VerifyFailed {
        source_id: &'a str,
        provider: &'a str,
        scheme: &'a str,
    },
    LoadShed,
    /// A hook that had verified was over one of its limits.
    RateLimited {
        tenant_id: &'a str,
    },
    /// An operator's limit of this tenant is in force.
    TenantLimited {
        tenant_id: &'a str,
    },
    /// Held hooks were deleted, by `purge` or for their age.
    QuarantineDeleted {
        reason: QuarantineDeletion,
        entries: u64,
    },
    CommitApplied {
        hooks: u64,
        bytes: u64,
        took: Duration,
    },
    WalSynced {
        groups: u64,
        took: Duration,
    },
    StoreWriteFailed {
        class: FailureClass,
    },
    StoreReopened {
        result: ReopenResult,
        took: Duration,
    },
    /// How long the store has been closed; zero once it is open.
    StoreUnavailable {
        for_: Duration,
    },
    /// Counters that were not what their rows say, after a stop that was not clean.
    CountersRepaired {
        counters: u64,
    },
    /// The scrub has read so many bytes of keys and values.
    ScrubRead {
        bytes: u64,
    },
    /// The scrub has met a damaged file.
    ScrubFound,
    /// The scrub has read the whole store.
    ScrubFinished,
    /// New hooks are refused for want of room, or taken again.
    StoreAccepting {
        accepting: bool,
    },
    Delivered {
        sink: &'static str,
        result: DeliveryResult,
        took: Duration,
    },
    DeadLettered {
        source_id: &'a str,
        sink: &'static str,
    },
    /// Rows that an operator had removed, by the state they were in.
    Purged {
        state: &'static str,
        rows: u64,
    },
    /// The sources of the API as they are now; some rows cannot be used.
    Sources {
        ids: &'a [String],
        unreadable: usize,
    },
    /// A source of the API was `created`, `updated` or `deleted`.
    SourceChanged {
        source_id: &'a str,
        what: &'static str,
    },
    /// So many dedupe keys had expired and are gone.
    DedupePruned {
        keys: u64,
    },
    Blob(BlobEvent<'a>),
    ChildRestarted {
        child: &'a str,
    },
    SubtreeDown {
        domain: &'a str,
    },
}

pub trait Events: Send + Sync + 'static {
    fn emit(&self, event: &Event<'_>);
}
