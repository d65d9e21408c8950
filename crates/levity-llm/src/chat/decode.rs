//! Replies, as servers give them.

use std::borrow::Cow;
use std::mem::take;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{Delta, Finish, Media, ModelError, ModelErrorKind, Part, ProviderState};
use serde::Deserialize as _;
use serde::de::{DeserializeSeed as _, Error as _};
use serde_json::{Map, Value, json};

use super::calls::Calls;
use super::chunk::{Choice, Chunk, InPlace, Piece};
use super::{Field, NAME};
use crate::http::{Decode, Failure, Sink};
use crate::lenient::Said;
use crate::thoughts::{self, Thoughts};

/// What has been said so far.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Looks for thoughts in the text, if it is to.
    tags: Option<Thoughts>,
    calls: Calls,
    /// Data that goes back with the reply, by field.
    kept: Map<String, Value>,
    /// Where thoughts come from, as long as they come.
    thinking: Option<Field>,
    spoke: bool,
    /// Why the model stopped, in the server's word.
    word: Option<String>,
    /// Whether the end of the stream was marked.
    ended: bool,
    /// Whether something was said, and whether the last piece was counts on their own.
    begun: bool,
    counted: bool,
    /// Whether the server says that it serves the request before others.
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
                "a piece of the reply cannot be read",
            )
            .with_source(error)
        })?;
        self.chunk(&mut chunk, || Failure::read(data), sink)
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError> {
        if !self.ended && !self.counted && self.word.as_deref().unwrap_or_default().is_empty() {
            return Err(ModelError::new(
                ModelErrorKind::Transport,
                "the reply broke off before its end",
            ));
        }
        if let Some(mut tags) = self.tags.take() {
            tags.end(|piece| self.tagged(piece, sink));
        }
        self.close(sink);
        let cut = matches!(self.finish(), Some(Finish::Length | Finish::ContentFilter));
        self.calls.end(cut, sink);
        if !self.kept.is_empty() {
            let data = Value::Object(take(&mut self.kept));
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(NAME, data))));
        }
        if let Some(finish) = self.finish() {
            sink.push(Delta::Finish(finish));
        }
        Ok(())
    }
}

impl Decoder {
    /// A decoder that looks for thoughts in the text.
    pub(super) fn with_tags(wanted: bool) -> Self {
        Self {
            tags: wanted.then(Thoughts::default),
            ..Self::default()
        }
    }

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
        // Counts on their own, behind the reply and with nothing behind them, are its end where no
        // other is marked. Some servers send them first, and some in every chunk.
        self.counted = match &counts {
            Some(_) => self.begun && chunk.choices.is_empty(),
            None => self.counted && chunk.choices.is_empty(),
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

    fn choice(&mut self, choice: &mut Choice<'_>, sink: &mut Sink) -> Result<(), ModelError> {
        if let Some(error) = choice.error.take() {
            return Err(Failure::any(&json!({ "error": error })).into_error(None));
        }
        // Some repeat all that was said in a `message` beside the new piece, or say it there alone.
        let alone = choice.delta.says_nothing();
        self.begun |= !alone || choice.message.is_some() || !choice.delta.images.is_empty();
        match choice
            .message
            .take()
            .filter(|message| alone && (!self.spoke || self.is_news(message)))
        {
            Some(mut piece) => self.piece(&mut piece, sink),
            None => self.piece(&mut choice.delta, sink),
        }
        if let Some(word) = &choice.finish_reason
            && self.word.as_ref().is_none_or(String::is_empty)
        {
            self.word = Some(word.as_str().to_owned());
        }
        Ok(())
    }

    /// Whether a message has calls and nothing else, and none came before: some put them apart from
    /// the text.
    fn is_news(&self, message: &Piece<'_>) -> bool {
        message.content.is_empty() && self.calls.is_empty()
    }

    fn piece(&mut self, piece: &mut Piece<'_>, sink: &mut Sink) {
        // Where the same thought comes under two names, it is shown once.
        if piece.reasoning_content.is_empty() {
            self.think(take(&mut piece.reasoning), Field::Reasoning, sink);
        } else {
            self.think(
                take(&mut piece.reasoning_content),
                Field::ReasoningContent,
                sink,
            );
        }
        take(&mut piece.reasoning_details)
            .into_iter()
            .for_each(|detail| self.keep_detail(detail));
        match take(&mut piece.content) {
            Said::Text(text) if self.tags.is_none() => self.say(text, sink),
            Said::Text(text) => self.say_tagged(&text, sink),
            Said::Other(parts) => self.parts(&parts, sink),
        }
        if let Some(text) = piece
            .audio
            .as_ref()
            .and_then(|audio| audio.get("transcript")?.as_str())
        {
            self.say(text, sink);
        }
        match take(&mut piece.refusal) {
            Said::Text(text) => self.say(text, sink),
            Said::Other(value) => self.say(all_text(&value), sink),
        }
        let legacy = piece
            .function_call
            .take()
            .filter(|function| !function.says_nothing())
            .map(|function| (*function).into());
        for call in take(&mut piece.tool_calls).into_iter().chain(legacy) {
            self.close(sink);
            self.calls.take(call, sink);
        }
        let images = take(&mut piece.images)
            .into_iter()
            .filter_map(|image| picture(&image));
        images.for_each(|media| self.show(media, sink));
        if let Some(extra) = piece.extra_content.take().filter(|extra| extra.is_object()) {
            self.kept.insert("extra_content".to_owned(), *extra);
        }
    }

    fn say<'a>(&mut self, text: impl Into<Cow<'a, str>>, sink: &mut Sink) {
        let text = text.into();
        if text.is_empty() {
            return;
        }
        self.close(sink);
        self.spoke = true;
        sink.add_text(text);
    }

