//! Parsing of Gemini's replies.

use levity_core::{Delta, Finish, MediaSource, Model as _, Part, Response};
use levity_test::conformance;
use serde_json::{Value, json};

use super::{ask, chunk_with, last, model, sse};
use crate::server::{Answer, Server, without_origin};

/// Returns the reply of these chunks, read as a stream, as a list and, for a single chunk, alone.
/// All must agree.
async fn read(pieces: &[Value]) -> Response {
    let list = Value::from(pieces).to_string();
    let mut answers = vec![
        (sse(pieces), true),
        (Answer::json(200, &list), true),
        (Answer::json(200, &list), false),
    ];
    if let [one] = pieces {
        answers.push((Answer::json(200, one.to_string()), false));
    }
    let mut replies = Vec::new();
    for (answer, streams) in answers {
        let server = Server::with_answer(answer).await;
        let model = model(&server, "gemini-2.5-flash");
        let model = if streams {
            model
        } else {
            model.without_streaming()
        };
        replies.push(without_origin(&model.complete(ask("?")).await.unwrap()));
    }
    replies
        .windows(2)
        .for_each(|pair| assert_eq!(pair[0], pair[1]));
    replies.pop().unwrap()
}

#[tokio::test]
async fn chunks_are_merged_into_reply() {
    let mut first = chunk_with(json!([{"text": "Let me think.", "thought": true}]));
    first["usageMetadata"] = json!({"promptTokenCount": 9, "totalTokenCount": 9});
    let mut end = last(json!([{"text": "!"}]), "STOP");
    end["usageMetadata"] = json!({
        "promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 20,
        "cachedContentTokenCount": 5,
        "toolUsePromptTokenCount": 100, "totalTokenCount": 133,
    });
    let only_traffic = json!({"usageMetadata": {"trafficType": "ON_DEMAND"}});
    let reply = read(&[
        first,
        chunk_with(json!([{"text": "Good "}])),
        chunk_with(json!([{"text": "day"}])),
        only_traffic,
        end,
    ])
    .await;
    assert_eq!(
        (&*reply.message.thinking(), &*reply.message.text()),
        ("Let me think.", "Good day!")
    );
    assert_eq!(reply.message.parts.len(), 2);
    assert_eq!(reply.finish, Finish::Stop);
    let usage = reply.usage;
    assert_eq!((usage.input, usage.output), (Some(109), Some(24)));
    assert_eq!((usage.cached, usage.reasoning), (Some(5), Some(20)));
}

#[tokio::test]
async fn text_is_streamed_as_it_arrives() {
    let server = Server::with_answer(sse(&[
        chunk_with(json!([{"text": "A"}])),
        last(json!([{"text": "B"}]), "STOP"),
    ]))
    .await;
    let mut deltas = model(&server, "gemini-2.5-flash")
        .stream(ask("?"))
        .await
        .unwrap();
    assert_eq!(
        deltas.next().await.unwrap().unwrap(),
        Delta::Text("A".into())
    );
}

#[tokio::test]
async fn calls_are_calls_with_any_finish_reason() {
    let parts = json!([
        {"text": "I look."},
        {"functionCall": {"name": "weather", "args": {"city": "Rome"}}},
        {"functionCall": {"id": "g2", "name": "weather"}},
    ]);
    let mut end = last(parts, "STOP");
    end["candidates"][0]["finishMessage"] = "Model generated function call(s).".into();
    let reply = read(&[end]).await;
    assert_eq!(reply.finish, Finish::ToolCalls);
    let calls: Vec<_> = reply
        .message
        .calls()
        .map(|call| (call.id.as_str(), &call.args))
        .collect();
    assert_eq!(calls, [("", &json!({"city": "Rome"})), ("g2", &json!({}))]);
}

#[tokio::test]
async fn finish_reasons_are_mapped() {
    let text = json!([{"text": "x"}]);
    let call = json!([{"functionCall": {"name": "none", "args": {}}}]);
    for (parts, word, finish) in [
        (&text, "STOP", Finish::Stop),
        (&text, "MAX_TOKENS", Finish::Length),
        (&text, "SAFETY", Finish::ContentFilter),
        (&text, "IMAGE_PROHIBITED_CONTENT", Finish::ContentFilter),
        (&text, "MODEL_ARMOR", Finish::ContentFilter),
        (&text, "A_NEW_WORD", Finish::Other("A_NEW_WORD".into())),
        (&call, "A_NEW_WORD", Finish::ToolCalls),
        (&call, "MAX_TOKENS", Finish::Length),
        (
            &call,
            "UNEXPECTED_TOOL_CALL",
            Finish::Other("UNEXPECTED_TOOL_CALL".into()),
        ),
        (
            &json!([]),
            "MALFORMED_FUNCTION_CALL",
            Finish::Other("MALFORMED_FUNCTION_CALL".into()),
        ),
    ] {
        assert_eq!(
            read(&[last(parts.clone(), word)]).await.finish,
            finish,
            "{word}"
        );
    }
}

