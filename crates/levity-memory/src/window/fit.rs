//! Finding a view that fits.
//!
//! The steps are tried in this order, until the request fits: shorten old tool results; drop the
//! oldest steps; cut the last step. A step is a message, or a call with its results, and is never
//! torn apart. Half of the room stays free afterwards, so that the next message does not start the
//! search again.

use std::sync::Arc;

use levity_core::{Message, Role};

use super::cut::NOTE_TOKENS;
use super::{Counter, Window, WindowView};

/// The token limit of a shortened result.
const SHORT_RESULT: u64 = 256;

/// A view that fits, when the whole conversation does not.
///
/// ```
/// use levity_core::Message;
/// use levity_memory::{Counter, Window, WindowView};
///
/// let messages: Vec<_> = (1..=40).map(|n| Message::user(format!("message {n}")).into()).collect();
/// let (window, all) = (Window::new().messages(10), WindowView::default());
/// let fit = window.fit(&messages, messages.len(), &[], &all, &Counter::new()).unwrap();
/// assert!(fit.fits && fit.view.start() == 35); // half of the ten places stay free
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowFit {
    /// The new view. Its summary is still the old one.
    pub view: WindowView,
    /// `true` if the view is within the token limit; see
    /// [`WindowContents::fits`](crate::WindowContents::fits).
    pub fits: bool,
}

/// The inputs of one fitting.
struct Fitter<'a> {
    messages: &'a [Arc<Message>],
    /// The index at which the current run begins.
    task: usize,
    pins: &'a [usize],
    room: u64,
    /// The number of tokens to aim for.
    target: u64,
    /// The maximum number of messages before `task`.
    max_past: Option<usize>,
}

impl Window {
    /// Returns a smaller view if `view` exceeds the limits, otherwise `None`. It leaves some room
    /// for further messages, so that the next message does not exceed the limits again.
    ///
    /// Messages from `task` on do not count towards the message limit. Tool results are shortened
    /// first; then the oldest messages leave, whole steps at a time.
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

    /// Does the same; without `leave_room`, the view uses all of the room.
    pub(super) fn fit_to(
        &self,
        messages: &[Arc<Message>],
        task: usize,
        pins: &[usize],
        view: &WindowView,
        counter: &Counter,
        leave_room: bool,
    ) -> Option<WindowFit> {
        let room = self
            .max_tokens()
            .map_or(u64::MAX, |tokens| counter.max_estimate(tokens));
        let fitter = Fitter {
            messages,
            task: task.min(messages.len()),
            pins,
            room,
            target: if leave_room && room != u64::MAX {
                room / 2
            } else {
                room
            },
            max_past: self.messages.map(|max_messages| {
                if leave_room {
                    max_messages / 2
                } else {
                    max_messages
                }
            }),
        };
        let too_many = self
            .messages
            .is_some_and(|max_messages| fitter.past(view.start) > max_messages);
        if !too_many && fitter.fits(view) {
            return None;
        }
        let shorter = if too_many { None } else { fitter.shorten(view) };
        let view = shorter.unwrap_or_else(|| fitter.cut_last_step(fitter.drop_oldest(view)));
        let fits = fitter.fits(&view);
        Some(WindowFit { view, fits })
    }
}

impl Fitter<'_> {
    /// Returns the number of past messages that are shown from `start` on.
    fn past(&self, start: usize) -> usize {
        self.task.saturating_sub(start)
    }

    /// Returns the start of the step that ends before `end`: one message, or a message with tool
    /// calls and its results.
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

    /// Returns `true` if the view fits; reads no more messages than there is room for.
    fn fits(&self, view: &WindowView) -> bool {
        self.total(view).is_some_and(|total| total <= self.room)
    }

    /// Returns the size of the view; `None` if it exceeds the room.
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

    /// Shortens old results, the oldest first, until the view fits; `None` if that is not enough.
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
        self.restore_results(view, &mut shorter, total);
        Some(shorter)
    }

    /// Restores shortened results, the newest first, as long as the total stays within the target.
    fn restore_results(&self, before: &WindowView, shorter: &mut WindowView, mut total: u64) {
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

    /// Limits the results at an index if they are long.
    fn shorten_one(&self, view: &mut WindowView, at: usize) {
        let message = &self.messages[at];
        if message.role == Role::Tool && message.tokens() > SHORT_RESULT * 2 {
            view.limits.entry(at).or_insert(SHORT_RESULT);
        }
    }

    /// Retains the last steps that fit, with old results shortened.
    ///
    /// It walks backwards from the newest message and reads no more messages than fit.
    fn drop_oldest(&self, view: &WindowView) -> WindowView {
        let mut folded = view.clone();
        let mut start = self.messages.len();
        let mut total = self.head(view);
        while start > view.start {
            let at = self.step(start);
            let is_last = start == self.messages.len();
            if !is_last {
                (at..start).for_each(|at| self.shorten_one(&mut folded, at));
            }
            let step: u64 = (at..start).map(|at| self.size(&folded, at)).sum();
            let too_many = at < self.task
                && self
                    .max_past
                    .is_some_and(|max_past| self.task - at > max_past);
            let leaves = too_many || (!is_last && total.saturating_add(step) > self.target);
            // The current task always keeps its last step.
            if leaves && !(is_last && at >= self.task) {
                break;
            }
            total = total.saturating_add(step);
            start = at;
        }
        folded.start = start.max(view.start);
        folded.limits = folded.limits.split_off(&folded.start);
        // The header may have grown by newly pinned messages.
        while self.total(&folded).is_none() && self.step_after(folded.start) < self.messages.len() {
            folded.start = self.step_after(folded.start);
            folded.limits = folded.limits.split_off(&folded.start);
        }
        if let Some(total) = self.total(&folded) {
            self.restore_results(view, &mut folded, total);
        }
        folded
    }

    fn step_after(&self, at: usize) -> usize {
        let next = self.messages.get(at + 1).map(|message| message.role);
        if next == Some(Role::Tool) {
            at + 2
        } else {
            at + 1
        }
    }

    /// Makes the view fit when a single step is too long.
    ///
    /// Even a single message may be larger than the window of the model.
    fn cut_last_step(&self, mut view: WindowView) -> WindowView {
        if self.fits(&view) {
            return view;
        }
        let heads = view.head(self.messages, self.pins).len() as u64;
        if self.head(&view) > self.room / 2 {
            view.header = Some((self.room / 2 / heads.max(1)).max(NOTE_TOKENS + 16));
        }
        let remaining = self.room.saturating_sub(self.head(&view));
        let mut share = remaining;
        while share > NOTE_TOKENS {
            self.limit_to(&mut view, share, remaining);
            if self.fits(&view) {
                return view;
            }
            share = share / 4 * 3;
        }
        self.replace_last_step(&mut view);
        view
    }

    /// Limits the last step to `remaining` tokens, of which its results or text get `share`.
    fn limit_to(&self, view: &mut WindowView, share: u64, remaining: u64) {
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
                    let each = share.min(remaining.saturating_sub(calls)) / results;
                    view.limits.insert(at, each.saturating_sub(8).max(1));
                }
                _ if message.calls().next().is_some() => {}
                _ => drop(view.limits.insert(at, share)),
            }
        }
    }

    /// Replaces the last step with a note that it was there.
    fn replace_last_step(&self, view: &mut WindowView) {
        for at in view.start..self.messages.len() {
            let message = &self.messages[at];
            let limit = if message.role == Role::User || message.role == Role::System {
                NOTE_TOKENS + 16
            } else {
                0
            };
            view.limits.insert(at, limit);
        }
    }
}
