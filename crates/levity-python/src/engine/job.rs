//! The messages between a machine, its executor and a worker.
//!
//! They cross process boundaries and are stored in journals, so their serialized names must not
//! change. States are base64 text, because JSON has no bytes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::ProgramFault;
use crate::function::Function;
use crate::limits::ProgramLimits;
use crate::output::PrintedText;

/// A segment of a program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) from: JobStart,
    /// The functions that the program may call.
    pub(crate) functions: Vec<Function>,
    pub(crate) limits: ProgramLimits,
    /// The number of tool calls that remain.
    pub(crate) calls_left: usize,
    /// The text that the program printed before.
    pub(crate) printed: PrintedText,
}

/// The start of a segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobStart {
    /// The beginning of the source, with these variables.
    Source {
        file: String,
        code: String,
        inputs: Map<String, Value>,
    },
    /// The calls for which the program waits.
    Snapshot {
        state: String,
        awaits: bool,
        answers: Vec<(u32, Answer)>,
    },
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Value(Value),
    Error(String),
}

/// The result of a segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) end: End,
    pub(crate) printed: PrintedText,
    /// The run time of the segment.
    pub(crate) time: Duration,
}

/// The reason why a segment ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// The program waits for calls.
    Paused {
        state: String,
        awaits: bool,
        calls: Vec<PendingCall>,
    },
    /// The program has ended.
    Done {
        result: Value,
        /// Set if the result was cut.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
    /// The program failed with this fault.
    Failed(ProgramFault),
}

impl End {
    /// Returns a short summary of the outcome.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Paused { calls, .. } => {
                let names: Vec<String> = calls
                    .iter()
                    .map(|call| format!("`{}`", call.tool))
                    .collect();
                format!("the code waits for {}", names.join(", "))
            }
            Self::Done { .. } => "the code finished".to_owned(),
            Self::Failed(fault) => format!("the code failed: {}", fault.message),
        }
    }
}

/// A call for which the program waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingCall {
    /// The interpreter's number of the call.
    pub(crate) id: u32,
    pub(crate) tool: String,
    pub(crate) args: Map<String, Value>,
}
