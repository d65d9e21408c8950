//! The machine of a swarm: a shell around the machine of its pattern.
//!
//! The shell owns everything that all patterns share, in `SharedState`: effects in progress,
//! reports, the bus, usage and the ending. A pattern only decides. It receives finished work, and
//! requests more work through the shared state. So budgets, events and saved states are alike for
//! all patterns.

use std::fmt;
use std::sync::Arc;

use levity_core::{Ending, EventKind, Input, Machine, MachineKind, MachineOutput, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::names::USER;
use crate::pattern;
use crate::rules::{Rules, Start};
use crate::shared_state::{FinishedWork, SharedState, WorkKind};

const KIND: &str = "swarm";
const VERSION: u32 = 1;

/// The state machine of a swarm: it lets the workers cooperate in the swarm's pattern.
///
/// A [`Swarm`](crate::Swarm) creates it and holds the agents that do the work.
///
/// You need it only for an engine of your own; [`Swarm::run`](crate::Swarm::run) drives it
/// otherwise.
///
/// ```
/// use levity_core::{Effect, Input, Machine, MachineOutput};
/// use levity_loop::Agent;
/// use levity_swarm::{Router, Swarm};
/// use levity_test::ScriptedModel;
///
/// # fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new()).build()?;
/// let swarm = Swarm::builder(Router::keywords())
///     .agent("pilot", "Knows the tides.", pilot)
///     .build()?;
/// let mut machine = swarm.machine("When is the tide high?");
/// let mut out = MachineOutput::new();
/// machine.apply(Input::Begin { run: "r1".into(), wrap: None }, &mut out);
/// let Some((_, Effect::Child(child))) = out.effects.first() else { unreachable!() };
/// assert_eq!(&*child.agent, "pilot");
/// // The state is complete between any two inputs.
/// assert!(swarm.restore(&machine.save()).is_ok());
/// # Ok(())
/// # }
/// ```
pub struct SwarmMachine {
    shared: SharedState,
    pattern: Box<dyn PatternMachine>,
    begun: bool,
}

/// The key beside those of the start, in the state of a machine that has handled an input.
const NOW: &str = "now";

/// The saved progress of a run.
#[derive(Serialize, Deserialize)]
struct Progress {
    begun: bool,
    #[serde(rename = "desk")]
    shared: Value,
    #[serde(rename = "play")]
    pattern: Value,
}

/// Reads the saved state of a pattern.
pub(crate) fn read_pattern_state<T: DeserializeOwned>(saved: &Value) -> Result<T, String> {
    T::deserialize(saved).map_err(|_| "the saved state cannot be read by this pattern".to_owned())
}

/// The decisions of a pattern. Each pattern is a machine without effects and endings; those belong
/// to the shared state.
pub(crate) trait PatternMachine: Send + Sync {
    /// Starts the run with its first work.
    fn begin(&mut self, shared: &mut SharedState, out: &mut MachineOutput);
    /// Handles the end of a piece of work.
    fn work_finished(
        &mut self,
        kind: WorkKind,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    );
    /// Handles a message of the host or a near limit, which is already in the shared state.
    fn state_changed(&mut self, shared: &mut SharedState, out: &mut MachineOutput);
    /// Returns the best current answer, for a run that ends early.
    fn partial_answer(&self, shared: &SharedState) -> String;
    /// Returns the state to save.
    fn save(&self) -> Value;
    /// Restores a saved state. The shared state is already restored.
    fn restore(&mut self, saved: &Value, shared: &SharedState) -> Result<(), String>;
    /// Returns the pattern's results beside the reports and the bus.
    fn output(&self) -> PatternOutput {
        PatternOutput::default()
    }
}

/// The results of a pattern beside the reports and the bus.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternOutput {
    pub(crate) plan: Vec<crate::plan::Delegation>,
    /// The conversation, and its last holder.
    pub(crate) history: Vec<Arc<levity_core::Message>>,
    pub(crate) last: Option<Arc<str>>,
    pub(crate) board: Option<crate::board::Board>,
}

impl SwarmMachine {
    pub(crate) fn new(rules: Arc<Rules>, start: Start) -> Self {
        let pattern = pattern::create_machine(&rules, &start);
        Self {
            shared: SharedState::new(rules, start),
            pattern,
            begun: false,
        }
    }

    pub(crate) fn check_kind(kind: &MachineKind) -> Result<(), String> {
        if *kind == MachineKind::new(KIND, VERSION) {
            return Ok(());
        }
        Err(format!(
            "the run is of kind `{kind}`, but this swarm resumes `{KIND}/{VERSION}`"
        ))
    }

