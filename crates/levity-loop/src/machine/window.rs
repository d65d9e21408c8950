//! What the model is shown, and what is done when that becomes too much.

use std::sync::Arc;

use levity_core::{
    Compacted, Effect, EventKind, History, MachineOutput, Message, ModelCall, ModelError, Offer, Response,
    Role,
};
use levity_memory::{Counter, Window, WindowFit, WindowView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentMachine, Waiting};

/// How often a request that is too long for the provider is made shorter before the run fails.
const TOO_LONG: u32 = 3;
/// After how many turns a model is asked again for a summary that it did not make.
const AGAIN: u64 = 3;

/// What the model is shown of the history.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Shown {
    /// How much there is room for; without it, everything is shown.
    pub(super) window: Option<Window>,
    /// Whether what has left is listed, and no model is asked to sum it up.
    lists: bool,
    counter: Counter,
    pub(super) view: WindowView,
    /// What is sent, once that is not simply the history.
    #[serde(skip)]
    sent: Option<History>,
    /// Where this run begins in the history.
    task: usize,
    /// What is shown in any case: the goal, and what stands beside it.
    pins: Vec<usize>,
    /// What the messages of the last request were estimated at.
    asked: u64,
    folding: Option<Box<Folding>>,
    pub(super) owed: Option<Owed>,
    /// How often the provider found a request too long in a row.
    too_long: u32,
}

impl Shown {
    /// Shows the past from where its summary ends.
    pub(super) fn new(window: Window, lists: bool, summary: Option<Arc<str>>, beside: u64) -> Self {
        let counter = Counter::new().beside(beside);
        Self { window: Some(window), lists, counter, view: WindowView::new(summary), ..Self::default() }
    }

    /// Whether it points to messages beyond the end of a history.
    pub(super) fn is_beyond(&self, len: usize) -> bool {
        let folding = self.folding.as_ref().map(|folding| folding.from.max(folding.view.start()));
        let owed = self.owed.as_ref().map(|owed| owed.from);
        let pinned = self.pins.iter().any(|pin| *pin >= len);
        let ends = [Some(self.task), Some(self.view.start()), folding, owed];
        pinned || ends.into_iter().flatten().any(|end| end > len)
    }
}

/// A summary that is being made.
#[derive(Serialize, Deserialize)]
struct Folding {
    /// What is shown when it is there.
    view: WindowView,
    /// What was summed up before, and the first message that was not.
    old: Option<Arc<str>>,
    from: usize,
    /// How many tokens it is made of.
    given: u64,
    next: Next,
}

/// A summary that no model has made yet; a digest stands in for it.
#[derive(Serialize, Deserialize)]
pub(super) struct Owed {
    /// The last summary that a model made, and the first message that is not in it.
    pub(super) summary: Option<Arc<str>>,
    pub(super) from: usize,
    /// When a model is asked again, and how many turns after that.
    turn: u64,
    wait: u64,
}

/// What is asked once there is room.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Next {
    Reply,
    Plan(String),
    Reflection(String),
}

impl AgentMachine {
    /// What is sent to the model.
    pub(super) fn sent(&self) -> &History {
        self.state.shown.sent.as_ref().unwrap_or(&self.state.history)
    }

    /// What is remembered beyond the history.
    pub(crate) fn remembered(&self) -> Value {
        let mut memory = serde_json::Map::new();
        if let Some(talk) = &self.state.talk {
            memory.insert("conversation".to_owned(), talk.id().as_str().into());
        }
        if let Some(summary) = self.state.shown.view.summary() {
            memory.insert("summary".to_owned(), (&**summary).into());
        }
        Value::Object(memory)
    }

    /// Begins with what was summed up before the history.
    pub(super) fn show_summary(&mut self) {
        if self.state.shown.view != WindowView::default() {
            self.show_anew();
        }
    }

    fn show_anew(&mut self) {
        let shown = &self.state.shown;
        let reader = self.spec.reader;
        let sent = shown.view.show(self.state.history.messages(), &shown.pins, reader);
        self.state.shown.sent = Some(sent);
    }

    /// Shows what was added to the history from a place on.
    pub(super) fn show_more(&mut self, from: usize) {
        let Some(sent) = &mut self.state.shown.sent else { return };
        if sent.extend(&self.state.history, from).is_err() {
            self.show_anew();
        }
    }

    /// Says that what this run says begins here.
    pub(super) fn task_begins(&mut self) {
        self.state.shown.task = self.state.history.len();
    }

    /// Where what this run says begins in the history.
    pub(super) fn task(&self) -> usize {
        self.state.shown.task
    }

