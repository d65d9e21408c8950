//! From the bytes of one message to what rmcp's service takes in, with nothing lost on the way.
//!
//! rmcp reads a result by trying one type after another, and what fits none, or has more to say
//! than the type, is lost. Here results stay as they were written, which is also the faster way,
//! and what servers get wrong about the rest is put right.

mod repair;

use std::collections::VecDeque;
use std::sync::Arc;

use levity_rpc::mcp::{
    CustomResult, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerResult,
};
use levity_rpc::{EDGE, PendingCall, find_id};
use serde_json::{Map, Value};

use super::failure;
use super::pending::{Kind, Pending};
use crate::{Error, ErrorKind};

/// Where messages wait until somebody receives them.
pub(crate) type Queue = VecDeque<ServerJsonRpcMessage>;

/// What some bytes turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A message, or some; they are in the queue, except answers that nobody waits for.
    Message,
    /// Nothing but white space.
    Blank,
    /// No message: a banner, a log line, anything.
    Junk,
}

/// Reads one message, or a batch of them, into `queue`.
pub(crate) fn decode(
    bytes: &[u8],
    server: &Arc<str>,
    pending: &Pending,
    queue: &mut Queue,
) -> Decoded {
    let bytes = bytes
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(bytes)
        .trim_ascii();
    match bytes.first() {
        None => return Decoded::Blank,
        Some(b'{' | b'[') => {}
        Some(_) => return Decoded::Junk,
    }
    match repair::parse(bytes) {
        Ok(Value::Object(object)) => take(object, server, pending, queue),
        Ok(Value::Array(batch)) => {
            // All of them are to be read, so this is no `any`.
            let found = batch.into_iter().filter_map(|value| match value {
                Value::Object(object) => Some(take(object, server, pending, queue)),
                _ => None,
            });
            let good = found.filter(|found| *found == Decoded::Message).count();
            if good > 0 {
                Decoded::Message
            } else {
                Decoded::Junk
            }
        }
        Ok(_) => Decoded::Junk,
        Err(error) => unreadable(bytes, &error, server, pending, queue),
    }
}

/// Fails the request whose answer was too large; of the answer only the edges are known.
pub(crate) fn too_large(edges: [&[u8]; 2], error: &Error, pending: &Pending, queue: &mut Queue) {
    match find_id(edges, |id| pending.contains(id)) {
        Some(id) => queue.extend(
            pending
                .take(&id)
                .map(|call| failure::answer(error, call.id)),
        ),
        // What has a method near its beginning is a notification or a request, and answers nothing.
        None if memchr::memmem::find(edges[0], b"\"method\"").is_some() => {}
        None => queue.extend(failure::answers(error, pending)),
    }
}

fn unreadable(
    bytes: &[u8],
    cause: &serde_json::Error,
    server: &Arc<str>,
    pending: &Pending,
    queue: &mut Queue,
) -> Decoded {
    let edges = [
        &bytes[..bytes.len().min(EDGE)],
        &bytes[bytes.len().saturating_sub(EDGE)..],
    ];
    let Some(call) = find_id(edges, |id| pending.contains(id)).and_then(|id| pending.take(&id))
    else {
        return Decoded::Junk;
    };
    let words = format!("its answer is no valid JSON: column {}", cause.column());
    queue.push_back(failure::answer(
        &Error::new(ErrorKind::Protocol, server.clone(), words),
        call.id,
    ));
    Decoded::Message
}

fn take(
    mut object: Map<String, Value>,
    server: &Arc<str>,
    pending: &Pending,
    queue: &mut Queue,
) -> Decoded {
    if object.contains_key("method") {
        return take_request(object, queue);
    }
    let id = object
        .remove("id")
        .and_then(|id| serde_json::from_value::<RequestId>(id).ok());
    let mut result = object.remove("result");
    let error = object.remove("error").filter(|error| !error.is_null());
    // Nobody waits for an answer that comes late or twice. One without an id may be anybody's, if
    // it is an error.
    let asked = match &id {
        Some(id) => pending.take(id).into_iter().collect(),
        None if error.is_some() => pending.take_any(Kind::stays_open),
        None => Vec::new(),
    };
    let nothing = result.is_none() && error.is_none();
    if nothing && asked.is_empty() {
        return Decoded::Junk;
    }
    let error = error.as_ref().map(repair::error);
    for PendingCall {
        id, value: kind, ..
    } in asked
    {
        queue.push_back(match (&error, result.take()) {
            (Some(error), _) => JsonRpcMessage::error(error.clone(), Some(id)),
            // A result has an id, so there is one request that it answers.
            (None, Some(result)) => JsonRpcMessage::response(result_of(result, kind), id),
            (None, None) => {
                let words = "its answer has neither a result nor an error";
                failure::answer(&Error::new(ErrorKind::Protocol, server.clone(), words), id)
            }
        });
    }
    Decoded::Message
}

/// A request or notification of the server.
fn take_request(mut object: Map<String, Value>, queue: &mut Queue) -> Decoded {
    object.insert("jsonrpc".to_owned(), "2.0".into());
    // Clients of JSON-RPC that send `id: null` mean a notification.
    if object.get("id").is_some_and(Value::is_null) {
        object.remove("id");
    }
    match serde_json::from_value(Value::Object(object)) {
        Ok(message) => {
            queue.push_back(message);
            Decoded::Message
        }
        Err(_) => Decoded::Junk,
    }
}

/// The result as the server wrote it: the client knows what it asked for, and reads it as that.
/// Only what rmcp itself asked for is put in rmcp's terms.
fn result_of(result: Value, kind: Kind) -> ServerResult {
    match kind {
        Kind::Listen => serde_json::from_value(result)
            .unwrap_or(ServerResult::CustomResult(CustomResult(Value::Null))),
        Kind::Other => ServerResult::CustomResult(CustomResult(result)),
    }
}

#[cfg(test)]
mod tests;
