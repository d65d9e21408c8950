//! The scripted model: a queue of steps that replaces a provider in tests.
//!
//! The script lives behind one mutex that all clones share, and the lock is never held across an
//! `await`. A step leaves the queue when the call is polled first, so a call that is dropped
//! unpolled uses no step: the contract of `Model` demands that. `json` reads scripts from text, for
//! programs that get theirs from a file; `turn` holds one reply.

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

/// A model that answers from a script, step by step, in the order of its calls.
///
/// A call takes the next step when its future is first polled. A call beyond the last step is a
/// [`BadRequest`](ModelErrorKind::BadRequest) that states so. Clones share the script.
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

/// The mutable part of a script, shared by all clones of its model.
///
/// `steps` shrinks call by call, except in the mode `by_history`, in which steps are only copied.
/// `endless` answers when `steps` has nothing for a call.
#[derive(Default)]
struct State {
    steps: VecDeque<Step>,
    endless: Option<Turn>,
    /// The total number of steps of the script, for error messages.
    written: usize,
    /// The number of calls of the model.
    asked: usize,
    /// The number of generated ids for tool calls.
    named: u64,
    /// Set by `without_recording`: requests are not stored.
    forgets: bool,
    /// Set by `by_history`: the number of replies in the request selects the step.
    by_history: bool,
    requests: Vec<Request>,
}

/// One entry of a script: the reaction of the model to one call.
#[derive(Clone)]
enum Step {
    Turn(Box<Turn>),
    Fail(ModelError),
    Hang,
    Panic(String),
}

impl ScriptedModel {
    /// Creates an empty script.
    pub fn new() -> Self {
        Self {
            card: Arc::new(ModelCard::new("test", "scripted")),
            world: None,
            state: Arc::default(),
        }
    }

