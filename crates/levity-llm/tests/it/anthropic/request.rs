//! Requests as they are sent.

use levity_core::{
    Message, Model as _, Part, ProviderState, Request, Role, Text, ToolCall, ToolChoice, ToolError,
    ToolOutput,
};
use levity_llm::{AnthropicModel, CacheTtl, Endpoint};
use serde_json::{Value, json};

use super::{OK, add, ask, content, conversation_with_call, model, sent, sent_by};
use crate::server::{Answer, Server};

const MARK: &str = "cache_control";

fn mark() -> Value {
    json!({"type": "ephemeral"})
}

#[tokio::test]
async fn request_has_headers_and_body() {
    let server = Server::with_answer(Answer::json(200, OK)).await;
    model(&server)
        .with_beta("one-2025")
        .with_beta("two-2025")
        .complete(ask())
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(seen.line, "POST /v1/messages");
    assert_eq!(seen.header("x-api-key"), "sk-ant-123");
    assert_eq!(seen.header("anthropic-version"), "2023-06-01");
    assert_eq!(seen.header("anthropic-beta"), "one-2025,two-2025");
    assert_eq!(
        seen.body,
        json!({
            "model": "claude-sonnet-4-5-next", "max_tokens": 8192, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Good morning"}]}],
        })
    );
}

#[tokio::test]
async fn address_with_version_and_missing_key_are_accepted() {
    let server = Server::with_answer(Answer::json(200, OK)).await;
    let local = AnthropicModel::new("", "qwen3").without_streaming();
    let local = local.with_endpoint(|_| Endpoint::new(format!("{}/v1/", server.url())));
    local.complete(ask()).await.unwrap();
    let seen = server.last();
    assert_eq!(
        (&*seen.line, seen.header("x-api-key")),
        ("POST /v1/messages", "")
    );
    assert!(
        !seen
            .headers
            .iter()
            .any(|(name, _)| name == "anthropic-beta" || name == "x-api-key")
    );
    assert!(seen.body.get("stream").is_none());
}

#[tokio::test]
async fn conversation_with_tools_is_sent_in_turns() {
    let call = ToolCall::new("toolu_1", "add", json!({"a": 2}));
    let failed = || Err(ToolError::failed("too large"));
    let mut history =
        conversation_with_call([Part::text("Let me see. "), Part::ToolCall(call)], failed);
    history.push(Message::user("Try again")).unwrap();
    let request = Request::new()
        .with_system("Be brief.")
        .with_history(history)
        .with_tools([add()]);
    let body = sent(request).await;
    assert_eq!(
        body["system"],
        json!([{"type": "text", "text": "Be brief.", MARK: mark()}])
    );
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    let tools =
        json!([{"name": "add", "description": "Adds.", "input_schema": schema, MARK: mark()}]);
    assert_eq!(body["tools"], tools);
    assert!(body.get("tool_choice").is_none());
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "What is 2+5?", MARK: mark()}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Let me see. "},
                {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "too large",
                    "is_error": true},
                {"type": "text", "text": "Try again", MARK: mark()},
            ]},
        ])
    );
}

