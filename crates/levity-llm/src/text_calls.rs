//! Parses tool calls that a model wrote as text.
//!
//! Small and local models often make the right call, but their server does not recognise it and
//! delivers it as the text of the reply. While tools are offered and the reply has no native call,
//! text that *is* a call of an offered tool becomes that call. Text that only mentions calls
//! remains text:
//!
//! - The call ends the reply. A short introduction may precede it. Nothing may follow it, except a
//!   result that the model invents, which is removed.
//! - The tool's name is one of the offered names, and the arguments are an object that fits the
//!   tool.
//! - The user did not ask for JSON, code or an example, and the text is not quoted from a message
//!   or a tool result.
//!
//! Text streams without delay while it cannot be a call; only text that may still become one is
//! held back. A call that was truncated by the token limit becomes a call with invalid arguments,
//! so that the loop can request it again.

#[cfg(any(feature = "openai", feature = "compatible", feature = "ollama"))]
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use levity_core::{
    CallId, Delta, Finish, Message, ProviderState, Request, ToolCall, ToolChoice, ToolSpec,
};
use serde_json::json;

use crate::names::OriginalNames;

mod context;
mod forms;
mod python;
mod start;
mod value;

use start::Start;

/// The maximum length of an introduction before a call, in bytes. A longer text is an answer, and
/// JSON after an answer is part of it.
const MAX_LEAD_IN_BYTES: usize = 320;

/// The maximum length of text that is held back, in bytes.
const MAX_HELD_BYTES: usize = 1 << 20;

/// The maximum length of text that is held back before it definitely starts like a call, in bytes.
const MAX_UNDECIDED_BYTES: usize = 4 << 10;

/// The first index of parsed calls, so that they never share an index with native calls.
const FIRST_INDEX: u32 = 1 << 16;

/// A call that was found in text.
///
/// The name is one of the offered tools, spelled as the tool spells it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// The arguments, as JSON text.
    pub(crate) args: String,
}

/// A parser for the text of one reply.
///
/// The reply passes through three states: forwarding the introduction, holding text that may become
/// a call, and finished, after which everything is forwarded. Held text is released unchanged if it
/// turns out to be no call, so nothing of the reply is lost.
#[derive(Debug)]
pub(crate) struct TextCallParser {
    tools: Arc<[Arc<ToolSpec>]>,
    original_names: Option<Arc<OriginalNames>>,
    context: context::Context,
    /// Text that was already forwarded: the introduction.
    lead_in: String,
    /// Text that may be a call.
    held: String,
    /// True if `held` definitely starts like a call, so that only its end decides.
    started: bool,
    /// True if the rest of the reply cannot contain a call.
    finished: bool,
}

impl TextCallParser {
    /// Creates a parser for the reply to this request, if it offers tools. `original_names`
    /// restores names that the wire format changed.
    ///
    /// The context is computed once per reply, from the last message of the user and the last eight
    /// messages.
    pub(crate) fn new(
        request: &Request,
        original_names: Option<Arc<OriginalNames>>,
    ) -> Option<Self> {
        if request.tools.is_empty() || request.tool_choice == ToolChoice::None {
            return None;
        }
        Some(Self {
            tools: request.tools.clone(),
            original_names,
            context: context::Context::of(request),
            lead_in: String::new(),
            held: String::new(),
            started: false,
            finished: false,
        })
    }

    /// Processes a delta of the reply and forwards text that is certainly not a call.
    ///
    /// A restart of an inner layer resets the parser. Native calls, media and provider state end
    /// it: a server that recognises calls needs no help.
    pub(crate) fn take(&mut self, delta: Delta, out: &mut VecDeque<Delta>) {
        match delta {
            Delta::Text(text) if !self.finished => self.text(&text, out),
            Delta::Finish(finish) => {
                let finish = self.finish(finish, out);
                out.push_back(Delta::Finish(finish));
            }
            Delta::Restart { .. } => {
                self.lead_in.clear();
                self.held.clear();
                (self.started, self.finished) = (false, false);
                out.push_back(delta);
            }
            Delta::Thinking(_) | Delta::Usage(_) | Delta::Model(_) | Delta::Waiting { .. } => {
                out.push_back(delta);
            }
            delta if delta.is_content() => {
                // The reply contains native calls, media or provider-specific blocks, so it needs
                // no parsing.
                self.release(out);
                self.finished = true;
                out.push_back(delta);
            }
            delta => out.push_back(delta),
        }
    }

