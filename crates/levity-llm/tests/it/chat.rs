//! Chat completions, including servers with an incomplete implementation.

mod errors;
mod replies;
mod requests;
mod text_calls;

use levity_core::{Finish, Message, Model as _, ModelErrorKind, Request, Response, ToolSpec};
use levity_llm::ChatModel;
use serde_json::{Map, Value, json};

use crate::server::{Answer, Server};

const STREAM: &str = "\
data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Hm. \"}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Let me see\"}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\
    \"id\":\"c1\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\
    \"function\":{\"arguments\":\":2}\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n\
data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":7,\
    \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
data: [DONE]\n\n";

fn sample_request() -> Request {
    let add = ToolSpec::new("add", "Adds.").with_input(json!({"type": "object"}));
    Request::new()
        .with_system("Be brief.")
        .with_message(Message::user("What is 2+2?"))
        .with_tools([std::sync::Arc::new(add)])
}

/// Returns the content of a reply, without empty parts.
fn summary_of(reply: &Response) -> Value {
    let mut summary_of = Map::new();
    let mut add = |name: &str, value: Value| drop(summary_of.insert(name.to_owned(), value));
    if !reply.message.thinking().is_empty() {
        add("thinking", json!(reply.message.thinking()));
    }
    if !reply.message.text().is_empty() {
        add("text", json!(reply.message.text()));
    }
    let calls = reply.message.calls().map(|call| {
        let args = call
            .raw
            .as_ref()
            .map_or_else(|| call.args.clone(), |raw| json!({ "raw": raw }));
        json!([call.id, call.name, args])
    });
    let calls: Vec<_> = calls.collect();
    if !calls.is_empty() {
        add("calls", calls.into());
    }
    if reply.finish != Finish::Stop {
        add("finish", serde_json::to_value(&reply.finish).unwrap());
    }
    if let (Some(input), Some(output)) = (reply.usage.input, reply.usage.output) {
        add("usage", json!([input, output]));
    }
    Value::Object(summary_of)
}

#[tokio::test]
async fn stream_is_parsed_into_reply() {
    let server = Server::with_answer(Answer::sse(STREAM)).await;
    let model =
        ChatModel::compatible(format!("{}/v1", server.url()), "small").with_key("sk-secret");
    let reply = model.complete(sample_request()).await.unwrap();
    let calls = json!([["c1", "add", {"a": 2}]]);
    assert_eq!(
        summary_of(&reply),
        json!({"thinking": "Hm. ", "text": "Let me see", "calls": calls, "finish": "tool_calls",
            "usage": [9, 7]})
    );
    assert_eq!(reply.usage.cached, Some(4));
    let seen = server.last();
    assert_eq!(seen.line, "POST /v1/chat/completions");
    assert_eq!(seen.header("authorization"), "Bearer sk-secret");
    assert_eq!(
        seen.body["messages"],
        json!([{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 2+2?"}])
    );
    assert_eq!(
        (&seen.body["stream"], &seen.body["stream_options"]),
        (&json!(true), &json!({"include_usage": true}))
    );
}

#[tokio::test]
async fn whole_reply_is_parsed() {
    let call = json!({"id": "c1", "type": "function",
        "function": {"name": "add", "arguments": "{\"a\":2}"}});
    let message =
        json!({"role": "assistant", "content": null, "reasoning": "Hm.", "tool_calls": [call]});
    let whole = json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 7},
    });
    let expected = json!({"thinking": "Hm.", "calls": [["c1", "add", {"a": 2}]],
        "finish": "tool_calls", "usage": [9, 7]});
    let server = Server::with_answer(Answer::json(200, whole.to_string())).await;
    let model = ChatModel::compatible(server.url(), "small");
    let reply = model
        .clone()
        .without_streaming()
        .complete(sample_request())
        .await
        .unwrap();
    assert_eq!(
        (summary_of(&reply), server.last().body.get("stream")),
        (expected.clone(), None)
    );
    // The same holds if a stream was requested.
    assert_eq!(
        summary_of(&model.complete(sample_request()).await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn deltas_before_error_are_delivered() {
    let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"Sev\"}}]}\n\n";
    let server = Server::with_answer(Answer::sse(format!(
        "{chunk}data: {{\"error\":\"gone\"}}\n\n"
    )))
    .await;
    let mut deltas = ChatModel::compatible(server.url(), "small")
        .stream(sample_request())
        .await
        .unwrap();
    assert_eq!(
        deltas.next().await,
        Some(Ok(levity_core::Delta::Text("Sev".into())))
    );
    let error = deltas.next().await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ModelErrorKind::Server, "gone")
    );
    assert_eq!(deltas.next().await, None);
}

#[tokio::test]
async fn key_repeated_by_server_is_hidden() {
    let said = r#"{"error": {"message": "Incorrect API key provided: sk-secret-123",
        "code": "invalid_api_key"}}"#;
    let server = Server::with_answer(Answer::json(401, said).header("x-request-id", "req_1")).await;
    let model = ChatModel::compatible(server.url(), "small").with_key("sk-secret-123");
    let error = model.complete(sample_request()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status()),
        (ModelErrorKind::Auth, Some(401))
    );
    assert_eq!(error.request_id(), Some("req_1"));
    assert!(
        !format!("{error} {error:?}").contains("sk-secret"),
        "{error:?}"
    );
}

#[tokio::test]
async fn chat_model_conforms() {
    let server = Server::with_answer(Answer::sse(STREAM)).await;
    levity_test::conformance::model(|| ChatModel::compatible(server.url(), "small")).await;
}
