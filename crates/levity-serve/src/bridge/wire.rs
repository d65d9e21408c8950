//! JSON-RPC 2.0, one message a frame.

use levity_core::text::json_problem;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::error::{Error, ErrorKind, Result};

/// How long an id may be, in bytes.
const MAX_ID: usize = 128;

/// What a client sent.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// Wants an answer.
    Request { id: Value, method: String, params: Value },
    /// Wants none.
    Notification { method: String, params: Value },
    /// An answer: a host asks nothing, so it is left aside.
    Answer,
}

/// What cannot be understood, with the id to answer to.
#[derive(Debug, PartialEq)]
pub(super) struct Unclear {
    pub(super) id: Value,
    pub(super) error: Error,
}

pub(super) fn parse(text: &str) -> Result<Incoming, Unclear> {
    let unclear = |id: Value, kind, words: &str| Unclear { id, error: Error::new(kind, words) };
    let message: Value = serde_json::from_str(text).map_err(|error| {
        unclear(Value::Null, ErrorKind::Parse, &format!("the message is no JSON: {}", json_problem(&error)))
    })?;
    let Value::Object(mut message) = message else {
        let words = match message {
            Value::Array(_) => "batches are not taken; send one request a message",
            _ => "a request is an object with `jsonrpc`, `id`, `method` and `params`",
        };
        return Err(unclear(Value::Null, ErrorKind::Request, words));
    };
    let id = id(&mut message)
        .ok_or_else(|| unclear(Value::Null, ErrorKind::Request, "an id is a number or a short text"))?;
    let back = || id.clone().unwrap_or(Value::Null);
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(unclear(back(), ErrorKind::Request, "`jsonrpc` must be \"2.0\""));
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) => method,
        None if message.contains_key("result") || message.contains_key("error") => {
            return Ok(Incoming::Answer);
        }
        _ => return Err(unclear(back(), ErrorKind::Request, "`method` must be a text")),
    };
    let params = message.remove("params").unwrap_or_else(|| json!({}));
    if !params.is_object() {
        return Err(unclear(back(), ErrorKind::Invalid, "`params` must be an object"));
    }
    Ok(match id {
        Some(id) => Incoming::Request { id, method, params },
        None => Incoming::Notification { method, params },
    })
}

/// The id, if there is one; nothing if it is none that can be.
fn id(message: &mut Map<String, Value>) -> Option<Option<Value>> {
    match message.remove("id") {
        None => Some(None),
        Some(id @ Value::Number(_)) => Some(Some(id)),
        Some(Value::String(id)) if id.len() <= MAX_ID => Some(Some(Value::String(id))),
        Some(_) => None,
    }
}

/// The parameters as a method wants them.
pub(super) fn params<T: DeserializeOwned>(method: &str, params: Value) -> Result<T> {
    serde_json::from_value(params).map_err(|error| {
        Error::invalid(format!("the parameters of `{method}` do not fit: {}", json_problem(&error)))
    })
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

pub(super) fn answer(id: &Value, result: &Result<Value>) -> String {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.to_json()}),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, kind: ErrorKind, id: &Value) {
        let unclear = parse(text).unwrap_err();
        assert_eq!((unclear.error.kind(), &unclear.id), (kind, id), "{text}");
    }

    #[test]
    fn requests_and_notifications_are_told_apart() {
        let request = parse(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"b":1}}"#).unwrap();
        assert_eq!(
            request,
            Incoming::Request { id: json!("a"), method: "m".into(), params: json!({"b": 1}) }
        );
        let told = parse(r#"{"jsonrpc":"2.0","method":"m"}"#).unwrap();
        assert_eq!(told, Incoming::Notification { method: "m".into(), params: json!({}) });
        assert_eq!(parse(r#"{"jsonrpc":"2.0","id":1,"result":2}"#).unwrap(), Incoming::Answer);
    }

    #[test]
    fn errors_name_the_place_and_not_the_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its errors are looked at")]
        struct Path {
            path: String,
        }
        let wrong =
            [json!({"path": 1, "hush-hush": 2}), json!({"path": ["hush"]}), json!({"hush`, expected x": 1})];
        for value in wrong {
            let error = params::<Path>("files/read", value.clone()).unwrap_err().to_string();
            assert!(error.contains("expected") && !error.contains("hush`"), "{value}: {error}");
            assert!(!error.contains("\"hush"), "{value}: {error}");
        }
        let error = parse(r#"{"jsonrpc": "2.0", "hush" "hush"}"#).unwrap_err().error.to_string();
        assert!(error.contains("line 1") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn what_is_no_request_is_said() {
        let (null, one) = (Value::Null, json!(1));
        refused("", ErrorKind::Parse, &null);
        refused("{", ErrorKind::Parse, &null);
        refused(&"[".repeat(100_000), ErrorKind::Parse, &null);
        refused("[]", ErrorKind::Request, &null);
        refused("7", ErrorKind::Request, &null);
        refused(r#"{"id":1,"method":"m"}"#, ErrorKind::Request, &one);
        refused(r#"{"jsonrpc":"2.0","id":1}"#, ErrorKind::Request, &one);
        refused(r#"{"jsonrpc":"2.0","id":1,"method":1}"#, ErrorKind::Request, &one);
        refused(r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, ErrorKind::Request, &null);
        refused(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#, ErrorKind::Invalid, &one);
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(200));
        refused(&long, ErrorKind::Request, &null);
    }
}
