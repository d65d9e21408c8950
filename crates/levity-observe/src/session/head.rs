//! Reads the first attributes of a session file without parsing the rest.
//!
//! A listing of 100 sessions must not parse 100 files of up to 64 MiB. levity writes the attributes
//! that a listing needs first, and the visitor stops with an error on purpose once it has them. A
//! file with another order is read up to `graph`, which is slower and gives the same result.

use std::cell::RefCell;
use std::fmt;
use std::io::{BufReader, Read as _};
use std::path::Path;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::disk;
use super::error::SessionProblem;
use super::read::json_problem;

/// The attributes at the beginning of a session file.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) session_id: Option<String>,
    pub(super) original_query: Option<String>,
    pub(super) created_at: Option<String>,
    pub(super) status: Option<String>,
}

/// The maximum number of characters of a text.
const MAX_TEXT_CHARS: usize = 500;

impl Head {
    /// Reads a file until all attributes are known, and skips everything before them.
    pub(super) fn read(path: &Path, max_bytes: u64) -> Result<Self, SessionProblem> {
        let file = BufReader::with_capacity(1 << 13, disk::open(path)?).take(max_bytes);
        let head = RefCell::new(Self::default());
        let mut json = serde_json::Deserializer::from_reader(file);
        let read = json.deserialize_map(FileVisitor(&head));
        let head = head.into_inner();
        match read {
            // The visitor stops with an error on purpose once it has all attributes.
            Err(_) if head.is_complete() => Ok(head),
            Err(error) => Err(json_problem(&error)),
            Ok(()) => Ok(head),
        }
    }

    fn is_complete(&self) -> bool {
        self.session_id.is_some()
            && self.original_query.is_some()
            && self.created_at.is_some()
            && self.status.is_some()
    }

    fn set(&mut self, name: &str, text: &str) {
        let text = text.chars().take(MAX_TEXT_CHARS).collect();
        match name {
            "session_id" => self.session_id = Some(text),
            "original_query" => self.original_query = Some(text),
            "created_at" => self.created_at = Some(text),
            _ => self.status = Some(text),
        }
    }
}

/// Visits the top level of the file, of which only `graph` is read.
struct FileVisitor<'a>(&'a RefCell<Head>);

impl<'de> Visitor<'de> for FileVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a session")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "graph" {
                map.next_value_seed(GraphAttributes(self.0))?;
                return Err(de::Error::custom("known"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

struct GraphAttributes<'a>(&'a RefCell<Head>);

impl<'de> DeserializeSeed<'de> for GraphAttributes<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for GraphAttributes<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attributes of a graph")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "session_id" | "original_query" | "created_at" | "status" => {
                    let text = map.next_value::<Text>()?;
                    self.0.borrow_mut().set(&name, &text.0);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if self.0.borrow().is_complete() {
                return Err(de::Error::custom("known"));
            }
        }
        // Files of other programs may lack some attributes.
        let head = &mut *self.0.borrow_mut();
        for text in [
            &mut head.session_id,
            &mut head.original_query,
            &mut head.created_at,
            &mut head.status,
        ] {
            text.get_or_insert_default();
        }
        Ok(())
    }
}

/// A string, or an empty one for any other value.
struct Text(String);

impl<'de> de::Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        Ok(Self(value.as_str().unwrap_or_default().to_owned()))
    }
}
