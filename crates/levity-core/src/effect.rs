use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Ask, CallId, ConversationChange, ConversationId, Decision, EffectClass, EffectId, Ending,
    Intervention, Limit, MemoryError, ModelError, Request, ReservedCost, Response, RunId,
    Timestamp, ToolCall, ToolResult,
};

/// Something a machine wants done in the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// Call a model.
    Model(ModelCall),
    /// Call a tool.
    Tool(ToolRun),
    /// Ask a person.
    Ask(Ask),
    /// Run a child to its end.
    Child(ChildRun),
    /// Let time pass.
    Wait(Wait),
    /// Save what was said in a conversation.
    Save(Save),
}

/// A call of a model.
///
/// The machine says which tools to offer by [`offer`](Self::offer); whoever performs the call fills
/// in their specs, so that a changing set of tools is no business of the machine's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCall {
    /// Which of the agent's models: `main`, unless another has been given for the purpose.
    pub slot: Arc<str>,
    /// What is sent, without tools.
    pub request: Request,
    /// Which tools are offered.
    pub offer: Offer,
    /// Whether the tool by which earlier results are read is among them: there is something to
    /// read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads: bool,
    /// The tools that the conversation has found or called, in that order: where only some of the
    /// tools are offered, these are among them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub found: Arc<[Arc<str>]>,
}

fn is_empty(names: &Arc<[Arc<str>]>) -> bool {
    names.is_empty()
}

impl ModelCall {
    /// A call of a model.
    pub fn new(slot: impl Into<Arc<str>>, request: Request, offer: Offer) -> Self {
        Self {
            slot: slot.into(),
            request,
            offer,
            reads: false,
            found: Arc::default(),
        }
    }

    /// Says whether there are earlier results to read.
    #[must_use]
    pub fn with_reads(mut self, reads: bool) -> Self {
        self.reads = reads;
        self
    }

    /// Says which tools the conversation has found or called.
    #[must_use]
    pub fn with_found(mut self, found: Arc<[Arc<str>]>) -> Self {
        self.found = found;
        self
    }
}

/// Which tools are offered to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Offer {
    /// All that there are.
    #[default]
    All,
    /// None: the model is to answer.
    None,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolRun {
    /// The call.
    pub call: ToolCall,
    /// Whether it was asked about and allowed.
    pub approved: bool,
    /// Whether it has no place among other calls: it neither waits for those before it nor holds up
    /// those behind it, whatever the tool says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
}

impl ToolRun {
    /// A call nobody was asked about yet.
    pub fn new(call: ToolCall) -> Self {
        Self {
            call,
            approved: false,
            unordered: false,
        }
    }

    /// A call that was allowed.
    pub fn approved(call: ToolCall) -> Self {
        Self {
            approved: true,
            ..Self::new(call)
        }
    }

    /// A call that has no place among others: what comes after what is decided by whoever wants it.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.unordered = true;
        self
    }
}

/// A run within a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildRun {
    /// The agent, by the name the parent knows it by.
    pub agent: Arc<str>,
    /// What it is to do.
    pub input: Value,
    /// The call it answers, if a model asked for it; calls of one turn keep their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Whether it was asked about and allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
}

impl ChildRun {
    /// Has `agent` do something.
    pub fn new(agent: impl Into<Arc<str>>, input: Value) -> Self {
        Self {
            agent: agent.into(),
            input,
            call: None,
            approved: false,
        }
    }

    /// Says which call it answers, and whether that was allowed by a person.
    #[must_use]
    pub fn for_call(mut self, call: CallId, approved: bool) -> Self {
        self.call = Some(call);
        self.approved = approved;
        self
    }
}

/// A time that a run lets pass; it may be days.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// How long, from when it begins.
    pub time: Duration,
    /// The call it answers, if a model asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Whether it was asked about and allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
}

impl Wait {
    /// Waits so long.
    pub fn new(time: Duration) -> Self {
        Self {
            time,
            call: None,
            approved: false,
        }
    }

    /// Says that it was asked about and allowed.
    #[must_use]
    pub fn with_approved(mut self, approved: bool) -> Self {
        self.approved = approved;
        self
    }

    /// Says which call it answers.
    #[must_use]
    pub fn for_call(mut self, call: CallId) -> Self {
        self.call = Some(call);
        self
    }
}

