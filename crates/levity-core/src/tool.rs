use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::__private::sha256;
use crate::message::output_text;
use crate::{
    CallId, CancelToken, Content, Media, Permit, RunId, Timestamp, ToolError, Values,
    WorkspaceSource,
};

/// An action that a model can request.
///
/// Write most tools with `#[tool]`; implement this trait for the rest.
///
/// # Contract
/// - `spec` always returns the same value.
/// - `call` only receives arguments that match the input schema, if a dispatcher calls it.
/// - Dropping the future of `call` cancels it as far as possible.
/// - A failure is an `Err`, written for the model to act on; a panic is caught and reported as a
///   failure.
/// - `undo` is called only if the hints say [`Compensable`](EffectClass::Compensable), with the
///   arguments and the key of the call to undo. That call may have taken no effect, part of it or
///   all of it, and it may have been undone before. It is no longer running: its future was
///   dropped, or its thread has returned. After `Ok`, none of its effects remain, and it may be
///   made again.
/// - `permit` does no I/O and returns immediately, unless `permit_blocks` returns `true`. A call
///   that it denies fails in `call` as well, because a rule of the policy can allow that call.
///
/// Use `levity_test::conformance::tool` to check an implementation.
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
///         let text = args["text"].as_str();
///         let text = text.ok_or_else(|| ToolError::failed("`text` is not a string"))?;
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
    /// Returns the name, description, schemas and hints.
    fn spec(&self) -> &ToolSpec;

    /// Performs the call with these arguments.
    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError>;

    /// Undoes a call, whatever its outcome. Implement it for a tool whose hints say
    /// [`compensable`](Hints::compensable); no other tool can be undone.
    async fn undo(&self, args: Value, cx: &ToolCx) -> Result<(), ToolError> {
        let _ = (args, cx);
        Err(ToolError::failed(format!(
            "`{}` cannot be undone: the tool does not implement `undo`",
            self.spec().name
        )))
    }

    /// Returns the permission for a call that no rule of the agent's policy covers. Implement it
    /// for a tool that is harmless with some arguments only, such as one that runs commands.
    ///
    /// A rule of the policy that allows a call takes precedence, so [`call`](Self::call) must
    /// refuse what the tool must never do.
    fn permit(&self, args: &Value) -> Permit {
        let _ = args;
        Permit::Allow
    }

    /// Returns `true` if [`permit`](Self::permit) may block its thread, for example to read files.
    /// It is then called on a separate thread.
    fn permit_blocks(&self) -> bool {
        false
    }

    /// Returns `true` if the tool reports every file that it changes with
    /// [`Progress::changed`]. Otherwise, the agent compares its workspace before and after a call
    /// that is not read-only.
    fn reports_changes(&self) -> bool {
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

    fn reports_changes(&self) -> bool {
        (**self).reports_changes()
    }
}

/// A group of tools that share state; `#[tool]` on an `impl` block creates one.
///
/// # Contract
/// - `into_tools` returns the same names in the same order each time the program starts. Providers
///   cache the list.
/// - No two tools have the same name.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::{Tool, Toolbox};
///
/// /// The tools of one customer.
/// struct Customer(Vec<Arc<dyn Tool>>);
///
/// impl Toolbox for Customer {
///     fn into_tools(self) -> Vec<Arc<dyn Tool>> {
///         self.0
///     }
/// }
/// assert!(Customer(Vec::new()).workspace().is_none());
/// ```
pub trait Toolbox {
    /// Returns the tools, in a stable order.
    fn into_tools(self) -> Vec<Arc<dyn Tool>>;

    /// Returns the folder that the tools work in, for the [`Context`](crate::Context) of their
    /// agent; none by default.
    fn workspace(&self) -> Option<Arc<dyn WorkspaceSource>> {
        None
    }
}

impl Toolbox for Vec<Arc<dyn Tool>> {
    fn into_tools(self) -> Vec<Arc<dyn Tool>> {
        self
    }
}

