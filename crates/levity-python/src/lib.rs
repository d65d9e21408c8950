//! Python that a model wrote, in an interpreter that can touch nothing.
//!
//! ```
//! use levity_python::Python;
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_python::Result<()> {
//! let code = "words = text.lower().split()\n{w: words.count(w) for w in sorted(set(words))}";
//! let ran = Python::new().run(code, json!({"text": "to be or not to be"})).await?;
//! assert_eq!(ran.result, json!({"be": 2, "not": 1, "or": 1, "to": 2}));
//! # Ok(())
//! # }
//! ```
//!
//! - [`Python`] runs a program: variables in, the value of the last expression out, what it printed
//!   beside it.
//! - [`RunPython`] gives it to an agent: code that calls tools, each call validated, policed and
//!   journaled, and code that waits for a tool survives the end of the process.
//! - [`tools_of`] makes tools of the functions in a Python file, and a folder of tools uses it for
//!   its `*.py`.
//! - [`worker_main`], first thing in `main`, has all of it run in processes of its own.
//!
//! A program has no files, no network, no environment, no clock and no randomness, and every
//! [limit](Limits) has a default. `docs/python.md` says what of Python there is, and what a program
//! that means harm can still do.
//!
//! What is not here: packages, CPython, and a way to reach anything but the tools that were chosen.

mod dropin;
mod engine;
mod error;
mod executor;
mod fault;
mod folder;
mod function;
mod limits;
mod machine;
mod output;
mod place;
mod program;
mod python;
mod signature;
mod tool;
mod values;
mod worker;

pub use dropin::{PythonFileTools, tools_of};
pub use error::{Error, Result};
pub use fault::{ProgramFault, ProgramFaultKind};
pub use folder::PythonFiles;
pub use limits::ProgramLimits;
pub use place::Isolation;
pub use program::RunPython;
pub use python::{ProgramOutput, Python};
pub use tool::PythonTool;
pub use worker::worker_main;
