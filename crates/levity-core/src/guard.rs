use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{CallId, ChildRun, Ending, Message, RunId, SharedError, ToolCall, ToolResult};

mod redact;

/// Checks the input and output of an agent, and passes, rewrites or blocks it.
///
/// ```
/// use levity_core::{SharedError, Guard, GuardCx, Stage, GuardSubject, Verdict};
///
/// /// Blocks every deletion.
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
///             GuardSubject::Call(call) if call.name.starts_with("delete") => {
///                 Verdict::block("nothing is deleted here")
///             }
///             _ => Verdict::Pass,
///         })
///     }
/// }
/// ```
///
/// # Contract
/// - The runtime calls it before the subject is journaled, emitted as an event, sent to a model or
///   passed to a tool.
/// - It may take time and call a model. Its verdict is journaled together with the subject, and a
///   resumed or replayed run does not check the subject again.
/// - The reason of a verdict is visible to everyone, so it must not contain the text that the guard
///   withholds.
/// - It may be called for several subjects at the same time.
#[async_trait]
pub trait Guard: Send + Sync {
    /// Returns the name that reports of its interventions use.
    fn name(&self) -> &str;

    /// Returns `true` if the guard checks this stage. Stages without a guard have no delay: for
    /// example, replies stream only if no guard watches [`Stage::Answer`] or [`Stage::Call`].
    fn watches(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// Returns the verdict on `subject`. A subject of an unknown kind passes.
    ///
    /// # Errors
    /// Returns an error if the guard cannot decide. The subject is then blocked, unless the agent
    /// is configured otherwise.
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

/// The stage of a run at which a guard checks.
///
/// ```
/// # use levity_core::Stage;
/// assert_eq!(Stage::Input.to_string(), "input");
/// assert!(Stage::Input < Stage::Call && Stage::Result < Stage::Answer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Messages from people: the goal and later messages.
    Input,
    /// A call that the model requests, before the policy, a person or the tool sees it.
    Call,
    /// The result of a tool, before the model sees it.
    Result,
    /// The reply of the model, before anyone sees it.
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

/// The data that a guard checks.
///
/// ```
/// use levity_core::{GuardSubject, Stage, ToolCall};
/// use serde_json::json;
///
/// let subject = GuardSubject::Call(ToolCall::new("c1", "search", json!({"query": "tides"})));
/// assert_eq!((subject.stage(), &*subject.text()), (Stage::Call, r#"{"query":"tides"}"#));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GuardSubject {
    /// A message from a person.
    Input(Arc<Message>),
    /// A tool call. Only its arguments can be rewritten.
    Call(ToolCall),
    /// A tool result. The call that it answers cannot be changed.
    Result(ToolResult),
    /// A reply of the model. Its calls are visible here but are checked one by one as
    /// [`Call`](Self::Call): only the other parts can be rewritten here.
    Answer(Arc<Message>),
    /// The reason why the model gave no reply. It is the provider's text, which may repeat parts of
    /// the request.
    Failure(String),
}

impl GuardSubject {
    /// Returns the stage at which the subject is checked.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Input(_) => Stage::Input,
            Self::Call(_) => Stage::Call,
            Self::Result(_) => Stage::Result,
            Self::Answer(_) | Self::Failure(_) => Stage::Answer,
        }
    }

    /// Returns the text of the subject: of a message, of a call's arguments as JSON, or of a
    /// result.
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

    /// Returns the call that the subject is or answers.
    pub fn call(&self) -> Option<&CallId> {
        match self {
            Self::Call(call) => Some(&call.id),
            Self::Result(result) => Some(&result.call),
            _ => None,
        }
    }
}

/// The verdict of a guard on a subject.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::{GuardSubject, Message, Verdict};
///
/// let subject = GuardSubject::Input(Arc::new(Message::user("call 555-0100")));
/// let hidden = subject.text().replace("555-0100", "[phone]");
/// let verdict = Verdict::rewrite(GuardSubject::Input(Arc::new(Message::user(hidden))));
/// assert!(matches!(verdict, Verdict::Rewrite(new) if new.text() == "call [phone]"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The subject passes unchanged.
    Pass,
    /// This subject replaces the original for all readers. It must be of the same kind.
    Rewrite(Box<GuardSubject>),
    /// The subject is blocked.
    ///
    /// A blocked input or answer ends the run. A blocked call is answered with this reason, and so
    /// is a call whose result is blocked.
    Block {
        /// The reason, for the model and for people.
        reason: String,
    },
}

impl Verdict {
    /// Creates a verdict that replaces the subject.
    pub fn rewrite(subject: GuardSubject) -> Self {
        Self::Rewrite(Box::new(subject))
    }