/// A set of tools that may change while agents run, such as an MCP server or a folder.
///
/// # Contract
/// - `tools` returns immediately, in a stable order and without duplicate names. It may read a file
///   but does not wait for a network.
/// - `version` changes whenever `tools` would return something else. It is called before every
///   request to a model, and `tools` only after a change.
/// - `problems` reports a set that cannot be read, such as a half-written file. The source decides
///   whether it retains its previous tools.
///
/// Use `levity_test::conformance::tool_source` to check an implementation.
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
/// // Behind an `Arc`, several agents and the program share it.
/// let plugins: Arc<dyn ToolSource> = Arc::new(Plugins::default());
/// assert_eq!((plugins.version(), plugins.tools().len()), (0, 0));
/// ```
pub trait ToolSource: Send + Sync {
    /// Returns the name of the source, for messages.
    fn name(&self) -> &str;
    /// Returns the current tools of the source.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;
    /// Returns a number that identifies the current set of tools.
    fn version(&self) -> u64;
    /// Returns the problems of the source, each as a clause that names an unusable tool. `version`
    /// changes with them.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns the part of the source that a tool belongs to, if the source has parts: for example
    /// one of several servers. Costs are reported per part, and models receive the parts to search.
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

/// The description of a tool for the model and the dispatcher.
///
/// ```
/// use levity_core::{Hints, ToolSpec};
/// use serde_json::json;
///
/// let spec = ToolSpec::new("weather", "Returns the weather of a city.")
///     .with_input(json!({
///         "type": "object",
///         "properties": {"city": {"type": "string"}},
///         "required": ["city"],
///     }))
///     .with_hints(Hints::new().read_only());
/// assert!(spec.hints.runs_in_parallel() && spec.output.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments: an object.
    pub input: Value,
    /// The JSON Schema of the output's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The hints about its behaviour.
    #[serde(default)]
    pub hints: Hints,
}

impl ToolSpec {
    /// Creates the spec of a tool without arguments.
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
    ///
    /// ```
    /// # use levity_core::ToolSpec;
    /// # use serde_json::json;
    /// let city = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    /// let spec = ToolSpec::new("weather", "Returns the weather of a city.").with_input(city);
    /// assert_eq!(spec.input["properties"]["city"]["type"], "string");
    /// ```
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

    /// Sets the hints about its behaviour.
    ///
    /// ```
    /// # use levity_core::{Hints, ToolSpec};
    /// let hints = Hints::new().destructive();
    /// let spec = ToolSpec::new("delete", "Deletes a file.").with_hints(hints);
    /// assert!(spec.hints.destructive);
    /// ```
    #[must_use]
    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }
}

/// Hints about the behaviour of a tool; the defaults are the most careful.
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
    /// The consequence of a repeated call.
    pub class: EffectClass,
    /// `true` if it may run beside other calls; if unset, only read-only tools may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<bool>,
    /// `true` if it may destroy something; by default the policy requires approval for such a call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub destructive: bool,
    /// `true` if it blocks its thread and so needs a separate one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocking: bool,
    /// The time limit of a call, if the dispatcher's default does not suit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The maximum bytes of text that its results show, if the dispatcher's default does not suit
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<usize>,
}

impl Hints {
    /// Creates the default hints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the tool as read-only: it changes nothing.
    ///
    /// Calls of such a tool may run beside other calls, and an interrupted one is repeated.
    ///
    /// ```
    /// # use levity_core::{EffectClass, Hints};
    /// assert_eq!(Hints::new().read_only().class, EffectClass::ReadOnly);
    /// ```
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.class = EffectClass::ReadOnly;
        self
    }

    /// Marks the tool as idempotent: a repeated call with the same key changes nothing more.
    ///
    /// ```
    /// # use levity_core::Hints;
    /// assert!(Hints::new().idempotent().class.may_repeat());
    /// ```
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.class = EffectClass::Idempotent;
        self
    }

    /// Marks the tool as compensable: it implements [`undo`](Tool::undo).
    ///
    /// ```
    /// # use levity_core::Hints;
    /// assert!(Hints::new().compensable().class.needs_undo());
    /// ```
    #[must_use]
    pub fn compensable(mut self) -> Self {
        self.class = EffectClass::Compensable;
        self
    }

    /// Allows the tool to run beside other calls.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.parallel = Some(true);
        self
    }

    /// Marks the tool as destructive: it may destroy something.
    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.destructive = true;
        self
    }

    /// Marks the tool as blocking: it blocks its thread.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// Sets the time limit of a call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use levity_core::Hints;
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(Hints::new().timeout(minute).timeout, Some(minute));
    /// ```
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Sets the maximum bytes of text that its results show.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = Some(bytes);
        self
    }

    /// Returns `true` if it may run beside other calls.
    pub fn runs_in_parallel(&self) -> bool {
        self.parallel.unwrap_or(self.class == EffectClass::ReadOnly)
    }
}

