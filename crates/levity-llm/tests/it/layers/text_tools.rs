//! Requests to a model without tool calls, and parsing of its replies.

use std::sync::Arc;

use levity_core::{
    Capabilities, Delta, Finish, Media, Message, Model, ModelCard, OutputSchema, Part,
    ProviderState, Request, Role, ToolCall, ToolChoice, ToolError, ToolOutput, ToolResult,
    ToolSpec,
};
use levity_llm::ModelExt;
use levity_test::{ScriptedModel, Turn};
use serde_json::{Value, json};

use super::support::{ask, pieces};

fn tools() -> Vec<Arc<ToolSpec>> {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]});
    vec![
        ToolSpec::new("add", "Adds two numbers.")
            .with_input(schema)
            .into(),
        ToolSpec::new("now", "Says what time it is.").into(),
    ]
}

fn offered(text: &str) -> Request {
    ask(text).with_system("Be brief.").with_tools(tools())
}

fn with_calls() -> Request {
    let mut request = offered("What is 2 + 5?");
    let calls = [
        ToolCall::new("c1", "add", json!({"a": 2})),
        ToolCall::from_text("c2", "now", "{oops"),
    ];
    let parts = [
        Part::text("Let me see."),
        Part::ToolCall(calls[0].clone()),
        Part::ToolCall(calls[1].clone()),
    ];
    let mut exchange = request
        .history
        .open(Message::new(Role::Assistant, parts).into())
        .unwrap();
    let output = ToolOutput::text("7").with_media(Media::bytes("image/png", vec![1]));
    exchange
        .answer(ToolResult::new(&calls[0], Ok(output)))
        .unwrap();
    request
        .history
        .close(exchange, &ToolError::failed("not JSON"));
    request
}

async fn sent(model: impl Fn(ScriptedModel) -> Box<dyn Model>, request: Request) -> Request {
    let inner = ScriptedModel::new().reply("yes");
    model(inner.clone()).complete(request).await.unwrap();
    inner.requests().remove(0)
}

async fn read(model: impl Model) -> (String, Vec<String>) {
    let response = model.complete(offered("?")).await.unwrap();
    let calls = response
        .message
        .calls()
        .map(|call| call.name.clone())
        .collect();
    (response.message.text().into_owned(), calls)
}

