//! JSON-RPC 2.0 with one message per text.
//!
//! Parsing is strict, because both ends of levity's own protocols are levity: a message without
//! `jsonrpc`, a batch or positional parameters are errors. The MCP client has its own, lenient
//! decoder, because servers of others make mistakes. No error contains a part of the message, which
//! may be a secret.

use levity_core::text::json_problem;
use serde_json::{Map, Value, json};

use crate::mcp::{ErrorCode, RequestId};

/// The maximum length of an id, in bytes.
///
/// An answer repeats the id, so a long one would let a peer choose the size of each answer.
const MAX_ID: usize = 128;

/// A message from the other side.
///
/// ```
/// use levity_rpc::RpcMessage;
/// use serde_json::json;
///
/// let message = RpcMessage::parse(r#"{"jsonrpc": "2.0", "id": 1, "method": "add"}"#);
/// let (id, method, params) = (json!(1), "add".to_owned(), json!({}));
/// assert_eq!(message, Ok(RpcMessage::Request { id, method, params }));
///
/// let text = RpcMessage::answer(&json!(1), Ok(&json!(3)));
/// assert_eq!(text, r#"{"jsonrpc":"2.0","id":1,"result":3}"#);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum RpcMessage {
    /// A call that expects an answer.
    Request {
        /// A number or a short text, which the answer repeats.
        id: Value,
        /// The name of the method.
        method: String,
        /// The parameters as an object; empty if there were none.
        params: Value,
    },
    /// A call that expects no answer.
    Notification {
        /// The name of the method.
        method: String,
        /// The parameters as an object; empty if there were none.
        params: Value,
    },
    /// An answer to a call of this side.
    Answer {
        /// The id of the call, unless this side cannot have created it.
        id: Option<RequestId>,
        /// The result, or the error object.
        result: Result<Value, Value>,
    },
}

/// A message that cannot be parsed, with the data for the error response.
///
/// ```
/// use levity_rpc::RpcMessage;
///
/// let batch = RpcMessage::parse("[]").expect_err("batches are not supported");
/// assert_eq!((batch.code, batch.id.is_null()), (-32600, true));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MalformedMessage {
    /// The id to answer to; `null` if there is none.
    pub id: Value,
    /// The error code of JSON-RPC.
    pub code: i32,
    /// The problem, without any content of the message.
    pub message: String,
}

impl RpcMessage {
    /// Parses a message strictly.
    ///
    /// # Errors
    /// Returns an error with the id of the message, if it has a valid one, and this code:
    /// - -32700 if the text is not JSON;
    /// - -32600 if it is a batch, is not an object, does not have `"jsonrpc": "2.0"`, has an id
    ///   that is neither a number nor a text of at most 128 bytes, or has no `method`, `result` and
    ///   `error`;
    /// - -32602 if `params` is not an object.
    pub fn parse(text: &str) -> Result<Self, MalformedMessage> {
        let malformed = |id, code: ErrorCode, problem: &str| MalformedMessage {
            id,
            code: code.0,
            message: problem.to_owned(),
        };
        let message: Value = serde_json::from_str(text).map_err(|error| {
            let problem = format!("the message is not JSON: {}", json_problem(&error));
            malformed(Value::Null, ErrorCode::PARSE_ERROR, &problem)
        })?;
        let invalid = |id, problem| malformed(id, ErrorCode::INVALID_REQUEST, problem);
        let Value::Object(mut message) = message else {
            let problem = match message {
                Value::Array(_) => "batches are not supported; send one request per message",
                _ => "a request must be an object with `jsonrpc`, `id`, `method` and `params`",
            };
            return Err(invalid(Value::Null, problem));
        };
        let id = take_id(&mut message)
            .ok_or_else(|| invalid(Value::Null, "the id must be a number or a short text"))?;
        let answer_id = || id.clone().unwrap_or(Value::Null);
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(invalid(answer_id(), "`jsonrpc` must be \"2.0\""));
        }
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            None if message.contains_key("result") || message.contains_key("error") => {
                return Ok(answer(id, message));
            }
            _ => return Err(invalid(answer_id(), "`method` must be a string")),
        };
        let params = message.remove("params").unwrap_or_else(|| json!({}));
        if !params.is_object() {
            return Err(malformed(
                answer_id(),
                ErrorCode::INVALID_PARAMS,
                "`params` must be an object",
            ));
        }
        Ok(match id {
            Some(id) => Self::Request { id, method, params },
            None => Self::Notification { method, params },
        })
    }

    /// Formats a request as text.
    ///
    /// ```
    /// use levity_rpc::RpcMessage;
    /// use serde_json::json;
    ///
    /// let text = RpcMessage::request(7, "add", &json!({"a": 1}));
    /// assert_eq!(text, r#"{"jsonrpc":"2.0","id":7,"method":"add","params":{"a":1}}"#);
    /// assert!(matches!(RpcMessage::parse(&text), Ok(RpcMessage::Request { .. })));
    /// ```
    pub fn request(id: i64, method: &str, params: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    /// Formats a notification as text.
    pub fn notification(method: &str, params: &Value) -> String {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    }

    /// Formats the answer to a request: its result, or an error object.
    pub fn answer(id: &Value, result: Result<&Value, &Value>) -> String {
        match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        }
        .to_string()
    }
}

