//! The limits of strict mode, as OpenAI documents them.
//!
//! OpenAI rejects the whole request if a schema exceeds a limit, so a schema beyond any of them is
//! sent without strict mode. The checks run on the converted schema, whose keywords are few.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::schema::nulls::Shape;

const MAX_LEVELS: usize = 10;
const MAX_PROPERTIES: usize = 5_000;
const MAX_VALUES: usize = 1_000;
/// The limit on the characters of names and values together.
const MAX_CHARS: usize = 120_000;
/// The limit on the characters of one list with more than `LONG_LIST` values.
const MAX_CHARS_OF_LONG_LIST: usize = 15_000;
const LONG_LIST: usize = 250;

/// Returns `true` if a schema in strict form is within the limits.
pub(super) fn fits(schema: &Value) -> bool {
    let mut sum = Sum::default();
    let none = Map::new();
    let defs = schema
        .get("$defs")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    sum.add(schema);
    for (name, def) in defs {
        sum.chars += name.len();
        sum.add(def);
    }
    !sum.exceeded
        && sum.properties <= MAX_PROPERTIES
        && sum.values <= MAX_VALUES
        && sum.chars <= MAX_CHARS
        && levels(schema, defs, &mut HashMap::new(), 0) <= MAX_LEVELS
}

/// The totals over the schema and all its definitions.
#[derive(Default)]
struct Sum {
    properties: usize,
    values: usize,
    chars: usize,
    /// True if one long list of values exceeds its own limit.
    exceeded: bool,
}

impl Sum {
    /// Adds a schema and everything below it. References are not followed; definitions are added
    /// once each.
    fn add(&mut self, schema: &Value) {
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let chars: usize = values.iter().map(length).sum();
            self.values += values.len();
            self.chars += chars;
            self.exceeded |= values.len() > LONG_LIST && chars > MAX_CHARS_OF_LONG_LIST;
        }
        self.chars += schema.get("const").map_or(0, length);
        for (name, _) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.properties += 1;
            self.chars += name.len();
        }
        below(schema).for_each(|schema| self.add(schema));
    }
}

/// Returns the number of bytes of a text; other values do not count.
fn length(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

/// Iterates over the schemas directly within a schema.
fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let branches = schema.get("anyOf").and_then(Value::as_array);
    properties
        .into_iter()
        .flat_map(Map::values)
        .chain(branches.into_iter().flatten())
        .chain(schema.get("items"))
}

/// Returns the nesting depth of objects and lists. A recursive reference counts once.
fn levels<'a>(
    schema: &'a Value,
    defs: &'a Map<String, Value>,
    known: &mut HashMap<&'a str, Option<usize>>,
    depth: usize,
) -> usize {
    // A very long chain of references is not a realistic schema.
    if depth > 200 {
        return MAX_LEVELS + 1;
    }
    if let Some((name, def)) = definition(schema, defs) {
        if let Some(found) = known.get(name.as_str()) {
            return found.unwrap_or(0);
        }
        known.insert(name, None);
        let found = levels(def, defs, known, depth + 1);
        known.insert(name, Some(found));
        return found;
    }
    let own = usize::from(schema.get("properties").is_some() || schema.get("items").is_some());
    own + below(schema)
        .map(|schema| levels(schema, defs, known, depth + 1))
        .max()
        .unwrap_or(0)
}

/// Returns the definition that a reference names.
fn definition<'a>(schema: &Value, defs: &'a Map<String, Value>) -> Option<(&'a String, &'a Value)> {
    let target = schema.get("$ref").and_then(Value::as_str)?;
    defs.get_key_value(&super::definition_name(target)?)
}

/// Returns `true` if the object alternatives of a value start with different properties, or with
/// one of different values. The dialect distinguishes them by that.
pub(super) fn are_distinguishable(schema: &Value) -> bool {
    let none = Map::new();
    let defs = schema
        .get("$defs")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    std::iter::once(schema)
        .chain(defs.values())
        .all(|schema| start_differently(schema, defs))
}

/// Checks a schema and everything below it; see [`are_distinguishable`].
fn start_differently(schema: &Value, defs: &Map<String, Value>) -> bool {
    let branches = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut firsts = HashSet::new();
    branches
        .filter_map(|branch| first(branch, defs))
        .all(|first| firsts.insert(first))
        && below(schema).all(|schema| start_differently(schema, defs))
}

/// Returns the first property of an object, and its value if only one is allowed.
fn first(schema: &Value, defs: &Map<String, Value>) -> Option<(String, String)> {
    let schema = definition(schema, defs).map_or(schema, |(_, def)| def);
    let (name, property) = schema.get("properties")?.as_object()?.iter().next()?;
    let only = property
        .get("enum")
        .and_then(Value::as_array)
        .filter(|values| values.len() == 1);
    let value = property.get("const").or_else(|| only?.first());
    Some((
        name.clone(),
        value.map(Value::to_string).unwrap_or_default(),
    ))
}

/// Returns `true` if the meaning of null is unambiguous wherever a value has several shapes. It is
/// ambiguous if null means an absent value in one shape and is a value in another.
pub(super) fn has_unambiguous_nulls(shape: &Shape) -> bool {
    shape
        .nodes
        .iter()
        .filter(|node| node.alternatives.len() > 1)
        .all(|node| {
            let positions = shape.positions(node.alternatives.iter().copied());
            let nodes = || positions.iter().filter_map(|at| shape.nodes.get(*at));
            let null_values: HashSet<&String> = nodes().flat_map(|node| &node.keep).collect();
            !nodes()
                .flat_map(|node| &node.drop)
                .any(|name| null_values.contains(name))
        })
}
