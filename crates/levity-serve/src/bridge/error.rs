use std::fmt;

use levity_core::text::chain;
use levity_rpc::{CallError, MalformedMessage};
use levity_sandbox::PathError;
use serde_json::{Value, json};

/// What is asked of a bridge returns this.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something that was asked of a bridge was not done. Its words say what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $code:literal),* $(,)?) => {
        /// What kind of refusal it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $kind),* }

        impl ErrorKind {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Its name on the wire, in `data.kind`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// Its number on the wire; several kinds may share one.
            pub fn code(self) -> i64 {
                match self { $(Self::$kind => $code),* }
            }
        }
    };
}

kinds! {
    /// A message is no JSON.
    Parse "parse" -32700,
    /// A message is no request.
    Request "request" -32600,
    /// There is no such method.
    Method "method" -32601,
    /// The parameters do not fit, or a path is none.
    Invalid "invalid" -32602,
    /// The host failed.
    Failed "failed" -32603,
    /// The token is missing or wrong, or the host does not know who calls.
    Unauthorized "unauthorized" -32001,
    /// The host is still loading.
    NotReady "not_ready" -32002,
    /// Too much at once.
    Full "full" -32003,
    /// A file, or a message, is larger than it may be.
    TooLarge "too_large" -32004,
    /// A path leads out of the workspace.
    Outside "outside" -32005,
    /// A path is one that nobody may touch.
    Denied "denied" -32006,
    /// There is no such file or task.
    NotFound "not_found" -32007,
    /// It is there, and is not what was asked for: a folder, a device.
    NotAFile "not_a_file" -32008,
    /// The file is not text.
    Binary "binary" -32009,
    /// The name is taken.
    Exists "exists" -32010,
    /// It may not be changed.
    ReadOnly "read_only" -32011,
    /// Somebody else is changing it.
    Busy "busy" -32012,
    /// Whoever asked wants no answer any more.
    Cancelled "cancelled" -32013,
    /// The task has ended, or is not under way here.
    Ended "ended" -32014,
    /// No host answers at the address.
    Absent "absent" -32015,
    /// The connection broke before there was an answer.
    Lost "lost" -32016,
    /// No answer came in time.
    TimedOut "timed_out" -32017,
}

impl ErrorKind {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    fn coded(code: i64) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }

    /// Whether the same may succeed later.
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
    /// An error of this kind, in words.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    pub(super) fn taken_back() -> Self {
        Self::new(
            ErrorKind::Cancelled,
            "the request was taken back, and nothing was changed",
        )
    }

    /// As JSON-RPC has it.
    pub(super) fn to_json(&self) -> Value {
        json!({"code": self.kind.code(), "message": self.message, "data": {"kind": self.kind.name()}})
    }

    /// From what a host answered; the kind is told by its name, and what is not known has failed.
    pub(super) fn from_json(error: &Value) -> Self {
        let named = error
            .pointer("/data/kind")
            .and_then(Value::as_str)
            .and_then(ErrorKind::named);
        let coded = || ErrorKind::coded(error.get("code").and_then(Value::as_i64)?);
        let message = error
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or("the host gives no reason");
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
                    "the message has {size} bytes, and the host takes at most {limit}; send less \
                        at once, such as several smaller files"
                ),
            ),
            // What was never sent can be asked for again, whatever it is.
            CallError::Unsent => Self::new(
                ErrorKind::Absent,
                "the host went away before it was asked; nothing was done. Ask again when it is \
                    there",
            ),
            _ => Self::new(
                ErrorKind::Lost,
                "the connection to the host broke before there was an answer; ask again, it is \
                    made anew",
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
            PathError::ReadOnly(_) | PathError::Locked(_) => ErrorKind::ReadOnly,
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
            _ if is_taken(&error) => ErrorKind::Exists,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, chain(&error))
    }
}

/// Whether the journal has a run of the task's id, of which there is no note.
fn is_taken(error: &crate::Error) -> bool {
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
    fn a_malformed_message_is_refused_by_its_code() {
        let kind = |text| Error::from(levity_rpc::RpcMessage::parse(text).unwrap_err()).kind();
        assert_eq!(kind("{"), ErrorKind::Parse);
        assert_eq!(kind("[]"), ErrorKind::Request);
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#),
            ErrorKind::Invalid
        );
    }

    #[test]
    fn every_kind_survives_the_wire() {
        for &kind in ErrorKind::ALL {
            let error = Error::new(kind, "words");
            assert_eq!(Error::from_json(&error.to_json()), error);
            let bare = json!({"code": kind.code(), "message": "words"});
            assert_eq!(
                Error::from_json(&bare),
                error,
                "the number alone says as much"
            );
        }
        assert_eq!(
            Error::from_json(&json!({"code": 1})).kind(),
            ErrorKind::Failed
        );
        assert_eq!(Error::from_json(&Value::Null).kind(), ErrorKind::Failed);
    }
}
