//! The chosen model, and the remarks on files that decide it.

use super::*;

#[test]
fn chosen_model_names_file_and_address() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".env");
    let chosen = |text: &str| {
        fs::write(&file, text).unwrap();
        Models::new()
            .with_env_file(&file)
            .unwrap()
            .choose()
            .unwrap()
            .to_string()
    };
    let env = format!("`{}`", file.display());
    let said =
        chosen("OPENAI_API_KEY=k\nOPENAI_BASE_URL=http://me:hush@elsewhere.example/v1?key=hush");
    assert!(
        said.contains(&format!("`OPENAI_API_KEY` is set in {env}")),
        "{said}"
    );
    assert!(
        said.contains("at `http://elsewhere.example/v1`") && !said.contains("hush"),
        "{said}"
    );
    let said = chosen("LEVITY_MODEL=compatible:m@http://elsewhere.example/v1?key=hush");
    assert!(
        said.starts_with("compatible:m@http://elsewhere.example/v1, since"),
        "{said}"
    );
    assert!(
        said.contains(&format!("`LEVITY_MODEL` in {env} names it")) && !said.contains("hush"),
        "{said}"
    );
}

#[test]
fn user_variable_takes_precedence_over_alias_in_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".env");
    fs::write(&file, "GEMINI_API_KEY=theirs").unwrap();
    let chosen = Models::new()
        .with_variable("GOOGLE_API_KEY", "mine")
        .with_env_file(&file)
        .unwrap()
        .choose();
    assert!(
        chosen
            .unwrap()
            .reason()
            .starts_with("`GOOGLE_API_KEY` is set")
    );
}

#[tokio::test]
async fn file_key_is_sent_to_address_of_user() {
    let (dir, home) = (
        tempfile::tempdir().unwrap(),
        Server::with_answer(Answer::json(200, "{}")).await,
    );
    let file = dir.path().join(".env");
    fs::write(&file, "OPENAI_API_KEY=theirs").unwrap();
    let models = Models::new()
        .with_variable("OPENAI_BASE_URL", home.url())
        .with_env_file(&file)
        .unwrap();
    complete(&*models.model("openai:m").unwrap()).await;
    assert_eq!(key(&home.last()), "Bearer theirs");
}

#[test]
fn remark_names_every_file_that_sets_destination() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    let account = dir.path().join("account.json");
    fs::write(
        &account,
        r#"{"type": "authorized_user", "client_id": "c", "client_secret": "hush",
            "refresh_token": "hush"}"#,
    )
    .unwrap();
    let file = format!("`{}`", env.display());
    for (text, json, name, parts) in [
        (
            "LEVITY_MODEL=deepseek:m\nDEEPSEEK_API_KEY=hush",
            "",
            None,
            &["`deepseek:m`", "`LEVITY_MODEL`"][..],
        ),
        (
            "LEVITY_MODEL=openai:m",
            "",
            None,
            &["`openai:m`", "`LEVITY_MODEL`"],
        ),
        ("GEMINI_API_KEY=hush", "", None, &["`GEMINI_API_KEY`"]),
        (
            "DEEPSEEK_API_KEY=hush",
            "",
            Some("deepseek:m"),
            &["`DEEPSEEK_API_KEY`"],
        ),
        (
            "GOOGLE_CLOUD_PROJECT=evil\nGOOGLE_ACCESS_TOKEN=hush",
            "",
            Some("vertex:m"),
            &["`evil`", "`GOOGLE_CLOUD_PROJECT`", "`GOOGLE_ACCESS_TOKEN`"],
        ),
        (
            "GOOGLE_CLOUD_PROJECT=evil\nGOOGLE_APPLICATION_CREDENTIALS={account}",
            "",
            Some("vertex:m"),
            &["`evil`", "account.json", "`GOOGLE_APPLICATION_CREDENTIALS`"],
        ),
        (
            "LEVITY_MODELS={list}",
            r#"{"defaults": {"openai": "gpt-4o"}}"#,
            None,
            &["`openai:gpt-4o`", "models.json"],
        ),
    ] {
        let fill_placeholders = |text: &str| {
            text.replace("{list}", list.to_str().unwrap())
                .replace("{account}", account.to_str().unwrap())
        };
        fs::write(&env, fill_placeholders(text)).unwrap();
        fs::write(&list, json).unwrap();
        let models = Models::new()
            .with_variable("OPENAI_API_KEY", "mine")
            .with_env_file(&env)
            .unwrap();
        let remark = match name {
            Some(name) => {
                models.model(name).unwrap();
                models.address_from_file(name)
            }
            None => models
                .choose()
                .unwrap()
                .address_from_file()
                .map(str::to_owned),
        };
        let remark = remark.unwrap_or_else(|| panic!("{text}: nothing is said"));
        assert!(
            parts.iter().all(|part| remark.contains(part)),
            "{text}: {remark}"
        );
        assert!(
            json.is_empty() == remark.contains(&file) || remark.contains(&file),
            "{text}: {remark}"
        );
        assert!(!remark.contains("hush"), "{remark}");
    }
    let models = Models::new().with_variable("OPENAI_API_KEY", "mine");
    assert_eq!(models.choose().unwrap().address_from_file(), None);
    assert_eq!(models.address_from_file("openai:m"), None);
}

