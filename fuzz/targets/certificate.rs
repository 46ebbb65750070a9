//! Certificates: read or refused, and nothing that is read can be mistaken for two names.
#![no_main]

use ankusa_actors::model::certificate::Certificate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(certificate) = Certificate::from_der(bytes) {
        assert!(!certificate.subject.chars().any(char::is_control), "{:?}", certificate.subject);
        assert!(certificate.alt_names.len() <= 1_000);
    }
});
