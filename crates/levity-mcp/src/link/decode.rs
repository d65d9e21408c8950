//! Conversion of the bytes of one message into a message for rmcp's service, without losing data.
//!
//! rmcp parses a result by trying one type after another. Results that match no type, and fields
//! that the type lacks, are lost. This module keeps results as they were written, which is also
//! faster, and repairs common mistakes of servers in the rest.

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

/// The queue of received messages.
pub(crate) type Queue = VecDeque<ServerJsonRpcMessage>;

/// The outcome of decoding some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeOutcome {
    /// One or more messages; they are in the queue, except for responses that no request waits for.
    Message,
    /// The bytes are only white space.
    Blank,
    /// Not a message: a banner, a log line or other data.
    Junk,
}

/// Decodes one message, or a batch of messages, into `queue`.
pub(crate) fn decode(
    bytes: &[u8],
    server: &Arc<str>,
    pending: &Pending,
    queue: &mut Queue,
) -> DecodeOutcome {
    let bytes = bytes
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(bytes)
        .trim_ascii();
    match bytes.first() {
        None => return DecodeOutcome::Blank,
        Some(b'{' | b'[') => {}
        Some(_) => return DecodeOutcome::Junk,
    }
    match repair::parse(bytes) {
        Ok(Value::Object(object)) => handle_object(object, server, pending, queue),
        Ok(Value::Array(batch)) => {
            // All elements must be read, so this does not use `any`.
            let found = batch.into_iter().filter_map(|value| match value {
                Value::Object(object) => Some(handle_object(object, server, pending, queue)),
                _ => None,
            });
            let messages = found
                .filter(|found| *found == DecodeOutcome::Message)
                .count();
            if messages > 0 {
                DecodeOutcome::Message
            } else {
                DecodeOutcome::Junk
            }
        }
        Ok(_) => DecodeOutcome::Junk,
        Err(error) => handle_invalid_json(bytes, &error, server, pending, queue),
    }
}

/// Fails the request whose response was too large; only the edges of the response are known.
pub(crate) fn fail_too_large(
    edges: [&[u8]; 2],
    error: &Error,
    pending: &Pending,
    queue: &mut Queue,
) {
    match find_id(edges, |id| pending.contains(id)) {
        Some(id) => queue.extend(
            pending
                .take(&id)
                .map(|call| failure::answer(error, call.id)),
        ),
        // Data with a method near its start is a notification or a request, so it answers nothing.
        None if memchr::memmem::find(edges[0], b"\"method\"").is_some() => {}
        None => queue.extend(failure::answers(error, pending)),
    }
}

/// Fails the request that an unreadable response answers. Without a known id, the bytes are junk.
fn handle_invalid_json(
    bytes: &[u8],
    cause: &serde_json::Error,
    server: &Arc<str>,
    pending: &Pending,
    queue: &mut Queue,
) -> DecodeOutcome {
    let edges = [
        &bytes[..bytes.len().min(EDGE)],
        &bytes[bytes.len().saturating_sub(EDGE)..],
    ];
    let Some(call) = find_id(edges, |id| pending.contains(id)).and_then(|id| pending.take(&id))
    else {
        return DecodeOutcome::Junk;
    };
    let message = format!("its response is not valid JSON: column {}", cause.column());
    queue.push_back(failure::answer(
        &Error::new(ErrorKind::Protocol, server.clone(), message),
        call.id,
    ));
    DecodeOutcome::Message
}

/// Handles one JSON object: a request, a notification or a response.
fn handle_object(
    mut object: Map<String, Value>,
    server: &Arc<str>,
    pending: &Pending,
    queue: &mut Queue,
) -> DecodeOutcome {
    if object.contains_key("method") {
        return handle_request(object, queue);
    }
    let id = object
        .remove("id")
        .and_then(|id| serde_json::from_value::<RequestId>(id).ok());
    let mut result = object.remove("result");
    let error = object.remove("error").filter(|error| !error.is_null());
    // No request waits for a late or duplicate response. An error without an id may belong to any
    // request.
    let answered = match &id {
        Some(id) => pending.take(id).into_iter().collect(),
        None if error.is_some() => pending.take_any(Kind::stays_open),
        None => Vec::new(),
    };
    let nothing = result.is_none() && error.is_none();
    if nothing && answered.is_empty() {
        return DecodeOutcome::Junk;
    }
    let error = error.as_ref().map(repair::error);
    for PendingCall {
        id, value: kind, ..
    } in answered
    {
        queue.push_back(match (&error, result.take()) {
            (Some(error), _) => JsonRpcMessage::error(error.clone(), Some(id)),
            // A result has an id, so it answers exactly one request.
            (None, Some(result)) => JsonRpcMessage::response(result_of(result, kind), id),
            (None, None) => {
                let message = "its response has neither a result nor an error";
                failure::answer(
                    &Error::new(ErrorKind::Protocol, server.clone(), message),
                    id,
                )
            }
        });
    }
    DecodeOutcome::Message
}

/// Handles a request or notification of the server.
fn handle_request(mut object: Map<String, Value>, queue: &mut Queue) -> DecodeOutcome {
    object.insert("jsonrpc".to_owned(), "2.0".into());
    // JSON-RPC peers that send `id: null` mean a notification.
    if object.get("id").is_some_and(Value::is_null) {
        object.remove("id");
    }
    match serde_json::from_value(Value::Object(object)) {
        Ok(message) => {
            queue.push_back(message);
            DecodeOutcome::Message
        }
        Err(_) => DecodeOutcome::Junk,
    }
}

/// Returns the result as the server wrote it, because the client knows the type that it requested.
/// Only results for rmcp itself are converted to rmcp's types.
fn result_of(result: Value, kind: Kind) -> ServerResult {
    match kind {
        Kind::Listen => serde_json::from_value(result)
            .unwrap_or(ServerResult::CustomResult(CustomResult(Value::Null))),
        Kind::Other => ServerResult::CustomResult(CustomResult(result)),
    }
}

#[cfg(test)]
mod tests;
