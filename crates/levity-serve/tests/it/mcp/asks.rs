//! Questions to the client, in both protocol eras.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{Message, Model as _, Request, ToolSpec};
use levity_serve::mcp::{
    AskErrorKind, ClientLogLevel, ElicitForm, ElicitReply, HandlerCall, HandlerReply, McpLimits,
    McpServer, RequestError, SampleRequest,
};
use levity_test::ManualWorld;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::fixture::{ERAS, Era, Peer, TestHandler, builder};

fn form() -> ElicitForm {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}},
        "required": ["name"],
    });
    ElicitForm::new("Who?", schema)
}

async fn ask_name(call: HandlerCall) -> Result<HandlerReply, RequestError> {
    Ok(HandlerReply::text(
        match call.client.elicit(form()).await? {
            ElicitReply::Accept(said) => format!("{} is {}", said["name"], said["age"]),
            other => format!("{other:?}"),
        },
    ))
}

fn all() -> Value {
    json!({"elicitation": {}, "sampling": {"tools": {}}, "roots": {}})
}

/// Calls a tool, and answers its questions with `say`, given the method and parameters.
async fn call_with_answers(
    peer: &mut Peer,
    era: Era,
    tool: &str,
    say: impl Fn(&str, &Value) -> Value,
) -> Value {
    let said = |ask: &Value| say(ask["method"].as_str().unwrap(), &ask["params"]);
    let mut params = json!({"name": tool, "arguments": {}});
    if era == Era::New {
        loop {
            let answer = peer.ask("tools/call", params.clone()).await;
            if answer["result"]["resultType"] != "input_required" {
                return answer;
            }
            let asks = answer["result"]["inputRequests"].as_object().unwrap();
            params["inputResponses"] = asks
                .iter()
                .map(|(key, ask)| (key.clone(), said(ask)))
                .collect();
            params["requestState"] = answer["result"]["requestState"].clone();
        }
    }
    let id = peer.send("tools/call", params).await;
    loop {
        let message = peer.next().await;
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(ask)) => {
                let result = said(&message);
                peer.tell(json!({"jsonrpc": "2.0", "id": ask, "result": result}))
                    .await;
            }
            (None, Some(of)) if *of == id => return message,
            _ => peer.heard.push(message),
        }
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn elicit_returns_the_users_answer() {
    let server = builder()
        .handler(TestHandler::new("who", ask_name))
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, all()).await;
        let answer = call_with_answers(&mut peer, era, "who", |method, params| {
            assert_eq!(
                (method, &params["message"]),
                ("elicitation/create", &json!("Who?"))
            );
            json!({"action": "accept", "content": {"name": "Ada"}})
        })
        .await;
        assert_eq!(
            text(&answer),
            "\"Ada\" is 30",
            "the form's default is there"
        );
        for (action, said) in [("decline", "Decline"), ("cancel", "Cancel")] {
            let answer =
                call_with_answers(&mut peer, era, "who", |_, _| json!({ "action": action })).await;
            assert_eq!(text(&answer), said);
        }
        for bad in [
            json!({"action": "accept", "content": {"name": 5}}),
            json!({"action": "accept"}),
            json!({"action": "dance"}),
            json!({}),
        ] {
            let answer = call_with_answers(&mut peer, era, "who", |_, _| bad.clone()).await;
            assert_eq!(answer["result"]["isError"], true, "{bad}: {answer}");
        }
    }
}

#[tokio::test]
async fn unsupported_question_fails_without_asking() {
    let server = builder()
        .handler(TestHandler::new("who", ask_name))
        .handler(TestHandler::new("sample", |call| async move {
            let error = call
                .client
                .sample(SampleRequest::new("Hello", 5))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), AskErrorKind::Unsupported);
            Err(error.into())
        }))
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    assert!(
        peer.text("who", json!({}))
            .await
            .contains("capability `elicitation`")
    );
    let mut peer = Peer::connect(&server, Era::New, json!({})).await;
    let answer = peer.call("sample", json!({})).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
    assert_eq!(
        answer["error"]["data"]["requiredCapabilities"],
        json!({"sampling": {}})
    );
}

#[tokio::test]
async fn client_refusal_is_returned_to_the_tool() {
    let server = builder()
        .handler(TestHandler::new("who", ask_name))
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, all()).await;
    let id = peer.send("tools/call", json!({"name": "who"})).await;
    let ask = peer.next().await;
    let error = json!({"code": -1, "message": "not today"});
    peer.tell(json!({"jsonrpc": "2.0", "id": ask["id"], "error": error}))
        .await;
    assert!(text(&peer.answer(id).await).contains("not today"));
}

