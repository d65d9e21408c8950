use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    Content, Fees, History, Media, Message, Options, OutputSchema, Part, ProviderState, Role,
    ToolCall, ToolError, ToolOutput, ToolResult,
};

/// Returns the bytes of text in a value, at any depth.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(list) => list.iter().map(text_bytes).sum(),
        Value::Object(map) => map.values().map(text_bytes).sum(),
        _ => 0,
    }
}

fn card() -> ModelCard {
    ModelCard::new("test", "m")
}

/// Checks that each byte that is sent counts.
#[track_caller]
fn check(request: &Request) {
    let sent = text_bytes(&serde_json::to_value(request).unwrap());
    assert!(
        CostBound::of(&card(), request).input >= sent,
        "{sent} bytes"
    );
}

fn exchange(call: ToolCall, output: Result<ToolOutput, ToolError>, words: &str) -> History {
    let mut history = History::new();
    let mut parts = vec![
        Part::text(words),
        Part::thinking(words),
        Part::Opaque(opaque(words)),
    ];
    parts
        .iter_mut()
        .for_each(|part| part.set_opaque(opaque(words)));
    parts.push(Part::ToolCall(call));
    let mut exchange = history
        .open(Message::new(Role::Assistant, parts).into())
        .unwrap();
    let call = exchange.unanswered().next().unwrap().clone();
    exchange.answer(ToolResult::new(&call, output)).unwrap();
    history.close(exchange, &ToolError::failed("none"));
    history
}

