//! The notices of a run that executes a plan.
//!
//! They are read as JSON. A notice with an unexpected form has no effect, because a newer version
//! may have written it.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{EffectId, Timestamp, Usage};
use serde_json::Value;

use super::fold::{number_of, text_of};
use super::model::{ItemProgressView, NodeKind, NodeStatus};
use super::nodes::NodeText;
use super::runs::Cx;
use super::text::value_text;
use super::{MAX_NODES, MAX_RUNS, RunView};

/// The maximum number of elements of a step that have their own node.
const MAX_ELEMENTS: u64 = 500;

/// Applies a notice of a plan.
pub(super) fn apply(view: &mut RunView, cx: &Cx, data: &Value) {
    let step = || step_id(cx, text_of(data, "step"));
    match text_of(data, "notice") {
        "profiling" => view.prepare(cx, data, "profiling"),
        "planning" => view.prepare(cx, data, "planning"),
        "rejected" => {
            let first = data["faults"][0].as_str().unwrap_or_default();
            view.note(cx, &format!("the plan is invalid: {first}"));
        }
        "planned" => view.set_plan(cx, data, "a plan of"),
        "replanning" => view.note(cx, &format!("replans: {}", text_of(data, "why"))),
        "replanned" => view.set_plan(cx, data, "the plan was changed:"),
        "gave_up" => view.note(cx, &format!("gave up: {}", text_of(data, "why"))),
        "step_started" => view.start_step(cx, data),
        "fanned_out" => view.nodes.update(&step(), view.revision, |node| {
            node.items = Some(ItemProgressView {
                total: number_of(data, "items"),
                ..ItemProgressView::default()
            });
        }),
        "step_asked" => {
            if let Some(effect) = data["effect"].as_u64() {
                view.assign_ask(&cx.run, EffectId::new(effect), &step());
            }
        }
        "item_finished" => view.end_element(cx, data),
        "step_retried" => {
            view.nodes.set_text(
                &step(),
                &NodeText::Error,
                text_of(data, "error"),
                view.revision,
            );
            view.nodes.update(&step(), view.revision, |node| {
                node.status = NodeStatus::Waiting;
                node.activity = None;
            });
        }
        "step_completed" => {
            let output = value_text(&data["output"]);
            view.nodes
                .set_text(&step(), &NodeText::Output, &output, view.revision);
            view.settle_step(&step(), NodeStatus::Completed, "", data, cx.at);
        }
        "step_failed" => {
            let error = text_of(data, "error");
            view.settle_step(&step(), NodeStatus::Failed, error, data, cx.at);
        }
        "step_skipped" => {
            let reason = text_of(data, "why");
            view.settle_step(&step(), NodeStatus::Skipped, reason, data, cx.at);
        }
        "verdict" if data["passed"] == false => {
            let first = data["issues"][0].as_str().unwrap_or_default();
            view.note(
                cx,
                &format!("{} rejects the result: {first}", text_of(data, "step")),
            );
        }
        _ => {}
    }
}

/// Returns the id of the node of a step or a piece of work.
pub(super) fn step_id(cx: &Cx, step: &str) -> Arc<str> {
    format!("{}/{step}", cx.run).into()
}

impl RunView {
    /// Makes a node the owner of the child run that an effect starts.
    pub(super) fn own(&mut self, cx: &Cx, effect: Option<u64>, node: &Arc<str>) {
        if let Some(effect) = effect
            && self.owners.len() < MAX_RUNS
        {
            self.owners
                .insert(cx.run.child(EffectId::new(effect)), node.clone());
        }
    }

    /// Applies the start of planning or profiling.
    fn prepare(&mut self, cx: &Cx, data: &Value, name: &str) {
        self.note(
            cx,
            if name == "planning" {
                "requests a plan"
            } else {
                "profiles the files"
            },
        );
        let id: Arc<str> = format!("{}/({name})", cx.run).into();
        if self
            .nodes
            .add(&id, Some(&cx.node), NodeKind::Agent, name, self.revision)
        {
            self.own(cx, data["effect"].as_u64(), &id);
            self.start_node(&id, cx.at);
        }
    }

    /// Settles planning and profiling.
    fn end_preparation(&mut self, cx: &Cx) {
        for name in ["planning", "profiling"] {
            let id = format!("{}/({name})", cx.run);
            if self
                .nodes
                .get(&id)
                .is_some_and(|node| node.status.is_open())
            {
                self.nodes.update(&id, self.revision, |node| {
                    (node.status, node.ended) = (NodeStatus::Completed, Some(cx.at));
                    node.activity = None;
                });
            }
        }
    }

