//! Drives a machine, and looks at everything that it wants and tells.

use std::collections::{BTreeMap, BTreeSet};

use levity_core::{
    Effect, EffectId, Input, Machine as _, MachineOutput, Outcome, RunId, Timestamp,
};

use super::world::{Answer, Fate, Id, Setting, said, swarm};
use crate::machine::SwarmMachine;
use crate::{BusMessage, Delegation, FailureAction, ReportStatus, Swarm, SwarmNotice};

/// A machine under way, and what is known of it from outside.
pub(super) struct Driver {
    pub(super) machine: SwarmMachine,
    /// What it saved before its first input.
    first: serde_json::Value,
    pub(super) swarm: Swarm,
    setting: Setting,
    answers: Vec<Answer>,
    fates: Vec<Fate>,
    /// What is wanted and not finished, and what it will come to.
    pub(super) open: Vec<(EffectId, Outcome)>,
    /// All that was taken in, and when.
    pub(super) inputs: Vec<(Input, Timestamp)>,
    /// What came of each.
    pub(super) trace: Vec<String>,
    /// What was delegated, in the order in which it was told.
    planned: BTreeMap<Id, Delegation>,
    done: BTreeSet<Id>,
    settled: BTreeSet<Id>,
    working: BTreeMap<EffectId, Id>,
    last: Option<EffectId>,
    bus: Vec<BusMessage>,
    asked: usize,
    pub(super) notices: Vec<SwarmNotice>,
    conversations: BTreeMap<EffectId, Option<Id>>,
    /// What each was told to do.
    tasks: Vec<String>,
}

