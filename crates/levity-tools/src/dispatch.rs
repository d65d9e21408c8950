//! The path of a call through a dispatcher, from the model's words to a bounded result.
//!
//! 1. Find the tool; suggest similar names if there is none.
//! 2. Validate the arguments, and correct harmless mistakes if that is enabled.
//! 3. Undo what an earlier process left of a compensable call.
//! 4. Apply the policy and the tool's own permit.
//! 5. Run the tool, with a timeout and retries.
//! 6. Validate the output and cut it to the shown size.
//!
//! Every step may end the call with a result. Foreign code (tools, rules, sources) is called so
//! that a panic becomes a result as well.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    ArgumentProblem, ChangeRecorder, Content, EffectClass, Eventual, Permit, Progress, RunId,
    ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolSpec, Values, WorkspaceSource,
    World,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::dispatch::backoff::Backoff;
use crate::entry::Entry;
use crate::policy::Policy;
use crate::registry::Registry;
use crate::schema::CorrectedArguments;
use crate::text::Truncated;

pub use builder::DispatcherBuilder;

mod attempt;
mod backoff;
mod builder;
mod changes;
mod find;
mod judge;
mod key_locks;
mod output;

/// The number of tools above which their names are not all listed to a model that used a wrong one.
const MAX_LISTED_NAMES: usize = 20;

/// The names of the tool that reads long results; the second one if a tool of the registry has the
/// first.
const READERS: [&str; 2] = ["read_result", "levity_read_result"];

/// Executes a model's tool calls from end to end; cheap to clone.
///
/// It finds the tool, validates the arguments, applies the policy, runs the tool under a timeout,
/// and retries repeatable calls. It also undoes calls where needed, validates the output and cuts
/// long results. Each failure on the way becomes a result that the model can act on. One dispatcher
/// serves any number of runs, and no call affects another.
///
/// A cut result carries its [`whole`](ToolResult::whole) output, and names the tool to read it with
/// and the id of the call. An agent's loop offers that tool and answers its calls. Without a loop,
/// do the same, or use the whole output directly.
///
/// ```
/// use levity_core::{EffectClass, Hints, ToolOutput};
/// use levity_test::RecordingTool;
/// use levity_tools::{Dispatcher, Registry};
///
/// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")))
///     .with_hints(Hints::new().read_only());
/// let dispatcher = Dispatcher::builder(Registry::builder().tool(look).build()?).build()?;
/// assert_eq!(dispatcher.class("look"), EffectClass::ReadOnly);
/// assert!(!dispatcher.runs_alone("look"));
/// assert_eq!(dispatcher.class("unknown"), EffectClass::AtMostOnce);
/// # Ok::<(), levity_tools::Error>(())
/// ```
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

struct Inner {
    registry: Registry,
    world: Arc<dyn World>,
    policy: Policy,
    timeout: Duration,
    retries: u32,
    backoff: Backoff,
    max_output: usize,
    max_media: usize,
    slots: Semaphore,
    reader: &'static str,
    search: Option<find::Search>,
    corrects: bool,
    workspace: Option<Arc<dyn WorkspaceSource>>,
}

impl Dispatcher {
    /// Starts building a dispatcher for these tools.
    pub fn builder(registry: Registry) -> DispatcherBuilder {
        DispatcherBuilder::new(registry)
    }

