//! Drives a machine and checks every output.

use std::collections::{BTreeMap, BTreeSet};

use levity_core::{
    Effect, EffectId, Input, Machine as _, MachineOutput, Outcome, RunId, Timestamp,
};

use super::scenario::{Answer, AttemptOutcome, Id, Setting, completed, swarm};
use crate::machine::SwarmMachine;
use crate::{BusMessage, Delegation, FailureAction, ReportStatus, Swarm, SwarmNotice};

/// A machine in progress, and its state as seen from outside.
pub(super) struct Driver {
    pub(super) machine: SwarmMachine,
    /// The saved state before its first input.
    first: serde_json::Value,
    pub(super) swarm: Swarm,
    setting: Setting,
    answers: Vec<Answer>,
    outcomes: Vec<AttemptOutcome>,
    /// The requested effects that are not finished, with their outcomes.
    pub(super) open: Vec<(EffectId, Outcome)>,
    /// All inputs with their times.
    pub(super) inputs: Vec<(Input, Timestamp)>,
    /// The trace of each input.
    pub(super) trace: Vec<String>,
    /// The delegations that were reported as planned.
    planned: BTreeMap<Id, Delegation>,
    done: BTreeSet<Id>,
    settled: BTreeSet<Id>,
    working: BTreeMap<EffectId, Id>,
    last: Option<EffectId>,
    bus: Vec<BusMessage>,
    asked: usize,
    pub(super) notices: Vec<SwarmNotice>,
    conversations: BTreeMap<EffectId, Option<Id>>,
    /// The tasks of all requests.
    tasks: Vec<String>,
}

