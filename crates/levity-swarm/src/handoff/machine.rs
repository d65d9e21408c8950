//! The machine of a handoff: the holder of the conversation and its progress.
//!
//! One leg is in progress at any time. `previous_holders` is the path of the conversation, like a
//! stack of calls: when a leg fails for good, the conversation returns along this path to a worker
//! that has not failed. Each holder keeps its own view of the conversation, because a handoff may
//! include a part only.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{MachineOutput, Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Handoff;
use super::record::{Record, deny_transfer};
use super::transfer::TransferRequest;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::machine::{PatternMachine, PatternOutput, read_pattern_state};
use crate::message_tool;
use crate::names::{did_you_mean, short};
use crate::notice::SwarmNotice;
use crate::rules::Start;
use crate::shared_state::{FinishedWork, SharedState, WorkError, WorkErrorKind, WorkKind};

/// Runs a handoff: one worker after the other continues the conversation.
#[derive(Serialize, Deserialize)]
pub(crate) struct HandoffMachine {
    #[serde(skip, default = "placeholder")]
    pub(super) handoff: Handoff,
    #[serde(rename = "talk")]
    pub(super) conversation: Record,
    /// The current or last holder of the conversation.
    pub(super) holder: Arc<str>,
    pub(super) leg: Option<Leg>,
    /// The earlier holders on the path to the current one, in order.
    #[serde(rename = "held")]
    pub(super) previous_holders: Vec<PreviousHolder>,
    /// The workers that failed since the last successful leg.
    pub(super) failed: Vec<Arc<str>>,
    passed: u32,
    /// The number of handoffs from one worker to another.
    pairs: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u32>>,
    /// The number of consecutive handoffs to unknown names.
    #[serde(rename = "strays")]
    unknown_recipients: u32,
    /// The number of host messages that were read.
    #[serde(rename = "heard")]
    messages_read: usize,
    /// The host messages that no leg has received yet.
    waiting: Vec<Arc<str>>,
    /// For each worker, the last bus message before its last completed leg.
    pub(super) seen: BTreeMap<Arc<str>, u64>,
}

/// A worker's part of the conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Leg {
    /// The index of its report.
    pub(super) place: usize,
    pub(super) worker: Arc<str>,
    pub(super) opening: Opening,
    /// The earlier messages that the worker sees.
    pub(super) history: Vec<Arc<Message>>,
    /// The user's messages for this leg.
    #[serde(rename = "asks")]
    pub(super) user_messages: Vec<Arc<str>>,
    /// `true` if the worker must answer, without the tool.
    pub(super) plain: bool,
    /// The number of the worker's attempts.
    pub(super) tried: u32,
    /// The workers that had the leg before, and the error of the last one.
    pub(super) before: Vec<Arc<str>>,
    pub(super) error: Option<String>,
    /// The last bus message at the start of the leg.
    pub(super) seen: u64,
}

/// The reason why a worker has the conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Opening {
    /// The worker is the first.
    First,
    /// Another worker passed the conversation on.
    Passed { from: Arc<str>, note: Arc<str> },
    /// The worker continues with the user's new messages.
    Words,
    /// The worker's handoff was refused.
    Kept { to: Arc<str>, why: String },
    /// The recipient of the worker's handoff failed.
    Back {
        who: Arc<str>,
        error: String,
        text: Arc<str>,
    },
}

/// An earlier holder of the conversation, and its view of it.
#[derive(Serialize, Deserialize)]
pub(super) struct PreviousHolder {
    pub(super) worker: Arc<str>,
    pub(super) view: Vec<Arc<Message>>,
    /// The number of host messages that it has received.
    #[serde(rename = "heard")]
    messages_read: usize,
}

/// A placeholder until a state is read.
fn placeholder() -> Handoff {
    Handoff::starting_with("")
}

/// The refusal of a handoff; `again` is `true` if the worker may name another recipient.
struct Refusal {
    why: String,
    again: bool,
}

