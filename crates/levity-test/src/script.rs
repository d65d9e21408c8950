use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Role, World};
use serde_json::Value;

use crate::tools::panic_as_planned;

mod json;
mod turn;

pub use json::ScriptError;
pub use turn::Turn;

/// A model that answers from a script, step by step, in the order in which it is called.
///
/// A call takes the next step when its future is first polled; a call too many is a
/// [`BadRequest`](ModelErrorKind::BadRequest) that says so. Clones share the script.
///
/// ```
/// use levity_core::{Message, Model, Request};
/// use levity_test::ScriptedModel;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 5})).reply("The sum is 7.");
///
/// let request = Request::new().with_message(Message::user("What is 2 + 5?"));
/// let first = model.complete(request.clone()).await?;
/// assert_eq!(first.message.calls().next().map(|call| call.name.as_str()), Some("add"));
/// assert_eq!(model.complete(request).await?.message.text(), "The sum is 7.");
///
/// assert_eq!(model.requests().len(), 2);
/// model.assert_finished();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ScriptedModel {
    card: Arc<ModelCard>,
    world: Option<Arc<dyn World>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    steps: VecDeque<Step>,
    endless: Option<Turn>,
    /// How many steps the script ever had, so that an error can say so.
    written: usize,
    /// How many calls of the model there were.
    asked: usize,
    /// How many ids were made up for tool calls.
    named: u64,
    forgets: bool,
    by_history: bool,
    requests: Vec<Request>,
}

#[derive(Clone)]
enum Step {
    Turn(Box<Turn>),
    Fail(ModelError),
    Hang,
    Panic(String),
}

impl ScriptedModel {
    /// An empty script.
    pub fn new() -> Self {
        Self {
            card: Arc::new(ModelCard::new("test", "scripted")),
            world: None,
            state: Arc::default(),
        }
    }

    /// Answers every call with this turn, once all other steps are used up.
    pub fn looping(turn: Turn) -> Self {
        let model = Self::new();
        model.state().endless = Some(turn);
        model
    }

    /// Adds a turn that says `text`.
    #[must_use]
    pub fn reply(self, text: impl Into<String>) -> Self {
        self.turn(Turn::new().text(text))
    }

    /// Adds a turn that calls one tool; its id is made up: `call_1`, `call_2`, …
    #[must_use]
    pub fn call(self, name: impl Into<String>, args: Value) -> Self {
        self.turn(Turn::new().call(name, args))
    }

    /// Adds a turn.
    #[must_use]
    pub fn turn(self, turn: Turn) -> Self {
        self.step(Step::Turn(Box::new(turn)))
    }

    /// Adds a failure of this kind.
    #[must_use]
    pub fn fail(self, kind: ModelErrorKind) -> Self {
        self.fail_with(ModelError::new(kind, "the script says so"))
    }

    /// Adds a failure.
    #[must_use]
    pub fn fail_with(self, error: ModelError) -> Self {
        self.step(Step::Fail(error))
    }

    /// Adds a call that is never answered.
    #[must_use]
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// Adds a call that panics, which no model may: for tests of what stands around it.
    #[must_use]
    pub fn panic(self, message: impl Into<String>) -> Self {
        self.step(Step::Panic(message.into()))
    }

    /// Sets the card; by default the provider is `test` and the id `scripted`.
    #[must_use]
    pub fn with_card(mut self, card: ModelCard) -> Self {
        self.card = Arc::new(card);
        self
    }

    /// Sets the clock that [`Turn::delay`] waits by.
    #[must_use]
    pub fn with_world(mut self, world: Arc<dyn World>) -> Self {
        self.world = Some(world);
        self
    }

    /// Keeps no requests. A kept request shares its history with the run, which must then copy the
    /// list of messages before its next change; a benchmark would measure that.
    #[must_use]
    pub fn without_recording(self) -> Self {
        self.state().forgets = true;
        self
    }

