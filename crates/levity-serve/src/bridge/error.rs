//! Errors of the bridge, with a kind that both sides understand.
//!
//! A kind has a name and a code on the wire. Clients read the name first and the code second, so
//! that a newer host can add kinds without breaking older clients.

use std::fmt;

use levity_core::text::chain;
use levity_rpc::{CallError, MalformedMessage};
use levity_sandbox::PathError;
use serde_json::{Value, json};

/// The result type of bridge operations.
///
/// ```
/// use levity_serve::bridge::{Error, ErrorKind, Result};
/// fn small(bytes: usize) -> Result<()> {
///     match bytes > 100 {
///         true => Err(Error::new(ErrorKind::TooLarge, "send at most 100 bytes")),
///         false => Ok(()),
///     }
/// }
/// assert!(small(7).is_ok() && small(700).is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a bridge operation. Its message says what to do.
///
/// ```
/// use levity_serve::bridge::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::Busy, "another client writes `a.md`; try again");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "another client writes `a.md`; try again");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $code:literal),* $(,)?) => {
        /// The category of a bridge error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $kind),* }

        impl ErrorKind {
            /// All kinds of errors.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns the name of the kind on the wire, in `data.kind`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// Returns the code of the kind on the wire; several kinds may share one.
            pub fn code(self) -> i64 {
                match self { $(Self::$kind => $code),* }
            }
        }
    };
}

kinds! {
    /// A message is not JSON.
    Parse "parse" -32700,
    /// A message is not a request.
    Request "request" -32600,
    /// No method has this name.
    Method "method" -32601,
    /// The parameters or a path are invalid.
    Invalid "invalid" -32602,
    /// The host failed to do the work.
    Failed "failed" -32603,
    /// The token is missing or invalid, or the host does not accept the caller.
    Unauthorized "unauthorized" -32001,
    /// The host is still loading.
    NotReady "not_ready" -32002,
    /// A limit on concurrent work has been reached.
    Full "full" -32003,
    /// A file or a message exceeds the size limit.
    TooLarge "too_large" -32004,
    /// A path leads out of the workspace.
    Outside "outside" -32005,
    /// A path is protected and cannot be accessed.
    Denied "denied" -32006,
    /// There is no such file or task.
    NotFound "not_found" -32007,
    /// The path exists but is not a file, for example a folder or a device.
    NotAFile "not_a_file" -32008,
    /// The file is not text.
    Binary "binary" -32009,
    /// The name is already in use.
    Exists "exists" -32010,
    /// The file cannot be changed.
    ReadOnly "read_only" -32011,
    /// Another client or process is changing the file.
    Busy "busy" -32012,
    /// The client cancelled the request.
    Cancelled "cancelled" -32013,
    /// The task has ended, or is not in progress in this process.
    Ended "ended" -32014,
    /// No host answers at the address.
    Absent "absent" -32015,
    /// The connection broke before the response.
    Lost "lost" -32016,
    /// No response arrived in time.
    TimedOut "timed_out" -32017,
}

impl ErrorKind {
    /// Returns the kind with this name.
    ///
    /// ```
    /// use levity_serve::bridge::ErrorKind;
    /// assert_eq!(ErrorKind::named("not_found"), Some(ErrorKind::NotFound));
    /// assert_eq!(ErrorKind::named("nothing"), None);
    /// assert_eq!(ErrorKind::NotFound.code(), -32007);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    fn coded(code: i64) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }

