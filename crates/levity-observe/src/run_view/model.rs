//! The parts of a view, as they are serialized.

use std::sync::Arc;

use levity_core::{AskKind, Ending, FileChange, RunId, Timestamp, ToolCall, Usage};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::text::{bounded, bounded_json};

/// The state of a run in a [`RunView`](super::RunView).
///
/// ```
/// use levity_core::{Event, EventKind, RunId, Timestamp};
/// use levity_observe::{RunView, ViewState};
///
/// let mut view = RunView::new(RunId::new("r1"));
/// assert_eq!(view.state(), ViewState::Running);
/// view.apply(&Event::new(RunId::new("r1"), 1, Timestamp::default(), EventKind::Paused));
/// assert_eq!(view.state(), ViewState::Paused);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ViewState {
    /// The run is in progress.
    #[default]
    Running,
    /// The run is paused.
    Paused,
    /// The run or a child run waits for a person or a point in time.
    Waiting,
    /// The run has ended.
    Ended,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemKind {
    /// The goal, or a message from a person.
    User,
    /// A text of a model.
    Text,
    /// The thinking of a model.
    Thinking,
    /// A call of a tool, a program or an agent.
    Call,
    /// A question to a person.
    Ask,
    /// A remark about the progress of the run.
    Notice,
    /// An error that the run or a call reported.
    Error,
    /// The answer of the run.
    Answer,
    /// An image, a sound or a document.
    Media,
}

/// An entry of the chat and log of a run.
///
/// ```
/// use levity_core::{Event, EventKind, RunId, Timestamp};
/// use levity_observe::{ItemKind, RunView};
///
/// let goal = EventKind::Goal { text: "Tidy up.".into() };
/// let event = Event::new(RunId::new("r1"), 1, Timestamp::default(), goal);
/// let view = RunView::of(RunId::new("r1"), [&event]);
/// let item = view.items().next().expect("the goal is an item");
/// assert_eq!((item.kind, item.text.as_deref()), (ItemKind::User, Some("Tidy up.")));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewItem {
    /// The id, which stays the same while the item changes.
    pub id: String,
    /// The time of the event that created the item.
    pub at: Timestamp,
    /// The run in which the event occurred.
    pub run: RunId,
    /// The number of the record that the item follows from, from which the run can be forked.
    pub seq: u64,
    /// The id of the node that the item belongs to.
    pub node: Arc<str>,
    /// The kind of the item.
    pub kind: ItemKind,
    /// The text: untrusted and at most 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `true` if the text was cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The call of an item of the kinds `call` and `ask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<ViewCall>>,
    /// The content of an item of the kind `media`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<Box<ViewMedia>>,
    /// The slot of the model that wrote the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The usage of the model call, in its last item.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_usage"
    )]
    pub usage: Option<Usage>,
}

impl ViewItem {
    /// Returns the approximate size of the item in bytes.
    pub(super) fn size(&self) -> usize {
        let call = self.call.as_ref().map_or(0, |call| call.size());
        let media = self.media.as_ref().map_or(0, |media| media.size());
        256 + self.id.len() + self.text.as_ref().map_or(0, String::len) + call + media
    }
}

/// The status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallStatus {
    /// A person must decide first.
    Waiting,
    /// The call is in progress.
    Running,
    /// The call returned a result.
    Done,
    /// The call returned an error.
    Failed,
    /// The policy or a person denied the call.
    Denied,
    /// The outcome of the call is unknown.
    Unknown,
}

