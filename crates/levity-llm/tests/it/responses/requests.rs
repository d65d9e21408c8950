//! Requests as they are sent.

use std::sync::Arc;

use levity_core::{
    Media, Message, Model as _, ModelCard, Options, OutputSchema, Part, Request, Role,
    ThinkingMode, ToolCall, ToolChoice, ToolError, ToolOutput, ToolResult, ToolSpec,
};
use levity_llm::OpenAiModel;
use serde_json::{Value, json};

use super::{hi, openai, whole};
use crate::server::Server;

fn add() -> Arc<ToolSpec> {
    let number = json!({"type": "number"});
    let schema = json!({"type": "object", "properties": {"a": number}, "required": ["a"]});
    Arc::new(ToolSpec::new("add", "Adds.").with_input(schema))
}

/// Returns the body that is sent for a request.
async fn sent(
    change: impl FnOnce(OpenAiModel) -> OpenAiModel,
    id: &str,
    request: Request,
) -> Value {
    let server = Server::with_answer(whole(&[])).await;
    let model = change(openai(&server, id).without_streaming());
    model.complete(request).await.unwrap();
    let seen = server.last();
    assert_eq!(seen.line, "POST /responses");
    assert_eq!(seen.header("authorization"), "Bearer sk-secret");
    seen.body
}

#[tokio::test]
async fn request_has_all_fields() {
    let mut options = Options::new();
    (options.temperature, options.top_p, options.max_tokens) = (Some(0.5), Some(0.9), Some(100));
    let mut request = hi()
        .with_system("Be brief.")
        .with_tools([add()])
        .with_options(options);
    request.tool_choice = ToolChoice::Tool("add".to_owned());
    let body = sent(|model| model, "gpt-4o", request).await;
    let expected = json!({
        "model": "gpt-4o",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Hi"}],
        "tools": [{
            "type": "function", "name": "add", "description": "Adds.", "strict": true,
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}},
                "required": ["a"],
                "additionalProperties": false},
        }],
        "tool_choice": {"type": "function", "name": "add"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "store": false,
    });
    assert_eq!(body, expected, "\n{body:#}");
}

#[tokio::test]
async fn tool_choice_is_sent() {
    for (choice, word) in [
        (ToolChoice::Auto, None),
        (ToolChoice::None, Some(json!("none"))),
        (ToolChoice::Required, Some(json!("required"))),
    ] {
        let mut request = hi().with_tools([add()]);
        request.tool_choice = choice;
        assert_eq!(
            sent(|model| model, "gpt-5", request)
                .await
                .get("tool_choice"),
            word.as_ref()
        );
    }
}

#[tokio::test]
async fn thinking_is_requested() {
    let thinking = |mode: Option<ThinkingMode>| {
        let mut options = Options::new();
        options.thinking = mode;
        hi().with_options(options)
    };
    let same = |model: OpenAiModel| model;
    let body = sent(same, "gpt-5.2", thinking(Some(ThinkingMode::High))).await;
    assert_eq!(body["reasoning"], json!({"effort": "high"}));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    let body = sent(
        OpenAiModel::with_summaries,
        "gpt-5",
        thinking(Some(ThinkingMode::Off)),
    )
    .await;
    assert_eq!(
        body["reasoning"],
        json!({"effort": "minimal", "summary": "auto"})
    );
    let body = sent(
        OpenAiModel::with_summaries,
        "gpt-5",
        thinking(Some(ThinkingMode::Auto)),
    )
    .await;
    assert_eq!(body["reasoning"], json!({"summary": "auto"}));
    let body = sent(
        OpenAiModel::with_summaries,
        "gpt-4o",
        thinking(Some(ThinkingMode::Off)),
    )
    .await;
    assert_eq!((body.get("reasoning"), body.get("include")), (None, None));
    // A card that claims less than the name is ignored; one that claims more is used.
    let body = sent(
        |model| model.with_card(ModelCard::new("x", "o3")),
        "o3",
        thinking(None),
    )
    .await;
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
}

