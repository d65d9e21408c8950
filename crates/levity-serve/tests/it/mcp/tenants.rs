//! Named tokens over MCP, and bodies that never arrive.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::Agent;
use levity_memory::InMemory;
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::mcp::{HandlerReply, McpLimits, McpServer, RequestError, TaskSupport};
use levity_serve::{AccessControl, AgentServer, Runs, Token, TokenScope, Tokens};
use levity_test::{FunctionModel, ManualWorld, RecordingTool, ScriptedModel};
use levity_tools::{Policy, Rule};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::http::token_shares::{HeldLists, with_ended};
use super::fixture::{TestHandler, builder};
use super::raw_http::{HttpResponse, Site, modern_meta};

fn echo(name: &str, hints: Hints) -> RecordingTool {
    RecordingTool::new(name, |args| Ok(ToolOutput::text(args.to_string()))).with_hints(hints)
}

/// Returns the tokens of three people, and an access control for them.
fn people() -> (AccessControl, Vec<String>) {
    let mut tokens = Tokens::new();
    let all = [
        ("ann", &[TokenScope::Run][..]),
        ("bob", &[TokenScope::Run, TokenScope::Approve]),
        ("eye", &[TokenScope::Read]),
        ("top", &[TokenScope::Admin]),
    ]
    .map(|(name, scopes)| {
        format!(
            "Bearer {}",
            tokens.add(name, scopes.iter().copied()).unwrap().reveal()
        )
    });
    (AccessControl::named(tokens), all.to_vec())
}

async fn ask(site: &Site, token: &str, method: &str, mut params: Value) -> HttpResponse {
    params["_meta"] = modern_meta();
    if method.starts_with("tasks/") {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"] =
            json!({"io.modelcontextprotocol/tasks": {}});
    }
    let name = params
        .get("name")
        .or(params.get("uri"))
        .or(params.get("taskId"));
    let name = name.and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("authorization", token),
    ];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    site.post(
        &headers,
        &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
    )
    .await
}

async fn call(site: &Site, token: &str, tool: &str, args: Value) -> Value {
    ask(
        site,
        token,
        "tools/call",
        json!({"name": tool, "arguments": args}),
    )
    .await
    .message()
}

