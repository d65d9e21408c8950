//! YAML and JSON values with their line numbers.
//!
//! The parser emits events, and this module builds values from them. Depth and size are thus
//! limited whatever the aliases are, and errors can name the line of each value.

use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The maximum nesting of lists and maps.
const MAX_DEPTH: usize = 16;
/// The maximum weight of a document: a byte of text weighs 1, a value [`WEIGHT`].
const MAX_WEIGHT: usize = 2 << 20;
const WEIGHT: usize = 16;

/// A value and the line on which it begins, if known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: Option<usize>,
    pub(super) value: Value,
}

/// Numbers are floating point; settings that need whole numbers check that themselves.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key is always a text, so `true:` and `1:` are errors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) line: Option<usize>,
    pub(super) text: String,
}

/// A problem in a text, and its line.
#[derive(Debug, PartialEq)]
pub(super) struct ConfigError {
    pub(super) line: Option<usize>,
    pub(super) problem: String,
}

impl ConfigError {
    pub(super) fn new(line: Option<usize>, problem: impl Into<String>) -> Self {
        Self {
            line,
            problem: problem.into(),
        }
    }
}

impl Value {
    /// Returns the kind of the value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Parses a YAML document.
///
/// An empty document is null. Errors of the parser keep their line.
pub(super) fn yaml(text: &str) -> Result<Node, ConfigError> {
    let mut build = NodeBuilder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            ConfigError::new(
                Some(error.marker().line()),
                format!(
                    "column {}: invalid YAML: {}",
                    error.marker().col() + 1,
                    error.info()
                ),
            )
        })?;
        build.take(event, span)?;
    }
    Ok(build.root.unwrap_or(Node {
        line: None,
        value: Value::Null,
    }))
}

/// Converts a YAML document to JSON, with the limits of this module.
///
/// # Errors
/// The text is not YAML, or a value is too large or too deep. The error names the line.
pub fn yaml_to_json(text: &str) -> Result<serde_json::Value, String> {
    yaml(text)
        .map(Node::into_json)
        .map_err(|error| match error.line {
            Some(line) => format!("line {line}: {}", error.problem),
            None => error.problem,
        })
}

impl Node {
    fn into_json(self) -> serde_json::Value {
        match self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => value.into(),
            // Whole numbers stay whole, because settings such as ports do not accept `80.0`.
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                (number as i64).into()
            }
            Value::Number(number) => number.into(),
            Value::Text(text) => text.into(),
            Value::List(items) => items.into_iter().map(Self::into_json).collect(),
            Value::Map(fields) => fields
                .into_iter()
                .map(|(key, value)| (key.text, value.into_json()))
                .collect(),
        }
    }
}

/// Parses a JSON document; its values have no line numbers.
pub(super) fn json(text: &str) -> Result<Node, ConfigError> {
    serde_json::from_str(text).map_err(|error| {
        ConfigError::new(
            Some(error.line()),
            format!(
                "column {}: invalid JSON: {}",
                error.column(),
                without_place(&error)
            ),
        )
    })
}

/// Returns the message of a JSON error without its position, which is reported separately.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ")
        .map_or(text.clone(), |(what, _)| what.to_owned())
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonNode)
    }
}

/// A visitor for JSON values, which detects duplicate keys.
struct JsonNode;

impl JsonNode {
    fn node<E>(value: Value) -> Result<Node, E> {
        Ok(Node { line: None, value })
    }
}