#[tokio::test]
async fn compatible_server_gets_basic_fields_only() {
    let server = Server::with_answer(whole(&[])).await;
    let model =
        OpenAiModel::compatible(format!("{}/v1/", server.url()), "my-model").without_streaming();
    model.complete(hi().with_tools([add()])).await.unwrap();
    let seen = server.last();
    assert_eq!(
        (&*seen.line, seen.header("authorization")),
        ("POST /v1/responses", "")
    );
    assert_eq!(seen.body["tools"][0]["strict"], false);
    assert_eq!(seen.body["tools"][0]["parameters"], add().input);
    assert_eq!(seen.body.get("include"), None);
    model
        .with_strict()
        .complete(hi().with_tools([add()]))
        .await
        .unwrap();
    assert_eq!(server.last().body["tools"][0]["strict"], true);
}

#[tokio::test]
async fn images_and_files_are_sent() {
    let mut paper = Media::bytes("application/pdf", vec![1, 2, 3]);
    let user = Message::new(
        Role::User,
        [
            Part::text("See:"),
            Part::Media(Media::bytes("image/png", vec![1, 2, 3])),
            Part::Media(Media::url("image/jpeg", "https://example.org/a.jpg")),
            Part::Media(paper.clone()),
            Part::Media(Media::url("application/pdf", "https://example.org/a.pdf")),
            Part::Media(Media::url("application/pdf", "file-123")),
        ],
    );
    let call = ToolCall::new("c1", "look", json!({}));
    let mut history = Request::new().with_message(user).history;
    let mut exchange = history
        .open(Message::new(Role::Assistant, [Part::ToolCall(call.clone())]).into())
        .unwrap();
    paper.name = Some("p.pdf".to_owned());
    exchange
        .answer(ToolResult::new(
            &call,
            Ok(ToolOutput::text("Here.").with_media(paper)),
        ))
        .unwrap();
    history.close(exchange, &ToolError::failed("unused"));
    let body = sent(|model| model, "gpt-5", Request::new().with_history(history)).await;
    let expected = json!([
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "image_url": "data:image/png;base64,AQID"},
        {"type": "input_image", "image_url": "https://example.org/a.jpg"},
        {"type": "input_file", "filename": "file.pdf",
            "file_data": "data:application/pdf;base64,AQID"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_file", "file_id": "file-123"},
    ]);
    assert_eq!(body["input"][0]["content"], expected);
    let expected = json!([
        {"type": "input_text", "text": "Here."},
        {"type": "input_file", "filename": "p.pdf",
            "file_data": "data:application/pdf;base64,AQID"},
    ]);
    assert_eq!(
        body["input"][2],
        json!({"type": "function_call_output", "call_id": "c1", "output": expected})
    );
}

#[tokio::test]
async fn user_fields_are_merged_into_request() {
    let search = json!({"type": "web_search"});
    let mut options = Options::new();
    options.extra = json!({
        "tools": [search],
        "text": {"verbosity": "low"},
        "include": ["web_search_call.action.sources"],
        "store": true,
        "service_tier": "flex",
    })
    .as_object()
    .cloned()
    .unwrap();
    options.thinking = Some(ThinkingMode::Low);
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let request = hi()
        .with_tools([add()])
        .with_output(OutputSchema::new("answer", schema))
        .with_options(options);
    let change = |model: OpenAiModel| {
        model.with_endpoint(|endpoint| {
            endpoint
                .with_field("reasoning", json!({"summary": "detailed"}))
                .with_field("service_tier", "auto")
        })
    };
    let body = sent(change, "gpt-5", request).await;
    assert_eq!(body["tools"][1], search);
    assert_eq!(
        (&body["text"]["verbosity"], &body["text"]["format"]["name"]),
        (&json!("low"), &json!("answer"))
    );
    assert_eq!(
        body["include"],
        json!([
            "reasoning.encrypted_content",
            "web_search_call.action.sources"
        ])
    );
    assert_eq!(
        body["reasoning"],
        json!({"effort": "low", "summary": "detailed"})
    );
    assert_eq!(
        (&body["store"], &body["service_tier"]),
        (&json!(true), &json!("flex"))
    );
}