#[tokio::test]
async fn concurrent_questions_are_sent_together() {
    let talk = TestHandler::new("all", |call| async move {
        let client = &call.client;
        let sample = client.sample(SampleRequest::new("Hello", 5));
        let (name, reply, roots) = tokio::join!(client.elicit(form()), sample, client.roots());
        Ok(HandlerReply::text(format!(
            "{} {} {}",
            matches!(name?, ElicitReply::Accept(_)),
            reply?.model,
            roots?[0].uri
        )))
    });
    // The same, from separate tasks.
    let spread = TestHandler::new("spread", |call| async move {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let client = call.client.clone();
            tasks.spawn(async move { client.elicit(form()).await.is_ok() });
        }
        Ok(HandlerReply::text(
            tasks.join_all().await.iter().all(|done| *done).to_string(),
        ))
    });
    let server = builder().handler(talk).handler(spread).build().unwrap();
    let say = |method: &str, _: &Value| match method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"})
        }
        _ => json!({"roots": [{"uri": "file:///r"}]}),
    };
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, all()).await;
        let answer = call_with_answers(&mut peer, era, "all", say).await;
        assert_eq!(text(&answer), "true m file:///r");
        assert_eq!(
            text(&call_with_answers(&mut peer, era, "spread", say).await),
            "true"
        );
    }
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    for tool in ["all", "spread"] {
        let asked = peer.call(tool, json!({})).await;
        assert_eq!(
            asked["result"]["inputRequests"].as_object().unwrap().len(),
            3,
            "{asked}"
        );
    }
}

#[tokio::test]
async fn client_model_works_as_levity_model() {
    let talk = TestHandler::new("model", |call| async move {
        let model = call.client.model().prefer("small");
        assert!(model.card().capabilities.tools && !model.card().capabilities.output_schema);
        let request = Request::new()
            .with_system("Be brief.")
            .with_message(Message::user("Weather?"))
            .with_tools([Arc::new(ToolSpec::new("weather", "Tells it."))]);
        let response = model
            .complete(request)
            .await
            .map_err(|error| RequestError::failed(error.to_string()))?;
        let calls: Vec<_> = response
            .message
            .calls()
            .map(|call| call.name.clone())
            .collect();
        Ok(HandlerReply::text(format!(
            "{:?} {calls:?}",
            response.finish
        )))
    });
    let server = builder().handler(talk).build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, all()).await;
        let answer = call_with_answers(&mut peer, era, "model", |method, params| {
            assert_eq!(method, "sampling/createMessage");
            assert_eq!(params["systemPrompt"], "Be brief.");
            assert_eq!(
                params["messages"][0],
                json!({"role": "user", "content": {"type": "text", "text": "Weather?"}})
            );
            assert_eq!(params["tools"][0]["name"], "weather");
            assert_eq!(params["modelPreferences"]["hints"][0]["name"], "small");
            let call = json!({"type": "tool_use", "id": "1", "name": "weather", "input": {}});
            json!({"role": "assistant", "content": [call], "model": "m", "stopReason": "toolUse"})
        })
        .await;
        assert_eq!(text(&answer), r#"ToolCalls ["weather"]"#);
    }
    let mut peer = Peer::connect(&server, Era::Old, json!({"sampling": {}})).await;
    let answer = peer.call("model", json!({})).await;
    assert!(
        answer["result"]["isError"] == true,
        "it asserts that there are tools: {answer}"
    );
}

#[tokio::test]
async fn log_messages_respect_the_client_level() {
    let talk = TestHandler::new("log", |call| async move {
        call.client.log(ClientLogLevel::Debug, "small");
        call.client
            .log(ClientLogLevel::Warning, json!({"what": "large"}));
        Ok(HandlerReply::text("done"))
    });
    let server = builder().handler(talk).build().unwrap();
    let told = |peer: &mut Peer| -> Vec<Value> {
        peer.heard
            .drain(..)
            .map(|note| note["params"]["data"].clone())
            .collect()
    };
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    peer.call("log", json!({})).await;
    assert_eq!(told(&mut peer), [json!({"what": "large"})]);
    for (level, count) in [("debug", 2), ("error", 0)] {
        peer.ask("logging/setLevel", json!({ "level": level }))
            .await;
        peer.call("log", json!({})).await;
        assert_eq!(told(&mut peer).len(), count, "{level}");
    }
    let mut peer = Peer::connect(&server, Era::New, json!({})).await;
    peer.call("log", json!({})).await;
    assert!(
        told(&mut peer).is_empty(),
        "nothing unless the request says so"
    );
    let meta = json!({"io.modelcontextprotocol/logLevel": "warning"});
    peer.ask("tools/call", json!({"name": "log", "_meta": meta}))
        .await;
    assert_eq!(told(&mut peer), [json!({"what": "large"})]);
    let answer = peer
        .ask("logging/setLevel", json!({"level": "debug"}))
        .await;
    assert_eq!(answer["error"]["code"], -32601);
}