/// A call of a tool, a program or an agent.
///
/// ```
/// use levity_core::{EffectId, Event, EventKind, RunId, Timestamp, ToolCall};
/// use levity_observe::{CallStatus, RunView};
/// use serde_json::json;
///
/// let call = ToolCall::new("c1", "read_file", json!({"path": "a.md"}));
/// let started = EventKind::ToolStarted { effect: EffectId::new(3), call };
/// let event = Event::new(RunId::new("r1"), 1, Timestamp::default(), started);
/// let view = RunView::of(RunId::new("r1"), [&event]);
/// let item = view.items().next().expect("the call is an item");
/// let call = item.call.as_ref().expect("the item has a call");
/// assert_eq!((&*item.id, &*call.name), ("r1:3", "read_file"));
/// assert_eq!(call.status, CallStatus::Running);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewCall {
    /// The name of the tool, the program or the agent.
    pub name: String,
    /// The arguments; a text with the beginning of the JSON if they are longer than 64 KiB.
    pub args: Value,
    /// The result as text: untrusted and at most 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// `true` if the arguments or the result were cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// `true` if the call failed.
    pub failed: bool,
    /// The status of the call.
    pub status: CallStatus,
    /// The time at which the call started, or at which the question was asked.
    pub started: Timestamp,
    /// The time of the result or the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The child run that performs the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// The latest report of progress, while the call is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The kind of response that a question requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<AskKind>,
    /// The decision on a question: `allow`, `edit`, `answer` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// The files that the call changed, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
    /// The usage of a child run.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_usage"
    )]
    pub usage: Option<Usage>,
}

impl ViewCall {
    pub(super) fn new(name: &str, args: &Value, status: CallStatus, started: Timestamp) -> Self {
        let (args, truncated) = bounded_json(args);
        Self {
            name: bounded(name, 200).0,
            args,
            result: None,
            truncated,
            failed: false,
            status,
            started,
            ended: None,
            child: None,
            progress: None,
            wanted: None,
            decision: None,
            files: Vec::new(),
            usage: None,
        }
    }

    fn size(&self) -> usize {
        let args = super::text::size_of(&self.args);
        256 + args + self.result.as_ref().map_or(0, String::len) + self.files.len() * 256
    }
}

/// An image, a sound or a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewMedia {
    /// The media type, such as `image/png`: untrusted.
    pub mime: String,
    /// The file name, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The URL of media that a provider fetches itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The bytes in base64, if there are at most 256 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<levity_core::Bytes>,
}

impl ViewMedia {
    fn size(&self) -> usize {
        let data = self.data.as_ref().map_or(0, |data| data.as_slice().len());
        256 + data + self.url.as_ref().map_or(0, String::len)
    }
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeKind {
    /// A run of an agent.
    Agent,
    /// A step of a plan.
    Step,
    /// An element of a step that runs once for each element of a list.
    Item,
    /// A piece of work in a swarm.
    Worker,
    /// A run of a program, such as Python code.
    Program,
    /// A run of a team.
    Team,
    /// A run of a swarm.
    Swarm,
}

/// The status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeStatus {
    /// It has not started.
    Pending,
    /// It is in progress.
    Running,
    /// It waits for a person or for the next attempt.
    Waiting,
    /// It completed without an error.
    Completed,
    /// It failed in all its attempts.
    Failed,
    /// It was skipped and never started.
    Skipped,
    /// It was cancelled, or in progress when its run ended.
    Cancelled,
}

impl NodeStatus {
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

/// A node of the graph of a run: a step, a worker, an agent or a program.
///
/// Nodes with the same parent form a group with its own layers: `layer` is the length of the
/// longest path to the node within its group, and `row` its position in the layer.
///
/// ```
/// use levity_core::RunId;
/// use levity_observe::{NodeKind, NodeStatus, RunView};
///
/// let view = RunView::new(RunId::new("r1"));
/// let root = view.nodes().next().expect("the run itself is a node");
/// assert_eq!((root.kind, root.status), (NodeKind::Agent, NodeStatus::Pending));
/// assert!(root.parent.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewNode {
    /// The id: `RUN` for a run, `RUN/STEP` for a step or a worker, `RUN/STEP#0` for an element.
    pub id: Arc<str>,
    /// The name to show: untrusted.
    pub label: String,
    /// The kind of the node.
    pub kind: NodeKind,
    /// The agent, function or tool that does the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The status of the node.
    pub status: NodeStatus,
    /// The node that contains it; `None` for the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<str>>,
    /// The layer in the group, from 0.
    pub layer: u32,
    /// The row in the layer, from 0.
    pub row: u32,
    /// The attempt, from 1; 0 before it starts.
    pub attempt: u32,
    /// The time of the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// The time at which it was settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The usage up to now.
    #[serde(serialize_with = "usage")]
    pub usage: Usage,
    /// The error, or the reason for skipping it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The description from the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The instructions of a step, or the goal of a run: at most 8 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The output: at most 8 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The progress over the elements of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemProgressView>,
    /// The current activity, such as `calls web_search`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// The latest run that works for the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// `true` if a text was cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The progress of a step over the elements of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ItemProgressView {
    /// The number of settled elements, including the failed ones.
    pub done: u32,
    /// The number of failed elements.
    pub failed: u32,
    /// The total number of elements.
    pub total: u32,
}

