//! From what is said of a source to a source that works: one set of rules for the configuration and for the API.

use std::sync::Arc;

use ankusa_actors::edge::Routing;
use ankusa_actors::model::dedupe::DedupeSpec;
use ankusa_actors::model::egress::Egress;
use ankusa_actors::model::forward::ForwardPolicy;
use ankusa_actors::model::ids::is_name;
use ankusa_actors::model::rate_limit::{LimitError, Limits};
use ankusa_actors::model::source::{Protocol, SourceSpec};
use ankusa_actors::ports::Clock;
use ankusa_actors::sources::{BuildSource, LaneRules, Source, Switches};
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::warn;

use crate::config::key::{child, element};
use crate::config::{Config, ConfigError, ConfigErrors, REDACTED, shaped_source};
use crate::sinks::{self, Outbound};

/// What names of sources, tenants and instances are made of.
pub(crate) const NAME: &str = "1 to 64 of A-Z a-z 0-9 _ -";

/// What the rest of the configuration says about every source.
pub(crate) struct SourceRules {
    routing: Routing,
    outbound: Outbound,
    max_body_bytes: u64,
}

impl SourceRules {
    /// # Errors
    /// `egress` cannot be read.
    pub(crate) fn new(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, ConfigError> {
        let egress = Egress::new(&config.egress).map_err(|error| {
            let key = element("egress.allow", error.index);
            ConfigError::at(key, format!("{:?} {}", error.entry, error.problem))
        })?;
        let outbound = Outbound::new(egress, Arc::clone(clock));
        let max_body_bytes = config.http.max_body_bytes as u64;
        Ok(Self { routing: config.http.routing, outbound, max_body_bytes })
    }

    /// Every mistake of a source that is well formed; `key` is where it stands, empty for the API.
    pub(crate) fn check(&self, key: &str, source: &SourceSpec, errors: &mut Vec<ConfigError>) {
        check_spec(self.routing, key, source, errors);
        if let Some(limit) = source.rate_limit {
            check_limit(child(key, "rate_limit"), limit.limits(self.max_body_bytes), errors);
        }
        let list = child(key, "sinks");
        // Builds every sink as the node will, and drops it: whatever would be refused then is told here.
        for (at, sink) in source.sinks.iter().enumerate() {
            if let Err(error) = sinks::build(sink, &self.outbound) {
                let key = format!("{}.{}", element(&list, at), error.key);
                errors.push(ConfigError::at(key, error.problem));
            }
        }
    }

    /// A source as the API is told it. Nothing in it stands for anything else: references to variables and files are for
    /// the configuration.
    ///
    /// # Errors
    /// Every mistake.
    pub(crate) fn read(
        &self,
        tenant: &str,
        mut body: Map<String, Value>,
    ) -> Result<SourceSpec, ConfigErrors> {
        body.shift_remove("name");
        body.shift_remove("tenant");
        let body = Value::Object(body);
        let mut errors = Vec::new();
        find_redacted(&body, "", &mut errors);
        shaped_source(&body, &mut errors);
        ConfigErrors::none_of(errors)?;
        // Of what was said, not of what it could stand for: the API takes no number for a text.
        let spec = SourceSpec::deserialize(&body);
        let spec = spec.map_err(|error| ConfigError::at("body", error.to_string()))?;
        let spec = SourceSpec { tenant: tenant.to_owned(), ..spec };
        let mut errors = Vec::new();
        self.check("", &spec, &mut errors);
        ConfigErrors::none_of(errors)?;
        Ok(spec)
    }
}

impl BuildSource for SourceRules {
    fn build(&self, id: &str, spec: &SourceSpec) -> Result<Source, String> {
        if anyone_names_a_tenant(self.routing, spec) {
            warn!(
                source = %id,
                "a stored source verifies nothing and takes the tenant of its URL on trust: say trust_url_tenant: true, or have it verify"
            );
        }
        let Protocol { verifier, answers } = spec.protocol().map_err(|error| error.to_string())?;
        let dedupe = spec.dedupe.as_ref().map(DedupeSpec::build).transpose();
        let dedupe = dedupe.map_err(|error| format!("dedupe.{error}"))?;
        let rate_limit = spec.rate_limit.unwrap_or_default().limits(self.max_body_bytes);
        let rate_limit = rate_limit.map_err(|error| format!("rate_limit.{error}"))?;
        let sinks = spec.sinks.iter().enumerate().map(|(at, sink)| {
            let told = |error| format!("{}.{error}", element("sinks", at));
            sinks::build(sink, &self.outbound).map_err(told)
        });
        let sinks = sinks.collect::<Result<Vec<_>, String>>()?;
        Ok(Source {
            id: id.to_owned(),
            tenant: spec.tenant.clone(),
            passed: verifier.passed(),
            verifier,
            on_verify_failure: spec.on_verify_failure,
            answers,
            dedupe,
            modules: Source::modules_of(&sinks),
            sinks,
            lanes: LaneRules::new(spec.sinks.iter().map(|sink| sink.ordered().cloned())),
            forward: ForwardPolicy::new(spec.forward_headers.as_deref()),
            trust_url_tenant: spec.trust_url_tenant,
            rate_limit,
            switches: Switches::of(spec),
        })
    }
}

/// A limit that lets nothing pass, or not the largest body, or is none.
pub(crate) fn check_limit(
    key: String,
    limit: Result<Limits, LimitError>,
    errors: &mut Vec<ConfigError>,
) {
    match limit {
        Ok(limits) if limits.is_none() => {
            let text = "must have rate and burst, or bytes_rate and bytes_burst; null for no limit";
            errors.push(ConfigError::at(key, text));
        }
        Ok(_) => {}
        Err(LimitError { field, text }) => errors.push(ConfigError::at(child(&key, field), text)),
    }
}

/// The part that needs no guard on where sinks may reach.
pub(crate) fn check_spec(
    routing: Routing,
    key: &str,
    source: &SourceSpec,
    errors: &mut Vec<ConfigError>,
) {
    if !is_name(&source.tenant) {
        let got = format!("{:?}", source.tenant);
        errors.push(ConfigError::must(child(key, "tenant"), NAME, got));
    }
    if let Err(error) = source.protocol() {
        let key = if key.is_empty() { error.key } else { format!("{key}.{}", error.key) };
        errors.push(ConfigError::at(key, error.sentence));
    }
    if let Some(Err(error)) = source.dedupe.as_ref().map(DedupeSpec::build) {
        let key = format!("{}.{}", child(key, "dedupe"), error.key);
        errors.push(ConfigError::at(key, error.sentence));
    }
    if anyone_names_a_tenant(routing, source) {
        let text = "must be true: with http.routing tenant_path, anyone who knows the URL of this source puts hooks \
                    into any tenant, because it verifies nothing and its tenant is default";
        errors.push(ConfigError::at(child(key, "trust_url_tenant"), text));
    }
    if source.sinks.is_empty() {
        errors.push(ConfigError::at(child(key, "sinks"), "must hold at least one sink"));
    }
}

/// Whether whoever knows its URL puts hooks into any tenant, and nobody said that this is meant.
fn anyone_names_a_tenant(routing: Routing, source: &SourceSpec) -> bool {
    let tenants_come_from_urls = routing == Routing::TenantPath;
    let by_anyone = source.is_shared() && source.verifies_nothing();
    tenants_come_from_urls && by_anyone && !source.trust_url_tenant
}

/// What the API shows instead of a secret must not become one.
fn find_redacted(value: &Value, key: &str, errors: &mut Vec<ConfigError>) {
    match value {
        Value::String(text) if text.contains(REDACTED) => {
            let text = format!("is {REDACTED}, as it is shown: say the secret itself");
            errors.push(ConfigError::at(key, text));
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                find_redacted(value, &element(key, at), errors);
            }
        }
        Value::Object(values) => {
            for (name, value) in values {
                find_redacted(value, &child(key, name), errors);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
