//! Constraints in words.

use serde_json::{Map, Value};

/// The longest words for one keyword.
const LONGEST: usize = 2_000;

/// What is said of a schema beside its form.
pub(super) struct Words {
    title: Option<Value>,
    description: String,
    said: Vec<String>,
}

impl Words {
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
            said: Vec::new(),
        }
    }

    /// Adds a clause, once.
    pub(super) fn say(&mut self, clause: &str) {
        let mut end = clause.len().min(LONGEST);
        while !clause.is_char_boundary(end) {
            end -= 1;
        }
        let clause = clause.get(..end).unwrap_or_default();
        if !clause.is_empty() && !self.said.iter().any(|said| said == clause) {
            self.said.push(clause.to_owned());
        }
    }

    /// Adds what no form can hold.
    pub(super) fn rest(&mut self, map: &Map<String, Value>) {
        for (name, value) in map {
            if let Some(clause) = clause(name, value) {
                self.say(&clause);
            }
        }
    }

    /// Title and description.
    pub(super) fn notes(self) -> Map<String, Value> {
        let mut notes = Map::new();
        notes.extend(self.title.map(|title| ("title".to_owned(), title)));
        let said = self.said.join("; ");
        let description = match (&*self.description, &*said) {
            (text, "") => text.to_owned(),
            ("", said) => said.to_owned(),
            (text, said) => format!("{text} ({said})"),
        };
        if !description.is_empty() {
            notes.insert("description".to_owned(), description.into());
        }
        notes
    }
}

/// Puts a title or a description on a schema that may have one already.
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

/// A keyword that Gemini does not know, in words. What is no constraint, or has its place in a
/// form, is left out.
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
