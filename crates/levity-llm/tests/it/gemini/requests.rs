//! Requests to Gemini.

use levity_core::{
    Media, Message, Model as _, Options, OutputSchema, Part, Request, Role, ThinkingMode,
    ToolChoice, ToolSpec,
};
use levity_llm::{Endpoint, GeminiModel};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{ask, last, model, sse, weather};
use crate::server::{Answer, Seen, Server};

/// Returns the request to a model of this name.
async fn sent(id: &str, request: Request) -> Seen {
    let server = Server::with_answer(sse(&[last(json!([{"text": "Yes."}]), "STOP")])).await;
    model(&server, id).complete(request).await.unwrap();
    server.last()
}

async fn body(id: &str, request: Request) -> Value {
    sent(id, request).await.body
}

#[tokio::test]
async fn request_has_all_fields_in_place() {
    let mut options = Options::new();
    (options.temperature, options.top_p, options.max_tokens) = (Some(0.5), Some(0.9), Some(100));
    (options.seed, options.stop, options.thinking) =
        (Some(4), vec!["END".into()], Some(ThinkingMode::Low));
    let request = ask("Rain?")
        .with_system("Be brief.")
        .with_tools([weather()])
        .with_options(options);
    let seen = sent("gemini-2.5-flash", request).await;
    assert_eq!(
        seen.line,
        "POST /v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    );
    assert_eq!(seen.header("x-goog-api-key"), "AIza-secret");
    assert_eq!(seen.header("authorization"), "");
    assert_eq!(
        seen.body,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Rain?"}]}],
            "tools": [{"functionDeclarations": [{
                "name": "weather",
                "description": "Tells the weather.",
                "parametersJsonSchema": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "description": "at least 2 \
                        characters"}},
                    "required": ["city"],
                    "additionalProperties": false,
                },
            }]}],
            "generationConfig": {
                "temperature": 0.5, "topP": 0.9, "maxOutputTokens": 100, "seed": 4,
                "stopSequences": ["END"],
                "thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": true},
            },
        })
    );
}

#[tokio::test]
async fn vertex_request_has_its_path_and_token() {
    let server = Server::with_answer(Answer::json(
        200,
        last(json!([{"text": "Yes."}]), "STOP").to_string(),
    ))
    .await;
    let model = GeminiModel::vertex("p", "global", "ya29.t", "gemini-2.5-pro").without_streaming();
    let reply = model
        .with_endpoint(|_| Endpoint::new(server.url()))
        .complete(ask("?"))
        .await
        .unwrap();
    assert_eq!(reply.message.text(), "Yes.");
    let seen = server.last();
    let path =
        "/v1/projects/p/locations/global/publishers/google/models/gemini-2.5-pro:generateContent";
    assert_eq!(seen.line, format!("POST {path}"));
    assert_eq!(seen.header("authorization"), "Bearer ya29.t");
    assert_eq!(seen.header("x-goog-api-key"), "");
}

#[tokio::test]
async fn tool_choice_maps_to_mode() {
    let config = |choice: ToolChoice| async {
        let mut request = ask("?").with_tools([weather()]);
        request.tool_choice = choice;
        body("gemini-2.5-flash", request).await["toolConfig"]["functionCallingConfig"].clone()
    };
    assert_eq!(config(ToolChoice::Auto).await, Value::Null);
    assert_eq!(config(ToolChoice::None).await, json!({"mode": "NONE"}));
    assert_eq!(config(ToolChoice::Required).await, json!({"mode": "ANY"}));
    let named = config(ToolChoice::Tool("weather".into())).await;
    assert_eq!(
        named,
        json!({"mode": "ANY", "allowedFunctionNames": ["weather"]})
    );
    let mut without = ask("?");
    without.tool_choice = ToolChoice::Required;
    assert_eq!(
        body("gemini-2.5-flash", without).await["toolConfig"],
        Value::Null
    );
}

#[tokio::test]
async fn user_fields_are_merged_into_request() {
    let mut options = Options::new();
    (options.temperature, options.thinking) = (Some(0.5), Some(ThinkingMode::High));
    options.extra = json!({
        "generationConfig": {"topK": 40, "temperature": 1,
            "thinkingConfig": {"includeThoughts": false}},
        "tools": [{"googleSearch": {}}],
        "toolConfig": {"includeServerSideToolInvocations": true},
        "safetySettings": [{"category": "C", "threshold": "T"}],
    })
    .as_object()
    .unwrap()
    .clone();
    let mut request = ask("?")
        .with_tools([Arc::new(ToolSpec::new("now", ""))])
        .with_options(options);
    request.tool_choice = ToolChoice::Required;
    let server = Server::with_answer(sse(&[last(json!([{"text": "Yes."}]), "STOP")])).await;
    let model = model(&server, "gemini-3-flash").with_endpoint(|endpoint| {
        endpoint
            .with_field("labels", json!({"team": "a"}))
            .with_field("safetySettings", 1)
    });
    model.complete(request).await.unwrap();
    let body = server.last().body;
    assert_eq!(
        body["generationConfig"],
        json!({"temperature": 1, "thinkingConfig": {"thinkingLevel": "HIGH",
            "includeThoughts": false}, "topK": 40})
    );
    assert_eq!(
        body["tools"],
        json!([{"functionDeclarations": [{"name": "now"}]}, {"googleSearch": {}}])
    );
    let config =
        json!({"functionCallingConfig": {"mode": "ANY"}, "includeServerSideToolInvocations": true});
    assert_eq!(body["toolConfig"], config);
    assert_eq!(
        body["safetySettings"],
        json!([{"category": "C", "threshold": "T"}])
    );
    assert_eq!(body["labels"], json!({"team": "a"}));
}

