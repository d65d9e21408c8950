//! Errors of requests, for two audiences: the model of the client and the calling program.

use std::fmt;

use levity_core::ToolError;
use levity_rpc::mcp::{ClientCapabilities, ErrorCode, ErrorData};
use serde_json::{Value, json};

use super::ask::{AskError, AskErrorKind};

/// An error of a request.
///
/// The model gets the errors inside a tool, as the tool's result. The calling program gets all
/// other errors, as protocol errors. `?` converts a [`ToolError`] and an [`AskError`] to the right
/// kind.
///
/// ```
/// use levity_core::ToolError;
/// use levity_serve::mcp::RequestError;
///
/// let for_the_program = RequestError::not_found("no resource has the URI `a`");
/// assert!(for_the_program.is_not_found());
/// let for_the_model = RequestError::from(ToolError::failed("the printer is out of paper"));
/// assert!(!for_the_model.is_not_found());
/// ```
#[derive(Clone, Debug)]
pub struct RequestError(pub(super) Cause);

#[derive(Clone, Debug)]
pub(super) enum Cause {
    /// An error for the model.
    Tool(ToolError),
    /// An error for the calling program.
    Refused {
        code: i32,
        message: String,
        data: Option<Value>,
    },
    /// A failed question to the client.
    Asked(AskError),
}

impl RequestError {
    /// Creates an error for a resource or prompt that does not exist.
    ///
    /// The server asks its other providers when it gets this error.
    ///
    /// ```
    /// use levity_serve::mcp::RequestError;
    /// let error = RequestError::not_found("no resource has the URI `notes://7`");
    /// assert_eq!(error.to_string(), "no resource has the URI `notes://7`");
    /// ```
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::refused(ErrorCode::RESOURCE_NOT_FOUND, message, None)
    }

    /// Creates an error for invalid parameters.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::refused(ErrorCode::INVALID_PARAMS, message, None)
    }

    /// Creates an error for failed work. The client gets `message`, so it must not contain
    /// confidential data.
    ///
    /// ```
    /// use levity_serve::mcp::RequestError;
    /// let error = RequestError::failed("the database does not answer; try again later");
    /// assert!(!error.is_not_found());
    /// ```
    pub fn failed(message: impl Into<String>) -> Self {
        Self::refused(ErrorCode::INTERNAL_ERROR, message, None)
    }

    /// Returns `true` if the requested item does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.0, Cause::Refused { code, .. } if *code == ErrorCode::RESOURCE_NOT_FOUND.0)
    }

    /// Creates an error for a reached limit; the request may be repeated. Its code is -32000.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::refused(ErrorCode(-32000), message, None)
    }

    /// Creates an error for a filled prompt that exceeds the limit.
    pub(crate) fn prompt_too_long(limit: usize) -> Self {
        Self::invalid(format!(
            "the prompt has more than {limit} bytes with these arguments; shorten them"
        ))
    }

    /// Creates an error for a client that lacks a required capability.
    pub(super) fn lacks(needed: ClientCapabilities) -> Self {
        let ErrorData {
            code,
            message,
            data,
            ..
        } = ErrorData::missing_required_client_capability(needed);
        Self::refused(code, message, data)
    }

    /// Creates an error for a token that lacks a scope.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::refused(ErrorCode(-32003), message, None)
    }

    fn refused(code: ErrorCode, message: impl Into<String>, data: Option<Value>) -> Self {
        Self(Cause::Refused {
            code: code.0,
            message: message.into(),
            data,
        })
    }

    /// Adds machine-readable data to a refusal.
    pub(super) fn with_data(mut self, value: Value) -> Self {
        if let Cause::Refused { data, .. } = &mut self.0 {
            *data = Some(value);
        }
        self
    }

    /// Converts the error to a protocol error.
    pub(super) fn into_error(self, modern: bool) -> ErrorData {
        match self.0 {
            Cause::Tool(error) => ErrorData::internal_error(error.explain(), None),
            Cause::Refused {
                code,
                message,
                data,
            } => ErrorData::new(ErrorCode(code), message, data),
            Cause::Asked(error) => asked(&error, modern),
        }
    }

    /// Converts the error to one for the model, if it is meant for the model.
    ///
    /// `Ok` means that the model gets the error as a result of the tool. A missing capability is an
    /// error for the program since 2026-07-28, because programs can react to it from then on.
    pub(super) fn into_tool_error(self, modern: bool) -> Result<ToolError, ErrorData> {
        match self.0 {
            Cause::Tool(error) => Ok(error),
            // Programs of 2026-07-28 can handle this error; older ones can only display it.
            Cause::Asked(error) if error.kind() == AskErrorKind::Unsupported && modern => {
                Err(asked(&error, true))
            }
            Cause::Asked(error) => Ok(ToolError::failed(error.to_string())),
            cause => Err(Self(cause).into_error(modern)),
        }
    }
}

fn asked(error: &AskError, modern: bool) -> ErrorData {
    match error.missing() {
        Some(needed) if modern => {
            let needed: ClientCapabilities =
                serde_json::from_value(json!({ needed: {} })).unwrap_or_default();
            ErrorData::missing_required_client_capability(needed)
        }
        _ => ErrorData::internal_error(error.to_string(), None),
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Tool(error) => error.fmt(f),
            Cause::Refused { message, .. } => f.write_str(message),
            Cause::Asked(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Cause::Tool(error) => error.source(),
            _ => None,
        }
    }
}

impl From<ToolError> for RequestError {
    fn from(error: ToolError) -> Self {
        Self(Cause::Tool(error))
    }
}

impl From<AskError> for RequestError {
    fn from(error: AskError) -> Self {
        Self(Cause::Asked(error))
    }
}
