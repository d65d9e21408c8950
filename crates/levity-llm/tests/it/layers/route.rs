use std::sync::Arc;

use levity_core::{
    Delta, Fees, Media, Message, Model, ModelCard, ModelError, ModelErrorKind, Money, Part, Price,
    Request, Role, ToolSpec,
};
use levity_llm::ModelExt;
use levity_llm::layers::{Difficulty, Route};
use levity_test::{ScriptedModel, Turn};
use serde_json::json;

use super::support::{ask, pieces};

const BUSY: ModelErrorKind = ModelErrorKind::Overloaded;

/// Creates a model that replies with its name.
fn model(name: &str, price: Option<f64>) -> ScriptedModel {
    ScriptedModel::looping(Turn::new().text(name).usage(1_000_000, 0)).with_card(card(name, price))
}

fn card(name: &str, price: Option<f64>) -> ModelCard {
    let card = ModelCard::new("test", name).with_window(1_000_000);
    price.map_or(card.clone(), |price| {
        card.with_price(Price::new(price, price))
    })
}

async fn text(model: &dyn Model, request: Request) -> String {
    model
        .complete(request)
        .await
        .unwrap()
        .message
        .text()
        .into_owned()
}

#[tokio::test]
async fn fallback_uses_next_model_on_error() {
    let first = || {
        ScriptedModel::new()
            .fail(BUSY)
            .with_card(card("first", None))
    };
    let both = || first().fallback(model("second", None));
    assert_eq!(text(&both(), ask("?")).await, "second");
    let (deltas, error) = pieces(&both(), ask("?")).await;
    let Delta::Restart { reason } = &deltas[0] else {
        panic!("{deltas:?}")
    };
    assert_eq!(
        (reason.as_str(), error),
        (
            "`first` failed: the script says so; falling back to `second`",
            None
        )
    );

    let three = ScriptedModel::new()
        .fail(BUSY)
        .fallback(ScriptedModel::new().fail(BUSY))
        .fallback(model("third", None));
    assert_eq!(text(&three, ask("?")).await, "third");
}

#[tokio::test]
async fn fallback_applies_to_selected_errors_only() {
    let auth = || ScriptedModel::new().fail(ModelErrorKind::Auth);
    let next = model("second", None);
    let error = auth()
        .fallback(next.clone())
        .complete(ask("?"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), next.requests().len()),
        (ModelErrorKind::Auth, 0)
    );
    let chosen = auth()
        .fallback(next)
        .on(|kind| kind == ModelErrorKind::Auth);
    assert_eq!(text(&chosen, ask("?")).await, "second");
}

#[tokio::test]
async fn streamed_reply_is_not_replaced_unless_restart_is_allowed() {
    let broken = || {
        let turn = Turn::new()
            .text("Good mor")
            .break_off(ModelError::new(BUSY, "broke off"));
        ScriptedModel::new().turn(turn)
    };
    let (deltas, error) = pieces(&broken().fallback(model("second", None)), ask("?")).await;
    assert_eq!((deltas.len(), error.unwrap().kind()), (1, BUSY));
    let restarts = broken()
        .fallback(model("second", None))
        .restart_after_first_delta();
    let whole = restarts
        .stream(ask("?"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    assert_eq!(whole.message.text(), "second");
}

#[tokio::test]
async fn fallback_card_and_worst_case_cover_both_models() {
    let (mut a, mut b) = (
        card("a", Some(1.0)).with_max_output(100),
        card("b", Some(5.0)).with_window(500),
    );
    (a.capabilities.images, b.capabilities.tools) = (true, false);
    let (a, b) = (
        ScriptedModel::new().with_card(a),
        ScriptedModel::new().with_card(b),
    );
    let both = a.clone().fallback(b.clone());
    let card = both.card();
    assert_eq!(
        (card.id.as_str(), card.window, card.max_output),
        ("a", Some(500), Some(100))
    );
    assert_eq!(
        (card.capabilities.images, card.capabilities.tools),
        (false, false)
    );
    let worst = both.cost_bound(&ask("?"));
    assert_eq!((worst.sends, worst.price), (2, Some(Price::new(5.0, 5.0))));
    assert_eq!(worst.output, None, "the second says nothing of its length");
    assert!(worst.input >= a.cost_bound(&ask("?")).input);
    let unknown = a.fallback(model("c", None));
    assert_eq!(
        (unknown.cost_bound(&ask("?")).price, unknown.card().price),
        (None, None),
        "unknown is not free"
    );
}

#[test]
fn fallback_reserves_fees_and_tiers_of_both_models() {
    let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 3});
    let mut request = ask("?");
    Arc::make_mut(&mut request.options)
        .extra
        .insert("tools".to_owned(), json!([search]));
    let priced = |name: &str, price: Price| {
        ScriptedModel::new().with_card(card(name, None).with_price(price))
    };
    let plain = Price::new(1.0, 1.0);
    let (low, high) = (
        Fees::new().with_search(0.01),
        Fees::new().with_search(0.02).with_session(0.03),
    );
    let (cheap, dear) = (
        priced("a", plain.with_fees(low)),
        priced("b", plain.with_fees(high)),
    );
    let free = priced("c", plain);
    for both in [
        cheap.clone().fallback(dear.clone()),
        dear.clone().fallback(cheap.clone()),
    ] {
        let worst = both.cost_bound(&request);
        assert_eq!(
            (worst.fees, worst.unknown),
            (Money::from_dollars(0.06), None)
        );
        let fees = both.card().price.unwrap().fees;
        assert_eq!(
            (fees.search, fees.session),
            (high.search, None),
            "the fee of a session is not known of both"
        );
    }
    for both in [cheap.clone().fallback(free.clone()), free.fallback(cheap)] {
        assert!(
            both.cost_bound(&request)
                .unknown
                .is_some_and(|what| what.contains("set its fee"))
        );
        assert_eq!(both.card().price.unwrap().fees.search, None);
    }
    let (hour, listed) = (
        plain.with_cache_write_hour(1.5).with_priority(150),
        plain.with_priority(300),
    );
    let both = priced("a", hour).fallback(priced("b", listed));
    let price = both.card().price.unwrap();
    assert_eq!(
        (price.cache_write_hour, price.priority),
        (Some(Money::from_dollars(2.0)), Some(300))
    );
}

