//! The machine of a handoff: who has the conversation, and what becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Failure, Message, Role, Status, Step as Wants};

use super::Handoff;
use super::record::{Record, deny_transfer};
use super::transfer::Pass;
use crate::bus::{Draft, MessageKind, Recipient};
use crate::desk::{Came, Desk, Duty, Why, WhyKind, add_stats};
use crate::machine::{Play, Shown};
use crate::names::{USER, did_you_mean, short};
use crate::notice::{Notice, Then};
use crate::report::ReportStatus;
use crate::rules::Start;
use crate::talk;

/// Has one worker after the other go on with a conversation.
pub(crate) struct Handing {
    pub(super) handoff: Handoff,
    pub(super) talk: Record,
    /// Who has the conversation now, or had it last.
    pub(super) holder: Arc<str>,
    pub(super) leg: Option<Leg>,
    /// Those who have passed it on to get where it is, the first of them first.
    held: Vec<Held>,
    /// Those who could not answer since somebody last did.
    failed: Vec<Arc<str>>,
    passed: u32,
    pairs: BTreeMap<(Arc<str>, Arc<str>), u32>,
    /// How many times in a row nobody could be found under the name that was given.
    strays: u32,
    /// How many of the host's words were taken in.
    heard: usize,
    /// Those that have gone along with no leg yet.
    waiting: Vec<Arc<str>>,
    /// The last message on the bus when a worker was last begun.
    pub(super) seen: BTreeMap<Arc<str>, u64>,
}

/// A worker's part of the conversation.
#[derive(Debug)]
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
}

/// How a worker comes to have the conversation.
#[derive(Clone, Debug)]
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
    Back { who: Arc<str>, error: String, text: Arc<str> },
}

