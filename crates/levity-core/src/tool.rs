use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::message::output_text;
use crate::{
    CallId, CancelToken, Content, Media, Permit, RunId, Timestamp, ToolError, Values,
    WorkspaceSource,
};

/// Something a model can have done.
///
/// Most tools are written with `#[tool]`; this trait is for the rest.
///
/// # Contract
/// - `spec` always returns the same.
/// - `call` is only given arguments that match the input schema, when it is called through a
///   dispatcher.
/// - Dropping the future of `call` cancels it as far as it can be cancelled.
/// - A failure is an `Err`, written for the model to act on; a panic is caught and told as a
///   failure.
/// - `undo` is called only where the hints say [`Compensable`](EffectClass::Compensable), with the
///   arguments and the key of the call it takes back. That call never took effect, half did or
///   wholly did, and it may have been undone before. It is no longer under way: its future was
///   dropped, or its thread has returned. After `Ok`, nothing of it is left, and it may be made
///   again.
/// - `permit` does no I/O and returns at once. A call that it denies fails in `call` as well.
///
/// `levity_test::conformance::tool` checks an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
/// use serde_json::{Value, json};
///
/// struct Shout(ToolSpec);
///
/// #[async_trait]
/// impl Tool for Shout {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
///         let text = args["text"].as_str().ok_or_else(|| ToolError::failed("`text` is no string"))?;
///         Ok(ToolOutput::text(text.to_uppercase()))
///     }
/// }
///
/// let shout = Shout(ToolSpec::new("shout", "Writes in capitals.").with_input(json!({
///     "type": "object",
///     "properties": {"text": {"type": "string"}},
///     "required": ["text"],
/// })));
/// assert_eq!(shout.spec().name, "shout");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "put `#[tool]` on the function, or implement `Tool` for the type"
)]
#[async_trait]
pub trait Tool: Send + Sync {
    /// Name, docs, schemas and hints.
    fn spec(&self) -> &ToolSpec;

    /// Does the work.
    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError>;

    /// Takes a call back, whatever has become of it. Implement it for a tool whose hints say
    /// [`compensable`](Hints::compensable); any other cannot be undone.
    async fn undo(&self, args: Value, cx: &ToolCx) -> Result<(), ToolError> {
        let _ = (args, cx);
        Err(ToolError::failed(format!(
            "`{}` cannot be undone: it does not say how",
            self.spec().name
        )))
    }

    /// Whether a call may be made, where no rule of the agent's policy says anything about it.
    /// Implement it for a tool that is harmless with some arguments and not with others: one that
    /// runs commands, for instance.
    fn permit(&self, args: &Value) -> Permit {
        let _ = args;
        Permit::Allow
    }

    /// Whether [`permit`](Self::permit) may block its thread: it reads files, for instance. It is
    /// then called on a thread of its own.
    fn permit_blocks(&self) -> bool {
        false
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        (**self).call(args, cx).await
    }

    async fn undo(&self, args: Value, cx: &ToolCx) -> Result<(), ToolError> {
        (**self).undo(args, cx).await
    }

    fn permit(&self, args: &Value) -> Permit {
        (**self).permit(args)
    }

    fn permit_blocks(&self) -> bool {
        (**self).permit_blocks()
    }
}

/// Several tools that share state: what `#[tool]` makes of an `impl` block.
pub trait Toolbox {
    /// The tools, in a stable order.
    fn into_tools(self) -> Vec<Arc<dyn Tool>>;

    /// The folder that the tools work in, for the [`Context`](crate::Context) of an agent that has
    /// them; none by default.
    fn workspace(&self) -> Option<Arc<dyn WorkspaceSource>> {
        None
    }
}

impl Toolbox for Vec<Arc<dyn Tool>> {
    fn into_tools(self) -> Vec<Arc<dyn Tool>> {
        self
    }
}

/// A set of tools that may change while agents run: an MCP server, a folder.
///
/// # Contract
/// - `tools` returns at once, in a stable order, and no name twice. It may look at a file, but
///   waits for no network.
/// - `version` changes whenever `tools` would return something else. It is called before every
///   request to a model, and `tools` only after it changed.
/// - A set that cannot be read, such as a file that is half written, is told by `problems`. The
///   source decides whether it keeps the tools it had.
///
/// `levity_test::conformance::tool_source` checks an implementation.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use levity_core::{Tool, ToolSource};
///
/// /// Tools that the program adds while agents run.
/// #[derive(Default)]
/// struct Plugins(Mutex<Vec<Arc<dyn Tool>>>);
///
/// impl ToolSource for Plugins {
///     fn name(&self) -> &str {
///         "plugins"
///     }
///     fn tools(&self) -> Vec<Arc<dyn Tool>> {
///         self.0.lock().map(|tools| tools.clone()).unwrap_or_default()
///     }
///     fn version(&self) -> u64 {
///         self.tools().len() as u64 // tools are only ever added
///     }
/// }
///
/// // Behind an `Arc`, several agents share it, and the program keeps it.
/// let plugins: Arc<dyn ToolSource> = Arc::new(Plugins::default());
/// assert_eq!((plugins.version(), plugins.tools().len()), (0, 0));
/// ```
pub trait ToolSource: Send + Sync {
    /// Where the tools come from, for messages.
    fn name(&self) -> &str;
    /// The tools there are now.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;
    /// A number that tells one set from the next.
    fn version(&self) -> u64;
    /// What the source has and cannot make a tool of, each in a clause that names it. `version`
    /// changes with it.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
    /// Which part of the source a tool is from, where the source has parts: the server, for one
    /// that has the tools of several. Costs are told apart by it, and models are told what there is
    /// to search.
    fn part(&self, tool: &str) -> Option<String> {
        let _ = tool;
        None
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: ToolSource + ?Sized> ToolSource for Arc<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        (**self).tools()
    }

