//! Arguments and errors that all file tools share.
//!
//! Errors of a workspace are written for a model already. Here they only get a kind, so that a
//! policy can tell a refusal from a failure.

use levity_core::{ToolCx, ToolError, ToolErrorKind};
use levity_sandbox::PathError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses the arguments of a call. The dispatcher has validated them, but a direct caller has not.
pub(super) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args).map_err(|error| {
        ToolError::new(
            ToolErrorKind::InvalidArgs,
            "the arguments do not match the tool's schema",
        )
        .with_source(error)
    })
}

/// Converts a path error into the tool error that the model reads.
///
/// Refusals by a rule become `Denied`, malformed paths `InvalidArgs`, and all others `Failed`. The
/// cause of an I/O error is attached as its source and is not part of the message.
pub(super) fn path_error(error: PathError) -> ToolError {
    let kind = match error {
        PathError::Outside(_)
        | PathError::Denied(_)
        | PathError::ReadOnly(_)
        | PathError::HardLink(_) => ToolErrorKind::Denied,
        PathError::Invalid { .. } => ToolErrorKind::InvalidArgs,
        _ => ToolErrorKind::Failed,
    };
    let retryable = error.is_retryable();
    let path_error = ToolError::new(kind, error.to_string()).with_retryable(retryable);
    match error {
        PathError::Io { source, .. } => path_error.with_source(source),
        _ => path_error,
    }
}

/// Returns an error if the call was cancelled.
///
/// Tools call this before they write, and between pieces of long work.
pub(super) fn check_cancelled(cx: &ToolCx) -> Result<(), ToolError> {
    match cx.cancel.is_cancelled() {
        true => Err(ToolError::new(
            ToolErrorKind::Cancelled,
            "the call was cancelled before it finished",
        )),
        false => Ok(()),
    }
}
