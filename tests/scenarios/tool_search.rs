//! An agent with many tools offers only a few to its model, and lets it search for the others.

use std::sync::{Arc, Mutex};

use levity::core::{Finish, History, Journal, Part, Request, Response, Role, ToolCall, ToolSource};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{FunctionModel, RecordingTool, ScriptedModel, Turn, crash};
use serde_json::{Value, json};

use crate::support::{add, assert_complete, runtime};

/// A tool source whose tools can be removed.
#[derive(Clone, Default)]
struct TestTools(Arc<Mutex<(u64, Vec<String>)>>);

impl TestTools {
    /// Creates a source with `many` generic tools and three specific ones.
    fn new(many: usize) -> Self {
        let source = Self::default();
        let names = (0..many).map(|n| format!("store_item_{n}"));
        source.replace(
            names
                .chain(["git_commit", "git_log", "mail_send"].map(str::to_owned))
                .collect(),
        );
        source
    }

    fn replace(&self, names: Vec<String>) {
        let mut state = self.0.lock().unwrap();
        *state = (state.0 + 1, names);
    }

    fn remove(&self, name: &str) {
        let mut remaining = self.0.lock().unwrap().1.clone();
        remaining.retain(|other| other != name);
        self.replace(remaining);
    }
}

impl ToolSource for TestTools {
    fn name(&self) -> &str {
        "shelf"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let tool = |name: &String| {
            let reply = format!("{name} was called");
            let tool = RecordingTool::new(name, move |_| Ok(ToolOutput::text(reply.clone())));
            Arc::new(tool.with_hints(levity::core::Hints::new().read_only())) as Arc<dyn Tool>
        };
        self.0.lock().unwrap().1.iter().map(tool).collect()
    }

    fn version(&self) -> u64 {
        self.0.lock().unwrap().0
    }

    fn part(&self, tool: &str) -> Option<String> {
        tool.split('_').next().map(str::to_owned)
    }
}

fn offered(request: &Request) -> Vec<String> {
    request.tools.iter().map(|spec| spec.name.clone()).collect()
}

fn calls(name: &str, args: Value) -> Response {
    let message = Message::new(
        Role::Assistant,
        [Part::ToolCall(ToolCall::new("", name, args))],
    );
    Response::new(message).with_finish(Finish::ToolCalls)
}

