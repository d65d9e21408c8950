//! Tools for tests: one that misbehaves, and one that remembers its calls.
//!
//! Both accept any JSON object, so that a test does not have to write a schema. Their counters are
//! shared by clones, because a dispatcher takes ownership of the tool that it gets.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use serde_json::{Value, json};

/// A tool that misbehaves on purpose. Clones share their count.
///
/// Each one accepts any object as arguments and is named after its fault.
///
/// ```
/// use levity_core::{Tool, ToolCx};
/// use levity_test::FaultyTool;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let tool = FaultyTool::fails(1).named("flaky");
/// assert!(tool.call(json!({}), &ToolCx::detached()).await.is_err());
/// assert!(tool.call(json!({}), &ToolCx::detached()).await.is_ok());
/// assert_eq!(tool.calls(), 2);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FaultyTool {
    spec: ToolSpec,
    fault: Fault,
    calls: Arc<AtomicUsize>,
}

/// The planned misbehaviour; `Fail` counts calls over all clones.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Panic,
    Hang,
    Huge(usize),
    WrongOutput,
    Fail(usize),
}

impl FaultyTool {
    /// Creates a tool that panics.
    pub fn panics() -> Self {
        Self::new("panics", Fault::Panic)
    }

    /// Creates a tool that never returns.
    ///
    /// Its future stays pending until it is dropped. Use it for tests of timeouts and cancellation.
    pub fn hangs() -> Self {
        Self::new("hangs", Fault::Hang)
    }

    /// Creates a tool that returns a text of this many bytes.
    ///
    /// Use it to test that long results are cut before they reach a model.
    ///
    /// ```
    /// use levity_core::{Tool, ToolCx};
    /// use levity_test::FaultyTool;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ToolError> {
    /// let output = FaultyTool::huge(1_000_000).call(json!({}), &ToolCx::detached()).await?;
    /// assert_eq!(output.as_text().len(), 1_000_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn huge(bytes: usize) -> Self {
        Self::new("huge", Fault::Huge(bytes))
    }

    /// Creates a tool that promises `{"sum": number}` and returns `{"sum": "seven"}`.
    ///
    /// The call itself succeeds: only a caller that validates results notices.
    ///
    /// ```
    /// use levity_core::{Tool, ToolCx};
    /// use levity_test::FaultyTool;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ToolError> {
    /// let tool = FaultyTool::wrong_output();
    /// let output = tool.call(json!({}), &ToolCx::detached()).await?;
    /// assert_eq!(output.value, Some(json!({"sum": "seven"})));
    /// assert_eq!(tool.spec().output.as_ref().unwrap()["properties"]["sum"]["type"], "number");
    /// # Ok(())
    /// # }
    /// ```
    pub fn wrong_output() -> Self {
        let mut tool = Self::new("wrong_output", Fault::WrongOutput);
        tool.spec = tool.spec.with_output(json!({
            "type": "object",
            "properties": {"sum": {"type": "number"}},
            "required": ["sum"],
        }));
        tool
    }

    /// Creates a tool that fails the first `times` calls with a transient error, then returns
    /// `done`.
    ///
    /// ```
    /// use levity_core::{Tool, ToolCx};
    /// use levity_test::FaultyTool;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let tool = FaultyTool::fails(2);
    /// for expected in [false, false, true] {
    ///     let result = tool.call(json!({}), &ToolCx::detached()).await;
    ///     assert_eq!(result.is_ok(), expected);
    /// }
    /// # }
    /// ```
    pub fn fails(times: usize) -> Self {
        Self::new("fails", Fault::Fail(times))
    }

    /// Sets the name of the tool.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// Sets the hints of the tool.
    #[must_use]
    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.spec.hints = hints;
        self
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn new(name: &str, fault: Fault) -> Self {
        Self {
            spec: any_object(name, "Misbehaves."),
            fault,
            calls: Arc::default(),
        }
    }
}

fn any_object(name: impl Into<String>, description: &str) -> ToolSpec {
    ToolSpec::new(name, description).with_input(json!({"type": "object"}))
}

#[async_trait]
impl Tool for FaultyTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let before = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::Panic => {
                panic_as_planned(&format!("tool `{}` panics as planned", self.spec.name))
            }
            Fault::Hang => pending().await,
            Fault::Huge(bytes) => Ok(ToolOutput::text("x".repeat(bytes))),
            Fault::WrongOutput => Ok(ToolOutput::value(json!({"sum": "seven"}))),
            Fault::Fail(times) if before < times => {
                Err(ToolError::transient("fails as planned; try again"))
            }
            Fault::Fail(_) => Ok(ToolOutput::text("done")),
        }
    }
}

/// Panics with this message; the one place of the crate that panics on behalf of a test.
#[expect(clippy::panic, reason = "a test asked for it")]
pub(crate) fn panic_as_planned(message: &str) -> ! {
    panic!("{message}")
}

