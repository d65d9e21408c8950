//! A program as a subject, in any language.
//!
//! Processes that stay alive are reused, since the start of an interpreter can take longer than an
//! answer. A process that has exited after an earlier case is replaced silently; one that exits
//! during its first case fails that case.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::text::{chain, one_line};
use levity_system::files::{open, options};
use serde_json::{Value, json};

use super::Subject;
use crate::process::LineProcess;
use crate::{AnsweredTurn, Case, ToolHost, ToolSession, Transcript, TrialCall};

/// The maximum number of calls that a program may request in one turn.
const MAX_CALLS: usize = 200;

/// A program in any language as a subject.
///
/// The program reads each [question](Case::question) as one line of JSON from its standard input.
/// It writes a [`Transcript`] as one line of JSON to its standard output. It may exit after one
/// case, and is then started again for the next; or it continues to read, and answers many. It is
/// stopped when the subject is dropped, or when a case times out.
///
/// In a case with several turns, or with tools that run, it reads one line for each turn, with the
/// number of the `turn`. It must retain the conversation until the last of the `turns`. Before the
/// transcript of a turn, it may write `{"call": {"name": "..", "arguments": {..}}}`. It then reads
/// `{"result": ".."}`, with `"failed": true` if the tool failed.
///
/// ```
/// # #[cfg(unix)]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use levity_eval::{Case, CommandSubject, Expectation, Subject};
///
/// let script = r#"read question; echo '{"text": "Paris"}'"#;
/// let subject = CommandSubject::new("parrot", "sh").args(["-c", script]);
/// let case = Case::new("1", "What is the capital of France?", Expectation::contains("Paris"));
/// assert_eq!(subject.answer(&case).await.text, "Paris");
/// # }
/// # #[cfg(not(unix))]
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct CommandSubject {
    name: String,
    program: OsString,
    args: Vec<OsString>,
    log: Option<PathBuf>,
    tool_host: Option<ToolHost>,
    idle: Mutex<Vec<Process>>,
}

/// A running program; `answered` is set once it has completed a case.
#[derive(Debug)]
struct Process {
    lines: LineProcess,
    answered: bool,
}

/// A line of a program in a conversation.
enum Line {
    Call(TrialCall),
    Answer(Box<Transcript>),
}

impl Line {
    fn parse(line: &[u8]) -> serde_json::Result<Self> {
        let mut value: Value = serde_json::from_slice(line)?;
        match value.get_mut("call").map(Value::take) {
            Some(call) => serde_json::from_value(call).map(Self::Call),
            None => serde_json::from_value(value).map(|answer| Self::Answer(Box::new(answer))),
        }
    }
}

