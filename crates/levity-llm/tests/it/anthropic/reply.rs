//! Replies, streamed and whole.

use levity_core::{Delta, Finish, Model as _, Usage};
use serde_json::{Value, json};

use super::{OK, ask, delta, end, model, sse, start, stop, streamed};
use crate::server::{Answer, Server};

fn message_start() -> Value {
    let usage = json!({
        "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20,
        "output_tokens": 1,
    });
    let message = json!({"type": "message", "role": "assistant", "content": [], "usage": usage});
    json!({"type": "message_start", "message": message})
}

fn text(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn args(index: u64, json: &str) -> Value {
    delta(
        index,
        json!({"type": "input_json_delta", "partial_json": json}),
    )
}

fn call(index: u64, id: &str, input: Value) -> Value {
    start(
        index,
        json!({"type": "tool_use", "id": id, "name": "add", "input": input}),
    )
}

fn whole_reply() -> Vec<Value> {
    let ping = json!({"type": "ping"});
    let mut events = vec![
        ping.clone(),
        message_start(),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "."})),
        delta(0, json!({"type": "signature_delta", "signature": "abc"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        text(1, "Let me "),
        ping,
        text(1, "see."),
        stop(1),
        call(2, "t1", json!({})),
        args(2, ""),
        args(2, "{\"a\": "),
        args(2, "2}"),
        stop(2),
        call(3, "t2", json!({})),
        stop(3),
        call(4, "t3", json!({"a": 3})),
        stop(4),
        call(5, "t4", json!({"a": 4})),
        args(5, "{\"a\": 5}"),
        stop(5),
        start(6, json!({"type": "text", "text": ""})),
        text(6, " Wait."),
        stop(6),
    ];
    events.extend(end("tool_use"));
    events
}

#[tokio::test]
async fn stream_is_parsed_into_reply() {
    let server = Server::with_answer(Answer::sse(sse(&whole_reply()) + "data: [DONE]\n\n")).await;
    let mut deltas = model(&server).stream(ask()).await.unwrap();
    let mut thoughts = 0;
    let mut all = Vec::new();
    while let Some(delta) = deltas.next().await {
        let delta = delta.unwrap();
        thoughts += usize::from(matches!(delta, Delta::Thinking(_)));
        all.push(delta);
    }
    assert_eq!(thoughts, 2, "thoughts come as they are thought: {all:?}");
    let reply = levity_core::Deltas::ready(all).fold().await.unwrap();
    assert_eq!(
        (&*reply.message.thinking(), &*reply.message.text()),
        ("Hm.", "Let me see. Wait.")
    );
    let calls: Vec<_> = reply
        .message
        .calls()
        .map(|call| (call.id.as_str(), &*call.name, call.args.clone()))
        .collect();
    let a = |id, a: u64| (id, "add", json!({ "a": a }));
    assert_eq!(
        calls,
        [a("t1", 2), ("t2", "add", json!({})), a("t3", 3), a("t4", 5)]
    );
    assert_eq!(reply.finish, Finish::ToolCalls);
    let mut usage = Usage::new(35, 7);
    (usage.cached, usage.cache_written) = (Some(20), Some(5));
    assert_eq!(reply.usage, usage);
}

#[tokio::test]
async fn whole_reply_equals_streamed_reply() {
    let whole = json!({
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
            {"type": "text", "text": "Let me see.", "citations": null},
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}},
            {"type": "tool_use", "id": "t2", "name": "add", "input": {}},
            {"type": "tool_use", "id": "t3", "name": "add", "input": {"a": 3}},
            {"type": "tool_use", "id": "t4", "name": "add", "input": {"a": 5}},
            {"type": "text", "text": " Wait."},
        ],
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20,
            "output_tokens": 7,
        },
    });
    let server = Server::start([
        Answer::sse(sse(&whole_reply())),
        Answer::json(200, whole.to_string()),
    ])
    .await;
    let streamed = model(&server).complete(ask()).await.unwrap();
    // Both with and without a requested stream.
    let asked = model(&server)
        .without_streaming()
        .complete(ask())
        .await
        .unwrap();
    assert_eq!(model(&server).complete(ask()).await.unwrap(), asked);
    assert_eq!(streamed, asked);
}

#[tokio::test]
async fn stop_reasons_map_to_finish() {
    let other = |word: &str| Finish::Other(word.to_owned());
    let reasons = [
        ("end_turn", Finish::Stop, Finish::ToolCalls),
        ("stop_sequence", Finish::Stop, Finish::ToolCalls),
        ("tool_use", Finish::ToolCalls, Finish::ToolCalls),
        ("max_tokens", Finish::Length, Finish::Length),
        (
            "model_context_window_exceeded",
            Finish::Length,
            Finish::Length,
        ),
        ("refusal", Finish::ContentFilter, Finish::ContentFilter),
        ("pause_turn", Finish::Paused, Finish::ToolCalls),
        ("compaction", other("compaction"), Finish::ToolCalls),
        (
            "what_comes_next",
            other("what_comes_next"),
            Finish::ToolCalls,
        ),
    ];
    for (word, silent, calling) in reasons {
        let reply = streamed(&sse(&end(word))).await.unwrap();
        assert_eq!(reply.finish, silent, "{word}");
        let events = [vec![call(0, "t1", json!({})), stop(0)], end(word).to_vec()].concat();
        assert_eq!(
            streamed(&sse(&events)).await.unwrap().finish,
            calling,
            "{word}, with a call"
        );
    }
}

