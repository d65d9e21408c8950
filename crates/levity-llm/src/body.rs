//! JSON bodies that are written once.

use serde::Serialize;

/// An object, field by field.
pub(crate) struct Body(Vec<u8>);

impl Body {
    pub(crate) fn new() -> Self {
        Self(b"{".to_vec())
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
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write(&mut self.0, name);
        self.0.push(b':');
        value(&mut self.0);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// Writes a value as JSON. What cannot be JSON at all becomes `null`.
pub(crate) fn write(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = bytes.len();
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(start);
        bytes.extend_from_slice(b"null");
    }
}

/// Writes a list whose items are written by hand, each as nothing or more items with commas between them.
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
        let mut json = Vec::new();
        write(&mut json, value);
        self.add(&json);
    }
}