/// The consequence of performing an effect a second time.
///
/// ```
/// # use levity_core::EffectClass;
/// assert!(EffectClass::Idempotent.may_repeat() && EffectClass::Compensable.needs_undo());
/// assert_eq!(EffectClass::default(), EffectClass::AtMostOnce);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectClass {
    /// The effect changes nothing, so it may be repeated.
    ReadOnly,
    /// The same key changes nothing more, so the effect may be repeated.
    Idempotent,
    /// The effect may be repeated after it was undone; if that fails, its outcome is unknown.
    Compensable,
    /// The effect must not be repeated; if it started and did not finish, its outcome is unknown.
    #[default]
    AtMostOnce,
}

impl EffectClass {
    /// Returns `true` if the effect may be repeated without undoing it.
    ///
    /// ```
    /// # use levity_core::EffectClass;
    /// assert!(EffectClass::ReadOnly.may_repeat());
    /// assert!(!EffectClass::AtMostOnce.may_repeat());
    /// ```
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Idempotent)
    }

    /// Returns `true` if the effect must be undone before it is repeated.
    pub fn needs_undo(self) -> bool {
        self == Self::Compensable
    }
}

/// The output of a tool.
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
    /// The text and media for the model. Empty if the value is the whole output.
    pub content: Vec<Content>,
    /// The output as a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl ToolOutput {
    /// Creates an output of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::Text(text.into())],
            value: None,
        }
    }

    /// Creates an output of a value, which the model sees as JSON.
    pub fn value(value: Value) -> Self {
        Self {
            content: Vec::new(),
            value: Some(value),
        }
    }

    /// Adds an image, a sound or a document.
    ///
    /// ```
    /// # use levity_core::{Media, ToolOutput};
    /// let chart = Media::url("image/png", "https://example.com/chart.png");
    /// let output = ToolOutput::text("The sales of May.").with_media(chart);
    /// assert_eq!(output.content.len(), 2);
    /// ```
    #[must_use]
    pub fn with_media(mut self, media: Media) -> Self {
        self.content.push(Content::Media(media));
        self
    }

    /// Returns the text content or, if there is none, the value as JSON.
    pub fn as_text(&self) -> Cow<'_, str> {
        output_text(&self.content, self.value.as_ref())
    }
}

/// The circumstances of a tool call.
///
/// ```
/// # use levity_core::{CallId, RunId, ToolCx};
/// let cx = ToolCx::new(RunId::new("r1"), CallId::new("c1"), "r1/4");
/// assert_eq!((cx.attempt, &*cx.key), (1, "r1/4"));
/// assert!(!cx.resumed && !cx.cancel.is_cancelled());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCx {
    /// The run that made the call.
    pub run: RunId,
    /// The id of the call.
    pub call: CallId,
    /// The key that all attempts at this call share, even after a crash. Pass it to services that
    /// accept an idempotency key.
    pub key: Arc<str>,
    /// The number of the attempt: 1 at first, and one more for each retry.
    pub attempt: u32,
    /// `true` if an earlier process began this call and its progress is unknown.
    pub resumed: bool,
    /// The start time of this attempt.
    pub started: Timestamp,
    /// The deadline of the call.
    pub deadline: Deadline,
    /// The token that is cancelled when the result is no longer needed.
    pub cancel: CancelToken,
    /// The receiver of progress reports.
    pub progress: Progress,
    /// The values that the program passed to the run: `agent.run(..).with(User(7))`.
    pub values: Values,
}

impl ToolCx {
    /// Returns a value that the program passed to the run, by its type.
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

