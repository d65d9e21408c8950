//! Finding out what fits.

use std::sync::Arc;

use levity_core::{Message, Role};

use super::cut::NOTE;
use super::{Counter, Window, WindowView};

/// What a result may have, in tokens, once it is shortened.
const SHORT: u64 = 256;

/// What fits, when not everything does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowFit {
    /// What is shown from now on. Its summary is still the old one.
    pub view: WindowView,
    /// Whether it has no more tokens than it may; see
    /// [`WindowContents::fits`](crate::WindowContents::fits).
    pub fits: bool,
}

/// What is looked at.
struct Sight<'a> {
    messages: &'a [Arc<Message>],
    /// Where what the present run says begins.
    task: usize,
    pins: &'a [usize],
    room: u64,
    /// What is aimed at.
    target: u64,
    /// How many messages before `task` may stay.
    keep: Option<usize>,
}

impl Window {
    /// What to show when `view` shows more than there is room for; `None` when it does not. It
    /// leaves some room for what comes next, so that it is not asked for again at once.
    ///
    /// Messages from `task` on do not count towards the number of messages. Results of tools are
    /// shortened first; then the oldest messages leave, whole steps at a time.
    pub fn fit(
        &self,
        messages: &[Arc<Message>],
        task: usize,
        pins: &[usize],
        view: &WindowView,
        counter: &Counter,
    ) -> Option<WindowFit> {
        self.fit_to(messages, task, pins, view, counter, true)
    }

    /// The same; what is shown is as much as there is room for, unless some is to be left.
    pub(super) fn fit_to(
        &self,
        messages: &[Arc<Message>],
        task: usize,
        pins: &[usize],
        view: &WindowView,
        counter: &Counter,
        ahead: bool,
    ) -> Option<WindowFit> {
        let room = self
            .max_tokens()
            .map_or(u64::MAX, |tokens| counter.room(tokens));
        let sight = Sight {
            messages,
            task: task.min(messages.len()),
            pins,
            room,
            target: if ahead && room != u64::MAX {
                room / 2
            } else {
                room
            },
            keep: self
                .messages
                .map(|most| if ahead { most / 2 } else { most }),
        };
        let too_many = self
            .messages
            .is_some_and(|most| sight.past(view.start) > most);
        if !too_many && sight.fits(view) {
            return None;
        }
        let shorter = if too_many { None } else { sight.shorten(view) };
        let view = shorter.unwrap_or_else(|| sight.squeeze(sight.fold(view)));
        let fits = sight.fits(&view);
        Some(WindowFit { view, fits })
    }
}