#[tokio::test]
async fn streamed_arguments_are_assembled() {
    let call = |call: Value| chunk_with(json!([{ "functionCall": call }]));
    let partial = |path: &str, text: &str, more: bool| {
        let value = json!({"jsonPath": path, "stringValue": text, "willContinue": more});
        call(json!({"partialArgs": [value], "willContinue": true}))
    };
    let mut begin = call(json!({"name": "weather", "willContinue": true}));
    begin["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "S".into();
    let reply = read(&[
        begin,
        partial("$.city", "Bos", true),
        partial("$.city", "ton", false),
        call(
            json!({"partialArgs": [{"jsonPath": "$.days[0]", "numberValue": 2}],
            "willContinue": true}),
        ),
        call(json!({})),
        call(json!({"name": "weather", "willContinue": true})),
        partial("$.city", "Rome", false),
        last(json!([{"functionCall": {}}]), "STOP"),
    ])
    .await;
    let args: Vec<_> = reply.message.calls().map(|call| &call.args).collect();
    assert_eq!(
        args,
        [
            &json!({"city": "Boston", "days": [2]}),
            &json!({"city": "Rome"})
        ]
    );
    let signed: Vec<_> = reply
        .message
        .calls()
        .map(|call| call.opaque.is_some())
        .collect();
    assert_eq!(signed, [true, false]);
    assert_eq!(reply.finish, Finish::ToolCalls);
}

#[tokio::test]
async fn truncated_call_cannot_be_made() {
    let begin = chunk_with(json!([{"functionCall": {"name": "weather", "willContinue": true}}]));
    let piece = json!({"jsonPath": "$.city", "stringValue": "Bos", "willContinue": true});
    let end = last(
        json!([{"functionCall": {"partialArgs": [piece], "willContinue": true}}]),
        "MAX_TOKENS",
    );
    let reply = read(&[begin, end]).await;
    assert_eq!(reply.finish, Finish::Length);
    assert_eq!(
        reply.message.calls().next().unwrap().raw.as_deref(),
        Some("{\"city\":\"Bos\"")
    );
}

#[tokio::test]
async fn images_are_parsed_as_media() {
    let parts = json!([
        {"inlineData": {"mimeType": "image/png", "data": "-_8"}, "thoughtSignature": "S"},
        {"inlineData": {"mimeType": "image/png", "data": "+/8="}},
        {"inlineData": {"mimeType": "image/png", "data": "?"}},
    ]);
    let reply = read(&[last(parts, "STOP")]).await;
    let [Part::Media(first), Part::Media(second), Part::Opaque(_)] = &*reply.message.parts else {
        panic!("{reply:?}")
    };
    assert_eq!(first.source, MediaSource::Bytes(vec![251, 255].into()));
    assert_eq!(first.source, second.source);
    assert!(first.opaque.is_some() && second.opaque.is_none());
}

#[tokio::test]
async fn unusual_replies_are_parsed_leniently() {
    // No content, no parts, no index, a repeated finish reason, and further candidates.
    let other = json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "not this"}]},
        "finishReason": "STOP"}]});
    let twice = json!({"candidates": [{"finishReason": "STOP"}]});
    let no_parts = json!({"candidates": [{"content": {"role": "model"}}]});
    let reply = read(&[
        no_parts,
        json!({}),
        other,
        last(json!([{"text": "A"}, {"text": ""}]), "STOP"),
        twice,
    ])
    .await;
    assert_eq!((&*reply.message.text(), reply.finish), ("A", Finish::Stop));

    // Values of the wrong type.
    let odd = json!({
        "candidates": {"content": {"parts": {"text": "B", "thought": "no", "functionCall": 7}},
            "finishReason": "STOP"},
        "usageMetadata": {"promptTokenCount": "12", "candidatesTokenCount": [],
            "totalTokenCount": -1},
        "promptFeedback": [],
    });
    let reply = read(&[odd]).await;
    assert_eq!((&*reply.message.text(), reply.usage.input), ("B", Some(12)));

    let unended = json!({"candidates": [{"content": {"parts": [{"text": "C"}]}}]});
    let server = Server::with_answer(Answer::json(200, unended.to_string())).await;
    let reply = model(&server, "gemini-2.5-flash")
        .without_streaming()
        .complete(ask("?"))
        .await
        .unwrap();
    assert_eq!(&*reply.message.text(), "C");
}

#[tokio::test]
async fn gemini_model_conforms() {
    let pieces = [
        chunk_with(json!([{"text": "Hm.", "thought": true}])),
        last(
            json!([{"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "S"}]),
            "STOP",
        ),
    ];
    let server = Server::with_answer(sse(&pieces)).await;
    conformance::model(|| model(&server, "gemini-2.5-flash")).await;
    let server = Server::with_answer(Answer::json(200, json!(pieces).to_string())).await;
    conformance::model(|| model(&server, "gemini-3-pro").without_streaming()).await;
}
