//! The fold over events of the agent loop.

use levity_core::{Delta, EffectId, Ending, Event, EventKind, RunId, Status, Timestamp, Usage};
use serde_json::Value;

use super::items::ItemKey;
use super::model::{ItemKind, NodeKind, NodeStatus, ViewItem, ending_json};
use super::nodes::NodeText;
use super::runs::Cx;
use super::text::bounded;
use super::{MAX_TEXT, RunView, notices, swarm};

/// A model call in progress.
#[derive(Clone, Debug)]
pub(super) struct ModelCall {
    /// The position of its items.
    pub(super) key: ItemKey,
    pub(super) slot: std::sync::Arc<str>,
    /// The number of items that its pieces have created.
    pub(super) parts: u32,
    /// The kind of the last item, to which further pieces belong.
    pub(super) last: Option<ItemKind>,
}

impl RunView {
    /// Applies an event of the run, or of a run below it. Events of other runs are ignored.
    ///
    /// Pass the events of each run in their order. A child run may be ahead of its parent.
    pub fn apply(&mut self, event: &Event) {
        if !event.run.is_within(&self.run) {
            return;
        }
        let transient = event.kind.is_transient();
        if !transient {
            self.seq += 1;
            if event.run == self.run {
                self.record = Some(event.seq);
            }
            self.started.get_or_insert(event.at);
            self.updated = self.updated.max(Some(event.at));
            self.marks.add(self.seq, event.at, &event.kind);
        }
        let dropped = self.items.dropped();
        self.revision += 1;
        match (self.runs.contains_key(&event.run), transient) {
            (true, _) => self.fold(event),
            (false, true) => {}
            (false, false) => self.keep_early(event),
        }
        if !transient || dropped != self.items.dropped() {
            self.changed.head = self.revision;
        }
        if self.seq == 1 {
            self.changed.goal = self.revision;
        }
    }

    /// Applies an event of a known run.
    pub(super) fn fold(&mut self, event: &Event) {
        let Some(cx) = self.context(event) else {
            return;
        };
        let own = cx.node.as_ref() == cx.run.as_str();
        let pending = |status| status == NodeStatus::Pending;
        if own
            && self
                .nodes
                .get(&cx.node)
                .is_some_and(|node| pending(node.status))
        {
            self.start_node(&cx.node.clone(), cx.at);
        }
        match &event.kind {
            EventKind::Custom { name, data } if name == "graph" => {
                notices::apply(self, &cx, data);
            }
            EventKind::Custom { name, data } if name == "swarm" => swarm::apply(self, &cx, data),
            EventKind::RunStarted { machine } if own => self.set_kind(&cx, &machine.name),
            EventKind::Goal { text } => self.set_goal(&cx, text),
            EventKind::RunEnded(ending) => self.end_run(&cx, ending),
            EventKind::ChildStarted {
                effect,
                child,
                agent,
            } => self.start_child(&cx, *effect, child, agent),
            EventKind::ChildFinished { effect, ending } => self.end_child(&cx, *effect, ending),
            EventKind::WaitStarted { effect, .. } => {
                self.waits.insert((cx.run.clone(), effect.get()));
                self.set_activity(&cx, "waits");
            }
            EventKind::Woken { effect } => {
                self.waits.remove(&(cx.run.clone(), effect.get()));
                self.set_activity(&cx, "");
            }
            EventKind::Paused | EventKind::Resumed => {
                if cx.run == self.run {
                    self.paused = matches!(event.kind, EventKind::Paused);
                }
                self.note(&cx, event.kind.name());
            }
            EventKind::TurnStarted { turn, .. } if cx.run == self.run && self.is_open() => {
                self.stats.turns = *turn;
            }
            kind => self.fold_work(&cx, kind),
        }
    }

