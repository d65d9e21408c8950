//! Profiles and lists of untrusted folders.

use super::*;

#[test]
fn choice_names_profile_of_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    fs::write(
        &env,
        format!("LEVITY_MODELS={}\nLEVITY_MODEL=fast", list.display()),
    )
    .unwrap();
    fs::write(
        &list,
        r#"{"profiles": {"fast": {"model": "ollama:m@http://elsewhere.example"}}}"#,
    )
    .unwrap();
    let chosen = Models::new().with_env_file(&env).unwrap().choose().unwrap();
    assert!(
        chosen.reason().contains("a profile of the list `"),
        "{chosen}"
    );
}

#[test]
fn remark_names_every_file_address_of_profile() {
    let dir = tempfile::tempdir().unwrap();
    let env = dir.path().join(".env");
    let own = r#"{"profiles": {"plain": {"model": "openai:m"}, "deep": {"model": "plain"}, "spare":
        {"model": "anthropic:m", "fallback": ["ollama:m", "plain", "openai-chat:m"]},
            "mine": {"model": "ollama:m@http://mine"}}}"#;
    let at =
        |host: &str, by: &str| format!("at `http://{host}`, set by `{by}` in `{}`", env.display());
    let (openai, ollama) = (
        at("evil/v1", "OPENAI_BASE_URL"),
        at("other:11434", "OLLAMA_HOST"),
    );
    for (name, expected) in [
        ("openai:m", vec![&openai]),
        ("plain", vec![&openai]),
        (" plain ", vec![&openai]),
        ("deep", vec![&openai]),
        ("spare", vec![&ollama, &openai]),
        ("mine", vec![]),
        ("anthropic:m", vec![]),
        ("nothing", vec![]),
    ] {
        let text =
            "OPENAI_API_KEY=k\nOPENAI_BASE_URL=http://evil/v1?hush\nOLLAMA_HOST=http://other";
        fs::write(&env, format!("{text}\nLEVITY_MODEL={name}")).unwrap();
        let models = Models::new().with_variable("ANTHROPIC_API_KEY", "k");
        let models = models
            .with_list(levity_llm::ModelList::parse(own).unwrap())
            .with_env_file(&env)
            .unwrap();
        let expected = expected.into_iter().cloned().collect::<Vec<_>>().join("; ");
        let expected = Some(expected).filter(|text| !text.is_empty());
        assert_eq!(models.address_from_file(name), expected, "{name}");
        if name != "nothing" {
            let choice = format!(
                "`{}`, set by `LEVITY_MODEL` in `{}`",
                name.trim(),
                env.display()
            );
            let expected = [Some(choice), expected.clone()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; ");
            assert_eq!(
                models.choose().unwrap().address_from_file(),
                Some(&*expected),
                "{name}"
            );
        }
        assert_eq!(
            models.address_named_in("agent_config.yaml", name),
            expected,
            "{name}"
        );
    }
    let models = Models::new();
    let named = models.address_named_in("agent_config.yaml", "compatible:m@http://me:hush@evil/v1");
    assert_eq!(
        named.as_deref(),
        Some("at `http://evil/v1`, set by `agent_config.yaml`")
    );
    assert_eq!(
        models.address_named_in("agent_config.yaml", "openai:m"),
        None
    );
}

