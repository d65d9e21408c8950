//! Invalid input: tools, models and journals that misbehave.

use std::time::Duration;

use levity::core::{
    Approver, Ask, Finish, ModelErrorKind, RunId, Status, ToolChoice, ToolErrorKind, ToolResult,
};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{FaultyJournal, FaultyTool, ManualWorld, RecordingTool, ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::{Value, json};

use crate::support::{add, assert_complete, broken};

/// Returns the result of a tool call, after which the run continues to its answer.
async fn result_of(tool: impl Tool + 'static, name: &str, args: Value) -> ToolResult {
    run_turn(tool, Turn::new().call(name, args)).await
}

async fn run_turn(tool: impl Tool + 'static, turn: Turn) -> ToolResult {
    let runtime = Runtime::new().with_world(ManualWorld::auto());
    let model = ScriptedModel::new().turn(turn).reply("So be it.");
    let agent = Agent::builder(model)
        .tool(tool)
        .runtime(runtime)
        .build()
        .unwrap();
    let answer = agent.run("Try it").await.unwrap();
    assert_eq!(answer.text(), "So be it.");
    assert_complete(answer.history());
    let (_, result) = answer.history().calls().next().unwrap();
    result.clone()
}

#[track_caller]
fn check(result: &ToolResult, kind: ToolErrorKind, part: &str) {
    assert_eq!(result.error, Some(kind), "{}", result.text());
    assert!(result.text().contains(part), "{}", result.text());
}

#[tokio::test]
async fn invalid_arguments_are_reported_by_path() {
    let result = result_of(add, "add", json!({"a": "two", "c": 1})).await;
    check(&result, ToolErrorKind::InvalidArgs, "/a");
    check(&result, ToolErrorKind::InvalidArgs, "\"b\"");
    check(&result, ToolErrorKind::InvalidArgs, "\"c\"");
}

#[tokio::test]
async fn arguments_that_are_not_json_are_reported() {
    let result = run_turn(add, Turn::new().raw_call("add", "{\"a\": 2,")).await;
    check(&result, ToolErrorKind::InvalidArgs, "not valid JSON");
}

#[tokio::test]
async fn unknown_tool_error_suggests_similar_name() {
    let result = result_of(add, "ad", json!({})).await;
    check(&result, ToolErrorKind::NotFound, "did you mean `add`?");
}

#[tokio::test]
async fn tool_panic_is_returned_as_failure() {
    let tool = FaultyTool::panics();
    let name = tool.spec().name.clone();
    check(
        &result_of(tool, &name, json!({})).await,
        ToolErrorKind::Failed,
        "panicked",
    );
}

#[tokio::test]
async fn hanging_tool_times_out() {
    let tool = FaultyTool::hangs();
    let name = tool.spec().name.clone();
    check(
        &result_of(tool, &name, json!({})).await,
        ToolErrorKind::Timeout,
        "60",
    );
}

#[tokio::test]
async fn tool_output_that_violates_schema_is_rejected() {
    let tool = FaultyTool::wrong_output();
    let name = tool.spec().name.clone();
    let result = result_of(tool, &name, json!({})).await;
    check(&result, ToolErrorKind::InvalidOutput, "does not match");
}

#[tokio::test]
async fn huge_tool_result_is_truncated_and_offered_in_parts() {
    let tool = FaultyTool::huge(50 << 20);
    let name = tool.spec().name.clone();
    let model = ScriptedModel::new().call(&name, json!({})).reply("A lot.");
    let agent = Agent::builder(model.clone()).tool(tool).build().unwrap();
    let answer = agent.run("Try it").await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert!(!result.is_error());
    assert!(result.text().len() < 40_000, "{}", result.text().len());
    assert!(result.text().contains("read_result"));
    let offered = |at: usize| {
        model.requests()[at]
            .tools
            .iter()
            .any(|spec| spec.name == "read_result")
    };
    assert_eq!((offered(0), offered(1)), (false, true));
}

#[tokio::test]
async fn failing_call_does_not_affect_other_calls() {
    let turn = Turn::new()
        .call("add", json!({"a": 1, "b": 1}))
        .call("broken", json!({}))
        .call("nonsense", json!({}))
        .call("add", json!({"a": 2, "b": 2}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("2 and 4"))
        .tool(add)
        .tool(broken)
        .build();
    let answer = agent.unwrap().run("Try them").await.unwrap();
    let results: Vec<_> = answer
        .history()
        .calls()
        .map(|(_, result)| result.error)
        .collect();
    assert_eq!(
        results,
        [
            None,
            Some(ToolErrorKind::Failed),
            Some(ToolErrorKind::NotFound),
            None
        ]
    );
    assert_eq!(
        (answer.stats().tool_calls, answer.stats().failed_calls),
        (4, 2)
    );
}

/// Returns the error that the behaviour of a model causes. The error contains the state of the run.
async fn error_of(model: ScriptedModel) -> levity::Error {
    let runtime = Runtime::new().with_world(ManualWorld::auto());
    let agent = Agent::builder(model)
        .tool(add)
        .runtime(runtime)
        .build()
        .unwrap();
    let error = agent.run("Try it").await.unwrap_err();
    let partial: Answer = error.partial_as().expect("the error contains the state");
    assert_complete(partial.history());
    assert!(!partial.history().is_empty());
    error
}

#[tokio::test]
async fn empty_replies_are_retried_and_then_fail_run() {
    let model = ScriptedModel::new()
        .turn(Turn::new())
        .turn(Turn::new().thinking("…"))
        .turn(Turn::new());
    let error = error_of(model).await;
    assert!(matches!(error, levity::Error::Behaviour { .. }), "{error}");

    let model = ScriptedModel::new().turn(Turn::new()).reply("Sorry: yes.");
    let agent = Agent::builder(model.clone()).build().unwrap();
    assert_eq!(agent.run("Well?").await.unwrap().text(), "Sorry: yes.");
    assert!(
        model.requests()[1]
            .history
            .messages()
            .last()
            .unwrap()
            .text()
            .contains("empty")
    );
}

#[tokio::test]
async fn model_failure_hang_or_panic_returns_error_kind() {
    #[track_caller]
    fn check(error: levity::Error, expected: ModelErrorKind) {
        let levity::Error::Model { source, partial } = error else {
            panic!("{error}")
        };
        assert_eq!(source.kind(), expected);
        assert_eq!(partial.stats().tool_calls, 1);
    }
    let after_first_call = || ScriptedModel::new().call("add", json!({"a": 1, "b": 1}));
    check(
        error_of(after_first_call().fail(ModelErrorKind::Overloaded)).await,
        ModelErrorKind::Overloaded,
    );
    check(
        error_of(after_first_call().hang()).await,
        ModelErrorKind::Timeout,
    );
    check(
        error_of(after_first_call().panic("a bug")).await,
        ModelErrorKind::Malformed,
    );
    let filtered = after_first_call().turn(Turn::new().finish(Finish::ContentFilter));
    check(error_of(filtered).await, ModelErrorKind::ContentFiltered);
}

#[tokio::test]
async fn looping_model_is_warned_and_then_must_answer() {
    let model = ScriptedModel::looping(Turn::new().call("broken", json!({})));
    let agent = Agent::builder(model.clone())
        .tool(broken)
        .max_turns(4)
        .build()
        .unwrap();
    let error = agent.run("Try it").await.unwrap_err();
    let partial: Answer = error.partial_as().unwrap();
    assert!(matches!(
        partial.status(),
        Status::Partial(levity::core::Limit::Turns)
    ));
    assert_complete(partial.history());
    let notes: Vec<String> = partial
        .history()
        .messages()
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("has now failed 2 times in the same way")),
        "{notes:?}"
    );
    assert!(
        notes
            .iter()
            .any(|note| note.contains("Every tool call of this turn failed"))
    );
    assert!(notes.iter().any(|note| note.contains("last turn")));
    assert_eq!(
        model.requests()[3].tool_choice,
        ToolChoice::None,
        "tools are withheld on the last turn"
    );
}