impl Driver {
    pub(super) fn new(setting: &Setting, answers: &[Answer], outcomes: &[AttemptOutcome]) -> Self {
        let swarm = swarm(setting);
        Self {
            first: swarm.machine("Build a house.").save(),
            machine: swarm.machine("Build a house."),
            swarm,
            setting: setting.clone(),
            answers: answers.to_vec(),
            outcomes: outcomes.to_vec(),
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

    /// Finishes one of the effects in progress.
    pub(super) fn finish(&mut self, which: usize, at: u64) {
        if self.open.is_empty() {
            return;
        }
        let (effect, outcome) = self.open.remove(which % self.open.len());
        self.working.remove(&effect);
        self.apply(Input::Finished { effect, outcome }, at);
    }

    /// Finishes one of the effects in progress with another outcome.
    pub(super) fn finish_with(&mut self, which: usize, outcome_kind: AttemptOutcome) {
        self.open[which].1 = outcome_kind.outcome("it", 1);
        self.finish(which, 0);
    }

    /// Returns the delegations in progress.
    pub(super) fn in_progress(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.working.values().map(|id| &**id).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn apply(&mut self, input: Input, at: u64) {
        let at = Timestamp::from_millis(at);
        self.inputs.push((input.clone(), at));
        let had_ended = self.machine.ending().cloned();
        let mut out = MachineOutput::new();
        out.set_at(at);
        self.machine.apply(input, &mut out);
        self.trace.push(trace_line(&out));
        let ended = self.machine.ending().is_some();
        assert!(
            !ended || out.effects.is_empty(),
            "it has ended and requests {:?}",
            out.effects
        );
        if had_ended.is_some() {
            assert_eq!(self.machine.ending(), had_ended.as_ref());
            assert!(
                out.events.is_empty(),
                "it has ended and emits {:?}",
                out.events
            );
        }
        for event in &out.events {
            if let Some(notice) = SwarmNotice::of(event) {
                self.notice(notice);
            }
        }
        self.check_requests(&out);
        if ended {
            self.open.clear();
            self.working.clear();
        }
    }

    /// Checks that requests were reported, that their ids increase, and that limits hold.
    fn check_requests(&mut self, out: &MachineOutput) {
        for (id, effect) in &out.effects {
            if let Effect::Child(child) = effect {
                self.conversations
                    .insert(*id, child.input["conversation"].as_str().map(Into::into));
                self.tasks.push(format!("{} {}", child.agent, child.input));
            }
            assert!(
                self.last.is_none_or(|last| last < *id),
                "{id} follows {:?}",
                self.last
            );
            self.last = Some(*id);
            assert!(
                self.open.iter().any(|(open, _)| open == id),
                "no notice describes {id}"
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
            "two workers use one conversation: {talks:?}"
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
            SwarmNotice::Synthesising { effect } => self
                .open
                .push((effect, completed("All in all.".to_owned()))),
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
            } => self.check_started(&id, effect, attempt),
            SwarmNotice::Done { id, .. } => {
                self.settle(&id);
                self.done.insert(id);
            }
            SwarmNotice::Failed {
                id,
                then: FailureAction::GiveUp,
                ..
            }
            | SwarmNotice::Skipped { id, .. } => {
                self.settle(&id);
            }
            SwarmNotice::Message(message) => self.check_message(message),
            _ => {}
        }
    }

    fn check_started(&mut self, id: &Id, effect: EffectId, attempt: u32) {
        let one = self
            .planned
            .get(id)
            .unwrap_or_else(|| panic!("`{id}` was never planned"));
        assert!(!self.settled.contains(id), "`{id}` starts again");
        for need in &one.depends_on {
            assert!(
                self.done.contains(need),
                "`{id}` starts before `{need}` is done"
            );
        }
        assert!(
            !self.working.values().any(|other| other == id),
            "`{id}` is in progress twice"
        );
        self.working.insert(effect, id.clone());
        self.open.push((
            effect,
            AttemptOutcome::of(&self.outcomes, id, attempt).outcome(id, attempt),
        ));
    }

    fn settle(&mut self, id: &Id) {
        assert!(self.planned.contains_key(id), "`{id}` was never planned");
        assert!(self.settled.insert(id.clone()), "`{id}` is settled twice");
    }

    fn check_message(&mut self, message: BusMessage) {
        assert_eq!(message.id, self.bus.last().map_or(1, |last| last.id + 1));
        assert!(
            self.bus.last().is_none_or(|last| last.at <= message.at),
            "{message:?}"
        );
        self.bus.push(message);
    }

    /// Checks that each planned delegation is reported once, and that the bus matches the notices.
    pub(super) fn check_end(&self) {
        assert!(
            self.machine.ending().is_some(),
            "it does not end: {:?}",
            self.machine
        );
        let shared = self.machine.shared();
        let ids: BTreeSet<&Id> = shared.reports.iter().map(|report| &report.id).collect();
        assert_eq!(
            ids.len(),
            shared.reports.len(),
            "a delegation is reported twice"
        );
        assert!(ids.into_iter().eq(self.planned.keys()));
        assert!(shared.bus.messages().eq(&self.bus));
        for report in &shared.reports {
            assert_eq!(
                report.is_done(),
                self.done.contains(&report.id),
                "{report:?}"
            );
        }
    }

    /// Checks that every delegation is settled, for a run that ended normally.
    pub(super) fn check_settled(&self) {
        for report in &self.machine.shared().reports {
            assert!(report.status.is_settled(), "{report:?}");
            assert!(
                self.settled.contains(&report.id),
                "no notice reports the end of {report:?}"
            );
            let has_reason = report.error.is_some() == (report.status != ReportStatus::Done);
            assert!(has_reason, "{report:?}");
        }
    }

    /// Returns the trace of the same inputs in a machine that is restored before each of them.
    pub(super) fn again(&self) -> Vec<String> {
        let mut machine = self.swarm.restore(&self.first).unwrap();
        let each = self.inputs.iter().map(|(input, at)| {
            let saved = machine.save().to_string();
            machine = self
                .swarm
                .restore(&serde_json::from_str(&saved).unwrap())
                .unwrap();
            assert_eq!(machine.save().to_string(), saved);
            let mut out = MachineOutput::new();
            out.set_at(*at);
            machine.apply(input.clone(), &mut out);
            trace_line(&out)
        });
        each.collect()
    }

    /// Returns the bus without times, the result of each delegation, and the tasks.
    pub(super) fn log(&self) -> Vec<String> {
        let line = |message: &BusMessage| {
            format!(
                "{} {} {} {}: {}",
                message.id, message.from, message.kind, message.to, message.content
            )
        };
        let mut log: Vec<String> = self.bus.iter().map(line).collect();
        let reports = &self.machine.shared().reports;
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

fn trace_line(out: &MachineOutput) -> String {
    format!(
        "{:?} {}",
        out.effects,
        serde_json::to_string(&out.events).unwrap()
    )
}
