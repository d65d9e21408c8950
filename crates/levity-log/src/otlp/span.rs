//! A span in its exported form.
//!
//! Fields with the prefix `otel.` set the name, kind and status of a span, as in the crate
//! `tracing-opentelemetry`. At most 128 attributes and 128 events are stored for each span.

use std::fmt;

use tracing::field::{Field as Name, Visit};

/// The maximum number of attributes of a span, and of events within it.
const MAX_ATTRIBUTES: usize = 128;
const MAX_EVENTS: usize = 128;

/// The value of an attribute.
#[derive(Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            _ => 8,
        }
    }
}

pub(super) type Attributes = Vec<(&'static str, Value)>;

/// An event within a span.
pub(super) struct SpanEvent {
    pub(super) at: u64,
    pub(super) name: String,
    pub(super) attributes: Attributes,
}

/// A span: in progress while it is in the subscriber's registry, ended when it waits to be sent.
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: String,
    pub(super) kind: u8,
    pub(super) failed: bool,
    pub(super) status: Option<String>,
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) attributes: Attributes,
    pub(super) events: Vec<SpanEvent>,
    pub(super) dropped_events: u32,
}

impl Span {
    pub(super) fn new(name: &str, trace: u128, id: u64, parent: Option<u64>, started: u64) -> Self {
        Self {
            trace,
            id,
            parent,
            name: name.to_owned(),
            kind: 1,
            failed: false,
            status: None,
            started,
            ended: started,
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
        }
    }

    pub(super) fn push(&mut self, event: SpanEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        } else {
            self.dropped_events = self.dropped_events.saturating_add(1);
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find_map(|(existing, value)| match value {
                Value::Text(text) if *existing == name => Some(text.as_str()),
                _ => None,
            })
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.attributes
            .iter()
            .find_map(|(existing, value)| match value {
                Value::Int(number) if *existing == name => Some(*number),
                _ => None,
            })
    }

    pub(super) fn seconds(&self) -> f64 {
        std::time::Duration::from_nanos(self.ended.saturating_sub(self.started)).as_secs_f64()
    }

    /// Returns the approximate size of the span in bytes.
    pub(super) fn size(&self) -> usize {
        let attributes_size = |attributes: &Attributes| {
            attributes
                .iter()
                .map(|(_, value)| value.size() + 64)
                .sum::<usize>()
        };
        let events = self
            .events
            .iter()
            .map(|event| event.name.len() + attributes_size(&event.attributes));
        256 + attributes_size(&self.attributes) + events.sum::<usize>()
    }

    /// Sets a property of the span for the four `otel.` fields, and an attribute for all others.
    fn set(&mut self, name: &'static str, value: Value) {
        match (name, &value) {
            ("otel.name", Value::Text(text)) => self.name.clone_from(text),
            ("otel.kind", Value::Text(text)) => self.kind = kind(text),
            ("otel.status_code", Value::Text(text)) => {
                self.failed = text.eq_ignore_ascii_case("error");
            }
            ("otel.status_message", Value::Text(text)) => self.status = Some(text.clone()),
            _ => set_attribute(&mut self.attributes, name, value),
        }
    }
}

/// Returns the protocol's number of a span kind.
fn kind(name: &str) -> u8 {
    match name.to_ascii_lowercase().as_str() {
        "server" => 2,
        "client" => 3,
        "producer" => 4,
        "consumer" => 5,
        _ => 1,
    }
}

/// Replaces an attribute, or adds it while there is room.
fn set_attribute(attributes: &mut Attributes, name: &'static str, value: Value) {
    if let Some(existing) = attributes
        .iter_mut()
        .find(|(existing, _)| *existing == name)
    {
        existing.1 = value;
    } else if attributes.len() < MAX_ATTRIBUTES {
        attributes.push((name, value));
    }
}

/// The fields of a logged event; its message becomes its name.
#[derive(Default)]
pub(super) struct EventFields {
    pub(super) message: Option<String>,
    pub(super) attributes: Attributes,
}

impl EventFields {
    fn set(&mut self, name: &'static str, value: Value) {
        match (name, value) {
            ("message", Value::Text(text)) => self.message = Some(text),
            (name, value) => set_attribute(&mut self.attributes, name, value),
        }
    }
}

macro_rules! visit {
    ($($of:ty),*) => {$(
        impl Visit for $of {
            fn record_f64(&mut self, name: &Name, value: f64) {
                self.set(name.name(), Value::Float(value));
            }

            fn record_i64(&mut self, name: &Name, value: i64) {
                self.set(name.name(), Value::Int(value));
            }

            fn record_u64(&mut self, name: &Name, value: u64) {
                self.set(name.name(), Value::Int(i64::try_from(value).unwrap_or(i64::MAX)));
            }

            fn record_bool(&mut self, name: &Name, value: bool) {
                self.set(name.name(), Value::Bool(value));
            }

            fn record_str(&mut self, name: &Name, value: &str) {
                self.set(name.name(), Value::Text(value.to_owned()));
            }

            fn record_debug(&mut self, name: &Name, value: &dyn fmt::Debug) {
                self.set(name.name(), Value::Text(format!("{value:?}")));
            }
        }
    )*};
}

visit!(Span, EventFields);
