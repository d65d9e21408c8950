//! Request heads that are too long, not HTTP, or for another host.

use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_test::ScriptedModel;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, TOKEN};
use super::support::{Server, agent};

async fn server() -> Server {
    Server::new(Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    )))
    .await
}

/// Returns a head of exactly this many bytes.
fn head(client: Client, length: usize) -> String {
    let start = format!(
        "GET /v1/runs HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer \
            {TOKEN}\r\nX-Long: ",
        client.0
    );
    let fill = length - start.len() - 4;
    format!("{start}{}\r\n\r\n", "x".repeat(fill))
}

#[tokio::test]
async fn head_above_64_kib_is_rejected() {
    let server = server().await;
    let client = server.client;
    for (length, status) in [
        (1000, 200),
        ((64 << 10) - 1, 200),
        (64 << 10, 200),
        ((64 << 10) + 1, 431),
        (66_000, 431),
        (70_000, 431),
        (131_072, 431),
        (1 << 20, 431),
    ] {
        let answer = client.raw(head(client, length).as_bytes()).await;
        assert_eq!(answer.status, status, "{length}: {answer:?}");
        if status == 431 {
            answer.assert_error(431, "head_too_large");
        }
    }
    server.stop().await;
}

/// Bytes after the head do not count, and a head that arrives in pieces has the same limit.
#[tokio::test]
async fn head_limit_is_the_same_in_pieces_and_before_a_body() {
    let server = server().await;
    let client = server.client;
    for (length, status) in [(64 << 10, "200"), ((64 << 10) + 1, "431")] {
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in head(client, length).as_bytes().chunks(4093) {
            let _ = stream.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{length}: {answer}");
    }
    let body = format!("{{\"goal\": \"{}\"}}", "x".repeat(100_000));
    let length = body.len();
    let post = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer \
            {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nX-Long: {}\r\n\r\n{body}",
        client.0,
        "x".repeat(60_000)
    );
    client.raw(post.as_bytes()).await.is(201);
    server.stop().await;
}

#[tokio::test]
async fn parser_errors_are_json() {
    let server = server().await;
    let client = server.client;
    let many: String = (0..200)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(80_000));
    for (bytes, status, code) in [
        ("\0\x16\x03\x01 nonsense\r\n\r\n", 400, "bad_request"),
        ("GET\r\n\r\n", 400, "bad_request"),
        ("GET /v1/runs\r\n\r\n", 400, "bad_request"),
        ("GET /v1/runs HTTP/9.9\r\n\r\n", 400, "bad_request"),
        (
            "GET /v1/ru ns HTTP/1.1\r\nHost: localhost\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET /v1/runs HTTP/1.1\r\nHost localhost\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET /v1/runs HTTP/1.1\r\nHost : localhost\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET /v1/runs HTTP/1.1\r\n Host: localhost\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET /v1/runs HTTP/1.1\r\nHost: local\0host\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 2\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: \
                2\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            "POST /v1/runs HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            &format!("GET /v1/runs HTTP/1.1\r\n{many}\r\n"),
            431,
            "head_too_large",
        ),
        (&long, 431, "head_too_large"),
    ] {
        let answer = client.raw(bytes.as_bytes()).await;
        let shown: String = bytes.chars().take(90).collect();
        assert_eq!(
            (answer.status, answer.json["error"]["code"].as_str()),
            (status, Some(code)),
            "{shown:?}: {answer:?}"
        );
        assert!(
            answer.has("content-type: application/json") && answer.has("connection: close"),
            "{shown:?}: {answer:?}"
        );
        answer.assert_error(status, code);
    }
    // The invalid request follows an answered one on the same connection.
    let good = format!("GET /v1/health HTTP/1.1\r\nHost: {}\r\n\r\n", client.0);
    let mut stream = TcpStream::connect(client.0).await.unwrap();
    stream
        .write_all(format!("{good}nonsense\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut all = String::new();
    let _ = stream.read_to_string(&mut all).await;
    assert!(
        all.starts_with("HTTP/1.1 200")
            && all.contains("HTTP/1.1 400")
            && all.contains("bad_request"),
        "{all}"
    );
    client.ask_as("GET", "/v1/health", &[], "").await.is(200);
    server.stop().await;
}

#[tokio::test]
async fn request_line_with_foreign_host_is_rejected() {
    let server = server().await;
    let client = server.client;
    let (own, port) = (client.0, client.0.port());
    for (line, host, allowed) in [
        (format!("GET http://{own}/v1/runs"), own.to_string(), true),
        (
            format!("GET http://localhost:{port}/v1/runs"),
            own.to_string(),
            true,
        ),
        (
            "GET http://evil.example/v1/runs".to_owned(),
            own.to_string(),
            false,
        ),
        (
            format!("GET http://evil.example:{port}/v1/runs"),
            own.to_string(),
            false,
        ),
        (
            format!("GET http://{own}@evil.example/v1/runs"),
            own.to_string(),
            false,
        ),
        (
            format!("GET http://evil@{own}/v1/runs"),
            own.to_string(),
            false,
        ),
        (
            "GET HTTP://EVIL.EXAMPLE/v1/runs".to_owned(),
            own.to_string(),
            false,
        ),
        (
            "GET http://evil.example/v1/health".to_owned(),
            own.to_string(),
            false,
        ),
        (
            format!("GET http://{own}/v1/runs"),
            "evil.example".to_owned(),
            false,
        ),
        (
            format!("CONNECT evil.example:{port}"),
            own.to_string(),
            false,
        ),
    ] {
        let text = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer \
                {TOKEN}\r\n\r\n"
        );
        let answer = client.raw(text.as_bytes()).await;
        assert_eq!(answer.status == 200, allowed, "{line} {host}: {answer:?}");
        if !allowed {
            answer.assert_error(403, "host_refused");
        }
    }
    server.stop().await;
}
