use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Faults;
use crate::read;
use crate::step::{Reducer, Step};

/// A plan as data: its steps, the variables they read and write, and the initial variables.
///
/// A plan can be invalid; [`Graph::check`](crate::Graph::check) validates it.
///
/// ```
/// use levity_dag::{Plan, Step};
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").prompt("Find the page about tides.").writes(["page"]))
///     .step(
///         Step::new("sum", "Summarizer").prompt("Sum it up.").reads(["page"]).writes(["summary"]),
///     );
/// assert_eq!(plan.steps.len(), 2);
/// ```
///
/// # Serialization
/// A plan serializes to levity's own form, `{"steps": [..], "variables": {..}, "given": {..}}`, and
/// omits empty fields. `Deserialize` accepts that form only and ignores unknown fields. Use
/// [`parse`](Self::parse) for text that a person or a model wrote: it accepts more forms and
/// reports misspelt fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Plan {
    /// The steps in plan order. The order matters only where nothing else decides.
    pub steps: Vec<Arc<Step>>,
    /// The declarations of variables, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Arc<str>, Variable>,
    /// The initial variables, set before the first step starts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<Arc<str>, Value>,
}

impl Plan {
    /// The maximum size of a plan's text: 16 MiB.
    pub const MAX_BYTES: usize = 16 << 20;

    /// Creates a plan without steps.
    ///
    /// [`Graph::check`](crate::Graph::check) rejects a plan that has no steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step to the plan.
    ///
    /// The order of calls is the plan order. It breaks ties: reducers combine values in this order,
    /// and independent steps of equal priority start in it.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Sets a variable before the first step starts.
    ///
    /// Steps read initial variables like written ones. A step may also write a variable of the same
    /// name; later readers then get the written value.
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("double", |input: StepInput| async move {
    ///         Ok(json!(2 * input.parse::<i64>("n")?))
    ///     })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .given("n", 21)
    ///     .step(Step::new("double", "double").reads(["n"]).writes(["n"]));
    /// assert_eq!(team.run(plan).await?.variable("n"), Some(&json!(42)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.given.insert(name.into(), value.into());
        self
    }

    /// Declares a schema or a reducer for a variable.
    ///
    /// ```
    /// use levity_dag::{Plan, Reducer, Step, StepInput, Team, Variable};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("vote", |input: StepInput| async move { Ok(input.get("points").clone()) })
    ///     .build()?;
    /// // Both steps write `total`, and the reducer adds the values.
    /// let plan = Plan::new()
    ///     .variable("total", Variable::new().reducer(Reducer::Sum))
    ///     .step(Step::new("first", "vote").input("points", 3).writes(["total"]))
    ///     .step(Step::new("second", "vote").input("points", 4).writes(["total"]));
    /// assert_eq!(team.run(plan).await?.variable("total"), Some(&json!(7)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn variable(mut self, name: impl Into<Arc<str>>, variable: Variable) -> Self {
        self.variables.insert(name.into(), variable);
        self
    }
}

impl Plan {
    /// Parses a plan that a person or a model wrote as JSON.
    ///
    /// The parser accepts levity's own form, `{"steps": [..]}`, and the node-link form of graphs,
    /// `{"nodes": [..], "links": [..]}`. Either form may be wrapped in `plan` or `plan_graph`, or
    /// embedded in prose or a code fence. The parser repairs malformed JSON as [`levity_llm::json`]
    /// does. `docs/plans.md` lists all fields.
    ///
    /// ```
    /// use levity_dag::Plan;
    ///
    /// let plan = Plan::parse(r#"{
    ///     "nodes": [{"id": "ROOT"}, {"id": 1, "agent": "Coder", "writes": ["x"]},
    ///         {"id": 2, "agent": "QA", "reads": ["x"]}],
    ///     "links": [{"source": "ROOT", "target": 1}, {"source": 1, "target": 2}]
    /// }"#)?;
    /// assert_eq!(plan.steps[1].after[0].step.as_str(), "1");
    ///
    /// let faults = Plan::parse(r#"{"steps": [{"id": "a", "agent": "Coder", "read": ["x"]}]}"#)
    ///     .unwrap_err();
    /// assert_eq!(faults.to_string(), "step `a`: there is no field `read`; did you mean `reads`?");
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    ///
    /// # Errors
    /// Returns the faults if the text is not a plan. Each fault names the step, the field and the
    /// expected value. `parse` does not check that the plan can run;
    /// [`Graph::check`](crate::Graph::check) does.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        let value = read::value(text, "plan", read::is_plan).map_err(Faults::from)?;
        read::plan(&value)
    }

    /// Reads a plan from JSON in any of its forms.
    ///
    /// # Errors
    /// Returns the same errors as [`parse`](Self::parse).
    ///
    /// ```
    /// use levity_dag::Plan;
    /// use serde_json::json;
    ///
    /// let plan = Plan::from_value(json!({"plan": {"steps": {
    ///     "fetch": {"agent": "Retriever", "writes": ["page"]},
    ///     "sum": {"agent": "Summarizer", "depends_on": "fetch"},
    /// }}}))?;
    /// assert_eq!(plan.steps[1].after[0].step.as_str(), "fetch");
    /// assert!(Plan::from_value(json!("no plan")).is_err());
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers hand over the value that the plan \
        replaces"
    )]
    pub fn from_value(value: Value) -> Result<Self, Faults> {
        read::plan(&value)
    }

    /// Reads a plan from a file of at most [`MAX_BYTES`](Self::MAX_BYTES). The call blocks.
    ///
    /// The path must name a regular file, because reading from a pipe could block forever. A byte
    /// order mark at the start is ignored.
    ///
    /// ```
    /// use levity_dag::{LoadError, Plan};
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("plan.json");
    /// std::fs::write(&path, r#"{"steps": [{"id": "sum", "agent": "Summarizer"}]}"#).unwrap();
    /// assert_eq!(Plan::load(&path)?.steps[0].id.as_str(), "sum");
    ///
    /// let error = Plan::load(folder.path().join("missing.json")).unwrap_err();
    /// assert!(matches!(error, LoadError::Unreadable { .. }));
    /// # Ok::<(), LoadError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is too large or is not UTF-8, or if
    /// [`parse`](Self::parse) fails. Every error names the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let unreadable = |source| LoadError::Unreadable {
            path: path.into(),
            source,
        };
        // Reading from a pipe could block forever.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file; use the path of one",
            )));
        }
        let mut bytes = Vec::new();
        let limit = Self::MAX_BYTES as u64 + 1;
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        if bytes.len() > Self::MAX_BYTES {
            return Err(LoadError::TooLarge { path: path.into() });
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| LoadError::NotText {
            path: path.into(),
            at: error.valid_up_to(),
        })?;
        let text = text.trim_start_matches('\u{feff}');
        Self::parse(text).map_err(|faults| LoadError::Faulty {
            path: path.into(),
            faults,
        })
    }
}

