//! The limits of strict mode, as OpenAI documents them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::schema::nulls::Shape;

const MOST_LEVELS: usize = 10;
const MOST_PROPERTIES: usize = 5_000;
const MOST_VALUES: usize = 1_000;
/// Of names and values together.
const MOST_CHARS: usize = 120_000;
/// Of the values of one list that has more than `MANY_VALUES`.
const MOST_CHARS_OF_MANY: usize = 15_000;
const MANY_VALUES: usize = 250;

/// Whether a schema in strict form is within the limits.
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
    !sum.over
        && sum.properties <= MOST_PROPERTIES
        && sum.values <= MOST_VALUES
        && sum.chars <= MOST_CHARS
        && levels(schema, defs, &mut HashMap::new(), 0) <= MOST_LEVELS
}

#[derive(Default)]
struct Sum {
    properties: usize,
    values: usize,
    chars: usize,
    over: bool,
}

impl Sum {
    fn add(&mut self, schema: &Value) {
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let chars: usize = values.iter().map(length).sum();
            self.values += values.len();
            self.chars += chars;
            self.over |= values.len() > MANY_VALUES && chars > MOST_CHARS_OF_MANY;
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

fn length(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let branches = schema.get("anyOf").and_then(Value::as_array);
    properties
        .into_iter()
        .flat_map(Map::values)
        .chain(branches.into_iter().flatten())
        .chain(schema.get("items"))
}

/// How many objects and lists are in each other. What refers to itself counts once.
fn levels<'a>(
    schema: &'a Value,
    defs: &'a Map<String, Value>,
    known: &mut HashMap<&'a str, Option<usize>>,
    depth: usize,
) -> usize {
    // A long chain of references is no schema that anybody wrote.
    if depth > 200 {
        return MOST_LEVELS + 1;
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

fn definition<'a>(schema: &Value, defs: &'a Map<String, Value>) -> Option<(&'a String, &'a Value)> {
    let target = schema.get("$ref").and_then(Value::as_str)?;
    defs.get_key_value(&super::definition_name(target)?)
}

/// Whether the objects that a value may be begin with different properties, or with one of
/// different values: the dialect tells them apart by that.
pub(super) fn can_be_told_apart(schema: &Value) -> bool {
    let none = Map::new();
    let defs = schema
        .get("$defs")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    std::iter::once(schema)
        .chain(defs.values())
        .all(|schema| begin_apart(schema, defs))
}

fn begin_apart(schema: &Value, defs: &Map<String, Value>) -> bool {
    let branches = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut firsts = HashSet::new();
    branches
        .filter_map(|branch| first(branch, defs))
        .all(|first| firsts.insert(first))
        && below(schema).all(|schema| begin_apart(schema, defs))
}

/// The first property of an object, and its value if it has only one.
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

/// Whether a null can be told from a null wherever a value may be of several shapes: none of them
/// has a null that stands for nothing where another has one that is a value.
pub(super) fn is_clear(shape: &Shape) -> bool {
    shape
        .nodes
        .iter()
        .filter(|node| node.either.len() > 1)
        .all(|node| {
            let places = shape.places(node.either.iter().copied());
            let nodes = || places.iter().filter_map(|at| shape.nodes.get(*at));
            let kept: HashSet<&String> = nodes().flat_map(|node| &node.keep).collect();
            !nodes()
                .flat_map(|node| &node.drop)
                .any(|name| kept.contains(name))
        })
}
