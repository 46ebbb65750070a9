//! The sources of this node: what ingest checks a hook against and where dispatch delivers it to.
//!
//! Built once from the config, shared by every process, never changed while the node runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::model::forward::ForwardPolicy;
use crate::model::ids::DEFAULT_TENANT;
pub use crate::model::ordering::LaneRules;
use crate::model::rate_limit::Limits;
pub use crate::model::source::{Answers, OnVerifyFailure};
use crate::model::verify::Verifier;
use crate::ports::Sink;

/// One source, ready to work.
pub struct Source {
    /// Its name, which catch URLs and stored hooks carry.
    pub id: String,
    /// The tenant its hooks belong to unless the URL names one.
    pub tenant: String,
    pub verifier: Verifier,
    pub on_verify_failure: OnVerifyFailure,
    /// What its provider hears that is not the same for all.
    pub answers: Answers,
    /// In the order of the config: a row names its sink by this order and by its module.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// The modules of `sinks`, in the same order: see [`Source::modules_of`].
    pub modules: Arc<[&'static str]>,
    /// What `sinks` take their hooks in order by, in the same order; the default orders none.
    pub lanes: LaneRules,
    /// Which of the provider's headers its sinks are told.
    pub forward: ForwardPolicy,
    /// Whether the tenant of a catch URL counts although nothing proves that its sender belongs to it.
    pub trust_url_tenant: bool,
    /// How many of its verified hooks are taken.
    pub rate_limit: Limits,
}

impl Source {
    /// The tenant a hook is stored under when its URL names `url_tenant`; `None` when that URL does not reach the source.
    /// A source of `default` is shared by the URLs of every tenant, any other answers its own tenant's alone.
    pub fn tenant_of<'a>(&'a self, url_tenant: Option<&'a str>) -> Option<&'a str> {
        let tenant = url_tenant.unwrap_or(&self.tenant);
        (self.tenant == DEFAULT_TENANT || self.tenant == tenant).then_some(tenant)
    }

    /// What `modules` must say for these sinks.
    pub fn modules_of(sinks: &[Arc<dyn Sink>]) -> Arc<[&'static str]> {
        sinks.iter().map(|sink| sink.module()).collect()
    }
}

impl fmt::Debug for Source {
    /// Without the verifier, which holds secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("on_verify_failure", &self.on_verify_failure)
            .field("modules", &self.modules)
            .field("lanes", &self.lanes)
            .field("forward", &self.forward)
            .field("trust_url_tenant", &self.trust_url_tenant)
            .field("rate_limit", &self.rate_limit)
            .finish_non_exhaustive()
    }
}

/// Every source, by its id.
#[derive(Debug, Default)]
pub struct Sources(BTreeMap<String, Arc<Source>>);

impl Sources {
    pub fn get(&self, id: &str) -> Option<&Arc<Source>> {
        self.0.get(id)
    }

    /// In the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Source> for Sources {
    /// Of two sources with one id the later one counts.
    fn from_iter<I: IntoIterator<Item = Source>>(sources: I) -> Self {
        let by_id = |source: Source| (source.id.clone(), Arc::new(source));
        Self(sources.into_iter().map(by_id).collect())
    }
}