#[tokio::test]
async fn tools_require_the_scope_of_their_effect() {
    let asks = Policy::new()
        .rule(Rule::tool("send").ask("nothing is sent unasked"))
        .rule(Rule::any().allow());
    let server = builder()
        .tool(echo("look", Hints::new().read_only()))
        .tool(echo("write", Hints::new()))
        .tool(echo("send", Hints::new()))
        .policy(asks)
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    for (who, tool, goes) in [
        (0, "look", true),
        (0, "write", true),
        (2, "look", true),
        (2, "write", false),
        (2, "send", false),
        (3, "write", true),
    ] {
        let answer = call(&site, &people[who], tool, json!({})).await;
        assert_eq!(
            answer["result"]["isError"] == json!(false),
            goes,
            "{who} {tool}: {answer}"
        );
        if !goes {
            assert!(
                answer["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains("scope `run`"),
                "{answer}"
            );
        }
    }
    // A caller that may not approve is not asked.
    let refused = call(&site, &people[0], "send", json!({})).await;
    assert!(
        refused["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("scope `approve`"),
        "{refused}"
    );
    let asked = call(&site, &people[1], "send", json!({})).await;
    assert!(asked["result"].get("inputRequests").is_some(), "{asked}");
    // Its ticket is invalid for another caller that makes the same call.
    let state = asked["result"]["requestState"].as_str().unwrap();
    let name = asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    let answers = json!({name: {"action": "accept", "content": {"allow": true}}});
    let params =
        json!({"name": "send", "arguments": {}, "requestState": state, "inputResponses": answers});
    let stolen = ask(&site, &people[3], "tools/call", params.clone())
        .await
        .message();
    assert!(
        stolen["error"]["message"]
            .as_str()
            .unwrap()
            .contains("another request"),
        "{stolen}"
    );
    let done = ask(&site, &people[1], "tools/call", params).await.message();
    assert_eq!(done["result"]["isError"], json!(false), "{done}");
}

#[tokio::test]
async fn session_of_one_token_is_unknown_to_another() {
    let server = builder()
        .tool(echo("look", Hints::new().read_only()))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"}});
    let init = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let opened = site.post(&[("authorization", &people[0])], &init).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for (who, status) in [(0, 200), (1, 404), (2, 404), (3, 404), (0, 200)] {
        let headers = [
            ("authorization", &*people[who]),
            ("mcp-session-id", &*session),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let answer = site.post(&headers, &list).await;
        assert_eq!(answer.status, status, "{who}: {answer:?}");
        if status == 404 {
            assert_eq!(site.send("GET", &headers, "").await.status, 404);
            assert_eq!(site.send("DELETE", &headers, "").await.status, 404);
        }
    }
}

#[tokio::test]
async fn arguments_in_progress_stay_within_the_tenant_share() {
    let limits = McpLimits::default();
    assert_eq!(
        (limits.arguments, limits.token_share, limits.body),
        (256 << 20, 25, 4 << 20)
    );
    let waits = |_| std::future::pending::<Result<HandlerReply, RequestError>>();
    let server = builder()
        .handler(TestHandler::new("wait", waits).tasks(TaskSupport::Required))
        .tool(echo("look", Hints::new().read_only()))
        .limits(limits.arguments(4 << 20))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let start = async |who: usize, args: Value| {
        let mut params = json!({"name": "wait", "arguments": args, "_meta": modern_meta()});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "wait"),
            ("authorization", &*people[who]),
        ];
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let answer = site.post(&headers, &request).await.message();
        answer["result"]["taskId"]
            .as_str()
            .map(str::to_owned)
            .ok_or(answer)
    };
    // A tenant has a quarter of 4 MiB. A list of numbers takes far more memory than its JSON.
    for (who, args) in [
        (0, json!({"text": "x".repeat(200 << 10)})),
        (
            1,
            json!({"list": vec![1; (200 << 10) / size_of::<Value>()]}),
        ),
    ] {
        let mut taken = Vec::new();
        let refused = loop {
            match start(who, args.clone()).await {
                Ok(task) => taken.push(task),
                Err(answer) => break answer,
            }
            assert!(taken.len() < 20, "{who} takes all there is");
        };
        assert_eq!(taken.len(), 5, "{who}");
        assert!(refused.to_string().contains("try again"), "{refused}");
        // Small calls of a tenant that has used its share are rejected as well, and those of others
        // are not.
        assert!(
            call(
                &site,
                &people[who],
                "look",
                json!({"text": "x".repeat(50 << 10)})
            )
            .await
            .get("error")
            .is_some()
        );
        assert_eq!(
            call(
                &site,
                &people[2],
                "look",
                json!({"text": "x".repeat(50 << 10)})
            )
            .await["result"]["isError"],
            false
        );
        let cancelled = ask(
            &site,
            &people[who],
            "tasks/cancel",
            json!({"taskId": taken[0]}),
        )
        .await
        .message();
        assert!(cancelled.get("error").is_none(), "{cancelled}");
        start(who, args)
            .await
            .unwrap_or_else(|answer| panic!("what has ended makes no room: {answer}"));
    }
    // A call above a tenant's share is accepted alone.
    let large = json!({"text": "x".repeat(2 << 20)});
    assert_eq!(
        call(&site, &people[2], "look", large).await["result"]["isError"],
        false
    );
}

#[tokio::test]
async fn task_of_one_token_is_unknown_to_another() {
    let waits = |_| std::future::pending::<Result<HandlerReply, RequestError>>();
    let server = builder()
        .handler(TestHandler::new("wait", waits).tasks(TaskSupport::Required))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let ask = async |who: usize, method: &str, name: &str, mut params: Value| {
        let mut meta = modern_meta();
        meta["io.modelcontextprotocol/clientCapabilities"] =
            json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        params["_meta"] = meta;
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
            ("mcp-name", name),
            ("authorization", &*people[who]),
        ];
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        site.post(&headers, &request).await.message()
    };
    let started = ask(
        0,
        "tools/call",
        "wait",
        json!({"name": "wait", "arguments": {}}),
    )
    .await;
    let task = started["result"]["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("{started}"))
        .to_owned();
    for method in ["tasks/get", "tasks/cancel"] {
        for (who, goes) in [(1, false), (2, false), (3, true), (0, true)] {
            let answer = ask(who, method, &task, json!({"taskId": task})).await;
            assert_eq!(
                answer.get("result").is_some(),
                goes,
                "{who} {method}: {answer}"
            );
            if !goes {
                assert!(
                    answer["error"]["message"]
                        .as_str()
                        .unwrap()
                        .contains("no task has the id"),
                    "{answer}"
                );
            }
        }
    }
}

#[tokio::test]
async fn session_opened_with_unusual_headers_belongs_to_its_token() {
    let server = builder()
        .tool(echo("look", Hints::new().read_only()))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"}});
    let init = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for version in ["2026-07-28", "2027-01-01", "x", "", "2025-11-25"] {
        let headers = [
            ("authorization", &*people[0]),
            ("mcp-protocol-version", version),
        ];
        let opened = site.post(&headers, &init).await;
        let Some(session) = opened.header("mcp-session-id") else {
            continue;
        };
        for (who, goes) in [(1, false), (3, false), (0, true)] {
            let headers = [
                ("authorization", &*people[who]),
                ("mcp-session-id", session),
                ("mcp-protocol-version", "2025-11-25"),
            ];
            assert_eq!(
                site.post(&headers, &list).await.status == 200,
                goes,
                "{version} {who}"
            );
        }
    }
}

#[tokio::test]
async fn named_token_is_limited_to_a_quarter_of_the_sessions() {
    let server = builder()
        .limits(McpLimits::default().sessions(8))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"}});
    let init = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    for (who, status) in [
        (0, 200),
        (0, 200),
        (0, 503),
        (1, 200),
        (0, 503),
        (1, 200),
        (2, 200),
    ] {
        let answer = site.post(&[("authorization", &people[who])], &init).await;
        assert_eq!(answer.status, status, "{who}: {answer:?}");
    }
    // A client that claims to need no session and opens one gets no more of them.
    for version in ["2026-07-28", "2027-01-01", "x", ""] {
        let headers = [
            ("authorization", &*people[0]),
            ("mcp-protocol-version", version),
        ];
        let opened = site.post(&headers, &init).await;
        assert_eq!(
            opened.header("mcp-session-id"),
            None,
            "{version}: {opened:?}"
        );
    }
    let opened = site.post(&[("authorization", &people[3])], &init).await;
    assert_eq!(opened.status, 200, "{opened:?}");
}

#[tokio::test]
async fn idle_session_makes_room_for_another_token_of_its_tenant() {
    let world = Arc::new(ManualWorld::new());
    let server = builder()
        .limits(McpLimits::default().sessions(4))
        .world(world.clone())
        .build()
        .unwrap();
    let mut tokens = Tokens::new();
    let [laptop, phone] = ["ann.laptop", "ann.phone"].map(|name| {
        let token = tokens.add(name, [TokenScope::Run]).unwrap();
        format!("Bearer {}", token.reveal())
    });
    let site = Site::behind(&server, AccessControl::named(tokens)).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"}});
    let init = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    for (token, seconds, status) in [(&laptop, 0, 200), (&phone, 0, 503), (&phone, 61, 200)] {
        world.advance(Duration::from_secs(seconds));
        let answer = site.post(&[("authorization", token)], &init).await;
        assert_eq!(answer.status, status, "after {seconds} s: {answer:?}");
    }
}

fn agent_server(limit: usize) -> McpServer {
    let model = FunctionModel::new(|request| {
        let said = request
            .history
            .messages()
            .iter()
            .filter(|message| message.role == levity_core::Role::User);
        Ok(levity_core::Response::new(levity_core::Message::assistant(
            format!("{} so far", said.count()),
        )))
    });
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let agent = Agent::builder(model)
        .memory(InMemory::new())
        .runtime(runtime)
        .build()
        .unwrap();
    AgentServer::new("levity", "1", Runs::new(agent).prompt_limit(limit))
        .build()
        .unwrap()
}

#[tokio::test]
async fn queries_of_one_token_are_invisible_to_another() {
    let (gate, people) = people();
    let site = Site::behind(&agent_server(1000), gate).await;
    let reply = call(&site, &people[0], "query", json!({"prompt": "One?"})).await;
    let first = reply["result"]["structuredContent"].clone();
    let (run, session) = (
        first["run_id"].as_str().unwrap(),
        first["session_id"].as_str().unwrap(),
    );
    assert!(
        run.starts_with("ann-") && session.starts_with("ann-"),
        "{first}"
    );
    let again = call(
        &site,
        &people[0],
        "query",
        json!({"prompt": "Two?", "session_id": session}),
    )
    .await;
    assert_eq!(again["result"]["structuredContent"]["answer"], "2 so far");
    // Another caller that knows the id starts its own conversation.
    let other = call(
        &site,
        &people[1],
        "query",
        json!({"prompt": "Two?", "session_id": session}),
    )
    .await;
    assert_eq!(other["result"]["structuredContent"]["answer"], "1 so far");
    let listed = async |who: usize| {
        let listed = ask(&site, &people[who], "resources/list", json!({}))
            .await
            .message();
        listed["result"]["resources"].as_array().unwrap().len()
    };
    assert_eq!(
        (
            listed(0).await,
            listed(1).await,
            listed(2).await,
            listed(3).await
        ),
        (2, 1, 0, 3)
    );
    let uri = format!("levity://runs/{run}");
    for (who, goes) in [(0, true), (1, false), (2, false), (3, true)] {
        let read = ask(&site, &people[who], "resources/read", json!({"uri": uri}))
            .await
            .message();
        assert_eq!(read.get("result").is_some(), goes, "{who}: {read}");
    }
    let refused = call(&site, &people[2], "query", json!({"prompt": "One?"})).await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("scope `run`"),
        "{refused}"
    );
}