#[tokio::test]
async fn system_notes_keep_their_position() {
    let request = hi()
        .with_message(Message::assistant("Hello."))
        .with_message(Message::system("Time is short."));
    let body = sent(|model| model, "gpt-5", request).await;
    assert_eq!(
        body["input"][2],
        json!({"role": "system", "content": "Time is short."})
    );
}

#[tokio::test]
async fn notes_with_media_are_sent_and_empty_messages_omitted() {
    let image = || Part::Media(Media::url("image/png", "https://example.org/a.png"));
    let foreign = Part::Opaque(levity_core::ProviderState::new("other", json!({})));
    let file = Part::Media(Media::url(
        "application/pdf",
        "data:application/pdf;base64,AQID",
    ));
    let request = Request::new()
        .with_message(Message::new(Role::User, [foreign]))
        .with_message(Message::new(Role::System, [Part::text("See."), image()]))
        .with_message(Message::new(Role::User, [file, Part::text("?")]));
    let body = sent(|model| model, "gpt-5", request).await;
    let shown = json!({"type": "input_image", "image_url": "https://example.org/a.png"});
    let file = json!({
        "type": "input_file", "filename": "file.pdf",
        "file_data": "data:application/pdf;base64,AQID",
    });
    assert_eq!(
        body["input"],
        json!([
            {"role": "system", "content": [{"type": "input_text", "text": "See."}, shown]},
            {"role": "user", "content": [file, {"type": "input_text", "text": "?"}]},
        ])
    );
}

#[tokio::test]
async fn result_value_is_sent_with_media() {
    let call = ToolCall::new("c1", "functions.look", json!({}));
    let mut history = hi().history;
    let mut exchange = history
        .open(Message::new(Role::Assistant, [Part::ToolCall(call.clone())]).into())
        .unwrap();
    let output = ToolOutput::value(json!({"n": 1}))
        .with_media(Media::url("image/png", "https://e.org/a.png"));
    exchange.answer(ToolResult::new(&call, Ok(output))).unwrap();
    history.close(exchange, &ToolError::failed("unused"));
    let body = sent(|model| model, "gpt-5", Request::new().with_history(history)).await;
    assert_eq!(
        body["input"][1]["name"], "functions_look",
        "a name that no tool can have is made to fit"
    );
    let shown = json!({"type": "input_image", "image_url": "https://e.org/a.png"});
    assert_eq!(
        body["input"][2]["output"],
        json!([{"type": "input_text", "text": "{\"n\":1}"}, shown])
    );
}

#[tokio::test]
async fn arguments_are_always_an_object() {
    let named = |name: &str| json!({"properties": {name: {"type": "string"}}, "required": [name]});
    let either = json!({"anyOf": [named("a"), named("b")]});
    let parameters = |input: Value| async {
        let tool = Arc::new(ToolSpec::new("t", "Does.").with_input(input));
        let body = sent(|model| model, "gpt-5", hi().with_tools([tool])).await;
        assert_eq!(body["tools"][0]["strict"], false);
        body["tools"][0]["parameters"].clone()
    };
    let sent_schema = parameters(either).await;
    assert_eq!(
        (&sent_schema["type"], sent_schema.get("anyOf")),
        (&json!("object"), None)
    );
    assert_eq!(
        sent_schema["properties"],
        json!({"a": {"type": "string"}, "b": {"type": "string"}})
    );
    assert!(
        sent_schema["description"]
            .as_str()
            .unwrap()
            .contains("anyOf"),
        "{sent_schema}"
    );
    assert_eq!(
        parameters(json!({"type": "object"})).await,
        json!({"type": "object", "properties": {}})
    );
    let target = json!({"$ref": "#/$defs/A", "$defs": {"A": {
        "type": "object", "properties": {"m": {"type": "object", "additionalProperties": true}},
    }}});
    let sent_schema = parameters(target).await;
    assert!(
        sent_schema.get("$ref").is_none() && sent_schema["properties"]["m"].is_object(),
        "{sent_schema}"
    );
}
