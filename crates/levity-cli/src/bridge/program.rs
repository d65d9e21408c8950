//! The agent of another program as the commander of a host.
//!
//! With `--commander COMMAND` a host passes tasks to another program, such as a coding agent of
//! another vendor. levity treats the program as a model with one turn: the task is its prompt on
//! standard input, its standard output is the answer. The journal, the limits, cancellation and the
//! protocol of the bridge then apply to it without further code.
//!
//! The program is not confined: it runs with the rights of the operator, who chose it. Output is
//! limited to 1 MiB and more is dropped while it is still read, so the program never blocks on a
//! full pipe.

use std::path::PathBuf;
use std::process::Stdio;

use async_trait::async_trait;
use levity::core::{
    Deltas, Message, Model, ModelCard, ModelError, ModelErrorKind, Request, Response, Role,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// The maximum size of a program's answer, in bytes.
const MAX_ANSWER: u64 = 1 << 20;
/// The maximum number of bytes of standard error that are retained for an error message.
const MAX_STDERR: u64 = 64 << 10;
/// The maximum number of characters of standard error in an error message.
const MAX_SHOWN: usize = 400;

/// A program that reads a task on its standard input and answers on its standard output.
///
/// levity starts it again for each task, in the workspace and with the environment of the host. It
/// is killed with all processes that it started once no caller waits for the answer.
///
/// Only the last message of the user is passed; the history of levity would not fit a program with
/// its own memory.
pub(super) struct Program {
    card: ModelCard,
    command: String,
    folder: PathBuf,
}

impl Program {
    /// Creates a commander that runs this shell command in this folder.
    pub(super) fn new(command: &str, folder: PathBuf) -> Self {
        Self {
            card: ModelCard::new("program", command),
            command: command.to_owned(),
            folder,
        }
    }

    /// Writes and reads at the same time, since a program may fill its output before it has read
    /// its input.
    ///
    /// # Errors
    /// The program cannot be started, cannot be awaited, or ends with a failure; the message then
    /// has the end of its standard error. Each is a bad request, which is not retried: the program
    /// may have changed files.
    async fn answer(&self, prompt: &str) -> Result<String, ModelError> {
        let mut command = shell_command(&self.command);
        command.current_dir(&self.folder).kill_on_drop(true);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |action: &str, error: &std::io::Error| {
            ModelError::new(
                ModelErrorKind::BadRequest,
                format!("the commander `{}` {action}: {error}", self.command),
            )
        };
        let child = command
            .spawn()
            .map_err(|error| failed("failed to start", &error))?;
        let mut group = Group::of(child);
        let (stdin, stdout, stderr) = group.pipes();
        let write_prompt = async {
            if let Some(mut stdin) = stdin {
                // A program may answer without reading all of its input.
                let _ = stdin.write_all(prompt.as_bytes()).await;
            }
        };
        let ((), answer, errors) = tokio::join!(
            write_prompt,
            read(stdout, MAX_ANSWER),
            read(stderr, MAX_STDERR)
        );
        let status = group
            .wait()
            .await
            .map_err(|error| failed("cannot be awaited", &error))?;
        if !status.success() {
            let errors = last_text(&errors.0);
            let message = format!(
                "the commander `{}` failed ({status}): {errors}",
                self.command
            );
            return Err(ModelError::new(ModelErrorKind::BadRequest, message));
        }
        let (answer, complete) = answer;
        let mut answer = String::from_utf8_lossy(&answer).trim().to_owned();
        if !complete {
            answer.push_str("\n[the rest of the answer was left out: it is longer than 1 MiB]");
        }
        Ok(answer)
    }
}

#[async_trait]
impl Model for Program {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let messages = request.history.messages();
        let prompt = messages
            .iter()
            .rev()
            .find(|message| message.role == Role::User);
        let prompt = prompt
            .map(|message| message.text().into_owned())
            .unwrap_or_default();
        let answer = self.answer(&prompt).await?;
        Ok(Deltas::from_response(&Response::new(Message::assistant(
            answer,
        ))))
    }
}

/// The new process group makes it possible to kill the shell together with all that it started. On
/// Windows only the process itself is killed.
fn shell_command(line: &str) -> Command {
    #[cfg(unix)]
    {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).process_group(0);
        command
    }
    #[cfg(not(unix))]
    {
        let mut command = Command::new("cmd");
        command.arg("/C").arg(line);
        command
    }
}

/// Reads up to `limit` bytes and drops the rest; returns `true` if nothing was dropped.
async fn read(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let Some(mut pipe) = pipe else {
        return (bytes, true);
    };
    let _ = (&mut pipe).take(limit).read_to_end(&mut bytes).await;
    // The rest is read and dropped, so that the program does not block.
    let more = tokio::io::copy(&mut pipe, &mut tokio::io::sink())
        .await
        .unwrap_or(0);
    (bytes, more == 0)
}

/// Errors are usually at the end of the output, so the last 400 characters are kept, on one line.
fn last_text(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = text.chars().count().saturating_sub(MAX_SHOWN);
    match text.is_empty() {
        true => "it wrote nothing to standard error".to_owned(),
        false => text.chars().skip(skipped).collect(),
    }
}

/// A process and its child processes, which end with it.
///
/// `leader` is taken by the first kill, so a process id that the system has reused is never killed.
struct Group {
    child: Child,
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

/// The standard input, output and error of a child process.
type Pipes = (
    Option<tokio::process::ChildStdin>,
    Option<tokio::process::ChildStdout>,
    Option<tokio::process::ChildStderr>,
);

impl Group {
    /// Takes over a child process that leads its own group.
    fn of(child: Child) -> Self {
        #[cfg(unix)]
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(rustix::process::Pid::from_raw);
        Self {
            child,
            #[cfg(unix)]
            leader,
        }
    }

    /// Takes the pipes out, so the child can be awaited while they are in use.
    fn pipes(&mut self) -> Pipes {
        (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        )
    }

    /// Waits for the process, and kills the processes that it left behind.
    async fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        let status = self.child.wait().await;
        self.kill();
        status
    }

    /// Kills the whole group once. Later calls do nothing, because the id may belong to another
    /// process by then.
    fn kill(&mut self) {
        #[cfg(unix)]
        if let Some(leader) = self.leader.take() {
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
