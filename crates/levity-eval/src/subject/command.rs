use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::text::one_line;
use levity_runtime::__private::{open, options};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::Subject;
use crate::{Case, Transcript};

/// The longest line that is read.
const LONGEST: u64 = 16 << 20;

/// A program as a subject, in any language.
///
/// The program gets each [question](Case::question) as one line of JSON on its standard input, and writes a [`Transcript`]
/// as one line of JSON on its standard output. It may end after one case, and is started again for the next; or it reads
/// on, and answers many. It is stopped when the subject is dropped, or when a case takes too long.
///
/// ```
/// # #[cfg(unix)]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use levity_eval::{Case, CommandSubject, Expectation, Subject};
///
/// let subject = CommandSubject::new("parrot", "sh").args(["-c", r#"read question; echo '{"text": "Paris"}'"#]);
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
    idle: Mutex<Vec<Process>>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    answered: bool,
}

impl CommandSubject {
    /// A program without arguments.
    pub fn new(name: impl Into<String>, program: impl Into<OsString>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            log: None,
            idle: Mutex::default(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the file that the program's standard error is appended to; it is dropped by default.
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    fn start(&self) -> Result<Process, String> {
        let log = match &self.log {
            None => Stdio::null(),
            Some(path) => {
                let file = open(path, options().create(true).append(true));
                file.map_err(|error| format!("`{}`: {error}", path.display()))?.into()
            }
        };
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| format!("`{}` cannot be started: {error}", self.program.display()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Process { child, input, output: BufReader::new(output), answered: false })
            }
            _ => Err("the program has no standard input and output".to_owned()),
        }
    }

    /// A process that has answered before, or a new one.
    fn take(&self) -> Result<Process, String> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.start(), Ok)
    }

    async fn ask(&self, line: &[u8]) -> Result<Transcript, String> {
        let mut process = self.take()?;
        let mut reply = process.exchange(line).await;
        if reply.is_none() && process.answered {
            // It ended after an earlier case, as a program may.
            process = self.start()?;
            reply = process.exchange(line).await;
        }
        let Some(reply) = reply else {
            let status = process.end().await;
            let log = self.log.as_ref().map_or(String::new(), |path| format!("; see `{}`", path.display()));
            return Err(format!("the program ended without an answer ({status}){log}"));
        };
        let transcript = serde_json::from_slice(&reply).map_err(|error| {
            format!(
                "the program wrote no transcript: {error}: {}",
                one_line(&String::from_utf8_lossy(&reply), 200)
            )
        })?;
        process.answered = true;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(transcript)
    }
}

impl Process {
    /// One line out, one line back; `None` when the program has ended, or writes without an end.
    async fn exchange(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        // A program that does not read may still have answered.
        let _ = self.input.write_all(line).await;
        let _ = self.input.flush().await;
        let mut reply = Vec::new();
        (&mut self.output).take(LONGEST).read_until(b'\n', &mut reply).await.ok()?;
        (!reply.trim_ascii().is_empty()).then_some(reply)
    }
}

impl Process {
    /// Waits for the program's end after its input was closed.
    async fn end(mut self) -> String {
        drop(self.input);
        match tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it still runs".to_owned(),
        }
    }
}

#[async_trait]
impl Subject for CommandSubject {
    fn name(&self) -> &str {
        &self.name
    }

    async fn answer(&self, case: &Case) -> Transcript {
        let mut line = case.question().to_string().into_bytes();
        line.push(b'\n');
        self.ask(&line).await.unwrap_or_else(Transcript::failed)
    }
}
