//! Measures the memory of many parallel agents.

use std::sync::Arc;

use levity::Agent;
use tokio::runtime;
use tokio::task::JoinSet;

use crate::allocations::Counter;
use crate::clock::resident;
use crate::measure::verdict;
use crate::workload::{Caller, Gate, Pause, agent};

const TURNS: usize = 5;

/// Allowed peak of the heap for ten thousand agents, in MiB.
const GOAL_MIB: f64 = 256.0;

/// The ownership of the agents, and the place where all of them wait in their third turn.
#[derive(Clone, Copy)]
enum Variant {
    SharedAtModel,
    OwnAtModel,
    OwnAtTool,
}

pub fn report(count: usize) {
    println!("Crowd: {count} agents at once, {TURNS} tool turns each, all held in the third turn.");
    println!("Goal: {GOAL_MIB} MiB of heap for 10,000 of them.\n");
    println!(
        "{:40} {:>9} {:>9} {:>11} {:>9}",
        "", "peak MiB", "held MiB", "held/agent", "RSS MiB"
    );
    measure(
        "one agent, cloned; held in the model",
        Variant::SharedAtModel,
        count,
    );
    measure(
        "agents of their own; held in the model",
        Variant::OwnAtModel,
        count,
    );
    measure(
        "agents of their own; held in a tool",
        Variant::OwnAtTool,
        count,
    );
    println!();
}

/// Measures only the runs of one agent, for a profiler.
pub fn shared(count: usize) {
    measure(
        "one agent, cloned; held in the model",
        Variant::SharedAtModel,
        count,
    );
}

fn measure(name: &str, variant: Variant, count: usize) {
    let tokio = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built");
    let gate = Gate::new();
    let counter = Counter::start();
    let (held, resident) = tokio.block_on(async {
        let agents = agents(variant, count, &gate);
        let mut runs = JoinSet::new();
        for agent in &agents {
            runs.spawn(agent.run("Go").into_future());
        }
        gate.wait_for_arrivals(count).await;
        let held = counter.read().live;
        let resident = resident().unwrap_or_default();
        gate.open();
        while let Some(ended) = runs.join_next().await {
            let answer = ended
                .expect("no run panics")
                .expect("the run ends with an answer");
            assert_eq!(
                (answer.stats().tool_calls, answer.stats().failed_calls),
                (TURNS as u64, 0)
            );
        }
        (held as f64, resident as f64)
    });
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let peak = mib(counter.read().peak as f64);
    let goal = verdict(peak * 10_000.0 / count as f64, GOAL_MIB);
    println!(
        "{name:40} {peak:>9.1} {:>9.1} {:>11.0} {:>9.1} {goal}",
        mib(held),
        held / count as f64,
        mib(resident)
    );
}

fn agents(variant: Variant, count: usize, gate: &Arc<Gate>) -> Vec<Agent> {
    let build = |model: Caller, gate: Option<Arc<Gate>>| {
        let builder = Agent::builder(model)
            .instructions("Be brief.")
            .tool(Pause::new(gate));
        builder.build().expect("the agent is valid")
    };
    let model = || Caller::new(TURNS);
    match variant {
        Variant::SharedAtModel => vec![build(model().gate(gate.clone()), None); count],
        Variant::OwnAtModel => (0..count)
            .map(|_| build(model().gate(gate.clone()), None))
            .collect(),
        Variant::OwnAtTool => (0..count)
            .map(|_| build(model(), Some(gate.clone())))
            .collect(),
    }
}

/// Prints the sizes of the futures and types of a run.
pub fn sizes() {
    let agent = agent(Caller::new(1)).build().expect("the agent is valid");
    let run = agent.run("Go");
    let (before, future) = (size_of_val(&run), run.into_future());
    println!(
        "A run before it begins takes {before} bytes, its future {} bytes;",
        size_of_val(&*future)
    );
    println!(
        "a machine {}, an event {}, a record {}, a message {}, a part {}.\n",
        size_of::<levity::agent::AgentMachine>(),
        size_of::<levity_core::Event>(),
        size_of::<levity_core::Record>(),
        size_of::<levity_core::Message>(),
        size_of::<levity_core::Part>()
    );
}
