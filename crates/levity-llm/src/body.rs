//! Writes JSON request bodies directly to bytes.
//!
//! A conversation of 100,000 tokens would be built as a tree of values and then printed for every
//! turn. Here each message is JSON bytes already, and a body is a concatenation of them.

use levity_core::History;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::http::WireRequest;

/// The initial capacity for small values, which avoids repeated growth.
pub(crate) const INITIAL_CAPACITY: usize = 512;

/// A JSON object that is written field by field.
///
/// Names are written in the order of the calls. Duplicates are the caller's responsibility, except
/// for those of [`over`](Self::over).
pub(crate) struct Body {
    bytes: Vec<u8>,
    /// Fields that are already present and must not be written again.
    present: Vec<String>,
}

impl Body {
    /// Creates a body without fields.
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
        bytes.push(b'{');
        Self {
            bytes,
            present: Vec::new(),
        }
    }

    /// Creates a body that starts with the user's extra fields. Later fields with the same name are
    /// skipped.
    pub(crate) fn over(extra: &Map<String, Value>) -> Self {
        let mut body = Self::new();
        extra
            .iter()
            .for_each(|(name, value)| body.field(name, value));
        body.present = extra.keys().cloned().collect();
        body
    }

    /// Reserves capacity for a conversation.
    ///
    /// One allocation suffices then in most cases: the size of the texts plus 128 bytes for each
    /// message.
    pub(crate) fn reserve(&mut self, history: &History) {
        self.bytes
            .reserve(2 * INITIAL_CAPACITY + history.size() + history.len() * INITIAL_CAPACITY / 4);
    }

    /// Adds a field to the object.
    pub(crate) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.raw(name, |bytes| write(bytes, value));
    }

    /// Adds a field if it has a value.
    #[allow(dead_code, reason = "only some providers need it")]
    pub(crate) fn optional(&mut self, name: &str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// Adds a field whose value the closure writes.
    ///
    /// The closure must write exactly one JSON value. It is not called if the user has set the
    /// field.
    pub(crate) fn raw(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if self.present.iter().any(|present| present == name) {
            return;
        }
        if self.bytes.len() > 1 {
            self.bytes.push(b',');
        }
        write(&mut self.bytes, name);
        self.bytes.push(b':');
        value(&mut self.bytes);
    }

    /// Closes the object and returns its bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'}');
        self.bytes
    }
}

/// Returns the user's extra fields: those of the request, and those of the endpoint that the
/// request does not override.
///
/// Whole fields are replaced, not merged.
pub(crate) fn extra(wire_request: WireRequest<'_>) -> Map<String, Value> {
    let mut extra = wire_request.endpoint.extra().clone();
    extra.extend(wire_request.request.options.extra.clone());
    extra
}

/// Writes a value as JSON. A value that JSON cannot represent becomes `null`.
pub(crate) fn write(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = bytes.len();
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(start);
        bytes.extend_from_slice(b"null");
    }
}

/// Returns a text in the escaped form of a JSON string, without quotes.
///
/// The text `a"b` becomes `a\"b`. Streaming decoders use it to wrap free text in a JSON string
/// piece by piece.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted
        .get(1..quoted.len() - 1)
        .unwrap_or_default()
        .to_owned()
}

/// Writes a list whose items the closure writes, each as zero or more items separated by commas.
pub(crate) fn list(bytes: &mut Vec<u8>, items: impl FnOnce(&mut List<'_>)) {
    bytes.push(b'[');
    items(&mut List { bytes, first: true });
    bytes.push(b']');
}

/// A JSON list that is being written, with commas between its items.
pub(crate) struct List<'a> {
    bytes: &'a mut Vec<u8>,
    first: bool,
}

impl List<'_> {
    /// Adds items that are already JSON.
    ///
    /// Empty bytes add no item and no comma.
    pub(crate) fn add(&mut self, json: &[u8]) {
        if json.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.first, false) {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(json);
    }

    /// Adds an item to the list.
    pub(crate) fn item(&mut self, value: &(impl Serialize + ?Sized)) {
        if !std::mem::replace(&mut self.first, false) {
            self.bytes.push(b',');
        }
        write(self.bytes, value);
    }
}
