//! Every route at one moment, and what it decides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::ip_rules::{Access, IpRule, IpRules};
use super::path::{PathPattern, Segment, segments};
use super::{Route, RouteSpec};

/// Why a request is allowed or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Matched,
    /// No route takes the path.
    NoRoute,
    /// Some take the path, none the method.
    Method,
    /// A route takes it, but not from this client.
    IpDenied,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::NoRoute => "no_route",
            Self::Method => "method",
            Self::IpDenied => "ip_denied",
        }
    }
}

/// Whose list a rule is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Global,
    Route,
}

/// The rule that decided about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchedRule<'a> {
    pub rule: &'a IpRule,
    pub scope: Scope,
}

/// What the guard says of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    pub reason: Reason,
    pub route: Option<&'a Arc<Route>>,
    /// None where a default decided, or nothing had to.
    pub ip_rule: Option<MatchedRule<'a>>,
}

impl Decision<'_> {
    pub fn is_allowed(&self) -> bool {
        self.reason == Reason::Matched
    }

    /// As a dry run shows it.
    pub fn to_json(&self) -> Value {
        let access = if self.is_allowed() { Access::Allow } else { Access::Deny };
        let rule = self.ip_rule.map(|MatchedRule { rule, scope }| {
            let scope = match scope {
                Scope::Global => "global",
                Scope::Route => "route",
            };
            json!({"action": rule.action.as_str(), "cidr": rule.cidr(), "scope": scope})
        });
        json!({
            "decision": access.as_str(),
            "reason": self.reason.as_str(),
            "route_id": self.route.map(|route| route.id.as_str()),
            "ip_rule": rule,
        })
    }
}

/// Every route, by its id and by its path.
#[derive(Debug, Default)]
pub struct RouteSet {
    routes: BTreeMap<String, Arc<Route>>,
    rules: Arc<IpRules>,
    /// Of enabled routes.
    index: Node,
}

type Methods = BTreeMap<String, Arc<Route>>;

/// What can follow after the segments that lead here. No deeper than the longest pattern.
#[derive(Debug, Default)]
struct Node {
    literals: BTreeMap<String, Node>,
    param: Option<Box<Node>>,
    /// Patterns that end here.
    here: Methods,
    /// Patterns that end here with a star.
    rest: Methods,
}

impl RouteSet {
    pub fn new(routes: BTreeMap<String, Arc<Route>>, rules: Arc<IpRules>) -> Self {
        let mut index = Node::default();
        for route in routes.values().filter(|route| route.spec.enabled) {
            index.insert(route);
        }
        Self { routes, rules, index }
    }

    /// Adds a route whose id no other has.
    pub fn insert_new(&mut self, route: Route) {
        let route = Arc::new(route);
        if route.spec.enabled {
            self.index.insert(&route);
        }
        self.routes.insert(route.id.clone(), route);
    }

    /// With `route` instead of whatever had its id.
    pub fn with(&self, route: Route) -> Self {
        let mut routes = self.routes.clone();
        routes.insert(route.id.clone(), Arc::new(route));
        Self::new(routes, Arc::clone(&self.rules))
    }

    /// Without the route of this id.
    pub fn without(&self, id: &str) -> Self {
        let mut routes = self.routes.clone();
        routes.remove(id);
        Self::new(routes, Arc::clone(&self.rules))
    }

    /// With other global rules.
    pub fn with_rules(&self, rules: IpRules) -> Self {
        Self::new(self.routes.clone(), Arc::new(rules))
    }

    pub fn routes(&self) -> &BTreeMap<String, Arc<Route>> {
        &self.routes
    }

    pub fn rules(&self) -> &Arc<IpRules> {
        &self.rules
    }

    /// An enabled route, other than `id`, that takes a method of the same path as `spec` would.
    pub fn conflicting(&self, spec: &RouteSpec, id: &str) -> Option<&Arc<Route>> {
        if !spec.enabled {
            return None;
        }
        let taken = self.index.methods_of(&spec.path)?;
        let taken = spec.methods.iter().filter_map(|method| taken.get(method));
        taken.into_iter().find(|route| route.id != id)
    }

    /// What becomes of a request. `path` is without its query; `client` is nothing where nobody knows whose it is.
    pub fn decide(&self, method: &str, path: &str, client: Option<IpAddr>) -> Decision<'_> {
        let denied = |reason| Decision { reason, route: None, ip_rule: None };
        let Some(segments) = segments(path) else { return denied(Reason::NoRoute) };
        let mut knows_path = false;
        match self.index.find(&segments, method, &mut knows_path) {
            Some(route) => self.judge(route, client),
            None if knows_path => denied(Reason::Method),
            None => denied(Reason::NoRoute),
        }
    }

    fn judge<'a>(&'a self, route: &'a Arc<Route>, client: Option<IpAddr>) -> Decision<'a> {
        let decided = |access, ip_rule| Decision {
            reason: match access {
                Access::Allow => Reason::Matched,
                Access::Deny => Reason::IpDenied,
            },
            route: Some(route),
            ip_rule,
        };
        let Some(client) = client else { return decided(Access::Deny, None) };
        let by = |rule: &'a IpRule, scope| decided(rule.action, Some(MatchedRule { rule, scope }));
        let (global, own) = (&self.rules.rules, &route.spec.ip_rules);
        match IpRule::first(global, client) {
            // Whatever the route says.
            Some(rule) if rule.action == Access::Deny || own.is_empty() => by(rule, Scope::Global),
            None if own.is_empty() => decided(self.rules.default, None),
            Some(_) | None => match IpRule::first(own, client) {
                Some(rule) => by(rule, Scope::Route),
                None => decided(Access::Deny, None),
            },
        }
    }
}

impl Node {
    fn insert(&mut self, route: &Arc<Route>) {
        let mut node = self;
        let mut is_rest = false;
        for segment in route.spec.path.segments() {
            match segment {
                Segment::Literal(text) => node = node.literals.entry(text.clone()).or_default(),
                Segment::Param => node = node.param.get_or_insert_default(),
                Segment::Rest => is_rest = true,
            }
        }
        let methods = if is_rest { &mut node.rest } else { &mut node.here };
        for method in &route.spec.methods {
            // Of two that may not both be there, rows of another hand's, the first by id counts.
            methods.entry(method.clone()).or_insert_with(|| Arc::clone(route));
        }
    }

    /// Who takes which methods of this very pattern, whatever its parameters are called.
    fn methods_of(&self, path: &PathPattern) -> Option<&Methods> {
        let mut node = self;
        for segment in path.segments() {
            match segment {
                Segment::Literal(text) => node = node.literals.get(text)?,
                Segment::Param => node = node.param.as_deref()?,
                Segment::Rest => return Some(&node.rest),
            }
        }
        Some(&node.here)
    }

    /// The route that says the most of the path, of those that take the method: at each segment a literal before a
    /// parameter before a star. `knows_path` is raised where some route takes the path.
    fn find<'a>(
        &'a self,
        segments: &[Cow<'_, str>],
        method: &str,
        knows_path: &mut bool,
    ) -> Option<&'a Arc<Route>> {
        let Some((first, below)) = segments.split_first() else {
            *knows_path |= !self.here.is_empty();
            return self.here.get(method);
        };
        let literal = self.literals.get(first.as_ref());
        let literal = literal.and_then(|node| node.find(below, method, knows_path));
        if literal.is_some() {
            return literal;
        }
        let param = self.param.as_deref();
        let param = param.and_then(|node| node.find(below, method, knows_path));
        if param.is_some() {
            return param;
        }
        *knows_path |= !self.rest.is_empty();
        self.rest.get(method)
    }
}