#[tokio::test]
async fn found_tools_are_offered_in_later_requests() {
    let model = ScriptedModel::new()
        .call("find_tools", json!({"query": "commit to git", "limit": 2}))
        .call("git_commit", json!({}))
        .call("find_tools", json!({"query": "sending mails"}))
        .call("mail_send", json!({}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(add)
        .source(TestTools::new(60))
        .verify_replay()
        .build()
        .unwrap();
    let answer = agent.run("Commit, and tell them.").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    assert_complete(answer.history());

    let requests = model.requests();
    let offers: Vec<_> = requests.iter().map(offered).collect();
    assert_eq!(offers[0], ["add", "find_tools"]);
    assert_eq!(offers[1], ["add", "find_tools", "git_commit", "git_log"]);
    assert_eq!(offers[2], offers[1]);
    assert_eq!(
        offers[3],
        ["add", "find_tools", "git_commit", "git_log", "mail_send"]
    );
    assert_eq!(offers[4], offers[3]);
    assert!(
        Arc::ptr_eq(&requests[1].tools, &requests[2].tools),
        "the list of tools must be shared"
    );
    let about = &requests[0].tools[1].description;
    assert!(
        about.ends_with("There are tools of `store` (60), `git` (2), `mail` (1)."),
        "{about}"
    );

    let results: Vec<_> = answer
        .history()
        .calls()
        .map(|(_, result)| result.clone())
        .collect();
    let found = results[0].value.as_ref().unwrap();
    assert_eq!(found["tools"][0]["name"], "git_commit");
    assert_eq!(found["tools"][0]["input"]["type"], "object");
    assert_eq!(results[1].text(), "git_commit was called");
}

#[tokio::test]
async fn tools_below_threshold_are_all_offered() {
    let offers = async |agent: levity::agent::AgentBuilder, model: &ScriptedModel| {
        let agent = agent.tool(add).build().unwrap();
        agent.run("Go.").await.unwrap();
        offered(&model.requests()[0]).len()
    };
    let model = || ScriptedModel::new().reply("Done.");
    let few = model();
    assert_eq!(
        offers(Agent::builder(few.clone()).source(TestTools::new(36)), &few).await,
        40
    );
    let many = model();
    assert_eq!(
        offers(
            Agent::builder(many.clone()).source(TestTools::new(37)),
            &many
        )
        .await,
        2
    );
    let all = model();
    let agent = Agent::builder(all.clone())
        .source(TestTools::new(60))
        .without_tool_search();
    assert_eq!(offers(agent, &all).await, 64);
    let own = model();
    assert_eq!(
        offers(
            Agent::builder(own.clone())
                .source(TestTools::new(2))
                .tool_search(5),
            &own
        )
        .await,
        2
    );
}

#[tokio::test]
async fn tool_can_be_called_without_search() {
    let model = ScriptedModel::new()
        .call("git_log", json!({}))
        .call("git_lgo", json!({}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .source(TestTools::new(60))
        .build()
        .unwrap();
    let answer = agent.run("What was done?").await.unwrap();
    let results: Vec<_> = answer
        .history()
        .calls()
        .map(|(_, result)| result.text().into_owned())
        .collect();
    assert_eq!(results[0], "git_log was called");
    assert_eq!(
        results[1],
        "there is no tool `git_lgo`; did you mean `git_log`?\nlook for one with `find_tools`"
    );
    // A called tool is offered beside its call, but a missing tool is not.
    assert_eq!(offered(&model.requests()[2]), ["find_tools", "git_log"]);
}

#[tokio::test]
async fn invalid_search_returns_error_to_model() {
    let turn = Turn::new()
        .call("find_tools", json!({}))
        .call("find_tools", json!({"query": "x", "limit": 0}))
        .call("find_tools", json!({"query": "quantum entanglement"}))
        .call(
            "find_tools",
            json!({"query": "store items", "limit": 1_000}),
        );
    let model = ScriptedModel::new().turn(turn).reply("Done.");
    let agent = Agent::builder(model.clone())
        .source(TestTools::new(60))
        .build()
        .unwrap();
    let answer = agent.run("Go.").await.unwrap();
    let results: Vec<_> = answer
        .history()
        .calls()
        .map(|(_, result)| result.clone())
        .collect();
    assert_eq!(
        results[0].text(),
        "`query` must describe in words what the tool should do"
    );
    assert_eq!(
        results[1].text(),
        "`limit` must be a whole number, 1 or more"
    );
    let none = results[2].value.as_ref().unwrap();
    assert_eq!(none["tools"], json!([]));
    assert!(none["note"].as_str().unwrap().contains("`git` (2)"));
    assert_eq!(
        results[3].value.as_ref().unwrap()["tools"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
}

#[tokio::test]
async fn removed_tool_is_not_offered_and_order_stays() {
    let source = TestTools::new(60);
    let (state, offers) = (source.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = offers.clone();
    let model = FunctionModel::new(move |request: &Request| {
        let mut seen = seen.lock().unwrap();
        seen.push(offered(request));
        Ok(match seen.len() {
            1 => calls("find_tools", json!({"query": "git"})),
            2 => {
                state.remove("git_commit");
                calls("git_commit", json!({}))
            }
            3 => {
                state.replace(TestTools::new(60).0.lock().unwrap().1.clone());
                calls("git_commit", json!({}))
            }
            _ => Response::new(Message::assistant("Done.")),
        })
    });
    let agent = Agent::builder(model)
        .source(source)
        .verify_replay()
        .build()
        .unwrap();
    let answer = agent.run("Go.").await.unwrap();
    let offers = offers.lock().unwrap();
    assert_eq!(offers[1], ["find_tools", "git_commit", "git_log"]);
    assert_eq!(offers[2], ["find_tools", "git_log"]);
    assert_eq!(offers[3], offers[1]);
    let results: Vec<_> = answer
        .history()
        .calls()
        .map(|(_, result)| result.clone())
        .collect();
    assert!(
        results[1]
            .text()
            .starts_with("there is no tool `git_commit`"),
        "{}",
        results[1].text()
    );
    assert_eq!(results[2].text(), "git_commit was called");
}

#[tokio::test]
async fn tools_added_later_are_searchable() {
    let source = TestTools::default();
    let (state, offers) = (source.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = offers.clone();
    source.replace(vec!["git_log".to_owned()]);
    let model = FunctionModel::new(move |request: &Request| {
        let mut seen = seen.lock().unwrap();
        seen.push(offered(request));
        Ok(match seen.len() {
            1 => {
                state.replace(TestTools::new(60).0.lock().unwrap().1.clone());
                calls("git_log", json!({}))
            }
            2 => {
                // After the source had many tools, a small number does not switch the search off.
                state.replace(vec!["git_log".to_owned(), "mail_send".to_owned()]);
                calls("add", json!({"a": 1, "b": 2}))
            }
            _ => Response::new(Message::assistant("Done.")),
        })
    });
    let agent = Agent::builder(model)
        .tool(add)
        .source(source)
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    let offers = offers.lock().unwrap();
    assert_eq!(offers[0], ["add", "git_log"]);
    assert_eq!(offers[1], ["add", "find_tools", "git_log"]);
    assert_eq!(offers[2], offers[1]);
}

/// Returns a long text.
#[tool(read_only)]
async fn spill() -> String {
    "words ".repeat(20_000)
}

/// Returns the reply of a model that depends only on the conversation.
fn next(request: &Request) -> Response {
    match request.history.calls().count() {
        0 => calls("find_tools", json!({"query": "git", "limit": 2})),
        1 => calls("spill", json!({})),
        2 => calls("find_tools", json!({"query": "mail"})),
        3 => calls("git_commit", json!({})),
        _ => Response::new(Message::assistant("Done.")),
    }
}

fn agent(runtime: Runtime, offers: &Arc<Mutex<Vec<Vec<String>>>>) -> Agent {
    let offers = offers.clone();
    let model = FunctionModel::new(move |request: &Request| {
        offers.lock().unwrap().push(offered(request));
        Ok(next(request))
    });
    Agent::builder(model)
        .tool(spill)
        .source(TestTools::new(60))
        .runtime(runtime)
        .verify_replay()
        .build()
        .unwrap()
}

#[tokio::test]
async fn run_stopped_after_any_record_offers_same_tools() {
    let full = [
        "spill",
        "find_tools",
        "git_commit",
        "git_log",
        "read_result",
        "mail_send",
    ];
    let report = crash::after_every_record(MemoryJournal::new, async |life| {
        let offers = Arc::default();
        let agent = agent(Runtime::new().with_journal(life.journal.clone()), &offers);
        let answer = match life.knows("r").await {
            true => agent.resume("r").await.unwrap(),
            false => agent.run("Go.").id("r").await.unwrap(),
        };
        assert_complete(answer.history());
        // `read_result` keeps its place among the found tools.
        let steps = [&full[..2], &full[..4], &full[..5], &full[..]];
        for names in &*offers.lock().unwrap() {
            assert!(steps.iter().any(|step| names == step), "{names:?}");
        }
        let replayed = agent.replay(answer.run()).await.unwrap();
        assert_eq!(replayed.machine.history(), answer.history());
        let records = life.journal.read(answer.run()).await.unwrap();
        let inputs: std::collections::BTreeMap<String, Value> = records
            .iter()
            .filter_map(|record| match &record.entry {
                levity::core::Entry::Started { effect, note } => Some((
                    effect.to_string(),
                    serde_json::to_value(&note.inputs).unwrap(),
                )),
                _ => None,
            })
            .collect();
        (
            answer.text().to_owned(),
            serde_json::to_string(answer.history()).unwrap(),
            inputs,
        )
    })
    .await;
    report.assert_same();
}

/// The number of messages and the offered tools of each request.
type Offers = Arc<Mutex<Vec<(usize, Vec<String>)>>>;

#[tokio::test]
async fn fork_offers_tools_found_before_it() {
    let (runtime, journal) = runtime();
    agent(runtime.clone(), &Arc::default())
        .run("Go.")
        .id("old")
        .await
        .unwrap();
    let full = [
        "spill",
        "find_tools",
        "git_commit",
        "git_log",
        "read_result",
        "mail_send",
    ];
    let mut asked = 0;
    for after in 0..journal.records(&"old".into()).len() as u64 - 2 {
        let offers: Offers = Arc::default();
        let seen = offers.clone();
        let model = FunctionModel::new(move |request: &Request| {
            seen.lock()
                .unwrap()
                .push((request.history.calls().count(), offered(request)));
            Ok(next(request))
        });
        let forked = Agent::builder(model)
            .tool(spill)
            .source(TestTools::new(60))
            .runtime(runtime.clone());
        forked
            .verify_replay()
            .build()
            .unwrap()
            .fork("old")
            .after(after)
            .await
            .unwrap();
        for (calls, names) in &*offers.lock().unwrap() {
            let known = [2, 4, 5, 6, 6][*calls];
            assert_eq!(names, &full[..known], "after {after}, with {calls} calls");
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
}

#[tokio::test]
async fn later_run_offers_tools_found_earlier() {
    let offers: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let first = agent(Runtime::new(), &offers).run("Go.").await.unwrap();
    let history: History = first.history().clone();
    let model = ScriptedModel::new().reply("Yes.");
    let later = Agent::builder(model.clone())
        .source(TestTools::new(60))
        .build()
        .unwrap();
    later.run("Is it done?").history(history).await.unwrap();
    let names = offered(&model.requests()[0]);
    assert_eq!(
        names,
        [
            "find_tools",
            "git_commit",
            "git_log",
            "mail_send",
            "read_result"
        ]
    );
}

#[tokio::test]
async fn found_tools_stay_after_compaction() {
    use levity::memory::Window;
    let model = ScriptedModel::new().call("find_tools", json!({"query": "git"}));
    let model = (0..12)
        .fold(model, |model, _| model.call("spill", json!({})))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(spill)
        .source(TestTools::new(60))
        .window(Window::new().tokens(1_500))
        .without_summaries()
        .max_turns(20)
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    let last = model.requests().pop().unwrap();
    let offered_tools = last
        .history
        .messages()
        .iter()
        .flat_map(|message| message.results());
    let names: Vec<&str> = offered_tools.map(|result| &*result.name).collect();
    assert!(
        !names.is_empty() && !names.contains(&"find_tools"),
        "{names:?}"
    );
    assert_eq!(
        offered(&last)[..4],
        ["spill", "find_tools", "git_commit", "git_log"]
    );
}

/// Has the name of the search tool of levity.
#[tool(read_only)]
async fn find_tools() -> String {
    "my own".to_owned()
}

#[tokio::test]
async fn custom_find_tools_tool_keeps_its_name() {
    let model = ScriptedModel::new()
        .call("find_tools", json!({}))
        .call("levity_find_tools", json!({"query": "mail"}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(find_tools)
        .source(TestTools::new(60))
        .build()
        .unwrap();
    let answer = agent.run("Go.").await.unwrap();
    let (_, first) = answer.history().calls().next().unwrap();
    assert_eq!(first.text(), "my own");
    assert_eq!(
        offered(&model.requests()[2]),
        ["find_tools", "levity_find_tools", "mail_send"]
    );
}
