//! Creates the model of a case.

use levity::core::Model;
use levity::llm::{AnthropicModel, ChatModel, Endpoint, GeminiModel, OllamaModel, OpenAiModel};
use serde_json::Value;

/// Creates the model for the protocol and address of a case.
pub(crate) fn model(case: &Value) -> Option<Box<dyn Model>> {
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    let (base, id, stream) = (text("base_url"), text("model"), case["stream"] == true);
    match text("wire") {
        "openai_chat" => {
            let model = ChatModel::compatible(format!("{base}/v1"), id).with_key("none");
            Some(Box::new(if stream {
                model
            } else {
                model.without_streaming()
            }))
        }
        "openai_responses" => {
            let model = responses(
                text("server"),
                &format!("{base}/v1"),
                id,
                &recorded(text("dir")),
            );
            Some(Box::new(if stream {
                model
            } else {
                model.without_streaming()
            }))
        }
        "gemini" => {
            let model = match text("server") {
                "vertex" => GeminiModel::vertex("project", "us-central1", "none", id),
                _ => GeminiModel::new("none", id),
            };
            let model = model.with_endpoint(|_| Endpoint::new(base));
            Some(Box::new(if stream {
                model
            } else {
                model.without_streaming()
            }))
        }
        "anthropic" => {
            let model = AnthropicModel::new("none", id).with_endpoint(|_| Endpoint::new(base));
            Some(Box::new(if stream {
                model
            } else {
                model.without_streaming()
            }))
        }
        "ollama" => {
            let model = OllamaModel::new(id).with_endpoint(|_| Endpoint::new(base));
            Some(Box::new(if stream {
                model
            } else {
                model.without_streaming()
            }))
        }
        _ => None,
    }
}

/// Creates a model for the Responses API. If the recorded client stored replies, reasoning items
/// are sent back by id.
fn responses(server: &str, base: &str, id: &str, recorded: &Value) -> OpenAiModel {
    let model = if server == "openai" {
        OpenAiModel::new("none", id).with_endpoint(|_| Endpoint::new(base))
    } else {
        OpenAiModel::compatible(base, id).with_key("none")
    };
    if recorded["store"] == false {
        model
    } else {
        model.stored()
    }
}

fn recorded(dir: &str) -> Value {
    let text =
        std::fs::read_to_string(std::path::Path::new(dir).join("request.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
