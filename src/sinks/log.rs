//! The log sink: a line for every hook. Nothing outlives the node by it.

use async_trait::async_trait;
use tracing::info;

use ankusa_actors::ports::{Delivery, Outcome, Sink};

/// Writes one line a delivery, without its body, under the target `ankusa::sink`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

#[async_trait]
impl Sink for LogSink {
    fn module(&self) -> &'static str {
        "Elixir.Ankusa.Sink.Log"
    }

    fn kind(&self) -> &'static str {
        "log"
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let envelope = &delivery.envelope;
        info!(
            target: "ankusa::sink",
            id = %envelope.id,
            source = envelope.source_id,
            tenant = delivery.tenant_id,
            size_bytes = envelope.body.len(),
            "hook delivered to the log"
        );
        Outcome::Ok
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use serde_json::{Value, json};
    use tracing::instrument::WithSubscriber;

    use ankusa_actors::model::envelope::Envelope;
    use ankusa_actors::model::ids::HookId;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_delivery_is_one_line_without_its_body() {
        let envelope = Envelope {
            id: HookId::v7(1_688_169_000_086, 0),
            source_id: "acme.github".into(),
            tenant_id: Some("acme".into()),
            received_at_ms: 1_688_169_000_086,
            method: "POST".into(),
            path: "/in/github".into(),
            headers: vec![],
            content_type: None,
            body: Bytes::from_static(b"hunter2"),
            dedupe_key: None,
            verification: None,
        };
        let delivery = Delivery {
            envelope: Arc::new(envelope),
            tenant_id: "acme".into(),
            attempt: 1,
            replay_id: None,
            forwarded: vec![],
        };
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .without_time()
            .with_writer(move || writer.clone())
            .finish();

        let outcome = LogSink.deliver(&delivery).with_subscriber(subscriber).await;

        assert_eq!(
            (outcome, LogSink.module(), LogSink.kind()),
            (Outcome::Ok, "Elixir.Ankusa.Sink.Log", "log")
        );
        let expected = json!({"level": "INFO", "target": "ankusa::sink", "fields": {
            "message": "hook delivered to the log", "id": "01890eb6-ac96-7000-8000-000000000000",
            "source": "acme.github", "tenant": "acme", "size_bytes": 7}});
        let line: Value = serde_json::from_slice(&lines.0.lock().unwrap()).unwrap();
        assert_eq!(line, expected);
    }
}
