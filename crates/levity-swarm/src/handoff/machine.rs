//! The machine of a handoff: the holder of the conversation and its progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{MachineOutput, Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Handoff;
use super::record::{Record, deny_transfer};
use super::transfer::Pass;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::desk::{Came, Desk, Duty, Why, WhyKind};
use crate::machine::{Play, Shown, read_play};
use crate::names::{did_you_mean, short};
use crate::notice::SwarmNotice;
use crate::rules::Start;
use crate::talk;

/// Runs a handoff: one worker after the other continues the conversation.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handing {
    #[serde(skip, default = "nobody")]
    pub(super) handoff: Handoff,
    pub(super) talk: Record,
    /// The current or last holder of the conversation.
    pub(super) holder: Arc<str>,
    pub(super) leg: Option<Leg>,
    /// The earlier holders on the path to the current one, in order.
    pub(super) held: Vec<Held>,
    /// The workers that failed since the last successful leg.
    pub(super) failed: Vec<Arc<str>>,
    passed: u32,
    /// The number of handoffs from one worker to another.
    pairs: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u32>>,
    /// The number of consecutive handoffs to unknown names.
    strays: u32,
    /// The number of host messages that were read.
    heard: usize,
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
    pub(super) asks: Vec<Arc<str>>,
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
pub(super) struct Held {
    pub(super) worker: Arc<str>,
    pub(super) view: Vec<Arc<Message>>,
    /// The number of host messages that it has received.
    heard: usize,
}

/// A placeholder until a state is read.
fn nobody() -> Handoff {
    Handoff::starting_with("")
}

/// The refusal of a handoff; `again` is `true` if the worker may name another recipient.
struct Refused {
    why: String,
    again: bool,
}

