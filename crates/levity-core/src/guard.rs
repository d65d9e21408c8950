use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{CallId, ChildRun, Ending, Message, RunId, SharedError, ToolCall, ToolResult};

mod clean;

/// Looks at what goes in and out of an agent, and lets it pass, changes it or stops it.
///
/// ```
/// use levity_core::{SharedError, Guard, GuardCx, Stage, GuardSubject, Verdict};
///
/// /// Lets nothing be deleted.
/// struct Careful;
///
/// #[async_trait::async_trait]
/// impl Guard for Careful {
///     fn name(&self) -> &str {
///         "careful"
///     }
///
///     fn watches(&self, stage: Stage) -> bool {
///         stage == Stage::Call
///     }
///
///     async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
///         Ok(match subject {
///             GuardSubject::Call(call) if call.name.starts_with("delete") => Verdict::block("nothing is deleted here"),
///             _ => Verdict::Pass,
///         })
///     }
/// }
/// ```
///
/// # Contract
/// - It is asked before anybody sees what it looks at: before it is in the journal, told to those
///   who watch, sent to a model or handed to a tool.
/// - It may take its time and call a model; what it decided is written down with what it decided
///   on, and it is not asked about that again when the run is resumed or replayed.
/// - What it says of its reasons is seen by everybody. There is nothing in it that it was to keep
///   back.
/// - It may be asked about several things at once.
#[async_trait]
pub trait Guard: Send + Sync {
    /// What it is called where it is told that it stepped in.
    fn name(&self) -> &str;

    /// Whether it looks at this at all. What nobody looks at is not held up: replies, for one, are
    /// shown piece by piece only when no guard watches [`Stage::Answer`] or [`Stage::Call`].
    fn watches(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// What is to become of this. A subject of a kind that it does not know passes.
    ///
    /// # Errors
    /// When it cannot tell. Nothing passes then, unless the agent is set up otherwise.
    async fn check(&self, subject: &GuardSubject, cx: &GuardCx) -> Result<Verdict, SharedError>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<G: Guard + ?Sized> Guard for Arc<G> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn watches(&self, stage: Stage) -> bool {
        (**self).watches(stage)
    }

    async fn check(&self, subject: &GuardSubject, cx: &GuardCx) -> Result<Verdict, SharedError> {
        (**self).check(subject, cx).await
    }
}

/// Where a guard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// What people say: the goal, and what is said later.
    Input,
    /// A call that the model asks for, before policy, a person or the tool has seen it.
    Call,
    /// What a tool returned, before the model sees it.
    Result,
    /// What the model says, before anybody sees it.
    Answer,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Call => "call",
            Self::Result => "result",
            Self::Answer => "answer",
        })
    }
}

/// What a guard looks at.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GuardSubject {
    /// What somebody says.
    Input(Arc<Message>),
    /// A call. Only its arguments can be changed.
    Call(ToolCall),
    /// A result. Which call it answers cannot be changed.
    Result(ToolResult),
    /// A reply of the model. The calls in it are shown, and looked at one by one as
    /// [`Call`](Self::Call): only what stands beside them can be changed here.
    Answer(Arc<Message>),
    /// Why the model gave no reply, in the words of its provider, which may repeat what it was
    /// sent.
    Failure(String),
}

impl GuardSubject {
    /// Where it is looked at.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Input(_) => Stage::Input,
            Self::Call(_) => Stage::Call,
            Self::Result(_) => Stage::Result,
            Self::Answer(_) | Self::Failure(_) => Stage::Answer,
        }
    }

    /// What it says: the text of a message, the arguments of a call as JSON, the text of a result.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Input(message) | Self::Answer(message) => message.text(),
            Self::Call(call) => match &call.raw {
                Some(raw) => Cow::Borrowed(raw),
                None => Cow::Owned(call.args.to_string()),
            },
            Self::Result(result) => result.text(),
            Self::Failure(text) => Cow::Borrowed(text),
        }
    }

    /// The call it is or answers.
    pub fn call(&self) -> Option<&CallId> {
        match self {
            Self::Call(call) => Some(&call.id),
            Self::Result(result) => Some(&result.call),
            _ => None,
        }
    }
}

/// What is to become of what a guard looked at.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It stays as it is.
    Pass,
    /// This stands in its place from now on, for everybody. It must be of the same kind.
    Rewrite(Box<GuardSubject>),
    /// It goes no further.
    ///
    /// A blocked input or answer ends the run; a blocked call is answered with this reason, and so
    /// is a call whose result is blocked.
    Block {
        /// Why, for the model and for people.
        reason: String,
    },
}

impl Verdict {
    /// This stands in its place.
    pub fn rewrite(subject: GuardSubject) -> Self {
        Self::Rewrite(Box::new(subject))
    }

    /// It goes no further.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::Block {
            reason: reason.into(),
        }
    }
}

/// What a guard is told beside its subject.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GuardCx {
    /// The run, once it has begun.
    pub run: Option<RunId>,
    /// Which of the agent's models gave the reply: `main` for what may be an answer, `planner` and
    /// others for what is asked on the side.
    pub slot: Option<Arc<str>>,
}

impl GuardCx {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says which run it is.
    #[must_use]
    pub fn with_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Says which model replied.
    #[must_use]
    pub fn with_slot(mut self, slot: Arc<str>) -> Self {
        self.slot = Some(slot);
        self
    }
}

/// A guard stepped in. It is written down with what it stepped in on, and told as
/// [`EventKind::Guarded`](crate::EventKind::Guarded).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intervention {
    /// The guard.
    pub guard: Arc<str>,
    /// Where.
    pub stage: Stage,
    /// The call it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Why it went no further; what has no reason was rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

impl Intervention {
    /// A guard rewrote something.
    pub fn rewrote(guard: impl Into<Arc<str>>, stage: Stage) -> Self {
        Self {
            guard: guard.into(),
            stage,
            call: None,
            blocked: None,
        }
    }

    /// A guard blocked something.
    pub fn blocked(guard: impl Into<Arc<str>>, stage: Stage, reason: impl Into<String>) -> Self {
        Self {
            blocked: Some(reason.into()),
            ..Self::rewrote(guard, stage)
        }
    }

    /// Says which call it was about.
    #[must_use]
    pub fn for_call(mut self, call: Option<CallId>) -> Self {
        self.call = call;
        self
    }
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.blocked {
            Some(reason) => write!(f, "`{}` blocked the {}: {reason}", self.guard, self.stage),
            None => write!(f, "`{}` rewrote the {}", self.guard, self.stage),
        }
    }
}

/// Screens what people say to runs, and what child runs return. Guards do; an executor names its
/// own by [`Inspection::screener`](crate::Inspection::screener) and
/// [`Child::screener`](crate::Child::screener).
///
/// # Contract
/// It is asked before anybody sees what it screens, and not again when the run is resumed or
/// replayed.
#[async_trait]
pub trait Screener: Send + Sync {
    /// Screens what somebody says to a run.
    async fn message(&self, run: &RunId, message: Arc<Message>) -> Screened<Arc<Message>>;

    /// Screens a call whose arguments a person put in place of the model's.
    async fn call(&self, run: &RunId, call: ToolCall) -> Screened<ToolCall>;

    /// Screens how a child run ended; what is returned stands in its place.
    async fn ending(&self, child: &ChildRun, ending: Ending) -> Ending;
}

/// The verdict of a [`Screener`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Screened<T> {
    /// This is taken in, and these have had a hand in it.
    Passed(T, Vec<Intervention>),
    /// It is not taken in.
    Blocked(Intervention),
}
