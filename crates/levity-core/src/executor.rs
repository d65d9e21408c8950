use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ArgumentProblem, ChildRun, CostBound, Digest, Effect, EffectClass, EffectId, EventKind,
    Eventual, Intervention, Lease, Limits, Machine, ModelCard, Outcome, Resolution, RunId,
    Screener, SharedError, ToolCall, ToolError, Values,
};

/// Performs the effects that a machine requests.
///
/// An agent's executor holds its models, tools and approver. Any engine that can journal an effect
/// can drive machines with it. Middleware such as guards wraps an executor and implements this
/// trait.
///
/// # Contract
/// - `execute` always returns an outcome of the effect's kind; failures are outcomes.
/// - Dropping the future of `execute` or `prepare` cancels the work as far as possible.
/// - `prepare` and `inspect` return immediately. Slow work in `prepare`, such as reading files,
///   happens in the returned future, which never blocks its thread.
///
/// Use `levity_test::conformance::executor` to check an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{
///     Child, ChildRun, Effect, EffectClass, EffectCx, Eventual, Executor, Outcome, PrepareCx,
///     Prepared, ToolError, ToolOutput, ToolResult,
/// };
/// use serde_json::Value;
///
/// /// Answers every tool call with its name, and denies everything else.
/// struct Names;
///
/// #[async_trait]
/// impl Executor for Names {
///     fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
///         Prepared::new(EffectClass::ReadOnly).into()
///     }
///
///     async fn execute(&self, effect: Effect, _: EffectCx) -> Outcome {
///         match effect {
///             Effect::Tool(run) => {
///                 let output = ToolOutput::text(run.call.name.clone());
///                 Outcome::Tool(ToolResult::answering(run.call, Ok(output)))
///             }
///             _ => Outcome::Denied { reason: "only tools are called here".to_owned() },
///         }
///     }
///
///     async fn child(&self, child: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
///         Err(ToolError::failed(format!("there is no agent `{}`", child.agent)))
///     }
/// }
/// ```
#[async_trait]
pub trait Executor: Send + Sync {
    /// Returns the information that the runtime needs before the effect begins. The limits of the
    /// run apply while it waits for a later answer, and it can be cancelled.
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared>;

    /// Performs an effect other than a child run.
    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome;

    /// Creates the machine of a child run: a new one, or one from a saved state if an earlier
    /// process started the child.
    ///
    /// # Errors
    /// Returns an error if there is no such agent, or the input or the state is invalid for it.
    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError>;

    /// Determines the outcome of a call that was in progress when its process ended and that must
    /// not be repeated. By default the outcome is unknown.
    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        let _ = (effect, cx);
        Resolution::Unknown
    }

    /// Returns the problems of arguments that a person wrote for a call; none by default.
    ///
    /// The runtime asks before it accepts an edited call. A call of an unknown tool has no problems
    /// here: it fails when it is made.
    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        let _ = call;
        Vec::new()
    }

    /// Describes the executor: its fingerprints, its models and the screener for messages to its
    /// runs.
    fn inspect(&self) -> Inspection {
        Inspection::default()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<E: Executor + ?Sized> Executor for Arc<E> {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        (**self).prepare(effect, cx)
    }

    // Written out, so that an effect needs only one boxed future.
    fn execute<'life0, 'async_trait>(
        &'life0 self,
        effect: Effect,
        cx: EffectCx,
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        (**self).execute(effect, cx)
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        (**self).child(child, saved).await
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        (**self).resolve(effect, cx).await
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        (**self).check_arguments(call)
    }

    fn inspect(&self) -> Inspection {
        (**self).inspect()
    }
}

/// A description of an executor.
///
/// ```
/// # use levity_core::{Digest, Inspection, ModelCard};
/// # use serde_json::json;
/// let card = ModelCard::new("test", "small");
/// let about = Inspection::new()
///     .with_setup(vec![("tools".to_owned(), Digest::of(&json!(["add"])))])
///     .with_models([("main".to_owned(), card)]);
/// assert_eq!((about.setup.len(), about.models[0].1.id.as_str()), (1, "small"));
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// The fingerprints of its setup, by name. A run stores them, so that later changes can be
    /// reported.
    pub setup: Vec<(String, Digest)>,
    /// The models by slot, for observers and tracing.
    pub models: Arc<[(String, ModelCard)]>,
    /// The screener for messages to a run, called before they are journaled; `None` screens
    /// nothing.
    pub screener: Option<Arc<dyn Screener>>,
}

