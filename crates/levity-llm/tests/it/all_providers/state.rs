//! Provider state in requests.

use super::*;

/// Returns replies with provider state in them, and the texts of that state.
fn stateful() -> Vec<(&'static str, Answer, Vec<&'static str>)> {
    let call = |id: &str| {
        json!({"type": "function_call", "id": id, "call_id": "call_1",
        "name": "add", "arguments": "{}"})
    };
    vec![
        (
            "responses",
            responses_reply(&json!([
                {"type": "reasoning", "id": "rs_1", "encrypted_content": "SEALED", "summary": []},
                {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                {"type": "message", "id": "msg_1",
                    "content": [{"type": "output_text", "text": "I look."}]},
                call("fc_1"),
            ])),
            vec!["rs_1", "SEALED", "ws_1", "msg_1", "fc_1"],
        ),
        (
            "gemini",
            gemini_reply(&json!([
                {"text": "Hm.", "thought": true},
                {"text": "I look.", "thoughtSignature": "SIGN-1"},
                {"executableCode": {"language": "PYTHON", "code": "CODE"}},
                {"functionCall": {"id": "fc-google", "name": "add", "args": {}},
                    "thoughtSignature": "SIGN-2"},
            ])),
            vec!["Hm.", "SIGN-1", "CODE", "fc-google", "SIGN-2"],
        ),
        (
            "anthropic",
            Answer::json(200, json!({"stop_reason": "tool_use", "container": {"id": "cont_1"},
                "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "SIGN"},
                {"type": "server_tool_use", "id": "srv_1", "name": "code_execution", "input": {}},
                {"type": "code_execution_tool_result", "tool_use_id": "srv_1", "content": {}},
                {"type": "text", "text": "I look.",
                    "citations": [{"type": "x", "encrypted_index": "INDEX"}]},
                {"type": "tool_use", "id": "t1", "name": "add", "input": {},
                    "caller": {"type": "direct", "tool_id": "CALLER"}},
            ]}).to_string()),
            vec!["cont_1", "SIGN", "srv_1", "INDEX", "CALLER"],
        ),
        (
            "chat",
            chat_reply(&json!({
                "content": "I look.", "reasoning_content": "Hm.",
                "reasoning_details": [{"type": "reasoning.encrypted", "data": "SEALED"}],
                "tool_calls": [{"id": "c1", "type": "function",
                    "function": {"name": "add", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "SIGN"}}}],
            })),
            vec!["Hm.", "SEALED", "SIGN"],
        ),
    ]
}

/// Creates a request that continues a conversation with this reply.
fn continue_with(reply: &Response) -> Request {
    // Containers are sent back only with tools of the provider.
    let hosted = extra("tools", json!([]));
    let request = Request::new()
        .with_history(after(reply.message.clone()))
        .with_options(hosted);
    request.with_tools([tool("add")])
}

#[tokio::test]
async fn state_returns_only_to_its_provider() {
    for (name, answer, state) in stateful() {
        let wire = wire(name);
        let here = Server::start([answer, (wire.ok)()]).await;
        let reply = (wire.model)(here.url(), wire.id)
            .complete(ask())
            .await
            .unwrap();
        // Simulates a round trip through a journal.
        let reply: Response =
            serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap();
        let mut request = continue_with(&reply);
        if name == "anthropic" {
            request = request.with_options(extra(
                "tools",
                json!([{"type": "code_execution_20250825", "name": "code_execution"}]),
            ));
        }
        // Both get the same history, and neither sees the state of the other.
        let there = sent(wire, wire.id, request.clone()).await.to_string();
        (wire.model)(here.url(), wire.id)
            .complete(request.clone())
            .await
            .unwrap();
        let back = here.last().body.to_string();
        let again = sent(wire, wire.id, request.clone()).await.to_string();
        let other = sent(wire, "other-model", request).await.to_string();
        for piece in state {
            assert!(
                back.contains(piece),
                "{name}: `{piece}` did not go back: {back}"
            );
            // Signatures of Claude are valid wherever Claude is served.
            let holds = name == "anthropic" && piece == "SIGN";
            assert_eq!(
                (there.contains(piece), again.contains(piece)),
                (holds, holds),
                "{name}: `{piece}`: {there}"
            );
            assert!(
                !other.contains(piece),
                "{name}: `{piece}` went to another model: {other}"
            );
        }
        for body in [&there, &back, &again, &other] {
            assert!(
                body.contains("I look.") && body.contains("fine"),
                "{name}: {body}"
            );
        }
    }
}

#[tokio::test]
async fn state_without_origin_is_returned() {
    for (name, answer, state) in stateful() {
        let wire = wire(name);
        let server = Server::with_answer(answer).await;
        let reply = (wire.model)(server.url(), wire.id)
            .complete(ask())
            .await
            .unwrap();
        let mut old = serde_json::to_value(&reply).unwrap();
        for part in old["message"]["parts"].as_array_mut().unwrap() {
            part.as_object_mut().unwrap().shift_remove("origin");
            part.get_mut("opaque")
                .and_then(Value::as_object_mut)
                .map(|state| state.shift_remove("origin"));
        }
        assert!(!old.to_string().contains("\"origin\""), "{old}");
        let mut request = continue_with(&serde_json::from_value(old).unwrap());
        if name == "anthropic" {
            request = request.with_options(extra(
                "tools",
                json!([{"type": "code_execution_20250825", "name": "code_execution"}]),
            ));
        }
        let body = sent(wire, wire.id, request).await.to_string();
        for piece in state {
            assert!(body.contains(piece), "{name}: `{piece}` is lost: {body}");
        }
    }
}

#[tokio::test]
async fn state_of_one_account_is_not_sent_to_another() {
    let (_, answer, _) = stateful().remove(0);
    let server = Server::start([answer, (wire("responses").ok)()]).await;
    let reply = responses(server.url(), "gpt-5")
        .complete(ask())
        .await
        .unwrap();
    let other =
        OpenAiModel::new("sk-another", "gpt-5.2").with_endpoint(|_| Endpoint::new(server.url()));
    other.complete(continue_with(&reply)).await.unwrap();
    assert!(!server.last().body.to_string().contains("SEALED"));
    responses(server.url(), "gpt-5.2")
        .complete(continue_with(&reply))
        .await
        .unwrap();
    assert!(
        server.last().body.to_string().contains("SEALED"),
        "a model of the same family"
    );
}