    /// Creates a verdict that blocks the subject.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::Block {
            reason: reason.into(),
        }
    }
}

/// The circumstances of a check.
///
/// ```
/// # use levity_core::GuardCx;
/// let cx = GuardCx::new().with_run("r1".into()).with_slot("main".into());
/// assert_eq!(cx.slot.as_deref(), Some("main"), "the reply may be the answer");
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GuardCx {
    /// The id of the run, once it has begun.
    pub run: Option<RunId>,
    /// The slot of the model that replied: `main` for a possible answer, `planner` and others for
    /// auxiliary calls.
    pub slot: Option<Arc<str>>,
}

impl GuardCx {
    /// Creates a context in which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id of the run.
    #[must_use]
    pub fn with_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Sets the slot of the model that replied.
    #[must_use]
    pub fn with_slot(mut self, slot: Arc<str>) -> Self {
        self.slot = Some(slot);
        self
    }
}

/// An intervention of a guard. It is journaled with its subject and emitted as
/// [`EventKind::Guarded`](crate::EventKind::Guarded).
///
/// ```
/// # use levity_core::{Intervention, Stage};
/// let blocked = Intervention::blocked("secrets", Stage::Answer, "it contains a key");
/// assert_eq!(blocked.to_string(), "`secrets` blocked the answer: it contains a key");
/// assert_eq!(Intervention::rewrote("secrets", Stage::Input).blocked, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intervention {
    /// The name of the guard.
    pub guard: Arc<str>,
    /// The stage at which it intervened.
    pub stage: Stage,
    /// The call that the subject is or answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The reason for blocking; `None` if the subject was rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

impl Intervention {
    /// Creates the record of a rewrite.
    pub fn rewrote(guard: impl Into<Arc<str>>, stage: Stage) -> Self {
        Self {
            guard: guard.into(),
            stage,
            call: None,
            blocked: None,
        }
    }

    /// Creates the record of a block.
    pub fn blocked(guard: impl Into<Arc<str>>, stage: Stage, reason: impl Into<String>) -> Self {
        Self {
            blocked: Some(reason.into()),
            ..Self::rewrote(guard, stage)
        }
    }

    /// Sets the call that the subject is or answers.
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

/// Screens messages from people to runs, and the endings of child runs. Guards implement it. An
/// executor provides its screener by [`Inspection::screener`](crate::Inspection::screener) and
/// [`Child::screener`](crate::Child::screener).
///
/// # Contract
/// The runtime calls it before anyone sees the subject, and not again when the run is resumed or
/// replayed.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use levity_core::{
///     ChildRun, Ending, Intervention, Message, RunId, ScreenVerdict, Screener, Stage, ToolCall,
/// };
///
/// /// Blocks long messages and passes everything else.
/// struct Short;
///
/// #[async_trait]
/// impl Screener for Short {
///     async fn message(&self, _: &RunId, message: Arc<Message>) -> ScreenVerdict<Arc<Message>> {
///         if message.size() <= 1_000 {
///             return ScreenVerdict::Passed(message, Vec::new());
///         }
///         ScreenVerdict::Blocked(Intervention::blocked("short", Stage::Input, "it is too long"))
///     }
///
///     async fn call(&self, _: &RunId, call: ToolCall) -> ScreenVerdict<ToolCall> {
///         ScreenVerdict::Passed(call, Vec::new())
///     }
///
///     async fn ending(&self, _: &ChildRun, ending: Ending) -> Ending {
///         ending
///     }
/// }
/// ```
#[async_trait]
pub trait Screener: Send + Sync {
    /// Screens a message from a person to a run.
    async fn message(&self, run: &RunId, message: Arc<Message>) -> ScreenVerdict<Arc<Message>>;

    /// Screens a call whose arguments a person replaced.
    async fn call(&self, run: &RunId, call: ToolCall) -> ScreenVerdict<ToolCall>;

    /// Screens the ending of a child run; the returned ending replaces it.
    async fn ending(&self, child: &ChildRun, ending: Ending) -> Ending;
}

/// The verdict of a [`Screener`].
///
/// ```
/// # use levity_core::{Intervention, ScreenVerdict, Stage};
/// let rewrote = vec![Intervention::rewrote("secrets", Stage::Input)];
/// let verdict = ScreenVerdict::Passed("my password=[secret: password]", rewrote);
/// assert!(matches!(verdict, ScreenVerdict::Passed(_, by) if by.len() == 1));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScreenVerdict<T> {
    /// The subject is accepted, after these interventions.
    Passed(T, Vec<Intervention>),
    /// The subject is not accepted.
    Blocked(Intervention),
}