fn asked(answer: &Value) -> (String, Value) {
    let asks = answer["result"]["inputRequests"]
        .as_object()
        .unwrap_or_else(|| panic!("{answer}"));
    (
        asks.keys().next().unwrap().clone(),
        answer["result"]["requestState"].clone(),
    )
}

fn again(tool: &str, args: Value, key: &str, state: &Value) -> Value {
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    json!({"name": tool, "arguments": args, "inputResponses": {key: answer}, "requestState": state})
}

#[tokio::test]
async fn answer_is_accepted_only_for_its_question() {
    let server = builder()
        .handler(TestHandler::new("who", ask_name))
        .handler(TestHandler::new("other", ask_name))
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    let (key, state) = asked(&peer.call("who", json!({})).await);
    let refused = |answer: &Value, word: &str| {
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(word),
            "{answer}"
        );
    };
    let answer = peer
        .ask("tools/call", again("other", json!({}), &key, &state))
        .await;
    refused(&answer, "another request");
    let answer = peer
        .ask("tools/call", again("who", json!({"x": 1}), &key, &state))
        .await;
    refused(&answer, "another request");
    let forged = json!(format!("{}x", state.as_str().unwrap()));
    let answer = peer
        .ask("tools/call", again("who", json!({}), &key, &forged))
        .await;
    refused(&answer, "not from this server");
    let mut number = again("who", json!({}), &key, &state);
    number["inputResponses"][&key] = json!(5);
    refused(&peer.ask("tools/call", number).await, "not a JSON object");
    let nothing =
        json!({"name": "who", "arguments": {}, "requestState": state, "inputResponses": {"x": {}}});
    let (key, next) = asked(&peer.ask("tools/call", nothing).await);
    assert_ne!(state, next, "it is asked again");
    refused(
        &peer
            .ask("tools/call", again("who", json!({}), &key, &state))
            .await,
        "used before",
    );
    let answer = peer
        .ask("tools/call", again("who", json!({}), &key, &next))
        .await;
    assert_eq!(text(&answer), "\"Ada\" is 30");
    for used in [&state, &next] {
        refused(
            &peer
                .ask("tools/call", again("who", json!({}), &key, used))
                .await,
            "used before",
        );
    }
    // Another connection may resume the call: a paused call belongs to the server.
    let (key, state) = asked(&peer.call("who", json!({})).await);
    peer.close().await;
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    let answer = peer
        .ask("tools/call", again("who", json!({}), &key, &state))
        .await;
    assert_eq!(text(&answer), "\"Ada\" is 30");
}

#[tokio::test]
async fn named_question_can_be_answered_in_advance() {
    let talk = TestHandler::new("who", |call| async move {
        let reply = call.client.named("who").elicit(form()).await?;
        Ok(HandlerReply::text(format!(
            "{}",
            matches!(reply, ElicitReply::Accept(_))
        )))
    });
    let server = builder().handler(talk).build().unwrap();
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let early = json!({"name": "who", "inputResponses": {"who": answer, "more": {}}});
    assert_eq!(text(&peer.ask("tools/call", early).await), "true");
}

fn waiting(limits: McpLimits, world: &Arc<ManualWorld>, gone: &Arc<Notify>) -> McpServer {
    struct NotifyOnDrop(Arc<Notify>);

    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    let gone = gone.clone();
    let talk = TestHandler::new("who", move |call| {
        let gone = NotifyOnDrop(gone.clone());
        async move {
            let _gone = gone;
            ask_name(call).await
        }
    });
    builder()
        .handler(talk)
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap()
}

