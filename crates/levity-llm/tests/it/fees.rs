//! Costs beyond tokens: one-hour caching, provider tools and service tiers.

use levity_core::{Fees, Limits, Model, ModelCard, ModelErrorKind, Money, Price, Request, Usage};
use levity_llm::{
    AnthropicModel, CacheTtl, ChatModel, Endpoint, GeminiModel, ModelList, OpenAiModel,
};
use levity_loop::{Agent, Error};
use serde_json::{Value, json};

use crate::layers::support::ask;
use crate::server::{Answer, Server};

fn anthropic(server: &Server, fees: Fees) -> AnthropicModel {
    let price = Price::new(1.0, 1.0)
        .with_cache_write(1.25)
        .with_cache_write_hour(2.0)
        .with_fees(fees);
    let card = ModelCard::new("anthropic", "m")
        .with_window(10_000)
        .with_max_output(1_000)
        .with_price(price);
    AnthropicModel::new("k", "m")
        .with_endpoint(|_| Endpoint::new(server.url()))
        .with_card(card)
}

/// Creates a reply with this usage.
fn reply_with_usage(usage: &Value) -> Answer {
    let content = json!([{"type": "text", "text": "OK"}]);
    Answer::json(
        200,
        json!({"content": content, "stop_reason": "end_turn", "usage": usage}).to_string(),
    )
}

async fn usage_of(model: impl Model) -> Usage {
    model.complete(ask("?")).await.unwrap().usage
}

#[tokio::test]
async fn anthropic_one_hour_cache_and_searches_are_counted() {
    let usage = json!({
        "input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 700,
        "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 400},
        "server_tool_use": {"web_search_requests": 3}, "service_tier": "standard",
    });
    let server = Server::with_answer(reply_with_usage(&usage)).await;
    let usage = usage_of(anthropic(&server, Fees::new()).without_streaming()).await;
    assert_eq!(
        (usage.cache_written, usage.cache_written_hour),
        (Some(700), Some(400))
    );
    assert_eq!((usage.searches, usage.priority), (Some(3), false));
    let huge = json!({
        "input_tokens": u64::MAX, "output_tokens": u64::MAX, "cache_read_input_tokens": u64::MAX,
        "cache_creation": {"ephemeral_5m_input_tokens": u64::MAX,
            "ephemeral_1h_input_tokens": u64::MAX},
        "server_tool_use": {"web_search_requests": u64::MAX},
    });
    let server = Server::with_answer(reply_with_usage(&huge)).await;
    let usage = usage_of(anthropic(&server, Fees::new()).without_streaming()).await;
    assert_eq!((usage.input, usage.total()), (Some(u64::MAX), u64::MAX));
}

#[tokio::test]
async fn faster_anthropic_reply_has_its_tier() {
    for (speed, priority) in [
        (json!("fast"), true),
        (json!("standard"), false),
        (Value::Null, false),
    ] {
        let server = Server::with_answer(reply_with_usage(
            &json!({"input_tokens": 10, "output_tokens": 5, "speed": speed}),
        ))
        .await;
        let usage = usage_of(anthropic(&server, Fees::new()).without_streaming()).await;
        assert_eq!(usage.priority, priority, "{speed}");
    }
}

#[tokio::test]
async fn chat_usage_without_total_saturates() {
    let counts = json!({
        "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX, "reasoning_tokens": u64::MAX,
    });
    let choice = json!({"index": 0, "message": {"content": "OK"}, "finish_reason": "stop"});
    let reply = json!({"choices": [choice], "usage": counts}).to_string();
    let server = Server::with_answer(Answer::json(200, reply)).await;
    let usage = usage_of(ChatModel::compatible(server.url(), "m").without_streaming()).await;
    assert_eq!(
        (usage.input, usage.output, usage.total()),
        (Some(u64::MAX), Some(u64::MAX), u64::MAX)
    );
}