impl Inspection {
    /// Creates a description in which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the fingerprints of the setup.
    #[must_use]
    pub fn with_setup(mut self, setup: Vec<(String, Digest)>) -> Self {
        self.setup = setup;
        self
    }

    /// Sets the models, by slot.
    #[must_use]
    pub fn with_models(mut self, models: impl Into<Arc<[(String, ModelCard)]>>) -> Self {
        self.models = models.into();
        self
    }

    /// Sets the screener for messages to a run.
    #[must_use]
    pub fn with_screener(mut self, screener: Option<Arc<dyn Screener>>) -> Self {
        self.screener = screener;
        self
    }
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let screens = self.screener.is_some();
        f.debug_struct("Inspection")
            .field("setup", &self.setup)
            .field("screens", &screens)
            .finish_non_exhaustive()
    }
}

/// The circumstances in which an executor prepares an effect.
///
/// ```
/// # use levity_core::PrepareCx;
/// assert!(!PrepareCx::new().cost);
/// assert!(PrepareCx::new().with_cost(true).cost);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PrepareCx {
    /// `true` if money or tokens are limited. A model call then requires [`Prepared::cost`];
    /// without it, the call is refused.
    pub cost: bool,
}

impl PrepareCx {
    /// Creates a context in which nothing is limited.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether money or tokens are limited.
    #[must_use]
    pub fn with_cost(mut self, cost: bool) -> Self {
        self.cost = cost;
        self
    }
}

/// The information that the runtime needs before an effect begins.
///
/// ```
/// use levity_core::{EffectClass, Permit, Prepared};
///
/// let ask = Permit::ask("it writes a file");
/// let write = Prepared::new(EffectClass::Idempotent).alone().permit(ask);
/// assert!(write.alone && write.permit != Permit::Allow);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Prepared {
    /// The consequence of performing it again.
    pub class: EffectClass,
    /// `true` if it runs alone, after all calls requested before it.
    pub alone: bool,
    /// The permission to perform it.
    pub permit: Permit,
    /// The fingerprints of the data that the executor adds, by name.
    pub inputs: Vec<(String, Digest)>,
    /// The upper bound on the cost of a model call; only required if [`PrepareCx::cost`] is set.
    pub cost: Option<Box<CostBound>>,
    /// `true` if the effect is a question that this executor answers. Otherwise it waits for a
    /// command from the host.
    pub answered: bool,
}

impl Prepared {
    /// Creates a result for an effect of this class that may run beside others.
    pub fn new(class: EffectClass) -> Self {
        Self {
            class,
            ..Self::default()
        }
    }

    /// Makes the effect run alone.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Sets the permission to perform it.
    #[must_use]
    pub fn permit(mut self, permit: Permit) -> Self {
        self.permit = permit;
        self
    }

    /// Adds a fingerprint of an input.
    #[must_use]
    pub fn with_input(mut self, name: impl Into<String>, digest: Digest) -> Self {
        self.inputs.push((name.into(), digest));
        self
    }

    /// Sets the upper bound on the cost of a model call.
    #[must_use]
    pub fn cost(mut self, bound: CostBound) -> Self {
        self.cost = Some(Box::new(bound));
        self
    }

    /// Sets whether this executor answers the question.
    #[must_use]
    pub fn answered(mut self, answered: bool) -> Self {
        self.answered = answered;
        self
    }
}

/// The permission to perform an effect, a tool call or a command.
///
/// ```
/// # use levity_core::Permit;
/// let both = Permit::ask("it writes").and(Permit::deny("nothing leaves this machine"));
/// assert_eq!(both, Permit::deny("nothing leaves this machine"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permit {
    /// The action is allowed.
    #[default]
    Allow,
    /// A person must approve the action first.
    Ask {
        /// The reason, shown to the person.
        reason: String,
    },
    /// The action is not allowed.
    Deny {
        /// The reason, shown to the model.
        reason: String,
    },
}

