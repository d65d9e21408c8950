//! An agent for MCP clients.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationQuery, Hints, Message, Model, RunQuery, Status,
    ToolCx, ToolOutput, World as _,
};
use levity_loop::Agent;
use levity_mcp::{
    ElicitReply, ElicitRequest, Elicitor, ModelSampler, Server, ServerConfig, Servers,
    ServersBuilder, WaitFor,
};
use levity_memory::InMemory;
use levity_runtime::{MemoryJournal, Runtime};
use levity_sandbox::Workspace;
use levity_serve::mcp::{ClientModel, McpServer};
use levity_serve::{AgentServer, NewRun, Runs};
use levity_test::{FunctionModel, ManualWorld, RecordingTool, ScriptedModel};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::task::JoinSet;

fn runtime() -> Runtime {
    Runtime::new().with_journal(MemoryJournal::new())
}

fn runs(model: impl Model + 'static) -> Runs {
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
        .with_hints(Hints::new().destructive());
    let agent = Agent::builder(model)
        .tool(send)
        .memory(InMemory::new())
        .ask_user()
        .runtime(runtime());
    Runs::new(agent.build().unwrap())
}

/// Returns our end of a pipe to a server that runs until the test ends.
fn pipe(server: &McpServer, tasks: &mut JoinSet<()>) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(theirs);
    let server = server.clone();
    tasks.spawn(async move { server.serve(read, write).await.unwrap() });
    ours
}

struct ConnectedClient {
    servers: Servers,
    _tasks: Arc<std::sync::Mutex<JoinSet<()>>>,
}

impl ConnectedClient {
    fn server(&self) -> Server {
        self.servers.get("levity").unwrap()
    }

    async fn call(&self, tool: &str, args: Value) -> Result<ToolOutput, levity_mcp::Error> {
        self.server().call(tool, args).await
    }

    /// Returns the value of a tool's result.
    async fn value(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.unwrap().value.unwrap()
    }
}

/// Connects with the latest protocol version, as our own client does.
async fn connect(
    server: AgentServer,
    set: impl FnOnce(ServersBuilder) -> ServersBuilder,
) -> ConnectedClient {
    let (server, tasks) = (
        server.build().unwrap(),
        Arc::new(std::sync::Mutex::new(JoinSet::new())),
    );
    let served = tasks.clone();
    let config =
        ServerConfig::in_process("levity", move || pipe(&server, &mut served.lock().unwrap()));
    let servers = set(Servers::builder().server(config)).start().unwrap();
    let status = servers.wait(WaitFor::All).await;
    assert!(status[0].state.is_ready(), "{status:?}");
    ConnectedClient {
        servers,
        _tasks: tasks,
    }
}

async fn connect_plain(server: AgentServer) -> ConnectedClient {
    connect(server, |servers| servers).await
}

fn offered(runs: Runs) -> AgentServer {
    AgentServer::new("levity", "1.0", runs)
}

/// A client that gives the same answer to every question.
struct FixedAnswer(Value);

#[async_trait]
impl Elicitor for FixedAnswer {
    async fn elicit(&self, _: &str, ask: ElicitRequest) -> ElicitReply {
        let ElicitRequest::Form(form) = ask else {
            return ElicitReply::Cancel;
        };
        assert!(
            form.message.contains("send") || form.message.contains("colour"),
            "{}",
            form.message
        );
        match self.0.as_object() {
            Some(said) => ElicitReply::Accept(said.clone()),
            None => ElicitReply::Decline,
        }
    }
}

