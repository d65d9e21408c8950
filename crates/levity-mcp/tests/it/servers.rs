//! Tests of servers and their life cycles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_core::{ContextRequest, ContextSource as _, Tool, ToolCx, ToolSource};
use levity_mcp::{
    ElicitReply, ElicitRequest, Elicitor, ErrorKind, ModelSampler, Server, ServerConfig,
    ServerEventKind, ServerState, Servers, WaitFor,
};
use levity_test::{ManualWorld, ScriptedModel};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RawServer, answer, raw, world};

/// Fails in place of hanging.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("the operation timed out")
}

/// Starts one server with the name `one` and waits until it is ready.
async fn start_one(config: ServerConfig) -> (Servers, Server) {
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    let server = servers.get("one").unwrap();
    (servers, server)
}

/// Returns the next message with this method that the server received.
async fn receive(raw: &mut RawServer, method: &str) -> Value {
    loop {
        let message = within(raw.received.recv()).await.unwrap();
        if message["method"] == method {
            return message;
        }
    }
}

/// Creates a server that does not respond to these methods.
fn without_responses(name: &str, methods: &'static [&str]) -> RawServer {
    raw(name, |message| {
        methods
            .contains(&message["method"].as_str().unwrap_or_default())
            .then(Vec::new)
    })
}

fn names(source: &dyn ToolSource) -> Vec<String> {
    source
        .tools()
        .iter()
        .map(|tool| tool.spec().name.clone())
        .collect()
}

async fn use_tool(tools: &[Arc<dyn Tool>], name: &str, args: Value) -> Result<Value, String> {
    let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
    let done = within(tool.call(args, &ToolCx::detached())).await;
    done.map(|output| {
        output
            .value
            .clone()
            .unwrap_or_else(|| json!(output.as_text()))
    })
    .map_err(|error| error.to_string())
}

#[tokio::test]
async fn tools_of_two_servers_are_called() {
    let (one, two) = (
        Fixture::echo().tool("say").tool("sing"),
        Fixture::echo().tool("say"),
    );
    let servers = Servers::builder()
        .world(world())
        .server(one.config("one"))
        .server(two.config("two"))
        .start()
        .unwrap();
    let status = servers.wait(WaitFor::All).await;
    assert!(
        status.iter().all(|status| status.state.is_ready()),
        "{status:?}"
    );
    let names: Vec<_> = servers
        .tools()
        .iter()
        .map(|tool| tool.spec().name.clone())
        .collect();
    assert_eq!(names, ["mcp_one_say", "mcp_one_sing", "mcp_two_say"]);
    let out = servers.tools()[1]
        .call(json!({"text": "la"}), &ToolCx::detached())
        .await
        .unwrap();
    assert_eq!(out.as_text(), r#"sing {"text":"la"}"#);
    servers.stop().await;
    let error = servers.tools()[1]
        .call(json!({}), &ToolCx::detached())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("server `one`: it was stopped"),
        "{error}"
    );
}

#[tokio::test]
async fn changed_tools_are_reloaded() {
    let fixture = Fixture::echo().tool("say");
    let servers = Servers::builder()
        .world(world())
        .server(fixture.config("one"))
        .start()
        .unwrap();
    let mut events = servers.events();
    servers.wait(WaitFor::All).await;
    let before = servers.version();
    fixture.change(|tools| tools[0].name = "sing".into()).await;
    loop {
        if let ServerEventKind::ToolsChanged { tools } = events.next().await.unwrap().kind {
            assert_eq!(tools, 1);
            break;
        }
    }
    assert_ne!(servers.version(), before);
    assert_eq!(servers.tools()[0].spec().name, "mcp_one_sing");
}

