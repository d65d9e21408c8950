//! Decodes replies, as lines or as a single value.
//!
//! Every line is a complete object, and the last one has `done: true` with the counts. Calls arrive
//! complete, from older servers without an id.
//!
//! ```json
//! {"model": "qwen3:4b", "message": {"role": "assistant", "content": "Fi"}, "done": false}
//! {"model": "qwen3:4b", "message": {"role": "assistant", "content": "ve."}, "done": false}
//! {"model": "qwen3:4b", "message": {"content": ""}, "done": true, "done_reason": "stop",
//!  "prompt_eval_count": 31, "eval_count": 3}
//! ```

use levity_core::{CallId, Delta, Finish, ModelError, ModelErrorKind, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{Decode, Sink, find_failure};
use crate::lenient::TextOrValue;

/// The state of a partially decoded reply.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    calls: u32,
    done: bool,
}

/// One line of a stream, or a whole reply.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default, borrow)]
    model: TextOrValue<'a>,
    #[serde(default, borrow)]
    message: Option<MessageFragment<'a>>,
    /// The text of a server that answers in the older format.
    #[serde(default, borrow)]
    response: TextOrValue<'a>,
    #[serde(default)]
    done: Option<bool>,
    #[serde(default, borrow)]
    done_reason: TextOrValue<'a>,
    #[serde(default)]
    prompt_eval_count: Option<u64>,
    #[serde(default)]
    eval_count: Option<u64>,
    #[serde(default)]
    error: Option<Value>,
}

/// The new content of a line.
#[derive(Deserialize)]
struct MessageFragment<'a> {
    #[serde(default, borrow)]
    content: TextOrValue<'a>,
    #[serde(default, borrow)]
    thinking: TextOrValue<'a>,
    #[serde(default, borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
}

/// A call with its arguments, which are an object or, from older servers, text.
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default, borrow)]
    id: TextOrValue<'a>,
    #[serde(default, borrow)]
    function: Function<'a>,
}

#[derive(Deserialize, Default)]
struct Function<'a> {
    #[serde(default, borrow)]
    name: TextOrValue<'a>,
    #[serde(default, borrow)]
    arguments: TextOrValue<'a>,
}

impl Decode for Decoder {
    fn event(&mut self, _: &str, data: &[u8], sink: &mut Sink) -> Result<(), ModelError> {
        let line = serde_json::from_slice(data).map_err(|error| {
            ModelError::new(
                ModelErrorKind::Malformed,
                "cannot parse a line of the reply",
            )
            .with_source(error)
        })?;
        self.line(line, sink)
    }

    fn end(&mut self, _: &mut Sink) -> Result<(), ModelError> {
        if self.done {
            return Ok(());
        }
        Err(ModelError::new(
            ModelErrorKind::Transport,
            "the reply ended before it was complete",
        ))
    }
}

impl Decoder {
    /// Emits the content of a line, and usage and finish reason with the last one.
    fn line(&mut self, line: Line<'_>, sink: &mut Sink) -> Result<(), ModelError> {
        if let Some(error) = line.error.filter(|error| !error.is_null()) {
            return Err(find_failure(&json!({ "error": error }))
                .unwrap_or_default()
                .into_error(None));
        }
        sink.model(line.model.as_str());
        if let Some(piece) = line.message {
            sink.thinking(piece.thinking.as_str());
            sink.text(piece.content.as_str());
            piece
                .tool_calls
                .into_iter()
                .flatten()
                .for_each(|call| self.call(&call, sink));
        }
        sink.text(line.response.as_str());
        if line.done == Some(true) {
            (self.done, sink.done) = (true, true);
            let mut usage = Usage::default();
            // A cached prompt is not counted.
            (usage.input, usage.output) = (line.prompt_eval_count, line.eval_count);
            sink.push(Delta::Usage(usage));
            sink.push(Delta::Finish(self.finish(line.done_reason.as_str())));
        }
        Ok(())
    }

    /// Emits a call, which always arrives complete.
    fn call(&mut self, call: &Call<'_>, sink: &mut Sink) {
        let (index, name) = (self.calls, call.function.name.as_str().to_owned());
        self.calls = self.calls.saturating_add(1);
        sink.push(Delta::CallStart {
            index,
            id: CallId::new(call.id.as_str()),
            name,
        });
        let text = match &call.function.arguments {
            TextOrValue::Text(text) => text.to_string(),
            TextOrValue::Other(value) => value.to_string(),
        };
        if !text.is_empty() {
            sink.push(Delta::CallArgs { index, text });
        }
    }

    /// Returns the finish reason. A reply with calls ends with `stop` like any other.
    fn finish(&self, reason: &str) -> Finish {
        match reason {
            "length" => Finish::Length,
            _ if self.calls > 0 => Finish::ToolCalls,
            "stop" | "" => Finish::Stop,
            other => Finish::Other(other.to_owned()),
        }
    }
}

/// Decodes a reply that arrived as a single value.
///
/// # Errors
/// Returns `Malformed` if the reply has no message.
pub(super) fn whole(reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
    let malformed = || ModelError::new(ModelErrorKind::Malformed, "the reply has no message");
    let mut line = Line::deserialize(reply).map_err(|error| malformed().with_source(error))?;
    // Other servers put text there.
    if !reply.get("message").is_some_and(Value::is_object) {
        return Err(malformed());
    }
    line.done = Some(true);
    Decoder::default().line(line, sink)
}