    /// Executes `call`. `approved` is `true` if a person has approved it.
    ///
    /// Dropping the future cancels the call.
    ///
    /// ```
    /// use levity_core::{ToolCall, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_tools::Error> {
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
    /// let dispatcher = Dispatcher::builder(Registry::builder().tool(look).build()?).build()?;
    /// let call = ToolCall::new("c1", "look", json!({}));
    /// let done = dispatcher.dispatch(&call, false, CallCx::new("r1".into(), "r1/0")).await;
    /// assert!(matches!(done, Dispatched::Done(result) if result.text() == "a shed"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dispatch(&self, call: &ToolCall, approved: bool, mut cx: CallCx) -> Dispatched {
        if self.finds(&call.name) {
            return Dispatched::Done(ToolResult::new(call, self.find_tools(call)));
        }
        // Read-only tools change no files, so their calls need no recorder.
        let is_read_only = self.class(&call.name) == EffectClass::ReadOnly;
        let recorder = (!is_read_only).then(ChangeRecorder::new);
        if let Some(recorder) = &recorder {
            cx.progress = cx.progress.recording(recorder.clone());
        }
        let outcome = match self.perform(call, approved, &cx).await {
            Ok(output) => Ok(output),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Ask(reason)) => return Dispatched::NeedsApproval { reason },
            Err(Stop::Unknown(reason)) => return Dispatched::Unknown { reason },
        };
        let mut result = ToolResult::new(call, outcome);
        result.changes = recorder.map_or_else(Box::default, |recorder| recorder.take().into());
        if !self.reports_changes(&call.name) {
            changes::add_note(&mut result);
        }
        self.fit(
            &mut result,
            self.find(&call.name)
                .and_then(|entry| entry.spec.hints.max_output),
        );
        Dispatched::Done(result)
    }

    /// Returns the specs for a request: the registry's tools. The same `Arc` until something
    /// changes.
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.0.registry.specs()
    }

    /// Returns the name of the tool that cut results refer to for the rest: `read_result`, or
    /// `levity_read_result` if there was a tool of that name when the dispatcher was built.
    pub fn reader(&self) -> &'static str {
        self.0.reader
    }

    /// Returns the maximum bytes of text that a result shows.
    pub fn max_output(&self) -> usize {
        self.0.max_output
    }

    /// Returns the effect of a second call of the tool; for an unknown tool the most careful guess.
    ///
    /// ```
    /// use levity_core::{EffectClass, Hints, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use levity_tools::{Dispatcher, Registry};
    ///
    /// let pay = RecordingTool::new("pay", |_| Ok(ToolOutput::text("paid")))
    ///     .with_hints(Hints::new().idempotent());
    /// let dispatcher = Dispatcher::builder(Registry::builder().tool(pay).build()?).build()?;
    /// assert_eq!(dispatcher.class("pay"), EffectClass::Idempotent);
    /// assert_eq!(dispatcher.class("steal"), EffectClass::AtMostOnce);
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn class(&self, name: &str) -> EffectClass {
        if self.finds(name) {
            return EffectClass::ReadOnly;
        }
        self.find(name)
            .map(|entry| entry.spec.hints.class)
            .unwrap_or_default()
    }

    /// Returns `true` if the tool may not run beside other calls of its turn.
    pub fn runs_alone(&self, name: &str) -> bool {
        !self.finds(name)
            && self
                .find(name)
                .is_some_and(|entry| !entry.spec.hints.runs_in_parallel())
    }

    /// Returns the policy's decision on a call, without executing it.
    ///
    /// A call that cannot be made anyway is allowed: [`dispatch`](Self::dispatch) reports the
    /// problem. A rule that may block runs on another thread.
    ///
    /// ```
    /// use levity_core::{Hints, Permit, ToolCall, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use levity_tools::{Dispatcher, Registry};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_tools::Error> {
    /// let delete = RecordingTool::new("delete", |_| Ok(ToolOutput::text("gone")))
    ///     .with_hints(Hints::new().destructive());
    /// let dispatcher = Dispatcher::builder(Registry::builder().tool(delete).build()?).build()?;
    /// let permit = dispatcher.permit(&ToolCall::new("c1", "delete", json!({}))).await;
    /// assert_eq!(permit, Permit::ask("it may destroy something"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn permit(&self, call: &ToolCall) -> Eventual<Permit> {
        let entry = self.find(&call.name).filter(|_| !self.finds(&call.name));
        let Some(entry) = entry else {
            return Permit::Allow.into();
        };
        match self.corrected(&entry, call) {
            Ok((args, _)) => self.judge(&entry, &args),
            Err(_) => Permit::Allow.into(),
        }
    }

    /// Returns the arguments of a call, once they match the schema of its tool.
    ///
    /// # Errors
    /// Returns an error if there is no such tool, or the arguments do not match.
    ///
    /// ```
    /// use levity_core::{ToolCall, ToolErrorKind, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use levity_tools::{Dispatcher, Registry};
    /// use serde_json::json;
    ///
    /// let add = RecordingTool::new("add", |_| Ok(ToolOutput::text("7"))).with_input(json!({
    ///     "type": "object",
    ///     "properties": {"a": {"type": "integer"}},
    ///     "required": ["a"],
    /// }));
    /// let dispatcher = Dispatcher::builder(Registry::builder().tool(add).build()?).build()?;
    /// let error = dispatcher.arguments(&ToolCall::new("c1", "add", json!({}))).unwrap_err();
    /// assert_eq!(error.kind(), ToolErrorKind::InvalidArgs);
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn arguments<'a>(&self, call: &'a ToolCall) -> Result<Cow<'a, Value>, ToolError> {
        let entry = self
            .find(&call.name)
            .ok_or_else(|| self.not_found(&call.name))?;
        self.corrected(&entry, call).map(|(args, _)| args)
    }

    /// Returns the problems of the arguments of a call; none if it may be made with them, or if
    /// there is no such tool.
    ///
    /// ```
    /// use levity_core::{ToolCall, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use levity_tools::{Dispatcher, Registry};
    /// use serde_json::json;
    ///
    /// let add = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")))
    ///     .with_input(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    /// let dispatcher = Dispatcher::builder(Registry::builder().tool(add).build()?).build()?;
    /// let problems = dispatcher.check_arguments(&ToolCall::new("c1", "add", json!({"a": "x"})));
    /// assert_eq!(problems[0].path, "/a");
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        let Some(entry) = self.find(&call.name) else {
            return Vec::new();
        };
        let Err(error) = self.corrected(&entry, call) else {
            return Vec::new();
        };
        let problems = entry.input.list_problems(&call.args);
        match problems.is_empty() {
            // The arguments are not JSON.
            true => vec![ArgumentProblem::new("", error.to_string())],
            false => problems,
        }
    }

    /// Returns the arguments of a call, and a note for the model if they were corrected.
    fn corrected<'a>(
        &self,
        entry: &Entry,
        call: &'a ToolCall,
    ) -> Result<CorrectedArguments<'a>, ToolError> {
        match self.0.corrects {
            true => entry.input.corrected(call),
            false => entry.input.arguments(call).map(|args| (args, None)),
        }
    }

    /// Returns the registry of the tools.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    async fn perform(
        &self,
        call: &ToolCall,
        approved: bool,
        cx: &CallCx,
    ) -> Result<ToolOutput, Stop> {
        let entry = self
            .find(&call.name)
            .ok_or_else(|| cx.stop(self.not_found(&call.name), None))?;
        let corrected = self.corrected(&entry, call);
        let (args, note) = corrected.map_err(|error| cx.stop(error, Some(&entry)))?;
        if cx.is_repeat {
            Box::pin(self.clear(&entry, call, &args, cx))
                .await
                .map_err(Stop::Unknown)?;
        }
        match self.judge(&entry, &args) {
            Eventual::Known(permit) => admit(permit, approved)?,
            Eventual::Later(permit) => admit(permit.await, approved)?,
        }
        let output = self.run_observed(&entry, call, &args, cx).await?;
        self.check(&entry, &output)?;
        Ok(match note {
            Some(note) => with_note(output, &note),
            None => output,
        })
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        self.0.registry.entry(name)
    }

    fn not_found(&self, name: &str) -> ToolError {
        let mut text = format!("there is no tool `{}`", Truncated(name, 64));
        let similar = self.0.registry.suggest(name);
        if !similar.is_empty() {
            text += &format!(
                "; did you mean {}?",
                quoted(similar.iter().map(|name| &**name))
            );
        }
        let specs = self.specs();
        if (1..=MAX_LISTED_NAMES).contains(&specs.len()) {
            text += &format!(
                "\nthe tools are {}",
                quoted(specs.iter().map(|spec| &*spec.name))
            );
        } else if let Some(finder) = self.finder() {
            text += &format!("\nlook for one with `{finder}`");
        }
        ToolError::new(ToolErrorKind::NotFound, text)
    }

    fn judge(&self, entry: &Arc<Entry>, args: &Value) -> Eventual<Permit> {
        // A rule may contain a closure of the user, and it reads text that a model wrote.
        let blocks = || {
            let policy = &self.0.policy;
            policy.blocks()
                || entry.tool.permit_blocks() && policy.ruled(&entry.spec, args).is_none()
        };
        match catch_unwind(AssertUnwindSafe(blocks)) {
            Ok(false) => self.judge_here(entry, args).into(),
            Ok(true) => {
                let (dispatcher, entry, args) = (self.clone(), entry.clone(), args.clone());
                Eventual::later(judge::on_thread(move || {
                    dispatcher.judge_here(&entry, &args)
                }))
            }
            Err(_) => judge::panicked().into(),
        }
    }

    fn judge_here(&self, entry: &Entry, args: &Value) -> Permit {
        let judge = AssertUnwindSafe(|| match self.0.policy.ruled(&entry.spec, args) {
            Some(verdict) => verdict.clone(),
            None => match entry.tool.permit(args) {
                Permit::Allow => self.0.policy.judge(&entry.spec, args),
                verdict => verdict,
            },
        });
        catch_unwind(judge).unwrap_or_else(|_| judge::panicked())
    }
}

