//! Provider state returns unchanged and in its place.

use levity_core::{Message, Model as _, Part, Request, ToolError};
use serde_json::{Value, json};

use super::{OK, ask, delta, end, model, sse, start, stop};
use crate::server::{Answer, Server};

/// Returns the blocks that are sent back for a reply.
async fn returned(reply: Answer) -> Value {
    let server = Server::start([reply, Answer::json(200, OK)]).await;
    let mut history = ask().history;
    let reply = model(&server).complete(ask()).await.unwrap().message;
    match history.open(reply.clone()) {
        Ok(exchange) => history.close(exchange, &ToolError::failed("no")),
        Err(_) => history.push(reply).unwrap(),
    }
    // Simulates a round trip through a journal.
    let stored = serde_json::to_string(&history).unwrap();
    let history: levity_core::History = serde_json::from_str(&stored).unwrap();
    let request = Request::new()
        .with_history(history)
        .with_message(Message::user("Go on"));
    model(&server).complete(request).await.unwrap();
    let messages = server.last().body["messages"].take();
    let theirs = messages
        .as_array()
        .unwrap()
        .iter()
        .find(|message| message["role"] == "assistant");
    theirs
        .map(|message| message["content"].clone())
        .unwrap_or_default()
}

async fn returned_from_stream(events: &[Value]) -> Value {
    returned(Answer::sse(sse(&[events, &end("end_turn")].concat()))).await
}

async fn returned_from_whole(content: &Value) -> Value {
    let reply = json!({"content": content, "stop_reason": "end_turn"});
    returned(Answer::json(200, reply.to_string())).await
}

#[tokio::test]
async fn blocks_of_all_kinds_return_unchanged() {
    let citation = json!({"type": "web_search_result_location", "url": "https://a.b",
        "encrypted_index": "Eo8"});
    let found =
        json!([{"type": "web_search_result", "url": "https://a.b", "encrypted_content": "EqgB"}]);
    let content = json!([
        {"type": "thinking", "thinking": "", "signature": "sig-1"},
        {"type": "redacted_thinking", "data": "EmwK"},
        {"type": "redacted_thinking", "data": "EmwL"},
        {"type": "thinking", "thinking": "Hm.", "signature": "sig-2"},
        {"type": "thinking", "thinking": "Hm!", "signature": "sig-3"},
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": found},
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "blue", "citations": [citation]},
        {"type": "text", "text": "."},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1},
            "caller": {"type": "direct"}},
        {"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "s", "input": {}},
        {"type": "compaction", "content": "So far.", "encrypted_content": "xyz"},
        {"type": "fallback", "from": "a", "to": {"model": "b"}},
        {"type": "text", "text": "Done."},
    ]);
    assert_eq!(returned_from_whole(&content).await, content);
}

#[tokio::test]
async fn blocks_are_assembled_from_deltas() {
    let json = |index, json: &str| {
        delta(
            index,
            json!({"type": "input_json_delta", "partial_json": json}),
        )
    };
    let text = |index, text: &str| delta(index, json!({"type": "text_delta", "text": text}));
    let citation =
        |n: u64| json!({"type": "char_location", "cited_text": "x", "document_index": n});
    let cite = |n: u64| {
        let mut citation = citation(n);
        citation["file_id"] = Value::Null;
        delta(4, json!({"type": "citations_delta", "citation": citation}))
    };
    let events = [
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "signature_delta", "signature": "si"})),
        delta(0, json!({"type": "signature_delta", "signature": "g"})),
        stop(0),
        start(
            1,
            json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}),
        ),
        json(1, "{\"query\""),
        json(1, ": \"x\"}"),
        stop(1),
        start(
            2,
            json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
        ),
        stop(2),
        start(3, json!({"type": "text", "text": ""})),
        text(3, "It is "),
        stop(3),
        start(4, json!({"type": "text", "text": "", "citations": []})),
        cite(1),
        text(4, "bl"),
        cite(2),
        text(4, "ue"),
        stop(4),
        start(5, json!({"type": "compaction", "content": null})),
        delta(
            5,
            json!({"type": "compaction_delta", "content": "So ", "encrypted_content": "a"}),
        ),
        delta(
            5,
            json!({"type": "compaction_delta", "content": "far.", "encrypted_content": "b"}),
        ),
        stop(5),
        start(6, json!({"type": "text", "text": ""})),
        text(6, "."),
        stop(6),
    ];
    let expected = json!([
        {"type": "thinking", "thinking": "", "signature": "sig"},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "blue", "citations": [citation(1), citation(2)]},
        {"type": "compaction", "content": "So far.", "encrypted_content": "b"},
        {"type": "text", "text": "."},
    ]);
    assert_eq!(returned_from_stream(&events).await, expected);
}

#[tokio::test]
async fn unsigned_thinking_is_not_returned() {
    let unsigned = json!([
        {"type": "thinking", "thinking": "One.", "signature": ""},
        {"type": "thinking", "thinking": "Two.", "signature": "sig"},
        {"type": "text", "text": "Hello"},
        {"type": "text", "text": " "},
        {"type": "thinking", "thinking": "Cut", "signature": "sig"},
    ]);
    let signed = json!({"type": "thinking", "thinking": "Two.", "signature": "sig"});
    // Adjacent texts are merged into one.
    assert_eq!(
        returned_from_whole(&unsigned).await,
        json!([signed, {"type": "text", "text": "Hello "}])
    );
    assert_eq!(
        returned_from_whole(&json!([{"type": "redacted_thinking", "data": "x"}])).await,
        Value::Null
    );
}

#[tokio::test]
async fn container_is_reused() {
    let change = json!({"stop_reason": "end_turn",
        "container": {"id": "container_1", "expires_at": "2026"}});
    let events = [
        start(0, json!({"type": "text", "text": "Done."})),
        stop(0),
        json!({"type": "message_delta", "delta": change}),
        json!({"type": "message_stop"}),
    ];
    let server = Server::with_answer(Answer::sse(sse(&events))).await;
    let reply = model(&server).complete(ask()).await.unwrap();
    let Some(Part::Opaque(stored)) = reply.message.parts.last() else {
        panic!("{reply:?}")
    };
    assert_eq!(
        (&*stored.provider, &*stored.data),
        ("anthropic", &json!({"container": "container_1"}))
    );
}
