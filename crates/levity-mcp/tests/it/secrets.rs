//! That no secret of a setting is shown: not by what is printed for debugging, and not by errors, events and helper tools.

use std::time::Duration;

use levity_core::ToolCx;
use levity_mcp::{
    Config, Enterprise, FileTokens, Inherit, Loopback, MemoryTokens, OAuth, ServerConfig, Servers,
    TokenStore, Wait,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::fixture::world;

const CANARY: &str = "canary0123456789";

#[track_caller]
fn check(shown: &str) {
    assert!(!shown.is_empty() && !shown.contains(CANARY), "{shown}");
}

fn oauth() -> OAuth {
    let enterprise = Enterprise::new("https://idp.example/token", "me", CANARY.to_owned());
    OAuth::new()
        .client_id("me")
        .client_secret(CANARY)
        .client_key(CANARY)
        .enterprise(enterprise.client_secret(CANARY))
}

fn address(host: &str) -> String {
    format!("http://me:{CANARY}@{host}/mcp/{CANARY}?key={CANARY}#{CANARY}")
}

fn at(name: &str, host: &str) -> ServerConfig {
    let token = format!("Bearer {CANARY}");
    ServerConfig::http(name.to_owned(), address(host)).header("Authorization", token).header("X-Key", CANARY)
}

#[tokio::test]
async fn settings_and_stores_show_none() {
    let program = ServerConfig::stdio("p", "cat").arg(CANARY).env("KEY", CANARY);
    let program = program.inherit(Inherit::Named(vec!["TOKEN".to_owned()]));
    let web = at("w", "h.example").oauth(oauth());
    let older = ServerConfig::sse("o", address("h.example")).header("X-Key", CANARY).oauth(oauth());
    for server in [&program, &web, &older] {
        check(&format!("{server:?} {server:#?}"));
        check(&server.place());
    }
    let config = Config::new().server(program.clone()).server(program).server(web).server(older);
    check(&format!("{config:?} {config}"));
    check(&format!("{:?}", oauth()));
    let memory = MemoryTokens::new();
    memory.save("key", CANARY).await.unwrap();
    check(&format!("{memory:?}"));
    let folder = tempfile::tempdir().unwrap();
    let file = FileTokens::new(folder.path().join("tokens"));
    file.save("key", CANARY).await.unwrap();
    check(&format!("{file:?}"));
    check(&format!("{:?}", Loopback::bind(|_| {}).unwrap()));
}

#[test]
fn problems_show_none() {
    let settings = [
        json!({"command": [CANARY, 1, null], "env": {"K": [CANARY]}}),
        json!({"url": address("h"), "headers": {"K": format!("{CANARY}\n")}, "timeout": CANARY}),
        json!({"url": CANARY, "maxMessage": CANARY, "enabled": CANARY, "headers": CANARY}),
        json!({"command": "c", "args": [format!("{CANARY}${{NONE}}"), format!("${{X:-{CANARY}${{Y}}}}")]}),
        json!({"command": "c", "args": format!("${{{CANARY} }}"), "cwd": {CANARY: 1}, "env": CANARY}),
    ];
    for settings in settings {
        let text = json!({"mcpServers": {"s": settings}}).to_string();
        let config = Config::parse(&text, |_| None);
        assert!(!config.problems().is_empty(), "{settings}");
        let shown = format!("{config}");
        // The name of a setting is no secret, wherever it stands.
        check(&shown.replace(&format!("cwd/{CANARY}"), ""));
    }
    for text in [CANARY.to_owned(), format!(r#"{{"a": "{CANARY}" "{CANARY}"}}"#)] {
        check(&Config::parse(&text, |_| None).to_string());
    }
}

/// Answers every request with these words.
async fn answering(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut some = [0; 8 << 10];
                let _ = stream.read(&mut some).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    host
}

#[tokio::test]
async fn servers_that_fail_show_none() {
    let head = "Connection: close\r\nContent-Length: 0\r\n";
    let away =
        format!("HTTP/1.1 302 Found\r\nLocation: http://other.example/{CANARY}?k={CANARY}\r\n{head}\r\n");
    let mut builder = Servers::builder(world());
    let hosts = [
        answering(away).await,
        answering(format!("HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm=\"{CANARY}\"\r\n{head}\r\n"))
            .await,
        answering(format!("HTTP/1.1 500 {CANARY}\r\n{head}\r\n")).await,
        answering(format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{head}\r\n")).await,
        answering("nonsense\r\n\r\n".to_owned()).await,
        answering(String::new()).await,
        // Nobody listens there, and it is no address.
        "127.0.0.1:1".to_owned(),
        "127.0.0.1:port".to_owned(),
    ];
    for (index, host) in hosts.iter().enumerate() {
        builder = builder.server(at(&format!("s{index}"), host).retries(0));
        let older = ServerConfig::sse(format!("o{index}"), address(host)).header("X-Key", CANARY);
        builder = builder.server(older.retries(0));
    }
    let program = ServerConfig::stdio("p", "/no/such/program").arg(CANARY).env("KEY", CANARY).retries(0);
    let servers = builder.server(program).start().unwrap();
    let mut events = servers.events();
    let status = tokio::time::timeout(Duration::from_secs(60), servers.wait(Wait::All)).await.unwrap();
    for status in &status {
        assert!(!status.state.is_ready(), "{status:?}");
        check(&format!("{status:?} {}", status.state));
        let error = servers.get(&status.name).unwrap().call("x", json!({})).await.unwrap_err();
        check(&format!("{error:?} {error}"));
    }
    check(&format!("{servers:?}"));
    for tool in servers.helper_tools() {
        if let Ok(output) = tool.call(json!({}), &ToolCx::detached()).await {
            check(&output.as_text());
        }
    }
    servers.stop().await;
    drop(servers);
    while let Some(event) = events.next().await {
        check(&format!("{event:?}"));
    }
}