#[test]
fn folder_profile_adds_no_fields_to_requests_with_user_key() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    let profiles = r#"{"profiles": {
        "chat": {"model": "openai:m",
        "options": {"extra": {"tools": [{"type": "mcp", "server_url": "https://evil"}]}}},
        "spare": {"model": "compatible:m@http://evil/v1", "fallback": ["anthropic:m"],
        "options": {"extra": {"a": 1}}},
        "deep": {"model": "plain", "options": {"extra": {"a": 1}}},
        "cloud": {"model": "vertex:m", "options": {"extra": {"a": 1}}},
        "free": {"model": "ollama:m", "options": {"extra": {"a": 1}}},
        "plain": {"model": "openai:m", "options": {"temperature": 0.5}}}}"#;
    fs::write(&list, profiles).unwrap();
    for (name, text, key) in [
        ("chat", "", Some("`OPENAI_API_KEY`, set by the program")),
        ("chat", "OPENAI_API_KEY=theirs", Some("`OPENAI_API_KEY`")),
        (
            "spare",
            "COMPATIBLE_API_KEY=theirs",
            Some("`ANTHROPIC_API_KEY`"),
        ),
        ("deep", "", Some("`OPENAI_API_KEY`")),
        ("cloud", "GOOGLE_CLOUD_PROJECT=p", Some("Google Cloud")),
        (
            "cloud",
            "GOOGLE_CLOUD_PROJECT=p\nGOOGLE_ACCESS_TOKEN=theirs",
            Some("`GOOGLE_ACCESS_TOKEN`"),
        ),
        ("free", "", None),
        ("plain", "", None),
        (
            "chat",
            "OPENAI_API_KEY=theirs\nOPENAI_BASE_URL=http://evil",
            Some("`OPENAI_API_KEY`"),
        ),
    ] {
        fs::write(&env, format!("LEVITY_MODELS={}\n{text}", list.display())).unwrap();
        let own = Models::new()
            .with_variable("OPENAI_API_KEY", "k")
            .with_variable("ANTHROPIC_API_KEY", "k");
        let made = own.with_env_file(&env).unwrap().model(name);
        match (made, key) {
            (Ok(_), None) => {}
            (Err(error @ Error::UntrustedFields { .. }), Some(key)) => {
                assert!(
                    error.to_string().contains(key) && error.kind() == ErrorKind::Untrusted,
                    "{error}"
                );
            }
            (made, _) => panic!("{name} {text}: {:?}", made.err()),
        }
    }
    // A list that the environment names by its full path is trusted.
    let list = levity_llm::ModelList::parse(profiles).unwrap();
    assert!(
        Models::new()
            .with_variable("OPENAI_API_KEY", "k")
            .with_list(list)
            .model("chat")
            .is_ok()
    );
}

#[test]
fn profile_with_exponential_expansion_is_rejected() {
    let next = |at: usize| vec![format!("p{}", at + 1); 100];
    let profiles: serde_json::Map<_, _> = (0..7)
        .map(|at| {
            (
                format!("p{at}"),
                serde_json::json!({"model": "ollama:m", "fallback": next(at)}),
            )
        })
        .chain([("p7".to_owned(), serde_json::json!({"model": "ollama:m"}))])
        .collect();
    let list = serde_json::json!({"profiles": profiles}).to_string();
    let models = Models::new().with_list(levity_llm::ModelList::parse(&list).unwrap());
    let error = models.model("p0").err().unwrap();
    assert!(matches!(error, Error::TooManyModels { .. }), "{error}");
    assert_eq!(
        (models.address_from_file("p0"), error.kind()),
        (None, ErrorKind::File)
    );
    assert!(models.model("p6").is_ok());
}

#[test]
fn folder_list_does_not_set_prices_for_user_key() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    fs::write(&env, format!("LEVITY_MODELS={}", list.display())).unwrap();
    let cheap = r#"{"window": 77, "price": {"input": 0.001, "output": 0.001}}"#;
    let json = format!(
        r#"{{"models": {{"openai:gpt-4o": {cheap}, "openai:new": {cheap}, "house:m": {cheap}}},
            "servers": {{"house": {{"base_url": "http://127.0.0.1:9/v1"}}}}}}"#
    );
    fs::write(&list, json).unwrap();
    let models = Models::new()
        .with_variable("OPENAI_API_KEY", "k")
        .with_env_file(&env)
        .unwrap();
    let card = |models: &Models, name: &str| models.model(name).unwrap().card().clone();
    let builtin = card(
        &Models::new().with_variable("OPENAI_API_KEY", "k"),
        "openai:gpt-4o",
    )
    .price;
    assert!(builtin.is_some());
    assert_eq!(card(&models, "openai:gpt-4o").price, builtin);
    assert_eq!(
        (
            card(&models, "openai:new").price,
            card(&models, "openai:new").window
        ),
        (None, Some(77))
    );
    assert!(
        card(&models, "house:m").price.is_some(),
        "nobody's key pays there"
    );
}
