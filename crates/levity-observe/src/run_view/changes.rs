//! The difference between two states of a view.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::model::{ViewItem, ViewNode};

/// The maximum number of remembered removals.
const MAX_REMOVALS: usize = 4096;

/// A change of an item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ItemChange {
    /// An item was added: insert it at this index. Removals come first, and additions are sorted by
    /// their index in the new list.
    Added {
        /// The index in the new list.
        index: usize,
        /// The item that was added.
        item: Box<ViewItem>,
    },
    /// The item with the same id was replaced.
    Replaced {
        /// The new state of the item.
        item: Box<ViewItem>,
    },
    /// The text of an item grew.
    Appended {
        /// The id of the item.
        id: String,
        /// The text to append.
        append: String,
    },
}

/// The changes of a view since an earlier revision.
///
/// ```
/// use levity_core::{Delta, EffectId, Event, EventKind, RunId, Timestamp};
/// use levity_observe::RunView;
///
/// let run = RunId::new("r1");
/// let event = |kind| Event::new(RunId::new("r1"), 1, Timestamp::from_millis(5), kind);
/// let mut view = RunView::new(run);
/// let mut page = serde_json::to_value(&view)?;
/// let revision = view.revision();
/// view.apply(&event(EventKind::Goal { text: "Tidy up.".into() }));
///
/// let changes = view.changes_since(revision).expect("the revision is recent");
/// changes.apply_to(&mut page);
/// assert_eq!(page, serde_json::to_value(&view)?);
/// assert_eq!(page["items"][0]["text"], "Tidy up.");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewChanges {
    /// The top-level fields that changed, with their new values.
    pub fields: Map<String, Value>,
    /// The ids of the removed items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_items: Vec<String>,
    /// The changed and added items, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemChange>,
    /// The ids of the removed nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_nodes: Vec<String>,
    /// The changed and added nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ViewNode>,
}

impl ViewChanges {
    /// Returns `true` if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
            && self.items.is_empty()
            && self.nodes.is_empty()
            && self.removed_items.is_empty()
            && self.removed_nodes.is_empty()
    }

    /// Applies the changes to the JSON of the earlier view. It is the reference for clients in
    /// other languages.
    ///
    /// Removals come first. Added items are inserted at their index, in the given order. Nodes are
    /// sorted by their id.
    pub fn apply_to(&self, view: &mut Value) {
        for (name, value) in &self.fields {
            view[name.as_str()] = value.clone();
        }
        if let Some(items) = view["items"].as_array_mut() {
            items.retain(|item| !self.removed_items.iter().any(|id| item["id"] == **id));
            self.items.iter().for_each(|change| change.apply_to(items));
        }
        if let Some(nodes) = view["nodes"].as_array_mut() {
            nodes.retain(|node| !self.removed_nodes.iter().any(|id| node["id"] == **id));
            for node in &self.nodes {
                let place = nodes.binary_search_by(|known| {
                    known["id"].as_str().unwrap_or_default().cmp(&node.id)
                });
                match place {
                    Ok(at) => nodes[at] = json!(node),
                    Err(at) => nodes.insert(at, json!(node)),
                }
            }
        }
    }
}

impl ItemChange {
    fn apply_to(&self, items: &mut Vec<Value>) {
        match self {
            Self::Added { index, item } => items.insert((*index).min(items.len()), json!(item)),
            Self::Replaced { item } => {
                if let Some(known) = items.iter_mut().find(|known| known["id"] == *item.id) {
                    *known = json!(item);
                }
            }
            Self::Appended { id, append } => {
                if let Some(known) = items.iter_mut().find(|known| known["id"] == **id) {
                    let text = known["text"].as_str().unwrap_or_default();
                    known["text"] = format!("{text}{append}").into();
                }
            }
        }
    }
}

/// The latest removals, with their revisions.
#[derive(Clone, Debug, Default)]
pub(super) struct RemovalLog {
    removals: VecDeque<(u64, Arc<str>)>,
    /// The revision of the latest removal that is no longer remembered.
    forgotten: u64,
}

impl RemovalLog {
    pub(super) fn add(&mut self, revision: u64, id: Arc<str>) {
        self.removals.push_back((revision, id));
        if self.removals.len() > MAX_REMOVALS
            && let Some((oldest, _)) = self.removals.pop_front()
        {
            self.forgotten = oldest;
        }
    }

    /// Returns the ids that were removed after a revision; `None` if some are no longer known.
    pub(super) fn since(&self, revision: u64) -> Option<Vec<String>> {
        if self.forgotten > revision {
            return None;
        }
        let first = self.removals.partition_point(|(at, _)| *at <= revision);
        Some(
            self.removals
                .range(first..)
                .map(|(_, id)| id.to_string())
                .collect(),
        )
    }
}
