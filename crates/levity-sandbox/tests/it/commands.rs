//! Commands that try to get out, to stay, or to take too much. Each is tried on every rung that
//! this system has; where the report says that a rung does not hold something, what needs it is
//! left out aloud.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "real processes take real time"
)]

mod arena;
mod attacks;
mod errors;
mod hidden;
mod kept;
mod life;
mod limits;
mod mounts;
mod plain;

use arena::Arena;
use levity_sandbox::{Level, Mechanism, SandboxBuilder};

/// The means that a rung does without.
const RUNGS: [&[&str]; 9] = [
    &[],
    &["root"],
    &["proc"],
    &["mounts"],
    &["landlock"],
    &["seccomp"],
    &["namespaces"],
    &["namespaces", "landlock"],
    &["namespaces", "landlock", "seccomp"],
];

fn lower(builder: SandboxBuilder, rung: &[&'static str]) -> SandboxBuilder {
    rung.iter()
        .fold(builder.at_least(Level::Open), |builder, means| {
            builder.without(means)
        })
}

#[tokio::test]
async fn the_report_says_what_is_left_out() {
    for rung in RUNGS {
        let arena = Arena::new(rung, |builder| builder);
        let report = arena.sandbox.report();
        println!("without {rung:?}:\n{report}\n");
        assert!(
            report.memory.holds && report.process_count.holds && report.cpu_time.holds,
            "{report}"
        );
        // A means that is there is worth something.
        let new = |how: &Mechanism| matches!(how, Mechanism::Landlock { abi } if *abi >= 3);
        assert!(
            report.files.holds || !report.files.by.iter().any(new),
            "{report}"
        );
        assert!(
            report.network.holds || !report.network.by.contains(&Mechanism::Seccomp),
            "{report}"
        );
        assert!(
            report.processes.holds || !report.processes.by.contains(&Mechanism::ProcessNamespace),
            "{report}"
        );
        if rung.contains(&"landlock") {
            assert!(!report.files.holds, "{report}");
            assert!(report.level < Level::Guarded, "{report}");
        }
        if rung.contains(&"namespaces") {
            assert!(
                !report.hidden.holds && report.level < Level::Isolated,
                "{report}"
            );
        }
        if rung.contains(&"seccomp") {
            assert!(!report.network.holds, "{report}");
        }
    }
}
