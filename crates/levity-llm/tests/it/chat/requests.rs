//! Requests as they are sent.

use std::sync::Arc;

use levity_core::{
    Content, History, Media, Message, Model as _, ModelErrorKind, Options, OutputSchema, Part,
    ProviderState, Request, Role, ThinkingMode, ToolCall, ToolChoice, ToolError, ToolOutput,
    ToolResult, ToolSpec,
};
use levity_llm::{ChatModel, Endpoint};
use serde_json::{Value, json};

use super::{STREAM, sample_request};
use crate::server::{Answer, Server};

async fn sent_by(make: impl FnOnce(&str) -> ChatModel, request: Request) -> Value {
    let server = Server::with_answer(Answer::sse(STREAM)).await;
    make(server.url()).complete(request).await.unwrap();
    server.last().body
}

async fn sent(request: Request) -> Value {
    sent_by(|url| ChatModel::compatible(url, "small"), request).await
}

fn openai(url: &str) -> ChatModel {
    ChatModel::openai("sk-1", "large").with_endpoint(|_| Endpoint::new(url))
}

/// Returns the messages of a conversation with this reply of the model.
async fn messages(parts: impl IntoIterator<Item = Part>) -> Value {
    let request = Request::new().with_message(Message::new(Role::Assistant, parts));
    sent(request).await["messages"].clone()
}

fn thinking_part(field: &str, text: &str) -> Part {
    let mut thinking_part = Part::thinking(text);
    thinking_part.set_opaque(ProviderState::new("openai_chat", json!({ "field": field })));
    thinking_part
}

#[tokio::test]
async fn options_and_tools_are_sent() {
    let mut options = Options::new();
    options.temperature = Some(0.5);
    options.top_p = Some(0.25);
    options.max_tokens = Some(64);
    options.seed = Some(7);
    options.stop = vec!["END".into()];
    options.thinking = Some(ThinkingMode::Medium);
    options
        .extra
        .insert("parallel_tool_calls".into(), json!(false));
    let request = sample_request().with_options(options.clone());
    let body = sent(request.clone()).await;
    let plain = |body: &Value, name: &str| body.get(name).cloned();
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": {"name": "add", "description": "Adds.",
            "parameters": {"type": "object", "properties": {}}}}])
    );
    for (name, value) in [
        ("temperature", json!(0.5)),
        ("top_p", json!(0.25)),
        ("max_tokens", json!(64)),
        ("seed", json!(7)),
        ("stop", json!(["END"])),
        ("reasoning_effort", json!("medium")),
        ("parallel_tool_calls", json!(false)),
    ] {
        assert_eq!(plain(&body, name), Some(value), "{name}");
    }
    assert_eq!(plain(&body, "tool_choice"), None);
    let body = sent_by(openai, request).await;
    assert_eq!(
        (
            plain(&body, "max_completion_tokens"),
            plain(&body, "max_tokens")
        ),
        (Some(json!(64)), None)
    );
    // A user's field replaces the standard one, without a duplicate.
    options.extra.insert("temperature".into(), json!(1));
    options.extra.insert("stop".into(), json!([]));
    let text = serde_json::to_string(&sent(sample_request().with_options(options)).await).unwrap();
    assert_eq!(
        (
            text.matches("\"temperature\":1").count(),
            text.matches("temperature").count()
        ),
        (1, 1)
    );
    assert!(text.contains("\"stop\":[]"));
}

#[tokio::test]
async fn tool_choice_is_sent() {
    for (choice, expected) in [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (
            ToolChoice::Tool("add".into()),
            json!({"type": "function", "function": {"name": "add"}}),
        ),
    ] {
        let mut request = sample_request();
        request.tool_choice = choice;
        assert_eq!(sent(request.clone()).await["tool_choice"], expected);
        request.tools = Arc::new([]);
        assert_eq!(
            sent(request).await.get("tool_choice"),
            None,
            "there is nothing to choose from"
        );
    }
}

#[tokio::test]
async fn key_is_sent_in_configured_header() {
    let server = Server::with_answer(Answer::sse(STREAM)).await;
    ChatModel::azure(server.url(), "az-key", "mine")
        .complete(sample_request())
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(seen.line, "POST /openai/v1/chat/completions");
    assert_eq!(
        (seen.header("api-key"), seen.header("authorization")),
        ("az-key", "")
    );
    assert_eq!(seen.body["model"], "mine");
    openai(server.url())
        .complete(sample_request())
        .await
        .unwrap();
    assert_eq!(server.last().header("authorization"), "Bearer sk-1");
    ChatModel::compatible(server.url(), "small")
        .complete(sample_request())
        .await
        .unwrap();
    assert_eq!(server.last().header("authorization"), "");
}

