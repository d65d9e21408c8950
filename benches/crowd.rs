//! Many agents at once.

use std::sync::Arc;

use levity::Agent;
use tokio::runtime;
use tokio::task::JoinSet;

use crate::clock::resident;
use crate::count::Counter;
use crate::measure::verdict;
use crate::subject::{Caller, Gate, Pause, agent};

const TURNS: usize = 5;

/// Heap in use at once, for ten thousand agents.
const GOAL_MIB: f64 = 256.0;

/// Whose agents they are, and where all of them wait for each other in their third turn.
#[derive(Clone, Copy)]
enum Crowd {
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
    crowd(
        "one agent, cloned; held in the model",
        Crowd::SharedAtModel,
        count,
    );
    crowd(
        "agents of their own; held in the model",
        Crowd::OwnAtModel,
        count,
    );
    crowd(
        "agents of their own; held in a tool",
        Crowd::OwnAtTool,
        count,
    );
    println!();
}

/// Only the runs of one agent, for a profiler.
pub fn shared(count: usize) {
    crowd(
        "one agent, cloned; held in the model",
        Crowd::SharedAtModel,
        count,
    );
}

fn crowd(name: &str, crowd: Crowd, count: usize) {
    let tokio = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built");
    let gate = Gate::new();
    let counter = Counter::start();
    let (held, resident) = tokio.block_on(async {
        let agents = agents(crowd, count, &gate);
        let mut runs = JoinSet::new();
        for agent in &agents {
            runs.spawn(agent.run("Go").into_future());
        }
        gate.filled(count).await;
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

fn agents(crowd: Crowd, count: usize, gate: &Arc<Gate>) -> Vec<Agent> {
    let build = |model: Caller, gate: Option<Arc<Gate>>| {
        let builder = Agent::builder(model)
            .instructions("Be brief.")
            .tool(Pause::new(gate));
        builder.build().expect("the agent is sound")
    };
    let model = || Caller::new(TURNS);
    match crowd {
        Crowd::SharedAtModel => vec![build(model().gate(gate.clone()), None); count],
        Crowd::OwnAtModel => (0..count)
            .map(|_| build(model().gate(gate.clone()), None))
            .collect(),
        Crowd::OwnAtTool => (0..count)
            .map(|_| build(model(), Some(gate.clone())))
            .collect(),
    }
}

/// How large the futures are that a run consists of.
pub fn sizes() {
    let agent = agent(Caller::new(1)).build().expect("the agent is sound");
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