    /// Returns `true` if the same request may succeed later.
    ///
    /// ```
    /// use levity_serve::bridge::ErrorKind;
    /// assert!(ErrorKind::NotReady.is_retryable());
    /// assert!(!ErrorKind::Outside.is_retryable());
    /// ```
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::NotReady | Self::Full | Self::Busy | Self::Absent | Self::Lost | Self::TimedOut
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Error {
    /// Creates an error of this kind with a message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns `true` if the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Creates the error for a request that was cancelled before it changed anything.
    pub(super) fn cancelled() -> Self {
        Self::new(
            ErrorKind::Cancelled,
            "the request was cancelled, and nothing was changed",
        )
    }

    /// Returns the error as a JSON-RPC error object.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "code": self.kind.code(),
            "message": self.message,
            "data": {"kind": self.kind.name()},
        })
    }

    /// Parses a JSON-RPC error object by its kind name or code; an unknown kind becomes
    /// [`ErrorKind::Failed`].
    pub(super) fn from_json(error: &Value) -> Self {
        let named = error
            .pointer("/data/kind")
            .and_then(Value::as_str)
            .and_then(ErrorKind::named);
        let coded = || ErrorKind::coded(error.get("code").and_then(Value::as_i64)?);
        let message = error
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or("the host gave no reason");
        Self::new(named.or_else(coded).unwrap_or(ErrorKind::Failed), message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<MalformedMessage> for Error {
    fn from(wrong: MalformedMessage) -> Self {
        Self::new(
            ErrorKind::coded(wrong.code.into()).unwrap_or(ErrorKind::Request),
            wrong.message,
        )
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(error) => Self::from_json(&error),
            CallError::TooLarge { size, limit } => Self::new(
                ErrorKind::TooLarge,
                format!(
                    "the message has {size} bytes, but the host accepts at most {limit}; send less \
                        at once, such as several smaller files"
                ),
            ),
            // A request that was never sent can always be repeated.
            CallError::Unsent => Self::new(
                ErrorKind::Absent,
                "the host disconnected before the request was sent, so nothing was done; try again \
                    when it is running",
            ),
            _ => Self::new(
                ErrorKind::Lost,
                "the connection to the host broke before the response; try again to reconnect",
            ),
        }
    }
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        let kind = match &error {
            PathError::Outside(_) => ErrorKind::Outside,
            PathError::Denied(_) | PathError::HardLink(_) => ErrorKind::Denied,
            PathError::NotFound(_) => ErrorKind::NotFound,
            PathError::NotAFile(_) | PathError::NotADirectory(_) => ErrorKind::NotAFile,
            PathError::Exists(_) | PathError::NotEmpty(_) => ErrorKind::Exists,
            PathError::TooLarge { .. } => ErrorKind::TooLarge,
            PathError::ReadOnly(_) | PathError::ReadOnlyFile(_) => ErrorKind::ReadOnly,
            PathError::Invalid { .. } | PathError::Glob { .. } => ErrorKind::Invalid,
            PathError::Busy(_) => ErrorKind::Busy,
            _ => ErrorKind::Failed,
        };
        match &error {
            PathError::Io { source, .. } => Self::new(kind, format!("{error}: {source}")),
            _ => Self::new(kind, error.to_string()),
        }
    }
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        let kind = match error.kind() {
            crate::ErrorKind::Full => ErrorKind::Full,
            crate::ErrorKind::NotFound => ErrorKind::NotFound,
            crate::ErrorKind::State => ErrorKind::Ended,
            crate::ErrorKind::Config => ErrorKind::Invalid,
            _ if is_existing_run(&error) => ErrorKind::Exists,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, chain(&error))
    }
}

/// Returns `true` if the journal already has a run with the task's id, for which there is no
/// record.
fn is_existing_run(error: &crate::Error) -> bool {
    let crate::Error::Run { cause, .. } = error else {
        return false;
    };
    matches!(
        crate::http::runtime_error(cause),
        Some(levity_core::RuntimeError::Exists(_))
    )
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_message_maps_to_kind_by_its_code() {
        let kind = |text| Error::from(levity_rpc::RpcMessage::parse(text).unwrap_err()).kind();
        assert_eq!(kind("{"), ErrorKind::Parse);
        assert_eq!(kind("[]"), ErrorKind::Request);
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#),
            ErrorKind::Invalid
        );
    }

    #[test]
    fn error_kinds_round_trip_through_json() {
        for &kind in ErrorKind::ALL {
            let error = Error::new(kind, "text");
            assert_eq!(Error::from_json(&error.to_json()), error);
            let bare = json!({"code": kind.code(), "message": "text"});
            assert_eq!(
                Error::from_json(&bare),
                error,
                "the code alone identifies the kind"
            );
        }
        assert_eq!(
            Error::from_json(&json!({"code": 1})).kind(),
            ErrorKind::Failed
        );
        assert_eq!(Error::from_json(&Value::Null).kind(), ErrorKind::Failed);
    }
}
