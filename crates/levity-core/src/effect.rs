use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Ask, CallId, ConversationChange, ConversationId, Decision, EffectClass, EffectId, Ending,
    Intervention, Limit, Media, MemoryError, ModelError, Request, ReservedCost, Response, RunId,
    Timestamp, ToolCall, ToolResult,
};

/// An action that a machine requests from the runtime.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{Effect, EffectKind, Wait};
///
/// let effect = Effect::Wait(Wait::new(Duration::from_secs(60)));
/// assert_eq!((effect.kind(), effect.name()), (EffectKind::Wait, "wait"));
/// assert!(effect.call().is_none(), "the machine itself requests it, not a model");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// Calls a language model.
    Model(ModelCall),
    /// Calls a tool by name.
    Tool(ToolRun),
    /// Asks a person for a decision.
    Ask(Ask),
    /// Drives a child run to its end.
    Child(ChildRun),
    /// Waits for some time.
    Wait(Wait),
    /// Saves messages in a conversation.
    Save(Save),
}

/// A call of a model.
///
/// The machine selects the tools by [`offer`](Self::offer), and the executor fills in their specs.
/// So the machine does not depend on a changing set of tools.
///
/// ```
/// use levity_core::{Message, ModelCall, Offer, Request};
///
/// let request = Request::new().with_message(Message::user("Summarize the results."));
/// let call = ModelCall::new("main", request, Offer::None);
/// assert!(call.request.tools.is_empty() && call.offer == Offer::None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCall {
    /// The slot of the model: `main`, unless another one is configured for the purpose.
    pub slot: Arc<str>,
    /// The request to send, without tools.
    pub request: Request,
    /// The tools to include in the request.
    pub offer: Offer,
    /// `true` if the request includes the tool that reads earlier results, because there are
    /// results to read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads: bool,
    /// The tools that the conversation has found or called, in that order. If only some tools are
    /// included, these are among them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub found: Arc<[Arc<str>]>,
}

fn is_empty(names: &Arc<[Arc<str>]>) -> bool {
    names.is_empty()
}

impl ModelCall {
    /// Creates a call of a model.
    pub fn new(slot: impl Into<Arc<str>>, request: Request, offer: Offer) -> Self {
        Self {
            slot: slot.into(),
            request,
            offer,
            reads: false,
            found: Arc::default(),
        }
    }

    /// Sets whether there are earlier results to read.
    #[must_use]
    pub fn with_reads(mut self, reads: bool) -> Self {
        self.reads = reads;
        self
    }

    /// Sets the tools that the conversation has found or called.
    #[must_use]
    pub fn with_found(mut self, found: Arc<[Arc<str>]>) -> Self {
        self.found = found;
        self
    }
}

/// The tools to include in a model call.
///
/// ```
/// # use levity_core::Offer;
/// assert_eq!(Offer::default(), Offer::All);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Offer {
    /// All tools that are available.
    #[default]
    All,
    /// No tools: the model must answer.
    None,
}

/// A call of a tool.
///
/// ```
/// use levity_core::{Effect, ToolCall, ToolRun};
/// use serde_json::json;
///
/// let call = ToolCall::new("c1", "delete", json!({"path": "notes.txt"}));
/// assert!(!Effect::Tool(ToolRun::new(call.clone())).is_approved());
/// assert!(Effect::Tool(ToolRun::approved(call)).is_approved());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolRun {
    /// The call to make.
    pub call: ToolCall,
    /// `true` if a person was asked for approval and allowed it.
    pub approved: bool,
    /// `true` if the call has no order among other calls: it neither waits for earlier calls nor
    /// delays later ones, whatever the tool declares.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
}

impl ToolRun {
    /// Creates a call that no one has approved yet.
    pub fn new(call: ToolCall) -> Self {
        Self {
            call,
            approved: false,
            unordered: false,
        }
    }

    /// Creates a call that was approved.
    pub fn approved(call: ToolCall) -> Self {
        Self {
            approved: true,
            ..Self::new(call)
        }
    }

    /// Marks the call as unordered: the caller decides on the order.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.unordered = true;
        self
    }
}