/// A tool made of a function that remembers its calls. Clones share them.
///
/// ```
/// use levity_core::{Tool, ToolCx, ToolOutput};
/// use levity_test::RecordingTool;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ToolError> {
/// let echo = RecordingTool::new("echo", |args| Ok(ToolOutput::value(args.clone())));
/// echo.call(json!({"text": "hi"}), &ToolCx::detached()).await?;
/// assert_eq!(echo.calls()[0].args, json!({"text": "hi"}));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RecordingTool {
    spec: ToolSpec,
    work: Arc<Work>,
    undo: Option<Arc<Undo>>,
    calls: Arc<Mutex<Vec<RecordedCall>>>,
    undone: Arc<Mutex<Vec<RecordedCall>>>,
}

type Work = dyn Fn(&Value) -> Result<ToolOutput, ToolError> + Send + Sync;
type Undo = dyn Fn(&Value) -> Result<(), ToolError> + Send + Sync;

/// A recorded call of a [`RecordingTool`].
///
/// ```
/// use levity_core::{Tool, ToolCx, ToolOutput};
/// use levity_test::RecordingTool;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ToolError> {
/// let tool = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
/// tool.call(json!({"to": "Ada"}), &ToolCx::detached()).await?;
/// let call = &tool.calls()[0];
/// assert_eq!((call.attempt, call.resumed), (1, false));
/// assert_eq!(call.args["to"], "Ada");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The arguments of the call.
    pub args: Value,
    /// The idempotency key, which is the same for every attempt.
    pub key: Arc<str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// `true` if an earlier process had started the call.
    pub resumed: bool,
}

impl RecordedCall {
    fn new(args: &Value, cx: &ToolCx) -> Self {
        Self {
            args: args.clone(),
            key: cx.key.clone(),
            attempt: cx.attempt,
            resumed: cx.resumed,
        }
    }
}

impl RecordingTool {
    /// Creates a tool that accepts any object as arguments and returns the result of `work`.
    pub fn new(
        name: impl Into<String>,
        work: impl Fn(&Value) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
    ) -> Self {
        let spec = any_object(name, "Remembers how it was called.");
        Self {
            spec,
            work: Arc::new(work),
            undo: None,
            calls: Arc::default(),
            undone: Arc::default(),
        }
    }

    /// Sets the schema of the arguments.
    ///
    /// Neither the tool nor this crate validates arguments: a dispatcher does, with this schema.
    ///
    /// ```
    /// use levity_core::{Tool, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    /// let tool = RecordingTool::new("double", |_| Ok(ToolOutput::text("4")));
    /// let tool = tool.with_input(schema.clone());
    /// assert_eq!(tool.spec().input, schema);
    /// ```
    #[must_use]
    pub fn with_input(mut self, schema: Value) -> Self {
        self.spec.input = schema;
        self
    }

    /// Sets the hints of the tool.
    #[must_use]
    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.spec.hints = hints;
        self
    }

    /// Makes the tool compensable: `undo` undoes its calls.
    ///
    /// It also sets the hint that the calls can be undone. Without it, `undo` is recorded and
    /// fails.
    ///
    /// ```
    /// use levity_core::{Tool, ToolCx, ToolOutput};
    /// use levity_test::RecordingTool;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ToolError> {
    /// let book = RecordingTool::new("book", |_| Ok(ToolOutput::text("seat 7")));
    /// let book = book.with_undo(|_| Ok(()));
    /// book.call(json!({"seat": 7}), &ToolCx::detached()).await?;
    /// book.undo(json!({"seat": 7}), &ToolCx::detached()).await?;
    /// assert_eq!((book.calls().len(), book.undone().len()), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_undo(
        mut self,
        undo: impl Fn(&Value) -> Result<(), ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.spec.hints = self.spec.hints.compensable();
        self.undo = Some(Arc::new(undo));
        self
    }

    /// Returns the calls up to now.
    ///
    /// A call is recorded before `work` runs, so a failed one is included.
    pub fn calls(&self) -> Vec<RecordedCall> {
        recorded(&self.calls).clone()
    }

    /// Returns the calls that were undone up to now.
    pub fn undone(&self) -> Vec<RecordedCall> {
        recorded(&self.undone).clone()
    }
}

fn recorded(calls: &Mutex<Vec<RecordedCall>>) -> MutexGuard<'_, Vec<RecordedCall>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Tool for RecordingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        recorded(&self.calls).push(RecordedCall::new(&args, cx));
        (self.work)(&args)
    }

    async fn undo(&self, args: Value, cx: &ToolCx) -> Result<(), ToolError> {
        recorded(&self.undone).push(RecordedCall::new(&args, cx));
        match &self.undo {
            Some(undo) => undo(&args),
            None => Err(ToolError::failed(format!(
                "`{}` was made without an undo",
                self.spec.name
            ))),
        }
    }
}

impl fmt::Debug for RecordingTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingTool")
            .field("name", &self.spec.name)
            .finish_non_exhaustive()
    }
}
