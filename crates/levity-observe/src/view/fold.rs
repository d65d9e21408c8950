//! The fold over events.
//!
//! Events of the run itself carry notices about the plan; events of runs below it belong to the
//! step whose effect started them. The usage that an agent reports on the way is replaced by the
//! final usage when its run ends, so nothing counts twice.

use std::sync::Arc;

use levity_core::{EffectId, Ending, Event, EventKind, RunId, Timestamp};
use levity_dag::{Plan, PlanNotice, StepId, TeamInput};

use serde_json::Value;

use super::{PlanStage, PlanView, Preparation};

mod steps;
mod work;

/// The work that an effect of the run belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    Profiling,
    Planning,
    Step(StepId),
}

impl PlanView {
    /// Applies an event of the run, or of a run below it.
    ///
    /// The order matters: pass events as the run emits them. After missed events, a step is wrong
    /// until the next notice about it.
    ///
    /// ```
    /// use levity_core::{Event, EventKind, Timestamp};
    /// use levity_dag::PlanNotice;
    /// use levity_observe::{PlanStage, PlanView};
    /// use serde_json::json;
    ///
    /// let mut view = PlanView::of_run("r".into());
    /// let data = json!({"notice": "planning", "effect": 1, "again": 0, "replan": 0});
    /// let kind = EventKind::Custom { name: PlanNotice::NAME.to_owned(), data };
    /// view.apply(&Event::new("r".into(), 1, Timestamp::from_millis(0), kind.clone()));
    /// assert_eq!((view.stage(), view.planning().times), (PlanStage::Planning, 1));
    /// // Events of other runs are ignored.
    /// view.apply(&Event::new("other".into(), 1, Timestamp::from_millis(0), kind));
    /// assert_eq!(view.planning().times, 1);
    /// ```
    pub fn apply(&mut self, event: &Event) {
        self.fold(event, PlanNotice::of(&event.kind).as_ref());
    }

    /// Applies an event whose notice is already parsed.
    pub(crate) fn fold(&mut self, event: &Event, notice: Option<&PlanNotice>) {
        let Some(effect) = self.place(&event.run) else {
            return;
        };
        self.started.get_or_insert(event.at);
        self.last = Some(event.at);
        match (effect, notice) {
            (None, Some(notice)) => self.apply_notice(event.at, &event.run, notice),
            (None, None) => self.apply_own_event(event),
            (Some(effect), _) => {
                if let Some(owner) = self.owners.get(&effect).cloned() {
                    self.apply_work(event, &owner);
                }
            }
        }
    }

    /// Locates a run: `None` for an unrelated one, `Some(None)` for the run itself, `Some(effect)`
    /// for a run below it that this effect of the run started.
    fn place(&mut self, run: &RunId) -> Option<Option<u64>> {
        let root = self.root.get_or_insert_with(|| run.clone());
        if self.plan.is_none() && self.owners.is_empty() && root != run && root.is_within(run) {
            // A child's event arrived first; the run above it is the root.
            *root = run.clone();
        }
        let below = run.as_str().strip_prefix(root.as_str())?;
        if below.is_empty() {
            return Some(None);
        }
        let first = below.strip_prefix('.')?.split('.').next()?;
        first.parse().ok().map(Some)
    }

