//! The part of JSON Schema that OpenAI holds a model to: "strict mode".
//!
//! There, every property is required and no other is allowed, so that an optional one is made to
//! allow null. What cannot be said is put into the description in words. A schema that would come
//! to accept less, such as one with a free-form map in it, is not made strict at all.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::nulls::{Node, Shape};

mod check;
mod keywords;
mod kinds;
mod words;

use keywords::{KEPT, is_foreign, is_note};
use kinds::{nullable, scalars, types};

/// A schema that is held to.
#[derive(Debug)]
pub(crate) struct Strict {
    pub(crate) schema: Value,
    /// Where null has come to stand for a property that is left out, if it does anywhere.
    pub(crate) nulls: Option<Shape>,
}

/// How deep a schema is looked into, and at how much of it: more than the dialect allows.
const DEEPEST: usize = 64;
const MOST_NODES: usize = 10_000;

/// The schema in strict form, or `None` where that would change what it accepts.
pub(crate) fn strict(schema: &Value) -> Option<Strict> {
    let (nodes, places, nullables) = (vec![Node::default()], HashMap::new(), HashMap::new());
    let mut maker = Maker {
        root: schema,
        names: Vec::new(),
        nodes,
        places,
        nullables,
    };
    let mut whole = maker.whole()?;
    let mut defs = Map::new();
    // Definitions that refer to others add to the list while it is gone through.
    let mut at = 0;
    while let Some(name) = maker.names.get(at).cloned() {
        let place = maker
            .places
            .get(&name)
            .copied()
            .filter(|_| maker.nodes.len() < MOST_NODES)?;
        let (made, node) = maker.schema(maker.definition(&name)?, 1)?;
        maker.alias(place, node);
        defs.insert(name, made);
        at += 1;
    }
    if !defs.is_empty() {
        whole
            .as_object_mut()?
            .insert("$defs".to_owned(), Value::Object(defs));
    }
    let shape = Shape { nodes: maker.nodes };
    if !check::fits(&whole) || !check::can_be_told_apart(&whole) || !check::is_clear(&shape) {
        return None;
    }
    let nulls = shape
        .nodes
        .iter()
        .any(|node| !node.drop.is_empty())
        .then_some(shape);
    Some(Strict {
        schema: whole,
        nulls,
    })
}

struct Maker<'a> {
    root: &'a Value,
    /// Definitions that are referred to.
    names: Vec<String>,
    nodes: Vec<Node>,
    /// Their places.
    places: HashMap<String, usize>,
    /// Whether they allow null, where somebody asked.
    nullables: HashMap<String, bool>,
}

/// A schema, and its place if there is something below it.
type Made = Option<(Value, Option<usize>)>;

impl<'a> Maker<'a> {
    /// The whole schema, which must be an object's.
    fn whole(&mut self) -> Option<Value> {
        let mut root = self.root.as_object()?;
        if let Some(target) = root.get("$ref").and_then(Value::as_str) {
            root = self.definition(&definition_name(target)?)?.as_object()?;
        }
        let is_object = match root.get("type") {
            Some(kind) => kind == "object" || *kind == json!(["object"]),
            None => root.contains_key("properties"),
        };
        let alternatives = ["anyOf", "oneOf", "allOf", "$ref", "enum", "const"];
        let closed = root.contains_key("properties")
            || root.get("additionalProperties") == Some(&json!(false));
        if !is_object
            || !closed
            || alternatives.iter().any(|word| root.contains_key(*word))
            || is_foreign(root)
        {
            return None;
        }
        let mut made = Map::new();
        made.insert("type".to_owned(), "object".into());
        self.object(root, 0, 1, &mut made)?;
        words::describe(root, &[], &mut made);
        Some(Value::Object(made))
    }