    /// Replaces the steps of a plan. The state of retained steps is preserved.
    fn set_plan(&mut self, cx: &Cx, data: &Value, what: &str) {
        self.end_preparation(cx);
        let Some(steps) = data["plan"]["steps"].as_array() else {
            return;
        };
        let mut order: Vec<Arc<str>> = self.nodes.group(&cx.node).to_vec();
        order.retain(|id| {
            self.nodes
                .get(id)
                .is_some_and(|node| node.kind != NodeKind::Step)
        });
        let mut known = BTreeSet::new();
        for step in steps.iter().take(MAX_NODES) {
            let name = text_of(step, "id");
            let id = step_id(cx, name);
            if known.insert(id.clone())
                && self
                    .nodes
                    .add(&id, Some(&cx.node), NodeKind::Step, name, self.revision)
            {
                self.describe_step(&id, step);
                order.push(id);
            }
        }
        let edge = |edge: &Value| {
            let end = |at: usize| edge[at].as_str().map(|step| step_id(cx, step));
            let edge = (end(0)?, end(1)?);
            (known.contains(&edge.0) && known.contains(&edge.1)).then_some(edge)
        };
        let edges = data["edges"].as_array().into_iter().flatten();
        let edges = edges.take(4 * MAX_NODES).filter_map(edge).collect();
        let count = known.len();
        self.nodes.set_group(&cx.node, order, edges, self.revision);
        self.note(cx, &format!("{what} {count} steps"));
    }

    /// Sets the texts of a step from the plan.
    fn describe_step(&mut self, id: &str, step: &Value) {
        for (text, name) in [
            (NodeText::Agent, "agent"),
            (NodeText::Description, "description"),
            (NodeText::Prompt, "prompt"),
        ] {
            if let Some(value) = step[name].as_str() {
                self.nodes.set_text(id, &text, value, self.revision);
            }
        }
    }

    /// Starts an attempt at a step, and assigns the child run of the attempt to it.
    fn start_step(&mut self, cx: &Cx, data: &Value) {
        let name = text_of(data, "step");
        let id = step_id(cx, name);
        self.start_node(&id, cx.at);
        let attempt = number_of(data, "attempt");
        self.settled.remove(&id);
        self.nodes.update(&id, self.revision, |node| {
            node.attempt = attempt;
            node.activity = None;
        });
        let element = data["item"].as_u64().filter(|item| *item < MAX_ELEMENTS);
        let owner = match element {
            Some(item) => self.start_element(&id, item, cx.at),
            None => id,
        };
        self.own(cx, data["effect"].as_u64(), &owner);
    }

    /// Starts an element of a step that runs once for each element of a list.
    fn start_element(&mut self, step: &Arc<str>, item: u64, at: Timestamp) -> Arc<str> {
        let id: Arc<str> = format!("{step}#{item}").into();
        let label = format!("{}", item + 1);
        if !self
            .nodes
            .add(&id, Some(step), NodeKind::Item, &label, self.revision)
        {
            return step.clone();
        }
        let agent = self.nodes.get(step).and_then(|node| node.agent.clone());
        self.nodes.set_text(
            &id,
            &NodeText::Agent,
            &agent.unwrap_or_default(),
            self.revision,
        );
        self.start_node(&id, at);
        id
    }

    /// Counts a settled element of a step, and settles its node.
    fn end_element(&mut self, cx: &Cx, data: &Value) {
        let id = step_id(cx, text_of(data, "step"));
        let error = data["error"].as_str();
        self.nodes.update(&id, self.revision, |node| {
            let items = node.items.get_or_insert_default();
            items.done = items.done.saturating_add(1);
            items.failed = items.failed.saturating_add(u32::from(error.is_some()));
            items.total = items.total.max(items.done);
        });
        let status = match error {
            Some(_) => NodeStatus::Failed,
            None => NodeStatus::Completed,
        };
        let element = format!("{id}#{}", data["item"].as_u64().unwrap_or(u64::MAX));
        self.nodes.set_text(
            &element,
            &NodeText::Error,
            error.unwrap_or_default(),
            self.revision,
        );
        self.nodes.update(&element, self.revision, |node| {
            (node.status, node.ended) = (status, Some(cx.at));
            node.activity = None;
        });
    }

    /// Sets the final status of a step or a piece of work.
    pub(super) fn settle_step(
        &mut self,
        id: &Arc<str>,
        status: NodeStatus,
        error: &str,
        data: &Value,
        at: Timestamp,
    ) {
        self.nodes
            .set_text(id, &NodeText::Error, error, self.revision);
        let usage: Option<Usage> = serde_json::from_value(data["spent"]["usage"].clone()).ok();
        if usage.is_some() {
            self.settled.insert(id.clone());
        }
        self.nodes.update(id, self.revision, |node| {
            (node.status, node.ended) = (status, Some(at));
            node.activity = None;
            node.usage = usage.unwrap_or(node.usage);
        });
    }
}