#[tokio::test]
async fn query_returns_answer_session_and_statistics() {
    let model = FunctionModel::new(|request| {
        let said = request
            .history
            .messages()
            .iter()
            .filter(|message| message.role == levity_core::Role::User);
        Ok(levity_core::Response::new(Message::assistant(format!(
            "{} so far",
            said.count()
        ))))
    });
    let client = connect_plain(offered(runs(model))).await;
    let first = client.value("query", json!({"prompt": "One?"})).await;
    assert_eq!(first["answer"], "1 so far");
    assert_eq!(first["complete"], true);
    assert_eq!(first["statistics"]["turns"], 1);
    assert_eq!(first["statistics"]["tool_calls"], 0);
    assert!(first["statistics"]["output_tokens"].as_u64().unwrap() > 0);
    let session = first["session_id"].as_str().unwrap();
    let again = client
        .value("query", json!({"prompt": "Two?", "session_id": session}))
        .await;
    assert_eq!(
        (&again["answer"], &again["session_id"]),
        (&json!("2 so far"), &json!(session))
    );
    let other = client.value("query", json!({"prompt": "One?"})).await;
    assert_eq!(other["answer"], "1 so far");
    assert_ne!(other["session_id"], json!(session));
    for wrong in [
        json!({}),
        json!({"prompt": 1}),
        json!({"prompt": "x", "session_id": "../x"}),
        json!({"prompt": "x", "more": 1}),
    ] {
        assert!(
            client.call("query", wrong.clone()).await.is_err(),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn query_returns_its_messages_on_request() {
    let script = ScriptedModel::new()
        .call("send", json!({"to": "you"}))
        .reply("Done.")
        .by_history();
    let said = FixedAnswer(json!({"decision": "allow"}));
    let client = connect(offered(runs(script)), |servers| servers.elicitor(said)).await;
    let plain = client.value("query", json!({"prompt": "Send it"})).await;
    assert!(plain.get("messages").is_none(), "{plain}");
    let answer = client
        .value(
            "query",
            json!({"prompt": "Send it", "include_messages": true}),
        )
        .await;
    let messages = answer["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["user", "assistant", "tool", "assistant"],
        "{answer}"
    );
    assert_eq!(answer["messages_left_out"], 0);
    for (message, words) in messages.iter().zip(["Send it", "send", "sent", "Done."]) {
        assert!(message.to_string().contains(words), "{message}");
        serde_json::from_value::<Message>(message.clone()).unwrap();
    }
}

/// Checks that each tool call has a result in a following message, before the model's next message.
#[track_caller]
fn assert_every_call_answered(answer: &Value) {
    let messages: Vec<Message> = serde_json::from_value(answer["messages"].clone()).unwrap();
    let mut open = Vec::new();
    for message in &messages {
        if message.role != levity_core::Role::Tool {
            assert!(open.is_empty(), "{open:?} is not answered: {answer}");
        }
        for result in message.results() {
            let at = open.iter().position(|id| *id == result.call);
            open.remove(at.unwrap_or_else(|| panic!("an answer to nothing: {answer}")));
        }
        open.extend(message.calls().map(|call| call.id.clone()));
    }
    assert!(open.is_empty(), "{open:?} is not answered: {answer}");
}

#[tokio::test]
async fn query_messages_answer_every_tool_call() {
    let calls = || {
        ScriptedModel::new()
            .call("send", json!({"to": "you"}))
            .reply("Done.")
            .by_history()
    };
    let query = json!({"prompt": "Send it", "include_messages": true});
    // Denied by a user, allowed by a user, and denied because no user can be asked.
    for (decision, word) in [("deny", "denied"), ("allow", "sent")] {
        let said = FixedAnswer(json!({"decision": decision}));
        let client = connect(offered(runs(calls())), |servers| servers.elicitor(said)).await;
        let answer = client.value("query", query.clone()).await;
        assert_every_call_answered(&answer);
        let roles: Vec<_> = answer["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["role"].clone())
            .collect();
        assert_eq!(
            roles,
            ["user", "assistant", "tool", "assistant"],
            "{answer}"
        );
        assert!(answer["messages"][2].to_string().contains(word), "{answer}");
    }
    let answer = connect_plain(offered(runs(calls())))
        .await
        .value("query", query.clone())
        .await;
    assert_every_call_answered(&answer);
    assert_eq!(answer["messages"].as_array().unwrap().len(), 4, "{answer}");
    // Denied by policy, unknown, and several at once.
    let tool = |name: &str| RecordingTool::new(name, |_| Ok(ToolOutput::text("sent")));
    let several = ScriptedModel::new()
        .call("send", json!({}))
        .call("nothing", json!({}))
        .reply("Done.");
    let policy =
        levity_tools::Policy::new().rule(levity_tools::Rule::tool("send").deny("it is Sunday"));
    let agent = Agent::builder(several)
        .tool(tool("send"))
        .policy(policy)
        .runtime(runtime());
    let answer = connect_plain(offered(Runs::new(agent.build().unwrap())))
        .await
        .value("query", query)
        .await;
    assert_every_call_answered(&answer);
    assert!(
        answer["messages"].to_string().contains("not allowed"),
        "{answer}"
    );
}

#[tokio::test]
async fn passing_sessions_expire_after_an_hour_and_are_limited() {
    let world = Arc::new(ManualWorld::new());
    let sessions = AgentServer::temporary_sessions().world(world.clone());
    let say = async |id: &str, text: String| {
        let open = sessions.open(&ConversationId::new(id), 10).await.unwrap();
        let change =
            ConversationChange::at(open.remembered().end).with_messages([Message::user(text)]);
        open.save(change.when(world.now())).await.unwrap();
    };
    let count = async || {
        sessions
            .list(&ConversationQuery::new())
            .await
            .unwrap()
            .len()
    };
    say("first", "Hello".to_owned()).await;
    world.advance(Duration::from_secs(3599));
    assert_eq!(count().await, 1);
    world.advance(Duration::from_secs(2));
    assert_eq!(count().await, 0, "an hour without use is enough");
    for number in 0..1_100 {
        say(&format!("s{number}"), "Hello".to_owned()).await;
    }
    assert_eq!(count().await, 1_000);
    for number in 0..40 {
        say(&format!("long{number}"), "x".repeat(3 << 20)).await;
    }
    let long = (0..40).map(|number| ConversationId::new(format!("long{number}")));
    let mut kept = 0;
    for id in long {
        kept += sessions.store().load(&id, 1).await.unwrap().messages.len();
    }
    assert!((15..=21).contains(&kept), "{kept} of 3 MiB in 64 MiB");
}

#[tokio::test]
async fn tenant_with_many_sessions_displaces_only_its_own() {
    let world = Arc::new(ManualWorld::new());
    let sessions = AgentServer::temporary_sessions().world(world.clone());
    let say = async |id: &str, bytes: usize| {
        let open = sessions.open(&ConversationId::new(id), 10).await.unwrap();
        let change = ConversationChange::at(open.remembered().end)
            .with_messages([Message::user("x".repeat(bytes))]);
        open.save(change.when(world.now())).await.unwrap();
    };
    let count = async |start: &str| {
        let all = sessions.list(&ConversationQuery::new()).await.unwrap();
        all.iter()
            .filter(|info| info.id.as_str().starts_with(start))
            .count()
    };
    for number in 0..100 {
        say(&format!("ann-{number}"), 10).await;
        say(&format!("{number:032x}"), 10).await;
    }
    for number in 0..2_000 {
        say(&format!("bob-{number}"), 10).await;
    }
    assert_eq!(
        (count("ann-").await, count("0").await, count("bob-").await),
        (100, 100, 250)
    );
    // A few large sessions cannot displace others either.
    for number in 0..40 {
        say(&format!("bob-large-{number}"), 3 << 20).await;
    }
    assert_eq!((count("ann-").await, count("0").await), (100, 100));
    assert!(
        (1..=5).contains(&count("bob-").await),
        "{} of 3 MiB in 16 MiB",
        count("bob-").await
    );
    // The owner may use the rest, and further sessions displace its own.
    for number in 0..2_000 {
        say(&format!("{number:08x}"), 10).await;
    }
    assert_eq!(count("ann-").await, 100);
    assert_eq!(count("").await, 1_000);
}

#[tokio::test]
async fn query_messages_stay_within_their_limit() {
    let long = || "x".repeat(400 << 10);
    let tell = RecordingTool::new("tell", move |_| Ok(ToolOutput::text(long())))
        .with_hints(Hints::new().read_only());
    let mut script = ScriptedModel::new();
    for _ in 0..5 {
        script = script.call("tell", json!({}));
    }
    let agent = Agent::builder(script.reply("Done."))
        .tool(tell)
        .max_tool_output(1 << 20)
        .runtime(runtime());
    let client = connect_plain(offered(Runs::new(agent.build().unwrap()))).await;
    let answer = client
        .value("query", json!({"prompt": "Tell", "include_messages": true}))
        .await;
    assert!(answer["messages"].to_string().len() <= 1 << 20);
    assert!(
        answer["messages_left_out"].as_u64().unwrap() >= 5,
        "{}",
        answer["messages_left_out"]
    );
    assert!(
        answer["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .to_string()
            .contains("Done.")
    );
}

#[tokio::test]
async fn first_page_of_resources_is_not_empty() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "one").unwrap();
    let server = offered(runs(ScriptedModel::new()))
        .workspace(Workspace::open(folder.path()).unwrap())
        .build()
        .unwrap();
    let mut tasks = JoinSet::new();
    let mut client = OldClient::connect(&server, &mut tasks, json!({})).await;
    client
        .say(json!({"id": 1, "method": "resources/list"}))
        .await;
    let page = client.next().await["result"].clone();
    assert_eq!(page["resources"][0]["uri"], "workspace:///a.txt", "{page}");
    assert!(page.get("nextCursor").is_none(), "{page}");
}

#[tokio::test]
async fn questions_of_a_run_are_forwarded_to_the_client() {
    let script = || {
        ScriptedModel::new()
            .call("send", json!({}))
            .reply("Done.")
            .by_history()
    };
    let sent = |answer: Value| answer["statistics"]["failed_calls"] == 0;
    for (said, goes) in [
        (json!({"decision": "allow"}), true),
        (json!({"decision": "deny", "reason": "no"}), false),
        (Value::Null, false),
    ] {
        let client = connect(offered(runs(script())), |servers| {
            servers.elicitor(FixedAnswer(said.clone()))
        })
        .await;
        let answer = client.value("query", json!({"prompt": "Send it"})).await;
        assert_eq!(sent(answer), goes, "{said}");
    }
    let client = connect_plain(offered(runs(script()))).await;
    assert!(
        !sent(client.value("query", json!({"prompt": "Send it"})).await),
        "no user can be asked"
    );
    let asks = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which colour?"}))
        .reply("Thanks.");
    let blue = FixedAnswer(json!({"answer": "blue"}));
    let client = connect(offered(runs(asks)), |servers| servers.elicitor(blue)).await;
    assert_eq!(
        client.value("query", json!({"prompt": "Paint"})).await["statistics"]["failed_calls"],
        0
    );
}

#[tokio::test]
async fn decision_text_beyond_the_prompt_limit_is_not_used() {
    let ask = || {
        ScriptedModel::new()
            .call("ask_user", json!({"question": "Which colour?"}))
            .reply("Thanks.")
    };
    let send = || ScriptedModel::new().call("send", json!({})).reply("Done.");
    for (length, is_used) in [(1_000, true), (1_001, false)] {
        let text = "x".repeat(length);
        for (script, said) in [
            (ask(), json!({"answer": text})),
            (send(), json!({"decision": "deny", "reason": text})),
        ] {
            let runs = runs(script).prompt_limit(1_000);
            let client = connect(offered(runs.clone()), |servers| {
                servers.elicitor(FixedAnswer(said))
            })
            .await;
            let answer = client.value("query", json!({"prompt": "Go"})).await;
            let run = answer["run_id"].as_str().unwrap().into();
            let events = json!(runs.history(&run).await.unwrap()).to_string();
            assert_eq!(events.contains(&text), is_used, "{length}: {events}");
            assert_eq!(events.contains("more than 1000 bytes"), !is_used);
        }
    }
}

/// A client that allows everything it may, and records the questions.
#[derive(Clone, Default)]
struct AllowingUser(Arc<std::sync::Mutex<Vec<levity_mcp::ElicitForm>>>);

#[async_trait]
impl Elicitor for AllowingUser {
    async fn elicit(&self, _: &str, ask: ElicitRequest) -> ElicitReply {
        let ElicitRequest::Form(form) = ask else {
            return ElicitReply::Cancel;
        };
        let decision = form.schema["properties"]["decision"]["enum"][0].clone();
        self.0.lock().unwrap().push(form);
        ElicitReply::Accept(json!({"decision": decision}).as_object().unwrap().clone())
    }
}

#[tokio::test]
async fn query_allows_only_calls_that_are_displayed_in_full() {
    for (text, goes, shown) in [
        ("x".repeat(5_000) + "; rm -rf", true, "; rm -rf\"}?"),
        ("x".repeat(8_000) + "; rm -rf", true, "; rm -rf\"}?"),
        (
            "x".repeat(9_000) + "; rm -rf" + &"x".repeat(9_000),
            false,
            "can only be denied here",
        ),
        ("a\u{202e}b\u{200b}c".to_owned(), true, "a\\u202eb\\u200bc"),
        ("\u{200b}".repeat(2_000), false, "can only be denied here"),
    ] {
        let script = ScriptedModel::new()
            .call("send", json!({"to": text}))
            .reply("Done.")
            .by_history();
        let person = AllowingUser::default();
        let client = connect(offered(runs(script)), |servers| {
            servers.elicitor(person.clone())
        })
        .await;
        let answer = client.value("query", json!({"prompt": "Send it"})).await;
        assert_eq!(answer["statistics"]["failed_calls"] == 0, goes, "{answer}");
        let asked = person.0.lock().unwrap();
        let [form] = &asked[..] else {
            panic!("it is asked once")
        };
        assert!(
            form.message.contains(shown) && form.message.len() < 9_000,
            "{}",
            form.message
        );
        assert!(
            !form.message.contains(['\u{202e}', '\u{200b}']),
            "{}",
            form.message
        );
    }
}

#[tokio::test]
async fn client_agent_answers_with_the_clients_model() {
    let base = Agent::builder(ScriptedModel::new())
        .runtime(runtime())
        .build()
        .unwrap();
    let runs = Runs::new(base.clone());
    let server = offered(runs)
        .client_agent(move |model: ClientModel| base.to_builder().model(model).build());
    let theirs: Arc<dyn Model> = Arc::new(ScriptedModel::new().reply("From the client."));
    let sampler = ModelSampler::new(theirs);
    let client = connect(server, |servers| servers.sampler(sampler)).await;
    let answer = client
        .value("query", json!({"prompt": "Who are you?"}))
        .await;
    assert_eq!(answer["answer"], "From the client.");
    assert!(
        answer.get("session_id").is_none(),
        "this agent keeps no conversations"
    );
    let refused = client
        .call("query", json!({"prompt": "x", "session_id": "s"}))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("keeps no conversations"),
        "{refused}"
    );
}

#[tokio::test]
async fn client_agent_without_client_model_returns_error() {
    let base = Agent::builder(ScriptedModel::new())
        .runtime(runtime())
        .build()
        .unwrap();
    let server = offered(Runs::new(base.clone()))
        .client_agent(move |model: ClientModel| base.to_builder().model(model).build());
    let error = connect_plain(server)
        .await
        .call("query", json!({"prompt": "x"}))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("sampling"), "{error}");
}

#[tokio::test]
async fn documents_can_be_searched_and_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("tides.md", "High water is at six, low water at noon.");
    write(
        "boats.md",
        "The water is deep enough for a boat of four metres.",
    );
    write("secret.log", "High water mark of the log.");
    write(".gitignore", "*.log\n");
    write("image.bin", "high water\0\u{1}");
    let workspace = Workspace::open(folder.path()).unwrap();
    let client = connect_plain(offered(runs(ScriptedModel::new())).workspace(workspace)).await;
    let found = client
        .value("search", json!({"query": "When is high water?"}))
        .await;
    let ids: Vec<_> = found["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["file:tides.md", "file:boats.md"]);
    assert!(
        found["results"][0]["text"]
            .as_str()
            .unwrap()
            .contains("High water")
    );
    let document = client.value("fetch", json!({"id": "file:tides.md"})).await;
    assert_eq!(document["text"], "High water is at six, low water at noon.");
    assert_eq!(
        (&document["title"], &document["url"]),
        (&json!("tides.md"), &json!("workspace:///tides.md"))
    );
    for id in [
        "file:../outside",
        "file:/etc/passwd",
        "file:none",
        "fact:1",
        "file:image.bin",
        "",
        "file:\0",
    ] {
        let error = client
            .call("fetch", json!({"id": id}))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            !error.is_empty() && error.matches("cannot read").count() < 2,
            "{id}: {error}"
        );
    }
    let nothing = client.value("search", json!({"query": "?!"})).await;
    assert_eq!(nothing["results"], json!([]));
}

