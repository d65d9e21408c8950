//! Python code written by a model, in an interpreter without access to the system.
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
//! - [`Python`] runs a program: variables in, the value of the last expression and the printed text
//!   out.
//! - [`RunPython`] gives it to an agent. The code calls tools; each call is validated, checked by
//!   the policy and journaled. Code that waits for a tool survives the end of the process.
//! - [`tools_from_source`] makes tools from the functions in a Python file. A tools folder uses it
//!   for its `*.py` files.
//! - [`worker_main`], called first in `main`, runs all programs in separate processes.
//!
//! A program has no files, network, environment, clock or randomness, and every
//! [limit](ProgramLimits) has a default. `docs/python.md` lists the supported parts of Python, and
//! the remaining risks of a malicious program.
//!
//! This crate deliberately has no packages, no CPython, and no access to anything but the chosen
//! tools.
//!
//! # Features
//!
//! The crate has no optional features. The interpreter is part of the library, so nothing has to be
//! installed; the binary `levity-python-worker` is only needed if your own program cannot call
//! [`worker_main`].
//!
//! # Where to go next
//!
//! - Give Python to an agent: [`RunPython`], then `Agent::builder(model).program(..)` of the crate
//!   `levity`.
//! - Tighten what a program may use: [`ProgramLimits`].
//! - Write tools in Python: [`tools_from_source`], or [`PythonFileLoader`] for a whole folder.
//! - Decide what a failure means: [`ProgramFault`] for failures of the program, [`Error`] for all
//!   others.
//!
//! # Limits in numbers
//!
//! | resource | default | beyond it |
//! |---|---|---|
//! | run time | 10 s | [`ProgramFaultKind::Time`] |
//! | memory | 128 MiB | [`ProgramFaultKind::Memory`] |
//! | tool calls | 100 | [`ProgramFaultKind::Calls`] |
//! | source | 256 KiB | [`ProgramFaultKind::Size`] |
//! | state while a call is open | 4 MiB | [`ProgramFaultKind::Size`] |
//! | printed text | 32 KiB | the middle is omitted |
//! | result | 64 KiB of JSON | the rest is cut |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod dropin;
mod engine;
mod error;
mod executor;
mod fault;
mod folder;
mod function;
mod isolation;
mod limits;
mod machine;
mod output;
mod program;
mod python;
mod signature;
mod tool;
mod values;
mod worker;

pub use dropin::{PythonFileTools, tools_from_source};
pub use error::{Error, Result};
pub use fault::{ProgramFault, ProgramFaultKind};
pub use folder::PythonFileLoader;
pub use isolation::Isolation;
pub use limits::ProgramLimits;
pub use program::RunPython;
pub use python::{ProgramOutput, Python};
pub use tool::PythonTool;
pub use worker::worker_main;
