//! What is sent.

use std::sync::Arc;

use levity_core::{
    Content, History, Media, Message, Model as _, ModelErrorKind, Options, OutputSchema, Part,
    ProviderState, Request, Role, ThinkingMode, ToolCall, ToolChoice, ToolError, ToolOutput,
    ToolResult, ToolSpec,
};
use levity_llm::{ChatModel, Endpoint};
use serde_json::{Value, json};

use super::{STREAM, asked};
use crate::server::{Answer, Server};

async fn sent_by(make: impl FnOnce(&str) -> ChatModel, request: Request) -> Value {
    let server = Server::saying(Answer::sse(STREAM)).await;
    make(server.url()).complete(request).await.unwrap();
    server.last().body
}

async fn sent(request: Request) -> Value {
    sent_by(|url| ChatModel::compatible(url, "small"), request).await
}

fn openai(url: &str) -> ChatModel {
    ChatModel::openai("sk-1", "large").with_endpoint(|_| Endpoint::new(url))
}

/// The messages of a conversation in which the model replied with this.
async fn messages(parts: impl IntoIterator<Item = Part>) -> Value {
    let request = Request::new().with_message(Message::new(Role::Assistant, parts));
    sent(request).await["messages"].clone()
}

fn thought(field: &str, text: &str) -> Part {
    let mut thought = Part::thinking(text);
    thought.set_opaque(ProviderState::new("openai_chat", json!({ "field": field })));
    thought
}

#[tokio::test]
async fn options_and_tools() {
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
    let request = asked().with_options(options.clone());
    let body = sent(request.clone()).await;
    let plain = |body: &Value, name: &str| body.get(name).cloned();
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}])
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
    // A field of one's own stands in place of another, once.
    options.extra.insert("temperature".into(), json!(1));
    options.extra.insert("stop".into(), json!([]));
    let text = serde_json::to_string(&sent(asked().with_options(options)).await).unwrap();
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
async fn tools_are_chosen() {
    for (choice, expected) in [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (
            ToolChoice::Tool("add".into()),
            json!({"type": "function", "function": {"name": "add"}}),
        ),
    ] {
        let mut request = asked();
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
async fn keys_go_where_the_server_looks_for_them() {
    let server = Server::saying(Answer::sse(STREAM)).await;
    ChatModel::azure(server.url(), "az-key", "mine")
        .complete(asked())
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(seen.line, "POST /openai/v1/chat/completions");
    assert_eq!(
        (seen.header("api-key"), seen.header("authorization")),
        ("az-key", "")
    );
    assert_eq!(seen.body["model"], "mine");
    openai(server.url()).complete(asked()).await.unwrap();
    assert_eq!(server.last().header("authorization"), "Bearer sk-1");
    ChatModel::compatible(server.url(), "small")
        .complete(asked())
        .await
        .unwrap();
    assert_eq!(server.last().header("authorization"), "");
}

#[tokio::test]
async fn a_shape_is_strict_where_it_can_be() {
    let closed = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let open = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}});
    let format = async |make: fn(&str) -> ChatModel, name: &str, schema: &Value| {
        let request = asked().with_output(OutputSchema::new(name, schema.clone()));
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
async fn notes_stand_where_they_were_made() {
    let request = asked()
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
async fn texts_are_texts_and_empty_ones_are_left_out() {
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
async fn every_kind_of_media_has_its_part() {
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
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AQ=="}}),
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
        let server = Server::saying(Answer::sse(STREAM)).await;
        let request = with(media);
        // The same history is asked about by both, one after the other.
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
async fn words_stand_for_what_a_tool_shows_and_is_not_taken() {
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
    let sound = "(a sound of type audio/wav, 1 bytes, which this model cannot take)";
    let film = "(a film of type video/mp4, at https://a.example/b, which this model cannot take)";
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

    // Other servers take more or less, and say so themselves.
    let messages = sent(answered(both)).await["messages"].clone();
    assert_eq!(messages[2]["content"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_reply_that_says_nothing_is_left_out() {
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
        with(vec![thought("reasoning_content", "Hm.")]).await,
        json!([thoughtful, user])
    );
}

#[tokio::test]
async fn thoughts_go_back_under_their_name() {
    assert_eq!(
        messages([
            thought("reasoning_content", "Hm. "),
            thought("reasoning_content", "So."),
            Part::text("a")
        ])
        .await,
        json!([{"role": "assistant", "content": "a", "reasoning_content": "Hm. So."}])
    );
    assert_eq!(
        messages([thought("reasoning", "Hm."), Part::text("a")]).await,
        json!([{"role": "assistant", "content": "a", "reasoning": "Hm."}])
    );
    let part = json!({"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]});
    assert_eq!(
        messages([thought("content", "Hm."), Part::text("a")]).await,
        json!([{"role": "assistant", "content": [part, {"type": "text", "text": "a"}]}])
    );
    assert_eq!(
        messages([thought("tags", "Hm."), Part::text("a")]).await,
        json!([{"role": "assistant", "content": "<think>Hm.</think>\n\na"}])
    );
    let mut foreign = Part::thinking("Hm.");
    foreign.set_opaque(ProviderState::new("anthropic", json!({"signature": "s"})));
    assert_eq!(
        messages([foreign, Part::text("a")]).await,
        json!([{"role": "assistant", "content": "a"}])
    );
    // Not to OpenAI, nor where it was asked not to.
    let reply = || {
        Message::new(
            Role::Assistant,
            [thought("reasoning", "Hm."), Part::text("a")],
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
async fn a_whole_exchange_goes_back() {
    let detail = json!({"type": "reasoning.text", "text": "Hm.", "signature": "s1=", "index": 0});
    let call = |id: &str| json!({"index": id, "id": id, "function": {"name": "look", "arguments": "{\"at\": \"<b>\"}"}, "extra_content": {"google": {"s": id}}});
    let delta = json!({"reasoning": "Hm.", "reasoning_details": [detail], "content": "I look.", "tool_calls": [call("1"), call("2")]});
    let stream = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"delta": delta}]})
    );
    let server = Server::saying(Answer::sse(stream)).await;
    let model = ChatModel::compatible(server.url(), "small");
    let reply = model.complete(asked()).await.unwrap();
    let mut history = History::new();
    history.say(Message::user("Look.")).unwrap();
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
        json!({"id": id, "type": "function", "function": function, "extra_content": {"google": {"s": id}}})
    };
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}});
    let expected = json!([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "reasoning": "Hm.", "reasoning_details": [detail], "tool_calls": [back("1"), back("2")]},
        {"role": "tool", "tool_call_id": "1", "content": "It is shown in the next message."},
        {"role": "tool", "tool_call_id": "2", "content": "nothing there"},
        {"role": "user", "content": [image]},
    ]);
    assert_eq!(server.last().body["messages"], expected);
    // Encoded once, and the same for ever.
    model.complete(request).await.unwrap();
    assert_eq!(server.last().body["messages"], expected);
}

#[tokio::test]
async fn calls_go_back_as_they_were_written() {
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
async fn thoughts_are_looked_for_in_the_text_where_asked() {
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
        let reply = model.complete(asked()).await.unwrap();
        assert_eq!(
            (&*reply.message.thinking(), &*reply.message.text()),
            ("Hm.", "Seven")
        );
    }
}

#[tokio::test]
async fn a_made_picture_is_shown_by_the_user() {
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
async fn a_tool_is_offered_as_it_was_written() {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "$defs": {}});
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
async fn openai_is_asked_in_words_for_an_answer_that_is_no_object() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let request = || asked().with_output(OutputSchema::new("names", list.clone()));
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