#[tokio::test]
async fn server_restarts_after_connection_end() {
    let server = raw("one", |message| {
        (message["params"]["arguments"]["die"] == true).then(|| vec![Value::Null])
    });
    let (servers, _) = start_one(server.config).await;
    let (tools, version) = (servers.tools(), servers.version());
    let mut events = servers.events();
    let error = use_tool(&tools, "mcp_one_say", json!({"die": true}))
        .await
        .unwrap_err();
    assert!(
        error.contains("server `one`: the connection ended before `tools/call` was answered"),
        "{error}"
    );
    while !matches!(
        within(events.next()).await.unwrap().kind,
        ServerEventKind::Unavailable { .. }
    ) {}
    let error = use_tool(&tools, "mcp_one_say", json!({}))
        .await
        .unwrap_err();
    assert!(
        error.contains("it is unavailable and restarts in"),
        "{error}"
    );
    assert_eq!(names(&servers), ["mcp_one_say"], "the tools remain listed");
    let listed = use_tool(&servers.helper_tools(), "list_mcp_tools", json!({}))
        .await
        .unwrap();
    assert!(
        listed["tools"][0]["state"]
            .as_str()
            .unwrap()
            .starts_with("away"),
        "{listed}"
    );
    while !matches!(
        within(events.next()).await.unwrap().kind,
        ServerEventKind::Ready { .. }
    ) {}
    assert_eq!(
        use_tool(&tools, "mcp_one_say", json!({})).await.unwrap(),
        "say"
    );
    assert_eq!(
        (servers.status()[0].starts, servers.version()),
        (2, version)
    );
    servers.stop().await;
}

#[tokio::test]
async fn wait_considers_only_selected_servers() {
    let hung = without_responses("hung", &["server/discover", "initialize"]);
    let builder = Servers::builder()
        .world(world())
        .server(hung.config)
        .server(Fixture::echo().config("off").disabled());
    let servers = builder
        .server(Fixture::echo().tool("say").config("one"))
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::named(["one", "unknown"]))).await;
    assert!(
        status.len() == 1 && status[0].state.is_ready(),
        "{status:?}"
    );
    assert!(servers.wait(WaitFor::None).await.is_empty());
    let mut all = std::pin::pin!(servers.wait(WaitFor::All));
    assert!(
        futures_util::poll!(&mut all).is_pending(),
        "one server is not ready yet"
    );
    servers.stop().await;
    let states: Vec<_> = within(all)
        .await
        .into_iter()
        .map(|status| status.state.to_string())
        .collect();
    assert_eq!(states, ["stopped"; 2], "a disabled server is not awaited");
}

#[tokio::test]
async fn concurrent_calls_are_limited() {
    let mut raw = without_responses("one", &["tools/call"]);
    let (servers, server) = start_one(raw.config.clone().max_concurrent(2)).await;
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { within(server.call("say", json!({}))).await })
        })
        .collect();
    let mut open = Vec::new();
    for done in 0..5 {
        while open.len() < 2.min(5 - done) {
            open.push(receive(&mut raw, "tools/call").await);
        }
        // Any other message was sent before this one.
        server.ping().await.unwrap();
        let more = std::iter::from_fn(|| raw.received.try_recv().ok());
        assert_eq!(
            more.filter(|message| message["method"] == "tools/call")
                .count(),
            0
        );
        raw.outgoing
            .send(answer(&open.remove(0), &json!({"content": []})))
            .unwrap();
    }
    for call in calls {
        within(call).await.unwrap().unwrap();
    }
    servers.stop().await;
}

