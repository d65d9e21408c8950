//! Selects the part of the history that the model is shown, and shrinks it when it is too long.
//!
//! The history that is sent is a view of the full one: a summary, then the messages from some index
//! on, some of them shortened. When a request would not fit, the view moves forward and a model
//! summarizes what leaves it. If that fails, a digest of short lines replaces the summary, and a
//! model is asked again some turns later.
//!
//! The estimate of tokens is calibrated with each reply, since providers count differently.

use std::sync::Arc;

use levity_core::{
    CompactionReport, EventKind, History, MachineOutput, Message, ModelCall, ModelError,
    ModelErrorKind, Offer, Outcome, Response, Role,
};
use levity_memory::{Counter, Window, WindowFit, WindowView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AgentMachine;
use super::conversation::Conversation;
use super::phase::{Purpose, Question};

/// The number of times a request that is too long for the provider is shortened before the run
/// fails.
const MAX_SHORTENINGS: u32 = 3;
/// The number of turns after which a missing summary is requested again.
const SUMMARY_RETRY_TURNS: u64 = 3;

/// The part of the history that the model is shown.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ShownHistory {
    /// The available room; without it, everything is shown.
    pub(super) window: Option<Window>,
    /// `true` if messages that left the window are listed, without a summary by a model.
    lists: bool,
    counter: Counter,
    pub(super) view: WindowView,
    /// The history that is sent, once it differs from the full history.
    #[serde(skip)]
    sent: Option<History>,
    /// The index in the history at which this run begins.
    pub(super) task: usize,
    /// The messages that are always shown: the goal and the context beside it.
    pins: Vec<usize>,
    /// The estimated tokens of the messages in the last request.
    asked: u64,
    pub(super) owed: Option<MissingSummary>,
    /// The number of times in a row that the provider found a request too long.
    too_long: u32,
}

impl ShownHistory {
    /// Shows the past from the end of its summary.
    pub(super) fn new(window: Window, lists: bool, summary: Option<Arc<str>>, beside: u64) -> Self {
        let counter = Counter::new().with_overhead(beside);
        Self {
            window: Some(window),
            lists,
            counter,
            view: WindowView::new(summary),
            ..Self::default()
        }
    }

    /// Returns `true` if it points to messages beyond the end of a history.
    pub(super) fn is_beyond(&self, len: usize) -> bool {
        let owed = self.owed.as_ref().map_or(0, |owed| owed.from);
        let pinned = self.pins.iter().any(|pin| *pin >= len);
        pinned
            || [self.task, self.view.start(), owed]
                .into_iter()
                .any(|end| end > len)
    }
}

/// A summary in progress.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingSummary {
    /// The view that is shown once the summary exists.
    view: WindowView,
    /// The previous summary, and the first message that is not in it.
    old: Option<Arc<str>>,
    from: usize,
    /// The number of tokens that it summarises.
    given: u64,
}

impl PendingSummary {
    /// Returns `true` if it points to messages beyond the end of a history.
    pub(super) fn is_beyond(&self, len: usize) -> bool {
        self.from.max(self.view.start()) > len
    }
}

/// A summary that no model has made yet, replaced by a digest.
#[derive(Serialize, Deserialize)]
pub(super) struct MissingSummary {
    /// The last summary that a model made, and the first message that is not in it.
    pub(super) summary: Option<Arc<str>>,
    pub(super) from: usize,
    /// The turn at which a model is asked again, and the number of turns until the next attempt.
    turn: u64,
    wait: u64,
}

impl Conversation {
    /// Returns the history that is sent to the model.
    pub(super) fn sent(&self) -> &History {
        self.shown.sent.as_ref().unwrap_or(&self.history)
    }

    /// Returns the tokens of the next request, as well as they can be estimated.
    pub(super) fn sent_tokens(&self) -> u64 {
        self.shown.counter.count(self.sent().tokens())
    }

    /// Returns the memory beyond the history.
    pub(super) fn remembered(&self) -> Value {
        let mut memory = serde_json::Map::new();
        if let Some(talk) = &self.talk {
            memory.insert("conversation".to_owned(), talk.id().as_str().into());
        }
        if let Some(summary) = self.shown.view.summary() {
            memory.insert("summary".to_owned(), (&**summary).into());
        }
        Value::Object(memory)
    }

    /// Begins with the summary of the messages before the history.
    pub(super) fn show_summary(&mut self, reader: &str) {
        if self.shown.view != WindowView::default() {
            self.show_anew(reader);
        }
    }

    fn show_anew(&mut self, reader: &str) {
        let sent = self
            .shown
            .view
            .history(self.history.messages(), &self.shown.pins, reader);
        self.shown.sent = Some(sent);
    }

    /// Shows the messages that were added to the history from an index on.
    pub(super) fn show_more(&mut self, from: usize, reader: &str) {
        let Some(sent) = &mut self.shown.sent else {
            return;
        };
        if sent.extend(&self.history, from).is_err() {
            self.show_anew(reader);
        }
    }

