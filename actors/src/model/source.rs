//! What the node knows of a source: who may send to it, how that is proven, and where its hooks go.

use serde::{Deserialize, Serialize};

use super::ids::DEFAULT_TENANT;
use super::rate_limit::RateLimit;
use super::sink_spec::SinkSpec;
use super::verify::{VerifySpec, VerifyType};

/// The mapping under `sources.<id>` ("Sources").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// A source of the tenant `default` is shared: it answers the URLs of every tenant, and its hooks are stored under
    /// the tenant of the URL. Any other answers only URLs of its own tenant.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// How a hook proves where it is from. Default: not at all.
    #[serde(default)]
    pub verify: VerifySpec,
    #[serde(default)]
    pub on_verify_failure: OnVerifyFailure,
    /// Where its hooks are delivered, at least one. A delivery is bound to its place in this list: put new sinks last.
    #[serde(default)]
    pub sinks: Vec<SinkSpec>,
    /// Which of the provider's headers sinks are told; absent for all but credentials and what belongs to one
    /// connection. Those are never told, listed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_headers: Option<Vec<String>>,
    /// Must be said of a shared source that verifies nothing once tenants are named by URLs: whoever knows the URL can
    /// then put hooks into any tenant.
    #[serde(default)]
    pub trust_url_tenant: bool,
    /// How many of its verified hooks are taken; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

fn default_tenant() -> String {
    DEFAULT_TENANT.to_owned()
}

/// What becomes of a hook that does not verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnVerifyFailure {
    /// It is answered 401 and not stored.
    #[default]
    Reject,
    /// It is kept in the quarantine pen and answered 202, up to the limits of section `quarantine`.
    Quarantine,
    /// It is stored and delivered, flagged, up to the same limits.
    AcceptFlag,
}

impl SourceSpec {
    /// A source of the tenant `default` that verifies nothing.
    pub fn open(sinks: Vec<SinkSpec>) -> Self {
        Self {
            tenant: default_tenant(),
            verify: VerifySpec::default(),
            on_verify_failure: OnVerifyFailure::default(),
            sinks,
            forward_headers: None,
            trust_url_tenant: false,
            rate_limit: None,
        }
    }

    /// Whether the URL of any tenant reaches it.
    pub fn is_shared(&self) -> bool {
        self.tenant == DEFAULT_TENANT
    }

    /// Whether anybody who knows its URL can send to it.
    pub fn verifies_nothing(&self) -> bool {
        self.verify.kind == VerifyType::None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;
    use crate::model::sink_spec::LogSinkSpec;

    #[test]
    fn a_source_that_says_nothing_more_than_its_sinks_is_open() {
        let spec: SourceSpec = from_value(json!({"sinks": [{"type": "log"}]})).unwrap();
        assert_eq!(spec, SourceSpec::open(vec![SinkSpec::Log(LogSinkSpec::default())]));
        assert!(spec.is_shared() && spec.verifies_nothing());
    }

    #[test]
    fn every_key_is_read_and_written_as_it_was() {
        let written = json!({"tenant": "acme", "verify": {"type": "github", "secret": "s"},
            "on_verify_failure": "accept_flag", "sinks": [{"type": "log"}], "forward_headers": ["X-A"],
            "trust_url_tenant": true, "rate_limit": {"rate": 5, "burst": 10}});
        let spec: SourceSpec = from_value(written.clone()).unwrap();
        assert_eq!(to_value(&spec).unwrap(), written);
        assert!(!spec.is_shared() && !spec.verifies_nothing());
    }

    #[test]
    fn a_key_nobody_knows_is_refused() {
        let spec: Value = json!({"sinks": [], "sink": []});
        let error = from_value::<SourceSpec>(spec).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `sink`"), "{error}");
    }
}
