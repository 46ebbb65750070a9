//! What ingest needs to know of the config section `http`: which URLs are caught, and how much body.

use serde::{Deserialize, Serialize};

/// How a catch URL names its source: `http.routing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// `POST <prefix>/<source_id>`.
    #[default]
    Path,
    /// `POST <prefix>/<tenant_id>/<source_id>`; the tenant of the URL wins.
    TenantPath,
}

/// The part of section `http` that decides about a request, not about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestConfig {
    pub routing: Routing,
    /// `http.prefix` with a leading and without a trailing slash; empty for none.
    pub prefix: String,
    /// `http.max_body_bytes`: one byte more is answered 413.
    pub max_body_bytes: usize,
}
