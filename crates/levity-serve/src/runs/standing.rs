use std::sync::Arc;

use levity_core::{
    EffectId, Ending, Event, EventKind, Message, Part, RunId, RunState, Stats, Timestamp, Usage,
    Waiting,
};

/// How a run stands: what its events come to.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunStatus {
    /// What it is to do.
    pub goal: String,
    /// When it began; `None` before it is in its journal.
    pub opened: Option<Timestamp>,
    /// When the last thing happened in it.
    pub updated: Option<Timestamp>,
    /// Whether it begins nothing new until it is told to.
    pub paused: bool,
    /// What it did, as far as it has come; what runs below it did is added when they have ended.
    pub stats: Stats,
    /// What it used, likewise.
    pub usage: Usage,
    /// How it ended, if it has.
    pub ending: Option<Arc<Ending>>,
    /// The questions and times that it and those below it wait for.
    waiting: Vec<(RunId, Waiting)>,
}

impl RunStatus {
    pub(crate) fn of_goal(goal: &str) -> Self {
        Self {
            goal: goal.to_owned(),
            ..Self::default()
        }
    }

    /// What these events of a run come to.
    pub(crate) fn of(run: &RunId, events: &[Event]) -> Self {
        let mut standing = Self::default();
        events.iter().for_each(|event| standing.add(run, event));
        standing
    }

    /// Where the run stands.
    pub fn state(&self) -> RunState {
        match &self.ending {
            Some(ending) if ending.status.is_answer() => RunState::Answered,
            Some(_) => RunState::Failed,
            None if self.waiting.is_empty() => RunState::Open,
            None => RunState::Waiting,
        }
    }

    /// Takes in an event of the run, or of one below it.
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
        // One that is asked again after a restart is the same question.
        self.wake(event, effect);
        self.waiting
            .push((event.run.clone(), Waiting::new(effect, until)));
    }

    fn wake(&mut self, event: &Event, effect: EffectId) {
        self.waiting
            .retain(|(run, waiting)| *run != event.run || waiting.effect != effect);
    }

    /// What it and those below it wait for.
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

    /// What the run itself has counted is what counts.
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
