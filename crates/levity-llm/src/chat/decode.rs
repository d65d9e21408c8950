//! Decodes replies of Chat Completions servers.
//!
//! A stream and a whole reply have the same fields, so one decoder handles both. It must decide
//! without help from the server where the reply ends: by `[DONE]`, by a finish reason, or by a
//! final chunk with counts. A stream with none of them was cut off and is an error, because a
//! partial answer must not look like a complete one.
//!
//! A stream as OpenAI sends it, where the last chunk has only counts:
//!
//! ```text
//! data: {"choices":[{"index":0,"delta":{"content":"Fi"}}]}
//!
//! data: {"choices":[{"index":0,"delta":{"content":"ve."},"finish_reason":"stop"}]}
//!
//! data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}
//!
//! data: [DONE]
//! ```
//!
//! A call arrives in pieces, of which only the first has an id and a name:
//!
//! ```text
//! data: {"choices":[{"delta":{"tool_calls":[
//!     {"index":0,"id":"c1","function":{"name":"now","arguments":""}}]}}]}
//!
//! data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}
//! ```

use std::borrow::Cow;
use std::mem::take;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{Delta, Finish, Media, ModelError, ModelErrorKind, Part, ProviderState};
use serde::Deserialize as _;
use serde::de::{DeserializeSeed as _, Error as _};
use serde_json::{Map, Value, json};

use super::calls::Calls;
use super::chunk::{Choice, Chunk, InPlace, MessageFragment};
use super::{Field, NAME};
use crate::http::{Decode, Failure, Sink};
use crate::lenient::TextOrValue;
use crate::thoughts::{self, Thoughts};

/// The maximum size of the reasoning details in a reply.
const MAX_EXTRA_BYTES: usize = 32 << 20;

/// The state of a partially decoded reply.
///
/// Thoughts are emitted as they arrive; their field is attached as state at the end of each
/// thought.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The parser for thoughts in the text, if enabled.
    tags: Option<Thoughts>,
    calls: Calls,
    /// Data that is sent back with the reply, by field.
    extra_state: Map<String, Value>,
    /// The size of the data in `extra_state`, in bytes of JSON.
    extra_bytes: usize,
    /// The field of the current thoughts, while they continue.
    thinking: Option<Field>,
    /// True if text was emitted. A `message` that repeats the text is ignored then.
    has_text: bool,
    /// The server's own word for the finish reason.
    word: Option<String>,
    /// True if the end of the stream was marked.
    ended: bool,
    /// True if content arrived, and true if the last chunk contained only counts.
    started: bool,
    ended_with_counts: bool,
    /// True if the server reports that the request has priority.
    prioritised: bool,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.ended = true;
            sink.done = true;
            return self.end(sink);
        }
        if data.is_empty() {
            return Ok(());
        }
        if name == "error" {
            return Err(Failure::read(data).into_error(None));
        }
        let mut chunk = Chunk::default();
        fill(&mut chunk, data).map_err(|error| {
            ModelError::new(
                ModelErrorKind::Malformed,
                "cannot parse a chunk of the reply",
            )
            .with_source(error)
        })?;
        self.chunk(&mut chunk, || Failure::read(data), sink)
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError> {
        if !self.ended
            && !self.ended_with_counts
            && self.word.as_deref().unwrap_or_default().is_empty()
        {
            return Err(ModelError::new(
                ModelErrorKind::Transport,
                "the reply ended before it was complete",
            ));
        }
        if let Some(mut tags) = self.tags.take() {
            tags.end(|piece| self.emit_tagged(piece, sink));
        }
        self.close(sink);
        let cut = matches!(self.finish(), Some(Finish::Length | Finish::ContentFilter));
        self.calls.end(cut, sink);
        if !self.extra_state.is_empty() {
            let data = Value::Object(take(&mut self.extra_state));
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(NAME, data))));
        }
        if let Some(finish) = self.finish() {
            sink.push(Delta::Finish(finish));
        }
        Ok(())
    }
}