impl Permit {
    /// Creates a permit that requires approval; the reason is shown to the person.
    pub fn ask(reason: impl Into<String>) -> Self {
        Self::Ask {
            reason: reason.into(),
        }
    }

    /// Creates a permit that denies the action; the reason is shown to the model.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny {
            reason: reason.into(),
        }
    }

    /// Returns the stricter of two permits or, if they are equally strict, the first.
    ///
    /// ```
    /// # use levity_core::Permit;
    /// let (ask, deny) = (Permit::ask("it deletes a file"), Permit::deny("it is read-only"));
    /// assert_eq!(Permit::Allow.and(ask.clone()), ask);
    /// assert_eq!(deny.clone().and(ask), deny);
    /// ```
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let rank = |permit: &Self| match permit {
            Self::Allow => 0,
            Self::Ask { .. } => 1,
            Self::Deny { .. } => 2,
        };
        if rank(&other) > rank(&self) {
            other
        } else {
            self
        }
    }
}

/// The circumstances in which an executor performs an effect.
///
/// ```
/// # use levity_core::{EffectCx, EffectId, LiveEvents, RunId};
/// let cx = EffectCx::new(RunId::new("r2"), EffectId::new(4), LiveEvents::default());
/// assert_eq!(&*cx.key(), "r2/4");
/// // A fork of `r1` repeats a call that began there under its first key.
/// assert_eq!(&*cx.with_key(Some("r1/4".into())).key(), "r1/4");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EffectCx {
    /// The id of the run.
    pub run: RunId,
    /// The number of the effect in the run.
    pub effect: EffectId,
    /// `true` if an earlier process began this effect and did not finish it.
    pub again: bool,
    /// The receiver of transient events.
    pub live: LiveEvents,
    /// The maximum tokens of a reply, if money or tokens are limited: pass it on to the model.
    /// Leave out the counts that the model does not report, because they are filled in with the
    /// upper bound.
    pub max_output: Option<u64>,
    /// The maximum tokens of the request, if money or tokens are limited: the input bound of
    /// [`Prepared::cost`]. The request must not have grown since then.
    pub max_input: Option<u64>,
    /// The values that the program passed to the run's tools.
    pub values: Values,
    key: Option<Arc<str>>,
}

impl EffectCx {
    /// Creates a context for an effect.
    pub fn new(run: RunId, effect: EffectId, live: LiveEvents) -> Self {
        Self {
            run,
            effect,
            again: false,
            live,
            max_output: None,
            max_input: None,
            values: Values::new(),
            key: None,
        }
    }

    /// Sets whether an earlier process began this effect and did not finish it.
    #[must_use]
    pub fn with_again(mut self, again: bool) -> Self {
        self.again = again;
        self
    }

    /// Sets the idempotency key under which the effect began in the run that this one was forked
    /// from, if it did.
    #[must_use]
    pub fn with_key(mut self, key: Option<Arc<str>>) -> Self {
        self.key = key;
        self
    }

    /// Returns the idempotency key: the same for every attempt at the effect, also in forks of the
    /// run.
    pub fn key(&self) -> Arc<str> {
        self.key
            .clone()
            .unwrap_or_else(|| crate::idempotency_key(&self.run, self.effect))
    }

    /// Sets the maximum tokens of a reply.
    #[must_use]
    pub fn with_max_output(mut self, tokens: Option<u64>) -> Self {
        self.max_output = tokens;
        self
    }