#[tokio::test]
async fn unanswered_question_times_out() {
    let (world, gone) = (Arc::new(ManualWorld::new()), Arc::new(Notify::new()));
    let limits = McpLimits::default()
        .answer(Duration::from_secs(60))
        .waiting(2);
    let server = waiting(limits, &world, &gone);
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    let (key, state) = asked(&peer.call("who", json!({})).await);
    asked(&peer.call("who", json!({})).await);
    let full = peer.call("who", json!({})).await;
    assert_eq!(full["error"]["code"], -32000, "two wait already: {full}");
    gone.notified().await;
    while world.sleepers() < 2 {
        tokio::task::yield_now().await;
    }
    world.advance(Duration::from_secs(61));
    gone.notified().await;
    let late = peer
        .ask("tools/call", again("who", json!({}), &key, &state))
        .await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
    asked(&peer.call("who", json!({})).await);
    // The same in the other era:
    let mut peer = Peer::connect(&server, Era::Old, all()).await;
    let id = peer.send("tools/call", json!({"name": "who"})).await;
    peer.notified("elicitation/create").await;
    let before = world.sleepers();
    assert!(before > 0);
    world.advance(Duration::from_secs(61));
    assert!(text(&peer.answer(id).await).contains("in time"));
}

#[tokio::test]
async fn paused_call_continues_in_background() {
    let went = Arc::new(Notify::new());
    let goes = went.clone();
    let talk = TestHandler::new("both", move |call| {
        let goes = goes.clone();
        async move {
            let beside = async {
                tokio::task::yield_now().await;
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                goes.notify_one();
            };
            let (answer, ()) = tokio::join!(call.client.elicit(form()), beside);
            Ok(HandlerReply::text(format!("{}", answer.is_ok())))
        }
    });
    let server = builder().handler(talk).build().unwrap();
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    let (key, state) = asked(&peer.call("both", json!({})).await);
    went.notified().await;
    let answer = peer
        .ask("tools/call", again("both", json!({}), &key, &state))
        .await;
    assert_eq!(text(&answer), "true");
}

#[tokio::test]
async fn finished_paused_call_expires() {
    let (world, end) = (Arc::new(ManualWorld::new()), Arc::new(Notify::new()));
    let ends = end.clone();
    let talk = TestHandler::new("brief", move |call| {
        let ends = ends.clone();
        async move {
            tokio::select! {
                _ = call.client.elicit(form()) => {}
                () = ends.notified() => {}
            }
            Ok(HandlerReply::text("done"))
        }
    });
    let limits = McpLimits::default()
        .answer(Duration::from_secs(60))
        .waiting(1);
    let server = builder()
        .handler(talk)
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::New, all()).await;
    let (key, state) = asked(&peer.call("brief", json!({})).await);
    end.notify_one();
    let answer = peer
        .ask("tools/call", again("brief", json!({}), &key, &state))
        .await;
    assert_eq!(
        text(&answer),
        "done",
        "the result is available until it expires"
    );
    asked(&peer.call("brief", json!({})).await);
    end.notify_one();
    others().await;
    world.advance(Duration::from_secs(61));
    others().await;
    asked(&peer.call("brief", json!({})).await);
}

#[tokio::test]
async fn abandoned_question_is_cancelled() {
    let (world, end) = (Arc::new(ManualWorld::new()), Arc::new(Notify::new()));
    let ends = end.clone();
    let talk = TestHandler::new("brief", move |call| {
        let ends = ends.clone();
        async move {
            tokio::select! {
                _ = call.client.elicit(form()) => Ok(HandlerReply::text("late")),
                () = ends.notified() => Ok(HandlerReply::text("done")),
            }
        }
    });
    let limits = McpLimits::default().answer(Duration::from_secs(60));
    let server = builder()
        .handler(talk)
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, all()).await;
    for (why, said) in [("ended", "done"), ("late", "late")] {
        let id = peer.send("tools/call", json!({"name": "brief"})).await;
        let ask = peer.notified("elicitation/create").await;
        while world.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        match why {
            "ended" => end.notify_one(),
            _ => world.advance(Duration::from_secs(61)),
        }
        assert_eq!(text(&peer.answer(id).await), said);
        let back = tokio::time::timeout(
            Duration::from_secs(5),
            peer.notified("notifications/cancelled"),
        )
        .await;
        assert_eq!(back.expect(why)["params"]["requestId"], ask["id"], "{why}");
    }
}

/// Lets all other tasks run as far as they can: everything is on this one thread.
async fn others() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}
