//! Hostile or mistaken clients: rejected cleanly, and the server keeps running.

use std::time::Duration;

use levity_core::CancelToken;
use levity_runtime::MemoryJournal;
use levity_serve::{AccessControl, Listener, Runs, Token};
use levity_test::ScriptedModel;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{Client, TOKEN};
use super::support::{HeldTool, Server, agent};

async fn server() -> Server {
    Server::new(Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    )))
    .await
}

async fn lives(client: Client) {
    let health = client.ask_as("GET", "/v1/health", &[], "").await.is(200);
    assert_eq!(
        health,
        json!({"status": "ok", "name": "levity", "version": env!("CARGO_PKG_VERSION")})
    );
}

fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}

#[tokio::test]
async fn rejected_client_gets_the_reason() {
    let server = server().await;
    let client = server.client;
    for path in [
        "/v1/runs",
        "/v1/openapi.json",
        "/v1/runs/x/events",
        "/nowhere",
        "/v1/health/",
    ] {
        let refused = client.ask_as("GET", path, &[], "").await;
        assert!(refused.has("www-authenticate: bearer"));
        refused.assert_error(401, "token_missing");
        client
            .ask_as("GET", path, &[bearer("0123456789abcdef-of-a-tesT")], "")
            .await
            .assert_error(401, "token_wrong");
        client
            .ask_as("GET", path, &[bearer(TOKEN), bearer(TOKEN)], "")
            .await
            .assert_error(401, "token_missing");
    }
    for evil in [
        "http://evil.example",
        "null",
        "http://127.0.0.1.evil.example",
        "file://",
    ] {
        let origin = ("Origin", evil.to_owned());
        client
            .ask_as("POST", "/v1/runs", &[bearer(TOKEN), origin.clone()], "")
            .await
            .assert_error(403, "origin_refused");
        client
            .ask_as("GET", "/v1/health", &[origin], "")
            .await
            .assert_error(403, "origin_refused");
    }
    let host = ("Host", "evil.example".to_owned());
    client
        .ask_as("GET", "/v1/runs", &[bearer(TOKEN), host], "")
        .await
        .assert_error(403, "host_refused");
    // A browser sends a preflight request first; foreign origins are rejected.
    let preflight = [("Origin", "http://localhost:1".to_owned()), bearer(TOKEN)];
    let options = client.ask_as("OPTIONS", "/v1/runs", &preflight, "").await;
    assert!(!options.has("access-control-"));
    options.assert_error(405, "no_method");
    lives(client).await;
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_rejected() {
    let server = server().await;
    let client = server.client;
    let post = async |body: &str| client.ask("POST", "/v1/runs", &[], Some(body)).await;
    for bad in ["{", "", "nonsense", "{\"goal\": \"x\"} more", "\u{feff}{}"] {
        let (status, code) = if bad.is_empty() {
            (415, "not_json")
        } else {
            (400, "bad_json")
        };
        let answer = if bad.is_empty() {
            client.ask("POST", "/v1/runs", &[], None).await
        } else {
            post(bad).await
        };
        answer.assert_error(status, code);
    }
    post(&"[".repeat(100_000))
        .await
        .assert_error(422, "invalid");
    let deep = format!("{{\"goal\": {}1{}}}", "[".repeat(500), "]".repeat(500));
    assert!(matches!(post(&deep).await.status, 400 | 422));
    for wrong in [
        json!({}),
        json!([]),
        json!(["x"]),
        json!("x"),
        json!({"goal": 1}),
        json!({"goal": null}),
        json!({"goal": ""}),
        json!({"goal": " \n"}),
        json!({"goal": "\u{200b}"}),
        json!({"goal": "\0"}),
        json!({"goal": "\u{feff} \u{2060}\u{3164}\0\u{e0020}"}),
        json!({"goal": "x", "goals": "y"}),
        json!({"goal": "x", "id": 7}),
    ] {
        post(&wrong.to_string()).await.assert_error(422, "invalid");
    }
    post(r#"{"goal": "x", "goal": "y"}"#)
        .await
        .assert_error(422, "invalid");
    for id in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a.b",
        "a b",
        "\u{e9}",
        "a\u{0}",
        &"x".repeat(129),
        "C:\\x",
        "%2e",
    ] {
        post(&json!({"goal": "x", "id": id}).to_string())
            .await
            .assert_error(422, "bad_id");
    }
    for id in [
        "",
        " ",
        "\u{200b}",
        "\u{2060}\u{feff}",
        "a\u{202e}b",
        "a\u{2066}b",
        "a\nb",
        &"x".repeat(257),
    ] {
        post(&json!({"goal": "x", "conversation": id}).to_string())
            .await
            .assert_error(422, "bad_id");
    }
    post(&json!({"goal": "x".repeat((256 << 10) + 1)}).to_string())
        .await
        .assert_error(413, "goal_too_long");
    let long = json!({"text": "x".repeat((256 << 10) + 1)});
    client
        .post("/v1/runs/none/message", long)
        .await
        .assert_error(413, "goal_too_long");
    post(&json!({"goal": "x".repeat(2 << 20)}).to_string())
        .await
        .assert_error(413, "too_large");
    for kind in [
        "text/plain",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "",
    ] {
        let headers = [bearer(TOKEN), ("Content-Type", kind.to_owned())];
        client
            .ask_as("POST", "/v1/runs", &headers, r#"{"goal": "x"}"#)
            .await
            .assert_error(415, "not_json");
    }
    let twice = [("Content-Type", "application/json")];
    client
        .ask("POST", "/v1/runs", &twice, Some(r#"{"goal": "x"}"#))
        .await
        .assert_error(400, "bad_header");
    let keys = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    client
        .ask("POST", "/v1/runs", &keys, Some(r#"{"goal": "x"}"#))
        .await
        .assert_error(400, "bad_header");
    client
        .ask(
            "POST",
            "/v1/runs",
            &[("Idempotency-Key", "")],
            Some(r#"{"goal": "x"}"#),
        )
        .await
        .assert_error(400, "bad_header");
    assert_eq!(server.runs.in_memory().len(), 0);
    lives(client).await;
    server.stop().await;
}

#[tokio::test]
async fn requests_for_missing_items_are_rejected() {
    let server = server().await;
    let client = server.client;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/runs",
        "/v1/runs/",
        "/v1/runs/r/nothing",
        "/v1/../etc/passwd",
    ] {
        client.get(path).await.assert_error(404, "no_route");
    }
    for (method, path) in [
        ("DELETE", "/v1/runs"),
        ("PUT", "/v1/runs/r"),
        ("GET", "/v1/runs/r/pause"),
        ("POST", "/v1/health"),
        ("OPTIONS", "/v1/runs/r"),
        ("BREW", "/v1/runs"),
    ] {
        let refused = client.ask(method, path, &[], None).await;
        assert!(refused.has("allow: "), "{refused:?}");
        refused.assert_error(405, "no_method");
    }
    for id in [
        "..",
        "%2e%2e",
        "..%2fx",
        "a%2Fb",
        "a%00",
        "%ff",
        ".x",
        "a..1",
        "~",
        &"x".repeat(129),
    ] {
        for path in ["", "/events", "/asks"] {
            let answer = client.get(&format!("/v1/runs/{id}{path}")).await;
            assert!(matches!(answer.status, 400 | 404), "{id}{path}: {answer:?}");
        }
        assert!(matches!(
            client
                .post(&format!("/v1/runs/{id}/pause"), json!({}))
                .await
                .status,
            400 | 404
        ));
    }
    for path in ["", "/events", "/asks"] {
        client
            .get(&format!("/v1/runs/nobody{path}"))
            .await
            .assert_error(404, "no_run");
    }
    for command in ["pause", "resume", "cancel"] {
        client
            .post(&format!("/v1/runs/nobody/{command}"), json!({}))
            .await
            .assert_error(404, "no_run");
        client
            .post(&format!("/v1/runs/nobody/{command}"), json!({"odd": 1}))
            .await
            .assert_error(422, "invalid");
    }
    client
        .post("/v1/runs/nobody/message", json!({"text": "x"}))
        .await
        .assert_error(404, "no_run");
    client
        .post("/v1/runs/nobody/message", json!({"text": "\u{200b}\0"}))
        .await
        .assert_error(422, "invalid");
    client
        .post(
            "/v1/runs/nobody/asks/nobody:1:0",
            json!({"decision": "allow"}),
        )
        .await
        .assert_error(404, "no_run");
    client
        .get("/v1/sessions")
        .await
        .assert_error(404, "no_sessions");
    client
        .get("/v1/sessions/x?kind=plan")
        .await
        .assert_error(404, "no_sessions");
    // A plan cannot be deleted, and a conversation of that name is not deleted in its place.
    client
        .ask("DELETE", "/v1/sessions/x?kind=plan", &[], None)
        .await
        .assert_error(400, "bad_query");
    client
        .ask("DELETE", "/v1/runs/x?dry=1", &[], None)
        .await
        .assert_error(400, "bad_query");
    client
        .get("/v1/runs/x?full=1")
        .await
        .assert_error(400, "bad_query");
    client
        .post("/v1/runs/x/cancel?force=1", json!({}))
        .await
        .assert_error(400, "bad_query");
    client.get("/v1/runs/x?").await.assert_error(404, "no_run");
    let head = client.ask("HEAD", "/v1/runs", &[], None).await;
    assert_eq!((head.status, &head.json), (200, &Value::Null));
    lives(client).await;
    server.stop().await;
}

/// A server with short timeouts.
async fn impatient_server() -> Server {
    let stop = CancelToken::new();
    let access = AccessControl::new(Token::new(TOKEN).unwrap());
    let time = Duration::from_millis(150);
    let listener = Listener::bind("127.0.0.1:0", access)
        .await
        .unwrap()
        .header_time(time)
        .stop_on(stop.clone());
    let runs = Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    ));
    Server::on(listener, stop, runs, |api| api.body_time(time))
}

fn head(client: Client, length: u64) -> String {
    format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
            application/json\r\n\
         Content-Length: {length}\r\n\r\n",
        client.0
    )
}

#[tokio::test]
async fn body_announced_as_too_large_is_not_read() {
    let server = server().await;
    let client = server.client;
    client
        .raw(head(client, 1 << 30).as_bytes())
        .await
        .assert_error(413, "too_large");
    assert!(matches!(
        client.raw(head(client, u64::MAX).as_bytes()).await.status,
        400 | 413 | 431
    ));
    // Without an announced length, the body is read up to the limit.
    let chunked = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
            application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        client.0
    );
    let piece = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
    client
        .raw(format!("{chunked}{}", piece.repeat(40)).as_bytes())
        .await
        .assert_error(413, "too_large");
    let both = head(client, 5).replace(
        "\r\n\r\n",
        "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
    assert_ne!(client.raw(both.as_bytes()).await.status, 201);
    let two = head(client, 5).replace("\r\n\r\n", "\r\nContent-Length: 6\r\n\r\nxxxxx");
    assert_eq!(client.raw(two.as_bytes()).await.status, 400);
    assert_eq!(
        client
            .raw(b"\0\xff\x16\x03\x01 nonsense\r\n\r\n")
            .await
            .status,
        400
    );
    let many: String = (0..5_000)
        .map(|n| format!("X-{n}: {}\r\n", "y".repeat(100)))
        .collect();
    let large = format!("GET /v1/runs HTTP/1.1\r\nHost: {}\r\n{many}\r\n", client.0);
    assert!(matches!(
        client.raw(large.as_bytes()).await.status,
        0 | 400 | 431
    ));
    lives(client).await;
    server.stop().await;
}

#[tokio::test]
async fn slow_clients_time_out() {
    let server = impatient_server().await;
    let client = server.client;
    // The head never ends; the body never arrives; the body arrives one byte at a time.
    let answer = client.raw(b"GET /v1/runs HTTP/1.1\r\nHost: loc").await;
    assert!(matches!(answer.status, 0 | 408), "{answer:?}");
    client
        .raw(head(client, 20).as_bytes())
        .await
        .assert_error(408, "too_slow");
    client
        .raw(format!("{}{{\"goal\":", head(client, 20)).as_bytes())
        .await
        .assert_error(408, "too_slow");
    // Hundreds of slow clients do not lock out others.
    let mut slow = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        stream
            .write_all(b"POST /v1/runs HTTP/1.1\r\n")
            .await
            .unwrap();
        slow.push(stream);
    }
    lives(client).await;
    for mut stream in slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    lives(client).await;
    server.stop().await;
}

#[tokio::test]
async fn ten_thousand_requests_beyond_the_limit_start_no_run() {
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let agent = agent(model, &MemoryJournal::new())
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let server = Server::new(Runs::new(agent).max_runs(3)).await;
    let client = server.client;
    for _ in 0..3 {
        client
            .post("/v1/runs", json!({"goal": "Hold."}))
            .await
            .is(201);
    }
    let mut asking = JoinSet::new();
    for _ in 0..20 {
        asking.spawn(async move {
            // Each connection sends its requests one after the other.
            let body = r#"{"goal": "Hold."}"#;
            let order = format!("{}{body}", head(client, body.len() as u64));
            let mut stream = TcpStream::connect(client.0).await.unwrap();
            let mut refused = 0;
            for _ in 0..500 {
                stream.write_all(order.as_bytes()).await.unwrap();
                let mut answer = [0; 2048];
                let read = stream.read(&mut answer).await.unwrap();
                let text = String::from_utf8_lossy(&answer[..read]);
                assert!(text.starts_with("HTTP/1.1 429"), "{text}");
                refused += 1;
            }
            refused
        });
    }
    assert_eq!(asking.join_all().await.into_iter().sum::<u32>(), 10_000);
    assert_eq!(
        (server.runs.running(), server.runs.in_memory().len()),
        (3, 3)
    );
    lives(client).await;
    server.stop().await;
}

#[tokio::test]
async fn errors_about_input_do_not_quote_its_values() {
    const KEY: &str = "sk-live-0123456789abcdef";
    let server = server().await;
    let client = server.client;
    let shows_none = |answer: super::client::HttpResponse, sent: &str| {
        let message = answer.json["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(matches!(answer.status, 400 | 422), "{sent}: {answer:?}");
        assert!(
            !message.is_empty() && message.len() < 500,
            "{sent}: {message}"
        );
        assert!(
            !format!("{answer:?}").contains("sk-live"),
            "{sent}: {answer:?}"
        );
        message
    };
    let bodies = [
        json!({"goal": {"key": KEY}}).to_string(),
        json!({"goal": [KEY]}).to_string(),
        json!(KEY).to_string(),
        json!([KEY]).to_string(),
        json!({KEY: 1}).to_string(),
        json!({"text": {KEY: KEY}}).to_string(),
        json!({"decision": KEY}).to_string(),
        json!({"decision": {KEY: 1}}).to_string(),
        json!({"decision": "allow", "reason": {KEY: 1}}).to_string(),
        json!({"decision": "allow", KEY: ", expected nothing"}).to_string(),
        json!({"reason": [KEY]}).to_string(),
        json!({"odd": KEY}).to_string(),
        json!({format!("`, expected {KEY}"): 1}).to_string(),
        json!({format!("invalid type: {KEY}, expected x"): 1}).to_string(),
        json!({KEY.repeat(500): 1}).to_string(),
        format!("{{\"goal\": {KEY}}}"),
        format!("{{\"goal\": \"{KEY}\" \"{KEY}\"}}"),
        KEY.to_owned(),
    ];
    for path in [
        "/v1/runs",
        "/v1/runs/r/message",
        "/v1/runs/r/asks/r:1:0",
        "/v1/runs/r/cancel",
        "/v1/runs/r/pause",
    ] {
        for body in &bodies {
            let message = shows_none(client.ask("POST", path, &[], Some(body)).await, body);
            assert!(
                message.contains("line 1 column ") || body.starts_with('['),
                "{path} {body}: {message}"
            );
        }
    }
    for query in [
        "state={}",
        "limit={}",
        "since={}",
        "{}=1",
        "roots={}",
        "cursor={}",
        "state=done&{}",
        "a=%ff{}",
    ] {
        let query = query.replace("{}", KEY);
        shows_none(client.get(&format!("/v1/runs?{query}")).await, &query);
    }
    server.stop().await;
}
