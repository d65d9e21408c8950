//! Tool names, schemas and custom tools.

use super::*;

/// Returns the tool names in a body: those on offer, and those of calls.
fn names(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![body];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                found.extend(
                    fields
                        .get("name")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    found
}

#[tokio::test]
async fn invalid_tool_names_are_cleaned_for_every_provider() {
    let long = "x".repeat(100);
    for name in ["functions.read file", "läuft", "", &long, "a/b:c"] {
        let call = Part::ToolCall(ToolCall::new("t1", name, json!({})));
        let history = after(Arc::new(Message::new(Role::Assistant, [call])));
        for wire in WIRES.iter().filter(|wire| wire.name != "ollama") {
            let body = sent(wire, wire.id, Request::new().with_history(history.clone())).await;
            let more = if wire.name == "gemini" { "_-.:" } else { "_-" };
            let names = names(&body);
            assert!(!names.is_empty(), "{}: {body}", wire.name);
            for sent in names {
                let fits = sent
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || more.contains(c));
                assert!(
                    fits && (1..=64).contains(&sent.len()),
                    "{} sends `{sent}` for `{name}`",
                    wire.name
                );
            }
        }
    }
}

#[tokio::test]
async fn cleaned_tool_name_is_mapped_back_in_call() {
    let call = |name: &str| -> [(&'static str, Answer); 5] {
        [
            (
                "anthropic",
                Answer::json(
                    200,
                    json!({"stop_reason": "tool_use", "content": [
                {"type": "tool_use", "id": "t1", "name": name, "input": {}}]})
                    .to_string(),
                ),
            ),
            (
                "gemini",
                gemini_reply(&json!([{"functionCall": {"name": name, "args": {}}}])),
            ),
            (
                "responses",
                responses_reply(&json!([
                {"type": "function_call", "call_id": "t1", "name": name, "arguments": "{}"}])),
            ),
            (
                "chat",
                chat_reply(&json!({"tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": name, "arguments": "{}"}}]})),
            ),
            (
                "ollama",
                Answer::lines(format!(
                    "{}\n",
                    json!({"done": true, "message": {"tool_calls": [
                {"function": {"name": name, "arguments": {}}}]}})
                )),
            ),
        ]
    };
    // Two names that become equal after cleaning.
    let tools = [
        tool("notes/read all"),
        tool("notes_read_all"),
        tool("notes/read.all"),
    ];
    let mut request = ask().with_tools(tools);
    request.tool_choice = ToolChoice::Tool("notes/read all".into());
    for wire in WIRES.iter().filter(|wire| wire.name != "ollama") {
        let body = sent(wire, wire.id, request.clone()).await;
        let mut offered = names(&body);
        offered.sort();
        offered.dedup();
        assert_eq!(offered.len(), 3, "{}: {offered:?}", wire.name);
        for name in &offered {
            assert!(!name.contains(['/', ' ']), "{}: {offered:?}", wire.name);
            let (_, answer) = call(name)
                .into_iter()
                .find(|(known, _)| *known == wire.name)
                .unwrap();
            let server = Server::with_answer(answer).await;
            let reply = (wire.model)(server.url(), wire.id)
                .complete(request.clone())
                .await
                .unwrap();
            let called = reply.message.calls().next().unwrap().name.clone();
            assert!(
                request.tools.iter().any(|tool| tool.name == called),
                "{}: `{called}`",
                wire.name
            );
            assert_eq!(
                called == "notes_read_all",
                name == "notes_read_all",
                "{}: {name}",
                wire.name
            );
        }
    }
    for (name, answer) in call("add") {
        let server = Server::with_answer(answer).await;
        let wire = wire(name);
        let reply = (wire.model)(server.url(), wire.id)
            .complete(ask().with_tools([tool("add")]))
            .await
            .unwrap();
        assert_eq!(reply.message.calls().next().unwrap().name, "add", "{name}");
    }
}

