use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::arguments::absent;

/// Returns the schema of a type in a form for models.
pub fn schema<T: JsonSchema>() -> Value {
    let mut schema = generator().into_root_schema_for::<T>();
    // The name of a type has no information for the model.
    schema.remove("title");
    finish(schema)
}

/// Returns the schema of a type that holds all arguments of a tool.
pub fn input_schema<T: JsonSchema>() -> Value {
    let mut schema = schema::<T>();
    if let Some(object) = schema.as_object_mut() {
        // Providers require both; schemars omits them if they are implied.
        let kind = object.entry("type").or_insert_with(|| json!("object"));
        if kind == "object" {
            object.entry("properties").or_insert_with(|| json!({}));
        }
    }
    schema
}

/// The schema of arguments that are deserialized one by one.
#[derive(Debug)]
pub struct Fields {
    generator: SchemaGenerator,
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl Fields {
    /// Creates a schema without arguments.
    #[expect(
        clippy::new_without_default,
        reason = "only generated code creates one"
    )]
    pub fn new() -> Self {
        Self {
            generator: generator(),
            properties: Map::new(),
            required: Vec::new(),
        }
    }

    /// Adds an argument, which may be absent only if its type is an `Option`.
    #[must_use]
    pub fn field<T>(mut self, name: &'static str, description: Option<&str>) -> Self
    where
        T: JsonSchema + DeserializeOwned,
    {
        if absent::<T>().is_none() {
            self.required.push(name);
        }
        self.field_or::<T>(name, description, None)
    }

    /// Adds an argument that may be absent, with its default if that can be shown.
    #[must_use]
    pub fn field_or<T>(
        mut self,
        name: &'static str,
        description: Option<&str>,
        default: Option<Value>,
    ) -> Self
    where
        T: JsonSchema,
    {
        let mut schema = self.generator.subschema_for::<T>();
        if let Some(text) = description {
            schema.insert("description".to_owned(), json!(text));
        }
        if let Some(value) = default {
            schema.insert("default".to_owned(), value);
        }
        self.properties.insert(name.to_owned(), schema.into());
        self
    }

    /// Returns the schema: an object with these properties and no others.
    pub fn into_schema(mut self) -> Value {
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("object"));
        object.insert("properties".to_owned(), Value::Object(self.properties));
        if !self.required.is_empty() {
            object.insert("required".to_owned(), json!(self.required));
        }
        object.insert("additionalProperties".to_owned(), json!(false));
        let definitions = self.generator.take_definitions(true);
        if !definitions.is_empty() {
            object.insert("$defs".to_owned(), Value::Object(definitions));
        }
        finish(object.into())
    }
}

/// Inlines references, which models follow less well; only recursive types keep theirs.
fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::default().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator()
}

fn finish(mut schema: Schema) -> Value {
    RecursiveTransform(strip_number_format).transform(&mut schema);
    schema.into()
}

/// Removes formats such as `double` and `uint32`, which are not in JSON Schema and which some
/// providers reject.
fn strip_number_format(schema: &mut Schema) {
    let is_number = |kind: &Value| kind == "number" || kind == "integer";
    let numeric = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_number),
        Some(kind) => is_number(kind),
        None => false,
    };
    if numeric {
        schema.remove("format");
    }
}
