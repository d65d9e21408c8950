//! Agents for programs that are not async.
//!
//! ```
//! use levity_loop::{Agent, blocking};
//! use levity_test::ScriptedModel;
//!
//! # fn main() -> levity_loop::Result<()> {
//! let agent = Agent::builder(ScriptedModel::new().reply("Good morning!")).build()?;
//! let answer = blocking::run(agent.run("Hello"))?;
//! assert_eq!(answer.text(), "Good morning!");
//! # Ok(())
//! # }
//! ```

use std::future::IntoFuture;

use crate::error::{Error, Result};

/// Waits for a run, typed or not, on this thread.
///
/// Each call has an async runtime of its own, which ends with it; a model's client that keeps
/// connections open makes them anew.
///
/// # Errors
/// Those of the run; [`Error::InsideAsync`] when called from async code, where it would hold up others.
pub fn run<T>(run: impl IntoFuture<Output = Result<T>>) -> Result<T> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::InsideAsync);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::NoRuntime)?;
    let ended = runtime.block_on(run.into_future());
    // A tool that blocks and was given up on must not hold up the caller.
    runtime.shutdown_background();
    ended
}
