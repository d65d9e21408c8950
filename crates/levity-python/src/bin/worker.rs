//! A worker process that runs Python for levity; levity starts it, not a user.

#[expect(
    clippy::print_stderr,
    reason = "a user who starts it by hand sees why it does nothing"
)]
fn main() {
    levity_python::worker_main();
    eprintln!("this is a worker of levity-python: pass its path to `Isolation::Process`");
}
