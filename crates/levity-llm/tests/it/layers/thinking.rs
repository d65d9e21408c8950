use levity_core::{Capabilities, Message, Model, ModelCard, Options, Request, ThinkingMode};
use levity_llm::ModelExt;
use levity_llm::layers::AutoThinking;
use levity_test::{ScriptedModel, Turn};

use super::support::ask;

fn inner(thinks: bool) -> ScriptedModel {
    let mut capabilities = Capabilities::default();
    capabilities.thinking = thinks;
    let card = ModelCard::new("test", "m").with_capabilities(capabilities);
    ScriptedModel::looping(Turn::new().text("yes")).with_card(card)
}

async fn mode(inner: &ScriptedModel, model: &dyn Model, request: Request) -> Option<ThinkingMode> {
    model.complete(request.clone()).await.unwrap();
    let whole = inner.requests().pop().unwrap().options.thinking;
    model.stream(request).await.unwrap().fold().await.unwrap();
    assert_eq!(inner.requests().pop().unwrap().options.thinking, whole);
    whole
}

#[tokio::test]
async fn keywords_and_length_enable_thinking() {
    let inner = inner(true);
    let model = inner.clone().auto_thinking();
    for (query, expected) in [
        ("Analyze this text", true),
        ("please ANALYSE it", true),
        ("Can you compare A and B?", true),
        ("So why is it blue?", true),
        ("What time is it?", false),
        ("a paralyzed man", false),
        ("Wherefore", false),
        ("", false),
    ] {
        let found = mode(&inner, &model, ask(query)).await;
        assert_eq!(found, expected.then_some(ThinkingMode::Auto), "{query}");
    }
    assert_eq!(mode(&inner, &model, ask(&"x".repeat(1_500))).await, None);
    assert_eq!(
        mode(&inner, &model, ask(&"x".repeat(1_501))).await,
        Some(ThinkingMode::Auto)
    );
}

#[tokio::test]
async fn query_is_last_user_message() {
    let inner = inner(true);
    let model = inner.clone().auto_thinking();
    let later = ask("Compare them")
        .with_message(Message::assistant("Done."))
        .with_message(Message::user("Thanks"));
    assert_eq!(mode(&inner, &model, later).await, None);
    let noted = ask("Compare them").with_message(Message::system("Two turns are left."));
    assert_eq!(mode(&inner, &model, noted).await, Some(ThinkingMode::Auto));
}

#[tokio::test]
async fn explicit_thinking_mode_is_unchanged() {
    let thinker = inner(true);
    let model = thinker.clone().auto_thinking();
    let mut options = Options::new();
    options.thinking = Some(ThinkingMode::Off);
    assert_eq!(
        mode(&thinker, &model, ask("Compare").with_options(options)).await,
        Some(ThinkingMode::Off)
    );
    let plain = inner(false);
    assert_eq!(
        mode(&plain, &plain.clone().auto_thinking(), ask("Compare")).await,
        None,
        "it cannot think"
    );
}

#[tokio::test]
async fn thinking_stays_off_with_small_output_limit() {
    let inner = inner(true);
    let within = |tokens: u64| {
        let mut options = Options::new();
        options.max_tokens = Some(tokens);
        ask("Compare").with_options(options)
    };
    let model = inner.clone().auto_thinking();
    assert_eq!(mode(&inner, &model, within(4_095)).await, None);
    assert_eq!(
        mode(&inner, &model, within(4_096)).await,
        Some(ThinkingMode::Auto)
    );
    assert_eq!(
        mode(
            &inner,
            &inner.clone().auto_thinking().min_reply_tokens(64),
            within(64)
        )
        .await,
        Some(ThinkingMode::Auto)
    );
    let off = inner
        .clone()
        .auto_thinking()
        .rule(|_| Some(ThinkingMode::Off));
    assert_eq!(
        mode(&inner, &off, within(10)).await,
        Some(ThinkingMode::Off),
        "switching it off needs no room"
    );
}

#[tokio::test]
async fn every_rule_is_configurable() {
    let inner = inner(true);
    let own = || AutoThinking::new(inner.clone());
    let words = own()
        .words(["Déjà", ""])
        .mode(ThinkingMode::High)
        .default_mode(ThinkingMode::Off);
    assert_eq!(
        mode(&inner, &words, ask("un DÉJÀ vu")).await,
        Some(ThinkingMode::High)
    );
    assert_eq!(
        mode(&inner, &words, ask("Compare")).await,
        Some(ThinkingMode::Off)
    );
    assert_eq!(
        mode(&inner, &own().longer_than(2), ask("abc")).await,
        Some(ThinkingMode::Auto)
    );
    let rule = own().rule(|request| (request.history.len() > 1).then_some(ThinkingMode::Budget(7)));
    assert_eq!(mode(&inner, &rule, ask("Compare")).await, None);
    let two = ask("a").with_message(Message::user("b"));
    assert_eq!(
        mode(&inner, &rule, two).await,
        Some(ThinkingMode::Budget(7))
    );
}
