//! The sources of this node: what ingest checks a hook against and where dispatch delivers it to.
//!
//! Those of the config are built once. Those of the API come and go while the node runs: the source store puts a new
//! [`SourceSet`] into the [`SourceTable`] for every change, and whoever looks next sees all of it. A look takes no lock
//! and waits for nobody, and what it saw stays as it was for as long as it is held.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::model::dedupe::DedupeRule;
use crate::model::forward::ForwardPolicy;
use crate::model::ids::DEFAULT_TENANT;
pub use crate::model::ordering::LaneRules;
use crate::model::rate_limit::Limits;
use crate::model::source::SourceSpec;
pub use crate::model::source::{Answers, OnVerifyFailure};
use crate::model::stored_source::SourceName;
use crate::model::verify::Verifier;
use crate::ports::Sink;

/// One source, ready to work.
pub struct Source {
    /// Its name, which catch URLs and stored hooks carry.
    pub id: String,
    /// The tenant its hooks belong to unless the URL names one.
    pub tenant: String,
    pub verifier: Verifier,
    /// What its hooks say that verified: [`Verifier::passed`].
    pub passed: Bytes,
    pub on_verify_failure: OnVerifyFailure,
    /// What its provider hears that is not the same for all.
    pub answers: Answers,
    /// In the order of the config: a row names its sink by this order and by its module.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// The modules of `sinks`, in the same order: see [`Source::modules_of`].
    pub modules: Arc<[&'static str]>,
    /// What `sinks` take their hooks in order by, in the same order; the default orders none.
    pub lanes: LaneRules,
    /// By which key retries are told from new hooks; `None` where each is a hook of its own.
    pub dedupe: Option<DedupeRule>,
    /// Which of the provider's headers its sinks are told.
    pub forward: ForwardPolicy,
    /// Whether the tenant of a catch URL counts although nothing proves that its sender belongs to it.
    pub trust_url_tenant: bool,
    /// How many of its verified hooks are taken.
    pub rate_limit: Limits,
    pub switches: Switches,
}

/// What of a source is switched off (`enabled: false`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// It takes no hooks.
    pub takes_nothing: bool,
    /// The places of sinks that are left alone: what is for them waits.
    pub idle_sinks: BTreeSet<usize>,
}

impl Switches {
    /// As a spec says.
    pub fn of(spec: &SourceSpec) -> Self {
        let off = spec.sinks.iter().enumerate().filter(|(_, sink)| !sink.is_enabled());
        Self { takes_nothing: !spec.enabled, idle_sinks: off.map(|(at, _)| at).collect() }
    }
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
            .field("dedupe", &self.dedupe)
            .field("forward", &self.forward)
            .field("trust_url_tenant", &self.trust_url_tenant)
            .field("rate_limit", &self.rate_limit)
            .field("switches", &self.switches)
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

impl FromIterator<Arc<Source>> for Sources {
    fn from_iter<I: IntoIterator<Item = Arc<Source>>>(sources: I) -> Self {
        Self(sources.into_iter().map(|source| (source.id.clone(), source)).collect())
    }
}

/// A source of the API, as it is stored and as it works.
#[derive(Debug)]
pub struct StoredSource {
    pub name: SourceName,
    /// Counts the changes of everything that ever had this name, from 1.
    pub revision: u64,
    pub spec: SourceSpec,
    pub source: Arc<Source>,
}

/// Every source there is at one moment.
#[derive(Debug, Default)]
pub struct SourceSet {
    /// Of the config and of the API, by id.
    pub sources: Sources,
    /// Those of the API.
    pub stored: BTreeMap<SourceName, Arc<StoredSource>>,
    /// Names whose rows cannot be read, and why: their sources exist, and nobody knows what they say.
    pub unreadable: BTreeMap<SourceName, String>,
    /// The same, by id.
    unreadable_ids: BTreeSet<String>,
    /// The rows have not been read yet: any id could be that of a source.
    pub is_loading: bool,
}

/// What an id stands for.
#[derive(Debug)]
pub enum Found<'a> {
    Source(&'a Arc<Source>),
    Unknown,
    /// There may be such a source, but nobody can tell now.
    Unreadable,
}

impl SourceSet {
    pub fn new(
        configured: &Sources,
        stored: BTreeMap<SourceName, Arc<StoredSource>>,
        unreadable: BTreeMap<SourceName, String>,
    ) -> Self {
        let of_api = stored.values().map(|stored| &stored.source);
        Self {
            sources: configured.iter().chain(of_api).map(Arc::clone).collect(),
            unreadable_ids: unreadable.keys().map(SourceName::source_id).collect(),
            stored,
            unreadable,
            is_loading: false,
        }
    }

    /// The sources of the config, while those of the API have not been read.
    pub fn loading(configured: &Sources) -> Self {
        let none = Self::new(configured, BTreeMap::new(), BTreeMap::new());
        Self { is_loading: true, ..none }
    }

    pub fn find(&self, id: &str) -> Found<'_> {
        match self.sources.get(id) {
            Some(source) => Found::Source(source),
            // No id without a dot is one of the API.
            None if self.unreadable_ids.contains(id) || (self.is_loading && id.contains('.')) => {
                Found::Unreadable
            }
            None => Found::Unknown,
        }
    }
}

/// The set as it is now. Made with the tree, so it survives whoever writes it. Cheap to clone.
#[derive(Clone)]
pub struct SourceTable(Arc<ArcSwap<SourceSet>>);

impl SourceTable {
    pub fn new(set: SourceSet) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(set)))
    }

    pub fn now(&self) -> Arc<SourceSet> {
        self.0.load_full()
    }

    /// Looks something up without keeping the set.
    pub fn look<T>(&self, look: impl FnOnce(&SourceSet) -> T) -> T {
        look(&self.0.load())
    }

    pub(crate) fn publish(&self, set: SourceSet) {
        self.0.store(Arc::new(set));
    }
}

impl From<Arc<Sources>> for SourceTable {
    fn from(configured: Arc<Sources>) -> Self {
        Self::new(SourceSet::new(&configured, BTreeMap::new(), BTreeMap::new()))
    }
}

/// Makes a source of its spec: builds its verifier and its sinks. An adapter does.
pub trait BuildSource: Send + Sync + 'static {
    /// # Errors
    /// What is wrong with the spec, in sentences for a person. Repeats no secret.
    fn build(&self, id: &str, spec: &SourceSpec) -> Result<Source, String>;
}

/// How the sources of the API are kept.
#[derive(Clone)]
pub struct StoreSetup {
    pub builder: Arc<dyn BuildSource>,
    /// `source_store.max_sources`: one more is refused.
    pub max_sources: usize,
}

/// The sources a node starts with.
#[derive(Clone)]
pub struct SourceSetup {
    pub configured: Arc<Sources>,
    /// `None` where there are no others (`source_store.type: static`).
    pub store: Option<StoreSetup>,
}

impl From<Arc<Sources>> for SourceSetup {
    fn from(configured: Arc<Sources>) -> Self {
        Self { configured, store: None }
    }
}