#[tokio::test]
async fn malformed_calls_fail_without_ending_run() {
    let turn = Turn::new()
        .call_with_id("x", "", json!(null))
        .call_with_id("x", "add", json!([1]))
        .call_with_id("", "add", json!("2"));
    let model = ScriptedModel::new()
        .turn(turn.clone())
        .turn(turn)
        .reply("I give up.");
    let agent = Agent::builder(model).tool(add).build().unwrap();
    let answer = agent.run("Try it").await.unwrap();
    assert_complete(answer.history());
    assert_eq!(answer.stats().failed_calls, 6);
}

#[tokio::test]
async fn tool_timeout_hint_replaces_default() {
    let tool = FaultyTool::hangs()
        .with_hints(levity::core::Hints::new().timeout(Duration::from_millis(1500)));
    let name = tool.spec().name.clone();
    check(
        &result_of(tool, &name, json!({})).await,
        ToolErrorKind::Timeout,
        "1.5",
    );
}

#[tokio::test]
async fn empty_replies_between_calls_do_not_add_up() {
    let turns =
        |model: ScriptedModel, _| model.turn(Turn::new()).call("add", json!({"a": 1, "b": 1}));
    let model = (0..3).fold(ScriptedModel::new(), turns).reply("Done.");
    let agent = Agent::builder(model)
        .tool(add)
        .max_turns(20)
        .build()
        .unwrap();
    agent.run("Try it").await.unwrap();
}

