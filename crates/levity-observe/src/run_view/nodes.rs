//! The nodes of a view, their edges and their layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::changes::RemovalLog;
use super::layout::layout;
use super::model::{NodeKind, NodeStatus, ViewNode};
use super::text::bounded;
use super::{MAX_NODE_BYTES, MAX_NODE_TEXT, MAX_NODES};

/// The maximum number of bytes of a text once the limit of all texts is reached.
const SHORT_TEXT: usize = 256;

/// The maximum number of edges of a group.
const MAX_EDGES: usize = 4 * MAX_NODES;

/// The ids of two nodes: the second depends on the first.
type Edge = (Arc<str>, Arc<str>);

/// The nodes by id, and the groups of nodes with the same parent.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<Arc<str>, (ViewNode, u64)>,
    /// The children of each node in the order in which they are laid out.
    groups: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// The edges between the children of each node.
    edges: BTreeMap<Arc<str>, Vec<Edge>>,
    edges_changed: u64,
    removed: RemovalLog,
    text_bytes: usize,
    dropped: u64,
}

/// A text of a node.
pub(super) enum NodeText {
    Prompt,
    Output,
    Error,
    Description,
    Agent,
}

impl Nodes {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ViewNode> {
        self.nodes.values().map(|(node, _)| node)
    }

    pub(super) fn get(&self, id: &str) -> Option<&ViewNode> {
        self.nodes.get(id).map(|(node, _)| node)
    }

