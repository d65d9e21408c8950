//! Messages of models and people.

use std::sync::Arc;

use levity_core::{EffectId, Message, Part, RunId, Usage};

use super::fold::{ModelCall, text_item};
use super::items::ItemKey;
use super::model::{ItemKind, ViewItem};
use super::runs::Cx;
use super::{RunView, text};

impl RunView {
    /// Reserves the position of a reply, so that its items have the same position with and without
    /// transient events.
    pub(super) fn start_model(&mut self, cx: &Cx, effect: EffectId, slot: &Arc<str>) {
        self.drop_model(&cx.run, effect);
        if cx.run == self.run && self.is_open() {
            self.stats.model_calls += 1;
        }
        self.set_activity(cx, "thinks");
        let call = ModelCall {
            key: cx.key.clone(),
            slot: slot.clone(),
            parts: 0,
            last: None,
        };
        self.models.insert((cx.run.clone(), effect.get()), call);
    }

    /// Appends a piece of a reply to the last item of the reply, or to a new one.
    pub(super) fn grow(&mut self, cx: &Cx, effect: EffectId, kind: ItemKind, piece: &str) {
        let Some(call) = self.models.get_mut(&(cx.run.clone(), effect.get())) else {
            return;
        };
        let is_new = call.last != Some(kind);
        if is_new {
            call.last = Some(kind);
            call.parts += 1;
        }
        let part = call.parts - 1;
        let (key, model) = (call.key.with_part(part), call.slot.clone());
        let id = part_id(&cx.run, effect, part);
        if is_new {
            let mut item = text_item(cx, id, kind, piece);
            item.model = Some(model);
            self.items.insert(key, item, self.revision);
        } else {
            self.items.append(&id, piece, self.revision);
        }
        self.set_activity(
            cx,
            if kind == ItemKind::Text {
                "writes"
            } else {
                "thinks"
            },
        );
    }

    /// Removes the items of a reply that starts again.
    pub(super) fn restart_model(&mut self, run: &RunId, effect: EffectId) {
        let Some(call) = self.models.get_mut(&(run.clone(), effect.get())) else {
            return;
        };
        let parts = std::mem::take(&mut call.parts);
        call.last = None;
        self.remove_parts(run, effect, 0..parts);
    }

    /// Removes a model call in progress and its items.
    pub(super) fn drop_model(&mut self, run: &RunId, effect: EffectId) {
        if let Some(call) = self.models.remove(&(run.clone(), effect.get())) {
            self.remove_parts(run, effect, 0..call.parts);
        }
    }

    fn remove_parts(&mut self, run: &RunId, effect: EffectId, parts: std::ops::Range<u32>) {
        for part in parts {
            self.items
                .remove(&part_id(run, effect, part), self.revision);
        }
    }

    /// Replaces the pieces of a reply by the reply itself.
    pub(super) fn end_model(&mut self, cx: &Cx, effect: EffectId, message: &Message, usage: Usage) {
        let call = self.models.remove(&(cx.run.clone(), effect.get()));
        let (key, slot, old) = match call {
            Some(call) => (call.key, Some(call.slot), call.parts),
            None => (cx.key.clone(), None, 0),
        };
        let mut items = items_of(cx, message, |part| part_id(&cx.run, effect, part));
        for item in &mut items {
            item.model.clone_from(&slot);
        }
        if let Some(last) = items.last_mut() {
            last.usage = Some(usage);
        }
        let parts = u32::try_from(items.len()).unwrap_or(u32::MAX);
        self.remove_parts(&cx.run, effect, parts..old);
        self.insert_parts(&key, items);
        self.add_usage(&cx.node, usage);
        if cx.run == self.run && self.is_open() {
            let thinks = |part: &Part| matches!(part, Part::Thinking(_));
            self.stats.reasoning_steps += u64::from(message.parts.iter().any(thinks));
        }
        self.set_activity(cx, "");
    }

    /// Adds a message from a person.
    pub(super) fn add_message(&mut self, cx: &Cx, message: &Message) {
        let id = |part| match part {
            0 => format!("{}@{}", cx.run, cx.key.seq),
            part => format!("{}@{}:{part}", cx.run, cx.key.seq),
        };
        let mut items = items_of(cx, message, id);
        for item in items.iter_mut().filter(|item| item.kind == ItemKind::Text) {
            item.kind = ItemKind::User;
        }
        self.insert_parts(&cx.key.clone(), items);
    }

    fn insert_parts(&mut self, key: &ItemKey, items: Vec<ViewItem>) {
        for (part, item) in (0..).zip(items) {
            if item.kind == ItemKind::Text
                && let Some(info) = self.runs.get_mut(&item.run)
            {
                info.last_text = Some(item.id.clone());
            }
            self.items.insert(key.with_part(part), item, self.revision);
        }
    }
}

/// Returns the items of a message: neighbouring texts are one item.
fn items_of(cx: &Cx, message: &Message, id: impl Fn(u32) -> String) -> Vec<ViewItem> {
    let mut texts: Vec<(ItemKind, String)> = Vec::new();
    let mut items: Vec<ViewItem> = Vec::new();
    let flush = |texts: &mut Vec<(ItemKind, String)>, items: &mut Vec<ViewItem>| {
        for (kind, text) in texts.drain(..) {
            if !text.trim().is_empty() {
                let id = id(items.len() as u32);
                items.push(text_item(cx, id, kind, text.trim_end()));
            }
        }
    };
    for part in &message.parts {
        let (kind, text) = match part {
            Part::Text(text) => (ItemKind::Text, &text.text),
            Part::Thinking(thinking) => (ItemKind::Thinking, &thinking.text),
            Part::Media(media) => {
                flush(&mut texts, &mut items);
                let mut item = text_item(cx, id(items.len() as u32), ItemKind::Media, "");
                item.text = None;
                item.media = Some(Box::new(text::media(media)));
                items.push(item);
                continue;
            }
            _ => continue,
        };
        match texts.last_mut().filter(|(last, _)| *last == kind) {
            Some((_, all)) => all.push_str(text),
            None => texts.push((kind, text.clone())),
        }
    }
    flush(&mut texts, &mut items);
    items
}

/// Returns the id of an item of a reply.
fn part_id(run: &RunId, effect: EffectId, part: u32) -> String {
    format!("{run}:{effect}:{part}")
}
