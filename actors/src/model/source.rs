//! What the node knows of a source: who may send to it, how that is proven, and where its hooks go.

use serde::{Deserialize, Serialize};

use super::dedupe::DedupeSpec;
use super::handshake::{Handshake, HandshakeSpec, Response, ResponseSpec};
use super::ids::DEFAULT_TENANT;
use super::rate_limit::RateLimit;
use super::sink_spec::{self, SinkSpec};
use super::verify::{Verifier, VerifySpec, VerifySpecError, VerifyType};

/// The mapping under `sources.<id>` ("Sources").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// A source of the tenant `default` is shared: it answers the URLs of every tenant, and its hooks are stored under
    /// the tenant of the URL. Any other answers only URLs of its own tenant.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// False: its URL is answered like one that nobody has. What it took before is delivered on.
    #[serde(default = "sink_spec::on", skip_serializing_if = "sink_spec::is_on")]
    pub enabled: bool,
    /// How a hook proves where it is from. Default: not at all.
    #[serde(default)]
    pub verify: VerifySpec,
    #[serde(default)]
    pub on_verify_failure: OnVerifyFailure,
    /// What the provider asks of the URL before it sends hooks there. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<HandshakeSpec>,
    /// What the provider hears when a hook was taken. Default: 201, and the id in JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseSpec>,
    /// Where its hooks are delivered, at least one. A delivery is bound to its place in this list: put new sinks last.
    #[serde(default)]
    pub sinks: Vec<SinkSpec>,
    /// By which key a provider's retries are told from new hooks. Absent, each of them is a hook of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<DedupeSpec>,
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

/// How a source speaks with its provider.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub verifier: Verifier,
    pub answers: Answers,
}

/// What a provider hears that is not the same for all; the default is nothing of the kind.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pub handshake: Option<Handshake>,
    /// What is said instead of 201 when a hook was taken.
    pub response: Option<Response>,
}

impl SourceSpec {
    /// A source of the tenant `default` that verifies nothing.
    pub fn open(sinks: Vec<SinkSpec>) -> Self {
        Self {
            tenant: default_tenant(),
            enabled: true,
            verify: VerifySpec::default(),
            on_verify_failure: OnVerifyFailure::default(),
            handshake: None,
            response: None,
            sinks,
            dedupe: None,
            forward_headers: None,
            trust_url_tenant: false,
            rate_limit: None,
        }
    }

    /// Builds what stands between a request and the queue: the one check of a source's secrets and keys, at boot and
    /// wherever else a source comes from.
    ///
    /// # Errors
    ///
    /// The first key that is missing, unusable or without effect, as in `verify.secret[1]`.
    pub fn protocol(&self) -> Result<Protocol, VerifySpecError> {
        let below = |section: &'static str| {
            move |error: VerifySpecError| VerifySpecError {
                key: format!("{section}.{}", error.key),
                ..error
            }
        };
        let verifier = self.verify.build().map_err(below("verify"))?;
        let handshake = self.handshake.as_ref().map(|spec| spec.build(&self.verify));
        let response = self.response.as_ref().map(ResponseSpec::build);
        let answers = Answers {
            handshake: handshake.transpose().map_err(below("handshake"))?,
            response: response.transpose().map_err(below("response"))?,
        };
        Ok(Protocol { verifier, answers })
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
        let written = json!({"tenant": "acme", "enabled": false, "verify": {"type": "github", "secret": "s"},
            "on_verify_failure": "accept_flag", "handshake": {"type": "meta", "verify_token": ["t"]},
            "response": {"status": 202, "body": "ok", "content_type": "text/x"}, "sinks": [{"type": "log"}],
            "dedupe": {"header": "x-id", "ttl_seconds": 60}, "forward_headers": ["X-A"],
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
