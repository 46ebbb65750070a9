//! Routes, IP rules and a request: whatever they are, they are refused or decided, and what is allowed names its route.
#![no_main]

use ankusa_actors::model::route::decide_on;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(input) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok(told) = decide_on(&input) else { return };
    assert_eq!(told["decision"] == "allow", told["reason"] == "matched", "{told}");
    assert!(told["decision"] == "deny" || told["route_id"].is_string(), "{told}");
});
