//! The variables other programs of AWS read, too.

use std::collections::BTreeMap;
use std::sync::Arc;

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What the process was started with; or what a test says it was.
#[derive(Clone)]
pub struct Environment(Arc<Lookup>);

impl Environment {
    pub fn of_process() -> Self {
        Self(Arc::new(|name| std::env::var(name).ok()))
    }

    /// These variables, and no others.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let variables: BTreeMap<String, String> = variables.iter().map(owned).collect();
        Self(Arc::new(move |name| variables.get(name).cloned()))
    }

    /// The value of a variable; one that is empty is not there.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }
}