#[tokio::test]
async fn later_usage_counts_replace_earlier_ones() {
    let last = json!({
        "input_tokens": 12, "cache_read_input_tokens": null, "cache_creation_input_tokens": 0,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4}, "server_tool_use": null,
        "service_tier": null,
    });
    let change =
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last});
    let reply = streamed(&sse(&[message_start(), change])).await.unwrap();
    let mut usage = Usage::new(32, 9);
    (usage.cached, usage.cache_written, usage.reasoning) = (Some(20), Some(0), Some(4));
    assert_eq!(reply.usage, usage);

    let nulls = json!({"input_tokens": null, "output_tokens": null, "cache_creation": null});
    let message = json!({"type": "message_start", "message": {"usage": nulls}});
    let reply = streamed(&sse(&[message, json!({"type": "message_stop"})]))
        .await
        .unwrap();
    assert_eq!(reply.usage, Usage::default());
    let ages = json!({"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3});
    let message = json!({"type": "message_start",
        "message": {"usage": {"input_tokens": 1, "cache_creation": ages}}});
    let reply = streamed(&sse(&[message, json!({"type": "message_stop"})]))
        .await
        .unwrap();
    assert_eq!(
        (reply.usage.input, reply.usage.cache_written),
        (Some(6), Some(5))
    );
}

#[tokio::test]
async fn incomplete_implementations_are_parsed() {
    // Without types in the data, indices, starts or ends.
    let bare = "event: content_block_delta\ndata: {\"delta\": \
        {\"type\": \"text_delta\", \"text\": \"Hello\"}}\n\n\
        event: message_delta\ndata: {\"delta\": {\"stop_reason\": \"end_turn\"}}\n\n";
    let reply = streamed(bare).await.unwrap();
    assert_eq!(
        (&*reply.message.text(), reply.finish),
        ("Hello", Finish::Stop)
    );

    // llama.cpp ends all blocks together, and sends empty signatures.
    let events = [
        start(0, json!({"type": "thinking", "thinking": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
        start(1, json!({"type": "text", "text": "Let "})),
        text(1, "me see."),
        call(2, "t1", json!({})),
        args(2, "{\"a\""),
        call(3, "t2", json!({})),
        args(3, "{}"),
        args(2, ": 1}"),
        delta(0, json!({"type": "signature_delta", "signature": ""})),
        stop(0),
        stop(1),
        stop(2),
        stop(3),
        json!({"type": "message_stop"}),
    ];
    let reply = streamed(&sse(&events)).await.unwrap();
    assert_eq!(
        (&*reply.message.thinking(), &*reply.message.text()),
        ("Hm.", "Let me see.")
    );
    let calls: Vec<_> = reply
        .message
        .calls()
        .map(|call| call.args.clone())
        .collect();
    assert_eq!(
        (calls, reply.finish),
        (vec![json!({"a": 1}), json!({})], Finish::ToolCalls)
    );
}

#[tokio::test]
async fn unknown_events_and_blocks_are_ignored() {
    let events = [
        json!({"type": "weather", "delta": {"type": "sun"}}),
        json!({"type": "wind", "delta": "west", "index": "n"}),
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "colour_delta", "colour": "red"})),
        text(0, "Hello"),
        delta(9, json!({"type": "input_json_delta", "partial_json": "{"})),
        json!({"type": "content_block_delta", "index": 0}),
        json!({"type": "content_block_start", "index": 1}),
        stop(0),
        stop(7),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "context_management": {}}),
        json!({"type": "message_stop"}),
    ];
    let reply = streamed(&sse(&events)).await.unwrap();
    assert_eq!(
        (&*reply.message.text(), reply.message.parts.len()),
        ("Hello", 1)
    );
}

#[tokio::test]
async fn truncated_arguments_are_invalid() {
    let events = [
        vec![call(0, "t1", json!({})), args(0, "{\"a\": ")],
        end("max_tokens").to_vec(),
    ]
    .concat();
    let reply = streamed(&sse(&events)).await.unwrap();
    let call = reply.message.calls().next().unwrap();
    assert_eq!(
        (call.raw.as_deref(), reply.finish),
        (Some("{\"a\": "), Finish::Length)
    );
}

#[tokio::test]
async fn anthropic_model_conforms() {
    let server = Server::with_answer(Answer::sse(sse(&whole_reply()))).await;
    levity_test::conformance::model(|| model(&server)).await;
    let server = Server::with_answer(Answer::json(200, OK)).await;
    levity_test::conformance::model(|| model(&server).without_streaming()).await;
}
