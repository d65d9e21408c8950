use std::sync::Arc;

use levity_core::{EffectId, Ending, Event, EventKind, RunId, Timestamp};
use levity_dag::{Plan, PlanNotice, StepId, TeamInput};

use serde_json::Value;

use super::{PlanStage, PlanView, Preparation};

mod steps;
mod work;

/// Whose an effect of the run is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    Profiling,
    Planning,
    Step(StepId),
}

impl PlanView {
    /// Takes in an event of the run, or of a run below it.
    pub fn apply(&mut self, event: &Event) {
        self.fold(event, PlanNotice::of(&event.kind).as_ref());
    }

    /// Takes in an event whose notice has been read already.
    pub(crate) fn fold(&mut self, event: &Event, notice: Option<&PlanNotice>) {
        let Some(effect) = self.place(&event.run) else {
            return;
        };
        self.started.get_or_insert(event.at);
        self.last = Some(event.at);
        match (effect, notice) {
            (None, Some(notice)) => self.tell(event.at, &event.run, notice),
            (None, None) => self.own(event),
            (Some(effect), _) => {
                if let Some(owner) = self.owners.get(&effect).cloned() {
                    self.work(event, &owner);
                }
            }
        }
    }

    /// Where a run stands: `None` for another's, `Some(None)` for the run itself, `Some(effect)`
    /// for a run below it that this effect of the run began.
    fn place(&mut self, run: &RunId) -> Option<Option<u64>> {
        let root = self.root.get_or_insert_with(|| run.clone());
        if self.plan.is_none() && self.owners.is_empty() && root != run && root.is_within(run) {
            // A child's event came first; the run above it is the one to look at.
            *root = run.clone();
        }
        let below = run.as_str().strip_prefix(root.as_str())?;
        if below.is_empty() {
            return Some(None);
        }
        let first = below.strip_prefix('.')?.split('.').next()?;
        first.parse().ok().map(Some)
    }

