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

/// Has the workers of a swarm work together, by its pattern.
///
/// It is made by a [`Swarm`](crate::Swarm), which has the agents that do the work.
pub struct SwarmMachine {
    desk: Desk,
    play: Box<dyn Play>,
    begun: bool,
}

/// The key beside those of the start, in the state of a machine that has taken in an input.
const NOW: &str = "now";

/// The state of a run under way.
#[derive(Serialize, Deserialize)]
struct Progress {
    begun: bool,
    desk: Value,
    play: Value,
}

/// Reads the saved state of a pattern.
pub(crate) fn read_play<T: DeserializeOwned>(saved: &Value) -> Result<T, String> {
    T::deserialize(saved).map_err(|_| "its state is not one that this pattern can read".to_owned())
}

/// How the workers of a swarm work together: what a pattern decides. Each is a machine without its
/// own effects and endings: those are the desk's.
pub(crate) trait Play: Send + Sync {
    /// The run begins.
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput);
    /// A piece of work has ended.
    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput);
    /// The host has said something, or a limit is near; `desk` has it.
    fn stirred(&mut self, desk: &mut Desk, wants: &mut MachineOutput);
    /// The best that there is, when the run is ended now.
    fn so_far(&self, desk: &Desk) -> String;
    /// Returns its state.
    fn save(&self) -> Value;
    /// Takes over a saved state. `desk` has its own already.
    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String>;
    /// What a pattern has to show at the end beside reports and bus.
    fn shown(&self) -> Shown {
        Shown::default()
    }
}

/// What some patterns have to show at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) plan: Vec<crate::plan::Delegation>,
    /// The conversation, and who had it last.
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
            "it is a run of `{kind}`, and this one drives `{KIND}/{VERSION}`"
        ))
    }

    pub(crate) fn restore(rules: Arc<Rules>, state: &Value) -> Result<Self, String> {
        let start = Start::deserialize(state)
            .map_err(|_| "its state is not one that this swarm can read".to_owned())?;
        let own = rules.pattern.name();
        if start.pattern != own {
            return Err(format!(
                "it is a run of a `{}`, and this swarm is a `{own}`",
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
            .map_err(|_| "its state is not one that this swarm can read")?;
        self.desk = self.desk.resumed(&desk)?;
        self.play.restore(&play, &self.desk)?;
        if begun && self.desk.ending.is_none() && self.desk.busy() == 0 {
            return Err(
                "its state contradicts itself: it has not ended, and nobody works".to_owned(),
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

    /// Whether the state is that of a machine that has taken in nothing.
    fn is_new(&self) -> bool {
        let desk = &self.desk;
        !self.begun && desk.said.is_empty() && desk.near.is_none() && desk.ending.is_none()
    }

    /// What there is by now, as an ending.
    fn ending_now(&self, status: Status) -> Ending {
        self.desk.so_far(status, self.play.so_far(&self.desk))
    }

    fn stop(&mut self, status: Status) {
        let text = self.play.so_far(&self.desk);
        self.desk.end(status, text, None);
    }

    fn say(&mut self, text: &str, wants: &mut MachineOutput) {
        /// How many words of the host's are kept for those who begin later.
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

    /// What comes before the beginning is looked at when it begins.
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