    /// Applies an event of the run itself that is not a notice.
    fn apply_own_event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Goal { text } => self.goal.clone_from(text),
            EventKind::Asked(ask) => self.add_run_ask(event.at, ask),
            EventKind::Decided { effect, .. } => self.remove_ask(event.at, &event.run, *effect),
            EventKind::RunEnded(ending) => {
                self.stop_preparation(event.at);
                self.stage = PlanStage::Ended;
                self.asks.clear();
                self.owners.clear();
                self.reset_unfinished_steps(event.at);
                self.log_line(event.at, None, &ending.status.to_string());
                self.ending = Some(Arc::new((**ending).clone()));
            }
            kind => {
                match effect_of(kind).and_then(|effect| self.owners.get(&effect.get()).cloned()) {
                    Some(owner) => self.apply_work(event, &owner),
                    None => self.log_run_event(event),
                }
            }
        }
        if let EventKind::ChildFinished { effect, .. } | EventKind::ToolFinished { effect, .. } =
            &event.kind
        {
            self.owners.remove(&effect.get());
        }
    }

    fn log_run_event(&mut self, event: &Event) {
        let text = match &event.kind {
            EventKind::Paused => "paused".to_owned(),
            EventKind::Resumed => "resumed".to_owned(),
            EventKind::LimitLow(limit) => format!("little is left of the limit on {limit}"),
            EventKind::Guarded { intervention, .. } => intervention.to_string(),
            EventKind::LimitNear(limit) => format!("the limit on {limit} is near"),
            EventKind::LimitPassed(limit) => format!("the limit on {limit} was exceeded"),
            EventKind::Lagged { missed } => format!("{missed} events were missed"),
            EventKind::MessageReceived { message } => format!("message: {}", message.text()),
            _ => return,
        };
        self.log_line(event.at, None, &text);
    }

    /// Applies a notice of the run.
    fn apply_notice(&mut self, at: Timestamp, run: &RunId, notice: &PlanNotice) {
        match notice {
            PlanNotice::Profiling { effect } => {
                self.start_preparation(at, *effect, Owner::Profiling);
                self.stage = PlanStage::Profiling;
                self.log_line(at, None, "profiles the files");
            }
            PlanNotice::Planning {
                effect,
                again,
                replan,
            } => {
                self.start_preparation(at, *effect, Owner::Planning);
                self.stage = if *replan == 0 {
                    PlanStage::Planning
                } else {
                    PlanStage::Replanning
                };
                let again = if *again > 0 { " again" } else { "" };
                self.log_line(at, None, &format!("requests a plan{again}"));
            }
            PlanNotice::Rejected { faults } => {
                let first = faults.first().map_or("", String::as_str);
                self.log_line(at, None, &format!("the plan is invalid: {first}"));
            }
            PlanNotice::PlanCut { kept } => {
                self.log_line(
                    at,
                    None,
                    &format!("the plan was truncated after {kept} parts; requesting the rest"),
                );
            }
            PlanNotice::Planned { plan, edges } => {
                self.apply_plan(at, plan, edges);
                self.log_line(at, None, &format!("a plan of {} steps", plan.steps.len()));
            }
            PlanNotice::Replanning { reason, .. } => {
                self.stage = PlanStage::Replanning;
                self.log_line(at, None, &format!("replans: {reason}"));
            }
            PlanNotice::Replanned {
                replan,
                diff,
                plan,
                edges,
            } => {
                self.replans = *replan;
                self.apply_plan(at, plan, edges);
                self.log_line(at, None, &format!("the plan was changed: {}", diff.reason));
            }
            PlanNotice::GaveUp { reason: why } => {
                self.stop_preparation(at);
                self.stage = PlanStage::Running;
                self.gave_up = Some(why.clone());
                self.log_line(at, None, &format!("gave up: {why}"));
            }
            step => self.apply_step_notice(at, run, step),
        }
    }

    fn apply_plan(&mut self, at: Timestamp, plan: &Arc<Plan>, edges: &[(StepId, StepId)]) {
        self.stop_preparation(at);
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

    fn start_preparation(&mut self, at: Timestamp, effect: EffectId, owner: Owner) {
        self.stop_preparation(at);
        let preparation = match owner {
            Owner::Profiling => &mut self.profiling,
            _ => &mut self.planning,
        };
        preparation.times = preparation.times.saturating_add(1);
        preparation.since = Some(at);
        self.owners.insert(effect.get(), owner);
    }

    /// Records the final usage of profiling or planning, in place of the usage reported on the way.
    fn record_preparation(&mut self, owner: &Owner, ending: &Ending) {
        let preparation = match owner {
            Owner::Profiling => &mut self.profiling,
            Owner::Planning => &mut self.planning,
            Owner::Step(_) => return,
        };
        preparation.settled.0 += ending.usage;
        preparation.settled.1 += ending.stats;
        (preparation.usage, preparation.stats) = preparation.settled;
    }

    fn stop_preparation(&mut self, at: Timestamp) {
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

/// Returns the effect that an event of the run is about.
fn effect_of(kind: &EventKind) -> Option<EffectId> {
    match kind {
        EventKind::ModelStarted { effect, .. }
        | EventKind::ModelFinished { effect, .. }
        | EventKind::ModelFailed { effect, .. }
        | EventKind::ToolStarted { effect, .. }
        | EventKind::ToolFinished { effect, .. }
        | EventKind::FileChanged { effect, .. }
        | EventKind::WaitStarted { effect, .. }
        | EventKind::Woken { effect }
        | EventKind::ChildFinished { effect, .. }
        | EventKind::Delta { effect, .. }
        | EventKind::Progress { effect, .. } => Some(*effect),
        _ => None,
    }
}
