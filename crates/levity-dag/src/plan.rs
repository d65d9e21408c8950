use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Faults;
use crate::read;
use crate::step::{Reducer, Step};

/// What is to be done, as data: steps, what they read and write, and what is given from the start.
///
/// A plan may be wrong in any way; [`Graph::check`](crate::Graph::check) says whether it can be
/// run.
///
/// ```
/// use levity_dag::{Plan, Step};
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").prompt("Find the page about tides.").writes(["page"]))
///     .step(Step::new("sum", "Summarizer").prompt("Sum it up.").reads(["page"]).writes(["summary"]));
/// assert_eq!(plan.steps.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Plan {
    /// The steps, in an order that only matters where nothing else decides.
    pub steps: Vec<Arc<Step>>,
    /// What is said about variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Arc<str>, Variable>,
    /// The variables that are there from the start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<Arc<str>, Value>,
}

impl Plan {
    /// 16 MiB of text.
    pub const MAX_BYTES: usize = 16 << 20;

    /// A plan without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Gives a variable from the start.
    #[must_use]
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.given.insert(name.into(), value.into());
        self
    }

    /// Says something about a variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<Arc<str>>, variable: Variable) -> Self {
        self.variables.insert(name.into(), variable);
        self
    }
}

impl Plan {
    /// Reads a plan that a person or a model has written, as JSON.
    ///
    /// It takes its own form, `{"steps": [..]}`, and the node-link form of graphs,
    /// `{"nodes": [..], "links": [..]}`; either may be wrapped in `plan` or `plan_graph`, or be in
    /// prose or a code fence. JSON that is malformed is mended as [`levity_llm::json`] does.
    /// `docs/plans.md` has all fields.
    ///
    /// ```
    /// use levity_dag::Plan;
    ///
    /// let plan = Plan::parse(r#"{"nodes": [{"id": "ROOT"}, {"id": 1, "agent": "Coder", "writes": ["x"]},
    ///     {"id": 2, "agent": "QA", "reads": ["x"]}], "links": [{"source": "ROOT", "target": 1}, {"source": 1, "target": 2}]}"#)?;
    /// assert_eq!(plan.steps[1].after[0].step.as_str(), "1");
    ///
    /// let faults = Plan::parse(r#"{"steps": [{"id": "a", "agent": "Coder", "read": ["x"]}]}"#).unwrap_err();
    /// assert_eq!(faults.to_string(), "step `a`: there is no field `read`; did you mean `reads`?");
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    ///
    /// # Errors
    /// When it is no plan: what does not fit is named with the step, the field and what was
    /// expected. Whether the plan can be run is another question, which
    /// [`Graph::check`](crate::Graph::check) answers.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        let value = read::value(text, "plan", read::is_plan).map_err(Faults::from)?;
        read::plan(&value)
    }

    /// Reads a plan in any of its forms.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    #[expect(clippy::needless_pass_by_value, reason = "a plan is made of the value")]
    pub fn from_value(value: Value) -> Result<Self, Faults> {
        read::plan(&value)
    }

    /// Reads a plan from a file of at most [`MAX_BYTES`](Self::MAX_BYTES). It blocks while it
    /// reads.
    ///
    /// # Errors
    /// When the file cannot be read, is too large or no UTF-8, or as [`parse`](Self::parse); all
    /// name the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let unreadable = |source| LoadError::Unreadable {
            path: path.into(),
            source,
        };
        // A pipe would be waited for, perhaps for ever.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            )));
        }
        let mut bytes = Vec::new();
        let most = Self::MAX_BYTES as u64 + 1;
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(most)
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

/// Why a plan could not be read from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is not there or cannot be read.
    #[error("the plan `{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is larger than a plan may be.
    #[error("the plan `{}` has more than {} bytes", path.display(), Plan::MAX_BYTES)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is no UTF-8.
    #[error("the plan `{}` is no UTF-8 at byte {at}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first byte that is none, counted from 0.
        at: usize,
    },
    /// The file holds no plan.
    #[error("the plan `{}` is wrong: {faults}", path.display())]
    Faulty {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        faults: Faults,
    },
}

/// What is said about a variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Variable {
    /// What its value must look like, as a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// How the values of several steps that write it become one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reducer: Option<Reducer>,
}

impl Variable {
    /// A variable of which nothing is said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What its value must look like, as a JSON Schema.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// How the values of several steps become one.
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
