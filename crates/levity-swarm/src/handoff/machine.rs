//! The machine of a handoff: who has the conversation, and what becomes of it.

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

/// Has one worker after the other go on with a conversation.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handing {
    #[serde(skip, default = "nobody")]
    pub(super) handoff: Handoff,
    pub(super) talk: Record,
    /// Who has the conversation now, or had it last.
    pub(super) holder: Arc<str>,
    pub(super) leg: Option<Leg>,
    /// Those who have passed it on to get where it is, the first of them first.
    pub(super) held: Vec<Held>,
    /// Those who could not answer since somebody last did.
    pub(super) failed: Vec<Arc<str>>,
    passed: u32,
    /// The number of handoffs from one worker to another.
    pairs: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u32>>,
    /// How many times in a row nobody could be found under the name that was given.
    strays: u32,
    /// How many of the host's words were taken in.
    heard: usize,
    /// Those that have gone along with no leg yet.
    waiting: Vec<Arc<str>>,
    /// The last message on the bus when a worker began what it last got done.
    pub(super) seen: BTreeMap<Arc<str>, u64>,
}

/// A worker's part of the conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Leg {
    /// Its place among the reports.
    pub(super) place: usize,
    pub(super) worker: Arc<str>,
    pub(super) opening: Opening,
    /// What the worker is shown of what was said before.
    pub(super) history: Vec<Arc<Message>>,
    /// What the user says with it.
    pub(super) asks: Vec<Arc<str>>,
    /// Whether the worker has to answer.
    pub(super) plain: bool,
    /// How often the worker has tried.
    pub(super) tried: u32,
    /// Who had the leg before, and why the last of them could not do it.
    pub(super) before: Vec<Arc<str>>,
    pub(super) error: Option<String>,
    /// The last message on the bus when it began.
    pub(super) seen: u64,
}

/// How a worker comes to have the conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Opening {
    /// It is the first.
    First,
    /// Another has passed it on.
    Passed { from: Arc<str>, note: Arc<str> },
    /// It goes on with what the user has added.
    Words,
    /// It could not pass the conversation on.
    Kept { to: Arc<str>, why: String },
    /// Whom it had passed it on to has failed.
    Back {
        who: Arc<str>,
        error: String,
        text: Arc<str>,
    },
}

/// Somebody who has passed the conversation on, and what that one knows of it.
#[derive(Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) worker: Arc<str>,
    pub(super) view: Vec<Arc<Message>>,
    /// How many of the host's words it knows.
    heard: usize,
}

/// Stands in until a state is read.
fn nobody() -> Handoff {
    Handoff::starting_with("")
}

/// Why the conversation is not passed on, and whether the worker may name another.
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

    /// Takes in what the host has said.
    fn listen(&mut self, desk: &Desk) {
        self.waiting
            .extend_from_slice(desk.said.get(self.heard..).unwrap_or_default());
        self.heard = desk.said.len();
    }

    /// What the host has said that has gone along with no leg yet.
    pub(super) fn unheard(&mut self, desk: &Desk) -> Vec<Arc<str>> {
        self.listen(desk);
        std::mem::take(&mut self.waiting)
    }

    /// How many of the host's words have gone along.
    fn gone_along(&self) -> usize {
        self.heard.saturating_sub(self.waiting.len())
    }

    /// What one knows that has the conversation again, when these words are still to go along: what
    /// was said to others meanwhile, too.
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

    /// A leg has ended, one way or another.
    fn ended(&mut self, leg: Leg, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        desk.ended(leg.place, &came);
        for draft in talk::drafts(&leg.worker, &came.signals, &desk.rules.names) {
            desk.post(draft, wants);
        }
        let pass = Pass::of(&came.signals).filter(|_| !leg.plain);
        match (&came.result, pass) {
            (Ok(()), Some(pass)) => self.passes(leg, came, pass, desk, wants),
            (Ok(()), None) if came.text.trim().is_empty() => {
                let why = Why::new(WhyKind::Failed, "it said nothing");
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
        // What came too late is there for a run after this one.
        let late = self.unheard(desk);
        self.asked(&late);
        desk.answer(leg.worker, text, wants);
    }

    /// A leg is done: what was said in it belongs to the conversation. Returns what its worker
    /// knows of it.
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
        // The first is what the worker was told, and nobody else has said it.
        let own = said.first().is_some_and(|first| first.role == Role::User);
        self.talk.extend(said.iter().skip(usize::from(own)));
        let mut view = Record::of(&leg.history);
        view.extend(&said);
        view.all()
    }

    /// What the user has said belongs to the conversation.
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
            return last(format!("the limit on {limit} is near"));
        }
        if !desk.rules.cards.contains_key(to) || !self.handoff.allows(from, to) {
            let names = desk
                .rules
                .order
                .iter()
                .filter(|name| self.handoff.allows(from, name));
            let meant = did_you_mean(to, names.map(|name| &**name));
            let why = format!("`{}` is nobody it may be passed on to{meant}", short(to));
            return Err(Refused {
                why,
                again: self.strays == 0,
            });
        }
        if self.passed >= self.handoff.most {
            return last(format!(
                "it was passed on {} times, and more is not allowed",
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
                "`{from}` has passed it on to `{to}` {times} times, and it goes in circles"
            ));
        }
        Ok(())
    }

    /// Who has the conversation goes on with it.
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

    /// Words go along with the next leg, and a limit that is near is looked at when the leg ends.
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
                "its state contradicts itself: who works does not have the conversation".to_owned(),
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
        // What the user has said to a leg that did not end is not lost.
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