impl Decoder {
    /// Creates a decoder that optionally parses thoughts in the text.
    pub(super) fn with_tags(enabled: bool) -> Self {
        Self {
            tags: enabled.then(Thoughts::default),
            ..Self::default()
        }
    }

    /// Handles a chunk: errors first, then the model's name, counts and the first choice. Further
    /// choices (`n` > 1) are ignored.
    fn chunk(
        &mut self,
        chunk: &mut Chunk<'_>,
        failure: impl FnOnce() -> Failure,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        if chunk.error.is_some() || (chunk.choices.is_empty() && chunk.object.as_str() == "error") {
            return Err(failure().into_error(None));
        }
        sink.model(chunk.model.as_str());
        let counts = chunk
            .usage
            .take()
            .or(chunk.x_groq.usage.take())
            .filter(|counts| counts.any);
        // A final chunk with only counts marks the end of the reply if no other mark does. Some
        // servers send counts first, and some in every chunk.
        self.ended_with_counts = match &counts {
            Some(_) => self.started && chunk.choices.is_empty(),
            None => self.ended_with_counts && chunk.choices.is_empty(),
        };
        self.prioritised |= chunk.service_tier.as_str() == "priority";
        if let Some(counts) = counts {
            let mut usage = counts.usage();
            usage.priority = self.prioritised;
            sink.push(Delta::Usage(usage));
        }
        let mut first = chunk
            .choices
            .iter_mut()
            .filter(|choice| choice.index.0.unwrap_or(0) == 0);
        first.try_for_each(|choice| self.choice(choice, sink))
    }

    /// Handles a choice. The first finish reason that is not empty counts.
    fn choice(&mut self, choice: &mut Choice<'_>, sink: &mut Sink) -> Result<(), ModelError> {
        if let Some(error) = choice.error.take() {
            return Err(Failure::any(&json!({ "error": error })).into_error(None));
        }
        // Some servers repeat the whole text in a `message` next to the new fragment, or send it
        // only there.
        let alone = choice.delta.is_blank();
        self.started |= !alone || choice.message.is_some() || !choice.delta.images.is_empty();
        match choice
            .message
            .take()
            .filter(|message| alone && (!self.has_text || self.has_new_calls(message)))
        {
            Some(mut piece) => self.piece(&mut piece, sink)?,
            None => self.piece(&mut choice.delta, sink)?,
        }
        if let Some(word) = &choice.finish_reason
            && self.word.as_ref().is_none_or(String::is_empty)
        {
            self.word = Some(word.as_str().to_owned());
        }
        Ok(())
    }

    /// Returns `true` if a message has only calls and none arrived before: some servers send them
    /// separately from the text.
    fn has_new_calls(&self, message: &MessageFragment<'_>) -> bool {
        message.content.is_empty() && self.calls.is_empty()
    }

    /// Emits thoughts, text, calls and images of a fragment, in this order.
    fn piece(
        &mut self,
        piece: &mut MessageFragment<'_>,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        // If the same thought arrives under two names, it is emitted once.
        if piece.reasoning_content.is_empty() {
            self.emit_thinking(take(&mut piece.reasoning), Field::Reasoning, sink);
        } else {
            self.emit_thinking(
                take(&mut piece.reasoning_content),
                Field::ReasoningContent,
                sink,
            );
        }
        for detail in take(&mut piece.reasoning_details) {
            self.count_extra(&detail)?;
            self.store_detail(detail);
        }
        match take(&mut piece.content) {
            TextOrValue::Text(text) if self.tags.is_none() => self.emit_text(text, sink),
            TextOrValue::Text(text) => self.parse_tagged_text(&text, sink),
            TextOrValue::Other(parts) => self.parts(&parts, sink),
        }
        if let Some(text) = piece
            .audio
            .as_ref()
            .and_then(|audio| audio.get("transcript")?.as_str())
        {
            self.emit_text(text, sink);
        }
        match take(&mut piece.refusal) {
            TextOrValue::Text(text) => self.emit_text(text, sink),
            TextOrValue::Other(value) => self.emit_text(all_text(&value), sink),
        }
        let legacy = piece
            .function_call
            .take()
            .filter(|function| !function.is_blank())
            .map(|function| (*function).into());
        for call in take(&mut piece.tool_calls).into_iter().chain(legacy) {
            self.close(sink);
            self.calls.take(call, sink)?;
        }
        let images = take(&mut piece.images)
            .into_iter()
            .filter_map(|image| generated_image(&image));
        images.for_each(|media| self.emit_media(media, sink));
        if let Some(extra) = piece.extra_content.take().filter(|extra| extra.is_object()) {
            self.extra_state.insert("extra_content".to_owned(), *extra);
        }
        Ok(())
    }

