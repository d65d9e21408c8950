//! JSON Schema as Gemini takes it, in `parametersJsonSchema` and `responseJsonSchema`.
//!
//! Gemini knows types, enums of strings and numbers, the parts of objects and lists, `anyOf`, and
//! bounds of numbers and lists. References are put in place, since it takes them only here and
//! there. What it does not know is said in the `description`, so that no constraint is lost on the
//! way.

use serde_json::{Map, Value, json};

use forms::{allowed, types, united};
use words::Words;

mod combine;
mod forms;
mod words;

/// How many schemas there may be in one, once references are in place.
const MOST: usize = 2_000;
/// How deep they may be nested.
const DEEPEST: usize = 48;

/// A schema that says the same in Gemini's words.
pub(crate) fn narrow(schema: &Value) -> Value {
    Narrow {
        root: schema,
        open: Vec::new(),
        left: MOST,
    }
    .schema(schema)
}

/// The schema of a function's arguments, or nothing where it takes none.
pub(crate) fn parameters(schema: &Value) -> Option<Value> {
    let mut narrow = narrow(schema);
    let map = narrow.as_object_mut()?;
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
    Some(narrow)
}

type Object = Map<String, Value>;

struct Narrow<'a> {
    root: &'a Value,
    /// The references that are being followed.
    open: Vec<String>,
    left: usize,
}

