//! JSON bodies that are written once.

use levity_core::History;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::http::Asked;

/// Room for what is mostly small, so that it need not grow time and again.
pub(crate) const ROOM: usize = 512;

/// An object, field by field.
pub(crate) struct Body {
    bytes: Vec<u8>,
    /// Fields that stand already, and are not written again.
    taken: Vec<String>,
}

impl Body {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(ROOM);
        bytes.push(b'{');
        Self {
            bytes,
            taken: Vec::new(),
        }
    }

    /// A body that begins with fields of the user's own. A field that is added later under the same
    /// name is left out.
    pub(crate) fn over(extra: &Map<String, Value>) -> Self {
        let mut body = Self::new();
        extra
            .iter()
            .for_each(|(name, value)| body.field(name, value));
        body.taken = extra.keys().cloned().collect();
        body
    }

    /// Makes room for what a conversation takes.
    pub(crate) fn reserve(&mut self, history: &History) {
        self.bytes
            .reserve(2 * ROOM + history.size() + history.len() * ROOM / 4);
    }

    /// Adds a field.
    pub(crate) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.raw(name, |bytes| write(bytes, value));
    }

    /// Adds a field, if there is a value.
    #[allow(dead_code, reason = "only some providers need it")]
    pub(crate) fn optional(&mut self, name: &str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// Adds a field whose value is written by hand.
    pub(crate) fn raw(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if self.taken.iter().any(|taken| taken == name) {
            return;
        }
        if self.bytes.len() > 1 {
            self.bytes.push(b',');
        }
        write(&mut self.bytes, name);
        self.bytes.push(b':');
        value(&mut self.bytes);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'}');
        self.bytes
    }
}

/// Fields of the user's own: the request's, and the endpoint's where the request has none of that
/// name.
pub(crate) fn extra(asked: Asked<'_>) -> Map<String, Value> {
    let mut extra = asked.endpoint.extra().clone();
    extra.extend(asked.request.options.extra.clone());
    extra
}

/// Writes a value as JSON. What cannot be JSON at all becomes `null`.
pub(crate) fn write(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = bytes.len();
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(start);
        bytes.extend_from_slice(b"null");
    }
}

/// A text as it stands between the quotes of a JSON string.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted
        .get(1..quoted.len() - 1)
        .unwrap_or_default()
        .to_owned()
}

/// Writes a list whose items are written by hand, each as nothing or more items with commas between
/// them.
pub(crate) fn list(bytes: &mut Vec<u8>, items: impl FnOnce(&mut List<'_>)) {
    bytes.push(b'[');
    items(&mut List { bytes, first: true });
    bytes.push(b']');
}

pub(crate) struct List<'a> {
    bytes: &'a mut Vec<u8>,
    first: bool,
}

impl List<'_> {
    /// Adds items that are JSON already.
    pub(crate) fn add(&mut self, json: &[u8]) {
        if json.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.first, false) {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(json);
    }

    /// Adds an item.
    pub(crate) fn item(&mut self, value: &(impl Serialize + ?Sized)) {
        if !std::mem::replace(&mut self.first, false) {
            self.bytes.push(b',');
        }
        write(self.bytes, value);
    }
}