    /// Applies an event about a model, a call or a question.
    fn fold_work(&mut self, cx: &Cx, kind: &EventKind) {
        match kind {
            EventKind::ModelStarted { effect, slot } => self.start_model(cx, *effect, slot),
            EventKind::ModelFinished {
                effect,
                message,
                usage,
                ..
            } => self.end_model(cx, *effect, message, *usage),
            EventKind::ModelFailed { effect, error } => {
                self.drop_model(&cx.run, *effect);
                self.set_activity(cx, "");
                self.error(cx, &error.to_string());
            }
            EventKind::Delta { effect, delta } => self.add_delta(cx, *effect, delta),
            EventKind::ToolStarted { effect, call } => self.start_call(cx, *effect, call),
            EventKind::ToolFinished { effect, result } => self.end_call(cx, *effect, result),
            EventKind::FileChanged { effect, change, .. } => self.change_file(cx, *effect, change),
            EventKind::Progress { effect, text, .. } => self.report(cx, *effect, text),
            EventKind::Asked(ask) => self.ask(cx, ask),
            EventKind::Decided { effect, decision } => self.decide(cx, *effect, decision),
            EventKind::Denied { effect, reason } => self.deny(cx, *effect, reason),
            EventKind::OutcomeUnknown { effect } => self.lose(cx, *effect),
            EventKind::MessageReceived { message } => self.add_message(cx, message),
            kind => self.fold_remark(cx, kind),
        }
    }

    /// Adds a notice or an error about an event that has no other effect.
    fn fold_remark(&mut self, cx: &Cx, kind: &EventKind) {
        match kind {
            EventKind::Plan { steps } => self.note(cx, &format!("plan:\n{}", steps.join("\n"))),
            EventKind::Note { text } => self.note(cx, text),
            EventKind::Compacted(report) => {
                let (before, after) = (report.before, report.after);
                self.note(
                    cx,
                    &format!("shortened the request from {before} to {after} tokens"),
                );
            }
            EventKind::SaveFailed { error, .. } => {
                self.error(cx, &format!("cannot save the conversation: {error}"));
            }
            EventKind::Refused { limit, .. } => {
                self.note(cx, &format!("the limit on {limit} prevented work"));
            }
            EventKind::Guarded { intervention, .. } => {
                let guard = &intervention.guard;
                match &intervention.blocked {
                    Some(reason) => {
                        self.note(cx, &format!("guard {guard} blocked content: {reason}"));
                    }
                    None => self.note(cx, &format!("guard {guard} rewrote content")),
                }
            }
            EventKind::LimitNear(limit) => self.note(cx, &format!("the limit on {limit} is near")),
            EventKind::LimitLow(limit) => {
                self.note(cx, &format!("little of the limit on {limit} remains"));
            }
            EventKind::LimitPassed(limit) => {
                self.error(cx, &format!("the limit on {limit} is exceeded"));
            }
            _ => {}
        }
    }

    /// Returns `true` until the run has ended.
    pub(super) fn is_open(&self) -> bool {
        self.ending.is_none()
    }

    /// Adds a notice about the current event.
    pub(super) fn note(&mut self, cx: &Cx, text: &str) {
        self.add_text(cx, ItemKind::Notice, text);
    }

    /// Adds an error that the current event reports.
    pub(super) fn error(&mut self, cx: &Cx, text: &str) {
        self.add_text(cx, ItemKind::Error, text);
    }

    /// Adds an item for the current event.
    pub(super) fn add_text(&mut self, cx: &Cx, kind: ItemKind, text: &str) {
        let id = format!("{}@{}", cx.run, cx.key.seq);
        let item = text_item(cx, id, kind, text);
        self.items.insert(cx.key.clone(), item, self.revision);
    }

    /// Sets the activity of the run's node, if it differs.
    pub(super) fn set_activity(&mut self, cx: &Cx, activity: &str) {
        let Some(node) = self
            .nodes
            .get(&cx.node)
            .filter(|node| node.status.is_open())
        else {
            return;
        };
        if node.activity.as_deref().unwrap_or_default() != activity {
            let new = Some(bounded(activity, 200).0).filter(|text| !text.is_empty());
            self.nodes
                .update(&cx.node, self.revision, |node| node.activity = new);
        }
    }

