//! Calls that a model in text mode writes, in the taught form or in the form of its model family.

use std::sync::Arc;

use levity_core::{
    Delta, Finish, Message, Model as _, OutputSchema, ProviderState, Request, Response, ToolCall,
    ToolError, ToolOutput, ToolResult, ToolSpec,
};
use levity_llm::ModelExt as _;
use levity_llm::layers::ToolMode;
use levity_test::{ScriptedModel, Turn};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::support::{ask, pieces};

fn tools() -> Vec<Arc<ToolSpec>> {
    let object = |properties: Value, required: Value| {
        json!({"type": "object",
        "properties": properties, "required": required})
    };
    let number = json!({"type": "number"});
    let add = object(json!({"a": number, "b": number}), json!(["a"]));
    let write = object(
        json!({"path": {"type": "string"}, "content": {"type": "string"}}),
        json!(["path", "content"]),
    );
    vec![
        ToolSpec::new("add", "Adds.").with_input(add).into(),
        ToolSpec::new("write", "Writes a file.")
            .with_input(write)
            .into(),
        ToolSpec::new("now", "Tells the time.")
            .with_input(object(json!({}), json!([])))
            .into(),
    ]
}

fn offered(text: &str) -> Request {
    ask(text).with_tools(tools())
}

fn scripted(reply: &[&str], finish: Finish) -> ScriptedModel {
    let pieces: Vec<String> = reply.iter().map(|piece| (*piece).to_owned()).collect();
    ScriptedModel::new().turn(Turn::new().in_pieces(pieces).finish(finish))
}

async fn streamed(reply: &[&str], request: &Request) -> Response {
    let model = scripted(reply, Finish::Stop).text_tools();
    model
        .stream(request.clone())
        .await
        .unwrap()
        .fold()
        .await
        .unwrap()
}

async fn whole(reply: &str, request: &Request) -> Response {
    scripted(&[reply], Finish::Stop)
        .text_tools()
        .complete(request.clone())
        .await
        .unwrap()
}

fn letters(text: &str) -> Vec<&str> {
    text.char_indices()
        .map(|(at, char)| &text[at..at + char.len_utf8()])
        .collect()
}

fn calls(reply: &Response) -> Vec<(&str, &Value)> {
    reply
        .message
        .calls()
        .map(|call| (&*call.name, &call.args))
        .collect()
}

