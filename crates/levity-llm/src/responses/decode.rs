//! Decodes replies: events about items, and each complete item at its end.
//!
//! Most events are deltas, which are parsed to a few borrowed fields. Complete items, which repeat
//! the whole text, are parsed only at the end of an item. `response.completed` repeats all items
//! once more; those that arrived before are ignored, except for thoughts that were encrypted again.
//!
//! The events of a call, without fields that levity ignores:
//!
//! ```text
//! data: {"type":"response.output_item.added","output_index":0,
//!     "item":{"type":"function_call","call_id":"c1","name":"now"}}
//! data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}
//! data: {"type":"response.output_item.done","output_index":0,
//!     "item":{"type":"function_call","id":"fc_1","call_id":"c1","name":"now","arguments":"{}"}}
//! data: {"type":"response.completed","response":{"status":"completed","output":[..],"usage":{..}}}
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;

use levity_core::{
    CallId, Delta, Finish, ModelError, ModelErrorKind, Part, ProviderState, Text, Thinking, Usage,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::NAME;
use crate::http::{Decode, Failure, Sink, find_failure};

mod items;

use items::Item;

/// The maximum number of items in a reply.
const MAX_ITEMS: usize = 10_000;

/// The state of a partially decoded reply.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    items: Vec<Item>,
    /// The number of calls so far, which is also the index of the next one.
    calls: u32,
    /// The index in `items` of the item that received the last delta.
    last: Option<usize>,
    /// True after an event that ends the reply.
    ended: bool,
    /// The provider's searches and code sessions, both of which have fees.
    searches: u64,
    sessions: BTreeSet<String>,
}

/// The fields that most events have.
#[derive(Deserialize, Default)]
struct Event<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    delta: Cow<'a, str>,
    #[serde(default, borrow)]
    item_id: Cow<'a, str>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(default)]
    content_index: Option<u64>,
    #[serde(default)]
    summary_index: Option<u64>,
}

/// Further fields of some events.
#[derive(Deserialize, Default)]
struct FullEvent {
    #[serde(default)]
    item: Value,
    #[serde(default)]
    part: Value,
    #[serde(default)]
    response: Option<Reply>,
}

/// A complete reply, without the fields that only repeat the request.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Reply {
    status: Option<String>,
    model: Value,
    output: Option<Vec<Value>>,
    usage: Value,
    incomplete_details: Value,
    error: Value,
    service_tier: Value,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let data = data.trim_ascii();
        if data.is_empty() || data == b"[DONE]" {
            return Ok(());
        }
        if self.items.len() > MAX_ITEMS {
            return Err(too_many());
        }
        let mut event = read(data)?;
        if event.kind.is_empty() {
            event.kind = Cow::Owned(name.to_owned());
        }
        match &*event.kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.add_text(&event, sink);
                Ok(())
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.add_thinking(&event, sink);
                Ok(())
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.add_arguments(&event, sink);
                Ok(())
            }
            "error" => Err(Failure::read(data).into_error(None)),
            "response.output_item.added"
            | "response.content_part.done"
            | "response.output_item.done"
            | "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => self.full_event(&event, data, sink),
            "" => self.check_untyped_event(data),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &mut Sink) -> Result<(), ModelError> {
        if self.ended {
            return Ok(());
        }
        Err(ModelError::new(
            ModelErrorKind::Transport,
            "the reply ended before it was complete",
        ))
    }
}

impl Decoder {
    /// Handles an event with an item, a part or the reply.
    fn full_event(
        &mut self,
        event: &Event<'_>,
        data: &[u8],
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        let full_event: FullEvent = serde_json::from_slice(data).map_err(unreadable)?;
        match &*event.kind {
            "response.output_item.added" => {
                self.item_added(event.output_index, &full_event.item, sink);
            }
            "response.content_part.done" => self.part_done(event, &full_event.part, sink),
            "response.output_item.done" => {
                self.item_done(event.output_index, full_event.item, sink);
            }
            kind => {
                let end = kind.trim_start_matches("response.");
                return self.finish(full_event.response.unwrap_or_default(), end, sink);
            }
        }
        Ok(())
    }

    /// Returns the error of an event without a type, which some servers send.
    ///
    /// # Errors
    /// Returns the failure that the event contains; an event without one is ignored.
    fn check_untyped_event(&self, data: &[u8]) -> Result<(), ModelError> {
        let value = serde_json::from_slice(data).map_err(unreadable)?;
        find_failure(&value).map_or(Ok(()), |failure| Err(failure.into_error(None)))
    }

