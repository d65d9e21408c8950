//! Measures the cost of levity for each model call over HTTP, compared with a hand-written loop
//! with `reqwest` and `serde_json` in the same run.
//!
//! - `cargo bench --bench http` measures everything, in about two minutes.
//! - `-- --quick` does so in a few seconds, to check that the benchmark runs.
//! - `-- --callgrind TURNS SETUP [RUNS]` only executes runs of `TURNS` tool turns, for a profiler.
//!
//! `docs/performance.md` explains the results.

#[allow(dead_code, reason = "other benchmarks use the rest")]
mod allocations;
mod calls;
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod clock;
mod concurrent_runs;
mod floor_agent;
mod levity_agent;
mod measure;
mod mock_server;
mod startup;

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| *arg != "--bench")
        .collect();
    match arguments[..] {
        ["--serve"] => mock_server::main(),
        ["--once", subject, url] => startup::main(subject, url),
        ["--live", subject, url, count] => {
            concurrent_runs::main(subject, url, count.parse().expect("a number of agents"));
        }
        ["--callgrind", turns, setup, ref more @ ..] => {
            let number = |text: &str| text.parse().expect("a number");
            calls::profile(
                number(turns),
                setup,
                more.first().map_or(1, |runs| number(runs)),
            );
        }
        _ => {
            // Without `--bench`, cargo runs this as a test, which only checks that the benchmark
            // runs.
            let quick = arguments.contains(&"--quick") || !args.iter().any(|arg| arg == "--bench");
            let server = mock_server::Server::start();
            calls::report(&server, quick);
            concurrent_runs::report(&server, if quick { (30, 1) } else { (2_000, 5) });
            startup::report(&server, if quick { 3 } else { 150 });
        }
    }
}