/// A run that another run starts.
///
/// ```
/// use levity_core::{CallId, ChildRun, Effect};
/// use serde_json::json;
///
/// let child = ChildRun::new("writer", json!({"task": "Write a summary"}));
/// let effect = Effect::Child(child.for_call(CallId::new("c1"), false));
/// assert_eq!((effect.name(), effect.call()), ("writer", Some(&CallId::new("c1"))));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildRun {
    /// The name of the agent, as the parent knows it.
    pub agent: Arc<str>,
    /// The input of the agent.
    pub input: Value,
    /// The call that it answers, if a model requested it; calls of one turn keep their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// `true` if a person was asked for approval and allowed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// A name of the child for logs, such as its agent and step. It is not stored, because a stored
    /// child run is compared with the request for it.
    #[serde(skip)]
    pub label: Option<Arc<str>>,
    /// The images and other media of the goal, for agents whose model accepts them.
    #[serde(default, skip_serializing_if = "has_no_media")]
    pub media: Arc<[Media]>,
}

fn has_no_media(media: &[Media]) -> bool {
    media.is_empty()
}

impl ChildRun {
    /// Creates a child run of `agent` with this input.
    pub fn new(agent: impl Into<Arc<str>>, input: Value) -> Self {
        Self {
            agent: agent.into(),
            input,
            call: None,
            approved: false,
            label: None,
            media: Arc::default(),
        }
    }

    /// Sets a name of the child for logs.
    ///
    /// ```
    /// # use levity_core::ChildRun;
    /// # use serde_json::json;
    /// let child = ChildRun::new("writer", json!({"task": "Write."})).with_label("writer summary");
    /// assert_eq!(child.label.as_deref(), Some("writer summary"));
    /// ```
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the media of the goal.
    ///
    /// ```
    /// # use levity_core::{ChildRun, Media};
    /// # use serde_json::json;
    /// let chart = Media::url("image/png", "https://example.com/chart.png");
    /// let child = ChildRun::new("writer", json!({"task": "Describe it."})).with_media([chart]);
    /// assert_eq!(child.media.len(), 1);
    /// ```
    #[must_use]
    pub fn with_media(mut self, media: impl Into<Arc<[Media]>>) -> Self {
        self.media = media.into();
        self
    }

    /// Sets the call that it answers and whether a person approved it.
    #[must_use]
    pub fn for_call(mut self, call: CallId, approved: bool) -> Self {
        self.call = Some(call);
        self.approved = approved;
        self
    }
}

/// A wait for some time, possibly days.
///
/// The runtime journals the time at which the wait ends. A process that resumes the run later waits
/// only for the rest.
///
/// ```
/// # use std::time::Duration;
/// # use levity_core::Wait;
/// let wait = Wait::new(Duration::from_secs(2 * 86_400));
/// assert!(!wait.approved && wait.call.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// The duration of the wait, from its start.
    pub time: Duration,
    /// The call that it answers, if a model requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// `true` if a person was asked for approval and allowed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
}

impl Wait {
    /// Creates a wait of this duration.
    pub fn new(time: Duration) -> Self {
        Self {
            time,
            call: None,
            approved: false,
        }
    }

    /// Sets whether a person approved the wait.
    #[must_use]
    pub fn with_approved(mut self, approved: bool) -> Self {
        self.approved = approved;
        self
    }

    /// Sets the call that it answers.
    #[must_use]
    pub fn for_call(mut self, call: CallId) -> Self {
        self.call = Some(call);
        self
    }
}

/// A change to save in a conversation.
///
/// ```
/// use levity_core::{ConversationChange, Effect, Message, Save};
///
/// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
/// let effect = Effect::Save(Save::new("c1".into(), change));
/// assert_eq!(effect.name(), "c1");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Save {
    /// The id of the conversation.
    pub conversation: ConversationId,
    /// The change to save.
    pub change: ConversationChange,
}

impl Save {
    /// Creates an effect that saves `change` in a conversation.
    pub fn new(conversation: ConversationId, change: ConversationChange) -> Self {
        Self {
            conversation,
            change,
        }
    }
}