#[test]
fn provider_failing_due_to_file_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (env, list) = (dir.path().join(".env"), dir.path().join("models.json"));
    for (text, json) in [
        (
            "DEEPSEEK_API_KEY=theirs\nLEVITY_MODELS={list}",
            r#"{"defaults": {"openai": "x y"}}"#,
        ),
        (
            "DEEPSEEK_API_KEY=theirs\nLEVITY_MODELS={list}",
            r#"{"defaults": {"openai": ""}}"#,
        ),
        ("DEEPSEEK_API_KEY=theirs\nOPENAI_BASE_URL=http:evil", "{}"),
    ] {
        fs::write(&env, text.replace("{list}", list.to_str().unwrap())).unwrap();
        fs::write(&list, json).unwrap();
        let models = Models::new()
            .with_variable("OPENAI_API_KEY", "mine")
            .with_env_file(&env)
            .unwrap();
        let chosen = models.choose().map(|chosen| chosen.to_string());
        assert!(chosen.is_err(), "{text} {json}: {chosen:?}");
    }
    // A server with the name of a provider fails at once.
    for name in [
        "openai",
        "anthropic",
        "vertex",
        "compatible",
        "groq",
        "deepseek",
    ] {
        fs::write(
            &env,
            format!("DEEPSEEK_API_KEY=theirs\nLEVITY_MODELS={}", list.display()),
        )
        .unwrap();
        fs::write(
            &list,
            format!(r#"{{"servers": {{"{name}": {{"base_url": "http://evil"}}}}}}"#),
        )
        .unwrap();
        let error = Models::new()
            .with_variable("OPENAI_API_KEY", "mine")
            .with_env_file(&env)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Untrusted, "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("the server `{name}` of")),
            "{error}"
        );
    }
}

#[test]
fn malformed_address_is_rejected() {
    for address in [
        "http:127.0.0.1:47901",
        "http:/127.0.0.1:47901",
        "http:///127.0.0.1:47901",
        "http:\\\\127.0.0.1",
        "127.0.0.1:47901/v1",
        "ftp://127.0.0.1",
        "http://me:hush%40127.0.0.1",
        "http://me:12/hush@127.0.0.1",
    ] {
        for (variable, name) in [
            ("OPENAI_BASE_URL", "openai:m"),
            ("OPENAI_BASE_URL", "openai-chat:m"),
            ("ANTHROPIC_BASE_URL", "anthropic:m"),
            ("GEMINI_BASE_URL", "gemini:m"),
        ] {
            let keys = KEYS.iter().fold(Models::new(), |models, (name, key)| {
                models.with_variable(*name, *key)
            });
            let models = keys.with_variable(variable, address);
            let error = models
                .model(name)
                .err()
                .unwrap_or_else(|| panic!("{variable}={address}"));
            let text = error.to_string();
            assert!(text.contains("http://") && !text.contains("hush"), "{text}");
            assert!(
                name == "anthropic:m" || models.embedder(name).is_err(),
                "{variable}={address}"
            );
        }
        let list = serde_json::json!({"servers": {"house": {"base_url": address}}}).to_string();
        let models = Models::new().with_list(levity_llm::ModelList::parse(&list).unwrap());
        assert!(models.model("house:m").is_err(), "{address}");
    }
    let models = Models::new().with_variable("OPENAI_API_KEY", "k");
    assert!(
        models
            .with_variable("OPENAI_BASE_URL", " https://me:pw@host:8080/v1/?key=x ")
            .model("openai:m")
            .is_ok()
    );
}
