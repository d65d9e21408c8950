//! Lenient fields for servers that deviate from the protocol. Unescaped text is borrowed.
//!
//! A reply of 10,000 tokens has about as many chunks with a dozen fields each. Text without escapes
//! therefore stays in the buffer of the network read, and a value of another type is an exception
//! that costs an allocation.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A text, or another value in its place. A missing field and `null` are an empty text.
///
/// `"abc"` is `Text`, `null` is an empty `Text`, and `{"a": 1}`, `5` and `[..]` are `Other`.
#[derive(Debug)]
pub(crate) enum TextOrValue<'a> {
    /// The text, borrowed unless it contains escapes.
    Text(Cow<'a, str>),
    /// Boxed, because it is rare and chunks of a reply are moved often.
    Other(Box<Value>),
}

impl Default for TextOrValue<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

impl TextOrValue<'_> {
    /// Returns the text, or an empty text for another value.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Other(_) => "",
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextOrValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

/// The visitor that accepts every type of JSON value.
struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = TextOrValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(TextOrValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(TextOrValue::Text(Cow::Owned(text)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(TextOrValue::default())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(TextOrValue::Other(Box::new(value.into())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(TextOrValue::Other(Box::new(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(TextOrValue::Other(Box::new(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(TextOrValue::Other(Box::new(value.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(items))
            .map(|value| TextOrValue::Other(Box::new(value)))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(fields))
            .map(|value| TextOrValue::Other(Box::new(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_borrowed_and_other_values_are_accepted() {
        let read =
            |json: &'static str| serde_json::from_str::<TextOrValue<'_>>(json).unwrap_or_default();
        assert!(matches!(
            read("\"plain\""),
            TextOrValue::Text(Cow::Borrowed("plain"))
        ));
        assert_eq!(read("\"a\\nb\"").as_str(), "a\nb");
        assert_eq!(read("null").as_str(), "");
        for other in ["[1,{\"a\":[]}]", "{\"a\":null}", "true", "-1", "1", "0.5"] {
            let TextOrValue::Other(value) = read(other) else {
                panic!("{other} is not a text")
            };
            assert_eq!(value.to_string(), other);
        }
    }
}
