//! Replies: streamed and whole, with equal results.

use levity_core::{Delta, Finish, Model as _};
use levity_test::conformance;
use serde_json::{Value, json};

use super::{completed, events, hi, kinds, openai, whole};
use crate::server::{Answer, Server, without_origin};

fn items() -> [Value; 3] {
    [
        json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAA=", "summary": [
            {"type": "summary_text", "text": "Two numbers."},
            {"type": "summary_text", "text": "Add them."},
        ]}),
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": [],
                "logprobs": []}]}),
        json!({"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1",
            "name": "add",
            "arguments": "{\"a\":2,\"b\":5}"}),
    ]
}

fn stream() -> Vec<Value> {
    let [thought, message, call] = items();
    let delta = |kind: &str, at: usize, text: &str| {
        json!({"type": format!("response.{kind}.delta"), "output_index": at, "content_index": 0,
            "item_id": "x",
            "delta": text, "obfuscation": "abc", "sequence_number": 3})
    };
    let mut second = delta("reasoning_summary_text", 0, "Add them.");
    second["summary_index"] = json!(1);
    let mut first = delta("reasoning_summary_text", 0, "Two numbers.");
    first["summary_index"] = json!(0);
    vec![
        json!({"type": "response.created",
            "response": {"status": "in_progress", "output": [], "usage": null}}),
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        first,
        second,
        json!({"type": "response.output_item.done", "output_index": 0, "item": thought}),
        json!({"type": "response.output_item.added", "output_index": 1,
            "item": {"id": "msg_1", "type": "message",
            "role": "assistant", "status": "in_progress", "phase": "commentary", "content": []}}),
        delta("output_text", 1, "Let me"),
        delta("output_text", 1, " see."),
        json!({"type": "response.content_part.done", "output_index": 1, "content_index": 0,
            "item_id": "msg_1",
            "part": message["content"][0]}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": message}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": {"id": "fc_1",
            "type": "function_call", "status": "in_progress", "call_id": "call_1", "name": "add",
            "arguments": ""}}),
        delta("function_call_arguments", 2, "{\"a\":2,"),
        delta("function_call_arguments", 2, "\"b\":5}"),
        json!({"type": "response.output_item.done", "output_index": 2, "item": call}),
        completed(&items()),
    ]
}

#[tokio::test]
async fn streamed_and_whole_replies_are_equal() {
    let streamed = Server::with_answer(events(&stream())).await;
    let reply = openai(&streamed, "gpt-5").complete(hi()).await.unwrap();
    assert_eq!(kinds(&reply), ["thinking", "text", "call"]);
    assert_eq!(reply.message.thinking(), "Two numbers.\n\nAdd them.");
    assert_eq!(reply.message.text(), "Let me see.");
    let call = reply.message.calls().next().unwrap();
    assert_eq!(
        (call.id.as_str(), &*call.name, &call.args),
        ("call_1", "add", &json!({"a": 2, "b": 5}))
    );
    assert_eq!(reply.finish, Finish::ToolCalls);
    let usage = reply.usage;
    assert_eq!(
        (usage.input, usage.output, usage.reasoning),
        (Some(9), Some(7), Some(3))
    );
    assert_eq!((usage.cached, usage.cache_written), (Some(4), Some(1)));
    assert_eq!(streamed.last().body["stream"], true);

    let server = Server::with_answer(whole(&items())).await;
    let other = openai(&server, "gpt-5")
        .without_streaming()
        .complete(hi())
        .await
        .unwrap();
    assert_eq!(without_origin(&other), without_origin(&reply));
    assert_eq!(server.last().body.get("stream"), None);
}

#[tokio::test]
async fn deltas_are_streamed_as_they_arrive() {
    let server = Server::with_answer(events(&stream())).await;
    let mut deltas = openai(&server, "gpt-5").stream(hi()).await.unwrap();
    let mut said = Vec::new();
    while let Some(delta) = deltas.next().await {
        said.push(match delta.unwrap() {
            Delta::Text(text) => format!("text {text}"),
            Delta::Thinking(text) => format!("thinking {text}"),
            Delta::CallArgs { text, .. } => format!("args {text}"),
            _ => continue,
        });
    }
    let expected = [
        "thinking Two numbers.",
        "thinking \n\n",
        "thinking Add them.",
        "text Let me",
        "text  see.",
        "args {\"a\":2,",
        "args \"b\":5}",
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn openai_model_conforms() {
    let server = Server::with_answer(events(&stream())).await;
    conformance::model(|| openai(&server, "gpt-5")).await;
    let server = Server::with_answer(whole(&items())).await;
    conformance::model(|| openai(&server, "gpt-5").without_streaming()).await;
}

#[tokio::test]
async fn full_reasoning_becomes_thinking() {
    let item = json!({"id": "rs_1", "type": "reasoning", "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}]});
    let server = Server::with_answer(whole(std::slice::from_ref(&item))).await;
    let reply = openai(&server, "gpt-5")
        .without_streaming()
        .complete(hi())
        .await
        .unwrap();
    assert_eq!(reply.message.thinking(), "Hm.");
    let streamed = events(&[
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"type": "reasoning", "id": "rs_1"}}),
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0,
            "delta": "Hm."}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        completed(&[item]),
    ]);
    let server = Server::with_answer(streamed).await;
    let other = openai(&server, "gpt-5").complete(hi()).await.unwrap();
    assert_eq!(without_origin(&other), without_origin(&reply));
}

