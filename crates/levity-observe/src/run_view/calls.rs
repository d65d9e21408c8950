//! Calls of tools and agents, questions to people, and changed files.

use std::sync::Arc;

use levity_core::{
    Ask, Content, Decision, EffectId, Ending, FileChange, FileChangeKind, RunId, Timestamp,
    ToolCall, ToolResult,
};

use super::fold::text_item;
use super::model::{CallStatus, ItemKind, NodeKind, NodeStatus, ViewArtifact, ViewAsk, ViewCall};
use super::nodes::NodeText;
use super::runs::Cx;
use super::text::{bounded, bounded_json, media};
use super::{MAX_ASKS, MAX_FILES, MAX_TEXT, RunView};
use crate::artifacts::media_type_of;

/// The maximum number of changed files of a call.
const MAX_CALL_FILES: usize = 100;
/// The number of the first media item of a result, after all other parts.
const FIRST_MEDIA: u32 = 1_000;

impl RunView {
    /// Adds the item of a call that started, or restarts it after a crash.
    pub(super) fn start_call(&mut self, cx: &Cx, effect: EffectId, call: &ToolCall) {
        if cx.run == self.run && self.is_open() {
            self.stats.tool_calls += 1;
        }
        let view = ViewCall::new(&call.name, &call.args, CallStatus::Running, cx.at);
        self.insert_call(cx, effect, view);
        self.set_activity(cx, &format!("calls {}", call.name));
    }

    /// Adds the item of a call and remembers the call until it ends.
    fn insert_call(&mut self, cx: &Cx, effect: EffectId, call: ViewCall) {
        let id = call_id(&cx.run, effect);
        self.calls
            .insert((cx.run.clone(), effect.get()), id.clone());
        let mut item = text_item(cx, id, ItemKind::Call, "");
        item.text = None;
        item.call = Some(Box::new(call));
        self.items.insert(cx.key.clone(), item, self.revision);
    }

    /// Changes the call of an item, if the item is known.
    fn update_call(&mut self, id: &str, change: impl FnOnce(&mut ViewCall)) {
        self.items.update(id, self.revision, |item| {
            if let Some(call) = &mut item.call {
                change(call);
            }
        });
    }

    /// Records the result of a call. A call without a start gets its item now.
    pub(super) fn end_call(&mut self, cx: &Cx, effect: EffectId, result: &ToolResult) {
        let id = call_id(&cx.run, effect);
        let failed = result.is_error();
        if cx.run == self.run && self.is_open() {
            self.stats.failed_calls += u64::from(failed);
        }
        let known = self.calls.remove(&(cx.run.clone(), effect.get())).is_some();
        if !known && !self.items.contains(&id) {
            // The policy denied the call, or its start was missed.
            let call = ViewCall::new(
                &result.name,
                &serde_json::Value::Null,
                CallStatus::Running,
                cx.at,
            );
            self.insert_call(cx, effect, call);
            self.calls.remove(&(cx.run.clone(), effect.get()));
        }
        let (text, cut) = bounded(&result.text(), MAX_TEXT);
        self.update_call(&id, |call| {
            call.truncated |= cut;
            call.result = Some(text);
            call.failed = failed;
            call.status = match (call.status, failed) {
                (CallStatus::Denied, _) => CallStatus::Denied,
                (_, true) => CallStatus::Failed,
                (_, false) => CallStatus::Done,
            };
            call.ended = Some(cx.at);
            call.progress = None;
        });
        self.add_media(cx, &id, &result.content);
        self.set_activity(cx, "");
    }

