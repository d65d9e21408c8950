//! What is under way, by step.

use super::perform::Work;

/// The steps under way, each in the place of its number.
#[derive(Debug, Default)]
pub(super) struct Works(Vec<Option<Box<Work>>>);

impl Works {
    pub(super) fn insert(&mut self, at: u32, work: Box<Work>) {
        let at = at as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.0.get_mut(at) {
            *slot = Some(work);
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<&Work> {
        self.0.get(at as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Work> {
        self.0.get_mut(at as usize)?.as_deref_mut()
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<Box<Work>> {
        self.0.get_mut(at as usize)?.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Work)> {
        (0..).zip(&self.0).filter_map(|(at, work)| Some((at, work.as_deref()?)))
    }

    /// Gives the steps other numbers; what has none is gone.
    pub(super) fn renumber(&mut self, new: impl Fn(u32) -> Option<u32>) {
        let old = std::mem::take(&mut self.0);
        for (at, work) in (0..).zip(old) {
            if let (Some(work), Some(at)) = (work, new(at)) {
                self.insert(at, work);
            }
        }
    }
}
