//! YAML and JSON as values that know their lines.
//!
//! The parser below hands out events; what they add up to is built here, so that depth and size are
//! bounded whatever aliases say, and every value can be named by its line.

use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// How deep lists and maps may stand in each other.
const MAX_DEPTH: usize = 16;
/// What a document may weigh: a byte of text weighs 1, a value [`WEIGHT`].
const MAX_WEIGHT: usize = 2 << 20;
const WEIGHT: usize = 16;

/// A value and the line it begins on, where that is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: Option<usize>,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) line: Option<usize>,
    pub(super) text: String,
}

/// What is wrong with a text, and on which line.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    pub(super) line: Option<usize>,
    pub(super) problem: String,
}

impl Wrong {
    pub(super) fn new(line: Option<usize>, problem: impl Into<String>) -> Self {
        Self {
            line,
            problem: problem.into(),
        }
    }
}

impl Value {
    /// What it is, for messages.
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

/// Reads a YAML document.
pub(super) fn yaml(text: &str) -> Result<Node, Wrong> {
    let mut build = Build::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            Wrong::new(
                Some(error.marker().line()),
                format!("it is no YAML: {}", error.info()),
            )
        })?;
        build.take(event, span)?;
    }
    Ok(build.root.unwrap_or(Node {
        line: None,
        value: Value::Null,
    }))
}

/// Reads a JSON document; its values do not know their lines.
pub(super) fn json(text: &str) -> Result<Node, Wrong> {
    serde_json::from_str(text).map_err(|error| {
        Wrong::new(
            Some(error.line()),
            format!("it is no JSON: {}", without_place(&error)),
        )
    })
}

/// What the reader of JSON says, without where: that is told apart.
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

/// Reads a value of JSON: unlike a map of values, it sees keys that are there twice.
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

/// Puts values together from events.
#[derive(Default)]
struct Build {
    /// What is open: lists and maps, with their anchors.
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    weight: usize,
    root: Option<Node>,
    ended: bool,
}

struct Open {
    anchor: usize,
    line: usize,
    /// How many levels stand below it.
    depth: usize,
    weight: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map(Vec<(Key, Node)>, Option<Key>),
}

/// A value that may be referred to.
struct Anchored {
    node: Node,
    depth: usize,
    weight: usize,
}

impl Build {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Wrong> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(_) if self.ended => Err(Wrong::new(
                Some(line),
                "there is a second document in the file; keep one",
            )),
            Event::DocumentEnd => {
                self.ended = true;
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref())
                    .map_err(|problem| Wrong::new(Some(line), problem))?;
                let weight = WEIGHT + text.len();
                self.weigh(weight, line)?;
                self.close(
                    anchor,
                    Anchored {
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
            Event::SequenceStart(anchor, _) => self.enter(anchor, line, Inside::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.enter(anchor, line, Inside::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, anchor: usize, line: usize, inside: Inside) -> Result<(), Wrong> {
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

    fn leave(&mut self) -> Result<(), Wrong> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.inside {
            Inside::List(list) => Value::List(list),
            Inside::Map(map, _) => Value::Map(map),
        };
        let node = Node {
            line: Some(open.line),
            value,
        };
        self.close(
            open.anchor,
            Anchored {
                node,
                depth: open.depth + 1,
                weight: open.weight,
            },
        )
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), Wrong> {
        // Before it is copied: that is what an alias bomb is after.
        self.weigh(
            self.anchors.get(&anchor).map_or(0, |found| found.weight),
            line,
        )?;
        let Some(found) = self.anchors.get(&anchor) else {
            return Err(Wrong::new(
                Some(line),
                "a value refers to itself; write it out",
            ));
        };
        let copy = Anchored {
            node: found.node.clone(),
            ..*found
        };
        self.close(0, copy)
    }

    fn weigh(&mut self, weight: usize, line: usize) -> Result<(), Wrong> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT {
            let problem = "with all aliases written out it is too large; use fewer of them";
            return Err(Wrong::new(Some(line), problem));
        }
        Ok(())
    }

    /// Puts a whole value where it belongs.
    fn close(&mut self, anchor: usize, whole: Anchored) -> Result<(), Wrong> {
        if self.open.len() + whole.depth > MAX_DEPTH {
            return Err(too_deep(whole.node.line.unwrap_or_default()));
        }
        if anchor != 0 {
            let copy = Anchored {
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

impl Inside {
    fn add(&mut self, node: Node) -> Result<(), Wrong> {
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

fn key_of(node: Node, map: &[(Key, Node)]) -> Result<Key, Wrong> {
    let text = match node.value {
        Value::Text(text) => text,
        other => {
            let problem = format!(
                "a key is {}; use a text, in quotes if need be",
                other.kind()
            );
            return Err(Wrong::new(node.line, problem));
        }
    };
    if map.iter().any(|(key, _)| key.text == text) {
        let problem = format!(
            "the key `{}` is there twice; keep one",
            levity_dag::__private::short(&text)
        );
        return Err(Wrong::new(node.line, problem));
    }
    Ok(Key {
        line: node.line,
        text,
    })
}

fn too_deep(line: usize) -> Wrong {
    Wrong::new(
        Some(line),
        format!("values stand in each other deeper than {MAX_DEPTH} levels; make it flatter"),
    )
}

/// What a scalar means, by the core schema of YAML 1.2.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => {
            return Ok(Value::Text(text.to_owned()));
        }
        Some(_) => return Err("a tag (`!..`) is not understood here; leave it out".to_owned()),
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

fn number(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