impl Driver {
    pub(super) fn new(setting: &Setting, answers: &[Answer], fates: &[Fate]) -> Self {
        let swarm = swarm(setting);
        Self {
            first: swarm.machine("Build a house.").save(),
            machine: swarm.machine("Build a house."),
            swarm,
            setting: setting.clone(),
            answers: answers.to_vec(),
            fates: fates.to_vec(),
            open: Vec::new(),
            inputs: Vec::new(),
            trace: Vec::new(),
            planned: BTreeMap::new(),
            done: BTreeSet::new(),
            settled: BTreeSet::new(),
            working: BTreeMap::new(),
            last: None,
            bus: Vec::new(),
            asked: 0,
            notices: Vec::new(),
            conversations: BTreeMap::new(),
            tasks: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.apply(
            Input::Begin {
                run: RunId::new("r"),
                wrap: None,
            },
            0,
        );
    }

    /// Finishes one of those under way.
    pub(super) fn finish(&mut self, which: usize, at: u64) {
        if self.open.is_empty() {
            return;
        }
        let (effect, outcome) = self.open.remove(which % self.open.len());
        self.working.remove(&effect);
        self.apply(Input::Finished { effect, outcome }, at);
    }

    /// Finishes one of those under way otherwise than it was to be.
    pub(super) fn finish_with(&mut self, which: usize, fate: Fate) {
        self.open[which].1 = fate.outcome("it", 1);
        self.finish(which, 0);
    }

    /// The delegations under way.
    pub(super) fn under_way(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.working.values().map(|id| &**id).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn apply(&mut self, input: Input, at: u64) {
        let at = Timestamp::from_millis(at);
        self.inputs.push((input.clone(), at));
        let had_ended = self.machine.ending().cloned();
        let mut wants = MachineOutput::new();
        wants.set_at(at);
        self.machine.apply(input, &mut wants);
        self.trace.push(traced(&wants));
        let ended = self.machine.ending().is_some();
        assert!(
            !ended || wants.effects.is_empty(),
            "it has ended and wants {:?}",
            wants.effects
        );
        if had_ended.is_some() {
            assert_eq!(self.machine.ending(), had_ended.as_ref());
            assert!(
                wants.events.is_empty(),
                "it has ended and tells {:?}",
                wants.events
            );
        }
        for event in &wants.events {
            if let Some(notice) = SwarmNotice::of(event) {
                self.notice(notice);
            }
        }
        self.check_wants(&wants);
        if ended {
            self.open.clear();
            self.working.clear();
        }
    }

    /// What is wanted was told, with the numbers going up, and never more than may be.
    fn check_wants(&mut self, wants: &MachineOutput) {
        for (id, effect) in &wants.effects {
            if let Effect::Child(child) = effect {
                self.conversations
                    .insert(*id, child.input["conversation"].as_str().map(Into::into));
                self.tasks.push(format!("{} {}", child.agent, child.input));
            }
            assert!(
                self.last.is_none_or(|last| last < *id),
                "{id} comes after {:?}",
                self.last
            );
            self.last = Some(*id);
            assert!(
                self.open.iter().any(|(open, _)| open == id),
                "it was not told what {id} is"
            );
            let Effect::Child(child) = effect else {
                panic!("{effect:?}")
            };
            assert!(child.input.to_string().len() < 1 << 20);
        }
        assert!(
            self.working.len() <= self.setting.parallel,
            "{} at once",
            self.working.len()
        );
        let talks = self
            .working
            .keys()
            .filter_map(|id| self.conversations.get(id).cloned().flatten());
        let mut talks: Vec<Id> = talks.collect();
        talks.sort();
        assert!(
            talks.windows(2).all(|two| two[0] != two[1]),
            "two work in one conversation: {talks:?}"
        );
    }

    fn notice(&mut self, notice: SwarmNotice) {
        self.notices.push(notice.clone());
        match notice {
            SwarmNotice::Planning { effect, .. } => {
                let answer = self.answers[self.asked % self.answers.len()].outcome();
                self.asked += 1;
                self.open.push((effect, answer));
            }
            SwarmNotice::Synthesising { effect } => {
                self.open.push((effect, said("All in all.".to_owned())));
            }
            SwarmNotice::Planned { plan, .. } => {
                for one in plan {
                    let twice = self.planned.insert(one.id.clone(), one);
                    assert!(twice.is_none(), "{twice:?} is planned twice");
                }
            }
            SwarmNotice::Began {
                id,
                effect,
                attempt,
                ..
            } => self.began(&id, effect, attempt),
            SwarmNotice::Done { id, .. } => {
                self.settle(&id);
                self.done.insert(id);
            }
            SwarmNotice::Failed {
                id,
                then: FailureAction::Leave,
                ..
            }
            | SwarmNotice::Skipped { id, .. } => {
                self.settle(&id);
            }
            SwarmNotice::Message(message) => self.said(message),
            _ => {}
        }
    }

    fn began(&mut self, id: &Id, effect: EffectId, attempt: u32) {
        let one = self
            .planned
            .get(id)
            .unwrap_or_else(|| panic!("`{id}` was never planned"));
        assert!(!self.settled.contains(id), "`{id}` begins again");
        for need in &one.depends_on {
            assert!(
                self.done.contains(need),
                "`{id}` begins before `{need}` is done"
            );
        }
        assert!(
            !self.working.values().any(|other| other == id),
            "`{id}` is under way twice"
        );
        self.working.insert(effect, id.clone());
        self.open.push((
            effect,
            Fate::of(&self.fates, id, attempt).outcome(id, attempt),
        ));
    }

    fn settle(&mut self, id: &Id) {
        assert!(self.planned.contains_key(id), "`{id}` was never planned");
        assert!(self.settled.insert(id.clone()), "`{id}` is settled twice");
    }

    fn said(&mut self, message: BusMessage) {
        assert_eq!(message.id, self.bus.last().map_or(1, |last| last.id + 1));
        assert!(
            self.bus.last().is_none_or(|last| last.at <= message.at),
            "{message:?}"
        );
        self.bus.push(message);
    }

    /// All that was planned is reported once and settled, and the bus has what was told.
    pub(super) fn check_end(&self) {
        assert!(
            self.machine.ending().is_some(),
            "it does not end: {:?}",
            self.machine
        );
        let desk = self.machine.desk();
        let ids: BTreeSet<&Id> = desk.reports.iter().map(|report| &report.id).collect();
        assert_eq!(ids.len(), desk.reports.len(), "one is reported twice");
        assert!(ids.into_iter().eq(self.planned.keys()));
        assert!(desk.bus.messages().eq(&self.bus));
        for report in &desk.reports {
            assert_eq!(
                report.is_done(),
                self.done.contains(&report.id),
                "{report:?}"
            );
        }
    }

    /// So it is when nobody ended it before its time.
    pub(super) fn check_settled(&self) {
        for report in &self.machine.desk().reports {
            assert!(report.status.is_settled(), "{report:?}");
            assert!(
                self.settled.contains(&report.id),
                "nothing was told of the end of {report:?}"
            );
            let has_why = report.error.is_some() == (report.status != ReportStatus::Done);
            assert!(has_why, "{report:?}");
        }
    }

    /// The same inputs, in a machine that is built again before each of them: what comes of each.
    pub(super) fn again(&self) -> Vec<String> {
        let mut machine = self.swarm.restore(&self.first).unwrap();
        let each = self.inputs.iter().map(|(input, at)| {
            let saved = machine.save().to_string();
            machine = self
                .swarm
                .restore(&serde_json::from_str(&saved).unwrap())
                .unwrap();
            assert_eq!(machine.save().to_string(), saved);
            let mut wants = MachineOutput::new();
            wants.set_at(*at);
            machine.apply(input.clone(), &mut wants);
            traced(&wants)
        });
        each.collect()
    }

    /// The log without the times, what came of each delegation, and what each was told.
    pub(super) fn log(&self) -> Vec<String> {
        let line = |message: &BusMessage| {
            format!(
                "{} {} {} {}: {}",
                message.id, message.from, message.kind, message.to, message.content
            )
        };
        let mut log: Vec<String> = self.bus.iter().map(line).collect();
        let reports = &self.machine.desk().reports;
        log.extend(reports.iter().map(|report| {
            let (id, worker, status) = (&report.id, &report.worker, report.status);
            format!(
                "{id} {worker} {status:?} {} {:?} {}",
                report.attempts, report.error, report.text
            )
        }));
        log.push(format!("{:?}", self.machine.ending()));
        let mut tasks = self.tasks.clone();
        tasks.sort_unstable();
        log.append(&mut tasks);
        log
    }
}

fn traced(wants: &MachineOutput) -> String {
    format!(
        "{:?} {}",
        wants.effects,
        serde_json::to_string(&wants.events).unwrap()
    )
}
