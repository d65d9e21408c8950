//! The trait between kinds of runs (agents, teams, swarms) and the runtime.
//!
//! A kind of run implements [`Runnable`] once and gets starting, resuming, forking, handles,
//! observers, typed answers and conversations from this crate.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    ConversationId, Error, Executor, History, Lease, Limits, Machine, MachineKind, Message,
    SharedError, StoppedRun,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::observe::Observe;
use crate::runtime::Runtime;

/// Anything that a runtime can run: an agent, a team, a swarm, your own machine.
///
/// Implementations get [`Run`](crate::Run), which starts, resumes and forks runs, and
/// [`RunHandle`](crate::RunHandle), which controls them.
///
/// ```
/// # use std::sync::Arc;
/// # use async_trait::async_trait;
/// # use levity_core::{
/// #     Child, ChildRun, Effect, EffectCx, Ending, Eventual, Executor, Input, Limits, Machine,
/// #     MachineKind, Outcome, PrepareCx, Prepared,
/// #     Status, MachineOutput, ToolError,
/// # };
/// # use serde_json::{Value, json};
/// use levity_core::{Error, StoppedRun};
/// use levity_runtime::{MachineStart, Run, Runnable, Runtime};
///
/// /// Returns its goal as the answer.
/// #[derive(Clone)]
/// struct Echo(Runtime);
///
/// struct EchoMachine(String, Option<Ending>);
/// # impl Machine for EchoMachine {
/// #     fn kind(&self) -> MachineKind {
/// #         MachineKind::new("echo", 1)
/// #     }
/// #     fn save(&self) -> Value {
/// #         json!((&self.0, &self.1))
/// #     }
/// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {
/// #         let mut ending = Ending::new(Status::Complete);
/// #         ending.text = self.0.clone();
/// #         self.1 = Some(ending);
/// #     }
/// #     fn ending(&self) -> Option<&Ending> {
/// #         self.1.as_ref()
/// #     }
/// # }
/// # struct NoEffects;
/// # #[async_trait]
/// # impl Executor for NoEffects {
/// #     fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
/// #         Prepared::default().into()
/// #     }
/// #     async fn execute(&self, _: Effect, _: EffectCx) -> Outcome {
/// #         Outcome::Unknown
/// #     }
/// #     async fn child(&self, _: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
/// #         Err(ToolError::failed("there are none"))
/// #     }
/// # }
///
/// impl Runnable for Echo {
///     type Input = String;
///     type Machine = EchoMachine;
///     type Output = String;
///
///     fn runtime(&self) -> &Runtime {
///         &self.0
///     }
///
///     fn executor(&self) -> Arc<dyn Executor> {
///         Arc::new(NoEffects)
///     }
///
///     fn limits(&self) -> Limits {
///         Limits::default()
///     }
///
///     fn begin(&self, goal: String, _: &Limits) -> Result<MachineStart<EchoMachine>, Error> {
///         Ok(MachineStart::now(EchoMachine(goal, None)))
///     }
///
///     fn restore(&self, _: &MachineKind, state: &Value) -> Result<EchoMachine, String> {
///         let state = serde_json::from_value(state.clone());
///         let (goal, ending) = state.map_err(|_| "this is not an echo")?;
///         Ok(EchoMachine(goal, ending))
///     }
///
///     fn conclude(&self, reached: StoppedRun<EchoMachine>) -> Result<String, Error> {
///         Ok(reached.finish(|_| ())?.text().to_owned())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// assert_eq!(Run::new(Echo(Runtime::new()), "Hello".to_owned()).await?, "Hello");
/// # Ok(())
/// # }
/// ```
///
/// # Contract
/// - `begin` is quick and does no I/O. Slow work belongs into [`MachineStart::later`], which the
///   time limit and a cancellation cover.
/// - `restore` accepts every state that a machine of the same kind and version saved, at any time.
/// - `restore` and `begin` give machines that decide in the same way: a resumed run must continue
///   as the first process would have.
/// - `conclude` returns an error for an ending without an answer, with the partial result in it.
/// - Clones are cheap and equal: the runtime clones the runnable for each run.
pub trait Runnable: Clone + Send + Sync + 'static {
    /// The input of a new run: a goal, and its context.
    type Input: Send + 'static;
    /// The machine that decides in its runs.
    type Machine: Machine + 'static;
    /// The result of a successful run.
    type Output: Send + 'static;

    /// Returns the runtime that drives its runs, with their journal.
    fn runtime(&self) -> &Runtime;

    /// Returns the executor that performs the effects of its runs.
    fn executor(&self) -> Arc<dyn Executor>;

    /// Returns the limits of a new run, unless it sets others.
    fn limits(&self) -> Limits;

    /// Creates the machine of a new run.
    ///
    /// # Errors
    /// Returns an error if a run cannot start with this input. A problem found later, while the
    /// machine is created, ends the run.
    fn begin(
        &self,
        input: Self::Input,
        limits: &Limits,
    ) -> Result<MachineStart<Self::Machine>, Error>;

    /// Rebuilds the machine of an old run from the state that it saved: before its first input, or
    /// between two inputs.
    ///
    /// # Errors
    /// Returns a description of the problem if the state belongs to another kind of machine, or is
    /// damaged.
    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<Self::Machine, String>;

    /// Rebuilds the machine of an old run for inspection only: the requested type of the answer
    /// makes no difference.
    ///
    /// # Errors
    /// Fails in the same cases as [`restore`](Self::restore).
    fn inspect(&self, kind: &MachineKind, state: &Value) -> Result<Self::Machine, String> {
        self.restore(kind, state)
    }

    /// Turns the end of a run into its result; [`StoppedRun::finish`] does it. A run that could not
    /// be driven to its end has an ending that states so.
    ///
    /// # Errors
    /// Returns an error with the partial result if the run has no result.
    fn conclude(&self, reached: StoppedRun<Self::Machine>) -> Result<Self::Output, Error>;

    /// Returns the name of the runnable, for traces.
    fn name(&self) -> Option<Arc<str>> {
        None
    }

    /// Returns `true` if each run is replayed from its journal at its end, to find a machine that
    /// is not deterministic.
    fn verifies_replay(&self) -> bool {
        false
    }

    /// Prepares the machine of an old run for a fork, for instance with current context.
    fn adapt(&self, machine: Self::Machine) -> BoxFuture<'static, Result<Self::Machine, String>> {
        Box::pin(std::future::ready(Ok(machine)))
    }

    /// Returns a future for the lease that an old run must hold while it is driven, such as that of
    /// its conversation.
    fn lease(&self, _machine: &Self::Machine) -> Option<LeaseFuture> {
        None
    }

    /// Returns the observers of each of its runs.
    fn observers(&self) -> &[Arc<dyn Observe>] {
        &[]
    }

    /// Returns `true` if its runs can be part of stored conversations.
    fn keeps_conversations(&self) -> bool {
        false
    }

    /// Returns the messages of the run behind an output, if it has them: the goal first, and each
    /// tool call with its result.
    fn messages(_output: &Self::Output) -> Option<&[Arc<Message>]> {
        None
    }

    /// Returns the place for the conversation in an input, if runs can be part of one.
    fn conversation(_input: &mut Self::Input) -> Option<&mut Option<ConversationId>> {
        None
    }

    /// Returns the place for earlier messages in an input, if a run can continue from some.
    fn history(_input: &mut Self::Input) -> Option<&mut History> {
        None
    }
}

