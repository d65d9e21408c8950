//! Items that return to the provider unchanged.

use levity_core::{Model as _, Part, ToolCall};
use serde_json::{Value, json};

use super::{after, completed, events, hi, kinds, openai, whole};
use crate::server::Server;

fn items() -> Vec<Value> {
    let text = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let cited = json!({"type": "output_text", "text": "So says the page.", "annotations": [
        {"type": "url_citation", "url": "https://example.org", "start_index": 0, "end_index": 4,
            "title": "P"}]});
    vec![
        json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAA1=", "summary": []}),
        json!({"id": "ws_1", "type": "web_search_call", "status": "completed",
            "action": {"type": "search", "query": "x"}}),
        json!({"id": "rs_2", "type": "reasoning", "encrypted_content": "gAAA2=",
            "summary": [{"type": "summary_text", "text": "Hm."}]}),
        json!({"type": "message", "role": "assistant", "status": "completed", "id": "msg_1",
            "phase": "commentary",
            "content": [text("One."), cited]}),
        json!({"type": "message", "role": "assistant", "status": "completed", "id": "msg_2",
            "phase": "final_answer",
            "content": [text("Two.")]}),
        json!({"type": "function_call", "call_id": "call_1", "name": "add",
            "arguments": "{\"a\":1}", "id": "fc_1",
            "status": "completed", "namespace": "sums"}),
        json!({"type": "custom_tool_call", "call_id": "call_2", "name": "sum",
            "input": "1 + \"1\"\n",
            "id": "ctc_1", "status": "completed"}),
        json!({"id": "mcp_1", "type": "mcp_call", "name": "x", "arguments": "{}", "output": null,
            "error": null}),
    ]
}

#[tokio::test]
async fn items_return_unchanged_in_order() {
    let server = Server::with_answer(whole(&items())).await;
    let model = openai(&server, "gpt-5").without_streaming();
    let reply = model.complete(hi()).await.unwrap();
    assert_eq!(
        kinds(&reply),
        [
            "thinking", "opaque", "thinking", "text", "text", "text", "call", "call", "opaque"
        ]
    );
    assert_eq!(
        reply.message.calls().nth(1).unwrap().args,
        json!("1 + \"1\"\n")
    );
    model.complete(after(&reply)).await.unwrap();
    let sent = server.last().body["input"].as_array().unwrap().clone();
    assert_eq!(sent[0], json!({"role": "user", "content": "Hi"}));
    for (sent, item) in sent[1..].iter().zip(items()) {
        assert_eq!(*sent, item, "\n{sent:#}\n{item:#}");
    }
    let answers: Vec<_> = sent[9..11]
        .iter()
        .map(|item| (&item["type"], &item["call_id"]))
        .collect();
    assert_eq!(
        answers,
        [
            (&json!("function_call_output"), &json!("call_1")),
            (&json!("custom_tool_call_output"), &json!("call_2")),
        ]
    );
    assert_eq!(sent[11], json!({"role": "user", "content": "And?"}));
    assert_eq!(sent.len(), 12);
}

#[tokio::test]
async fn custom_call_is_streamed_as_text() {
    let item = items().remove(6);
    let mut begun = item.clone();
    begun["input"] = json!("");
    let delta = |text: &str| {
        json!({"type": "response.custom_tool_call_input.delta",
        "output_index": 0, "delta": text})
    };
    let server = Server::with_answer(events(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        delta("1 + \""),
        delta("1\"\n"),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        completed(&[]),
    ]))
    .await;
    let reply = openai(&server, "gpt-5").complete(hi()).await.unwrap();
    assert_eq!(
        reply.message.calls().next().unwrap().args,
        json!("1 + \"1\"\n")
    );
}

#[tokio::test]
async fn unstored_items_are_not_referenced_by_id() {
    let items = [
        json!({"id": "rs_1", "type": "reasoning", "summary": []}),
        json!({"type": "message", "role": "assistant", "status": "completed", "id": "msg_1",
            "content": [{"type": "output_text", "text": "One.", "annotations": []}]}),
        json!({"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}",
            "id": "fc_1",
            "status": "completed"}),
    ];
    let server = Server::with_answer(whole(&items)).await;
    let model = openai(&server, "gpt-5").without_streaming();
    let reply = model.complete(hi()).await.unwrap();
    model.complete(after(&reply)).await.unwrap();
    let sent = server.last().body;
    assert_eq!(
        (&sent["store"], &sent["include"]),
        (&json!(false), &json!(["reasoning.encrypted_content"]))
    );
    let ids: Vec<_> = sent["input"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item.get("id"))
        .collect();
    assert_eq!(ids, Vec::<&Value>::new());
    let types: Vec<_> = sent["input"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["type"].as_str())
        .collect();
    assert_eq!(types, ["message", "function_call", "function_call_output"]);

    model.stored().complete(after(&reply)).await.unwrap();
    let sent = server.last().body;
    assert_eq!((&sent["store"], sent.get("include")), (&json!(true), None));
    assert_eq!(sent["input"][1], items[0]);
    assert_eq!(sent["input"][3], items[2]);
}

#[tokio::test]
async fn last_encrypted_reasoning_is_returned() {
    let thought = |id: &str, code: &str| {
        json!({"id": id, "type": "reasoning",
        "encrypted_content": code, "summary": []})
    };
    let message = json!({"type": "message", "role": "assistant", "status": "completed",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]});
    let done = |at: usize, item: &Value| {
        json!({"type": "response.output_item.done",
        "output_index": at, "item": item})
    };
    let server = Server::with_answer(events(&[
        done(0, &thought("rs_1", "same")),
        done(1, &thought("rs_2", "first")),
        done(2, &message),
        completed(&[
            thought("rs_1", "same"),
            thought("rs_x", "second"),
            message.clone(),
        ]),
    ]))
    .await;
    let model = openai(&server, "gpt-5");
    let reply = model.complete(hi()).await.unwrap();
    assert_eq!(reply.message.text(), "Yes.");
    model.complete(after(&reply)).await.unwrap();
    let sent = server.last().body["input"].as_array().unwrap().clone();
    assert_eq!(
        sent[1..4],
        [thought("rs_1", "same"), thought("rs_x", "second"), message]
    );
    assert_eq!(sent.len(), 5);
}

#[tokio::test]
async fn foreign_provider_state_is_omitted() {
    let server = Server::with_answer(whole(&[])).await;
    let mut thinking = Part::thinking("Hm.");
    thinking.set_opaque(levity_core::ProviderState::new(
        "anthropic",
        json!({"signature": "x"}),
    ));
    let foreign = Part::Opaque(levity_core::ProviderState::new("gemini", json!({"x": 1})));
    // OpenAI accepts no longer ids.
    let id = format!("call_{}", "x".repeat(80));
    let call = Part::ToolCall(ToolCall::new(id, "add", json!({"a": 1})));
    let said = levity_core::Message::new(
        levity_core::Role::Assistant,
        [thinking, Part::text("Well."), foreign, call],
    );
    let reply = levity_core::Response::new(said);
    openai(&server, "gpt-5")
        .without_streaming()
        .complete(after(&reply))
        .await
        .unwrap();
    let sent = server.last().body["input"].clone();
    let message = json!({"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Well.", "annotations": []}]});
    assert_eq!(sent[1], message);
    assert_eq!(sent[2]["call_id"].as_str().unwrap().len(), 64);
    assert_eq!(sent[2]["call_id"], sent[3]["call_id"]);
    assert_eq!(sent.as_array().unwrap().len(), 5);
}
