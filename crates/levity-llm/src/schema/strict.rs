//! Converts JSON Schema to the subset that OpenAI enforces: "strict mode".
//!
//! In strict mode, every property is required and no other is allowed, so an optional property
//! becomes nullable. The description states constraints that strict mode lacks. A schema that would
//! accept fewer values, such as one with a free-form map, is not converted.
//!
//! For example
//!
//! ```json
//! {"type": "object", "required": ["city"], "properties": {
//!     "city": {"type": "string", "minLength": 1}, "unit": {"type": "string"}}}
//! ```
//!
//! becomes
//!
//! ```json
//! {"type": "object", "required": ["city", "unit"], "additionalProperties": false, "properties": {
//!     "city": {"type": "string", "description": "Characters at least: 1."},
//!     "unit": {"type": ["string", "null"]}}}
//! ```

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::nulls::{Node, Shape};

mod check;
mod descriptions;
mod keywords;
mod types;

use keywords::{RETAINED, is_annotation, is_unsupported};
use types::{nullable, scalars, types};

/// A schema in strict form.
///
/// `nulls` describes the way back: arguments of the strict form are converted to those of the
/// original schema by removing these nulls.
#[derive(Debug)]
pub(crate) struct Strict {
    pub(crate) schema: Value,
    /// The positions at which null now means an omitted property, if any.
    pub(crate) nulls: Option<Shape>,
}

/// The limits on depth and size, which are larger than those of the dialect. [`check`] applies the
/// exact ones to the result.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 10_000;

