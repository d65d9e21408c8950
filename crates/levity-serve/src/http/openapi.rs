//! What can be asked for, described for programs.

use serde_json::Value;

const TEXT: &str = include_str!("openapi.json");

/// The OpenAPI 3.1 description of what [`HttpApi`](super::HttpApi) offers.
pub fn openapi() -> Value {
    // A test reads it.
    let mut description: Value = serde_json::from_str(TEXT).unwrap_or_default();
    description["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    description
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What core says there is, taken from where it says it: an event that is added there is missed
    /// here.
    const EVENTS: &str = include_str!("../../../levity-core/src/event.rs");

    #[test]
    fn every_event_is_described_and_no_other() {
        let names = EVENTS
            .split_once("pub fn name")
            .unwrap()
            .1
            .split_once("pub fn is_fleeting")
            .unwrap()
            .0;
        let there: BTreeSet<&str> = names
            .lines()
            .filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\","))
            .collect();
        let description = openapi();
        let kinds = description["components"]["schemas"]["EventKind"]["oneOf"]
            .as_array()
            .unwrap();
        let described: BTreeSet<&str> = kinds
            .iter()
            .filter_map(|kind| kind["title"].as_str())
            .collect();
        assert!(there.len() >= 35);
        assert_eq!(described, there);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let description = openapi();
        let mut next = vec![&description];
        let mut count = 0;
        while let Some(value) = next.pop() {
            match value {
                Value::Object(fields) => next.extend(fields.values()),
                Value::Array(items) => next.extend(items),
                Value::String(text) if text.starts_with("#/") => {
                    assert!(description.pointer(&text[1..]).is_some(), "{text}");
                    count += 1;
                }
                _ => {}
            }
        }
        assert!(count > 100);
        assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
