//! Where sources come from besides `sources`: the config section `source_store`.

use serde::{Deserialize, Serialize};

/// `source_store.type`: whether the API keeps sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceStoreType {
    /// There are those of the configuration and no others.
    #[default]
    Static,
    /// The API keeps more, in the node's own store.
    Persistent,
}

/// Section `source_store`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceStoreConfig {
    #[serde(rename = "type")]
    pub kind: SourceStoreType,
    /// How many sources the API keeps, > 0 and at most 100,000. One more is answered 409. Every one costs memory and,
    /// with metrics, some twenty series.
    pub max_sources: usize,
}

impl Default for SourceStoreConfig {
    fn default() -> Self {
        Self { kind: SourceStoreType::default(), max_sources: 10_000 }
    }
}
