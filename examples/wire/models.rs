//! The model of a case.

use levity::core::Model;
use levity::llm::{AnthropicModel, ChatModel, Endpoint};
use serde_json::Value;

/// The model that speaks a case's protocol, at the case's address.
pub(crate) fn model(case: &Value) -> Option<Box<dyn Model>> {
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    let (base, id, stream) = (text("base_url"), text("model"), case["stream"] == true);
    match text("wire") {
        "openai_chat" => {
            let model = ChatModel::compatible(format!("{base}/v1"), id).with_key("none");
            Some(Box::new(if stream { model } else { model.without_streaming() }))
        }
        "anthropic" => {
            let model = AnthropicModel::new("none", id).with_endpoint(|_| Endpoint::new(base));
            Some(Box::new(if stream { model } else { model.without_streaming() }))
        }
        _ => None,
    }
}
