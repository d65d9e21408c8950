//! What the code that `#[tool]` writes needs; not for use by hand.

use serde_json::Value;

use crate::{ToolError, ToolErrorKind};

pub use async_trait::async_trait;
pub use {inventory, schemars, serde, serde_json};

/// Reads the arguments of a call.
pub fn arguments<T: serde::de::DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    // Some models send `null` for no arguments.
    let args = if args.is_null() { Value::Object(serde_json::Map::new()) } else { args };
    serde_json::from_value(args).map_err(|error| {
        ToolError::new(ToolErrorKind::InvalidArgs, "the arguments could not be read").with_source(error)
    })
}

/// The schema of a type, as a tool's schema.
pub fn schema<T: schemars::JsonSchema>() -> Value {
    let mut schema: Value = schemars::SchemaGenerator::default().into_root_schema_for::<T>().into();
    if let Some(schema) = schema.as_object_mut() {
        // They say nothing that the model could use: a dialect, and the name of a private type.
        schema.shift_remove("$schema");
        schema.shift_remove("title");
    }
    schema
}
