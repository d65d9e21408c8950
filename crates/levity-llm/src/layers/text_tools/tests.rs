use proptest::prelude::*;

use super::calls::{Known, Piece};
use super::parse::Parser;

fn parser() -> Parser {
    let names = ["add", "now", "web_fetch"].map(str::to_owned).to_vec();
    Parser::new(Known { names, shaped: false }, true)
}

/// Pieces put together where they belong together.
fn joined(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (Some(Piece::Thinking(before)), Piece::Thinking(text)) => before.push_str(&text),
            (_, piece) => all.push(piece),
        }
    }
    all
}

fn whole(text: &str) -> Vec<Piece> {
    let mut parser = parser();
    let mut pieces = parser.push(text);
    pieces.extend(parser.finish());
    joined(pieces)
}

/// The text read in pieces that end at these places.
fn cut(text: &str, cuts: &[usize]) -> Vec<Piece> {
    let mut parser = parser();
    let (mut pieces, mut from) = (Vec::new(), 0);
    for cut in cuts.iter().filter(|cut| text.is_char_boundary(**cut)) {
        if *cut > from {
            pieces.extend(parser.push(&text[from..*cut]));
            from = *cut;
        }
    }
    pieces.extend(parser.push(&text[from..]));
    pieces.extend(parser.finish());
    joined(pieces)
}

fn text(text: &str) -> Piece {
    Piece::Text(text.into())
}

fn thought(text: &str) -> Piece {
    Piece::Thinking(text.into())
}

fn call(name: &str, args: &str) -> Piece {
    Piece::Call { name: name.into(), args: args.into() }
}

#[track_caller]
fn check(given: &str, expected: &[Piece]) {
    assert_eq!(whole(given), expected, "{given}");
    let every: Vec<usize> = (1..given.len()).collect();
    assert_eq!(cut(given, &every), expected, "byte by byte: {given}");
}

