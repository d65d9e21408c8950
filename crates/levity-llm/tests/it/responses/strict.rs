//! Strict schemas, with Responses and with chat completions.

use std::sync::Arc;

use levity_core::{Model, OutputSchema, Request, ToolOutput, ToolSpec};
use levity_llm::{ChatModel, Endpoint};
use levity_loop::Agent;
use levity_test::RecordingTool;
use serde_json::{Value, json};

use super::{hi, openai, whole};
use crate::server::{Answer, Server};

fn forecast() -> ToolSpec {
    ToolSpec::new("forecast", "Looks ahead.").with_input(json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "days": {"type": "integer", "default": 3},
            "unit": {"type": ["string", "null"]},
        },
        "required": ["city"],
        "additionalProperties": false,
    }))
}

fn strict_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Characters at least: 1."},
            "days": {"type": ["integer", "null"], "description": "Default: 3."},
            "unit": {"type": ["string", "null"]},
        },
        "required": ["city", "days", "unit"],
        "additionalProperties": false,
    })
}

const ARGS: &str = r#"{"city":"Rome","days":null,"unit":null}"#;

fn message(text: &str) -> Value {
    json!({"id": "m", "type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": text}]})
}

fn chat(server: &Server) -> ChatModel {
    ChatModel::openai("sk-secret", "gpt-5").with_endpoint(|_| Endpoint::new(server.url()))
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}

/// Runs an agent whose model sends null for an omitted field; the tool must not see the null.
async fn check_agent(model: impl Model + 'static) {
    let tool = RecordingTool::new("forecast", |_| Ok(ToolOutput::text("Sun.")))
        .with_input(forecast().input);
    let agent = Agent::builder(model).tool(tool.clone()).build().unwrap();
    assert_eq!(agent.run("Rome?").await.unwrap().text(), "Sun in Rome.");
    assert_eq!(tool.calls()[0].args, json!({"city": "Rome", "unit": null}));
}

#[tokio::test]
async fn null_for_omitted_field_is_removed_in_responses() {
    let call = json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "forecast",
        "arguments": ARGS});
    let server = Server::start([whole(&[call]), whole(&[message("Sun in Rome.")])]).await;
    check_agent(openai(&server, "gpt-5").without_streaming()).await;
    let sent = server.last().body;
    assert_eq!(
        (&sent["tools"][0]["strict"], &sent["tools"][0]["parameters"]),
        (&json!(true), &strict_schema())
    );
    assert_eq!(
        sent["input"][1]["arguments"],
        r#"{"city":"Rome","unit":null}"#
    );
}

#[tokio::test]
async fn null_for_omitted_field_is_removed_in_chat() {
    let (first, second) = ARGS.split_at(20);
    let call = |args: &str| {
        json!({"tool_calls": [{"index": 0, "id": "c1",
        "function": {"name": "forecast", "arguments": args}}]})
    };
    let more = json!({"tool_calls": [{"index": 0, "function": {"arguments": second}}]});
    let calls = [
        chunk(&call(first), None),
        chunk(&more, Some("tool_calls")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let says = [
        chunk(&json!({"content": "Sun in Rome."}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let server = Server::start([Answer::sse(calls.concat()), Answer::sse(says.concat())]).await;
    check_agent(chat(&server)).await;
    let function = server.last().body["tools"][0]["function"].clone();
    assert_eq!(
        (&function["strict"], &function["parameters"]),
        (&json!(true), &strict_schema())
    );
}

/// Returns every schema that is sent with its strictness: the tool's and the answer's.
async fn sent(
    model: impl Model,
    server: &Server,
    tool: ToolSpec,
    answer: Value,
) -> [(Value, Value); 2] {
    let request: Request = hi()
        .with_tools([Arc::new(tool)])
        .with_output(OutputSchema::new("answer", answer));
    model.complete(request).await.unwrap();
    let body = server.last().body;
    let both = |value: &Value, schema: &str| (value["strict"].clone(), value[schema].clone());
    let chat = &body["response_format"]["json_schema"];
    if chat.is_object() {
        return [
            both(&body["tools"][0]["function"], "parameters"),
            both(chat, "schema"),
        ];
    }
    [
        both(&body["tools"][0], "parameters"),
        both(&body["text"]["format"], "schema"),
    ]
}

#[tokio::test]
async fn strict_is_set_for_equivalent_schemas() {
    let answer =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let mut closed = answer.clone();
    closed["additionalProperties"] = json!(false);
    let server = Server::with_answer(whole(&[])).await;
    let model = openai(&server, "gpt-5").without_streaming();
    let expected = [(json!(true), strict_schema()), (json!(true), closed)];
    assert_eq!(
        sent(model.clone(), &server, forecast(), answer.clone()).await,
        expected
    );
    let loose = [
        (json!(false), forecast().input),
        (json!(false), answer.clone()),
    ];
    assert_eq!(
        sent(model.without_strict(), &server, forecast(), answer.clone()).await,
        loose
    );
    let tuned = openai(&server, "ft:gpt-4o:me").without_streaming();
    assert_eq!(
        sent(tuned, &server, forecast(), answer.clone()).await,
        loose
    );

    let server = Server::with_answer(Answer::json(
        200,
        r#"{"choices": [{"message": {"content": "{}"}}]}"#,
    ))
    .await;
    let model = chat(&server).without_streaming();
    assert_eq!(
        sent(model.clone(), &server, forecast(), answer.clone()).await,
        expected
    );
    let silent = [
        (json!(null), forecast().input),
        (json!(null), answer.clone()),
    ];
    assert_eq!(
        sent(model.without_strict(), &server, forecast(), answer.clone()).await,
        silent
    );
    let other = ChatModel::compatible(server.url(), "x").without_streaming();
    assert_eq!(sent(other, &server, forecast(), answer).await, silent);
}

#[tokio::test]
async fn strict_is_not_set_for_schemas_that_would_change() {
    let map = json!({"type": "object",
        "properties": {"tags": {"type": "object", "additionalProperties": true}}});
    let tool = ToolSpec::new("tag", "Tags.").with_input(map.clone());
    // An answer is passed on unchanged, so no field in it may be null instead of missing.
    let answer = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let server = Server::with_answer(whole(&[])).await;
    let model = openai(&server, "gpt-5").without_streaming();
    let expected = [(json!(false), map), (json!(false), answer.clone())];
    assert_eq!(sent(model, &server, tool, answer).await, expected);
}
