//! A single log entry and its formatting.
//!
//! An entry is formatted on the writer's thread, not by the run that caused it. Redaction, cutting
//! and escaping happen in this order: a secret that was cut in half would no longer be recognized,
//! and an escaped one neither.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use levity_core::{RunId, SecretKind, Secrets, Timestamp};
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;

use crate::sanitize;

/// The severity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

impl Level {
    /// Returns the lowest level that passes a filter; `None` if the filter is off.
    pub(crate) fn from_filter(filter: LevelFilter) -> Option<Self> {
        filter.into_level().map(Self::from)
    }
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::TRACE => Self::Trace,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::INFO => Self::Info,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::ERROR => Self::Error,
        }
    }
}

/// The value of a field.
///
/// A field whose name is that of a secret, such as `password`, is shown as a marker, whatever its
/// value.
#[derive(Clone)]
pub(crate) enum Field {
    Text(String),
    /// A text that is shown whole, up to `MAX_WHOLE`.
    Whole(String),
    Json(Value),
    Number(u64),
}

/// The output format of entries.
///
/// The settings are the same for all entries of a log. `max_text` limits each text; messages have
/// at least 64 bytes.
#[derive(Clone)]
pub(crate) struct Style {
    pub(crate) json: bool,
    pub(crate) max_text: usize,
    pub(crate) secrets: Secrets,
}

/// The maximum size of a text in an entry, in bytes.
pub(crate) const MAX_WHOLE: usize = 256 << 10;

/// A log entry, which is written as one line.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) at: Timestamp,
    pub(crate) level: Level,
    pub(crate) run: Option<RunId>,
    pub(crate) message: Cow<'static, str>,
    pub(crate) fields: Vec<(Cow<'static, str>, Field)>,
}

impl Entry {
    pub(crate) fn new(at: Timestamp, level: Level, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            at,
            level,
            run: None,
            message: message.into(),
            fields: Vec::new(),
        }
    }

    pub(crate) fn for_run(mut self, run: &RunId) -> Self {
        self.run = Some(run.clone());
        self
    }

    pub(crate) fn with(mut self, name: &'static str, field: impl Into<Field>) -> Self {
        self.fields.push((name.into(), field.into()));
        self
    }

    pub(crate) fn with_optional(self, name: &'static str, field: Option<impl Into<Field>>) -> Self {
        match field {
            Some(field) => self.with(name, field),
            None => self,
        }
    }

    /// Returns the approximate size of the entry in bytes.
    ///
    /// Counts 128 bytes for everything but texts. The queue uses it for its limit of bytes.
    pub(crate) fn size(&self) -> usize {
        let fields = self
            .fields
            .iter()
            .map(|(name, field)| name.len() + field.size());
        128 + self.message.len() + fields.sum::<usize>()
    }

    /// Formats the line with its end. Secrets are redacted before anything is cut, so that no part
    /// of one remains.
    pub(crate) fn line(&self, style: &Style) -> String {
        let mut line = if style.json {
            self.json(style)
        } else {
            self.text(style)
        };
        line.push('\n');
        line
    }

    /// Formats the entry as `time LEVEL run message name=value ..`.
    fn text(&self, style: &Style) -> String {
        let mut line = String::with_capacity(128);
        let _ = write!(line, "{} {:<5} ", self.at, self.level.as_str());
        let run = self
            .run
            .as_ref()
            .map_or(Cow::Borrowed("-"), |run| style.secrets.redact(run.as_str()));
        sanitize::push_word(&mut line, &sanitize::clip(&run, style.max_text.max(64)));
        line.push(' ');
        // The message comes from levity or the host. It is written without quotes, unless it could
        // be confused with the fields after it.
        let (visible, mut message) = (style.visible(&self.message), String::new());
        sanitize::push_word(&mut message, &visible);
        let unquoted = message
            .strip_prefix('"')
            .and_then(|message| message.strip_suffix('"'));
        line.push_str(
            unquoted
                .filter(|_| !visible.contains('='))
                .unwrap_or(&message),
        );
        for (name, field) in &self.fields {
            line.push(' ');
            sanitize::push_word(&mut line, name);
            line.push('=');
            match field.visible(name, style) {
                Value::String(text) => sanitize::push_word(&mut line, &text),
                value => line.push_str(&value.to_string()),
            }
        }
        line
    }

    /// Formats the entry as an object. A field that has the name of a fixed key gets a leading `_`.
    fn json(&self, style: &Style) -> String {
        let mut object = Map::new();
        object.insert("at".into(), self.at.to_string().into());
        object.insert("level".into(), self.level.as_str().to_lowercase().into());
        if let Some(run) = &self.run {
            object.insert("run".into(), style.secrets.redact(run.as_str()).into());
        }
        object.insert("event".into(), style.visible(&self.message).into());
        for (name, field) in &self.fields {
            let is_used = object.contains_key(&**name);
            let key = if is_used {
                format!("_{name}")
            } else {
                name.clone().into_owned()
            };
            object.insert(key, field.visible(name, style));
        }
        sanitize::escape_json(&Value::Object(object).to_string())
    }
}