    /// Forwards held text, because content other than text follows it.
    pub(crate) fn interrupt(&mut self, out: &mut VecDeque<Delta>) {
        // A call must end the reply.
        let is_over = self.finished || self.started;
        self.forward_text(self.held.len(), out);
        (self.started, self.finished) = (false, self.finished || is_over);
    }

    /// Handles the end of a stream without a finish reason.
    pub(crate) fn end(&mut self, out: &mut VecDeque<Delta>) {
        if self.finish(Finish::Stop, out) == Finish::ToolCalls {
            out.push_back(Delta::Finish(Finish::ToolCalls));
        }
    }

    /// Each chunk may move the start of the held text forward. Once the text has started like a
    /// call, it is only collected, and its end decides.
    fn text(&mut self, text: &str, out: &mut VecDeque<Delta>) {
        self.held.push_str(text);
        if self.held.len() > MAX_HELD_BYTES {
            self.release(out);
            self.finished = true;
            return;
        }
        while !self.started && !self.held.is_empty() && !self.finished {
            let at = start::candidate(&self.lead_in, &self.held, &self.tools);
            self.forward_text(at, out);
            if self.held.is_empty() || self.finished {
                break;
            }
            match start::classify(&self.held, &self.tools) {
                Start::Call => self.started = true,
                // Each further chunk would require another scan of the whole text.
                Start::Unknown if self.held.len() <= MAX_UNDECIDED_BYTES => break,
                Start::Unknown | Start::Text => self.forward_text(first_char(&self.held), out),
            }
        }
        if self.finished {
            self.release(out);
        }
    }

    /// Forwards this many bytes of the held text as part of the introduction.
    fn forward_text(&mut self, bytes: usize, out: &mut VecDeque<Delta>) {
        if bytes == 0 {
            return;
        }
        let rest = self.held.split_off(bytes);
        let text = std::mem::replace(&mut self.held, rest);
        self.lead_in.push_str(&text);
        self.finished =
            self.lead_in.trim().len() > MAX_LEAD_IN_BYTES || self.lead_in.contains("```");
        match out.back_mut() {
            Some(Delta::Text(last)) => last.push_str(&text),
            _ => out.push_back(Delta::Text(text)),
        }
    }

