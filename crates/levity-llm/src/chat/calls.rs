//! Calls, which servers cut and number in many ways.

use std::borrow::Cow;
use std::collections::HashMap;

use levity_core::{CallId, Delta, ProviderState};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::number::Number;
use super::{CUSTOM, NAME};
use crate::body::escaped;
use crate::http::Sink;
use crate::lenient::Said;

/// A call, or more of one.
#[derive(Deserialize, Default)]
pub(super) struct CallPiece<'a> {
    #[serde(default)]
    index: Number,
    #[serde(default, borrow)]
    id: Said<'a>,
    #[serde(default, borrow)]
    function: Option<Function<'a>>,
    /// A call whose input is no JSON.
    #[serde(default, borrow)]
    custom: Option<Box<Function<'a>>>,
    /// Signatures of Gemini's, behind its own endpoint of this protocol.
    #[serde(default)]
    extra_content: Option<Box<Value>>,
}

#[derive(Deserialize, Default)]
pub(super) struct Function<'a> {
    #[serde(default, borrow)]
    name: Said<'a>,
    #[serde(default, borrow, alias = "input")]
    arguments: Said<'a>,
}

impl Function<'_> {
    /// Some servers fill what they do not use with empty texts.
    pub(super) fn says_nothing(&self) -> bool {
        self.name.is_empty() && self.arguments.is_empty()
    }
}

impl<'a> From<Function<'a>> for CallPiece<'a> {
    fn from(function: Function<'a>) -> Self {
        Self {
            function: Some(function),
            ..Self::default()
        }
    }
}

/// The calls of a reply, in the order in which they began. A piece finds its call without a look at
/// the others.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    /// The last call with each number, and the last with each id.
    numbers: HashMap<u64, usize>,
    ids: HashMap<String, usize>,
}

#[derive(Debug)]
struct Call {
    id: String,
    /// Whether it has its name, and so has begun for those who listen.
    named: bool,
    /// What came of its arguments before its name.
    held: String,
    /// Whether all of its arguments came at once.
    whole: bool,
    /// Whether its input is a text of its own, and no JSON; for those who listen it becomes a JSON
    /// string.
    custom: bool,
    /// Whether a piece of its arguments was told.
    said: bool,
    /// State that goes back with it.
    extra: Option<Box<Value>>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes a call, or more of one. Numbers, ids and names may be missing, and a call may come
    /// whole.
    pub(super) fn take(&mut self, piece: CallPiece<'_>, sink: &mut Sink) {
        let number = piece.index.0;
        let custom = piece
            .custom
            .filter(|custom| !custom.says_nothing())
            .map(|custom| *custom);
        let function = piece.function.filter(|function| !function.says_nothing());
        let is_custom = function.is_none() && custom.is_some();
        let function = function.or(custom);
        let Function { name, arguments } = function.unwrap_or_default();
        let (id, name) = (piece.id.as_str(), name.as_str());
        let text = match arguments {
            Said::Text(text) => text,
            Said::Other(value) => Cow::Owned(value.to_string()),
        };
        let at = self
            .find(number, id, name)
            .unwrap_or_else(|| self.begin(number, id, name, &text));
        if let Some(call) = self.all.get_mut(at).filter(|_| is_custom) {
            call.custom = true;
        }
        self.name(at, id, name, sink);
        self.add(
            at,
            text,
            piece.extra_content.filter(|extra| extra.is_object()),
            sink,
        );
    }

    fn at(&self, at: usize) -> Option<&Call> {
        #[cfg(test)]
        tests::LOOKED.set(tests::LOOKED.get() + 1);
        self.all.get(at)
    }

    /// Which of the calls that have begun is meant.
    fn find(&self, number: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let last = self.all.len().checked_sub(1);
        let same = match number {
            Some(number) => self.numbers.get(&number),
            None => self.ids.get(id).filter(|_| !id.is_empty()),
        };
        match same.and_then(|at| Some((*at, self.at(*at)?))) {
            Some((at, call)) => call.goes_on(id, name).then_some(at),
            // It says neither which it is nor what.
            None => last.filter(|_| name.is_empty() && id.is_empty()),
        }
    }

    fn begin(&mut self, number: Option<u64>, id: &str, name: &str, text: &str) -> usize {
        let whole = !name.is_empty() && serde_json::from_str::<IgnoredAny>(text).is_ok();
        let at = self.all.len();
        self.all.push(Call {
            id: id.to_owned(),
            named: false,
            held: String::new(),
            whole,
            custom: false,
            said: false,
            extra: None,
        });
        number
            .into_iter()
            .for_each(|number| _ = self.numbers.insert(number, at));
        self.note_id(id, at);
        at
    }

    fn note_id(&mut self, id: &str, at: usize) {
        match self.ids.get_mut(id) {
            Some(last) => *last = at.max(*last),
            None if id.is_empty() => {}
            None => _ = self.ids.insert(id.to_owned(), at),
        }
    }

    /// Tells of a call as soon as it has a name.
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
            self.note_id(id, at);
        }
    }

    fn add(&mut self, at: usize, text: Cow<'_, str>, extra: Option<Box<Value>>, sink: &mut Sink) {
        let Some(call) = self.all.get_mut(at) else {
            return;
        };
        if extra.is_some() {
            call.extra = extra;
        }
        if call.named {
            call.tell(at, text, sink);
        } else {
            call.held.push_str(&text);
        }
    }

    /// Tells of calls whose name never came, and ends texts, unless the reply was cut within.
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
            let quotes = match (call.said, cut) {
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
    fn start(&mut self, at: usize, name: &str, sink: &mut Sink) {
        self.named = true;
        let (id, name) = (CallId::new(&*self.id), name.to_owned());
        sink.push(Delta::CallStart {
            index: index(at),
            id,
            name,
        });
        let held = std::mem::take(&mut self.held);
        self.tell(at, Cow::Owned(held), sink);
    }

    /// Tells of more arguments, and fastens what goes back with the call.
    fn tell(&mut self, at: usize, text: Cow<'_, str>, sink: &mut Sink) {
        if self.custom {
            if !text.is_empty() {
                let quote = if std::mem::replace(&mut self.said, true) {
                    ""
                } else {
                    "\""
                };
                sink.add_args(index(at), Cow::Owned(format!("{quote}{}", escaped(&text))));
            }
            return;
        }
        let extra = self.extra.take();
        // State belongs to what was spoken of last, so the call is spoken of also where there is
        // nothing to say.
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

    /// Whether a piece with the same number, or the same id, belongs to this call: some servers
    /// give one number to all calls, and some a new id to every piece.
    fn goes_on(&self, id: &str, name: &str) -> bool {
        let same_id = !id.is_empty() && self.id == id;
        name.is_empty() || same_id || (!self.whole && (id.is_empty() || self.id.is_empty()))
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(
        /// How many calls were looked at, to find those that pieces belong to.
        pub(super) static LOOKED: Cell<usize> = const { Cell::new(0) }
    );

    fn take(calls: &mut Calls, piece: &Value) {
        let text = piece.to_string();
        calls.take(serde_json::from_str(&text).unwrap(), &mut Sink::default());
    }

    #[test]
    fn piece_finds_its_call_without_a_look_at_the_others() {
        for count in [10, 1_000, 8_000] {
            let (mut numbered, mut named) = (Calls::default(), Calls::default());
            LOOKED.set(0);
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
            let looked = LOOKED.get();
            assert!(
                looked <= 4 * count,
                "{looked} looks for {count} calls, twice"
            );
        }
    }
}
