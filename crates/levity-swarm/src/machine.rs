use std::fmt;
use std::sync::Arc;

use levity_core::{Ending, EventKind, Input, Machine, MachineKind, MachineOutput, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::desk::{Came, Desk, Duty};
use crate::names::USER;
use crate::pattern;
use crate::rules::{Rules, Start};

const KIND: &str = "swarm";
const VERSION: u32 = 1;

/// The state machine of a swarm: it lets the workers cooperate in the swarm's pattern.
///
/// A [`Swarm`](crate::Swarm) creates it and holds the agents that do the work.
pub struct SwarmMachine {
    desk: Desk,
    play: Box<dyn Play>,
    begun: bool,
}

/// The key beside those of the start, in the state of a machine that has handled an input.
const NOW: &str = "now";

/// The saved progress of a run.
#[derive(Serialize, Deserialize)]
struct Progress {
    begun: bool,
    desk: Value,
    play: Value,
}

/// Reads the saved state of a pattern.
pub(crate) fn read_play<T: DeserializeOwned>(saved: &Value) -> Result<T, String> {
    T::deserialize(saved).map_err(|_| "the saved state cannot be read by this pattern".to_owned())
}

/// The decisions of a pattern. Each pattern is a machine without effects and endings; those belong
/// to the shared state.
pub(crate) trait Play: Send + Sync {
    /// Starts the run.
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput);
    /// Handles the end of a piece of work.
    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput);
    /// Handles a message of the host or a near limit, which is already in the shared state.
    fn stirred(&mut self, desk: &mut Desk, wants: &mut MachineOutput);
    /// Returns the best current answer, for a run that ends early.
    fn so_far(&self, desk: &Desk) -> String;
    /// Returns the state to save.
    fn save(&self) -> Value;
    /// Restores a saved state. The shared state is already restored.
    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String>;
    /// Returns the pattern's results beside the reports and the bus.
    fn shown(&self) -> Shown {
        Shown::default()
    }
}

/// The results of a pattern beside the reports and the bus.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) plan: Vec<crate::plan::Delegation>,
    /// The conversation, and its last holder.
    pub(crate) history: Vec<Arc<levity_core::Message>>,
    pub(crate) last: Option<Arc<str>>,
    pub(crate) board: Option<crate::board::Board>,
}

impl SwarmMachine {
    pub(crate) fn new(rules: Arc<Rules>, start: Start) -> Self {
        let play = pattern::play(&rules, &start);
        Self {
            desk: Desk::new(rules, start),
            play,
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
        let Progress { begun, desk, play } = Progress::deserialize(now)
            .map_err(|_| "the saved state cannot be read by this swarm")?;
        self.desk = self.desk.resumed(&desk)?;
        self.play.restore(&play, &self.desk)?;
        if begun && self.desk.ending.is_none() && self.desk.busy() == 0 {
            return Err(
                "the saved state is inconsistent: the run has not ended, but no work is in \
                    progress"
                    .to_owned(),
            );
        }
        Ok(Self { begun, ..self })
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(crate) fn shown(&self) -> Shown {
        self.play.shown()
    }

    /// Returns `true` if the machine has not handled any input.
    fn is_new(&self) -> bool {
        let desk = &self.desk;
        !self.begun && desk.said.is_empty() && desk.near.is_none() && desk.ending.is_none()
    }

    /// Returns the current results as an ending.
    fn ending_now(&self, status: Status) -> Ending {
        self.desk.so_far(status, self.play.so_far(&self.desk))
    }

    fn stop(&mut self, status: Status) {
        let text = self.play.so_far(&self.desk);
        self.desk.end(status, text, None);
    }

    fn say(&mut self, text: &str, wants: &mut MachineOutput) {
        /// The maximum number of host messages stored for later tasks.
        const MOST_SAID: usize = 100;
        let content: Arc<str> = text.into();
        self.desk.post(
            NewMessage::new(
                USER,
                Recipient::Everybody,
                MessageKind::Said,
                content.clone(),
            ),
            wants,
        );
        if self.desk.said.len() < MOST_SAID {
            self.desk.said.push(content);
        }
        self.stir(wants);
    }

    /// Notifies the pattern of a change. A change before the start is handled at the start.
    fn stir(&mut self, wants: &mut MachineOutput) {
        if self.begun {
            self.play.stirred(&mut self.desk, wants);
        }
    }
}

impl Machine for SwarmMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new(KIND, VERSION)
    }

    fn save(&self) -> Value {
        let mut state = serde_json::to_value(&*self.desk.start).unwrap_or_default();
        if let Some(fields) = state.as_object_mut().filter(|_| !self.is_new()) {
            let desk = serde_json::to_value(&self.desk).unwrap_or_default();
            let now = Progress {
                begun: self.begun,
                desk,
                play: self.play.save(),
            };
            fields.insert(
                NOW.to_owned(),
                serde_json::to_value(now).unwrap_or_default(),
            );
        }
        state
    }

    fn apply(&mut self, input: Input, wants: &mut MachineOutput) {
        if self.desk.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } if !self.begun => {
                self.begun = true;
                self.desk.run = run;
                self.desk.near = self.desk.near.or(wrap);
                if wants.is_watched() {
                    wants.tell(EventKind::Goal {
                        text: self.desk.start.goal.clone(),
                    });
                }
                self.play.begin(&mut self.desk, wants);
            }
            Input::Finished { effect, outcome } => {
                if let Some((duty, came)) = self.desk.take(effect, outcome) {
                    self.play.came(duty, came, &mut self.desk, wants);
                }
            }
            Input::Say(message) => self.say(&message.text(), wants),
            Input::Wrap(limit) | Input::Low(limit) => {
                self.desk.near = self.desk.near.or(Some(limit));
                self.stir(wants);
            }
            Input::Stop(limit) => self.stop(Status::Partial(limit)),
            Input::Cancel { reason } => self.stop(Status::Cancelled { reason }),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.desk.ending.as_ref()
    }

    fn so_far(&self, status: Status) -> Ending {
        self.ending_now(status)
    }
}

impl fmt::Debug for SwarmMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmMachine")
            .field("run", &self.desk.run)
            .field("busy", &self.desk.busy())
            .field(
                "ending",
                &self.desk.ending.as_ref().map(|ending| &ending.status),
            )
            .finish_non_exhaustive()
    }
}
