//! Log lines: one an event, on standard error, as text or JSON.

use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Starts logging for the whole process. Later calls change nothing: a process has one log.
pub fn start(config: &LogConfig) {
    // A test, or a drill, that already has a subscriber keeps it.
    let _ = Registry::default().with(layer(config, io::stderr)).try_init();
}

/// What writes the lines. Ours down to the configured level; a library's only when something is wrong with it.
fn layer<W>(config: &LogConfig, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let level = match config.level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let targets =
        Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("ankusa", level);
    let lines = fmt::layer().with_writer(OneLine(writer)).with_ansi(false);
    match config.format {
        LogFormat::Text => lines.with_filter(targets).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(targets).boxed(),
    }
}

/// Keeps an event on one line, whatever text of others it repeats.
struct OneLine<W>(W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for OneLine<W> {
    type Writer = OneLineWriter<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        OneLineWriter(self.0.make_writer())
    }
}

/// Every `write` is one whole event, its newline included: that is how the subscriber calls it.
struct OneLineWriter<W>(W);

impl<W: Write> Write for OneLineWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        if text.iter().any(|b| matches!(b, b'\n' | b'\r')) {
            let mut line = Vec::with_capacity(event.len() + 16);
            for byte in text {
                match byte {
                    b'\n' => line.extend_from_slice(b"\\n"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    other => line.push(*other),
                }
            }
            line.push(b'\n');
            self.0.write_all(&line)?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing::{debug, info, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `log` leaves.
    fn written(level: LogLevel, format: LogFormat, log: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = layer(&LogConfig { level, format }, move || writer.clone());
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// A text line without its time.
    fn after_the_time(line: &str) -> &str {
        line.split_once(' ').unwrap().1
    }

    #[test]
    fn an_event_is_one_line_whatever_it_repeats() {
        let lines = written(LogLevel::Info, LogFormat::Text, || {
            warn!(source_id = "a", error = %"first\nsecond\r\nthird", "cannot deliver");
            info!("next");
        });
        let lines: Vec<&str> = lines.iter().map(|line| after_the_time(line)).collect();
        assert_eq!(
            lines,
            [
                " WARN ankusa_node::telemetry::logs::tests: cannot deliver source_id=\"a\" \
                 error=first\\nsecond\\r\\nthird",
                " INFO ankusa_node::telemetry::logs::tests: next",
            ]
        );
    }

    #[test]
    fn json_is_one_object_an_event() {
        let lines = written(LogLevel::Info, LogFormat::Json, || {
            info!(hooks = 3, text = "a\nb", "committed");
        });
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let mut line: Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("timestamp").unwrap();
        let expected = serde_json::json!({"level": "INFO", "message": "committed", "hooks": 3, "text": "a\nb",
            "target": "ankusa_node::telemetry::logs::tests"});
        assert_eq!(line, expected);
    }

    #[test]
    fn the_level_is_ours_and_libraries_only_warn() {
        let say_all = || {
            debug!("ours");
            info!("ours");
            warn!("ours");
            info!(target: "hyper", "theirs");
            warn!(target: "hyper", "theirs");
            tracing::error!(target: "hyper", "theirs");
        };
        let count = |level| written(level, LogFormat::Text, say_all).len();
        assert_eq!(count(LogLevel::Debug), 5);
        assert_eq!(count(LogLevel::Info), 4);
        assert_eq!(count(LogLevel::Warning), 3);
        assert_eq!(count(LogLevel::Error), 1);
    }
}
