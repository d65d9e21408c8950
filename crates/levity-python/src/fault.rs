//! The failure of a program, in a form from which a model can correct its code.
//!
//! A traceback is bounded three times: 8 frames at each end, 300 bytes per source line, 4,000 bytes
//! without the hint. Hints explain the differences from CPython that models stumble over, such as
//! missing modules.

use std::fmt;

use monty_types::{ExcType, MontyException, StackFrame};
use serde::{Deserialize, Serialize};

use crate::output::shorten;

/// The reason why a program returned no result.
///
/// ```
/// use levity_python::Python;
/// use serde_json::json;
///
/// let error = Python::new().run_blocking("import numpy", json!({})).unwrap_err();
/// let fault = error.fault().unwrap();
/// assert_eq!(fault.line, Some(1));
/// assert!(fault.traceback.contains("Hint: the modules here are asyncio"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramFault {
    /// The kind of fault.
    pub kind: ProgramFaultKind,
    /// The exception, such as `ZeroDivisionError: division by zero`.
    pub message: String,
    /// The traceback with source lines, and with a hint for the model if there is one.
    pub traceback: String,
    /// The line that failed, counted from 1, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// The kind of a [`ProgramFault`].
///
/// ```
/// use levity_python::{ProgramFaultKind, Python};
/// use serde_json::json;
///
/// let kind = |code| {
///     let error = Python::new().run_blocking(code, json!({})).unwrap_err();
///     error.fault().unwrap().kind
/// };
/// assert_eq!(kind("def f(:"), ProgramFaultKind::Syntax);
/// assert_eq!(kind("{}['key']"), ProgramFaultKind::Raised);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProgramFaultKind {
    /// The source is not valid Python, or uses features that the interpreter does not support.
    Syntax,
    /// The program raised an exception and did not catch it.
    Raised,
    /// The program exceeded its time limit.
    Time,
    /// The program exceeded its memory limit.
    Memory,
    /// The program exceeded its limit of tool calls.
    Calls,
    /// The source, inputs or state exceed their size limit.
    Size,
    /// The interpreter failed because of its own bug, not because of the program.
    Crashed,
    /// The program was cancelled by its caller.
    Cancelled,
}

/// The maximum size of a traceback, in bytes.
const MAX_TRACEBACK: usize = 4_000;
/// The maximum size of a source line, in bytes.
const MAX_LINE: usize = 300;
/// The number of calls shown at the top and at the end of a traceback.
const FRAMES: usize = 8;

impl ProgramFault {
    /// Creates a fault that is not an exception of the program.
    pub(crate) fn new(kind: ProgramFaultKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            traceback: message.clone(),
            message,
            line: None,
        }
    }

    /// Creates a fault from an exception.
    pub(crate) fn raised(exception: &MontyException) -> Self {
        let kind = kind(exception);
        let message = shorten(&exception.summary(), MAX_TRACEBACK / 2);
        let line = exception.traceback().last().map(|frame| frame.start.line);
        let mut traceback = shorten(&truncated(exception).to_string(), MAX_TRACEBACK);
        if let Some(hint) = hint(exception) {
            traceback.push_str("\nHint: ");
            traceback.push_str(hint);
        }
        Self {
            kind,
            message,
            traceback,
            line,
        }
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(ProgramFaultKind::Cancelled, "the program was cancelled")
    }
}

impl fmt::Display for ProgramFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProgramFault {}

/// Returns the exception with fewer frames and shorter lines, because a frame holds a whole line.
fn truncated(exception: &MontyException) -> MontyException {
    let frames = exception.traceback();
    let skipped = frames.len().saturating_sub(2 * FRAMES);
    let shown = frames.iter().enumerate();
    let shown = shown
        .filter(|(at, _)| *at < FRAMES || *at >= FRAMES + skipped)
        .map(|(_, frame)| short(frame));
    let message = exception
        .message()
        .map(|message| shorten(message, MAX_TRACEBACK / 2));
    MontyException::with_traceback(exception.exc_type(), message, shown.collect())
}

fn short(frame: &StackFrame) -> StackFrame {
    let mut frame = frame.clone();
    if let Some(line) = frame
        .preview_line
        .as_ref()
        .filter(|line| line.len() > MAX_LINE)
    {
        frame.preview_line = Some(
            shorten(line.trim_start(), MAX_LINE)
                .replace('\n', " ")
                .into(),
        );
        frame.hide_caret = true;
    }
    frame
}

/// Recognizes limits by the exceptions that the interpreter raises for them. A `TimeoutError` that
/// the program raises has another message and is an exception like any other.
fn kind(exception: &MontyException) -> ProgramFaultKind {
    let message = exception.message().unwrap_or_default();
    match exception.exc_type() {
        ExcType::SyntaxError => ProgramFaultKind::Syntax,
        ExcType::TimeoutError if message.starts_with("time limit exceeded") => {
            ProgramFaultKind::Time
        }
        ExcType::MemoryError => ProgramFaultKind::Memory,
        _ => ProgramFaultKind::Raised,
    }
}

/// The hint that lists the available modules.
const MODULES: &str = "the modules here are asyncio, base64, collections, dataclasses, datetime, \
    functools, itertools, json, \
                       math, re, typing and unicodedata; there are no others, and none can be \
                       installed";

/// Returns advice for an exception that a model can avoid, if there is any.
fn hint(exception: &MontyException) -> Option<&'static str> {
    let message = exception.message().unwrap_or_default();
    let mentions = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match exception.exc_type() {
        ExcType::ModuleNotFoundError | ExcType::ImportError => Some(MODULES),
        ExcType::TimeoutError if message.starts_with("time limit exceeded") => {
            Some("the time limit is reached; do less, or use a faster algorithm")
        }
        ExcType::MemoryError => Some("the memory limit is reached; store less at a time"),
        ExcType::RecursionError => Some("use a loop in place of the recursion"),
        ExcType::NotImplementedError | ExcType::SyntaxError if message.contains("support") => Some(
            "this interpreter supports only a part of Python: there is no `yield`, `match`, `del`, \
                inheritance or own \
             exception class; write simpler code",
        ),
        ExcType::TypeError if message.starts_with("unsupported operand type(s) for %: 'str'") => {
            Some("there is no `%` formatting here: use an f-string")
        }
        ExcType::NameError
            if mentions(&[
                "'open'",
                "'eval'",
                "'exec'",
                "'compile'",
                "'input'",
                "'__import__'",
                "'globals'",
                "'locals'",
            ]) =>
        {
            Some(
                "this function does not exist here; files and the like are only reached through \
                    the functions in the description",
            )
        }
        ExcType::TypeError
            if mentions(&["ExternalFuture", "coroutine", "external_future", "future"]) =>
        {
            Some("in code that uses `await`, every call of a tool must be awaited")
        }
        _ => None,
    }
}
