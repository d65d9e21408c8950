//! Cache marks, and the end of streams.

use super::*;

#[tokio::test]
async fn request_has_at_most_four_cache_marks() {
    let mark = json!({"type": "ephemeral"});
    let block = |text: &str| json!({"type": "text", "text": text, "cache_control": mark});
    let system = |count: usize| extra("system", (0..count).map(|_| block("Be brief.")).collect());
    let history = after(Arc::new(Message::new(
        Role::Assistant,
        [Part::ToolCall(ToolCall::new("t1", "add", json!({})))],
    )));
    let plain = Request::new()
        .with_system("Be brief.")
        .with_history(history)
        .with_tools([tool("add")]);
    let marks = |body: &Value| body.to_string().matches("\"cache_control\"").count();
    let cases = [
        (plain.clone(), 4),
        (plain.clone().with_options(system(1)), 1),
        (plain.clone().with_options(system(2)), 2),
        (plain.clone().with_options(system(4)), 4),
        (
            plain
                .clone()
                .with_options(extra("cache_control", mark.clone())),
            1,
        ),
        (
            plain.clone().with_options(extra(
                "tools",
                json!([{"type": "web_search_20250305", "name": "s", "cache_control": mark}]),
            )),
            1,
        ),
        (
            plain.clone().with_options(extra(
                "messages",
                json!([{"role": "user", "content": [block("a"), block("b")]}]),
            )),
            2,
        ),
    ];
    for (request, expected) in cases {
        let request = request.with_message(Message::user("And?"));
        let body = sent(wire("anthropic"), "claude-sonnet-4-5", request).await;
        assert_eq!(marks(&body), expected, "{body}");
    }
    // The same holds for marks that are set for every request.
    let server = Server::with_answer((wire("anthropic").ok)()).await;
    let field = json!([block("a"), block("b")]);
    let model = anthropic(server.url(), "claude-sonnet-4-5")
        .with_endpoint(|endpoint| endpoint.with_field("system", field));
    model.complete(plain).await.unwrap();
    assert_eq!(marks(&server.last().body), 2);
}

#[tokio::test]
async fn trailing_usage_after_text_ends_chat_stream() {
    let counts = || json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}});
    let said = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let stop = || json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let filter = || json!({"choices": [], "prompt_filter_results": []});
    let cases = [
        (vec![counts(), said("Half")], false),
        (vec![counts()], false),
        (vec![said(""), counts()], false),
        (vec![said("Half"), counts(), said(" of it")], false),
        (vec![filter(), counts(), said("Half")], false),
        (vec![said("Half")], false),
        (vec![said("All"), counts()], true),
        (vec![said("All"), counts(), filter()], true),
        (vec![counts(), said("All"), counts()], true),
        (vec![counts(), said("All"), stop()], true),
    ];
    for (chunks, whole) in cases {
        let server = Server::with_answer(events(&chunks)).await;
        let reply = ChatModel::compatible(server.url(), "small")
            .complete(ask())
            .await;
        match reply {
            Ok(reply) => assert!(whole, "{chunks:?} is a whole reply: {reply:?}"),
            Err(error) => assert_eq!(
                (whole, error.kind()),
                (false, ModelErrorKind::Transport),
                "{chunks:?}"
            ),
        }
    }
}
