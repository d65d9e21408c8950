//! What an agent takes that does nothing.

use std::sync::Arc;

use levity::prelude::*;
use levity::tools::{Policy, Rule};
use levity_core::ToolSpec;
use levity_tools::{Dispatcher, Registry, Schema};
use tokio::runtime;

use crate::count::Counter;
use crate::measure::verdict;
use crate::subject::{Caller, Gate, agent, noop};

/// Heap of a built agent with one tool, in bytes.
const GOAL: f64 = 8192.0;

pub fn report(count: usize) {
    println!(
        "Idle: heap of what does nothing, in bytes: the mean of {count}. Goal: {GOAL} for an agent \
            with a tool.\n"
    );
    let model = Arc::new(Caller::new(1));
    let one = agent(Caller::new(1)).build().expect("the agent is sound");
    let bytes = held(count, || {
        agent_on(&model)
            .tool(noop)
            .build()
            .expect("the agent is sound")
    });
    println!(
        "{:40} {bytes:>9.0} {}",
        "an agent with one tool",
        verdict(bytes, GOAL)
    );
    row(
        "an agent without tools",
        held(count, || {
            agent_on(&model).build().expect("the agent is sound")
        }),
    );
    row("a clone of an agent", held(count, || one.clone()));
    row("a run that has not begun", held(count, || one.run("Go")));
    row("a run that waits for an approval", waiting(count));
    println!("\nParts of them:");
    let registry = || {
        Registry::builder()
            .tool(noop)
            .build()
            .expect("the tool is sound")
    };
    let shared = registry();
    row("a registry with one tool", held(count, registry));
    row(
        "a dispatcher for a registry",
        held(count, || dispatcher(shared.clone())),
    );
    row(
        "the spec of a tool",
        held(count, || ToolSpec::clone(noop.spec())),
    );
    row(
        "its compiled schema",
        held(count, || {
            Schema::new(&noop.spec().input).expect("the schema is sound")
        }),
    );
    println!();
}

/// Only the building of agents with one tool, for a profiler.
pub fn build(count: usize) {
    let model = Arc::new(Caller::new(1));
    held(count, || {
        agent_on(&model)
            .tool(noop)
            .build()
            .expect("the agent is sound")
    });
}

fn row(name: &str, bytes: f64) {
    println!("{name:40} {bytes:>9.0}");
}

fn agent_on(model: &Arc<Caller>) -> levity::agent::AgentBuilder {
    Agent::builder(model.clone()).instructions("Be brief.")
}

fn dispatcher(registry: Registry) -> Dispatcher {
    Dispatcher::builder(registry)
        .build()
        .expect("the defaults are sound")
}

/// The heap that one of `count` things holds.
fn held<T>(count: usize, make: impl Fn() -> T) -> f64 {
    let mut things = Vec::with_capacity(count);
    // The first one makes what all share.
    drop(make());
    let counter = Counter::start();
    (0..count).for_each(|_| things.push(make()));
    let live = counter.read().live;
    drop(counter);
    drop(things);
    live as f64 / count as f64
}

/// The heap of a started run that waits for somebody to allow a call.
fn waiting(count: usize) -> f64 {
    let tokio = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built");
    let gate = Gate::new();
    // A gate that is open only counts who passes.
    gate.open();
    let model = Caller::new(5).gate(gate.clone());
    let policy = Policy::new().rule(
        Rule::tool("noop")
            .when(|_, args| args["n"] == 3)
            .ask("it is the third"),
    );
    let agent = agent(model)
        .policy(policy)
        .build()
        .expect("the agent is sound");
    tokio.block_on(async {
        let mut runs = Vec::with_capacity(count);
        let counter = Counter::start();
        runs.extend((0..count).map(|_| agent.start("Go")));
        gate.filled(count).await;
        let live = counter.read().live;
        drop(counter);
        for mut run in runs {
            let mut events = run.events();
            while let Some(event) = events.next().await {
                if let EventKind::Asked(ask) = event.kind {
                    run.approve(&ask).await.expect("the run waits for it");
                }
            }
            assert_eq!(
                run.await
                    .expect("the run ends with an answer")
                    .stats()
                    .failed_calls,
                0
            );
        }
        live as f64 / count as f64
    })
}
