//! What levity's loop costs in time and memory, beside a floor in the same run.
//!
//! - `cargo bench --bench loop` measures everything, in about a minute.
//! - `-- --quick` does so in a few seconds; good for seeing that it runs.
//! - `-- --callgrind N [SETUP]` runs `N` tool turns and nothing else, for a profiler.
//!
//! `docs/performance.md` says what the figures mean.

mod clock;
mod count;
mod crowd;
mod dispatch;
mod idle;
mod many;
mod measure;
mod subject;
mod turns;

use measure::Effort;
use turns::Setup;

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "--callgrind") {
        return callgrind(&args[at + 1..]);
    }
    // Without `--bench`, cargo runs this as a test: that it runs is enough.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (effort, count) = if quick {
        (Effort::QUICK, 1_000)
    } else {
        (Effort::FULL, 10_000)
    };
    // Memory first, while the process holds none from before.
    crowd::report(count);
    crowd::sizes();
    idle::report(count);
    turns::report(effort);
    dispatch::report(effort);
    many::report(quick);
}

/// Makes one run of a number of turns, by the set-up of that name. `dispatch` makes as many calls,
/// `crowd` and `idle` have as many agents, and `many` makes one run whose model asks for all calls
/// in one reply.
fn callgrind(args: &[String]) {
    let turns = args
        .first()
        .and_then(|turns| turns.parse().ok())
        .expect("a number of turns");
    // Cargo adds `--bench` behind what it was told.
    let name = args
        .get(1)
        .map(String::as_str)
        .filter(|name| *name != "--bench")
        .unwrap_or("run");
    let setup = Setup::ALL.into_iter().find(|setup| setup.name() == name);
    match (setup, name) {
        (Some(setup), _) => (setup.work(turns).run)(),
        (None, "dispatch") => (dispatch::dispatched(turns).run)(),
        (None, "crowd") => crowd::shared(turns),
        (None, "idle") => idle::build(turns),
        (None, "many") => _ = many::run(turns, true),
        (None, _) => {
            let names: Vec<_> = Setup::ALL.iter().map(|setup| setup.name()).collect();
            panic!(
                "there is no set-up `{name}`; there are dispatch, crowd, idle, many, {}",
                names.join(", ")
            );
        }
    }
}
