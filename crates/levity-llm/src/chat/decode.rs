//! Replies, as servers give them.

use std::borrow::Cow;

use levity_core::{CallId, Delta, ModelError, ModelErrorKind, Opaque, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{NAME, push_finish};
use crate::http::{Decode, Sink, plain};

/// What has been said so far.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    calls: Vec<Call>,
    /// Data that goes back with the reply, by field.
    kept: Map<String, Value>,
    finished: bool,
    counted: bool,
    thinks: bool,
    spoke: bool,
}

/// A call that has begun.
#[derive(Debug)]
struct Call {
    /// The server's number for it, where it has one.
    number: Option<u64>,
    id: String,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    x_groq: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, borrow)]
    delta: Option<Piece<'a>>,
    #[serde(default, borrow)]
    message: Option<Piece<'a>>,
    #[serde(default, borrow)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(default)]
    index: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Piece<'a> {
    #[serde(default, borrow)]
    content: Option<Said<'a>>,
    #[serde(default, borrow)]
    reasoning_content: Option<Said<'a>>,
    #[serde(default, borrow)]
    reasoning: Option<Said<'a>>,
    #[serde(default)]
    reasoning_details: Option<Vec<Value>>,
    #[serde(default, borrow)]
    refusal: Option<Said<'a>>,
    #[serde(default)]
    tool_calls: Option<Vec<Value>>,
    #[serde(default)]
    function_call: Option<Value>,
}

/// Text, or a list of parts, or something else.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Other(Value),
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            sink.done = true;
            self.finished = true;
            return self.end(sink);
        }
        if data.is_empty() {
            return Ok(());
        }
        let chunk: Chunk<'_> = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
            Err(error) => return Err(unreadable(name, data, error)),
        };
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(failed(&json!({ "error": error })));
        }
        if name == "error" {
            return Err(failed(&serde_json::from_slice(data).unwrap_or_default()));
        }
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.choice(choice, sink);
        }
        let groq = chunk.x_groq.and_then(|mut groq| groq.get_mut("usage").map(Value::take));
        if let Some(usage) = [groq, chunk.usage].into_iter().flatten().find(Value::is_object) {
            self.counted = true;
            sink.push(Delta::Usage(count(&usage)));
        }
        Ok(())
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), ModelError> {
        if !self.kept.is_empty() {
            let data = Value::Object(std::mem::take(&mut self.kept));
            sink.push(Delta::Part(levity_core::Part::Opaque(Opaque::new(NAME, data))));
        }
        if self.finished || self.counted {
            return Ok(());
        }
        Err(ModelError::new(ModelErrorKind::Transport, "the reply broke off before its end"))
    }
}

impl Decoder {
    fn choice(&mut self, choice: Choice<'_>, sink: &mut Sink) {
        // Some repeat all that was said in a `message` beside the new piece, or say it there alone.
        let silent = |piece: &Piece<'_>| matches!(&piece.content, None | Some(Said::Text(Cow::Borrowed(""))));
        let said = choice.message.filter(|_| !self.spoke && choice.delta.as_ref().is_none_or(silent));
        if let Some(piece) = said.or(choice.delta) {
            self.piece(piece, sink);
        }
        if let Some(word) = choice.finish_reason.filter(|word| !word.is_empty()) {
            self.finished = true;
            push_finish(&word, sink);
        }
    }

    fn piece(&mut self, piece: Piece<'_>, sink: &mut Sink) {
        let thought = piece.reasoning_content.or(piece.reasoning);
        let thought = thought.map(|said| thinking_of(&said)).unwrap_or_default();
        sink.thinking(&thought);
        self.thinks |= !thought.is_empty();
        if let Some(details) = piece.reasoning_details.filter(|details| !details.is_empty()) {
            self.details(details, thought.is_empty(), sink);
        }
        match piece.content {
            Some(Said::Text(text)) => self.say(&text, sink),
            Some(Said::Other(parts)) => self.parts(&parts, sink),
            None => {}
        }
        if let Some(refusal) = piece.refusal {
            self.say(&text_of(&refusal), sink);
        }
        for call in piece.tool_calls.into_iter().flatten() {
            self.call(call, sink);
        }
        if let Some(function) = piece.function_call.filter(has_name) {
            self.call(json!({ "function": function }), sink);
        }
    }

    fn say(&mut self, text: &str, sink: &mut Sink) {
        self.spoke |= !text.is_empty();
        sink.text(text);
    }

    /// Content as a list of parts: text, and thinking that is a list of its own.
    fn parts(&mut self, parts: &Value, sink: &mut Sink) {
        for part in parts.as_array().into_iter().flatten() {
            match part.get("type").and_then(Value::as_str) {
                Some("thinking") => {
                    let inner = part.get("thinking").unwrap_or(&Value::Null);
                    sink.thinking(&all_text(inner));
                }
                _ => {
                    let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
                    self.say(text, sink);
                }
            }
        }
    }