    /// An event of the run itself that is no notice.
    fn own(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Goal { text } => self.goal.clone_from(text),
            EventKind::Asked(ask) => self.asked(event.at, ask),
            EventKind::Decided { effect, .. } => self.decided(event.at, &event.run, *effect),
            EventKind::RunEnded(ending) => {
                self.stop_preparing(event.at);
                self.stage = PlanStage::Ended;
                self.asks.clear();
                self.owners.clear();
                self.cut_off(event.at);
                self.note(event.at, None, &ending.status.to_string());
                self.ending = Some(Arc::new((**ending).clone()));
            }
            kind => {
                match effect_of(kind).and_then(|effect| self.owners.get(&effect.get()).cloned()) {
                    Some(owner) => self.work(event, &owner),
                    None => self.remark(event),
                }
            }
        }
        if let EventKind::ChildFinished { effect, .. } | EventKind::ToolFinished { effect, .. } =
            &event.kind
        {
            self.owners.remove(&effect.get());
        }
    }

    fn remark(&mut self, event: &Event) {
        let text = match &event.kind {
            EventKind::Paused => "paused".to_owned(),
            EventKind::Resumed => "goes on".to_owned(),
            EventKind::LimitLow(limit) => format!("little is left of the limit on {limit}"),
            EventKind::Guarded { intervention, .. } => intervention.to_string(),
            EventKind::LimitNear(limit) => format!("the limit on {limit} is near"),
            EventKind::LimitPassed(limit) => format!("the limit on {limit} was passed"),
            EventKind::Lagged { missed } => format!("{missed} events were missed"),
            EventKind::Said { message } => format!("told: {}", message.text()),
            _ => return,
        };
        self.note(event.at, None, &text);
    }

    /// A notice of the run.
    fn tell(&mut self, at: Timestamp, run: &RunId, notice: &PlanNotice) {
        match notice {
            PlanNotice::Profiling { effect } => {
                self.prepare(at, *effect, Owner::Profiling);
                self.stage = PlanStage::Profiling;
                self.note(at, None, "looks at the files");
            }
            PlanNotice::Planning {
                effect,
                again,
                replan,
            } => {
                self.prepare(at, *effect, Owner::Planning);
                self.stage = if *replan == 0 {
                    PlanStage::Planning
                } else {
                    PlanStage::Replanning
                };
                let again = if *again > 0 { " again" } else { "" };
                self.note(at, None, &format!("asks for a plan{again}"));
            }
            PlanNotice::Rejected { faults } => {
                let first = faults.first().map_or("", String::as_str);
                self.note(at, None, &format!("the plan cannot be run: {first}"));
            }
            PlanNotice::PlanCut { kept } => {
                self.note(
                    at,
                    None,
                    &format!("the plan was cut off after {kept} parts; the rest is asked for"),
                );
            }
            PlanNotice::Planned { plan, edges } => {
                self.planned(at, plan, edges);
                self.note(at, None, &format!("a plan of {} steps", plan.steps.len()));
            }
            PlanNotice::Replanning { why, .. } => {
                self.stage = PlanStage::Replanning;
                self.note(at, None, &format!("looks for another way: {why}"));
            }
            PlanNotice::Replanned {
                replan,
                diff,
                plan,
                edges,
            } => {
                self.replans = *replan;
                self.planned(at, plan, edges);
                self.note(at, None, &format!("the plan was changed: {}", diff.reason));
            }
            PlanNotice::GaveUp { why } => {
                self.stop_preparing(at);
                self.stage = PlanStage::Running;
                self.gave_up = Some(why.clone());
                self.note(at, None, &format!("no other way: {why}"));
            }
            step => self.tell_step(at, run, step),
        }
    }

    fn planned(&mut self, at: Timestamp, plan: &Arc<Plan>, edges: &[(StepId, StepId)]) {
        self.stop_preparing(at);
        self.stage = PlanStage::Running;
        self.asks.clear();
        let manifest = plan
            .given
            .get(TeamInput::FILES)
            .and_then(|manifest| manifest.get("files"));
        self.files = manifest
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let places: std::collections::HashMap<&StepId, u32> = plan
            .steps
            .iter()
            .zip(0..)
            .map(|(step, at)| (&step.id, at))
            .collect();
        let place = |(from, to): &(StepId, StepId)| Some((*places.get(to)?, *places.get(from)?));
        let mut known: Vec<(u32, u32)> = edges.iter().filter_map(place).collect();
        known.sort_unstable();
        known.dedup();
        self.set_plan(
            plan.clone(),
            known.into_iter().map(|(to, from)| (from, to)).collect(),
        );
    }

    fn prepare(&mut self, at: Timestamp, effect: EffectId, owner: Owner) {
        self.stop_preparing(at);
        let preparation = match owner {
            Owner::Profiling => &mut self.profiling,
            _ => &mut self.planning,
        };
        preparation.times = preparation.times.saturating_add(1);
        preparation.since = Some(at);
        self.owners.insert(effect.get(), owner);
    }

    /// The whole of what it took to look at files or to plan, in place of what was told of it on
    /// the way.
    fn prepared(&mut self, owner: &Owner, ending: &Ending) {
        let preparation = match owner {
            Owner::Profiling => &mut self.profiling,
            Owner::Planning => &mut self.planning,
            Owner::Step(_) => return,
        };
        preparation.settled.0 += ending.usage;
        preparation.settled.1 += ending.stats;
        (preparation.usage, preparation.stats) = preparation.settled;
    }

    fn stop_preparing(&mut self, at: Timestamp) {
        self.profiling.stop(at);
        self.planning.stop(at);
    }
}

impl Preparation {
    fn stop(&mut self, at: Timestamp) {
        if let Some(since) = self.since.take() {
            self.took = self.took.saturating_add(at.since(since));
        }
    }
}

/// The effect that an event of the run is about.
fn effect_of(kind: &EventKind) -> Option<EffectId> {
    match kind {
        EventKind::ModelStarted { effect, .. }
        | EventKind::ModelFinished { effect, .. }
        | EventKind::ModelFailed { effect, .. }
        | EventKind::ToolStarted { effect, .. }
        | EventKind::ToolFinished { effect, .. }
        | EventKind::WaitStarted { effect, .. }
        | EventKind::Woken { effect }
        | EventKind::ChildFinished { effect, .. }
        | EventKind::Delta { effect, .. }
        | EventKind::Progress { effect, .. } => Some(*effect),
        _ => None,
    }
}
