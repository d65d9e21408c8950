use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::text::floor;

/// How much of one text is kept.
pub(crate) const MAX_ITEM: usize = 8 << 20;

/// How much is kept in all.
const MAX_TOTAL: usize = 64 << 20;

/// What keeping a text costs besides its bytes.
const OVERHEAD: usize = 128;

/// Keeps texts that were too long for the model; the oldest go first when there are too many.
#[derive(Default)]
pub(crate) struct Aside(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Ordered by age: the number is part of the id.
    items: BTreeMap<u64, Item>,
    next: u64,
    bytes: usize,
}

struct Item {
    id: String,
    text: String,
}

impl Item {
    fn cost(&self) -> usize {
        self.text.capacity() + OVERHEAD
    }
}

/// A part of a kept text.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) total: usize,
}

impl Aside {
    /// Keeps `text`, or its first [`MAX_ITEM`] bytes, and returns the id. Whoever does not know `random`
    /// cannot guess it, so that one run does not read what another put aside.
    pub(crate) fn put(&self, mut text: String, random: u64) -> String {
        text.truncate(floor(&text, MAX_ITEM));
        text.shrink_to_fit();
        let mut kept = self.kept();
        kept.next += 1;
        let number = kept.next;
        let id = format!("{number}-{:012x}", random >> 16);
        let item = Item { id: id.clone(), text };
        kept.bytes += item.cost();
        kept.items.insert(number, item);
        while kept.bytes > MAX_TOTAL {
            let Some((_, oldest)) = kept.items.pop_first() else {
                break;
            };
            kept.bytes -= oldest.cost();
        }
        id
    }

    /// The bytes of a kept text from `offset` on, up to the last whole character within `length`. Pieces
    /// that follow each other give the whole, whatever their offsets.
    pub(crate) fn read(&self, id: &str, offset: usize, length: usize) -> Option<Piece> {
        let number = id.split_once('-')?.0.parse().ok()?;
        let kept = self.kept();
        let text = &kept.items.get(&number).filter(|item| item.id == id)?.text;
        let (start, end) = (floor(text, offset), floor(text, offset.saturating_add(length)));
        Some(Piece { text: text[start..end].to_owned(), start, end, total: text.len() })
    }

    /// Whether anything was ever put aside.
    pub(crate) fn was_used(&self) -> bool {
        self.kept().next > 0
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_back_the_whole_at_any_length() {
        let aside = Aside::default();
        let whole = "aé😀\n€".repeat(50);
        let id = aside.put(whole.clone(), 7);
        for length in 1..40 {
            let pieces =
                (0..=whole.len()).step_by(length).map(|at| aside.read(&id, at, length).unwrap().text);
            assert_eq!(pieces.collect::<String>(), whole, "{length}");
        }
    }

    #[test]
    fn nothing_is_read_beyond_the_end_or_by_a_guess() {
        let aside = Aside::default();
        let id = aside.put("abc".into(), u64::MAX);
        assert_eq!(id, "1-ffffffffffff");
        let expected = Piece { text: "c".into(), start: 2, end: 3, total: 3 };
        assert_eq!(aside.read(&id, 2, usize::MAX), Some(expected));
        assert_eq!(aside.read(&id, usize::MAX, usize::MAX).unwrap().text, "");
        for wrong in ["", "1", "1-", "1-fffffffffffe", "2-ffffffffffff", "x-ffffffffffff"] {
            assert_eq!(aside.read(wrong, 0, 1), None, "{wrong}");
        }
    }

    #[test]
    fn the_oldest_goes_first_and_long_texts_are_cut() {
        let aside = Aside::default();
        let ids: Vec<_> = (0..9).map(|_| aside.put("é".repeat(MAX_ITEM), 1)).collect();
        assert!(ids.iter().take(2).all(|id| aside.read(id, 0, 1).is_none()));
        assert!(ids.iter().skip(2).all(|id| aside.read(id, 0, 1).unwrap().total == MAX_ITEM));
        assert!(aside.kept().bytes <= MAX_TOTAL);
    }
}
