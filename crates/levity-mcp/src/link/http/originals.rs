//! Storage for responses as the server wrote them, which bypass rmcp's worker.
//!
//! The worker itself parses a response that arrives as events, and drops data that its types lack.
//! So the worker gets an empty response, and the original is put back afterwards. The worker has to
//! parse two results: `initialize` contains the version of a session, and a list of tools states
//! which arguments also go into headers.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use levity_rpc::mcp::{
    CustomResult, InitializeResult, ListToolsResult, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult, answered_id,
};
use serde_json::Value;

/// The maximum number of stored responses. They are stored only for a moment, so this limit is
/// never reached in practice.
const MAX_STORED: usize = 4096;

/// The type that the worker needs for a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultType {
    Nothing,
    Initialize,
    Tools,
}

impl ResultType {
    /// Returns the type that the worker needs for the result of this method in this version.
    pub(super) fn of(method: &str, version: Option<&str>) -> Self {
        // Before this version no argument goes into a header.
        let in_headers =
            version.is_some_and(|version| version >= ProtocolVersion::STANDARD_HEADERS.as_str());
        match method {
            "initialize" => Self::Initialize,
            "tools/list" if in_headers => Self::Tools,
            _ => Self::Nothing,
        }
    }

    /// Converts the result to rmcp's type, if the worker needs it.
    fn read(self, value: &Value) -> Option<ServerResult> {
        match self {
            Self::Nothing => None,
            Self::Initialize => serde_json::from_value::<InitializeResult>(value.clone())
                .ok()
                .map(Into::into),
            Self::Tools => serde_json::from_value::<ListToolsResult>(value.clone())
                .ok()
                .map(Into::into),
        }
    }
}

/// The responses as they were written.
#[derive(Debug, Default)]
pub(super) struct OriginalResponses(Mutex<HashMap<RequestId, ServerJsonRpcMessage>>);

impl OriginalResponses {
    /// Converts a response to the type that the worker needs.
    pub(super) fn convert(&self, message: &mut ServerJsonRpcMessage, result_type: ResultType) {
        let ServerJsonRpcMessage::Response(response) = message else {
            return;
        };
        let ServerResult::CustomResult(CustomResult(value)) = &response.result else {
            return;
        };
        let Some(read) = result_type.read(value) else {
            return;
        };
        let written = std::mem::replace(&mut response.result, read);
        if result_type == ResultType::Tools {
            self.store(ServerJsonRpcMessage::response(written, response.id.clone()));
        }
    }

    /// Replaces the content of a response, unless the worker needs it.
    pub(super) fn replace_with_empty(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        match message {
            ServerJsonRpcMessage::Response(response)
                if !matches!(response.result, ServerResult::ListToolsResult(_)) =>
            {
                let id = response.id.clone();
                self.store(ServerJsonRpcMessage::Response(response));
                ServerJsonRpcMessage::response(ServerResult::empty(()), id)
            }
            other => other,
        }
    }

    fn store(&self, message: ServerJsonRpcMessage) {
        let ServerJsonRpcMessage::Response(response) = &message else {
            return;
        };
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.len() >= MAX_STORED {
            stored.clear();
        }
        stored.insert(response.id.clone(), message);
    }

    /// Restores a response as it was written, without the tools that the worker removed.
    pub(super) fn restore(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        let stored = answered_id(&message).and_then(|id| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id)
        });
        match (message, stored) {
            (ServerJsonRpcMessage::Response(read), Some(mut written)) => {
                if let ServerResult::ListToolsResult(list) = &read.result {
                    retain_tools(&mut written, list);
                }
                written
            }
            (message, _) => message,
        }
    }
}

/// Retains only the tools of `list`.
fn retain_tools(written: &mut ServerJsonRpcMessage, list: &ListToolsResult) {
    let names: HashSet<_> = list.tools.iter().map(|tool| &*tool.name).collect();
    if let ServerJsonRpcMessage::Response(response) = written
        && let ServerResult::CustomResult(CustomResult(value)) = &mut response.result
        && let Some(Value::Array(tools)) = value.get_mut("tools")
    {
        tools.retain(|tool| {
            tool["name"]
                .as_str()
                .is_some_and(|name| names.contains(name))
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(result: Value) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::response(
            ServerResult::CustomResult(CustomResult(result)),
            RequestId::Number(1),
        )
    }

    fn json(message: &ServerJsonRpcMessage) -> Value {
        serde_json::to_value(message).unwrap()
    }

    #[test]
    fn restore_returns_original_list_without_removed_tools() {
        let tool = |name: &str| {
            json!({
                "name": name,
                "inputSchema": {},
                "execution": {"taskSupport": "required"},
            })
        };
        let mut message = answer(json!({"tools": [tool("a"), tool("b")], "extra": 1}));
        let written = OriginalResponses::default();
        written.convert(
            &mut message,
            ResultType::of("tools/list", Some("2026-07-28")),
        );
        message = written.replace_with_empty(message);
        let ServerJsonRpcMessage::Response(response) = &mut message else {
            panic!("not a response")
        };
        let ServerResult::ListToolsResult(list) = &mut response.result else {
            panic!("not a list of tools")
        };
        list.tools.remove(0);
        let message = written.restore(message);
        assert_eq!(
            json(&message),
            json(&answer(json!({"tools": [tool("b")], "extra": 1})))
        );
        assert!(written.0.lock().unwrap().is_empty());
    }

    #[test]
    fn untyped_results_are_restored_unchanged() {
        let written = OriginalResponses::default();
        for (method, version) in [
            ("tools/list", Some("2025-11-25")),
            ("tools/list", None),
            ("prompts/list", Some("2026-07-28")),
        ] {
            let before = answer(json!({"tools": [], "prompts": [], "extra": {"x": 1}}));
            let mut message = before.clone();
            written.convert(&mut message, ResultType::of(method, version));
            assert_eq!(json(&message), json(&before));
            let message = written.replace_with_empty(message);
            assert!(!json(&message).to_string().contains("extra"));
            // The worker parses the message like this.
            let message = serde_json::from_value(json(&message)).unwrap();
            assert_eq!(json(&written.restore(message)), json(&before));
        }
    }

    #[test]
    fn error_removes_stored_response() {
        let written = OriginalResponses::default();
        written.replace_with_empty(answer(json!({"extra": 1})));
        let error = levity_rpc::mcp::ErrorData::internal_error("gone", None);
        written.restore(ServerJsonRpcMessage::error(
            error,
            Some(RequestId::Number(1)),
        ));
        assert!(written.0.lock().unwrap().is_empty());
    }
}
