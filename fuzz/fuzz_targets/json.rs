//! Checks that JSON repair never panics or hangs, keeps its span inside the text and never changes
//! valid JSON.
#![no_main]

use levity_llm::json;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(repaired) = json::repair(text) else { return };
    assert!(text.get(repaired.span).is_some());
    // The repaired value is JSON. Parsing it again returns the same value, also from a code fence
    // and without the strict parser.
    let valid = repaired.value.to_string();
    let again: Value = serde_json::from_str(&valid).expect("a value serializes to JSON");
    if again.is_object() || again.is_array() {
        assert_eq!(json::parse(&valid).expect("the text is JSON"), again);
        assert_eq!(json::parse(&format!("```json\n{valid}\n```")).expect("the fence \
            contains JSON"), again);
    }
});
