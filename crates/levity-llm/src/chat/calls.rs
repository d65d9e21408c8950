//! Assembles tool calls, which servers split and number in various ways.
//!
//! OpenAI numbers the calls and sends the id and the name once, then arguments in pieces. Other
//! servers send complete calls without a number, the same number for all calls, a new id with every
//! fragment, arguments before the name, or arguments as an object. The rules here decide which
//! fragment belongs to which call without knowing the server.
//!
//! Two calls of a server that numbers all calls 0 are told apart, because the first is complete:
//!
//! ```json
//! {"index": 0, "function": {"name": "add", "arguments": "{\"x\": 1}"}}
//! {"index": 0, "function": {"name": "add", "arguments": "{\"x\": 2}"}}
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use levity_core::{CallId, Delta, Fold, ModelError, ModelErrorKind, ProviderState};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::number::Number;
use super::{CUSTOM, NAME};
use crate::body::escaped;
use crate::http::Sink;
use crate::lenient::TextOrValue;

/// A call, or a fragment of one.
///
/// Every field is optional; an id that is not a text counts as missing.
#[derive(Deserialize, Default)]
pub(super) struct CallFragment<'a> {
    #[serde(default)]
    index: Number,
    #[serde(default, borrow)]
    id: TextOrValue<'a>,
    #[serde(default, borrow)]
    function: Option<Function<'a>>,
    /// A call whose input is not JSON.
    #[serde(default, borrow)]
    custom: Option<Box<Function<'a>>>,
    /// Gemini's signatures, from Google's endpoint of this protocol.
    #[serde(default)]
    extra_content: Option<Box<Value>>,
}

/// The name and the arguments of a call, both possibly incomplete. Custom tools call the arguments
/// `input`.
#[derive(Deserialize, Default)]
pub(super) struct Function<'a> {
    #[serde(default, borrow)]
    name: TextOrValue<'a>,
    #[serde(default, borrow, alias = "input")]
    arguments: TextOrValue<'a>,
}

impl Function<'_> {
    /// Returns `true` if all texts are empty; some servers fill unused fields with empty texts.
    pub(super) fn is_blank(&self) -> bool {
        self.name.is_empty() && self.arguments.is_empty()
    }
}

impl<'a> From<Function<'a>> for CallFragment<'a> {
    fn from(function: Function<'a>) -> Self {
        Self {
            function: Some(function),
            ..Self::default()
        }
    }
}

/// The maximum size of ids, and of arguments that arrive before the name of their call, in a reply.
const MAX_HELD_BYTES: usize = 32 << 20;

/// The calls of a reply, in the order of their start. A fragment finds its call without a scan of
/// the others.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    /// The last call with each number, and the last with each id.
    numbers: HashMap<u64, usize>,
    ids: HashMap<String, usize>,
    /// The number of bytes that were stored.
    held: usize,
}

/// One call of the reply, in the state that its fragments have reached.
#[derive(Debug)]
struct Call {
    id: String,
    /// True if the name is known, so the start of the call was emitted.
    named: bool,
    /// Arguments that arrived before the name.
    held: String,
    /// True if all arguments arrived at once.
    whole: bool,
    /// True if the input is free text; consumers receive it as a JSON string.
    custom: bool,
    /// True if a part of the arguments was emitted.
    emitted: bool,
    /// State that is sent back with the call.
    extra: Option<Box<Value>>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Processes a call or a fragment of one. Numbers, ids and names may be missing, and a call may
    /// arrive complete.
    ///
    /// # Errors
    /// Returns an error if the reply has too many calls, or too much text that must be stored.
    pub(super) fn take(
        &mut self,
        fragment: CallFragment<'_>,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        let number = fragment.index.0;
        let custom = fragment
            .custom
            .filter(|custom| !custom.is_blank())
            .map(|custom| *custom);
        let function = fragment.function.filter(|function| !function.is_blank());
        let is_custom = function.is_none() && custom.is_some();
        let function = function.or(custom);
        let Function { name, arguments } = function.unwrap_or_default();
        let (id, name) = (fragment.id.as_str(), name.as_str());
        let text = match arguments {
            TextOrValue::Text(text) => text,
            TextOrValue::Other(value) => Cow::Owned(value.to_string()),
        };
        let at = self
            .find(number, id, name)
            .unwrap_or_else(|| self.begin(number, id, name, &text));
        let extra = fragment.extra_content.filter(|extra| extra.is_object());
        self.check_size(at, id, &text, extra.as_deref())?;
        if let Some(call) = self.all.get_mut(at).filter(|_| is_custom) {
            call.custom = true;
        }
        self.name(at, id, name, sink);
        self.add(at, text, extra, sink);
        Ok(())
    }

