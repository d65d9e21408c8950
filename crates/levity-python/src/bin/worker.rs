//! Runs Python for levity in a process of its own; started by levity, not by hand.

#[expect(
    clippy::print_stderr,
    reason = "who starts it by hand is told why it does nothing"
)]
fn main() {
    levity_python::worker_main();
    eprintln!("this is a worker of levity-python: name its path in `Isolation::Process`");
}