impl Narrow<'_> {
    fn schema(&mut self, schema: &Value) -> Value {
        let Value::Object(map) = schema else {
            let nothing = *schema == Value::Bool(false);
            return if nothing {
                json!({"description": "no value is allowed here"})
            } else {
                json!({})
            };
        };
        if self.left == 0 || self.open.len() > DEEPEST {
            return too_large();
        }
        self.left -= 1;
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

    /// Puts what is referred to in place. A schema within itself is only named.
    fn reference(&mut self, reference: &str, map: &Object) -> Value {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let target = reference
            .strip_prefix('#')
            .and_then(|path| self.root.pointer(path))
            .cloned();
        let mut beside = map.clone();
        beside.shift_remove("$ref");
        if self.open.iter().any(|open| open == reference) || target.is_none() {
            let kind = target
                .as_ref()
                .and_then(|target| target.get("type"))
                .filter(|kind| kind.is_string());
            if let Some(kind) = kind {
                beside.entry("type").or_insert_with(|| kind.clone());
            }
            let name = if name.is_empty() || name == "#" {
                "the whole"
            } else {
                name
            };
            return self.plain_with(&beside, &format!("of the same shape as `{name}`"));
        }
        self.open.push(reference.to_owned());
        let whole = match target {
            Some(Value::Object(target)) => Value::Object(combine::both(target, beside)),
            other => other.unwrap_or_default(),
        };
        let narrow = self.schema(&whole);
        self.open.pop();
        narrow
    }

    fn all_of(&mut self, all: &[Value], map: &Object) -> Value {
        let mut whole = map.clone();
        whole.shift_remove("allOf");
        for (n, schema) in all.iter().enumerate() {
            // What a reference stands for is needed to combine it.
            let target = schema.get("$ref").and_then(Value::as_str);
            let target = target.filter(|target| !self.open.iter().any(|open| open == target));
            let found = target.and_then(|target| self.root.pointer(target.strip_prefix('#')?));
            match (found.unwrap_or(schema), n) {
                (Value::Object(found), _) if self.left > 0 => {
                    self.left -= 1;
                    whole = combine::both(found.clone(), whole);
                }
                _ => {}
            }
        }
        self.nested("allOf", &Value::Object(whole))
    }

    /// Each form with what stands around all of them, since Gemini takes nothing beside `anyOf`.
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
            if self.left == 0 {
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

    /// One step deeper, so that no schema is followed without end.
    fn nested(&mut self, step: &str, schema: &Value) -> Value {
        self.open.push(format!("({step})"));
        let narrow = self.schema(schema);
        self.open.pop();
        narrow
    }

    fn plain(&mut self, map: &Object) -> Value {
        self.plain_with(map, "")
    }

    /// A schema without references and forms.
    fn plain_with(&mut self, map: &Object, note: &str) -> Value {
        let mut words = Words::new(map);
        words.say(note);
        let types = types(map);
        let (types, values) = allowed(map, types, &mut words);
        let mut forms = Vec::new();
        for kind in types
            .iter()
            .filter(|kind| types.len() == 1 || **kind != "null")
        {
            let mut form = Object::new();
            form.insert("type".to_owned(), json!(kind));
            self.keywords(kind, map, &mut form, &mut words);
            if let Some(values) = values.as_ref().filter(|_| kind != "null") {
                form.insert("enum".to_owned(), json!(values));
            }
            forms.push(Value::Object(form));
        }
        if types.is_empty() {
            let mut form = Object::new();
            self.keywords("", map, &mut form, &mut words);
            forms.push(Value::Object(form));
        } else if types.len() > 1 && types.iter().any(|kind| kind == "null") {
            forms.push(json!({"type": "null"}));
        }
        words.rest(map);
        united(forms, words.notes())
    }

    /// The keywords that say something of a type; of all when it is not known.
    fn keywords(&mut self, kind: &str, map: &Object, form: &mut Object, words: &mut Words) {
        let of = |kinds: &[&str]| kind.is_empty() || kinds.contains(&kind);
        if of(&["object"]) {
            self.object(map, form, words);
        }
        if of(&["array"]) {
            self.list(kind, map, form, words);
        }
        if of(&["integer", "number"]) {
            number(kind, map, form, words);
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
                words.say(&format!("format: {format}"));
            }
        }
    }

    fn object(&mut self, map: &Object, form: &mut Object, words: &mut Words) {
        let known = map.get("properties").and_then(Value::as_object);
        if let Some(known) = known {
            let narrow: Object = known
                .iter()
                .map(|(name, schema)| (name.clone(), self.nested("of", schema)))
                .collect();
            form.insert("properties".to_owned(), Value::Object(narrow));
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
        // Gemini refuses names here that are not among the properties.
        for name in unnamed {
            words.say(&format!("{name} is required"));
        }
        match map.get("additionalProperties") {
            Some(Value::Bool(open)) => {
                form.insert("additionalProperties".to_owned(), json!(open));
            }
            Some(schema @ Value::Object(inner)) if !inner.is_empty() => {
                let narrow = self.nested("of", schema);
                form.insert("additionalProperties".to_owned(), narrow);
            }
            _ => {}
        }
        if let Some(order) = map.get("propertyOrdering").filter(|order| order.is_array()) {
            form.insert("propertyOrdering".to_owned(), order.clone());
        }
    }

    fn list(&mut self, kind: &str, map: &Object, form: &mut Object, words: &mut Words) {
        let first = map
            .get("prefixItems")
            .or_else(|| map.get("items").filter(|items| items.is_array()));
        if let Some(Value::Array(first)) = first {
            let narrow: Vec<Value> = first
                .iter()
                .map(|schema| self.nested("of", schema))
                .collect();
            form.insert("prefixItems".to_owned(), Value::Array(narrow));
        }
        let more = map
            .get("items")
            .filter(|items| !items.is_array())
            .or_else(|| map.get("additionalItems"));
        match more {
            Some(Value::Bool(false)) => words.say("no more items than named"),
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

fn too_large() -> Value {
    json!({"description": "not all of this schema is shown: it is too large"})
}

fn number(kind: &str, map: &Object, form: &mut Object, words: &mut Words) {
    for (name, exclusive, step, than) in [
        ("minimum", "exclusiveMinimum", 1, "greater than"),
        ("maximum", "exclusiveMaximum", -1, "less than"),
    ] {
        let bound = map.get(name).filter(|bound| bound.is_number());
        if let Some(bound) = bound {
            form.insert(name.to_owned(), bound.clone());
        }
        match map.get(exclusive) {
            // Whole numbers beyond a bound begin at the next one.
            Some(Value::Number(limit)) => {
                match limit.as_i64().and_then(|limit| limit.checked_add(step)) {
                    Some(next) if kind == "integer" && bound.is_none() => {
                        form.insert(name.to_owned(), json!(next));
                    }
                    _ => words.say(&format!("{than} {limit}")),
                }
            }
            Some(Value::Bool(true)) => {
                if let Some(bound) = bound {
                    words.say(&format!("{than} {bound}"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
