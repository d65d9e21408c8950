//! Servers with an incomplete implementation.

use levity_core::{Finish, Model as _};
use levity_llm::OpenAiModel;
use serde_json::{Value, json};

use super::{completed, hi, kinds};
use crate::server::{Answer, Server, without_origin};

/// Creates events without names.
fn unnamed_events(events: &[Value]) -> Answer {
    let lines: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    Answer::sse(format!(": hello\n\n{lines}data: [DONE]\n\n"))
}

async fn reply(answer: Answer) -> levity_core::Response {
    let server = Server::with_answer(answer).await;
    OpenAiModel::compatible(server.url(), "other")
        .complete(hi())
        .await
        .unwrap()
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

#[tokio::test]
async fn items_only_in_done_events_are_read() {
    let call = json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "add",
        "arguments": ""});
    let mut end = completed(&[]);
    end["response"]["output"] = json!([]);
    let events = [
        json!({"type": "response.output_item.done", "output_index": 0,
            "item": message("m", "Hello.")}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
        end,
    ];
    let reply = reply(unnamed_events(&events)).await;
    assert_eq!(
        (&*reply.message.text(), reply.finish.clone()),
        ("Hello.", Finish::ToolCalls)
    );
    assert_eq!(reply.message.calls().next().unwrap().args, json!({}));
}

#[tokio::test]
async fn items_only_in_completed_event_are_read() {
    let reply = reply(unnamed_events(&[completed(&[
        message("m1", "One."),
        message("m2", "Two."),
    ])]))
    .await;
    assert_eq!(reply.message.text(), "One.Two.");
    assert_eq!(kinds(&reply), ["text", "text"]);
}

#[tokio::test]
async fn unknown_events_and_items_are_ignored() {
    let events = [
        json!({"type": "keepalive"}),
        json!({"type": "response.queued", "response": null}),
        json!({"type": "response.audio.delta", "delta": {"x": 1}}),
        json!({"type": "response.output_text.annotation.added", "annotation": {},
            "output_index": 0}),
        json!({"no": "type"}),
        json!({"type": "response.output_text.delta", "item_id": null, "delta": "Hel",
            "logprobs": []}),
        json!({"type": "response.output_text.delta", "item_id": null, "delta": "lo.",
            "output_index": null}),
        json!({"type": "response.output_text.delta", "delta": null}),
        json!({"type": "response.completed", "response": {"usage": null, "output": null}}),
    ];
    let reply = reply(unnamed_events(&events)).await;
    assert_eq!(
        (&*reply.message.text(), reply.finish.clone()),
        ("Hello.", Finish::Stop)
    );
    assert_eq!(reply.usage.input, None);
}

#[tokio::test]
async fn late_tool_name_is_read() {
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"type": "function_call", "id": "fc", "call_id": "", "name": ""}}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0,
            "delta": "{\"a\""}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0,
            "delta": ":1}"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {
            "type": "function_call", "id": "fc", "call_id": "c1", "name": "add",
            "arguments": {"a": 1}}}),
        completed(&[]),
    ];
    let reply = reply(unnamed_events(&events)).await;
    let call = reply.message.calls().next().unwrap();
    assert_eq!(
        (call.id.as_str(), &*call.name, &call.args),
        ("c1", "add", &json!({"a": 1}))
    );
}

#[tokio::test]
async fn missing_or_wrong_indices_are_handled() {
    let delta = |id: &str, text: &str| {
        json!({"type": "response.output_text.delta", "item_id": id,
        "delta": text})
    };
    let added = |id: &str| {
        json!({"type": "response.output_item.added",
        "item": {"id": id, "type": "message"}})
    };
    let done = |id: &str, text: &str| {
        json!({"type": "response.output_item.done",
        "item": message(id, text)})
    };
    let events = [
        added("m1"),
        delta("m1", "One."),
        done("m1", "One."),
        added("m2"),
        delta("m2", "Two."),
        done("m2", "Two."),
        completed(&[message("m1", "One."), message("m2", "Two.")]),
    ];
    let first = reply(unnamed_events(&events)).await;
    assert_eq!(first.message.text(), "One.Two.");
    // All items have the index of the first one.
    let events = events.map(|mut event| {
        event["output_index"] = json!(0);
        event
    });
    assert_eq!(
        without_origin(&reply(unnamed_events(&events)).await),
        without_origin(&first)
    );
}

#[tokio::test]
async fn message_parts_stay_separate() {
    let delta = |part: usize, text: &str| {
        json!({"type": "response.output_text.delta",
        "output_index": 0, "content_index": part, "delta": text})
    };
    let mut item = message("m", "One.");
    item["content"]
        .as_array_mut()
        .unwrap()
        .extend([json!({"type": "output_text", "text": "Two."})]);
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"id": "m", "type": "message"}}),
        delta(0, "One."),
        delta(1, "Two."),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        completed(&[]),
    ];
    let reply = reply(unnamed_events(&events)).await;
    assert_eq!(
        (kinds(&reply), &*reply.message.text()),
        (vec!["text", "text"], "One.Two.")
    );
}

#[tokio::test]
async fn reasoning_tokens_beyond_output_are_added() {
    let mut end = completed(&[]);
    end["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] = json!(100);
    assert_eq!(reply(unnamed_events(&[end])).await.usage.output, Some(107));
}
