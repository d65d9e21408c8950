use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a program may use.
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
    /// How long it may run, not counting the time in which it waits for tools.
    pub time: Duration,
    /// How many bytes it may hold; see [`Isolation`](crate::Isolation) for how exactly that is
    /// kept.
    pub memory: usize,
    /// How deep functions may call each other, and data and expressions may nest.
    pub recursion: usize,
    /// How many calls of tools it may make.
    pub calls: usize,
    /// How many bytes of what it prints are kept; the middle is left out of what is more.
    pub output: usize,
    /// How many bytes of JSON its result may be; what is more is cut.
    pub result: usize,
    /// How many bytes of source it may be.
    pub source: usize,
    /// How many bytes its state may be while it waits for a tool: so much goes to the journal each
    /// time.
    pub snapshot: usize,
}

impl ProgramLimits {
    /// 10 seconds.
    pub const DEFAULT_TIME: Duration = Duration::from_secs(10);
    /// 128 MiB.
    pub const DEFAULT_MEMORY: usize = 128 << 20;
    /// 200 levels.
    pub const DEFAULT_RECURSION: usize = 200;
    /// The most levels that can be set: 1,000. More would not fit the stack.
    pub const MOST_RECURSION: usize = 1_000;
    /// 100 calls.
    pub const DEFAULT_CALLS: usize = 100;
    /// 32 KiB.
    pub const DEFAULT_OUTPUT: usize = 32 << 10;
    /// 64 KiB.
    pub const DEFAULT_RESULT: usize = 64 << 10;
    /// 256 KiB.
    pub const DEFAULT_SOURCE: usize = 256 << 10;
    /// 4 MiB.
    pub const DEFAULT_SNAPSHOT: usize = 4 << 20;

    /// The defaults.
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

    /// Limits the time.
    #[must_use]
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Limits the memory.
    #[must_use]
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Limits the recursion; more than [`MOST_RECURSION`](Self::MOST_RECURSION) is that.
    #[must_use]
    pub const fn recursion(mut self, levels: usize) -> Self {
        self.recursion = if levels > Self::MOST_RECURSION {
            Self::MOST_RECURSION
        } else {
            levels
        };
        self
    }

    /// Limits the calls of tools.
    #[must_use]
    pub const fn calls(mut self, calls: usize) -> Self {
        self.calls = calls;
        self
    }

    /// Limits what is kept of what it prints.
    #[must_use]
    pub const fn output(mut self, bytes: usize) -> Self {
        self.output = bytes;
        self
    }

    /// Limits the result.
    #[must_use]
    pub const fn result(mut self, bytes: usize) -> Self {
        self.result = bytes;
        self
    }

    /// Limits the source.
    #[must_use]
    pub const fn source(mut self, bytes: usize) -> Self {
        self.source = bytes;
        self
    }

    /// Limits the state that is kept while it waits for a tool.
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
