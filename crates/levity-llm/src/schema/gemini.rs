//! Converts JSON Schema for Gemini's `parametersJsonSchema` and `responseJsonSchema`.
//!
//! Gemini supports types, enums of strings and numbers, the parts of objects and lists, `anyOf`,
//! and bounds of numbers and lists. References are replaced with their targets, because Gemini
//! accepts them only in some places. The `description` states every other constraint, so that none
//! is lost.
//!
//! For example a reference with a constraint that Gemini lacks
//!
//! ```json
//! {"$ref": "#/$defs/City", "$defs": {"City": {"type": "string", "minLength": 1}}}
//! ```
//!
//! becomes
//!
//! ```json
//! {"type": "string", "description": "at least 1 character"}
//! ```

use serde_json::{Map, Value, json};

use forms::{allowed, types, united};
use notes::Notes;

mod combine;
mod forms;
mod notes;

/// The maximum number of schemas in one, after references are resolved.
const MAX_SCHEMAS: usize = 2_000;
/// The maximum nesting of schemas.
const MAX_DEPTH: usize = 48;

/// Returns an equivalent schema in Gemini's dialect.
///
/// At most 2,000 schemas are converted, nested at most 48 levels deep. A schema beyond that is
/// replaced with a note, so the result stays valid and finite.
pub(crate) fn convert(schema: &Value) -> Value {
    Converter {
        root: schema,
        open: Vec::new(),
        remaining: MAX_SCHEMAS,
    }
    .schema(schema)
}

/// Returns the schema of a function's arguments, or `None` if it has none.
///
/// A function with free-form arguments has a schema without properties. The type is always
/// `object`, unless there are alternatives.
pub(crate) fn parameters(schema: &Value) -> Option<Value> {
    let mut converted = convert(schema);
    let map = converted.as_object_mut()?;
    let has = |name: &str| {
        map.get(name)
            .and_then(Value::as_object)
            .is_some_and(|inner| !inner.is_empty())
    };
    let is_free = |name: &str| {
        schema
            .get(name)
            .is_some_and(|open| *open != Value::Bool(false))
    };
    let is_free = is_free("additionalProperties") || is_free("patternProperties");
    if !has("properties") && !is_free && !map.contains_key("anyOf") {
        return None;
    }
    if !map.contains_key("anyOf") {
        map.insert("type".to_owned(), json!("object"));
    }
    Some(converted)
}

type Object = Map<String, Value>;

/// The state of one conversion. It never fails: what cannot be expressed becomes words.
struct Converter<'a> {
    root: &'a Value,
    /// The references that are being followed.
    open: Vec<String>,
    remaining: usize,
}

