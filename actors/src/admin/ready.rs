//! `/health` and `/ready`.

use serde_json::{Value, json};

use super::Admin;

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

    /// Whether a hook sent now would be taken, and if not, why: one of the eight failure classes.
    pub async fn ready(&self) -> (bool, Value) {
        let draining = *self.handles.stopping.borrow();
        let failure = self.handles.readiness.store_failure().await;
        let status = match (draining, failure) {
            (true, _) => "draining",
            (false, None) => "ready",
            (false, Some(_)) => "unavailable",
        };
        let mut answer = json!({
            "status": status,
            "instance": self.settings.instance,
            "store": if failure.is_none() { "ok" } else { "failing" },
        });
        if let (Some(class), Some(answer)) = (failure, answer.as_object_mut()) {
            answer.insert("reasons".to_owned(), json!({"store": class.as_str()}));
        }
        (status == "ready", answer)
    }
}
