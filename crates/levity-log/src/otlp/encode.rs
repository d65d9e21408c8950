//! OTLP as JSON: ids in hexadecimal digits, 64-bit numbers as text, enums as numbers.

use levity_core::{SecretKind, Secrets};
use serde_json::{Value as Json, json};

use super::span::{Attributes, Moment, Span, Value};
use crate::plain::clip;

/// The most bytes of an attribute: 128 KiB.
const MAX: usize = 128 << 10;

/// Attributes that the conventions want as lists, and that `tracing` cannot hold as such.
const LISTS: [&str; 1] = ["gen_ai.response.finish_reasons"];

/// What all that is sent has around it.
pub(super) struct Envelope {
    resource: Json,
    secrets: Secrets,
}

impl Envelope {
    pub(super) fn new(resource: &[(String, String)], secrets: Secrets) -> Self {
        let attributes: Vec<Json> = resource
            .iter()
            .map(|(name, value)| pair(name, &Value::Text(value.clone()), &secrets))
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
        let mut sent = json!({
            "traceId": format!("{:032x}", span.trace),
            "spanId": format!("{:016x}", span.id),
            "name": self.text(&span.name),
            "kind": span.kind,
            "startTimeUnixNano": span.begun.to_string(),
            "endTimeUnixNano": span.ended.to_string(),
            "attributes": self.attributes(&span.attributes),
            "events": span.moments.iter().map(|moment| self.moment(moment)).collect::<Vec<_>>(),
            "droppedEventsCount": span.left_out,
            "status": status,
        });
        if let Some(parent) = span.parent {
            sent["parentSpanId"] = format!("{parent:016x}").into();
        }
        sent
    }

    fn moment(&self, moment: &Moment) -> Json {
        json!({
            "timeUnixNano": moment.at.to_string(),
            "name": self.text(&moment.name),
            "attributes": self.attributes(&moment.attributes),
        })
    }

    pub(super) fn attributes(&self, attributes: &Attributes) -> Vec<Json> {
        attributes
            .iter()
            .map(|(name, value)| pair(name, value, &self.secrets))
            .collect()
    }

    fn text(&self, text: &str) -> String {
        cleaned(text, &self.secrets)
    }
}

fn scope() -> Json {
    json!({"name": "levity", "version": env!("CARGO_PKG_VERSION")})
}

fn pair(name: &str, value: &Value, secrets: &Secrets) -> Json {
    json!({"key": name, "value": shown(name, value, secrets)})
}

fn shown(name: &str, value: &Value, secrets: &Secrets) -> Json {
    if Secrets::is_name(name) {
        return json!({"stringValue": SecretKind::Password.marker()});
    }
    match value {
        Value::Text(text) if LISTS.contains(&name) => {
            json!({"arrayValue": {"values": [{"stringValue": cleaned(text, secrets)}]}})
        }
        Value::Text(text) => json!({"stringValue": cleaned(text, secrets)}),
        Value::Int(number) => json!({"intValue": number.to_string()}),
        Value::Float(number) => json!({"doubleValue": number}),
        Value::Bool(truth) => json!({"boolValue": truth}),
    }
}

/// Without secrets, and only then cut.
fn cleaned(text: &str, secrets: &Secrets) -> String {
    clip(&secrets.redact(text), MAX).into_owned()
}
