//! A source or a sink as JSON: read or refused, and what is read is written so that it is read as the same again.
#![no_main]

use ankusa_actors::model::egress::{Egress, EgressConfig};
use ankusa_actors::model::sink_spec::SinkSpec;
use ankusa_actors::model::source::SourceSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(source) = serde_json::from_slice::<SourceSpec>(bytes) {
        let _ = source.verify.build();
        if let Some(dedupe) = &source.dedupe {
            let _ = dedupe.build();
        }
        let _ = (source.is_shared(), source.verifies_nothing());
        source.sinks.iter().for_each(check);
    }
    if let Ok(sink) = serde_json::from_slice::<SinkSpec>(bytes) {
        check(&sink);
    }
    if let Ok(config) = serde_json::from_slice::<EgressConfig>(bytes)
        && let Ok(egress) = Egress::new(&config)
    {
        for address in ["10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "8.8.8.8", "fe80::1"] {
            let _ = egress.check(address.parse().unwrap());
        }
    }
});

fn check(sink: &SinkSpec) {
    if let Some(ordered) = sink.ordered() {
        let _ = ordered.check();
    }
}