    /// Forwards all held text as it is.
    fn release(&mut self, out: &mut VecDeque<Delta>) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            out.push_back(Delta::Text(held));
        }
    }

    /// Decides whether the held text is a call.
    ///
    /// Returns the finish reason to report: parsed calls turn a stop into tool calls. Emits a
    /// notice, so that a run shows that a call was read from text. The first call carries the
    /// source text as provider state, from which [`source_text`] restores the model's own words.
    fn finish(&mut self, finish: Finish, out: &mut VecDeque<Delta>) -> Finish {
        let (calls, finish) = match finish {
            finish if self.finished => (None, finish),
            Finish::Stop | Finish::ToolCalls | Finish::Other(_) => match self.calls() {
                None => (None, finish),
                calls => (calls, Finish::ToolCalls),
            },
            Finish::Length => (
                self.truncated_call()
                    .map(|call| (vec![call], self.held.len())),
                finish,
            ),
            finish => (None, finish),
        };
        self.finished = true;
        let Some(calls) = calls else {
            self.release(out);
            return finish;
        };
        let (calls, used) = calls;
        let mut text = std::mem::take(&mut self.held);
        // A result that the model invented is not sent back to it.
        text.truncate(used);
        let names: Vec<&str> = calls.iter().map(|call| &*call.name).collect();
        let what = if finish == Finish::Length {
            "the beginning of a call"
        } else {
            "call"
        };
        out.push_back(Delta::Notice {
            text: format!("read from text: {what} of `{}`", names.join("`, `")),
        });
        for (number, call) in calls.into_iter().enumerate() {
            let index = FIRST_INDEX + u32::try_from(number).unwrap_or(u32::MAX - FIRST_INDEX);
            let own = self
                .original_names
                .as_ref()
                .and_then(|original_names| original_names.get(&call.name))
                .cloned();
            let name = own.unwrap_or(call.name);
            out.push_back(Delta::CallStart {
                index,
                id: CallId::from(""),
                name,
            });
            out.push_back(Delta::CallArgs {
                index,
                text: call.args,
            });
            // The first call stores the text for all of them.
            let data = if number == 0 {
                json!({"text": text})
            } else {
                json!({})
            };
            out.push_back(Delta::Opaque(ProviderState::new(
                ProviderState::TEXT_CALL,
                data,
            )));
        }
        finish
    }

    /// Returns the call that the held text starts. Its arguments are the text itself, which is
    /// never valid JSON.
    ///
    /// The tool is the one whose name occurs first in the text. The dispatcher rejects the invalid
    /// arguments, and the loop asks the model for the call again instead of ending with half a
    /// call.
    fn truncated_call(&self) -> Option<Call> {
        let text = self.held.trim();
        let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if !self.started
            || is_whole
            || self.context.forbids_code()
            || self.context.forbids(&self.lead_in, text)
        {
            return None;
        }
        let found = self
            .tools
            .iter()
            .filter_map(|tool| Some((text.find(&tool.name)?, &tool.name)));
        // Of two names at the same position, the longer one is the intended one.
        let (_, name) = found.min_by_key(|(at, name)| (*at, std::cmp::Reverse(name.len())))?;
        Some(Call {
            name: name.clone(),
            args: text.to_owned(),
        })
    }

    /// Returns the calls that the held text consists of, and their end.
    ///
    /// The end is a byte offset into the held text. An invented result after it is cut off.
    fn calls(&self) -> Option<(Vec<Call>, usize)> {
        let text = self.held.trim();
        if text.is_empty() || self.context.forbids(&self.lead_in, text) {
            return None;
        }
        let (calls, used) = forms::read(text, &self.tools, !self.context.forbids_code())?;
        let end = if used < text.len() {
            // After an introduction, calls with their results are an example.
            if !self.lead_in.trim().is_empty() {
                return None;
            }
            let blanks = self.held.len() - self.held.trim_start().len();
            blanks + text[..used].trim_end().len()
        } else {
            self.held.len()
        };
        (!calls.is_empty()).then_some((calls, end))
    }
}

/// Returns the text from which all calls of a message were parsed, if any. The model receives its
/// calls back in this form.
///
/// A message that also has native calls returns `None`, since its text is not the source of all
/// calls.
pub(crate) fn source_text(message: &Message) -> Option<&str> {
    let source_text = message
        .calls()
        .next()?
        .opaque
        .as_ref()?
        .data
        .get("text")?
        .as_str();
    source_text.filter(|_| message.calls().all(ToolCall::is_from_text))
}

/// Returns the text of a message, and `true` if its calls are sent as native calls.
#[cfg(any(feature = "openai", feature = "compatible", feature = "ollama"))]
pub(crate) fn split(message: &Message) -> (Cow<'_, str>, bool) {
    match source_text(message) {
        Some(source_text) => (message.text() + source_text, false),
        None => (message.text(), message.calls().next().is_some()),
    }
}

/// Returns the length of the first character in bytes.
fn first_char(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// Returns the offered tool of exactly this name.
fn tool_named<'t>(tools: &'t [Arc<ToolSpec>], name: &str) -> Option<&'t ToolSpec> {
    tools
        .iter()
        .find(|tool| tool.name == name)
        .map(|tool| &**tool)
}

#[cfg(test)]
mod tests;
