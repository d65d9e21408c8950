//! The status of a run, computed from its events.
//!
//! The same function folds live events and events of the journal, so both views agree. Events of
//! child runs change only what the run waits for; their usage is added when the parent reports
//! their end.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    Ask, EffectId, Ending, Event, EventKind, Message, Part, RunId, RunState, Stats, Timestamp,
    Usage, Waiting,
};

/// The status of a run, derived from its events.
///
/// ```
/// use levity_core::RunState;
/// use levity_loop::Agent;
/// use levity_serve::{NewRun, Runs};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
/// let run = runs.start(NewRun::new("Is it?"))?;
/// assert!(run.status().opened.is_none(), "the run is not in its journal yet");
/// run.outcome().await;
/// let status = run.status();
/// assert_eq!((status.state(), status.goal.as_str()), (RunState::Answered, "Is it?"));
/// # Ok(())
/// # }
/// ```
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
    /// The work of the run itself up to now. Once the run has ended, these are the totals of its
    /// ending; those of a team or a swarm include its child runs.
    pub stats: Stats,
    /// The usage of the run up to now. The usage of child runs is added when they end.
    pub usage: Usage,
    /// The ending of the run, if it has ended.
    pub ending: Option<Arc<Ending>>,
    /// The decisions and times that the run and its child runs wait for.
    waiting: Vec<(RunId, Waiting)>,
    /// The fingerprints of the pending questions.
    fingerprints: BTreeMap<(RunId, EffectId), String>,
}

/// A pending question, with the id that decides it: `RUN:EFFECT:FINGERPRINT`.
pub(crate) struct OpenAsk {
    pub(crate) id: String,
    pub(crate) ask: Ask,
}

impl RunStatus {
    /// Creates the status of a run that has no events yet.
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

    /// Returns a copy with at most this many bytes of the goal, without the text of the ending.
    pub(crate) fn brief(&self, goal: usize) -> Self {
        let mut end = goal.min(self.goal.len());
        while !self.goal.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            goal: self.goal[..end].to_owned(),
            opened: self.opened,
            updated: self.updated,
            paused: self.paused,
            stats: self.stats,
            usage: self.usage,
            ending: self.ending.clone(),
            waiting: self.waiting.clone(),
            fingerprints: self.fingerprints.clone(),
        }
    }

    /// Returns the state of the run.
    ///
    /// A paused run is open or waiting; see [`paused`](Self::paused).
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
            EventKind::Asked(ask) => {
                self.wait(event, ask.effect, None);
                // A question that is asked again after a restart keeps its fingerprint.
                let key = (event.run.clone(), ask.effect);
                let fingerprints = self.fingerprints.entry(key);
                fingerprints.or_insert_with(|| ask.fingerprint(event.at));
            }
            EventKind::WaitStarted { effect, until } => self.wait(event, *effect, Some(*until)),
            EventKind::Decided { effect, .. } | EventKind::Woken { effect } => {
                self.wake(event, *effect);
                self.fingerprints.remove(&(event.run.clone(), *effect));
            }
            EventKind::RunEnded(_) => {
                self.waiting.retain(|(run, _)| *run != event.run);
                self.fingerprints.retain(|(run, _), _| *run != event.run);
            }
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

    /// Returns questions with their ids. A question whose event is not known yet has no id, so it
    /// is left out.
    pub(crate) fn open_asks(&self, asks: Vec<Ask>) -> Vec<OpenAsk> {
        let open = |ask: Ask| {
            let (run, effect) = (&ask.run, ask.effect);
            let fingerprint = self.fingerprints.get(&(run.clone(), effect))?;
            let id = format!("{run}:{effect}:{fingerprint}");
            Some(OpenAsk { id, ask })
        };
        asks.into_iter().filter_map(open).collect()
    }

    /// Returns what the run and its child runs wait for.
    ///
    /// Each entry is a question for a person, or a time at which the run continues.
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
        self.fingerprints.clear();
        self.ending = Some(Arc::new(ending.clone()));
    }
}

fn reasons(message: &Message) -> bool {
    message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Thinking { .. }))
}