fn admit(permit: Permit, approved: bool) -> Result<(), Stop> {
    match permit {
        Permit::Allow => Ok(()),
        Permit::Ask { .. } if approved => Ok(()),
        Permit::Ask { reason } => Err(Stop::Ask(reason)),
        Permit::Deny { reason } => {
            let text = format!("this call is not allowed: {reason}");
            Err(Stop::Failed(ToolError::new(ToolErrorKind::Denied, text)))
        }
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("registry", &self.0.registry)
            .finish_non_exhaustive()
    }
}

/// Returns an output with a note before it.
fn with_note(mut output: ToolOutput, note: &str) -> ToolOutput {
    keep_value_visible(&mut output.content, output.value.as_ref());
    output.content.insert(0, Content::Text(format!("{note}\n")));
    output
}

/// Adds a value as text, because the model sees a value only as long as there is no text.
fn keep_value_visible(content: &mut Vec<Content>, value: Option<&Value>) {
    if content.is_empty() {
        content.extend(value.map(|value| Content::Text(value.to_string())));
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The context of a call, beside the call itself.
///
/// ```
/// # use levity_core::{RunId, Values};
/// # use levity_tools::CallCx;
/// struct User(u32);
///
/// let cx = CallCx::new(RunId::new("r1"), "r1/4").with_values(Values::new().with(User(7)));
/// assert!(!cx.is_repeat);
/// assert_eq!(cx.values.get::<User>().map(|user| user.0), Some(7));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallCx {
    /// The run that makes the call.
    pub run: RunId,
    /// The idempotency key: the same for every attempt at this call, even after a crash.
    pub key: Arc<str>,
    /// `true` if an earlier process had started this call and did not finish it. A compensable call
    /// is then undone before it is repeated, and an at-most-once call has an unknown outcome.
    pub is_repeat: bool,
    /// The receiver of the tool's progress.
    pub progress: Progress,
    /// The values that the program gave to the run.
    pub values: Values,
}

impl CallCx {
    /// Creates the context of a call of `run`, without a receiver of progress.
    pub fn new(run: RunId, key: impl Into<Arc<str>>) -> Self {
        Self {
            run,
            key: key.into(),
            is_repeat: false,
            progress: Progress::default(),
            values: Values::new(),
        }
    }

    /// Sets if an earlier process had started this call and did not finish it.
    #[must_use]
    pub fn with_again(mut self, again: bool) -> Self {
        self.is_repeat = again;
        self
    }

    /// Sets the values that the program gave to the run.
    #[must_use]
    pub fn with_values(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    /// Sets the receiver of the progress.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Returns the reason for which a call is not made. A call that had started may have taken
    /// effect if the tool was another one then.
    fn stop(&self, error: ToolError, entry: Option<&Arc<Entry>>) -> Stop {
        let harmless = entry.is_some_and(|entry| entry.spec.hints.class.may_repeat());
        if !self.is_repeat || harmless {
            return Stop::Failed(error);
        }
        Stop::Unknown(format!(
            "the call had started before, and cannot be made or undone now: {}",
            error.explain()
        ))
    }
}

/// The result of dispatching a call.
///
/// ```
/// use levity_core::{Hints, RunId, ToolCall, ToolOutput};
/// use levity_test::RecordingTool;
/// use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_tools::Error> {
/// let pay = RecordingTool::new("pay", |_| Ok(ToolOutput::text("paid")));
/// let dispatcher = Dispatcher::builder(Registry::builder().tool(pay).build()?).build()?;
/// // An earlier process began this call, and it must not be made twice.
/// let cx = CallCx::new(RunId::new("r1"), "r1/4").with_again(true);
/// let done = dispatcher.dispatch(&ToolCall::new("c1", "pay", json!({})), false, cx).await;
/// assert!(matches!(done, Dispatched::Unknown { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every value is a result, which is moved once"
)]
pub enum Dispatched {
    /// The call has a result, which may be a failure.
    Done(ToolResult),
    /// Nothing was done yet: a person has to approve the call first.
    NeedsApproval {
        /// The reason, for the person.
        reason: String,
    },
    /// An earlier process had started the call, and its outcome is unknown.
    Unknown {
        /// The reason for which the outcome is unknown.
        reason: String,
    },
}

/// The reason for which a call has no output.
enum Stop {
    Failed(ToolError),
    Ask(String),
    Unknown(String),
}

impl From<ToolError> for Stop {
    fn from(error: ToolError) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests;
