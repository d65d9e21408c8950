//! Answers go past rmcp's worker as the server wrote them.
//!
//! The worker reads an answer that comes as events by itself, and what its types have no place for
//! is lost. So it gets one with nothing in it, and the real one is put back behind it. It has to
//! understand two of them: the version of a session is in the answer to `initialize`, and a list of
//! tools says which arguments also go into headers.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use levity_rpc::mcp::{
    CustomResult, InitializeResult, ListToolsResult, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult, answered_id,
};
use serde_json::Value;

/// Answers that wait to be put back. They wait for a moment only, so this many are never there.
const WAITING: usize = 4096;

/// What the worker has to understand of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Nothing,
    Initialize,
    Tools,
}

impl Typed {
    /// What it has to understand of the answer to this method, when it is sent with this version.
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

    /// The result in rmcp's terms, where the worker needs it in those.
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

/// Answers as they were written.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<HashMap<RequestId, ServerJsonRpcMessage>>);

impl Written {
    /// Makes of an answer what the worker understands of it.
    pub(super) fn keep(&self, message: &mut ServerJsonRpcMessage, typed: Typed) {
        let ServerJsonRpcMessage::Response(response) = message else {
            return;
        };
        let ServerResult::CustomResult(CustomResult(value)) = &response.result else {
            return;
        };
        let Some(read) = typed.read(value) else {
            return;
        };
        let written = std::mem::replace(&mut response.result, read);
        if typed == Typed::Tools {
            self.put(ServerJsonRpcMessage::response(written, response.id.clone()));
        }
    }

    /// Takes what is in an answer out of it, unless the worker needs it.
    pub(super) fn empty(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        match message {
            ServerJsonRpcMessage::Response(response)
                if !matches!(response.result, ServerResult::ListToolsResult(_)) =>
            {
                let id = response.id.clone();
                self.put(ServerJsonRpcMessage::Response(response));
                ServerJsonRpcMessage::response(ServerResult::empty(()), id)
            }
            other => other,
        }
    }

    fn put(&self, message: ServerJsonRpcMessage) {
        let ServerJsonRpcMessage::Response(response) = &message else {
            return;
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= WAITING {
            kept.clear();
        }
        kept.insert(response.id.clone(), message);
    }

    /// Puts an answer back as it was written, without the tools that the worker took out of it.
    pub(super) fn restore(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        let kept = answered_id(&message).and_then(|id| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id)
        });
        match (message, kept) {
            (ServerJsonRpcMessage::Response(read), Some(mut written)) => {
                if let ServerResult::ListToolsResult(list) = &read.result {
                    leave(&mut written, list);
                }
                written
            }
            (message, _) => message,
        }
    }
}

/// Leaves only these tools in a list.
fn leave(written: &mut ServerJsonRpcMessage, list: &ListToolsResult) {
    let good: HashSet<_> = list.tools.iter().map(|tool| &*tool.name).collect();
    if let ServerJsonRpcMessage::Response(response) = written
        && let ServerResult::CustomResult(CustomResult(value)) = &mut response.result
        && let Some(Value::Array(tools)) = value.get_mut("tools")
    {
        tools.retain(|tool| {
            tool["name"]
                .as_str()
                .is_some_and(|name| good.contains(name))
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
    fn a_list_comes_back_as_it_was_written_without_what_the_worker_took_out() {
        let tool = |name: &str| json!({"name": name, "inputSchema": {}, "execution": {"taskSupport": "required"}});
        let mut message = answer(json!({"tools": [tool("a"), tool("b")], "extra": 1}));
        let written = Written::default();
        written.keep(&mut message, Typed::of("tools/list", Some("2026-07-28")));
        message = written.empty(message);
        let ServerJsonRpcMessage::Response(response) = &mut message else {
            panic!("no response")
        };
        let ServerResult::ListToolsResult(list) = &mut response.result else {
            panic!("no list")
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
    fn what_need_not_be_understood_goes_past() {
        let written = Written::default();
        for (method, version) in [
            ("tools/list", Some("2025-11-25")),
            ("tools/list", None),
            ("prompts/list", Some("2026-07-28")),
        ] {
            let before = answer(json!({"tools": [], "prompts": [], "extra": {"x": 1}}));
            let mut message = before.clone();
            written.keep(&mut message, Typed::of(method, version));
            assert_eq!(json(&message), json(&before));
            let message = written.empty(message);
            assert!(!json(&message).to_string().contains("extra"));
            // As the worker reads it.
            let message = serde_json::from_value(json(&message)).unwrap();
            assert_eq!(json(&written.restore(message)), json(&before));
        }
    }

    #[test]
    fn an_error_takes_the_place_of_an_answer() {
        let written = Written::default();
        written.empty(answer(json!({"extra": 1})));
        let error = levity_rpc::mcp::ErrorData::internal_error("gone", None);
        written.restore(ServerJsonRpcMessage::error(
            error,
            Some(RequestId::Number(1)),
        ));
        assert!(written.0.lock().unwrap().is_empty());
    }
}