#[tokio::test]
async fn lists_of_runs_leave_room_for_other_tokens() {
    let journal = HeldLists::new(with_ended(&["ann-r", "bob-r"]).await);
    let runtime = Runtime::new().with_journal(journal.clone());
    let agent = Agent::builder(ScriptedModel::new().reply("1"))
        .runtime(runtime)
        .build()
        .unwrap();
    let server = AgentServer::new("levity", "1", Runs::new(agent))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let listed = async |who: usize| {
        let listed = ask(&site, &people[who], "resources/list", json!({}))
            .await
            .message();
        listed["result"]["resources"].as_array().unwrap().len()
    };
    let others = async {
        journal.hold(1).await;
        let found = (listed(1).await, listed(2).await, listed(3).await);
        assert_eq!(journal.started(), 4, "one of ann's, and three of others");
        journal.release();
        found
    };
    let found = futures_util::join!(listed(0), listed(0), listed(0), others);
    assert_eq!(found, (1, 1, 1, (1, 0, 2)));
}

#[tokio::test]
async fn query_without_scope_approve_is_denied_its_approvals() {
    let script = ScriptedModel::new()
        .call("send", json!({}))
        .reply("Done.")
        .by_history();
    let asks = Policy::new().rule(Rule::tool("send").ask("nothing is sent unasked"));
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let agent = Agent::builder(script)
        .tool(echo("send", Hints::new()))
        .policy(asks)
        .runtime(runtime);
    let server = AgentServer::new("levity", "1", Runs::new(agent.build().unwrap()))
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let query = || json!({"prompt": "Send it"});
    let denied = call(&site, &people[0], "query", query()).await;
    let told = &denied["result"]["structuredContent"];
    assert_eq!(
        (&told["answer"], &told["statistics"]["failed_calls"]),
        (&json!("Done."), &json!(1)),
        "{denied}"
    );
    let asked = call(&site, &people[1], "query", query()).await;
    assert!(asked["result"].get("inputRequests").is_some(), "{asked}");
}

