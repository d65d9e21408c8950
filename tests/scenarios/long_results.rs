//! Long tool results are stored with the run. The model reads them in parts: after a crash, in
//! another process, or in a later run of the conversation.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use levity::core::{Digest, Entry, Finish, History, Journal, Record, Request, Response, ToolCall};
use levity::prelude::*;
use levity::runtime::{Durability, FileJournal, MemoryJournal};
use levity::test::{FunctionModel, ScriptedModel, Turn, crash};
use serde_json::{Value, json};

use crate::support::{add, assert_complete};

/// Returns the output of `dump`: about 100 KB, with characters of one to four bytes.
fn dumped() -> String {
    (0..9_000).map(|n| format!("{n} aé😀€\n")).collect()
}

/// Returns a long text.
#[tool(read_only)]
async fn dump() -> String {
    dumped()
}

/// The names of the offered tools, for each request.
type Offers = Arc<Mutex<Vec<Vec<String>>>>;

/// Returns the reply of a model that calls `dump` and reads the whole result. It depends only on
/// the conversation.
fn read_all(request: &Request) -> Response {
    let results: Vec<_> = request.history.calls().map(|(_, result)| result).collect();
    let Some((first, pieces)) = results.split_first() else {
        return calls("dump", json!({}));
    };
    let Some(last) = pieces.last() else {
        assert!(first.text().contains(&format!(
            "`read_result` {{\"id\": \"{}\", \"offset\": ",
            first.call
        )));
        return calls("read_result", json!({"id": first.call}));
    };
    let text = last.text();
    if let Some((_, next)) = text.rsplit_once("read on at ") {
        let next: usize = next.trim_end_matches(']').parse().unwrap();
        return calls("read_result", json!({"id": first.call, "offset": next}));
    }
    let read: String = pieces
        .iter()
        .map(|piece| piece.text().rsplit_once("\n[bytes ").unwrap().0.to_owned())
        .collect();
    assert!(text.ends_with("; this is the end]"));
    let reply = if read == dumped() {
        "I have read it all."
    } else {
        "Something is missing."
    };
    Response::new(Message::assistant(reply))
}

fn calls(name: &str, args: Value) -> Response {
    let call = levity::core::Part::ToolCall(ToolCall::new("", name, args));
    let message = Message::new(levity::core::Role::Assistant, [call]);
    Response::new(message).with_finish(Finish::ToolCalls)
}

fn agent(offers: &Offers, runtime: Runtime) -> Agent {
    let offers = offers.clone();
    let model = FunctionModel::new(move |request| {
        let names = request.tools.iter().map(|spec| spec.name.clone()).collect();
        offers.lock().unwrap().push(names);
        Ok(read_all(request))
    });
    Agent::builder(model)
        .tool(dump)
        .max_turns(20)
        .runtime(runtime)
        .build()
        .unwrap()
}

async fn run_or_resume(agent: &Agent, known: bool) -> Answer {
    let answer = if known {
        agent.resume("r").await
    } else {
        agent.run("Read it.").id("r").await
    };
    let answer = answer.unwrap();
    assert_complete(answer.history());
    answer
}

/// Returns the digests of the inputs of each effect, including the offered tools.
fn inputs(records: &[Record]) -> BTreeMap<String, Vec<(String, Digest)>> {
    let started = records.iter().filter_map(|record| match &record.entry {
        Entry::Started { effect, note } => Some((effect.to_string(), note.inputs.clone())),
        _ => None,
    });
    started.collect()
}

#[tokio::test]
async fn run_stopped_after_any_record_reads_whole_result() {
    let report = crash::after_every_record(MemoryJournal::new, async |life| {
        let offers = Offers::default();
        let agent = agent(&offers, Runtime::new().with_journal(life.journal.clone()));
        let known = life.knows("r").await;
        let answer = run_or_resume(&agent, known).await;
        let replayed = agent.replay(answer.run()).await.unwrap();
        assert_eq!(replayed.machine.history(), answer.history());
        let records = life.journal.read(answer.run()).await.unwrap();
        for names in &*offers.lock().unwrap() {
            assert!(
                matches!(&names[..], [one] if one == "dump")
                    || names[..] == ["dump", "read_result"]
            );
        }
        let history = serde_json::to_string(answer.history()).unwrap();
        (answer.text().to_owned(), history, inputs(&records))
    })
    .await;
    report.assert_same();
    let (text, history, inputs) = &report.whole.value;
    assert_eq!(text, "I have read it all.");
    assert!(history.contains("\"whole\":\"0 aé"));
    let tools: Vec<&Digest> = inputs
        .values()
        .flatten()
        .filter(|(name, _)| name == "tools")
        .map(|(_, digest)| digest)
        .collect();
    assert!(tools.len() >= 5, "{tools:?}");
    assert!(
        tools[0] != tools[1] && tools[1..].iter().all(|digest| *digest == tools[1]),
        "{tools:?}"
    );
}