#[test]
fn tagged_calls() {
    let add = call("add", r#"{"a":2}"#);
    let tag = r#"<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>"#;
    check(tag, std::slice::from_ref(&add));
    check(&format!("I see: {tag} done"), &[text("I see:"), add.clone(), text("done")]);
    check(&format!("{tag}\n\n{tag}\n"), &[add.clone(), add.clone()]);
    check("<tool_call>\n{\"name\": \"new_tool\"}\n</tool_call>", &[call("new_tool", "")]);
    check(r#"<tool_call>{"name": "add", "arguments": {"a": 2}}"#, std::slice::from_ref(&add));
    check(&format!("<tool_call>{{\"name\": \"now\"}}{tag}"), &[call("now", ""), add]);
    check("<tool_call>hm</tool_call>", &[text("<tool_call>hm</tool_call>")]);
    check("a <b>bold</b> <tool", &[text("a <b>bold</b> <tool")]);
    let inner = r#"<tool_call>{"name": "add", "arguments": "{\"a\": 2}"}</tool_call>"#;
    check(inner, &[call("add", r#"{"a": 2}"#)]);
}

#[test]
fn broken_arguments_stay_a_call() {
    check(
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2,}</tool_call>",
        &[call("add", "{\"a\":2}")],
    );
    check(
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": </tool_call>",
        &[call("add", "{\"a\": 2, \"b\":")],
    );
    check("TOOL_CALL: add\nARGUMENTS: {\"a\": 2", &[call("add", "{\"a\": 2")]);
    check("TOOL_CALL: add\nARGUMENTS: two and five\nDone", &[call("add", "two and five"), text("Done")]);
    check("Action: add\nAction Input: 2 and 5", &[call("add", "2 and 5")]);
}

#[test]
fn marked_calls() {
    let given = "Let me look.\n\nTOOL_CALL: web_fetch\nARGUMENTS: {\"url\": \"https://example.com\", \"extract\": true}";
    let fetch = call("web_fetch", "{\"url\": \"https://example.com\", \"extract\": true}");
    check(given, &[text("Let me look."), fetch]);
    check("TOOL_CALL: `now`\n", &[call("now", "")]);
    check(
        "  TOOL_CALL: now\n\n  ARGUMENTS:\n```json\n{}\n```\nTOOL_CALL: add ARGUMENTS: {}",
        &[call("now", "{}"), call("add", "{}")],
    );
    check("TOOL_CALL: unknown_tool\nARGUMENTS: {}", &[call("unknown_tool", "{}")]);
    check("TOOL_CALL: \n", &[text("TOOL_CALL:")]);
    check("They write TOOL_CALL: now", &[text("They write TOOL_CALL: now")]);
    check("TOOLS are good", &[text("TOOLS are good")]);
}

#[test]
fn action_lines() {
    check("Thought: hm\nAction: now\n", &[text("Thought: hm"), call("now", "")]);
    check("Action: add\nAction Input: {\"a\": {\"b\": \"}\"}}\n", &[call("add", "{\"a\": {\"b\": \"}\"}}")]);
    check("Action: nobody\nAction Input: {}", &[call("nobody", "{}")]);
    check("Action: we should buy milk\nOk", &[text("Action: we should buy milk\nOk")]);
    check("Action: nobody", &[text("Action: nobody")]);
    check("Action: now\nAct on it", &[call("now", ""), text("Act on it")]);
}

#[test]
fn objects() {
    let add = call("add", r#"{"a":2}"#);
    for given in [
        r#"{"action": "add", "args": {"a": 2}}"#,
        r#"{"tool": "add", "input": {"a": 2}}"#,
        r#"{"tool_name": "add", "arguments": {"a": 2}}"#,
        r#"{"name": "add", "parameters": {"a": 2}}"#,
        r#"{"call_tool": {"name": "add", "arguments": {"a": 2}}}"#,
        r#"{"call_tool": {"tool_name": "add", "tool_args": {"a": 2}}}"#,
        r#"{"call_tool": "add", "arguments": {"a": 2}}"#,
        r#"{"tool_calls": [{"type": "function", "function": {"name": "add", "arguments": "{\"a\":2}"}}]}"#,
        "```json\n{\"action\": \"add\", \"args\": {\"a\": 2}}\n```",
        "```\nTOOL_CALL: add\nARGUMENTS: {\"a\":2}\n```\n",
        "[{\"action\": \"add\",\n \"args\": {\"a\": 2}}]",
    ] {
        check(given, std::slice::from_ref(&add));
    }
    let two = r#"[{"tool": "add", "args": {"a": 2}}, {"tool": "now"}]"#;
    check(two, &[add.clone(), call("now", "")]);
    check(
        r#"{"thought": "two numbers", "action": "add", "args": {"a": 2}}"#,
        &[thought("two numbers"), add.clone()],
    );
    check(
        r#"{"reasoning": "hm", "call_tool": {"name": "add", "arguments": {"a": 2}}, "output": {"x": 1}}"#,
        &[thought("hm"), text(r#"{"output":{"x":1}}"#), add],
    );
    check(r#"{"action": "final_answer", "input": {"answer": "It is 7."}}"#, &[text("It is 7.")]);
    check(r#"{"action": "unknown", "args": {}}"#, &[call("unknown", "{}")]);
}

#[test]
fn objects_that_are_no_calls_stay_text() {
    for given in [
        r#"{"sum": 7}"#,
        r#"{"name": "Ann", "parameters": [1]}"#,
        r#"{"name": "add", "description": "Adds."}"#,
        r#"{"action": "unknown"}"#,
        r#"{"action": 1, "args": {}}"#,
        "[1, 2]",
        "[{\"a\": 1}]",
        "[a link](https://example.com)",
        "[]",
        "{\n{\n[Thinking: hm",
        "```json\n{\"sum\": 7}\n```\nThat is it",
        "```rust\nlet a = { 1 };\nTOOL_CALL: now\n```\nSee?",
        "``` and more",
        "so {\"action\": \"now\", \"args\": {}}",
        "`now`",
        "```",
    ] {
        check(given, &[text(given)]);
    }
}

#[test]
fn thoughts() {
    check("[Thinking: a [b] c]\n\nYes.", &[thought("a [b] c"), text("Yes.")]);
    check("Well [thinking: hm] yes", &[text("Well"), thought("hm"), text("yes")]);
    check("<think>\nhm <b>\n</think>\n\nYes.", &[thought("\nhm <b>\n"), text("Yes.")]);
    check("<think>cut off", &[thought("cut off")]);
    check("[Thinking: never closed", &[text("[Thinking: never closed")]);
    check("[Think]", &[text("[Think]")]);
    check("[Thinking: add]\nTOOL_CALL: now", &[thought("add"), call("now", "")]);
}

#[test]
fn what_a_model_makes_up_is_left_out() {
    let now = call("now", "");
    check("TOOL_CALL: now\nTOOL_RESULT: now\nNoon\nTOOL_CALL: add\n", std::slice::from_ref(&now));
    check("Action: now\nObservation: noon\nFinal Answer: noon", std::slice::from_ref(&now));
    check(
        "<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_response>noon</tool_response>\nIt is noon.",
        &[now],
    );
    check("Observation: it rains", &[text("Observation: it rains")]);
}

#[test]
fn blanks_are_handed_out_only_before_words() {
    check("  a  \n\n b \n", &[text("  a  \n\n b")]);
    check(" \n\t ", &[]);
    check("\nTOOL_CALL: now\n \n", &[call("now", "")]);
}

#[test]
fn much_text_does_not_cost_its_square() {
    // These would take minutes if each open bracket or each piece meant another look at everything.
    let open = "{\n[Thinking: ".repeat(50_000);
    assert_eq!(whole(&open), [text(open.trim_end())]);
    let mut parser = parser();
    parser.push("TOOL_CALL: add\nARGUMENTS: {\"a\": \"");
    for _ in 0..200_000 {
        assert!(parser.push("xxxx").is_empty());
    }
    assert!(matches!(&parser.finish()[..], [Piece::Call { args, .. }] if args.len() > 800_000));
}

#[test]
fn much_that_is_opened_beyond_the_limit_does_not_cost_its_square() {
    // Each open brace would mean a look at 8 MiB.
    let open = "{\n".repeat(5 << 20);
    assert_eq!(whole(&open), [text(open.trim_end())]);
    let marks = "Action: add\nAction Input: {\n".repeat(400_000);
    assert!(!whole(&marks).is_empty());
}

#[test]
fn many_that_begin_do_not_cost_their_square() {
    let tags = "<tool_call>".repeat(400_000);
    assert_eq!(whole(&tags), [text(&tags)]);
    let fences = "```\n{\n```\n".repeat(100_000);
    assert_eq!(whole(&fences), [text(fences.trim_end())]);
}

#[test]
fn what_is_only_spoken_of_is_neither_called_nor_thought() {
    for given in [
        r#"Write `<tool_call>{"name": "now"}</tool_call>` to call it."#,
        "The tag `<think>` opens a thought, and `[Thinking: hm]` is one.",
        "The <think> tag opens a thought.",
        "````\n```json\n{\"action\": \"add\", \"args\": {}}\n```\n````",
    ] {
        check(given, &[text(given)]);
    }
}

#[test]
fn what_is_held_back_has_a_limit() {
    let long = format!("{{\"a\": \"{}\nTOOL_CALL: now\n", "x".repeat(9 << 20));
    assert_eq!(whole(&long).last(), Some(&call("now", "")));
    let blank = " ".repeat(1 << 20);
    assert_eq!(whole(&format!("a{blank}b")).len(), 1);
}

/// Texts made of what calls are made of.
fn odd_text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("TOOL_CALL:"),
        Just("ARGUMENTS:"),
        Just("Action:"),
        Just("Action Input:"),
        Just("Observation:"),
        Just("<tool_call>"),
        Just("</tool_call>"),
        Just("<think>"),
        Just("</think>"),
        Just("<tool_response>"),
        Just("[Thinking:"),
        Just("```"),
        Just("```json"),
        Just("````"),
        Just("`"),
        Just("\n"),
        Just("\n"),
        Just("\n"),
        Just(" "),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just("\""),
        Just("\\"),
        Just(":"),
        Just(","),
        Just("é"),
        Just("now"),
        Just("nobody"),
        Just("\"action\""),
        Just("\"args\""),
        Just("\"call_tool\""),
        Just("\"name\""),
        Just("{\"action\": \"add\", \"args\": {}}"),
        Just("{\"a\": 1}"),
        Just("T"),
        Just("A"),
        Just("<"),
        Just("O"),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn where_a_text_is_cut_does_not_matter(text in odd_text(), cuts in prop::collection::vec(0..300usize, 0..20)) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        prop_assert_eq!(cut(&text, &cuts), whole(&text));
        let every: Vec<usize> = (0..text.len()).collect();
        prop_assert_eq!(cut(&text, &every), whole(&text));
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = whole(&text);
    }
}
