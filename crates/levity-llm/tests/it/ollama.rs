//! The native API of Ollama.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Content, Finish, History, Media, Message, Model as _, ModelErrorKind, Options, OutputSchema,
    Part, ProviderState, Request, Response, Role, ThinkingMode, ToolCall, ToolChoice, ToolError,
    ToolOutput, ToolResult, ToolSpec,
};
use levity_llm::{Endpoint, OllamaModel};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

const STREAM: &str = concat!(
    "\n",
    r#"{"model":"small","created_at":"2026-01-01T00:00:00Z","#,
    r#""message":{"role":"assistant","content":"","thinking":"Two, "},"done":false}"#,
    "\n",
    r#"{"model":"small","message":{"role":"assistant","content":"","thinking":"then five."},"#,
    r#""done":false}"#,
    "\n",
    r#"{"model":"small","message":{"role":"assistant","content":"Let me \"add\"."},"done":false}"#,
    "\n",
    r#"{"model":"small","message":{"role":"assistant","content":"","tool_calls":["#,
    r#"{"id":"call_1","function":{"index":0,"name":"add","arguments":{"a":2,"b":5}}},"#,
    r#"{"function":{"name":"now","arguments":"{}"}}]},"done":false}"#,
    "\n",
    r#"{"model":"small","message":{"role":"assistant","content":""},"done":true,"#,
    r#""done_reason":"stop","total_duration":9,"prompt_eval_count":31,"eval_count":12}"#,
    "\n",
);

fn model(server: &Server) -> OllamaModel {
    OllamaModel::new("small").with_endpoint(|_| Endpoint::new(server.url()))
}

fn sample_request() -> Request {
    Request::new()
        .with_system("Be brief.")
        .with_message(Message::user("What is 2 + 5?"))
}

fn tools() -> Vec<Arc<ToolSpec>> {
    let input = json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}});
    vec![
        Arc::new(ToolSpec::new("add", "Adds.").with_input(input)),
        Arc::new(ToolSpec::new("now", "The time.")),
    ]
}

/// Returns the reply to a plain question for this answer.
async fn reply(answer: Answer) -> Result<Response, levity_core::ModelError> {
    let server = Server::with_answer(answer).await;
    model(&server).complete(sample_request()).await
}

/// Returns the request body.
async fn sent(change: impl FnOnce(OllamaModel) -> OllamaModel, request: Request) -> Value {
    let server = Server::with_answer(Answer::lines(STREAM)).await;
    change(model(&server)).complete(request).await.unwrap();
    server.last().body
}

/// Returns the error of a request that is not sent.
async fn rejection(request: Request) -> String {
    let server = Server::with_answer(Answer::lines(STREAM)).await;
    let error = model(&server).complete(request).await.unwrap_err();
    assert_eq!(
        (error.kind(), server.seen().len()),
        (ModelErrorKind::BadRequest, 0),
        "{error}"
    );
    error.message().to_owned()
}

#[tokio::test]
async fn stream_is_parsed_into_reply() {
    let reply = reply(Answer::lines(STREAM)).await.unwrap();
    assert_eq!(
        (&*reply.message.thinking(), &*reply.message.text()),
        ("Two, then five.", "Let me \"add\".")
    );
    let calls: Vec<_> = reply
        .message
        .calls()
        .map(|call| (call.id.as_str(), &*call.name, call.args.clone()))
        .collect();
    assert_eq!(
        calls,
        [
            ("call_1", "add", json!({"a": 2, "b": 5})),
            ("", "now", json!({}))
        ]
    );
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!(
        (reply.usage.input, reply.usage.output),
        (Some(31), Some(12))
    );
}