impl Style {
    fn visible(&self, text: &str) -> String {
        sanitize::clip(
            &self.secrets.redact(replace_oversized(text).as_ref()),
            self.max_text.max(64),
        )
        .into_owned()
    }
}

impl Field {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Whole(text) => text.len(),
            Self::Json(value) => json_size(value),
            Self::Number(_) => 8,
        }
    }

    /// Returns the visible value: a string or a number.
    fn visible(&self, name: &str, style: &Style) -> Value {
        if Secrets::is_name(name) {
            return SecretKind::Password.marker().into();
        }
        if let Self::Number(number) = self {
            return (*number).into();
        }
        let max_bytes = if matches!(self, Self::Whole(_)) {
            MAX_WHOLE
        } else {
            style.max_text
        };
        let text = match self {
            Self::Text(text) | Self::Whole(text) => replace_oversized(text),
            Self::Json(value) => style.secrets.redact_value(value).to_string().into(),
            Self::Number(_) => Cow::Borrowed(""),
        };
        sanitize::clip(&style.secrets.redact(&text), max_bytes)
            .into_owned()
            .into()
    }
}

/// Replaces a text that is far too long, without scanning it.
///
/// Scanning for secrets takes time in proportion to the text, so texts of more than 1 MiB are not
/// scanned.
fn replace_oversized(text: &str) -> Cow<'_, str> {
    if text.len() > 4 * MAX_WHOLE {
        return format!("[{} bytes: too long to be logged]", text.len()).into();
    }
    text.into()
}

/// Returns the approximate size of a value in memory, in bytes.
pub(crate) fn json_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 16,
        Value::Array(items) => items.iter().map(json_size).sum::<usize>() + 16,
        Value::Object(fields) => {
            fields
                .iter()
                .map(|(name, value)| name.len() + json_size(value))
                .sum::<usize>()
                + 16
        }
        _ => 16,
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Value> for Field {
    fn from(value: Value) -> Self {
        Self::Json(value)
    }
}

// Texts of a run may contain anything, so they are not shown here.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("at", &self.at)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &'static str, expected: &str) {
        let style = Style {
            json: false,
            max_text: 300,
            secrets: Secrets::new(),
        };
        let line = Entry::new(Timestamp::default(), Level::Info, message)
            .with("tool", "now")
            .line(&style);
        assert_eq!(line.split_once(" - ").unwrap().1.trim_end(), expected);
    }

    #[test]
    fn message_is_unquoted_unless_it_looks_like_fields() {
        check("tool called", "tool called tool=now");
        check("he said \"hi\"", r#"he said \"hi\" tool=now"#);
        check(
            "done run=other level=ERROR",
            r#""done run=other level=ERROR" tool=now"#,
        );
    }
}
