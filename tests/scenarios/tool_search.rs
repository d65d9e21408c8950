//! An agent with many tools tells its model of few, and lets it find the others.

use std::sync::{Arc, Mutex};

use levity::core::{Finish, History, Journal, Part, Request, Response, Role, ToolCall, ToolSource};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{FunctionModel, RecordingTool, ScriptedModel, Turn, crash};
use serde_json::{Value, json};

use crate::support::{add, assert_whole, runtime};

/// Tools on shelves that can be emptied.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<(u64, Vec<String>)>>);

impl Shelf {
    /// So many tools that do nothing in particular, and three that do.
    fn new(many: usize) -> Self {
        let shelf = Self::default();
        let names = (0..many).map(|n| format!("store_item_{n}"));
        shelf.put(
            names
                .chain(["git_commit", "git_log", "mail_send"].map(str::to_owned))
                .collect(),
        );
        shelf
    }

    fn put(&self, names: Vec<String>) {
        let mut inside = self.0.lock().unwrap();
        *inside = (inside.0 + 1, names);
    }

    fn remove(&self, name: &str) {
        let mut left = self.0.lock().unwrap().1.clone();
        left.retain(|other| other != name);
        self.put(left);
    }
}

impl ToolSource for Shelf {
    fn name(&self) -> &str {
        "shelf"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let tool = |name: &String| {
            let said = format!("{name} was called");
            let tool = RecordingTool::new(name, move |_| Ok(ToolOutput::text(said.clone())));
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
async fn a_model_finds_what_it_needs_and_is_offered_it_from_then_on() {
    let model = ScriptedModel::new()
        .call("find_tools", json!({"query": "commit to git", "limit": 2}))
        .call("git_commit", json!({}))
        .call("find_tools", json!({"query": "sending mails"}))
        .call("mail_send", json!({}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(add)
        .source(Shelf::new(60))
        .audited()
        .build()
        .unwrap();
    let answer = agent.run("Commit, and tell them.").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    assert_whole(answer.history());

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
        "the list is put together once"
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
async fn few_tools_are_all_offered() {
    let offers = async |agent: levity::agent::AgentBuilder, model: &ScriptedModel| {
        let agent = agent.tool(add).build().unwrap();
        agent.run("Go.").await.unwrap();
        offered(&model.requests()[0]).len()
    };
    let model = || ScriptedModel::new().reply("Done.");
    let few = model();
    assert_eq!(
        offers(Agent::builder(few.clone()).source(Shelf::new(36)), &few).await,
        40
    );
    let many = model();
    assert_eq!(
        offers(Agent::builder(many.clone()).source(Shelf::new(37)), &many).await,
        2
    );
    let all = model();
    let agent = Agent::builder(all.clone())
        .source(Shelf::new(60))
        .without_tool_search();
    assert_eq!(offers(agent, &all).await, 64);
    let own = model();
    assert_eq!(
        offers(
            Agent::builder(own.clone())
                .source(Shelf::new(2))
                .tool_search(5),
            &own
        )
        .await,
        2
    );
}

#[tokio::test]
async fn a_tool_can_be_called_without_having_been_found() {
    let model = ScriptedModel::new()
        .call("git_log", json!({}))
        .call("git_lgo", json!({}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .source(Shelf::new(60))
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
    // What was called stands beside its call; what is not there does not.
    assert_eq!(offered(&model.requests()[2]), ["find_tools", "git_log"]);
}

#[tokio::test]
async fn what_is_wrong_with_a_search_is_told() {
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
        .source(Shelf::new(60))
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
async fn a_tool_that_is_gone_is_offered_no_more_and_the_others_keep_their_order() {
    let shelf = Shelf::new(60);
    let (inside, offers) = (shelf.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = offers.clone();
    let model = FunctionModel::new(move |request: &Request| {
        let mut seen = seen.lock().unwrap();
        seen.push(offered(request));
        Ok(match seen.len() {
            1 => calls("find_tools", json!({"query": "git"})),
            2 => {
                inside.remove("git_commit");
                calls("git_commit", json!({}))
            }
            3 => {
                inside.put(Shelf::new(60).0.lock().unwrap().1.clone());
                calls("git_commit", json!({}))
            }
            _ => Response::new(Message::assistant("Done.")),
        })
    });
    let agent = Agent::builder(model)
        .source(shelf)
        .audited()
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
async fn tools_that_come_later_are_searched_as_well() {
    let shelf = Shelf::default();
    let (inside, offers) = (shelf.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = offers.clone();
    shelf.put(vec!["git_log".to_owned()]);
    let model = FunctionModel::new(move |request: &Request| {
        let mut seen = seen.lock().unwrap();
        seen.push(offered(request));
        Ok(match seen.len() {
            1 => {
                inside.put(Shelf::new(60).0.lock().unwrap().1.clone());
                calls("git_log", json!({}))
            }
            2 => {
                // Once there were many, few are no reason to tell of all.
                inside.put(vec!["git_log".to_owned(), "mail_send".to_owned()]);
                calls("add", json!({"a": 1, "b": 2}))
            }
            _ => Response::new(Message::assistant("Done.")),
        })
    });
    let agent = Agent::builder(model)
        .tool(add)
        .source(shelf)
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    let offers = offers.lock().unwrap();
    assert_eq!(offers[0], ["add", "git_log"]);
    assert_eq!(offers[1], ["add", "find_tools", "git_log"]);
    assert_eq!(offers[2], offers[1]);
}

/// Says a lot.
#[tool(read_only)]
async fn spill() -> String {
    "words ".repeat(20_000)
}

/// The reply of a model that goes only by the conversation.
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
        .source(Shelf::new(60))
        .runtime(runtime)
        .audited()
        .build()
        .unwrap()
}

#[tokio::test]
async fn stopped_after_every_record_it_is_offered_the_same() {
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
        assert_whole(answer.history());
        // The one that reads long results keeps its place among those that were found.
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

/// How many messages each request had, and the tools that it offered.
type Offers = Arc<Mutex<Vec<(usize, Vec<String>)>>>;

#[tokio::test]
async fn a_fork_is_offered_what_was_found_before_it() {
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
            .source(Shelf::new(60))
            .runtime(runtime.clone());
        forked
            .audited()
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
async fn a_later_run_is_offered_what_an_earlier_one_found() {
    let offers: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let first = agent(Runtime::new(), &offers).run("Go.").await.unwrap();
    let history: History = first.history().clone();
    let model = ScriptedModel::new().reply("Yes.");
    let later = Agent::builder(model.clone())
        .source(Shelf::new(60))
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
async fn what_was_found_stays_when_the_conversation_is_cut() {
    use levity::memory::Window;
    let model = ScriptedModel::new().call("find_tools", json!({"query": "git"}));
    let model = (0..12)
        .fold(model, |model, _| model.call("spill", json!({})))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(spill)
        .source(Shelf::new(60))
        .window(Window::new().tokens(1_500))
        .without_summaries()
        .max_turns(20)
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    let last = model.requests().pop().unwrap();
    let shown = last
        .history
        .messages()
        .iter()
        .flat_map(|message| message.results());
    let names: Vec<&str> = shown.map(|result| &*result.name).collect();
    assert!(
        !names.is_empty() && !names.contains(&"find_tools"),
        "{names:?}"
    );
    assert_eq!(
        offered(&last)[..4],
        ["spill", "find_tools", "git_commit", "git_log"]
    );
}

/// Has the name of the one that finds others.
#[tool(read_only)]
async fn find_tools() -> String {
    "my own".to_owned()
}

#[tokio::test]
async fn a_tool_of_the_same_name_keeps_it() {
    let model = ScriptedModel::new()
        .call("find_tools", json!({}))
        .call("levity_find_tools", json!({"query": "mail"}))
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(find_tools)
        .source(Shelf::new(60))
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
