//! The fields of a body, and those that the user adds to them.
//!
//! The user can extend lists and objects of the body, such as `include` and `reasoning`, without
//! knowing what levity puts into them.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::body::Body;

/// The fields of a body. The user's fields take precedence: a list is extended, an object is
/// merged, and any other value is replaced.
pub(super) struct Fields {
    body: Body,
    extra: Map<String, Value>,
}

impl Fields {
    /// Merges the fields of the endpoint with those of the request, which win.
    pub(super) fn new(endpoint: &Map<String, Value>, request: &Map<String, Value>) -> Self {
        let mut extra = endpoint.clone();
        for (name, value) in request {
            let known = extra.remove(name);
            extra.insert(
                name.clone(),
                merge(known.unwrap_or_default(), value.clone()),
            );
        }
        Self {
            body: Body::new(),
            extra,
        }
    }

    /// Adds a field, merged with the user's value for it.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        match self.take(name) {
            Some(theirs) => self.body.field(name, &merge(value, theirs)),
            None => self.body.field(name, &value),
        }
    }

    /// Adds a field if it has a value.
    pub(super) fn optional(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.put(name, json!(value));
        }
    }

    /// Adds a field whose value the closure writes, unless the user has set it.
    pub(super) fn raw(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        match self.take(name) {
            Some(theirs) => self.body.field(name, &theirs),
            None => self.body.raw(name, value),
        }
    }

    /// Removes a field that the user has set, to be written in another way.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.extra.shift_remove(name)
    }

    /// Writes the user's fields that nothing else used, and closes the body.
    pub(super) fn finish(mut self) -> Vec<u8> {
        for (name, value) in &self.extra {
            self.body.field(name, value);
        }
        self.body.finish()
    }
}

/// Combines two values; items of a list that are already present are not repeated.
fn merge(ours: Value, theirs: Value) -> Value {
    match (ours, theirs) {
        (Value::Object(mut ours), Value::Object(theirs)) => {
            ours.extend(theirs);
            Value::Object(ours)
        }
        (Value::Array(mut ours), Value::Array(theirs)) => {
            for item in theirs {
                if !ours.contains(&item) {
                    ours.push(item);
                }
            }
            Value::Array(ours)
        }
        (_, theirs) => theirs,
    }
}
