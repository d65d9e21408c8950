//! The graph of a view as an image.

use std::collections::HashMap;
use std::sync::Arc;

use super::RunView;
use super::model::{NodeKind, NodeStatus, ViewNode};
use crate::svg::{SvgBox, SvgEdge, svg};

impl RunView {
    /// Renders the nodes and edges as an SVG image, with a colour for each status.
    ///
    /// Ids and other texts of models appear only as escaped text. The image has no script and no
    /// reference to another document. It has at most 2,000 nodes in 12 levels; a line below the
    /// graph counts the others.
    ///
    /// ```
    /// use levity_core::{Event, EventKind, MachineKind, RunId, Timestamp};
    /// use levity_observe::RunView;
    ///
    /// let started = EventKind::RunStarted { machine: MachineKind::new("agent", 1) };
    /// let event = Event::new(RunId::new("r1"), 1, Timestamp::default(), started);
    /// let image = RunView::of(RunId::new("r1"), [&event]).svg();
    /// assert!(image.starts_with("<svg ") && image.contains(">agent</text>"));
    /// ```
    pub fn svg(&self) -> String {
        let nodes: Vec<&ViewNode> = self.nodes().collect();
        let index: HashMap<&Arc<str>, usize> = nodes
            .iter()
            .zip(0..)
            .map(|(node, at)| (&node.id, at))
            .collect();
        let boxes: Vec<SvgBox> = nodes
            .iter()
            .map(|node| SvgBox {
                lines: lines(node),
                parent: node.parent.as_ref().and_then(|id| index.get(id)).copied(),
                place: (node.layer, node.row),
                colours: colours(node.status),
            })
            .collect();
        let edge = |(from, to): &(Arc<str>, Arc<str>)| {
            Some(SvgEdge {
                from: *index.get(from)?,
                to: *index.get(to)?,
                dashed: false,
            })
        };
        let edges: Vec<SvgEdge> = self.nodes.edges().filter_map(edge).collect();
        svg(&self.goal, &boxes, &edges)
    }
}

/// Returns the lines in the box of a node.
fn lines(node: &ViewNode) -> Vec<String> {
    let kind = match node.kind {
        NodeKind::Agent => "agent",
        NodeKind::Step => "step",
        NodeKind::Item => "item",
        NodeKind::Worker => "worker",
        NodeKind::Program => "program",
        NodeKind::Team => "team",
        NodeKind::Swarm => "swarm",
    };
    let agent = node.agent.as_deref().filter(|agent| *agent != node.label);
    let status = match node.status {
        NodeStatus::Pending => "pending",
        NodeStatus::Running => "running",
        NodeStatus::Waiting => "waiting",
        NodeStatus::Completed => "completed",
        NodeStatus::Failed => "failed",
        NodeStatus::Skipped => "skipped",
        NodeStatus::Cancelled => "cancelled",
    };
    vec![
        node.label.clone(),
        format!("{}, {status}", agent.unwrap_or(kind)),
    ]
}

fn colours(status: NodeStatus) -> (&'static str, &'static str) {
    match status {
        NodeStatus::Pending => ("#f2f2f2", "#8c8c8c"),
        NodeStatus::Running => ("#d6e8ff", "#1f6feb"),
        NodeStatus::Waiting => ("#fff3c4", "#b08800"),
        NodeStatus::Completed => ("#d7f5dd", "#1a7f37"),
        NodeStatus::Failed => ("#ffdcdc", "#cf222e"),
        NodeStatus::Skipped => ("#ffffff", "#bbbbbb"),
        NodeStatus::Cancelled => ("#eeeeee", "#6e7781"),
    }
}
