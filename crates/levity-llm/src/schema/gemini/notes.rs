//! Descriptions of constraints in words.
//!
//! A constraint that the dialect lacks is still useful to the model. Each becomes a short clause,
//! and all clauses follow the description in parentheses: `A city (at least 1 character; default:
//! "Rome")`.

use serde_json::{Map, Value};

/// The maximum length of the description of one keyword.
const MAX_CLAUSE_BYTES: usize = 2_000;

/// The textual notes on a schema, in addition to its form.
pub(super) struct Notes {
    title: Option<Value>,
    description: String,
    /// The clauses in the order of their discovery, without duplicates.
    clauses: Vec<String>,
}

impl Notes {
    /// Starts with the title and the description of a schema.
    pub(super) fn new(map: &Map<String, Value>) -> Self {
        let description = map
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let title = map.get("title").filter(|title| title.is_string()).cloned();
        Self {
            title,
            description,
            clauses: Vec::new(),
        }
    }

    /// Adds a clause, without duplicates.
    ///
    /// Clauses are truncated to 2,000 bytes, because a schema may contain long examples.
    pub(super) fn add_clause(&mut self, clause: &str) {
        let mut end = clause.len().min(MAX_CLAUSE_BYTES);
        while !clause.is_char_boundary(end) {
            end -= 1;
        }
        let clause = clause.get(..end).unwrap_or_default();
        if !clause.is_empty() && !self.clauses.iter().any(|known| known == clause) {
            self.clauses.push(clause.to_owned());
        }
    }

    /// Adds a clause for each keyword that the form cannot express.
    pub(super) fn add_unsupported(&mut self, map: &Map<String, Value>) {
        for (name, value) in map {
            if let Some(clause) = clause(name, value) {
                self.add_clause(&clause);
            }
        }
    }

    /// Returns the title and the description.
    pub(super) fn into_fields(self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.extend(self.title.map(|title| ("title".to_owned(), title)));
        let joined = self.clauses.join("; ");
        let description = match (&*self.description, &*joined) {
            (text, "") => text.to_owned(),
            ("", clauses) => clauses.to_owned(),
            (text, clauses) => format!("{text} ({clauses})"),
        };
        if !description.is_empty() {
            fields.insert("description".to_owned(), description.into());
        }
        fields
    }
}

/// Adds a title or a description to a schema that may already have one.
///
/// A new title replaces the old one. Descriptions are joined, with the older one in parentheses.
pub(super) fn note(whole: &mut Map<String, Value>, name: &str, note: Value) {
    let known = whole
        .get(name)
        .and_then(Value::as_str)
        .filter(|_| name == "description");
    let joined = match (known, note.as_str()) {
        (Some(known), Some(note)) if known != note => Value::String(format!("{note} ({known})")),
        _ => note,
    };
    whole.insert(name.to_owned(), joined);
}

/// Describes a keyword that Gemini does not support. Returns `None` for a keyword that is not a
/// constraint, or that the form expresses.
fn clause(name: &str, value: &Value) -> Option<String> {
    let plural = |count: &Value| if *count == 1 { "" } else { "s" };
    Some(match name {
        "minLength" => format!("at least {value} character{}", plural(value)),
        "maxLength" => format!("at most {value} character{}", plural(value)),
        "pattern" => format!("matches the regular expression {value}"),
        "multipleOf" => format!("a multiple of {value}"),
        "uniqueItems" if *value == Value::Bool(true) => "no item twice".to_owned(),
        "minProperties" => format!("at least {value} key{}", plural(value)),
        "maxProperties" => format!("at most {value} key{}", plural(value)),
        "default" => format!("default: {value}"),
        "deprecated" if *value == Value::Bool(true) => "deprecated".to_owned(),
        "examples" | "example" => format!("for example {value}"),
        "contentEncoding" | "contentMediaType" => format!("{name}: {}", value.as_str()?),
        "also" => format!("also matches {value}"),
        "not" => format!("does not match {value}"),
        "patternProperties"
        | "propertyNames"
        | "contains"
        | "minContains"
        | "maxContains"
        | "if"
        | "then"
        | "else"
        | "dependentRequired"
        | "dependentSchemas"
        | "dependencies"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "contentSchema" => format!("{name}: {value}"),
        _ => return None,
    })
}
