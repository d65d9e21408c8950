//! The schema of an answer, which the API enforces.
//!
//! The API compiles the schema to a grammar and rejects keywords that a grammar cannot express. The
//! converter keeps what the grammar supports, moves other constraints into the `description`, and
//! gives up on schemas whose meaning would change. Callers then describe the whole schema in words.
//!
//! For example `{"type": "integer", "minimum": 1}` becomes:
//!
//! ```json
//! {"type": "integer", "description": "Constraints: minimum: 1."}
//! ```

use serde_json::{Map, Value, json};

use crate::schema::object::{append_description, find, take_object};

/// The API's limits on optional properties and on unions.
const MAX_OPTIONAL: usize = 24;
const MAX_UNIONS: usize = 16;
/// Limits beyond which a schema is described in words.
const MAX_NODES: usize = 4_096;
const MAX_DEPTH: usize = 64;

/// Keywords that do not constrain a value.
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

/// The string formats that the API supports.
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

/// Returns the schema in the form that the API accepts. Returns `None` if it cannot be enforced: it
/// has free-form objects, arbitrary values or recursion, or is too large.
pub(in super::super) fn output(schema: &Value) -> Option<Value> {
    let mut converter = Converter {
        root: schema,
        defined: Map::new(),
        path: Vec::new(),
        nodes: 0,
        optional: 0,
        unions: 0,
    };
    let mut converted = converter.schema(schema, 0)?;
    if converter.optional > MAX_OPTIONAL || converter.unions > MAX_UNIONS {
        return None;
    }
    if let (false, Value::Object(map)) = (converter.defined.is_empty(), &mut converted) {
        map.insert("$defs".to_owned(), Value::Object(converter.defined));
    }
    Some(converted)
}

/// The state of one conversion. All functions return `None` to give up on the whole schema.
struct Converter<'a> {
    root: &'a Value,
    /// The definitions that are referenced, by name.
    defined: Map<String, Value>,
    /// The references that are being followed.
    path: Vec<String>,
    /// The number of schemas that were visited, with repeated visits.
    nodes: usize,
    optional: usize,
    unions: usize,
}

impl Converter<'_> {
    /// Converts a schema after references and `allOf` are resolved. `true` and `false` are not
    /// supported.
    fn schema(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
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

    /// Converts a reference. It stays a reference, unless other keywords accompany it; then it is
    /// replaced with its target.
    ///
    /// A reference to itself, directly or through others, is recursion, which the API does not
    /// support.
    fn reference(
        &mut self,
        pointer: &str,
        siblings: Map<String, Value>,
        depth: usize,
    ) -> Option<Value> {
        if self.path.iter().any(|open| open == pointer) {
            return None;
        }
        let mut target = find(self.root, &pointer.into())?;
        let name = pointer.strip_prefix("#/$defs/");
        let name = name.filter(|name| siblings.is_empty() && !name.contains(['/', '~', '%']));
        if let Some(name) = name.filter(|name| self.defined.contains_key(*name)) {
            return Some(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        target.extend(siblings);
        self.path.push(pointer.to_owned());
        let converted = self.schema(&Value::Object(target), depth + 1);
        self.path.pop();
        let Some(name) = name else { return converted };
        self.defined.insert(name.to_owned(), converted?);
        Some(json!({ "$ref": format!("#/$defs/{name}") }))
    }

    /// Merges several schemas into one: separately closed objects would exclude each other.
    ///
    /// Returns `None` if two parts contradict each other, such as different types of one property.
    /// Titles, descriptions and `additionalProperties` of the first part win.
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

    /// Converts a schema without references. Everything that is left in `map` at the end becomes
    /// one sentence of the description: `Constraints: minimum: 0, maximum: 9.`
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
            append_description(&mut out, &format!("Constraints: {}.", words.join(", ")));
        }
        Some(Value::Object(out))
    }

    /// Converts an object with these properties and no others.
    ///
    /// An object that accepts unlisted properties of a certain type, or any properties, cannot be
    /// enforced. `additionalProperties: true` next to listed properties is narrowed to the listed
    /// ones.
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
        let converted = properties
            .into_iter()
            .map(|(name, value)| Some((name, self.schema(&value, depth + 1)?)));
        let converted = converted.collect::<Option<Map<_, _>>>()?;
        out.insert("properties".to_owned(), converted.into());
        out.insert("additionalProperties".to_owned(), false.into());
        if let Some(required) = required {
            out.insert("required".to_owned(), required);
        }
        // The keyword is redundant without other properties.
        map.shift_remove("unevaluatedProperties");
        Some(())
    }

    /// Converts a list. The API enforces a minimum of 0 or 1 items; a larger minimum is enforced as
    /// 1 and described in words as well.
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

/// Returns `true` if a converted schema allows this type.
fn is_kind(out: &Map<String, Value>, kind: &str) -> bool {
    match out.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|known| known == kind),
        Some(known) => known == kind,
        None => false,
    }
}

/// Copies keywords that stay unchanged, if their values are neither lists nor objects.
///
/// Returns `None` for `enum` and `const` with lists or objects. A `default` of such a value is
/// dropped, because it constrains nothing.
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

/// Copies formats and patterns that the API supports; others remain and are described in words. The
/// format of a number only states its storage.
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

/// Returns `true` if a pattern has no lookaround, back references or counted repetitions.
///
/// Patterns longer than 256 bytes count as too complex. `^[a-z]+$` is simple; `^.{3}$`, `(?=a)` and
/// `\bword` are not.
fn is_simple_pattern(pattern: &str) -> bool {
    let mut before = ' ';
    let mut unsupported = false;
    for c in pattern.chars() {
        unsupported |= match before {
            '\\' => {
                c.is_ascii_digit()
                    || !matches!(c.to_ascii_lowercase(), 'd' | 'w' | 's') && c.is_ascii_alphabetic()
            }
            '(' => c == '?',
            _ => c == '{',
        };
        before = if before == '\\' { ' ' } else { c };
    }
    !unsupported && pattern.len() <= 256
}
