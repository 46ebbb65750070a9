//! Which sink a row is for. Pure ("Claiming": binding).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ports::Sink;
use crate::sources::{Found, Source, SourceSet};

/// One sink of one source: what has a queue, a limit and a breaker of its own.
pub(super) struct Target {
    pub(super) key: usize,
    pub(super) source: Arc<Source>,
    pub(super) sink: Arc<dyn Sink>,
    /// It is switched off.
    is_idle: bool,
}

/// Every sink there is.
pub(super) struct Targets {
    set: Arc<SourceSet>,
    by_source: BTreeMap<String, Vec<Arc<Target>>>,
    next_key: usize,
}

/// Why a row has no sink to be attempted at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unbound {
    /// There is none, for good: what a person reads in the dead letters.
    Gone(String),
    /// There is or may be one, but not now.
    Waits(&'static str),
}

impl Targets {
    pub(super) fn new(set: Arc<SourceSet>) -> Self {
        let mut targets = Self { set: Arc::default(), by_source: BTreeMap::new(), next_key: 0 };
        targets.follow(set);
        targets
    }

    /// Takes on the sources as they are now. A source that stayed as it was keeps its targets, and so what is known of
    /// its sinks; one that was changed gets new ones, and what failed before counts no more. False if nothing has
    /// changed.
    pub(super) fn follow(&mut self, set: Arc<SourceSet>) -> bool {
        if Arc::ptr_eq(&set, &self.set) {
            return false;
        }
        let mut before = std::mem::take(&mut self.by_source);
        for source in set.sources.iter() {
            let kept = before.remove(&source.id).filter(|targets| {
                targets.iter().all(|target| Arc::ptr_eq(&target.source, source))
                    && targets.len() == source.sinks.len()
            });
            let targets = kept.unwrap_or_else(|| self.targets_of(source));
            self.by_source.insert(source.id.clone(), targets);
        }
        self.set = set;
        true
    }

    fn targets_of(&mut self, source: &Arc<Source>) -> Vec<Arc<Target>> {
        let first = self.next_key;
        self.next_key += source.sinks.len();
        let target = |(at, sink): (usize, &Arc<dyn Sink>)| {
            Arc::new(Target {
                key: first + at,
                source: Arc::clone(source),
                sink: Arc::clone(sink),
                is_idle: source.switches.idle_sinks.contains(&at),
            })
        };
        source.sinks.iter().enumerate().map(target).collect()
    }

    /// The keys of all of them.
    pub(super) fn keys(&self) -> BTreeSet<usize> {
        self.by_source.values().flatten().map(|target| target.key).collect()
    }

    /// The sink that a row names by its place and its module when its hook was acked. Where that place holds another
    /// module by now, the only sink with that module.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn bind(
        &self,
        source_id: &str,
        sink: u16,
        module: Option<&str>,
    ) -> Result<&Arc<Target>, Unbound> {
        let Some(targets) = self.by_source.get(source_id) else {
            return Err(match self.set.find(source_id) {
                Found::Unreadable => Unbound::Waits("the source cannot be read"),
                Found::Source(_) | Found::Unknown => {
                    Unbound::Gone(format!("source gone: no source {source_id:?} is configured"))
                }
            });
        };
        let target = at(targets, source_id, sink, module).map_err(Unbound::Gone)?;
        if target.is_idle { Err(Unbound::Waits("sink disabled")) } else { Ok(target) }
    }
}

fn at<'a>(
    targets: &'a [Arc<Target>],
    source_id: &str,
    sink: u16,
    module: Option<&str>,
) -> Result<&'a Arc<Target>, String> {
    let Some(module) = module else {
        return Err(format!("sink gone: sink {sink} was stored without a module"));
    };
    if let Some(target) = targets.get(usize::from(sink)).filter(|at| at.is(module)) {
        return Ok(target);
    }
    let mut same = targets.iter().filter(|target| target.is(module));
    match (same.next(), same.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(format!("sink gone: source {source_id:?} has no {module}")),
        (Some(_), Some(_)) => Err(format!(
            "sink gone: source {source_id:?} has several {module} and none of them is sink {sink}"
        )),
    }
}

