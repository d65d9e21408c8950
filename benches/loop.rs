//! Measures the time and memory of levity's loop, compared with a floor (baseline) in the same run.
//!
//! - `cargo bench --bench loop` measures everything, in about a minute.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.
//! - `-- --callgrind N [SETUP]` only executes `N` tool turns, for a profiler.
//!
//! `docs/performance.md` explains the results.

mod allocations;
mod clock;
mod dispatch;
mod idle_agents;
mod many_agents;
mod many_calls;
mod measure;
mod turns;
mod workload;

use measure::Effort;
use turns::Setup;

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "--callgrind") {
        return callgrind(&args[at + 1..]);
    }
    // Without `--bench`, cargo runs this as a test, which only checks that the benchmark runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (effort, count) = if quick {
        (Effort::QUICK, 1_000)
    } else {
        (Effort::FULL, 10_000)
    };
    // Memory is measured first, while the process has no earlier allocations.
    many_agents::report(count);
    many_agents::sizes();
    idle_agents::report(count);
    turns::report(effort);
    dispatch::report(effort);
    many_calls::report(quick);
}

/// Executes one run of a number of turns with the set-up of that name. `dispatch` makes that number
/// of calls, `crowd` and `idle` create that number of agents, and `many` executes one run whose
/// model requests all calls in one reply.
fn callgrind(args: &[String]) {
    let turns = args
        .first()
        .and_then(|turns| turns.parse().ok())
        .expect("a number of turns");
    // Cargo appends `--bench` to the arguments.
    let name = args
        .get(1)
        .map(String::as_str)
        .filter(|name| *name != "--bench")
        .unwrap_or("run");
    let setup = Setup::ALL.into_iter().find(|setup| setup.name() == name);
    match (setup, name) {
        (Some(setup), _) => (setup.work(turns).run)(),
        (None, "dispatch") => (dispatch::dispatched(turns).run)(),
        (None, "crowd") => many_agents::shared(turns),
        (None, "idle") => idle_agents::build(turns),
        (None, "many") => _ = many_calls::run(turns, true),
        (None, _) => {
            let names: Vec<_> = Setup::ALL.iter().map(|setup| setup.name()).collect();
            panic!(
                "there is no set-up `{name}`; there are dispatch, crowd, idle, many, {}",
                names.join(", ")
            );
        }
    }
}
