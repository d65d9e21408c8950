use std::fmt;

use monty_types::{ExcType, MontyException, StackFrame};
use serde::{Deserialize, Serialize};

use crate::output::shorten;

/// Why a program came to no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramFault {
    /// What kind of fault it is.
    pub kind: ProgramFaultKind,
    /// The exception, such as `ZeroDivisionError: division by zero`.
    pub message: String,
    /// The traceback with the lines of the source, and a hint where there is one: what a model can
    /// act on.
    pub traceback: String,
    /// The line that failed, from 1, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// The kind of a [`ProgramFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProgramFaultKind {
    /// The source is no Python, or Python that the interpreter does not know.
    Syntax,
    /// The program raised an exception and did not catch it.
    Raised,
    /// It ran longer than it may.
    Time,
    /// It wanted more memory than it may have.
    Memory,
    /// It called more tools than it may.
    Calls,
    /// Its source, its inputs or its state are larger than they may be.
    Size,
    /// The interpreter failed: a fault in its code, not in the program.
    Crashed,
    /// Nobody wants the result any more.
    Cancelled,
}

/// How many bytes of a traceback are shown.
const MAX_TRACEBACK: usize = 4_000;
/// How many bytes of a line of the source are shown.
const MAX_LINE: usize = 300;
/// How many calls are shown at the top of a traceback, and how many at its end.
const FRAMES: usize = 8;

impl ProgramFault {
    /// A fault that is no exception of the program's.
    pub(crate) fn new(kind: ProgramFaultKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            traceback: message.clone(),
            message,
            line: None,
        }
    }

    /// The fault that an exception is.
    pub(crate) fn raised(exception: &MontyException) -> Self {
        let kind = kind(exception);
        let message = shorten(&exception.summary(), MAX_TRACEBACK / 2);
        let line = exception.traceback().last().map(|frame| frame.start.line);
        let mut traceback = shorten(&small(exception).to_string(), MAX_TRACEBACK);
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

/// The same exception with no more frames and no longer lines than can be shown: a frame holds the
/// whole line.
fn small(exception: &MontyException) -> MontyException {
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

/// The modules there are.
const MODULES: &str = "the modules here are asyncio, base64, collections, dataclasses, datetime, \
    functools, itertools, json, \
                       math, re, typing and unicodedata; there are no others, and none can be \
                       installed";

fn hint(exception: &MontyException) -> Option<&'static str> {
    let message = exception.message().unwrap_or_default();
    let mentions = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match exception.exc_type() {
        ExcType::ModuleNotFoundError | ExcType::ImportError => Some(MODULES),
        ExcType::TimeoutError if message.starts_with("time limit exceeded") => {
            Some("the time is up; do less, or use a faster way")
        }
        ExcType::MemoryError => Some("the memory is used up; hold less at a time"),
        ExcType::RecursionError => Some("use a loop in place of the recursion"),
        ExcType::NotImplementedError | ExcType::SyntaxError if message.contains("support") => Some(
            "this interpreter knows a part of Python only: there is no `yield`, `match`, `del`, \
                inheritance or own \
             exception class; write it in a simpler way",
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
                    the functions you were told of",
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
