//! Keywords of JSON Schema, by what becomes of them.

use serde_json::{Map, Value};

/// What has no counterpart: with any of these, the schema stays as it is.
const FOREIGN: [&str; 18] = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "prefixItems",
    "additionalItems",
    "contains",
    "minContains",
    "maxContains",
    "$dynamicRef",
    "$recursiveRef",
];

/// What is kept as it is.
pub(super) const KEPT: [&str; 8] = [
    "title",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];

/// What may stand beside a reference or a list of alternatives: it holds nobody to anything.
const NOTES: [&str; 12] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "discriminator",
    "$comment",
    "$schema",
    "$id",
];

pub(super) fn is_foreign(map: &Map<String, Value>) -> bool {
    map.keys().any(|word| FOREIGN.contains(&word.as_str()))
}

pub(super) fn is_note(word: &str) -> bool {
    NOTES.contains(&word)
}