/// The reason why loading a plan from a file failed.
///
/// Each variant has the path, and `Display` names it. Convert the error into a
/// [`levity_core::Error`] with `?`; it becomes a configuration error.
///
/// ```
/// use levity_dag::{LoadError, Plan};
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("plan.json");
/// std::fs::write(&path, b"{\"steps\": [\xff]}").unwrap();
/// let Err(LoadError::NotText { at, .. }) = Plan::load(&path) else { unreachable!() };
/// assert_eq!(at, 11);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is missing or cannot be read.
    #[error("cannot read the plan `{}`", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
    /// The file is larger than [`Plan::MAX_BYTES`].
    #[error(
        "the plan `{}` is larger than the limit of {} bytes; split it or shorten it",
        path.display(),
        Plan::MAX_BYTES
    )]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is not valid UTF-8.
    #[error("the plan `{}` is not valid UTF-8 at byte {at}; save it as UTF-8", path.display())]
    NotText {
        /// The path of the file.
        path: PathBuf,
        /// The offset of the first invalid byte, counted from 0.
        at: usize,
    },
    /// The file does not contain a valid plan.
    #[error("the plan `{}` is invalid: {faults}", path.display())]
    Faulty {
        /// The path of the file.
        path: PathBuf,
        /// The faults found in the plan.
        faults: Faults,
    },
}

/// The declaration of a variable: its schema and its reducer.
///
/// levity validates a value against the schema when a step writes it, and an initial value when the
/// plan is checked. A value that does not match is a failure of the step; an agent gets up to two
/// complaints about it first.
///
/// ```
/// use levity_dag::{
///     FaultKind, Graph, Plan, PlanConstraints, Step, StepRunner, StepRunnerKind, Variable,
/// };
/// use serde_json::json;
///
/// let known = PlanConstraints::new()
///     .with("A", StepRunner::new(StepRunnerKind::Agent, "works"));
/// let plan = Plan::new()
///     .variable("count", Variable::new().schema(json!({"type": "integer"})))
///     .given("count", "many")
///     .step(Step::new("sum", "A").reads(["count"]));
/// let faults = Graph::check(plan, &known).unwrap_err();
/// assert_eq!(faults.faults[0].kind, FaultKind::Variable);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Variable {
    /// The JSON Schema that the value must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The reducer that combines the values when several steps write the variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reducer: Option<Reducer>,
}

impl Variable {
    /// Creates a declaration without a schema or a reducer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the JSON Schema that the value must match.
    ///
    /// The schema may have at most [`PlanConstraints::max_text`](crate::PlanConstraints::max_text)
    /// bytes and 64 levels of nesting.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets the reducer that combines the values of several steps.
    ///
    /// Without a reducer, two steps may write a variable only if one of them runs after the other.
    /// Their last value then counts.
    #[must_use]
    pub fn reducer(mut self, reducer: Reducer) -> Self {
        self.reducer = Some(reducer);
        self
    }
}

impl From<LoadError> for levity_core::Error {
    fn from(error: LoadError) -> Self {
        Self::config(error)
    }
}