    pub(crate) fn restore(rules: Arc<Rules>, state: &Value) -> Result<Self, String> {
        let start = Start::deserialize(state)
            .map_err(|_| "the saved state cannot be read by this swarm".to_owned())?;
        let own = rules.pattern.name();
        if start.pattern != own {
            return Err(format!(
                "the run has the pattern `{}`, but this swarm has the pattern `{own}`",
                start.pattern
            ));
        }
        rules.pattern.check_state(&start)?;
        let machine = Self::new(rules, start);
        match state.get(NOW) {
            Some(now) => machine.resumed(now),
            None => Ok(machine),
        }
    }

    /// Resumes from a saved state.
    fn resumed(mut self, now: &Value) -> Result<Self, String> {
        let Progress {
            begun,
            shared,
            pattern,
        } = Progress::deserialize(now)
            .map_err(|_| "the saved state cannot be read by this swarm")?;
        self.shared = self.shared.resumed(&shared)?;
        self.pattern.restore(&pattern, &self.shared)?;
        if begun && self.shared.ending.is_none() && self.shared.busy() == 0 {
            return Err(
                "the saved state is inconsistent: the run has not ended, but no work is in \
                    progress"
                    .to_owned(),
            );
        }
        Ok(Self { begun, ..self })
    }

    pub(crate) fn shared(&self) -> &SharedState {
        &self.shared
    }

    pub(crate) fn output(&self) -> PatternOutput {
        self.pattern.output()
    }

    /// Returns `true` if the machine has not handled any input.
    fn is_new(&self) -> bool {
        let shared = &self.shared;
        !self.begun
            && shared.host_messages.is_empty()
            && shared.near_limit.is_none()
            && shared.ending.is_none()
    }

    /// Returns the current results as an ending.
    fn ending_now(&self, status: Status) -> Ending {
        self.shared
            .ending_with(status, self.pattern.partial_answer(&self.shared))
    }

    fn stop(&mut self, status: Status) {
        let text = self.pattern.partial_answer(&self.shared);
        self.shared.end(status, text, None);
    }

    fn say(&mut self, text: &str, out: &mut MachineOutput) {
        /// The maximum number of host messages stored for later tasks.
        const MAX_HOST_MESSAGES: usize = 100;
        let content: Arc<str> = text.into();
        self.shared.post(
            NewMessage::new(
                USER,
                Recipient::All,
                MessageKind::HostMessage,
                content.clone(),
            ),
            out,
        );
        if self.shared.host_messages.len() < MAX_HOST_MESSAGES {
            self.shared.host_messages.push(content);
        }
        self.notify_pattern(out);
    }

    /// Notifies the pattern of a change. A change before the start is handled at the start.
    fn notify_pattern(&mut self, out: &mut MachineOutput) {
        if self.begun {
            self.pattern.state_changed(&mut self.shared, out);
        }
    }
}

impl Machine for SwarmMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new(KIND, VERSION)
    }

    fn save(&self) -> Value {
        let mut state = serde_json::to_value(&*self.shared.start).unwrap_or_default();
        if let Some(fields) = state.as_object_mut().filter(|_| !self.is_new()) {
            let shared = serde_json::to_value(&self.shared).unwrap_or_default();
            let now = Progress {
                begun: self.begun,
                shared,
                pattern: self.pattern.save(),
            };
            fields.insert(
                NOW.to_owned(),
                serde_json::to_value(now).unwrap_or_default(),
            );
        }
        state
    }

    fn apply(&mut self, input: Input, out: &mut MachineOutput) {
        if self.shared.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } if !self.begun => {
                self.begun = true;
                self.shared.run = run;
                self.shared.near_limit = self.shared.near_limit.or(wrap);
                if out.is_watched() {
                    out.emit(EventKind::Goal {
                        text: self.shared.start.goal.clone(),
                    });
                }
                self.pattern.begin(&mut self.shared, out);
            }
            Input::Finished { effect, outcome } => {
                if let Some((kind, finished)) = self.shared.take(effect, outcome) {
                    self.pattern
                        .work_finished(kind, finished, &mut self.shared, out);
                }
            }
            Input::Say(message) => self.say(&message.text(), out),
            Input::FinishSoon(limit) | Input::Low(limit) => {
                self.shared.near_limit = self.shared.near_limit.or(Some(limit));
                self.notify_pattern(out);
            }
            Input::Stop(limit) => self.stop(Status::Partial(limit)),
            Input::Cancel { reason } => self.stop(Status::Cancelled { reason }),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.shared.ending.as_ref()
    }

    fn partial_ending(&self, status: Status) -> Ending {
        self.ending_now(status)
    }
}

impl fmt::Debug for SwarmMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmMachine")
            .field("run", &self.shared.run)
            .field("busy", &self.shared.busy())
            .field(
                "ending",
                &self.shared.ending.as_ref().map(|ending| &ending.status),
            )
            .finish_non_exhaustive()
    }
}