#[tokio::test]
async fn schema_is_strict_if_possible() {
    let closed = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false});
    let open = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}});
    let format = async |make: fn(&str) -> ChatModel, name: &str, schema: &Value| {
        let request = sample_request().with_output(OutputSchema::new(name, schema.clone()));
        sent_by(make, request).await["response_format"]["json_schema"].clone()
    };
    assert_eq!(
        format(openai, "sum", &closed).await,
        json!({"name": "sum", "schema": closed, "strict": true})
    );
    assert_eq!(
        format(openai, "", &open).await,
        json!({"name": "answer", "schema": open})
    );
    let compatible = |url: &str| ChatModel::compatible(url, "small");
    assert_eq!(
        format(compatible, "sum", &closed).await,
        json!({"name": "sum", "schema": closed})
    );
}

#[tokio::test]
async fn system_notes_keep_their_position() {
    let request = sample_request()
        .with_message(Message::system("Hurry."))
        .with_message(Message::user("Well?"));
    let messages = sent(request).await["messages"].clone();
    assert_eq!(
        (&messages[2], &messages[3]),
        (
            &json!({"role": "system", "content": "Hurry."}),
            &json!({"role": "user", "content": "Well?"})
        )
    );
}

#[tokio::test]
async fn text_parts_are_merged_and_empty_ones_omitted() {
    let said = async |parts: Vec<Part>| {
        let request = Request::new().with_message(Message::new(Role::User, parts));
        sent(request).await["messages"][0]["content"].clone()
    };
    let picture = || Part::Media(Media::url("image/png", "https://a.example/b.png"));
    let shown = json!({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}});
    assert_eq!(
        said(vec![Part::text("a"), Part::text("b")]).await,
        json!("ab")
    );
    assert_eq!(said(vec![]).await, json!(""));
    assert_eq!(said(vec![picture(), Part::text("")]).await, json!([shown]));
    assert_eq!(
        said(vec![Part::text("a"), picture()]).await,
        json!([{"type": "text", "text": "a"}, shown])
    );
    let own = json!({"type": "file_url", "file_url": {"url": "https://a.example/c.docx"}});
    let parts = [
        ProviderState::new("openai_chat", own.clone()),
        ProviderState::new("gemini", json!({})),
    ]
    .map(Part::Opaque);
    assert_eq!(
        said([vec![Part::text("a")], parts.to_vec()].concat()).await,
        json!([{"type": "text", "text": "a"}, own])
    );
}