    /// Creates a context for a call outside any run, without a deadline or observers.
    ///
    /// ```
    /// # use levity_core::ToolCx;
    /// let cx = ToolCx::detached(); // for example in a test of a tool
    /// assert_eq!((cx.attempt, cx.deadline.at), (1, None));
    /// ```
    pub fn detached() -> Self {
        Self::new(
            RunId::from("detached"),
            CallId::from("detached"),
            "detached",
        )
    }

    /// Creates a context for a call of a run.
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

/// The deadline of a call.
///
/// ```
/// # use std::time::Duration;
/// # use levity_core::{Deadline, Timestamp};
/// let deadline = Deadline::new(Timestamp::from_millis(1_000), Duration::from_secs(30));
/// assert_eq!(deadline.at, Some(Timestamp::from_millis(31_000)));
/// assert_eq!(Deadline::default().at, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadline {
    /// The point in time; `None` means that there is no limit.
    pub at: Option<Timestamp>,
    /// The maximum duration of the call from its start.
    pub limit: Option<Duration>,
}

impl Deadline {
    /// Creates the deadline `limit` after `now`.
    pub fn new(now: Timestamp, limit: Duration) -> Self {
        Self {
            at: Some(now.after(limit)),
            limit: Some(limit),
        }
    }
}

/// A receiver of progress and file changes from a tool.
///
/// Texts become transient events. File changes belong to the result of the call: a dispatcher
/// collects them in [`ToolResult::changes`](crate::ToolResult::changes).
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
pub struct Progress {
    listener: Option<Arc<Listener>>,
    changes: Option<ChangeRecorder>,
}