#[tokio::test]
async fn interleaved_calls_keep_their_arguments() {
    let call = |n: usize, args: &str| {
        json!({"id": format!("fc_{n}"), "type": "function_call", "call_id": format!("call_{n}"),
            "name": "get",
            "arguments": args, "status": "completed"})
    };
    let added = |n: usize| {
        json!({"type": "response.output_item.added", "output_index": n,
        "item": call(n, "")})
    };
    let args = |n: usize, text: &str| {
        json!({"type": "response.function_call_arguments.delta",
        "output_index": n, "delta": text})
    };
    let done = |n: usize, args: &str| {
        json!({"type": "response.output_item.done", "output_index": n,
        "item": call(n, args)})
    };
    let server = Server::with_answer(events(&[
        added(0),
        added(1),
        args(0, "{\"n\""),
        args(1, "{\"n\":1"),
        args(0, ":0}"),
        args(1, "}"),
        done(0, "{\"n\":0}"),
        done(1, "{\"n\":1}"),
        completed(&[]),
    ]))
    .await;
    let reply = openai(&server, "gpt-5").complete(hi()).await.unwrap();
    let calls: Vec<_> = reply.message.calls().collect();
    assert_eq!(
        (&calls[0].args, &calls[1].args),
        (&json!({"n": 0}), &json!({"n": 1}))
    );
    let id = |at: usize| calls[at].opaque.as_ref().unwrap().data["id"].clone();
    assert_eq!((id(0), id(1)), (json!("fc_0"), json!("fc_1")));
}

#[tokio::test]
async fn refusal_becomes_text() {
    let part = json!({"type": "refusal", "refusal": "I will not."});
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [part]});
    let server = Server::with_answer(events(&[
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"id": "msg_1", "type": "message", "role": "assistant", "content": []}}),
        json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0,
            "delta": "I will"}),
        json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0,
            "delta": " not."}),
        json!({"type": "response.content_part.done", "output_index": 0, "content_index": 0,
            "part": part}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        completed(std::slice::from_ref(&item)),
    ]))
    .await;
    let model = openai(&server, "gpt-5");
    let reply = model.complete(hi()).await.unwrap();
    assert_eq!(
        (&*reply.message.text(), reply.finish.clone()),
        ("I will not.", Finish::Stop)
    );
    model.complete(super::after(&reply)).await.unwrap();
    assert_eq!(server.last().body["input"][1], item);
}

#[tokio::test]
async fn truncated_reply_has_length_finish() {
    let cut = |reason: &str| {
        let mut end = completed(&[
            json!({"id": "fc_1", "type": "function_call", "call_id": "c", "name": "add",
            "arguments": "{\"a\": 2", "status": "incomplete"}),
        ]);
        end["type"] = json!("response.incomplete");
        end["response"]["status"] = json!("incomplete");
        end["response"]["incomplete_details"] = json!({"reason": reason});
        end
    };
    let long = cut("max_output_tokens");
    let server = Server::start([
        events(std::slice::from_ref(&long)),
        Answer::json(200, long["response"].to_string()),
        events(&[cut("content_filter")]),
        events(&[cut("max_prose")]),
    ])
    .await;
    let model = openai(&server, "gpt-5");
    let reply = model.complete(hi()).await.unwrap();
    assert_eq!(reply.finish, Finish::Length);
    assert_eq!(
        reply.message.calls().next().unwrap().raw.as_deref(),
        Some("{\"a\": 2")
    );
    assert_eq!(
        model
            .clone()
            .without_streaming()
            .complete(hi())
            .await
            .unwrap(),
        reply
    );
    assert_eq!(
        model.complete(hi()).await.unwrap().finish,
        Finish::ContentFilter
    );
    assert_eq!(
        model.complete(hi()).await.unwrap().finish,
        Finish::Other("max_prose".into())
    );
}
