use std::collections::VecDeque;
use std::sync::Arc;

use levity_core::{Delta, Finish, Fold, Message, Request, ToolSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::TextCallParser;

fn tools() -> Vec<Arc<ToolSpec>> {
    let object = |properties: Value, required: Value| {
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
        })
    };
    let weather = object(
        json!({
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
        }),
        json!(["city"]),
    );
    let add = object(
        json!({"a": {"type": "number"}, "b": {"type": "number"}}),
        json!(["a", "b"]),
    );
    vec![
        ToolSpec::new("get_weather", "Weather.")
            .with_input(weather)
            .into(),
        ToolSpec::new("add", "Adds.").with_input(add).into(),
        ToolSpec::new("now", "Tells the time.")
            .with_input(object(json!({}), json!([])))
            .into(),
    ]
}

fn request(question: &str) -> Request {
    Request::new()
        .with_tools(tools())
        .with_message(Message::user(question))
}

/// Parses a reply in these chunks and returns its text and its calls with arguments.
fn read(question: &str, pieces: &[&str]) -> (String, Vec<(String, Value)>, Finish) {
    let mut call_parser = TextCallParser::new(&request(question), None).unwrap();
    let mut out = VecDeque::new();
    for piece in pieces {
        call_parser.take(Delta::Text((*piece).to_owned()), &mut out);
    }
    call_parser.take(Delta::Finish(Finish::Stop), &mut out);
    call_parser.end(&mut out);
    let mut fold = Fold::new();
    out.into_iter().for_each(|delta| fold.push(delta).unwrap());
    let response = fold.finish();
    let calls = response
        .message
        .calls()
        .map(|call| (call.name.clone(), call.args.clone()))
        .collect();
    (response.message.text().into_owned(), calls, response.finish)
}

/// Does the same for a whole text and for its single characters.
#[track_caller]
fn whole(question: &str, text: &str) -> (String, Vec<(String, Value)>, Finish) {
    let read_whole = read(question, &[text]);
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    assert_eq!(
        read(question, &letters),
        read_whole,
        "character by character: {text}"
    );
    read_whole
}

#[test]
fn call_in_any_known_form_is_parsed() {
    let rome = ("get_weather".to_owned(), json!({"city": "Rome"}));
    let forms = [
        r#"{"name": "get_weather", "arguments": {"city": "Rome"}}"#,
        "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Rome\"\n  \
            }\n}\n```",
        "```\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}\n```\n",
        r#"{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}"#,
        r#"{"type": "function", "function": {"name": "get_weather",
            "arguments": "{\"city\": \"Rome\"}"}}"#,
        r#"{"function": "get_weather", "arguments": {"city": "Rome"}}"#,
        r#"{"tool": "get_weather", "args": {"city": "Rome"}}"#,
        r#"{"action": "get_weather", "action_input": {"city": "Rome"}}"#,
        r#"{"tool": "get_weather", "input": {"city": "Rome"}}"#,
        r#"{"tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "get_weather", "arguments": "{\"city\":\"Rome\"}"}}]}"#,
        r#"{"role": "assistant", "content": null,
            "tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}]}"#,
        r#"[{"name": "get_weather", "arguments": {"city": "Rome"}}]"#,
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \
            {\"city\": \"Rome\"}}\n</tool_call>",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}",
        "<tools>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tools>",
        "<function=get_weather>{\"city\": \"Rome\"}</function>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n\
         </tool_call>",
        "<function_call>{\"name\": \"get_weather\", \"arguments\": \
            {\"city\": \"Rome\"}}</function_call>",
        "<functioncall> {\"name\": \"get_weather\", \"arguments\": '{\"city\": \"Rome\"}'}",
        "<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome</parameter>\n</invoke>",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n\
         </tool_call>",
        r#"[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]"#,
        r#"[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}"#,
        r#"[TOOL_CALLS]get_weather{"city": "Rome"}"#,
        r#"<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rome"}}"#,
        r#"<|python_tag|>get_weather(city="Rome")"#,
        r#"<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome"}}]<|/tool_call|>"#,
        "<|tool_call_start|>[get_weather(city=\"Rome\")]<|tool_call_end|>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n\
         {\"city\": \"Rome\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \
         \"Rome\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|><|tool_call_begin|>\
         functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \
         \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>",
        "<start_function_call>call:get_weather{city: \"Rome\"}<end_function_call>",
        "```tool_code\nget_weather(city=\"Rome\")\n```",
        "```tool_code\nprint(get_weather(city='Rome'))\n```",
        "[get_weather(city='Rome')]",
        "get_weather(city='Rome')",
        "get_weather('Rome')",
        "functions.get_weather({\"city\": \"Rome\"})",
        "get_weather\n{\"city\": \"Rome\"}",
        "{'name': 'get_weather', 'arguments': {'city': 'Rome'}}",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}",
        "I will look up the weather in Rome.\n```json\n{\"name\": \"get_weather\", \"arguments\": \
            {\"city\": \"Rome\"}}\n```",
        "Let me check: {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}",
        "Sure.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \
            {\"city\": \"Rome\"}}\n</tool_call>",
    ];
    for form in forms {
        let (text, calls, finish) = whole("How is the weather in Rome?", form);
        assert_eq!(
            (calls, finish),
            (vec![rome.clone()], Finish::ToolCalls),
            "{form}"
        );
        assert!(!text.contains("get_weather"), "{form}: {text}");
    }
}