#[tokio::test]
async fn files_logs_and_prompts_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "one").unwrap();
    std::fs::write(folder.path().join("b.bin"), [0, 159, 146, 150]).unwrap();
    std::fs::write(folder.path().join("c 100%.txt"), "three").unwrap();
    let server = offered(runs(ScriptedModel::new().reply("Yes.")))
        .workspace(Workspace::open(folder.path()).unwrap());
    let client = connect_plain(server).await;
    let run = client.value("query", json!({"prompt": "Is it?"})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let server = client.server();
    let listed: Vec<_> = server
        .resources()
        .await
        .unwrap()
        .into_iter()
        .map(|resource| resource.uri)
        .collect();
    assert_eq!(
        listed,
        [
            &*format!("levity://runs/{run}"),
            "workspace:///a.txt",
            "workspace:///b.bin",
            "workspace:///c%20100%25.txt"
        ]
    );
    for spelt in [
        &*listed[3],
        "workspace:///c 100%.txt",
        "workspace:///c%20100%.txt",
        "workspace:///%63 100%25.txt",
    ] {
        assert_eq!(
            server.read_resource(spelt).await.unwrap()[0]
                .text
                .as_deref(),
            Some("three"),
            "{spelt}"
        );
    }
    let log = server
        .read_resource(&listed[0])
        .await
        .unwrap()
        .remove(0)
        .text
        .unwrap();
    let events: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.last().unwrap()["kind"]["run_ended"]["text"], "Yes.");
    assert_eq!(
        server.read_resource("workspace:///a.txt").await.unwrap()[0]
            .text
            .as_deref(),
        Some("one")
    );
    assert!(
        server.read_resource("workspace:///b.bin").await.unwrap()[0]
            .blob
            .is_some()
    );
    for uri in [
        "workspace:///../x",
        "workspace:///%2e%2e/x",
        "workspace:///%2Fetc/passwd",
        "workspace:////etc/passwd",
        "levity://runs/none",
        "levity://runs/..%2f",
        "other:x",
    ] {
        assert!(server.read_resource(uri).await.is_err(), "{uri}");
    }
    assert_eq!(server.resource_templates().await.unwrap().len(), 2);
    let prompts = server.prompts().await.unwrap();
    assert_eq!(
        (
            prompts[0].name.as_str(),
            prompts[0].arguments[0].name.as_str()
        ),
        ("delegate", "task")
    );
    let filled = server
        .prompt("delegate", json!({"task": "Sweep the deck"}))
        .await
        .unwrap();
    assert!(filled.messages[0].text().contains("Sweep the deck"));
    assert!(server.prompt("delegate", json!({})).await.is_err());
}