fn opaque(words: &str) -> ProviderState {
    ProviderState::new("test", json!({"signature": words, words: [words, words]}))
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
    fn cost_bound_counts_every_byte(words in ".{0,200}", id in ".{0,40}") {
        for output in outputs(&words) {
            let calls = [
                ToolCall::new(&*id, &*words, json!({"a": words})),
                ToolCall::from_text(&*id, &*words, &format!("{{broken {words}")),
            ];
            for call in calls {
                let tool = ToolSpec::new(&*words, &*words)
                    .with_input(json!({"a": words}))
                    .with_output(json!([words]));
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
fn cost_bound_counts_media_by_type() {
    let input = |media: Media| {
        CostBound::of(
            &card(),
            &Request::new().with_message(Message::new(Role::User, [media.into()])),
        )
        .input
    };
    let image = input(Media::bytes("image/png", vec![0; 1_000_000]));
    assert!((40_000..41_000).contains(&image), "{image}");
    assert!(input(Media::url("image/png", "https://example.org/a.png")) < 41_000);
    assert!(
        input(Media::bytes("application/pdf", vec![0; 1_000])) >= 1 << 21,
        "its pages are compressed"
    );
    assert!(input(Media::bytes("application/ld+json", vec![0; 1_000])) < 41_000);
    assert!(input(Media::bytes("audio/wav", vec![0; 1_000_000])) >= 1_000_000);
    assert!(input(Media::url("application/pdf", "https://example.org/a.pdf")) >= 1 << 21);
    let mut output = ToolOutput::text("see");
    output
        .content
        .push(Content::Media(Media::bytes("image/png", vec![0])));
    let shown = exchange(ToolCall::new("c", "t", json!({})), Ok(output), "");
    assert!(CostBound::of(&card(), &Request::new().with_history(shown)).input >= 40_000);
}

#[test]
fn cost_bound_counts_names_and_data_of_media() {
    let words = "x".repeat(50_000);
    let mut media = Media::bytes("text/plain", words.clone().into_bytes());
    (media.name, media.opaque) = (Some(words.clone()), Some(opaque(&words)));
    let mut output = ToolOutput::text("see");
    output.content.push(Content::Media(media.clone()));
    let shown = exchange(ToolCall::new("c", "t", json!({})), Ok(output), "");
    let with_media = Request::new().with_message(Message::new(Role::User, [media.into()]));
    for request in [Request::new().with_history(shown), with_media] {
        assert!(
            CostBound::of(&card(), &request).input >= 50_000 * 6,
            "bytes, name and provider data"
        );
    }
}

#[test]
fn cost_bound_respects_window_and_options() {
    let request = Request::new().with_message(Message::user("x".repeat(5_000)));
    let worst = |card: &ModelCard| CostBound::of(card, &request);
    assert_eq!(worst(&card().with_window(1_000)).input, 1_000);
    assert_eq!(worst(&card()).output, None);
    assert_eq!(worst(&card().with_max_output(9)).output, Some(9));
    let mut options = Options::new();
    options.max_tokens = Some(5);
    assert_eq!(
        CostBound::of(&card().with_max_output(9), &request.with_options(options)).output,
        Some(5)
    );
}

#[test]
fn affordable_output_fits_reservation() {
    let worst = CostBound::new(100)
        .with_price(Price::new(1.0, 2.0))
        .with_sends(3);
    let money = Money::from_nanos(3 * 500_000);
    assert_eq!(worst.affordable(Some(3 * 150), None), Some(50));
    assert_eq!(worst.affordable(Some(3 * 150), Some(money)), Some(50));
    assert_eq!(worst.affordable(None, Some(money)), Some(200));
    assert_eq!(worst.reserved(200), ReservedCost::new(900, Some(money)));
    assert_eq!(worst.affordable(Some(299), None), None);
    assert_eq!(worst.affordable(None, Some(Money::ZERO)), None);
    assert_eq!(
        CostBound::new(1).affordable(None, Some(Money::MAX)),
        None,
        "no price, no money"
    );
    assert_eq!(
        CostBound::new(u64::MAX)
            .with_sends(u64::MAX)
            .reserved(u64::MAX)
            .tokens,
        u64::MAX
    );
}

/// Returns a card with a window of 1,000 tokens, a dollar per million tokens and these fees.
fn priced(fees: Fees) -> ModelCard {
    card()
        .with_window(1_000)
        .with_price(Price::new(1.0, 1.0).with_fees(fees))
}

#[track_caller]
fn check_fields(
    card: &ModelCard,
    fields: Value,
    input: Option<u64>,
    fees: f64,
    unknown: Option<&str>,
) {
    let Value::Object(extra) = fields else {
        panic!("{fields}")
    };
    let mut options = Options::new();
    options.extra = extra.clone();
    let worst = CostBound::of(card, &Request::new().with_options(options));
    let plain = CostBound::new(0)
        .with_price(Price::new(1.0, 1.0))
        .with_fields(card, &extra);
    assert_eq!(
        (worst.fees, plain.fees),
        (Money::from_dollars(fees), Money::from_dollars(fees)),
        "{extra:?}"
    );
    match unknown {
        Some(part) => assert!(
            worst.unknown.is_some_and(|what| what.contains(part)),
            "{extra:?}: {worst:?}"
        ),
        None => assert_eq!(worst.unknown, None, "{extra:?}"),
    }
    if let Some(input) = input {
        assert_eq!(worst.input, input, "{extra:?}");
    }
}

#[test]
fn cost_bound_includes_provider_tools() {
    let known = priced(Fees::new().with_search(0.01).with_session(0.03));
    let check = |fields, input, fees, unknown| check_fields(&known, fields, input, fees, unknown);
    // Tools that the caller runs have no fee.
    check(
        json!({"tools": [{"type": "function", "name": "add"}, {"type": "bash_20250124"}]}),
        None,
        0.0,
        None,
    );
    check(
        json!({"tools": [{"functionDeclarations": []}]}),
        None,
        0.0,
        None,
    );
    check(
        json!({"top_k": 5, "web_search_options": null, "enable_search": false}),
        None,
        0.0,
        None,
    );
    // Each use has a fee, and the window is read again.
    let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 5});
    check(json!({"tools": [search]}), Some(6_000), 0.05, None);
    check(
        json!({"tools": [{"type": "web_search"}], "max_tool_calls": 2}),
        Some(3_000),
        0.02,
        None,
    );
    let run = json!({"type": "code_interpreter", "container": {"type": "auto"}});
    check(
        json!({"tools": [run, {"type": "web_search"}], "max_tool_calls": 2}),
        Some(5_000),
        0.08,
        None,
    );
    check(
        json!({"tools": [{"type": "web_fetch_20250910", "max_uses": 3}]}),
        Some(2_000),
        0.0,
        None,
    );
    check(
        json!({"tools": [{"urlContext": {}}, {"codeExecution": {}}]}),
        Some(3_000),
        0.0,
        None,
    );
    // The number of uses or the fee is unknown.
    for fields in [
        json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        json!({"tools": [{"googleSearch": {}}]}),
        json!({"tools": [{"google_search": {}}]}),
        json!({"tools": [{"type": "code_interpreter"}]}),
        json!({"web_search_options": {}}),
        json!({"plugins": [{"id": "web"}]}),
        json!({"search_parameters": {"mode": "auto"}}),
    ] {
        check(
            fields.clone(),
            Some(u64::MAX),
            0.0,
            Some("an unlimited number of uses"),
        );
        let limited = priced(
            Fees::new()
                .with_search(0.01)
                .with_session(0.01)
                .with_max_uses(4),
        );
        check_fields(&limited, fields.clone(), Some(5_000), 0.04, None);
        let without_fee = priced(Fees::new().with_max_uses(4));
        check_fields(&without_fee, fields, Some(5_000), 0.0, Some("set its fee"));
    }
    check(
        json!({"tools": [{"type": "image_generation"}], "max_tool_calls": 1}),
        Some(2_000),
        0.0,
        Some("set its fee"),
    );
    let endless = card().with_price(Price::new(1.0, 1.0).with_fees(Fees::new().with_search(0.01)));
    check_fields(
        &endless,
        json!({"tools": [search]}),
        Some(u64::MAX),
        0.05,
        None,
    );
}

#[test]
fn cost_bound_includes_tiers() {
    let price = Price::new(1.0, 2.0);
    let asked = |price: Price, fields: Value| {
        let Value::Object(fields) = fields else {
            panic!("{fields}")
        };
        let worst = CostBound::new(1_000_000)
            .with_price(price)
            .with_fields(&card().with_price(price), &fields);
        (worst.reserved(0).cost.unwrap(), worst.unknown.is_some())
    };
    let dollars = Money::from_dollars;
    for usual in [
        "auto",
        "default",
        "standard",
        "standard_only",
        "flex",
        "batch",
        "FLEX",
    ] {
        assert_eq!(
            asked(price, json!({ "service_tier": usual })),
            (dollars(1.0), false),
            "{usual}"
        );
    }
    assert_eq!(
        asked(price, json!({"service_tier": null})),
        (dollars(1.0), false)
    );
    assert_eq!(
        asked(
            price.with_priority(200),
            json!({"service_tier": "priority"})
        ),
        (dollars(2.0), false)
    );
    for other in [
        json!({"service_tier": "priority"}),
        json!({"service_tier": 7}),
        json!({"speed": "fast"}),
        json!({"inference_geo": "us"}),
    ] {
        assert_eq!(asked(price, other.clone()), (dollars(3.0), true), "{other}");
    }
}

#[test]
fn cost_bound_reserves_fees_per_send() {
    let mut worst = CostBound::new(100)
        .with_price(Price::new(1.0, 1.0))
        .with_sends(2);
    worst.fees = Money::from_nanos(50_000);
    assert_eq!(
        worst.reserved(0).cost,
        Some(Money::from_nanos(2 * (100_000 + 50_000)))
    );
    assert_eq!(
        worst.affordable(None, Some(Money::from_nanos(2 * 160_000))),
        Some(10)
    );
    assert_eq!(
        worst.affordable(None, Some(Money::from_nanos(2 * 50_000 - 2))),
        None,
        "the fees alone do not fit"
    );
}