    /// Counts what is stored for a fragment.
    fn check_size(
        &mut self,
        at: usize,
        id: &str,
        text: &str,
        extra: Option<&Value>,
    ) -> Result<(), ModelError> {
        let malformed = |message| Err(ModelError::new(ModelErrorKind::Malformed, message));
        if self.all.len() > Fold::MAX_CALLS {
            return malformed(format!(
                "the reply calls more than {} tools",
                Fold::MAX_CALLS
            ));
        }
        let is_held = self.all.get(at).is_some_and(|call| !call.named);
        self.held += id.len() + if is_held { text.len() } else { 0 };
        self.held += extra.map_or(0, |extra| extra.to_string().len());
        if self.held > MAX_HELD_BYTES {
            return malformed(format!(
                "the reply has more than {MAX_HELD_BYTES} bytes of ids and of arguments without a \
                    name"
            ));
        }
        Ok(())
    }

    /// Returns a call. Tests count the accesses, to prove that a long reply is not scanned again
    /// and again.
    fn at(&self, at: usize) -> Option<&Call> {
        #[cfg(test)]
        tests::INSPECTED.set(tests::INSPECTED.get() + 1);
        self.all.get(at)
    }

    /// Returns the started call that a fragment belongs to.
    ///
    /// The rules, in this order:
    ///
    /// 1. A number finds the last call with that number, and an id without a number the last call
    ///    with that id.
    /// 2. The call found must accept the fragment; see [`Call::continues`]. Otherwise a new call
    ///    starts.
    /// 3. A fragment with neither number nor id nor name continues the last call.
    fn find(&self, number: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let last = self.all.len().checked_sub(1);
        let same = match number {
            Some(number) => self.numbers.get(&number),
            None => self.ids.get(id).filter(|_| !id.is_empty()),
        };
        match same.and_then(|at| Some((*at, self.at(*at)?))) {
            Some((at, call)) => call.continues(id, name).then_some(at),
            // The fragment has neither a number nor an id nor a name.
            None => last.filter(|_| name.is_empty() && id.is_empty()),
        }
    }

    /// Starts a call. `whole` notes that its arguments are complete JSON already, so that a
    /// fragment with a name afterwards starts another call.
    fn begin(&mut self, number: Option<u64>, id: &str, name: &str, text: &str) -> usize {
        let whole = !name.is_empty() && serde_json::from_str::<IgnoredAny>(text).is_ok();
        let at = self.all.len();
        self.all.push(Call {
            id: id.to_owned(),
            named: false,
            held: String::new(),
            whole,
            custom: false,
            emitted: false,
            extra: None,
        });
        number
            .into_iter()
            .for_each(|number| _ = self.numbers.insert(number, at));
        self.record_id(id, at);
        at
    }

    /// Records the last call with this id; an empty id is not recorded.
    fn record_id(&mut self, id: &str, at: usize) {
        match self.ids.get_mut(id) {
            Some(last) => *last = at.max(*last),
            None if id.is_empty() => {}
            None => _ = self.ids.insert(id.to_owned(), at),
        }
    }

    /// Emits the start of a call as soon as its name is known.
    fn name(&mut self, at: usize, id: &str, name: &str, sink: &mut Sink) {
        let Some(call) = self.all.get_mut(at).filter(|call| !call.named) else {
            return;
        };
        let takes_id = call.id.is_empty();
        if takes_id {
            id.clone_into(&mut call.id);
        }
        if !name.is_empty() {
            call.start(at, name, sink);
        }
        if takes_id {
            self.record_id(id, at);
        }
    }

    /// Emits arguments of a named call, and holds those that arrive before the name.
    fn add(&mut self, at: usize, text: Cow<'_, str>, extra: Option<Box<Value>>, sink: &mut Sink) {
        let Some(call) = self.all.get_mut(at) else {
            return;
        };
        if extra.is_some() {
            call.extra = extra;
        }
        if call.named {
            call.emit_arguments(at, text, sink);
        } else {
            call.held.push_str(&text);
        }
    }

    /// Emits calls without a name and closes free texts, unless the reply was truncated within.
    ///
    /// `cut` leaves a free text without its closing quote. The arguments are then invalid JSON, so
    /// a truncated call is never executed.
    pub(super) fn end(&mut self, cut: bool, sink: &mut Sink) {
        let nameless = self
            .all
            .iter_mut()
            .enumerate()
            .filter(|(_, call)| !call.named);
        nameless.for_each(|(at, call)| call.start(at, "", sink));
        for (at, call) in self
            .all
            .iter_mut()
            .enumerate()
            .filter(|(_, call)| call.custom)
        {
            let quotes = match (call.emitted, cut) {
                (true, false) => "\"",
                (true, true) => "",
                (false, _) => "\"\"",
            };
            sink.add_args(index(at), Cow::Borrowed(quotes));
            let mut data = json!({ "type": CUSTOM });
            if let (Some(extra), Value::Object(data)) = (call.extra.take(), &mut data) {
                data.insert("extra_content".to_owned(), *extra);
            }
            sink.push(Delta::Opaque(ProviderState::new(NAME, data)));
        }
    }
}

