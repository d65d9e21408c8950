//! The schema of an answer, which the API holds the model to.

use serde_json::{Map, Value, json};

use crate::schema::object::{find, take_object, tell};

/// What the API puts up with: properties that may be missing, and choices between types.
const MOST_OPTIONAL: usize = 24;
const MOST_UNIONS: usize = 16;
/// Beyond these a schema is put into words.
const MOST_NODES: usize = 4_096;
const DEEPEST: usize = 64;

/// Keywords that say nothing of a value.
const NOTES: [&str; 10] = [
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// The formats of texts that the API knows.
const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "uri",
    "ipv4",
    "ipv6",
    "uuid",
];

/// The schema as the API takes it, or `None` when it cannot hold the model to it: it has free-form
/// objects, values of any kind or itself in it, or is too large.
pub(in super::super) fn output(schema: &Value) -> Option<Value> {
    let mut narrow = Narrow {
        root: schema,
        defined: Map::new(),
        path: Vec::new(),
        nodes: 0,
        optional: 0,
        unions: 0,
    };
    let mut narrowed = narrow.schema(schema, 0)?;
    if narrow.optional > MOST_OPTIONAL || narrow.unions > MOST_UNIONS {
        return None;
    }
    if let (false, Value::Object(map)) = (narrow.defined.is_empty(), &mut narrowed) {
        map.insert("$defs".to_owned(), Value::Object(narrow.defined));
    }
    Some(narrowed)
}

struct Narrow<'a> {
    root: &'a Value,
    /// Definitions that are referred to, by name.
    defined: Map<String, Value>,
    /// The references that are being followed.
    path: Vec<String>,
    nodes: usize,
    optional: usize,
    unions: usize,
}

impl Narrow<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        self.nodes += 1;
        if depth > DEEPEST || self.nodes > MOST_NODES {
            return None;
        }
        let mut map = schema.as_object()?.clone();
        map.retain(|name, _| !NOTES.contains(&name.as_str()));
        if let Some(pointer) = map.shift_remove("$ref") {
            return self.reference(pointer.as_str()?, map, depth);
        }
        if let Some(parts) = map.shift_remove("allOf") {
            let merged = self.merge(map, parts.as_array()?)?;
            return self.schema(&Value::Object(merged), depth + 1);
        }
        self.plain(map, depth)
    }

    /// A reference to a definition stays one. With words of its own beside it, it becomes what it
    /// stands for.
    fn reference(
        &mut self,
        pointer: &str,
        beside: Map<String, Value>,
        depth: usize,
    ) -> Option<Value> {
        if self.path.iter().any(|open| open == pointer) {
            return None;
        }
        let mut target = find(self.root, &pointer.into())?;
        let name = pointer.strip_prefix("#/$defs/");
        let name = name.filter(|name| beside.is_empty() && !name.contains(['/', '~', '%']));
        if let Some(name) = name.filter(|name| self.defined.contains_key(*name)) {
            return Some(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        target.extend(beside);
        self.path.push(pointer.to_owned());
        let narrowed = self.schema(&Value::Object(target), depth + 1);
        self.path.pop();
        let Some(name) = name else { return narrowed };
        self.defined.insert(name.to_owned(), narrowed?);
        Some(json!({ "$ref": format!("#/$defs/{name}") }))
    }

    /// All of several as one: objects that were closed one by one would rule each other out.
    fn merge(&self, mut map: Map<String, Value>, parts: &[Value]) -> Option<Map<String, Value>> {
        for part in parts {
            let mut part = part.as_object()?.clone();
            if let Some(pointer) = part.shift_remove("$ref") {
                part.extend(find(self.root, &pointer)?);
            }
            let mut properties = take_object(&mut map, "properties");
            for (name, value) in take_object(&mut part, "properties") {
                if properties.get(&name).is_some_and(|known| *known != value) {
                    return None;
                }
                properties.insert(name, value);
            }
            if !properties.is_empty() {
                map.insert("properties".to_owned(), properties.into());
            }
            for (name, value) in part {
                match (map.get_mut(&name), value) {
                    (Some(Value::Array(known)), Value::Array(more)) if name == "required" => {
                        known.extend(more);
                    }
                    (Some(_), _)
                        if matches!(&*name, "title" | "description" | "additionalProperties") => {}
                    (Some(known), value) if *known != value => return None,
                    (_, value) => drop(map.insert(name, value)),
                }
            }
        }
        Some(map)
    }

    fn plain(&mut self, mut map: Map<String, Value>, depth: usize) -> Option<Value> {
        let mut out = Map::new();
        let mut words = Vec::new();
        if let Some(kind) = map.shift_remove("type") {
            self.unions += usize::from(kind.is_array());
            out.insert("type".to_owned(), kind);
        }
        for name in ["anyOf", "oneOf"] {
            let Some(list) = map.shift_remove(name) else {
                continue;
            };
            if name == "oneOf" {
                words.push("exactly one of these".to_owned());
            }
            self.unions += 1;
            let list = list
                .as_array()?
                .iter()
                .map(|part| self.schema(part, depth + 1));
            let list = list.collect::<Option<Vec<_>>>()?;
            if out.insert("anyOf".to_owned(), list.into()).is_some() {
                return None;
            }
        }
        simple(&mut map, &mut out)?;
        if is_kind(&out, "object") {
            self.object(&mut map, &mut out, depth)?;
        }
        if is_kind(&out, "array") {
            self.array(&mut map, &mut out, depth)?;
        }
        string(&mut map, &mut out);
        if !["type", "anyOf", "enum", "const"]
            .iter()
            .any(|name| out.contains_key(*name))
        {
            return None;
        }
        words.extend(map.iter().map(|(name, value)| format!("{name}: {value}")));
        if !words.is_empty() {
            tell(&mut out, &format!("It must be so: {}.", words.join(", ")));
        }
        Some(Value::Object(out))
    }

    /// An object with these properties and no others.
    fn object(
        &mut self,
        map: &mut Map<String, Value>,
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        let properties = take_object(map, "properties");
        let others = map.shift_remove("additionalProperties");
        let closed = others == Some(Value::Bool(false));
        let takes_more = others.is_some_and(|others| others.is_object())
            || map.contains_key("patternProperties");
        if takes_more || (properties.is_empty() && !closed) {
            return None;
        }
        let required = map.shift_remove("required");
        let needed = required
            .as_ref()
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        self.optional += properties.len().saturating_sub(needed);
        let narrowed = properties
            .into_iter()
            .map(|(name, value)| Some((name, self.schema(&value, depth + 1)?)));
        let narrowed = narrowed.collect::<Option<Map<_, _>>>()?;
        out.insert("properties".to_owned(), narrowed.into());
        out.insert("additionalProperties".to_owned(), false.into());
        if let Some(required) = required {
            out.insert("required".to_owned(), required);
        }
        // It says the same once there are no others.
        map.shift_remove("unevaluatedProperties");
        Some(())
    }

    fn array(
        &mut self,
        map: &mut Map<String, Value>,
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        if map.contains_key("prefixItems") {
            return None;
        }
        let items = map.shift_remove("items")?;
        out.insert("items".to_owned(), self.schema(&items, depth + 1)?);
        match map.get("minItems").and_then(Value::as_u64) {
            Some(least @ (0 | 1)) => {
                map.shift_remove("minItems");
                out.insert("minItems".to_owned(), least.into());
            }
            Some(_) => drop(out.insert("minItems".to_owned(), 1.into())),
            None => {}
        }
        Some(())
    }
}

fn is_kind(out: &Map<String, Value>, kind: &str) -> bool {
    match out.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|known| known == kind),
        Some(known) => known == kind,
        None => false,
    }
}