#[tokio::test]
async fn whole_reply_is_parsed() {
    let whole = concat!(
        r#"{"message":{"role":"assistant","content":"7","thinking":"2 + 5"},"#,
        r#""done":true,"done_reason":"length","eval_count":1}"#,
    );
    let server = Server::with_answer(Answer::json(200, whole)).await;
    let reply = model(&server)
        .without_streaming()
        .complete(sample_request())
        .await
        .unwrap();
    assert_eq!(
        (&*reply.message.text(), &*reply.message.thinking()),
        ("7", "2 + 5")
    );
    assert_eq!(
        (reply.finish, reply.usage.input, reply.usage.output),
        (Finish::Length, None, Some(1))
    );
    assert_eq!(server.last().body["stream"], false);
    let server = Server::with_answer(Answer::json(200, "{}")).await;
    let error = model(&server)
        .without_streaming()
        .complete(sample_request())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
}

#[tokio::test]
async fn unusual_finish_reasons_are_mapped() {
    let finish = async |lines: &str| reply(Answer::lines(lines)).await.unwrap().finish;
    assert_eq!(
        finish(r#"{"message":{"content":null},"done":true}"#).await,
        Finish::Stop
    );
    assert_eq!(
        finish(r#"{"done":true,"done_reason":"load"}"#).await,
        Finish::Other("load".into())
    );
    let cut = concat!(
        r#"{"message":{"tool_calls":[{"function":{"name":"f"}}]},"#,
        r#""done":true,"done_reason":"length"}"#,
    );
    assert_eq!(finish(cut).await, Finish::Length);
    // Data after the end is not part of the reply.
    let more = "{\"message\":{\"content\":\"a\"},\"done\":true}\n\
        {\"message\":{\"content\":\"b\"},\"done\":false}\n";
    assert_eq!(
        reply(Answer::lines(more)).await.unwrap().message.text(),
        "a"
    );
}

#[tokio::test]
async fn invalid_json_arguments_are_retained() {
    let cut = concat!(
        r#"{"message":{"tool_calls":[{"function":{"name":"f","#,
        r#""arguments":"{\"a\": "}}]},"done":true}"#,
    );
    let reply = reply(Answer::lines(cut)).await.unwrap();
    let call = reply.message.calls().next().unwrap();
    assert_eq!(
        (&call.args, call.raw.as_deref()),
        (&Value::Null, Some("{\"a\": "))
    );
}

#[tokio::test]
async fn interrupted_stream_is_an_error() {
    let cut = STREAM.rsplit_once("{\"model\"").unwrap().0;
    let half = &STREAM[..STREAM.len() - 30];
    for answer in [
        Answer::lines(cut),
        Answer::lines(half),
        Answer::lines(""),
        Answer::lines(cut).then_reset(),
    ] {
        let error = reply(answer).await.unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Transport, "{error}");
    }
    let error = reply(Answer::lines("{\"message\": {\"cont\n"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
}

#[tokio::test]
async fn error_in_stream_fails_reply() {
    let lines = "{\"message\":{\"content\":\"Se\"},\"done\":false}\n{\"error\":\"the runner has \
        stopped\"}\n";
    let error = reply(Answer::lines(lines)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ModelErrorKind::Server, "the runner has stopped")
    );
    assert!(error.may_cost());
    let long = r#"{"error":"the input length exceeds the context length"}"#;
    assert_eq!(
        reply(Answer::lines(long)).await.unwrap_err().kind(),
        ModelErrorKind::ContextTooLong
    );
}

#[tokio::test]
async fn missing_model_error_suggests_pull() {
    let said =
        Answer::json(404, r#"{"error":"model 'small' not found"}"#).header("x-request-id", "r1");
    let error = reply(said).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status()),
        (ModelErrorKind::BadRequest, Some(404))
    );
    assert_eq!(
        error.message(),
        "model 'small' not found; run `ollama pull small`"
    );
    assert_eq!(error.request_id(), Some("r1"));
    let error = reply(Answer::new(404, "text/plain", "404 page not found"))
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "404 page not found; the server's address must be the part before `/api`"
    );
}

