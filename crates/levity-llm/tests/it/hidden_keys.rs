//! Keys in addresses never appear in errors, whatever a server replies and however a call fails.

use std::error::Error as _;
use std::sync::{Arc, Mutex};

use levity_core::text::chain;
use levity_core::{Embedder, Message, Model, ModelError, Purpose, Request};
use levity_llm::{
    AccessTokens, AnthropicModel, ChatModel, Endpoint, GeminiEmbedder, GeminiModel, ModelList,
    Models, OllamaEmbedder, OllamaModel, OpenAiEmbedder, OpenAiModel,
};

use crate::server::{Answer, Server};

const SECRET: &str = "hush";

/// Returns addresses with a key in every possible place.
fn addresses(base: &str) -> Vec<String> {
    let host = base.trim_start_matches("http://");
    vec![
        format!("{base}?key=hush-query-1"),
        format!("{base}?api-version=1&sig=hush%2Fquery%2B2"),
        format!("{base}/?hush-bare-3"),
        format!("http://someone:hush-password-4@{host}"),
        format!("http://hush-token-5@{host}"),
        format!("{base}#hush-fragment-6"),
        format!("http://someone:hush-7@{host}?k=hush"),
    ]
}

fn at_address(address: &str) -> impl Fn(Endpoint) -> Endpoint + use<> {
    let address = address.to_owned();
    move |endpoint| endpoint.with_base(&address)
}

fn models(address: &str) -> Vec<(&'static str, Arc<dyn Model>)> {
    let there = at_address(address);
    let vertex = GeminiModel::vertex("p", "global", AccessTokens::fixed("token"), "m");
    let mut all: Vec<(&str, Arc<dyn Model>)> = vec![
        (
            "chat",
            Arc::new(ChatModel::compatible(address, "m").with_endpoint(&there)),
        ),
        (
            "openai-chat",
            Arc::new(ChatModel::openai("none", "m").with_endpoint(&there)),
        ),
        (
            "responses",
            Arc::new(OpenAiModel::new("none", "m").with_endpoint(&there)),
        ),
        (
            "messages",
            Arc::new(AnthropicModel::new("none", "m").with_endpoint(&there)),
        ),
        (
            "gemini",
            Arc::new(GeminiModel::new("none", "m").with_endpoint(&there)),
        ),
        ("vertex", Arc::new(vertex.with_endpoint(&there))),
        (
            "ollama",
            Arc::new(OllamaModel::new("m").with_endpoint(&there)),
        ),
    ];
    all.push((
        "whole",
        Arc::new(
            ChatModel::compatible(address, "m")
                .with_endpoint(&there)
                .without_streaming(),
        ),
    ));
    all.push((
        "whole ollama",
        Arc::new(
            OllamaModel::new("m")
                .with_endpoint(&there)
                .without_streaming(),
        ),
    ));
    all
}

fn embedders(address: &str) -> Vec<(&'static str, Arc<dyn Embedder>)> {
    let there = at_address(address);
    vec![
        (
            "openai",
            Arc::new(OpenAiEmbedder::compatible(address, "m").with_endpoint(&there)),
        ),
        (
            "gemini",
            Arc::new(GeminiEmbedder::new("none", "m").with_endpoint(&there)),
        ),
        (
            "ollama",
            Arc::new(OllamaEmbedder::new("m").with_endpoint(&there)),
        ),
    ]
}

#[track_caller]
fn check_no_secret(error: &ModelError, about: &str) {
    let said = format!("{error} {} {error:?} {:?}", chain(error), error.source());
    assert!(!said.contains(SECRET), "{about}: {said}");
    let serialized = serde_json::to_string(error).unwrap();
    assert!(!serialized.contains(SECRET), "{about}: {serialized}");
}

async fn check_all_models(base: &str, about: &str) {
    check_all_models_with_echo(base, about, &Echo::default()).await;
}

async fn check_all_models_with_echo(base: &str, about: &str, echo: &Echo) {
    for address in addresses(base) {
        *echo.0.lock().unwrap() = address.clone();
        for (wire, model) in models(&address) {
            let request = Request::new().with_message(Message::user("Well?"));
            let error = model.complete(request).await.expect_err(wire);
            check_no_secret(&error, &format!("{wire}, {about}, {address}"));
        }
        for (wire, embedder) in embedders(&address) {
            let error = embedder
                .embed(&["text".to_owned()], Purpose::Query)
                .await
                .expect_err(wire);
            check_no_secret(&error, &format!("embedder {wire}, {about}, {address}"));
        }
    }
}