#[tokio::test]
async fn cost_is_that_of_answering_model() {
    let cheap = || ScriptedModel::new().fail(ModelErrorKind::RateLimited { retry_after: None });
    let both = || {
        cheap()
            .with_card(card("cheap", Some(1.0)))
            .fallback(model("dear", Some(5.0)))
    };
    let dollars = |dollars| Some(Money::from_dollars(dollars));
    assert_eq!(
        both().complete(ask("?")).await.unwrap().usage.cost,
        dollars(5.0)
    );
    assert_eq!(
        both()
            .stream(ask("?"))
            .await
            .unwrap()
            .fold()
            .await
            .unwrap()
            .usage
            .cost,
        dollars(5.0)
    );
    let route = Route::new(model("dear", Some(5.0))).or(model("cheap", Some(1.0)));
    assert_eq!(
        route.complete(ask("?")).await.unwrap().usage.cost,
        dollars(1.0)
    );

    let lost = ScriptedModel::new()
        .fail(ModelErrorKind::Timeout)
        .fallback(model("dear", Some(5.0)));
    let usage = lost.complete(ask("?")).await.unwrap().usage;
    assert_eq!(
        (usage.estimated, usage.cost),
        (true, None),
        "what the first took is not known"
    );
    let failed = ScriptedModel::new()
        .fail(ModelErrorKind::Timeout)
        .fallback(ScriptedModel::new());
    let error = failed.complete(ask("?")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.may_cost()),
        (ModelErrorKind::BadRequest, true)
    );
}

#[tokio::test]
async fn router_chooses_cheapest_capable_model() {
    let mut small = card("small", Some(0.1)).with_window(100);
    small.capabilities.tools = false;
    let small = ScriptedModel::looping(Turn::new().text("small")).with_card(small);
    let mut seeing = card("seeing", Some(9.0));
    seeing.capabilities.images = true;
    let seeing = ScriptedModel::looping(Turn::new().text("seeing")).with_card(seeing);
    let route = Route::new(model("unpriced", None))
        .or(seeing)
        .or(model("middle", Some(1.0)))
        .or(small);
    assert_eq!(text(&route, ask("?")).await, "small");
    assert_eq!(
        text(&route, ask(&"x".repeat(1_000))).await,
        "middle",
        "too long for the small one"
    );
    let tools = ask("?").with_tools([ToolSpec::new("add", "Adds.").into()]);
    assert_eq!(text(&route, tools).await, "middle");
    let image = Message::new(
        Role::User,
        [Part::Media(Media::bytes("image/png", vec![1]))],
    );
    assert_eq!(
        text(&route, Request::new().with_message(image)).await,
        "seeing"
    );
    assert_eq!(
        (route.card().provider.as_str(), route.card().id.as_str()),
        ("route", "unpriced|seeing|middle|small")
    );
    assert!(route.card().capabilities.images && route.card().capabilities.tools);
    assert_eq!(
        (route.card().window, route.card().price),
        (Some(1_000_000), None)
    );
    assert_eq!(route.cost_bound(&ask("?")).price, None);
}

#[tokio::test]
async fn router_chooses_by_difficulty_or_rule() {
    let models = || {
        Route::new(model("small", None))
            .or(model("middle", None))
            .or(model("large", None))
    };
    let route = models().by_difficulty();
    assert_eq!(text(&route, ask("What time is it?")).await, "small");
    assert_eq!(text(&route, ask(&"word ".repeat(1_000))).await, "middle");
    assert_eq!(text(&route, ask("Analyse the two proofs.")).await, "large");
    let mut blind = card("blind", None);
    blind.capabilities.tools = false;
    let blind = ScriptedModel::looping(Turn::new().text("blind")).with_card(blind);
    let tools = ask("?").with_tools([ToolSpec::new("add", "Adds.").into()]);
    let able = Route::new(model("able", None))
        .or(blind.clone())
        .by_difficulty();
    assert_eq!(
        text(&able, tools.clone()).await,
        "able",
        "the next one cannot call tools"
    );
    let able = Route::new(model("small", None))
        .or(blind)
        .or(model("able", None))
        .by_difficulty();
    assert_eq!(text(&able, tools).await, "able", "the harder one first");
    let own = models().by_classifier(|_: &Request| Difficulty::Medium);
    assert_eq!(text(&own, ask("Analyse the two proofs.")).await, "middle");
    let rule =
        models().by_rule(|_, cards| cards.iter().position(|card| card.id == "middle").unwrap());
    assert_eq!(text(&rule, ask("?")).await, "middle");
    assert_eq!(
        text(&models().by_rule(|_, _| usize::MAX), ask("?")).await,
        "large"
    );
}