#[tokio::test]
async fn cache_marks_move_without_reencoding() {
    let server = Server::with_answer(Answer::json(200, OK)).await;
    let mut request = ask()
        .with_message(Message::assistant("Hello"))
        .with_message(Message::user("How are you?"));
    model(&server).complete(request.clone()).await.unwrap();
    let kept = request
        .history
        .encoded(2, "anthropic", || panic!("it was not kept"));
    assert_eq!(&*kept, br#"{"type":"text","text":"How are you?"}"#);
    request = request
        .with_message(Message::assistant("Well"))
        .with_message(Message::user("And now?"));
    model(&server).complete(request).await.unwrap();
    let marked = |body: &Value| -> Vec<usize> {
        let messages = body["messages"].as_array().unwrap().iter().enumerate();
        messages
            .filter(|(_, message)| message["content"][0].get(MARK).is_some())
            .map(|(at, _)| at)
            .collect()
    };
    let seen = server.seen();
    assert_eq!(
        (marked(&seen[0].body), marked(&seen[1].body)),
        (vec![0, 2], vec![2, 4])
    );
}

#[tokio::test]
async fn cache_marks_are_configurable() {
    let request = || {
        ask()
            .with_message(Message::assistant("Hello"))
            .with_system("Be brief.")
            .with_tools([add()])
    };
    let lasting = sent_by(|model| model.with_cache_ttl(CacheTtl::OneHour), request()).await;
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    let places = [
        &lasting["system"][0],
        &lasting["tools"][0],
        &content(&lasting, 0)[0],
    ];
    assert!(places.iter().all(|place| place[MARK] == hour), "{lasting}");
    let none = sent_by(AnthropicModel::without_cache_marks, request()).await;
    assert!(!none.to_string().contains(MARK), "{none}");
    assert_eq!(none["system"], "Be brief.");

    let mut text = Text::new("Long");
    text.opaque = Some(ProviderState::new(
        "anthropic",
        json!({MARK: {"type": "ephemeral", "ttl": "1h"}}),
    ));
    let own = Request::new()
        .with_message(Message::new(Role::User, [Part::Text(text)]))
        .with_tools([add()]);
    assert_eq!(
        sent(own).await["messages"][0]["content"],
        json!([{"type": "text", "text": "Long", MARK: hour}])
    );
}

#[tokio::test]
async fn invalid_content_is_replaced_or_omitted() {
    let parts = [
        Part::text(" \n"),
        Part::ToolCall(ToolCall::from_text("call:1", "add", "{\"a\": ")),
        Part::ToolCall(ToolCall::new("call:2", "add", json!([1]))),
        Part::ToolCall(ToolCall::new("c3", "add", Value::Null)),
    ];
    let body = sent(
        Request::new().with_history(conversation_with_call(parts, || Ok(ToolOutput::text("")))),
    )
    .await;
    let calls = content(&body, 1);
    assert_eq!(calls.as_array().unwrap().len(), 3, "no empty text");
    assert_eq!(calls[0]["input"], json!({"INVALID_JSON": "{\"a\": "}));
    assert_eq!(calls[1]["input"], json!({"INVALID_JSON": "[1]"}));
    assert_eq!(calls[2]["input"], json!({}));
    let results = content(&body, 2).as_array().unwrap();
    for (call, result) in calls.as_array().unwrap().iter().zip(results) {
        let id = call["id"].as_str().unwrap();
        assert!(
            id.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'),
            "{id}"
        );
        assert_eq!(
            (result["tool_use_id"].as_str(), result.get("content")),
            (Some(id), None)
        );
    }
}

#[tokio::test]
async fn prefilled_reply_has_no_trailing_white_space() {
    let body = sent(ask().with_message(Message::assistant("It is \n"))).await;
    assert_eq!(
        content(&body, 1),
        &json!([{"type": "text", "text": "It is"}])
    );
    let passed = sent(
        ask()
            .with_message(Message::assistant("It is \n"))
            .with_message(Message::user("?")),
    )
    .await;
    assert_eq!(
        content(&passed, 1),
        &json!([{"type": "text", "text": "It is \n"}])
    );
}

#[tokio::test]
async fn foreign_provider_state_is_omitted() {
    let foreign = |data| ProviderState::new("gemini", data);
    let mut text = Text::new("Hello");
    text.opaque = Some(foreign(json!({"citations": [1]})));
    let mut thought = Part::thinking("Hm.");
    thought.set_opaque(foreign(json!({"signature": "abc"})));
    let block = Part::Opaque(foreign(json!({"type": "executableCode"})));
    let reply = Message::new(Role::Assistant, [thought, block, Part::Text(text)]);
    let body = sent(ask().with_message(reply).with_message(Message::user("?"))).await;
    assert_eq!(
        content(&body, 1),
        &json!([{"type": "text", "text": "Hello"}])
    );
}

#[tokio::test]
async fn system_notes_are_placed_where_api_accepts_them() {
    let request = || {
        let noted = Request::new()
            .with_message(Message::system("Before"))
            .with_message(Message::user("One"));
        let noted = noted
            .with_message(Message::system("First"))
            .with_message(Message::system("and more"));
        let noted = noted
            .with_message(Message::assistant("Two"))
            .with_message(Message::system("Not here"));
        let noted = noted
            .with_message(Message::user("Three"))
            .with_message(Message::system("Nor here"));
        noted
            .with_message(Message::user("Four"))
            .with_message(Message::system("Last"))
    };
    let roles = |body: &Value| -> Vec<String> {
        let roles = body["messages"].as_array().unwrap().iter();
        roles
            .map(|message| message["role"].as_str().unwrap().to_owned())
            .collect()
    };
    let old = sent(request()).await;
    assert_eq!(roles(&old), ["user", "assistant", "user"]);
    let new = sent_by(|model| model.with_generation(4, 8), request()).await;
    assert_eq!(
        roles(&new),
        ["user", "system", "assistant", "user", "system"]
    );
    assert_eq!(content(&new, 1).as_array().unwrap().len(), 2);
    let texts: Vec<_> = content(&new, 3)
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["text"])
        .collect();
    assert_eq!(texts, ["Not here", "Three", "Nor here", "Four"]);
}

