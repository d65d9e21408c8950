use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ChildRun, CostBound, Digest, Effect, EffectClass, EffectId, EventKind, Eventual, Intervention,
    Lease, Limits, Machine, ModelCard, Outcome, Resolution, RunId, Screener, SharedError,
    ToolError, Values,
};

/// Performs effects: the world as one machine sees it.
///
/// An agent's executor holds its models, tools and approver. Any engine that can journal an effect
/// can drive machines with it. A behaviour around an executor wraps one and is one, as guards are.
///
/// # Contract
/// - `execute` always gives an outcome of the effect's kind; failures are outcomes.
/// - Dropping the future of `execute` or `prepare` cancels the work as far as it can be cancelled.
/// - `prepare` and `inspect` return at once. What takes longer in `prepare`, such as reading files,
///   happens in the future that it returns, which never blocks its thread.
///
/// `levity_test::conformance::executor` checks an implementation.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Says what the runtime must know before the effect begins. The run stays within its limits
    /// and can be cancelled while it waits for a later answer.
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared>;

    /// Performs an effect other than a child run.
    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome;

    /// Makes the machine of a child run: a new one, or one from a state that it has saved, when the
    /// child was begun by an earlier process.
    ///
    /// # Errors
    /// When there is no such agent, or it has no use for the input or the state.
    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError>;

    /// Finds out what came of a call that began in a process that is gone and that must not be
    /// performed twice. Unless somebody can tell, nobody knows.
    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        let _ = (effect, cx);
        Resolution::Unknown
    }

    /// Describes the executor: what it performs effects with, and who screens what people say to
    /// its runs.
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

    // Written out, so that an effect has one future in one box.
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

    fn inspect(&self) -> Inspection {
        (**self).inspect()
    }
}

/// A description of an executor.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// Fingerprints of what it performs effects with, by name. A run keeps them, so that it can be
    /// said what has changed since.
    pub setup: Vec<(String, Digest)>,
    /// The models that calls go to, by slot: for those who watch or trace.
    pub models: Arc<[(String, ModelCard)]>,
    /// Screens what people say to a run before it is written down; nobody does without.
    pub screener: Option<Arc<dyn Screener>>,
}

impl Inspection {
    /// An executor of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the fingerprints.
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

    /// Sets who screens what people say.
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
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PrepareCx {
    /// True if money or tokens are limited. Then [`Prepared::cost`] is wanted for a call of a
    /// model; without it, the call is refused.
    pub cost: bool,
}

impl PrepareCx {
    /// A context in which nothing is limited.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says whether money or tokens are limited.
    #[must_use]
    pub fn with_cost(mut self, cost: bool) -> Self {
        self.cost = cost;
        self
    }
}

/// What the runtime must know of an effect before it begins.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Prepared {
    /// What performing it again would do.
    pub class: EffectClass,
    /// Whether it runs alone, after all calls asked for before it.
    pub alone: bool,
    /// Whether it may be performed.
    pub permit: Permit,
    /// Fingerprints of what the executor adds to it, by name.
    pub inputs: Vec<(String, Digest)>,
    /// The most that a call of a model can take; only wanted where [`PrepareCx::cost`] says so.
    pub cost: Option<Box<CostBound>>,
    /// True if the effect is a question that somebody here answers. Otherwise it waits for the
    /// host's command.
    pub answered: bool,
}

impl Prepared {
    /// An effect of this class that may run beside others.
    pub fn new(class: EffectClass) -> Self {
        Self {
            class,
            ..Self::default()
        }
    }

    /// It runs alone.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Says whether it may be performed.
    #[must_use]
    pub fn permit(mut self, permit: Permit) -> Self {
        self.permit = permit;
        self
    }

    /// Adds a fingerprint.
    #[must_use]
    pub fn with_input(mut self, name: impl Into<String>, digest: Digest) -> Self {
        self.inputs.push((name.into(), digest));
        self
    }

    /// Says what a call of a model can take at most.
    #[must_use]
    pub fn cost(mut self, most: CostBound) -> Self {
        self.cost = Some(Box::new(most));
        self
    }

    /// Says whether somebody here answers the question.
    #[must_use]
    pub fn answered(mut self, answered: bool) -> Self {
        self.answered = answered;
        self
    }
}

/// The answer to whether an effect, a call of a tool or a command may be performed.
///
/// ```
/// # use levity_core::Permit;
/// let both = Permit::ask("it writes").and(Permit::deny("nothing leaves this machine"));
/// assert_eq!(both, Permit::deny("nothing leaves this machine"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permit {
    /// It may.
    #[default]
    Allow,
    /// A person must be asked first.
    Ask {
        /// The reason, for the person.
        reason: String,
    },
    /// It may not.
    Deny {
        /// The reason, for the model.
        reason: String,
    },
}