    /// Sets the values that the program passed to the run's tools.
    #[must_use]
    pub fn with_values(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    /// Sets the maximum tokens of the request.
    #[must_use]
    pub fn with_max_input(mut self, tokens: Option<u64>) -> Self {
        self.max_input = tokens;
        self
    }
}

/// A sender of transient events to current subscribers.
///
/// The default sender has no subscribers and drops every event.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use levity_core::{EventKind, LiveEvents, LiveSink};
///
/// #[derive(Default)]
/// struct Names(Mutex<Vec<&'static str>>);
///
/// impl LiveSink for Names {
///     fn is_watched(&self) -> bool {
///         true
///     }
///
///     fn send(&self, event: EventKind) {
///         self.0.lock().unwrap().push(event.name());
///     }
/// }
///
/// let names = Arc::new(Names::default());
/// LiveEvents::new(names.clone()).send(EventKind::Lagged { missed: 3 });
/// assert_eq!(*names.0.lock().unwrap(), ["lagged"]);
/// ```
#[derive(Clone, Default)]
pub struct LiveEvents(Option<Arc<dyn LiveSink>>);

/// A receiver of the events of [`LiveEvents`].
///
/// # Contract
/// - `send` returns immediately. A slow subscriber loses events; it never delays the run.
/// - `is_watched` is cheap: executors call it before they create an event.
/// - `send` may be called from several threads at the same time.
///
/// [`LiveEvents`] has an example implementation.
pub trait LiveSink: Send + Sync {
    /// Returns `true` if there are subscribers.
    fn is_watched(&self) -> bool;
    /// Forwards an event to the subscribers.
    fn send(&self, event: EventKind);
}

impl LiveEvents {
    /// Creates a sender to `sink`.
    pub fn new(sink: Arc<dyn LiveSink>) -> Self {
        Self(Some(sink))
    }

    /// Returns `true` if there are subscribers; if not, you do not need to create events.
    pub fn is_watched(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| sink.is_watched())
    }

    /// Sends an event to the subscribers.
    pub fn send(&self, event: EventKind) {
        if let Some(sink) = &self.0 {
            sink.send(event);
        }
    }
}

impl fmt::Debug for LiveEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveEvents")
            .field(&self.is_watched())
            .finish()
    }
}

/// A child run that is ready to be driven.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::{Child, Executor, Limits, Machine};
///
/// /// Gives the child its own limit; the limits of its parent hold as well.
/// fn small(machine: impl Machine + 'static, executor: Arc<dyn Executor>) -> Child {
///     Child::new(machine, executor, Limits::new().model_calls(5))
/// }
/// ```
#[non_exhaustive]
pub struct Child {
    /// The machine that makes the decisions.
    pub machine: Box<dyn Machine>,
    /// The executor that performs the effects.
    pub executor: Arc<dyn Executor>,
    /// The limits of the child, within those of its parent.
    pub limits: Limits,
    /// The lease that keeps its conversation exclusive while it is driven.
    pub lease: Option<ChildLease>,
    /// Screens its ending before that is journaled and reported to its parent.
    pub screener: Option<Arc<dyn Screener>>,
    /// The interventions of guards in the input of a new run; they become events of that run.
    pub guarded: Vec<Intervention>,
}

/// The lease of a child run.
///
/// ```
/// # use levity_core::{ChildLease, Lease};
/// let held = ChildLease::Held(Lease::new(()));
/// let later = ChildLease::Wanted(Box::pin(async { Ok(Lease::new(())) }));
/// assert_eq!(format!("{held:?} {later:?}"), "Held Wanted");
/// ```
#[non_exhaustive]
pub enum ChildLease {
    /// The lease of a new run, which was needed to create the machine.
    Held(Lease),
    /// The lease of an existing run, acquired before the run resumes unless it has ended.
    Wanted(Pin<Box<dyn Future<Output = Result<Lease, SharedError>> + Send>>),
}

impl Child {
    /// Creates a child run from its parts.
    pub fn new(
        machine: impl Machine + 'static,
        executor: Arc<dyn Executor>,
        limits: Limits,
    ) -> Self {
        Self {
            machine: Box::new(machine),
            executor,
            limits,
            lease: None,
            screener: None,
            guarded: Vec::new(),
        }
    }

    /// Sets the screener for its ending.
    #[must_use]
    pub fn with_screener(mut self, screener: Arc<dyn Screener>) -> Self {
        self.screener = Some(screener);
        self
    }

    /// Sets the lease on its conversation.
    #[must_use]
    pub fn with_lease(mut self, lease: ChildLease) -> Self {
        self.lease = Some(lease);
        self
    }
}

impl fmt::Debug for ChildLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held(_) => "Held",
            Self::Wanted(_) => "Wanted",
        })
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("machine", &self.machine.kind())
            .finish_non_exhaustive()
    }
}
