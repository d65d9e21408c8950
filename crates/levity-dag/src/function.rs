use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{EffectClass, EffectCx, ToolError, ToolErrorKind};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A function of the program that does steps.
///
/// ```
/// use levity_dag::Function;
/// use serde_json::json;
///
/// let double = Function::new(|input| async move {
///     let n: i64 = input.parse("n")?;
///     Ok(json!({"twice": 2 * n}))
/// })
/// .describe("Doubles `n` into `twice`.")
/// .read_only();
/// ```
#[derive(Clone)]
#[must_use = "a function does nothing until a team has it"]
pub struct Function {
    call: Arc<Call>,
    pub(crate) description: Arc<str>,
    pub(crate) class: EffectClass,
}

type Call = dyn Fn(StepInput) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync;

impl Function {
    /// A function. What it returns is an object with the variables that the step writes or, where
    /// that is one, its value.
    ///
    /// When the process dies while it runs, it is not run again, and the step has failed; see
    /// [`idempotent`](Self::idempotent).
    pub fn new<F>(function: impl Fn(StepInput) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        let call: Arc<Call> = Arc::new(move |input| Box::pin(function(input)));
        Self {
            call,
            description: "a function of the program".into(),
            class: EffectClass::default(),
        }
    }

    /// What it is good for, for a planner.
    pub fn describe(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = text.into();
        self
    }

    /// It changes nothing: it is run again when a process died while it ran.
    pub fn read_only(mut self) -> Self {
        self.class = EffectClass::ReadOnly;
        self
    }

    /// Running it twice is as good as once, by [`StepInput::key`] if need be: it is run again when
    /// a process died while it ran.
    pub fn idempotent(mut self) -> Self {
        self.class = EffectClass::Idempotent;
        self
    }

    pub(crate) fn call(&self, input: StepInput) -> BoxFuture<'static, Result<Value, ToolError>> {
        (self.call)(input)
    }
}

impl<F, R> From<F> for Function
where
    F: Fn(StepInput) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, ToolError>> + Send + 'static,
{
    fn from(function: F) -> Self {
        Self::new(function)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

/// What a function is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepInput {
    /// The variables that the step reads, and its fixed inputs.
    pub values: Map<String, Value>,
    /// Whether an earlier process had begun this and did not finish it.
    pub again: bool,
    cx: EffectCx,
}

impl StepInput {
    pub(crate) fn new(values: Map<String, Value>, cx: EffectCx) -> Self {
        Self {
            values,
            again: cx.again,
            cx,
        }
    }

    /// The value of a variable; `null` when there is none.
    pub fn get(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or(&Value::Null)
    }

    /// The value of a variable as a `T`.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse<T: DeserializeOwned>(&self, name: &str) -> Result<T, ToolError> {
        T::deserialize(self.get(name)).map_err(|error| {
            ToolError::new(
                ToolErrorKind::InvalidArgs,
                format!("`{name}` is not what is wanted: {error}"),
            )
        })
    }

    /// The same for every time this attempt is run, also after a crash.
    pub fn key(&self) -> Arc<str> {
        self.cx.key()
    }
}
