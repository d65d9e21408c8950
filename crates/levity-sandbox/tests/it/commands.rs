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
mod exposed;
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
        .fold(builder.require_level(Level::Open), |builder, means| {
            builder.disable(means)
        })
}

#[tokio::test]
async fn report_reflects_disabled_mechanisms() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let report = fixture.sandbox.report();
        println!("without {disabled:?}:\n{report}\n");
        assert!(
            report.memory.is_enforced
                && report.process_count.is_enforced
                && report.cpu_time.is_enforced,
            "{report}"
        );
        // A mechanism that is available must enforce its protection.
        let new =
            |mechanism: &Mechanism| matches!(mechanism, Mechanism::Landlock { abi } if *abi >= 3);
        assert!(
            report.files.is_enforced || !report.files.mechanisms.iter().any(new),
            "{report}"
        );
        assert!(
            report.network.is_enforced || !report.network.mechanisms.contains(&Mechanism::Seccomp),
            "{report}"
        );
        assert!(
            report.processes.is_enforced
                || !report
                    .processes
                    .mechanisms
                    .contains(&Mechanism::ProcessNamespace),
            "{report}"
        );
        if disabled.contains(&"landlock") {
            assert!(!report.files.is_enforced, "{report}");
            assert!(report.level < Level::Guarded, "{report}");
        }
        if disabled.contains(&"namespaces") {
            assert!(
                !report.hidden_files.is_enforced && report.level < Level::Isolated,
                "{report}"
            );
        }
        if disabled.contains(&"seccomp") {
            assert!(!report.network.is_enforced, "{report}");
        }
    }
}