#[tokio::test]
async fn empty_or_too_long_query_prompt_is_rejected() {
    let (gate, people) = people();
    let site = Site::behind(&agent_server(1000), gate).await;
    for (prompt, words) in [
        (String::new(), "empty"),
        (" \n\t".to_owned(), "empty"),
        ("\u{200b}".to_owned(), "empty"),
        ("\0".to_owned(), "empty"),
        ("\u{feff}\u{2063} \u{3164}".to_owned(), "empty"),
        ("x".repeat(1001), "1000 bytes"),
    ] {
        let answer = call(&site, &people[0], "query", json!({"prompt": prompt})).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(
            answer["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains(words),
            "{answer}"
        );
    }
    let answer = call(
        &site,
        &people[0],
        "query",
        json!({"prompt": "x".repeat(1000)}),
    )
    .await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

/// Reads a connection until it is closed. If the server never closes it, the test fails instead of
/// hanging.
async fn rest(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut all)).await;
    let _ = read.expect("the server closes the connection");
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn slow_and_large_bodies_are_rejected() {
    let limits = McpLimits::default()
        .body(64 << 10)
        .body_time(Duration::from_millis(200));
    let server = builder()
        .tool(echo("look", Hints::new()))
        .limits(limits)
        .build()
        .unwrap();
    let site = Site::behind(
        &server,
        AccessControl::new(Token::new("0123456789abcdef").unwrap()),
    )
    .await;
    let good = ("authorization", "Bearer 0123456789abcdef");
    // Nothing arrives; a little arrives; the client never closes.
    for started in ["", "{\"jsonrpc\":"] {
        for head in [
            site.head("POST", &[good], 1000),
            site.head("POST", &[good], 1000)
                .replace("content-length: 1000", "transfer-encoding: chunked"),
        ] {
            let mut stream = TcpStream::connect(site.address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            if head.contains("chunked") && !started.is_empty() {
                stream
                    .write_all(format!("{:x}\r\n{started}\r\n", started.len()).as_bytes())
                    .await
                    .unwrap();
            } else {
                stream.write_all(started.as_bytes()).await.unwrap();
            }
            let answer = rest(stream).await;
            assert!(
                answer.starts_with("HTTP/1.1 408") && answer.contains("took too long"),
                "{answer}"
            );
        }
    }
    // A body announced as too large is rejected before any of it arrives, also for invalid
    // requests.
    for (method, length) in [
        ("POST", (64 << 10) + 1),
        ("POST", 1 << 40),
        ("GET", 1 << 40),
        ("DELETE", 1 << 30),
    ] {
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        stream
            .write_all(site.head(method, &[good], length).as_bytes())
            .await
            .unwrap();
        let answer = rest(stream).await;
        assert!(
            answer.starts_with("HTTP/1.1 413") && answer.contains("65536 bytes"),
            "{method}: {answer}"
        );
    }
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    stream
        .write_all(site.head("POST", &[], 1 << 40).as_bytes())
        .await
        .unwrap();
    assert!(
        rest(stream).await.starts_with("HTTP/1.1 401"),
        "strangers are refused first"
    );
}

#[tokio::test]
async fn every_rejection_is_json() {
    let server = builder().tool(echo("look", Hints::new())).build().unwrap();
    let site = Site::behind(&server, AccessControl::open()).await;
    for (method, headers, body, status) in [
        ("PUT", vec![], "", 405),
        ("BREW", vec![], "", 405),
        ("POST", vec![("accept", "text/html")], "{}", 406),
        ("POST", vec![("content-type", "text/plain")], "{}", 415),
        ("POST", vec![], "{", 400),
        ("GET", vec![], "", 400),
        ("GET", vec![("mcp-session-id", "none")], "", 404),
        ("DELETE", vec![("mcp-session-id", "none")], "", 404),
        ("POST", vec![("host", "evil.example")], "{}", 403),
    ] {
        let answer = site.send(method, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {headers:?}: {answer:?}");
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(
            kind.starts_with("application/json"),
            "{method} {headers:?}: {answer:?}"
        );
        assert!(
            !answer.message()["error"]["message"]
                .as_str()
                .unwrap()
                .is_empty(),
            "{answer:?}"
        );
    }
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let head = site.head("GET", &[], 0).replace("/mcp", "/other");
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 404") && answer.contains("\"no_route\""),
        "{answer}"
    );
}

#[tokio::test]
async fn handler_gets_its_caller() {
    let who = TestHandler::new("who", |call| async move {
        Ok(HandlerReply::text(
            call.client
                .caller()
                .name()
                .unwrap_or("the owner")
                .to_owned(),
        ))
    });
    let server = builder().handler(who).build().unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let answer = call(&site, &people[1], "who", json!({})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "bob");
    let open = Site::open(&server).await;
    let answer = open
        .modern("tools/call", json!({"name": "who", "arguments": {}}))
        .await
        .message();
    assert_eq!(answer["result"]["content"][0]["text"], "the owner");
}

/// A tool that waits until its call is dropped, as a task if the client supports tasks.
fn endless(tasks: TaskSupport) -> TestHandler {
    TestHandler::new("wait", |_| std::future::pending()).tasks(tasks)
}

fn is_busy(answer: &Value) -> bool {
    let text = answer["error"]["message"]
        .as_str()
        .or(answer["result"]["content"][0]["text"].as_str());
    text.is_some_and(|text| text.contains("too many") || text.contains("is busy"))
}

#[tokio::test]
async fn tasks_of_one_token_leave_room_for_others() {
    let limits = McpLimits::default().tasks(8);
    let server = builder()
        .handler(endless(TaskSupport::Optional))
        .limits(limits)
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let start = async |who: usize| {
        let mut params = json!({"name": "wait", "arguments": {}, "_meta": modern_meta()});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"] =
            json!({"io.modelcontextprotocol/tasks": {}});
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "wait"),
            ("authorization", &*people[who]),
        ];
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        site.post(&headers, &message).await.message()
    };
    let mut tasks = Vec::new();
    for (who, goes) in [
        (0, true),
        (0, true),
        (0, false),
        (1, true),
        (0, false),
        (1, true),
        (1, false),
        (3, true),
    ] {
        let answer = start(who).await;
        assert_eq!(
            answer["result"]["taskId"].is_string(),
            goes,
            "{who}: {answer}"
        );
        assert_eq!(is_busy(&answer), !goes, "{who}: {answer}");
        tasks.extend(
            answer["result"]["taskId"]
                .as_str()
                .map(|task| (who, task.to_owned())),
        );
    }
    // Tasks of other callers do not exist for any method.
    for (owner, task) in &tasks {
        for who in [0, 1, 2] {
            let get = ask(&site, &people[who], "tasks/get", json!({"taskId": task}))
                .await
                .message();
            assert_eq!(
                get.get("result").is_some(),
                who == *owner,
                "{who} {owner}: {get}"
            );
        }
        let stranger = if *owner == 0 { 1 } else { 0 };
        for (verb, params) in [
            ("tasks/cancel", json!({"taskId": task})),
            (
                "tasks/update",
                json!({"taskId": task, "inputResponses": {}}),
            ),
        ] {
            let answer = ask(&site, &people[stranger], verb, params).await.message();
            assert!(answer.get("error").is_some(), "{verb}: {answer}");
        }
        let get = ask(&site, &people[3], "tasks/get", json!({"taskId": task}))
            .await
            .message();
        assert_eq!(get["result"]["status"], "working", "{get}");
    }
}