#[tokio::test]
async fn executed_call_stays_in_history_when_journal_fails() {
    let tool = RecordingTool::new("act", |_: &Value| Ok(ToolOutput::text("ok")));
    // The four records are: run opened, model called, model finished, tool called. The result has
    // no place.
    let journal = FaultyJournal::new(MemoryJournal::new()).stop_after_records(4);
    let agent = Agent::builder(ScriptedModel::new().call("act", json!({})).reply("Done."))
        .tool(tool.clone())
        .runtime(Runtime::new().with_journal(journal))
        .build()
        .unwrap();
    let error = agent.run("Try it").await.unwrap_err();
    assert_eq!(tool.calls().len(), 1);
    let partial: Answer = error.partial_as().unwrap();
    let history = partial.history();
    assert_complete(history);
    assert_eq!(
        history.calls().count(),
        1,
        "the executed call is missing in the history"
    );
}

#[tokio::test]
async fn error_debug_output_omits_prompt() {
    let model = ScriptedModel::new().fail(ModelErrorKind::Auth);
    let agent = Agent::builder(model)
        .instructions("Be brief.")
        .build()
        .unwrap();
    let error = agent.run("my secret prompt").await.unwrap_err();
    assert!(!format!("{error:?}").contains("secret prompt"));
}

/// Returns all copies of a value in which one number has its maximum value.
fn with_maximum_numbers(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(_) => vec![json!(u64::MAX), json!(u32::MAX)],
        Value::Array(list) => {
            let put = |at: usize, new| {
                let mut list = list.clone();
                list[at] = new;
                Value::Array(list)
            };
            list.iter()
                .enumerate()
                .flat_map(|(at, part)| {
                    with_maximum_numbers(part)
                        .into_iter()
                        .map(move |new| put(at, new))
                })
                .collect()
        }
        Value::Object(map) => {
            let put = |key: &String, new| {
                let mut map = map.clone();
                map.insert(key.clone(), new);
                Value::Object(map)
            };
            map.iter()
                .flat_map(|(key, part)| {
                    with_maximum_numbers(part)
                        .into_iter()
                        .map(move |new| put(key, new))
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn resume_with_maximum_numbers_does_not_overflow() {
    use levity::core::{Entry, Journal as _};
    let script = || {
        let turn = Turn::new()
            .thinking("Hm.")
            .call("add", json!({"a": 1, "b": 1}))
            .call("nothing", json!({}));
        ScriptedModel::new()
            .turn(turn)
            .reply("")
            .reply("Two.")
            .by_history()
    };
    let agent = |journal: MemoryJournal| {
        let runtime = Runtime::new()
            .with_journal(journal)
            .with_world(ManualWorld::auto());
        Agent::builder(script())
            .tool(add)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let (journal, run) = (MemoryJournal::new(), RunId::new("r"));
    let _ = agent(journal.clone()).run("Add").id(run.clone()).await;
    let records = journal.records(&run);
    let first = serde_json::to_value(&records[0]).unwrap();
    let changed = with_maximum_numbers(&first["entry"]["opened"]["state"]);
    assert!(changed.len() > 10);
    for state in changed {
        let journal = MemoryJournal::new();
        let mut first = records[0].clone();
        let Entry::Opened(opened) = &mut first.entry else {
            panic!("the first record does not open the run")
        };
        opened.state = state;
        journal
            .open(&run)
            .await
            .unwrap()
            .log
            .append(&[first])
            .await
            .unwrap();
        // Any result is fine, but the call must return and must not panic.
        let _ = agent(journal).resume(run.clone()).await;
    }
}

#[tokio::test]
async fn resume_with_corrupt_record_order_never_hangs_or_panics() {
    use levity::core::{Decision, Journal as _, Record};
    struct AlwaysAllow;
    #[async_trait::async_trait]
    impl Approver for AlwaysAllow {
        async fn decide(&self, _: &Ask) -> Decision {
            Decision::Allow
        }
    }
    let agent = |journal: MemoryJournal| {
        let runtime = Runtime::new()
            .with_journal(journal)
            .with_world(ManualWorld::auto());
        let helper = Agent::builder(ScriptedModel::looping(Turn::new().text("Helped.")))
            .build()
            .unwrap();
        let turn = Turn::new()
            .call("add", json!({"a": 1, "b": 1}))
            .call("helper", json!({"task": "Help"}));
        let model = ScriptedModel::new()
            .turn(turn.call("wait", json!({"seconds": 1})))
            .reply("Two.");
        let policy = Policy::new().rule(Rule::tool("add").ask("is it right?"));
        let agent = Agent::builder(model.by_history())
            .tool(add)
            .agent("helper", "Helps.", helper);
        let agent = agent
            .allow_wait(Duration::from_secs(9))
            .policy(policy)
            .approver(AlwaysAllow);
        agent.runtime(runtime).build().unwrap()
    };
    let (journal, run) = (MemoryJournal::new(), RunId::new("r"));
    agent(journal.clone())
        .run("Add")
        .id(run.clone())
        .await
        .unwrap();
    let records = journal.records(&run);
    let mut bad: Vec<Vec<Record>> = Vec::new();
    for at in 0..records.len() {
        let mut without = records.clone();
        without.remove(at);
        bad.push(without);
        for to in 0..records.len() {
            let mut doubled = records.clone();
            doubled.insert(to, records[at].clone());
            bad.push(doubled.clone());
            // Truncated after the duplicate, so that the run continues from there.
            doubled.truncate(to + 1);
            bad.push(doubled);
            let mut swapped = records.clone();
            swapped.swap(at, to);
            bad.push(swapped);
        }
    }
    for mut records in bad {
        (0..)
            .zip(&mut records)
            .for_each(|(seq, record)| record.seq = seq);
        let journal = MemoryJournal::new();
        journal
            .open(&run)
            .await
            .unwrap()
            .log
            .append(&records)
            .await
            .unwrap();
        let agent = agent(journal);
        let _ = agent.replay(&run).await;
        let _ = agent.pending_asks(&run).await;
        let resumed = tokio::time::timeout(Duration::from_secs(10), agent.resume(run.clone()));
        let _ = resumed
            .await
            .unwrap_or_else(|_| panic!("the run hangs: {records:?}"));
    }
}
