//! Decodes replies of the Messages API.
//!
//! A stream has the events `message_start`, then for each block `content_block_start`,
//! `content_block_delta` and `content_block_stop`, then `message_delta` with the stop reason and
//! `message_stop`. Unknown events are ignored, so that new ones of the API do not break old
//! programs. Usage arrives in several events, and each event replaces only the counts that it
//! contains.
//!
//! A short reply with a call:
//!
//! ```text
//! event: message_start
//! data: {"type":"message_start","message":{"model":"claude-..","usage":{"input_tokens":9}}}
//! event: content_block_start
//! data: {"type":"content_block_start","index":0,
//!     "content_block":{"type":"tool_use","id":"t1","name":"now"}}
//! event: content_block_delta
//! data: {"type":"content_block_delta","index":0,
//!     "delta":{"type":"input_json_delta","partial_json":"{}"}}
//! event: content_block_stop
//! data: {"type":"content_block_stop","index":0}
//! event: message_delta
//! data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":12}}
//! event: message_stop
//! data: {"type":"message_stop"}
//! ```

use std::borrow::Cow;

use levity_core::{Delta, Finish, ModelError, ModelErrorKind, Part, ProviderState, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::NAME;
use super::blocks::{Blocks, Fragment};
use crate::http::{Decode, Sink, find_failure};

/// The state of a partially decoded reply.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    blocks: Blocks,
    counts: Counts,
    /// The stop reason of the last `message_delta`.
    stop: Option<String>,
    /// The container in which the provider's tools run.
    container: Option<Value>,
    /// True after `message_stop`. Without it and without a stop reason, the reply was cut off.
    ended: bool,
}

/// The fields of all events. Parsing every event into one type avoids a second pass over the JSON.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    delta: Option<DeltaFields<'a>>,
    #[serde(default)]
    content_block: Option<Value>,
    #[serde(default)]
    message: Option<Value>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

/// The fields of a delta, of which each kind of delta has one or two.
#[derive(Deserialize)]
struct DeltaFields<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    partial_json: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    citation: Option<Value>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    container: Option<Value>,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let data = data.trim_ascii();
        // Some servers end streams like OpenAI.
        if data.is_empty() || data == b"[DONE]" {
            return Ok(());
        }
        let event: Event<'_> = match serde_json::from_slice(data) {
            Ok(event) => event,
            Err(error) => return unexpected_event(name, data, error),
        };
        let kind = if event.kind.is_empty() {
            name
        } else {
            &event.kind
        };
        match kind {
            "content_block_delta" => self.block_delta(event.index, event.delta, data, sink),
            "content_block_start" => {
                self.blocks
                    .begin(event.index, event.content_block.unwrap_or_default(), sink)
            }
            "content_block_stop" => {
                self.blocks.end(event.index, sink);
                Ok(())
            }
            "message_start" => {
                self.start(event.message.unwrap_or_default(), sink);
                Ok(())
            }
            "message_delta" => {
                self.change(event.delta, event.usage.as_ref(), sink);
                Ok(())
            }
            "message_stop" => {
                self.ended = true;
                sink.done = true;
                self.end(sink)
            }
            _ => match event.error.filter(|error| !error.is_null()) {
                Some(error) => Err(failed(&json!({ "error": error }))),
                None if kind == "error" => {
                    Err(failed(&serde_json::from_slice(data).unwrap_or_default()))
                }
                // Pings, and events of future versions.
                None => Ok(()),
            },
        }
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError> {
        if !self.ended && self.stop.is_none() {
            return Err(ModelError::new(
                ModelErrorKind::Transport,
                "the reply ended before it was complete",
            ));
        }
        self.blocks.finish(sink);
        if let Some(container) = self.container.take() {
            let data = json!({ "container": container });
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(NAME, data))));
        }
        if let Some(finish) = self
            .stop
            .take()
            .and_then(|word| finish(&word, self.blocks.calls() > 0))
        {
            sink.push(Delta::Finish(finish));
        }
        Ok(())
    }
}

impl Decoder {
    /// Handles `message_start`: the name of the model, the first counts and the container.
    fn start(&mut self, mut message: Value, sink: &mut Sink) {
        sink.model(
            message
                .get("model")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        );
        self.count(message.get("usage"), sink);
        self.store_container(message.get_mut("container").map(Value::take));
    }

    /// Handles a fragment of a block. A delta of an unknown type is parsed again as a whole,
    /// because its fields belong to a block that only the provider understands.
    fn block_delta(
        &mut self,
        index: Option<u64>,
        delta: Option<DeltaFields<'_>>,
        data: &[u8],
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        let Some(delta) = delta else { return Ok(()) };
        let piece = match &*delta.kind {
            "text_delta" => delta.text.map(Fragment::Text),
            "thinking_delta" => delta.thinking.map(Fragment::Thinking),
            "signature_delta" => delta.signature.map(Fragment::Signature),
            "input_json_delta" => delta.partial_json.map(Fragment::Json),
            "citations_delta" => delta.citation.map(Fragment::Citation),
            _ => {
                let mut whole: Value = serde_json::from_slice(data).unwrap_or_default();
                whole
                    .get_mut("delta")
                    .map(Value::take)
                    .map(Fragment::Fields)
            }
        };
        piece.map_or(Ok(()), |piece| self.blocks.add_fragment(index, piece, sink))
    }

    /// Handles `message_delta`: the stop reason, the container and the final counts.
    fn change(&mut self, delta: Option<DeltaFields<'_>>, usage: Option<&Value>, sink: &mut Sink) {
        if let Some(delta) = delta {
            self.stop = delta.stop_reason.or(self.stop.take());
            self.store_container(delta.container);
        }
        self.count(usage, sink);
    }

