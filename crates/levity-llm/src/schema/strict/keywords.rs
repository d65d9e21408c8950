//! Keywords of JSON Schema, grouped by their treatment.
//!
//! A keyword in none of these lists is handled by the converter, described in words or ignored if
//! it constrains nothing.

use serde_json::{Map, Value};

/// Keywords without a counterpart: a schema with any of these is not converted.
const UNSUPPORTED: [&str; 18] = [
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

/// Keywords that are retained unchanged.
pub(super) const RETAINED: [&str; 8] = [
    "title",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];

/// Keywords that may accompany a reference or a list of alternatives, because they constrain
/// nothing.
const ANNOTATIONS: [&str; 12] = [
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

/// Returns `true` if a schema has a keyword that strict mode cannot express.
pub(super) fn is_unsupported(map: &Map<String, Value>) -> bool {
    map.keys().any(|word| UNSUPPORTED.contains(&word.as_str()))
}

/// Returns `true` if a keyword constrains nothing.
pub(super) fn is_annotation(word: &str) -> bool {
    ANNOTATIONS.contains(&word)
}
