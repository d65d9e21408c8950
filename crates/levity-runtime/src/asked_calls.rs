//! Matches effects of a journal with the tool calls that the model made.
//!
//! A record of an effect has the id and the name of its call, and a fingerprint of the arguments,
//! but not the arguments. Reports and approvals show the arguments, so they are taken from the
//! model's replies. A wrong match would show a person the arguments of another call. The
//! fingerprint therefore has to match whenever the record has one.
//!
//! Records may come from a stranger, with long arguments and many effects. So each fingerprint is
//! computed once, and calls are found in maps.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use levity_core::{CallId, Digest, EffectKind, EffectNote, History, Message, ToolCall, ToolError};
use serde_json::Value;

/// The tool calls in the replies of a run, under the ids that the run uses for them.
///
/// A reply may use an id twice, or one that was used before. [`History`] renames such calls, and so
/// does this type.
#[derive(Debug, Default)]
pub struct RequestedCalls {
    /// The calls in their order, each with the fingerprint of its arguments.
    calls: Vec<(ToolCall, Digest)>,
    by_id: HashMap<CallId, usize>,
    by_args: HashMap<Digest, SameArguments>,
    history: History,
}

/// The indices of the calls with the same fingerprint of their arguments.
#[derive(Debug, Default)]
struct SameArguments {
    all: BTreeSet<usize>,
    by_name: HashMap<String, BTreeSet<usize>>,
    /// `true` if the arguments differ: a model can find two values with the same fingerprint.
    differ: bool,
}

impl RequestedCalls {
    /// Adds the calls of a reply.
    pub fn add(&mut self, reply: &Message) {
        // A message without calls opens no exchange.
        let Ok(exchange) = self.history.open(Arc::new(reply.clone())) else {
            return;
        };
        for call in exchange.reply().calls() {
            let (at, digest) = (self.calls.len(), Digest::of(&call.args));
            self.by_id.insert(call.id.clone(), at);
            self.calls.push((call.clone(), digest));
            self.index(at);
        }
        self.history
            .close(exchange, &ToolError::failed("the answer is not needed"));
    }

    /// Replaces the arguments of the call of an effect, after a person edited them.
    pub fn edit(&mut self, note: &EffectNote, args: &Value) {
        let Some(at) = self.place(note) else { return };
        let (call, digest) = &mut self.calls[at];
        if let Some(same) = self.by_args.get_mut(digest) {
            same.all.remove(&at);
            if let Some(named) = same.by_name.get_mut(&call.name) {
                named.remove(&at);
            }
        }
        (call.args, *digest) = (args.clone(), Digest::of(args));
        self.index(at);
    }

    /// Returns the call that an effect performs, or asks approval for.
    ///
    /// Returns `None` if no call has the id, the name and the arguments of the effect, or if two
    /// calls with different arguments have the same fingerprint: it must not be confused with
    /// another one.
    pub fn find(&self, note: &EffectNote) -> Option<&ToolCall> {
        let (call, digest) = self.calls.get(self.place(note)?)?;
        let is_unique = |same: &SameArguments| !same.differ;
        self.by_args
            .get(digest)
            .is_some_and(is_unique)
            .then_some(call)
    }

    /// Makes a call available by its arguments.
    fn index(&mut self, at: usize) {
        let (call, digest) = &self.calls[at];
        let same = self.by_args.entry(*digest).or_default();
        let differs = |other: &usize| self.calls[*other].0.args != call.args;
        same.differ |= same.all.last().is_some_and(differs);
        same.all.insert(at);
        same.by_name
            .entry(call.name.clone())
            .or_default()
            .insert(at);
    }