    fn version(&self) -> u64 {
        (**self).version()
    }

    fn problems(&self) -> Vec<String> {
        (**self).problems()
    }

    fn part(&self, tool: &str) -> Option<String> {
        (**self).part(tool)
    }
}

/// What a model is told about a tool, and what the dispatcher holds it to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub input: Value,
    /// JSON Schema of the output's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// How it behaves.
    #[serde(default)]
    pub hints: Hints,
}

impl ToolSpec {
    /// A tool without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let input = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Self {
            name: name.into(),
            description: description.into(),
            input,
            output: None,
            hints: Hints::default(),
        }
    }

    /// Sets the schema of the arguments.
    #[must_use]
    pub fn with_input(mut self, schema: Value) -> Self {
        self.input = schema;
        self
    }

    /// Sets the schema of the output.
    #[must_use]
    pub fn with_output(mut self, schema: Value) -> Self {
        self.output = Some(schema);
        self
    }

    /// Sets the hints.
    #[must_use]
    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }
}

/// How a tool behaves; the default is the most careful.
///
/// ```
/// # use levity_core::Hints;
/// assert!(Hints::new().read_only().runs_in_parallel());
/// assert!(!Hints::new().runs_in_parallel());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Hints {
    /// What a second call would do.
    pub class: EffectClass,
    /// Whether it may run beside other calls; unset, only read-only tools may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<bool>,
    /// Whether it may destroy something; policy asks before such a call unless told otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub destructive: bool,
    /// Whether it blocks its thread, and so needs one of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocking: bool,
    /// How long it may take, when the dispatcher's default does not suit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How many bytes of text its results may show, when the dispatcher's default does not suit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<usize>,
}

impl Hints {
    /// The default hints.
    pub fn new() -> Self {
        Self::default()
    }

    /// It changes nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.class = EffectClass::ReadOnly;
        self
    }

    /// A second call with the same key changes nothing more.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.class = EffectClass::Idempotent;
        self
    }

    /// A call can be taken back: the tool implements [`undo`](Tool::undo).
    #[must_use]
    pub fn compensable(mut self) -> Self {
        self.class = EffectClass::Compensable;
        self
    }

    /// It may run beside other calls.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.parallel = Some(true);
        self
    }

    /// It may destroy something.
    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.destructive = true;
        self
    }

    /// It blocks its thread.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// How long it may take.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// How many bytes of text its results may show.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = Some(bytes);
        self
    }

    /// Whether it may run beside other calls.
    pub fn runs_in_parallel(&self) -> bool {
        self.parallel.unwrap_or(self.class == EffectClass::ReadOnly)
    }
}

/// What performing an effect a second time would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectClass {
    /// It changes nothing, so it may be performed again.
    ReadOnly,
    /// The same key changes nothing more, so it may be performed again.
    Idempotent,
    /// It may be performed again once it was undone; if that fails, its outcome is unknown.
    Compensable,
    /// It must not be performed again; what started and did not finish has an unknown outcome.
    #[default]
    AtMostOnce,
}

impl EffectClass {
    /// Whether it may be performed again as it is.
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Idempotent)
    }

    /// Whether it must be undone before it is performed again.
    pub fn needs_undo(self) -> bool {
        self == Self::Compensable
    }
}

/// What a tool returned.
///
/// ```
/// # use levity_core::ToolOutput;
/// assert_eq!(ToolOutput::text("done").as_text(), "done");
/// assert_eq!(ToolOutput::value(serde_json::json!({"sum": 7})).as_text(), r#"{"sum":7}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolOutput {
    /// Text and media for the model. Empty when the value says everything.
    pub content: Vec<Content>,
    /// The output as a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl ToolOutput {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::Text(text.into())],
            value: None,
        }
    }

    /// A value; the model sees it as JSON.
    pub fn value(value: Value) -> Self {
        Self {
            content: Vec::new(),
            value: Some(value),
        }
    }

    /// Adds an image, a sound or a document.
    #[must_use]
    pub fn with_media(mut self, media: Media) -> Self {
        self.content.push(Content::Media(media));
        self
    }

    /// The text content, or the value as JSON when there is none.
    pub fn as_text(&self) -> Cow<'_, str> {
        output_text(&self.content, self.value.as_ref())
    }
}

