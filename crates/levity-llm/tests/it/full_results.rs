//! The full text of truncated results is never sent.

use levity_core::{
    History, Message, Model, Part, Request, Role, ToolCall, ToolError, ToolOutput, ToolResult,
};
use levity_llm::ModelExt as _;
use levity_llm::layers::Cache;
use levity_test::ScriptedModel;
use serde_json::json;

const WHOLE: &str = "what nobody is shown";

fn asked(whole: &str) -> Request {
    let call = ToolCall::new("c1", "dump", json!({}));
    let mut history = History::new();
    history.push(Message::user("Dump it.")).unwrap();
    let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
    let mut exchange = history.open(reply.into()).unwrap();
    let mut result = ToolResult::new(&call, Ok(ToolOutput::text("what is shown")));
    result.whole = Some(whole.into());
    exchange.answer(result).unwrap();
    history.close(exchange, &ToolError::failed("not used"));
    Request::new().with_history(history)
}

#[cfg(all(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai",
    feature = "compatible"
))]
mod wire {
    use levity_llm::{AnthropicModel, ChatModel, Endpoint, GeminiModel, OllamaModel, OpenAiModel};

    use super::*;
    use crate::server::{Answer, Server};

    /// Checks the sent request, regardless of the reply.
    async fn check(make: impl FnOnce(Endpoint) -> Box<dyn Model>) {
        let server = Server::with_answer(Answer::json(500, "{}")).await;
        let model = make(Endpoint::new(server.url()));
        let _ = model.complete(asked(WHOLE)).await;
        let body = server.last().body.to_string();
        let provider = &model.card().provider;
        assert!(
            body.contains("what is shown") && !body.contains(WHOLE),
            "{provider}: {body}"
        );
        assert!(!body.contains("whole"), "{provider}: {body}");
    }

    #[tokio::test]
    async fn full_result_text_is_sent_to_no_provider() {
        check(|at| Box::new(AnthropicModel::new("k", "m").with_endpoint(|_| at))).await;
        check(|at| Box::new(GeminiModel::new("k", "m").with_endpoint(|_| at))).await;
        check(|at| Box::new(OllamaModel::new("m").with_endpoint(|_| at))).await;
        check(|at| Box::new(OpenAiModel::new("k", "m").with_endpoint(|_| at))).await;
        check(|at| Box::new(ChatModel::compatible("http://localhost", "m").with_endpoint(|_| at)))
            .await;
    }
}

#[tokio::test]
async fn cache_ignores_unsent_full_result_text() {
    let model = ScriptedModel::new()
        .reply("once")
        .reply("twice")
        .cached(Cache::new());
    for whole in [WHOLE, "something else", ""] {
        let reply = model.complete(asked(whole)).await.unwrap();
        assert_eq!(reply.message.text(), "once");
    }
}
