//! Streams with the variations of many servers. Each is parsed in one piece, byte by byte, and in
//! between.

#![allow(
    clippy::needless_pass_by_value,
    reason = "values are written where they are used"
)]

use levity_core::{ModelError, ModelErrorKind, Part, ProviderState, Response};
use levity_llm::__private::decode_chat_stream;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};

use super::summary_of;

fn read(stream: &str) -> Result<Response, ModelError> {
    let whole = decode_chat_stream([stream.as_bytes()]);
    for length in [1, 7, 64] {
        let cut = decode_chat_stream(stream.as_bytes().chunks(length));
        assert_eq!(cut, whole, "in pieces of {length}");
    }
    whole
}

/// Checks a stream that has an end.
#[track_caller]
fn check(chunks: &[Value], expected: Value) {
    let reply = read(&(events(chunks) + "data: [DONE]\n\n")).unwrap();
    assert_eq!(summary_of(&reply), expected);
}

fn events(chunks: &[Value]) -> String {
    chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn text(text: &str) -> Value {
    delta(json!({ "content": text }))
}

fn finish_with(word: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
}

fn calls(calls: Value) -> Value {
    delta(json!({ "tool_calls": calls }))
}

fn usage(input: u64, output: u64) -> Value {
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

#[test]
fn usage_is_read_from_any_chunk() {
    let counts = |chunks: &[Value]| check(chunks, json!({"text": "a", "usage": [9, 7]}));
    counts(&[
        text("a"),
        finish_with("stop"),
        json!({"choices": [], "usage": usage(9, 7)}),
    ]);
    counts(&[
        text("a"),
        finish_with("stop"),
        json!({"usage": usage(9, 7)}),
    ]);
    let beside = |mut chunk: Value, name: &str, usage: Value| {
        chunk[name] = usage;
        chunk
    };
    counts(&[text("a"), beside(finish_with("stop"), "usage", usage(9, 7))]);
    counts(&[
        beside(text("a"), "usage", usage(9, 1)),
        beside(finish_with("stop"), "usage", usage(9, 7)),
    ]);
    let groq = json!({"id": "req", "usage": usage(9, 7)});
    counts(&[
        text("a"),
        beside(
            beside(finish_with("stop"), "x_groq", groq.clone()),
            "usage",
            usage(9, 7),
        ),
    ]);
    counts(&[text("a"), beside(finish_with("stop"), "x_groq", groq)]);
    counts(&[
        beside(text("a"), "usage", json!(null)),
        json!({"choices": [], "usage": usage(9, 7)}),
    ]);
    check(&[text("a"), finish_with("stop")], json!({"text": "a"}));
    check(
        &[
            beside(text("a"), "usage", json!("none")),
            finish_with("stop"),
        ],
        json!({"text": "a"}),
    );
}

#[test]
fn cost_and_reasoning_tokens_are_counted() {
    let counts = json!({
        "prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 21, "cost": 0.5,
        "completion_tokens_details": {"reasoning_tokens": 5},
    });
    let stream = events(&[
        text("a"),
        finish_with("stop"),
        json!({"choices": [], "usage": counts}),
    ]);
    let usage = read(&stream).unwrap().usage;
    assert_eq!(
        (usage.output, usage.reasoning, usage.cost.unwrap().nanos()),
        (Some(12), Some(5), 500_000_000)
    );
}

#[test]
fn empty_chunks_are_ignored() {
    let filter = json!({"choices": [], "model": "", "object": "",
        "prompt_filter_results": [{"prompt_index": 0}]});
    let bare =
        json!({"choices": [{"index": 0, "finish_reason": null, "content_filter_results": {}}]});
    let absent = json!({"choices": null});
    check(
        &[
            filter,
            bare,
            absent,
            json!({}),
            text("a"),
            finish_with("stop"),
        ],
        json!({"text": "a"}),
    );
    check(
        &[
            json!({"choices": [null, {"delta": null}]}),
            text("a"),
            finish_with("stop"),
        ],
        json!({"text": "a"}),
    );
    check(
        &[
            json!({"choices": {"odd": [1]}, "object": 7}),
            text("a"),
            finish_with("stop"),
        ],
        json!({"text": "a"}),
    );
}

#[test]
fn calls_are_read_in_pieces_or_whole() {
    let expected =
        json!({"calls": [["c1", "add", {"a": 2}], ["c2", "now", {}]], "finish": "tool_calls"});
    let whole = |chunks: &[Value]| check(chunks, expected.clone());
    let add = json!({"name": "add", "arguments": "{\"a\":2}"});
    let now = json!({"name": "now", "arguments": ""});
    let first = json!({"index": 0, "id": "c1", "type": "function", "function": add});
    let second = json!({"index": 1, "id": "c2", "type": "function", "function": now});
    whole(&[
        calls(json!([first])),
        calls(json!([second])),
        finish_with("tool_calls"),
    ]);
    whole(&[calls(json!([first, second])), finish_with("tool_calls")]);
    // Without an index, and without a type.
    let (first, second) = (
        json!({"id": "c1", "function": add}),
        json!({"id": "c2", "function": now}),
    );
    whole(&[calls(json!([first, second])), finish_with("tool_calls")]);
    whole(&[
        calls(json!([first])),
        calls(json!([second])),
        finish_with("tool_calls"),
    ]);
    // Interleaved pieces, with index and id in unusual forms.
    let begin = |at: Value, id: &str, name: &str| {
        json!({"index": at, "id": id,
        "function": {"name": name}})
    };
    let more = |at: Value, id: Value, args: &str| {
        json!({"index": at, "id": id,
        "function": {"arguments": args}})
    };
    let pieces = |later: Value| {
        vec![
            calls(json!([
                begin(json!(0), "c1", "add"),
                begin(json!(1), "c2", "now")
            ])),
            calls(json!([
                more(json!(0), later.clone(), "{\"a\""),
                more(json!(1), later.clone(), "{}")
            ])),
            calls(json!([more(json!(0), later, ":2}")])),
            finish_with("tool_calls"),
        ]
    };
    whole(&pieces(json!(null)));
    whole(&pieces(json!("")));
    // A different id in every piece.
    whole(&pieces(json!("chatcmpl-tool-7")));
    whole(&[
        calls(json!([begin(json!("0"), "c1", "add")])),
        calls(json!([more(json!("0"), json!(null), "{\"a\":2}")])),
        calls(json!([begin(json!("1"), "c2", "now")])),
        finish_with("tool_calls"),
    ]);
    // No index or id after the first piece.
    let loose = |args: &str| calls(json!([{"function": {"arguments": args}}]));
    whole(&[
        calls(json!([{"id": "c1", "function": {"name": "add"}}])),
        loose("{\"a\""),
        loose(":2}"),
        calls(json!([{"id": "c2", "function": {"name": "now", "arguments": null}}])),
        finish_with("tool_calls"),
    ]);
    // All fields in every piece.
    let again = |args: &str| {
        calls(json!([{"index": 0, "id": "c1", "function": {"name": "add", "arguments": args}}]))
    };
    whole(&[
        again("{\"a\""),
        again(":2}"),
        calls(json!([begin(json!(1), "c2", "now")])),
        finish_with("tool_calls"),
    ]);
    // Arguments that are not a string.
    let object =
        json!({"index": 0, "id": "c1", "function": {"name": "add", "arguments": {"a": 2}}});
    whole(&[
        calls(json!([object, begin(json!(1), "c2", "now")])),
        finish_with("tool_calls"),
    ]);
}

#[test]
fn late_or_missing_tool_names_are_handled() {
    let piece = |function: Value| calls(json!([{"index": 0, "id": "c1", "function": function}]));
    let late = [
        piece(json!({"name": "", "arguments": "{\"a\""})),
        piece(json!({"name": "add", "arguments": ":2"})),
        piece(json!({"arguments": "}"})),
        finish_with("tool_calls"),
    ];
    check(
        &late,
        json!({"calls": [["c1", "add", {"a": 2}]], "finish": "tool_calls"}),
    );
    let never = [piece(json!({"arguments": "{}"})), finish_with("tool_calls")];
    check(
        &never,
        json!({"calls": [["c1", "", {}]], "finish": "tool_calls"}),
    );
}

#[test]
fn calls_without_id_get_one() {
    let call = |a: u64| {
        let function = json!({"name": "add", "arguments": format!("{{\"a\":{a}}}")});
        json!({"index": 0, "id": "", "type": "function", "function": function})
    };
    let expected =
        json!({"calls": [["", "add", {"a": 2}], ["", "add", {"a": 3}]], "finish": "tool_calls"});
    check(
        &[calls(json!([call(2), call(3)])), finish_with("stop")],
        expected.clone(),
    );
    check(
        &[
            calls(json!([call(2)])),
            calls(json!([call(3)])),
            finish_with("stop"),
        ],
        expected,
    );
}

#[test]
fn truncated_arguments_are_retained() {
    let call = calls(json!([{"index": 0, "id": "c1",
            "function": {"name": "add", "arguments": "{\"a\": 2, \"b"}}]));
    let raw = json!({"calls": [["c1", "add", {"raw": "{\"a\": 2, \"b"}]], "finish": "length"});
    check(&[call.clone(), finish_with("length")], raw);
    let filtered =
        json!({"calls": [["c1", "add", {"raw": "{\"a\": 2, \"b"}]], "finish": "content_filter"});
    check(&[call, finish_with("content_filter")], filtered);
}

#[test]
fn finish_reasons_of_many_servers_are_mapped() {
    let call =
        calls(json!([{"index": 0, "id": "c1", "function": {"name": "now", "arguments": ""}}]));
    for word in ["stop", "", "eos", "tool_calls", "function_call"] {
        check(
            &[call.clone(), finish_with(word)],
            json!({"calls": [["c1", "now", {}]], "finish": "tool_calls"}),
        );
    }
    check(
        std::slice::from_ref(&call),
        json!({"calls": [["c1", "now", {}]], "finish": "tool_calls"}),
    );
    for word in ["stop", "eos", "end_turn"] {
        check(&[text("a"), finish_with(word)], json!({"text": "a"}));
    }
    check(
        &[text("a"), finish_with("length")],
        json!({"text": "a", "finish": "length"}),
    );
    check(
        &[text("a"), finish_with("content_filter")],
        json!({"text": "a", "finish": "content_filter"}),
    );
    check(&[text("a"), finish_with("insufficient_system_resource")], {
        json!({"text": "a", "finish": {"other": "insufficient_system_resource"}})
    });
    // Null to the end, missing to the end, and repeated.
    check(&[text("a")], json!({"text": "a"}));
    check(
        &[text("a"), finish_with("")],
        json!({"text": "a", "finish": {"other": ""}}),
    );
    check(
        &[
            text("a"),
            finish_with(""),
            finish_with("length"),
            finish_with("stop"),
        ],
        json!({"text": "a", "finish": "length"}),
    );
}

#[test]
fn reasoning_is_read_from_many_fields() {
    let expected = || json!({"thinking": "Hm. So.", "text": "a"});
    let think = |name: &str, said: &str| delta(json!({name: said, "content": null}));
    for name in ["reasoning_content", "reasoning"] {
        check(
            &[
                think(name, "Hm. "),
                think(name, "So."),
                text("a"),
                finish_with("stop"),
            ],
            expected(),
        );
    }
    // Under two names, and with details.
    let both = |said: &str| {
        let detail = json!({"type": "reasoning.text", "text": said, "index": 0});
        delta(json!({"reasoning": said, "reasoning_content": said, "reasoning_details": [detail]}))
    };
    check(
        &[both("Hm. "), both("So."), text("a"), finish_with("stop")],
        expected(),
    );
    // As parts of the content.
    let part =
        |said: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": said}]});
    let parts =
        delta(json!({"content": [part("Hm. "), part("So."), {"type": "text", "text": "a"}]}));
    check(&[parts, finish_with("stop")], expected());
    // Inside the text, where it stays.
    let tagged = "<think>Hm.</think>a";
    check(
        &[text(tagged), finish_with("stop")],
        json!({ "text": tagged }),
    );
    check(
        &[
            delta(json!({"reasoning": {"odd": 1}, "content": 7})),
            text("a"),
            finish_with("stop"),
        ],
        json!({"text": "a"}),
    );
}

#[test]
fn signatures_are_retained() {
    let detail = |fields: Value| delta(json!({"reasoning_details": [fields]}));
    let stream = events(&[
        detail(json!({"type": "reasoning.text", "index": 0, "text": "Hm. "})),
        detail(json!({"type": "reasoning.text", "index": 0, "text": "So.", "signature": null})),
        detail(json!({"type": "reasoning.text", "index": 0, "signature": "s1="})),
        detail(json!({"type": "reasoning.encrypted", "index": 1, "data": "xyz", "id": "r1"})),
        text("a"),
        finish_with("stop"),
    ]);
    let reply = read(&stream).unwrap();
    let details = json!([
        {"type": "reasoning.text", "index": 0, "text": "Hm. So.", "signature": "s1="},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz", "id": "r1"},
    ]);
    let kept = Part::Opaque(ProviderState::new(
        "openai_chat",
        json!({ "reasoning_details": details }),
    ));
    assert_eq!(reply.message.parts, [Part::text("a"), kept]);
    let call = json!({"index": 0, "id": "c1", "function": {"name": "now"},
        "extra_content": {"google": {"s": "t"}}});
    let reply = read(&events(&[calls(json!([call])), finish_with("stop")])).unwrap();
    let own = reply
        .message
        .calls()
        .next()
        .unwrap()
        .opaque
        .clone()
        .unwrap();
    assert_eq!(*own.data, json!({"extra_content": {"google": {"s": "t"}}}));
    // After another call, and before a name.
    let late = |index: u64| json!({"index": index, "extra_content": {"google": {"s": index}}});
    let begin = |index: u64| {
        json!({"index": index, "id": format!("c{index}"),
        "function": {"name": "now"}})
    };
    let stream = [
        calls(json!([begin(0), {"index": 1, "id": "c1"}, late(1), begin(1), late(0)])),
        finish_with("stop"),
    ];
    let reply = read(&events(&stream)).unwrap();
    let states = reply
        .message
        .calls()
        .map(|call| call.opaque.as_ref().unwrap().data["extra_content"]["google"]["s"].clone());
    assert_eq!(states.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn event_framing_variants_are_parsed() {
    let (a, stop) = (text("a"), finish_with("stop"));
    let reply = json!({"text": "a"});
    for stream in [
        format!(
            ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\ndata: {a}\n\ndata: \
                {stop}\n\ndata: [DONE]\n\n"
        ),
        format!("data: {a}\r\n\r\ndata: {stop}\r\n\r\n"),
        format!("data: {a}\r\rdata: {stop}\r\r"),
        format!("data:{a}\n\ndata:{stop}"),
        format!("\n\n  data: {a}\n\ndata: {stop}\n\ndata: [DONE]"),
        format!("\u{feff}data: {a}\n\nevent: done\ndata: {stop}\n\n"),
        format!("data: {a}\n\ndata: \n\ndata: {stop}\n\ndata: [DONE]\n\ndata: not JSON\n\n"),
    ] {
        assert_eq!(summary_of(&read(&stream).unwrap()), reply, "{stream}");
    }
}

#[test]
fn repeated_full_message_is_not_duplicated() {
    let beside = |new: &str, all: &str, finish: Value| {
        let (delta, message) = (json!({ "content": new }), json!({ "content": all }));
        json!({"choices": [{"index": 0, "delta": delta, "message": message,
            "finish_reason": finish}]})
    };
    let stream = [
        beside("", "", json!(null)),
        beside("Sev", "Sev", json!(null)),
        beside("en", "Seven", json!(null)),
        beside("", "Seven", json!("stop")),
    ];
    let reply = read(&events(&stream)).unwrap();
    assert_eq!(summary_of(&reply), json!({"text": "Seven"}));
    check(
        &[beside("", "Seven", json!("stop"))],
        json!({"text": "Seven"}),
    );
    let message = json!({"choices": [{"message": {"content": "Seven"}, "finish_reason": "stop"}]});
    check(&[message], json!({"text": "Seven"}));
}

#[test]
fn only_first_choice_is_used() {
    let at =
        |index: u64, said: &str| json!({"choices": [{"index": index, "delta": {"content": said}}]});
    check(
        &[
            at(0, "a"),
            at(1, "x"),
            at(0, "b"),
            finish_with("stop"),
            at(1, "y"),
        ],
        json!({"text": "ab"}),
    );
    // Text and calls of one reply may be in separate choices.
    let call = json!({"id": "c1", "function": {"name": "now", "arguments": "{}"}});
    let apart =
        json!({"choices": [{"message": {"content": "a"}}, {"message": {"tool_calls": [call]}}]});
    check(
        &[apart],
        json!({"text": "a", "calls": [["c1", "now", {}]], "finish": "tool_calls"}),
    );
}

#[test]
fn empty_fields_are_ignored() {
    let nothing = json!({"name": "", "arguments": ""});
    let call = json!({"index": 0, "id": "c1", "function": {"name": "now", "arguments": ""},
        "custom": {"name": "", "input": ""}});
    let full = |content: Value, calls: Value| {
        delta(json!({
            "content": content, "refusal": "", "function_call": nothing, "tool_calls": calls,
            "annotations": null,
            "audio": {"data": "", "transcript": "", "id": ""},
        }))
    };
    let expected = json!({"calls": [["c1", "now", {}]], "finish": "tool_calls"});
    for content in [json!(null), json!("")] {
        check(
            &[full(content, json!([call])), finish_with("")],
            expected.clone(),
        );
    }
    check(&[calls(json!([call])), finish_with("stop")], expected);
    check(
        &[full(json!("a"), json!(null)), finish_with("stop")],
        json!({"text": "a"}),
    );
}

#[test]
fn refusal_becomes_text() {
    let refusal = |said: &str| delta(json!({"content": null, "refusal": said}));
    check(
        &[refusal("I will "), refusal("not."), finish_with("stop")],
        json!({"text": "I will not."}),
    );
}

#[test]
fn legacy_and_custom_calls_are_parsed() {
    let old = |function: Value| delta(json!({"content": null, "function_call": function}));
    let stream = [
        old(json!({"name": "add", "arguments": ""})),
        old(json!({"arguments": "{\"a\""})),
        old(json!({"arguments": ":2}"})),
        finish_with("function_call"),
    ];
    check(
        &stream,
        json!({"calls": [["", "add", {"a": 2}]], "finish": "tool_calls"}),
    );
    let custom = json!({"index": 0, "id": "c1", "type": "custom",
        "custom": {"name": "sh", "input": "ls -l"}});
    let expected = json!({"calls": [["c1", "sh", "ls -l"]], "finish": "tool_calls"});
    check(
        &[calls(json!([custom])), finish_with("tool_calls")],
        expected,
    );
}

#[test]
fn images_and_audio_are_parsed() {
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let images = json!([
        image("data:image/jpeg;base64,/wA="),
        image("https://a.example/b.png")
    ]);
    let stream = events(&[
        text("a"),
        delta(json!({ "images": images })),
        finish_with("stop"),
    ]);
    let reply = read(&stream).unwrap();
    let kinds = reply.message.parts.iter().filter_map(|part| match part {
        Part::Media(media) => Some(media.mime.as_str()),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["image/jpeg", "image/png"]);
    let sound = delta(json!({"audio": {"id": "a1", "transcript": "Seven."}}));
    check(&[sound, finish_with("stop")], json!({"text": "Seven."}));
}

#[test]
fn interrupted_stream_is_an_error() {
    let broken = |stream: &str| read(stream).unwrap_err().kind();
    let mut counted = text("a");
    counted["usage"] = usage(9, 7);
    let half = events(&[text("a"), finish_with("stop")]);
    let (half, _) = half.split_at(half.len() - 30);
    let bare = "{\"choices\": []".to_owned();
    let still = ": still there\n\n".to_owned();
    for stream in [
        String::new(),
        events(&[text("a")]),
        events(&[counted]),
        still,
        half.to_owned(),
        bare,
    ] {
        assert_eq!(broken(&stream), ModelErrorKind::Transport, "{stream}");
    }
    // A stream with a finish reason is complete.
    assert!(read(&events(&[text("a"), finish_with("stop")])).is_ok());
    assert!(
        read(&events(&[
            text("a"),
            json!({"choices": [], "usage": usage(9, 7)})
        ]))
        .is_ok()
    );
    assert_eq!(broken("data: {\"choices\n\n"), ModelErrorKind::Malformed);
    assert_eq!(broken("data: <html>\n\n"), ModelErrorKind::Malformed);
    assert_eq!(broken("{\"choices\": []}"), ModelErrorKind::Malformed);
    assert_eq!(broken("{\"choices\": [}"), ModelErrorKind::Malformed);
    assert_eq!(
        broken("<html><body>Hello</body></html>"),
        ModelErrorKind::Malformed
    );
}

/// Generates bytes that partly look like a stream.
fn stream_like_bytes() -> impl Strategy<Value = Vec<u8>> {
    let known = |text: &'static str| Just(text.as_bytes().to_vec());
    let piece = prop_oneof![
        known("data: "),
        known("\n\n"),
        known("\r"),
        known("\n"),
        known(":"),
        known("event: error\n"),
        known("[DONE]"),
        known("\u{feff}"),
        known(r#"{"choices":[{"delta":{"content":"ä\n"}}]}"#),
        known(r#"{"choices":[{"delta":{"reasoning":"x"},"finish_reason":"stop"}]}"#),
        known(concat!(
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c","#,
            r#""function":{"name":"f","arguments":"{"}}]}}]}"#,
        )),
        known(r#"{"choices":[],"usage":{"prompt_tokens":1}}"#),
        known(r#"{"error":{"message":"no"}}"#),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_matter(bytes in stream_like_bytes(), length in 1_usize..80) {
        let whole = decode_chat_stream([&*bytes]);
        assert_eq!(decode_chat_stream(bytes.chunks(length)), whole);
        assert_eq!(decode_chat_stream(bytes.chunks(1)), whole);
    }
}