/// Something to save in a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Save {
    /// Which conversation.
    pub conversation: ConversationId,
    /// What.
    pub change: ConversationChange,
}

impl Save {
    /// Saves `change` in a conversation.
    pub fn new(conversation: ConversationId, change: ConversationChange) -> Self {
        Self {
            conversation,
            change,
        }
    }
}

/// What came of an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The model's reply, or why there is none.
    Model(Result<Response, ModelError>),
    /// The tool's answer; a failure is an answer too.
    Tool(ToolResult),
    /// It may not be performed before somebody was asked.
    NeedsApproval {
        /// Why not.
        reason: String,
    },
    /// It may not be performed.
    Denied {
        /// Why not.
        reason: String,
    },
    /// The person's answer.
    Decision(Decision),
    /// How the child ended.
    Child(Box<Ending>),
    /// The time has passed.
    Woken,
    /// What was said is saved, or why it is not.
    Saved(Result<(), MemoryError>),
    /// It was not performed, since a limit forbids it.
    Refused(Limit),
    /// The process ended while it was performed; nobody knows whether it took effect.
    Unknown,
}

impl Outcome {
    /// The guards that stepped in.
    pub fn guarded(&self) -> &[Intervention] {
        match self {
            Self::Model(Ok(response)) => &response.guarded,
            Self::Model(Err(error)) => error.guarded(),
            Self::Tool(result) => &result.guarded,
            Self::Child(ending) => &ending.guarded,
            _ => &[],
        }
    }
}

/// A fingerprint of something that is not written down in full; it tells a changed input from the
/// same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(u64);

impl Digest {
    /// The fingerprint of nothing.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// The fingerprint of what was before, followed by `bytes` (FNV-1a).
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let step =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }

    /// The fingerprint of what was before, followed by `value` as JSON.
    #[must_use]
    pub fn with_json(self, value: &impl Serialize) -> Self {
        let mut writer = DigestWriter(self);
        // The writer takes everything; what cannot be JSON at all counts as nothing.
        let _ = serde_json::to_writer(&mut writer, value);
        writer.0
    }

    /// The fingerprint of `value` as JSON.
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

/// What a journal says of an effect that began: enough to know it again, little enough to write
/// often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectNote {
    /// What kind of effect it is.
    pub kind: EffectKind,
    /// The model slot, tool or agent.
    pub name: Arc<str>,
    /// What performing it again would do.
    pub class: EffectClass,
    /// Whether it runs alone, after all that was asked for before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// The call it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// When a wait is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Fingerprints of what went in, by name; a replay compares them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<(String, Digest)>,
    /// What was set aside for it, where money or tokens are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<ReservedCost>,
    /// The idempotency key of a call that began in the run that this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
}

impl EffectNote {
    /// A note without fingerprints.
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
    /// A child run.
    Child,
    /// A time that passes.
    Wait,
    /// Something that is saved in a conversation.
    Save,
}

impl Effect {
    /// Its kind.
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

    /// The tool call it is about.
    pub fn call(&self) -> Option<&CallId> {
        match self {
            Self::Model(_) | Self::Save(_) => None,
            Self::Tool(run) => Some(&run.call.id),
            Self::Ask(ask) => Some(&ask.call.id),
            Self::Child(child) => child.call.as_ref(),
            Self::Wait(wait) => wait.call.as_ref(),
        }
    }

    /// Whether it is about a call that has a place among the other calls.
    pub fn is_ordered(&self) -> bool {
        match self {
            Self::Tool(run) => !run.unordered,
            _ => self.call().is_some(),
        }
    }

    /// Whether it was asked about and allowed.
    pub fn is_approved(&self) -> bool {
        match self {
            Self::Tool(run) => run.approved,
            Self::Child(child) => child.approved,
            Self::Wait(wait) => wait.approved,
            Self::Model(_) | Self::Ask(_) | Self::Save(_) => true,
        }
    }

    /// The model slot, tool or agent it is about.
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

/// The same for every attempt at one effect, also after a crash: `run/effect`. In a fork, a call
/// that had begun before keeps the key that it had; see [`EffectCx::key`](crate::EffectCx::key).
pub fn idempotency_key(run: &RunId, effect: EffectId) -> Arc<str> {
    format!("{run}/{effect}").into()
}