/// The result of driving a run.
///
/// ```
/// # use levity_core::{Error, RuntimeError};
/// # use levity_runtime::End;
/// let end: End<String> = End::Ended(Ok("At six.".to_owned()));
/// assert_eq!(end.into_result()?, "At six.");
/// let stopped: End<String> = End::Stopped(RuntimeError::Lost("r1".into()).into());
/// assert!(stopped.into_result().is_err_and(|error| error.is_retryable()));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum End<T> {
    /// The run ended, with success or failure.
    Ended(Result<T, Error>),
    /// The run could not be started, or could not be driven to its end.
    Stopped(Error),
}

impl<T> End<T> {
    /// Returns the result of the run.
    ///
    /// # Errors
    /// Returns an error if the run has no result.
    pub fn into_result(self) -> Result<T, Error> {
        match self {
            Self::Ended(result) => result,
            Self::Stopped(error) => Err(error),
        }
    }
}

/// A future for the lease of a run.
///
/// ```
/// use levity_core::Lease;
/// use levity_runtime::LeaseFuture;
///
/// let lease: LeaseFuture = Box::pin(async { Ok(Lease::new("a lock")) });
/// # drop(lease);
/// ```
pub type LeaseFuture = BoxFuture<'static, Result<Lease, SharedError>>;

