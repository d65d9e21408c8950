//! Tests that secrets of settings do not appear in debug output, errors, events and helper tools.

use std::time::Duration;

use levity_core::ToolCx;
use levity_mcp::{
    Config, EnterpriseLogin, FileTokenStore, InheritedEnvironment, LoopbackBrowser,
    MemoryTokenStore, OAuth, ServerConfig, Servers, TokenStore, WaitFor,
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
    let enterprise = EnterpriseLogin::new("https://idp.example/token", "me", CANARY.to_owned());
    OAuth::new()
        .client_id("me")
        .client_secret(CANARY)
        .client_key(CANARY)
        .enterprise(enterprise.client_secret(CANARY))
}

fn address(host: &str) -> String {
    format!("http://me:{CANARY}@{host}/mcp/{CANARY}?key={CANARY}#{CANARY}")
}

fn http_server(name: &str, host: &str) -> ServerConfig {
    let token = format!("Bearer {CANARY}");
    ServerConfig::http(name.to_owned(), address(host))
        .header("Authorization", token)
        .header("X-Key", CANARY)
}

#[tokio::test]
async fn debug_of_settings_and_stores_hides_secrets() {
    let program = ServerConfig::stdio("p", "cat")
        .arg(CANARY)
        .env("KEY", CANARY);
    let program =
        program.inherit_environment(InheritedEnvironment::Named(vec!["TOKEN".to_owned()]));
    let web = http_server("w", "h.example").oauth(oauth());
    let older = ServerConfig::sse("o", address("h.example"))
        .header("X-Key", CANARY)
        .oauth(oauth());
    for server in [&program, &web, &older] {
        check(&format!("{server:?} {server:#?}"));
        check(&server.display_target());
    }
    let config = Config::new()
        .server(program.clone())
        .server(program)
        .server(web)
        .server(older);
    check(&format!("{config:?} {config}"));
    check(&format!("{:?}", oauth()));
    let memory = MemoryTokenStore::new();
    memory.save("key", CANARY).await.unwrap();
    check(&format!("{memory:?}"));
    let folder = tempfile::tempdir().unwrap();
    let file = FileTokenStore::new(folder.path().join("tokens"));
    file.save("key", CANARY).await.unwrap();
    check(&format!("{file:?}"));
    check(&format!("{:?}", LoopbackBrowser::bind(|_| {}).unwrap()));
}

