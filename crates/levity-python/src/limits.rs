//! The limits of a program, with their defaults.
//!
//! All are stored in the state of a run, so a resumed run keeps the limits with which it was
//! started. Fields that an older version did not know get their default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The resources that a program may use.
///
/// ```
/// # use std::time::Duration;
/// # use levity_python::ProgramLimits;
/// let limits = ProgramLimits::new().time(Duration::from_secs(1)).calls(10);
/// assert_eq!(limits.memory, ProgramLimits::DEFAULT_MEMORY);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProgramLimits {
    /// The run time, without the time in which the program waits for tools.
    pub time: Duration,
    /// The memory in bytes; see [`Isolation`](crate::Isolation) for how strictly it is enforced.
    pub memory: usize,
    /// The maximum depth of function calls, data and expressions.
    pub recursion: usize,
    /// The maximum number of tool calls.
    pub calls: usize,
    /// The maximum size of the printed text in bytes; the middle of longer text is omitted.
    pub output: usize,
    /// The maximum size of the result in bytes of JSON; a longer result is cut.
    pub result: usize,
    /// The maximum size of the source in bytes.
    pub source: usize,
    /// The maximum size of the state in bytes while the program waits for a tool. The journal
    /// stores it each time.
    pub snapshot: usize,
}

impl ProgramLimits {
    /// The default run time: 10 seconds.
    pub const DEFAULT_TIME: Duration = Duration::from_secs(10);
    /// The default memory: 128 MiB.
    pub const DEFAULT_MEMORY: usize = 128 << 20;
    /// The default recursion depth: 200 levels.
    pub const DEFAULT_RECURSION: usize = 200;
    /// The maximum recursion depth: 1,000 levels. More would overflow the stack.
    pub const MAX_RECURSION: usize = 1_000;
    /// The default number of tool calls: 100.
    pub const DEFAULT_CALLS: usize = 100;
    /// The default size of the printed text: 32 KiB.
    pub const DEFAULT_OUTPUT: usize = 32 << 10;
    /// The default size of the result: 64 KiB.
    pub const DEFAULT_RESULT: usize = 64 << 10;
    /// The default size of the source: 256 KiB.
    pub const DEFAULT_SOURCE: usize = 256 << 10;
    /// The default size of the state: 4 MiB.
    pub const DEFAULT_SNAPSHOT: usize = 4 << 20;

    /// Creates limits with the default values.
    pub const fn new() -> Self {
        Self {
            time: Self::DEFAULT_TIME,
            memory: Self::DEFAULT_MEMORY,
            recursion: Self::DEFAULT_RECURSION,
            calls: Self::DEFAULT_CALLS,
            output: Self::DEFAULT_OUTPUT,
            result: Self::DEFAULT_RESULT,
            source: Self::DEFAULT_SOURCE,
            snapshot: Self::DEFAULT_SNAPSHOT,
        }
    }

    /// Sets the limit of the run time.
    #[must_use]
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets the limit of the memory.
    #[must_use]
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the limit of the recursion, at most [`MAX_RECURSION`](Self::MAX_RECURSION).
    ///
    /// ```
    /// use levity_python::ProgramLimits;
    ///
    /// assert_eq!(ProgramLimits::new().recursion(50).recursion, 50);
    /// let deep = ProgramLimits::new().recursion(1_000_000);
    /// assert_eq!(deep.recursion, ProgramLimits::MAX_RECURSION);
    /// ```
    #[must_use]
    pub const fn recursion(mut self, levels: usize) -> Self {
        self.recursion = if levels > Self::MAX_RECURSION {
            Self::MAX_RECURSION
        } else {
            levels
        };
        self
    }

    /// Sets the limit of tool calls.
    ///
    /// The limit counts the calls of one program, over all variants of a call. The limits of the
    /// agent apply in addition.
    #[must_use]
    pub const fn calls(mut self, calls: usize) -> Self {
        self.calls = calls;
        self
    }

    /// Sets the limit of the printed text.
    ///
    /// Half of the bytes show the beginning of the text and half its end.
    ///
    /// ```
    /// use levity_python::{ProgramLimits, Python};
    /// use serde_json::json;
    ///
    /// let python = Python::new().with_limits(ProgramLimits::new().output(6));
    /// let ran = python.run_blocking("print('abcdefgh', end='')", json!({}))?;
    /// assert_eq!(ran.output, "abc\n[.. 2 bytes left out ..]\nfgh");
    /// # Ok::<(), levity_python::Error>(())
    /// ```
    #[must_use]
    pub const fn output(mut self, bytes: usize) -> Self {
        self.output = bytes;
        self
    }

    /// Sets the limit of the result.
    #[must_use]
    pub const fn result(mut self, bytes: usize) -> Self {
        self.result = bytes;
        self
    }

    /// Sets the limit of the source.
    ///
    /// ```
    /// use levity_python::{ProgramFaultKind, ProgramLimits, Python};
    /// use serde_json::json;
    ///
    /// let python = Python::new().with_limits(ProgramLimits::new().source(8));
    /// let error = python.run_blocking("1 + 2 + 3 + 4", json!({})).unwrap_err();
    /// assert_eq!(error.fault().map(|fault| fault.kind), Some(ProgramFaultKind::Size));
    /// ```
    #[must_use]
    pub const fn source(mut self, bytes: usize) -> Self {
        self.source = bytes;
        self
    }

    /// Sets the limit of the state while the program waits for a tool.
    #[must_use]
    pub const fn snapshot(mut self, bytes: usize) -> Self {
        self.snapshot = bytes;
        self
    }
}

impl Default for ProgramLimits {
    fn default() -> Self {
        Self::new()
    }
}
