//! Terms: read as a tree exactly when they can be passed over, in memory bounded by their size.
#![no_main]

use ankusa_actors::model::etf::{Reader, Term};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let passed = Reader::versioned(bytes).and_then(|mut reader| {
        reader.skip()?;
        reader.end()
    });
    let tree = Term::decode(bytes);
    assert_eq!(passed.as_ref().err(), tree.as_ref().err());
    if let Ok(term) = tree {
        let _ = term.text(200);
        // Only a float that is no number differs from itself, and those are refused.
        assert_eq!(term, term.clone());
    }
});
