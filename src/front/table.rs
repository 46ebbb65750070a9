//! Routes that know what they are: the router of an API, and the list of what it answers that its OpenAPI document is held
//! against.

use axum::Router;
use axum::routing::MethodRouter;

/// One operation of an API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// With its parameters in braces.
    pub path: &'static str,
    pub method: &'static str,
    /// Everything it can be answered with, rising.
    pub statuses: Vec<u16>,
}

/// The methods of one path, each with its statuses.
pub(super) type Methods<'a> = &'a [(&'static str, &'a [u16])];

pub(super) struct Table<S> {
    pub(super) router: Router<S>,
    pub(super) endpoints: Vec<Endpoint>,
}

impl<S: Clone + Send + Sync + 'static> Table<S> {
    pub(super) fn new() -> Self {
        Self { router: Router::new(), endpoints: Vec::new() }
    }

    pub(super) fn route(
        mut self,
        path: &'static str,
        handlers: MethodRouter<S>,
        methods: Methods<'_>,
    ) -> Self {
        let endpoint = |(method, statuses): &(&'static str, &[u16])| Endpoint {
            path,
            method,
            statuses: statuses.to_vec(),
        };
        self.endpoints.extend(methods.iter().map(endpoint));
        self.router = self.router.route(path, handlers);
        self
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.endpoints.extend(other.endpoints);
        self.router = self.router.merge(other.router);
        self
    }

    /// Everything in it can be answered with these too.
    pub(super) fn or(mut self, statuses: &[u16]) -> Self {
        for endpoint in &mut self.endpoints {
            endpoint.statuses.extend(statuses);
            endpoint.statuses.sort_unstable();
            endpoint.statuses.dedup();
        }
        self
    }
}
