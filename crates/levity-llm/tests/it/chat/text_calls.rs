//! Calls that a model writes as text, as servers deliver them.

use std::sync::Arc;

use levity_core::{
    Delta, Finish, Message, Model as _, Request, ToolCall, ToolChoice, ToolError, ToolOutput,
    ToolResult, ToolSpec,
};
use levity_llm::layers::ToolMode;
use levity_llm::{ChatModel, ModelExt as _, OllamaModel};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// The deltas of llama.cpp's server for a call of Qwen2.5-Coder that its template does not
/// recognize.
const PIECES: [&str; 9] = [
    "```",
    "json",
    "\n",
    "{\n ",
    " \"name\": \"math_gcd\",\n",
    "  \"arguments\": {\"num1\": 12,",
    " \"num2\": 18}",
    "\n}\n",
    "```",
];

fn gcd() -> Arc<ToolSpec> {
    let number = json!({"type": "integer"});
    let input = json!({"type": "object", "properties": {"num1": number, "num2": number},
        "required": ["num1", "num2"]});
    // The protocol changes the name.
    Arc::new(ToolSpec::new("math.gcd", "The greatest common divisor.").with_input(input))
}

fn sample_request() -> Request {
    Request::new()
        .with_tools([gcd()])
        .with_message(Message::user("The greatest common divisor of 12 and 18?"))
}

fn stream(pieces: &[&str]) -> String {
    let chunk = |delta: Value, finish: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        )
    };
    let mut text = chunk(json!({"role": "assistant", "content": null}), Value::Null);
    pieces
        .iter()
        .for_each(|piece| text.push_str(&chunk(json!({"content": piece}), Value::Null)));
    text + &chunk(json!({}), json!("stop")) + "data: [DONE]\n\n"
}

#[tokio::test]
async fn call_in_text_is_parsed_and_returned_as_text() {
    let server = Server::start([
        Answer::sse(stream(&PIECES)),
        Answer::sse(stream(&["It is 6."])),
    ])
    .await;
    let model = ChatModel::compatible(server.url(), "qwen");
    let mut deltas = model.stream(sample_request()).await.unwrap();
    let (mut fold, mut notices) = (levity_core::Fold::new(), Vec::new());
    while let Some(delta) = deltas.next().await {
        let delta = delta.unwrap();
        if let Delta::Notice { text } = &delta {
            notices.push(text.clone());
        }
        fold.push(delta).unwrap();
    }
    let reply = fold.finish();
    let calls: Vec<_> = reply
        .message
        .calls()
        .map(|call| (&*call.name, &call.args))
        .collect();
    assert_eq!(calls, [("math.gcd", &json!({"num1": 12, "num2": 18}))]);
    assert_eq!(
        (&*reply.message.text(), &reply.finish),
        ("", &Finish::ToolCalls)
    );
    assert_eq!(notices, ["read from text: call of `math_gcd`"]);

    let mut request = sample_request();
    let mut exchange = request.history.open(reply.message.clone()).unwrap();
    let call: ToolCall = exchange.unanswered().next().unwrap().clone();
    exchange
        .answer(ToolResult::new(&call, Ok(ToolOutput::text("6"))))
        .unwrap();
    request.history.close(exchange, &ToolError::failed("none"));
    assert_eq!(
        model.complete(request).await.unwrap().message.text(),
        "It is 6."
    );
    let sent = &server.last().body["messages"];
    assert_eq!(
        sent[1],
        json!({"role": "assistant", "content": PIECES.concat()})
    );
    assert_eq!(
        (&sent[2]["role"], &sent[2]["content"]),
        (&json!("tool"), &json!("6"))
    );
}

#[tokio::test]
async fn parsing_of_text_calls_can_be_disabled() {
    let server = Server::start([Answer::sse(stream(&PIECES)), Answer::sse(stream(&PIECES))]).await;
    for model in [
        ChatModel::compatible(server.url(), "qwen").with_text_calls(false),
        ChatModel::openai("key", "gpt-6.1")
            .with_endpoint(|endpoint| endpoint.with_base(server.url())),
    ] {
        let reply = model.complete(sample_request()).await.unwrap();
        assert_eq!(
            (reply.message.calls().count(), &*reply.message.text()),
            (0, &*PIECES.concat())
        );
    }
}

