//! The machine-readable description of the HTTP API.
//!
//! `openapi.json` is written by hand. A test compares its paths and methods with the routes, so the
//! two cannot diverge.

use serde_json::Value;

const TEXT: &str = include_str!("openapi.json");

/// Returns the OpenAPI 3.1 description of [`HttpApi`](super::HttpApi).
///
/// The version is that of this crate. Generate a client from it, or serve it to tools that read
/// OpenAPI.
///
/// ```
/// let description = levity_serve::http::openapi();
/// assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
/// assert!(description["paths"]["/v1/runs"]["post"].is_object());
/// ```
pub fn openapi() -> Value {
    // The description is valid JSON: a test parses it.
    let mut description: Value = serde_json::from_str(TEXT).unwrap_or_default();
    description["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    description
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The source of core's event names, so that this test fails if core adds an event that is not
    /// described.
    const EVENTS: &str = include_str!("../../tests/it/fixtures/event.rs");

    #[test]
    fn openapi_describes_exactly_the_events_of_core() {
        let names = EVENTS
            .split_once("pub fn name")
            .unwrap()
            .1
            .split_once("pub fn is_transient")
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
    fn openapi_references_resolve() {
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
