//! Commands that try to escape, to stay behind, or to exceed their limits. Each is tried on every
//! set of disabled mechanisms that this system supports. If the report states that a protection is
//! not enforced, the tests that need it print that they are skipped.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "real processes take real time"
)]

mod attacks;
mod basics;
mod errors;
mod fixture;
mod git;
mod hidden;
mod kernel_requests;
mod lifetime;
mod limits;
mod mounts;
mod other_processes;
mod protected;

use fixture::Fixture;
use levity_sandbox::{Level, Mechanism, SandboxBuilder};

/// The mechanisms that each round of a test disables.
const DISABLED: [&[&str]; 9] = [
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

fn disable(builder: SandboxBuilder, disabled: &[&'static str]) -> SandboxBuilder {
    disabled
        .iter()
        .fold(builder.at_least(Level::Open), |builder, means| {
            builder.without(means)
        })
}

#[tokio::test]
async fn report_reflects_disabled_mechanisms() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let report = fixture.sandbox.report();
        println!("without {disabled:?}:\n{report}\n");
        assert!(
            report.memory.holds && report.process_count.holds && report.cpu_time.holds,
            "{report}"
        );
        // A mechanism that is available must enforce its protection.
        let new =
            |mechanism: &Mechanism| matches!(mechanism, Mechanism::Landlock { abi } if *abi >= 3);
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
        if disabled.contains(&"landlock") {
            assert!(!report.files.holds, "{report}");
            assert!(report.level < Level::Guarded, "{report}");
        }
        if disabled.contains(&"namespaces") {
            assert!(
                !report.hidden.holds && report.level < Level::Isolated,
                "{report}"
            );
        }
        if disabled.contains(&"seccomp") {
            assert!(!report.network.holds, "{report}");
        }
    }
}
