use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::{ToolError, ToolErrorKind};

/// Deserializes all arguments of a call into one value.
pub fn arguments<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    let object = object(args)?;
    serde_json::from_value(Value::Object(object))
        .map_err(|error| invalid("the arguments could not be read").with_source(error))
}

/// The arguments of a call, deserialized one by one.
///
/// It works like a derived struct, without a struct and its derives for each tool. So there is less
/// to compile, and messages name the argument. The user's module gets no variables that clash with
/// a tool of the same name.
#[derive(Debug)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// Creates the arguments from an object without unknown keys.
    pub fn read(args: Value, known: &[&str]) -> Result<Self, ToolError> {
        let object = object(args)?;
        match object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(invalid(format!(
                "unknown argument `{key}`; there {}",
                list(known)
            ))),
            None => Ok(Self(object)),
        }
    }

    /// Returns the argument, which may be absent only if its type is an `Option`.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ToolError> {
        match self.0.remove(name) {
            Some(value) => read(name, value),
            None => absent().ok_or_else(|| invalid(format!("`{name}` is missing"))),
        }
    }

    /// Returns the argument, or the default if it is absent.
    pub fn take_or<T: DeserializeOwned>(
        &mut self,
        name: &str,
        default: fn() -> T,
    ) -> Result<T, ToolError> {
        self.0
            .remove(name)
            .map_or_else(|| Ok(default()), |value| read(name, value))
    }
}

/// Returns the value of an absent argument, if its type has one.
pub(super) fn absent<T: DeserializeOwned>() -> Option<T> {
    T::deserialize(Absent).ok()
}

fn object(args: Value) -> Result<Map<String, Value>, ToolError> {
    match args {
        Value::Object(object) => Ok(object),
        // Some models send `null` for no arguments.
        Value::Null => Ok(Map::new()),
        _ => Err(invalid("the arguments are not an object")),
    }
}

fn read<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, ToolError> {
    serde_json::from_value(value)
        .map_err(|error| invalid(format!("`{name}` could not be read")).with_source(error))
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArgs, message)
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "are none".to_owned(),
        [name] => format!("is only `{name}`"),
        names => format!("are `{}`", names.join("`, `")),
    }
}

/// A deserializer of an absent value: `None` for an `Option` under any alias, and an error for
/// every other type.
struct Absent;

impl<'de> Deserializer<'de> for Absent {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("absent"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_none()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
