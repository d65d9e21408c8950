//! Measures a swarm whose workers do nothing, and its message bus.
//!
//! - `cargo bench --bench swarm` measures everything, in about half a minute.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.
//! - `-- --callgrind N [floor]` only runs one swarm with `N` delegations, for a profiler.
//!
//! `docs/performance.md` explains the results.

mod allocations;
mod clock;
mod measure;

use std::hint::black_box;
use std::sync::Arc;

use async_trait::async_trait;
use levity::agent::Agent;
use levity_core::{
    Delta, Deltas, Finish, Limits, Model, ModelCard, ModelError, Request, RunId, Timestamp,
};
use levity_swarm::{
    Bus, Delegation, MessageKind, NewMessage, Recipient, Router, Swarm, SwarmInput, Worker,
};
use measure::{Effort, Work, compare, verdict};
use tokio::runtime;

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed cost of a delegation without the worker, in microseconds.
const GOAL_MICROS: f64 = 50.0;
/// Allowed cost of a message on the bus, in microseconds.
const GOAL_POST: f64 = 1.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "--callgrind") {
        return callgrind(&args[at + 1..]);
    }
    // Without `--bench`, cargo runs this as a test, which only checks that the benchmark runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (effort, scale) = if quick {
        (Effort::QUICK, 10)
    } else {
        (Effort::FULL, 1)
    };
    delegations(effort, scale);
    memory(scale);
    posts(effort, scale);
    contexts(effort, scale);
}

/// A model that replies with one word at once.
struct Word(ModelCard);

#[async_trait]
impl Model for Word {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    async fn stream(&self, _: Request) -> Result<Deltas, ModelError> {
        Ok(Deltas::ready([
            Delta::Text("Done.".into()),
            Delta::Finish(Finish::Stop),
        ]))
    }
}

fn agent() -> Agent {
    Agent::builder(Word(ModelCard::new("bench", "word")))
        .build()
        .expect("an agent is built")
}

fn tokio() -> runtime::Runtime {
    runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime is built")
}

/// The dependencies between the delegations.
#[derive(Clone, Copy)]
enum Shape {
    /// The delegations are independent.
    Wide,
    /// Each delegation depends on the previous one.
    Chain,
}

fn plan(count: usize, shape: Shape) -> Vec<Delegation> {
    let one = |at: usize| {
        let before = match shape {
            Shape::Wide => None,
            Shape::Chain => at.checked_sub(1).map(|at| format!("d{at}")),
        };
        Delegation::new(format!("d{at}"), "worker", "Work.").after(before)
    };
    (0..count).map(one).collect()
}

/// Creates the floor (baseline): each task is a separate run without a parent.
fn alone(count: usize) -> Work {
    let (tokio, agent) = (tokio(), agent());
    let run = move || {
        tokio.block_on(async {
            for _ in 0..count {
                black_box(agent.run("Work.").await.expect("it is done"));
            }
        });
    };
    Work {
        name: "the workers alone",
        units: count,
        run: Box::new(run),
    }
}

fn swarm(count: usize, shape: Shape, name: &'static str) -> Work {
    let (tokio, plan) = (tokio(), plan(count, shape));
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("worker", "Works.", agent()))
        .limits(Limits::new().model_calls(1_000_000))
        .build()
        .expect("a swarm is built");
    let run = move || {
        let finished = tokio.block_on(
            swarm
                .run(SwarmInput::from("Go").plan(plan.iter().cloned()))
                .into_future(),
        );
        black_box(finished.expect("it is done"));
    };
    Work {
        name,
        units: count,
        run: Box::new(run),
    }
}

fn delegations(effort: Effort, scale: usize) {
    println!("Delegations to workers that answer at once, 16 at a time, without a journal.");
    println!(
        "Goal: {GOAL_MICROS} microseconds each beside the worker's own run, however many there \
            are.\n"
    );
    println!(
        "{:>8} {:24} {:>9} {:>9} {:>12} {:>9}",
        "", "", "ns", "least", "allocations", "bytes"
    );
    for count in [100, 1_000, 4_000] {
        let count = count / scale;
        let wide = swarm(count, Shape::Wide, "side by side");
        let works = vec![
            alone(count),
            wide,
            swarm(count, Shape::Chain, "one after the other"),
        ];
        let costs = compare(effort, works);
        for cost in &costs {
            let (nanos, least, bytes) = (cost.nanos, cost.least, cost.bytes);
            println!(
                "{count:>8} {:24} {nanos:>9.0} {least:>9.0} {:>12.1} {bytes:>9.0}",
                cost.name, cost.allocations
            );
        }
        if let [alone, swarms @ ..] = &*costs {
            for cost in swarms {
                let micros = (cost.nanos - alone.nanos) / 1_000.0;
                println!(
                    "{:>8} {}: {micros:.1} microseconds more  {}",
                    "",
                    cost.name,
                    verdict(micros, GOAL_MICROS)
                );
            }
        }
        println!();
    }
}

