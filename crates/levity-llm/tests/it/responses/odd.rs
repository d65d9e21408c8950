//! Servers that nearly speak it.

use levity_core::{Finish, Model as _};
use levity_llm::OpenAiModel;
use serde_json::{Value, json};

use super::{completed, hi, kinds};
use crate::server::{Answer, Server, anywhere};

/// Events without names.
fn bare(events: &[Value]) -> Answer {
    let lines: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    Answer::sse(format!(": hello\n\n{lines}data: [DONE]\n\n"))
}

async fn reply(answer: Answer) -> levity_core::Response {
    let server = Server::saying(answer).await;
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
async fn items_may_come_only_at_their_end() {
    let call = json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "add", "arguments": ""});
    let mut end = completed(&[]);
    end["response"]["output"] = json!([]);
    let events = [
        json!({"type": "response.output_item.done", "output_index": 0, "item": message("m", "Hello.")}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
        end,
    ];
    let reply = reply(bare(&events)).await;
    assert_eq!(
        (&*reply.message.text(), reply.finish.clone()),
        ("Hello.", Finish::ToolCalls)
    );
    assert_eq!(reply.message.calls().next().unwrap().args, json!({}));
}

#[tokio::test]
async fn items_may_come_only_at_the_end_of_all() {
    let reply = reply(bare(&[completed(&[
        message("m1", "One."),
        message("m2", "Two."),
    ])]))
    .await;
    assert_eq!(reply.message.text(), "One.Two.");
    assert_eq!(kinds(&reply), ["text", "text"]);
}

#[tokio::test]
async fn what_is_not_known_is_passed_over() {
    let events = [
        json!({"type": "keepalive"}),
        json!({"type": "response.queued", "response": null}),
        json!({"type": "response.audio.delta", "delta": {"x": 1}}),
        json!({"type": "response.output_text.annotation.added", "annotation": {}, "output_index": 0}),
        json!({"no": "type"}),
        json!({"type": "response.output_text.delta", "item_id": null, "delta": "Hel", "logprobs": []}),
        json!({"type": "response.output_text.delta", "item_id": null, "delta": "lo.", "output_index": null}),
        json!({"type": "response.output_text.delta", "delta": null}),
        json!({"type": "response.completed", "response": {"usage": null, "output": null}}),
    ];
    let reply = reply(bare(&events)).await;
    assert_eq!(
        (&*reply.message.text(), reply.finish.clone()),
        ("Hello.", Finish::Stop)
    );
    assert_eq!(reply.usage.input, None);
}

#[tokio::test]
async fn a_call_may_say_late_what_it_calls() {
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"type": "function_call", "id": "fc", "call_id": "", "name": ""}}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"a\""}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": ":1}"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {
            "type": "function_call", "id": "fc", "call_id": "c1", "name": "add", "arguments": {"a": 1}}}),
        completed(&[]),
    ];
    let reply = reply(bare(&events)).await;
    let call = reply.message.calls().next().unwrap();
    assert_eq!(
        (call.id.as_str(), &*call.name, &call.args),
        ("c1", "add", &json!({"a": 1}))
    );
}

#[tokio::test]
async fn indexes_may_be_missing_or_wrong() {
    let delta = |id: &str, text: &str| json!({"type": "response.output_text.delta", "item_id": id, "delta": text});
    let added = |id: &str| json!({"type": "response.output_item.added", "item": {"id": id, "type": "message"}});
    let done = |id: &str, text: &str| json!({"type": "response.output_item.done", "item": message(id, text)});
    let events = [
        added("m1"),
        delta("m1", "One."),
        done("m1", "One."),
        added("m2"),
        delta("m2", "Two."),
        done("m2", "Two."),
        completed(&[message("m1", "One."), message("m2", "Two.")]),
    ];
    let first = reply(bare(&events)).await;
    assert_eq!(first.message.text(), "One.Two.");
    // All items are the first one.
    let events = events.map(|mut event| {
        event["output_index"] = json!(0);
        event
    });
    assert_eq!(anywhere(&reply(bare(&events)).await), anywhere(&first));
}

#[tokio::test]
async fn parts_of_a_message_stay_apart() {
    let delta = |part: usize, text: &str| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": part, "delta": text});
    let mut item = message("m", "One.");
    item["content"]
        .as_array_mut()
        .unwrap()
        .extend([json!({"type": "output_text", "text": "Two."})]);
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "m", "type": "message"}}),
        delta(0, "One."),
        delta(1, "Two."),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        completed(&[]),
    ];
    let reply = reply(bare(&events)).await;
    assert_eq!(
        (kinds(&reply), &*reply.message.text()),
        (vec!["text", "text"], "One.Two.")
    );
}

#[tokio::test]
async fn reasoning_beside_the_output_is_added() {
    let mut end = completed(&[]);
    end["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] = json!(100);
    assert_eq!(reply(bare(&[end])).await.usage.output, Some(107));
}