    /// Reasoning with signatures, which goes back as it came; its text is shown unless it came already.
    fn details(&mut self, details: Vec<Value>, show: bool, sink: &mut Sink) {
        for detail in details {
            let text = ["text", "summary"].iter().find_map(|name| detail.get(*name)?.as_str());
            if let Some(text) = text.filter(|_| show) {
                sink.thinking(text);
            }
            let kept = self.kept.entry("reasoning_details").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(kept) = kept {
                join(kept, detail);
            }
        }
    }

    /// A call, or more of one. Numbers and ids may be missing, and a call may come whole.
    fn call(&mut self, mut call: Value, sink: &mut Sink) {
        let number = call.get("index").and_then(Value::as_u64);
        let id = call.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut function = call.get_mut("function").map(Value::take).unwrap_or_default();
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let known = self.calls.iter().position(|known| match number {
            Some(_) if known.number == number => id.is_empty() || known.id == id || name.is_empty(),
            None => !id.is_empty() && known.id == id,
            _ => false,
        });
        // More of a call that says neither which it is nor what: the last one.
        let known = known.or_else(|| name.is_empty().then(|| self.calls.len().checked_sub(1)).flatten());
        let at = known.unwrap_or_else(|| self.begin(number, id, name, &call, sink));
        let text = match function.get_mut("arguments").map(Value::take) {
            Some(Value::String(text)) => text,
            None | Some(Value::Null) => String::new(),
            Some(value) => value.to_string(),
        };
        if !text.is_empty() {
            sink.push(Delta::CallArgs { index: index(at), text });
        }
    }

    fn begin(
        &mut self,
        number: Option<u64>,
        id: String,
        name: String,
        call: &Value,
        sink: &mut Sink,
    ) -> usize {
        let at = self.calls.len();
        sink.push(Delta::CallStart { index: index(at), id: CallId::new(id.as_str()), name });
        self.calls.push(Call { number, id });
        // Signatures of Gemini's, behind its own endpoint of this protocol.
        if let Some(extra) = call.get("extra_content").filter(|extra| !extra.is_null()) {
            sink.push(Delta::Opaque(Opaque::new(NAME, json!({ "extra_content": extra }))));
        }
        at
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn has_name(function: &Value) -> bool {
    function.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty())
}

/// Adds a detail to those before it, or to the last when it goes on with that.
fn join(kept: &mut Vec<Value>, detail: Value) {
    let same = |a: &Value, b: &Value| {
        a.get("index").is_some() && a.get("index") == b.get("index") && a.get("type") == b.get("type")
    };
    let Some(last) = kept.last_mut().filter(|last| same(last, &detail)) else { return kept.push(detail) };
    let (Value::Object(last), Value::Object(detail)) = (last, detail) else { return };
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

fn text_of<'a>(said: &'a Said<'_>) -> Cow<'a, str> {
    match said {
        Said::Text(text) => Cow::Borrowed(text),
        Said::Other(value) => Cow::Owned(all_text(value)),
    }
}

fn thinking_of(said: &Said<'_>) -> String {
    text_of(said).into_owned()
}

fn all_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(all_text).collect(),
        Value::Object(map) => map.get("text").map(all_text).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Token counts, under the names that servers have for them.
pub(super) fn count(usage: &Value) -> Usage {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let mut counts = Usage::default();
    counts.input = number("/prompt_tokens").or_else(|| number("/input_tokens"));
    counts.output = number("/completion_tokens").or_else(|| number("/output_tokens"));
    counts.cached = number("/prompt_tokens_details/cached_tokens")
        .or_else(|| number("/prompt_cache_hit_tokens"))
        .or_else(|| number("/cached_tokens"));
    counts.reasoning =
        number("/completion_tokens_details/reasoning_tokens").or_else(|| number("/reasoning_tokens"));
    counts
}

/// Reads a reply that came in one piece.
pub(super) fn whole(reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
    let mut decoder = Decoder::default();
    // The pieces are the same; only the names around them differ.
    let bytes = serde_json::to_vec(reply).unwrap_or_default();
    let has_choices = reply.get("choices").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !has_choices {
        return Err(ModelError::new(ModelErrorKind::Malformed, "the reply has no choices"));
    }
    decoder.event("", &bytes, sink)?;
    decoder.finished = true;
    decoder.end(sink)
}

fn failed(value: &Value) -> ModelError {
    plain(value).unwrap_or_default().into_error(None)
}

fn unreadable(name: &str, data: &[u8], error: serde_json::Error) -> ModelError {
    if name == "error" {
        let message =
            String::from_utf8_lossy(data.get(..data.len().min(500)).unwrap_or_default()).into_owned();
        return ModelError::new(ModelErrorKind::Server, message);
    }
    ModelError::new(ModelErrorKind::Malformed, "a piece of the reply cannot be read").with_source(error)
}
