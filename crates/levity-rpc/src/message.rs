//! JSON-RPC 2.0, one message a text.

use levity_core::text::json_problem;
use serde_json::{Map, Value, json};

use crate::mcp::{ErrorCode, RequestId};

/// How long an id may be, in bytes.
const MAX_ID: usize = 128;

/// A message of the other side.
#[derive(Clone, Debug, PartialEq)]
pub enum RpcMessage {
    /// A call that wants an answer.
    Request {
        /// A number or a short text, which the answer repeats.
        id: Value,
        /// The name of the method.
        method: String,
        /// An object; an empty one where there was none.
        params: Value,
    },
    /// A call that wants no answer.
    Notification {
        /// The name of the method.
        method: String,
        /// An object; an empty one where there was none.
        params: Value,
    },
    /// An answer to a call of this side.
    Answer {
        /// The call's id, unless it is none that this side gives.
        id: Option<RequestId>,
        /// The result, or the error object.
        result: Result<Value, Value>,
    },
}

/// A message that cannot be understood, and the answer that says so.
#[derive(Clone, Debug, PartialEq)]
pub struct MalformedMessage {
    /// The id to answer to; null where there is none.
    pub id: Value,
    /// JSON-RPC's number for what is wrong.
    pub code: i32,
    /// What is wrong, without anything that the message says.
    pub message: String,
}

impl RpcMessage {
    /// Reads a message, strictly.
    ///
    /// # Errors
    /// When the text is no JSON, or no message of JSON-RPC 2.0.
    pub fn parse(text: &str) -> Result<Self, MalformedMessage> {
        let wrong = |id, code: ErrorCode, words: &str| MalformedMessage {
            id,
            code: code.0,
            message: words.to_owned(),
        };
        let message: Value = serde_json::from_str(text).map_err(|error| {
            let words = format!("the message is no JSON: {}", json_problem(&error));
            wrong(Value::Null, ErrorCode::PARSE_ERROR, &words)
        })?;
        let invalid = |id, words| wrong(id, ErrorCode::INVALID_REQUEST, words);
        let Value::Object(mut message) = message else {
            let words = match message {
                Value::Array(_) => "batches are not taken; send one request a message",
                _ => "a request is an object with `jsonrpc`, `id`, `method` and `params`",
            };
            return Err(invalid(Value::Null, words));
        };
        let id = take_id(&mut message)
            .ok_or_else(|| invalid(Value::Null, "an id is a number or a short text"))?;
        let back = || id.clone().unwrap_or(Value::Null);
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(invalid(back(), "`jsonrpc` must be \"2.0\""));
        }
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            None if message.contains_key("result") || message.contains_key("error") => {
                return Ok(answer(id, message));
            }
            _ => return Err(invalid(back(), "`method` must be a text")),
        };
        let params = message.remove("params").unwrap_or_else(|| json!({}));
        if !params.is_object() {
            return Err(wrong(
                back(),
                ErrorCode::INVALID_PARAMS,
                "`params` must be an object",
            ));
        }
        Ok(match id {
            Some(id) => Self::Request { id, method, params },
            None => Self::Notification { method, params },
        })
    }

    /// Writes a request.
    pub fn request(id: i64, method: &str, params: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    /// Writes a notification.
    pub fn notification(method: &str, params: &Value) -> String {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    }

    /// Writes the answer to a request: its result, or an error object.
    pub fn answer(id: &Value, result: Result<&Value, &Value>) -> String {
        match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        }
        .to_string()
    }
}

fn answer(id: Option<Value>, mut message: Map<String, Value>) -> RpcMessage {
    let id = id.and_then(|id| serde_json::from_value(id).ok());
    let result = match message.remove("error") {
        Some(error) => Err(error),
        None => Ok(message.remove("result").unwrap_or_default()),
    };
    RpcMessage::Answer { id, result }
}

/// The id, if there is one; nothing if it is none that can be.
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
    fn refused(text: &str, code: ErrorCode, id: &Value) {
        let wrong = RpcMessage::parse(text).unwrap_err();
        assert_eq!((wrong.code, &wrong.id), (code.0, id), "{text}");
    }

    #[test]
    fn kinds_of_messages_are_told_apart() {
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
        let told = RpcMessage::parse(r#"{"jsonrpc":"2.0","method":"m"}"#).unwrap();
        assert_eq!(
            told,
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
    fn message_that_was_written_is_read_unchanged() {
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
    fn malformed_messages_are_refused_with_their_id() {
        let (null, one) = (Value::Null, json!(1));
        refused("", ErrorCode::PARSE_ERROR, &null);
        refused("{", ErrorCode::PARSE_ERROR, &null);
        refused(&"[".repeat(100_000), ErrorCode::PARSE_ERROR, &null);
        refused("[]", ErrorCode::INVALID_REQUEST, &null);
        refused("7", ErrorCode::INVALID_REQUEST, &null);
        refused(r#"{"id":1,"method":"m"}"#, ErrorCode::INVALID_REQUEST, &one);
        refused(
            r#"{"jsonrpc":"2.0","id":1}"#,
            ErrorCode::INVALID_REQUEST,
            &one,
        );
        refused(
            r#"{"jsonrpc":"2.0","id":1,"method":1}"#,
            ErrorCode::INVALID_REQUEST,
            &one,
        );
        refused(
            r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
            ErrorCode::INVALID_REQUEST,
            &null,
        );
        refused(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
            ErrorCode::INVALID_PARAMS,
            &one,
        );
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#,
            "x".repeat(200)
        );
        refused(&long, ErrorCode::INVALID_REQUEST, &null);
    }

    #[test]
    fn a_refusal_quotes_nothing_of_the_message() {
        let error = RpcMessage::parse(r#"{"jsonrpc": "2.0", "hush" "hush"}"#)
            .unwrap_err()
            .message;
        assert!(
            error.contains("line 1") && !error.contains("hush"),
            "{error}"
        );
    }
}