/// A server or proxy that repeats the address: as received, and decoded.
#[derive(Clone, Default)]
struct Echo(Arc<Mutex<String>>);

impl Echo {
    fn repeat(&self, line: &str) -> String {
        let address = self.0.lock().unwrap();
        let read = |text: &str| text.replace("%2F", "/").replace("%2B", "+");
        format!("{line} {} {address} {}", read(line), read(&address))
    }
}

#[tokio::test]
async fn error_body_repeating_address_hides_key() {
    let echo = Echo::default();
    let repeated = echo.clone();
    let server = Server::with(move |_, seen| {
        let said = serde_json::json!({"error": {"message": repeated.repeat(&seen.line)}});
        Answer::json(400, said.to_string())
    });
    check_all_models_with_echo(server.await.url(), "json", &echo).await;
}

#[tokio::test]
async fn text_page_repeating_address_hides_key() {
    for (status, kind) in [
        (404, "text/html"),
        (502, "text/plain"),
        (401, "text/plain"),
        (307, "text/plain"),
    ] {
        let echo = Echo::default();
        let repeated = echo.clone();
        let server = Server::with(move |_, seen| {
            Answer::new(status, kind, repeated.repeat(&seen.line))
                .header("location", "http://127.0.0.1:9/?key=hush")
        })
        .await;
        check_all_models_with_echo(server.url(), &format!("{status} {kind}"), &echo).await;
    }
}

#[tokio::test]
async fn error_within_reply_hides_key() {
    let echo = Echo::default();
    let repeated = echo.clone();
    let server = Server::with(move |_, seen| {
        let said =
            serde_json::json!({"error": {"message": repeated.repeat(&seen.line)}}).to_string();
        match seen.line.contains("/api/") {
            true => Answer::lines(format!("{said}\n")),
            false => Answer::sse(format!("data: {said}\n\n")),
        }
    })
    .await;
    check_all_models_with_echo(server.url(), "stream", &echo).await;
}

#[tokio::test]
async fn unreachable_server_error_hides_key() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    check_all_models(&closed, "closed port").await;
    check_all_models("http://no-such-host.invalid", "no host").await;
    check_all_models("http://127.0.0.1:notaport", "no address").await;
}

