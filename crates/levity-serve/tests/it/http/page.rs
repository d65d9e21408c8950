//! The web page and its headers.

use levity_runtime::MemoryJournal;
use levity_serve::http::HttpApi;
use levity_serve::{Runs, Token};
use levity_test::ScriptedModel;
use serde_json::json;

use super::client::{Client, HttpResponse, TOKEN};
use super::support::{Server, agent};

async fn server(set: impl FnOnce(HttpApi) -> HttpApi) -> Server {
    let runs = Runs::new(agent(ScriptedModel::new(), &MemoryJournal::new()));
    Server::with(runs, set).await
}

/// Requests a file without a token.
async fn open(client: Client, path: &str, headers: &[(&str, String)]) -> HttpResponse {
    client.ask_as("GET", path, headers, "").await
}

#[tokio::test]
async fn page_requires_no_token_and_sets_strict_headers() {
    let server = server(HttpApi::page).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/?run=r1", "text/html"),
        ("/page/page.js", "text/javascript"),
        ("/page/page.css", "text/css"),
        ("/licenses", "text/plain"),
    ] {
        let file = open(server.client, path, &[]).await;
        assert_eq!(file.status, 200, "{path}");
        for header in [
            &*format!("content-type: {kind}; charset=utf-8"),
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
                img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; \
                form-action 'none'; frame-ancestors 'none'; \
                require-trusted-types-for 'script'; trusted-types 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-cache",
        ] {
            assert!(file.has(header), "{path}: {header}\n{}", file.head);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn unchanged_file_is_not_sent_again() {
    let server = server(HttpApi::page).await;
    let first = open(server.client, "/", &[]).await;
    let tag = first
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap()
        .to_owned();
    for (sent, status) in [
        (tag.clone(), 304),
        (format!("\"old\", W/{tag}"), 304),
        ("\"old\"".to_owned(), 200),
    ] {
        let again = open(server.client, "/", &[("If-None-Match", sent.clone())]).await;
        assert_eq!(again.status, status, "{sent}");
    }
    server.stop().await;
}

#[tokio::test]
async fn other_paths_still_require_a_token() {
    let server = server(HttpApi::page).await;
    for path in [
        "/page/",
        "/page/other.js",
        "/page/../v1/runs",
        "//",
        "/v1/runs",
    ] {
        open(server.client, path, &[])
            .await
            .assert_error(401, "token_missing");
    }
    server
        .client
        .get("/page/other.js")
        .await
        .assert_error(404, "no_route");
    let foreign = [("Host", "evil.example".to_owned())];
    assert_eq!(open(server.client, "/", &foreign).await.status, 403);
    server
        .client
        .post("/", serde_json::json!({}))
        .await
        .assert_error(405, "no_method");
    server.stop().await;
}

#[tokio::test]
async fn page_is_absent_by_default() {
    let server = server(|api| api).await;
    open(server.client, "/", &[])
        .await
        .assert_error(401, "token_missing");
    server.client.get("/").await.assert_error(404, "no_route");
    server.stop().await;
}

#[tokio::test]
async fn login_code_is_exchanged_once_for_the_token() {
    let token = Token::new(TOKEN).unwrap();
    let mut code = String::new();
    let server = server(|api| {
        let (api, made) = api.login_code(token).unwrap();
        code = made;
        api
    })
    .await;
    let json = ("Content-Type", "application/json".to_owned());
    let login = async |code: &str| {
        let body = json!({"code": code}).to_string();
        let headers = [json.clone()];
        server
            .client
            .ask_as("POST", "/v1/login", &headers, &body)
            .await
    };
    login("wrong").await.assert_error(401, "code_wrong");
    assert_eq!(login(&code).await.is(200), json!({"token": TOKEN}));
    login(&code).await.assert_error(401, "code_wrong");
    for (body, status) in [
        ("{}", 422),
        ("[]", 422),
        ("{", 400),
        (&*"x".repeat(2_000), 413),
    ] {
        let headers = [json.clone()];
        let answer = server
            .client
            .ask_as("POST", "/v1/login", &headers, body)
            .await;
        assert_eq!(answer.status, status, "{body}");
    }
    // Wrong codes are throttled like wrong tokens.
    let mut statuses = Vec::new();
    for _ in 0..9 {
        statuses.push(login("wrong").await.status);
    }
    assert_eq!(
        (statuses[0], statuses.last()),
        (401, Some(&429)),
        "{statuses:?}"
    );
    server.client.get("/v1/runs").await.is(200);
    server.stop().await;
}

#[tokio::test]
async fn server_without_a_code_has_no_login() {
    let server = server(HttpApi::page).await;
    let headers = [("Content-Type", "application/json".to_owned())];
    let answer = server
        .client
        .ask_as("POST", "/v1/login", &headers, "{}")
        .await;
    answer.assert_error(401, "token_missing");
    server.stop().await;
}