#[tokio::test]
async fn every_media_kind_has_matching_part() {
    let with =
        |media: Media| Request::new().with_message(Message::new(Role::User, [Part::Media(media)]));
    let mut named = Media::bytes("application/pdf", vec![1]);
    named.name = Some("a.pdf".into());
    let url = "https://a.example/b";
    for (media, expected, everywhere) in [
        (
            Media::bytes("image/jpeg", vec![255, 0]),
            json!({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/wA="}}),
            true,
        ),
        (
            Media::bytes("audio/mpeg", vec![1]),
            json!({"type": "input_audio", "input_audio": {"data": "AQ==", "format": "mp3"}}),
            true,
        ),
        (
            Media::bytes("audio/x-wav", vec![1]),
            json!({"type": "input_audio", "input_audio": {"data": "AQ==", "format": "wav"}}),
            true,
        ),
        (
            named,
            json!({"type": "file", "file": {"filename": "a.pdf",
                "file_data": "data:application/pdf;base64,AQ=="}}),
            true,
        ),
        (
            Media::bytes("video/mp4", vec![1]),
            json!({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AQ=="}}),
            false,
        ),
        (
            Media::url("video/mp4", url),
            json!({"type": "video_url", "video_url": {"url": url}}),
            false,
        ),
        (
            Media::url("audio/wav", url),
            json!({"type": "audio_url", "audio_url": {"url": url}}),
            false,
        ),
        (
            Media::url("application/pdf", url),
            json!({"type": "file", "file": {"filename": "file", "file_data": url}}),
            false,
        ),
    ] {
        let server = Server::with_answer(Answer::sse(STREAM)).await;
        let request = with(media);
        // Both models get the same history, one after the other.
        let refused = openai(server.url()).complete(request.clone()).await;
        assert_eq!(
            sent(request).await["messages"][0]["content"],
            json!([expected])
        );
        match refused {
            Ok(_) => assert!(everywhere, "{expected}"),
            Err(error) => {
                assert_eq!(
                    (error.kind(), everywhere),
                    (ModelErrorKind::BadRequest, false),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn unsupported_media_in_tool_result_becomes_text() {
    let call = ToolCall::new("c1", "record", json!({}));
    let answered = |media: Vec<Media>| {
        let mut history = History::new();
        let reply = Message::new(Role::Assistant, [Part::ToolCall(call.clone())]);
        let mut exchange = history.open(reply.into()).unwrap();
        let output = media
            .into_iter()
            .fold(ToolOutput::default(), ToolOutput::with_media);
        exchange.answer(ToolResult::new(&call, Ok(output))).unwrap();
        history.close(exchange, &ToolError::failed("unused"));
        Request::new().with_history(history)
    };
    let sound = "(a sound of type audio/wav, 1 bytes, which this model cannot accept)";
    let film =
        "(a video of type video/mp4, at https://a.example/b, which this model cannot accept)";
    let both = vec![
        Media::bytes("audio/wav", vec![1]),
        Media::url("video/mp4", "https://a.example/b"),
    ];
    let messages = sent_by(openai, answered(both.clone())).await["messages"].clone();
    let expected =
        json!({"role": "tool", "tool_call_id": "c1", "content": format!("{sound}\n{film}")});
    assert_eq!(
        (&messages[1], messages.as_array().unwrap().len()),
        (&expected, 2)
    );

    let with_image = vec![both[0].clone(), Media::bytes("image/png", vec![1])];
    let messages = sent_by(openai, answered(with_image)).await["messages"].clone();
    assert_eq!(
        messages[1]["content"],
        format!("It is shown in the next message.\n{sound}")
    );
    assert_eq!(messages[2]["content"].as_array().unwrap().len(), 1);

    // Other servers accept more or less, and report it themselves.
    let messages = sent(answered(both)).await["messages"].clone();
    assert_eq!(messages[2]["content"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn empty_reply_is_omitted() {
    let user = json!({"role": "user", "content": "Well?"});
    let with = async |parts: Vec<Part>| {
        let reply = Message::new(Role::Assistant, parts);
        sent(
            Request::new()
                .with_message(reply)
                .with_message(Message::user("Well?")),
        )
        .await["messages"]
            .clone()
    };
    assert_eq!(with(vec![]).await, json!([user]));
    assert_eq!(with(vec![Part::text("")]).await, json!([user]));
    assert_eq!(
        with(vec![Part::thinking("of somebody else's")]).await,
        json!([user])
    );
    let thoughtful = json!({"role": "assistant", "content": "", "reasoning_content": "Hm."});
    assert_eq!(
        with(vec![thinking_part("reasoning_content", "Hm.")]).await,
        json!([thoughtful, user])
    );
}

#[tokio::test]
async fn reasoning_returns_in_its_field() {
    assert_eq!(
        messages([
            thinking_part("reasoning_content", "Hm. "),
            thinking_part("reasoning_content", "So."),
            Part::text("a")
        ])
        .await,
        json!([{"role": "assistant", "content": "a", "reasoning_content": "Hm. So."}])
    );
    assert_eq!(
        messages([thinking_part("reasoning", "Hm."), Part::text("a")]).await,
        json!([{"role": "assistant", "content": "a", "reasoning": "Hm."}])
    );
    let part = json!({"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]});
    assert_eq!(
        messages([thinking_part("content", "Hm."), Part::text("a")]).await,
        json!([{"role": "assistant", "content": [part, {"type": "text", "text": "a"}]}])
    );
    assert_eq!(
        messages([thinking_part("tags", "Hm."), Part::text("a")]).await,
        json!([{"role": "assistant", "content": "<think>Hm.</think>\n\na"}])
    );
    let mut foreign = Part::thinking("Hm.");
    foreign.set_opaque(ProviderState::new("anthropic", json!({"signature": "s"})));
    assert_eq!(
        messages([foreign, Part::text("a")]).await,
        json!([{"role": "assistant", "content": "a"}])
    );
    // They are not sent to OpenAI, nor if the option disables it.
    let reply = || {
        Message::new(
            Role::Assistant,
            [thinking_part("reasoning", "Hm."), Part::text("a")],
        )
    };
    let bare = json!([{"role": "assistant", "content": "a"}]);
    let request = Request::new().with_message(reply());
    assert_eq!(
        sent(request.clone()).await["messages"][0]["reasoning"],
        "Hm."
    );
    let without = |url: &str| ChatModel::compatible(url, "small").without_thoughts();
    assert_eq!(sent_by(without, request.clone()).await["messages"], bare);
    assert_eq!(
        sent_by(|url| openai(url).without_thoughts(), request.clone()).await["messages"],
        bare
    );
    assert_eq!(sent_by(openai, request).await["messages"], bare);
}

#[tokio::test]
async fn whole_exchange_is_sent_back() {
    let detail = json!({"type": "reasoning.text", "text": "Hm.", "signature": "s1=", "index": 0});
    let call = |id: &str| {
        json!({"index": id, "id": id,
        "function": {"name": "look", "arguments": "{\"at\": \"<b>\"}"},
        "extra_content": {"google": {"s": id}}})
    };
    let delta = json!({"reasoning": "Hm.", "reasoning_details": [detail], "content": "I look.",
        "tool_calls": [call("1"), call("2")]});
    let stream = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"delta": delta}]})
    );
    let server = Server::with_answer(Answer::sse(stream)).await;
    let model = ChatModel::compatible(server.url(), "small");
    let reply = model.complete(sample_request()).await.unwrap();
    let mut history = History::new();
    history.push(Message::user("Look.")).unwrap();
    let mut exchange = history.open(reply.message).unwrap();
    let mut output = ToolOutput::text("");
    output.content = vec![Content::Media(Media::bytes("image/png", vec![1]))];
    let calls: Vec<ToolCall> = exchange.reply().calls().cloned().collect();
    exchange
        .answer(ToolResult::new(&calls[0], Ok(output)))
        .unwrap();
    exchange
        .answer(ToolResult::new(
            &calls[1],
            Err(ToolError::failed("nothing there")),
        ))
        .unwrap();
    history.close(exchange, &ToolError::failed("not needed"));
    let request = Request::new().with_history(history);
    model.complete(request.clone()).await.unwrap();
    let back = |id: &str| {
        let function = json!({"name": "look", "arguments": "{\"at\":\"<b>\"}"});
        json!({"id": id, "type": "function", "function": function,
            "extra_content": {"google": {"s": id}}})
    };
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}});
    let expected = json!([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "reasoning": "Hm.",
            "reasoning_details": [detail], "tool_calls": [back("1"), back("2")]},
        {"role": "tool", "tool_call_id": "1", "content": "It is shown in the next message."},
        {"role": "tool", "tool_call_id": "2", "content": "nothing there"},
        {"role": "user", "content": [image]},
    ]);
    assert_eq!(server.last().body["messages"], expected);
    // The message is encoded once, and stays the same.
    model.complete(request).await.unwrap();
    assert_eq!(server.last().body["messages"], expected);
}

#[tokio::test]
async fn calls_return_as_written() {
    let mut history = History::new();
    let calls = [
        ToolCall::from_text("c1", "f", "{\"a\": "),
        ToolCall::new("c2", "f", json!({})),
    ];
    let exchange = history
        .open(Message::new(Role::Assistant, calls.map(Part::ToolCall)).into())
        .unwrap();
    history.close(exchange, &ToolError::failed("no JSON"));
    let reply = sent(Request::new().with_history(history)).await["messages"][0].clone();
    assert_eq!(reply["content"], Value::Null);
    let arguments: Vec<_> = reply["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["function"]["arguments"].clone())
        .collect();
    assert_eq!(arguments, ["{\"a\": ", "{}"]);
}

#[tokio::test]
async fn reasoning_in_text_is_extracted_if_enabled() {
    let chunk = |text: &str| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": {"content": text}}]})
        )
    };
    let stream = ["<thi", "nk>Hm.", "</think>\n\nSev", "en"]
        .map(chunk)
        .concat()
        + "data: [DONE]\n\n";
    let whole =
        json!({"choices": [{"message": {"content": "<think>Hm.</think>\n\nSeven"}}]}).to_string();
    let server = Server::start([Answer::sse(stream), Answer::json(200, whole)]).await;
    let model = ChatModel::compatible(server.url(), "small").with_think_tags();
    for model in [model.clone(), model.without_streaming()] {
        let reply = model.complete(sample_request()).await.unwrap();
        assert_eq!(
            (&*reply.message.thinking(), &*reply.message.text()),
            ("Hm.", "Seven")
        );
    }
}

#[tokio::test]
async fn generated_image_is_sent_as_user_message() {
    let image = Media::bytes("image/png", vec![1]);
    let shown = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}});
    assert_eq!(
        messages([Part::text("Here."), Part::Media(image.clone())]).await,
        json!([{"role": "assistant", "content": "Here."}, {"role": "user", "content": [shown]}])
    );
    assert_eq!(
        messages([Part::Media(image)]).await,
        json!([{"role": "user", "content": [shown]}])
    );
}

#[tokio::test]
async fn tool_schema_is_sent_as_written() {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}},
        "$defs": {}});
    let tool = Arc::new(ToolSpec::new("count", "Counts.").with_input(input.clone()));
    let body = sent(
        Request::new()
            .with_message(Message::user("Go."))
            .with_tools([tool]),
    )
    .await;
    assert_eq!(body["tools"][0]["function"]["parameters"], input);
}

#[tokio::test]
async fn non_object_schema_becomes_instructions_for_openai() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let request = || sample_request().with_output(OutputSchema::new("names", list.clone()));
    let body = sent_by(openai, request()).await;
    assert!(body.get("response_format").is_none(), "{body}");
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.starts_with("Be brief.") && system.contains(&list.to_string()),
        "{system}"
    );
    assert_eq!(
        sent(request()).await["response_format"]["json_schema"]["schema"],
        list
    );
}
