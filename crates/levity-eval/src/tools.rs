//! The tools of a case that run, in a process for each trial.
//!
//! The process holds the state of the tools, such as a simulated file system. A call without an
//! answer makes that state unknown, so the session then refuses all further calls, and the trial
//! ends with an error.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::time::Duration;

use levity_core::text::one_line;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::process::LineProcess;
use crate::python::Script;
use crate::{Case, Error, Result, TrialCall};

/// The problem after a call whose future was dropped.
const STOPPED: &str = "were stopped in a call";

/// A program that runs the tools of cases with an [environment](Case::environment). It runs as one
/// process for each trial, which is killed when the trial ends.
///
/// It exchanges lines of JSON. The first line contains the environment and the names of all tools
/// of the case, `{"environment": {..}, "tools": [..]}`. The program answers `{"ready": true}` or
/// `{"error": ".."}`. Each following line is a call, `{"name": "..", "arguments": {..}}`. The
/// program answers `{"result": ".."}`, with `"failed": true` if the tool failed.
///
/// ```
/// # #[cfg(unix)]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_eval::Result<()> {
/// use levity_eval::{Case, Expectation, OfferedTool, ToolHost};
/// use serde_json::json;
///
/// let script = r#"read first; echo '{"ready": true}'
///     while read call; do n=$((n+1)); echo "{\"result\": \"$n\"}"; done"#;
/// let case = Case::new("1", "Count to two.", Expectation::JudgeOnly)
///     .with_tool(OfferedTool::new("count", "Counts."))
///     .with_environment(json!({}));
/// let session = ToolHost::new("sh").args(["-c", script]).open(&case).await?;
/// session.call("count", json!({})).await?;
/// assert_eq!(session.call("count", json!({})).await?.text, "2");
/// # Ok(())
/// # }
/// # #[cfg(not(unix))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct ToolHost {
    program: OsString,
    args: Vec<OsString>,
    script: Option<Script>,
    timeout: Duration,
}

/// The result of a tool call.
///
/// ```
/// # #[cfg(unix)]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_eval::Result<()> {
/// # use levity_eval::{Case, Expectation, OfferedTool, ToolHost};
/// # use serde_json::json;
/// let script = r#"
///     read environment; echo '{"ready": true}'
///     read call; echo '{"result": "full", "failed": true}'
/// "#;
/// let case = Case::new("1", "Save it.", Expectation::JudgeOnly)
///     .with_tool(OfferedTool::new("save", "Saves."))
///     .with_environment(json!({}));
/// let session = ToolHost::new("sh").args(["-c", script]).open(&case).await?;
/// let reply = session.call("save", json!({})).await?;
/// assert_eq!((reply.text.as_str(), reply.failed), ("full", true));
/// # Ok(())
/// # }
/// # #[cfg(not(unix))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolReply {
    /// The result as text.
    pub text: String,
    /// Set if the tool failed.
    pub failed: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Error {
        error: String,
    },
    Ready {
        ready: bool,
    },
    Result {
        result: String,
        #[serde(default)]
        failed: bool,
    },
}

impl ToolHost {
    /// The default time limit of a call: 30 seconds.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Creates a host from a program without arguments.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            script: None,
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }

    /// Creates a host from a script of this crate, in an isolated Python.
    pub(crate) fn script(program: impl Into<OsString>, script: Script) -> Self {
        Self {
            script: Some(script),
            ..Self::new(program)
        }
    }

    /// Adds arguments for the program.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the time limit of a call and of the start; [`DEFAULT_TIMEOUT`](Self::DEFAULT_TIMEOUT)
    /// by default. A call that takes longer ends the process, because its state is then unknown.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts the tools of a case, in the initial state of the case.
    ///
    /// # Errors
    /// Fails if the case has no environment, if the program cannot be started, or if it rejects the
    /// case.
    pub async fn open(&self, case: &Case) -> Result<ToolSession> {
        let failed = |problem: String| Error::Tools {
            case: case.id.clone(),
            problem,
        };
        let Some(environment) = &case.environment else {
            return Err(failed("cannot run: the case has no environment".to_owned()));
        };
        let process = match &self.script {
            Some(script) => LineProcess::of(script.command(&self.program), Stdio::null()),
            None => LineProcess::start(&self.program, &self.args, Stdio::null()),
        };
        let process = process.map_err(|error| failed(format!("cannot run: {error}")))?;
        let names: HashSet<String> = case
            .tools_at(usize::MAX)
            .map(|tool| tool.name.clone())
            .collect();
        let first = json!({"environment": environment, "tools": names});
        let state = State {
            process: Some(process),
            calls: Vec::new(),
            failure: None,
        };
        let session = ToolSession {
            case: case.id.clone(),
            names,
            timeout: self.timeout,
            state: Mutex::new(state),
        };
        match session
            .exchange(&mut *session.state.lock().await, &first)
            .await
        {
            Ok(Answer::Ready { ready: true }) => {}
            Ok(Answer::Error { error }) => {
                return Err(failed(format!("cannot run: {}", one_line(&error, 500))));
            }
            Ok(_) => {
                return Err(failed(
                    "cannot run: the program did not report that it is ready".to_owned(),
                ));
            }
            Err(problem) => return Err(failed(problem)),
        }
        Ok(session)
    }
}

