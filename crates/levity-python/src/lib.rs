//! Python that a model wrote, in an interpreter that can touch nothing.

mod dropin;
mod engine;
mod error;
mod executor;
mod fault;
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

pub use dropin::{FileTools, tools_of};
pub use error::{Error, Result};
pub use fault::{Fault, FaultKind};
pub use limits::Limits;
pub use place::Isolation;
pub use program::RunPython;
pub use python::{Python, Ran};
pub use tool::PythonTool;
pub use worker::worker_main;