/// Forms of a call `add(a=2)`, besides those that text mode teaches.
const FORMS: [&str; 42] = [
    r#"[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2}}]"#,
    r#"[TOOL_CALLS][{"name": "add", "arguments": {"a": 2}}]"#,
    r#"[TOOL_CALLS]add[ARGS]{"a": 2}"#,
    r#"[TOOL_CALLS]add{"a": 2}"#,
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": \
        2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": \
        2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>add\n```json\n{\"a\": \
        2}\n```<|tool▁call▁end|><|tool▁calls▁end|>",
    r#"<|tool_call|>[{"name": "add", "arguments": {"a": 2}}]"#,
    r#"<|tool_call|>{"name": "add", "arguments": {"a": 2}}<|/tool_call|>"#,
    r#"<|python_tag|>{"name": "add", "parameters": {"a": 2}}"#,
    "<|python_tag|>add(a=2)",
    "[add(a=2)]",
    "add(a=2)",
    "functions.add({\"a\": 2})",
    "add\n{\"a\": 2}",
    "<function=add>{\"a\": 2}</function>",
    "<function=add>\n<parameter=a>\n2\n</parameter>\n</function>",
    "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "<function_call>{\"name\": \"add\", \"arguments\": {\"a\": 2}}</function_call>",
    "<functioncall> {\"name\": \"add\", \"arguments\": '{\"a\": 2}'}",
    "<tools>{\"name\": \"add\", \"arguments\": {\"a\": 2}}</tools>",
    "<invoke name=\"add\">\n<parameter name=\"a\">2</parameter>\n</invoke>",
    "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter \
        name=\"a\">2</parameter>\n</invoke>\n</minimax:tool_call>",
    "<|tool_call_start|>[add(a=2)]<|tool_call_end|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>\
        {\"a\": 2}<|tool_call_end|><|tool_calls_section_end|>",
    "<start_function_call>call:add{a: 2}<end_function_call>",
    "<|python_start|>[add(a=2)]<|python_end|>",
    "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": {\"a\": \
        2}}]<|END_ACTION|>",
    "<|action_start|><|plugin|>{\"name\": \"add\", \"parameters\": {\"a\": 2}}<|action_end|>",
    "functools[{\"name\": \"add\", \"arguments\": {\"a\": 2}}]",
    ">>>add\n{\"a\": 2}",
    "```tool_code\nadd(a=2)\n```",
    "```tool_code\nprint(add(a=2))\n```",
    "```python\nadd(a=2)\n```",
    "{\"function\": \"add\", \"arguments\": {\"a\": 2}}",
    "{\"name\": \"add\", \"arguments\": {\"a\": 2}",
    "Let me check: {\"name\": \"add\", \"arguments\": {\"a\": 2}}",
    "I will add them.\n[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 2}}]",
    "<think>\nIt wants a sum.\n\nIt shall have it.\n</think>\n\n[TOOL_CALLS] \
        [{\"name\": \"add\", \"arguments\": {\"a\": 2}}]",
    "[Thinking: hm] <|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 2}}]",
    "\n\n <|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 2}}<|eom_id|>\n",
];

#[tokio::test]
async fn family_calls_are_parsed_at_any_chunk_boundary() {
    let request = offered("What is two and nothing?");
    let mut missed = Vec::new();
    for form in FORMS {
        let reply = whole(form, &request).await;
        let is_read =
            calls(&reply) == [("add", &json!({"a": 2}))] && reply.finish == Finish::ToolCalls;
        if !is_read || reply.message.text().contains(['<', '[', '{', '`']) {
            missed.push(format!("{form:?}: {:?}", reply.message.parts));
            continue;
        }
        assert_eq!(
            streamed(&letters(form), &request).await,
            reply,
            "letter by letter: {form:?}"
        );
        for at in (1..form.len()).filter(|at| form.is_char_boundary(*at)) {
            let (before, behind) = form.split_at(at);
            assert_eq!(
                streamed(&[before, behind], &request).await,
                reply,
                "{before:?} | {behind:?}"
            );
        }
    }
    assert!(
        missed.is_empty(),
        "{} of {}:\n{}",
        missed.len(),
        FORMS.len(),
        missed.join("\n")
    );
}

#[tokio::test]
async fn several_family_calls_are_all_parsed() {
    let request = offered("What are two and nothing, and what time is it?");
    for form in [
        "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 2}}, \
            {\"name\": \"now\", \"arguments\": {}}]",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": \
            2}\n```<｜tool▁call▁end｜>\n\
         <｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```\
         <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|tool_call|>{\"name\": \"add\", \"arguments\": {\"a\": \
            2}}<|/tool_call|><|tool_call|>{\"name\": \"now\"}<|/tool_call|>",
        "[add(a=2), now()]",
        "<function=add>{\"a\": 2}</function>\n<function=now>{}</function>",
        "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>\n\
            <tool_call>\n<function=now>\n</function>\n</tool_call>",
    ] {
        let reply = whole(form, &request).await;
        assert_eq!(
            calls(&reply),
            [("add", &json!({"a": 2})), ("now", &json!({}))],
            "{form:?}"
        );
        assert_eq!(
            streamed(&letters(form), &request).await,
            reply,
            "letter by letter: {form:?}"
        );
    }
}

/// JSON in the arguments of a call looks like a separate call.
#[tokio::test]
async fn json_in_family_call_arguments_is_not_a_call() {
    let content = "{\"name\": \"my-page\", \"action\": \"now\", \"args\": {}}";
    let quoted = serde_json::to_string(content).unwrap();
    let request = offered("Put my page into package.json.");
    for form in [
        format!(
            "<function=write>\n<parameter=path>\npackage.json\n</parameter>\n\
                <parameter=content>\n{content}\n</parameter>\n</function>"
        ),
        format!(
            "<tool_call>\n<function=write>\n<parameter=path>\npackage.json\n</parameter>\n\
                <parameter=content>\n{content}\n</parameter>\n</function>\n</tool_call>"
        ),
        format!(
            "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>package.json</arg_value>\n\
                <arg_key>content</arg_key>\n<arg_value>\n{content}\n</arg_value>\n</tool_call>"
        ),
        format!(
            "<invoke name=\"write\">\n<parameter \
                name=\"path\">package.json</parameter>\n<parameter \
                name=\"content\">\n{content}\n</parameter>\n</invoke>"
        ),
        format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n\
                {{\"path\": \"package.json\", \"content\": {quoted}}}\n\
                ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
    ] {
        let reply = whole(&form, &request).await;
        assert_eq!(
            calls(&reply),
            [(
                "write",
                &json!({"path": "package.json", "content": content})
            )],
            "{form}"
        );
        assert_eq!(
            streamed(&letters(&form), &request).await,
            reply,
            "letter by letter: {form:?}"
        );
    }
}

/// A call inside other text is only mentioned.
#[tokio::test]
async fn taught_call_is_parsed_only_at_end_of_reply() {
    let tag = r#"<tool_call>{"name": "now", "arguments": {}}</tool_call>"#;
    for (reply, text, called) in [
        (tag.to_owned(), "", vec!["now"]),
        (format!("{tag}\n{tag}"), "", vec!["now", "now"]),
        (format!("I look.\n{tag}\n"), "I look.\n", vec!["now"]),
        (format!("{tag}\n[add(a=2)]"), "", vec!["now", "add"]),
        (format!("{tag} tells the time."), "", vec![]),
        (format!("Write `{tag}` to call it."), "", vec![]),
        ("Action: now".to_owned(), "", vec!["now"]),
        ("Thought: hm\nAction: now".to_owned(), "", vec!["now"]),
        ("Action: now is the time".to_owned(), "", vec![]),
        ("Action: add".to_owned(), "", vec![]),
        (
            "Action: add\nAction Input: {\"a\": 2}".to_owned(),
            "",
            vec!["add"],
        ),
        ("TOOL_CALL: now\n".to_owned(), "", vec!["now"]),
        (
            "TOOL_CALL: add\nARGUMENTS: {\"a\": 2}\nTOOL_CALL: now".to_owned(),
            "",
            vec!["add", "now"],
        ),
        (
            "TOOL_CALL: add\nARGUMENTS:\n```json\n{\"a\": 2}\n```".to_owned(),
            "",
            vec!["add"],
        ),
        ("They write TOOL_CALL: now".to_owned(), "", vec![]),
        (
            r#"{"action": "add", "args": {"a": 2}}"#.to_owned(),
            "",
            vec!["add"],
        ),
        (
            r#"{"tool": "add", "input": {"a": 2}}"#.to_owned(),
            "",
            vec!["add"],
        ),
        (
            r#"{"thought": "hm", "call_tool": {"tool_name": "now", "tool_arguments": {}}}"#
                .to_owned(),
            "",
            vec!["now"],
        ),
        (
            r#"{"action": "buy", "args": {"a": 2}}"#.to_owned(),
            "",
            vec![],
        ),
    ] {
        let request = offered("And now?");
        let read = whole(&reply, &request).await;
        let names: Vec<&str> = read.message.calls().map(|call| &*call.name).collect();
        let text = if called.is_empty() { &*reply } else { text };
        assert_eq!((&*read.message.text(), names), (text, called), "{reply}");
        assert_eq!(
            streamed(&letters(&reply), &request).await,
            read,
            "letter by letter: {reply:?}"
        );
    }
}

/// Small models often continue and invent the result.
#[tokio::test]
async fn invented_result_is_omitted_and_not_sent_back() {
    for (call, made_up) in [
        (
            "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2}}</tool_call>",
            "<tool_response>5</tool_response>\n<tool_call>{\"name\": \"now\"}</tool_call>",
        ),
        (
            "Action: add\nAction Input: {\"a\": 2}",
            "Observation: 5\nFinal Answer: 5",
        ),
        (
            "TOOL_CALL: add\nARGUMENTS: {\"a\": 2}",
            "TOOL_RESULT: add\n5",
        ),
    ] {
        let (reply, request) = (format!("\n{call}\n{made_up}"), offered("And now?"));
        let read = whole(&reply, &request).await;
        assert_eq!(
            (calls(&read), read.message.text().trim()),
            (vec![("add", &json!({"a": 2}))], ""),
            "{reply}"
        );
        assert_eq!(
            streamed(&letters(&reply), &request).await,
            read,
            "letter by letter: {reply:?}"
        );
        let inner = ScriptedModel::new().reply("Two.");
        let mut request = request;
        let mut exchange = request.history.open(read.message.clone()).unwrap();
        let call_read: ToolCall = exchange.unanswered().next().unwrap().clone();
        exchange
            .answer(ToolResult::new(&call_read, Ok(ToolOutput::text("2"))))
            .unwrap();
        request.history.close(exchange, &ToolError::failed("none"));
        inner.clone().text_tools().complete(request).await.unwrap();
        let sent = inner.requests().pop().unwrap();
        assert_eq!(sent.history.messages()[1].text().trim(), call, "{reply}");
    }
    let read = whole("Observation: it rains", &offered("And now?")).await;
    assert_eq!(read.message.text(), "Observation: it rains");
}

#[tokio::test]
async fn reasoning_before_reply_becomes_thinking() {
    for (reply, thinking, text, called) in [
        ("[Thinking: a [b] c]\n\nYes.", "a [b] c", "Yes.", 0),
        ("<think>hm</think>\nYes.", "hm", "Yes.", 0),
        ("<think>hm</think>\n[add(a=2)]", "hm", "", 1),
        ("[Thinking: hm] [add(a=2)]", "hm", "", 1),
        ("add [Thinking: hm] more", "", "add [Thinking: hm] more", 0),
        (
            "The <think> tag opens a thought.",
            "",
            "The <think> tag opens a thought.",
            0,
        ),
    ] {
        for request in [offered("And now?"), ask("And now?")] {
            let read = whole(reply, &request).await;
            let has_tools = !request.tools.is_empty();
            if has_tools || called == 0 {
                let found = (
                    &*read.message.thinking(),
                    &*read.message.text(),
                    read.message.calls().count(),
                );
                assert_eq!(found, (thinking, text, called), "{reply}");
            }
            assert_eq!(
                streamed(&letters(reply), &request).await,
                read,
                "letter by letter: {reply:?}"
            );
        }
    }
}

#[tokio::test]
async fn family_call_after_provider_reasoning_is_parsed() {
    let call = "[TOOL_CALLS]add{\"a\": 2}";
    let signature = ProviderState::new("test", json!("s"));
    let turns: [fn(ProviderState) -> Turn; 2] = [
        |_| Turn::new().thinking("hm"),
        |signature| Turn::new().thinking("hm").opaque(signature),
    ];
    for turn in turns {
        let script = || {
            ScriptedModel::new()
                .turn(turn(signature.clone()).text(call))
                .text_tools()
        };
        let reply = script().complete(offered("And now?")).await.unwrap();
        assert_eq!(
            (calls(&reply), &*reply.message.thinking()),
            (vec![("add", &json!({"a": 2}))], "hm")
        );
        assert_eq!(
            script()
                .stream(offered("And now?"))
                .await
                .unwrap()
                .fold()
                .await
                .unwrap(),
            reply
        );
    }
}

/// Creates a conversation about the tools of a set in `tests/data`.
fn row_request(sets: &Value, row: &Value) -> Request {
    let tools = sets[row["tools"].as_str().unwrap()]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
            Arc::new(
                ToolSpec::new(text("name"), text("description"))
                    .with_input(tool["parameters"].clone()),
            )
        });
    let mut request = Request::new().with_tools(tools.collect::<Vec<_>>());
    for message in row["before"].as_array().into_iter().flatten() {
        let text = message["text"].as_str().unwrap_or_default();
        request = match message["role"].as_str() {
            Some("assistant") => request.with_message(Message::assistant(text)),
            _ => request.with_message(Message::user(text)),
        };
    }
    request.with_message(Message::user(row["asked"].as_str().unwrap_or_default()))
}

fn rows(text: &str) -> (Value, Vec<Value>) {
    let sets = serde_json::from_str(include_str!("../../data/tool_sets.json")).unwrap();
    (
        sets,
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

#[tokio::test]
async fn reply_mentioning_calls_stays_text() {
    let (sets, rows) = rows(include_str!("../../data/not_calls.jsonl"));
    assert!(rows.len() >= 300);
    let mut wrong = Vec::new();
    for row in &rows {
        let (request, reply) = (row_request(&sets, row), row["reply"].as_str().unwrap());
        let read = whole(reply, &request).await;
        assert_eq!(
            streamed(&letters(reply), &request).await,
            read,
            "{}",
            row["id"]
        );
        if read.message.calls().next().is_some() {
            wrong.push(format!("{} | {} | {reply}", row["id"], row["asked"]));
        } else if read.message.thinking().is_empty() {
            assert_eq!(read.message.text(), reply, "{}", row["id"]);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn call_reply_of_any_family_is_parsed() {
    let (sets, rows) = rows(include_str!("../../data/calls.jsonl"));
    let mut wrong = Vec::new();
    for row in &rows {
        let (request, reply) = (row_request(&sets, row), row["reply"].as_str().unwrap());
        let read = whole(reply, &request).await;
        assert_eq!(
            streamed(&letters(reply), &request).await,
            read,
            "{}",
            row["id"]
        );
        let found: Vec<Value> = read
            .message
            .calls()
            .map(|call| json!({"name": call.name, "arguments": call.args}))
            .collect();
        if json!(found) != row["calls"] {
            wrong.push(format!(
                "{} | {reply:?} | {:?}",
                row["id"], read.message.parts
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

/// A question, a reply in the form of a call, and the reason why it stays text.
const NO_CALLS: [(&str, &str, &str); 14] = [
    (
        "?",
        "[TOOL_CALLS] [{\"name\": \"sum\", \"arguments\": {\"a\": 2}}]",
        "the tool is not offered",
    ),
    ("?", "[sum(a=2)]", "the tool is not offered"),
    (
        "?",
        "<function=sum>{\"a\": 2}</function>",
        "the tool is not offered",
    ),
    (
        "?",
        "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"x\": 2}}]",
        "the tool has no such argument",
    ),
    ("?", "[add(a=2)] adds.", "words stand behind it"),
    (
        "?",
        "<function=add>{\"a\": 2}</function>\nThat is how it looks.",
        "words stand behind it",
    ),
    (
        "?",
        "It looks like this: <|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 2}}",
        "it is an example",
    ),
    (
        "?",
        "I know the sum.\n\nIt is two.\n\n[add(a=2)]",
        "it stands behind an answer",
    ),
    ("?", "`[add(a=2)]`", "it is quoted"),
    ("?", "now()", "it says nothing"),
    (
        "Give me the call as JSON.",
        "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 2}}]",
        "JSON was asked for",
    ),
    (
        "Write Python code that adds.",
        "add(a=2)",
        "code was asked for",
    ),
    (
        "Write a snippet that adds.",
        "```python\nadd(a=2)\n```",
        "code was asked for",
    ),
    (
        "The page says [TOOL_CALLS]add{\"a\": 2} at its end.",
        "[TOOL_CALLS]add{\"a\": 2}",
        "the user said it",
    ),
];

#[tokio::test]
async fn text_that_is_not_a_family_call_is_unchanged() {
    for (asked, text, why) in NO_CALLS {
        let request = offered(asked);
        let read = whole(text, &request).await;
        assert_eq!(
            (&*read.message.text(), read.message.calls().count()),
            (text, 0),
            "{why}"
        );
        assert_eq!(read.finish, Finish::Stop, "{why}");
        assert_eq!(
            streamed(&letters(text), &request).await,
            read,
            "letter by letter: {text:?}"
        );
    }
    let shape = OutputSchema::new(
        "Sum",
        json!({"type": "object", "required": ["function", "arguments"]}),
    );
    let answer = "{\"function\": \"add\", \"arguments\": {\"a\": 2}}";
    let read = whole(answer, &offered("?").with_output(shape)).await;
    assert_eq!(
        (&*read.message.text(), read.message.calls().count()),
        (answer, 0),
        "it is the answer asked for"
    );
    let read = whole("[add(a=2)]", &ask("?")).await;
    assert_eq!(read.message.calls().count(), 0, "no tool is offered");
    let model = scripted(&["[add(a=2)] adds."], Finish::Stop)
        .text_tools()
        .with_native_calls();
    assert_eq!(
        model
            .complete(offered("?"))
            .await
            .unwrap()
            .message
            .calls()
            .count(),
        0
    );
}

#[tokio::test]
async fn only_possible_family_calls_are_buffered() {
    let reply = [
        "Hello",
        " there",
        ", [1]",
        " <b>x</b>",
        "\nadd",
        "itional",
        " words",
        "\n[TOOL",
        "_TIME]",
        " it is.",
    ];
    let model = scripted(&reply, Finish::Stop).text_tools();
    let (deltas, error) = pieces(&model, offered("?")).await;
    let texts: Vec<&str> = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let expected = [
        "Hello",
        " there",
        ", [1]",
        " <b>x</b>",
        "\n",
        "additional",
        " words",
        "\n",
        "[TOOL_TIME]",
        " it is.",
    ];
    assert_eq!((texts, error), (expected.to_vec(), None));
}

#[tokio::test]
async fn call_returns_to_model_as_written() {
    let written = "I will add.\n[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 2}}, \
        {\"name\": \"now\"}]";
    let taught = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \
        2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>";
    for written in [written, taught] {
        let inner = scripted(&[written], Finish::Stop).reply("Two.");
        let model = inner.clone().text_tools();
        let (mut deltas, mut request) = (pieces(&model, offered("?")).await.0, offered("?"));
        let notices: Vec<Delta> = deltas
            .extract_if(.., |delta| matches!(delta, Delta::Notice { .. }))
            .collect();
        assert_eq!(
            notices,
            [Delta::Notice {
                text: "read from text: call of `add`, `now`".into()
            }]
        );
        let mut fold = levity_core::Fold::new();
        deltas
            .into_iter()
            .for_each(|delta| fold.push(delta).unwrap());
        let mut exchange = request.history.open(fold.finish().message).unwrap();
        let call: ToolCall = exchange.unanswered().next().unwrap().clone();
        exchange
            .answer(ToolResult::new(&call, Ok(ToolOutput::text("2"))))
            .unwrap();
        request
            .history
            .close(exchange, &ToolError::failed("no clock"));
        assert_eq!(
            model.complete(request).await.unwrap().message.text(),
            "Two."
        );
        let sent = inner.requests().pop().unwrap();
        assert_eq!(sent.history.messages()[1].text(), written);
    }
}

#[tokio::test]
async fn truncated_family_call_has_invalid_arguments() {
    for text in [
        "[TOOL_CALLS] [{\"name\": \"add\", \"argu",
        "<function=add>{\"a\": 2",
        "[add(a=2",
    ] {
        let model = scripted(&[text], Finish::Length).text_tools();
        let reply = model.complete(offered("?")).await.unwrap();
        let found: Vec<_> = reply
            .message
            .calls()
            .map(|call| (&*call.name, call.raw.as_deref()))
            .collect();
        assert_eq!(
            (found, &reply.finish),
            (vec![("add", Some(text))], &Finish::Length)
        );
    }
}

#[tokio::test]
async fn family_call_is_parsed_in_adapted_mode_without_tools() {
    for form in FORMS {
        let adapted = scripted(&[form], Finish::Stop)
            .adapt_tools()
            .with_mode(ToolMode::Text);
        let reply = adapted.complete(offered("?")).await.unwrap();
        assert_eq!(
            (calls(&reply), adapted.mode()),
            (vec![("add", &json!({"a": 2}))], Some(ToolMode::Text)),
            "{form}"
        );
        // The server does not enforce the JSON Schema.
        let adapted = scripted(&[form], Finish::Stop)
            .adapt_tools()
            .with_mode(ToolMode::Structured);
        let reply = adapted
            .stream(offered("?"))
            .await
            .unwrap()
            .fold()
            .await
            .unwrap();
        assert_eq!(calls(&reply), [("add", &json!({"a": 2}))], "{form}");
    }
    let answer = scripted(&[r#"{"reply": {"answer": "[add(a=2)]"}}"#], Finish::Stop)
        .text_tools()
        .structured();
    let reply = answer.complete(offered("?")).await.unwrap();
    assert_eq!(
        (&*reply.message.text(), reply.message.calls().count()),
        ("[add(a=2)]", 0),
        "the schema says so"
    );
}

#[tokio::test]
async fn family_call_of_restarted_reply_is_parsed_once() {
    let error = levity_core::ModelError::new(levity_core::ModelErrorKind::Transport, "broke off");
    let inner = ScriptedModel::new()
        .turn(
            Turn::new()
                .text("{\"action\": \"final_answer\", \"input\": \"x\"}\n[TOOL_CALLS] [{\"na")
                .break_off(error),
        )
        .reply("[TOOL_CALLS]add{\"a\": 2}");
    let (_, world) = super::support::auto();
    let model = inner
        .retry()
        .restart_after_first_delta()
        .with_world(world)
        .text_tools();
    let reply = model
        .stream(offered("?"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    assert_eq!(
        (&*reply.message.text(), calls(&reply)),
        ("", vec![("add", &json!({"a": 2}))])
    );
}

/// Generates texts from parts of calls, in taught forms and in those of families.
fn odd_text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "\n",
        " ",
        "`",
        "```",
        "```json\n",
        "{",
        "}",
        "[",
        "]",
        "add",
        "add(a=2)",
        "é",
        "Thought:",
        "Action: now",
        "TOOL_CALL: now",
        "[Thinking: hm]",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tools>",
        "[TOOL_CALLS]",
        "<|tool_call|>",
        "<function=add>",
        "</function>",
        "<parameter=a>2</parameter>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "{\"a\": 2}",
        "{\"name\": \"add\", \"arguments\": {\"a\": 2}}",
        "{\"action\": \"final_answer\", \"input\": \"x\"}",
    ]);
    prop::collection::vec(word, 0..16).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn chunk_boundaries_do_not_matter(text in odd_text(), at in 0..200usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let request = offered("And now?");
        runtime.block_on(async {
            let read = whole(&text, &request).await;
            prop_assert_eq!(&streamed(&letters(&text), &request).await, &read);
            let (before, behind) = text.split_at(text.floor_char_boundary(at));
            prop_assert_eq!(&streamed(&[before, behind], &request).await, &read);
            Ok(())
        })?;
    }
}