impl Target {
    fn is(&self, module: &str) -> bool {
        self.sink.module() == module
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::model::forward::ForwardPolicy;
    use crate::model::rate_limit::Limits;
    use crate::model::source::OnVerifyFailure;
    use crate::model::stored_source::SourceName;
    use crate::model::verify::Verifier;
    use crate::ports::sim::SimSink;
    use crate::sources::{Answers, LaneRules, Sources, Switches};

    fn set(sources: impl IntoIterator<Item = Arc<Source>>) -> Arc<SourceSet> {
        let none = BTreeMap::new();
        Arc::new(SourceSet::new(&sources.into_iter().collect(), BTreeMap::new(), none))
    }

    fn source(id: &str, modules: &[&'static str]) -> Arc<Source> {
        let sink_of =
            |module: &&'static str| -> Arc<dyn Sink> { Arc::new(SimSink::new(module, "sim")) };
        let sinks: Vec<_> = modules.iter().map(sink_of).collect();
        Arc::new(Source {
            id: id.to_owned(),
            tenant: "default".to_owned(),
            verifier: Verifier::None,
            passed: Verifier::None.passed(),
            answers: Answers::default(),
            on_verify_failure: OnVerifyFailure::Reject,
            modules: Source::modules_of(&sinks),
            sinks,
            lanes: LaneRules::default(),
            dedupe: None,
            forward: ForwardPolicy::All,
            trust_url_tenant: false,
            rate_limit: Limits::default(),
            switches: Switches::default(),
        })
    }

    fn gone(reason: &str) -> Unbound {
        Unbound::Gone(reason.to_owned())
    }

    fn bound(modules: &[&'static str], sink: u16, module: Option<&str>) -> Result<usize, Unbound> {
        let targets = Targets::new(set([source("s", modules)]));
        targets.bind("s", sink, module).map(|target| target.key)
    }

    #[test]
    fn a_row_keeps_its_place_or_finds_the_only_sink_of_its_module() {
        assert_eq!(bound(&["A", "B"], 0, Some("A")), Ok(0));
        assert_eq!(bound(&["A", "B"], 1, Some("B")), Ok(1));
        assert_eq!(bound(&["A", "A"], 1, Some("A")), Ok(1));
        assert_eq!(bound(&["B", "A"], 0, Some("A")), Ok(1), "reordered");
        assert_eq!(bound(&["A"], 3, Some("A")), Ok(0), "moved up");
    }

    #[test]
    fn a_row_without_a_sink_says_why() {
        let why =
            |modules: &[&'static str], sink, module| bound(modules, sink, module).unwrap_err();
        assert_eq!(why(&["B"], 0, Some("A")), gone(r#"sink gone: source "s" has no A"#));
        assert_eq!(
            why(&["B", "A", "A"], 0, Some("A")),
            gone(r#"sink gone: source "s" has several A and none of them is sink 0"#)
        );
        assert_eq!(
            why(&["B"], 0xffff, None),
            gone("sink gone: sink 65535 was stored without a module")
        );
        let targets = Targets::new(Arc::default());
        assert_eq!(
            targets.bind("s", 0, Some("A")).map(|target| target.key),
            Err(gone(r#"source gone: no source "s" is configured"#))
        );
    }

    #[test]
    fn a_row_of_a_source_that_cannot_be_read_waits() {
        let waits = Err(Unbound::Waits("the source cannot be read"));
        let configured = Sources::from_iter([source("s", &["A"])]);
        let loading = Targets::new(Arc::new(SourceSet::loading(&configured)));
        assert_eq!(loading.bind("acme.s", 0, Some("A")).map(|target| target.key), waits);
        assert_eq!(loading.bind("s", 0, Some("A")).map(|target| target.key), Ok(0));
        let no_source = gone(r#"source gone: no source "other" is configured"#);
        assert_eq!(loading.bind("other", 0, Some("A")).map(|at| at.key), Err(no_source));
        let name = SourceName::new("acme", "s").unwrap();
        let unreadable = BTreeMap::from([(name, "why".to_owned())]);
        let read = SourceSet::new(&configured, BTreeMap::new(), unreadable);
        let read = Targets::new(Arc::new(read));
        assert_eq!(read.bind("acme.s", 0, Some("A")).map(|target| target.key), waits);
        let no_source = gone(r#"source gone: no source "acme.t" is configured"#);
        assert_eq!(read.bind("acme.t", 0, Some("A")).map(|at| at.key), Err(no_source));
    }

    #[test]
    fn only_what_was_changed_gets_new_keys() {
        let (kept, changed) = (source("kept", &["A"]), source("changed", &["A", "B"]));
        let first = set([Arc::clone(&kept), changed]);
        let mut targets = Targets::new(Arc::clone(&first));
        let key = |targets: &Targets, id: &str| targets.bind(id, 0, Some("A")).unwrap().key;
        assert_eq!((key(&targets, "changed"), key(&targets, "kept")), (0, 2));
        assert!(!targets.follow(first));
        assert!(targets.follow(set([kept, source("changed", &["A"]), source("new", &["A"])])));
        assert_eq!((key(&targets, "changed"), key(&targets, "kept")), (3, 2));
        assert_eq!(targets.keys(), BTreeSet::from([2, 3, 4]));
    }
}
