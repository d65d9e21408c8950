//! What levity costs for each call of a model over HTTP, beside a loop written by hand with
//! `reqwest` and `serde_json`, in the same run.
//!
//! - `cargo bench --bench http` measures everything, in about two minutes.
//! - `-- --quick` does so in a few seconds; good for seeing that it runs.
//! - `-- --callgrind TURNS SETUP [RUNS]` makes runs of `TURNS` tool turns and nothing else, for a
//!   profiler.
//!
//! `docs/performance.md` says what the figures mean.

mod by_hand;
mod calls;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod clock;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod count;
mod live;
mod measure;
mod once;
mod serve;
mod through;

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| *arg != "--bench")
        .collect();
    match words[..] {
        ["--serve"] => serve::main(),
        ["--once", subject, url] => once::main(subject, url),
        ["--live", subject, url, count] => {
            live::main(subject, url, count.parse().expect("a number of agents"));
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
            // Without `--bench`, cargo runs this as a test: that it runs is enough.
            let quick = words.contains(&"--quick") || !args.iter().any(|arg| arg == "--bench");
            let server = serve::Server::start();
            calls::report(&server, quick);
            live::report(&server, if quick { (30, 1) } else { (2_000, 5) });
            once::report(&server, if quick { 3 } else { 150 });
        }
    }
}