#[tokio::test]
async fn interrupted_reply_error_hides_key() {
    let reset = Server::with_answer(Answer::json(200, r#"{"choices": ["#).then_reset()).await;
    check_all_models(reset.url(), "reset").await;
}

/// Returns the forms in which a server may repeat an `Authorization` header.
fn header_forms(header: &str) -> Vec<String> {
    let value = header.split_once(' ').map_or(header, |(_, value)| value);
    let bare = value.trim_end_matches('=').to_owned();
    let escaped = value
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    vec![
        header.to_owned(),
        value.to_owned(),
        escaped,
        bare.replace('+', "-").replace('/', "_"),
        bare,
    ]
}

#[tokio::test]
async fn error_repeating_authorization_header_hides_it() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let serialized = seen.clone();
    let server = Server::with(move |_, seen| {
        let header_forms = header_forms(seen.header("authorization"));
        let said = header_forms.join(" and ");
        serialized.lock().unwrap().extend(header_forms);
        Answer::json(
            401,
            serde_json::json!({"error": {"message": said}}).to_string(),
        )
    })
    .await;
    let host = server.url().trim_start_matches("http://");
    let addresses = [
        format!("http://someone:hush-password@{host}"),
        format!("http://someone:hu%3F%3Esh~~~%2B@{host}"),
        format!("http://hush-token@{host}"),
        format!("http:///someone:hush-password@{host}"),
        format!("http:\\\\someone:hush-password@{host}"),
        server.url().to_owned(),
    ];
    for address in addresses {
        let there = at_address(&address);
        let headers = |endpoint: Endpoint| {
            let endpoint = there(endpoint);
            match address == server.url() {
                true => endpoint.with_header("Authorization", "Basic c29tZW9uZTpodXNoPz8+fn4="),
                false => endpoint,
            }
        };
        let all: Vec<Arc<dyn Model>> = vec![
            Arc::new(ChatModel::compatible(&address, "m").with_endpoint(headers)),
            Arc::new(OllamaModel::new("m").with_endpoint(headers)),
            Arc::new(AnthropicModel::new("none", "m").with_endpoint(headers)),
        ];
        for model in all {
            seen.lock().unwrap().clear();
            let error = model
                .complete(Request::new().with_message(Message::user("Well?")))
                .await
                .unwrap_err();
            let shown = format!("{error} {} {error:?}", chain(&error));
            let sent = seen.lock().unwrap().clone();
            assert!(
                sent.iter().any(|form| form.starts_with("Basic ")),
                "{address}: {sent:?}"
            );
            assert!(
                sent.iter().all(|form| !shown.contains(form)),
                "{address}: {shown}"
            );
            check_no_secret(&error, &address);
        }
    }
}

#[test]
fn malformed_addresses_in_names_and_lists_hide_secrets() {
    let odd = [
        "http://§:§@h/v1?key=§#§",
        "HTTPS://me:§@h",
        " http://me:§@h",
        "ftp://me:§@h",
        "\u{200b}http://me:§@h",
        "http:/me:§@h",
        "http:me:§@h",
        "http:///me:§@h",
        "http://\\me:§@h",
        "http:\\\\me:§@h",
        "//me:§@h",
        "http://me:12/§@h",
        "http://me:12?§@h",
        "http://me:12#§@h",
        "http://h:§",
        "http://h/@?§",
        "me:§@h/v1",
        "h?key=§",
        "http://h\n?§",
        "wss://h?§",
        "http://§@",
        "http://[§",
        "HTTP://§%40h",
        "http ://me:§@h",
        "h:80/v1;k=§",
    ];
    let models = Models::new().with_variable("COMPATIBLE_API_KEY", "key");
    for address in odd.map(|address| address.replace('§', SECRET)) {
        for name in [
            format!("compatible:m@{address}"),
            format!("openai:m@{address}"),
            format!("compatible:@cf/m@{address}"),
            format!("nobody:m@{address}"),
            format!("fast@{address}"),
            format!(":@{address}"),
        ] {
            let mut said = match models.model(&name) {
                Ok(model) => format!("{:?}", model.card()),
                Err(error) => format!("{error} {error:?} {}", chain(&error)),
            };
            if let Err(error) = models.embedder(&name) {
                said.push_str(&format!("{error} {error:?}"));
            }
            if let Err(error) = models.card(&name) {
                said.push_str(&format!("{error} {error:?}"));
            }
            let chosen = models
                .clone()
                .with_variable("LEVITY_MODEL", name.as_str())
                .choose();
            said.push_str(&chosen.map_or_else(
                |error| format!("{error:?}"),
                |chosen| format!("{chosen} {chosen:?}"),
            ));
            assert!(!said.contains(SECRET), "{name:?}: {said}");
        }
        let name = format!("compatible:m@{address}");
        let list = serde_json::json!({
            "servers": {"house": {"base_url": address, "key": "HOUSE_API_KEY"}},
            "profiles": {"fast": {"model": name, "fallback": [name]}}, "defaults": {"gemini": name},
        });
        let listed = models
            .clone()
            .with_list(ModelList::parse(&list.to_string()).unwrap());
        assert!(
            !format!("{listed:?} {:?}", listed.list()).contains(SECRET),
            "{address}"
        );
        for wrong in [
            serde_json::json!({"servers": address}),
            serde_json::json!({"profiles": {"fast": address}}),
        ] {
            let error = ModelList::parse(&wrong.to_string()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        }
    }
}

#[test]
fn address_in_name_is_parsed_or_rejected() {
    let models = Models::new();
    for name in [
        "compatible:m@http://h/v1",
        "compatible:m@HTTP://h",
        "compatible:@cf/m@Https://me:pw@h:80/v1?k=1",
    ] {
        assert!(models.model(name).is_ok(), "{name}");
    }
    for address in [
        "ftp://h",
        " http://h",
        "http:/h",
        "http:h",
        "http:///h",
        "//h",
        "http://",
        "http://h\\x",
        "http://me:12/pw@h",
        "http://h h",
        "\u{200b}http://h",
        "http:\\\\h",
    ] {
        let error = models.model(&format!("openai:m@{address}")).err().unwrap();
        assert!(
            matches!(
                &error,
                levity_llm::Error::InvalidAddress { model, .. } if model == "openai:m"
            ),
            "{address:?}: {error}"
        );
        assert_eq!(error.kind(), levity_llm::ErrorKind::Name);
    }
}

#[test]
fn models_error_debug_is_one_line() {
    let error = Models::new().model("opnai:m").err().unwrap();
    assert_eq!(format!("{error:?}"), error.to_string());
    let missing = ModelList::read("no such file").unwrap_err();
    assert!(
        format!("{missing:?}").starts_with("`no such file` cannot be read: "),
        "{missing:?}"
    );
}

#[test]
fn names_and_choices_hide_key() {
    let models = Models::new();
    for name in [
        "compatible:a b@http://someone:hush@host/v1?key=hush",
        ":m@https://host?key=hush",
        "compatible:@http://hush-token@host",
        "nobody:m@http://host?key=hush",
    ] {
        let error = models.model(name).err().unwrap();
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
    let models = models.with_variable(
        "LEVITY_MODEL",
        "compatible:m@http://someone:hush@host/v1?key=hush",
    );
    let chosen = models.choose().unwrap();
    assert!(!format!("{chosen} {chosen:?}").contains(SECRET), "{chosen}");
    assert!(chosen.name().contains(SECRET), "it is what `model` takes");
}

#[tokio::test]
async fn request_id_repeating_key_is_hidden() {
    for name in [
        "x-request-id",
        "request-id",
        "x-goog-request-id",
        "x-amzn-requestid",
        "cf-ray",
    ] {
        let server = Server::with(move |_, seen| {
            Answer::json(500, "{}").header(name, &format!("id-{}", seen.header("authorization")))
        })
        .await;
        let model = ChatModel::compatible(server.url(), "m").with_key("sk-hush-0123456789");
        let error = model
            .complete(Request::new().with_message(Message::user("Well?")))
            .await
            .unwrap_err();
        assert!(
            error.request_id().is_some_and(|id| id.starts_with("id-")),
            "{error:?}"
        );
        check_no_secret(&error, name);
    }
}

/// Returns the length of the longest prefix of a key in a text.
fn shown_prefix(key: &str, text: &str) -> usize {
    (0..=key.len())
        .rev()
        .find(|end| text.to_lowercase().contains(&key[..*end].to_lowercase()))
        .unwrap_or_default()
}

#[tokio::test]
async fn key_at_truncation_boundary_is_fully_hidden() {
    let key = "Sk-Qz7Wv9Xk3Jy5Hg1Bd8Mn4Pf6";
    for (about, status, kind, limit, body) in [
        (
            "message",
            400,
            "application/json",
            2_000,
            r#"{"error": {"message": "§"}}"#,
        ),
        ("text", 400, "text/plain", 2_000, "§"),
        (
            "page",
            502,
            "text/html",
            120,
            "<html><title>§</title></html>",
        ),
        (
            "page of a reply",
            200,
            "text/html",
            120,
            "<html><title>§</title></html>",
        ),
        ("page that is long", 200, "text/html", 4_096, "<html>§"),
        ("text of a reply", 200, "text/plain", 120, "§"),
        ("fields", 200, "application/json", 32, r#"{"§": 1}"#),
        (
            "event",
            200,
            "text/event-stream",
            2_000,
            "data: {\"error\": {\"message\": \"§\"}}\n\n",
        ),
    ] {
        for before in (usize::saturating_sub(limit, key.len() + 30)..=limit).step_by(3) {
            let filler = match about {
                "page that is long" => format!("{}<p>", "x ".repeat((before - 8) / 2)),
                _ => format!("{} ", "x".repeat(before)),
            };
            let said = body.replace('§', &format!("{filler}{key}"));
            let server = Server::with_answer(Answer::new(status, kind, said)).await;
            for model in [
                ChatModel::compatible(server.url(), "m").with_key(key),
                ChatModel::compatible(server.url(), "m")
                    .with_key(key)
                    .without_streaming(),
            ] {
                let request = Request::new().with_message(Message::user("Well?"));
                let Err(error) = model.complete(request).await else {
                    continue;
                };
                let text = chain(&error);
                assert!(shown_prefix(key, &text) < 6, "{about}, {before}: {text}");
            }
        }
    }
    let server =
        Server::with_answer(Answer::new(200, &format!("application/{key}"), "what?")).await;
    let model = ChatModel::compatible(server.url(), "m").with_key(key);
    let error = model
        .complete(Request::new().with_message(Message::user("Well?")))
        .await
        .unwrap_err();
    assert!(shown_prefix(key, &chain(&error)) < 6, "{}", chain(&error));
}

#[tokio::test]
async fn key_in_address_path_is_hidden_when_server_repeats_it() {
    let server = Server::with(|_, seen| {
        Answer::json(
            404,
            serde_json::json!({"error": {"message": format!("no {}", seen.line)}}).to_string(),
        )
    })
    .await;
    for path in ["hush0123456789abcdef0", "a;hush", "t/hush-0123456789-abc/x"] {
        let address = format!("{}/{path}/v1", server.url());
        for (wire, model) in models(&address) {
            let request = Request::new().with_message(Message::user("Well?"));
            check_no_secret(
                &model.complete(request).await.expect_err(wire),
                &format!("{wire} {path}"),
            );
        }
    }
}
