//! Reads the fields of one JSON object, and collects faults instead of stopping at the first.
//!
//! The reader remembers which keys were requested. At the end, a key that was not requested and
//! differs by one letter from one that was is reported as a typing error: `read` for `reads`. A
//! larger distance is taken as a field of another tool.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::condition::Condition;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::names::short;
use crate::step::{Reducer, StepId};

/// The fields of an object, read one by one; faults name the object and the field.
pub(super) struct Fields<'a, 'f> {
    /// The description of the object: `` step `sum` ``.
    pub(super) place: String,
    /// The step that the object is, or belongs to.
    pub(super) step: Option<StepId>,
    map: &'a Map<String, Value>,
    found: &'f mut FaultCollector,
    /// `true` if a key is written in another style. Few are, and comparing without regard to style
    /// is costly.
    styled: bool,
    /// The keys that were requested.
    asked: Vec<&'static str>,
}

impl<'a, 'f> Fields<'a, 'f> {
    pub(super) fn new(
        place: String,
        map: &'a Map<String, Value>,
        found: &'f mut FaultCollector,
    ) -> Self {
        Self {
            place,
            step: None,
            map,
            found,
            styled: is_styled(map),
            asked: Vec::new(),
        }
    }

    /// Returns the fields of an object within this one.
    pub(super) fn within<'b>(
        &'b mut self,
        key: &str,
        map: &'a Map<String, Value>,
    ) -> Fields<'a, 'b> {
        let place = format!("{}, `{key}`", self.place);
        let (step, styled) = (self.step.clone(), is_styled(map));
        Fields {
            place,
            step,
            map,
            found: self.found,
            styled,
            asked: Vec::new(),
        }
    }

    /// Returns the value of a field; `null` counts as missing. A key may be written `like_this` or
    /// `likeThis`.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.asked.push(key);
        let value = match self.map.get(key) {
            Some(value) => Some(value),
            None if !self.styled => None,
            None => self
                .map
                .iter()
                .find(|(other, _)| plain(other).eq(plain(key)))
                .map(|(_, value)| value),
        };
        value.filter(|value| !value.is_null())
    }

    /// Returns the value of the first of several synonymous fields.
    pub(super) fn take_any(&mut self, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        let values: Vec<_> = keys.iter().map(|key| (*key, self.take(key))).collect();
        values
            .into_iter()
            .find_map(|(key, value)| Some((key, value?)))
    }

    pub(super) fn malformed(&mut self, flaw: impl FnOnce() -> String) {
        let (place, step) = (&self.place, self.step.clone());
        let fault = || Fault::new(FaultKind::Malformed, format!("{place}: {}", flaw()));
        self.found.push_with(|| Fault { step, ..fault() });
    }

    pub(super) fn expected<T>(&mut self, key: &str, what: &str, value: &Value) -> Option<T> {
        self.malformed(|| format!("`{key}` must be {what}, not {}", kind_of(value)));
        None
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Arc<str>> {
        match self.take(key)? {
            Value::String(text) => Some(text.as_str().into()),
            other => self.expected(key, "a text", other),
        }
    }

    pub(super) fn names(&mut self, key: &'static str) -> Vec<Arc<str>> {
        let what = "a list of names";
        match self.take(key) {
            None => Vec::new(),
            Some(Value::String(name)) => vec![name.as_str().into()],
            Some(Value::Array(list)) => {
                let mut names: Vec<Arc<str>> = Vec::with_capacity(list.len());
                for value in list {
                    match value {
                        Value::String(name) => names.push(name.as_str().into()),
                        other => _ = self.expected::<()>(key, "a list of names only", other),
                    }
                }
                names
            }
            Some(other) => self.expected(key, what, other).unwrap_or_default(),
        }
    }

    pub(super) fn id(&mut self, key: &'static str) -> Option<StepId> {
        let value = self.take(key)?;
        id_of(value).or_else(|| self.expected(key, "the id of a step", value))
    }

    pub(super) fn whole(&mut self, key: &'static str) -> Option<u64> {
        let value = self.take(key)?;
        whole_of(value).or_else(|| self.expected(key, "a whole number that is not negative", value))
    }

    pub(super) fn size(&mut self, key: &'static str) -> Option<usize> {
        self.whole(key)
            .map(|whole| usize::try_from(whole).unwrap_or(usize::MAX))
    }

    pub(super) fn number(&mut self, key: &'static str) -> Option<f64> {
        match self.take(key)? {
            Value::Number(number) => {
                number.as_f64().filter(|number| *number >= 0.0).or_else(|| {
                    self.malformed(|| format!("`{key}` must not be negative"));
                    None
                })
            }
            other => self.expected(key, "a number", other),
        }
    }

    pub(super) fn seconds(&mut self, key: &'static str) -> Option<Duration> {
        self.number(key)
            .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    pub(super) fn flag(&mut self, key: &'static str) -> bool {
        match self.take(key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => self
                .expected(key, "true or false", other)
                .unwrap_or_default(),
        }
    }

    pub(super) fn condition(&mut self, key: &'static str) -> Option<Condition> {
        let text = match self.take(key)? {
            Value::String(text) => text.clone(),
            Value::Bool(flag) => flag.to_string(),
            other => return self.expected(key, "a condition, such as \"score > 3\"", other),
        };
        match Condition::parse(&text) {
            Ok(condition) => Some(condition),
            Err(error) => {
                self.malformed(|| format!("`{key}` is not a valid condition: {error}"));
                None
            }
        }
    }

    pub(super) fn reducer(&mut self, key: &'static str) -> Option<Reducer> {
        let value = self.take(key)?;
        let place = self.place.clone();
        reducer(value, &place, self.found)
    }

    /// Reports unknown keys that differ by one letter from a known one.
    pub(super) fn near_misses(&mut self, ignored: &[&str]) {
        // An object with more keys than this is not a typing error.
        for key in self.map.keys().take(64) {
            if self.asked.contains(&key.as_str()) || ignored.contains(&key.as_str()) {
                continue;
            }
            let name: String = plain(key).take(32).collect();
            if self.asked.iter().any(|asked| plain(asked).eq(name.chars())) {
                continue;
            }
            let meant = self.asked.iter().find(|asked| {
                let asked: String = plain(asked).collect();
                asked.len() > 2 && strsim::osa_distance(&asked, &name) == 1
            });
            if let Some(meant) = meant.copied() {
                self.malformed(|| {
                    format!(
                        "there is no field `{}`; did you mean `{meant}`?",
                        short(key)
                    )
                });
            }
        }
    }
}

fn is_styled(map: &Map<String, Value>) -> bool {
    map.keys().any(|key| {
        key.bytes()
            .any(|byte| !byte.is_ascii_lowercase() && byte != b'_')
    })
}

/// Returns a key without the characters that differ between styles.
pub(super) fn plain(key: &str) -> impl Iterator<Item = char> + '_ {
    key.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
}

/// Returns the id in a value: a text or a number.
pub(crate) fn id_of(value: &Value) -> Option<StepId> {
    match value {
        Value::String(id) => Some(id.trim().into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

fn whole_of(value: &Value) -> Option<u64> {
    let float = || {
        value
            .as_f64()
            .filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))
    };
    value.as_u64().or_else(|| float().map(|float| float as u64))
}

pub(super) fn reducer(value: &Value, place: &str, found: &mut FaultCollector) -> Option<Reducer> {
    let named = value
        .as_str()
        .map(|name| Value::String(name.to_lowercase()));
    let reducer = named.and_then(|name| serde_json::from_value(name).ok());
    if reducer.is_none() {
        let message = format!(
            "{place}: `reducer` must be one of list, concat, merge, sum, join, first, last"
        );
        found.push(Fault::new(FaultKind::Malformed, message));
    }
    reducer
}

/// Describes the type of a value, without its content.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