/// What a tool is told about the call it serves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCx {
    /// The run that called.
    pub run: RunId,
    /// The call.
    pub call: CallId,
    /// The same for every attempt at this call, also after a crash: hand it to services that take
    /// an idempotency key.
    pub key: Arc<str>,
    /// 1 at first, and one more for each retry.
    pub attempt: u32,
    /// Whether an earlier process had begun this call, and nobody knows how far it came.
    pub resumed: bool,
    /// When this attempt began.
    pub started: Timestamp,
    /// When the time is up.
    pub deadline: Deadline,
    /// Set when nobody wants the result any more.
    pub cancel: CancelToken,
    /// Takes word of how far the work is.
    pub progress: Progress,
    /// Values that the program gave the run: `agent.run(..).with(User(7))`.
    pub values: Values,
}

impl ToolCx {
    /// A value that the program gave the run, by its type.
    ///
    /// ```
    /// # use levity_core::{ToolCx, ToolError};
    /// struct User(u32);
    ///
    /// fn orders(cx: &ToolCx) -> Result<String, ToolError> {
    ///     let user = cx.get::<User>().ok_or_else(|| ToolError::failed("nobody is logged in"))?;
    ///     Ok(format!("the orders of user {}", user.0))
    /// }
    /// # assert!(orders(&ToolCx::detached()).is_err());
    /// ```
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get()
    }

    /// A context for a call of its own, outside any run: no deadline, nobody listening.
    pub fn detached() -> Self {
        Self::new(
            RunId::from("detached"),
            CallId::from("detached"),
            "detached",
        )
    }

    /// A context for a call of a run.
    pub fn new(run: RunId, call: CallId, key: impl Into<Arc<str>>) -> Self {
        Self {
            run,
            call,
            key: key.into(),
            attempt: 1,
            resumed: false,
            started: Timestamp::default(),
            deadline: Deadline::default(),
            cancel: CancelToken::new(),
            progress: Progress::default(),
            values: Values::new(),
        }
    }
}

/// When a call's time is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadline {
    /// The moment; `None` means that there is no limit.
    pub at: Option<Timestamp>,
    /// How long the call may take from its start.
    pub limit: Option<Duration>,
}

impl Deadline {
    /// `limit` from `now`.
    pub fn new(now: Timestamp, limit: Duration) -> Self {
        Self {
            at: Some(now.after(limit)),
            limit: Some(limit),
        }
    }
}

/// Takes word of how far a tool's work is and what it changed; it becomes events and is not kept.
///
/// ```
/// use levity_core::{FileChange, Progress, ToolReport};
///
/// let progress = Progress::listen(|report| match report {
///     ToolReport::Text(text) => println!("{text}"),
///     ToolReport::File(change) => println!("{} was {}", change.path, change.kind),
///     _ => {}
/// });
/// progress.report("half done");
/// progress.changed(&FileChange::written("notes.txt"));
/// ```
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Listener>>);

type Listener = dyn Fn(ToolReport<'_>) + Send + Sync;

/// What a tool reports while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolReport<'a> {
    /// How far it is, in words.
    Text(&'a str),
    /// A file that it changed.
    File(&'a FileChange),
}

impl Progress {
    /// Hands every word to `listener`, and no more.
    pub fn new(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::listen(move |report| {
            if let ToolReport::Text(text) = report {
                listener(text);
            }
        })
    }

    /// Hands everything that is reported to `listener`.
    pub fn listen(listener: impl Fn(ToolReport<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Reports in words; costs nothing when nobody listens.
    pub fn report(&self, text: impl AsRef<str>) {
        if let Some(listener) = &self.0 {
            listener(ToolReport::Text(text.as_ref()));
        }
    }

    /// Reports a file that was changed.
    pub fn changed(&self, change: &FileChange) {
        if let Some(listener) = &self.0 {
            listener(ToolReport::File(change));
        }
    }
}

/// A file that a tool changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileChange {
    /// The file, relative to the workspace, with `/` between its parts.
    pub path: String,
    /// What was done to it.
    pub kind: FileChangeKind,
}

impl FileChange {
    /// The file was made, or has other content now.
    pub fn written(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind: FileChangeKind::Written,
        }
    }

    /// The file is no longer there.
    pub fn removed(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind: FileChangeKind::Removed,
        }
    }
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileChangeKind {
    /// It was made, or has other content now.
    Written,
    /// It is no longer there.
    Removed,
}

impl fmt::Display for FileChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Written => "written",
            Self::Removed => "removed",
        })
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}

/// A tool collected at link time; `#[tool]` submits one for each function whose name does not begin
/// with `_`.
#[derive(Clone, Copy, Debug)]
pub struct LinkedTool {
    make: fn() -> Arc<dyn Tool>,
}

impl LinkedTool {
    /// A tool made by this function.
    pub const fn new(make: fn() -> Arc<dyn Tool>) -> Self {
        Self { make }
    }

    /// Every tool linked into this program, sorted by name.
    pub fn all() -> Vec<Arc<dyn Tool>> {
        let mut tools: Vec<_> = inventory::iter::<Self>()
            .map(|linked| (linked.make)())
            .collect();
        tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
        tools
    }
}

inventory::collect!(LinkedTool);
