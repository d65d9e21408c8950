//! OTLP as JSON: ids as hexadecimal digits, 64-bit numbers as strings, enums as numbers.
//!
//! All texts pass through redaction here, at the last moment before they leave the process, so that
//! no path can miss it. Attributes with the name of a secret are replaced as a whole.

use levity_core::{SecretKind, Secrets};
use serde_json::{Value as Json, json};

use super::span::{Attributes, Span, SpanEvent, Value};
use crate::sanitize::clip;

/// The maximum size of an attribute: 128 KiB.
const MAX_ATTRIBUTE_BYTES: usize = 128 << 10;

/// Attributes that the semantic conventions define as lists, which `tracing` does not support.
const LISTS: [&str; 1] = ["gen_ai.response.finish_reasons"];

/// The resource and scope around all exported data.
///
/// The resource is encoded once, since every request repeats it.
pub(super) struct Envelope {
    resource: Json,
    secrets: Secrets,
}

impl Envelope {
    pub(super) fn new(resource: &[(String, String)], secrets: Secrets) -> Self {
        let attributes: Vec<Json> = resource
            .iter()
            .map(|(name, value)| key_value(name, &Value::Text(value.clone()), &secrets))
            .collect();
        Self {
            resource: json!({"attributes": attributes}),
            secrets,
        }
    }

    pub(super) fn spans(&self, spans: &[Span]) -> Json {
        let spans: Vec<Json> = spans.iter().map(|span| self.span(span)).collect();
        json!({"resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{"scope": scope(), "spans": spans}],
        }]})
    }

    pub(super) fn metrics(&self, metrics: &[Json]) -> Json {
        json!({"resourceMetrics": [{
            "resource": self.resource,
            "scopeMetrics": [{"scope": scope(), "metrics": metrics}],
        }]})
    }

    fn span(&self, span: &Span) -> Json {
        let mut status = json!({});
        if span.failed {
            status["code"] = 2.into();
        }
        if let Some(text) = &span.status {
            status["message"] = self.text(text).into();
        }
        let mut encoded = json!({
            "traceId": format!("{:032x}", span.trace),
            "spanId": format!("{:016x}", span.id),
            "name": self.text(&span.name),
            "kind": span.kind,
            "startTimeUnixNano": span.started.to_string(),
            "endTimeUnixNano": span.ended.to_string(),
            "attributes": self.attributes(&span.attributes),
            "events": span.events.iter().map(|event| self.span_event(event)).collect::<Vec<_>>(),
            "droppedEventsCount": span.dropped_events,
            "status": status,
        });
        if let Some(parent) = span.parent {
            encoded["parentSpanId"] = format!("{parent:016x}").into();
        }
        encoded
    }

    fn span_event(&self, span_event: &SpanEvent) -> Json {
        json!({
            "timeUnixNano": span_event.at.to_string(),
            "name": self.text(&span_event.name),
            "attributes": self.attributes(&span_event.attributes),
        })
    }

    pub(super) fn attributes(&self, attributes: &Attributes) -> Vec<Json> {
        attributes
            .iter()
            .map(|(name, value)| key_value(name, value, &self.secrets))
            .collect()
    }

    fn text(&self, text: &str) -> String {
        redact_and_clip(text, &self.secrets)
    }
}

fn scope() -> Json {
    json!({"name": "levity", "version": env!("CARGO_PKG_VERSION")})
}

fn key_value(name: &str, value: &Value, secrets: &Secrets) -> Json {
    json!({"key": name, "value": redacted(name, value, secrets)})
}

fn redacted(name: &str, value: &Value, secrets: &Secrets) -> Json {
    if Secrets::is_name(name) {
        return json!({"stringValue": SecretKind::Password.marker()});
    }
    match value {
        Value::Text(text) if LISTS.contains(&name) => {
            json!({"arrayValue": {"values": [{"stringValue": redact_and_clip(text, secrets)}]}})
        }
        Value::Text(text) => json!({"stringValue": redact_and_clip(text, secrets)}),
        Value::Int(number) => json!({"intValue": number.to_string()}),
        Value::Float(number) => json!({"doubleValue": number}),
        Value::Bool(truth) => json!({"boolValue": truth}),
    }
}

/// Redacts secrets first, and cuts the text afterwards.
fn redact_and_clip(text: &str, secrets: &Secrets) -> String {
    clip(&secrets.redact(text), MAX_ATTRIBUTE_BYTES).into_owned()
}
