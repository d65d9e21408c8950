//! State of Gemini that returns unchanged.

use levity_core::{
    Media, Message, Model as _, Part, ProviderState, Response, Role, ToolCall, ToolError,
    ToolOutput,
};
use levity_core::{Request, ToolResult};
use serde_json::{Value, json};

use super::{after, ask, chunk_with, last, model, sse};
use crate::server::{Server, without_origin};

/// Returns the reply of these chunks.
async fn read(pieces: &[Value]) -> Response {
    let server = Server::with_answer(sse(pieces)).await;
    without_origin(
        &model(&server, "gemini-3-flash")
            .complete(ask("?"))
            .await
            .unwrap(),
    )
}

/// Returns the conversation as it is sent to a model of this name.
async fn contents(id: &str, request: Request) -> Value {
    let server = Server::with_answer(sse(&[last(json!([{"text": "Yes."}]), "STOP")])).await;
    model(&server, id).complete(request).await.unwrap();
    server.last().body["contents"].clone()
}

/// Returns the parts of the reply as they are sent back.
async fn returned_parts(reply: &Response) -> Value {
    let history = after(reply, |_| Ok(ToolOutput::text("fine")));
    contents("gemini-3-flash", Request::new().with_history(history)).await[1]["parts"].clone()
}

#[tokio::test]
async fn signatures_stay_on_their_parts() {
    let text = |text: &str| json!({ "text": text });
    let signed = |text: &str, signature: &str| json!({"text": text, "thoughtSignature": signature});
    let call = |city: &str| json!({"functionCall": {"name": "weather", "args": {"city": city}}});
    let mut first = call("Rome");
    first["thoughtSignature"] = "S2".into();
    let pieces = [
        chunk_with(json!([{"text": "I ", "thought": true}, {"text": "think.", "thought": true}])),
        chunk_with(json!([text("One, "), text("two, ")])),
        chunk_with(json!([signed("three", "S1"), text(", four.")])),
        chunk_with(json!([first, call("Oslo")])),
        last(json!([signed("", "S3")]), "STOP"),
    ];
    let reply = read(&pieces).await;
    assert_eq!(reply.message.text(), "One, two, three, four.");
    assert_eq!(
        returned_parts(&reply).await,
        json!([
            {"text": "I think.", "thought": true},
            {"text": "One, two, "},
            {"text": "three", "thoughtSignature": "S1"},
            {"text": ", four."},
            {"functionCall": {"name": "weather", "args": {"city": "Rome"}},
                "thoughtSignature": "S2"},
            {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
            {"text": "", "thoughtSignature": "S3"},
        ])
    );
    // A journal in between changes nothing.
    let stored = serde_json::to_string(&reply).unwrap();
    assert_eq!(
        returned_parts(&serde_json::from_str(&stored).unwrap()).await,
        returned_parts(&reply).await
    );
}

#[tokio::test]
async fn provider_parts_keep_their_position() {
    let parts = json!([
        {"text": "I run code."},
        {"executableCode": {"language": "PYTHON", "code": "1+1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "x"}, "thoughtSignature": "S"},
        {"toolResponse": {"id": "x"}},
        {"thoughtSignature": "alone"},
        {"text": "It is 2."},
        {"inlineData": {"mimeType": "image/png", "data": "+/8="}, "thought": true},
    ]);
    let reply = read(&[last(parts.clone(), "STOP")]).await;
    assert_eq!(reply.message.text(), "I run code.It is 2.");
    assert_eq!(returned_parts(&reply).await, parts);
}

#[tokio::test]
async fn only_gemini_ids_are_returned() {
    let parts = json!([
        {"functionCall": {"id": "g1", "name": "a", "args": {}}, "thoughtSignature": "S"},
        {"functionCall": {"name": "b", "args": {}}},
        {"functionCall": {"id": "g1", "name": "c", "args": {}}},
    ]);
    let reply = read(&[last(parts.clone(), "STOP")]).await;
    let history = after(&reply, |n| Ok(ToolOutput::text(n.to_string())));
    let ids: std::collections::HashSet<_> =
        history.calls().map(|(call, _)| call.id.clone()).collect();
    assert_eq!(ids.len(), 3, "each call has an id of its own");
    let contents = contents("gemini-3-flash", Request::new().with_history(history)).await;
    assert_eq!(contents[1]["parts"], parts);
    assert_eq!(
        contents[2],
        json!({"role": "user", "parts": [
            {"functionResponse": {"id": "g1", "name": "a", "response": {"output": "0"}}},
            {"functionResponse": {"name": "b", "response": {"output": "1"}}},
            {"functionResponse": {"id": "g1", "name": "c", "response": {"output": "2"}}},
        ]})
    );
}

#[tokio::test]
async fn tool_results_are_sent_as_objects() {
    let response = async |outcome: Result<ToolOutput, ToolError>| {
        let mut history = levity_core::History::new();
        let call = ToolCall::new("c", "t", json!({}));
        let mut exchange = history
            .open(Message::new(Role::Assistant, [Part::ToolCall(call.clone())]).into())
            .unwrap();
        exchange.answer(ToolResult::new(&call, outcome)).unwrap();
        history.close(exchange, &ToolError::failed("never used"));
        let contents = contents("gemini-2.5-flash", Request::new().with_history(history)).await;
        contents[1]["parts"][0]["functionResponse"]["response"].clone()
    };
    assert_eq!(
        response(Ok(ToolOutput::text("7"))).await,
        json!({"output": "7"})
    );
    assert_eq!(
        response(Ok(ToolOutput::value(json!({"sum": 7})))).await,
        json!({"sum": 7})
    );
    assert_eq!(
        response(Ok(ToolOutput::value(json!([7])))).await,
        json!({"output": [7]})
    );
    let clash = json!({"output": "x", "code": 1});
    assert_eq!(
        response(Ok(ToolOutput::value(clash.clone()))).await,
        json!({ "output": clash })
    );
    assert_eq!(
        response(Err(ToolError::failed("no such city"))).await,
        json!({"error": "no such city"})
    );
}

#[tokio::test]
async fn media_of_tool_results_is_sent() {
    let reply = read(&[last(
        json!([{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "S"}]),
        "STOP",
    )])
    .await;
    let shows = || {
        let picture = Media::bytes("image/png", vec![1]);
        Ok(ToolOutput::text("see")
            .with_media(picture)
            .with_media(Media::url("video/mp4", "gs://b/f")))
    };
    let parts = async |id: &str| {
        let request = Request::new().with_history(after(&reply, |_| shows()));
        contents(id, request).await[2]["parts"].clone()
    };
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AQ=="}});
    let film = json!({"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/f"}});
    let says = json!({"text": "This is what `look` returned:"});
    let answer = json!({"name": "look", "response": {"output": "see"}});
    assert_eq!(
        parts("gemini-2.5-flash").await,
        json!([{"functionResponse": answer}, says, picture, film])
    );
    let mut answer = answer;
    answer["parts"] = json!([picture]);
    assert_eq!(
        parts("gemini-3-flash").await,
        json!([{"functionResponse": answer}, says, film])
    );
}

#[tokio::test]
async fn foreign_provider_state_is_omitted() {
    let mut thought = Part::thinking("I am another.");
    thought.set_opaque(ProviderState::new("anthropic", json!({"signature": "A"})));
    let mut call = ToolCall::new("toolu_1", "t", json!({"a": 1}));
    call.opaque = Some(ProviderState::new("openai_chat", json!({"x": 1})));
    let second = ToolCall::from_text("toolu_2", "t", "{\"cut");
    let parts = [
        thought,
        Part::thinking("Nobody's."),
        Part::Opaque(ProviderState::new("anthropic", json!({"redacted": true}))),
        Part::text(""),
        Part::ToolCall(call),
        Part::ToolCall(second),
    ];
    let reply = Response::new(Message::new(Role::Assistant, parts));
    let sent = async |id: &str| {
        let request = Request::new().with_history(after(&reply, |_| Ok(ToolOutput::text("fine"))));
        contents(id, request).await[1]["parts"].clone()
    };
    let call = json!({"functionCall": {"name": "t", "args": {"a": 1}}});
    let cut = json!({"functionCall": {"name": "t", "args": {"text": "{\"cut"}}});
    assert_eq!(sent("gemini-2.5-flash").await, json!([call, cut]));
    // Newer models reject a first call without a signature, unless the request states that there is
    // none.
    let mut first = call;
    first["thoughtSignature"] = "skip_thought_signature_validator".into();
    assert_eq!(sent("gemini-3-flash").await, json!([first, cut]));

    let silent = Request::new()
        .with_message(Message::user("a"))
        .with_message(Message::new(Role::Assistant, [Part::thinking("Nobody's.")]))
        .with_message(Message::user("b"));
    assert_eq!(
        contents("gemini-3-flash", silent)
            .await
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn invalid_tool_names_are_cleaned() {
    let calls = ["default_api:f", "7 up", ""]
        .map(|name| Part::ToolCall(ToolCall::new(name, name, json!({}))));
    let reply = Response::new(Message::new(Role::Assistant, calls));
    let history = after(&reply, |_| Err(ToolError::failed("no such tool")));
    let contents = contents("gemini-2.5-flash", Request::new().with_history(history)).await;
    for (at, kind) in [(1, "functionCall"), (2, "functionResponse")] {
        let parts = contents[at]["parts"].as_array().unwrap().iter();
        let names: Vec<_> = parts
            .map(|part| part[kind]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["default_api:f", "_7_up", "unnamed"]);
    }
}