#[tokio::test]
async fn openai_searches_and_sessions_are_counted() {
    let output = json!([
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "web_search_call", "id": "ws_2", "status": "completed"},
        {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c_1",
            "status": "completed"},
        {"type": "code_interpreter_call", "id": "ci_2", "container_id": "c_1",
            "status": "completed"},
        {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "OK"}]},
    ]);
    let usage = json!({"input_tokens": 9, "output_tokens": 7});
    let reply = json!({"status": "completed", "service_tier": "priority", "output": output,
        "usage": usage});
    let server = Server::with_answer(Answer::json(200, reply.to_string())).await;
    let model = OpenAiModel::new("k", "m")
        .with_endpoint(|_| Endpoint::new(server.url()))
        .without_streaming();
    let usage = usage_of(model).await;
    assert_eq!(
        (usage.searches, usage.sessions, usage.priority),
        (Some(2), Some(1), true)
    );
}

#[tokio::test]
async fn gemini_searches_are_counted() {
    let grounding = json!({"webSearchQueries": ["", "weather Berlin", " ", "weather Tokyo"]});
    let content = json!({"role": "model", "parts": [{"text": "OK"}]});
    let candidate =
        json!({"content": content, "finishReason": "STOP", "groundingMetadata": grounding});
    let counts = json!({"promptTokenCount": 7, "candidatesTokenCount": 3});
    let reply = json!({"candidates": [candidate], "usageMetadata": counts}).to_string();
    for (stream, answer) in [
        (true, Answer::sse(format!("data: {reply}\n\n"))),
        (false, Answer::json(200, reply.clone())),
    ] {
        let server = Server::with_answer(answer).await;
        let model = GeminiModel::new("k", "m").with_endpoint(|_| Endpoint::new(server.url()));
        let usage = usage_of(if stream {
            model
        } else {
            model.without_streaming()
        })
        .await;
        assert_eq!(
            (usage.searches, usage.input, usage.output),
            (Some(2), Some(7), Some(3))
        );
    }
}

#[tokio::test]
async fn chat_reply_tier_is_counted() {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 7});
    for (tier, priority) in [
        (json!("priority"), true),
        (json!("default"), false),
        (json!(null), false),
        (json!(7), false),
    ] {
        let message = json!({"role": "assistant", "content": "OK"});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let whole = json!({"choices": [choice], "usage": usage, "service_tier": tier}).to_string();
        let piece = json!({"choices": [{"index": 0, "delta": message, "finish_reason": "stop"}],
            "service_tier": tier});
        // Some servers name the tier once, and not beside the counts.
        let stream = format!(
            "data: {piece}\n\ndata: {}\n\ndata: [DONE]\n\n",
            json!({"choices": [], "usage": usage})
        );
        for (streams, answer) in [
            (true, Answer::sse(stream)),
            (false, Answer::json(200, whole)),
        ] {
            let server = Server::with_answer(answer).await;
            let model = ChatModel::openai("k", "m").with_endpoint(|_| Endpoint::new(server.url()));
            let card =
                ModelCard::new("openai", "m").with_price(Price::new(1.0, 1.0).with_priority(200));
            let model = model.with_card(card);
            let price = model.card().price.unwrap();
            let usage = usage_of(if streams {
                model
            } else {
                model.without_streaming()
            })
            .await;
            assert_eq!(
                (usage.priority, usage.input),
                (priority, Some(9)),
                "{tier} {streams}"
            );
            let usual = price.cost(&Usage::new(9, 7)).nanos();
            let factor = if priority { 2 } else { 1 };
            assert_eq!(
                price.cost(&usage).nanos(),
                factor * usual,
                "{tier} {streams}"
            );
        }
    }
}

