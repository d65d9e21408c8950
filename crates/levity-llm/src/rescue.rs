//! Reads tool calls that a model wrote as text.
//!
//! Small and local models often make the right call, but their server does not recognise it and
//! delivers it as the text of the reply. While tools are offered and the reply has no native call,
//! text that *is* a call of an offered tool becomes that call. Text that only speaks of calls stays
//! text:
//!
//! - The call ends the reply. A short lead-in may stand before it. Nothing may stand behind it,
//!   except a result that the model makes up, which is left out.
//! - The tool's name is one of the offered names, and the arguments are an object that fits the
//!   tool.
//! - The user did not ask for JSON, code or an example, and the text is not quoted from a message
//!   or a tool result.
//!
//! Text streams on while it cannot be a call; only what may still become one is held back. A call
//! that the limit on replies cut becomes a call with arguments that cannot be read, so that the
//! loop can ask for it again.

#[cfg(any(feature = "openai", feature = "compatible", feature = "ollama"))]
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use levity_core::{
    CallId, Delta, Finish, Message, ProviderState, Request, ToolCall, ToolChoice, ToolSpec,
};
use serde_json::json;

use crate::names::Offered;

mod forms;
mod python;
mod quoted;
mod start;
mod value;

use start::Start;

/// The longest lead-in before a call, in bytes. A longer text is an answer, and JSON behind an
/// answer is a part of it.
const LONGEST_LEAD_IN: usize = 320;

/// The longest text that is held back, in bytes.
const LONGEST_HELD: usize = 1 << 20;

/// The longest text that is held back before it surely begins like a call, in bytes.
const LONGEST_UNKNOWN: usize = 4 << 10;

/// Rescued calls are counted from here, so that they never share an index with native calls.
const FIRST_INDEX: u32 = 1 << 16;

/// A call that was found in text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// The arguments, as JSON text.
    pub(crate) args: String,
}

/// Reads one reply.
#[derive(Debug)]
pub(crate) struct Rescue {
    tools: Arc<[Arc<ToolSpec>]>,
    offered: Option<Arc<Offered>>,
    context: quoted::Context,
    /// Text that was passed on: the lead-in.
    lead_in: String,
    /// Text that may be a call.
    held: String,
    /// True if `held` surely begins like a call, so that only its end decides.
    begun: bool,
    /// True if the text of the reply can have no call any more.
    over: bool,
}

impl Rescue {
    /// A reader of the reply to this request, if it offers tools. `offered` translates names that
    /// the wire changed.
    pub(crate) fn new(request: &Request, offered: Option<Arc<Offered>>) -> Option<Self> {
        if request.tools.is_empty() || request.tool_choice == ToolChoice::None {
            return None;
        }
        Some(Self {
            tools: request.tools.clone(),
            offered,
            context: quoted::Context::of(request),
            lead_in: String::new(),
            held: String::new(),
            begun: false,
            over: false,
        })
    }

    /// Takes a piece of the reply, and hands on what is certain.
    pub(crate) fn take(&mut self, delta: Delta, out: &mut VecDeque<Delta>) {
        match delta {
            Delta::Text(text) if !self.over => self.text(&text, out),
            Delta::Finish(finish) => {
                let finish = self.finish(finish, out);
                out.push_back(Delta::Finish(finish));
            }
            Delta::Restart { .. } => {
                self.lead_in.clear();
                self.held.clear();
                (self.begun, self.over) = (false, false);
                out.push_back(delta);
            }
            Delta::Thinking(_) | Delta::Usage(_) | Delta::Model(_) | Delta::Waiting { .. } => {
                out.push_back(delta);
            }
            delta if delta.is_content() => {
                // Native calls, media or blocks of the provider's own: this reply needs no help.
                self.release(out);
                self.over = true;
                out.push_back(delta);
            }
            delta => out.push_back(delta),
        }
    }

    /// Hands on what is held back, since something other than text follows it.
    pub(crate) fn interrupt(&mut self, out: &mut VecDeque<Delta>) {
        // A call ends the reply.
        let is_over = self.over || self.begun;
        self.pass(self.held.len(), out);
        (self.begun, self.over) = (false, self.over || is_over);
    }

    /// The stream ended without a reason.
    pub(crate) fn end(&mut self, out: &mut VecDeque<Delta>) {
        if self.finish(Finish::Stop, out) == Finish::ToolCalls {
            out.push_back(Delta::Finish(Finish::ToolCalls));
        }
    }