#[tokio::test]
async fn query_beyond_the_run_limit_returns_one_error() {
    let runs = runs(ScriptedModel::new().hang()).max_runs(1);
    let _first = runs.start(NewRun::new("Wait")).unwrap();
    let client = connect_plain(offered(runs.clone())).await;
    let error = client
        .call("query", json!({"prompt": "Go"}))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(error.matches("in progress").count(), 1, "{error}");
}

#[tokio::test]
async fn logs_can_be_read_without_a_journal() {
    let agent = Agent::builder(ScriptedModel::new().reply("Yes.").reply("No."))
        .build()
        .unwrap();
    let client = connect_plain(offered(Runs::new(agent))).await;
    let mut ids = Vec::new();
    for answer in ["Yes.", "No."] {
        let told = client.value("query", json!({"prompt": "Is it?"})).await;
        assert_eq!(told["answer"], answer);
        ids.push(format!(
            "levity://runs/{}",
            told["run_id"].as_str().unwrap()
        ));
    }
    let server = client.server();
    let mut listed: Vec<_> = server
        .resources()
        .await
        .unwrap()
        .into_iter()
        .map(|resource| resource.uri)
        .collect();
    listed.sort();
    let log = server
        .read_resource(&ids[1])
        .await
        .unwrap()
        .remove(0)
        .text
        .unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"]["run_ended"]["text"], "No.");
    ids.sort();
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn cancelled_query_ends_its_run() {
    let runs = runs(ScriptedModel::new().hang());
    let client = connect_plain(offered(runs.clone())).await;
    let (server, cx) = (client.server(), ToolCx::detached());
    let call = server.call_with("query", json!({"prompt": "Wait"}), &cx);
    let _ = tokio::time::timeout(Duration::from_millis(300), call)
        .await
        .unwrap_err();
    let ended =
        |run: &levity_core::RunSummary| matches!(run.status, Some(Status::Cancelled { .. }));
    while !runs.list(&RunQuery::new()).await.unwrap().iter().any(ended) {
        tokio::task::yield_now().await;
    }
}

/// A client of a version before 2026-07-28, with literal messages.
struct OldClient {
    lines: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    write: tokio::io::WriteHalf<DuplexStream>,
}

impl OldClient {
    async fn connect(server: &McpServer, tasks: &mut JoinSet<()>, capabilities: Value) -> Self {
        let (read, write) = tokio::io::split(pipe(server, tasks));
        let mut client = Self {
            lines: BufReader::new(read).lines(),
            write,
        };
        let info = json!({"name": "old", "version": "1"});
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
            "clientInfo": info});
        client
            .say(json!({"id": 0, "method": "initialize", "params": params}))
            .await;
        let answer = client.next().await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "levity");
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        client
            .say(json!({"method": "notifications/initialized"}))
            .await;
        client
    }

    async fn say(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.write
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(30), self.lines.next_line()).await;
        serde_json::from_str(&line.expect("it hangs").unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn older_client_gets_questions_and_progress() {
    let script = ScriptedModel::new().call("send", json!({})).reply("Done.");
    let server = offered(runs(script)).build().unwrap();
    let mut tasks = JoinSet::new();
    let mut client = OldClient::connect(&server, &mut tasks, json!({"elicitation": {}})).await;
    let params = json!({"name": "query", "arguments": {"prompt": "Send it"},
        "_meta": {"progressToken": "p"}});
    client
        .say(json!({"id": 1, "method": "tools/call", "params": params}))
        .await;
    let mut progress = Vec::new();
    let answer = loop {
        let message = client.next().await;
        match message["method"].as_str() {
            Some("notifications/progress") => progress.push(message["params"].clone()),
            Some("elicitation/create") => {
                assert!(
                    message["params"]["message"]
                        .as_str()
                        .unwrap()
                        .contains("`send`")
                );
                let result = json!({"action": "accept", "content": {"decision": "allow"}});
                client
                    .say(json!({"id": message["id"], "result": result}))
                    .await;
            }
            _ => break message,
        }
    };
    assert_eq!(answer["result"]["structuredContent"]["answer"], "Done.");
    assert_eq!(
        answer["result"]["structuredContent"]["statistics"]["failed_calls"],
        0
    );
    assert!(
        progress.iter().any(|told| told["message"]
            .as_str()
            .unwrap_or_default()
            .contains("turn 2")),
        "{progress:?}"
    );
    let steps: Vec<_> = progress
        .iter()
        .map(|told| told["progress"].as_f64().unwrap())
        .collect();
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
}

#[tokio::test]
async fn swarm_is_served_like_an_agent() {
    use levity_swarm::{Router, Swarm, Worker};
    let router = ScriptedModel::new()
        .reply(r#"{"delegations": [{"id": "tide", "worker": "pilot", "task": "When?"}]}"#);
    let pilot = Agent::builder(ScriptedModel::new().reply("At six."))
        .build()
        .unwrap();
    let swarm = Swarm::builder(Router::new(router))
        .worker(Worker::new("pilot", "Knows tides.", pilot))
        .runtime(runtime());
    let client = connect_plain(offered(Runs::new(swarm.build().unwrap()))).await;
    let answer = client
        .value("query", json!({"prompt": "When is high water?"}))
        .await;
    assert_eq!(answer["answer"], "At six.");
}