    /// Returns the number of nodes that were not added because of the limit.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn bytes(&self) -> usize {
        self.text_bytes + self.nodes.len() * 512
    }

    /// Adds a node at the end of its group, in a row below all others, unless there is one with
    /// this id. Returns `false` if there are too many nodes.
    ///
    /// The group is arranged when its edges are set, because a plan adds many nodes at once.
    pub(super) fn add(
        &mut self,
        id: &Arc<str>,
        parent: Option<&Arc<str>>,
        kind: NodeKind,
        label: &str,
        revision: u64,
    ) -> bool {
        if self.nodes.contains_key(id) {
            return true;
        }
        if self.nodes.len() >= MAX_NODES {
            self.dropped += 1;
            return false;
        }
        let mut row = 0;
        if let Some(parent) = parent {
            let group = self.groups.entry(parent.clone()).or_default();
            row = group.len() as u32;
            group.push(id.clone());
        }
        let node = ViewNode {
            id: id.clone(),
            label: bounded(label, 200).0,
            kind,
            agent: None,
            status: NodeStatus::Pending,
            parent: parent.cloned(),
            layer: 0,
            row,
            attempt: 0,
            started: None,
            ended: None,
            usage: levity_core::Usage::default(),
            error: None,
            description: None,
            prompt: None,
            output: None,
            items: None,
            activity: None,
            run: None,
            truncated: false,
        };
        self.nodes.insert(id.clone(), (node, revision));
        true
    }

    /// Changes a node, if it exists and the change makes a difference.
    pub(super) fn update(&mut self, id: &str, revision: u64, change: impl FnOnce(&mut ViewNode)) {
        if let Some((node, changed)) = self.nodes.get_mut(id) {
            change(node);
            *changed = revision;
        }
    }

    /// Sets a text of a node, within the limits.
    pub(super) fn set_text(&mut self, id: &str, which: &NodeText, text: &str, revision: u64) {
        let limit = match self.text_bytes < MAX_NODE_BYTES {
            true => MAX_NODE_TEXT,
            false => SHORT_TEXT,
        };
        let (text, cut) = bounded(text, limit);
        let Some((node, changed)) = self.nodes.get_mut(id) else {
            return;
        };
        let slot = match which {
            NodeText::Prompt => &mut node.prompt,
            NodeText::Output => &mut node.output,
            NodeText::Error => &mut node.error,
            NodeText::Description => &mut node.description,
            NodeText::Agent => &mut node.agent,
        };
        let new = Some(text).filter(|text| !text.is_empty());
        if *slot == new {
            return;
        }
        self.text_bytes += new.as_ref().map_or(0, String::len);
        self.text_bytes -= slot.as_ref().map_or(0, String::len);
        *slot = new;
        node.truncated |= cut;
        *changed = revision;
    }

    /// Replaces the order and the edges of a group. Children that are not in `order` are removed.
    pub(super) fn set_group(
        &mut self,
        parent: &Arc<str>,
        order: Vec<Arc<str>>,
        edges: Vec<Edge>,
        revision: u64,
    ) {
        let kept: std::collections::BTreeSet<&Arc<str>> = order.iter().collect();
        let old = self.groups.get(parent).cloned().unwrap_or_default();
        for gone in old.iter().filter(|id| !kept.contains(id)) {
            self.remove(gone, revision);
        }
        drop(kept);
        self.groups.insert(parent.clone(), order);
        self.edges.insert(parent.clone(), edges);
        self.edges_changed = revision;
        self.arrange(parent, revision);
    }

    /// Adds edges between children of a node.
    pub(super) fn connect_all(&mut self, parent: &Arc<str>, new: Vec<Edge>, revision: u64) {
        let edges = self.edges.entry(parent.clone()).or_default();
        let before = edges.len();
        let known: std::collections::BTreeSet<_> = edges.iter().cloned().collect();
        edges.extend(
            new.into_iter()
                .filter(|edge| edge.0 != edge.1 && !known.contains(edge)),
        );
        edges.truncate(MAX_EDGES);
        if edges.len() != before {
            self.edges_changed = revision;
        }
        self.arrange(parent, revision);
    }

    /// Returns the children of a node, in the order of the group.
    pub(super) fn group(&self, parent: &str) -> &[Arc<str>] {
        self.groups.get(parent).map_or(&[], Vec::as_slice)
    }

    /// Removes a node and all nodes below it.
    fn remove(&mut self, id: &Arc<str>, revision: u64) {
        let mut gone = vec![id.clone()];
        while let Some(id) = gone.pop() {
            gone.extend(self.groups.remove(&id).unwrap_or_default());
            self.edges.remove(&id);
            if let Some((node, _)) = self.nodes.remove(&id) {
                let texts = [&node.prompt, &node.output, &node.error, &node.description];
                let size = |text: &&Option<String>| text.as_ref().map_or(0, String::len);
                self.text_bytes -= texts.iter().map(size).sum::<usize>();
                self.text_bytes -= node.agent.as_ref().map_or(0, String::len);
                self.removed.add(revision, id);
            }
        }
    }

    /// Computes the layers and rows of a group.
    fn arrange(&mut self, parent: &Arc<str>, revision: u64) {
        let group = self.group(parent).to_vec();
        let places: std::collections::HashMap<&Arc<str>, usize> = group.iter().zip(0..).collect();
        let edges: Vec<_> = self
            .edges
            .get(parent)
            .into_iter()
            .flatten()
            .filter_map(|(from, to)| Some((*places.get(from)?, *places.get(to)?)))
            .collect();
        for (id, (layer, row)) in group.iter().zip(layout(group.len(), &edges)) {
            if let Some((node, changed)) = self.nodes.get_mut(id)
                && (node.layer, node.row) != (layer, row)
            {
                (node.layer, node.row, *changed) = (layer, row, revision);
            }
        }
    }

    /// Returns all edges, sorted by their parent.
    pub(super) fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values().flatten()
    }

    pub(super) fn edges_changed(&self) -> u64 {
        self.edges_changed
    }

    /// Returns the nodes that changed after a revision, and the ids of removed ones; `None` if they
    /// are no longer known.
    pub(super) fn changes_since(&self, revision: u64) -> Option<(Vec<ViewNode>, Vec<String>)> {
        let removed = self.removed.since(revision)?;
        let changed = self.nodes.values().filter(|(_, at)| *at > revision);
        Some((changed.map(|(node, _)| node.clone()).collect(), removed))
    }
}