#[test]
fn config_problems_hide_secrets() {
    let settings = [
        json!({"command": [CANARY, 1, null], "env": {"K": [CANARY]}}),
        json!({"url": address("h"), "headers": {"K": format!("{CANARY}\n")}, "timeout": CANARY}),
        json!({"url": CANARY, "maxMessage": CANARY, "enabled": CANARY, "headers": CANARY}),
        json!({"command": "c", "args": [format!("{CANARY}${{NONE}}"),
            format!("${{X:-{CANARY}${{Y}}}}")]}),
        json!({"command": "c", "args": format!("${{{CANARY} }}"), "cwd": {CANARY: 1},
            "env": CANARY}),
    ];
    for settings in settings {
        let text = json!({"mcpServers": {"s": settings}}).to_string();
        let config = Config::parse(&text, |_| None);
        assert!(!config.problems().is_empty(), "{settings}");
        let shown = format!("{config}");
        // The name of a setting is not a secret.
        check(&shown.replace(&format!("cwd/{CANARY}"), ""));
    }
    for text in [
        CANARY.to_owned(),
        format!(r#"{{"a": "{CANARY}" "{CANARY}"}}"#),
    ] {
        check(&Config::parse(&text, |_| None).to_string());
    }
}

/// Starts a server that sends this response to every request.
async fn respond_with(answer: String) -> String {
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
async fn errors_of_failed_servers_hide_secrets() {
    let head = "Connection: close\r\nContent-Length: 0\r\n";
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://other.example/{CANARY}?k={CANARY}\r\n{head}\r\n"
    );
    let mut builder = Servers::builder().world(world());
    let hosts = [
        respond_with(redirect).await,
        respond_with(format!(
            "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm=\"{CANARY}\"\r\n{head}\r\n"
        ))
        .await,
        respond_with(format!("HTTP/1.1 500 {CANARY}\r\n{head}\r\n")).await,
        respond_with(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{head}\r\n"
        ))
        .await,
        respond_with("nonsense\r\n\r\n".to_owned()).await,
        respond_with(String::new()).await,
        // One host without a listener, and one invalid address.
        "127.0.0.1:1".to_owned(),
        "127.0.0.1:port".to_owned(),
    ];
    for (index, host) in hosts.iter().enumerate() {
        builder = builder.server(http_server(&format!("s{index}"), host).retries(0));
        let older = ServerConfig::sse(format!("o{index}"), address(host)).header("X-Key", CANARY);
        builder = builder.server(older.retries(0));
    }
    let program = ServerConfig::stdio("p", "/no/such/program")
        .arg(CANARY)
        .env("KEY", CANARY)
        .retries(0);
    let servers = builder.server(program).start().unwrap();
    let mut events = servers.events();
    let status = tokio::time::timeout(Duration::from_secs(60), servers.wait(WaitFor::All))
        .await
        .unwrap();
    for status in &status {
        assert!(!status.state.is_ready(), "{status:?}");
        check(&format!("{status:?} {}", status.state));
        let error = servers
            .get(&status.name)
            .unwrap()
            .call("x", json!({}))
            .await
            .unwrap_err();
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

#[test]
fn place_shows_names_of_variables() {
    for (settings, place) in [
        (json!({"command": "/opt/${TOKEN}/bin"}), "/opt/${TOKEN}/bin"),
        (json!({"command": ["${TOKEN}", "x"]}), "${TOKEN}"),
        (json!({"command": "cat"}), "cat"),
        (
            json!({"url": "https://h/s/${TOKEN}/mcp?k=${TOKEN}"}),
            "https://h/s/${TOKEN}/mcp",
        ),
        (
            json!({"url": "https://h/${A}/${TOKEN:-x}"}),
            "https://h/${A}/${TOKEN}",
        ),
        (json!({"url": "https://me:${TOKEN}@h/mcp"}), "https://h/mcp"),
        (
            json!({"url": "https://${TOKEN}.example/mcp"}),
            "https://${TOKEN}.example/mcp",
        ),
    ] {
        let text = json!({"mcpServers": {"s": settings}}).to_string();
        let config = Config::parse(&text, |_| Some(CANARY.to_owned()));
        assert_eq!(
            config.servers()[0].display_target(),
            place,
            "{settings}: {config}"
        );
        check(&format!("{config:?} {config}"));
    }
}

/// A server that repeats one of its variables in every failure.
#[cfg(unix)]
const REPEATING_SCRIPT: &str = r#"
about='"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}'
input='"inputSchema":{"type":"object"}'
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) r='"result":{"protocolVersion":"2025-06-18",'"$about}";;
    *'"tools/list"'*)
      r='"result":{"tools":[{"name":"fail",'"$input"'},{"name":"refuse",'"$input},"
      r="$r"'{"name":"die",'"$input}]}";;
    *'"refuse"'*) r="\"error\":{\"code\":-32000,\"message\":\"no $API_KEY\"}";;
    *'"die"'*) echo "bye $API_KEY" >&2; exit 3;;
    *'"tools/call"'*)
      r="\"content\":[{\"type\":\"text\",\"text\":\"no $API_KEY\"}]"
      r="\"result\":{\"isError\":true,$r}";;
    *) r='"error":{"code":-32601,"message":"unknown"}';;
  esac
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$r"
done
"#;

#[cfg(unix)]
#[tokio::test]
async fn repeated_settings_in_errors_are_masked() {
    let sh = |name: &str, script: &str| {
        ServerConfig::stdio(name.to_owned(), "sh")
            .args(["-c", script])
            .env("API_KEY", CANARY)
            .retries(0)
    };
    let refusing_script = r#"while read -r line; do
        id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
        error="{\"code\":-32603,\"message\":\"no $API_KEY\"}"
        [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"error":%s}\n' "$id" "$error"
        done"#;
    let text = json!({"mcpServers": {"gone": {"command": "/no/${PLACE}/program"},
        "folder": {"command": "cat", "cwd": "/no/${A_TOKEN}"}}});
    let config = Config::parse(&text.to_string(), |_| Some(CANARY.to_owned()));
    let mut builder = Servers::builder()
        .world(world())
        .server(sh("dies", "echo \"bye $API_KEY\" >&2; exit 3"))
        .server(sh("refuses", refusing_script))
        .server(
            ServerConfig::stdio("args", "sh")
                .args(["-c", "echo \"bye $2\" >&2", "--token", CANARY, CANARY])
                .retries(0),
        )
        .server(sh("works", REPEATING_SCRIPT));
    for server in config.servers() {
        builder = builder.server(server.clone().retries(0));
    }
    let servers = builder.start().unwrap();
    let status = tokio::time::timeout(Duration::from_secs(60), servers.wait(WaitFor::All))
        .await
        .unwrap();
    for status in &status {
        check(&format!("{status:?} {}", status.state));
        if &*status.name == "works" {
            continue;
        }
        assert!(!status.state.is_ready(), "{status:?}");
        let error = servers
            .get(&status.name)
            .unwrap()
            .call("x", json!({}))
            .await
            .unwrap_err();
        check(&format!("{error:?} {error}"));
    }
    let working = servers.get("works").unwrap();
    for tool in ["fail", "refuse", "die"] {
        let error = working.call(tool, json!({})).await.unwrap_err();
        check(&format!("{error:?} {error}"));
        assert!(
            error.to_string().contains("***") || tool == "die",
            "{error}"
        );
    }
    servers.stop().await;
}