#[tokio::test]
async fn model_with_native_calls_keeps_them() {
    let request = with_calls();
    let sent = sent(
        |inner| Box::new(inner.text_tools().with_native_calls()),
        request.clone(),
    )
    .await;
    assert_eq!(sent, request);

    let inner = ScriptedModel::new().turn(
        Turn::new()
            .text("{\"call_tool\": {\"name\": \"now\"}}")
            .call("add", json!({"a": 1}))
            .pieces(7),
    );
    let reply = inner
        .text_tools()
        .with_native_calls()
        .stream(offered("?"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    let calls: Vec<_> = reply
        .message
        .calls()
        .map(|call| call.name.as_str())
        .collect();
    assert_eq!(
        (calls, reply.finish),
        (vec!["add"], Finish::ToolCalls),
        "it needs no help"
    );
}

#[tokio::test]
async fn answer_resembling_call_stays_answer() {
    for (reply, called) in [
        (r#"{"action": "buy", "args": {"shares": 3}}"#, false),
        (r#"{"call_tool": null, "action": "buy", "input": 1}"#, false),
        (
            r#"{"so_far": 1, "call_tool": {"name": "sell", "arguments": {}}}"#,
            false,
        ),
        (r#"{"action": "add", "args": {"a": 3}}"#, true),
        (
            r#"{"thought": "so", "call_tool": {"name": "now", "arguments": {}}}"#,
            true,
        ),
    ] {
        let model = || ScriptedModel::new().reply(reply);
        let (text, calls) = read(model().text_tools()).await;
        assert_eq!(
            (!calls.is_empty(), text == reply),
            (called, !called),
            "{reply}"
        );
        let (text, calls) = read(model().text_tools().with_native_calls()).await;
        assert_eq!(
            (!calls.is_empty(), text == reply),
            (called, !called),
            "{reply}"
        );
    }
}

#[tokio::test]
async fn tools_are_described_in_prompt_and_not_sent() {
    let sent = sent(|inner| Box::new(inner.text_tools()), offered("?")).await;
    assert!(sent.tools.is_empty());
    let system = sent.system.unwrap();
    assert!(system.starts_with("Be brief.\n\n# Tools\n"), "{system}");
    for part in [
        "\"name\":\"add\",\"description\":\"Adds two \
            numbers.\",\"parameters\":{\"type\":\"object\"",
        "\"name\":\"now\"",
        "<tool_call>\n{\"name\": <function name>,",
    ] {
        assert!(system.contains(part), "no {part:?} in {system}");
    }
}

#[tokio::test]
async fn calls_and_results_become_text() {
    let sent = sent(|inner| Box::new(inner.text_tools()), with_calls()).await;
    let again = self::sent(|inner| Box::new(inner.text_tools()), with_calls()).await;
    assert_eq!(sent, again, "the same each time");
    let messages = sent.history.messages();
    assert_eq!(
        messages
            .iter()
            .map(|message| message.role)
            .collect::<Vec<_>>(),
        [Role::User, Role::Assistant, Role::User]
    );
    assert!(
        matches!(messages[2].parts[..], [Part::Text(_), Part::Media(_)]),
        "media go along"
    );
    let expected = "Let me see.\n<tool_call>{\"name\": \"add\", \"arguments\": \
        {\"a\":2}}</tool_call>\n\
                    <tool_call>{\"name\": \"now\", \"arguments\": {oops}</tool_call>";
    assert_eq!(messages[1].text(), expected);
    let expected = "<tool_response name=\"add\">\n7\n</tool_response>\n\
                    <tool_response name=\"now\" status=\"failed\">\nnot JSON\n</tool_response>";
    assert_eq!(messages[2].text(), expected);
}

#[tokio::test]
async fn tool_choice_is_respected() {
    let system = |choice: ToolChoice| async move {
        let mut request = offered("?");
        request.tool_choice = choice;
        let sent = sent(|inner| Box::new(inner.text_tools()), request).await;
        assert_eq!(sent.tool_choice, ToolChoice::Auto);
        sent.system.unwrap().to_string()
    };
    assert!(
        system(ToolChoice::Required)
            .await
            .ends_with("\nNow you must call a tool.\n")
    );
    assert!(
        system(ToolChoice::Tool("add".into()))
            .await
            .ends_with("\nNow you must call the tool `add`.\n")
    );
    assert_eq!(system(ToolChoice::None).await, "Be brief.");
}

#[tokio::test]
async fn text_stays_text_without_offered_tools() {
    let text = "[Thinking: hm]TOOL_CALL: add\nARGUMENTS: {\"a\": 2}";
    let reply = ScriptedModel::new()
        .reply(text)
        .text_tools()
        .complete(ask("?"))
        .await
        .unwrap();
    assert_eq!(
        (&*reply.message.text(), &*reply.message.thinking()),
        ("TOOL_CALL: add\nARGUMENTS: {\"a\": 2}", "hm")
    );
    assert!(reply.message.calls().next().is_none());
}

#[tokio::test]
async fn answer_schema_becomes_instructions_while_tools_are_offered() {
    let shape = OutputSchema::new("Sum", json!({"type": "object", "title": "Sum"}));
    let sent = sent(
        |inner| Box::new(inner.text_tools()),
        offered("?").with_output(shape.clone()),
    )
    .await;
    assert_eq!(sent.output, None);
    assert!(
        sent.system
            .unwrap()
            .contains("JSON Schema: {\"type\":\"object\",\"title\":\"Sum\"}")
    );
    let sent = self::sent(
        |inner| Box::new(inner.text_tools()),
        ask("?").with_output(shape),
    )
    .await;
    assert!(sent.output.is_some(), "the model can be held to it");
    // A JSON answer with a key that calls also have.
    let answer = r#"{"action": "buy", "input": "milk"}"#;
    let shape = OutputSchema::new("Plan", json!({"type": "object"}));
    let model = ScriptedModel::new().reply(answer).text_tools();
    let reply = model
        .complete(offered("?").with_output(shape))
        .await
        .unwrap();
    assert_eq!(reply.message.text(), answer);
}

#[tokio::test]
async fn text_is_streamed_and_possible_calls_are_buffered() {
    let turn = Turn::new().in_pieces([
        "Good ",
        "morning",
        " <b>",
        "\nAct",
        "ually\nTOOL_",
        "CALL: now\n",
    ]);
    let model = ScriptedModel::new()
        .turn(turn.usage(9, 9).finish(Finish::Stop))
        .text_tools();
    let (deltas, error) = pieces(&model, offered("?")).await;
    let texts: Vec<&str> = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        (texts, error),
        (vec!["Good ", "morning", " <b>", "\n", "Actually\n"], None)
    );
    assert!(
        matches!(
            &deltas[5..],
            [
                Delta::Usage(_),
                Delta::Notice { .. },
                Delta::CallStart { name, .. },
                Delta::CallArgs { .. },
                Delta::Opaque(_),
                Delta::Finish(Finish::ToolCalls),
            ] if name == "now"
        ),
        "{deltas:?}"
    );
}

#[tokio::test]
async fn other_parts_keep_their_position() {
    let data = ProviderState::new("test", json!({"n": 1}));
    let script = || {
        let turn = Turn::new()
            .thinking("hm")
            .text("a {")
            .opaque(data.clone())
            .text("\n")
            .call("own", json!({}));
        ScriptedModel::new()
            .turn(turn.text("\nTOOL_CALL: now").finish(Finish::Length))
            .text_tools()
    };
    let whole = script().complete(offered("?")).await.unwrap();
    assert_eq!(
        script()
            .stream(offered("?"))
            .await
            .unwrap()
            .fold()
            .await
            .unwrap(),
        whole
    );
    let parts = &whole.message.parts;
    assert!(
        matches!(
            &parts[..],
            [
                Part::Thinking(_),
                Part::Text(_),
                Part::Text(_),
                Part::ToolCall(own),
                Part::Text(text),
            ] if own.name == "own" && text.text == "\nTOOL_CALL: now"
        ),
        "{parts:?}"
    );
    assert_eq!(parts[1].opaque(), Some(&data));
    assert_eq!(
        whole.finish,
        Finish::Length,
        "it was cut, so nobody knows what else it wanted"
    );
}

#[tokio::test]
async fn restarted_reply_is_parsed_again() {
    let error = levity_core::ModelError::new(levity_core::ModelErrorKind::Transport, "broke off");
    let inner = ScriptedModel::new()
        .turn(
            Turn::new()
                .text("lost\nTOOL_CALL: now\n\nARGUMENTS: {\"a")
                .break_off(error),
        )
        .reply("kept");
    let (_, world) = super::support::auto();
    let model = inner
        .retry()
        .restart_after_first_delta()
        .with_world(world)
        .text_tools();
    let whole = model
        .stream(offered("?"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    assert_eq!(
        (
            &*whole.message.text(),
            whole.message.calls().count(),
            whole.finish
        ),
        ("kept", 0, Finish::Stop)
    );
}

fn schema(sent: &Request) -> Value {
    sent.output.as_ref().unwrap().schema.clone()
}

#[tokio::test]
async fn schema_constrains_reply_to_calls_or_answer() {
    let model =
        |inner: ScriptedModel| -> Box<dyn Model> { Box::new(inner.text_tools().structured()) };
    let found = schema(&sent(model, offered("?")).await);
    let forms = found["properties"]["reply"]["anyOf"].as_array().unwrap();
    assert_eq!(forms.len(), 3);
    assert_eq!(forms[0]["properties"]["name"], json!({"const": "add"}));
    assert_eq!(forms[0]["properties"]["arguments"], tools()[0].input);
    assert_eq!(forms[2]["properties"]["answer"], json!({"type": "string"}));
    assert_eq!(found["required"], json!(["reply"]));

    let mut forced = offered("?");
    forced.tool_choice = ToolChoice::Tool("now".into());
    assert_eq!(
        schema(&sent(model, forced).await)["properties"]["reply"]["anyOf"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let mut required = offered("?");
    required.tool_choice = ToolChoice::Required;
    assert_eq!(
        schema(&sent(model, required).await)["properties"]["reply"]["anyOf"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        sent(model, ask("?")).await.output,
        None,
        "nothing to choose from"
    );
}

#[tokio::test]
async fn schema_references_are_rewritten() {
    let list = json!({"type": "object", "$schema": "x",
        "properties": {"next": {"$ref": "#"}, "at": {"$ref": "#/$defs/At"}},
                      "$defs": {"At": {"type": "object",
                          "properties": {"up": {"$ref": "#/$defs/At"}}}}});
    let request = ask("?").with_tools([ToolSpec::new("walk", "Walks.").with_input(list).into()]);
    let answer = json!({"$ref": "#/definitions/Sum", "definitions": {"Sum": {"type": "object"}}});
    let request = request.with_output(OutputSchema::new("Sum", answer));
    let found = schema(&sent(|inner| Box::new(inner.text_tools().structured()), request).await);
    let forms = &found["properties"]["reply"]["anyOf"];
    assert_eq!(
        forms[0]["properties"]["arguments"],
        json!({"$ref": "#/$defs/t0"})
    );
    assert_eq!(
        forms[1]["properties"]["answer"],
        json!({"$ref": "#/$defs/answer_Sum"})
    );
    let expected = json!({
        "t0_At": {"type": "object", "properties": {"up": {"$ref": "#/$defs/t0_At"}}},
        "t0": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t0"},
            "at": {"$ref": "#/$defs/t0_At"}}},
        "answer_Sum": {"type": "object"},
    });
    assert_eq!(found["$defs"], expected);
}

#[tokio::test]
async fn structured_reply_becomes_call_or_answer() {
    let read = |text: &'static str| async move {
        let script = || {
            ScriptedModel::new()
                .turn(Turn::new().text(text).pieces(4))
                .text_tools()
                .structured()
        };
        let whole = script().complete(offered("?")).await.unwrap();
        assert_eq!(
            script()
                .stream(offered("?"))
                .await
                .unwrap()
                .fold()
                .await
                .unwrap(),
            whole
        );
        let calls: Vec<_> = whole
            .message
            .calls()
            .map(|call| (call.name.clone(), call.args.clone()))
            .collect();
        (whole.message.text().into_owned(), calls, whole.finish)
    };
    let called = |args: Value| {
        (
            String::new(),
            vec![("add".to_owned(), args)],
            Finish::ToolCalls,
        )
    };
    let said = |text: &str| (text.to_owned(), vec![], Finish::Stop);
    let call = r#" {"reply": {"name": "add", "arguments": {"a": 2}}}"#;
    assert_eq!(read(call).await, called(json!({"a": 2})));
    assert_eq!(
        read(r#"{"tool": "add", "args": {"a": 2}}"#).await,
        called(json!({"a": 2})),
        "without the frame"
    );
    assert_eq!(
        read(r#"{"reply": {"answer": "Seven.\n"}}"#).await,
        said("Seven.\n")
    );
    assert_eq!(
        read(r#"{"reply": {"answer": {"sum": 7}}}"#).await,
        said(r#"{"sum":7}"#)
    );
    assert_eq!(
        read("Seven.").await,
        said("Seven."),
        "the endpoint did not hold it to the schema"
    );
    assert_eq!(
        read("TOOL_CALL: add\nARGUMENTS: {\"a\": 2}").await,
        called(json!({"a": 2}))
    );
}

#[tokio::test]
async fn model_without_schema_support_gets_instructions() {
    let mut capabilities = Capabilities::default();
    (capabilities.output_schema, capabilities.tools) = (false, false);
    let inner = ScriptedModel::new()
        .reply("yes")
        .with_card(ModelCard::new("test", "m").with_capabilities(capabilities));
    let model = inner.clone().text_tools().structured();
    assert!(model.card().capabilities.tools && !model.card().capabilities.output_schema);
    model.complete(offered("?")).await.unwrap();
    let sent = inner.requests().remove(0);
    assert_eq!(sent.output, None);
    assert!(sent.system.unwrap().contains("<tool_call>"));
}

#[tokio::test]
async fn worst_case_covers_sent_request() {
    let model = ScriptedModel::new().text_tools();
    let whole = model.cost_bound(&with_calls()).input;
    let (mut words, tools) = (with_calls(), Request::new().with_tools(tools()));
    words.tools = Arc::default();
    let inner = ScriptedModel::new().reply("yes");
    inner
        .clone()
        .text_tools()
        .complete(with_calls())
        .await
        .unwrap();
    assert_eq!(whole, inner.cost_bound(&inner.requests()[0]).input);
    assert!(
        model.cost_bound(&words).input + model.cost_bound(&tools).input >= whole,
        "in pieces it is no less"
    );
}
