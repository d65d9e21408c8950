//! Tests in which the process ends in the middle of code, at every record in turn.

use std::sync::Arc;

use levity_core::{Hints, Journal, ToolOutput};
use levity_python::RunPython;
use levity_runtime::{FileJournal, MemoryJournal, Runtime};
use levity_test::RecordingTool;
use levity_test::crash::{self, Life, Report};
use serde_json::{Value, json};

use crate::support::{agent, call_result, python};

fn tool(life: &Life, name: &'static str) -> RecordingTool {
    let world = life.world.clone();
    let work = move |args: &Value| {
        world.record_action(format!("{name} {}", args["n"]));
        Ok(ToolOutput::value(json!(args["n"].as_i64().unwrap() * 10)))
    };
    let input =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    RecordingTool::new(name, work).with_input(input)
}

async fn crashes<J: Journal + 'static>(
    journal: impl Fn() -> J,
    code: &'static str,
) -> Report<Value> {
    crash::after_every_record(journal, async move |life| {
        let (look, send) = (
            tool(&life, "look").with_hints(Hints::new().read_only()),
            tool(&life, "send"),
        );
        let runtime = Runtime::new().with_journal(life.journal.clone());
        let program = RunPython::new().python(python()).tool(&look).tool(&send);
        let agent = agent(json!({"code": code}), program)
            .tool(look)
            .tool(send)
            .runtime(runtime)
            .build()
            .unwrap();
        let answer = match life.knows("r").await {
            true => agent.resume("r").await,
            false => agent.run("go").id("r").await,
        };
        let (_, mut value, text) = call_result(&answer.unwrap());
        // The run time differs each time.
        value["seconds"] = json!(0);
        json!([
            value["result"],
            value["output"],
            value["calls"],
            if value["result"].is_null() {
                text
            } else {
                String::new()
            }
        ])
    })
    .await
}

const CODE: &str = "
print('begin')
total = 0
for n in range(1, 4):
    total += look(n)
    print(n)
    try:
        send(n)
    except RuntimeError as e:
        assert 'may or may not have' in str(e)
[total, {'n': n}]
";

fn check(report: &Report<Value>) {
    report.assert_same();
    assert_eq!(
        report.whole.value,
        json!([[60, {"n": 3}], "begin\n1\n2\n3\n", 6, ""])
    );
    for end in &report.stops {
        for n in 1..=3 {
            assert!(
                end.world.ever(&format!("send {n}")) <= 1,
                "{end}: sent twice"
            );
            assert!(end.world.ever(&format!("look {n}")) <= 2, "{end}");
        }
    }
    // Without a crash, nothing is done twice.
    assert_eq!(report.whole.world.all().values().sum::<usize>(), 6);
    assert!(report.stops.len() > 40, "{}", report.stops.len());
}

#[tokio::test]
async fn code_resumes_after_crash() {
    check(&crashes(MemoryJournal::new, CODE).await);
}

#[tokio::test]
async fn code_resumes_from_journal_files() {
    let folder = tempfile::tempdir().unwrap();
    let number = std::sync::atomic::AtomicUsize::new(0);
    let journal = || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(FileJournal::new(folder.path().join(number.to_string())).unwrap())
    };
    check(&crashes(journal, CODE).await);
}

#[tokio::test]
async fn parallel_calls_are_not_repeated_after_crash() {
    // A tool that fails below a `gather` raises at the `gather`, whatever the code below it
    // catches.
    let code = "
import asyncio
async def both(n):
    a = await look(n)
    return a + await send(n)
try:
    result = sum(await asyncio.gather(both(1), both(2), both(3)))
except RuntimeError as e:
    result = 'lost' if 'may or may not have' in str(e) else str(e)
result
";
    let report = crashes(MemoryJournal::new, code).await;
    assert_eq!(report.whole.value, json!([120, "", 6, ""]));
    for end in &report.stops {
        let lost = end
            .stopped
            .iter()
            .any(|point| point.to_string().contains("started tool send"));
        let expected = if lost {
            [json!(120), json!("lost")]
        } else {
            [json!(120), json!(120)]
        };
        assert!(expected.contains(&end.value[0]), "{end}: {}", end.value);
        for n in 1..=3 {
            assert!(
                end.world.ever(&format!("send {n}")) <= 1,
                "{end}: sent twice"
            );
        }
    }
}