impl Converter<'_> {
    /// Converts a schema by its first keyword of `$ref`, `allOf`, `anyOf` and `oneOf`, or as a
    /// plain one.
    fn schema(&mut self, schema: &Value) -> Value {
        let Value::Object(map) = schema else {
            let nothing = *schema == Value::Bool(false);
            return if nothing {
                json!({"description": "no value is allowed here"})
            } else {
                json!({})
            };
        };
        if self.remaining == 0 || self.open.len() > MAX_DEPTH {
            return too_large();
        }
        self.remaining -= 1;
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, map);
        }
        if let Some(Value::Array(all)) = map.get("allOf") {
            return self.all_of(all, map);
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(Value::Array(any)) = map.get(name).filter(|any| any.is_array()) {
                return self.any_of(name, any, map);
            }
        }
        self.plain(map)
    }

    /// Replaces a reference with its target. A recursive reference is only named.
    ///
    /// Recursion cannot be expanded, so the schema there has the type of the target and a note such
    /// as "of the same shape as `Node`".
    fn reference(&mut self, reference: &str, map: &Object) -> Value {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let target = reference
            .strip_prefix('#')
            .and_then(|path| self.root.pointer(path))
            .cloned();
        let mut siblings = map.clone();
        siblings.shift_remove("$ref");
        if self.open.iter().any(|open| open == reference) || target.is_none() {
            let kind = target
                .as_ref()
                .and_then(|target| target.get("type"))
                .filter(|kind| kind.is_string());
            if let Some(kind) = kind {
                siblings.entry("type").or_insert_with(|| kind.clone());
            }
            let name = if name.is_empty() || name == "#" {
                "the whole"
            } else {
                name
            };
            return self.plain_with(&siblings, &format!("of the same shape as `{name}`"));
        }
        self.open.push(reference.to_owned());
        let whole = match target {
            Some(Value::Object(target)) => Value::Object(combine::both(target, siblings)),
            other => other.unwrap_or_default(),
        };
        let converted = self.schema(&whole);
        self.open.pop();
        converted
    }

    /// Combines all schemas of the list with the surrounding keywords, and converts the result.
    fn all_of(&mut self, all: &[Value], map: &Object) -> Value {
        let mut whole = map.clone();
        whole.shift_remove("allOf");
        for (n, schema) in all.iter().enumerate() {
            // A reference must be resolved before it can be combined.
            let target = schema.get("$ref").and_then(Value::as_str);
            let target = target.filter(|target| !self.open.iter().any(|open| open == target));
            let found = target.and_then(|target| self.root.pointer(target.strip_prefix('#')?));
            match (found.unwrap_or(schema), n) {
                (Value::Object(found), _) if self.remaining > 0 => {
                    self.remaining -= 1;
                    whole = combine::both(found.clone(), whole);
                }
                _ => {}
            }
        }
        self.nested("allOf", &Value::Object(whole))
    }

    /// Merges the surrounding keywords into each alternative, because Gemini accepts none next to
    /// `anyOf`.
    ///
    /// Title and description stay outside, because they concern all alternatives.
    fn any_of(&mut self, name: &str, any: &[Value], map: &Object) -> Value {
        let mut around = map.clone();
        for name in [name, "$defs", "definitions", "$schema", "$id", "$comment"] {
            around.shift_remove(name);
        }
        let notes: Object = ["description", "title"]
            .iter()
            .filter_map(|note| Some(((*note).to_owned(), around.shift_remove(*note)?)))
            .collect();
        let mut forms = Vec::new();
        for form in any {
            if self.remaining == 0 {
                forms.push(too_large());
                break;
            }
            let whole = match form {
                Value::Object(form) if !around.is_empty() => {
                    Value::Object(combine::both(form.clone(), around.clone()))
                }
                other => other.clone(),
            };
            forms.push(self.nested(name, &whole));
        }
        united(forms, notes)
    }

    /// Converts a nested schema, with a limit on the depth.
    fn nested(&mut self, step: &str, schema: &Value) -> Value {
        self.open.push(format!("({step})"));
        let converted = self.schema(schema);
        self.open.pop();
        converted
    }

    /// Converts a schema without references and alternatives.
    fn plain(&mut self, map: &Object) -> Value {
        self.plain_with(map, "")
    }

    /// Converts a schema without references and alternatives.
    ///
    /// `note` is added to the description. Several types become alternatives, of which `null` is
    /// the last.
    fn plain_with(&mut self, map: &Object, note: &str) -> Value {
        let mut notes = Notes::new(map);
        notes.add_clause(note);
        let types = types(map);
        let (types, values) = allowed(map, types, &mut notes);
        let mut forms = Vec::new();
        for kind in types
            .iter()
            .filter(|kind| types.len() == 1 || **kind != "null")
        {
            let mut form = Object::new();
            form.insert("type".to_owned(), json!(kind));
            self.keywords(kind, map, &mut form, &mut notes);
            if let Some(values) = values.as_ref().filter(|_| kind != "null") {
                form.insert("enum".to_owned(), json!(values));
            }
            forms.push(Value::Object(form));
        }
        if types.is_empty() {
            let mut form = Object::new();
            self.keywords("", map, &mut form, &mut notes);
            forms.push(Value::Object(form));
        } else if types.len() > 1 && types.iter().any(|kind| kind == "null") {
            forms.push(json!({"type": "null"}));
        }
        notes.add_unsupported(map);
        united(forms, notes.into_fields())
    }

    /// Converts the keywords for a type, or all keywords if the type is unknown.
    fn keywords(&mut self, kind: &str, map: &Object, form: &mut Object, notes: &mut Notes) {
        let of = |kinds: &[&str]| kind.is_empty() || kinds.contains(&kind);
        if of(&["object"]) {
            self.object(map, form, notes);
        }
        if of(&["array"]) {
            self.list(kind, map, form, notes);
        }
        if of(&["integer", "number"]) {
            number(kind, map, form, notes);
        }
        if let Some(format) = map.get("format").and_then(Value::as_str) {
            let known: &[&str] = match kind {
                "string" => &["date-time", "date", "time", "enum"],
                "integer" => &["int32", "int64"],
                "number" => &["float", "double"],
                _ => &[],
            };
            if known.contains(&format) {
                form.insert("format".to_owned(), json!(format));
            } else if of(&["string", "integer", "number"]) {
                notes.add_clause(&format!("format: {format}"));
            }
        }
    }

    /// Converts the keywords of an object.
    fn object(&mut self, map: &Object, form: &mut Object, notes: &mut Notes) {
        let known = map.get("properties").and_then(Value::as_object);
        if let Some(known) = known {
            let converted: Object = known
                .iter()
                .map(|(name, schema)| (name.clone(), self.nested("of", schema)))
                .collect();
            form.insert("properties".to_owned(), Value::Object(converted));
        }
        let required = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let (named, unnamed): (Vec<&Value>, Vec<&Value>) =
            required.filter(|name| name.is_string()).partition(|name| {
                known
                    .is_some_and(|known| name.as_str().is_some_and(|name| known.contains_key(name)))
            });
        if !named.is_empty() {
            form.insert("required".to_owned(), json!(named));
        }
        // Gemini rejects names here that are not among the properties.
        for name in unnamed {
            notes.add_clause(&format!("{name} is required"));
        }
        match map.get("additionalProperties") {
            Some(Value::Bool(open)) => {
                form.insert("additionalProperties".to_owned(), json!(open));
            }
            Some(schema @ Value::Object(inner)) if !inner.is_empty() => {
                let converted = self.nested("of", schema);
                form.insert("additionalProperties".to_owned(), converted);
            }
            _ => {}
        }
        if let Some(order) = map.get("propertyOrdering").filter(|order| order.is_array()) {
            form.insert("propertyOrdering".to_owned(), order.clone());
        }
    }

    /// Converts the keywords of a list. Gemini requires `items`, so a list without them accepts
    /// anything.
    fn list(&mut self, kind: &str, map: &Object, form: &mut Object, notes: &mut Notes) {
        let first = map
            .get("prefixItems")
            .or_else(|| map.get("items").filter(|items| items.is_array()));
        if let Some(Value::Array(first)) = first {
            let converted: Vec<Value> = first
                .iter()
                .map(|schema| self.nested("of", schema))
                .collect();
            form.insert("prefixItems".to_owned(), Value::Array(converted));
        }
        let more = map
            .get("items")
            .filter(|items| !items.is_array())
            .or_else(|| map.get("additionalItems"));
        match more {
            Some(Value::Bool(false)) => notes.add_clause("no more items than named"),
            Some(schema) => {
                form.insert("items".to_owned(), self.nested("of", schema));
            }
            None if kind == "array" && !form.contains_key("prefixItems") => {
                form.insert("items".to_owned(), json!({}));
            }
            None => {}
        }
        for name in ["minItems", "maxItems"] {
            if let Some(bound) = map.get(name).filter(|bound| bound.is_u64()) {
                form.insert(name.to_owned(), bound.clone());
            }
        }
    }
}

/// Creates the note that replaces schemas beyond the limits.
fn too_large() -> Value {
    json!({"description": "not all of this schema is shown: it is too large"})
}

/// Converts bounds. Both forms of an exclusive bound are supported: a number, and `true` of older
/// drafts.
fn number(kind: &str, map: &Object, form: &mut Object, notes: &mut Notes) {
    for (name, exclusive, step, than) in [
        ("minimum", "exclusiveMinimum", 1, "greater than"),
        ("maximum", "exclusiveMaximum", -1, "less than"),
    ] {
        let bound = map.get(name).filter(|bound| bound.is_number());
        if let Some(bound) = bound {
            form.insert(name.to_owned(), bound.clone());
        }
        match map.get(exclusive) {
            // For integers, an exclusive bound becomes the next integer.
            Some(Value::Number(limit)) => {
                match limit.as_i64().and_then(|limit| limit.checked_add(step)) {
                    Some(next) if kind == "integer" && bound.is_none() => {
                        form.insert(name.to_owned(), json!(next));
                    }
                    _ => notes.add_clause(&format!("{than} {limit}")),
                }
            }
            Some(Value::Bool(true)) => {
                if let Some(bound) = bound {
                    notes.add_clause(&format!("{than} {bound}"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