/// The outcome of an effect.
///
/// An outcome is data: the journal stores it, and a replay passes it to the machine again instead
/// of performing the effect.
///
/// ```
/// use levity_core::{Outcome, ToolCall, ToolError, ToolResult};
/// use serde_json::json;
///
/// let call = ToolCall::new("c1", "add", json!({"a": 2}));
/// let failed = Outcome::Tool(ToolResult::new(&call, Err(ToolError::failed("`b` is missing"))));
/// let stored = serde_json::to_string(&failed)?;
/// assert_eq!(serde_json::from_str::<Outcome>(&stored)?, failed);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The model's reply, or the reason why there is none.
    Model(Result<Response, ModelError>),
    /// The tool's result; a failure is a result too.
    Tool(ToolResult),
    /// The effect requires the approval of a person.
    NeedsApproval {
        /// The reason for requiring approval.
        reason: String,
    },
    /// The effect is not allowed.
    Denied {
        /// The reason for the denial.
        reason: String,
    },
    /// The decision of the person.
    Decision(Decision),
    /// The ending of the child run.
    Child(Box<Ending>),
    /// The wait has ended.
    Woken,
    /// The messages are saved, or the reason why they are not.
    Saved(Result<(), MemoryError>),
    /// A limit prevented the effect.
    Refused(Limit),
    /// The process ended while the effect was in progress; it may have taken effect.
    Unknown,
}

impl Outcome {
    /// Returns the interventions of guards in this outcome.
    pub fn guarded(&self) -> &[Intervention] {
        match self {
            Self::Model(Ok(response)) => &response.guarded,
            Self::Model(Err(error)) => error.guarded(),
            Self::Tool(result) => &result.guarded,
            Self::Child(ending) => &ending.guarded,
            _ => &[],
        }
    }

    /// Returns the result, if the effect was a tool call that finished.
    pub fn tool_result(&self) -> Option<&ToolResult> {
        match self {
            Self::Tool(result) => Some(result),
            _ => None,
        }
    }
}

/// A fingerprint of data that is not stored in full; it detects a changed input.
///
/// It is a 64-bit FNV-1a hash, which is not cryptographic: it finds accidental changes, not forged
/// ones.
///
/// ```
/// # use levity_core::Digest;
/// # use serde_json::json;
/// let setup = Digest::of(&json!({"model": "small"}));
/// assert_ne!(setup, Digest::of(&json!({"model": "large"})));
/// assert_eq!(Digest::EMPTY.to_string(), "cbf29ce484222325");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(u64);

impl Digest {
    /// The fingerprint of empty input.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Extends the fingerprint with `bytes` (FNV-1a).
    ///
    /// ```
    /// # use levity_core::Digest;
    /// let whole = Digest::EMPTY.with(b"Good morning");
    /// assert_eq!(Digest::EMPTY.with(b"Good ").with(b"morning"), whole);
    /// ```
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let step =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }

    /// Extends the fingerprint with `value` as JSON.
    #[must_use]
    pub fn with_json(self, value: &impl Serialize) -> Self {
        let mut writer = DigestWriter(self);
        // The writer accepts all bytes; a value that cannot be JSON adds nothing.
        let _ = serde_json::to_writer(&mut writer, value);
        writer.0
    }

    /// Returns the fingerprint of `value` as JSON.
    ///
    /// ```
    /// # use levity_core::Digest;
    /// # use serde_json::json;
    /// assert_eq!(Digest::of(&json!({"a": 1})), Digest::of(&json!({"a": 1})));
    /// assert_ne!(Digest::of(&json!({"a": 1})), Digest::of(&json!({"a": 2})));
    /// ```
    pub fn of(value: &impl Serialize) -> Self {
        Self::EMPTY.with_json(value)
    }
}

struct DigestWriter(Digest);

impl std::io::Write for DigestWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.with(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// The journal's description of an effect that began: enough to recognize it, and short enough to
/// write often.
///
/// ```
/// # use levity_core::{EffectClass, EffectKind, EffectNote};
/// let note = EffectNote::new(EffectKind::Tool, "send_mail", EffectClass::AtMostOnce);
/// assert!(!note.class.may_repeat(), "a crash leaves its outcome unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectNote {
    /// The kind of the effect.
    pub kind: EffectKind,
    /// The model slot, tool or agent.
    pub name: Arc<str>,
    /// The consequence of performing it again.
    pub class: EffectClass,
    /// `true` if it runs alone, after all effects requested before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// The tool call that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The time at which a wait ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The fingerprints of its inputs, by name; a replay compares them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<(String, Digest)>,
    /// The reserved cost, if money or tokens are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<ReservedCost>,
    /// The idempotency key of a call that began in the run that this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
}

