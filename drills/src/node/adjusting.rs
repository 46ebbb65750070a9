//! What a drill may change about a node before it is started.

use std::ffi::OsString;

use serde_json::Value;

use super::NodeSetup;
use crate::drill::{CannotInject, OrCannot};

impl NodeSetup {
    /// Lays `patch` over the configuration, object by object.
    ///
    /// # Errors
    /// When the configuration cannot be read or written.
    pub fn with_config(self, patch: &Value) -> Result<Self, CannotInject> {
        let text = std::fs::read(&self.config).or_cannot("read the node's configuration")?;
        let mut config: Value =
            serde_json::from_slice(&text).or_cannot("read the node's configuration")?;
        lay_over(&mut config, patch);
        std::fs::write(&self.config, config.to_string())
            .or_cannot("write the node's configuration")?;
        Ok(self)
    }

    /// Starts the node through another program that becomes it: `words`, and then the node's own.
    #[must_use]
    pub fn through<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.wrapper = words.into_iter().map(Into::into).collect();
        self
    }
}

fn lay_over(value: &mut Value, patch: &Value) {
    match (value, patch) {
        (Value::Object(value), Value::Object(patch)) => {
            for (key, patch) in patch {
                lay_over(value.entry(key.clone()).or_insert(Value::Null), patch);
            }
        }
        (value, patch) => *value = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let mut value = json!({"a": {"b": 1, "c": 2}, "d": 3});
        lay_over(&mut value, &json!({"a": {"c": 4, "e": {"f": 5}}, "d": [6]}));
        assert_eq!(value, json!({"a": {"b": 1, "c": 4, "e": {"f": 5}}, "d": [6]}));
    }
}
