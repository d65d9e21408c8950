//! Measures a Python program, compared with the interpreter alone in the same thread. Times are
//! wall-clock times, because the program runs in another process or thread and the caller waits for
//! it.
//!
//! `cargo bench --bench python`; use `-- --quick` to check that it runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use levity::agent::Agent;
use levity::core::{Entry, Journal, Outcome, RunId, ToolOutput};
use levity::runtime::{MemoryJournal, Runtime};
use levity::test::{RecordingTool, ScriptedModel};
use levity_python::{Isolation, Python, RunPython, worker_main};
use monty::MontyRun;
use monty_types::{CompileOptions, PrintWriter, ResourceTracker};
use serde_json::json;

/// Allowed time of a trivial program after the first one.
const GOAL: Duration = Duration::from_millis(1);
const TRIVIAL: &str = "1 + 1";
const CALL: &str = "n = add(1)\nn + 1";

fn main() {
    worker_main();
    let quick = std::env::args().any(|arg| arg == "--quick")
        || !std::env::args().any(|arg| arg == "--bench");
    let times = if quick { 20 } else { 2_000 };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!("Python: `{TRIVIAL}`, {times} times. Goal: {GOAL:?} when warm.\n");
    println!("{:44} {:>10} {:>10} {:>10}", "", "median", "least", "99 %");
    measure("the interpreter alone", times, || {
        let program = MontyRun::new(
            TRIVIAL.to_owned(),
            "x.py",
            Vec::new(),
            CompileOptions::default(),
        );
        let program = program.expect("it is Python");
        black_box(program.run(
            Vec::new(),
            ResourceTracker::default(),
            PrintWriter::Disabled,
        ))
        .expect("it runs");
    });
    for (name, place) in [
        ("in a thread", Isolation::Thread),
        ("in a process", Isolation::Auto),
    ] {
        let python = Python::isolated(place);
        let median = measure(name, times, || {
            black_box(runtime.block_on(python.run(TRIVIAL, json!({})))).expect("it runs");
        });
        println!(
            "    {} the goal",
            if median <= GOAL { "within" } else { "MISSES" }
        );
    }
    measure("a process, from its start", times / 10 + 1, || {
        black_box(runtime.block_on(Python::new().run(TRIVIAL, json!({})))).expect("it runs");
    });
    let python = Python::new();
    for (name, code) in [
        ("an agent's call of `run_python`", TRIVIAL),
        ("the same, calling a tool", CALL),
    ] {
        measure(name, times / 4 + 1, || {
            runtime.block_on(call(&python, code, Runtime::new()));
        });
    }
    let journal = MemoryJournal::new();
    runtime.block_on(call(
        &python,
        CALL,
        Runtime::new().with_journal(journal.clone()),
    ));
    println!(
        "\nwhat is kept while `add` runs: {} bytes",
        runtime.block_on(outcome_size(&journal))
    );
}

/// Prints the median, the minimum and the 99th percentile; the first run is not counted.
#[expect(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time"
)]
fn measure(name: &str, times: usize, mut work: impl FnMut()) -> Duration {
    work();
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let mut samples: Vec<Duration> = (0..times).map(|_| time(&mut work)).collect();
    samples.sort();
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
    println!(
        "{name:44} {:>10.1?} {:>10.1?} {:>10.1?}",
        at(0.5),
        samples[0],
        at(0.99)
    );
    at(0.5)
}

/// Runs an agent whose model executes one program.
async fn call(python: &Python, code: &str, runtime: Runtime) {
    let add = RecordingTool::new("add", |_| Ok(ToolOutput::value(json!(2))));
    let add = add.with_input(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    let model = ScriptedModel::new()
        .call("run_python", json!({"code": code}))
        .reply("Done.");
    let program = RunPython::new().python(python.clone()).tool(&add);
    let agent = Agent::builder(model)
        .tool(add)
        .program(program)
        .runtime(runtime)
        .build()
        .expect("an agent");
    agent.run("go").id("r").await.expect("an answer");
}

/// Returns the size of the outcome in the journal for the code up to the call.
async fn outcome_size(journal: &MemoryJournal) -> usize {
    let records = journal
        .read(&RunId::new("r.1"))
        .await
        .expect("the program's records");
    let paused = records.iter().find_map(|record| match &record.entry {
        Entry::Finished {
            outcome: Outcome::Tool(result),
            ..
        } => result.value.as_ref().map(ToString::to_string),
        _ => None,
    });
    paused.map_or(0, |value| value.len())
}
