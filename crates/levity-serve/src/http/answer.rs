//! What is answered, and how what is wrong is said.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use levity_core::text::chain;
use levity_core::{ControlError, JournalErrorKind, MemoryError, MemoryErrorKind, SharedError};
use serde_json::Value;

use crate::error::Error;
use crate::gate::{guard, refuse};

/// What a route comes to.
pub(super) type Answered<T = Response> = Result<T, Problem>;

/// Something that is wrong: by a status and a code for programs, in words for people.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    pub(super) code: &'static str,
    message: String,
    /// After how many seconds the same may succeed.
    later: Option<u32>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            later: None,
        }
    }

    /// The request is not one.
    pub(super) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The request is one, and what it says cannot be.
    pub(super) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub(super) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// The caller's token does not allow it.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "scope_missing", message)
    }

    /// It does not fit how things stand.
    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(super) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).later(1)
    }

    fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    pub(super) fn later(mut self, seconds: u32) -> Self {
        self.later = Some(seconds);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut answer = refuse(self.status, self.code, &self.message);
        if let Some(seconds) = self.later {
            answer
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match &error {
            Error::Full { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "full", error.to_string()).later(1)
            }
            Error::JournalBusy { .. } => Self::unavailable("journal_busy", error.to_string()),
            Error::EmptyPrompt => Self::invalid("invalid", error.to_string()),
            Error::PromptTooLong { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "goal_too_long",
                error.to_string(),
            ),
            Error::NoRun(_) => Self::not_found("no_run", error.to_string()),
            Error::NotUnderWay(run) => Self::conflict(
                "not_running",
                format!("run `{run}` has ended, or is not under way"),
            ),
            Error::Setting { .. } => Self::invalid("invalid", error.to_string()),
            Error::Control(control) => Self::from(control.clone()),
            Error::Journal(journal) => Self::from_journal(journal),
            Error::Run { cause, .. } => Self::from_run(&error, cause),
            _ => Self::failed("failed", chain(&error)),
        }
    }
}

impl Problem {
    /// A run that could not begin, or could not be looked at.
    fn from_run(error: &Error, cause: &SharedError) -> Self {
        if let Some(runtime) = runtime_error(cause) {
            match runtime {
                levity_core::RuntimeError::Exists(_) => {
                    return Self::conflict("run_exists", runtime.to_string());
                }
                levity_core::RuntimeError::NotFound(_) => {
                    return Self::not_found("no_run", runtime.to_string());
                }
                levity_core::RuntimeError::Journal(error) => return Self::from_journal(error),
                _ => {}
            }
        }
        match cause.as_error().downcast_ref() {
            Some(levity_loop::Error::Setting { .. } | levity_loop::Error::EmptyPrompt) => {
                Self::invalid("invalid", cause.to_string())
            }
            Some(levity_loop::Error::Cancelled { .. }) => {
                Self::conflict("cancelled", cause.to_string())
            }
            // Its conversation is busy, too long, or kept by nobody.
            Some(levity_loop::Error::Memory { source, .. }) => Self::from(source.clone()),
            _ => Self::failed("run_failed", chain(error)),
        }
    }

    pub(super) fn from_journal(error: &levity_core::JournalError) -> Self {
        match error.kind() {
            JournalErrorKind::Busy | JournalErrorKind::Fenced => {
                Self::conflict("driven_elsewhere", error.to_string())
            }
            JournalErrorKind::Refused => Self::invalid("refused", error.to_string()),
            JournalErrorKind::Io => Self::unavailable("journal_failed", chain(error)),
            _ => Self::failed("journal_failed", chain(error)),
        }
    }
}

/// The error of the runtime that something came from.
pub(crate) fn runtime_error(cause: &SharedError) -> Option<&levity_core::RuntimeError> {
    let mut next = Some(cause.as_error());
    while let Some(error) = next {
        match error.downcast_ref() {
            Some(levity_loop::Error::Runtime { source, .. }) => return Some(source),
            _ => match error.downcast_ref() {
                Some(found) => return Some(found),
                None => next = error.source(),
            },
        }
    }
    None
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        match &error {
            ControlError::Full(_) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "said_enough",
                error.to_string(),
            )
            .later(1),
            ControlError::NotAsked { .. } => Self::conflict("not_asked", error.to_string()),
            ControlError::Unheard(run) => {
                let message = format!(
                    "guards look at what run `{run}` is told, and nobody drives it; resume it, and \
                        say it then"
                );
                Self::conflict("unheard", message)
            }
            ControlError::Blocked { .. } => Self::conflict("blocked", error.to_string()),
            _ => Self::conflict("not_running", error.to_string()),
        }
    }
}

impl From<levity_core::RuntimeError> for Problem {
    fn from(error: levity_core::RuntimeError) -> Self {
        match &error {
            levity_core::RuntimeError::Control(control) => Self::from(control.clone()),
            levity_core::RuntimeError::NotFound(_) => Self::not_found("no_run", error.to_string()),
            levity_core::RuntimeError::Journal(journal) => Self::from_journal(journal),
            _ => Self::failed("failed", chain(&error)),
        }
    }
}

impl From<MemoryError> for Problem {
    fn from(error: MemoryError) -> Self {
        match error.kind() {
            MemoryErrorKind::Busy => Self::conflict("session_busy", error.to_string()).later(1),
            MemoryErrorKind::Refused => Self::invalid("refused", error.to_string()),
            _ if error.is_retryable() => Self::unavailable("memory_failed", chain(&error)),
            _ => Self::failed("memory_failed", chain(&error)),
        }
    }
}

/// An answer that is fine.
pub(super) fn ok(value: &Value) -> Response {
    told(StatusCode::OK, value)
}

pub(super) fn told(status: StatusCode, value: &Value) -> Response {
    let mut answer = (status, Json(value)).into_response();
    guard(answer.headers_mut());
    answer
}

/// What a cause says, with all it came from.
pub(super) fn told_cause(cause: &SharedError) -> String {
    chain(cause)
}