impl Handing {
    pub(crate) fn new(handoff: &Handoff, start: &Start) -> Self {
        let first = start.first.clone().unwrap_or_else(|| handoff.first.clone());
        Self {
            handoff: handoff.clone(),
            talk: Record::of(&start.history),
            holder: first,
            leg: None,
            held: Vec::new(),
            failed: Vec::new(),
            passed: 0,
            pairs: BTreeMap::new(),
            strays: 0,
            heard: 0,
            waiting: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Reads the new messages of the host.
    fn listen(&mut self, desk: &Desk) {
        self.waiting
            .extend_from_slice(desk.said.get(self.heard..).unwrap_or_default());
        self.heard = desk.said.len();
    }

    /// Returns the host messages that no leg has received yet.
    pub(super) fn unheard(&mut self, desk: &Desk) -> Vec<Arc<str>> {
        self.listen(desk);
        std::mem::take(&mut self.waiting)
    }

    /// Returns the number of host messages that legs have received.
    fn gone_along(&self) -> usize {
        self.heard.saturating_sub(self.waiting.len())
    }

    /// Returns the view of a worker that has the conversation again, without the last `asks`
    /// messages, which its leg gets. It includes messages that others received in the meantime.
    pub(super) fn known_to(&self, held: Held, asks: usize, desk: &Desk) -> Vec<Arc<Message>> {
        let mut view = held.view;
        let meanwhile = desk
            .said
            .get(held.heard..self.gone_along().saturating_sub(asks));
        view.extend(
            meanwhile
                .unwrap_or_default()
                .iter()
                .map(|words| Arc::new(Message::user(&**words))),
        );
        view
    }

    /// Handles the end of a leg.
    fn ended(&mut self, leg: Leg, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        desk.ended(leg.place, &came);
        for draft in talk::drafts(&leg.worker, &came.signals, &desk.rules.names) {
            desk.post(draft, wants);
        }
        let pass = Pass::of(&came.signals).filter(|_| !leg.plain);
        match (&came.result, pass) {
            (Ok(()), Some(pass)) => self.passes(leg, came, pass, desk, wants),
            (Ok(()), None) if came.text.trim().is_empty() => {
                let why = Why::new(WhyKind::Failed, "the worker returned an empty answer");
                self.fails(leg, &came, &why, desk, wants);
            }
            (Ok(()), None) => self.answers(leg, came, desk, wants),
            (Err(why), _) => {
                let why = why.clone();
                self.fails(leg, &came, &why, desk, wants);
            }
        }
    }

    fn answers(&mut self, leg: Leg, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let text = came.text.to_string();
        let view = self.done(&leg, came, desk, wants);
        self.listen(desk);
        if desk.near.is_none() && !self.waiting.is_empty() {
            let next = Leg::new(leg.worker, Opening::Words, view);
            return self.open(next, desk, wants);
        }
        // Late messages are stored for a later run.
        let late = self.unheard(desk);
        self.asked(&late);
        desk.answer(leg.worker, text, wants);
    }

    /// Completes a leg and adds its messages to the conversation. Returns the worker's view of it.
    fn done(
        &mut self,
        leg: &Leg,
        came: Came,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) -> Vec<Arc<Message>> {
        desk.done(leg.place, wants);
        self.failed.clear();
        self.seen.insert(leg.worker.clone(), leg.seen);
        self.asked(&leg.asks);
        let mut said = came.said;
        if said.is_empty() {
            said = vec![Arc::new(Message::user(&*desk.reports[leg.place].task))];
            said.extend((!came.text.is_empty()).then(|| Arc::new(Message::assistant(&*came.text))));
        }
        // The first message is the task of the leg, which no participant wrote.
        let own = said.first().is_some_and(|first| first.role == Role::User);
        self.talk.extend(said.iter().skip(usize::from(own)));
        let mut view = Record::of(&leg.history);
        view.extend(&said);
        view.all()
    }

    /// Adds the user's messages to the conversation.
    pub(super) fn asked(&mut self, asks: &[Arc<str>]) {
        asks.iter()
            .for_each(|words| self.talk.push(Arc::new(Message::user(&**words))));
    }

    fn passes(
        &mut self,
        leg: Leg,
        mut came: Came,
        pass: Pass,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        if let Err(refused) = self.may_pass(&leg.worker, &pass.to, desk) {
            deny_transfer(&mut came.said, &refused.why);
            return self.keeps(leg, came, &pass.to, refused, desk, wants);
        }
        let view = self.done(&leg, came, desk, wants);
        let (from, Pass { to, note }) = (leg.worker, pass);
        (self.strays, self.passed) = (0, self.passed + 1);
        *self
            .pairs
            .entry(from.clone())
            .or_default()
            .entry(to.clone())
            .or_default() += 1;
        self.held.push(Held {
            worker: from.clone(),
            view,
            heard: self.gone_along(),
        });
        desk.tell(wants, || SwarmNotice::HandedOff {
            from: from.clone(),
            to: to.clone(),
            note: note.clone(),
        });
        let whom = Recipient::One(to.clone());
        desk.post(
            NewMessage::new(from.clone(), whom, MessageKind::Handoff, note.clone()),
            wants,
        );
        let history = self.carried(&to, &self.talk.all(), desk, wants);
        self.open(
            Leg::new(to, Opening::Passed { from, note }, history),
            desk,
            wants,
        );
    }

    fn may_pass(&self, from: &Arc<str>, to: &Arc<str>, desk: &Desk) -> Result<(), Refused> {
        let last = |why| Err(Refused { why, again: false });
        if let Some(limit) = desk.near {
            return last(format!("the limit on {limit} is nearly reached"));
        }
        if !desk.rules.cards.contains_key(to) || !self.handoff.allows(from, to) {
            let names = desk
                .rules
                .order
                .iter()
                .filter(|name| self.handoff.allows(from, name));
            let meant = did_you_mean(to, names.map(|name| &**name));
            let why = format!("`{}` is not an allowed recipient{meant}", short(to));
            return Err(Refused {
                why,
                again: self.strays == 0,
            });
        }
        if self.passed >= self.handoff.most {
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
    fn keeps(
        &mut self,
        leg: Leg,
        came: Came,
        to: &str,
        refused: Refused,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let Refused { why, again } = refused;
        let to: Arc<str> = short(to).into();
        let view = self.done(&leg, came, desk, wants);
        self.strays = if again { self.strays + 1 } else { 0 };
        let from = leg.worker;
        let (who, whom, error) = (from.clone(), to.clone(), why.clone());
        desk.tell(wants, || SwarmNotice::LoopFound {
            from: who,
            to: whom,
            why: error,
        });
        let mut next = Leg::new(from, Opening::Kept { to, why }, view);
        next.plain = !again;
        self.open(next, desk, wants);
    }
}

impl Play for Handing {
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let mut leg = Leg::new(self.holder.clone(), Opening::First, self.talk.all());
        leg.asks.push((*desk.start.goal).into());
        self.open(leg, desk, wants);
    }

    fn came(&mut self, _: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        if let Some(leg) = self.leg.take() {
            self.ended(leg, came, desk, wants);
        }
    }

    /// Stores the messages for the next leg. A near limit is handled when the leg ends.
    fn stirred(&mut self, desk: &mut Desk, _: &mut MachineOutput) {
        self.listen(desk);
    }

    fn so_far(&self, desk: &Desk) -> String {
        let said = desk
            .reports
            .iter()
            .rev()
            .find(|report| !report.text.is_empty());
        said.map_or_else(String::new, |report| report.text.to_string())
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String> {
        let saved: Self = read_play(saved)?;
        let places: Vec<usize> = saved.leg.iter().map(|leg| leg.place).collect();
        let working = desk.working().into_iter().map(|place| place as usize);
        if places.iter().any(|place| *place >= desk.reports.len())
            || (desk.ending.is_none() && !working.eq(places))
        {
            return Err(
                "the saved state is inconsistent: the running worker does not have the \
                    conversation"
                    .to_owned(),
            );
        }
        let talk = saved.talk.weighed();
        *self = Self {
            handoff: self.handoff.clone(),
            talk,
            ..saved
        };
        Ok(())
    }

    fn shown(&self) -> Shown {
        let mut record = Record::of(&self.talk.all());
        // The user's messages to an unfinished leg are included.
        let open = self
            .leg
            .iter()
            .flat_map(|leg| &leg.asks)
            .chain(&self.waiting);
        open.for_each(|words| record.push(Arc::new(Message::user(&**words))));
        Shown {
            history: record.all(),
            last: Some(self.holder.clone()),
            ..Shown::default()
        }
    }
}
