//! Servers and their lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use levity_core::{ContextAsk, ContextSource as _, Tool, ToolCx, ToolSource};
use levity_mcp::{
    ElicitAsk, ElicitReply, Elicitor, ErrorKind, ModelSampler, Server, ServerConfig,
    ServerEventKind, ServerState, Servers, WaitFor,
};
use levity_test::{ManualWorld, ScriptedModel};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Raw, answer, raw, world};

/// Fails instead of hanging.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("it hangs")
}

/// One server that is ready, by the name `one`.
async fn one(config: ServerConfig) -> (Servers, Server) {
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

/// The next message of this method that the server was sent.
async fn hear(raw: &mut Raw, method: &str) -> Value {
    loop {
        let message = within(raw.heard.recv()).await.unwrap();
        if message["method"] == method {
            return message;
        }
    }
}

/// A server that keeps to itself what it is asked in these methods.
fn silent(name: &str, methods: &'static [&str]) -> Raw {
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
async fn changed_tools_are_followed() {
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
async fn a_connection_that_ended_is_made_again_and_the_tools_work() {
    let server = raw("one", |message| {
        (message["params"]["arguments"]["die"] == true).then(|| vec![Value::Null])
    });
    let (servers, _) = one(server.config).await;
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
        ServerEventKind::Away { .. }
    ) {}
    let error = use_tool(&tools, "mcp_one_say", json!({}))
        .await
        .unwrap_err();
    assert!(error.contains("it is away and starts again in"), "{error}");
    assert_eq!(names(&servers), ["mcp_one_say"], "the tools are kept");
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
async fn who_waits_waits_for_what_was_said() {
    let hung = silent("hung", &["server/discover", "initialize"]);
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
        "one is not there yet"
    );
    servers.stop().await;
    let states: Vec<_> = within(all)
        .await
        .into_iter()
        .map(|status| status.state.to_string())
        .collect();
    assert_eq!(
        states, ["stopped"; 2],
        "one that is disabled is not waited for"
    );
}

#[tokio::test]
async fn no_more_calls_are_under_way_than_may_be() {
    let mut raw = silent("one", &["tools/call"]);
    let (servers, server) = one(raw.config.clone().max_concurrent(2)).await;
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { within(server.call("say", json!({}))).await })
        })
        .collect();
    let mut open = Vec::new();
    for done in 0..5 {
        while open.len() < 2.min(5 - done) {
            open.push(hear(&mut raw, "tools/call").await);
        }
        // What else was sent came before this.
        server.ping().await.unwrap();
        let more = std::iter::from_fn(|| raw.heard.try_recv().ok());
        assert_eq!(
            more.filter(|message| message["method"] == "tools/call")
                .count(),
            0
        );
        raw.say
            .send(answer(&open.remove(0), &json!({"content": []})))
            .unwrap();
    }
    for call in calls {
        within(call).await.unwrap().unwrap();
    }
    servers.stop().await;
}