#[test]
fn several_calls_are_all_parsed() {
    let expected = vec![
        ("get_weather".to_owned(), json!({"city": "Rome", "days": 3})),
        ("add".to_owned(), json!({"a": 1, "b": 2.5})),
        ("now".to_owned(), json!({})),
    ];
    for form in [
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": \
            3}}\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \
            2.5}}\n{\"name\": \"now\", \"arguments\": {}}",
        "[get_weather(city=\"Rome\", days=3), add(a=1, b=2.5), now()]",
        "```json\n[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}, \
            {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2.5}}, {\"name\": \"now\"}]\n```",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": \
            3}}</tool_call>\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \
            2.5}}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n\
         <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
         <function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2.5\n</parameter>\n\
         </function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": \
            3}}\n```\n```json\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \
            2.5}}\n```\n```json\n{\"name\": \"now\"}\n```",
    ] {
        let (_, calls, _) = whole("Weather in Rome, the sum, the time?", form);
        assert_eq!(calls, expected, "{form}");
    }
}

#[test]
fn call_is_parsed_if_requested_json_has_another_shape() {
    let question = "Answer with one JSON object that has these keys: {\"report\": .., \"name\": \
        ..}";
    let call = r#"{"name": "get_weather", "arguments": {"city": "Rome"}}"#;
    let (_, calls, _) = whole(question, call);
    assert_eq!(calls, [("get_weather".to_owned(), json!({"city": "Rome"}))]);
    let answer = r#"{"name": "add", "args": {"report": 1, "name": 2}, "report": "x"}"#;
    assert_eq!(whole(question, answer).1, []);
    let question = "As JSON: {\"name\": ..., \"arguments\": ...}";
    assert_eq!(
        whole(question, call).1,
        [],
        "the JSON is the requested answer"
    );
    assert_eq!(
        whole("As JSON, please: {\"city\": \"Rome\"}", call).1,
        [],
        "no shape is shown"
    );
}

#[test]
fn truncated_call_has_invalid_arguments() {
    let cases = [
        (
            r#"{"name": "get_weather", "arguments": {"city": "Ro"#,
            "get_weather",
        ),
        (
            r#"{"name": "get_weather", "arguments": {"city": "Rome"}"#,
            "get_weather",
        ),
        (
            "```json\n{\"name\": \"add\", \"arguments\": {\"a\": 1",
            "add",
        ),
        (
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
            "add",
        ),
        ("I will look.\n{\"name\": \"now\", \"argu", "now"),
        ("get_weather(city=\"Ro", "get_weather"),
    ];
    for (text, name) in cases {
        let mut call_parser = TextCallParser::new(
            &request(
                "How is the weather in \
            Rome?",
            ),
            None,
        )
        .unwrap();
        let mut out = VecDeque::new();
        call_parser.take(Delta::Text(text.to_owned()), &mut out);
        call_parser.take(Delta::Finish(Finish::Length), &mut out);
        let mut fold = Fold::new();
        out.into_iter().for_each(|delta| fold.push(delta).unwrap());
        let response = fold.finish();
        let calls: Vec<_> = response
            .message
            .calls()
            .map(|call| (&*call.name, call.raw.is_some()))
            .collect();
        assert_eq!(
            (calls, response.finish),
            (vec![(name, true)], Finish::Length),
            "{text}"
        );
    }
}

#[test]
fn truncated_text_without_call_stays_text() {
    for text in [
        "The weather in Rome is",
        "{\"city\": \"Ro",
        r#"{"name": "Rome", "mayor""#,
        "get_weather is a tool",
    ] {
        let mut call_parser = TextCallParser::new(
            &request(
                "How is the weather in \
            Rome?",
            ),
            None,
        )
        .unwrap();
        let mut out = VecDeque::new();
        call_parser.take(Delta::Text(text.to_owned()), &mut out);
        call_parser.take(Delta::Finish(Finish::Length), &mut out);
        assert!(
            !out.iter()
                .any(|delta| matches!(delta, Delta::CallStart { .. })),
            "{text}: {out:?}"
        );
    }
}

