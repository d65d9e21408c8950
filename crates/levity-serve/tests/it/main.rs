//! Scenario tests of this crate.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and says what it leaves out"
)]

#[allow(
    clippy::disallowed_methods,
    reason = "its clients are programs of their own"
)]
#[cfg(unix)]
mod bridge;
mod http;
mod mcp;
mod offer;
mod runs;

/// Returns `true` if this process runs only this test; otherwise runs the test in a new process.
/// Measurements of the process would otherwise include other tests.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "LEVITY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let ran = std::process::Command::new(this)
        .args(["--exact", test])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    false
}
