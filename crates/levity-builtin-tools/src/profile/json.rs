//! The shape of JSON values, without their content.
//!
//! A text is read once, as a stream: no value is stored, only types, keys and counts. Depth, keys
//! and elements are limited, so a hostile file costs no more than a friendly one. Shapes of list
//! elements are merged, and a key that is missing in some elements still appears.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, Serialize};

use super::text;

/// The maximum depth that is inspected.
const MAX_DEPTH: u32 = 4;
/// The maximum number of keys of one object, and of all objects together.
const MAX_KEYS: usize = 50;
const MAX_TOTAL_KEYS: usize = 500;
/// The number of list elements that are inspected.
const MAX_ELEMENTS: u64 = 100;

/// The shape of a JSON value, or the merged shape of the elements of a list.
///
/// Its `Display` is a compact notation for a prompt.
///
/// ```
/// use levity_builtin_tools::profile::{FileProfile, Structure};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("user.json");
/// std::fs::write(&path, r#"{"id": 1, "tags": ["a", "b"]}"#)?;
/// let Some(Structure::Json { shape, .. }) = FileProfile::read(&path).structure else {
///     unreachable!("the file is JSON");
/// };
/// assert_eq!(shape.to_string(), r#"{"id": number, "tags": list of 2 x string}"#);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Shape {
    /// The types that occurred.
    pub types: Vec<JsonType>,
    /// The keys of objects and the shapes of their values: at most 50 here, and 500 in all levels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(String, Shape)>,
    /// The number of times that a key occurred which is not in `keys`.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_keys: u64,
    /// The number of elements in the longest list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<u64>,
    /// The merged shape of the first 100 elements of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "of")]
    pub element: Option<Box<Shape>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The type of a JSON value.
///
/// ```
/// use levity_builtin_tools::profile::{FileProfile, JsonType, Structure};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("mixed.json");
/// std::fs::write(&path, r#"[1, "two", null]"#)?;
/// let Some(Structure::Json { shape, .. }) = FileProfile::read(&path).structure else {
///     unreachable!("the file is JSON");
/// };
/// let element = shape.element.expect("a list has elements");
/// assert_eq!(element.types, [JsonType::Number, JsonType::String, JsonType::Null]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JsonType {
    /// The value `null`, and no other.
    Null,
    /// The value `true` or `false`.
    Boolean,
    /// A number of any kind.
    Number,
    /// A string of any length.
    String,
    /// A list of values.
    List,
    /// An object with keys.
    Object,
    /// A value that is too deeply nested to be inspected.
    #[serde(rename = "deeper")]
    TooDeep,
}

impl Shape {
    /// Adds a JSON text to the shape. After an error, the shape contains the values before it.
    pub(super) fn read(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let mut from = serde_json::Deserializer::from_str(text);
        // Only the first levels recurse; deeper levels are skipped without recursion.
        let mut remaining = MAX_TOTAL_KEYS.saturating_sub(self.count());
        ShapeVisitor {
            into: self,
            depth: 0,
            remaining: &mut remaining,
        }
        .deserialize(&mut from)?;
        from.end()
    }

    /// Types are kept in the order of their first occurrence.
    fn add_type(&mut self, kind: JsonType) {
        if !self.types.contains(&kind) {
            self.types.push(kind);
        }
    }

    /// Returns the number of keys in all levels, which the inspected depth limits.
    fn count(&self) -> usize {
        let below = self.element.as_ref().map_or(0, |of| of.count());
        self.keys
            .iter()
            .map(|(_, shape)| 1 + shape.count())
            .sum::<usize>()
            + below
    }

    /// Returns the shape for a key, or `None` if the limits allow no further key. Names are cut to
    /// 80 bytes.
    fn key(&mut self, name: &str, remaining: &mut usize) -> Option<&mut Self> {
        let name = text::cut(name, 80);
        match self.keys.iter().position(|(known, _)| *known == name) {
            Some(at) => Some(&mut self.keys[at].1),
            None if self.keys.len() < MAX_KEYS && *remaining > 0 => {
                *remaining -= 1;
                self.keys.push((name, Self::default()));
                self.keys.last_mut().map(|(_, shape)| shape)
            }
            None => {
                self.more_keys += 1;
                None
            }
        }
    }

    /// Writes one type; several types of a shape are joined by `or`.
    fn write(&self, f: &mut fmt::Formatter<'_>, kind: JsonType) -> fmt::Result {
        match kind {
            JsonType::Null => f.write_str("null"),
            JsonType::Boolean => f.write_str("boolean"),
            JsonType::Number => f.write_str("number"),
            JsonType::String => f.write_str("string"),
            JsonType::TooDeep => f.write_str(".."),
            JsonType::List => match &self.element {
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

/// A visitor that adds one value to a shape.
struct ShapeVisitor<'a> {
    into: &'a mut Shape,
    depth: u32,
    /// The number of keys that may still be added.
    remaining: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for ShapeVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        if self.depth >= MAX_DEPTH {
            self.into.add_type(JsonType::TooDeep);
            return IgnoredAny::deserialize(from).map(|_| ());
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.into.add_type(JsonType::Null);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.into.add_type(JsonType::Boolean);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.into.add_type(JsonType::Number);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.into.add_type(JsonType::Number);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.into.add_type(JsonType::Number);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.into.add_type(JsonType::String);
        Ok(())
    }

    /// Elements beyond the first 100 are counted and skipped.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.into.add_type(JsonType::List);
        let mut count = 0;
        let longest = self.into.elements.unwrap_or_default();
        let of = self.into.element.get_or_insert_default();
        loop {
            let has_element = match count < MAX_ELEMENTS {
                true => list
                    .next_element_seed(ShapeVisitor {
                        into: of,
                        depth: self.depth + 1,
                        remaining: self.remaining,
                    })?
                    .is_some(),
                false => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !has_element {
                return Ok(());
            }
            count += 1;
            self.into.elements = Some(longest.max(count));
        }
    }

    /// Values of keys beyond the limits are skipped without inspection.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.into.add_type(JsonType::Object);
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.into.key(&name, self.remaining) {
                Some(shape) => {
                    map.next_value_seed(ShapeVisitor {
                        into: shape,
                        depth: self.depth + 1,
                        remaining: self.remaining,
                    })?;
                }
                None => map.next_value::<IgnoredAny>().map(|_| ())?,
            }
        }
        Ok(())
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<(), E> {
        Err(E::custom("bytes are not JSON"))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(D::Error::custom("a wrapper is not JSON"))
    }
}