#[tokio::test]
async fn schema_with_search_becomes_instructions_before_gemini_3() {
    let output = OutputSchema::new(
        "Sum",
        json!({"type": "object", "properties": {"total": {"type": "number"}}}),
    );
    let asked = |options: Options| {
        ask()
            .with_system("Be brief.")
            .with_output(output.clone())
            .with_options(options)
    };
    let search = || extra("tools", json!([{"googleSearch": {}}]));
    let instructions = |body: &Value| body["systemInstruction"].to_string();
    for (id, options, held) in [
        ("gemini-2.5-flash", search(), false),
        (
            "gemini-2.5-pro",
            extra("tools", json!({"codeExecution": {}})),
            false,
        ),
        ("gemini-2.0-flash", search(), false),
        ("gemini-2.5-flash", Options::new(), true),
        ("gemini-2.5-flash", extra("tools", json!([])), true),
        ("gemini-3-flash", search(), true),
    ] {
        let body = sent(wire("gemini"), id, asked(options)).await;
        let config = &body["generationConfig"];
        let sent = (
            config.get("responseMimeType").is_some(),
            config.get("responseJsonSchema").is_some(),
        );
        assert_eq!(sent, (held, held), "{id}: {body}");
        assert_eq!(!instructions(&body).contains("total"), held, "{id}: {body}");
        assert!(instructions(&body).contains("Be brief."), "{id}: {body}");
    }
    let mut options = search();
    options.extra.insert(
        "systemInstruction".into(),
        json!({"parts": [{"text": "Mine."}]}),
    );
    let body = sent(wire("gemini"), "gemini-2.5-flash", asked(options)).await;
    assert!(
        instructions(&body).contains("Mine.") && instructions(&body).contains("total"),
        "{body}"
    );
}

#[tokio::test]
async fn custom_tool_input_is_text_in_chat() {
    let input = "SELECT \"a\"\n-- {not: json}";
    let piece =
        |fields: Value| json!({"choices": [{"index": 0, "delta": {"tool_calls": [fields]}}]});
    let end = |word: &str| json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]});
    let streamed = |word: &str| {
        events(&[
            piece(json!({"index": 0, "id": "c1", "type": "custom",
                    "custom": {"name": "sql", "input": ""}})),
            piece(json!({"index": 0, "custom": {"input": "SELECT \"a\"\n"}})),
            piece(json!({"index": 0, "custom": {"input": "-- {not: json}"}})),
            end(word),
        ])
    };
    let whole = |input: &str| {
        chat_reply(&json!({"tool_calls": [{"id": "c1", "type": "custom",
                "custom": {"name": "sql", "input": input}}]}))
    };
    for (answer, expected) in [
        (streamed("tool_calls"), input),
        (whole(input), input),
        (whole(""), ""),
        (whole("7"), "7"),
    ] {
        let server = Server::start([answer, (wire("chat").ok)()]).await;
        let model = openai(server.url(), "gpt-5");
        let reply = model.complete(ask()).await.unwrap();
        let call = reply.message.calls().next().unwrap();
        assert_eq!(
            (&*call.name, &call.args, &call.raw),
            ("sql", &json!(expected), &None)
        );
        model
            .complete(Request::new().with_history(after(reply.message.clone())))
            .await
            .unwrap();
        let messages = server.last().body["messages"].take();
        assert_eq!(
            messages[1]["tool_calls"],
            json!([{"id": "c1", "type": "custom", "custom": {"name": "sql", "input": expected}}])
        );
        assert_eq!(
            (&messages[2]["role"], &messages[2]["tool_call_id"]),
            (&json!("tool"), &json!("c1"))
        );
    }
    // A truncated call cannot be made.
    let server = Server::with_answer(streamed("length")).await;
    let reply = openai(server.url(), "gpt-5").complete(ask()).await.unwrap();
    let call = reply.message.calls().next().unwrap();
    assert!(
        reply.finish == Finish::Length && call.raw.is_some() && call.args.is_null(),
        "{call:?}"
    );
    // It is offered beside the others.
    let custom = json!({"type": "custom", "custom": {"name": "sql", "description": "Runs it."}});
    let request = ask()
        .with_tools([tool("add")])
        .with_options(extra("tools", json!([custom])));
    let body = sent(wire("chat"), "gpt-5", request).await;
    assert_eq!(
        (&body["tools"][0]["function"]["name"], &body["tools"][1]),
        (&json!("add"), &custom)
    );
}
