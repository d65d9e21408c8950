use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::ProgramFault;
use crate::function::Function;
use crate::limits::ProgramLimits;
use crate::output::Printed;

/// A stretch of a program that is to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) from: From,
    /// What the program may call.
    pub(crate) functions: Vec<Function>,
    pub(crate) limits: ProgramLimits,
    /// How many calls of tools it may still make.
    pub(crate) calls_left: usize,
    /// What it has printed so far.
    pub(crate) printed: Printed,
}

/// Where the stretch begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum From {
    /// At the beginning of the source, with these variables.
    Source {
        file: String,
        code: String,
        inputs: Map<String, Value>,
    },
    /// At the calls that the program waits for.
    Snapshot {
        state: String,
        awaits: bool,
        answers: Vec<(u32, Answer)>,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Value(Value),
    Error(String),
}

/// How a stretch ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stretch {
    pub(crate) end: End,
    pub(crate) printed: Printed,
    /// How long it took.
    pub(crate) time: Duration,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// The program waits for calls.
    Paused {
        state: String,
        awaits: bool,
        calls: Vec<Wanted>,
    },
    /// It has come to its end.
    Done {
        result: Value,
        /// Whether there is more of it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
    /// It failed.
    Failed(ProgramFault),
}

impl End {
    /// What happened, in a few words.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Paused { calls, .. } => {
                let names: Vec<String> = calls
                    .iter()
                    .map(|call| format!("`{}`", call.tool))
                    .collect();
                format!("the code waits for {}", names.join(", "))
            }
            Self::Done { .. } => "the code is done".to_owned(),
            Self::Failed(fault) => format!("the code failed: {}", fault.message),
        }
    }
}

/// A call that the program waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// The number that the interpreter knows it by.
    pub(crate) id: u32,
    pub(crate) tool: String,
    pub(crate) args: Map<String, Value>,
}
