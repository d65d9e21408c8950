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