/// What stays as it is, as long as values are no lists or objects.
fn simple(map: &mut Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
    let is_simple = |value: &Value| !value.is_array() && !value.is_object();
    for name in ["enum", "const", "title", "description", "default"] {
        let Some(value) = map.shift_remove(name) else {
            continue;
        };
        match name {
            "enum" if !value.as_array()?.iter().all(is_simple) => return None,
            "const" if !is_simple(&value) => return None,
            "default" if !is_simple(&value) => continue,
            _ => {}
        }
        out.insert(name.to_owned(), value);
    }
    Some(())
}

/// Formats and patterns that the API knows; others are left, to be put into words. A number's
/// format says how it is stored.
fn string(map: &mut Map<String, Value>, out: &mut Map<String, Value>) {
    if !is_kind(out, "string") {
        if is_kind(out, "integer") || is_kind(out, "number") {
            map.shift_remove("format");
        }
        return;
    }
    if map
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| FORMATS.contains(&format))
    {
        map.shift_remove("format")
            .map(|format| out.insert("format".to_owned(), format));
    }
    if map
        .get("pattern")
        .and_then(Value::as_str)
        .is_some_and(is_simple_pattern)
    {
        map.shift_remove("pattern")
            .map(|pattern| out.insert("pattern".to_owned(), pattern));
    }
}

/// Whether a pattern has nothing in it that looks around, looks back or repeats by number.
fn is_simple_pattern(pattern: &str) -> bool {
    let mut before = ' ';
    let mut odd = false;
    for c in pattern.chars() {
        odd |= match before {
            '\\' => {
                c.is_ascii_digit()
                    || !matches!(c.to_ascii_lowercase(), 'd' | 'w' | 's') && c.is_ascii_alphabetic()
            }
            '(' => c == '?',
            _ => c == '{',
        };
        before = if before == '\\' { ' ' } else { c };
    }
    !odd && pattern.len() <= 256
}