    fn text(&mut self, text: &str, out: &mut VecDeque<Delta>) {
        self.held.push_str(text);
        if self.held.len() > LONGEST_HELD {
            self.release(out);
            self.over = true;
            return;
        }
        while !self.begun && !self.held.is_empty() && !self.over {
            let at = start::candidate(&self.lead_in, &self.held, &self.tools);
            self.pass(at, out);
            if self.held.is_empty() || self.over {
                break;
            }
            match start::judge(&self.held, &self.tools) {
                Start::Call => self.begun = true,
                // Each further piece costs another look at all of it.
                Start::Unknown if self.held.len() <= LONGEST_UNKNOWN => break,
                Start::Unknown | Start::Text => self.pass(first_char(&self.held), out),
            }
        }
        if self.over {
            self.release(out);
        }
    }

    /// Hands on so many bytes of the held text as a part of the lead-in.
    fn pass(&mut self, bytes: usize, out: &mut VecDeque<Delta>) {
        if bytes == 0 {
            return;
        }
        let rest = self.held.split_off(bytes);
        let text = std::mem::replace(&mut self.held, rest);
        self.lead_in.push_str(&text);
        self.over = self.lead_in.trim().len() > LONGEST_LEAD_IN || self.lead_in.contains("```");
        match out.back_mut() {
            Some(Delta::Text(last)) => last.push_str(&text),
            _ => out.push_back(Delta::Text(text)),
        }
    }

    fn release(&mut self, out: &mut VecDeque<Delta>) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            out.push_back(Delta::Text(held));
        }
    }

    /// Decides on what is held back.
    fn finish(&mut self, finish: Finish, out: &mut VecDeque<Delta>) -> Finish {
        let (calls, finish) = match finish {
            finish if self.over => (None, finish),
            Finish::Stop | Finish::ToolCalls | Finish::Other(_) => match self.calls() {
                None => (None, finish),
                calls => (calls, Finish::ToolCalls),
            },
            Finish::Length => (
                self.cut_call().map(|call| (vec![call], self.held.len())),
                finish,
            ),
            finish => (None, finish),
        };
        self.over = true;
        let Some(calls) = calls else {
            self.release(out);
            return finish;
        };
        let (calls, used) = calls;
        let mut text = std::mem::take(&mut self.held);
        // A result that the model made up does not go back to it.
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
                .offered
                .as_ref()
                .and_then(|offered| offered.get(&call.name))
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
            // The first call carries the text for all of them.
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

    /// The call that the held text begins. Its arguments are the text itself, which is never valid
    /// JSON.
    fn cut_call(&self) -> Option<Call> {
        let text = self.held.trim();
        let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if !self.begun
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
        // Of two names that begin at the same place, the longer one was meant.
        let (_, name) = found.min_by_key(|(at, name)| (*at, std::cmp::Reverse(name.len())))?;
        Some(Call {
            name: name.clone(),
            args: text.to_owned(),
        })
    }

    /// The calls that the held text is, and where they end.
    fn calls(&self) -> Option<(Vec<Call>, usize)> {
        let text = self.held.trim();
        if text.is_empty() || self.context.forbids(&self.lead_in, text) {
            return None;
        }
        let (calls, used) = forms::read(text, &self.tools, !self.context.forbids_code())?;
        let end = if used < text.len() {
            // Behind a lead-in, calls with their results are an example.
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

/// The text that the calls of a message were read from, if all of them were. They go back to the
/// model in the form that it used.
pub(crate) fn written(message: &Message) -> Option<&str> {
    let written = message
        .calls()
        .next()?
        .opaque
        .as_ref()?
        .data
        .get("text")?
        .as_str();
    written.filter(|_| message.calls().all(ToolCall::is_from_text))
}

/// The text of a message, and whether its calls are sent as such.
#[cfg(any(feature = "openai", feature = "compatible", feature = "ollama"))]
pub(crate) fn split(message: &Message) -> (Cow<'_, str>, bool) {
    match written(message) {
        Some(written) => (message.text() + written, false),
        None => (message.text(), message.calls().next().is_some()),
    }
}

fn first_char(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn named<'t>(tools: &'t [Arc<ToolSpec>], name: &str) -> Option<&'t ToolSpec> {
    tools
        .iter()
        .find(|tool| tool.name == name)
        .map(|tool| &**tool)
}

#[cfg(test)]
mod tests;