    /// The last thing the model said in words in this run; what it said before is no part of it.
    pub(crate) fn last_words(&self) -> String {
        let own = self.state.history.messages().get(self.state.shown.task..).unwrap_or_default();
        let replies = own.iter().rev().filter(|message| message.role == Role::Assistant);
        let text = replies.map(|reply| reply.text()).find(|text| !text.trim().is_empty());
        text.map(Into::into).unwrap_or_default()
    }

    /// Shows the last message in any case.
    pub(super) fn pin_last(&mut self) {
        self.state.shown.pins.extend(self.state.history.len().checked_sub(1));
    }

    /// Sees to it that what is to be sent fits; returns whether a model has to be asked for a summary first.
    pub(super) fn make_room(&mut self, next: Next, step: &mut MachineOutput) -> bool {
        if !self.is_over() {
            return self.ask_again(next, step);
        }
        let Some(fit) = self.fit() else { return false };
        if fit.view.start() > self.state.shown.view.start() {
            // What does not fit with any summary is not worth one.
            let why_not = if fit.fits { self.no_summaries() } else { Some("there is no room for one") };
            let folding = self.folding(fit.view, next);
            return self.summarise(folding, why_not, step);
        }
        if fit.view != self.state.shown.view {
            self.show(fit.view, None, step);
        }
        false
    }

    /// Whether more is to be sent than there is room for; looks at no message.
    fn is_over(&self) -> bool {
        let shown = &self.state.shown;
        let past = shown.task.saturating_sub(shown.view.start());
        let tokens = self.sent().tokens();
        shown.window.as_ref().is_some_and(|window| window.is_over(tokens, past, &shown.counter))
    }

    fn fit(&self) -> Option<WindowFit> {
        let shown = &self.state.shown;
        let messages = self.state.history.messages();
        shown.window.as_ref()?.fit(messages, shown.task, &shown.pins, &shown.view, &shown.counter)
    }

    /// A summary of all that is not in `view`, from where the last one that a model made ends.
    fn folding(&self, view: WindowView, next: Next) -> Folding {
        let shown = &self.state.shown;
        let (old, from) = match &shown.owed {
            Some(owed) => (owed.summary.clone(), owed.from),
            None => (shown.view.summary().cloned(), shown.view.start()),
        };
        Folding { view, old, from, given: 0, next }
    }

    /// Asks a model again for a summary that it owes, when it is time.
    fn ask_again(&mut self, next: Next, step: &mut MachineOutput) -> bool {
        let turn = self.state.stats.turns;
        let is_time = self.state.shown.owed.as_ref().is_some_and(|owed| owed.turn <= turn);
        if !is_time || self.no_summaries().is_some() {
            return false;
        }
        let folding = self.folding(self.state.shown.view.clone(), next);
        self.summarise(folding, None, step)
    }