    /// Limits the reasoning details of a reply to 32 MiB.
    fn count_extra(&mut self, detail: &Value) -> Result<(), ModelError> {
        self.extra_bytes += detail.to_string().len();
        if self.extra_bytes <= MAX_EXTRA_BYTES {
            return Ok(());
        }
        let message =
            format!("the reply has more than {MAX_EXTRA_BYTES} bytes of reasoning details");
        Err(ModelError::new(ModelErrorKind::Malformed, message))
    }

    /// Emits text, unless it is empty, and ends the thoughts before it.
    fn emit_text<'a>(&mut self, text: impl Into<Cow<'a, str>>, sink: &mut Sink) {
        let text = text.into();
        if text.is_empty() {
            return;
        }
        self.close(sink);
        self.has_text = true;
        sink.add_text(text);
    }

    /// Emits thoughts, unless they are empty. Thoughts of another field start a new part.
    fn emit_thinking(&mut self, value: TextOrValue<'_>, field: Field, sink: &mut Sink) {
        let text = match value {
            TextOrValue::Text(text) => text,
            TextOrValue::Other(value) => Cow::Owned(all_text(&value)),
        };
        if text.is_empty() {
            return;
        }
        if self.thinking.is_some_and(|before| before != field) {
            self.close(sink);
        }
        self.thinking = Some(field);
        sink.add_thinking(text);
    }

    /// Emits the field of the thoughts that have ended.
    fn close(&mut self, sink: &mut Sink) {
        if let Some(field) = self.thinking.take() {
            sink.push(Delta::Opaque(ProviderState::new(
                NAME,
                json!({ "field": field.name() }),
            )));
        }
    }

    /// Separates thoughts from text. The parser is taken out for that time, because it calls back.
    fn parse_tagged_text(&mut self, text: &str, sink: &mut Sink) {
        let Some(mut tags) = self.tags.take() else {
            return;
        };
        tags.take(text, |piece| self.emit_tagged(piece, sink));
        self.tags = Some(tags);
    }

    /// Emits a piece of tagged text as what it is.
    fn emit_tagged(&mut self, piece: thoughts::Piece, sink: &mut Sink) {
        match piece {
            thoughts::Piece::Thinking(text) => {
                self.emit_thinking(TextOrValue::Text(text.into()), Field::Tags, sink);
            }
            thoughts::Piece::Text(text) => self.emit_text(text, sink),
        }
    }

    /// Decodes content as a list of parts: text, and thinking as a nested list.
    fn parts(&mut self, parts: &Value, sink: &mut Sink) {
        for part in parts.as_array().into_iter().flatten() {
            if part.get("type").and_then(Value::as_str) == Some("thinking") {
                let inner = part.get("thinking").map(all_text).unwrap_or_default();
                self.emit_thinking(TextOrValue::Text(inner.into()), Field::Parts, sink);
            } else if let Some(media) = generated_image(part) {
                self.emit_media(media, sink);
            } else {
                self.emit_text(all_text(part), sink);
            }
        }
    }

    /// Emits an image as a part of its own.
    fn emit_media(&mut self, media: Media, sink: &mut Sink) {
        self.close(sink);
        sink.push(Delta::Part(Part::Media(media)));
    }

    /// Stores reasoning with signatures, which is sent back unchanged. Its readable text also
    /// arrives in another field.
    fn store_detail(&mut self, detail: Value) {
        let extra_state = self
            .extra_state
            .entry("reasoning_details")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(extra_state) = extra_state {
            join(extra_state, detail);
        }
    }

    /// Returns the finish reason: tool calls if there are any, unless they were truncated.
    fn finish(&self) -> Option<Finish> {
        let finish = self.word.as_deref().map(super::finish);
        match finish {
            Some(Finish::Length | Finish::ContentFilter) => finish,
            _ if !self.calls.is_empty() => Some(Finish::ToolCalls),
            _ => finish,
        }
    }
}