#[tokio::test]
async fn native_call_retains_surrounding_text() {
    let call = json!({"index": 0, "id": "c1",
        "function": {"name": "math_gcd", "arguments": "{\"num1\":1,\"num2\":2}"}});
    let chunk = |delta: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": delta}]})
        )
    };
    let text = chunk(json!({"content": "{\"name\": \"math_gcd\""}))
        + &chunk(json!({"tool_calls": [call]}))
        + "data: [DONE]\n\n";
    let server = Server::with_answer(Answer::sse(text)).await;
    let reply = ChatModel::compatible(server.url(), "qwen")
        .complete(sample_request())
        .await
        .unwrap();
    assert_eq!(
        (reply.message.calls().count(), &*reply.message.text()),
        (1, "{\"name\": \"math_gcd\"")
    );
}

#[tokio::test]
async fn unrecognized_ollama_call_is_parsed_from_text() {
    let line = |content: &str, done: bool| {
        json!({"message": {"role": "assistant", "content": content}, "done": done,
            "done_reason": "stop"})
        .to_string()
            + "\n"
    };
    let text = line("{\"name\": \"math_gcd\", ", false)
        + &line("\"arguments\": {\"num1\": 12, \"num2\": 18}}", false)
        + &line("", true);
    let server = Server::with_answer(Answer::lines(text)).await;
    let model = OllamaModel::new("qwen2.5-coder:0.5b")
        .with_endpoint(|endpoint| endpoint.with_base(server.url()));
    let reply = model.complete(sample_request()).await.unwrap();
    assert_eq!(
        reply
            .message
            .calls()
            .map(|call| &*call.name)
            .collect::<Vec<_>>(),
        ["math.gcd"]
    );
}

#[tokio::test]
async fn model_writing_text_calls_gets_instructions_afterwards() {
    let answers = || {
        [
            Answer::sse(stream(&PIECES)),
            Answer::sse(stream(&["Six."])),
            Answer::sse(stream(&PIECES)),
        ]
    };
    let server = Server::start(answers()).await;
    let model = ChatModel::compatible(server.url(), "qwen").adapt_tools();
    let mut notices = Vec::new();
    let mut deltas = model
        .stream(sample_request().with_system("Be brief."))
        .await
        .unwrap();
    while let Some(delta) = deltas.next().await {
        if let Delta::Notice { text } = delta.unwrap() {
            notices.push(text);
        }
    }
    assert_eq!(server.last().body["messages"][0]["content"], "Be brief.");
    assert_eq!(
        notices[1],
        "the model writes calls as text: from now on, the prompt explains when to call a tool"
    );
    assert_eq!((notices.len(), model.mode()), (2, Some(ToolMode::Guided)));

    model
        .complete(sample_request().with_system("Be brief."))
        .await
        .unwrap();
    let system = server.last().body["messages"][0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        system.starts_with("Be brief.\n\n") && system.contains("If no function fits"),
        "{system}"
    );

    // A required call needs no such instruction.
    let mut demanded = sample_request();
    demanded.tool_choice = ToolChoice::Required;
    model.complete(demanded).await.unwrap();
    assert_eq!(server.last().body["messages"][0]["role"], "user");
    assert_eq!(model.mode(), Some(ToolMode::Guided));

    // Whole replies have the same effect.
    let server = Server::start(answers()).await;
    let model = ChatModel::compatible(server.url(), "qwen").adapt_tools();
    model.complete(sample_request()).await.unwrap();
    assert_eq!(model.mode(), Some(ToolMode::Guided));
}

#[tokio::test]
async fn check_of_server_with_text_calls_chooses_guided_mode() {
    let call = r#"{"name": "get_weather", "arguments": {"city": "Rome"}}"#;
    let replies = ["ready", call, r#"{"seat_letter": "B", "row_number": 12}"#];
    let server = Server::start(replies.map(|reply| Answer::sse(stream(&[reply])))).await;
    let found = levity_llm::check_tools(&ChatModel::compatible(server.url(), "qwen"))
        .await
        .unwrap();
    assert_eq!(
        (found.calls, found.mode),
        (levity_llm::CallFormat::Text, ToolMode::Guided)
    );
}