impl<'de> Visitor<'de> for JsonNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Self::node(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Self::node(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Self::node(Value::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Self::node(Value::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Self::node(Value::Number(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Self::node(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = seq.next_element()? {
            list.push(node);
        }
        Self::node(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let mut map: Vec<(Key, Node)> = Vec::new();
        while let Some(text) = from.next_key::<String>()? {
            let key = key_of(
                Node {
                    line: None,
                    value: Value::Text(text),
                },
                &map,
            )
            .map_err(|wrong| A::Error::custom(wrong.problem))?;
            map.push((key, from.next_value()?));
        }
        Self::node(Value::Map(map))
    }
}

/// A builder of values from parser events.
///
/// Values are added to their parent when they are complete, so an alias to an enclosing value is
/// never found, and a cycle is an error.
#[derive(Default)]
struct NodeBuilder {
    /// The open lists and maps, with their anchors.
    open: Vec<Open>,
    anchors: HashMap<usize, AnchoredNode>,
    weight: usize,
    root: Option<Node>,
    ended: bool,
}

/// A list or map that has not ended yet.
struct Open {
    anchor: usize,
    line: usize,
    /// The number of levels below it.
    depth: usize,
    weight: usize,
    inside: OpenContent,
}

enum OpenContent {
    List(Vec<Node>),
    Map(Vec<(Key, Node)>, Option<Key>),
}

/// A value that an alias may reference.
///
/// The weight includes all aliases inside, as if they were written out.
struct AnchoredNode {
    node: Node,
    depth: usize,
    weight: usize,
}

impl NodeBuilder {
    /// Handles one event of the parser.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), ConfigError> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(_) if self.ended => Err(ConfigError::new(
                Some(line),
                "the file contains a second document; keep one",
            )),
            Event::DocumentEnd => {
                self.ended = true;
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref())
                    .map_err(|problem| ConfigError::new(Some(line), problem))?;
                let weight = WEIGHT + text.len();
                self.weigh(weight, line)?;
                self.close(
                    anchor,
                    AnchoredNode {
                        node: Node {
                            line: Some(line),
                            value,
                        },
                        depth: 0,
                        weight,
                    },
                )
            }
            Event::Alias(anchor) => self.alias(anchor, line),
            Event::SequenceStart(anchor, _) => {
                self.enter(anchor, line, OpenContent::List(Vec::new()))
            }
            Event::MappingStart(anchor, _) => {
                self.enter(anchor, line, OpenContent::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            _ => Ok(()),
        }
    }

    fn enter(
        &mut self,
        anchor: usize,
        line: usize,
        inside: OpenContent,
    ) -> Result<(), ConfigError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(line));
        }
        self.weigh(WEIGHT, line)?;
        self.open.push(Open {
            anchor,
            line,
            depth: 0,
            weight: WEIGHT,
            inside,
        });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ConfigError> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.inside {
            OpenContent::List(list) => Value::List(list),
            OpenContent::Map(map, _) => Value::Map(map),
        };
        let node = Node {
            line: Some(open.line),
            value,
        };
        self.close(
            open.anchor,
            AnchoredNode {
                node,
                depth: open.depth + 1,
                weight: open.weight,
            },
        )
    }

    /// Inserts a copy of the value. The line of the copy is that of the original.
    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), ConfigError> {
        // The weight is checked before the copy, because an alias bomb relies on copies.
        self.weigh(
            self.anchors.get(&anchor).map_or(0, |found| found.weight),
            line,
        )?;
        let Some(found) = self.anchors.get(&anchor) else {
            return Err(ConfigError::new(
                Some(line),
                "a value references itself; write it out",
            ));
        };
        let copy = AnchoredNode {
            node: found.node.clone(),
            ..*found
        };
        self.close(0, copy)
    }

    /// # Errors
    /// Fails beyond [`MAX_WEIGHT`], which a chain of aliases reaches long before it fills the
    /// memory.
    fn weigh(&mut self, weight: usize, line: usize) -> Result<(), ConfigError> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT {
            let problem = "with all aliases written out it is too large; use fewer of them";
            return Err(ConfigError::new(Some(line), problem));
        }
        Ok(())
    }

    /// Adds a complete value to its parent.
    fn close(&mut self, anchor: usize, whole: AnchoredNode) -> Result<(), ConfigError> {
        if self.open.len() + whole.depth > MAX_DEPTH {
            return Err(too_deep(whole.node.line.unwrap_or_default()));
        }
        if anchor != 0 {
            let copy = AnchoredNode {
                node: whole.node.clone(),
                ..whole
            };
            self.anchors.insert(anchor, copy);
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(whole.node);
            return Ok(());
        };
        open.depth = open.depth.max(whole.depth);
        open.weight += whole.weight;
        open.inside.add(whole.node)
    }
}

impl OpenContent {
    fn add(&mut self, node: Node) -> Result<(), ConfigError> {
        match self {
            Self::List(list) => list.push(node),
            Self::Map(map, key) => match key.take() {
                Some(key) => map.push((key, node)),
                None => *key = Some(key_of(node, map)?),
            },
        }
        Ok(())
    }
}

/// # Errors
/// Fails if the key is not a text, or occurs twice in the map.
fn key_of(node: Node, map: &[(Key, Node)]) -> Result<Key, ConfigError> {
    let text = match node.value {
        Value::Text(text) => text,
        other => {
            let problem = format!(
                "a key is {}; use a text, in quotes if need be",
                other.kind()
            );
            return Err(ConfigError::new(node.line, problem));
        }
    };
    if map.iter().any(|(key, _)| key.text == text) {
        let problem = format!(
            "the key `{}` occurs twice; keep one",
            levity_dag::__private::short(&text)
        );
        return Err(ConfigError::new(node.line, problem));
    }
    Ok(Key {
        line: node.line,
        text,
    })
}

fn too_deep(line: usize) -> ConfigError {
    ConfigError::new(
        Some(line),
        format!("values are nested deeper than {MAX_DEPTH} levels; flatten them"),
    )
}

/// Returns the meaning of a scalar in the core schema of YAML 1.2.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => {
            return Ok(Value::Text(text.to_owned()));
        }
        Some(_) => return Err("a tag (`!..`) is not supported here; remove it".to_owned()),
        None => {}
    }
    if style != ScalarStyle::Plain {
        return Ok(Value::Text(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::Text(text.to_owned()), Value::Number),
    })
}

/// Special forms of YAML such as `0x1F`, `.inf` and `1_000` are texts here.
fn number(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