#[tokio::test]
async fn gemini_reply_tier_is_counted() {
    for (name, tier, header, priority) in [
        ("serviceTier", json!("priority"), "", true),
        ("serviceTier", json!("SERVICE_TIER_PRIORITY"), "", true),
        ("trafficType", json!("ON_DEMAND_PRIORITY"), "", true),
        ("none", json!(""), "priority", true),
        ("serviceTier", json!("standard"), "standard", false),
        ("trafficType", json!("ON_DEMAND"), "", false),
        ("trafficType", json!({"a": 1}), "", false),
    ] {
        let content = json!({"role": "model", "parts": [{"text": "OK"}]});
        let mut counts = json!({"promptTokenCount": 7, "candidatesTokenCount": 3});
        counts[name] = tier.clone();
        let candidate = json!({"content": content, "finishReason": "STOP"});
        let reply = json!({"candidates": [candidate], "usageMetadata": counts}).to_string();
        for (streams, answer) in [
            (true, Answer::sse(format!("data: {reply}\n\n"))),
            (false, Answer::json(200, reply.clone())),
        ] {
            let answer = if header.is_empty() {
                answer
            } else {
                answer.header("x-gemini-service-tier", header)
            };
            let server = Server::with_answer(answer).await;
            let model = GeminiModel::new("k", "m").with_endpoint(|_| Endpoint::new(server.url()));
            let usage = usage_of(if streams {
                model
            } else {
                model.without_streaming()
            })
            .await;
            assert_eq!(
                (usage.priority, usage.output),
                (priority, Some(3)),
                "{name} {tier} {header} {streams}"
            );
        }
    }
}

#[tokio::test]
async fn one_hour_cache_cost_is_reserved_if_requested() {
    let server = Server::with_answer(Answer::json(200, "{}")).await;
    let worst_cost = |model: &dyn Model, request: &Request| {
        let worst = model.cost_bound(request);
        worst.price.unwrap().max_cost(1_000_000, 0)
    };
    let model = anthropic(&server, Fees::new());
    assert_eq!(worst_cost(&model, &ask("?")), Money::from_dollars(1.25));
    let mut named = ask("?");
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    std::sync::Arc::make_mut(&mut named.options)
        .extra
        .insert("cache_control".to_owned(), mark);
    assert_eq!(worst_cost(&model, &named), Money::from_dollars(2.0));
    assert_eq!(
        worst_cost(&model.with_cache_ttl(CacheTtl::OneHour), &ask("?")),
        Money::from_dollars(2.0)
    );
}

/// Runs an agent whose model adds these fields to each request, with this budget.
async fn run(server: &Server, fees: Fees, fields: &Value, money: f64) -> Result<Money, Error> {
    run_within(
        server,
        fees,
        fields,
        Limits::new().money(Money::from_dollars(money)),
    )
    .await
}

/// Runs an agent whose model adds these fields to each request, within these limits.
async fn run_within(
    server: &Server,
    fees: Fees,
    fields: &Value,
    limits: Limits,
) -> Result<Money, Error> {
    let mut model = anthropic(server, fees).without_streaming();
    for (name, value) in fields.as_object().unwrap() {
        model = model.with_endpoint(|endpoint| endpoint.with_field(name, value.clone()));
    }
    let agent = Agent::builder(model).limits(limits).build().unwrap();
    agent
        .run("?")
        .await
        .map(|answer| answer.usage().cost.unwrap())
}