impl CommandSubject {
    /// Creates a subject from a program without arguments.
    pub fn new(name: impl Into<String>, program: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            log: None,
            tool_host: None,
            idle: Mutex::default(),
        }
    }

    /// Adds arguments for the program.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the file to which the program's standard error is appended; it is discarded by default.
    ///
    /// ```
    /// # #[cfg(unix)]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # use levity_eval::{Case, CommandSubject, Expectation, Subject};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let log = dir.path().join("errors.log");
    /// let script = "read question; echo 'no key' >&2";
    /// let subject = CommandSubject::new("broken", "sh").args(["-c", script]).log(&log);
    /// let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
    /// assert!(subject.answer(&case).await.error.unwrap().contains("without an answer"));
    /// assert_eq!(std::fs::read_to_string(&log).unwrap(), "no key\n");
    /// # }
    /// # #[cfg(not(unix))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// Sets the program that runs the tools of cases with an [environment](Case::environment).
    /// Without one, such cases fail.
    #[must_use]
    pub fn tool_host(mut self, host: ToolHost) -> Self {
        self.tool_host = Some(host);
        self
    }

    fn start(&self) -> Result<Process, String> {
        let log = match &self.log {
            None => Stdio::null(),
            Some(path) => {
                let file = open(path, options().create(true).append(true));
                file.map_err(|error| format!("`{}`: {error}", path.display()))?
                    .into()
            }
        };
        let lines = LineProcess::start(&self.program, &self.args, log)?;
        Ok(Process {
            lines,
            answered: false,
        })
    }

    /// Returns an idle process that has answered before, or a new one.
    fn take(&self) -> Result<Process, String> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.map_or_else(|| self.start(), Ok)
    }

    fn give_back(&self, mut process: Process) {
        process.answered = true;
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(process);
    }

    async fn ask(&self, question: &Value) -> Result<Transcript, String> {
        let (process, reply) = self.first_reply(question).await?;
        let transcript =
            serde_json::from_slice(&reply).map_err(|error| invalid_transcript(&error, &reply))?;
        self.give_back(process);
        Ok(transcript)
    }

    /// Sends the first line of a case to a running process.
    async fn first_reply(&self, question: &Value) -> Result<(Process, Vec<u8>), String> {
        let line = line(question);
        let mut process = self.take()?;
        let mut reply = process.lines.exchange(&line).await;
        if reply.is_none() && process.answered {
            // The process exited after an earlier case, which is allowed.
            process = self.start()?;
            reply = process.lines.exchange(&line).await;
        }
        match reply {
            Some(reply) => Ok((process, reply)),
            None => Err(self.ended(process).await),
        }
    }

    async fn ended(&self, process: Process) -> String {
        let status = process.lines.end().await;
        let log = self
            .log
            .as_ref()
            .map_or(String::new(), |path| format!("; see `{}`", path.display()));
        format!("the program ended without an answer ({status}){log}")
    }

    /// Runs the turns one after the other. After an error, the earlier turns remain.
    async fn converse(&self, case: &Case) -> Transcript {
        let session = match (&case.environment, &self.tool_host) {
            (None, _) => None,
            (Some(_), None) => {
                return Transcript::failed(
                    "the tools of the case must run, but the subject has no tool host; set one \
                        with `tool_host`",
                );
            }
            (Some(_), Some(host)) => match host.open(case).await {
                Ok(session) => Some(session),
                Err(error) => return Transcript::failed(chain(&error)),
            },
        };
        let (mut process, mut transcript) = (None, Transcript::new());
        for turn in 1..=1 + case.turns.len() {
            let answer = self.turn(case, turn, session.as_ref(), &mut process).await;
            let answer = answer.unwrap_or_else(Transcript::failed);
            let calls = match &session {
                Some(session) => session.take_calls().await,
                None => answer.calls,
            };
            transcript = transcript.with_turn(AnsweredTurn::new(answer.text, calls));
            transcript.usage += answer.usage;
            transcript.messages.extend(answer.messages);
            transcript.replies = match (transcript.replies, answer.replies) {
                (Some(before), Some(now)) => Some(before + now),
                (before, now) => before.or(now),
            };
            transcript.error = answer.error;
            if transcript.error.is_some() {
                // The program may be in the middle of the conversation, so it gets no other case.
                return transcript;
            }
        }
        if let Some(process) = process {
            self.give_back(process);
        }
        transcript
    }

    /// Asks one turn and runs the calls that the program requests, at most 200.
    async fn turn(
        &self,
        case: &Case,
        turn: usize,
        session: Option<&ToolSession>,
        slot: &mut Option<Process>,
    ) -> Result<Transcript, String> {
        let question = case.question_at(turn).unwrap_or_default();
        let (mut process, mut reply) = match slot.take() {
            None => self.first_reply(&question).await?,
            Some(process) => self.exchange(process, &question).await?,
        };
        for _ in 0..=MAX_CALLS {
            let call =
                match Line::parse(&reply).map_err(|error| invalid_transcript(&error, &reply))? {
                    Line::Call(call) => call,
                    Line::Answer(answer) if session.is_some() && !answer.calls.is_empty() => {
                        return Err(
                        "the program listed calls in a case whose tools run; it must request each \
                            with a \
                            line \
                                `{\"call\": {..}}` and read its result"
                            .to_owned(),
                    );
                    }
                    Line::Answer(answer) => {
                        *slot = Some(process);
                        return Ok(*answer);
                    }
                };
            let result = result(case, turn, session, call).await?;
            (process, reply) = self.exchange(process, &result).await?;
        }
        Err(format!(
            "the program requested more than {MAX_CALLS} calls in one turn"
        ))
    }

    async fn exchange(
        &self,
        mut process: Process,
        value: &Value,
    ) -> Result<(Process, Vec<u8>), String> {
        match process.lines.exchange(&line(value)).await {
            Some(reply) => Ok((process, reply)),
            None => Err(self.ended(process).await),
        }
    }
}

/// Runs a call that a program requested. As for a model, an unknown tool is a failed call.
async fn result(
    case: &Case,
    turn: usize,
    session: Option<&ToolSession>,
    call: TrialCall,
) -> Result<Value, String> {
    let Some(session) = session else {
        return Err(
            "the program requested a call, but the tools of the case do not run".to_owned(),
        );
    };
    if case.tools_at(turn).all(|tool| tool.name != call.name) {
        let name = one_line(&call.name, 100);
        return Ok(json!({"result": format!("unknown tool `{name}`"), "failed": true}));
    }
    if !call.arguments.is_object() {
        return Ok(json!({"result": "the arguments are not an object", "failed": true}));
    }
    match session.call(&call.name, call.arguments).await {
        Ok(reply) if reply.failed => Ok(json!({"result": reply.text, "failed": true})),
        Ok(reply) => Ok(json!({"result": reply.text})),
        Err(error) => Err(chain(&error)),
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn invalid_transcript(error: &serde_json::Error, reply: &[u8]) -> String {
    format!(
        "the program did not write a transcript: {error}: {}",
        one_line(&String::from_utf8_lossy(reply), 200)
    )
}

#[async_trait]
impl Subject for CommandSubject {
    fn name(&self) -> &str {
        &self.name
    }

    async fn answer(&self, case: &Case) -> Transcript {
        if case.is_conversation() {
            return self.converse(case).await;
        }
        self.ask(&case.question())
            .await
            .unwrap_or_else(Transcript::failed)
    }
}