#[test]
fn text_that_cannot_be_a_call_is_not_held_back() {
    let mut call_parser = TextCallParser::new(&request("Hello"), None).unwrap();
    for text in [
        "H",
        "ello",
        "! I",
        " can tell the",
        " weather,\n",
        "and {sums} [too]",
        ".\nAsk",
        " me",
    ] {
        let mut out = VecDeque::new();
        call_parser.take(Delta::Text(text.to_owned()), &mut out);
        assert_eq!(out, [Delta::Text(text.to_owned())]);
    }
}

#[test]
fn endless_white_space_after_call_start_is_not_held_back() {
    for begin in ["```\n", "```json\n", "[", "add", "{", "functions.add"] {
        let mut call_parser = TextCallParser::new(&request("Hello"), None).unwrap();
        let mut out = VecDeque::new();
        call_parser.take(Delta::Text(begin.to_owned()), &mut out);
        for _ in 0..5_000 {
            call_parser.take(Delta::Text("\n".to_owned()), &mut out);
        }
        let text: String = out
            .iter()
            .map(|delta| {
                if let Delta::Text(text) = delta {
                    text
                } else {
                    ""
                }
            })
            .collect();
        assert_eq!(text, begin.to_owned() + &"\n".repeat(5_000), "{begin}");
    }
}

/// Returns a request with a tool set of `tests/data` and a conversation about it.
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
            // Results need calls before them; for quoted text, a user message is equivalent.
            _ => request.with_message(Message::user(text)),
        };
    }
    request.with_message(Message::user(row["asked"].as_str().unwrap_or_default()))
}

fn rows(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn read_row(sets: &Value, row: &Value) -> Vec<Value> {
    let mut call_parser = TextCallParser::new(&row_request(sets, row), None).unwrap();
    let mut out = VecDeque::new();
    call_parser.take(
        Delta::Text(row["reply"].as_str().unwrap().to_owned()),
        &mut out,
    );
    call_parser.take(Delta::Finish(Finish::Stop), &mut out);
    let mut fold = Fold::new();
    out.into_iter().for_each(|delta| fold.push(delta).unwrap());
    let message = fold.finish().message;
    message
        .calls()
        .map(|call| json!({"name": call.name, "arguments": call.args}))
        .collect()
}

#[test]
fn reply_that_only_mentions_calls_stays_text() {
    let sets: Value =
        serde_json::from_str(include_str!("../../tests/data/tool_sets.json")).unwrap();
    let rows = rows(include_str!("../../tests/data/not_calls.jsonl"));
    assert!(rows.len() >= 300);
    let failed: Vec<&Value> = rows
        .iter()
        .filter(|row| !read_row(&sets, row).is_empty())
        .collect();
    let shown: Vec<String> = failed
        .iter()
        .map(|row| format!("{} | {} | {}", row["id"], row["asked"], row["reply"]))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        rows.len(),
        shown.join("\n")
    );
}

#[test]
fn call_of_any_model_family_is_parsed() {
    let sets: Value =
        serde_json::from_str(include_str!("../../tests/data/tool_sets.json")).unwrap();
    let rows = rows(include_str!("../../tests/data/calls.jsonl"));
    let failed: Vec<&Value> = rows
        .iter()
        .filter(|row| json!(read_row(&sets, row)) != row["calls"])
        .collect();
    let shown: Vec<String> = failed
        .iter()
        .map(|row| {
            format!(
                "{} | {} | {} | {:?}",
                row["id"],
                row["asked"],
                row["reply"],
                read_row(&sets, row)
            )
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        rows.len(),
        shown.join("\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn parser_neither_loses_text_nor_panics(pieces in prop::collection::vec(fragment(), 0..12)) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let (text, calls, _) = read("Hello", &pieces);
        if calls.is_empty() {
            prop_assert_eq!(text, pieces.concat());
        }
    }
}

fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("{\"name\": \"add\"".to_owned()),
        Just(", \"arguments\": {\"a\": 1, \"b\": 2}}".to_owned()),
        Just("```json\n".to_owned()),
        Just("\n```".to_owned()),
        Just("<tool_call>".to_owned()),
        Just("</tool_call>".to_owned()),
        Just("add(".to_owned()),
        Just(")".to_owned()),
        Just("now".to_owned()),
        Just("[TOOL_CALLS]".to_owned()),
        Just("\n".to_owned()),
        Just("<｜tool▁sep｜>".to_owned()),
        any::<String>(),
    ]
}
