use super::*;

#[test]
fn builtin_list_is_valid() {
    let list = ModelList::parse(include_str!("../../../models.json"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(list.names().count() > 40, "{}", list.names().count());
    for name in list.names() {
        let (provider, id) = name.split_once(':').unwrap_or_default();
        let card = list.card(provider, id);
        let price = card.price.unwrap_or(Price::new(1.0, 1.0));
        let dollars = |money: levity_core::Money| money.nanos() as f64 / 1e9;
        assert!(
            dollars(price.input) > 0.0 && dollars(price.output) > 0.0,
            "{name} is free"
        );
        assert!(
            price.output >= price.input && dollars(price.output) < 1_000.0,
            "{name}"
        );
        assert!(
            price.cached.is_none_or(|cached| cached <= price.input),
            "{name}"
        );
        assert!(
            card.window
                .is_none_or(|window| (4_000..20_000_000).contains(&window)),
            "{name}"
        );
        assert!(
            card.max_output
                .is_none_or(|max| max <= card.window.unwrap_or(u64::MAX)),
            "{name}"
        );
    }
    for server in list.servers.values() {
        assert!(
            server.base_url.starts_with("https://"),
            "{}",
            server.base_url
        );
    }
}

#[test]
fn card_ignores_date_at_end_of_name() {
    let json = r#"{"models": {"openai:gpt-4o": {"window": 1},
        "openai:gpt-4o-2024-05-13": {"window": 2},
        "gemini:gemini-2.0-flash": {"window": 3}, "openai:o3": {"window": 4},
        "anthropic:claude-opus-4-1": {"window": 5}, "anthropic:claude-opus-4": {"window": 6}}}"#;
    let list = ModelList::parse(json).unwrap_or_else(|error| panic!("{error}"));
    let window = |provider: &str, id: &str| list.card(provider, id).window;
    assert_eq!(window("openai", "gpt-4o"), Some(1));
    assert_eq!(window("openai-chat", "gpt-4o-2024-08-06"), Some(1));
    assert_eq!(window("openai", "gpt-4o-2024-05-13"), Some(2));
    assert_eq!(window("vertex", "gemini-2.0-flash-001"), Some(3));
    assert_eq!(window("gemini", "models/gemini-2.0-flash"), Some(3));
    assert_eq!(window("openai", "o3-20250416"), Some(4));
    assert_eq!(window("anthropic", "claude-opus-4-1-20250805"), Some(5));
    assert_eq!(window("anthropic", "claude-opus-4-20250514"), Some(6));
    assert_eq!(window("anthropic", "claude-opus-4@20250514"), Some(6));
    assert_eq!(window("openai", "gpt-4o-mini"), None);
    assert_eq!(
        window("anthropic", "claude-opus-4-7-20270101"),
        None,
        "an unknown model"
    );
    assert_eq!(window("gemini", "gemini-2.0-flash-05-20"), Some(3));
    assert_eq!(window("openai", "o3-mini-2025-01-31"), None);
}

#[test]
fn merged_list_takes_precedence() {
    let one = r#"{"models": {"a:b": {"window": 1, "price": {"input": 1, "output": 2}}},
        "defaults": {"a": "b"}}"#;
    let two = r#"{"models": {"a:b": {"window": 5}, "a:c": {"window": 6}}}"#;
    let parse = |json| ModelList::parse(json).unwrap_or_else(|error| panic!("{error}"));
    let list = parse(one).with(parse(two));
    let card = list.card("a", "b");
    assert_eq!(
        (card.window, card.price),
        (Some(5), Some(Price::new(1.0, 2.0)))
    );
    assert_eq!(list.card("a", "c").window, Some(6));
    assert_eq!(list.defaults["a"].id, "b");
}

#[test]
fn merged_capability_keeps_other_capabilities() {
    let parse = |json| ModelList::parse(json).unwrap_or_else(|error| panic!("{error}"));
    let list =
        parse(r#"{"models": {"a:b": {"capabilities": {"images": true, "output_schema": false}}}}"#);
    let capabilities = list
        .with(parse(
            r#"{"models": {"a:b": {"capabilities": {"thinking": true}}}}"#,
        ))
        .card("a", "b")
        .capabilities;
    assert!(
        capabilities.images
            && capabilities.thinking
            && capabilities.tools
            && !capabilities.output_schema
    );
}

#[track_caller]
fn check_error(json: &str, expected: &str) {
    let error = ModelList::parse(json)
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn parse_error_names_line_and_problem() {
    check_error("{", "line 1");
    check_error(
        "{\n\"models\": {\"a:b\": {\"windows\": 1}}}",
        "line 2, column 28: unknown field `windows`",
    );
    check_error(r#"{"models": {"gpt": {}}}"#, "`gpt` has no provider");
    check_error(
        r#"{"models": {"a:b": {"price": {"input": 1}}}}"#,
        "missing field `output`",
    );
    check_error(
        r#"{"profiles": {"a:b": {"model": "c:d"}}}"#,
        "`a:b` must not contain a colon",
    );
    check_error(
        "{\n\"models\": {\"a:b\": {\"capabilities\": {\"image\": true}}}}",
        "line 2, column 43: unknown field `image`",
    );
    check_error(
        r#"{"profiles": {"p": {"model": "c:d", "options": {"temprature": 0}}}}"#,
        "no option `temprature`",
    );
    check_error(
        r#"{"profiles": {"p": {"model": "c:d", "rate": {"gap_seconds": -1}}}}"#,
        "`gap_seconds` is not a valid time",
    );
}
