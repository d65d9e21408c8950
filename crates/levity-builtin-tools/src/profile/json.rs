//! What JSON looks like, without keeping what it says.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, Serialize};

use super::text;

/// How deep it is looked into.
const DEPTH: u32 = 4;
/// How many keys of an object are told, and how many of all objects together.
const KEYS: usize = 50;
const ALL_KEYS: usize = 500;
/// How many elements of a list are looked into.
const LOOKED_AT: u64 = 100;

/// What JSON values look like, several of them at once if they are elements of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Shape {
    /// The types that were met.
    pub types: Vec<JsonType>,
    /// The keys of objects and what they hold, at most 50, and 500 in all that lies below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(String, Shape)>,
    /// How many times a key was met that is not told.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_keys: u64,
    /// How many elements lists have, the longest counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<u64>,
    /// What the first 100 elements of lists look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Box<Shape>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JsonType {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number.
    Number,
    /// A text.
    String,
    /// A list.
    List,
    /// An object.
    Object,
    /// Something that lies too deep to be looked at.
    Deeper,
}

impl Shape {
    /// Looks at a JSON text. What was seen before an error stays.
    pub(super) fn read(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let mut from = serde_json::Deserializer::from_str(text);
        // Only the first levels recurse; what lies deeper is passed over without.
        let mut left = ALL_KEYS.saturating_sub(self.count());
        Look {
            into: self,
            depth: 0,
            left: &mut left,
        }
        .deserialize(&mut from)?;
        from.end()
    }

    fn met(&mut self, kind: JsonType) {
        if !self.types.contains(&kind) {
            self.types.push(kind);
        }
    }

    /// How many keys there are in all; never deeper than a value is looked into.
    fn count(&self) -> usize {
        let below = self.of.as_ref().map_or(0, |of| of.count());
        self.keys
            .iter()
            .map(|(_, shape)| 1 + shape.count())
            .sum::<usize>()
            + below
    }

    fn key(&mut self, name: &str, left: &mut usize) -> Option<&mut Self> {
        let name = text::cut(name, 80);
        match self.keys.iter().position(|(known, _)| *known == name) {
            Some(at) => Some(&mut self.keys[at].1),
            None if self.keys.len() < KEYS && *left > 0 => {
                *left -= 1;
                self.keys.push((name, Self::default()));
                self.keys.last_mut().map(|(_, shape)| shape)
            }
            None => {
                self.more_keys += 1;
                None
            }
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, kind: JsonType) -> fmt::Result {
        match kind {
            JsonType::Null => f.write_str("null"),
            JsonType::Boolean => f.write_str("boolean"),
            JsonType::Number => f.write_str("number"),
            JsonType::String => f.write_str("string"),
            JsonType::Deeper => f.write_str(".."),
            JsonType::List => match &self.of {
                Some(of) if !of.types.is_empty() => {
                    write!(f, "list of {} x {of}", self.elements.unwrap_or_default())
                }
                _ => f.write_str("empty list"),
            },
            JsonType::Object => {
                f.write_str("{")?;
                for (at, (name, shape)) in self.keys.iter().enumerate() {
                    write!(f, "{}{name:?}: {shape}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(if self.more_keys > 0 { ", ..}" } else { "}" })
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, kind) in self.types.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " or " })?;
            self.write(f, *kind)?;
        }
        Ok(())
    }
}

/// Looks at one value.
struct Look<'a> {
    into: &'a mut Shape,
    depth: u32,
    /// How many more keys are told.
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        if self.depth >= DEPTH {
            self.into.met(JsonType::Deeper);
            return IgnoredAny::deserialize(from).map(|_| ());
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.into.met(JsonType::Null);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.into.met(JsonType::Boolean);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.into.met(JsonType::Number);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.into.met(JsonType::Number);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.into.met(JsonType::Number);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.into.met(JsonType::String);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.into.met(JsonType::List);
        let mut count = 0;
        let longest = self.into.elements.unwrap_or_default();
        let of = self.into.of.get_or_insert_default();
        loop {
            let there = match count < LOOKED_AT {
                true => list
                    .next_element_seed(Look {
                        into: of,
                        depth: self.depth + 1,
                        left: self.left,
                    })?
                    .is_some(),
                false => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !there {
                return Ok(());
            }
            count += 1;
            self.into.elements = Some(longest.max(count));
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.into.met(JsonType::Object);
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.into.key(&name, self.left) {
                Some(shape) => {
                    map.next_value_seed(Look {
                        into: shape,
                        depth: self.depth + 1,
                        left: self.left,
                    })?;
                }
                None => map.next_value::<IgnoredAny>().map(|_| ())?,
            }
        }
        Ok(())
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<(), E> {
        Err(E::custom("bytes are no JSON"))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(D::Error::custom("a wrapper is no JSON"))
    }
}
