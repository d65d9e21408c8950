//! Paused turns, and replies without text.

use super::*;

#[tokio::test]
async fn paused_turn_is_continued_until_it_ends() {
    let call = json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search",
        "input": {"query": "x"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []});
    let reply = |content: Value, reason: &str| {
        let reply = json!({"content": content, "stop_reason": reason,
            "usage": {"input_tokens": 3, "output_tokens": 1}});
        Answer::json(200, reply.to_string())
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let server = Server::start([
        reply(json!([text("It is "), call]), "pause_turn"),
        reply(json!([found, text("very ")]), "pause_turn"),
        reply(json!([text("blue.")]), "end_turn"),
    ])
    .await;
    let model = anthropic(server.url(), "claude-sonnet-4-5");
    let agent = Agent::builder(model).max_turns(1).build().unwrap();
    let answer = agent.run("What colour?").await.unwrap();
    assert_eq!(answer.text(), "It is very blue.");
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    let last = seen[2].body["messages"].as_array().unwrap().clone();
    assert_eq!(last.len(), 2, "one question, and the turn so far: {last:?}");
    assert_eq!(last[1]["role"], "assistant");
    // The API rejects trailing white space.
    assert_eq!(
        last[1]["content"],
        json!([text("It is "), call, found, text("very")])
    );
}

#[tokio::test]
async fn paused_turn_without_end_fails_the_run() {
    let reply = json!({"content": [{"type": "text", "text": "Hm."}], "stop_reason": "pause_turn"});
    let server = Server::with_answer(Answer::json(200, reply.to_string())).await;
    let agent = Agent::builder(anthropic(server.url(), "claude-sonnet-4-5"))
        .build()
        .unwrap();
    let error = agent.run("What colour?").await.unwrap_err();
    assert!(
        error.to_string().contains("interrupted the turn 17 times"),
        "{error}"
    );
    assert_eq!(server.seen().len(), 17);
}

#[tokio::test]
async fn paused_call_is_omitted_before_user_message() {
    let opaque = |block: Value| Part::Opaque(ProviderState::new("anthropic", block));
    let paused =
        json!({"type": "server_tool_use", "id": "srv_2", "name": "web_search", "input": {}});
    let parts = [
        opaque(
            json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}),
        ),
        opaque(json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []})),
        Part::text("So far."),
        opaque(paused.clone()),
    ];
    let request = ask().with_message(Message::new(Role::Assistant, parts));
    let alone = Message::new(Role::Assistant, [opaque(paused)]);
    let content = |body: &Value| body["messages"][1]["content"].as_array().map(Vec::len);
    let body = sent(wire("anthropic"), "claude-sonnet-4-5", request.clone()).await;
    assert_eq!(content(&body), Some(4), "it is gone on with");
    let body = sent(
        wire("anthropic"),
        "claude-sonnet-4-5",
        request.with_message(Message::user("Stop.")),
    )
    .await;
    assert_eq!(content(&body), Some(3), "{body}");
    let request = ask()
        .with_message(alone)
        .with_message(Message::user("Stop."));
    let body = sent(wire("anthropic"), "claude-sonnet-4-5", request).await;
    assert_eq!(
        body["messages"].as_array().unwrap().len(),
        1,
        "nothing is left of it: {body}"
    );
}

#[tokio::test]
async fn reply_with_only_image_is_an_answer() {
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AQID"}});
    let shown = json!({"images": [{"type": "image_url",
        "image_url": {"url": "data:image/png;base64,AQID"}}]});
    let made = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed",
        "output_format": "webp",
        "result": "AQID"});
    for (name, answer, mime) in [
        ("gemini", gemini_reply(&json!([picture])), "image/png"),
        ("chat", chat_reply(&shown), "image/png"),
        ("responses", responses_reply(&json!([made])), "image/webp"),
    ] {
        let server = Server::with_answer(answer).await;
        let wire = wire(name);
        let agent = Agent::builder((wire.model)(server.url(), wire.id))
            .build()
            .unwrap();
        let answer = agent
            .run("Draw.")
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((answer.text(), server.seen().len()), ("", 1), "{name}");
        let last = answer.history().messages().last().unwrap().clone();
        let media = last.parts.iter().find_map(|part| match part {
            Part::Media(media) => Some(&*media.mime),
            _ => None,
        });
        assert_eq!(media, Some(mime), "{name}");
    }
}

#[tokio::test]
async fn image_of_hosted_tool_returns_as_item() {
    let made = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed",
        "result": "AQID"});
    let server = Server::with_answer(responses_reply(&json!([made]))).await;
    let model = responses(server.url(), "gpt-5");
    let reply = model.complete(ask()).await.unwrap();
    model
        .complete(Request::new().with_history(after(reply.message.clone())))
        .await
        .unwrap();
    assert_eq!(server.last().body["input"][1], made);
    // Other providers get it as a message of the user.
    let there = sent(
        wire("responses"),
        "gpt-5",
        Request::new().with_history(after(reply.message)),
    )
    .await;
    assert_eq!(there["input"][1]["role"], "user");
}

#[tokio::test]
async fn foreign_media_becomes_text_if_unsupported() {
    for mime in ["image/png", "audio/wav", "video/mp4", "application/zip"] {
        let shown = Message::new(
            Role::Assistant,
            [Part::Media(levity_core::Media::bytes(mime, vec![1, 2]))],
        );
        let request = ask()
            .with_message(shown)
            .with_message(Message::user("And?"));
        for wire in &WIRES {
            let body = sent(wire, wire.id, request.clone()).await.to_string();
            let told = body.contains(mime) || body.contains("AQI=");
            assert!(told, "{} is not told of {mime}: {body}", wire.name);
        }
        let server = Server::with_answer((wire("chat").ok)()).await;
        openai(server.url(), "gpt-5")
            .complete(request)
            .await
            .unwrap();
    }
}