/// A question that waits for a decision.
///
/// ```
/// use levity_core::{Ask, EffectId, Event, EventKind, RunId, Timestamp, ToolCall};
/// use levity_observe::RunView;
/// use serde_json::json;
///
/// let (run, call) = (RunId::new("r1"), ToolCall::new("c1", "delete", json!({"path": "a"})));
/// let ask = Ask::new(run.clone(), EffectId::new(4), call, "it deletes a file");
/// let event = Event::new(run.clone(), 1, Timestamp::default(), EventKind::Asked(ask));
/// let view = RunView::of(run, [&event]);
/// let ask = view.asks().next().expect("one question is pending");
/// assert!(ask.id.starts_with("r1:4:"));
/// assert_eq!((&*ask.call.name, ask.truncated), ("delete", false));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewAsk {
    /// The id, `RUN:EFFECT:FINGERPRINT`. The item of the question has the id `RUN:EFFECT`, and
    /// [`Ask::fingerprint`](levity_core::Ask::fingerprint) explains the rest.
    pub id: String,
    /// The run that asks.
    pub run: RunId,
    /// The number of the question's effect in that run.
    pub effect: levity_core::EffectId,
    /// The call to decide on.
    pub call: ToolCall,
    /// The reason, or the question itself.
    pub reason: String,
    /// The kind of response that is requested.
    pub wanted: AskKind,
    /// The node that the question belongs to.
    pub node: Arc<str>,
    /// The time at which it was first asked.
    pub at: Timestamp,
    /// `true` if the arguments or the reason were cut. A person must read the complete call before
    /// they allow it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A file that a run wrote and did not remove again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ViewArtifact {
    /// The path relative to the workspace: untrusted.
    pub path: String,
    /// The size in bytes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The SHA-256 hash, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The media type that the extension of the path indicates.
    pub media_type: &'static str,
    /// The time of the last change.
    pub at: Timestamp,
    /// The run that wrote the file.
    pub run: RunId,
    /// The node that wrote the file.
    pub node: Arc<str>,
    /// The id of the item of the call that wrote the file.
    pub item: String,
}

fn usage_json(usage: &Usage) -> Value {
    let mut json = json!(usage);
    json["tokens"] = usage.total().into();
    json["dollars"] = usage
        .cost
        .map_or(Value::Null, |cost| (cost.nanos() as f64 / 1e9).into());
    json
}

/// Serializes the usage with the total number of tokens and the cost in dollars.
pub(super) fn usage<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
    usage_json(usage).serialize(serializer)
}

fn optional_usage<S: Serializer>(usage: &Option<Usage>, serializer: S) -> Result<S::Ok, S::Error> {
    usage.as_ref().map(usage_json).serialize(serializer)
}

/// Returns the usage as JSON, with the total number of tokens and the cost in dollars.
pub(super) fn usage_value(usage: &Usage) -> Value {
    usage_json(usage)
}

/// Returns the ending as JSON; `why` is the status in words.
pub(super) fn ending_json(ending: &Ending) -> Value {
    let (text, truncated) = bounded(&ending.text, super::MAX_TEXT);
    let value = ending.value.as_ref().map(|value| bounded_json(value).0);
    json!({
        "status": ending.status,
        "why": bounded(&ending.status.to_string(), super::MAX_TEXT).0,
        "text": text,
        "truncated": truncated,
        "value": value,
        "finish": ending.finish,
    })
}