/// The tools of one trial, as a process with their state. Dropping it kills the process.
#[derive(Debug)]
pub struct ToolSession {
    case: String,
    names: HashSet<String>,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` while a call runs, so that a call that is dropped halfway ends the process.
    process: Option<LineProcess>,
    calls: Vec<TrialCall>,
    failure: Option<String>,
}

impl ToolSession {
    /// Runs a tool and records the call. Calls run one after the other.
    ///
    /// # Errors
    /// Fails if the case has no such tool, if the arguments are not an object, or if the program
    /// does not answer. After a missing answer, all further calls fail.
    pub async fn call(&self, name: &str, arguments: Value) -> Result<ToolReply> {
        let failed = |problem: String| Error::Tools {
            case: self.case.clone(),
            problem,
        };
        if !self.names.contains(name) {
            return Err(failed(format!("do not include `{}`", one_line(name, 100))));
        }
        if !arguments.is_object() {
            return Err(failed(format!(
                "require an object of arguments, and `{name}` got another value"
            )));
        }
        let mut state = self.state.lock().await;
        let answer = self
            .exchange(&mut state, &json!({"name": name, "arguments": arguments}))
            .await;
        let problem = match answer {
            Ok(Answer::Result { result, failed }) => {
                state.calls.push(TrialCall::new(name, arguments));
                return Ok(ToolReply {
                    text: result,
                    failed,
                });
            }
            Ok(Answer::Error { error }) => format!("failed: {}", one_line(&error, 500)),
            Ok(Answer::Ready { .. }) => "failed: the program returned no result".to_owned(),
            Err(problem) => format!("{problem} (in `{name}`)"),
        };
        state.process = None;
        state.failure.get_or_insert(problem.clone());
        Err(failed(problem))
    }

    /// Returns the calls since the last request, in the order in which they ran.
    pub async fn take_calls(&self) -> Vec<TrialCall> {
        std::mem::take(&mut self.state.lock().await.calls)
    }

    /// Returns the reason why calls are no longer answered.
    pub async fn failure(&self) -> Option<String> {
        let state = self.state.lock().await;
        state
            .failure
            .clone()
            .or_else(|| state.process.is_none().then(|| STOPPED.to_owned()))
    }

    async fn exchange(&self, state: &mut State, line: &Value) -> Result<Answer, String> {
        let Some(mut process) = state.process.take() else {
            return Err(state.failure.clone().unwrap_or_else(|| STOPPED.to_owned()));
        };
        let mut line = line.to_string().into_bytes();
        line.push(b'\n');
        let reply = match tokio::time::timeout(self.timeout, process.exchange(&line)).await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Err(format!("ended without an answer ({})", process.end().await)),
            Err(_) => {
                return Err(format!(
                    "gave no answer within {} seconds",
                    self.timeout.as_secs_f64()
                ));
            }
        };
        let answer = serde_json::from_slice(&reply).map_err(|error| {
            format!(
                "gave no answer: {error}: {}",
                one_line(&String::from_utf8_lossy(&reply), 200)
            )
        })?;
        state.process = Some(process);
        Ok(answer)
    }
}