/// A machine, and the lease that its run holds while it is driven.
///
/// ```
/// # use levity_core::Lease;
/// # use levity_runtime::LeasedMachine;
/// let machine = LeasedMachine::with_lease("a machine", Some(Lease::new("a lock")));
/// # drop(machine);
/// let free = format!("{:?}", LeasedMachine::from(7));
/// assert_eq!(free, "LeasedMachine { machine: 7, lease: None }");
/// ```
#[derive(Debug)]
pub struct LeasedMachine<M> {
    pub(crate) machine: M,
    pub(crate) lease: Option<Lease>,
}

impl<M> LeasedMachine<M> {
    /// Creates a machine whose run holds this lease.
    pub fn with_lease(machine: M, lease: Option<Lease>) -> Self {
        Self { machine, lease }
    }
}

impl<M> From<M> for LeasedMachine<M> {
    fn from(machine: M) -> Self {
        Self {
            machine,
            lease: None,
        }
    }
}

/// The machine of a new run, ready or still to be created.
///
/// ```
/// use levity_core::SharedError;
/// use levity_runtime::{LeasedMachine, MachineStart};
///
/// let ready = MachineStart::now("a machine");
/// let later = MachineStart::later(async {
///     let text = std::fs::read_to_string("goal.txt").map_err(SharedError::new)?;
///     Ok(LeasedMachine::from(text))
/// });
/// # drop((ready, later));
/// ```
pub struct MachineStart<M>(pub(crate) MachineSource<M>);

pub(crate) enum MachineSource<M> {
    Now(M),
    Later(BoxFuture<'static, Result<LeasedMachine<M>, SharedError>>),
}

impl<M> MachineStart<M> {
    /// Returns a machine that is ready.
    pub fn now(machine: M) -> Self {
        Self(MachineSource::Now(machine))
    }

    /// Defers the creation of the machine to the run: within its time limit, and until it is
    /// cancelled.
    pub fn later(
        machine: impl Future<Output = Result<LeasedMachine<M>, SharedError>> + Send + 'static,
    ) -> Self {
        Self(MachineSource::Later(Box::pin(machine)))
    }
}

impl<M> std::fmt::Debug for MachineStart<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineStart").finish_non_exhaustive()
    }
}

/// A [`Runnable`] whose runs can be part of conversations.
///
/// # Contract
/// - [`Runnable::conversation`] and [`Runnable::history`] return a place for every input.
/// - A run with a conversation holds its lease while it is driven, and saves its messages there.
///
/// ```
/// use levity_core::Error;
/// use levity_runtime::{Conversational, Run};
///
/// /// Continues the conversation of a user.
/// async fn answer<W>(what: W, input: W::Input, user: &str) -> Result<W::Output, Error>
/// where
///     W: Conversational,
/// {
///     Run::new(what, input).conversation(user).await
/// }
/// ```
#[diagnostic::on_unimplemented(message = "runs of `{Self}` are not part of conversations")]
pub trait Conversational: Runnable {}

