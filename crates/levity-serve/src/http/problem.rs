//! Responses and errors of the HTTP API.
//!
//! [`Problem`] is the only error type of handlers. Conversions from other errors live here, so that
//! the same error gets the same status and code on every route. A code is part of the API; messages
//! may change.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use levity_core::text::chain;
use levity_core::{
    ArgumentProblem, ControlError, JournalErrorKind, MemoryError, MemoryErrorKind, SharedError,
};
use serde_json::{Value, json};

use crate::access_control::{guard, refuse};
use crate::error::Error;

/// Places and problems are in a list of their own, so that a page can show each at its field.
const INVALID_ARGUMENTS: &str = "the arguments do not match the schema of the tool, so the call \
    was not made; correct them as `problems` says, and decide again";

/// The result of a request handler.
pub(super) type HandlerResult<T = Response> = Result<T, Problem>;

/// An error response: a status and a code for programs, a message for people.
///
/// The code, such as `not_running`, is documented in the OpenAPI description.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    pub(super) code: &'static str,
    message: String,
    /// The number of seconds after which a retry may succeed.
    retry_after: Option<u32>,
    /// The problems of the arguments in the request.
    problems: Vec<ArgumentProblem>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
            problems: Vec::new(),
        }
    }

    /// Creates an error for a malformed request.
    pub(super) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Creates an error for a well-formed request with invalid content.
    pub(super) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub(super) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// Creates an error for a token that lacks a scope.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "scope_missing", message)
    }

    /// Creates an error for a request that conflicts with the current state.
    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// Creates an error for a temporary problem, which a client may retry after a second.
    pub(super) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).retry_after(1)
    }

    pub(super) fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    pub(super) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut answer = if self.problems.is_empty() {
            refuse(self.status, self.code, &self.message)
        } else {
            let error = json!({
                "code": self.code,
                "message": self.message,
                "problems": self.problems,
            });
            json_response(self.status, &json!({ "error": error }))
        };
        if let Some(seconds) = self.retry_after {
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
                Self::new(StatusCode::TOO_MANY_REQUESTS, "full", error.to_string()).retry_after(1)
            }
            Error::JournalBusy { .. } => Self::unavailable("journal_busy", error.to_string()),
            Error::EmptyPrompt => Self::invalid("invalid", error.to_string()),
            Error::PromptTooLong { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "goal_too_long",
                error.to_string(),
            ),
            Error::UnknownModel { .. } => Self::invalid("unknown_model", error.to_string()),
            Error::ModelNotOffered { .. } => Self::conflict("model_not_offered", error.to_string()),
            Error::Scope { .. } => Self::forbidden(error.to_string()),
            Error::NoRun(_) => Self::not_found("no_run", error.to_string()),
            Error::NotRunning(run) => Self::conflict(
                "not_running",
                format!("run `{run}` has ended, or is not in progress"),
            ),
            Error::Setting { .. } => Self::invalid("invalid", error.to_string()),
            Error::Unsupported(_) => Self::conflict("unsupported", error.to_string()),
            Error::Control(control) => Self::from(control.clone()),
            Error::Journal(journal) => Self::from_journal(journal),
            Error::Run { cause, .. } => Self::from_run(&error, cause),
            _ => Self::failed("failed", chain(&error)),
        }
    }
}

impl Problem {
    /// Converts the error of a run that could not start or could not be read.
    fn from_run(error: &Error, cause: &SharedError) -> Self {
        if let Some(runtime) = runtime_error(cause) {
            match runtime {
                levity_core::RuntimeError::Exists(_) => {
                    return Self::conflict("run_exists", runtime.to_string());
                }
                levity_core::RuntimeError::NotFound(_) => {
                    return Self::not_found("no_run", runtime.to_string());
                }
                levity_core::RuntimeError::Fork { .. } => {
                    return Self::conflict("cannot_fork", runtime.to_string());
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
            // The conversation is busy, too long, or not stored anywhere.
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

/// Returns the runtime error among the causes of an error.
///
/// An error of an agent wraps the error of the runtime, and a run wraps both. The first runtime
/// error in the chain decides about the status.
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
            .retry_after(1),
            ControlError::NotAsked { .. } => Self::conflict("not_asked", error.to_string()),
            ControlError::NotDriven(run) => {
                let message = format!(
                    "guards check the messages to run `{run}`, which no process drives; resume it, \
                        then send the message"
                );
                Self::conflict("not_driven", message)
            }
            ControlError::InvalidArguments { problems, .. } => Self {
                problems: problems.clone(),
                ..Self::invalid("invalid_arguments", INVALID_ARGUMENTS)
            },
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
            MemoryErrorKind::Busy => {
                Self::conflict("session_busy", error.to_string()).retry_after(1)
            }
            MemoryErrorKind::Refused => Self::invalid("refused", error.to_string()),
            _ if error.is_retryable() => Self::unavailable("memory_failed", chain(&error)),
            _ => Self::failed("memory_failed", chain(&error)),
        }
    }
}

/// Returns a JSON response with status 200.
pub(super) fn ok(value: &Value) -> Response {
    json_response(StatusCode::OK, value)
}

pub(super) fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut answer = (status, Json(value)).into_response();
    guard(answer.headers_mut());
    answer
}

/// Returns the text of an error with all its causes.
pub(super) fn cause_text(cause: &SharedError) -> String {
    chain(cause)
}