const CHILD: &str = "LEVITY_TEST_LONG_RESULTS";

fn file_runtime(folder: &Path) -> Runtime {
    let journal = FileJournal::new(folder)
        .unwrap()
        .with_durability(Durability::Buffered);
    Runtime::new().with_journal(journal)
}

/// The process that is killed. It reads two parts, reports that, and waits.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let model = FunctionModel::new(|request: &Request| {
        if request.history.calls().count() == 3 {
            println!("stopped");
            loop {
                std::thread::park();
            }
        }
        Ok(read_all(request))
    });
    let agent = Agent::builder(model)
        .tool(dump)
        .max_turns(20)
        .runtime(file_runtime(&folder))
        .build()
        .unwrap();
    let _ = agent.run("Read it.").id("r").await;
}

#[tokio::test]
async fn new_process_continues_reading_after_kill() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("long-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "long_results::child", "--nocapture"])
        .env(CHILD, &folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let stopped = lines.any(|line| line.contains("stopped"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stopped);

    let offers = Offers::default();
    let agent = agent(&offers, file_runtime(&folder));
    let answer = run_or_resume(&agent, true).await;
    assert_eq!(answer.text(), "I have read it all.");
    assert!(
        offers
            .lock()
            .unwrap()
            .iter()
            .all(|names| names[..] == ["dump", "read_result"])
    );
    let replayed = agent.replay(answer.run()).await.unwrap();
    assert_eq!(replayed.machine.history(), answer.history());
    let _ = fs::remove_dir_all(folder);
}

/// Returns the results of the calls in the last turn with calls.
async fn results(agent: &Agent, history: History) -> Vec<(bool, String)> {
    let answer = agent.run("Go on.").history(history).await.unwrap();
    let tools = answer
        .history()
        .messages()
        .iter()
        .rev()
        .find(|message| message.results().next().is_some());
    let results = tools.unwrap().results();
    results
        .map(|result| (result.is_error(), result.text().into_owned()))
        .collect()
}

#[tokio::test]
async fn later_run_reads_long_result_of_earlier_run() {
    let turn = Turn::new()
        .call_with_id("d", "dump", json!({}))
        .call_with_id("a", "add", json!({"a": 2, "b": 5}));
    let first = ScriptedModel::new().turn(turn).reply("Done.");
    let agent = Agent::builder(first).tool(dump).tool(add).build().unwrap();
    let history = agent.run("Go.").await.unwrap().history().clone();

    // The agent has no tools, but can still read the result.
    let turn = Turn::new()
        .call("read_result", json!({"id": "d", "offset": 5, "length": 7}))
        .call("read_result", json!({"id": "a"}))
        .call("read_result", json!({"id": "x"}))
        .call("read_result", json!({"id": "d", "offset": "5"}))
        .call_with_id("self", "read_result", json!({"id": "self"}));
    let model = ScriptedModel::new().turn(turn).reply("Read.");
    let agent = Agent::builder(model.clone()).build().unwrap();
    let results = results(&agent, history).await;
    let total = dumped().len();
    let expected = [
        (
            false,
            format!(
                "{}\n[bytes 5 to 12 of {total}; read on at 12]",
                &dumped()[5..12]
            ),
        ),
        (
            false,
            "7.0\n[bytes 0 to 3 of 3; this is the end]".to_owned(),
        ),
        (
            true,
            "nothing is kept under `x`; use the id named where the result was cut".to_owned(),
        ),
        (
            true,
            "`offset` must be a whole number, 0 or more".to_owned(),
        ),
        (
            true,
            "the call `self` has no result yet; read it in a later turn".to_owned(),
        ),
    ];
    assert_eq!(results, expected);
    assert!(
        model
            .requests()
            .iter()
            .all(|request| request.tools.last().unwrap().name == "read_result")
    );
}

/// Has the name of a tool of levity.
#[tool(read_only)]
async fn read_result() -> String {
    "my own".to_owned()
}

#[tokio::test]
async fn custom_read_result_tool_keeps_its_name() {
    let model = ScriptedModel::new()
        .turn(Turn::new().call_with_id("d", "dump", json!({})))
        .turn(
            Turn::new()
                .call("read_result", json!({}))
                .call("levity_read_result", json!({"id": "d", "length": 4})),
        )
        .reply("Done.");
    let agent = Agent::builder(model.clone())
        .tool(dump)
        .tool(read_result)
        .build()
        .unwrap();
    let results = results(&agent, History::new()).await;
    assert_eq!(results[0], (false, "my own".to_owned()));
    assert!(
        results[1].1.starts_with("0 a\n[bytes 0 to 3 of ") && !results[1].0,
        "{results:?}"
    );
    let names: Vec<_> = model.requests()[1]
        .tools
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    assert_eq!(names, ["dump", "read_result", "levity_read_result"]);
    let requests = model.requests();
    assert!(
        Arc::ptr_eq(&requests[1].tools, &requests[2].tools),
        "the list of tools must be shared"
    );
}