    /// Marks a node as running. Its first start time stays.
    pub(super) fn start_node(&mut self, id: &str, at: Timestamp) {
        self.nodes.update(id, self.revision, |node| {
            node.status = NodeStatus::Running;
            node.started.get_or_insert(at);
            node.ended = None;
            node.attempt = node.attempt.max(1);
        });
    }

    /// Sets the kind of the node by the kind of the machine.
    fn set_kind(&mut self, cx: &Cx, machine: &str) {
        let (kind, label) = match machine {
            "agent" => (NodeKind::Agent, "agent"),
            "graph" => (NodeKind::Team, "team"),
            "swarm" => (NodeKind::Swarm, "swarm"),
            other => (NodeKind::Program, other),
        };
        let is_root = cx.run == self.run;
        self.nodes.update(&cx.node, self.revision, |node| {
            node.kind = kind;
            if is_root {
                node.label = bounded(label, 200).0;
            }
        });
    }

    /// Sets the goal of the run, or the prompt of a child run's node.
    fn set_goal(&mut self, cx: &Cx, text: &str) {
        self.nodes
            .set_text(&cx.node, &NodeText::Prompt, text, self.revision);
        if cx.run == self.run {
            self.goal = bounded(text, MAX_TEXT).0;
            self.changed.goal = self.revision;
            self.add_text(cx, ItemKind::User, text);
        }
    }

    /// Adds usage to a node and all nodes above it whose usage is not final, and to the total.
    pub(super) fn add_usage(&mut self, node: &str, usage: Usage) {
        if self.is_open() {
            self.usage += usage;
        }
        let mut next = Some(std::sync::Arc::<str>::from(node));
        while let Some(id) = next {
            next = self.nodes.get(&id).and_then(|node| node.parent.clone());
            if !self.settled.contains(&id) {
                self.nodes
                    .update(&id, self.revision, |node| node.usage += usage);
            }
        }
    }

    /// Applies the end of a run. The totals of the ending replace those counted from events.
    fn end_run(&mut self, cx: &Cx, ending: &Ending) {
        self.close_run(cx, ending);
        if cx.run != self.run {
            if !ending.status.is_answer() {
                self.error(cx, &ending.status.to_string());
            }
            return;
        }
        (self.stats, self.usage, self.paused) = (ending.stats, ending.usage, false);
        self.changed.ending = self.revision;
        self.ending = Some(std::sync::Arc::new(ending_json(ending)));
        self.add_answer(cx, ending);
    }

    /// Marks the last text of the run as its answer, or adds the answer.
    fn add_answer(&mut self, cx: &Cx, ending: &Ending) {
        if !ending.status.is_answer() {
            self.error(cx, &ending.status.to_string());
            return;
        }
        let (text, _) = bounded(&ending.text, MAX_TEXT);
        let last = self
            .runs
            .get(&cx.run)
            .and_then(|info| info.last_text.clone());
        let same = last.filter(|id| self.items.text(id) == Some(text.trim_end()));
        match same {
            Some(id) => self
                .items
                .update(&id, self.revision, |item| item.kind = ItemKind::Answer),
            None if text.is_empty() => {
                let value = ending.value.as_ref().map(super::text::value_text);
                self.add_text(cx, ItemKind::Answer, &value.unwrap_or_default());
            }
            None => self.add_text(cx, ItemKind::Answer, &ending.text),
        }
    }