    /// Of several calls with the same arguments, the last one wins. Ids are unique.
    fn place(&self, note: &EffectNote) -> Option<usize> {
        let id = note.call.as_ref()?;
        let wanted = note
            .inputs
            .iter()
            .find(|(name, _)| name == "arguments")
            .map(|(_, digest)| *digest);
        let any_name = note.kind == EffectKind::Child;
        let fits = |at: &usize| {
            let (call, digest) = &self.calls[*at];
            (any_name || *call.name == *note.name) && wanted.is_none_or(|wanted| wanted == *digest)
        };
        let by_id = self.by_id.get(id).copied().filter(fits);
        // The ids of a conversation before the run are not known here, and a call may have been
        // renamed because of them.
        by_id.or_else(|| {
            let same = self.by_args.get(&wanted?)?;
            let found = if any_name {
                &same.all
            } else {
                same.by_name.get(&*note.name)?
            };
            found.last().copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use levity_core::{EffectClass, Part, Role};
    use serde_json::json;

    use super::*;

    fn reply(calls: impl IntoIterator<Item = ToolCall>) -> Message {
        Message::new(Role::Assistant, calls.into_iter().map(Part::ToolCall))
    }

    fn note(kind: EffectKind, name: &str, call: &str, args: &Value) -> EffectNote {
        let mut note = EffectNote::new(kind, name, EffectClass::ReadOnly);
        note.call = Some(call.into());
        note.inputs = vec![("arguments".to_owned(), Digest::of(args))];
        note
    }

    #[track_caller]
    fn check(calls: &RequestedCalls, note: &EffectNote, expected: Option<(&str, &Value)>) {
        let found = calls.find(note);
        assert_eq!(found.map(|call| (call.id.as_str(), &call.args)), expected);
    }

    #[test]
    fn find_prefers_id_and_falls_back_to_last_call_with_arguments() {
        let (one, two) = (json!({"n": 1}), json!({"n": 2}));
        let mut calls = RequestedCalls::default();
        calls.add(&reply([
            ToolCall::new("a", "run", one.clone()),
            ToolCall::new("b", "run", one.clone()),
            ToolCall::new("c", "other", one.clone()),
        ]));
        let tool = |name, call, args| note(EffectKind::Tool, name, call, args);
        check(&calls, &tool("run", "a", &one), Some(("a", &one)));
        check(&calls, &tool("run", "x", &one), Some(("b", &one)));
        check(&calls, &tool("run", "a", &two), None);
        check(&calls, &tool("none", "a", &one), None);
        let child = note(EffectKind::Child, "agent", "x", &one);
        check(&calls, &child, Some(("c", &one)));
        let mut without = tool("run", "a", &one);
        without.inputs.clear();
        check(&calls, &without, Some(("a", &one)));
        without.call = Some("x".into());
        check(&calls, &without, None);
    }

    /// A model can search for such values: the fingerprint has 64 bits.
    #[test]
    fn calls_with_same_fingerprint_are_not_confused() {
        let harmless = json!({"command": "touch harmless #Ttp7DnOtkR1"});
        let other = json!({"command": "touch EVIL #ssP8H5G0CGA"});
        assert_eq!(Digest::of(&harmless), Digest::of(&other));
        let mut calls = RequestedCalls::default();
        calls.add(&reply([ToolCall::new("a", "run", other.clone())]));
        let ask = |call, args| note(EffectKind::Ask, "run", call, args);
        check(&calls, &ask("a", &other), Some(("a", &other)));
        calls.add(&reply([ToolCall::new("b", "run", harmless.clone())]));
        for id in ["a", "b", "renamed"] {
            check(&calls, &ask(id, &other), None);
        }
    }

    #[test]
    fn edit_moves_call_to_its_new_arguments() {
        let (one, two) = (json!({"n": 1}), json!({"n": 2}));
        let mut calls = RequestedCalls::default();
        calls.add(&reply([
            ToolCall::new("a", "run", one.clone()),
            ToolCall::new("b", "run", one.clone()),
        ]));
        calls.edit(&note(EffectKind::Ask, "run", "b", &one), &two);
        let tool = |call, args| note(EffectKind::Tool, "run", call, args);
        check(&calls, &tool("b", &two), Some(("b", &two)));
        check(&calls, &tool("x", &two), Some(("b", &two)));
        check(&calls, &tool("b", &one), Some(("a", &one)));
        calls.edit(&tool("a", &one), &two);
        check(&calls, &tool("a", &one), None);
    }

    #[test]
    fn find_of_many_effects_reads_no_arguments_and_scans_no_calls() {
        const COUNT: usize = 100_000;
        let mut calls = RequestedCalls::default();
        // With a fingerprint for each effect, 100 GB would be read.
        let long = json!({"text": "A".repeat(1_000_000)});
        calls.add(&reply([ToolCall::new("long", "run", long)]));
        // With a scan for each effect, 10,000,000,000 calls would be compared.
        let same = json!({});
        let many = (0..COUNT).map(|at| ToolCall::new(format!("c{at}"), "other", same.clone()));
        calls.add(&reply(many));
        let absent = note(EffectKind::Tool, "run", "absent", &json!({"text": ""}));
        let renamed = note(EffectKind::Tool, "run", "absent", &same);
        for _ in 0..COUNT {
            assert!(calls.find(&absent).is_none() && calls.find(&renamed).is_none());
        }
    }
}