    /// Why no model is asked for summaries, if none is.
    fn no_summaries(&self) -> Option<&'static str> {
        match () {
            () if self.state.shown.lists => Some("no model is asked for summaries"),
            () if self.state.wrap.is_some() => Some("a limit is near"),
            () => None,
        }
    }

    fn summarise(&mut self, mut folding: Folding, why_not: Option<&str>, step: &mut MachineOutput) -> bool {
        if let Some(why) = why_not {
            self.fold(folding, Err(why.to_owned()), step);
            return false;
        }
        let Some(window) = &self.state.shown.window else { return false };
        let leaving = self.leaving(&folding);
        let request = window.summary_request(folding.old.as_deref(), &leaving, self.spec.summary_room);
        folding.given = request.history.tokens();
        self.state.shown.folding = Some(Box::new(folding));
        let slot = self.slot("summariser");
        self.want(Waiting::Summary, |_| Effect::Model(ModelCall::new(slot, request, Offer::None)), step);
        true
    }

    /// What is to be summed up. What stands beside the goal is shown in any case, and nobody has said it.
    fn leaving(&self, folding: &Folding) -> Vec<Arc<Message>> {
        self.said_between(folding.from, folding.view.start(), |message| message.role == Role::User)
    }

    /// The messages between two places, without those of the run's own that `left_out` says.
    pub(super) fn said_between(
        &self,
        from: usize,
        to: usize,
        left_out: impl Fn(&Message) -> bool,
    ) -> Vec<Arc<Message>> {
        let messages = self.state.history.messages().iter().enumerate().take(to).skip(from);
        let said = messages.filter(|(at, message)| !(self.state.notes.contains(at) && left_out(message)));
        said.map(|(_, message)| message.clone()).collect()
    }

    /// A model made a summary, or did not; the run goes on either way.
    pub(super) fn summarised(&mut self, made: Result<Response, String>, step: &mut MachineOutput) {
        let Some(folding) = self.state.shown.folding.take() else { return };
        let window = self.state.shown.window.clone().unwrap_or_default();
        let made = made.and_then(|reply| window.take_summary(&reply, folding.given));
        match self.fold(*folding, made, step) {
            Next::Reply => self.ask(step),
            Next::Plan(prompt) => self.consult(Waiting::Plan, "planner", prompt, step),
            Next::Reflection(prompt) => self.consult(Waiting::Reflection, "reflector", prompt, step),
        }
    }

    fn fold(&mut self, folding: Folding, made: Result<String, String>, step: &mut MachineOutput) -> Next {
        let window = self.state.shown.window.clone().unwrap_or_default();
        let (summary, fell_back) = match made {
            Ok(summary) => {
                self.state.shown.owed = None;
                (summary, None)
            }
            Err(why) => {
                let wait = self.state.shown.owed.as_ref().map_or(AGAIN, |owed| owed.wait.saturating_mul(2));
                let turn = self.state.stats.turns.saturating_add(wait);
                let digest = window.digest(folding.old.as_deref(), &self.leaving(&folding));
                let (summary, from) = (folding.old.clone(), folding.from);
                self.state.shown.owed = Some(Owed { summary, from, turn, wait });
                (digest, Some(why))
            }
        };
        let summary = Some(summary.into()).filter(|summary: &Arc<str>| !summary.is_empty());
        self.show(folding.view.with_summary(summary), fell_back, step);
        self.tighten(step);
        folding.next
    }

    /// Makes room for a summary that is longer than the one before.
    fn tighten(&mut self, step: &mut MachineOutput) {
        let fit = if self.is_over() { self.fit() } else { None };
        match fit.map(|fit| fit.view) {
            Some(view) if view.start() > self.state.shown.view.start() => {
                let folding = self.folding(view, Next::Reply);
                self.fold(
                    folding,
                    Err("the summary was too long to be shown with all the rest".to_owned()),
                    step,
                );
            }
            Some(view) if view != self.state.shown.view => self.show(view, None, step),
            _ => {}
        }
    }

    /// Shows something else from now on, and says so.
    fn show(&mut self, view: WindowView, fell_back: Option<String>, step: &mut MachineOutput) {
        let before = self.state.shown.counter.count(self.sent().tokens());
        let folded = view.start().saturating_sub(self.state.shown.view.start());
        let shortened = view.shortened().saturating_sub(self.state.shown.view.shortened());
        // What is shown shorter can be read.
        if view.shortened() > 0 {
            self.may_read();
        }
        self.state.shown.view = view;
        self.show_anew();
        let mut compacted = Compacted::default();
        (compacted.folded, compacted.shortened) = (folded, shortened);
        compacted.before = before;
        compacted.after = self.state.shown.counter.count(self.sent().tokens());
        compacted.summary = self.state.shown.view.summary().cloned();
        compacted.fell_back = fell_back;
        step.tell(EventKind::Compacted(compacted));
    }

    /// The tokens of the next request, as far as they can be told.
    pub(super) fn sent_tokens(&self) -> u64 {
        self.state.shown.counter.count(self.sent().tokens())
    }

    /// Notes what is asked, to learn from what the provider counts for it.
    pub(super) fn note_asked(&mut self) {
        self.state.shown.asked = self.sent().tokens();
    }

    /// Takes in what the provider counted.
    pub(super) fn learn(&mut self, response: &Response) {
        let shown = &mut self.state.shown;
        shown.too_long = 0;
        let counted = response.usage.input.filter(|_| !response.usage.estimated);
        // A layer that asked more than once has added its counts up, and one that asked nobody has counted nothing.
        let most = shown.counter.count(shown.asked).saturating_mul(3).saturating_add(2_048);
        let likely = shown.asked / 8 + 1..=most;
        if let Some(counted) = counted.filter(|counted| likely.contains(counted) || shown.window.is_none()) {
            shown.counter.learn(shown.asked, counted);
        }
    }

    /// The provider finds the request too long: there is less room than was thought. Returns whether it can be tried
    /// again with less.
    pub(super) fn less_room(&mut self, error: &ModelError) -> bool {
        let sent = self.sent_tokens();
        let shown = &mut self.state.shown;
        if error.kind() != levity_core::ModelErrorKind::ContextTooLong || shown.too_long >= TOO_LONG {
            return false;
        }
        shown.too_long += 1;
        // A run of a version without windows goes on as it would have.
        let Some(window) = shown.window.take() else { return false };
        let room = window.max_tokens().unwrap_or(u64::MAX).min(sent);
        shown.window = Some(window.tokens(room / 4 * 3));
        true
    }
}