    /// Takes the step that the history asks for, and not the next one: the third, when the model
    /// has spoken twice in it. So a script that is made anew goes on with a run that was resumed.
    /// No step is used up.
    ///
    /// ```
    /// # use levity_core::{Message, Model, Request};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().reply("one").reply("two").by_history();
    /// let request = Request::new().with_message(Message::user("Count"));
    /// let request = request.with_message(Message::assistant("one")).with_message(Message::user("Go on"));
    /// assert_eq!(model.complete(request).await?.message.text(), "two");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by_history(self) -> Self {
        self.state().by_history = true;
        self
    }

    /// Reads a script from JSON: a list of steps.
    ///
    /// | step | meaning |
    /// |---|---|
    /// | `{"reply": "7"}` | says it |
    /// | `{"call": {"name": "add", "args": {"a": 2}}}` | calls one tool; `"id"` may be added |
    /// | `{"calls": [{..}, {..}], "text": "Let me see."}` | calls several; `"text"` may be left out |
    /// | `{"fail": "overloaded"}` | fails; any [`ModelErrorKind`], in snake case |
    /// | `{"hang": true}` | never answers |
    ///
    /// A step that answers may also have `"thinking"`, `"finish"` (as in
    /// [`Finish`](levity_core::Finish)) and `"usage"` (`{"input": 10, "output": 3}`).
    ///
    /// ```
    /// # use levity_test::ScriptedModel;
    /// let model = ScriptedModel::from_json(r#"[{"call": {"name": "now", "args": {}}}, {"reply": "Noon."}]"#)?;
    /// assert_eq!(model.remaining(), 2);
    /// # Ok::<(), levity_test::ScriptError>(())
    /// ```
    ///
    /// # Errors
    /// When the text is no JSON list, or a step cannot be understood; the error names the step.
    pub fn from_json(json: &str) -> Result<Self, ScriptError> {
        Ok(json::steps(json)?.into_iter().fold(Self::new(), Self::step))
    }

    /// The requests so far, as they came in.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// How many steps are left.
    pub fn remaining(&self) -> usize {
        self.state().steps.len()
    }

    /// Checks that the script is used up.
    ///
    /// # Panics
    /// When steps are left; the message lists them.
    #[track_caller]
    pub fn assert_finished(&self) {
        let state = self.state();
        let first = state.written - state.steps.len() + 1;
        let left: Vec<_> = (first..)
            .zip(&state.steps)
            .map(|(n, step)| format!("{n}: {step}"))
            .collect();
        // The panic below must not poison the script for the clones.
        drop(state);
        assert!(
            left.is_empty(),
            "the script has {} unused steps\n{}",
            left.len(),
            left.join("\n")
        );
    }

    fn step(self, step: Step) -> Self {
        let mut state = self.state();
        state.written += 1;
        state.steps.push_back(step);
        drop(state);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as the turn says, then tells it piece by piece.
    async fn tell(&self, asked: usize, turn: Turn) -> Result<Deltas, ModelError> {
        let bad = |message| ModelError::new(ModelErrorKind::BadRequest, message);
        match (turn.wait(), &self.world) {
            (None, _) => {}
            (Some(time), Some(world)) => world.sleep(time).await,
            (Some(_), None) => {
                return Err(bad(format!(
                    "step {asked} of the script has a delay and no clock; add one by \
                        `.with_world(..)`"
                )));
            }
        }
        let pieces = turn.pieces_named(&mut self.state().named);
        Ok(pieces.into_deltas())
    }
}

impl State {
    fn next(&mut self, request: &Request) -> Result<(usize, Step), ModelError> {
        self.asked += 1;
        if !self.forgets {
            self.requests.push(request.clone());
        }
        let next = if self.by_history {
            self.step_for(request)
        } else {
            self.steps.pop_front()
        };
        let step = next.or_else(|| self.endless.clone().map(|turn| Step::Turn(Box::new(turn))));
        let step = step.ok_or_else(|| {
            let message = format!(
                "call {} of the model, and the script has only {} steps",
                self.asked, self.written
            );
            ModelError::new(ModelErrorKind::BadRequest, message)
        })?;
        Ok((self.asked, step))
    }

    /// The step that the history asks for. Names for calls go on where the history's end.
    fn step_for(&mut self, request: &Request) -> Option<Step> {
        let messages = request.history.messages();
        self.named = messages
            .iter()
            .map(|message| message.calls().count() as u64)
            .sum();
        let spoken = messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        self.steps.get(spoken).cloned()
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (asked, step) = self.state().next(&request)?;
        match step {
            Step::Turn(turn) => {
                turn.meets(&request).map_err(|mismatch| {
                    let message =
                        format!("step {asked} of the script expects another request: {mismatch}");
                    ModelError::new(ModelErrorKind::BadRequest, message)
                })?;
                // A request kept over the wait would keep the run's history shared.
                drop(request);
                self.tell(asked, *turn).await
            }
            Step::Fail(error) => Err(error),
            Step::Hang => pending().await,
            Step::Panic(message) => panic_as_planned(&message),
        }
    }
}

impl Default for ScriptedModel {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel")
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(turn) => turn.fmt(f),
            Self::Fail(error) => write!(f, "fails: {:?}", error.kind()),
            Self::Hang => f.write_str("hangs"),
            Self::Panic(message) => write!(f, "panics: {message:?}"),
        }
    }
}
