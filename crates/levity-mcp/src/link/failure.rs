//! Errors of a link, given as the answer to the request that they belong to.
//!
//! What goes through rmcp's service comes out as a JSON-RPC error. The kind of a levity error rides
//! along in its data, with a mark that no server can know.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use levity_rpc::mcp::{ErrorData, RequestId, ServerJsonRpcMessage};
use serde_json::{Value, json};

use super::pending::{Kind, Pending};
use crate::{Error, ErrorKind};

const MARK: &str = "levity/link";

/// The kinds of error that a link makes, and their names in a message.
const KINDS: [(ErrorKind, &str); 8] = [
    (ErrorKind::Config, "config"),
    (ErrorKind::Start, "start"),
    (ErrorKind::Auth, "auth"),
    (ErrorKind::Away, "away"),
    (ErrorKind::Closed, "closed"),
    (ErrorKind::Timeout, "timeout"),
    (ErrorKind::TooLarge, "too_large"),
    (ErrorKind::Protocol, "protocol"),
];

/// The answer that says why there is none.
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

/// The answers that say so to all who wait. Requests that stay open by design are left out, unless
/// there are only those.
pub(crate) fn answers(
    error: &Error,
    pending: &Pending,
) -> impl Iterator<Item = ServerJsonRpcMessage> {
    pending
        .take_any(Kind::stays_open)
        .into_iter()
        .map(|call| answer(error, call.id))
}

/// The error of the link that came as this answer; none when the server itself made it.
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
    fn a_kind_survives_as_an_answer_and_cannot_be_forged() {
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