impl HandoffMachine {
    pub(crate) fn new(handoff: &Handoff, start: &Start) -> Self {
        let first = start.first.clone().unwrap_or_else(|| handoff.first.clone());
        Self {
            handoff: handoff.clone(),
            conversation: Record::of(&start.history),
            holder: first,
            leg: None,
            previous_holders: Vec::new(),
            failed: Vec::new(),
            passed: 0,
            pairs: BTreeMap::new(),
            unknown_recipients: 0,
            messages_read: 0,
            waiting: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Reads the new messages of the host.
    fn read_host_messages(&mut self, shared: &SharedState) {
        self.waiting.extend_from_slice(
            shared
                .host_messages
                .get(self.messages_read..)
                .unwrap_or_default(),
        );
        self.messages_read = shared.host_messages.len();
    }

    /// Returns the host messages that no leg has received yet.
    pub(super) fn take_unread_messages(&mut self, shared: &SharedState) -> Vec<Arc<str>> {
        self.read_host_messages(shared);
        std::mem::take(&mut self.waiting)
    }

    /// Returns the number of host messages that legs have received.
    fn received_count(&self) -> usize {
        self.messages_read.saturating_sub(self.waiting.len())
    }

    /// Returns the view of a worker that has the conversation again, without the last `asks`
    /// messages, which its leg gets. It includes messages that others received in the meantime.
    pub(super) fn view_of(
        &self,
        held: PreviousHolder,
        asks: usize,
        shared: &SharedState,
    ) -> Vec<Arc<Message>> {
        let mut view = held.view;
        let meanwhile = shared
            .host_messages
            .get(held.messages_read..self.received_count().saturating_sub(asks));
        view.extend(
            meanwhile
                .unwrap_or_default()
                .iter()
                .map(|words| Arc::new(Message::user(&**words))),
        );
        view
    }

    /// Handles the end of a leg.
    fn handle_leg_end(
        &mut self,
        leg: Leg,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        shared.record_end(leg.place, &finished);
        for draft in message_tool::drafts(&leg.worker, &finished.signals, &shared.rules.names) {
            shared.post(draft, out);
        }
        let pass = TransferRequest::of(&finished.signals).filter(|_| !leg.plain);
        match (&finished.result, pass) {
            (Ok(()), Some(pass)) => self.handle_transfer(leg, finished, pass, shared, out),
            (Ok(()), None) if finished.text.trim().is_empty() => {
                let failure =
                    WorkError::new(WorkErrorKind::Failed, "the worker returned an empty answer");
                self.handle_failure(leg, &finished, &failure, shared, out);
            }
            (Ok(()), None) => self.handle_answer(leg, finished, shared, out),
            (Err(failure), _) => {
                let failure = failure.clone();
                self.handle_failure(leg, &finished, &failure, shared, out);
            }
        }
    }

    fn handle_answer(
        &mut self,
        leg: Leg,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let text = finished.text.to_string();
        let view = self.complete_leg(&leg, finished, shared, out);
        self.read_host_messages(shared);
        if shared.near_limit.is_none() && !self.waiting.is_empty() {
            let next = Leg::new(leg.worker, Opening::Words, view);
            return self.start_leg(next, shared, out);
        }
        // Late messages are stored for a later run.
        let late = self.take_unread_messages(shared);
        self.add_user_messages(&late);
        shared.answer(leg.worker, text, out);
    }

    /// Completes a leg and adds its messages to the conversation. Returns the worker's view of it.
    fn complete_leg(
        &mut self,
        leg: &Leg,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> Vec<Arc<Message>> {
        shared.mark_done(leg.place, out);
        self.failed.clear();
        self.seen.insert(leg.worker.clone(), leg.seen);
        self.add_user_messages(&leg.user_messages);
        let mut said = finished.messages;
        if said.is_empty() {
            said = vec![Arc::new(Message::user(&*shared.reports[leg.place].task))];
            said.extend(
                (!finished.text.is_empty()).then(|| Arc::new(Message::assistant(&*finished.text))),
            );
        }
        // The first message is the task of the leg, which no participant wrote.
        let own = said.first().is_some_and(|first| first.role == Role::User);
        self.conversation.extend(said.iter().skip(usize::from(own)));
        let mut view = Record::of(&leg.history);
        view.extend(&said);
        view.all()
    }

    /// Adds the user's messages to the conversation.
    pub(super) fn add_user_messages(&mut self, asks: &[Arc<str>]) {
        asks.iter()
            .for_each(|words| self.conversation.push(Arc::new(Message::user(&**words))));
    }

    fn handle_transfer(
        &mut self,
        leg: Leg,
        mut finished: FinishedWork,
        pass: TransferRequest,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        if let Err(refusal) = self.may_pass(&leg.worker, &pass.to, shared) {
            deny_transfer(&mut finished.messages, &refusal.why);
            return self.refuse_transfer(leg, finished, &pass.to, refusal, shared, out);
        }
        let view = self.complete_leg(&leg, finished, shared, out);
        let (from, TransferRequest { to, note }) = (leg.worker, pass);
        (self.unknown_recipients, self.passed) = (0, self.passed + 1);
        *self
            .pairs
            .entry(from.clone())
            .or_default()
            .entry(to.clone())
            .or_default() += 1;
        self.previous_holders.push(PreviousHolder {
            worker: from.clone(),
            view,
            messages_read: self.received_count(),
        });
        shared.notify(out, || SwarmNotice::HandedOff {
            from: from.clone(),
            to: to.clone(),
            note: note.clone(),
        });
        let whom = Recipient::One(to.clone());
        shared.post(
            NewMessage::new(from.clone(), whom, MessageKind::Handoff, note.clone()),
            out,
        );
        let history = self.included_history(&to, &self.conversation.all(), shared, out);
        self.start_leg(
            Leg::new(to, Opening::Passed { from, note }, history),
            shared,
            out,
        );
    }

    fn may_pass(
        &self,
        from: &Arc<str>,
        to: &Arc<str>,
        shared: &SharedState,
    ) -> Result<(), Refusal> {
        let last = |why| Err(Refusal { why, again: false });
        if let Some(limit) = shared.near_limit {
            return last(format!("the limit on {limit} is nearly reached"));
        }
        if !shared.rules.cards.contains_key(to) || !self.handoff.allows(from, to) {
            let names = shared
                .rules
                .order
                .iter()
                .filter(|name| self.handoff.allows(from, name));
            let meant = did_you_mean(to, names.map(|name| &**name));
            let why = format!("`{}` is not an allowed recipient{meant}", short(to));
            return Err(Refusal {
                why,
                again: self.unknown_recipients == 0,
            });
        }
        if self.passed >= self.handoff.max_handoffs {
            return last(format!(
                "the conversation was passed on {} times, and more is not allowed",
                self.passed
            ));
        }
        let times = self
            .pairs
            .get(from)
            .and_then(|to_whom| to_whom.get(to))
            .copied()
            .unwrap_or(0);
        if times >= self.handoff.repeats {
            return last(format!(
                "`{from}` has passed it on to `{to}` {times} times, which is a loop"
            ));
        }
        Ok(())
    }

    /// Refuses a handoff, so that the current worker continues.
    fn refuse_transfer(
        &mut self,
        leg: Leg,
        finished: FinishedWork,
        to: &str,
        refusal: Refusal,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let Refusal { why, again } = refusal;
        let to: Arc<str> = short(to).into();
        let view = self.complete_leg(&leg, finished, shared, out);
        self.unknown_recipients = if again {
            self.unknown_recipients + 1
        } else {
            0
        };
        let from = leg.worker;
        let (who, whom, error) = (from.clone(), to.clone(), why.clone());
        shared.notify(out, || SwarmNotice::LoopFound {
            from: who,
            to: whom,
            reason: error,
        });
        let mut next = Leg::new(from, Opening::Kept { to, why }, view);
        next.plain = !again;
        self.start_leg(next, shared, out);
    }
}

impl PatternMachine for HandoffMachine {
    fn begin(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        let mut leg = Leg::new(self.holder.clone(), Opening::First, self.conversation.all());
        leg.user_messages.push((*shared.start.goal).into());
        self.start_leg(leg, shared, out);
    }

    fn work_finished(
        &mut self,
        _: WorkKind,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        if let Some(leg) = self.leg.take() {
            self.handle_leg_end(leg, finished, shared, out);
        }
    }

    /// Stores the messages for the next leg. A near limit is handled when the leg ends.
    fn state_changed(&mut self, shared: &mut SharedState, _: &mut MachineOutput) {
        self.read_host_messages(shared);
    }

    fn partial_answer(&self, shared: &SharedState) -> String {
        let said = shared
            .reports
            .iter()
            .rev()
            .find(|report| !report.text.is_empty());
        said.map_or_else(String::new, |report| report.text.to_string())
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, shared: &SharedState) -> Result<(), String> {
        let saved: Self = read_pattern_state(saved)?;
        let places: Vec<usize> = saved.leg.iter().map(|leg| leg.place).collect();
        let working = shared.working().into_iter().map(|place| place as usize);
        if places.iter().any(|place| *place >= shared.reports.len())
            || (shared.ending.is_none() && !working.eq(places))
        {
            return Err(
                "the saved state is inconsistent: the running worker does not have the \
                    conversation"
                    .to_owned(),
            );
        }
        let conversation = saved.conversation.with_sizes();
        *self = Self {
            handoff: self.handoff.clone(),
            conversation,
            ..saved
        };
        Ok(())
    }

    fn output(&self) -> PatternOutput {
        let mut record = Record::of(&self.conversation.all());
        // The user's messages to an unfinished leg are included.
        let open = self
            .leg
            .iter()
            .flat_map(|leg| &leg.user_messages)
            .chain(&self.waiting);
        open.for_each(|words| record.push(Arc::new(Message::user(&**words))));
        PatternOutput {
            history: record.all(),
            last: Some(self.holder.clone()),
            ..PatternOutput::default()
        }
    }
}
