use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    Content, History, Media, Message, Opaque, Options, OutputSchema, Part, Role, ToolCall, ToolError,
    ToolOutput, ToolResult,
};

/// How many bytes of text there are in a value, wherever they are.
fn letters(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(list) => list.iter().map(letters).sum(),
        Value::Object(map) => map.values().map(letters).sum(),
        _ => 0,
    }
}

fn card() -> ModelCard {
    ModelCard::new("test", "m")
}

/// Each byte of what is sent counts.
#[track_caller]
fn check(request: &Request) {
    let sent = letters(&serde_json::to_value(request).unwrap());
    assert!(Worst::of(&card(), request).input >= sent, "{sent} bytes");
}

fn exchange(call: ToolCall, output: Result<ToolOutput, ToolError>, words: &str) -> History {
    let mut history = History::new();
    let mut parts = vec![Part::text(words), Part::thinking(words), Part::Opaque(opaque(words))];
    parts.iter_mut().for_each(|part| part.set_opaque(opaque(words)));
    parts.push(Part::ToolCall(call));
    let mut exchange = history.open(Message::new(Role::Assistant, parts).into()).unwrap();
    let call = exchange.unanswered().next().unwrap().clone();
    exchange.answer(ToolResult::new(&call, output)).unwrap();
    history.close(exchange, &ToolError::failed("none"));
    history
}

fn opaque(words: &str) -> Opaque {
    Opaque::new("test", json!({"signature": words, words: [words, words]}))
}

fn outputs(words: &str) -> Vec<Result<ToolOutput, ToolError>> {
    vec![
        Ok(ToolOutput::text(words)),
        Ok(ToolOutput::value(json!([words, {"a": words}]))),
        Err(ToolError::failed(words).with_source(words.to_owned())),
    ]
}

proptest! {
    #[test]
    fn a_byte_is_a_token(words in ".{0,200}", id in ".{0,40}") {
        for output in outputs(&words) {
            let calls = [
                ToolCall::new(&*id, &*words, json!({"a": words})),
                ToolCall::from_text(&*id, &*words, &format!("{{broken {words}")),
            ];
            for call in calls {
                let tool = ToolSpec::new(&*words, &*words).with_input(json!({"a": words})).with_output(json!([words]));
                let mut options = Options::new();
                options.stop = vec![words.clone()];
                options.extra = Map::from_iter([("more".to_owned(), json!(words))]);
                let request = Request::new()
                    .with_system(&*words)
                    .with_history(exchange(call, output.clone(), &words))
                    .with_message(Message::user(&*words))
                    .with_output(OutputSchema::new(&*words, json!({"title": words})))
                    .with_options(options);
                check(&request);
                check(&request.with_tools([tool.clone().into(), tool.into()]));
            }
        }
    }
}

#[test]
fn media_count_by_rule() {
    let input = |media: Media| {
        Worst::of(&card(), &Request::new().with_message(Message::new(Role::User, [media.into()]))).input
    };
    let image = input(Media::bytes("image/png", vec![0; 1_000_000]));
    assert!((40_000..41_000).contains(&image), "{image}");
    assert!(input(Media::url("image/png", "https://example.org/a.png")) < 41_000);
    assert!(input(Media::bytes("application/pdf", vec![0; 1_000])) >= 1 << 21, "its pages are packed");
    assert!(input(Media::bytes("application/ld+json", vec![0; 1_000])) < 41_000);
    assert!(input(Media::bytes("audio/wav", vec![0; 1_000_000])) >= 1_000_000);
    assert!(input(Media::url("application/pdf", "https://example.org/a.pdf")) >= 1 << 21);
    let mut output = ToolOutput::text("see");
    output.content.push(Content::Media(Media::bytes("image/png", vec![0])));
    let shown = exchange(ToolCall::new("c", "t", json!({})), Ok(output), "");
    assert!(Worst::of(&card(), &Request::new().with_history(shown)).input >= 40_000);
}

#[test]
fn what_comes_with_media_counts_wherever_they_are() {
    let words = "x".repeat(50_000);
    let mut media = Media::bytes("text/plain", words.clone().into_bytes());
    (media.name, media.opaque) = (Some(words.clone()), Some(opaque(&words)));
    let mut output = ToolOutput::text("see");
    output.content.push(Content::Media(media.clone()));
    let shown = exchange(ToolCall::new("c", "t", json!({})), Ok(output), "");
    let said = Request::new().with_message(Message::new(Role::User, [media.into()]));
    for request in [Request::new().with_history(shown), said] {
        assert!(Worst::of(&card(), &request).input >= 50_000 * 6, "bytes, name and provider data");
    }
}

#[test]
fn the_window_and_what_is_set_bound_it() {
    let request = Request::new().with_message(Message::user("x".repeat(5_000)));
    let worst = |card: &ModelCard| Worst::of(card, &request);
    assert_eq!(worst(&card().with_window(1_000)).input, 1_000);
    assert_eq!(worst(&card()).output, None);
    assert_eq!(worst(&card().with_max_output(9)).output, Some(9));
    let mut options = Options::new();
    options.max_tokens = Some(5);
    assert_eq!(Worst::of(&card().with_max_output(9), &request.with_options(options)).output, Some(5));
}

#[test]
fn what_is_affordable_is_reserved_and_no_more() {
    let worst = Worst::new(100).with_price(Price::new(1.0, 2.0)).with_sends(3);
    let money = Money::from_nanos(3 * 500_000);
    assert_eq!(worst.affordable(Some(3 * 150), None), Some(50));
    assert_eq!(worst.affordable(Some(3 * 150), Some(money)), Some(50));
    assert_eq!(worst.affordable(None, Some(money)), Some(200));
    assert_eq!(worst.reserved(200), Reserved::new(900, Some(money)));
    assert_eq!(worst.affordable(Some(299), None), None);
    assert_eq!(worst.affordable(None, Some(Money::ZERO)), None);
    assert_eq!(Worst::new(1).affordable(None, Some(Money::MAX)), None, "no price, no money");
    assert_eq!(Worst::new(u64::MAX).with_sends(u64::MAX).reserved(u64::MAX).tokens, u64::MAX);
}
