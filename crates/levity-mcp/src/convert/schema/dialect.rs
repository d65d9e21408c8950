//! The drafts of JSON Schema, and their common meaning.
//!
//! Most servers name draft 7, and nearly all of their schemas mean the same in the newest draft.
//! Without the name, a schema is shorter and every provider accepts it. This module decides if the
//! name can be left out. It errs on the side of keeping it: a keyword whose meaning or validation
//! differs between the drafts keeps the name.

use levity_rpc::mcp::JsonObject;
use serde_json::Value;

use super::{KeywordContent, keyword_content};

/// The draft that a schema names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The default draft of schemas without a name.
    Newest,
    /// A draft in which most keywords have the same meaning: 6, 7 and 2019-09.
    Similar,
    /// A draft in which common keywords have another meaning.
    Different,
    /// An unknown draft, which a validator could only reject.
    Unknown,
}

impl Dialect {
    /// Returns the draft of a schema by its `$schema`. The scheme of the URL and a trailing `#`
    /// make no difference.
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
            | "json-schema.org/draft/2019-09/schema" => Self::Similar,
            "json-schema.org/draft-04/schema" | "json-schema.org/draft-03/schema" => {
                Self::Different
            }
            _ => Self::Unknown,
        }
    }

    /// Returns `true` if the schema has the same meaning without the name of its draft.
    pub(super) fn can_omit(self, schema: &JsonObject) -> bool {
        match self {
            Self::Newest | Self::Unknown => true,
            Self::Similar => has_same_meaning(schema),
            Self::Different => false,
        }
    }
}

/// Returns `true` if the newest and the similar drafts give a schema the same meaning.
fn has_same_meaning(schema: &JsonObject) -> bool {
    schema
        .iter()
        .all(|(keyword, value)| match keyword.as_str() {
            // Older drafts ignore keywords next to a reference.
            "$ref" => schema.keys().all(|other| is_annotation(other)),
            "items" => !value.is_array() && have_same_meaning(keyword, value),
            // Older drafts validate formats.
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
            _ => have_same_meaning(keyword, value),
        })
}

/// Checks the schemas inside a keyword; data has the same meaning in every draft.
fn have_same_meaning(keyword: &str, value: &Value) -> bool {
    let same = |schema: &Value| schema.as_object().is_none_or(has_same_meaning);
    match (keyword_content(keyword), value) {
        (KeywordContent::Named, Value::Object(all)) => all.values().all(same),
        (KeywordContent::Schemas, Value::Array(all)) => all.iter().all(same),
        (KeywordContent::Schemas, value) => same(value),
        _ => true,
    }
}

/// Returns `true` if a keyword next to a reference makes no difference.
fn is_annotation(keyword: &str) -> bool {
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