/// A [`Runnable`] whose answers can be requested as a type.
///
/// # Contract
/// - `with_output_type` requests the JSON schema of `T` from the model, and changes nothing else.
/// - `parse` reads the validated value of the answer and performs no I/O.
///
/// ```
/// use levity_core::Error;
/// use levity_runtime::{Run, TypedOutput};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Tide {
///     time: String,
/// }
///
/// /// Returns the answer as a value.
/// async fn tide<W: TypedOutput>(what: W, input: W::Input) -> Result<Tide, Error> {
///     Run::new(what, input).typed().await
/// }
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` cannot give its answers as a type")]
pub trait TypedOutput: Runnable {
    /// Returns the same runnable, with answers of the type `T`.
    #[must_use]
    fn with_output_type<T: DeserializeOwned + JsonSchema>(&self) -> Self;

    /// Parses an answer as a `T`.
    ///
    /// # Errors
    /// Returns an error if the answer is not a `T`.
    fn parse<T: DeserializeOwned>(output: &Self::Output) -> Result<T, Error>;
}

/// A [`Runnable`] whose answers are a `T`; see [`Run::typed`](crate::Run::typed).
///
/// It has no runs of its own: its machines, its journal and its ids are those of the inner
/// runnable.
pub struct Typed<W, T> {
    pub(crate) inner: W,
    as_type: PhantomData<fn() -> T>,
}

impl<W: TypedOutput, T: DeserializeOwned + JsonSchema> Typed<W, T> {
    pub(crate) fn new(inner: &W) -> Self {
        Self {
            inner: inner.with_output_type::<T>(),
            as_type: PhantomData,
        }
    }
}

impl<W: Clone, T> Clone for Typed<W, T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            as_type: PhantomData,
        }
    }
}

impl<W: std::fmt::Debug, T> std::fmt::Debug for Typed<W, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Typed").field(&self.inner).finish()
    }
}

impl<W: TypedOutput, T: DeserializeOwned + Send + 'static> Runnable for Typed<W, T> {
    type Input = W::Input;
    type Machine = W::Machine;
    type Output = T;

    fn runtime(&self) -> &Runtime {
        self.inner.runtime()
    }

    fn executor(&self) -> Arc<dyn Executor> {
        self.inner.executor()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn begin(&self, input: W::Input, limits: &Limits) -> Result<MachineStart<W::Machine>, Error> {
        self.inner.begin(input, limits)
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<W::Machine, String> {
        self.inner.restore(kind, state)
    }

    fn inspect(&self, kind: &MachineKind, state: &Value) -> Result<W::Machine, String> {
        self.inner.inspect(kind, state)
    }

    fn conclude(&self, reached: StoppedRun<W::Machine>) -> Result<T, Error> {
        W::parse(&self.inner.conclude(reached)?)
    }

    fn name(&self) -> Option<Arc<str>> {
        self.inner.name()
    }

    fn verifies_replay(&self) -> bool {
        self.inner.verifies_replay()
    }

    fn adapt(&self, machine: W::Machine) -> BoxFuture<'static, Result<W::Machine, String>> {
        self.inner.adapt(machine)
    }

    fn lease(&self, machine: &W::Machine) -> Option<LeaseFuture> {
        self.inner.lease(machine)
    }

    fn observers(&self) -> &[Arc<dyn Observe>] {
        self.inner.observers()
    }

    fn keeps_conversations(&self) -> bool {
        self.inner.keeps_conversations()
    }

    fn conversation(input: &mut W::Input) -> Option<&mut Option<ConversationId>> {
        W::conversation(input)
    }

    fn history(input: &mut W::Input) -> Option<&mut History> {
        W::history(input)
    }
}

impl<W: TypedOutput + Conversational, T: DeserializeOwned + Send + 'static> Conversational
    for Typed<W, T>
{
}