    fn definition(&self, name: &str) -> Option<&'a Value> {
        ["$defs", "definitions"]
            .iter()
            .find_map(|word| self.root.get(*word)?.get(name))
    }

    fn schema(&mut self, from: &'a Value, depth: usize) -> Made {
        let map = from.as_object()?;
        if depth > DEEPEST || self.nodes.len() > MOST_NODES || is_foreign(map) {
            return None;
        }
        if let Some(target) = map.get("$ref") {
            return self.reference(map, target.as_str()?);
        }
        let word = ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .find(|word| map.contains_key(*word));
        match word {
            Some(word) => self.either(map, word, depth),
            None => self.plain(map, depth),
        }
    }

    /// A reference stands alone in this dialect.
    fn reference(&mut self, map: &'a Map<String, Value>, target: &str) -> Made {
        if !map.keys().all(|word| word == "$ref" || is_note(word)) {
            return None;
        }
        let (target, place) = if target == "#" {
            ("#".to_owned(), 0)
        } else {
            let name = definition_name(target)?;
            self.definition(&name)?;
            let escaped = name.replace('~', "~0").replace('/', "~1");
            (format!("#/$defs/{escaped}"), self.place(name))
        };
        let mut made = Map::new();
        words::describe(map, &[], &mut made);
        let reference = json!({ "$ref": target });
        if made.is_empty() {
            return Some((reference, Some(place)));
        }
        made.insert("anyOf".to_owned(), json!([reference]));
        Some((Value::Object(made), Some(place)))
    }

    /// The place of a definition, which is made later.
    fn place(&mut self, name: String) -> usize {
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        let place = self.add(Node::default());
        self.places.insert(name.clone(), place);
        self.names.push(name);
        place
    }

    fn either(&mut self, map: &'a Map<String, Value>, word: &str, depth: usize) -> Made {
        let branches = map
            .get(word)?
            .as_array()
            .filter(|branches| !branches.is_empty())?;
        let beside = map.keys().all(|other| other == word || is_note(other));
        if !beside || (word == "allOf" && branches.len() > 1) {
            return None;
        }
        let mut node = Node::default();
        let mut list = Vec::with_capacity(branches.len());
        for branch in branches {
            let (made, place) = self.schema(branch, depth + 1)?;
            list.push(made);
            node.either.extend(place);
        }
        let mut made = Map::new();
        let one = (word == "oneOf" && !words::are_apart(branches))
            .then(|| "Exactly one of these.".to_owned());
        words::describe(map, one.as_slice(), &mut made);
        made.insert("anyOf".to_owned(), Value::Array(list));
        Some((Value::Object(made), Some(self.add(node))))
    }

    fn plain(&mut self, map: &'a Map<String, Value>, depth: usize) -> Made {
        let types = types(map)?;
        let mut made = Map::new();
        made.insert(
            "type".to_owned(),
            if let [one] = &*types {
                json!(one)
            } else {
                json!(types)
            },
        );
        let mut said = Vec::new();
        for (word, value) in map {
            match word.as_str() {
                "enum" | "const" => {
                    scalars(value)?;
                    made.insert(word.clone(), value.clone());
                }
                "pattern" | "format" if !words::is_supported(word, value) => {
                    said.push(words::say(word, value));
                }
                "pattern" | "format" => drop(made.insert(word.clone(), value.clone())),
                kept if KEPT.contains(&kept) => drop(made.insert(word.clone(), value.clone())),
                _ => {}
            }
        }
        let mut place = None;
        if types.contains(&"object") {
            let at = self.add(Node::default());
            self.object(map, at, depth, &mut made)?;
            place = Some(at);
        }
        if types.contains(&"array") {
            let (items, node) = self.schema(map.get("items")?, depth + 1)?;
            made.insert("items".to_owned(), items);
            let at = place.unwrap_or_else(|| self.add(Node::default()));
            if let Some(known) = self.nodes.get_mut(at) {
                known.items = node;
            }
            place = Some(at);
        }
        words::describe(map, &said, &mut made);
        Some((Value::Object(made), place))
    }

    /// An object: each property required, no others.
    fn object(
        &mut self,
        map: &'a Map<String, Value>,
        at: usize,
        depth: usize,
        made: &mut Map<String, Value>,
    ) -> Option<()> {
        let properties = match map.get("properties") {
            Some(properties) => Some(properties.as_object()?),
            None => None,
        };
        // An object of which nothing is said is a free-form one; the arguments of a tool are not.
        let is_free = properties.is_none_or(Map::is_empty) && at != 0;
        let others = map.get("additionalProperties");
        if others.map_or(is_free, |others| *others != Value::Bool(false)) {
            return None;
        }
        let required = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
        if !required
            .iter()
            .all(|name| properties.is_some_and(|known| known.contains_key(*name)))
        {
            return None;
        }
        let mut all = Map::new();
        let mut node = Node::default();
        for (name, property) in properties.into_iter().flatten() {
            let (mut value, below) = self.schema(property, depth + 1)?;
            if self.allows_null(property, depth) {
                node.keep.insert(name.clone());
            } else if !required.contains(name.as_str()) {
                value = nullable(value);
                node.drop.insert(name.clone());
            }
            node.members
                .extend(below.map(|below| (name.clone(), below)));
            all.insert(name.clone(), value);
        }
        made.insert(
            "required".to_owned(),
            all.keys().map(String::as_str).collect(),
        );
        made.insert("properties".to_owned(), Value::Object(all));
        made.insert("additionalProperties".to_owned(), Value::Bool(false));
        *self.nodes.get_mut(at)? = node;
        Some(())
    }

    fn allows_null(&mut self, schema: &'a Value, depth: usize) -> bool {
        let Some(map) = schema.as_object().filter(|_| depth <= DEEPEST) else {
            return false;
        };
        if let Some(target) = map.get("$ref").and_then(Value::as_str) {
            return definition_name(target)
                .is_some_and(|name| self.definition_allows_null(name, depth));
        }
        let words = ["anyOf", "oneOf", "allOf"];
        if let Some(branches) = words.iter().find_map(|word| map.get(*word)?.as_array()) {
            return branches
                .iter()
                .any(|branch| self.allows_null(branch, depth + 1));
        }
        let has_null = |types: &Value| match types {
            Value::Array(types) => types.iter().any(|name| name == "null"),
            name => name == "null",
        };
        let values = map.get("enum").and_then(Value::as_array);
        map.get("type").is_none_or(has_null)
            && values.is_none_or(|values| values.contains(&Value::Null))
            && map.get("const").is_none_or(Value::is_null)
    }

    /// The same of a definition, looked at once. One that leads back to itself adds nothing.
    fn definition_allows_null(&mut self, name: String, depth: usize) -> bool {
        if let Some(known) = self.nullables.get(&name) {
            return *known;
        }
        let Some(found) = self.definition(&name) else {
            return false;
        };
        self.nullables.insert(name.clone(), false);
        let allows = self.allows_null(found, depth + 1);
        self.nullables.insert(name, allows);
        allows
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// A definition's place is where its schema turned out to be.
    fn alias(&mut self, place: usize, node: Option<usize>) {
        if let Some(known) = self.nodes.get_mut(place) {
            known.either.extend(node);
        }
    }
}

/// The definition that a reference names; one to anywhere else cannot be followed.
fn definition_name(target: &str) -> Option<String> {
    let name = target
        .strip_prefix("#/$defs/")
        .or_else(|| target.strip_prefix("#/definitions/"))?;
    (!name.contains(['/', '%'])).then(|| name.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests;
