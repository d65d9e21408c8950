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
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step to the plan.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Sets a variable before the first step starts.
    #[must_use]
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.given.insert(name.into(), value.into());
        self
    }

    /// Declares a schema or a reducer for a variable.
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
    /// let plan = Plan::parse(r#"{"nodes": [{"id": "ROOT"}, {"id": 1, "agent": "Coder", "writes": ["x"]},
    ///     {"id": 2, "agent": "QA", "reads": ["x"]}], "links": [{"source": "ROOT", "target": 1}, {"source": 1, "target": 2}]}"#)?;
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
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets the reducer that combines the values of several steps.
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
