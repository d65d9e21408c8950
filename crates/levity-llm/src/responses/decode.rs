//! Replies, as servers give them: events about items, and each item whole at its end.

use std::borrow::Cow;
use std::collections::BTreeSet;

use levity_core::{
    CallId, Delta, Finish, ModelError, ModelErrorKind, Part, ProviderState, Text, Thinking, Usage,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::NAME;
use crate::http::{Decode, Failure, Sink, plain};

mod items;

use items::Item;

/// How many items a reply may have.
const MOST_ITEMS: usize = 10_000;

/// What has come so far.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    items: Vec<Item>,
    calls: u32,
    /// The item, by its place in `items`, that the last piece belonged to.
    last: Option<usize>,
    ended: bool,
    /// Searches that the provider made, and the places where it ran code: both have fees.
    searches: u64,
    sessions: BTreeSet<String>,
}

/// What most events have.
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

/// What some have beside that.
#[derive(Deserialize, Default)]
struct More {
    #[serde(default)]
    item: Value,
    #[serde(default)]
    part: Value,
    #[serde(default)]
    response: Option<Reply>,
}

/// A whole reply, without all that only repeats the request.
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
        if self.items.len() > MOST_ITEMS {
            return Err(too_many());
        }
        let mut event = read(data)?;
        if event.kind.is_empty() {
            event.kind = Cow::Owned(name.to_owned());
        }
        match &*event.kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.say(&event, sink);
                Ok(())
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.think(&event, sink);
                Ok(())
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.ask(&event, sink);
                Ok(())
            }
            "error" => Err(Failure::read(data).into_error(None)),
            "response.output_item.added"
            | "response.content_part.done"
            | "response.output_item.done"
            | "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => self.more(&event, data, sink),
            "" => self.nameless(data),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &mut Sink) -> Result<(), ModelError> {
        if self.ended {
            return Ok(());
        }
        Err(ModelError::new(
            ModelErrorKind::Transport,
            "the reply broke off before its end",
        ))
    }
}

impl Decoder {
    fn more(&mut self, event: &Event<'_>, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let more: More = serde_json::from_slice(data).map_err(unreadable)?;
        match &*event.kind {
            "response.output_item.added" => self.added(event.output_index, &more.item, sink),
            "response.content_part.done" => self.part_done(event, &more.part, sink),
            "response.output_item.done" => self.done(event.output_index, more.item, sink),
            kind => {
                let end = kind.trim_start_matches("response.");
                return self.finish(more.response.unwrap_or_default(), end, sink);
            }
        }
        Ok(())
    }

    /// Some servers give an error without a word on what it is.
    fn nameless(&self, data: &[u8]) -> Result<(), ModelError> {
        let value = serde_json::from_slice(data).map_err(unreadable)?;
        plain(&value).map_or(Ok(()), |failure| Err(failure.into_error(None)))
    }

    /// The reply has come to its end, as it says itself or else the event. Items that were not told
    /// of before are in it, but for servers that leave out all of them.
    fn finish(&mut self, reply: Reply, end: &str, sink: &mut Sink) -> Result<(), ModelError> {
        (self.ended, sink.done) = (true, true);
        let status = reply.status.as_deref().unwrap_or(end);
        if reply
            .output
            .as_ref()
            .is_some_and(|output| output.len() > MOST_ITEMS)
        {
            return Err(too_many());
        }
        if status == "failed" || reply.error.is_object() {
            let failure = plain(&json!({"error": reply.error}));
            return Err(failure.unwrap_or_default().into_error(None));
        }
        for (index, item) in reply.output.into_iter().flatten().enumerate() {
            match self.known(index as u64, &item) {
                Some(at) => self.again(at, item),
                None => self.done(Some(index as u64), item, sink),
            }
        }
        self.last_words(sink);
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

fn too_many() -> ModelError {
    ModelError::new(
        ModelErrorKind::Malformed,
        format!("the reply has more than {MOST_ITEMS} items"),
    )
}

fn read(data: &[u8]) -> Result<Event<'_>, ModelError> {
    if let Ok(event) = serde_json::from_slice(data) {
        return Ok(event);
    }
    // Something is of another type than it should be; what is as it should be counts.
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

fn unreadable(error: serde_json::Error) -> ModelError {
    ModelError::new(
        ModelErrorKind::Malformed,
        "a piece of the reply cannot be read",
    )
    .with_source(error)
}

/// Token counts. Some servers count reasoning beside the output, and not in it.
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

/// Reads a reply that came in one piece.
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