/// Returns the schema in strict form, or `None` if that would change which values it accepts.
///
/// `{"type": "object", "properties": {"a": {"type": "integer"}}}` becomes an object whose required
/// property `a` has the type `["integer", "null"]`.
pub(crate) fn strict(schema: &Value) -> Option<Strict> {
    let (nodes, definition_nodes, nullables) =
        (vec![Node::default()], HashMap::new(), HashMap::new());
    let mut converter = Converter {
        root: schema,
        names: Vec::new(),
        nodes,
        definition_nodes,
        nullables,
    };
    let mut whole = converter.whole()?;
    let mut defs = Map::new();
    // Definitions that refer to others extend the list during the iteration.
    let mut at = 0;
    while let Some(name) = converter.names.get(at).cloned() {
        let node_index = converter
            .definition_nodes
            .get(&name)
            .copied()
            .filter(|_| converter.nodes.len() < MAX_NODES)?;
        let (converted, node) = converter.schema(converter.definition(&name)?, 1)?;
        converter.alias(node_index, node);
        defs.insert(name, converted);
        at += 1;
    }
    if !defs.is_empty() {
        whole
            .as_object_mut()?
            .insert("$defs".to_owned(), Value::Object(defs));
    }
    let shape = Shape {
        nodes: converter.nodes,
    };
    if !check::fits(&whole)
        || !check::are_distinguishable(&whole)
        || !check::has_unambiguous_nulls(&shape)
    {
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

/// The state of one conversion. All functions return `None` to give up on the whole schema.
struct Converter<'a> {
    root: &'a Value,
    /// The definitions that are referenced.
    names: Vec<String>,
    /// The nodes so far; the first one is the value as a whole.
    nodes: Vec<Node>,
    /// The nodes of the definitions.
    definition_nodes: HashMap<String, usize>,
    /// The known answers to whether a definition allows null.
    nullables: HashMap<String, bool>,
}

/// A converted schema, and its node if it has nested positions.
type ConvertedSchema = Option<(Value, Option<usize>)>;

impl<'a> Converter<'a> {
    /// Converts the whole schema, which must be that of an object.
    ///
    /// A reference at the top is resolved, because the dialect requires a plain object there.
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
            || is_unsupported(root)
        {
            return None;
        }
        let mut converted = Map::new();
        converted.insert("type".to_owned(), "object".into());
        self.object(root, 0, 1, &mut converted)?;
        descriptions::describe(root, &[], &mut converted);
        Some(Value::Object(converted))
    }

    /// Returns a definition by its name, from `$defs` or from the older `definitions`.
    fn definition(&self, name: &str) -> Option<&'a Value> {
        ["$defs", "definitions"]
            .iter()
            .find_map(|word| self.root.get(*word)?.get(name))
    }

    /// Converts a schema by its first combining keyword, or as a plain one.
    fn schema(&mut self, from: &'a Value, depth: usize) -> ConvertedSchema {
        let map = from.as_object()?;
        if depth > MAX_DEPTH || self.nodes.len() > MAX_NODES || is_unsupported(map) {
            return None;
        }
        if let Some(target) = map.get("$ref") {
            return self.reference(map, target.as_str()?);
        }
        let word = ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .find(|word| map.contains_key(*word));
        match word {
            Some(word) => self.alternatives(map, word, depth),
            None => self.plain(map, depth),
        }
    }

    /// Converts a reference, which must be the only keyword in this dialect.
    ///
    /// A reference with a description becomes an `anyOf` of one, because the dialect allows nothing
    /// next to `$ref`.
    fn reference(&mut self, map: &'a Map<String, Value>, target: &str) -> ConvertedSchema {
        if !map.keys().all(|word| word == "$ref" || is_annotation(word)) {
            return None;
        }
        let (target, node_index) = if target == "#" {
            ("#".to_owned(), 0)
        } else {
            let name = definition_name(target)?;
            self.definition(&name)?;
            let escaped = name.replace('~', "~0").replace('/', "~1");
            (format!("#/$defs/{escaped}"), self.node_of(name))
        };
        let mut converted = Map::new();
        descriptions::describe(map, &[], &mut converted);
        let reference = json!({ "$ref": target });
        if converted.is_empty() {
            return Some((reference, Some(node_index)));
        }
        converted.insert("anyOf".to_owned(), json!([reference]));
        Some((Value::Object(converted), Some(node_index)))
    }

    /// Returns the node of a definition, which is converted later.
    ///
    /// Definitions are converted after the schema that names them, so recursion needs no special
    /// case.
    fn node_of(&mut self, name: String) -> usize {
        if let Some(node_index) = self.definition_nodes.get(&name) {
            return *node_index;
        }
        let node_index = self.add(Node::default());
        self.definition_nodes.insert(name.clone(), node_index);
        self.names.push(name);
        node_index
    }

    /// Converts `anyOf`, `oneOf` and an `allOf` of one. A longer `allOf` cannot be expressed.
    fn alternatives(
        &mut self,
        map: &'a Map<String, Value>,
        word: &str,
        depth: usize,
    ) -> ConvertedSchema {
        let branches = map
            .get(word)?
            .as_array()
            .filter(|branches| !branches.is_empty())?;
        let only_annotations = map
            .keys()
            .all(|other| other == word || is_annotation(other));
        if !only_annotations || (word == "allOf" && branches.len() > 1) {
            return None;
        }
        let mut node = Node::default();
        let mut list = Vec::with_capacity(branches.len());
        for branch in branches {
            let (converted, node_index) = self.schema(branch, depth + 1)?;
            list.push(converted);
            node.alternatives.extend(node_index);
        }
        let mut converted = Map::new();
        let one = (word == "oneOf" && !descriptions::are_disjoint(branches))
            .then(|| "Exactly one of these.".to_owned());
        descriptions::describe(map, one.as_slice(), &mut converted);
        converted.insert("anyOf".to_owned(), Value::Array(list));
        Some((Value::Object(converted), Some(self.add(node))))
    }

    /// Converts a schema without references and alternatives. A schema without a known type is
    /// arbitrary, and cannot be enforced.
    fn plain(&mut self, map: &'a Map<String, Value>, depth: usize) -> ConvertedSchema {
        let types = types(map)?;
        let mut converted = Map::new();
        converted.insert(
            "type".to_owned(),
            if let [one] = &*types {
                json!(one)
            } else {
                json!(types)
            },
        );
        let mut notes = Vec::new();
        for (word, value) in map {
            match word.as_str() {
                "enum" | "const" => {
                    scalars(value)?;
                    converted.insert(word.clone(), value.clone());
                }
                "pattern" | "format" if !descriptions::is_supported(word, value) => {
                    notes.push(descriptions::describe_keyword(word, value));
                }
                "pattern" | "format" => drop(converted.insert(word.clone(), value.clone())),
                retained if RETAINED.contains(&retained) => {
                    drop(converted.insert(word.clone(), value.clone()));
                }
                _ => {}
            }
        }
        let mut node_index = None;
        if types.contains(&"object") {
            let at = self.add(Node::default());
            self.object(map, at, depth, &mut converted)?;
            node_index = Some(at);
        }
        if types.contains(&"array") {
            let (items, node) = self.schema(map.get("items")?, depth + 1)?;
            converted.insert("items".to_owned(), items);
            let at = node_index.unwrap_or_else(|| self.add(Node::default()));
            if let Some(known) = self.nodes.get_mut(at) {
                known.items = node;
            }
            node_index = Some(at);
        }
        descriptions::describe(map, &notes, &mut converted);
        Some((Value::Object(converted), node_index))
    }

    /// Converts an object: each property is required, and no others are allowed.
    ///
    /// A property that is optional and already nullable keeps its meaning: its null is a value, and
    /// the model can no longer omit it.
    fn object(
        &mut self,
        map: &'a Map<String, Value>,
        at: usize,
        depth: usize,
        converted: &mut Map<String, Value>,
    ) -> Option<()> {
        let properties = match map.get("properties") {
            Some(properties) => Some(properties.as_object()?),
            None => None,
        };
        // An object without any keywords is free-form, except as the arguments of a tool.
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
        converted.insert(
            "required".to_owned(),
            all.keys().map(String::as_str).collect(),
        );
        converted.insert("properties".to_owned(), Value::Object(all));
        converted.insert("additionalProperties".to_owned(), Value::Bool(false));
        *self.nodes.get_mut(at)? = node;
        Some(())
    }

    /// Returns `true` if a schema accepts `null`.
    fn allows_null(&mut self, schema: &'a Value, depth: usize) -> bool {
        let Some(map) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else {
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

    /// Returns `true` if a definition allows null, with a cached result. A recursive one adds
    /// nothing.
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

    /// Adds a node and returns its index.
    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Links the node of a definition to the node of its schema.
    fn alias(&mut self, node_index: usize, node: Option<usize>) {
        if let Some(known) = self.nodes.get_mut(node_index) {
            known.alternatives.extend(node);
        }
    }
}

/// Returns the definition that a reference names; `None` for references to other places.
///
/// Escapes of JSON pointers (`~0`, `~1`) are decoded; a percent sign is not supported.
fn definition_name(target: &str) -> Option<String> {
    let name = target
        .strip_prefix("#/$defs/")
        .or_else(|| target.strip_prefix("#/definitions/"))?;
    (!name.contains(['/', '%'])).then(|| name.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests;
