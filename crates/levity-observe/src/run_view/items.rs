//! The items of a view in their canonical order.
//!
//! The order follows from the events alone, and not from the order in which they arrive: items are
//! sorted by time, then by their causal number, then by run. The oldest items are dropped when
//! there are too many.

use std::collections::{BTreeMap, HashMap, VecDeque};

use levity_core::RunId;

use super::changes::{ItemChange, RemovalLog};
use super::model::ViewItem;
use super::text::boundary;
use super::{MAX_ITEM_BYTES, MAX_ITEMS, MAX_TEXT};

/// The maximum number of remembered pieces of a growing text.
const MAX_PIECES: usize = 256;

/// The position of an item: the time, the causal number, the run, and the part of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemKey {
    pub(super) at: u64,
    pub(super) seq: u64,
    pub(super) run: RunId,
    pub(super) part: u32,
}

impl ItemKey {
    /// Returns the key of another part of the same event.
    pub(super) fn with_part(&self, part: u32) -> Self {
        Self {
            part,
            ..self.clone()
        }
    }
}

/// An item with the revisions of its changes.
#[derive(Clone, Debug)]
struct Slot {
    item: ViewItem,
    size: usize,
    created: u64,
    /// The latest change of any kind.
    changed: u64,
    /// The latest change other than growth of the text.
    replaced: u64,
    /// The start of each piece that was appended since, with its revision.
    pieces: VecDeque<(u64, usize)>,
    /// The revision of the latest piece that is no longer remembered.
    forgotten: u64,
}

/// The items, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    slots: BTreeMap<ItemKey, Slot>,
    keys: HashMap<String, ItemKey>,
    bytes: usize,
    dropped: u64,
    removed: RemovalLog,
}

impl Items {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ViewItem> {
        self.slots.values().map(|slot| &slot.item)
    }

    /// Returns the number of items that were dropped because of the limits.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the text of an item.
    pub(super) fn text(&self, id: &str) -> Option<&str> {
        self.slots.get(self.keys.get(id)?)?.item.text.as_deref()
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    /// Inserts an item, or replaces the one with the same id at its position.
    pub(super) fn insert(&mut self, key: ItemKey, item: ViewItem, revision: u64) {
        if let Some(known) = self.keys.get(&item.id).cloned() {
            if let Some(slot) = self.slots.get_mut(&known) {
                slot.item = item;
                slot.changed = revision;
                slot.replaced = revision;
                slot.pieces.clear();
            }
            self.measure(&known);
            return;
        }
        let size = item.size();
        self.bytes += size;
        self.keys.insert(item.id.clone(), key.clone());
        let slot = Slot {
            item,
            size,
            created: revision,
            changed: revision,
            replaced: revision,
            pieces: VecDeque::new(),
            forgotten: 0,
        };
        self.slots.insert(key, slot);
        self.drop_oldest(revision);
    }

    /// Changes an item. Does nothing if it was dropped.
    pub(super) fn update(&mut self, id: &str, revision: u64, change: impl FnOnce(&mut ViewItem)) {
        let Some(key) = self.keys.get(id).cloned() else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(&key) {
            change(&mut slot.item);
            slot.changed = revision;
            slot.replaced = revision;
            slot.pieces.clear();
        }
        self.measure(&key);
        self.drop_oldest(revision);
    }

    /// Appends to the text of an item, up to the limit of a text.
    pub(super) fn append(&mut self, id: &str, more: &str, revision: u64) {
        let Some(slot) = self.keys.get(id).and_then(|key| self.slots.get_mut(key)) else {
            return;
        };
        if slot.item.truncated || more.is_empty() {
            return;
        }
        let text = slot.item.text.get_or_insert_default();
        let start = text.len();
        let fits = boundary(more, MAX_TEXT.saturating_sub(start));
        text.push_str(&more[..fits]);
        slot.changed = revision;
        if fits < more.len() {
            slot.item.truncated = true;
            slot.replaced = revision;
            slot.pieces.clear();
        } else {
            slot.pieces.push_back((revision, start));
            if slot.pieces.len() > MAX_PIECES
                && let Some((oldest, _)) = slot.pieces.pop_front()
            {
                slot.forgotten = oldest;
            }
        }
        slot.size += fits;
        self.bytes += fits;
        self.drop_oldest(revision);
    }

    /// Removes an item and remembers its removal.
    pub(super) fn remove(&mut self, id: &str, revision: u64) {
        if let Some(key) = self.keys.remove(id)
            && let Some(slot) = self.slots.remove(&key)
        {
            self.bytes -= slot.size;
            self.removed.add(revision, id.into());
        }
    }

    /// Counts the size of a changed item again.
    fn measure(&mut self, key: &ItemKey) {
        if let Some(slot) = self.slots.get_mut(key) {
            self.bytes -= slot.size;
            slot.size = slot.item.size();
            self.bytes += slot.size;
        }
    }

    /// Drops the oldest items until the rest is within both limits. The newest one always stays.
    fn drop_oldest(&mut self, revision: u64) {
        while self.slots.len() > MAX_ITEMS || (self.bytes > MAX_ITEM_BYTES && self.slots.len() > 1)
        {
            let Some((_, slot)) = self.slots.pop_first() else {
                return;
            };
            self.bytes -= slot.size;
            self.keys.remove(&slot.item.id);
            self.removed.add(revision, slot.item.id.as_str().into());
            self.dropped += 1;
        }
    }

    /// Returns the changes after a revision, and the ids of removed items; `None` if they are no
    /// longer known.
    pub(super) fn changes_since(&self, revision: u64) -> Option<(Vec<ItemChange>, Vec<String>)> {
        let removed = self.removed.since(revision)?;
        let mut changes = Vec::new();
        for (index, slot) in self.slots.values().enumerate() {
            if slot.changed > revision {
                changes.push(slot.change_since(index, revision));
            }
        }
        Some((changes, removed))
    }
}

impl Slot {
    /// Returns how the item changed after a revision: text that was only appended is sent alone.
    fn change_since(&self, index: usize, revision: u64) -> ItemChange {
        if self.created > revision {
            return ItemChange::Added {
                index,
                item: Box::new(self.item.clone()),
            };
        }
        let start = self.pieces.iter().find(|(piece, _)| *piece > revision);
        match (start, &self.item.text) {
            (Some((_, start)), Some(text))
                if self.replaced <= revision && self.forgotten <= revision =>
            {
                ItemChange::Appended {
                    id: self.item.id.clone(),
                    append: text[*start..].to_owned(),
                }
            }
            _ => ItemChange::Replaced {
                item: Box::new(self.item.clone()),
            },
        }
    }
}
