//! Measures the memory of idle agents and runs.

use std::sync::Arc;

use levity::prelude::*;
use levity::tools::{Policy, Rule};
use levity_core::ToolSpec;
use levity_tools::{Dispatcher, Registry, Schema};
use tokio::runtime;

use crate::allocations::Counter;
use crate::measure::verdict;
use crate::workload::{Caller, Gate, agent, noop};

/// Allowed heap of an agent with one tool, in bytes.
const GOAL: f64 = 8192.0;

pub fn report(count: usize) {
    println!(
        "Idle: heap of what does nothing, in bytes: the mean of {count}. Goal: {GOAL} for an agent \
            with a tool.\n"
    );
    let model = Arc::new(Caller::new(1));
    let one = agent(Caller::new(1)).build().expect("the agent is valid");
    let bytes = heap_of(count, || {
        agent_on(&model)
            .tool(noop)
            .build()
            .expect("the agent is valid")
    });
    println!(
        "{:40} {bytes:>9.0} {}",
        "an agent with one tool",
        verdict(bytes, GOAL)
    );
    row(
        "an agent without tools",
        heap_of(count, || {
            agent_on(&model).build().expect("the agent is valid")
        }),
    );
    row("a clone of an agent", heap_of(count, || one.clone()));
    row("a run that has not begun", heap_of(count, || one.run("Go")));
    row(
        "a run that waits for an approval",
        heap_of_waiting_run(count),
    );
    println!("\nParts of them:");
    let registry = || {
        Registry::builder()
            .tool(noop)
            .build()
            .expect("the tool is valid")
    };
    let shared = registry();
    row("a registry with one tool", heap_of(count, registry));
    row(
        "a dispatcher for a registry",
        heap_of(count, || dispatcher(shared.clone())),
    );
    row(
        "the spec of a tool",
        heap_of(count, || ToolSpec::clone(noop.spec())),
    );
    row(
        "its compiled schema",
        heap_of(count, || {
            Schema::new(&noop.spec().input).expect("the schema is valid")
        }),
    );
    println!();
}

/// Builds agents with one tool and nothing else, for a profiler.
pub fn build(count: usize) {
    let model = Arc::new(Caller::new(1));
    heap_of(count, || {
        agent_on(&model)
            .tool(noop)
            .build()
            .expect("the agent is valid")
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
        .expect("the defaults are valid")
}

/// Returns the mean heap size of `count` values.
fn heap_of<T>(count: usize, make: impl Fn() -> T) -> f64 {
    let mut values = Vec::with_capacity(count);
    // The first value initializes shared state.
    drop(make());
    let counter = Counter::start();
    (0..count).for_each(|_| values.push(make()));
    let live = counter.read().live;
    drop(counter);
    drop(values);
    live as f64 / count as f64
}

/// Returns the heap size of a started run that waits for an approval.
fn heap_of_waiting_run(count: usize) -> f64 {
    let tokio = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built");
    let gate = Gate::new();
    // An open gate only counts the tasks that pass it.
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
        .expect("the agent is valid");
    tokio.block_on(async {
        let mut runs = Vec::with_capacity(count);
        let counter = Counter::start();
        runs.extend((0..count).map(|_| agent.start("Go")));
        gate.wait_for_arrivals(count).await;
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
