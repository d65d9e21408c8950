//! Models by name, and the models that the environment offers.

use levity_core::{Message, Model as _, Options, Price, Request, ThinkingMode};
use levity_llm::{ErrorKind, ModelList, Models};
use serde_json::json;

use crate::server::{Answer, Server};

fn list(json: &serde_json::Value) -> ModelList {
    ModelList::parse(&json.to_string()).unwrap()
}

#[track_caller]
fn check_rejected(models: &Models, name: &str, kind: ErrorKind, expected: &[&str]) {
    let error = models
        .model(name)
        .err()
        .unwrap_or_else(|| panic!("`{name}` is a model"));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.is_retryable());
    for part in expected {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn invalid_model_name_is_rejected_with_reason() {
    let models = Models::new();
    for name in ["", "gpt-4o", ":x", "gemini:", "openai:gpt 4o"] {
        check_rejected(&models, name, ErrorKind::Name, &["provider:model"]);
    }
    check_rejected(
        &models,
        "nobody:x",
        ErrorKind::Name,
        &["`nobody`", "`gemini`", "`compatible`"],
    );
    check_rejected(
        &models,
        "compatible:x",
        ErrorKind::Missing,
        &["address", "compatible:x@http"],
    );
    let models = models.with_list(list(&json!({"profiles": {"fast": {"model": "gemini:x"}}})));
    check_rejected(&models, "slow", ErrorKind::Name, &["`slow`", "`fast`"]);
}

#[test]
fn cyclic_profile_is_rejected() {
    let profiles = json!({"profiles": {"a": {"model": "b"}, "b": {"model": "a"}}});
    let models = Models::new().with_list(list(&profiles));
    check_rejected(&models, "a", ErrorKind::File, &["refers back"]);
    let bare = models.bare_model("a").map(|_| ()).unwrap_err();
    assert!(bare.to_string().contains("refers back"), "{bare}");
}

#[test]
fn custom_server_needs_its_own_key() {
    let servers = json!({"servers": {"house": {"base_url": "http://127.0.0.1:9/v1",
        "key": "HOUSE_KEY"},
        "shed": {"base_url": "http://127.0.0.1:9/v1"}}, "models": {"house:big": {"window": 7}}});
    let models = Models::new().with_list(list(&servers));
    check_rejected(
        &models,
        "house:big",
        ErrorKind::Missing,
        &["`house` needs a key", "`HOUSE_KEY`"],
    );
    assert!(models.model("shed:big").is_ok());
    let model = models
        .with_variable("HOUSE_KEY", "sk-1")
        .model("house:big")
        .unwrap();
    assert_eq!(
        (&*model.card().provider, model.card().window),
        ("house", Some(7))
    );
}

#[test]
fn name_determines_capabilities_of_unlisted_model() {
    let models = Models::new()
        .with_variable("ANTHROPIC_API_KEY", "k")
        .with_variable("GEMINI_API_KEY", "k");
    let capabilities = |name: &str| models.model(name).unwrap().card().capabilities;
    assert!(!capabilities("anthropic:claude-3-5-haiku-latest").output_schema);
    assert!(capabilities("gemini:gemini-9-flash").images);
}

#[test]
fn unlisted_model_has_unknown_price() {
    let model = Models::new()
        .model("compatible:never-heard-of@http://127.0.0.1:9")
        .unwrap();
    assert!(model.card().price.is_none());
    let known = list(&json!({"models": {"compatible:mine": {"price": {"input": 1, "output": 2}}}}));
    let model = Models::new()
        .with_list(known)
        .model("compatible:mine@http://127.0.0.1:9")
        .unwrap();
    assert_eq!(model.card().price, Some(Price::new(1.0, 2.0)));
}

#[test]
fn environment_variables_are_checked_in_order() {
    let own = list(
        &json!({"servers": {"house": {"base_url": "http://127.0.0.1:9/v1", "key": "HOUSE_KEY",
            "default": "m"}}}),
    );
    let models = Models::new().with_list(own);
    let error = models.choose().unwrap_err();
    assert!(error.to_string().contains("LEVITY_MODEL"), "{error}");
    let models = models.with_variable("HOUSE_KEY", "sk-secret");
    let chosen = models.choose().unwrap();
    assert_eq!(chosen.to_string(), "house:m, since `HOUSE_KEY` is set");
    assert!(!format!("{models:?} {chosen:?}").contains("sk-secret"));
    let chosen = models
        .with_variable("LEVITY_MODEL", "compatible:a@http://127.0.0.1:9")
        .choose()
        .unwrap();
    assert_eq!(
        (chosen.name(), chosen.reason()),
        ("compatible:a@http://127.0.0.1:9", "`LEVITY_MODEL` names it")
    );
}

#[tokio::test]
async fn profile_sets_options_missing_in_request() {
    let said = r#"{"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}"#;
    let busy = Answer::json(503, r#"{"error": {"message": "busy"}}"#);
    let server = Server::start([busy, Answer::json(200, said)]).await;
    let profile = json!({
        "servers": {"house": {"base_url": format!("{}/v1", server.url())}},
        "profiles": {"calm": {
            "model": "house:m", "options": {"temperature": 0.25, "max_tokens": 9,
                "thinking": "low"},
            "rate": {"requests": 600, "gap_seconds": 0.0}, "attempts": 2,
        }},
    });
    let models = Models::new().with_list(list(&profile));
    assert!(
        models.bare_model("calm").is_ok(),
        "the model behind a profile can be checked"
    );
    let model = models.model("calm").unwrap();
    let mut options = Options::new();
    options.max_tokens = Some(5);
    options.thinking = Some(ThinkingMode::High);
    let request = Request::new()
        .with_message(Message::user("Well?"))
        .with_options(options);
    let reply = model.complete(request).await.unwrap();
    assert_eq!(reply.message.text(), "yes");
    let sent = server.last().body;
    assert_eq!(
        (&sent["temperature"], &sent["max_tokens"]),
        (&json!(0.25), &json!(5))
    );
    assert_eq!(sent["reasoning_effort"], "high");
    assert_eq!(server.seen().len(), 2, "it was sent again");
}

/// Returns the code blocks of `docs/models.md` with this mark.
fn blocks(kind: &str) -> Vec<String> {
    let page = include_str!("../data/models.md");
    let mut rest = page;
    let mut found = Vec::new();
    while let Some((_, after)) = rest.split_once(&format!("```{kind}\n")) {
        let (block, after) = after.split_once("\n```").unwrap();
        found.push(block.to_owned());
        rest = after;
    }
    found
}

#[test]
fn documented_list_is_parsed_and_works_as_documented() {
    let json = blocks("json")
        .into_iter()
        .find(|block| block.contains("\"servers\""))
        .unwrap();
    let models = Models::new().with_list(ModelList::parse(&json).unwrap());
    check_rejected(&models, "fast", ErrorKind::Missing, &["`HOUSE_API_KEY`"]);
    let models = models.with_variable("HOUSE_API_KEY", "k");
    let card = models.model("fast").unwrap().card().clone();
    assert_eq!(
        (&*card.provider, &*card.id, card.window),
        ("house", "big", Some(131_072))
    );
    assert!(models.model("house:big").unwrap().card().price.is_some());
    assert_eq!(
        models.choose().unwrap().to_string(),
        "house:big, since `HOUSE_API_KEY` is set"
    );
    let chosen = models.with_variable("GEMINI_API_KEY", "k").choose();
    assert!(chosen.is_err() || chosen.unwrap().name() == "gemini:gemini-2.5-pro");
}

#[test]
fn documented_request_is_parsed() {
    let json = blocks("json")
        .into_iter()
        .find(|block| block.contains("\"history\""))
        .unwrap();
    let request: Request = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (request.history.messages().len(), request.tools.len()),
        (3, 1)
    );
}

#[test]
fn bundled_list_has_documented_number_of_models() {
    assert!(ModelList::builtin().names().count() > 90);
    assert!(ModelList::builtin().checked().is_some());
}

#[test]
fn misspelt_name_error_has_suggestion() {
    let models = Models::new();
    for (name, meant) in [
        ("opnai:gpt-5", "did you mean `openai`?"),
        ("antropic:x", "did you mean `anthropic`?"),
        ("Gemini:x", "did you mean `gemini`?"),
        ("olama:x", "did you mean `ollama`?"),
        ("mistrall:x", "did you mean `mistral`?"),
        ("open_router:x", "did you mean `openrouter`?"),
        ("openai_chat:x", "did you mean `openai-chat`?"),
        ("claude:x", "did you mean `anthropic`?"),
        ("google:x", "did you mean `gemini`?"),
        ("vllm:x", "did you mean `compatible`?"),
        ("gpt-4o", "did you mean `openai:gpt-4o`?"),
    ] {
        check_rejected(&models, name, ErrorKind::Name, &[meant]);
        assert!(
            models.card(name).unwrap_err().to_string().contains(meant),
            "{name}"
        );
    }
    let error = models.model("colours:x").err().unwrap().to_string();
    assert!(!error.contains("did you mean"), "{error}");
    let models = models.with_list(list(
        &json!({"profiles": {"careful": {"model": "gemini:x"}}}),
    ));
    check_rejected(
        &models,
        "carefull",
        ErrorKind::Name,
        &["did you mean `careful`?", "the profiles are `careful`"],
    );
}

#[test]
fn environment_without_model_lists_providers_and_variables() {
    let error = Models::new().choose().unwrap_err().to_string();
    let built = [
        (
            cfg!(feature = "gemini"),
            "`GEMINI_API_KEY` for gemini",
            "`gemini`",
        ),
        (
            cfg!(feature = "openai"),
            "`OPENAI_API_KEY` for openai",
            "`openai`",
        ),
        (
            cfg!(feature = "anthropic"),
            "`ANTHROPIC_API_KEY` for anthropic",
            "`anthropic`",
        ),
        (
            cfg!(feature = "ollama"),
            "`OLLAMA_HOST` for ollama",
            "`ollama`",
        ),
        (
            cfg!(feature = "compatible"),
            "`GROQ_API_KEY` for groq",
            "`compatible`",
        ),
    ];
    for (built, wants, feature) in built {
        assert_eq!(error.contains(wants), built, "{error}");
        assert_eq!(error.contains(feature), !built, "{error}");
    }
}

#[test]
fn missing_feature_is_named_before_a_missing_key() {
    for (name, built, feature) in [
        (
            "openai:m",
            cfg!(feature = "openai"),
            "`cargo add levity --features openai`",
        ),
        (
            "openai-chat:m",
            cfg!(feature = "openai"),
            "`cargo add levity --features openai`",
        ),
        (
            "anthropic:m",
            cfg!(feature = "anthropic"),
            "`cargo add levity --features anthropic`",
        ),
        (
            "gemini:m",
            cfg!(feature = "gemini"),
            "`cargo add levity --features gemini`",
        ),
        (
            "vertex:m",
            cfg!(feature = "gemini"),
            "`cargo add levity --features gemini`",
        ),
    ] {
        match built {
            true => check_rejected(&Models::new(), name, ErrorKind::Missing, &["set `"]),
            false => check_rejected(&Models::new(), name, ErrorKind::Feature, &[feature]),
        }
    }
}

#[tokio::test]
async fn address_in_name_works_as_documented() {
    for (name, path) in [
        ("compatible:m@{url}", "POST /v1/chat/completions"),
        ("compatible:m@{url}/", "POST /v1/chat/completions"),
        ("compatible:m@{url}/api/v3", "POST /api/v3/chat/completions"),
        (
            "compatible:m@{url}?key=abcd",
            "POST /v1/chat/completions?key=abcd",
        ),
        ("groq:m@{url}", "POST /v1/chat/completions"),
        #[cfg(feature = "openai")]
        ("openai-chat:m@{url}", "POST /v1/chat/completions"),
        #[cfg(feature = "openai")]
        ("openai:m@{url}", "POST /v1/responses"),
        #[cfg(feature = "openai")]
        ("openai:m@{url}?key=abcd", "POST /v1/responses?key=abcd"),
        #[cfg(feature = "anthropic")]
        ("anthropic:qwen@{url}", "POST /v1/messages"),
        #[cfg(feature = "gemini")]
        (
            "gemini:m@{url}",
            "POST /v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        #[cfg(feature = "ollama")]
        ("ollama:m@{url}", "POST /api/chat"),
    ] {
        let server = Server::with_answer(Answer::json(400, "{}")).await;
        // A missing key does not cause an error.
        let model = Models::new()
            .model(&name.replace("{url}", server.url()))
            .unwrap();
        let _ = model
            .complete(Request::new().with_message(Message::user("Well?")))
            .await;
        assert_eq!(server.last().line, path, "{name}");
    }
}

#[cfg(all(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
#[test]
fn providers_are_chosen_in_documented_order() {
    // The last variable that is set is the first in the order.
    let mut models = Models::new();
    for (variable, name) in [
        ("MISTRAL_API_KEY", "mistral:"),
        ("OLLAMA_HOST", "ollama:"),
        ("GOOGLE_CLOUD_PROJECT", "vertex:"),
        ("ANTHROPIC_API_KEY", "anthropic:"),
        ("OPENAI_API_KEY", "openai:"),
        ("GOOGLE_API_KEY", "gemini:"),
    ] {
        let before = models.choose().ok().map(|chosen| chosen.name().to_owned());
        models = models
            .with_variable(variable, "127.0.0.1:9")
            .with_variable("GOOGLE_ACCESS_TOKEN", "t");
        let chosen = models.choose().unwrap();
        assert!(chosen.name().starts_with(name), "{chosen}");
        assert!(
            chosen.reason().starts_with(&format!("`{variable}` is set")),
            "{chosen}"
        );
        let other = before.map(|name| name.split_once(':').unwrap().0.to_owned());
        assert!(
            other.is_none_or(|other| chosen.reason().contains(&other)),
            "{chosen}"
        );
    }
    let gemini = models
        .with_variable("GEMINI_API_KEY", "k")
        .choose()
        .unwrap();
    assert!(
        gemini.reason().starts_with("`GEMINI_API_KEY` is set"),
        "{gemini}"
    );
}

#[cfg(all(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
#[tokio::test]
async fn documented_variables_set_request_address() {
    for (name, variable, key, line) in [
        (
            "openai:m",
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "POST /v1/responses",
        ),
        (
            "openai-chat:m",
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "POST /v1/chat/completions",
        ),
        (
            "anthropic:m",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_KEY",
            "POST /v1/messages",
        ),
        (
            "gemini:m",
            "GEMINI_BASE_URL",
            "GEMINI_API_KEY",
            "POST /v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        (
            "ollama:m",
            "OLLAMA_HOST",
            "OLLAMA_API_KEY",
            "POST /api/chat",
        ),
        (
            "vertex:m@{url}",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_ACCESS_TOKEN",
            "POST /v1/projects/p/locations/global/publishers/google/\
                models/m:streamGenerateContent?alt=sse",
        ),
        (
            "compatible:m@{url}",
            "UNUSED",
            "COMPATIBLE_API_KEY",
            "POST /v1/chat/completions",
        ),
        (
            "groq:m@{url}",
            "UNUSED",
            "GROQ_API_KEY",
            "POST /v1/chat/completions",
        ),
    ] {
        let server = Server::with_answer(Answer::json(400, "{}")).await;
        let place = if variable == "GOOGLE_CLOUD_PROJECT" {
            "p"
        } else {
            server.url()
        };
        let models = Models::new()
            .with_variable(variable, place)
            .with_variable(key, "key-of-the-test");
        let model = models.model(&name.replace("{url}", server.url())).unwrap();
        let _ = model
            .complete(Request::new().with_message(Message::user("Well?")))
            .await;
        let seen = server.last();
        assert_eq!(seen.line, line, "{name}");
        let sent =
            ["authorization", "x-api-key", "x-goog-api-key"].map(|header| seen.header(header));
        assert!(
            sent.iter().any(|key| key.ends_with("key-of-the-test")),
            "{name}: {sent:?}"
        );
    }
}

#[test]
fn list_larger_than_eight_mebibytes_is_rejected() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
    std::fs::write(file.path(), text(8 << 20)).unwrap();
    ModelList::read(file.path()).unwrap();
    std::fs::write(file.path(), text((8 << 20) + 1)).unwrap();
    let error = ModelList::read(file.path()).unwrap_err();
    assert!(
        levity_core::text::chain(&error).contains("larger than 8 MiB"),
        "{error}"
    );
}
