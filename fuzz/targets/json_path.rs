//! A path and a JSON body: what is found is in the body, under the path's own names.
#![no_main]

use ankusa_actors::model::dedupe::JsonPath;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    // The path, a zero, the body.
    let Some(at) = bytes.iter().position(|byte| *byte == 0) else { return };
    let (path, body) = (&bytes[..at], &bytes[at + 1..]);
    let Ok(path) = std::str::from_utf8(path) else { return };
    let Some(parsed) = JsonPath::parse(path) else { return };
    let Some(found) = parsed.find(body) else { return };
    // Of a body that is JSON throughout, another reader knows the same place.
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    assert!(value.is_object() || value.is_array(), "{path:?} found {found:?} in a plain value");
});
