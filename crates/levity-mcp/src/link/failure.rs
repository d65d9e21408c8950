//! Errors of a transport, delivered as the response to the request that they belong to.
//!
//! Errors pass through rmcp's service as JSON-RPC errors. The data of such an error contains the
//! kind of the levity error, with a mark that no server can guess.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use levity_rpc::mcp::{ErrorData, RequestId, ServerJsonRpcMessage};
use serde_json::{Value, json};

use super::pending::{Kind, Pending};
use crate::{Error, ErrorKind};

const MARK: &str = "levity/link";

/// The kinds of error that a transport creates, and their names in a message.
const KINDS: [(ErrorKind, &str); 8] = [
    (ErrorKind::Config, "config"),
    (ErrorKind::Start, "start"),
    (ErrorKind::Auth, "auth"),
    (ErrorKind::Unavailable, "away"),
    (ErrorKind::Closed, "closed"),
    (ErrorKind::Timeout, "timeout"),
    (ErrorKind::TooLarge, "too_large"),
    (ErrorKind::Protocol, "protocol"),
];

/// Creates the error response to a request.
pub(crate) fn answer(error: &Error, id: RequestId) -> ServerJsonRpcMessage {
    let kind = KINDS
        .iter()
        .find(|(kind, _)| *kind == error.kind())
        .map(|(_, name)| *name);
    let data = json!({ MARK: mark(), "kind": kind.unwrap_or("closed") });
    ServerJsonRpcMessage::error(
        ErrorData::internal_error(error.message().to_owned(), Some(data)),
        Some(id),
    )
}

/// Creates error responses to all pending requests. Requests that stay open by design are left out,
/// unless there are no others.
pub(crate) fn answers(
    error: &Error,
    pending: &Pending,
) -> impl Iterator<Item = ServerJsonRpcMessage> {
    pending
        .take_any(Kind::stays_open)
        .into_iter()
        .map(|call| answer(error, call.id))
}

/// Returns the transport error in a response; `None` if the error is from the server itself.
pub(crate) fn read(server: &Arc<str>, answer: &ErrorData) -> Option<Error> {
    let data = answer.data.as_ref()?;
    if data.get(MARK).and_then(Value::as_str) != Some(mark()) {
        return None;
    }
    let name = data.get("kind").and_then(Value::as_str)?;
    let (kind, _) = KINDS.iter().find(|(_, known)| *known == name)?;
    Some(Error::new(
        *kind,
        server.clone(),
        answer.message.to_string(),
    ))
}

/// Returns the mark of this process: random, created once, and never sent to a server.
fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| {
        format!(
            "{:016x}{:016x}",
            RandomState::new().hash_one(0),
            RandomState::new().hash_one(1)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_restores_error_kind_and_rejects_forged_data() {
        let server: Arc<str> = "docs".into();
        for (kind, _) in KINDS {
            let error = Error::new(kind, server.clone(), "gone");
            let ServerJsonRpcMessage::Error(answer) = answer(&error, RequestId::Number(7)) else {
                panic!("not an error");
            };
            assert_eq!(answer.id, Some(RequestId::Number(7)));
            let read = read(&server, &answer.error).unwrap();
            assert_eq!((read.kind(), read.message()), (kind, "gone"));
        }
        let forged = ErrorData::internal_error("x", Some(json!({ MARK: "1", "kind": "auth" })));
        assert!(read(&server, &forged).is_none());
    }
}