#[tokio::test]
async fn a_server_hears_that_nobody_waits_any_more() {
    let mut raw = silent("one", &["tools/call", "ping"]);
    let config = raw
        .config
        .clone()
        .call_limit(Duration::from_millis(300))
        .ping_every(None);
    let (servers, server) = one(config).await;
    let told =
        |call: Value, note: Value| assert_eq!(call["id"], note["params"]["requestId"], "{note}");

    let cx = ToolCx::detached();
    let mut call = Box::pin(server.call_with("say", json!({}), &cx));
    let asked =
        tokio::select! { _ = &mut call => panic!(), asked = hear(&mut raw, "tools/call") => asked };
    cx.cancel.cancel();
    assert_eq!(within(call).await.unwrap_err().kind(), ErrorKind::Cancelled);
    told(asked, hear(&mut raw, "notifications/cancelled").await);

    let mut call = Box::pin(server.call("say", json!({})));
    let asked =
        tokio::select! { _ = &mut call => panic!(), asked = hear(&mut raw, "tools/call") => asked };
    drop(call);
    told(asked, hear(&mut raw, "notifications/cancelled").await);

    // A call that took too long has the server asked whether it lives, and it does not hold up the
    // word.
    let error = within(server.call("say", json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let asked = hear(&mut raw, "tools/call").await;
    told(asked, hear(&mut raw, "notifications/cancelled").await);
    hear(&mut raw, "ping").await;
    let cx = ToolCx::detached();
    let mut call = Box::pin(server.call_with("say", json!({}), &cx));
    let asked =
        tokio::select! { _ = &mut call => panic!(), asked = hear(&mut raw, "tools/call") => asked };
    cx.cancel.cancel();
    let _ = within(call).await;
    let note = tokio::time::timeout(
        Duration::from_secs(5),
        hear(&mut raw, "notifications/cancelled"),
    )
    .await;
    told(
        asked,
        note.expect("it is told while a ping is not answered"),
    );
    servers.stop().await;
}

#[tokio::test]
async fn tools_are_let_through_or_kept_out() {
    let fixture = Fixture::echo().tool("read_a").tool("read_b").tool("write");
    let (servers, server) = one(fixture.config("one").allow(["read_*"]).deny(["*_b"])).await;
    assert_eq!(names(&servers), ["mcp_one_read_a"]);
    for let_through in ["read_a", "mcp_one_read_a"] {
        server.call(let_through, json!({})).await.unwrap();
    }
    for kept_out in ["read_b", "write", "mcp_one_write"] {
        let error = server.call(kept_out, json!({})).await.unwrap_err();
        assert!(
            error.to_string().contains("by `allow` and `deny`"),
            "{error}"
        );
    }
    servers.stop().await;
}

#[tokio::test]
async fn an_agent_may_have_the_tools_of_some_servers() {
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
async fn helpers_show_the_servers_and_their_tools() {
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
    assert!(error.contains("there are `one`, `off`"), "{error}");
    assert!(
        use_tool(&helpers, "get_mcp_tool_help", json!({"tool": "x"}))
            .await
            .is_err()
    );
    servers.stop().await;
}

#[tokio::test]
async fn resources_are_tools_and_context() {
    let raw = raw("one", |message| {
        let result = match message["method"].as_str()? {
            "resources/list" => json!({"resources": [{"uri": "t:/a", "name": "a"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "resources/read" => json!({"contents": [{"uri": "t:/a", "text": "high water"}]}),
            _ => return None,
        };
        Some(vec![answer(message, &result)])
    });
    let (servers, _) = one(raw.config).await;
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
    let blocks = context.blocks(&ContextAsk::new(10_000)).await.unwrap();
    assert!(blocks[0].text.contains("high water"), "{blocks:?}");
    assert!(
        blocks[1].text.contains("there is no MCP server `two`"),
        "{blocks:?}"
    );
    servers.stop().await;
}

#[tokio::test]
async fn no_answer_whatever_it_is_ends_the_program() {
    let odd = [
        json!("text"),
        json!(7),
        json!([1]),
        json!(null),
        json!({"completion": "text", "messages": 1}),
    ];
    let turn = AtomicUsize::new(0);
    let answers = odd.clone();
    let raw = raw("one", move |message| {
        let method = message["method"].as_str()?;
        let odd = [
            "resources/read",
            "prompts/get",
            "completion/complete",
            "prompts/list",
        ]
        .contains(&method);
        odd.then(|| {
            vec![answer(
                message,
                &answers[turn.load(Ordering::Relaxed) % answers.len()],
            )]
        })
        .inspect(|_| _ = (method == "prompts/list").then(|| turn.fetch_add(1, Ordering::Relaxed)))
    });
    let (servers, server) = one(raw.config).await;
    for odd in odd {
        assert!(within(server.read("a:/b")).await.is_err(), "{odd}");
        assert!(
            within(server.prompt("a", json!({}))).await.is_err(),
            "{odd}"
        );
        assert!(
            within(server.complete_prompt("a", "b", "c")).await.is_err(),
            "{odd}"
        );
        assert!(within(server.prompts()).await.is_err(), "{odd}");
    }
    servers.stop().await;
}

/// A server that asks this before it answers a call with what it was told.
fn asks(ask: &'static str, params: Value) -> Raw {
    let call = std::sync::Mutex::new(Value::Null);
    raw("one", move |message| {
        if message["method"] == "tools/call" {
            *call.lock().unwrap() = message.clone();
            return Some(vec![
                json!({"jsonrpc": "2.0", "id": "q", "method": ask, "params": params}),
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
async fn a_model_replies_to_a_server() {
    let text = json!({"role": "user", "content": {"type": "text", "text": "When is high water?"}});
    let raw = asks(
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
    let told = within(servers.get("one").unwrap().call("say", json!({})))
        .await
        .unwrap();
    assert!(told.as_text().contains("At 04:12."), "{told:?}");
    servers.stop().await;
}

/// Somebody who takes this long to say no.
struct Slow(Duration);

#[async_trait::async_trait]
impl Elicitor for Slow {
    async fn elicit(&self, _: &str, _: ElicitAsk) -> ElicitReply {
        tokio::time::sleep(self.0).await;
        ElicitReply::Decline
    }
}

const FORM: &str =
    r#"{"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}"#;

#[tokio::test]
async fn a_call_is_not_idle_while_somebody_thinks_about_an_answer() {
    let raw = asks("elicitation/create", serde_json::from_str(FORM).unwrap());
    let config = raw.config.idle_limit(Duration::from_millis(200));
    let builder = Servers::builder()
        .world(world())
        .server(config)
        .elicitor(Slow(Duration::from_millis(700)));
    let servers = builder.start().unwrap();
    within(servers.wait(WaitFor::All)).await;
    let told = within(servers.get("one").unwrap().call("say", json!({})))
        .await
        .unwrap();
    assert!(told.as_text().contains("decline"), "{told:?}");
    servers.stop().await;
}

/// A server of the newer protocol whose calls come back like this.
fn modern(first: Value) -> Raw {
    raw("one", move |message| {
        let result = match message["method"].as_str()? {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/call" => first.clone(),
            _ => return None,
        };
        Some(vec![answer(message, &result)])
    })
}

#[tokio::test]
async fn questions_that_nobody_answers_end_with_the_time_of_the_call() {
    let form: Value = serde_json::from_str(FORM).unwrap();
    let ask = json!({"method": "elicitation/create", "params": form});
    let raw = modern(json!({"resultType": "input_required", "inputRequests": {"who": ask}}));
    let config = raw.config.call_limit(Duration::from_millis(300));
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
async fn a_task_that_asks_is_waited_for_and_one_without_end_is_ended() {
    let mut raw = raw("one", |message| {
        let task = |status| json!({"taskId": "t", "status": status, "pollInterval": 50});
        let result = match message["method"].as_str()? {
            "tools/list" => json!({"tools": [
                {"name": "say", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
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
    let (servers, server) = one(raw.config.clone().call_limit(Duration::from_millis(400))).await;
    let told = within(server.call("say", json!({"status": "input_required"})))
        .await
        .unwrap();
    assert_eq!(told.as_text(), "asked and done");
    let error = within(server.call("say", json!({"status": "working"})))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    hear(&mut raw, "tasks/cancel").await;
    servers.stop().await;
}

#[tokio::test]
async fn a_server_with_work_is_not_asked_whether_it_lives() {
    let mut raw = silent("one", &["tools/call"]);
    let (servers, server) = one(raw.config.clone().ping_every(Duration::from_millis(20))).await;
    hear(&mut raw, "ping").await;
    let mut call = Box::pin(server.call("say", json!({})));
    let asked =
        tokio::select! { _ = &mut call => panic!(), asked = hear(&mut raw, "tools/call") => asked };
    tokio::select! { _ = &mut call => panic!(), () = tokio::time::sleep(Duration::from_millis(200)) => {} }
    let heard = std::iter::from_fn(|| raw.heard.try_recv().ok());
    let pings = heard.filter(|message| message["method"] == "ping").count();
    assert!(pings <= 1, "{pings} pings; one may have been on its way");
    raw.say
        .send(answer(&asked, &json!({"content": []})))
        .unwrap();
    within(call).await.unwrap();
    hear(&mut raw, "ping").await;
    servers.stop().await;
}

#[tokio::test]
async fn a_server_that_hangs_is_started_again_though_a_call_is_under_way() {
    let raw = silent("one", &["tools/call", "ping"]);
    let limit = Duration::from_millis(200);
    let (servers, server) = one(raw.config.idle_limit(limit).ping_every(limit)).await;
    let mut events = servers.events();
    let other = server.clone();
    // One call after the other, so that one is always under way.
    let calls = tokio::spawn(async move {
        loop {
            let _ = other.call("say", json!({})).await;
            tokio::task::yield_now().await;
        }
    });
    let error = loop {
        if let ServerEventKind::Away { error, .. } = within(events.next()).await.unwrap().kind {
            break error;
        }
    };
    assert!(
        error
            .to_string()
            .contains("it did not say within 200ms that it lives, twice"),
        "{error}"
    );
    calls.abort();
    servers.stop().await;
}

#[tokio::test]
async fn changes_without_end_are_followed_at_leisure() {
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
    let (servers, _) = one(raw.config).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let lists = lists.load(Ordering::Relaxed);
    assert!((1..=3).contains(&lists), "{lists}");
    servers.stop().await;
}

#[tokio::test]
async fn lists_without_end_are_cut_and_that_is_told() {
    let pages = AtomicUsize::new(0);
    let raw = raw("one", move |message| {
        (message["method"] == "tools/list").then(|| {
            let page = pages.fetch_add(1, Ordering::Relaxed);
            let tool = json!({"name": format!("t{page}"), "inputSchema": {"type": "object"}, "description": "x".repeat(1024)});
            vec![answer(message, &json!({"tools": [tool], "nextCursor": page.to_string()}))]
        })
    });
    let (servers, server) = one(raw.config.clone().max_message(32 << 10)).await;
    let status = server.status();
    assert!((20..32).contains(&status.tools), "{}", status.tools);
    assert!(
        status.problems[0].contains("more tools than are taken"),
        "{:?}",
        status.problems
    );
    servers.stop().await;
    let (servers, server) = one(raw.config).await;
    assert_eq!(server.status().tools, 200);
    assert_eq!(server.status().problems.len(), 1);
    servers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_stopped_once_however_often_it_is_asked_for() {
    let mut raw = silent("hung", &["server/discover", "initialize"]);
    let builder = Servers::builder().world(world()).server(raw.config.clone());
    let servers = builder
        .server(Fixture::echo().tool("say").config("one"))
        .start()
        .unwrap();
    hear(&mut raw, "server/discover").await;
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
async fn calls_fail_at_once_when_the_servers_are_dropped() {
    let mut raw = silent("one", &["tools/call"]);
    let (servers, server) = one(raw.config.clone()).await;
    let call = server.call("say", json!({}));
    let drops = async {
        hear(&mut raw, "tools/call").await;
        drop(servers);
    };
    let (called, ()) = within(async { tokio::join!(call, drops) }).await;
    assert_eq!(called.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn nobody_waits_for_servers_whose_runtime_is_gone() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let servers = first.block_on(async {
        let mut raw = silent("one", &["server/discover", "initialize"]);
        let servers = Servers::builder()
            .world(world())
            .server(raw.config.clone())
            .start()
            .unwrap();
        hear(&mut raw, "server/discover").await;
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
async fn what_opens_a_pipe_may_panic() {
    let config = ServerConfig::in_process("one", || panic!("on purpose")).retries(0);
    let servers = Servers::builder()
        .world(world())
        .server(config)
        .start()
        .unwrap();
    let status = within(servers.wait(WaitFor::All)).await;
    let ServerState::Away { error, .. } = &status[0].state else {
        panic!("{status:?}")
    };
    assert!(
        error.to_string().contains("what opens its pipe panicked"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_never_gets_ready_is_given_up_however_long_that_takes() {
    let raw = silent("one", &["server/discover", "initialize"]);
    let builder = Servers::builder()
        .world(Arc::new(ManualWorld::auto()))
        .server(raw.config.retries(2));
    let servers = builder.start().unwrap();
    let mut events = servers.events();
    let error = loop {
        match within(events.next()).await.unwrap().kind {
            ServerEventKind::Away { error, retry: None } => break error,
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
async fn schema_of_a_tool_is_kept_as_the_server_sent_it() {
    let sent = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "$defs": {"place": {"type": "object", "$anchor": "place", "properties": {"city": {"type": "string"}}}},
        "properties": {"home": {"$ref": "#/$defs/place"}, "to": {"prefixItems": [{"type": "string"}]}},
        "dependentRequired": {"to": ["home"]}, "unevaluatedProperties": false, "x-own": {"b": 1, "a": 2},
    });
    let fixture = Fixture::echo().tool("go");
    let schema = sent.as_object().unwrap().clone();
    fixture
        .change(|tools| tools[0].input_schema = Arc::new(schema))
        .await;
    let (servers, server) = one(fixture.config("one")).await;
    let name = names(&servers)[0].clone();
    for tool in ["go", &name] {
        let kept = server.input_schema(tool).unwrap();
        assert_eq!(kept.to_string(), sent.to_string(), "also in its order");
    }
    assert_eq!(server.input_schema("nothing"), None);
}
