use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::engine::{End, FILE, From, Job, Stretch};
use crate::error::{Error, Result};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::function::Function;
use crate::limits::ProgramLimits;
use crate::output::Printed;
use crate::place::{Isolation, Place};

/// Runs Python; cheap to clone.
///
/// ```
/// use levity_python::Python;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_python::Result<()> {
/// let ran = Python::new().run("print('hi')\nsum(prices) * 2", json!({"prices": [1, 2.5]})).await?;
/// assert_eq!(ran.result, json!(7.0));
/// assert_eq!(ran.output, "hi\n");
///
/// let error = Python::new().run("x = 1\nx / 0", json!({})).await.unwrap_err();
/// let fault = error.fault().unwrap();
/// assert_eq!(fault.message, "ZeroDivisionError: division by zero");
/// assert_eq!(fault.line, Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Python {
    limits: ProgramLimits,
    place: Arc<Place>,
}

/// What came of a program.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgramOutput {
    /// The value of the last expression; `null` when the program ends with something else.
    pub result: Value,
    /// What it printed.
    pub output: String,
    /// How long it ran.
    pub time: Duration,
}

impl Python {
    /// An interpreter with the default [`ProgramLimits`], in a [process](Isolation::Auto) where
    /// there is one.
    pub fn new() -> Self {
        Self::isolated(Isolation::Auto)
    }

    /// An interpreter that runs programs there.
    pub fn isolated(isolation: Isolation) -> Self {
        let parallel = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            limits: ProgramLimits::new(),
            place: Arc::new(Place::new(isolation, parallel)),
        }
    }

    /// The same interpreter with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: ProgramLimits) -> Self {
        self.limits = limits;
        self
    }

    /// What programs may use.
    pub fn limits(&self) -> &ProgramLimits {
        &self.limits
    }

    /// Whether programs run in processes of their own; if not, `docs/python.md` says what they can
    /// still do.
    pub fn is_isolated(&self) -> bool {
        self.place.is_process()
    }

    /// Runs a program with these variables, an object. Dropping the future stops it.
    ///
    /// # Errors
    /// When the program fails or uses more than it may ([`Error::fault`] says how), when the inputs
    /// are no object, and when there is no process or thread for it.
    pub async fn run(&self, code: impl Into<String>, inputs: Value) -> Result<ProgramOutput> {
        let inputs = object(inputs)?;
        let stretch = self
            .stretch(self.job(FILE, code.into(), inputs, Vec::new()))
            .await?;
        ran(stretch)
    }

    /// As [`run`](Self::run), for programs that are not async: the thread waits.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_blocking(&self, code: impl Into<String>, inputs: Value) -> Result<ProgramOutput> {
        let stretch =
            self.stretch_blocking(self.job(FILE, code.into(), object(inputs)?, Vec::new()))?;
        ran(stretch)
    }

    /// The first stretch of a program.
    pub(crate) fn job(
        &self,
        file: &str,
        code: String,
        inputs: Map<String, Value>,
        functions: Vec<Function>,
    ) -> Job {
        Job {
            from: From::Source {
                file: file.to_owned(),
                code,
                inputs,
            },
            functions,
            limits: self.limits,
            calls_left: self.limits.calls,
            printed: Printed::default(),
        }
    }

    pub(crate) async fn stretch(&self, job: Job) -> Result<Stretch> {
        self.place.run(job).await
    }

    /// Runs a stretch while the thread waits, in whatever the thread is in the middle of.
    pub(crate) fn stretch_blocking(&self, job: Job) -> Result<Stretch> {
        let place = self.place.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.map_err(|error| Error::Worker(error.to_string()))?;
            runtime.block_on(place.run_now(job))
        };
        let broken = || Error::Worker("there is no thread to wait in".to_owned());
        let thread = std::thread::Builder::new()
            .name("python wait".to_owned())
            .spawn(work);
        thread.map_err(|_| broken())?.join().map_err(|_| broken())?
    }
}

impl Default for Python {
    fn default() -> Self {
        Self::new()
    }
}

fn ran(stretch: Stretch) -> Result<ProgramOutput> {
    match stretch.end {
        End::Done { result, .. } => Ok(ProgramOutput {
            result,
            output: stretch.printed.text(),
            time: stretch.time,
        }),
        End::Failed(fault) => Err(fault.into()),
        End::Paused { .. } => Err(ProgramFault::new(
            ProgramFaultKind::Crashed,
            "the program waits for a tool, and there is none",
        )
        .into()),
    }
}

fn object(value: Value) -> Result<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        _ => Err(Error::Setting(
            "the variables of a program are an object, by name".to_owned(),
        )),
    }
}