    /// Handles the end of the reply, as stated by the reply itself or otherwise by the event. The
    /// reply contains items that were not sent before, except from servers that omit all of them.
    ///
    /// # Errors
    /// Returns the error of a failed reply, and `Malformed` for more than 10,000 items.
    fn finish(&mut self, reply: Reply, end: &str, sink: &mut Sink) -> Result<(), ModelError> {
        (self.ended, sink.done) = (true, true);
        let status = reply.status.as_deref().unwrap_or(end);
        if reply
            .output
            .as_ref()
            .is_some_and(|output| output.len() > MAX_ITEMS)
        {
            return Err(too_many());
        }
        if status == "failed" || reply.error.is_object() {
            let failure = find_failure(&json!({"error": reply.error}));
            return Err(failure.unwrap_or_default().into_error(None));
        }
        for (index, item) in reply.output.into_iter().flatten().enumerate() {
            match self.known(index as u64, &item) {
                Some(at) => self.repeat_item(at, item),
                None => self.item_done(Some(index as u64), item, sink),
            }
        }
        self.emit_later_thoughts(sink);
        sink.model(reply.model.as_str().unwrap_or_default());
        if let Some(mut usage) = count(&reply.usage) {
            usage.searches = Some(self.searches).filter(|searches| *searches > 0);
            usage.sessions = Some(self.sessions.len() as u64).filter(|sessions| *sessions > 0);
            usage.priority = reply.service_tier.as_str() == Some("priority");
            sink.push(Delta::Usage(usage));
        }
        let reason = reply
            .incomplete_details
            .get("reason")
            .and_then(Value::as_str);
        sink.push(Delta::Finish(match (status, reason) {
            ("incomplete", Some("max_output_tokens" | "max_tokens") | None) => Finish::Length,
            ("incomplete", Some("content_filter")) => Finish::ContentFilter,
            ("incomplete", Some(other)) => Finish::Other(other.to_owned()),
            ("completed", _) if self.calls > 0 => Finish::ToolCalls,
            ("completed", _) => Finish::Stop,
            (other, _) => Finish::Other(other.to_owned()),
        }));
        Ok(())
    }
}

/// Creates the error for a reply with too many items.
fn too_many() -> ModelError {
    ModelError::new(
        ModelErrorKind::Malformed,
        format!("the reply has more than {MAX_ITEMS} items"),
    )
}

/// Parses the common fields, leniently if a field has an unexpected type.
fn read(data: &[u8]) -> Result<Event<'_>, ModelError> {
    if let Ok(event) = serde_json::from_slice(data) {
        return Ok(event);
    }
    // A field has an unexpected type; the valid fields are used.
    let value: Value = serde_json::from_slice(data).map_err(unreadable)?;
    let text = |name: &str| {
        Cow::Owned(
            value
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    Ok(Event {
        kind: text("type"),
        delta: text("delta"),
        item_id: text("item_id"),
        output_index: number("output_index"),
        content_index: number("content_index"),
        summary_index: number("summary_index"),
    })
}

/// Creates the error for an event that is not JSON.
fn unreadable(error: serde_json::Error) -> ModelError {
    ModelError::new(
        ModelErrorKind::Malformed,
        "cannot parse a chunk of the reply",
    )
    .with_source(error)
}

/// Converts token counts. Some servers count reasoning in addition to the output.
///
/// Reasoning is part of the output. A server with more reasoning than output counts them
/// separately, so both are added.
fn count(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let mut counts = Usage::default();
    counts.input = number("/input_tokens");
    counts.output = number("/output_tokens");
    counts.cached = number("/input_tokens_details/cached_tokens");
    counts.cache_written = number("/input_tokens_details/cache_write_tokens");
    counts.reasoning = number("/output_tokens_details/reasoning_tokens");
    if let (Some(output), Some(reasoning)) = (counts.output, counts.reasoning)
        && reasoning > output
    {
        counts.output = Some(output.saturating_add(reasoning));
    }
    usage.is_object().then_some(counts)
}

/// Decodes a reply that arrived as a single value.
///
/// # Errors
/// Returns `Malformed` if the reply has no list `output`.
pub(super) fn whole(reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
    if !reply.get("output").is_some_and(Value::is_array) {
        return Err(ModelError::new(
            ModelErrorKind::Malformed,
            "the reply has no output",
        ));
    }
    let reply = Reply::deserialize(reply).map_err(unreadable)?;
    Decoder::default().finish(reply, "completed", sink)
}