    /// Stores the id of a container. A later `null` does not remove it.
    fn store_container(&mut self, container: Option<Value>) {
        let id = container.and_then(|mut container| container.get_mut("id").map(Value::take));
        self.container = id.filter(Value::is_string).or(self.container.take());
    }

    /// Updates the counts and emits their sum, so that consumers see usage even if the reply is cut
    /// off.
    fn count(&mut self, usage: Option<&Value>, sink: &mut Sink) {
        if let Some(usage) = usage.filter(|usage| usage.is_object()) {
            self.counts.update(usage);
            sink.push(Delta::Usage(self.counts.usage()));
        }
    }
}

/// Decodes a reply that arrived as a single value.
///
/// # Errors
/// Returns `Malformed` if the reply has no list `content`.
pub(super) fn whole(reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
    let Some(content) = reply.get("content").and_then(Value::as_array) else {
        return Err(ModelError::new(
            ModelErrorKind::Malformed,
            "the reply has no content",
        ));
    };
    let mut decoder = Decoder {
        ended: true,
        ..Decoder::default()
    };
    for block in content {
        decoder.blocks.begin(None, block.clone(), sink)?;
        decoder.blocks.end(None, sink);
    }
    sink.model(
        reply
            .get("model")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    decoder.count(reply.get("usage"), sink);
    decoder.store_container(reply.get("container").cloned());
    decoder.stop = reply
        .get("stop_reason")
        .and_then(Value::as_str)
        .map(str::to_owned);
    decoder.end(sink)
}

/// Token counts under the API's names. Cached tokens are counted separately from the input.
///
/// A field is `None` until the server reports it, which is different from zero.
#[derive(Debug, Default)]
struct Counts {
    /// The input tokens that were neither read from the cache nor written to it.
    input: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    output: Option<u64>,
    thought: Option<u64>,
    /// The part of the written tokens that is cached for an hour.
    hour: Option<u64>,
    searches: Option<u64>,
    /// True if the server reports a faster service than the standard one, which costs more.
    priority: bool,
}

impl Counts {
    /// Updates the counts that are present.
    ///
    /// Servers without the field `cache_creation_input_tokens` report the written tokens by
    /// lifetime; their sum is used then.
    fn update(&mut self, usage: &Value) {
        let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
        let by_age = || {
            let ages = [
                "/cache_creation/ephemeral_5m_input_tokens",
                "/cache_creation/ephemeral_1h_input_tokens",
            ];
            ages.into_iter()
                .filter_map(number)
                .reduce(u64::saturating_add)
        };
        self.input = number("/input_tokens").or(self.input);
        self.read = number("/cache_read_input_tokens").or(self.read);
        self.written = number("/cache_creation_input_tokens")
            .or_else(by_age)
            .or(self.written);
        self.output = number("/output_tokens").or(self.output);
        self.thought = number("/output_tokens_details/thinking_tokens").or(self.thought);
        self.hour = number("/cache_creation/ephemeral_1h_input_tokens").or(self.hour);
        self.searches = number("/server_tool_use/web_search_requests").or(self.searches);
        let word = |path: &str| usage.pointer(path).and_then(Value::as_str);
        self.priority |= word("/speed").is_some_and(|speed| speed != "standard");
    }

    /// Converts the counts: the input of levity includes cached tokens, that of the API does not.
    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        usage.input = [self.input, self.read, self.written]
            .into_iter()
            .flatten()
            .reduce(u64::saturating_add);
        usage.output = self.output;
        usage.cached = self.read;
        usage.cache_written = self.written;
        usage.reasoning = self.thought;
        usage.cache_written_hour = self.hour.filter(|tokens| *tokens > 0);
        usage.searches = self.searches.filter(|searches| *searches > 0);
        usage.priority = self.priority;
        usage
    }
}

/// Converts the API's stop reason.
///
/// A truncation or a refusal wins over calls, because such calls may be incomplete. Any other
/// reason is `ToolCalls` if the reply has calls.
fn finish(word: &str, calls: bool) -> Option<Finish> {
    Some(match word {
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::ContentFilter,
        _ if calls => Finish::ToolCalls,
        "" => return None,
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "pause_turn" => Finish::Paused,
        other => Finish::Other(other.to_owned()),
    })
}

/// Converts an error event to an error of the kind that its code names.
fn failed(value: &Value) -> ModelError {
    find_failure(value).unwrap_or_default().into_error(None)
}

/// Handles an unexpected event. One of an unknown type does not belong to the reply.
///
/// An event that belongs to the reply but cannot be parsed is an error, because the reply would
/// silently lack a part.
fn unexpected_event(name: &str, data: &[u8], error: serde_json::Error) -> Result<(), ModelError> {
    let value: Option<Value> = serde_json::from_slice(data).ok();
    let kind = value
        .as_ref()
        .map(|value| value.get("type").and_then(Value::as_str).unwrap_or(name));
    match kind {
        None if name == "error" => {
            let message =
                String::from_utf8_lossy(data.get(..data.len().min(500)).unwrap_or_default());
            Err(ModelError::new(ModelErrorKind::Server, message))
        }
        Some(kind) if !kind.starts_with("content_block_") && !kind.starts_with("message_") => value
            .as_ref()
            .and_then(find_failure)
            .map_or(Ok(()), |failure| Err(failure.into_error(None))),
        _ => {
            let message = "cannot parse a chunk of the reply";
            Err(ModelError::new(ModelErrorKind::Malformed, message).with_source(error))
        }
    }
}
