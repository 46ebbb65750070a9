//! Which sink a row is for. Pure ("Claiming": binding).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ports::Sink;
use crate::sources::{Source, Sources};

/// One sink of one source: what has a queue, a limit and a breaker of its own.
pub(super) struct Target {
    pub(super) key: usize,
    pub(super) source: Arc<Source>,
    pub(super) sink: Arc<dyn Sink>,
}

/// Every sink there is.
pub(super) struct Targets {
    by_source: BTreeMap<String, Vec<Arc<Target>>>,
}

impl Targets {
    pub(super) fn new(sources: &Sources) -> Self {
        let mut keys = 0..;
        let mut of_source = |source: &Arc<Source>| {
            let target = |(sink, key): (&Arc<dyn Sink>, usize)| {
                Arc::new(Target { key, source: Arc::clone(source), sink: Arc::clone(sink) })
            };
            let targets: Vec<_> = source.sinks.iter().zip(&mut keys).map(target).collect();
            (source.id.clone(), targets)
        };
        Self { by_source: sources.iter().map(&mut of_source).collect() }
    }

    /// The sink that a row names by its place and its module when its hook was acked. Where that place holds another
    /// module by now, the only sink with that module.
    ///
    /// # Errors
    /// Why there is none: what a person reads in the dead letters.
    pub(super) fn bind(
        &self,
        source_id: &str,
        sink: u16,
        module: Option<&str>,
    ) -> Result<&Arc<Target>, String> {
        let Some(targets) = self.by_source.get(source_id) else {
            return Err(format!("source gone: no source {source_id:?} is configured"));
        };
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
    use crate::model::verify::Verifier;
    use crate::ports::sim::SimSink;
    use crate::sources::{Answers, LaneRules};

    fn bound(modules: &[&'static str], sink: u16, module: Option<&str>) -> Result<usize, String> {
        let sink_of =
            |module: &&'static str| -> Arc<dyn Sink> { Arc::new(SimSink::new(module, "sim")) };
        let sinks: Vec<_> = modules.iter().map(sink_of).collect();
        let source = Source {
            id: "s".to_owned(),
            tenant: "default".to_owned(),
            verifier: Verifier::None,
            answers: Answers::default(),
            on_verify_failure: OnVerifyFailure::Reject,
            modules: Source::modules_of(&sinks),
            sinks,
            lanes: LaneRules::default(),
            forward: ForwardPolicy::All,
            trust_url_tenant: false,
            rate_limit: Limits::default(),
        };
        let targets = Targets::new(&Sources::from_iter([source]));
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
        let gone =
            |modules: &[&'static str], sink, module| bound(modules, sink, module).unwrap_err();
        assert_eq!(gone(&["B"], 0, Some("A")), r#"sink gone: source "s" has no A"#);
        assert_eq!(
            gone(&["B", "A", "A"], 0, Some("A")),
            r#"sink gone: source "s" has several A and none of them is sink 0"#
        );
        assert_eq!(gone(&["B"], 0xffff, None), "sink gone: sink 65535 was stored without a module");
        let targets = Targets::new(&Sources::default());
        assert_eq!(
            targets.bind("s", 0, Some("A")).map(|target| target.key),
            Err(r#"source gone: no source "s" is configured"#.to_owned())
        );
    }
}