type Listener = dyn Fn(ToolReport<'_>) + Send + Sync;

/// A report from a tool while it works.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use levity_core::{FileChange, Progress, ToolReport};
///
/// let files = Arc::new(Mutex::new(Vec::new()));
/// let seen = files.clone();
/// let progress = Progress::listen(move |report| {
///     if let ToolReport::File(change) = report {
///         seen.lock().unwrap().push(change.path.clone());
///     }
/// });
/// progress.report("half done");
/// progress.changed(&FileChange::removed("old.txt"));
/// assert_eq!(*files.lock().unwrap(), ["old.txt"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolReport<'a> {
    /// A description of the progress.
    Text(&'a str),
    /// A file that the tool changed.
    File(&'a FileChange),
}

impl Progress {
    /// Creates a receiver that passes only texts to `listener`.
    pub fn new(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::listen(move |report| {
            if let ToolReport::Text(text) = report {
                listener(text);
            }
        })
    }

    /// Creates a receiver that passes all reports to `listener`.
    pub fn listen(listener: impl Fn(ToolReport<'_>) + Send + Sync + 'static) -> Self {
        Self {
            listener: Some(Arc::new(listener)),
            changes: None,
        }
    }

    /// Records the file changes of a call, in addition to passing them to the listener.
    ///
    /// ```
    /// # use levity_core::{ChangeRecorder, FileChange, ToolCx};
    /// let (mut cx, recorder) = (ToolCx::detached(), ChangeRecorder::new());
    /// cx.progress = cx.progress.recording(recorder.clone());
    /// cx.progress.changed(&FileChange::written("notes.txt"));
    /// assert_eq!(recorder.take(), [FileChange::written("notes.txt")]);
    /// ```
    #[must_use]
    pub fn recording(mut self, recorder: ChangeRecorder) -> Self {
        self.changes = Some(recorder);
        self
    }

    /// Reports progress as text; costs nothing without a listener.
    ///
    /// ```
    /// # use levity_core::{Progress, ToolCx};
    /// let mut cx = ToolCx::detached();
    /// cx.progress = Progress::new(|text| assert_eq!(text, "3 of 7 pages"));
    /// cx.progress.report("3 of 7 pages");
    /// ```
    pub fn report(&self, text: impl AsRef<str>) {
        if let Some(listener) = &self.listener {
            listener(ToolReport::Text(text.as_ref()));
        }
    }

    /// Reports a file that was changed.
    pub fn changed(&self, change: &FileChange) {
        if let Some(recorder) = &self.changes {
            recorder.record(change);
        }
        if let Some(listener) = &self.listener {
            listener(ToolReport::File(change));
        }
    }
}

/// The file changes that a tool reports during one call; clones share them.
///
/// It holds one change for each path, the last one, and at most
/// [`MAX_CHANGES`](Self::MAX_CHANGES) paths of at most 4,096 bytes. It ignores all others.
///
/// ```
/// # use levity_core::{ChangeRecorder, FileChange, Progress};
/// let recorder = ChangeRecorder::new();
/// let progress = Progress::default().recording(recorder.clone());
/// progress.changed(&FileChange::written("a.txt"));
/// progress.changed(&FileChange::removed("a.txt"));
/// assert_eq!(recorder.take(), [FileChange::removed("a.txt")]);
/// assert!(recorder.take().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ChangeRecorder(Arc<Mutex<Vec<FileChange>>>);

impl ChangeRecorder {
    /// The maximum number of changed files that one call can report.
    pub const MAX_CHANGES: usize = 1_000;

    /// The maximum length of a path in bytes, as on Linux.
    const MAX_PATH: usize = 4_096;

    /// Creates a recorder without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the changes so far in the order of their first report, and forgets them.
    pub fn take(&self) -> Vec<FileChange> {
        std::mem::take(&mut *self.lock())
    }

    fn record(&self, change: &FileChange) {
        if change.path.len() > Self::MAX_PATH {
            return;
        }
        let mut changes = self.lock();
        let known = changes.iter().position(|known| known.path == change.path);
        match known {
            Some(at) => changes[at].clone_from(change),
            None if changes.len() < Self::MAX_CHANGES => changes.push(change.clone()),
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FileChange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that a tool changed.
///
/// ```
/// # use levity_core::{FileChange, FileChangeKind};
/// let change = FileChange::written("src/lib.rs");
/// assert_eq!((change.kind, &*change.kind.to_string()), (FileChangeKind::Written, "written"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileChange {
    /// The path relative to the workspace, with `/` between its parts.
    pub path: String,
    /// The kind of change.
    pub kind: FileChangeKind,
    /// The new size in bytes, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The SHA-256 hash of the new content in hexadecimal digits, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl FileChange {
    /// Creates the report of a file that was created or has new content.
    pub fn written(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind: FileChangeKind::Written,
            size: None,
            sha256: None,
        }
    }

    /// Creates the report of a file that was removed.
    pub fn removed(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind: FileChangeKind::Removed,
            size: None,
            sha256: None,
        }
    }

    /// Sets the size and the hash of the new content.
    ///
    /// ```
    /// # use levity_core::FileChange;
    /// let change = FileChange::written("hello.txt").with_content(b"hello");
    /// assert_eq!(change.size, Some(5));
    /// assert!(change.sha256.unwrap().starts_with("2cf24dba"));
    /// ```
    #[must_use]
    pub fn with_content(self, content: &[u8]) -> Self {
        let size = content.len() as u64;
        Self {
            sha256: Some(sha256(content)),
            ..self.with_size(size)
        }
    }

    /// Sets the size of the new content in bytes.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }
}

/// The kind of change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileChangeKind {
    /// The file was created or has new content.
    Written,
    /// The file was removed.
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
        f.debug_struct("Progress")
            .field("has_listener", &self.listener.is_some())
            .finish_non_exhaustive()
    }
}

/// A tool collected at link time; `#[tool]` registers each function whose name does not begin with
/// `_`.
///
/// ```
/// # use levity_core::LinkedTool;
/// // This program links no tool, so there is none.
/// assert!(LinkedTool::all().is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LinkedTool {
    make: fn() -> Arc<dyn Tool>,
}

impl LinkedTool {
    /// Creates the entry of a tool that this function creates.
    pub const fn new(make: fn() -> Arc<dyn Tool>) -> Self {
        Self { make }
    }

    /// Returns every tool linked into this program, sorted by name.
    pub fn all() -> Vec<Arc<dyn Tool>> {
        let mut tools: Vec<_> = inventory::iter::<Self>()
            .map(|linked| (linked.make)())
            .collect();
        tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
        tools
    }
}

inventory::collect!(LinkedTool);