/// Somebody who has passed the conversation on, and what that one knows of it.
struct Held {
    worker: Arc<str>,
    view: Vec<Arc<Message>>,
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
        self.waiting.extend_from_slice(desk.said.get(self.heard..).unwrap_or_default());
        self.heard = desk.said.len();
    }

    /// What the host has said that has gone along with no leg yet.
    pub(super) fn unheard(&mut self, desk: &Desk) -> Vec<Arc<str>> {
        self.listen(desk);
        std::mem::take(&mut self.waiting)
    }

    /// A leg has ended, one way or another.
    fn ended(&mut self, leg: Leg, came: Came, desk: &mut Desk, wants: &mut Wants) {
        let Some(report) = desk.reports.get_mut(leg.place) else { return };
        report.usage += came.usage;
        add_stats(&mut report.stats, &came.stats);
        (report.text, report.run) = (came.text.clone(), Some(came.run.clone()));
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

    fn answers(&mut self, leg: Leg, came: Came, desk: &mut Desk, wants: &mut Wants) {
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
        let draft = Draft::new(leg.worker, Recipient::One(USER.into()), MessageKind::Answer, &*text);
        desk.post(draft, wants);
        let status = desk.answered();
        desk.end(status, text, None);
    }

    /// A leg is done: what was said in it belongs to the conversation. Returns what its worker knows of it.
    fn done(&mut self, leg: &Leg, came: Came, desk: &mut Desk, wants: &mut Wants) -> Vec<Arc<Message>> {
        let (id, worker) = (desk.reports[leg.place].id.clone(), leg.worker.clone());
        let report = &mut desk.reports[leg.place];
        (report.status, report.error) = (ReportStatus::Done, None);
        desk.tell(wants, || Notice::Done { id, worker });
        self.failed.clear();
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
    fn asked(&mut self, asks: &[Arc<str>]) {
        asks.iter().for_each(|words| self.talk.push(Arc::new(Message::user(&**words))));
    }

    fn passes(&mut self, leg: Leg, mut came: Came, pass: Pass, desk: &mut Desk, wants: &mut Wants) {
        if let Err(refused) = self.may_pass(&leg.worker, &pass.to, desk) {
            deny_transfer(&mut came.said, &refused.why);
            return self.keeps(leg, came, &pass.to, refused, desk, wants);
        }
        let view = self.done(&leg, came, desk, wants);
        let (from, Pass { to, note }) = (leg.worker, pass);
        (self.strays, self.passed) = (0, self.passed + 1);
        *self.pairs.entry((from.clone(), to.clone())).or_default() += 1;
        self.held.push(Held { worker: from.clone(), view });
        desk.tell(wants, || Notice::HandedOff { from: from.clone(), to: to.clone(), note: note.clone() });
        let whom = Recipient::One(to.clone());
        desk.post(Draft::new(from.clone(), whom, MessageKind::Handoff, note.clone()), wants);
        let history = self.carried(&to, &self.talk.all(), desk, wants);
        self.open(Leg::new(to, Opening::Passed { from, note }, history), desk, wants);
    }

    fn may_pass(&self, from: &Arc<str>, to: &Arc<str>, desk: &Desk) -> Result<(), Refused> {
        let last = |why| Err(Refused { why, again: false });
        if let Some(limit) = desk.near {
            return last(format!("the limit on {limit} is near"));
        }
        if !desk.rules.cards.contains_key(to) || !self.handoff.allows(from, to) {
            let names = desk.rules.order.iter().filter(|name| self.handoff.allows(from, name));
            let meant = did_you_mean(to, names.map(|name| &**name));
            let why = format!("`{}` is nobody it may be passed on to{meant}", short(to));
            return Err(Refused { why, again: self.strays == 0 });
        }
        if self.passed >= self.handoff.most {
            return last(format!("it was passed on {} times, and more is not allowed", self.passed));
        }
        let times = self.pairs.get(&(from.clone(), to.clone())).copied().unwrap_or(0);
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
        wants: &mut Wants,
    ) {
        let Refused { why, again } = refused;
        let to: Arc<str> = short(to).into();
        let view = self.done(&leg, came, desk, wants);
        self.strays = if again { self.strays + 1 } else { 0 };
        let from = leg.worker;
        let (who, whom, error) = (from.clone(), to.clone(), why.clone());
        desk.tell(wants, || Notice::LoopFound { from: who, to: whom, why: error });
        let mut next = Leg::new(from, Opening::Kept { to, why }, view);
        next.plain = !again;
        self.open(next, desk, wants);
    }

    /// A leg is not done: it is tried again, by the same worker or by who stands in, or it goes back.
    fn fails(&mut self, mut leg: Leg, came: &Came, why: &Why, desk: &mut Desk, wants: &mut Wants) {
        let then = self.then(&leg, why, desk);
        let to = self.giver().map_or_else(|| USER.into(), |held| held.worker.clone());
        let draft = Draft::new(leg.worker.clone(), Recipient::One(to), MessageKind::Failure, &*why.error);
        desk.post(draft, wants);
        let report = &mut desk.reports[leg.place];
        report.error = Some(why.error.clone());
        let (id, worker, error) = (report.id.clone(), leg.worker.clone(), why.error.clone());
        match then {
            Then::Retry => {
                desk.tell(wants, || Notice::Failed { id, worker, error, then });
                self.go(leg, desk, wants);
            }
            Then::StandIn { worker: other } => {
                let then = Then::StandIn { worker: other.clone() };
                desk.tell(wants, || Notice::Failed { id, worker, error, then });
                self.pass_leg(&mut leg, other, why, desk, wants);
                self.go(leg, desk, wants);
            }
            Then::Leave => self.gives_up(leg, came, why, desk, wants),
        }
    }

    fn then(&self, leg: &Leg, why: &Why, desk: &Desk) -> Then {
        if why.kind == WhyKind::Stopped || desk.near.is_some() {
            return Then::Leave;
        }
        let Some(card) = desk.rules.cards.get(&leg.worker) else { return Then::Leave };
        if why.kind == WhyKind::Failed && leg.tried <= card.retries {
            return Then::Retry;
        }
        match &card.stand_in {
            Some(other) if *other != leg.worker && !leg.before.contains(other) => {
                Then::StandIn { worker: other.clone() }
            }
            _ => Then::Leave,
        }
    }

    /// Another takes a leg.
    fn pass_leg(&mut self, leg: &mut Leg, other: Arc<str>, why: &Why, desk: &Desk, wants: &mut Wants) {
        leg.history = match leg.opening {
            Opening::First => std::mem::take(&mut leg.history),
            Opening::Passed { .. } => self.carried(&other, &self.talk.all(), desk, wants),
            _ => self.carried(&other, &leg.history, desk, wants),
        };
        (leg.tried, leg.error) = (0, Some(why.error.clone()));
        leg.before.push(std::mem::replace(&mut leg.worker, other));
    }

    /// Nobody can do a leg: it goes back to who has passed the conversation on.
    fn gives_up(&mut self, leg: Leg, came: &Came, why: &Why, desk: &mut Desk, wants: &mut Wants) {
        let report = &mut desk.reports[leg.place];
        let stopped = why.kind == WhyKind::Stopped;
        report.status = if stopped { ReportStatus::Stopped } else { ReportStatus::Failed };
        let (id, worker, error) = (report.id.clone(), leg.worker.clone(), why.error.clone());
        self.failed.extend(leg.before.iter().cloned());
        self.failed.push(worker.clone());
        while self.held.last().is_some_and(|held| self.failed.contains(&held.worker)) {
            self.held.pop();
        }
        let back = self.held.pop();
        let then = back.as_ref().map_or(Then::Leave, |held| Then::StandIn { worker: held.worker.clone() });
        desk.tell(wants, || Notice::Failed { id, worker: worker.clone(), error: error.clone(), then });
        let Some(Held { worker: giver, view }) = back else {
            self.asked(&leg.asks);
            let why = format!("`{worker}` had the conversation, and nobody could answer: {error}");
            let text = self.so_far(desk);
            return desk.end(Status::Failed(Failure::Unreached(why)), text, None);
        };
        let opening = Opening::Back { who: worker, error, text: came.text.clone() };
        let next = Leg { asks: leg.asks, plain: true, ..Leg::new(giver, opening, view) };
        self.open(next, desk, wants);
    }

    /// Who would have the conversation back.
    fn giver(&self) -> Option<&Held> {
        self.held.iter().rev().find(|held| !self.failed.contains(&held.worker))
    }
}

impl Play for Handing {
    fn begin(&mut self, desk: &mut Desk, wants: &mut Wants) {
        let mut leg = Leg::new(self.holder.clone(), Opening::First, self.talk.all());
        leg.asks.push((*desk.start.goal).into());
        self.open(leg, desk, wants);
    }

    fn came(&mut self, _: Duty, came: Came, desk: &mut Desk, wants: &mut Wants) {
        if let Some(leg) = self.leg.take() {
            self.ended(leg, came, desk, wants);
        }
    }

    /// Words go along with the next leg, and a limit that is near is looked at when the leg ends.
    fn stirred(&mut self, desk: &mut Desk, _: &mut Wants) {
        self.listen(desk);
    }

    fn so_far(&self, desk: &Desk) -> String {
        let said = desk.reports.iter().rev().find(|report| !report.text.is_empty());
        said.map_or_else(String::new, |report| report.text.to_string())
    }

    fn shown(&self) -> Shown {
        let mut record = Record::of(&self.talk.all());
        // What the user has said to a leg that did not end is not lost.
        let open = self.leg.iter().flat_map(|leg| &leg.asks).chain(&self.waiting);
        open.for_each(|words| record.push(Arc::new(Message::user(&**words))));
        Shown { history: record.all(), last: Some(self.holder.clone()), ..Shown::default() }
    }
}
