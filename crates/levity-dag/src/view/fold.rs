use std::sync::Arc;

use levity_core::{Ask, Delta, EffectId, Ending, Event, EventKind, RunId, Stats, Timestamp, Usage};

use super::text::one_line;
use super::{Activity, Items, Preparation, Stage, View};
use crate::notice::{Notice, StepStatus};
use crate::plan::Plan;
use crate::step::StepId;

/// Whose an effect of the run is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    Profiling,
    Planning,
    Step(StepId),
}

/// How many characters of a tool's name or report are kept.
const SHORT: usize = 80;
/// How many questions are kept for a step.
const MOST_ASKS: usize = 100;

impl View {
    /// Takes in an event of the run, or of a run below it.
    pub fn apply(&mut self, event: &Event) {
        self.fold(event, Notice::of(&event.kind).as_ref());
    }

    /// Takes in an event whose notice has been read already.
    pub(crate) fn fold(&mut self, event: &Event, notice: Option<&Notice>) {
        let Some(effect) = self.place(&event.run) else { return };
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

    /// Where a run stands: `None` for another's, `Some(None)` for the run itself, `Some(effect)` for a run below it that
    /// this effect of the run began.
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
                self.stage = Stage::Ended;
                self.asks.clear();
                self.owners.clear();
                self.note(event.at, None, &ending.status.to_string());
                self.ending = Some(Arc::new((**ending).clone()));
            }
            kind => match effect_of(kind).and_then(|effect| self.owners.get(&effect.get()).cloned()) {
                Some(owner) => self.work(event, &owner),
                None => self.remark(event),
            },
        }
        if let EventKind::ChildFinished { effect, .. } | EventKind::ToolFinished { effect, .. } = &event.kind
        {
            self.owners.remove(&effect.get());
        }
    }

    fn remark(&mut self, event: &Event) {
        let text = match &event.kind {
            EventKind::Paused => "paused".to_owned(),
            EventKind::Resumed => "goes on".to_owned(),
            EventKind::LimitLow(limit) => format!("little is left of the limit on {limit}"),
            EventKind::LimitNear(limit) => format!("the limit on {limit} is near"),
            EventKind::LimitPassed(limit) => format!("the limit on {limit} was passed"),
            EventKind::Lagged { missed } => format!("{missed} events were missed"),
            EventKind::Said { message } => format!("told: {}", message.text()),
            _ => return,
        };
        self.note(event.at, None, &text);
    }

    /// A notice of the run.
    fn tell(&mut self, at: Timestamp, run: &RunId, notice: &Notice) {
        match notice {
            Notice::Profiling { effect } => {
                self.prepare(at, *effect, Owner::Profiling);
                self.stage = Stage::Profiling;
                self.note(at, None, "looks at the files");
            }
            Notice::Profiled { files } => {
                self.files.clone_from(files);
                self.stop_preparing(at);
            }
            Notice::Planning { effect, again, replan } => {
                self.prepare(at, *effect, Owner::Planning);
                self.stage = if *replan == 0 { Stage::Planning } else { Stage::Replanning };
                let again = if *again > 0 { " again" } else { "" };
                self.note(at, None, &format!("asks for a plan{again}"));
            }
            Notice::Approving { .. } => {
                self.stop_preparing(at);
                self.stage = Stage::Approving;
            }
            Notice::Rejected { faults } => {
                let first = faults.first().map_or("", String::as_str);
                self.note(at, None, &format!("the plan cannot be run: {first}"));
            }
            Notice::Planned { plan, edges } => {
                self.planned(at, plan, edges);
                self.note(at, None, &format!("a plan of {} steps", plan.steps.len()));
            }
            Notice::Replanning { why, .. } => {
                self.stage = Stage::Replanning;
                self.note(at, None, &format!("looks for another way: {why}"));
            }
            Notice::Replanned { replan, diff, plan, edges } => {
                self.replans = *replan;
                self.planned(at, plan, edges);
                self.note(at, None, &format!("the plan was changed: {}", diff.reason));
            }
            Notice::GaveUp { why } => {
                self.stop_preparing(at);
                self.stage = Stage::Running;
                self.gave_up = Some(why.clone());
                self.note(at, None, &format!("no other way: {why}"));
            }
            step => self.tell_step(at, run, step),
        }
    }

    fn planned(&mut self, at: Timestamp, plan: &Arc<Plan>, edges: &[(StepId, StepId)]) {
        self.stop_preparing(at);
        self.stage = Stage::Running;
        self.asks.clear();
        let places: std::collections::HashMap<&StepId, u32> =
            plan.steps.iter().zip(0..).map(|(step, at)| (&step.id, at)).collect();
        let place = |(from, to): &(StepId, StepId)| Some((*places.get(to)?, *places.get(from)?));
        let mut known: Vec<(u32, u32)> = edges.iter().filter_map(place).collect();
        known.sort_unstable();
        known.dedup();
        self.set_plan(plan.clone(), known.into_iter().map(|(to, from)| (from, to)).collect());
    }

    /// A notice about a step.
    fn tell_step(&mut self, at: Timestamp, run: &RunId, notice: &Notice) {
        match notice {
            Notice::StepStarted { step, effect, attempt, round, item } => {
                self.owners.insert(effect.get(), Owner::Step(step.clone()));
                self.begin(at, step, *attempt, *round, *item);
            }
            Notice::FannedOut { step, items } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    view.items = Some(Items { of: *items, ..Items::default() });
                }
                self.note(at, Some(step), &format!("runs for {items} items"));
            }
            Notice::StepAsked { step, effect } => {
                self.owners.insert(effect.get(), Owner::Step(step.clone()));
                // The question may have been told already; then it is the step's from now on.
                if let Some(place) = self.asks.iter().position(|ask| ask.effect == *effect && ask.run == *run)
                {
                    let ask = self.asks.remove(place);
                    self.step_asks(at, step, &ask);
                }
            }
            Notice::ItemFinished { step, item, error } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    let items = view.items.get_or_insert_default();
                    items.done = items.done.saturating_add(1);
                    items.failed = items.failed.saturating_add(u32::from(error.is_some()));
                    items.of = items.of.max(items.done);
                }
                if let Some(error) = error {
                    self.note(at, Some(step), &format!("item {item} failed: {error}"));
                }
            }
            Notice::StepRetried { step, attempt, error } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    view.status = StepStatus::Waiting;
                    view.activity = Activity::Waits;
                    view.error = Some(error.clone());
                }
                self.note(at, Some(step), &format!("attempt {attempt} failed: {error}"));
            }
            Notice::Verdict { step, passed: true, .. } => self.note(at, Some(step), "accepts the work"),
            Notice::Verdict { step, issues, .. } => {
                let first = issues.first().map_or("", String::as_str);
                self.note(at, Some(step), &format!("sends the work back: {first}"));
            }
            settled => self.settle(at, settled),
        }
    }

    fn begin(&mut self, at: Timestamp, step: &StepId, attempt: u32, round: u32, item: Option<u32>) {
        let Some(view) = self.step_mut(step.as_str()) else { return };
        let anew = view.attempt != attempt || view.round != round;
        if view.asks.is_empty() {
            view.status = StepStatus::Running;
        }
        view.activity = Activity::None;
        view.started.get_or_insert(at);
        view.ended = None;
        (view.attempt, view.round) = (attempt, round);
        view.spent.attempts = view.spent.attempts.max(attempt);
        if item.is_some() {
            view.items.get_or_insert_default();
        }
        // The items of a list are counted; a line for each would push everything else out.
        if anew {
            let text = match (attempt, round) {
                (0 | 1, 0 | 1) => "begins".to_owned(),
                (attempt, 0 | 1) => format!("begins, attempt {attempt}"),
                (_, round) => format!("goes on, round {round}"),
            };
            self.note(at, Some(step), &text);
        }
    }

    fn settle(&mut self, at: Timestamp, notice: &Notice) {
        let (step, status, error, spent, text) = match notice {
            Notice::StepCompleted { step, spent, .. } => {
                (step, StepStatus::Completed, None, Some(spent), "is done".to_owned())
            }
            Notice::StepFailed { step, error, spent } => {
                (step, StepStatus::Failed, Some(error), Some(spent), format!("failed: {error}"))
            }
            Notice::StepSkipped { step, why } => {
                (step, StepStatus::Skipped, Some(why), None, format!("is skipped: {why}"))
            }
            _ => return,
        };
        if let Some(view) = self.step_mut(step.as_str()) {
            view.status = status;
            view.error = error.cloned();
            view.spent = spent.copied().unwrap_or(view.spent);
            view.ended = Some(at);
            view.activity = Activity::None;
            view.asks.clear();
        }
        self.note(at, Some(step), &text);
    }

    /// Something that happened in the work on a step, on a plan or on files.
    fn work(&mut self, event: &Event, owner: &Owner) {
        match &event.kind {
            EventKind::ModelFinished { usage, .. } => {
                self.spend(owner, *usage, |stats| stats.model_calls += 1);
            }
            EventKind::TurnStarted { .. } => self.spend(owner, Usage::default(), |stats| stats.turns += 1),
            EventKind::ToolFinished { result, .. } => {
                let failed = result.error.is_some();
                self.spend(owner, Usage::default(), |stats| {
                    stats.tool_calls += 1;
                    stats.failed_calls += u64::from(failed);
                });
                if failed {
                    self.note_of(event.at, owner, &format!("{} failed", result.name));
                }
            }
            EventKind::ToolStarted { call, .. } => {
                self.note_of(event.at, owner, &format!("calls {}", call.name));
            }
            EventKind::ModelFailed { error, .. } => {
                self.note_of(event.at, owner, &format!("the model failed: {error}"));
            }
            EventKind::Asked(ask) => match owner {
                Owner::Step(step) => self.step_asks(event.at, step, ask),
                _ => keep(&mut self.asks, ask),
            },
            EventKind::Decided { effect, .. } => self.decided(event.at, &event.run, *effect),
            EventKind::ChildFinished { ending, .. } if self.root.as_ref() == Some(&event.run) => {
                self.prepared(owner, ending);
            }
            _ => {}
        }
        if let Owner::Step(step) = owner {
            self.act(step, &event.kind);
        }
    }

    /// What the step does now. Pieces of a reply come by the thousand, so nothing is made anew for them.
    fn act(&mut self, step: &StepId, kind: &EventKind) {
        let Some(view) = self.step_mut(step.as_str()) else { return };
        if view.status.is_settled() || view.status == StepStatus::Waiting {
            return;
        }
        view.activity = match kind {
            EventKind::ModelStarted { .. } | EventKind::Delta { delta: Delta::Thinking(_), .. } => {
                Activity::Thinks
            }
            EventKind::Delta { delta: Delta::Text(_), .. } => Activity::Writes,
            EventKind::Delta { delta: Delta::Waiting { .. }, .. } | EventKind::WaitStarted { .. } => {
                Activity::Waits
            }
            EventKind::ToolStarted { call, .. } => Activity::Calls(one_line(&call.name, SHORT).into()),
            EventKind::Progress { text, .. } => Activity::Reports(one_line(text, SHORT).into()),
            EventKind::ToolFinished { .. } | EventKind::ModelFinished { .. } | EventKind::Woken { .. } => {
                Activity::None
            }
            _ => return,
        };
    }

    fn spend(&mut self, owner: &Owner, more: Usage, count: impl FnOnce(&mut Stats)) {
        let (usage, stats) = match owner {
            Owner::Profiling => (&mut self.profiling.usage, &mut self.profiling.stats),
            Owner::Planning => (&mut self.planning.usage, &mut self.planning.stats),
            Owner::Step(step) => match self.step_mut(step.as_str()) {
                Some(view) if !view.status.is_settled() => (&mut view.spent.usage, &mut view.spent.stats),
                _ => return,
            },
        };
        *usage += more;
        let mut one = Stats::default();
        count(&mut one);
        super::add(stats, one);
    }

    fn note_of(&mut self, at: Timestamp, owner: &Owner, text: &str) {
        let step = match owner {
            Owner::Step(step) => Some(step),
            _ => None,
        };
        self.note(at, step, text);
    }

    /// The run itself asks.
    fn asked(&mut self, at: Timestamp, ask: &Ask) {
        match self.owners.get(&ask.effect.get()).cloned() {
            Some(Owner::Step(step)) => self.step_asks(at, &step, ask),
            _ => {
                if self.stage != Stage::Running {
                    self.stop_preparing(at);
                    self.stage = Stage::Approving;
                }
                self.note(at, None, &format!("asks: {}", ask.reason));
                keep(&mut self.asks, ask);
            }
        }
    }

    fn step_asks(&mut self, at: Timestamp, step: &StepId, ask: &Ask) {
        if let Some(view) = self.step_mut(step.as_str()) {
            view.status = StepStatus::Waiting;
            view.activity = Activity::Asks(one_line(&ask.reason, SHORT).into());
            keep(&mut view.asks, ask);
        }
        self.note(at, Some(step), &format!("asks: {}", ask.reason));
    }

    fn decided(&mut self, at: Timestamp, run: &RunId, effect: EffectId) {
        let others = |ask: &Ask| ask.effect != effect || ask.run != *run;
        self.asks.retain(others);
        if self.stage == Stage::Approving && self.asks.is_empty() {
            self.stage = if self.plan.is_some() { Stage::Running } else { Stage::Planning };
        }
        let waiting = self.steps.iter_mut().find(|view| view.asks.iter().any(|ask| !others(ask)));
        if let Some(view) = waiting {
            view.asks.retain(others);
            if view.asks.is_empty() {
                view.status = StepStatus::Running;
                view.activity = Activity::None;
            }
            let step = view.id.clone();
            self.note(at, Some(&step), "has its answer");
        }
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

    /// The whole of what it took to look at files or to plan, in place of what was told of it on the way.
    fn prepared(&mut self, owner: &Owner, ending: &Ending) {
        let preparation = match owner {
            Owner::Profiling => &mut self.profiling,
            Owner::Planning => &mut self.planning,
            Owner::Step(_) => return,
        };
        preparation.settled.0 += ending.usage;
        super::add(&mut preparation.settled.1, ending.stats);
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

fn keep(asks: &mut Vec<Ask>, ask: &Ask) {
    let known = asks.iter().any(|one| one.effect == ask.effect && one.run == ask.run);
    if !known && asks.len() < MOST_ASKS {
        asks.push(ask.clone());
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
