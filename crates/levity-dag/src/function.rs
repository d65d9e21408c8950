use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{EffectClass, EffectCx, ToolError, ToolErrorKind};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A function of your program that runs steps.
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
///
/// A panic of the function fails the step and leaves the run intact. A function is not a blocking
/// context: move long computations to a blocking thread.
#[derive(Clone)]
#[must_use = "a function does nothing until a team has it"]
pub struct Function {
    call: Arc<Call>,
    pub(crate) description: Arc<str>,
    pub(crate) class: EffectClass,
}

type Call = dyn Fn(StepInput) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync;

impl Function {
    /// Creates a function from a closure. It returns an object with the variables that the step
    /// writes, or the bare value if the step writes one variable.
    ///
    /// If the process dies during a call, the function is not called again and the step fails; see
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

    /// Sets the description that a planner reads.
    ///
    /// Without a description, a planner reads "a function of the program".
    pub fn describe(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = text.into();
        self
    }

    /// Marks the function as read-only: levity calls it again if the process died during a call.
    pub fn read_only(mut self) -> Self {
        self.class = EffectClass::ReadOnly;
        self
    }

    /// Marks the function as idempotent, if necessary with the help of [`StepInput::key`]. levity
    /// calls it again if the process died during a call.
    ///
    /// ```
    /// use levity_dag::{Function, StepInput};
    /// use serde_json::json;
    ///
    /// let pay = Function::new(|input: StepInput| async move {
    ///     // The service ignores a second payment with the same key.
    ///     let key = input.key();
    ///     Ok(json!({"receipt": format!("paid with {key}")}))
    /// })
    /// .idempotent();
    /// # let _ = pay;
    /// ```
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

/// The input that a function receives.
///
/// ```
/// use levity_dag::{Plan, Step, StepInput, Team};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let team = Team::builder()
///     .function("greet", |input: StepInput| async move {
///         assert!(!input.interrupted && !input.key().is_empty());
///         assert!(input.get("missing").is_null());
///         Ok(json!(format!("Hello {}", input.parse::<String>("name")?)))
///     })
///     .build()?;
/// let plan = Plan::new()
///     .step(Step::new("greet", "greet").input("name", "Ada").writes(["greeting"]));
/// assert_eq!(team.run(plan).await?.text(), "Hello Ada");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepInput {
    /// The variables that the step reads, and its fixed inputs.
    pub values: Map<String, Value>,
    /// `true` if an earlier process started this call and did not finish it.
    pub interrupted: bool,
    cx: EffectCx,
}

impl StepInput {
    pub(crate) fn new(values: Map<String, Value>, cx: EffectCx) -> Self {
        Self {
            values,
            interrupted: cx.again,
            cx,
        }
    }

    /// Returns the value of a variable, or `null` if there is none.
    pub fn get(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or(&Value::Null)
    }

    /// Deserializes the value of a variable as a `T`.
    ///
    /// # Errors
    /// Returns an error if the value is missing or is not a `T`.
    pub fn parse<T: DeserializeOwned>(&self, name: &str) -> Result<T, ToolError> {
        T::deserialize(self.get(name)).map_err(|error| {
            ToolError::new(
                ToolErrorKind::InvalidArgs,
                format!("cannot read the input `{name}`: {error}"),
            )
        })
    }

    /// Returns an idempotency key that is the same whenever this attempt runs, including after a
    /// crash.
    pub fn key(&self) -> Arc<str> {
        self.cx.key()
    }
}