#[tokio::test]
async fn tool_choice_is_sent() {
    let choices = [
        (ToolChoice::None, json!({"type": "none"})),
        (ToolChoice::Required, json!({"type": "any"})),
        (
            ToolChoice::Tool("add".into()),
            json!({"type": "tool", "name": "add"}),
        ),
    ];
    for (choice, expected) in choices {
        let mut request = ask().with_tools([add()]);
        request.tool_choice = choice.clone();
        assert_eq!(sent(request).await["tool_choice"], expected);
        let mut alone = ask();
        alone.tool_choice = choice;
        assert!(
            sent(alone).await.get("tool_choice").is_none(),
            "there are no tools"
        );
    }
}

#[tokio::test]
async fn foreign_ids_and_names_are_cleaned() {
    let ids = [
        "fc_1|rs/2".to_owned(),
        format!("{}a", "x".repeat(90)),
        format!("{}b", "x".repeat(90)),
    ];
    let names = ["functions.add", "", "add"];
    let calls = ids
        .iter()
        .zip(names)
        .map(|(id, name)| ToolCall::new(id.as_str(), name, json!({})));
    let history = conversation_with_call(calls.map(Part::ToolCall).collect::<Vec<_>>(), || {
        Ok(ToolOutput::text("7"))
    });
    let body = sent(Request::new().with_history(history)).await;
    let sent = |message, name: &str| -> Vec<String> {
        let blocks = content(&body, message).as_array().unwrap().iter();
        blocks
            .map(|block| block[name].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(sent(1, "name"), ["functions_add", "unnamed", "add"]);
    let ids = sent(1, "id");
    assert_eq!(ids, sent(2, "tool_use_id"));
    assert!(ids.iter().all(|id| id.len() <= 64), "{ids:?}");
    assert_ne!(ids[1], ids[2]);
}

#[tokio::test]
async fn user_cache_mark_disables_automatic_marks() {
    let mut marked = Text::new("Long.");
    marked.opaque = Some(ProviderState::new(
        "anthropic",
        json!({MARK: {"type": "ephemeral", "ttl": "1h"}}),
    ));
    let request = Request::new().with_system("Be brief.").with_tools([add()]);
    let request = request
        .with_message(Message::new(Role::User, [Part::Text(marked)]))
        .with_message(Message::assistant("Yes."))
        .with_message(Message::user("And?"));
    assert_eq!(
        sent(request.clone())
            .await
            .to_string()
            .matches(MARK)
            .count(),
        1
    );
    let mut options = levity_core::Options::new();
    options
        .extra
        .insert(MARK.to_owned(), json!({"type": "ephemeral", "ttl": "1h"}));
    let request = ask()
        .with_system("Be brief.")
        .with_tools([add()])
        .with_options(options);
    assert_eq!(sent(request).await.to_string().matches(MARK).count(), 1);
}

#[tokio::test]
async fn trailing_white_space_before_omitted_parts_is_trimmed() {
    let container = Part::Opaque(ProviderState::new("anthropic", json!({"container": "c1"})));
    let reply = Message::new(Role::Assistant, [Part::text("So "), container]);
    let body = sent(ask().with_message(reply)).await;
    assert_eq!(content(&body, 1), &json!([{"type": "text", "text": "So"}]));
}