#[tokio::test]
async fn request_with_unknown_fee_is_not_sent_under_cost_limit() {
    let server = Server::with_answer(reply_with_usage(
        &json!({"input_tokens": 10, "output_tokens": 5}),
    ))
    .await;
    let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 2});
    let endless = json!({"type": "web_search_20250305", "name": "web_search"});
    let known = Fees::new().with_search(0.01);
    for (fees, fields, part) in [
        (Fees::new(), json!({"tools": [search]}), "set its fee"),
        (known, json!({"tools": [endless]}), "`max_uses`"),
        (known, json!({"service_tier": "priority"}), "`priority`"),
        (known, json!({"speed": "fast"}), "`priority`"),
    ] {
        match run(&server, fees, &fields, 100.0).await {
            Err(Error::Model { source, .. }) => {
                assert_eq!(source.kind(), ModelErrorKind::Unpriced, "{source}");
                assert!(source.to_string().contains(part), "{source}");
            }
            other => panic!("{fields}: {other:?}"),
        }
    }
    // A known and bounded cost is sent, unless it exceeds the budget: the fees, and three windows.
    match run(&server, known, &json!({"tools": [search]}), 0.04).await {
        Err(Error::Limit { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(server.seen().is_empty(), "nothing was sent");
    let usage = json!({
        "input_tokens": 100, "output_tokens": 50, "cache_creation_input_tokens": 0,
        "server_tool_use": {"web_search_requests": 2},
    });
    let server = Server::with_answer(reply_with_usage(&usage)).await;
    let cost = run(&server, known, &json!({"tools": [search]}), 1.0)
        .await
        .unwrap();
    assert_eq!(cost, Money::from_dollars(0.02 + 0.000_15));
}

#[tokio::test]
async fn provider_tool_is_sent_under_token_limit_only_with_limited_uses() {
    let usage = json!({"input_tokens": 10, "output_tokens": 5});
    let server = Server::with_answer(reply_with_usage(&usage)).await;
    let endless = json!({"type": "web_search_20250305", "name": "web_search"});
    let run = async |fees, fields, tokens| {
        run_within(&server, fees, &fields, Limits::new().tokens(tokens)).await
    };
    match run(Fees::new(), json!({"tools": [endless]}), 1_000_000).await {
        Err(Error::Model { source, .. }) => {
            assert_eq!(source.kind(), ModelErrorKind::Unpriced, "{source}");
            let text = source.to_string();
            assert!(text.contains("the run's tokens are limited"), "{text}");
            assert!(text.contains("`max_uses`"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // The fee does not matter, but a window of 10,000 tokens for the request and for each use does.
    let twice = json!({"tools": [{"type": "web_search_20250305", "max_uses": 2}]});
    match run(Fees::new(), twice.clone(), 30_000).await {
        Err(Error::Limit { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(server.seen().is_empty(), "nothing was sent");
    run(Fees::new(), twice, 40_000).await.unwrap();
    run(
        Fees::new().with_max_uses(2),
        json!({"tools": [endless]}),
        40_000,
    )
    .await
    .unwrap();
    // A tier costs money and no tokens.
    run(Fees::new(), json!({"service_tier": "priority"}), 40_000)
        .await
        .unwrap();
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn model_list_has_one_hour_rates_and_fees() {
    let list = ModelList::parse(
        r#"{"models": {"house:big": {"price": {
            "input": 1, "output": 2, "cache_write": 1.25, "cache_write_hour": 2, "priority": 175,
            "fees": {"search": 10, "session": 30, "most_uses": 4},
            "long": {"over": 10, "input": 2, "output": 3, "cache_write_hour": 4}
        }}}}"#,
    );
    let price = list.unwrap().card("house", "big").price.unwrap();
    let fees = Fees::new()
        .with_search(0.01)
        .with_session(0.03)
        .with_max_uses(4);
    let long = Price::new(2.0, 3.0).with_cache_write_hour(4.0);
    let expected = Price::new(1.0, 2.0)
        .with_cache_write(1.25)
        .with_cache_write_hour(2.0)
        .with_priority(175);
    assert_eq!(price, expected.with_fees(fees).with_long(10, long));
    let error = ModelList::parse(
        r#"{"models": {"a:b": {"price": {"input": 1, "output": 2, "fees": {"serch": 1}}}}}"#,
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("unknown field `serch`")
    );
    for name in ModelList::builtin()
        .names()
        .filter(|name| name.starts_with("anthropic:"))
    {
        let price = ModelList::builtin()
            .card("anthropic", &name["anthropic:".len()..])
            .price
            .unwrap();
        assert_eq!(
            price.cache_write_hour,
            Some(price.input.saturating_mul(2)),
            "{name}"
        );
        assert!(price.fees.search.is_some(), "{name}");
    }
}