impl EffectNote {
    /// Creates a note without fingerprints.
    pub fn new(kind: EffectKind, name: impl Into<Arc<str>>, class: EffectClass) -> Self {
        Self {
            kind,
            name: name.into(),
            class,
            alone: false,
            call: None,
            until: None,
            inputs: Vec::new(),
            reserved: None,
            key: None,
        }
    }
}

/// The kind of an effect.
///
/// ```
/// # use levity_core::EffectKind;
/// assert_eq!(serde_json::to_string(&EffectKind::Model)?, "\"model\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectKind {
    /// A call of a model.
    Model,
    /// A call of a tool.
    Tool,
    /// A question to a person.
    Ask,
    /// A child run of an agent.
    Child,
    /// A wait for some time.
    Wait,
    /// A change saved in a conversation.
    Save,
}

impl Effect {
    /// Returns the kind of the effect.
    pub fn kind(&self) -> EffectKind {
        match self {
            Self::Model(_) => EffectKind::Model,
            Self::Tool(_) => EffectKind::Tool,
            Self::Ask(_) => EffectKind::Ask,
            Self::Child(_) => EffectKind::Child,
            Self::Wait(_) => EffectKind::Wait,
            Self::Save(_) => EffectKind::Save,
        }
    }

    /// Returns the tool call that the effect belongs to.
    pub fn call(&self) -> Option<&CallId> {
        match self {
            Self::Model(_) | Self::Save(_) => None,
            Self::Tool(run) => Some(&run.call.id),
            Self::Ask(ask) => Some(&ask.call.id),
            Self::Child(child) => child.call.as_ref(),
            Self::Wait(wait) => wait.call.as_ref(),
        }
    }

    /// Returns `true` if the effect belongs to a call that has an order among other calls.
    ///
    /// ```
    /// # use levity_core::{Effect, ToolCall, ToolRun};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// assert!(Effect::Tool(ToolRun::new(call.clone())).is_ordered());
    /// assert!(!Effect::Tool(ToolRun::new(call).unordered()).is_ordered());
    /// ```
    pub fn is_ordered(&self) -> bool {
        match self {
            Self::Tool(run) => !run.unordered,
            _ => self.call().is_some(),
        }
    }

    /// Returns `true` if a person was asked for approval and allowed it.
    ///
    /// ```
    /// # use levity_core::{Effect, ToolCall, ToolRun};
    /// # use serde_json::json;
    /// let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    /// assert!(!Effect::Tool(ToolRun::new(call.clone())).is_approved());
    /// assert!(Effect::Tool(ToolRun::approved(call)).is_approved());
    /// ```
    pub fn is_approved(&self) -> bool {
        match self {
            Self::Tool(run) => run.approved,
            Self::Child(child) => child.approved,
            Self::Wait(wait) => wait.approved,
            Self::Model(_) | Self::Ask(_) | Self::Save(_) => true,
        }
    }

    /// Returns the model slot, tool or agent of the effect.
    pub fn name(&self) -> &str {
        match self {
            Self::Model(call) => &call.slot,
            Self::Tool(run) => &run.call.name,
            Self::Ask(ask) => &ask.call.name,
            Self::Child(child) => &child.agent,
            Self::Wait(_) => "wait",
            Self::Save(save) => save.conversation.as_str(),
        }
    }
}

/// Returns the key that all attempts at one effect share, even after a crash: `run/effect`. In a
/// fork, a call that began before the fork keeps its key; see
/// [`EffectCx::key`](crate::EffectCx::key).
///
/// ```
/// # use levity_core::{EffectId, RunId, idempotency_key};
/// assert_eq!(&*idempotency_key(&RunId::new("r1"), EffectId::new(4)), "r1/4");
/// ```
pub fn idempotency_key(run: &RunId, effect: EffectId) -> Arc<str> {
    format!("{run}/{effect}").into()
}