#[tokio::test]
async fn unreachable_ollama_error_suggests_start() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let endpoint = Endpoint::new(format!("http://someone:s3cret@{address}"));
    let model = OllamaModel::new("small").with_endpoint(|_| endpoint.clone());
    let sample_request = format!(
        "cannot reach http://{address} (model ollama:small): connection refused; run `ollama serve`"
    );
    let listed = format!("no Ollama server responds at `http://{address}`; run `ollama serve`");
    for (error, told) in [
        (
            model.complete(self::sample_request()).await.unwrap_err(),
            sample_request,
        ),
        (OllamaModel::list(&endpoint).await.unwrap_err(), listed),
    ] {
        assert_eq!(
            (error.kind(), error.to_string()),
            (ModelErrorKind::Transport, told)
        );
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn installed_models_are_listed() {
    let tags = r#"{"models":[{"name":"small:4b","model":"small:4b","size":2600,
        "details":{"family":"s"}},{"name":"far-cloud"}]}"#;
    let server = Server::with_answer(Answer::json(200, tags)).await;
    let endpoint = Endpoint::new(server.url()).with_header("authorization", "Bearer k1");
    let found = OllamaModel::list(&endpoint).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|entry| (&*entry.name, entry.size))
        .collect();
    assert_eq!(found, [("small:4b", 2_600), ("far-cloud", 0)]);
    assert_eq!(
        (
            server.last().line.as_str(),
            server.last().header("authorization")
        ),
        ("GET /api/tags", "Bearer k1")
    );

    let server = Server::with_answer(Answer::json(
        401,
        r#"{"error":"unauthorized: key-12345678"}"#,
    ))
    .await;
    let endpoint = Endpoint::new(server.url()).with_header("authorization", "Bearer key-12345678");
    let error = OllamaModel::list(&endpoint).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ModelErrorKind::Auth, "unauthorized: ***")
    );
    let server = Server::with_answer(Answer::json(200, "<html>")).await;
    let error = OllamaModel::list(&Endpoint::new(server.url()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
}

#[tokio::test]
async fn plain_request_has_expected_body() {
    let server = Server::with_answer(Answer::lines(STREAM)).await;
    model(&server)
        .with_key("k1")
        .complete(sample_request())
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(
        (seen.line.as_str(), seen.header("authorization")),
        ("POST /api/chat", "Bearer k1")
    );
    let messages = json!([{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 5?"}]);
    assert_eq!(
        seen.body,
        json!({"model": "small", "messages": messages, "stream": true})
    );
}

#[tokio::test]
async fn options_use_ollama_names() {
    let mut options = Options::new();
    options.temperature = Some(0.5);
    options.top_p = Some(0.25);
    options.max_tokens = Some(64);
    options.seed = Some(7);
    options.stop = vec!["END".into()];
    options.thinking = Some(ThinkingMode::Off);
    options
        .extra
        .insert("options".into(), json!({"num_gpu": 1, "seed": 8}));
    options.extra.insert("truncate".into(), json!(false));
    let shape = OutputSchema::new(
        "sum",
        json!({"type": "object", "properties": {"total": {"minimum": 0}}}),
    );
    let request = sample_request().with_options(options).with_output(shape);
    let set = |model: OllamaModel| {
        let model = model
            .with_window(4_096)
            .with_keep_alive(Duration::from_secs(90));
        model.with_endpoint(|endpoint| endpoint.with_field("truncate", true))
    };
    let body = sent(set, request).await;
    assert_eq!(
        body["options"],
        json!({"num_ctx": 4096, "num_predict": 64, "temperature": 0.5, "top_p": 0.25, "seed": 8,
            "stop": ["END"], "num_gpu": 1})
    );
    assert_eq!(
        body["format"],
        json!({"type": "object", "properties": {"total": {"minimum": 0}}})
    );
    assert_eq!(
        (&body["think"], &body["keep_alive"]),
        (&json!(false), &json!("90000ms"))
    );
    assert_eq!(body["truncate"], false);
    let body = sent(
        |model| model.with_keep_alive(Duration::MAX),
        sample_request(),
    )
    .await;
    assert_eq!(body["keep_alive"], -1);
}

#[tokio::test]
async fn thinking_levels_are_sent_only_to_models_with_levels() {
    let think = async |id: &str, levels: bool, mode| {
        let server = Server::with_answer(Answer::lines(STREAM)).await;
        let mut model = OllamaModel::new(id).with_endpoint(|_| Endpoint::new(server.url()));
        if levels {
            model = model.with_thinking_levels();
        }
        let mut options = Options::new();
        options.thinking = Some(mode);
        model
            .complete(sample_request().with_options(options))
            .await
            .unwrap();
        server.last().body["think"].clone()
    };
    use ThinkingMode::{Auto, Budget, High, Low, Medium, Off};
    for (mode, plain, leveled) in [
        (Off, json!(false), json!(false)),
        (Auto, json!(true), json!(true)),
        (Low, json!(true), json!("low")),
        (Medium, json!(true), json!("medium")),
        (High, json!(true), json!("high")),
        (Budget(0), json!(false), json!(false)),
        (Budget(1_000), json!(true), json!("low")),
        (Budget(5_000), json!(true), json!("medium")),
        (Budget(50_000), json!(true), json!("high")),
    ] {
        assert_eq!(think("small", false, mode).await, plain, "{mode:?}");
        assert_eq!(think("gpt-oss:20b", false, mode).await, leveled, "{mode:?}");
        assert_eq!(think("small", true, mode).await, leveled, "{mode:?}");
    }
}

#[tokio::test]
async fn tools_are_sent_in_ollama_format() {
    let body = sent(|model| model, sample_request().with_tools(tools())).await;
    let a = json!({"type": "integer", "description": "maximum: 9"});
    assert_eq!(
        body["tools"],
        json!([
            {"type": "function", "function": {"name": "add", "description": "Adds.",
                "parameters": {"type": "object", "properties": {"a": a}}}},
            {"type": "function", "function": {"name": "now", "description": "The time. (arguments: \
                no other fields)", "parameters": {"type": "object", "properties": {}}}},
        ])
    );
    let mut request = sample_request().with_tools(tools());
    request.tool_choice = ToolChoice::None;
    assert_eq!(
        sent(|model| model, request.clone()).await.get("tools"),
        None
    );
    for choice in [ToolChoice::Required, ToolChoice::Tool("add".into())] {
        request.tool_choice = choice;
        assert!(
            rejection(request.clone())
                .await
                .contains("ToolChoice::Auto")
        );
    }
}

#[tokio::test]
async fn text_and_thinking_are_returned() {
    let reply = reply(Answer::lines(STREAM)).await.unwrap();
    let mut history = History::new();
    history.push(Message::user("What is 2 + 5?")).unwrap();
    let mut exchange = history.open(reply.message).unwrap();
    for call in exchange.reply().clone().calls() {
        let mut output = ToolOutput::text("7");
        output
            .content
            .push(Content::Media(Media::bytes("image/png", vec![1, 2, 3])));
        exchange.answer(ToolResult::new(call, Ok(output))).unwrap();
    }
    history.close(exchange, &ToolError::failed("not needed"));
    history.push(Message::system("Now answer.")).unwrap();
    let body = sent(|model| model, Request::new().with_history(history.clone())).await;
    let calls = json!([
        {"id": "call_1", "function": {"name": "add", "arguments": {"a": 2, "b": 5}}},
        {"id": "call", "function": {"name": "now", "arguments": {}}},
    ]);
    let answer = |name: &str, id: &str| {
        json!({"role": "tool", "content": "7", "images": ["AQID"],
        "tool_name": name, "tool_call_id": id})
    };
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": "What is 2 + 5?"},
            {"role": "assistant", "content": "Let me \"add\".", "thinking": "Two, then \
                five.", "tool_calls": calls},
            answer("add", "call_1"),
            answer("now", "call"),
            {"role": "system", "content": "Now answer."},
        ])
    );
    assert_eq!(
        sent(|model| model, Request::new().with_history(history)).await,
        body
    );
}

#[tokio::test]
async fn foreign_provider_state_is_omitted() {
    let mut thought = Part::thinking("In secret.");
    thought.set_opaque(ProviderState::new("anthropic", json!({"signature": "s"})));
    let block = Part::Opaque(ProviderState::new("gemini", json!({"x": 1})));
    let request = sample_request().with_message(Message::new(
        Role::Assistant,
        [thought, block, Part::text("7")],
    ));
    let body = sent(|model| model, request).await;
    assert_eq!(
        body["messages"][2],
        json!({"role": "assistant", "content": "7"})
    );
}

#[tokio::test]
async fn non_object_arguments_return_in_an_object() {
    let mut history = History::new();
    let calls = [
        ToolCall::from_text("a", "f", "{\"a\": "),
        ToolCall::new("b", "f", json!([1])),
    ];
    let reply = Message::new(Role::Assistant, calls.map(Part::ToolCall));
    let exchange = history.open(reply.into()).unwrap();
    history.close(exchange, &ToolError::failed("no JSON"));
    let body = sent(|model| model, Request::new().with_history(history)).await;
    let calls = &body["messages"][0]["tool_calls"];
    assert_eq!(
        calls[0]["function"]["arguments"],
        json!({"arguments": "{\"a\": "})
    );
    assert_eq!(calls[1]["function"]["arguments"], json!({"arguments": [1]}));
}

#[tokio::test]
async fn images_are_sent_and_other_media_is_rejected() {
    let with = |media: Media| {
        Request::new().with_message(Message::new(
            Role::User,
            [Part::text("See"), Part::Media(media)],
        ))
    };
    let body = sent(
        |model| model,
        with(Media::bytes("image/jpeg", vec![255, 0])),
    )
    .await;
    assert_eq!(
        body["messages"],
        json!([{"role": "user", "content": "See", "images": ["/wA="]}])
    );
    assert!(
        rejection(with(Media::url("image/png", "http://a.example/b.png")))
            .await
            .contains("send the bytes")
    );
    assert!(
        rejection(with(Media::bytes("audio/wav", vec![1])))
            .await
            .contains("`audio`")
    );
    assert!(
        rejection(with(Media::bytes("application/pdf", vec![1])))
            .await
            .contains("`document`")
    );
    // The same history is rejected again.
    let request = with(Media::bytes("video/mp4", vec![1]));
    assert!(rejection(request.clone()).await.contains("`video`"));
    assert!(rejection(request).await.contains("`video`"));
}

#[tokio::test]
async fn unsupported_media_in_tool_result_becomes_text() {
    let call = ToolCall::new("c1", "record", json!({}));
    let mut history = History::new();
    let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
    let mut exchange = history.open(reply.into()).unwrap();
    let output = ToolOutput::text("Here.").with_media(Media::bytes("audio/wav", vec![1]));
    let output = output.with_media(Media::bytes("image/png", vec![1]));
    exchange.answer(ToolResult::new(&call, Ok(output))).unwrap();
    history.close(exchange, &ToolError::failed("unused"));
    let body = sent(|model| model, Request::new().with_history(history)).await;
    let words = "Here.\n(a sound of type audio/wav, 1 bytes, which this model cannot accept)";
    assert_eq!(
        (
            &body["messages"][1]["content"],
            &body["messages"][1]["images"]
        ),
        (&json!(words), &json!(["AQ=="]))
    );
}

#[tokio::test]
async fn ollama_model_conforms() {
    let server = Server::with_answer(Answer::lines(STREAM)).await;
    levity_test::conformance::model(|| model(&server)).await;
}
