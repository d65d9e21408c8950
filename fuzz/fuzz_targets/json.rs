//! No text panics or takes long; a span lies in the text; valid JSON is never changed.
#![no_main]

use levity_llm::json;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(repaired) = json::repair(text) else { return };
    assert!(text.get(repaired.span).is_some());
    // What came out is JSON, and is read again as it is, also from a fence and without the strict
    // reading.
    let valid = repaired.value.to_string();
    let again: Value = serde_json::from_str(&valid).expect("a value is written as JSON");
    if again.is_object() || again.is_array() {
        assert_eq!(json::parse(&valid).expect("it is JSON"), again);
        assert_eq!(json::parse(&format!("```json\n{valid}\n```")).expect("it is JSON in a \
            fence"), again);
    }
});
