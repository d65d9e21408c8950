use std::sync::Arc;

use levity_core::{
    EffectId, Ending, Event, EventKind, Message, Part, RunId, RunState, Stats, Timestamp, Usage,
    Waiting,
};

/// The status of a run, derived from its events.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunStatus {
    /// The goal of the run.
    pub goal: String,
    /// The time at which the run started; `None` before it is in its journal.
    pub opened: Option<Timestamp>,
    /// The time of the latest event.
    pub updated: Option<Timestamp>,
    /// `true` if the run is paused and starts nothing new until it is resumed.
    pub paused: bool,
    /// The work of the run up to now. The work of child runs is added when they end.
    pub stats: Stats,
    /// The usage of the run up to now. The usage of child runs is added when they end.
    pub usage: Usage,
    /// The ending of the run, if it has ended.
    pub ending: Option<Arc<Ending>>,
    /// The decisions and times that the run and its child runs wait for.
    waiting: Vec<(RunId, Waiting)>,
}

impl RunStatus {
    pub(crate) fn of_goal(goal: &str) -> Self {
        Self {
            goal: goal.to_owned(),
            ..Self::default()
        }
    }

    /// Derives the status from the events of a run.
    pub(crate) fn of(run: &RunId, events: &[Event]) -> Self {
        let mut standing = Self::default();
        events.iter().for_each(|event| standing.add(run, event));
        standing
    }

    /// Returns the state of the run.
    pub fn state(&self) -> RunState {
        match &self.ending {
            Some(ending) if ending.status.is_answer() => RunState::Answered,
            Some(_) => RunState::Failed,
            None if self.waiting.is_empty() => RunState::Open,
            None => RunState::Waiting,
        }
    }

    /// Applies an event of the run or of a child run.
    pub(crate) fn add(&mut self, run: &RunId, event: &Event) {
        self.updated = Some(event.at);
        match &event.kind {
            EventKind::Asked(ask) => self.wait(event, ask.effect, None),
            EventKind::WaitStarted { effect, until } => self.wait(event, *effect, Some(*until)),
            EventKind::Decided { effect, .. } | EventKind::Woken { effect } => {
                self.wake(event, *effect);
            }
            EventKind::RunEnded(_) => self.waiting.retain(|(run, _)| *run != event.run),
            _ => {}
        }
        if event.run == *run {
            self.add_own(event);
        }
    }

    fn wait(&mut self, event: &Event, effect: EffectId, until: Option<Timestamp>) {
        // A question that is asked again after a restart is the same question.
        self.wake(event, effect);
        self.waiting
            .push((event.run.clone(), Waiting::new(effect, until)));
    }

    fn wake(&mut self, event: &Event, effect: EffectId) {
        self.waiting
            .retain(|(run, waiting)| *run != event.run || waiting.effect != effect);
    }

    /// Returns what the run and its child runs wait for.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.waiting.iter().map(|(_, waiting)| *waiting).collect()
    }

    fn add_own(&mut self, event: &Event) {
        self.opened.get_or_insert(event.at);
        let stats = &mut self.stats;
        match &event.kind {
            EventKind::Goal { text } => self.goal.clone_from(text),
            EventKind::TurnStarted { turn, .. } => stats.turns = *turn,
            EventKind::ModelStarted { .. } => stats.model_calls += 1,
            EventKind::ModelFinished { message, usage, .. } => {
                stats.reasoning_steps += u64::from(reasons(message));
                self.usage += *usage;
            }
            EventKind::ToolStarted { .. } => stats.tool_calls += 1,
            EventKind::ToolFinished { result, .. } => {
                stats.failed_calls += u64::from(result.is_error());
            }
            EventKind::ChildFinished { ending, .. } => self.usage += ending.usage,
            EventKind::Paused => self.paused = true,
            EventKind::Resumed => self.paused = false,
            EventKind::RunEnded(ending) => self.end(ending),
            _ => {}
        }
    }

    /// The totals of the ending replace those counted from events.
    fn end(&mut self, ending: &Ending) {
        (self.stats, self.usage) = (ending.stats, ending.usage);
        self.paused = false;
        self.waiting.clear();
        self.ending = Some(Arc::new(ending.clone()));
    }
}

fn reasons(message: &Message) -> bool {
    message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Thinking { .. }))
}
