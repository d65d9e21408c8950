//! The interpreter for users of the crate: one program in, one result out.
//!
//! It has no tools, so a program runs in a single segment. Clones share the pool of workers and
//! therefore the limit on parallel programs, which is the number of cores.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::engine::{End, FILE, Job, JobStart, Segment};
use crate::error::{Error, Result};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::function::Function;
use crate::isolation::{InterpreterPool, Isolation};
use crate::limits::ProgramLimits;
use crate::output::PrintedText;

/// A Python interpreter; cheap to clone.
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
    pool: Arc<InterpreterPool>,
}

/// The output of a program.
///
/// ```
/// use levity_python::Python;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_python::Error> {
/// let ran = Python::new().run("for n in range(3):\n    print(n)", json!({})).await?;
/// assert_eq!(ran.result, json!(null)); // a loop is a statement
/// assert_eq!(ran.output, "0\n1\n2\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgramOutput {
    /// The value of the last expression; `null` if the program ends with a statement.
    pub result: Value,
    /// The text that the program printed.
    pub output: String,
    /// The run time of the program.
    pub time: Duration,
}

impl Python {
    /// Creates an interpreter with the default [`ProgramLimits`], in a [process](Isolation::Auto)
    /// if available.
    pub fn new() -> Self {
        Self::isolated(Isolation::Auto)
    }

    /// Creates an interpreter with this isolation.
    pub fn isolated(isolation: Isolation) -> Self {
        let parallel = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            limits: ProgramLimits::new(),
            pool: Arc::new(InterpreterPool::new(isolation, parallel)),
        }
    }

    /// Returns the interpreter with other limits.
    ///
    /// ```
    /// use levity_python::{ProgramLimits, Python};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_python::Error> {
    /// let python = Python::new().with_limits(ProgramLimits::new().result(10));
    /// let ran = python.run("'x' * 1000", json!({})).await?;
    /// assert!(ran.result.as_str().unwrap().contains("the result has 1002 bytes of JSON"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_limits(mut self, limits: ProgramLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the limits of programs.
    pub fn limits(&self) -> &ProgramLimits {
        &self.limits
    }

    /// Returns `true` if programs run in separate processes. If not, `docs/python.md` lists the
    /// remaining risks.
    pub fn is_isolated(&self) -> bool {
        self.pool.is_process()
    }

    /// Runs a program with these variables, an object. Dropping the future stops it.
    ///
    /// Values of the program become JSON: tuples and sets become lists, dates become ISO 8601 text,
    /// and objects of classes become objects with their attributes. Other values become their text.
    ///
    /// ```
    /// use levity_python::Python;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_python::Error> {
    /// let code = "import datetime\n{'day': datetime.date(2025, 1, 31), 'pair': (a, a + 1)}";
    /// let ran = Python::new().run(code, json!({"a": 1})).await?;
    /// assert_eq!(ran.result, json!({"day": "2025-01-31", "pair": [1, 2]}));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the program fails or exceeds a limit ([`Error::fault`] gives the details), if the
    /// inputs are not an object, or if no process or thread is available.
    pub async fn run(&self, code: impl Into<String>, inputs: Value) -> Result<ProgramOutput> {
        let inputs = object(inputs)?;
        let segment = self
            .segment(self.job(FILE, code.into(), inputs, Vec::new()))
            .await?;
        program_output(segment)
    }

    /// Runs a program like [`run`](Self::run), but blocks the thread. Use it in code that is not
    /// async.
    ///
    /// It waits in a thread of its own, so it also works inside an async runtime. It does not count
    /// towards the limit on parallel programs.
    ///
    /// ```
    /// use levity_python::Python;
    /// use serde_json::json;
    ///
    /// let ran = Python::new().run_blocking("sorted(names)[0]", json!({"names": ["Bob", "Ada"]}))?;
    /// assert_eq!(ran.result, json!("Ada"));
    /// # Ok::<(), levity_python::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails under the same conditions as [`run`](Self::run).
    pub fn run_blocking(&self, code: impl Into<String>, inputs: Value) -> Result<ProgramOutput> {
        let segment =
            self.segment_blocking(self.job(FILE, code.into(), object(inputs)?, Vec::new()))?;
        program_output(segment)
    }

    /// Returns the first job of a program.
    pub(crate) fn job(
        &self,
        file: &str,
        code: String,
        inputs: Map<String, Value>,
        functions: Vec<Function>,
    ) -> Job {
        Job {
            from: JobStart::Source {
                file: file.to_owned(),
                code,
                inputs,
            },
            functions,
            limits: self.limits,
            calls_left: self.limits.calls,
            printed: PrintedText::default(),
        }
    }

    pub(crate) async fn segment(&self, job: Job) -> Result<Segment> {
        self.pool.run(job).await
    }

    /// Runs a segment and blocks the thread, even inside a runtime.
    pub(crate) fn segment_blocking(&self, job: Job) -> Result<Segment> {
        let pool = self.pool.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.map_err(|error| Error::Worker(error.to_string()))?;
            runtime.block_on(pool.run_now(job))
        };
        let broken = || Error::Worker("cannot start a thread to wait in".to_owned());
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

/// Converts the only segment of a program; without tools, a paused one can never be resumed.
fn program_output(segment: Segment) -> Result<ProgramOutput> {
    match segment.end {
        End::Done { result, .. } => Ok(ProgramOutput {
            result,
            output: segment.printed.text(),
            time: segment.time,
        }),
        End::Failed(fault) => Err(fault.into()),
        End::Paused { .. } => Err(ProgramFault::new(
            ProgramFaultKind::Crashed,
            "the program waits for a tool, but no tools are available",
        )
        .into()),
    }
}

/// Accepts `null` as an empty object, because callers pass it for "no variables".
fn object(value: Value) -> Result<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        _ => Err(Error::Setting(
            "the variables of a program must be an object".to_owned(),
        )),
    }
}
