//! The drafts of JSON Schema, and where they mean the same.

use levity_rpc::mcp::JsonObject;
use serde_json::Value;

use super::{Holds, holds};

/// What a schema says it is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The one that schemas are read as when they say nothing.
    Newest,
    /// One in which most keywords mean the same: the drafts 6, 7 and 2019-09.
    Near,
    /// One in which common keywords mean something else.
    Far,
    /// None that is known; it could only be refused.
    Unknown,
}

impl Dialect {
    pub(super) fn of(schema: &JsonObject) -> Self {
        let Some(named) = schema.get("$schema").and_then(Value::as_str) else {
            return Self::Unknown;
        };
        let name = named
            .trim_start_matches("https://")
            .trim_start_matches("http://")
            .trim_end_matches('#');
        match name {
            "json-schema.org/draft/2020-12/schema" => Self::Newest,
            "json-schema.org/draft-06/schema"
            | "json-schema.org/draft-07/schema"
            | "json-schema.org/draft/2019-09/schema" => Self::Near,
            "json-schema.org/draft-04/schema" | "json-schema.org/draft-03/schema" => Self::Far,
            _ => Self::Unknown,
        }
    }

    /// Whether the schema means the same when it does not say what it is written in.
    pub(super) fn is_needless(self, schema: &JsonObject) -> bool {
        match self {
            Self::Newest | Self::Unknown => true,
            Self::Near => is_alike(schema),
            Self::Far => false,
        }
    }
}

/// Whether the newest draft and those near to it mean the same by a schema.
fn is_alike(schema: &JsonObject) -> bool {
    schema
        .iter()
        .all(|(keyword, value)| match keyword.as_str() {
            // Older drafts look at nothing beside a reference.
            "$ref" => schema.keys().all(|other| is_note(other)),
            "items" => !value.is_array() && are_alike(keyword, value),
            // Older drafts hold values to formats.
            "format" | "contentEncoding" | "contentMediaType" => false,
            "if" | "then" | "else" => false,
            "additionalItems" | "dependencies" | "$recursiveRef" | "$recursiveAnchor" | "$id"
            | "id" => false,
            "prefixItems"
            | "dependentSchemas"
            | "dependentRequired"
            | "minContains"
            | "maxContains"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "$anchor"
            | "$dynamicRef"
            | "$dynamicAnchor" => false,
            _ => are_alike(keyword, value),
        })
}

fn are_alike(keyword: &str, value: &Value) -> bool {
    let alike = |schema: &Value| schema.as_object().is_none_or(is_alike);
    match (holds(keyword), value) {
        (Holds::Named, Value::Object(all)) => all.values().all(alike),
        (Holds::Schemas, Value::Array(all)) => all.iter().all(alike),
        (Holds::Schemas, value) => alike(value),
        _ => true,
    }
}

/// Whether a keyword may stand beside a reference without a difference.
fn is_note(keyword: &str) -> bool {
    [
        "$ref",
        "$schema",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "$comment",
        "$defs",
        "definitions",
    ]
    .contains(&keyword)
}