    /// Adds an item for each image, sound or document of a result, at most 100.
    fn add_media(&mut self, cx: &Cx, id: &str, content: &[Content]) {
        let media_parts = content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(media),
            _ => None,
        });
        for (at, part) in (0..100).zip(media_parts) {
            let mut item = text_item(cx, format!("{id}:m{at}"), ItemKind::Media, "");
            item.text = None;
            item.media = Some(Box::new(media(part)));
            let key = cx.key.with_part(FIRST_MEDIA + at);
            self.items.insert(key, item, self.revision);
        }
    }

    /// Settles a call whose run ended before it. Nobody knows whether the call had an effect, so
    /// its status is unknown and not failed.
    pub(super) fn close_call(&mut self, call: &(RunId, u64), at: Timestamp) {
        if let Some(id) = self.calls.remove(call) {
            self.update_call(&id, |call| {
                call.status = CallStatus::Unknown;
                call.ended = Some(at);
                call.progress = None;
            });
        }
    }

    /// Shows the progress that a call reported. It is removed when the call ends.
    pub(super) fn report(&mut self, cx: &Cx, effect: EffectId, text: &str) {
        if self.calls.contains_key(&(cx.run.clone(), effect.get())) {
            let text = bounded(text, 1_000).0;
            self.set_activity(cx, &text);
            self.update_call(&call_id(&cx.run, effect), |call| call.progress = Some(text));
        }
    }

    /// Marks a call that the policy denied, and adds a notice with the reason.
    pub(super) fn deny(&mut self, cx: &Cx, effect: EffectId, reason: &str) {
        let id = call_id(&cx.run, effect);
        self.calls.remove(&(cx.run.clone(), effect.get()));
        self.update_call(&id, |call| {
            call.status = CallStatus::Denied;
            call.ended = Some(cx.at);
        });
        self.note(cx, &format!("the policy denied a call: {reason}"));
    }

    /// Marks a call whose outcome is unknown, and adds an error.
    pub(super) fn lose(&mut self, cx: &Cx, effect: EffectId) {
        self.close_call(&(cx.run.clone(), effect.get()), cx.at);
        self.error(
            cx,
            "the outcome of a call is unknown, because its process ended",
        );
    }

    /// Adds a question and its item. A question that is asked again after a restart replaces the
    /// first one.
    pub(super) fn ask(&mut self, cx: &Cx, ask: &Ask) {
        // The run comes from the event: the records of a fork name the run that it began with.
        let node = self.owners.get(&cx.run.child(ask.effect));
        let node = node.cloned().unwrap_or_else(|| cx.node.clone());
        let id = call_id(&cx.run, ask.effect);
        let (reason, truncated) = bounded(&ask.reason, MAX_TEXT);
        let mut item = text_item(cx, id.clone(), ItemKind::Ask, &reason);
        let mut call = ViewCall::new(&ask.call.name, &ask.call.args, CallStatus::Waiting, cx.at);
        call.wanted = Some(ask.wanted);
        let mut requested = ask.call.clone();
        requested.args.clone_from(&call.args);
        (requested.raw, requested.opaque) = (None, None);
        item.node = node.clone();
        item.truncated = truncated;
        let truncated = truncated || call.truncated;
        item.call = Some(Box::new(call));
        self.items.insert(cx.key.clone(), item, self.revision);
        self.nodes.update(&node, self.revision, |node| {
            if node.status == NodeStatus::Running {
                node.status = NodeStatus::Waiting;
            }
            node.activity = Some(format!("asks: {}", bounded(&reason, 160).0));
        });
        // A run that a restart interrupted asks again; its question stays the same.
        let at = self
            .remove_ask(&cx.run, ask.effect)
            .map_or(cx.at, |ask| ask.at);
        let asked = ViewAsk {
            id: format!("{id}:{}", ask.fingerprint(at)),
            run: cx.run.clone(),
            effect: ask.effect,
            call: requested,
            reason,
            wanted: ask.wanted,
            node,
            at,
            truncated,
        };
        if self.asks.len() < MAX_ASKS {
            self.asks
                .insert((at, cx.run.clone(), ask.effect.get()), asked);
        }
        self.changed.asks = self.revision;
    }

    fn remove_ask(&mut self, run: &RunId, effect: EffectId) -> Option<ViewAsk> {
        let is_it = |ask: &ViewAsk| ask.run == *run && ask.effect == effect;
        let key = self.asks.iter().find(|(_, ask)| is_it(ask))?.0.clone();
        self.asks.remove(&key)
    }

    /// Records the decision on a question, and removes it from the pending ones.
    pub(super) fn decide(&mut self, cx: &Cx, effect: EffectId, decision: &Decision) {
        let removed = self.remove_ask(&cx.run, effect);
        self.changed.asks = self.revision;
        let node = removed.map_or_else(|| cx.node.clone(), |ask| ask.node);
        self.update_call(&call_id(&cx.run, effect), |call| {
            call.ended = Some(cx.at);
            call.status = CallStatus::Done;
            match decision {
                Decision::Allow => call.decision = Some("allow"),
                Decision::Edit { args } => {
                    let (args, cut) = bounded_json(args);
                    (call.args, call.decision) = (args, Some("edit"));
                    call.truncated |= cut;
                }
                Decision::Answer { text, .. } => {
                    call.result = Some(bounded(text, MAX_TEXT).0);
                    call.decision = Some("answer");
                }
                Decision::Deny { reason } => {
                    call.result = Some(bounded(reason, MAX_TEXT).0);
                    call.decision = Some("deny");
                    call.status = CallStatus::Denied;
                }
                _ => {}
            }
        });
        if !self.asks.values().any(|ask| ask.node == node) {
            self.nodes.update(&node, self.revision, |node| {
                if node.status == NodeStatus::Waiting {
                    node.status = NodeStatus::Running;
                }
                node.activity = None;
            });
        }
    }

    /// Moves a question to the step that it belongs to. The event that names the step may come
    /// before or after the question.
    pub(super) fn assign_ask(&mut self, run: &RunId, effect: EffectId, to: &Arc<str>) {
        self.owners.insert(run.child(effect), to.clone());
        let id = call_id(run, effect);
        let is_it = |ask: &&mut ViewAsk| ask.run == *run && ask.effect == effect;
        if let Some(ask) = self.asks.values_mut().find(is_it) {
            ask.node = to.clone();
            self.changed.asks = self.revision;
            self.nodes
                .update(to, self.revision, |node| node.status = NodeStatus::Waiting);
        }
        self.items
            .update(&id, self.revision, |item| item.node = to.clone());
    }

    /// Records a changed file. The latest change of a path wins, whatever the order of the events:
    /// the events of parallel child runs arrive in an order that differs between a live run and its
    /// journal. A removed file stays in the map, so that an earlier change does not bring it back.
    pub(super) fn change_file(&mut self, cx: &Cx, effect: EffectId, change: &FileChange) {
        let item = call_id(&cx.run, effect);
        self.update_call(&item, |call| {
            if call.files.len() < MAX_CALL_FILES {
                call.files.push(change.clone());
            }
        });
        let known = self.files.get(&change.path);
        if known.is_some_and(|(key, _)| *key > cx.key)
            || (known.is_none() && self.files.len() >= MAX_FILES)
        {
            return;
        }
        let written = change.kind != FileChangeKind::Removed;
        let file = written.then(|| ViewArtifact {
            path: change.path.clone(),
            size: change.size,
            sha256: change.sha256.clone(),
            media_type: media_type_of(&change.path),
            at: cx.at,
            run: cx.run.clone(),
            node: cx.node.clone(),
            item,
        });
        self.files
            .insert(change.path.clone(), (cx.key.clone(), file));
        self.changed.files = self.revision;
    }

    /// Returns the node of a child run: the step or worker that announced it, or a new node. If the
    /// graph has no room for another node, the child run belongs to the node of its parent.
    pub(super) fn node_of_child(&mut self, parent: &RunId, child: &RunId, name: &str) -> Arc<str> {
        if let Some(node) = self.owners.get(child) {
            return node.clone();
        }
        let above = self.runs.get(parent).map(|info| info.node.clone());
        let above = above.unwrap_or_else(|| self.run.as_str().into());
        let id: Arc<str> = child.as_str().into();
        match self
            .nodes
            .add(&id, Some(&above), NodeKind::Agent, name, self.revision)
        {
            true => id,
            false => above,
        }
    }

    /// Adds the item and the node of a child run that started.
    pub(super) fn start_child(&mut self, cx: &Cx, effect: EffectId, child: &RunId, name: &str) {
        let node = self.node_of_child(&cx.run, child, name);
        if node != cx.node {
            self.start_node(&node, cx.at);
            self.nodes
                .set_text(&node, &NodeText::Agent, name, self.revision);
            self.nodes
                .update(&node, self.revision, |node| node.run = Some(child.clone()));
        }
        let mut call = ViewCall::new(name, &serde_json::Value::Null, CallStatus::Running, cx.at);
        call.child = Some(child.clone());
        self.insert_call(cx, effect, call);
        self.set_activity(cx, &format!("calls {name}"));
        self.add_run(&cx.run, child, &node);
    }

    /// Records the ending that a parent run reports for its child run.
    pub(super) fn end_child(&mut self, cx: &Cx, effect: EffectId, ending: &Ending) {
        let child = cx.run.child(effect);
        self.follow_child(&cx.run, &child);
        self.calls.remove(&(cx.run.clone(), effect.get()));
        let failed = !ending.status.is_answer();
        let text = match failed && ending.text.is_empty() {
            true => ending.status.to_string(),
            false => ending.text.clone(),
        };
        let (text, cut) = bounded(&text, MAX_TEXT);
        self.update_call(&call_id(&cx.run, effect), |call| {
            call.result = Some(text);
            call.truncated |= cut;
            call.failed = failed;
            call.status = if failed {
                CallStatus::Failed
            } else {
                CallStatus::Done
            };
            call.ended = Some(cx.at);
            call.usage = Some(ending.usage);
        });
        self.set_activity(cx, "");
        let Some(info) = self.runs.get(&child) else {
            return;
        };
        let (node, seen) = (info.node.clone(), info.events > 0);
        if !seen {
            self.add_usage(&node, ending.usage);
        }
        self.settle_run(&node, node.as_ref() == child.as_str(), ending, cx.at);
    }
}

/// Returns the id of the item of a call or a question.
fn call_id(run: &RunId, effect: EffectId) -> String {
    format!("{run}:{effect}")
}