/// Parses a chunk. The data is validated as UTF-8 first, which is faster than string by string.
fn fill<'a>(chunk: &mut Chunk<'a>, data: &'a [u8]) -> serde_json::Result<()> {
    let text = std::str::from_utf8(data).map_err(serde_json::Error::custom)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    InPlace(chunk).deserialize(&mut reader)?;
    reader.end()
}

/// Appends a detail to the list, or merges it into the last one that it continues.
///
/// Pieces of one detail have the same index and type. Their texts are concatenated, and other
/// fields are replaced unless they are `null`.
fn join(extra_state: &mut Vec<Value>, detail: Value) {
    let same = |a: &Value, b: &Value| {
        a.get("index").is_some()
            && a.get("index") == b.get("index")
            && a.get("type") == b.get("type")
    };
    let Some(last) = extra_state.last_mut().filter(|last| same(last, &detail)) else {
        return extra_state.push(detail);
    };
    let (Value::Object(last), Value::Object(detail)) = (last, detail) else {
        return;
    };
    for (name, value) in detail {
        match (last.get_mut(&name), value) {
            (Some(Value::String(old)), Value::String(more))
                if matches!(&*name, "text" | "summary" | "data") =>
            {
                old.push_str(&more);
            }
            (_, Value::Null) => {}
            (_, value) => drop(last.insert(name, value)),
        }
    }
}

/// Returns an image that the model created.
///
/// Both forms of the field occur: `{"image_url": {"url": ".."}}` and `{"image_url": ".."}`. A URL
/// without data is assumed to be a PNG.
fn generated_image(part: &Value) -> Option<Media> {
    let url = part
        .pointer("/image_url/url")
        .or_else(|| part.get("image_url"))?
        .as_str()?;
    let Some((head, data)) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
    else {
        return Some(Media::url("image/png", url));
    };
    Some(Media::bytes(head, STANDARD.decode(data).ok()?))
}

/// Collects the text of a value: a string, the field `text` of an object, or all items of a list.
fn all_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(all_text).collect(),
        Value::Object(map) => map.get("text").map(all_text).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Decodes a reply that arrived as a single value.
///
/// # Errors
/// Returns the error that the reply reports, or `Malformed` if it has no choices.
pub(super) fn whole(
    mut decoder: Decoder,
    reply: &Value,
    sink: &mut Sink,
) -> Result<(), ModelError> {
    let mut chunk = Chunk::deserialize(reply).map_err(|error| {
        ModelError::new(ModelErrorKind::Malformed, "cannot parse the reply").with_source(error)
    })?;
    if chunk.choices.is_empty() {
        let failure = Failure::any(reply);
        if !failure.message.is_empty() {
            return Err(failure.into_error(None));
        }
        return Err(ModelError::new(
            ModelErrorKind::Malformed,
            "the reply has no choices",
        ));
    }
    // The fragments are the same; only the surrounding names differ.
    decoder.chunk(&mut chunk, || Failure::any(reply), sink)?;
    decoder.ended = true;
    decoder.end(sink)
}

impl TextOrValue<'_> {
    /// Returns `true` for a missing, `null` or empty text; another value is not empty.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}
