//! A key in an address is in no error, whatever a server says and however a call fails.

use std::error::Error as _;
use std::sync::{Arc, Mutex};

use levity_core::text::chain;
use levity_core::{Embedder, Message, Model, ModelError, Purpose, Request};
use levity_llm::{
    AccessTokens, AnthropicModel, ChatModel, Endpoint, GeminiEmbedder, GeminiModel, Models, OllamaEmbedder,
    OllamaModel, OpenAiEmbedder, OpenAiModel,
};

use crate::server::{Answer, Server};

const HUSH: &str = "hush";

/// Addresses with a key in each place that has room for one.
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

fn moved(address: &str) -> impl Fn(Endpoint) -> Endpoint + use<> {
    let address = address.to_owned();
    move |endpoint| endpoint.with_base(&address)
}

fn models(address: &str) -> Vec<(&'static str, Arc<dyn Model>)> {
    let there = moved(address);
    let vertex = GeminiModel::vertex("p", "global", AccessTokens::fixed("token"), "m");
    let mut all: Vec<(&str, Arc<dyn Model>)> = vec![
        ("chat", Arc::new(ChatModel::compatible(address, "m").with_endpoint(&there))),
        ("openai-chat", Arc::new(ChatModel::openai("none", "m").with_endpoint(&there))),
        ("responses", Arc::new(OpenAiModel::new("none", "m").with_endpoint(&there))),
        ("messages", Arc::new(AnthropicModel::new("none", "m").with_endpoint(&there))),
        ("gemini", Arc::new(GeminiModel::new("none", "m").with_endpoint(&there))),
        ("vertex", Arc::new(vertex.with_endpoint(&there))),
        ("ollama", Arc::new(OllamaModel::new("m").with_endpoint(&there))),
    ];
    all.push((
        "whole",
        Arc::new(ChatModel::compatible(address, "m").with_endpoint(&there).without_streaming()),
    ));
    all.push(("whole ollama", Arc::new(OllamaModel::new("m").with_endpoint(&there).without_streaming())));
    all
}

fn embedders(address: &str) -> Vec<(&'static str, Arc<dyn Embedder>)> {
    let there = moved(address);
    vec![
        ("openai", Arc::new(OpenAiEmbedder::compatible(address, "m").with_endpoint(&there))),
        ("gemini", Arc::new(GeminiEmbedder::new("none", "m").with_endpoint(&there))),
        ("ollama", Arc::new(OllamaEmbedder::new("m").with_endpoint(&there))),
    ]
}

#[track_caller]
fn silent(error: &ModelError, about: &str) {
    let said = format!("{error} {} {error:?} {:?}", chain(error), error.source());
    assert!(!said.contains(HUSH), "{about}: {said}");
    let kept = serde_json::to_string(error).unwrap();
    assert!(!kept.contains(HUSH), "{about}: {kept}");
}

async fn all_silent(base: &str, about: &str) {
    all_silent_while(base, about, &Echo::default()).await;
}

async fn all_silent_while(base: &str, about: &str, echo: &Echo) {
    for address in addresses(base) {
        *echo.0.lock().unwrap() = address.clone();
        for (wire, model) in models(&address) {
            let request = Request::new().with_message(Message::user("Well?"));
            let error = model.complete(request).await.expect_err(wire);
            silent(&error, &format!("{wire}, {about}, {address}"));
        }
        for (wire, embedder) in embedders(&address) {
            let error = embedder.embed(&["text".to_owned()], Purpose::Query).await.expect_err(wire);
            silent(&error, &format!("embedder {wire}, {about}, {address}"));
        }
    }
}

/// What a server or a proxy says that repeats the address: as it came, and as it was read.
#[derive(Clone, Default)]
struct Echo(Arc<Mutex<String>>);

impl Echo {
    fn of(&self, line: &str) -> String {
        let address = self.0.lock().unwrap();
        let read = |text: &str| text.replace("%2F", "/").replace("%2B", "+");
        format!("{line} {} {address} {}", read(line), read(&address))
    }
}

#[tokio::test]
async fn error_bodies_that_repeat_the_address_do_not_show_its_key() {
    let echo = Echo::default();
    let repeated = echo.clone();
    let server = Server::with(move |_, seen| {
        let said = serde_json::json!({"error": {"message": repeated.of(&seen.line)}});
        Answer::json(400, said.to_string())
    });
    all_silent_while(server.await.url(), "json", &echo).await;
}

#[tokio::test]
async fn pages_and_plain_texts_that_repeat_the_address_do_not_show_its_key() {
    for (status, kind) in [(404, "text/html"), (502, "text/plain"), (401, "text/plain"), (307, "text/plain")]
    {
        let echo = Echo::default();
        let repeated = echo.clone();
        let server = Server::with(move |_, seen| {
            Answer::new(status, kind, repeated.of(&seen.line))
                .header("location", "http://127.0.0.1:9/?key=hush")
        })
        .await;
        all_silent_while(server.url(), &format!("{status} {kind}"), &echo).await;
    }
}

#[tokio::test]
async fn errors_within_a_reply_do_not_show_the_key() {
    let echo = Echo::default();
    let repeated = echo.clone();
    let server = Server::with(move |_, seen| {
        let said = serde_json::json!({"error": {"message": repeated.of(&seen.line)}}).to_string();
        match seen.line.contains("/api/") {
            true => Answer::lines(format!("{said}\n")),
            false => Answer::sse(format!("data: {said}\n\n")),
        }
    })
    .await;
    all_silent_while(server.url(), "stream", &echo).await;
}

#[tokio::test]
async fn calls_that_reach_nobody_do_not_show_the_key() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    all_silent(&closed, "closed port").await;
    all_silent("http://no-such-host.invalid", "no host").await;
    all_silent("http://127.0.0.1:notaport", "no address").await;
}

#[tokio::test]
async fn replies_that_break_off_do_not_show_the_key() {
    let reset = Server::saying(Answer::json(200, r#"{"choices": ["#).then_reset()).await;
    all_silent(reset.url(), "reset").await;
}

#[test]
fn names_and_choices_do_not_show_the_key() {
    let models = Models::new();
    for name in [
        "compatible:a b@http://someone:hush@host/v1?key=hush",
        ":m@https://host?key=hush",
        "compatible:@http://hush-token@host",
        "nobody:m@http://host?key=hush",
    ] {
        let error = models.model(name).err().unwrap();
        assert!(!format!("{error} {error:?}").contains(HUSH), "{error:?}");
    }
    let models = models.with_variable("LEVITY_MODEL", "compatible:m@http://someone:hush@host/v1?key=hush");
    let chosen = models.choose().unwrap();
    assert!(!format!("{chosen} {chosen:?}").contains(HUSH), "{chosen}");
    assert!(chosen.name().contains(HUSH), "it is what `model` takes");
}
