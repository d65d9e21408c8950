//! A child process that answers each line with a line.
//!
//! A line has at most 16 MiB. The caller chooses the destination of standard error, which is not
//! parsed.

use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The maximum length of a line, in bytes.
const MAX_LINE: u64 = 16 << 20;

/// A program that exchanges lines. Dropping it kills the program.
#[derive(Debug)]
pub(crate) struct LineProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl LineProcess {
    pub(crate) fn start(program: &OsStr, args: &[OsString], log: Stdio) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(args);
        Self::of(command, log)
    }

    pub(crate) fn of(mut command: Command, log: Stdio) -> Result<Self, String> {
        let program = command.as_std().get_program().to_owned();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start `{}`: {error}", program.display()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self {
                child,
                input,
                output: BufReader::new(output),
            }),
            _ => Err("the program has no standard input and output".to_owned()),
        }
    }

    /// Sends one line and reads one; `None` if the program has ended, or if the line is too long.
    pub(crate) async fn exchange(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        // A program that does not read may still have answered.
        let _ = self.input.write_all(line).await;
        let _ = self.input.flush().await;
        let mut reply = Vec::new();
        (&mut self.output)
            .take(MAX_LINE)
            .read_until(b'\n', &mut reply)
            .await
            .ok()?;
        (!reply.trim_ascii().is_empty()).then_some(reply)
    }

    /// Closes the input and waits for the end of the program.
    pub(crate) async fn end(mut self) -> String {
        drop(self.input);
        match tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it is still running".to_owned(),
        }
    }
}