    /// Marks the current end of the history as the beginning of this run.
    pub(super) fn task_begins(&mut self) {
        self.shown.task = self.history.len();
    }

    /// Pins the last message, so that it is always shown.
    pub(super) fn pin_last(&mut self) {
        self.shown.pins.extend(self.history.len().checked_sub(1));
    }

    /// Returns `true` if the request exceeds the available room. Reads no message.
    fn is_over(&self) -> bool {
        let shown = &self.shown;
        let past = shown.task.saturating_sub(shown.view.start());
        let tokens = self.sent().tokens();
        shown
            .window
            .as_ref()
            .is_some_and(|window| window.exceeds_limits(tokens, past, &shown.counter))
    }

    fn fit(&self) -> Option<WindowFit> {
        let shown = &self.shown;
        let messages = self.history.messages();
        shown.window.as_ref()?.fit(
            messages,
            shown.task,
            &shown.pins,
            &shown.view,
            &shown.counter,
        )
    }

    /// Returns a summary of everything that is not in `view`, starting from the end of the last one
    /// that a model made.
    fn folding(&self, view: WindowView) -> PendingSummary {
        let (old, from) = match &self.shown.owed {
            Some(owed) => (owed.summary.clone(), owed.from),
            None => (self.shown.view.summary().cloned(), self.shown.view.start()),
        };
        PendingSummary {
            view,
            old,
            from,
            given: 0,
        }
    }

    /// Returns the messages to summarise. The context beside the goal is always shown and is not a
    /// message of anyone, so it is excluded.
    fn leaving(&self, folding: &PendingSummary) -> Vec<Arc<Message>> {
        self.messages_between(folding.from, folding.view.start(), |message| {
            message.role == Role::User
        })
    }

    /// Records the estimate of a request, to calibrate it with the provider's count.
    pub(super) fn note_asked(&mut self) {
        self.shown.asked = self.sent().tokens();
    }

    /// Calibrates the estimate with the provider's count.
    pub(super) fn learn(&mut self, response: &Response) {
        let shown = &mut self.shown;
        shown.too_long = 0;
        let counted = response.usage.input.filter(|_| !response.usage.estimated);
        // A layer that called a model more than once has added its counts up, and one that called
        // none has counted nothing.
        let highest = shown
            .counter
            .count(shown.asked)
            .saturating_mul(3)
            .saturating_add(2_048);
        let likely = shown.asked / 8 + 1..=highest;
        if let Some(counted) =
            counted.filter(|counted| likely.contains(counted) || shown.window.is_none())
        {
            shown.counter.record(shown.asked, counted);
        }
    }

    /// Handles a request that the provider finds too long: there is less room than estimated.
    /// Returns `true` if a retry with less is possible.
    pub(super) fn shrink_window(&mut self, error: &ModelError) -> bool {
        let sent = self.sent_tokens();
        let shown = &mut self.shown;
        if error.kind() != ModelErrorKind::ContextTooLong || shown.too_long >= MAX_SHORTENINGS {
            return false;
        }
        shown.too_long += 1;
        // A run of a version without windows continues under its old rules.
        let Some(window) = shown.window.take() else {
            return false;
        };
        let room = window.max_tokens().unwrap_or(u64::MAX).min(sent);
        shown.window = Some(window.tokens(room / 4 * 3));
        true
    }
}

impl AgentMachine {
    /// Makes the next request fit, and returns the question that can be asked now. Returns `None`
    /// if a model has to be asked for a summary first.
    pub(super) fn make_room(
        &mut self,
        next: Question,
        step: &mut MachineOutput,
    ) -> Option<Question> {
        if !self.state.conversation.is_over() {
            return self.ask_again(next, step);
        }
        let Some(fit) = self.state.conversation.fit() else {
            return Some(next);
        };
        let shown = &self.state.conversation.shown;
        if fit.view.start() > shown.view.start() {
            // A history that does not fit with any summary is not worth one.
            let no_summary_reason = if fit.fits {
                self.no_summaries()
            } else {
                Some("there is no room for one")
            };
            return self.summarise(fit.view, no_summary_reason, next, step);
        }
        if fit.view != shown.view {
            self.show(fit.view, None, step);
        }
        Some(next)
    }

    /// Asks a model again for a missing summary, when it is due.
    fn ask_again(&mut self, next: Question, step: &mut MachineOutput) -> Option<Question> {
        let turn = self.state.tally.stats.turns;
        let shown = &self.state.conversation.shown;
        let is_time = shown.owed.as_ref().is_some_and(|owed| owed.turn <= turn);
        if !is_time || self.no_summaries().is_some() {
            return Some(next);
        }
        self.summarise(shown.view.clone(), None, next, step)
    }