#[tokio::test]
async fn abandoned_calls_are_cancelled_on_server() {
    let mut raw = without_responses("one", &["tools/call", "ping"]);
    let config = raw
        .config
        .clone()
        .call_timeout(Duration::from_millis(300))
        .ping_interval(None);
    let (servers, server) = start_one(config).await;
    let check_cancelled =
        |call: Value, note: Value| assert_eq!(call["id"], note["params"]["requestId"], "{note}");

    let cx = ToolCx::detached();
    let mut call = Box::pin(server.call_with("say", json!({}), &cx));
    let request = tokio::select! {
        _ = &mut call => panic!(),
        request = receive(&mut raw, "tools/call") => request,
    };
    cx.cancel.cancel();
    assert_eq!(within(call).await.unwrap_err().kind(), ErrorKind::Cancelled);
    check_cancelled(request, receive(&mut raw, "notifications/cancelled").await);

    let mut call = Box::pin(server.call("say", json!({})));
    let request = tokio::select! {
        _ = &mut call => panic!(),
        request = receive(&mut raw, "tools/call") => request,
    };
    drop(call);
    check_cancelled(request, receive(&mut raw, "notifications/cancelled").await);

    // After a call that timed out, the server is pinged, which must not delay the cancellation.
    let error = within(server.call("say", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let request = receive(&mut raw, "tools/call").await;
    check_cancelled(request, receive(&mut raw, "notifications/cancelled").await);
    receive(&mut raw, "ping").await;
    let cx = ToolCx::detached();
    let mut call = Box::pin(server.call_with("say", json!({}), &cx));
    let request = tokio::select! {
        _ = &mut call => panic!(),
        request = receive(&mut raw, "tools/call") => request,
    };
    cx.cancel.cancel();
    let _ = within(call).await;
    let note = tokio::time::timeout(
        Duration::from_secs(5),
        receive(&mut raw, "notifications/cancelled"),
    )
    .await;
    check_cancelled(
        request,
        note.expect("the cancellation is sent while a ping is unanswered"),
    );
    servers.stop().await;
}

#[tokio::test]
async fn allow_and_deny_filter_tools() {
    let fixture = Fixture::echo().tool("read_a").tool("read_b").tool("write");
    let (servers, server) = start_one(fixture.config("one").allow(["read_*"]).deny(["*_b"])).await;
    assert_eq!(names(&servers), ["mcp_one_read_a"]);
    for allowed in ["read_a", "mcp_one_read_a"] {
        server.call(allowed, json!({})).await.unwrap();
    }
    for excluded in ["read_b", "write", "mcp_one_write"] {
        let error = server.call(excluded, json!({})).await.unwrap_err();
        assert!(
            error.to_string().contains("see `allow` and `deny`"),
            "{error}"
        );
    }
    servers.stop().await;
}

#[tokio::test]
async fn only_selects_tools_of_named_servers() {
    let build = |name| Fixture::echo().tool("say").config(name);
    let servers = Servers::builder()
        .world(world())
        .server(build("one"))
        .server(build("two"))
        .start()
        .unwrap();
    within(servers.wait(WaitFor::All)).await;
    let some = servers.only(["two"]);
    assert_eq!(names(&some), ["mcp_two_say"]);
    assert_eq!(some.part("mcp_two_say").as_deref(), Some("two"));
    assert_eq!(some.part("mcp_one_say"), None);
    servers.stop().await;
}

#[tokio::test]
async fn helper_tools_list_servers_and_tools() {
    let off = Fixture::echo().config("off").disabled();
    let builder = Servers::builder()
        .world(world())
        .server(Fixture::echo().tool("say").config("one"))
        .server(off);
    let servers = builder.start().unwrap();
    within(servers.wait(WaitFor::All)).await;
    let helpers = servers.helper_tools();
    let shown = use_tool(&helpers, "list_mcp_servers", json!({}))
        .await
        .unwrap();
    assert_eq!(
        (&shown["servers"][0]["state"], &shown["servers"][1]["state"]),
        (&json!("ready"), &json!("disabled"))
    );
    let shown = use_tool(&helpers, "list_mcp_tools", json!({"server": "one"}))
        .await
        .unwrap();
    assert_eq!(
        shown,
        json!({"tools": [{"tool": "mcp_one_say", "about": "Does say."}]})
    );
    let shown = use_tool(&helpers, "get_mcp_tool_help", json!({"tool": "say"}))
        .await
        .unwrap();
    assert_eq!(
        (&shown["server"], &shown["input"]["type"]),
        (&json!("one"), &json!("object"))
    );
    let health = use_tool(&helpers, "mcp_health_check", json!({}))
        .await
        .unwrap();
    assert_eq!(
        (
            &health["servers"][0]["healthy"],
            &health["servers"][1]["healthy"]
        ),
        (&json!(true), &json!(false))
    );
    let error = use_tool(&helpers, "list_mcp_tools", json!({"server": "two"}))
        .await
        .unwrap_err();
    assert!(error.contains("the servers are `one`, `off`"), "{error}");
    assert!(
        use_tool(&helpers, "get_mcp_tool_help", json!({"tool": "x"}))
            .await
            .is_err()
    );
    servers.stop().await;
}

#[tokio::test]
async fn resources_are_available_as_tools_and_context() {
    let raw = raw("one", |message| {
        let result = match message["method"].as_str()? {
            "resources/list" => json!({"resources": [{"uri": "t:/a", "name": "a"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "resources/read" => json!({"contents": [{"uri": "t:/a", "text": "high water"}]}),
            _ => return None,
        };
        Some(vec![answer(message, &result)])
    });
    let (servers, _) = start_one(raw.config).await;
    let tools = servers.resource_tools();
    let listed = use_tool(&tools, "list_mcp_resources", json!({}))
        .await
        .unwrap();
    assert_eq!(
        listed["servers"][0]["resources"][0]["uri"], "t:/a",
        "{listed}"
    );
    let read = use_tool(
        &tools,
        "read_mcp_resource",
        json!({"server": "one", "uri": "t:/a"}),
    )
    .await
    .unwrap();
    assert!(read.as_str().unwrap().contains("high water"), "{read}");
    let context = servers.resource_context([("one", "t:/a"), ("two", "t:/b")]);
    let blocks = context.blocks(&ContextRequest::new(10_000)).await.unwrap();
    assert!(blocks[0].text.contains("high water"), "{blocks:?}");
    assert!(
        blocks[1].text.contains("there is no MCP server `two`"),
        "{blocks:?}"
    );
    servers.stop().await;
}

#[tokio::test]
async fn invalid_results_return_errors() {
    let invalid = [
        json!("text"),
        json!(7),
        json!([1]),
        json!(null),
        json!({"completion": "text", "messages": 1}),
    ];
    let turn = AtomicUsize::new(0);
    let answers = invalid.clone();
    let raw = raw("one", move |message| {
        let method = message["method"].as_str()?;
        let invalid = [
            "resources/read",
            "prompts/get",
            "completion/complete",
            "prompts/list",
        ]
        .contains(&method);
        invalid
            .then(|| {
                vec![answer(
                    message,
                    &answers[turn.load(Ordering::Relaxed) % answers.len()],
                )]
            })
            .inspect(|_| {
                _ = (method == "prompts/list").then(|| turn.fetch_add(1, Ordering::Relaxed));
            })
    });
    let (servers, server) = start_one(raw.config).await;
    for invalid in invalid {
        assert!(
            within(server.read_resource("a:/b")).await.is_err(),
            "{invalid}"
        );
        assert!(
            within(server.prompt("a", json!({}))).await.is_err(),
            "{invalid}"
        );
        assert!(
            within(server.complete_prompt("a", "b", "c")).await.is_err(),
            "{invalid}"
        );
        assert!(within(server.prompts()).await.is_err(), "{invalid}");
    }
    servers.stop().await;
}

/// Creates a server that sends this request before it responds to a call with the result.
fn requests_first(method: &'static str, params: Value) -> RawServer {
    let call = std::sync::Mutex::new(Value::Null);
    raw("one", move |message| {
        if message["method"] == "tools/call" {
            *call.lock().unwrap() = message.clone();
            return Some(vec![
                json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params}),
            ]);
        }
        (message["id"] == "q").then(|| {
            let text = message["result"].to_string();
            vec![answer(
                &call.lock().unwrap(),
                &json!({"content": [{"type": "text", "text": text}]}),
            )]
        })
    })
}

#[tokio::test]
async fn sampling_request_is_answered_by_model() {
    let text = json!({"role": "user", "content": {"type": "text", "text": "When is high water?"}});
    let raw = requests_first(
        "sampling/createMessage",
        json!({"messages": [text], "maxTokens": 50}),
    );
    let model = ScriptedModel::new().reply("At 04:12.");
    let builder = Servers::builder()
        .world(world())
        .server(raw.config)
        .sampler(ModelSampler::new(Arc::new(model)));
    let servers = builder.start().unwrap();
    within(servers.wait(WaitFor::All)).await;
    let output = within(servers.get("one").unwrap().call("say", json!({})))
        .await
        .unwrap();
    assert!(output.as_text().contains("At 04:12."), "{output:?}");
    servers.stop().await;
}

/// A person who declines after this time.
struct Slow(Duration);

#[async_trait::async_trait]
impl Elicitor for Slow {
    async fn elicit(&self, _: &str, _: ElicitRequest) -> ElicitReply {
        tokio::time::sleep(self.0).await;
        ElicitReply::Decline
    }
}

const FORM: &str =
    r#"{"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}"#;

#[tokio::test]
async fn idle_timeout_pauses_during_elicitation() {
    let raw = requests_first("elicitation/create", serde_json::from_str(FORM).unwrap());
    let config = raw.config.idle_timeout(Duration::from_millis(200));
    let builder = Servers::builder()
        .world(world())
        .server(config)
        .elicitor(Slow(Duration::from_millis(700)));
    let servers = builder.start().unwrap();
    within(servers.wait(WaitFor::All)).await;
    let output = within(servers.get("one").unwrap().call("say", json!({})))
        .await
        .unwrap();
    assert!(output.as_text().contains("decline"), "{output:?}");
    servers.stop().await;
}

/// Creates a server of the newer protocol that responds to calls with this result.
fn modern(first: Value) -> RawServer {
    raw("one", move |message| {
        let result = match message["method"].as_str()? {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/call" => first.clone(),
            _ => return None,
        };
        Some(vec![answer(message, &result)])
    })
}

#[tokio::test]
async fn unanswered_input_request_times_out_with_call() {
    let form: Value = serde_json::from_str(FORM).unwrap();
    let ask = json!({"method": "elicitation/create", "params": form});
    let raw = modern(json!({"resultType": "input_required", "inputRequests": {"who": ask}}));
    let config = raw.config.call_timeout(Duration::from_millis(300));
    let builder = Servers::builder()
        .world(world())
        .server(config)
        .elicitor(Slow(Duration::from_secs(3600)));
    let servers = builder.start().unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    assert_eq!(
        status[0].protocol.as_deref(),
        Some("2026-07-28"),
        "{status:?}"
    );
    let server = servers.get("one").unwrap();
    let error = within(server.call("say", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let cx = ToolCx::detached();
    let call = server.call_with("say", json!({}), &cx);
    cx.cancel.cancel();
    assert_eq!(within(call).await.unwrap_err().kind(), ErrorKind::Cancelled);
    servers.stop().await;
}

#[tokio::test]
async fn task_is_polled_and_cancelled_after_timeout() {
    let mut raw = raw("one", |message| {
        let task = |status| json!({"taskId": "t", "status": status, "pollInterval": 50});
        let result = match message["method"].as_str()? {
            "tools/list" => json!({"tools": [
                {"name": "say", "inputSchema": {"type": "object"},
                    "execution": {"taskSupport": "required"}},
            ]}),
            "tools/call" => {
                json!({"task": task(message["params"]["arguments"]["status"].as_str()?)})
            }
            "tasks/get" => task("working"),
            "tasks/result" => json!({"content": [{"type": "text", "text": "asked and done"}]}),
            _ => return None,
        };
        Some(vec![answer(message, &result)])
    });
    let (servers, server) =
        start_one(raw.config.clone().call_timeout(Duration::from_millis(400))).await;
    let output = within(server.call("say", json!({"status": "input_required"})))
        .await
        .unwrap();
    assert_eq!(output.as_text(), "asked and done");
    let error = within(server.call("say", json!({"status": "working"})))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    receive(&mut raw, "tasks/cancel").await;
    servers.stop().await;
}

#[tokio::test]
async fn busy_server_is_not_pinged() {
    let mut raw = without_responses("one", &["tools/call"]);
    let (servers, server) =
        start_one(raw.config.clone().ping_interval(Duration::from_millis(20))).await;
    receive(&mut raw, "ping").await;
    let mut call = Box::pin(server.call("say", json!({})));
    let request = tokio::select! {
        _ = &mut call => panic!(),
        request = receive(&mut raw, "tools/call") => request,
    };
    tokio::select! {
        _ = &mut call => panic!(),
        () = tokio::time::sleep(Duration::from_millis(200)) => {}
    }
    let received = std::iter::from_fn(|| raw.received.try_recv().ok());
    let pings = received
        .filter(|message| message["method"] == "ping")
        .count();
    assert!(pings <= 1, "{pings} pings; one may have been in transit");
    raw.outgoing
        .send(answer(&request, &json!({"content": []})))
        .unwrap();
    within(call).await.unwrap();
    receive(&mut raw, "ping").await;
    servers.stop().await;
}

#[tokio::test]
async fn hanging_server_restarts_during_call() {
    let raw = without_responses("one", &["tools/call", "ping"]);
    let limit = Duration::from_millis(200);
    let (servers, server) = start_one(raw.config.idle_timeout(limit).ping_interval(limit)).await;
    let mut events = servers.events();
    let other = server.clone();
    // Consecutive calls ensure that one is always running.
    let calls = tokio::spawn(async move {
        loop {
            let _ = other.call("say", json!({})).await;
            tokio::task::yield_now().await;
        }
    });
    let error = loop {
        if let ServerEventKind::Unavailable { error, .. } =
            within(events.next()).await.unwrap().kind
        {
            break error;
        }
    };
    assert!(
        error
            .to_string()
            .contains("it did not respond to two pings within 200ms each"),
        "{error}"
    );
    calls.abort();
    servers.stop().await;
}

#[tokio::test]
async fn endless_change_notifications_are_throttled() {
    let lists = Arc::new(AtomicUsize::new(0));
    let count = lists.clone();
    let raw = raw("one", move |message| {
        (message["method"] == "tools/list").then(|| {
            let name = format!("say{}", count.fetch_add(1, Ordering::Relaxed));
            let tools = json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]});
            let note = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            vec![answer(message, &tools), note]
        })
    });
    let (servers, _) = start_one(raw.config).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let lists = lists.load(Ordering::Relaxed);
    assert!((1..=3).contains(&lists), "{lists}");
    servers.stop().await;
}

#[tokio::test]
async fn endless_tool_list_is_truncated_with_problem() {
    let pages = AtomicUsize::new(0);
    let raw = raw("one", move |message| {
        (message["method"] == "tools/list").then(|| {
            let page = pages.fetch_add(1, Ordering::Relaxed);
            let tool = json!({"name": format!("t{page}"), "inputSchema": {"type": "object"},
                "description": "x".repeat(1024)});
            vec![answer(
                message,
                &json!({"tools": [tool], "nextCursor": page.to_string()}),
            )]
        })
    });
    let (servers, server) = start_one(raw.config.clone().max_message(32 << 10)).await;
    let status = server.status();
    assert!((20..32).contains(&status.tools), "{}", status.tools);
    assert!(
        status.problems[0].contains("more tools than levity accepts"),
        "{:?}",
        status.problems
    );
    servers.stop().await;
    let (servers, server) = start_one(raw.config).await;
    assert_eq!(server.status().tools, 200);
    assert_eq!(server.status().problems.len(), 1);
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_stop_emits_one_event_per_server() {
    let mut raw = without_responses("hung", &["server/discover", "initialize"]);
    let builder = Servers::builder().world(world()).server(raw.config.clone());
    let servers = builder
        .server(Fixture::echo().tool("say").config("one"))
        .start()
        .unwrap();
    receive(&mut raw, "server/discover").await;
    within(servers.wait(WaitFor::named(["one"]))).await;
    let mut events = servers.events();
    let server = servers.get("one").unwrap();
    within(async { tokio::join!(servers.stop(), servers.stop()) }).await;
    within(servers.stop()).await;
    server.restart();
    assert!(
        servers
            .status()
            .iter()
            .all(|status| matches!(status.state, ServerState::Stopped)),
        "{servers:?}"
    );
    drop(servers);
    let error = server.call("say", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("it was stopped"), "{error}");
    drop(server);
    let mut stopped = 0;
    while let Some(event) = within(events.next()).await {
        stopped += usize::from(matches!(event.kind, ServerEventKind::Stopped));
    }
    assert_eq!(stopped, 2, "each once");
}

#[tokio::test]
async fn dropped_servers_fail_running_calls() {
    let mut raw = without_responses("one", &["tools/call"]);
    let (servers, server) = start_one(raw.config.clone()).await;
    let call = server.call("say", json!({}));
    let drops = async {
        receive(&mut raw, "tools/call").await;
        drop(servers);
    };
    let (called, ()) = within(async { tokio::join!(call, drops) }).await;
    assert_eq!(called.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn wait_ends_after_runtime_shutdown() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let servers = first.block_on(async {
        let mut raw = without_responses("one", &["server/discover", "initialize"]);
        let servers = Servers::builder()
            .world(world())
            .server(raw.config.clone())
            .start()
            .unwrap();
        receive(&mut raw, "server/discover").await;
        servers
    });
    drop(first);
    let status = runtime().block_on(within(servers.wait(WaitFor::All)));
    assert!(
        matches!(status[0].state, ServerState::Stopped),
        "{status:?}"
    );
}

#[tokio::test]
async fn panic_of_connect_function_is_reported() {
    let config = ServerConfig::in_process("one", || panic!("on purpose")).retries(0);
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    let ServerState::Unavailable { error, .. } = &status[0].state else {
        panic!("{status:?}")
    };
    assert!(
        error
            .to_string()
            .contains("the `connect` function of the server panicked"),
        "{error}"
    );
}

#[tokio::test]
async fn server_that_never_becomes_ready_is_given_up() {
    let raw = without_responses("one", &["server/discover", "initialize"]);
    let builder = Servers::builder()
        .world(Arc::new(ManualWorld::auto()))
        .server(raw.config.retries(2));
    let servers = builder.start().unwrap();
    let mut events = servers.events();
    let error = loop {
        match within(events.next()).await.unwrap().kind {
            ServerEventKind::Unavailable {
                error,
                retry_after: None,
            } => break error,
            _ => assert!(servers.status()[0].starts <= 3, "{servers:?}"),
        }
    };
    assert!(
        error.to_string().contains("it was not ready within 60s"),
        "{error}"
    );
    assert_eq!(servers.status()[0].starts, 3);
    servers.stop().await;
}

#[tokio::test]
async fn input_schema_equals_schema_sent_by_server() {
    let sent = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "$defs": {"place": {"type": "object", "$anchor": "place",
            "properties": {"city": {"type": "string"}}}},
        "properties": {"home": {"$ref": "#/$defs/place"},
            "to": {"prefixItems": [{"type": "string"}]}},
        "dependentRequired": {"to": ["home"]}, "unevaluatedProperties": false,
        "x-own": {"b": 1, "a": 2},
    });
    let fixture = Fixture::echo().tool("go");
    let schema = sent.as_object().unwrap().clone();
    fixture
        .change(|tools| tools[0].input_schema = Arc::new(schema))
        .await;
    let (servers, server) = start_one(fixture.config("one")).await;
    let name = names(&servers)[0].clone();
    for tool in ["go", &name] {
        let kept = server.input_schema(tool).unwrap();
        assert_eq!(
            kept.to_string(),
            sent.to_string(),
            "the order of keys is preserved"
        );
    }
    assert_eq!(server.input_schema("nothing"), None);
}
