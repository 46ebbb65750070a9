//! Which clients may: ordered lists of networks, of which the first that has the client counts.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::spec::Invalid;
use crate::model::network::Network;

/// Rules of one route.
pub const MAX_RULES: usize = 256;
/// Rules of the global list.
pub const MAX_GLOBAL_RULES: usize = 1_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    #[default]
    Allow,
    Deny,
}

impl Access {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    fn read(value: Option<&Value>) -> Option<Self> {
        match value.and_then(Value::as_str) {
            Some("allow") => Some(Self::Allow),
            Some("deny") => Some(Self::Deny),
            Some(_) | None => None,
        }
    }
}

/// A rule as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpRuleFields {
    pub action: Access,
    /// `10.1.0.0/16`, `fd12::/48` or a single address.
    pub cidr: String,
}

/// One rule, ready to be held against a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "IpRuleFields")]
pub struct IpRule {
    pub action: Access,
    cidr: String,
    network: Network,
}

impl From<IpRule> for IpRuleFields {
    fn from(IpRule { action, cidr, network: _ }: IpRule) -> Self {
        Self { action, cidr }
    }
}

impl IpRule {
    fn new(fields: IpRuleFields, place: &str) -> Result<Self, Invalid> {
        let IpRuleFields { action, cidr } = fields;
        let problem =
            |problem| Invalid::new(format!("{place}.cidr"), format!("{cidr:?} {problem}"));
        let network = Network::parse(&cidr).map_err(problem)?;
        Ok(Self { action, cidr, network })
    }

    /// As it was written.
    pub fn cidr(&self) -> &str {
        &self.cidr
    }

    /// All of a list, called `name`, of at most `most`.
    pub(super) fn all(
        list: Vec<IpRuleFields>,
        name: &str,
        most: usize,
    ) -> Result<Vec<Self>, Invalid> {
        if list.len() > most {
            return Err(Invalid::new(name, format!("must have at most {most} rules")));
        }
        let rule = |(at, fields)| Self::new(fields, &format!("{name}[{at}]"));
        list.into_iter().enumerate().map(rule).collect()
    }

    pub(super) fn first(rules: &[Self], client: IpAddr) -> Option<&Self> {
        rules.iter().find(|rule| rule.network.contains(client))
    }
}

/// Reads a list of `{action, cidr}`, called `name`.
pub(super) fn read_rules(value: &Value, name: &str) -> Result<Vec<IpRuleFields>, Invalid> {
    let list = value.as_array().ok_or_else(|| Invalid::new(name, "must be a list"))?;
    let rule = |(at, value): (usize, &Value)| {
        let place = format!("{name}[{at}]");
        let fields = value.as_object().ok_or_else(|| {
            Invalid::new(place.clone(), "must be an object with action and cidr".to_owned())
        })?;
        if let Some(unknown) = fields.keys().find(|key| !["action", "cidr"].contains(&key.as_str()))
        {
            let message = "is not known here: action and cidr are";
            return Err(Invalid::new(format!("{place}.{unknown}"), message));
        }
        let action = Access::read(fields.get("action"));
        let action = action
            .ok_or_else(|| Invalid::new(format!("{place}.action"), "must be allow or deny"))?;
        let cidr = fields.get("cidr").and_then(Value::as_str);
        let cidr = cidr.ok_or_else(|| Invalid::new(format!("{place}.cidr"), "must be a string"))?;
        Ok(IpRuleFields { action, cidr: cidr.to_owned() })
    };
    list.iter().enumerate().map(rule).collect()
}

/// The global list: what counts for every route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IpRules {
    /// For clients that no rule has.
    pub default: Access,
    pub rules: Vec<IpRule>,
}

impl IpRules {
    /// # Errors
    /// The rule that is none.
    pub fn new(default: Access, rules: Vec<IpRuleFields>) -> Result<Self, Invalid> {
        Ok(Self { default, rules: IpRule::all(rules, "rules", MAX_GLOBAL_RULES)? })
    }

    /// Reads `{default, rules}`, both of which must be there.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn read(fields: Map<String, Value>) -> Result<Self, Invalid> {
        if let Some(unknown) =
            fields.keys().find(|key| !["default", "rules"].contains(&key.as_str()))
        {
            return Err(Invalid::new(unknown, "is not known here: default and rules are"));
        }
        let default = Access::read(fields.get("default"));
        let default =
            default.ok_or_else(|| Invalid::new("default", "is required: allow or deny"))?;
        let rules = fields.get("rules").ok_or_else(|| Invalid::new("rules", "is required"))?;
        Self::new(default, read_rules(rules, "rules")?)
    }
}