impl Call {
    /// Emits the start of the call, followed by the arguments that were held for it.
    fn start(&mut self, at: usize, name: &str, sink: &mut Sink) {
        self.named = true;
        let (id, name) = (CallId::new(&*self.id), name.to_owned());
        sink.push(Delta::CallStart {
            index: index(at),
            id,
            name,
        });
        let held = std::mem::take(&mut self.held);
        self.emit_arguments(at, Cow::Owned(held), sink);
    }

    /// Emits more arguments, and attaches the state that is sent back with the call.
    ///
    /// Free text becomes a JSON string piece by piece: the first piece opens the quote,
    /// [`Calls::end`] closes it.
    fn emit_arguments(&mut self, at: usize, text: Cow<'_, str>, sink: &mut Sink) {
        if self.custom {
            if !text.is_empty() {
                let quote = if std::mem::replace(&mut self.emitted, true) {
                    ""
                } else {
                    "\""
                };
                sink.add_args(index(at), Cow::Owned(format!("{quote}{}", escaped(&text))));
            }
            return;
        }
        let extra = self.extra.take();
        // State belongs to the last emitted call, so the call is emitted even without arguments.
        if !text.is_empty() || extra.is_some() {
            sink.add_args(index(at), text);
        }
        if let Some(extra) = extra {
            sink.push(Delta::Opaque(ProviderState::new(
                NAME,
                json!({ "extra_content": extra }),
            )));
        }
    }

    /// Returns `true` if a fragment with the same number or id belongs to this call. Some servers
    /// use one number for all calls, and some use a new id for every fragment.
    ///
    /// A fragment without a name always continues the call. One with a name does so if it has the
    /// call's id, or if one of the two has no id and the call is not complete.
    fn continues(&self, id: &str, name: &str) -> bool {
        let same_id = !id.is_empty() && self.id == id;
        name.is_empty() || same_id || (!self.whole && (id.is_empty() || self.id.is_empty()))
    }
}

/// Converts the position of a call to the index of its deltas.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(
        /// The number of calls that were inspected to find those of the fragments.
        pub(super) static INSPECTED: Cell<usize> = const { Cell::new(0) }
    );

    fn take(calls: &mut Calls, fragment: &Value) {
        let text = fragment.to_string();
        let taken = calls.take(serde_json::from_str(&text).unwrap(), &mut Sink::default());
        taken.unwrap();
    }

    #[test]
    fn nameless_calls_and_their_arguments_are_limited() {
        let (mut calls, mut sink) = (Calls::default(), Sink::default());
        let long = "x".repeat(1 << 20);
        let part = |text: &str| json!({"index": 0, "function": {"arguments": text}}).to_string();
        let held = part(&long);
        let taken = (0..40)
            .map(|_| calls.take(serde_json::from_str(&held).unwrap(), &mut sink))
            .filter(Result::is_ok);
        assert_eq!(taken.count(), MAX_HELD_BYTES >> 20);
        let mut calls = Calls::default();
        let refused = (0..=Fold::MAX_CALLS).find_map(|n| {
            let id = format!("c{n}");
            let text = json!({"index": n, "id": id, "function": {"arguments": "{"}}).to_string();
            let fragment = serde_json::from_str(&text).unwrap();
            calls.take(fragment, &mut sink).err()
        });
        assert_eq!(refused.unwrap().kind(), ModelErrorKind::Malformed);
    }

    #[test]
    fn fragment_finds_call_without_scanning_others() {
        for count in [10, 1_000, 8_000] {
            let (mut numbered, mut named) = (Calls::default(), Calls::default());
            INSPECTED.set(0);
            for n in 0..count {
                take(
                    &mut numbered,
                    &json!({"index": n, "function": {"name": "add", "arguments": ""}}),
                );
                take(
                    &mut named,
                    &json!({"id": format!("c{n}"), "function": {"name": "add", "arguments": ""}}),
                );
            }
            for n in (0..count).rev() {
                take(
                    &mut numbered,
                    &json!({"index": n, "function": {"arguments": "{}"}}),
                );
                take(
                    &mut named,
                    &json!({"id": format!("c{n}"), "function": {"arguments": "{}"}}),
                );
            }
            assert_eq!((numbered.all.len(), named.all.len()), (count, count));
            let inspected = INSPECTED.get();
            assert!(
                inspected <= 4 * count,
                "{inspected} inspections for {count} calls, twice"
            );
        }
    }
}
