//! The notices of a swarm, read as JSON.

use std::sync::Arc;

use serde_json::Value;

use super::fold::{number_of, text_of};
use super::model::{NodeKind, NodeStatus};
use super::nodes::NodeText;
use super::notices::step_id;
use super::runs::Cx;
use super::{MAX_NODES, RunView};

/// Applies a notice of a swarm: an object with one field, the name of the notice.
pub(super) fn apply(view: &mut RunView, cx: &Cx, data: &Value) {
    let Some((name, data)) = data.as_object().and_then(|data| data.iter().next()) else {
        return;
    };
    let id = || step_id(cx, text_of(data, "id"));
    match name.as_str() {
        "planning" => view.start_role(cx, data, "router"),
        "planned" => view.set_delegations(cx, data),
        "began" => view.start_work(cx, data),
        "done" => view.settle_step(&id(), NodeStatus::Completed, "", data, cx.at),
        "failed" => {
            let error = text_of(data, "error");
            view.settle_step(&id(), NodeStatus::Failed, error, data, cx.at);
        }
        "skipped" => {
            let reason = text_of(data, "why");
            view.settle_step(&id(), NodeStatus::Skipped, reason, data, cx.at);
        }
        "synthesising" => {
            view.end_role(cx, "router");
            view.start_role(cx, data, "synthesis");
        }
        "handed_off" => view.hand_off(cx, data),
        "round_began" => {
            let (round, of) = (number_of(data, "round"), number_of(data, "of"));
            view.note(cx, &format!("round {round} of {of}"));
        }
        "judged" => view.note(cx, &format!("the judge: {}", text_of(data, "reason"))),
        "fell_back" | "listed" | "loop_found" => {
            view.note(
                cx,
                &format!("{}: {}", name.replace('_', " "), text_of(data, "why")),
            );
        }
        _ => {}
    }
}

impl RunView {
    /// Starts the work of the router, or the combination of the results.
    fn start_role(&mut self, cx: &Cx, data: &Value, role: &str) {
        let id: Arc<str> = format!("{}/({role})", cx.run).into();
        if self
            .nodes
            .add(&id, Some(&cx.node), NodeKind::Agent, role, self.revision)
        {
            self.own(cx, data["effect"].as_u64(), &id);
            self.start_node(&id, cx.at);
        }
    }

    fn end_role(&mut self, cx: &Cx, role: &str) {
        let id: Arc<str> = format!("{}/({role})", cx.run).into();
        if self
            .nodes
            .get(&id)
            .is_some_and(|node| node.status.is_open())
        {
            self.settle_step(&id, NodeStatus::Completed, "", &Value::Null, cx.at);
        }
    }

    /// Adds the delegations of a plan. Those of earlier rounds stay.
    fn set_delegations(&mut self, cx: &Cx, data: &Value) {
        self.end_role(cx, "router");
        let plan = data["plan"].as_array().map_or(&[][..], Vec::as_slice);
        let mut edges = Vec::new();
        for part in plan.iter().take(MAX_NODES) {
            let id = step_id(cx, text_of(part, "id"));
            self.add_worker(cx, &id, text_of(part, "worker"));
            self.nodes
                .set_text(&id, &NodeText::Prompt, text_of(part, "task"), self.revision);
            let before = part["depends_on"].as_array().into_iter().flatten();
            let before = before.take(MAX_NODES).filter_map(Value::as_str);
            edges.extend(before.map(|before| (step_id(cx, before), id.clone())));
        }
        self.nodes.connect_all(&cx.node, edges, self.revision);
        let author = text_of(data, "by");
        self.note(
            cx,
            &format!("a plan of {} delegations by {author}", plan.len()),
        );
    }

    /// Adds the node of a piece of work, unless there is one.
    fn add_worker(&mut self, cx: &Cx, id: &Arc<str>, worker: &str) {
        if self
            .nodes
            .add(id, Some(&cx.node), NodeKind::Worker, worker, self.revision)
        {
            self.nodes
                .set_text(id, &NodeText::Agent, worker, self.revision);
        }
    }

    /// Starts a piece of work, and assigns the child run that does it.
    fn start_work(&mut self, cx: &Cx, data: &Value) {
        let id = step_id(cx, text_of(data, "id"));
        self.add_worker(cx, &id, text_of(data, "worker"));
        self.start_node(&id, cx.at);
        let attempt = number_of(data, "attempt");
        self.nodes
            .update(&id, self.revision, |node| node.attempt = attempt);
        self.own(cx, data["effect"].as_u64(), &id);
    }

    /// Connects the latest work of the worker that had the conversation with a later one of the
    /// recipient, which has not begun yet.
    fn hand_off(&mut self, cx: &Cx, data: &Value) {
        let (from, to) = (text_of(data, "from"), text_of(data, "to"));
        self.note(
            cx,
            &format!("{from} hands over to {to}: {}", text_of(data, "note")),
        );
    }
}