impl Permit {
    /// It may be done if a person says so; the reason is for the person.
    pub fn ask(reason: impl Into<String>) -> Self {
        Self::Ask {
            reason: reason.into(),
        }
    }

    /// It may not be done; the reason is for the model.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny {
            reason: reason.into(),
        }
    }

    /// The stricter of two; of equals, the first.
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

/// What an executor is told about the effect it performs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EffectCx {
    /// The run.
    pub run: RunId,
    /// The effect's number in the run.
    pub effect: EffectId,
    /// Whether an earlier process had begun this effect and did not finish it.
    pub again: bool,
    /// Takes fleeting events.
    pub live: LiveEvents,
    /// How many tokens a reply may have, where money or tokens are limited: the model must be told.
    /// Counts that it does not give are then left out, since they are filled in with the most.
    pub max_output: Option<u64>,
    /// How many tokens may be sent, where money or tokens are limited: the most that
    /// [`Prepared::cost`] said of the call. What is sent must not have become more since.
    pub max_input: Option<u64>,
    /// Values that the program gave the run's tools.
    pub values: Values,
    key: Option<Arc<str>>,
}

impl EffectCx {
    /// A context for an effect.
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

    /// Says whether an earlier process had begun this effect and did not finish it.
    #[must_use]
    pub fn with_again(mut self, again: bool) -> Self {
        self.again = again;
        self
    }

    /// Says under which idempotency key the effect began in the run that this one was forked from,
    /// if it did.
    #[must_use]
    pub fn with_key(mut self, key: Option<Arc<str>>) -> Self {
        self.key = key;
        self
    }

    /// The idempotency key: the same for every attempt at the effect, in forks of the run, too.
    pub fn key(&self) -> Arc<str> {
        self.key
            .clone()
            .unwrap_or_else(|| crate::idempotency_key(&self.run, self.effect))
    }

    /// Says how many tokens a reply may have.
    #[must_use]
    pub fn with_max_output(mut self, tokens: Option<u64>) -> Self {
        self.max_output = tokens;
        self
    }

    /// Says what the program gave the run's tools.
    #[must_use]
    pub fn with_values(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    /// Says how many tokens may be sent.
    #[must_use]
    pub fn with_max_input(mut self, tokens: Option<u64>) -> Self {
        self.max_input = tokens;
        self
    }
}

/// Takes fleeting events, for those who watch now.
#[derive(Clone, Default)]
pub struct LiveEvents(Option<Arc<dyn LiveSink>>);

/// Where [`LiveEvents`] sends what it is told.
pub trait LiveSink: Send + Sync {
    /// Whether anybody listens.
    fn is_watched(&self) -> bool;
    /// Passes an event on.
    fn send(&self, event: EventKind);
}

impl LiveEvents {
    /// Sends to `sink`.
    pub fn new(sink: Arc<dyn LiveSink>) -> Self {
        Self(Some(sink))
    }

    /// Whether anybody listens; if not, there is no need to make events at all.
    pub fn is_watched(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| sink.is_watched())
    }

    /// Passes an event on.
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

/// A child run, ready to be driven.
#[non_exhaustive]
pub struct Child {
    /// Decides.
    pub machine: Box<dyn Machine>,
    /// Performs.
    pub executor: Arc<dyn Executor>,
    /// What it may use, within what its parent may.
    pub limits: Limits,
    /// Keeps others from its conversation for as long as it is driven.
    pub lease: Option<ChildLease>,
    /// Screens its end before that is written down and its parent learns of it.
    pub screener: Option<Arc<dyn Screener>>,
    /// Interventions of guards in the input of a new run; they become events of that run.
    pub guarded: Vec<Intervention>,
}

/// The lease of a child run.
#[non_exhaustive]
pub enum ChildLease {
    /// A new run's: it was needed to make the machine.
    Held(Lease),
    /// An old run's: it is waited for before the run goes on, unless the run has ended.
    Wanted(Pin<Box<dyn Future<Output = Result<Lease, SharedError>> + Send>>),
}

impl Child {
    /// A child run.
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

    /// Has its end screened.
    #[must_use]
    pub fn with_screener(mut self, screener: Arc<dyn Screener>) -> Self {
        self.screener = Some(screener);
        self
    }

    /// Gives it a lease.
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