#[tokio::test]
async fn paused_calls_of_one_token_leave_room_for_others() {
    let asks = Policy::new().rule(Rule::any().ask("nothing is sent unasked"));
    let limits = McpLimits::default().waiting(8);
    let server = builder()
        .tool(echo("send", Hints::new()))
        .policy(asks)
        .limits(limits)
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    for (who, goes) in [
        (1, true),
        (1, true),
        (1, false),
        (3, true),
        (1, false),
        (3, true),
        (3, true),
    ] {
        let answer = call(&site, &people[who], "send", json!({})).await;
        assert_eq!(
            answer["result"].get("inputRequests").is_some(),
            goes,
            "{who}: {answer}"
        );
        assert_eq!(is_busy(&answer), !goes, "{who}: {answer}");
    }
}

#[tokio::test]
async fn requests_of_one_token_leave_room_for_others() {
    let limits = McpLimits::default().calls(8);
    let server = builder()
        .handler(endless(TaskSupport::Forbidden))
        .tool(echo("look", Hints::new().read_only()))
        .limits(limits)
        .build()
        .unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    let mut held = Vec::new();
    let mut params = json!({"name": "wait", "arguments": {}});
    params["_meta"] = modern_meta();
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "wait"),
        ("authorization", &*people[0]),
    ];
    for _ in 0..8 {
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        let head = site.head("POST", &headers, body.len());
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        held.push(stream);
    }
    while !is_busy(&call(&site, &people[0], "look", json!({})).await) {
        tokio::task::yield_now().await;
    }
    for who in [1, 2, 3] {
        let answer = call(&site, &people[who], "look", json!({})).await;
        assert_eq!(answer["result"]["isError"], json!(false), "{who}: {answer}");
    }
}

/// A tool that returns the run it is called for.
struct RunNameTool(ToolSpec);

#[async_trait]
impl Tool for RunNameTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(cx.run.to_string()))
    }
}

#[tokio::test]
async fn tool_calls_use_a_run_id_of_the_tenant() {
    let spec = ToolSpec::new("where", "Says its run.").with_hints(Hints::new().read_only());
    let server = builder().tool(RunNameTool(spec)).build().unwrap();
    let (gate, people) = people();
    let site = Site::behind(&server, gate).await;
    for (who, run) in [(0, "ann-mcp"), (1, "bob-mcp"), (2, "eye-mcp"), (3, "mcp")] {
        let answer = call(&site, &people[who], "where", json!({})).await;
        assert_eq!(answer["result"]["content"][0]["text"], run, "{answer}");
    }
}
