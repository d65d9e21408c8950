//! Chat completions, and servers that nearly speak it.

use levity_core::{Finish, Message, Model as _, ModelErrorKind, Request, ToolSpec};
use levity_llm::ChatModel;
use serde_json::json;

use crate::server::{Answer, Server};

const STREAM: &str = "\
data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Hm. \"}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Let me see\"}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":2}\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n\
data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
data: [DONE]\n\n";

fn asked() -> Request {
    let add = ToolSpec::new("add", "Adds.").with_input(json!({"type": "object"}));
    Request::new()
        .with_system("Be brief.")
        .with_message(Message::user("What is 2+2?"))
        .with_tools([std::sync::Arc::new(add)])
}

#[tokio::test]
async fn a_stream_becomes_a_reply() {
    let server = Server::saying(Answer::sse(STREAM)).await;
    let model = ChatModel::compatible(format!("{}/v1", server.url()), "small").with_key("sk-secret");
    let reply = model.complete(asked()).await.unwrap();
    assert_eq!((&*reply.message.text(), &*reply.message.thinking()), ("Let me see", "Hm. "));
    let call = reply.message.calls().next().unwrap();
    assert_eq!((call.id.as_str(), &*call.name, &call.args), ("c1", "add", &json!({"a": 2})));
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!((reply.usage.input, reply.usage.output, reply.usage.cached), (Some(9), Some(7), Some(4)));
    let seen = server.last();
    assert_eq!(seen.line, "POST /v1/chat/completions");
    assert_eq!(seen.header("authorization"), "Bearer sk-secret");
    assert_eq!(
        seen.body["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2+2?"}])
    );
}

#[tokio::test]
async fn a_key_that_the_server_repeats_is_not_shown() {
    let said =
        r#"{"error": {"message": "Incorrect API key provided: sk-secret-123", "code": "invalid_api_key"}}"#;
    let server = Server::saying(Answer::json(401, said).header("x-request-id", "req_1")).await;
    let model = ChatModel::compatible(server.url(), "small").with_key("sk-secret-123");
    let error = model.complete(asked()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ModelErrorKind::Auth, Some(401)));
    assert_eq!(error.request_id(), Some("req_1"));
    assert!(!format!("{error} {error:?}").contains("sk-secret"), "{error:?}");
}
