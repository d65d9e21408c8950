//! Measures the execution of a plan, compared with tasks in a `JoinSet` over a petgraph in the same
//! run.
//!
//! - `cargo bench --bench graph` measures everything, in about half a minute.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.
//! - `-- --callgrind N [SHAPE] [floor]` only executes one plan of `N` steps, for a profiler.
//!
//! `docs/performance.md` explains the results.

mod allocations;
mod clock;
mod measure;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use levity_dag::{
    Function, Graph, Plan, PlanConstraints, Step, StepInput, StepRunner, StepRunnerKind, Team,
};
use measure::{Effort, Work, compare, verdict};
use petgraph::Direction;
use petgraph::algo::is_cyclic_directed;
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::Value;
use tokio::runtime;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed cost of a plan, as a multiple of the floor (baseline).
const GOAL: f64 = 3.0;
/// Allowed memory of a step, in bytes.
const GOAL_BYTES: f64 = 2_048.0;
/// Allowed time to check 10,000 steps, in milliseconds.
const GOAL_CHECK_MS: f64 = 20.0;

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
    steps(effort, scale);
    memory(scale);
    checks(effort, scale);
    growth(effort, scale);
}

/// The shape of a plan, as edges between step numbers.
struct Shape {
    name: &'static str,
    steps: usize,
    edges: Vec<(usize, usize)>,
}

impl Shape {
    /// Creates layers of 100 steps, where each step depends on three of the previous layer.
    fn layers(steps: usize) -> Self {
        let wide = 100.min(steps);
        let before = |at: usize| {
            let layer = at / wide * wide;
            (0..3).map(move |nth| (layer - wide + (at + nth * 7) % wide, at))
        };
        let edges = (wide..steps).flat_map(before).collect();
        Self {
            name: "layers",
            steps,
            edges,
        }
    }

    /// Creates one first step, parallel steps after it, and one last step after all of them.
    fn fan(steps: usize) -> Self {
        let middle = 1..steps - 1;
        let edges = middle.flat_map(|at| [(0, at), (at, steps - 1)]).collect();
        Self {
            name: "fan",
            steps,
            edges,
        }
    }

    /// Creates steps that run one after the other.
    fn chain(steps: usize) -> Self {
        Self {
            name: "chain",
            steps,
            edges: (1..steps).map(|at| (at - 1, at)).collect(),
        }
    }

    fn plan(&self) -> Arc<Plan> {
        let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
        self.edges
            .iter()
            .for_each(|(from, to)| before.entry(*to).or_default().push(*from));
        let step = |at: usize| {
            let step = Step::new(format!("s{at}"), "nothing");
            before
                .get(&at)
                .into_iter()
                .flatten()
                .fold(step, |step, from| step.after(format!("s{from}")))
        };
        Arc::new((0..self.steps).fold(Plan::new(), |plan, at| plan.step(step(at))))
    }
}

fn team() -> Team {
    let nothing = Function::new(|_: StepInput| std::future::ready(Ok(Value::Null))).read_only();
    Team::builder()
        .function("nothing", nothing)
        .build()
        .expect("a team is built")
}

fn tokio() -> runtime::Runtime {
    runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime is built")
}

/// The graph that the floor uses.
type Built = DiGraph<(), (), u32>;

fn build(shape: &Shape) -> Built {
    let mut graph = Built::with_capacity(shape.steps, shape.edges.len());
    for _ in 0..shape.steps {
        graph.add_node(());
    }
    for (from, to) in &shape.edges {
        graph.add_edge(NodeIndex::new(*from), NodeIndex::new(*to), ());
    }
    assert!(!is_cyclic_directed(&graph));
    graph
}

/// Spawns a task for each step as soon as its dependencies have ended.
async fn floor(graph: &Built) {
    let mut open: Vec<usize> = graph
        .node_indices()
        .map(|at| graph.edges_directed(at, Direction::Incoming).count())
        .collect();
    let mut tasks = JoinSet::new();
    let nothing = |at: NodeIndex| async move { (at, black_box(Value::Null)) };
    for at in graph.node_indices().filter(|at| open[at.index()] == 0) {
        tasks.spawn(nothing(at));
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        let (at, value) = ended.expect("no task panics");
        black_box(value);
        done += 1;
        for behind in graph.neighbors_directed(at, Direction::Outgoing) {
            open[behind.index()] -= 1;
            if open[behind.index()] == 0 {
                tasks.spawn(nothing(behind));
            }
        }
    }
    assert_eq!(done, graph.node_count());
}

fn by_floor(shape: &Shape) -> Work {
    let (tokio, graph, units) = (tokio(), build(shape), shape.steps);
    Work {
        name: "tasks over a petgraph",
        units,
        run: Box::new(move || tokio.block_on(floor(&graph))),
    }
}