/// Creates an answer. A message with both a result and an error counts as an error.
fn answer(id: Option<Value>, mut message: Map<String, Value>) -> RpcMessage {
    let id = id.and_then(|id| serde_json::from_value(id).ok());
    let result = match message.remove("error") {
        Some(error) => Err(error),
        None => Ok(message.remove("result").unwrap_or_default()),
    };
    RpcMessage::Answer { id, result }
}

/// Removes and returns the id, if there is one; returns `None` if it is invalid.
fn take_id(message: &mut Map<String, Value>) -> Option<Option<Value>> {
    match message.remove("id") {
        None => Some(None),
        Some(id @ Value::Number(_)) => Some(Some(id)),
        Some(Value::String(id)) if id.len() <= MAX_ID => Some(Some(Value::String(id))),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_rejected(text: &str, code: ErrorCode, id: &Value) {
        let malformed = RpcMessage::parse(text).unwrap_err();
        assert_eq!((malformed.code, &malformed.id), (code.0, id), "{text}");
    }

    #[test]
    fn parse_distinguishes_kinds_of_messages() {
        let request =
            RpcMessage::parse(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"b":1}}"#)
                .unwrap();
        assert_eq!(
            request,
            RpcMessage::Request {
                id: json!("a"),
                method: "m".into(),
                params: json!({"b": 1})
            }
        );
        let notification = RpcMessage::parse(r#"{"jsonrpc":"2.0","method":"m"}"#).unwrap();
        assert_eq!(
            notification,
            RpcMessage::Notification {
                method: "m".into(),
                params: json!({})
            }
        );
        let (id, error) = (Some(RequestId::Number(1)), json!({"code": 1}));
        for (text, id, result) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":2}"#,
                id.clone(),
                Ok(json!(2)),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
                id,
                Err(error),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"result":null}"#,
                None,
                Ok(Value::Null),
            ),
        ] {
            assert_eq!(
                RpcMessage::parse(text).unwrap(),
                RpcMessage::Answer { id, result },
                "{text}"
            );
        }
    }

    #[test]
    fn parse_reads_formatted_message_unchanged() {
        let (id, params) = (json!(7), json!({"a": [1]}));
        assert_eq!(
            RpcMessage::parse(&RpcMessage::request(7, "m", &params)),
            Ok(RpcMessage::Request {
                id: id.clone(),
                method: "m".into(),
                params: params.clone()
            })
        );
        assert_eq!(
            RpcMessage::parse(&RpcMessage::notification("m", &params)),
            Ok(RpcMessage::Notification {
                method: "m".into(),
                params: params.clone()
            })
        );
        for result in [Ok(&params), Err(&params)] {
            let read = RpcMessage::parse(&RpcMessage::answer(&id, result));
            let result = result.cloned().map_err(Clone::clone);
            assert_eq!(
                read,
                Ok(RpcMessage::Answer {
                    id: Some(RequestId::Number(7)),
                    result
                })
            );
        }
    }

    #[test]
    fn parse_rejects_malformed_message_with_its_id() {
        let (null, one) = (Value::Null, json!(1));
        check_rejected("", ErrorCode::PARSE_ERROR, &null);
        check_rejected("{", ErrorCode::PARSE_ERROR, &null);
        check_rejected(&"[".repeat(100_000), ErrorCode::PARSE_ERROR, &null);
        check_rejected("[]", ErrorCode::INVALID_REQUEST, &null);
        check_rejected("7", ErrorCode::INVALID_REQUEST, &null);
        check_rejected(r#"{"id":1,"method":"m"}"#, ErrorCode::INVALID_REQUEST, &one);
        check_rejected(
            r#"{"jsonrpc":"2.0","id":1}"#,
            ErrorCode::INVALID_REQUEST,
            &one,
        );
        check_rejected(
            r#"{"jsonrpc":"2.0","id":1,"method":1}"#,
            ErrorCode::INVALID_REQUEST,
            &one,
        );
        check_rejected(
            r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
            ErrorCode::INVALID_REQUEST,
            &null,
        );
        check_rejected(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
            ErrorCode::INVALID_PARAMS,
            &one,
        );
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#,
            "x".repeat(200)
        );
        check_rejected(&long, ErrorCode::INVALID_REQUEST, &null);
    }

    #[test]
    fn parse_error_quotes_nothing_of_the_message() {
        let error = RpcMessage::parse(r#"{"jsonrpc": "2.0", "hush" "hush"}"#)
            .unwrap_err()
            .message;
        assert!(
            error.contains("line 1") && !error.contains("hush"),
            "{error}"
        );
    }
}