    /// Settles everything that is still open in a run.
    fn close_run(&mut self, cx: &Cx, ending: &Ending) {
        let is_inside = |run: &RunId| run.is_within(&cx.run);
        let asks = self.asks.len();
        self.asks.retain(|(_, run, _), _| !is_inside(run));
        if asks != self.asks.len() {
            self.changed.asks = self.revision;
        }
        self.waits.retain(|(run, _)| !is_inside(run));
        let first = (cx.run.clone(), 0);
        let last = (cx.run.clone(), u64::MAX);
        let models: Vec<u64> = self
            .models
            .range(first.clone()..=last.clone())
            .map(|((_, effect), _)| *effect)
            .collect();
        for effect in models {
            self.drop_model(&cx.run, EffectId::new(effect));
        }
        let calls: Vec<_> = self
            .calls
            .range(first..=last)
            .map(|(call, _)| call.clone())
            .collect();
        for call in calls {
            self.close_call(&call, cx.at);
        }
        if self
            .nodes
            .get(&cx.node)
            .is_some_and(|node| node.items.is_none())
        {
            for id in self.nodes.group(&cx.node).to_vec() {
                self.cancel_node(&id, cx.at);
            }
        }
        self.settle_run(&cx.node, cx.node.as_ref() == cx.run.as_str(), ending, cx.at);
    }

    /// Marks a node and the nodes below it as cancelled, if they are in progress.
    fn cancel_node(&mut self, id: &str, at: Timestamp) {
        let mut open = vec![std::sync::Arc::<str>::from(id)];
        while let Some(id) = open.pop() {
            open.extend(self.nodes.group(&id).iter().cloned());
            if self
                .nodes
                .get(&id)
                .is_some_and(|node| node.status.is_open())
            {
                self.nodes.update(&id, self.revision, |node| {
                    node.status = NodeStatus::Cancelled;
                    node.ended = Some(at);
                    node.activity = None;
                });
            }
        }
    }

    /// Records the ending of a run at its node. The status of a step or a worker follows from the
    /// plan or the swarm.
    pub(super) fn settle_run(&mut self, id: &str, own: bool, ending: &Ending, at: Timestamp) {
        self.nodes
            .set_text(id, &NodeText::Output, &ending.text, self.revision);
        if !own {
            self.nodes
                .update(id, self.revision, |node| node.activity = None);
            return;
        }
        let status = match &ending.status {
            status if status.is_answer() => NodeStatus::Completed,
            Status::Cancelled { .. } => NodeStatus::Cancelled,
            _ => NodeStatus::Failed,
        };
        let error = match ending.status.is_answer() {
            true => String::new(),
            false => ending.status.to_string(),
        };
        self.nodes
            .set_text(id, &NodeText::Error, &error, self.revision);
        self.settled.insert(id.into());
        self.nodes.update(id, self.revision, |node| {
            node.status = status;
            node.ended = Some(node.ended.map_or(at, |ended| ended.min(at)));
            node.usage = ending.usage;
            node.activity = None;
        });
    }

    /// Adds pieces of a reply, which are transient.
    fn add_delta(&mut self, cx: &Cx, effect: EffectId, delta: &Delta) {
        match delta {
            Delta::Text(text) => self.grow(cx, effect, ItemKind::Text, text),
            Delta::Thinking(text) => self.grow(cx, effect, ItemKind::Thinking, text),
            Delta::Waiting { reason, .. } => self.set_activity(cx, &format!("waits: {reason}")),
            Delta::Restart { .. } => self.restart_model(&cx.run, effect),
            Delta::CallStart { name, .. } => self.set_activity(cx, &format!("prepares {name}")),
            _ => {}
        }
    }
}

/// Creates an item with a text.
pub(super) fn text_item(cx: &Cx, id: String, kind: ItemKind, text: &str) -> ViewItem {
    let (text, truncated) = bounded(text, MAX_TEXT);
    ViewItem {
        id,
        at: cx.at,
        run: cx.run.clone(),
        seq: cx.record,
        node: cx.node.clone(),
        kind,
        text: Some(text),
        truncated,
        call: None,
        media: None,
        model: None,
        usage: None,
    }
}

/// Returns a text field of a notice.
pub(super) fn text_of<'a>(data: &'a Value, name: &str) -> &'a str {
    data[name].as_str().unwrap_or_default()
}

/// Returns a number in a notice.
pub(super) fn number_of(data: &Value, name: &str) -> u32 {
    u32::try_from(data[name].as_u64().unwrap_or_default()).unwrap_or(u32::MAX)
}