fn by_team(shape: &Shape) -> Work {
    let (tokio, team) = (tokio(), team());
    let graph = team.check(shape.plan()).expect("the plan is valid");
    let run = move || {
        let finished = tokio.block_on(team.run(graph.clone()).into_future());
        black_box(finished.expect("the plan is carried out"));
    };
    Work {
        name: "levity",
        units: shape.steps,
        run: Box::new(run),
    }
}

/// Measures a run from the plan, including the check.
fn by_team_from_plan(shape: &Shape) -> Work {
    let (tokio, team, plan) = (tokio(), team(), shape.plan());
    let run = move || {
        let finished = tokio.block_on(team.run(plan.clone()).into_future());
        black_box(finished.expect("the plan is carried out"));
    };
    Work {
        name: "levity, from the plan",
        units: shape.steps,
        run: Box::new(run),
    }
}

fn shapes(scale: usize) -> [Shape; 3] {
    [
        Shape::layers(10_000 / scale),
        Shape::fan(1_002 / scale),
        Shape::chain(1_000 / scale),
    ]
}

fn steps(effort: Effort, scale: usize) {
    println!("Steps that do nothing, 16 at a time, without a journal, of a plan that was checked.");
    println!(
        "Goal: {GOAL} times a task for each in a `JoinSet`, over a petgraph that was built.\n"
    );
    println!(
        "{:8} {:24} {:>9} {:>9} {:>12} {:>9}",
        "", "", "ns", "least", "allocations", "bytes"
    );
    for shape in shapes(scale) {
        let works = vec![by_floor(&shape), by_team(&shape), by_team_from_plan(&shape)];
        let costs = compare(effort, works);
        for cost in &costs {
            let (nanos, least, bytes) = (cost.nanos, cost.least, cost.bytes);
            println!(
                "{:8} {:24} {nanos:>9.0} {least:>9.0} {:>12.1} {bytes:>9.0}",
                shape.name, cost.name, cost.allocations
            );
        }
        if let [floor, levity, ..] = &*costs {
            let ratio = levity.nanos / floor.nanos;
            println!(
                "{:8} {} steps: {ratio:.2} times the floor  {}\n",
                "",
                shape.steps,
                verdict(ratio, GOAL)
            );
        }
    }
}

/// Measures the peak memory while a plan is executed, including the plan itself.
fn memory(scale: usize) {
    println!("Memory, the plan included. Goal: {GOAL_BYTES} bytes a step.\n");
    for shape in shapes(scale) {
        let (tokio, team) = (tokio(), team());
        let counter = allocations::Counter::start();
        let plan = shape.plan();
        let held = counter.read().live;
        tokio
            .block_on(team.run(plan).into_future())
            .expect("the plan is carried out");
        let peak = counter.read().peak as f64 / shape.steps as f64;
        let plan = held as f64 / shape.steps as f64;
        println!(
            "{:8} {peak:>8.0} bytes a step, {plan:.0} of them the plan  {}",
            shape.name,
            verdict(peak, GOAL_BYTES)
        );
    }
    let resident = clock::resident().unwrap_or_default() >> 20;
    println!("The process holds {resident} MiB.\n");
}

fn checks(effort: Effort, scale: usize) {
    let shape = Shape::layers(10_000 / scale);
    let known = PlanConstraints::new().with(
        "nothing",
        StepRunner::new(StepRunnerKind::Function, "does nothing"),
    );
    let plan = shape.plan();
    let run = move || {
        drop(black_box(
            Graph::check(plan.clone(), &known).expect("the plan is fine"),
        ));
    };
    let work = Work {
        name: "check",
        units: 1,
        run: Box::new(run),
    };
    let [cost] = compare(effort, vec![work])
        .try_into()
        .unwrap_or_else(|_| unreachable!());
    let ms = cost.nanos / 1e6;
    println!(
        "Checking {} steps: {ms:.1} ms. Goal: {GOAL_CHECK_MS} ms.  {}\n",
        shape.steps,
        verdict(ms, GOAL_CHECK_MS)
    );
}

/// Measures the cost of a step in growing graphs, which should be constant.
fn growth(effort: Effort, scale: usize) {
    println!("A step in layers of 100, by the size of the graph:\n");
    for steps in [1_000, 4_000, 16_000] {
        let shape = Shape::layers(steps / scale);
        let [cost] = compare(effort, vec![by_team(&shape)])
            .try_into()
            .unwrap_or_else(|_| unreachable!());
        println!(
            "{:>8} steps {:>8.0} ns {:>8.1} allocations",
            shape.steps, cost.nanos, cost.allocations
        );
    }
}

fn callgrind(args: &[String]) {
    let steps = args
        .first()
        .and_then(|steps| steps.parse().ok())
        .expect("a number of steps");
    let shape = match args.get(1).map(String::as_str) {
        Some("fan") => Shape::fan(steps),
        Some("chain") => Shape::chain(steps),
        _ => Shape::layers(steps),
    };
    let floor = args.iter().any(|arg| arg == "floor");
    let mut work = if floor {
        by_floor(&shape)
    } else {
        by_team(&shape)
    };
    (work.run)();
}
