//! Text that arrives with provider state.

use super::*;

/// Returns the streamed text, the streamed reasoning, and the whole reply.
async fn stream_parts(model: &dyn Model) -> (String, String, Response) {
    let mut deltas = model.stream(ask()).await.unwrap();
    let (mut text, mut thoughts, mut fold) = (String::new(), String::new(), Fold::new());
    while let Some(delta) = deltas.next().await {
        let delta = delta.unwrap();
        match &delta {
            Delta::Text(more) => text.push_str(more),
            Delta::Thinking(more) => thoughts.push_str(more),
            _ => {}
        }
        fold.push(delta).unwrap();
    }
    (text, thoughts, fold.finish())
}

#[tokio::test]
async fn text_with_state_arrives_as_text_from_every_provider() {
    let signed = |text: &str, thought: bool| {
        json!({"text": text, "thoughtSignature": "S",
        "thought": thought})
    };
    let message = |id: &str, text: &str| {
        json!({"type": "message", "id": id, "role": "assistant", "content": [
            {"type": "output_text", "text": text}, {"type": "refusal", "refusal": " No."}]})
    };
    let reasoning = json!({"type": "reasoning", "id": "rs", "encrypted_content": "E",
        "summary": [{"type": "summary_text", "text": "Hm."}]});
    let completed = |output: Value| {
        json!({"type": "response.completed",
        "response": {"status": "completed", "output": output}})
    };
    let said = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let replies = [
        (
            "gemini",
            gemini_reply(
                &json!([{"text": "One, "}, signed("two, ", false), {"text": "three."},
                    signed("", false)]),
            ),
        ),
        (
            "gemini",
            gemini_reply(&json!([
                signed("Hm.", true),
                signed("Hm!", true),
                signed("One", false),
                signed("two", false)
            ])),
        ),
        (
            "responses",
            responses_reply(&json!([
                reasoning,
                message("m1", "One."),
                message("m2", "Two.")
            ])),
        ),
        (
            "responses",
            events(&[
                json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
                json!({"type": "response.output_text.delta", "output_index": 1, "item_id": "m1",
                    "delta": "One."}),
                json!({"type": "response.output_item.done", "output_index": 1,
                    "item": message("m1", "One.")}),
                completed(json!([
                    reasoning,
                    message("m1", "One."),
                    message("m2", "Two.")
                ])),
            ]),
        ),
        (
            "anthropic",
            Answer::json(
                200,
                json!({"stop_reason": "end_turn", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
                    {"type": "thinking", "thinking": "Hm!", "signature": "s2"},
                    {"type": "text", "text": "One "},
                    {"type": "text", "text": "two", "citations": [{"type": "page_location"}]},
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                    {"type": "text", "text": "three"},
                ]})
                .to_string(),
            ),
        ),
        (
            "chat",
            events(&[
                said(json!({"reasoning_content": "Hm.",
                        "reasoning_details": [{"type": "reasoning.encrypted", "data": "E"}]})),
                said(json!({"content": "One "})),
                said(json!({"content": [{"type": "text", "text": "two"}]})),
                json!({"choices": [{"index": 0, "delta": {"refusal": " No."},
                    "finish_reason": "stop"}]}),
            ]),
        ),
        (
            "chat",
            chat_reply(&json!({"content": "One", "reasoning": "Hm.",
                    "extra_content": {"google": {"thought_signature": "S"}}})),
        ),
        (
            "ollama",
            Answer::lines(format!(
                "{}\n",
                json!({"message": {"content": "One", "thinking": "Hm."}, "done": true})
            )),
        ),
    ];
    for (at, (name, answer)) in replies.into_iter().enumerate() {
        let wire = wire(name);
        let server = Server::with_answer(answer).await;
        let (text, thoughts, reply) = stream_parts(&*(wire.model)(server.url(), wire.id)).await;
        assert!(!text.is_empty(), "{name} {at}");
        assert_eq!(
            (&*text, &*thoughts),
            (&*reply.message.text(), &*reply.message.thinking()),
            "{name} {at}"
        );
    }
}