    /// Creates a script that answers every call with this turn, once all other steps are used.
    ///
    /// Use it for tests of limits, in which a model must not run out of replies.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::looping(Turn::new().text("Still working.")).reply("First.");
    /// assert_eq!(model.complete(Request::new()).await?.message.text(), "First.");
    /// for _ in 0..3 {
    ///     assert_eq!(model.complete(Request::new()).await?.message.text(), "Still working.");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn looping(turn: Turn) -> Self {
        let model = Self::new();
        model.state().endless = Some(turn);
        model
    }

    /// Adds a turn that replies with `text`.
    #[must_use]
    pub fn reply(self, text: impl Into<String>) -> Self {
        self.turn(Turn::new().text(text))
    }

    /// Adds a turn that calls one tool, with a generated id: `call_1`, `call_2`, …
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_test::ScriptedModel;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().call("read", json!({"path": "a.txt"}));
    /// let reply = model.complete(Request::new()).await?;
    /// let call = reply.message.calls().next().expect("one call");
    /// assert_eq!((call.id.as_str(), call.name.as_str()), ("call_1", "read"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn call(self, name: impl Into<String>, args: Value) -> Self {
        self.turn(Turn::new().call(name, args))
    }

    /// Adds a turn to the script.
    #[must_use]
    pub fn turn(self, turn: Turn) -> Self {
        self.step(Step::Turn(Box::new(turn)))
    }

    /// Adds a failure of this kind.
    ///
    /// The message of the error is `the script says so`. Use it to test retries and fallbacks.
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().fail(ModelErrorKind::Overloaded).reply("Now it works.");
    /// let error = model.complete(Request::new()).await.unwrap_err();
    /// assert!(error.kind().is_retryable());
    /// assert_eq!(model.complete(Request::new()).await?.message.text(), "Now it works.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fail(self, kind: ModelErrorKind) -> Self {
        self.fail_with(ModelError::new(kind, "the script says so"))
    }

    /// Adds a failure with this error.
    #[must_use]
    pub fn fail_with(self, error: ModelError) -> Self {
        self.step(Step::Fail(error))
    }

    /// Adds a call that is never answered.
    ///
    /// Combine it with a manual clock to test timeouts without waiting:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_core::{Model, Request, World};
    /// use levity_test::{ManualWorld, ScriptedModel};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (model, world) = (ScriptedModel::new().hang(), ManualWorld::auto());
    /// tokio::select! {
    ///     _ = model.complete(Request::new()) => unreachable!("it never answers"),
    ///     () = world.sleep(Duration::from_secs(60)) => {}
    /// }
    /// assert_eq!(world.now().since(ManualWorld::START), Duration::from_secs(60));
    /// # }
    /// ```
    #[must_use]
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// Adds a call that panics, which no model may do: for tests of the code around it.
    ///
    /// The panic happens in the future of the call, when it is polled first.
    #[must_use]
    pub fn panic(self, message: impl Into<String>) -> Self {
        self.step(Step::Panic(message.into()))
    }

    /// Sets the card; by default the provider is `test` and the id `scripted`.
    ///
    /// The card decides which abilities, prices and context window the rest of levity assumes.
    ///
    /// ```
    /// use levity_core::{Model, ModelCard};
    /// use levity_test::ScriptedModel;
    ///
    /// let card = ModelCard::new("acme", "small").with_window(8_000);
    /// let model = ScriptedModel::new().with_card(card);
    /// assert_eq!((model.card().provider.as_str(), model.card().id.as_str()), ("acme", "small"));
    /// ```
    #[must_use]
    pub fn with_card(mut self, card: ModelCard) -> Self {
        self.card = Arc::new(card);
        self
    }

    /// Sets the clock for [`Turn::delay`].
    ///
    /// Without one, a turn with a delay fails with a [`BadRequest`](ModelErrorKind::BadRequest),
    /// because the model has no other source of time.
    #[must_use]
    pub fn with_world(mut self, world: Arc<dyn World>) -> Self {
        self.world = Some(world);
        self
    }

    /// Disables the recording of requests. A recorded request shares its history with the run,
    /// which must then copy the list of messages before its next change; a benchmark would measure
    /// that.
    #[must_use]
    pub fn without_recording(self) -> Self {
        self.state().forgets = true;
        self
    }

    /// Selects the step by the history instead of the next one: the third, if the model has replied
    /// twice in it.
    ///
    /// So a new script continues a resumed run. No step is used up.
    ///
    /// ```
    /// # use levity_core::{Message, Model, Request};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().reply("one").reply("two").by_history();
    /// let request = Request::new().with_message(Message::user("Count"));
    /// let request = request.with_message(Message::assistant("one"));
    /// let request = request.with_message(Message::user("Continue"));
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
    /// | `{"reply": "7"}` | replies with it |
    /// | `{"call": {"name": "add", "args": {"a": 2}}}` | calls one tool; `"id"` may be added |
    /// | `{"calls": [{..}, {..}], "text": "So."}` | calls several; `"text"` may be left out |
    /// | `{"fail": "overloaded"}` | fails; any [`ModelErrorKind`], in snake case |
    /// | `{"hang": true}` | never answers |
    ///
    /// A step that answers may also have `"thinking"`, `"finish"` (as in
    /// [`Finish`](levity_core::Finish)) and `"usage"` (`{"input": 10, "output": 3}`).
    ///
    /// ```
    /// # use levity_test::ScriptedModel;
    /// let json = r#"[{"call": {"name": "now", "args": {}}}, {"reply": "Noon."}]"#;
    /// let model = ScriptedModel::from_json(json)?;
    /// assert_eq!(model.remaining(), 2);
    /// # Ok::<(), levity_test::ScriptError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the text is not a JSON list, or a step is invalid; the error names the
    /// step.
    pub fn from_json(json: &str) -> Result<Self, ScriptError> {
        Ok(json::steps(json)?.into_iter().fold(Self::new(), Self::step))
    }

    /// Returns the requests up to now, in order.
    ///
    /// A call is recorded when it takes its step, also if it fails, hangs or runs beyond the
    /// script.
    ///
    /// ```
    /// use levity_core::{Message, Model, Request};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().reply("Hello!");
    /// model.complete(Request::new().with_message(Message::user("Hi"))).await?;
    /// assert_eq!(model.requests()[0].history.messages()[0].text(), "Hi");
    /// # Ok(())
    /// # }
    /// ```
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// Returns the number of remaining steps.
    ///
    /// The number does not shrink with [`by_history`](Self::by_history), which uses no steps up.
    pub fn remaining(&self) -> usize {
        self.state().steps.len()
    }

    /// Checks that all steps are used.
    ///
    /// A script that is read [by history](Self::by_history) is never used up, so this check fails
    /// for it.
    ///
    /// # Panics
    /// Panics if steps remain; the message lists them.
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

    /// Waits for the delay of the turn, then streams it piece by piece.
    async fn tell(&self, asked: usize, turn: Turn) -> Result<Deltas, ModelError> {
        let bad = |message| ModelError::new(ModelErrorKind::BadRequest, message);
        match (turn.wait(), &self.world) {
            (None, _) => {}
            (Some(time), Some(world)) => world.sleep(time).await,
            (Some(_), None) => {
                return Err(bad(format!(
                    "step {asked} of the script has a delay but no clock; add one with \
                        `.with_world(..)`"
                )));
            }
        }
        let pieces = turn.pieces_named(&mut self.state().named);
        Ok(pieces.into_deltas())
    }
}

impl State {
    /// Selects the reaction to a request, and counts and records the call.
    ///
    /// Returns the number of the call, from 1, for messages about its step.
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
                "call {} of the model has no step: the script has only {} steps; add one",
                self.asked, self.written
            );
            ModelError::new(ModelErrorKind::BadRequest, message)
        })?;
        Ok((self.asked, step))
    }

    /// Returns the step that the history selects. Generated call ids continue those of the history.
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
                // A request held during the wait would keep the run's history shared.
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
