//! The fields of a chunk that are parsed.
//!
//! A long reply has many chunks, and most fields of each are missing. So chunks are filled in
//! place: code derived by `serde` would move every field several times. It also makes the parser
//! lenient: a field of an unexpected type is ignored.
//!
//! Fields are listed once in `set` of each type. To support a new field, add it to the struct and
//! to `set`; an unknown field is skipped without a copy.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::calls::{CallFragment, Function};
use super::lenient_list::LenientList;
use super::number::Number;
use super::usage::Counts;
use crate::lenient::TextOrValue;

/// A chunk of a stream, or a whole reply, which has the same fields.
#[derive(Default)]
pub(super) struct Chunk<'a> {
    pub(super) choices: Choices<'a>,
    pub(super) usage: Option<Box<Counts>>,
    pub(super) x_groq: Groq,
    pub(super) error: Option<Box<Value>>,
    pub(super) object: TextOrValue<'a>,
    pub(super) model: TextOrValue<'a>,
    pub(super) service_tier: TextOrValue<'a>,
}

/// The object in which Groq puts its counts.
#[derive(Default)]
pub(super) struct Groq {
    pub(super) usage: Option<Box<Counts>>,
}

/// One alternative reply. Streams use `delta`, whole replies `message`, and some servers both.
#[derive(Default)]
pub(super) struct Choices<'a> {
    count: usize,
    first: Choice<'a>,
    more: Vec<Choice<'a>>,
}

#[derive(Default)]
pub(super) struct Choice<'a> {
    pub(super) delta: MessageFragment<'a>,
    pub(super) message: Option<Box<MessageFragment<'a>>>,
    pub(super) finish_reason: Option<TextOrValue<'a>>,
    pub(super) index: Number,
    pub(super) error: Option<Box<Value>>,
}

/// A piece of the message, under all names that servers are known to use.
#[derive(Default)]
pub(super) struct MessageFragment<'a> {
    pub(super) content: TextOrValue<'a>,
    pub(super) reasoning_content: TextOrValue<'a>,
    pub(super) reasoning: TextOrValue<'a>,
    pub(super) refusal: TextOrValue<'a>,
    pub(super) tool_calls: LenientList<CallFragment<'a>>,
    /// A call in the oldest form of the protocol, of which a message has at most one.
    pub(super) function_call: Option<Box<Function<'a>>>,
    /// Signed reasoning of OpenRouter, which goes back unchanged.
    pub(super) reasoning_details: LenientList<Value>,
    pub(super) images: LenientList<Value>,
    pub(super) audio: Option<Box<Value>>,
    pub(super) extra_content: Option<Box<Value>>,
}

impl Choices<'_> {
    /// Returns `true` if the chunk has no choices, as a final chunk with counts.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Choices<'a> {
    /// Iterates over the choices in the order of the list.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Choice<'a>> {
        let first = (self.count > 0).then_some(&mut self.first);
        first.into_iter().chain(&mut self.more)
    }
}

impl MessageFragment<'_> {
    /// Returns `true` if the fragment has neither text nor calls. Media do not count.
    pub(super) fn is_blank(&self) -> bool {
        let texts = [
            &self.content,
            &self.reasoning_content,
            &self.reasoning,
            &self.refusal,
        ];
        texts.iter().all(|text| text.is_empty())
            && self.tool_calls.is_empty()
            && self
                .function_call
                .as_ref()
                .is_none_or(|function| function.is_blank())
    }
}

/// A type that is filled field by field.
///
/// # Contract
/// - `set` consumes exactly one value of `fields`, also for a name that it does not know.
/// - A type error inside a field must not fail the chunk: lenient types turn it into a default.
/// - `list` is called for a list in place of an object, and consumes all its items.
pub(super) trait Fields<'de>: Default {
    /// Stores the value of the field with this name, or skips it.
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error>;

    /// Handles a list in place of an object; by default it is skipped.
    fn list<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

impl<'de> Fields<'de> for Chunk<'de> {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error> {
        match name {
            "choices" => fields.next_value_seed(InPlace(&mut self.choices))?,
            "usage" => self.usage = fields.next_value()?,
            "x_groq" => fields.next_value_seed(InPlace(&mut self.x_groq))?,
            "error" => self.error = fields.next_value()?,
            "object" => self.object = fields.next_value()?,
            "model" => self.model = fields.next_value()?,
            "service_tier" => self.service_tier = fields.next_value()?,
            _ => ignore(fields)?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Groq {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error> {
        match name {
            "usage" => self.usage = fields.next_value()?,
            _ => ignore(fields)?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Choices<'de> {
    fn set<A: MapAccess<'de>>(&mut self, _: &str, fields: &mut A) -> Result<(), A::Error> {
        ignore(fields)
    }

    fn list<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        if items.next_element_seed(InPlace(&mut self.first))?.is_some() {
            self.count += 1;
        }
        while let Some(next) = items.next_element()? {
            self.count += 1;
            self.more.push(next);
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Choice<'de> {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error> {
        match name {
            "delta" => fields.next_value_seed(InPlace(&mut self.delta))?,
            "message" => self.message = fields.next_value()?,
            "finish_reason" => self.finish_reason = fields.next_value()?,
            "index" => self.index = fields.next_value()?,
            "error" => self.error = fields.next_value()?,
            _ => ignore(fields)?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for MessageFragment<'de> {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, fields: &mut A) -> Result<(), A::Error> {
        match name {
            "content" => self.content = fields.next_value()?,
            "reasoning_content" => self.reasoning_content = fields.next_value()?,
            "reasoning" => self.reasoning = fields.next_value()?,
            "refusal" => self.refusal = fields.next_value()?,
            "tool_calls" => self.tool_calls = fields.next_value()?,
            "function_call" => self.function_call = fields.next_value()?,
            "reasoning_details" => self.reasoning_details = fields.next_value()?,
            "images" => self.images = fields.next_value()?,
            "audio" => self.audio = fields.next_value()?,
            "extra_content" => self.extra_content = fields.next_value()?,
            _ => ignore(fields)?,
        }
        Ok(())
    }
}

/// Skips the value of the current field.
pub(super) fn ignore<'de, A: MapAccess<'de>>(fields: &mut A) -> Result<(), A::Error> {
    fields.next_value::<IgnoredAny>().map(drop)
}

macro_rules! in_place_deserialize {
    ($($type:ident)*) => {$(
        impl<'de> Deserialize<'de> for $type<'de> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut filled = Self::default();
                InPlace(&mut filled).deserialize(deserializer)?;
                Ok(filled)
            }
        }
    )*};
}

in_place_deserialize!(Chunk Choice MessageFragment);

/// A seed that fills an existing value in place.
///
/// Values of the wrong type (text, numbers, `null`) leave the target unchanged.
pub(super) struct InPlace<'a, T>(pub(super) &'a mut T);

impl<'de, T: Fields<'de>> DeserializeSeed<'de> for InPlace<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Fields<'de>> Visitor<'de> for InPlace<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = fields.next_key()? {
            self.0.set(&name, &mut fields)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        self.0.list(items)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

/// The name of a field.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
