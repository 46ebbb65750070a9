//! `/health` and `/ready`.

use serde_json::{Map, Value, json};

use super::Admin;
use crate::model::failure::FailureClass;

impl Admin {
    /// Liveness: green while the process can answer, whatever the store does.
    pub fn health(&self) -> Value {
        json!({
            "status": "ok",
            "instance": self.settings.instance,
            "version": self.version,
            "roles": self.settings.roles.names(),
        })
    }

    /// What the ingest port says of itself: no version, no roles.
    pub fn ingest_health(&self) -> Value {
        json!({"status": "ok", "instance": self.settings.instance})
    }

    /// Whether a hook sent now would be taken, and if not, why: a key for each check, `ok` or `failing`, and in `reasons`
    /// one of the eight failure classes for each that fails.
    pub async fn ready(&self) -> (bool, Value) {
        let draining = *self.handles.stopping.borrow();
        let store = self.handles.readiness.store_failure().await;
        let store = store.or_else(|| self.handles.writer.blocked());
        let disk = (!self.handles.store.state().accepting).then_some(FailureClass::NoSpace);
        let checks = [("store", store), ("disk", disk)];
        let status = match (draining, checks.iter().all(|(_, failure)| failure.is_none())) {
            (true, _) => "draining",
            (false, true) => "ready",
            (false, false) => "unavailable",
        };
        let mut answer = Map::new();
        answer.insert("status".to_owned(), json!(status));
        answer.insert("instance".to_owned(), json!(self.settings.instance));
        let mut reasons = Map::new();
        for (check, failure) in checks {
            let value = if failure.is_none() { "ok" } else { "failing" };
            answer.insert(check.to_owned(), json!(value));
            if let Some(class) = failure {
                reasons.insert(check.to_owned(), json!(class.as_str()));
            }
        }
        if !reasons.is_empty() {
            answer.insert("reasons".to_owned(), Value::Object(reasons));
        }
        (status == "ready", Value::Object(answer))
    }
}