impl Sight<'_> {
    /// How many messages of the past are shown from `start` on.
    fn past(&self, start: usize) -> usize {
        self.task.saturating_sub(start)
    }

    /// The place of the step that ends before `end`: a message, or one that calls tools and the
    /// results that follow.
    fn step(&self, end: usize) -> usize {
        let last = end.saturating_sub(1);
        let role = |at: usize| self.messages.get(at).map(|message| message.role);
        let answers =
            role(last) == Some(Role::Tool) && last > 0 && role(last - 1) == Some(Role::Assistant);
        if answers { last - 1 } else { last }
    }

    fn size(&self, view: &WindowView, at: usize) -> u64 {
        let Some(message) = self.messages.get(at) else {
            return 0;
        };
        match view.limits.contains_key(&at) {
            true => view.shown_message(message, at).tokens(),
            false => message.tokens(),
        }
    }

    fn head(&self, view: &WindowView) -> u64 {
        view.head(self.messages, self.pins)
            .iter()
            .map(|message| message.tokens())
            .sum()
    }

    /// Whether all that is shown fits; looks at no more than there is room for.
    fn fits(&self, view: &WindowView) -> bool {
        self.total(view).is_some_and(|total| total <= self.room)
    }

    /// How much is shown; `None` when that is more than there is room for.
    fn total(&self, view: &WindowView) -> Option<u64> {
        let mut total = self.head(view);
        for at in (view.start..self.messages.len()).rev() {
            if view.limits.get(&at) == Some(&0) && self.messages[at].role == Role::Tool {
                continue;
            }
            total = total.saturating_add(self.size(view, at));
            if total > self.room {
                return None;
            }
        }
        Some(total)
    }

    /// Shortens old results, the oldest first, until enough is gained; `None` when that is not
    /// enough.
    fn shorten(&self, view: &WindowView) -> Option<WindowView> {
        let mut shorter = view.clone();
        let mut total = self.head(view);
        let last = self.step(self.messages.len());
        for at in (view.start..self.messages.len()).rev() {
            if at < last {
                self.shorten_one(&mut shorter, at);
            }
            total = total.saturating_add(self.size(&shorter, at));
            if total > self.room {
                return None;
            }
        }
        if total > self.room {
            return None;
        }
        self.give_back(view, &mut shorter, total);
        Some(shorter)
    }

    /// Gives back what they had to those that need not be shortened, the newest first, when so much
    /// is shown.
    fn give_back(&self, before: &WindowView, shorter: &mut WindowView, mut total: u64) {
        for at in shorter.limits.keys().rev().copied().collect::<Vec<_>>() {
            if before.limits.contains_key(&at) {
                continue;
            }
            let more = self.messages[at]
                .tokens()
                .saturating_sub(self.size(shorter, at));
            if total.saturating_add(more) > self.target {
                break;
            }
            total += more;
            shorter.limits.remove(&at);
        }
    }

    /// Limits the results at a place, if they are long.
    fn shorten_one(&self, view: &mut WindowView, at: usize) {
        let message = &self.messages[at];
        if message.role == Role::Tool && message.tokens() > SHORT * 2 {
            view.limits.entry(at).or_insert(SHORT);
        }
    }

    /// Keeps the last steps that fit, with old results shortened.
    fn fold(&self, view: &WindowView) -> WindowView {
        let mut kept = view.clone();
        let mut start = self.messages.len();
        let mut total = self.head(view);
        while start > view.start {
            let at = self.step(start);
            let is_last = start == self.messages.len();
            if !is_last {
                (at..start).for_each(|at| self.shorten_one(&mut kept, at));
            }
            let step: u64 = (at..start).map(|at| self.size(&kept, at)).sum();
            let too_many = at < self.task && self.keep.is_some_and(|keep| self.task - at > keep);
            let goes = too_many || (!is_last && total.saturating_add(step) > self.target);
            // The present task is never without its last step.
            if goes && !(is_last && at >= self.task) {
                break;
            }
            total = total.saturating_add(step);
            start = at;
        }
        kept.start = start.max(view.start);
        kept.limits = kept.limits.split_off(&kept.start);
        // What is shown before the rest may have become more.
        while self.total(&kept).is_none() && self.step_after(kept.start) < self.messages.len() {
            kept.start = self.step_after(kept.start);
            kept.limits = kept.limits.split_off(&kept.start);
        }
        if let Some(total) = self.total(&kept) {
            self.give_back(view, &mut kept, total);
        }
        kept
    }

    fn step_after(&self, at: usize) -> usize {
        let next = self.messages.get(at + 1).map(|message| message.role);
        if next == Some(Role::Tool) {
            at + 2
        } else {
            at + 1
        }
    }

    /// Makes what is left fit, when one step alone is too long.
    fn squeeze(&self, mut view: WindowView) -> WindowView {
        if self.fits(&view) {
            return view;
        }
        let heads = view.head(self.messages, self.pins).len() as u64;
        if self.head(&view) > self.room / 2 {
            view.header = Some((self.room / 2 / heads.max(1)).max(NOTE + 16));
        }
        let left = self.room.saturating_sub(self.head(&view));
        let mut share = left;
        while share > NOTE {
            self.limit_to(&mut view, share, left);
            if self.fits(&view) {
                return view;
            }
            share = share / 4 * 3;
        }
        self.leave_out(&mut view);
        view
    }

    /// Limits what is shown of the last step to `left`, of which its results or its text have
    /// `share`.
    fn limit_to(&self, view: &mut WindowView, share: u64, left: u64) {
        let calls: u64 = (view.start..self.messages.len())
            .filter(|at| self.messages[*at].role != Role::Tool)
            .filter(|at| self.messages[*at].calls().next().is_some())
            .map(|at| self.messages[at].tokens())
            .sum();
        for at in view.start..self.messages.len() {
            let message = &self.messages[at];
            match message.role {
                Role::Tool => {
                    let results = message.results().count().max(1) as u64;
                    let each = share.min(left.saturating_sub(calls)) / results;
                    view.limits.insert(at, each.saturating_sub(8).max(1));
                }
                _ if message.calls().next().is_some() => {}
                _ => drop(view.limits.insert(at, share)),
            }
        }
    }

    /// Shows nothing of the last step but that it was there.
    fn leave_out(&self, view: &mut WindowView) {
        for at in view.start..self.messages.len() {
            let message = &self.messages[at];
            let limit = if message.role == Role::User || message.role == Role::System {
                NOTE + 16
            } else {
                0
            };
            view.limits.insert(at, limit);
        }
    }
}
