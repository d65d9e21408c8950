use levity_core::{ToolCx, ToolError, ToolErrorKind};
use levity_sandbox::PathError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The arguments of a call. The dispatcher has validated them; whoever calls a tool directly has
/// not.
pub(super) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args).map_err(|error| {
        ToolError::new(ToolErrorKind::InvalidArgs, "the arguments do not fit").with_source(error)
    })
}

/// What a model is told when a path cannot be used.
pub(super) fn refused(error: PathError) -> ToolError {
    let kind = match error {
        PathError::Outside(_)
        | PathError::Denied(_)
        | PathError::ReadOnly(_)
        | PathError::HardLink(_) => ToolErrorKind::Denied,
        PathError::Invalid { .. } => ToolErrorKind::InvalidArgs,
        _ => ToolErrorKind::Failed,
    };
    let retryable = error.is_retryable();
    let refused = ToolError::new(kind, error.to_string()).with_retryable(retryable);
    match error {
        PathError::Io { source, .. } => refused.with_source(source),
        _ => refused,
    }
}

/// Fails when nobody waits for the result any more.
pub(super) fn alive(cx: &ToolCx) -> Result<(), ToolError> {
    match cx.cancel.is_cancelled() {
        true => Err(ToolError::new(
            ToolErrorKind::Cancelled,
            "the call was stopped before it was done",
        )),
        false => Ok(()),
    }
}