    /// Returns the reason for which no model is asked for summaries, if there is one.
    fn no_summaries(&self) -> Option<&'static str> {
        match () {
            () if self.state.conversation.shown.lists => Some("no model is asked for summaries"),
            () if self.state.budget.is_low() => Some("a limit is near"),
            () => None,
        }
    }

    fn summarise(
        &mut self,
        view: WindowView,
        no_summary_reason: Option<&str>,
        next: Question,
        step: &mut MachineOutput,
    ) -> Option<Question> {
        let conversation = &self.state.conversation;
        let mut folding = conversation.folding(view);
        if let Some(reason) = no_summary_reason {
            self.fold(folding, Err(reason.to_owned()), step);
            return Some(next);
        }
        let Some(window) = &conversation.shown.window else {
            return Some(next);
        };
        let leaving = conversation.leaving(&folding);
        let request =
            window.summary_request(folding.old.as_deref(), &leaving, self.spec.summary_room);
        folding.given = request.history.tokens();
        let call = ModelCall::new(self.slot("summariser"), request, Offer::None);
        self.perform_model_call(
            Purpose::Summary {
                folding: Box::new(folding),
                next,
            },
            call,
            step,
        );
        None
    }

    /// Handles a summary or its failure; the run continues either way.
    pub(super) fn summarised(
        &mut self,
        folding: PendingSummary,
        outcome: Outcome,
        next: Question,
        step: &mut MachineOutput,
    ) {
        let window = self
            .state
            .conversation
            .shown
            .window
            .clone()
            .unwrap_or_default();
        let made = self
            .summary_of(outcome)
            .and_then(|reply| window.take_summary(&reply, folding.given));
        self.fold(folding, made, step);
        self.ask(next, step);
    }

    fn summary_of(&mut self, outcome: Outcome) -> Result<Response, String> {
        match outcome {
            Outcome::Model(reply) => {
                self.state
                    .tally
                    .count_model_call(reply.as_ref().ok().map(|response| response.usage));
                let response =
                    reply.map_err(|error| format!("the model gave no reply: {error}"))?;
                super::blocked_answer(&response).map_or(Ok(()), |by| Err(by.to_string()))?;
                Ok(response)
            }
            Outcome::Refused(limit) => Err(format!("the limit on {limit} forbids it")),
            _ => Err("the outcome of the call is unknown".to_owned()),
        }
    }

    fn fold(
        &mut self,
        folding: PendingSummary,
        made: Result<String, String>,
        step: &mut MachineOutput,
    ) {
        let conversation = &mut self.state.conversation;
        let (summary, fell_back) = match made {
            Ok(summary) => {
                conversation.shown.owed = None;
                (summary, None)
            }
            Err(reason) => {
                let window = conversation.shown.window.clone().unwrap_or_default();
                let digest = window.digest(folding.old.as_deref(), &conversation.leaving(&folding));
                let owed = conversation.shown.owed.as_ref();
                let wait = owed.map_or(SUMMARY_RETRY_TURNS, |owed| owed.wait.saturating_mul(2));
                let turn = self.state.tally.stats.turns.saturating_add(wait);
                let (summary, from) = (folding.old, folding.from);
                conversation.shown.owed = Some(MissingSummary {
                    summary,
                    from,
                    turn,
                    wait,
                });
                (digest, Some(reason))
            }
        };
        let summary = Some(summary.into()).filter(|summary: &Arc<str>| !summary.is_empty());
        self.show(folding.view.with_summary(summary), fell_back, step);
        self.tighten(step);
    }

    /// Makes room for a summary that is longer than the previous one.
    fn tighten(&mut self, step: &mut MachineOutput) {
        let conversation = &self.state.conversation;
        let fit = if conversation.is_over() {
            conversation.fit()
        } else {
            None
        };
        let Some(WindowFit { view, .. }) = fit else {
            return;
        };
        if view.start() > conversation.shown.view.start() {
            let reason =
                "the summary was too long to be shown with the remaining messages".to_owned();
            self.fold(conversation.folding(view), Err(reason), step);
        } else if view != conversation.shown.view {
            self.show(view, None, step);
        }
    }

    /// Changes the view from now on, and emits an event.
    fn show(&mut self, view: WindowView, fell_back: Option<String>, step: &mut MachineOutput) {
        // A shortened message can be read in full with the tool for it.
        if view.shortened() > 0 {
            self.state.tools.offer_reader(&self.spec);
        }
        let conversation = &mut self.state.conversation;
        let mut compacted = CompactionReport::default();
        compacted.before = conversation.sent_tokens();
        compacted.folded = view.start().saturating_sub(conversation.shown.view.start());
        compacted.shortened = view
            .shortened()
            .saturating_sub(conversation.shown.view.shortened());
        conversation.shown.view = view;
        conversation.show_anew(self.spec.reader);
        compacted.after = conversation.sent_tokens();
        compacted.summary = conversation.shown.view.summary().cloned();
        compacted.fell_back = fell_back;
        step.emit(EventKind::Compacted(compacted));
    }
}