/// A server that repeats its variables on stderr, in log lines, in progress and in change
/// notifications, each after a number of padding letters.
#[cfg(unix)]
const TALKING_SCRIPT: &str = r#"
pad=$(head -c "$PAD" /dev/zero | tr '\\0' x)
say() { printf '{"jsonrpc":"2.0","method":"%s","params":%s}\n' "$1" "$2"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*)
      r='"capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}'
      r='"result":{"protocolVersion":"2025-06-18",'"$r}";;
    *'"tools/list"'*) r='"result":{"tools":[{"name":"talk","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*)
      token=$(printf '%s' "$line" | sed -n 's/.*"progressToken":\([0-9]*\).*/\1/p')
      echo "$pad$API_KEY on stderr" >&2
      printf '%s' "$pad$DATABASE_URL" >&2
      echo "no message: $pad$API_KEY"
      say notifications/message "{\"level\":\"info\",\"data\":\"$pad$API_KEY\"}"
      say notifications/message "{\"level\":\"info\",\"data\":{\"k\":\"$pad$API_KEY\"}}"
      say notifications/resources/updated "{\"uri\":\"file:///$pad$API_KEY\"}"
      progress="\"progressToken\":${token:-0},\"progress\":1"
      say notifications/progress "{$progress,\"message\":\"$pad$API_KEY\"}"
      r="\"error\":{\"code\":-32000,\"message\":\"$pad$pad$API_KEY\"}";;
    *) r='"error":{"code":-32601,"message":"unknown"}';;
  esac
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$r"
done
"#;

#[cfg(unix)]
#[tokio::test]
async fn repeated_settings_in_events_are_masked() {
    let pads = [0, 4_090, 4_092, 4_095];
    let mut builder = Servers::builder().world(world());
    for pad in pads {
        let url = format!("postgres://me:{CANARY}@db.example/it");
        let server = ServerConfig::stdio(format!("s{pad}"), "sh")
            .args(["-c", TALKING_SCRIPT])
            .env("API_KEY", CANARY);
        builder = builder.server(
            server
                .env("DATABASE_URL", url)
                .env("PAD", pad.to_string())
                .retries(0),
        );
    }
    let servers = builder.start().unwrap();
    let status = servers.wait(WaitFor::All).await;
    assert!(
        status.iter().all(|status| status.state.is_ready()),
        "{status:?}"
    );
    let mut events = servers.events();
    // A part of the key is as bad as all of it.
    let check = |shown: &str| {
        assert!(
            !shown.contains("canar") && !shown.contains("456789"),
            "{shown}"
        );
    };
    for pad in pads {
        let reports = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = reports.clone();
        let mut cx = ToolCx::detached();
        cx.progress = levity_core::Progress::new(move |report| {
            sink.lock().unwrap().push(format!("{report:?}"));
        });
        let server = servers.get(&format!("s{pad}")).unwrap();
        let error = server.call_with("talk", json!({}), &cx).await.unwrap_err();
        check(&format!("{error:?} {error}"));
        let reports = reports.lock().unwrap().clone();
        assert!(!reports.is_empty());
        reports.iter().for_each(|report| check(report));
    }
    servers.stop().await;
    drop(servers);
    let mut kinds = std::collections::BTreeSet::new();
    while let Some(event) = events.next().await {
        let shown = format!("{event:?}");
        check(&shown);
        for kind in ["Stderr", "Log", "ResourcesChanged"] {
            kinds.extend(shown.contains(kind).then_some(kind));
        }
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}