#[tokio::test]
async fn media_is_sent_inline_or_by_url() {
    let mut film = Media::url("video/mp4", "https://youtu.be/x");
    film.opaque = Some(levity_core::ProviderState::new(
        "gemini",
        json!({"videoMetadata": {"fps": 1}}),
    ));
    let parts = [
        Part::text("What is this?"),
        Media::bytes("image/png", vec![251, 255]).into(),
        Media::bytes("audio/wav", vec![1]).into(),
        Media::bytes("application/pdf", vec![2]).into(),
        film.into(),
        Media::url("", "gs://bucket/file").into(),
        Media::url("image/gif", "data:image/jpeg;base64,/9j/").into(),
    ];
    let request = Request::new().with_message(Message::new(Role::User, parts));
    assert_eq!(
        body("gemini-2.5-flash", request).await["contents"][0]["parts"],
        json!([
            {"text": "What is this?"},
            {"inlineData": {"mimeType": "image/png", "data": "+/8="}},
            {"inlineData": {"mimeType": "audio/wav", "data": "AQ=="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "Ag=="}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/x"},
                "videoMetadata": {"fps": 1}},
            {"fileData": {"fileUri": "gs://bucket/file"}},
            {"inlineData": {"mimeType": "image/jpeg", "data": "/9j/"}},
        ])
    );
}

#[tokio::test]
async fn system_note_in_middle_is_sent_as_user_message() {
    let request = ask("Hello")
        .with_message(Message::assistant("Hi."))
        .with_message(Message::system("Be brief."));
    assert_eq!(
        body("gemini-2.5-flash", request).await["contents"],
        json!([
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "Hi."}]},
            {"role": "user", "parts": [{"text": "Be brief."}]},
        ])
    );
}

#[tokio::test]
async fn answer_schema_is_sent() {
    let schema = json!({"type": "object", "properties": {"n": {"const": 1}}});
    let request = ask("?").with_output(OutputSchema::new("sum", schema.clone()));
    let held = json!({
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object",
            "properties": {"n": {"type": "integer", "enum": [1]}}},
    });
    assert_eq!(
        body("gemini-2.5-flash", request.clone()).await["generationConfig"],
        held
    );
    // Only newer models support both, so others get instructions.
    let request = request.with_tools([weather()]).with_system("Be brief.");
    assert_eq!(
        body("gemini-3-pro-preview", request.clone()).await["generationConfig"],
        held
    );
    let older_body = body("gemini-2.5-flash", request).await;
    assert_eq!(older_body["generationConfig"], Value::Null);
    let system = older_body["systemInstruction"]["parts"][0]["text"]
        .as_str()
        .unwrap();
    assert!(
        system.starts_with("Be brief.\n\n") && system.ends_with(&schema.to_string()),
        "{system}"
    );
}

#[tokio::test]
async fn message_is_encoded_once() {
    let server = Server::with_answer(sse(&[last(json!([{"text": "Yes."}]), "STOP")])).await;
    let request = ask("Hello");
    let model = model(&server, "gemini-2.5-flash");
    model.complete(request.clone()).await.unwrap();
    let encoded_message = request
        .history
        .encoded(0, "gemini", || panic!("it was written already"));
    assert_eq!(
        &*encoded_message,
        br#"{"role":"user","parts":[{"text":"Hello"}]}"#
    );
}

#[tokio::test]
async fn empty_texts_are_omitted() {
    let user = Message::new(Role::User, [Part::text(""), Part::text("Go.")]);
    let request = Request::new()
        .with_message(Message::user(""))
        .with_message(user);
    let body = sent("gemini-2.5-flash", request).await.body;
    assert_eq!(
        body["contents"],
        json!([{"role": "user", "parts": [{"text": "Go."}]}])
    );
}

#[tokio::test]
async fn address_with_version_is_accepted() {
    let server = Server::with_answer(sse(&[last(json!([{"text": "Yes."}]), "STOP")])).await;
    let there = |_| Endpoint::new(format!("{}/v1beta/", server.url()));
    let model = GeminiModel::new("AIza-secret", "gemini-2.5-flash").with_endpoint(there);
    model.complete(ask("?")).await.unwrap();
    assert_eq!(
        server.last().line,
        "POST /v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    );
}