    fn think(&mut self, said: Said<'_>, field: Field, sink: &mut Sink) {
        let text = match said {
            Said::Text(text) => text,
            Said::Other(value) => Cow::Owned(all_text(&value)),
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

    /// Notes where the thoughts came from that have come to their end.
    fn close(&mut self, sink: &mut Sink) {
        if let Some(field) = self.thinking.take() {
            sink.push(Delta::Opaque(ProviderState::new(
                NAME,
                json!({ "field": field.name() }),
            )));
        }
    }

    fn say_tagged(&mut self, text: &str, sink: &mut Sink) {
        let Some(mut tags) = self.tags.take() else {
            return;
        };
        tags.take(text, |piece| self.tagged(piece, sink));
        self.tags = Some(tags);
    }

    fn tagged(&mut self, piece: thoughts::Piece, sink: &mut Sink) {
        match piece {
            thoughts::Piece::Thinking(text) => {
                self.think(Said::Text(text.into()), Field::Tags, sink);
            }
            thoughts::Piece::Text(text) => self.say(text, sink),
        }
    }

    /// Content as a list of parts: text, and thinking that is a list of its own.
    fn parts(&mut self, parts: &Value, sink: &mut Sink) {
        for part in parts.as_array().into_iter().flatten() {
            if part.get("type").and_then(Value::as_str) == Some("thinking") {
                let inner = part.get("thinking").map(all_text).unwrap_or_default();
                self.think(Said::Text(inner.into()), Field::Parts, sink);
            } else if let Some(media) = picture(part) {
                self.show(media, sink);
            } else {
                self.say(all_text(part), sink);
            }
        }
    }

    fn show(&mut self, media: Media, sink: &mut Sink) {
        self.close(sink);
        sink.push(Delta::Part(Part::Media(media)));
    }

    /// Reasoning with signatures, which goes back as it came. What can be read of it comes under
    /// its own name too.
    fn keep_detail(&mut self, detail: Value) {
        let kept = self
            .kept
            .entry("reasoning_details")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(kept) = kept {
            join(kept, detail);
        }
    }

    /// Calls are the reason to stop where there are any, unless they were cut.
    fn finish(&self) -> Option<Finish> {
        let finish = self.word.as_deref().map(super::finish);
        match finish {
            Some(Finish::Length | Finish::ContentFilter) => finish,
            _ if !self.calls.is_empty() => Some(Finish::ToolCalls),
            _ => finish,
        }
    }
}

/// Reads a chunk. Text is looked at as a whole first, which is quicker than string by string.
fn fill<'a>(chunk: &mut Chunk<'a>, data: &'a [u8]) -> serde_json::Result<()> {
    let text = std::str::from_utf8(data).map_err(serde_json::Error::custom)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    InPlace(chunk).deserialize(&mut reader)?;
    reader.end()
}

/// Adds a detail to those before it, or to the last when it goes on with that.
fn join(kept: &mut Vec<Value>, detail: Value) {
    let same = |a: &Value, b: &Value| {
        a.get("index").is_some()
            && a.get("index") == b.get("index")
            && a.get("type") == b.get("type")
    };
    let Some(last) = kept.last_mut().filter(|last| same(last, &detail)) else {
        return kept.push(detail);
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

/// A picture that the model made.
fn picture(part: &Value) -> Option<Media> {
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

fn all_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(all_text).collect(),
        Value::Object(map) => map.get("text").map(all_text).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Reads a reply that came in one piece.
pub(super) fn whole(
    mut decoder: Decoder,
    reply: &Value,
    sink: &mut Sink,
) -> Result<(), ModelError> {
    let mut chunk = Chunk::deserialize(reply).map_err(|error| {
        ModelError::new(ModelErrorKind::Malformed, "the reply cannot be read").with_source(error)
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
    // The pieces are the same; only the names around them differ.
    decoder.chunk(&mut chunk, || Failure::any(reply), sink)?;
    decoder.ended = true;
    decoder.end(sink)
}

impl Said<'_> {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}