/// Measures the peak memory while all workers run, including the plan and the reports.
fn memory(scale: usize) {
    let (count, tokio) = (1_000 / scale, tokio());
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("worker", "Works.", agent()))
        .max_parallel(count)
        .build()
        .expect("a swarm is built");
    let counter = allocations::Counter::start();
    let finished = tokio.block_on(
        swarm
            .run(SwarmInput::from("Go").plan(plan(count, Shape::Wide)))
            .into_future(),
    );
    let (now, resident) = (counter.read(), clock::resident().unwrap_or_default() >> 20);
    black_box(finished.expect("it is done"));
    let each = |bytes: i64| bytes as f64 / count as f64;
    println!(
        "{count} at work at once: {:.0} bytes each at the most, {:.0} when all is done; the \
            process holds {resident} MiB.\n",
        each(now.peak),
        each(now.live)
    );
}

fn draft(names: &[Arc<str>], content: &Arc<str>, at: usize) -> NewMessage {
    let name = |at: usize| names[at % names.len()].clone();
    let to = if at.is_multiple_of(4) {
        Recipient::All
    } else {
        Recipient::One(name(at * 7 + 1))
    };
    NewMessage::new(name(at), to, MessageKind::Note, content.clone())
}

fn names() -> Vec<Arc<str>> {
    (0..100).map(|at| format!("worker{at}").into()).collect()
}

/// Measures messages on a full bus, which drops the oldest ones.
fn posts(effort: Effort, scale: usize) {
    println!(
        "Messages on the bus, from 100 workers to one or to all, the oldest leaving. Goal: \
            {GOAL_POST} microsecond.\n"
    );
    let count = 100_000 / scale;
    for (name, length) in [("of 40 bytes", 40), ("of 400 bytes", 400)] {
        let (names, content): (_, Arc<str>) =
            (names(), "a word ".repeat(length / 7 + 1)[..length].into());
        let (mut bus, run) = (Bus::new(), RunId::new("run"));
        let work = move || {
            for at in 0..count {
                bus.post(
                    draft(&names, &content, at),
                    Timestamp::from_millis(at as u64),
                    &run,
                );
            }
        };
        let work = Work {
            name,
            units: count,
            run: Box::new(work),
        };
        let [cost] = compare(effort, vec![work])
            .try_into()
            .unwrap_or_else(|_| unreachable!());
        let micros = cost.nanos / 1_000.0;
        println!(
            "{name:14} {:>6.0} ns {:>6.2} allocations  {}",
            cost.nanos,
            cost.allocations,
            verdict(micros, GOAL_POST)
        );
    }
    println!();
}

/// Measures the context of a worker with growing logs, whose cost should be constant.
fn contexts(effort: Effort, scale: usize) {
    println!("What a worker is shown of the bus within 2,000 tokens, by the length of the log:\n");
    for count in [1_000, 10_000, 100_000] {
        let (names, content): (_, Arc<str>) = (names(), "a word ".repeat(20).into());
        let mut bus = Bus::with_limits(1_000_000, 1 << 30);
        for at in 0..count / scale {
            bus.post(
                draft(&names, &content, at),
                Timestamp::default(),
                &RunId::new("run"),
            );
        }
        let (len, run) = (bus.len(), move || {
            drop(black_box(bus.context_for("worker1", 2_000)));
        });
        let work = Work {
            name: "context",
            units: 1,
            run: Box::new(run),
        };
        let [cost] = compare(effort, vec![work])
            .try_into()
            .unwrap_or_else(|_| unreachable!());
        println!(
            "{len:>8} messages {:>8.0} ns {:>6.1} allocations",
            cost.nanos, cost.allocations
        );
    }
}

fn callgrind(args: &[String]) {
    let count = args
        .first()
        .and_then(|count| count.parse().ok())
        .expect("a number of delegations");
    let floor = args.iter().any(|arg| arg == "floor");
    let mut work = if floor {
        alone(count)
    } else {
        swarm(count, Shape::Wide, "side by side")
    };
    (work.run)();
}
