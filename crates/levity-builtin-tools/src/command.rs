//! The tool `run_command`.
//!
//! Permission is decided twice. `permit` runs before the call and may ask a person. `call` checks
//! deny rules and read-only access again, since time passes in between, and since a direct caller
//! may skip the first. These checks depend on the text of the command and read no file.

use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use levity_core::{
    Content, Hints, Permit, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
};
use levity_sandbox::{
    Command, CommandError, CommandLimit, CommandLine, CommandOutput, CommandPolicy, Exit, Network,
    ReadScope, Sandbox,
};
use serde_json::{Value, json};

/// The time that a whole call may take beyond the command's own limit, to stop or kill the command.
const SLACK: Duration = Duration::from_secs(30);

/// The tool `run_command`, which runs a command in a sandbox.
///
/// A command that fails is a result, which the model reads. A command that times out is an error
/// with the output until then. The tool reports output as progress while the command runs.
///
/// A command that the policy allows because it only reads runs read-only. The kernel then denies it
/// all changes, the network, and files that the workspace denies. If the sandbox cannot enforce
/// that ([`SandboxReport::read_only`](levity_sandbox::SandboxReport::read_only)), a person must
/// approve every command that reads files and that no rule allows.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("levity-run-command-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// use levity_core::{Tool, ToolCx};
/// use levity_sandbox::{Level, Sandbox, Workspace};
/// use levity_builtin_tools::RunCommand;
/// use serde_json::json;
///
/// let sandbox = Sandbox::builder(Workspace::open(&folder)?).require_level(Level::Open).build()?;
/// let tool = RunCommand::new(sandbox);
/// let output = tool.call(json!({"command": "echo hello | wc -c"}), &ToolCx::detached()).await?;
/// assert!(output.as_text().starts_with("6\n[exit code 0 after"));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - `InvalidArgs`: an argument is missing or not a string, the directory is not in the workspace,
///   or a text contains NUL.
/// - `Denied`: a rule of the policy denies the command.
/// - `Timeout`: the command exceeded its time limit; the message contains its output.
/// - `Cancelled`: the call was cancelled; the processes of the command are killed.
/// - `Failed`: the command could not be started.
#[derive(Debug)]
pub struct RunCommand {
    sandbox: Sandbox,
    policy: CommandPolicy,
    spec: ToolSpec,
}

impl RunCommand {
    /// Creates a tool that runs commands in `sandbox` under the default policy. The policy also
    /// applies the deny rules of the sandbox's workspace.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_builtin_tools::RunCommand;
    /// # use levity_core::{Tool, ToolCx};
    /// # use levity_sandbox::{Level, Sandbox, Workspace};
    /// # use serde_json::json;
    /// let sandbox =
    ///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
    /// let tool = RunCommand::new(sandbox);
    /// // With `args`, no shell is involved. A command that fails is a result.
    /// let args = json!({"command": "cat", "args": ["a file; that is missing"]});
    /// let value = tool.call(args, &ToolCx::detached()).await?.value.expect("a value");
    /// assert_eq!(value["exit_code"], 1);
    /// assert!(value["stderr"].as_str().unwrap().contains("a file; that is missing"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(sandbox: Sandbox) -> Self {
        let spec = spec(&sandbox);
        let policy = CommandPolicy::default().with_workspace(sandbox.workspace());
        Self {
            sandbox,
            policy,
            spec,
        }
    }

    /// Sets the policy that allows, denies or requires approval for commands.
    ///
    /// A policy without a workspace uses the one of the sandbox. A command that a rule allows runs
    /// with all rights of the sandbox.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use levity_builtin_tools::RunCommand;
    /// use levity_core::{Permit, Tool};
    /// use levity_sandbox::{CommandPolicy, Level, Sandbox, Workspace};
    /// use serde_json::json;
    ///
    /// let sandbox =
    ///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
    /// let policy = CommandPolicy::new()
    ///     .allow("cargo test")
    ///     .deny("git push", "nothing leaves this machine");
    /// let tool = RunCommand::new(sandbox).policy(policy);
    /// assert_eq!(tool.permit(&json!({"command": "cargo test --quiet"})), Permit::Allow);
    /// assert_eq!(
    ///     tool.permit(&json!({"command": "git push"})),
    ///     Permit::deny("nothing leaves this machine")
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: CommandPolicy) -> Self {
        self.policy = match policy.workspace() {
            Some(_) => policy,
            None => policy.with_workspace(self.sandbox.workspace()),
        };
        self
    }

    /// Requires approval of a read-only command that the kernel cannot hold to reading. A command
    /// that reads no file needs no such protection.
    fn judge(&self, request: &CommandRequest) -> Permit {
        let ruling = self.policy.judge_in(&request.dir, request.as_line());
        match (&ruling, self.read_scope(request)) {
            (Permit::Allow, Some(scope))
                if scope != ReadScope::Nothing && !self.enforces_read_only() =>
            {
                Permit::ask(
                    "the command only reads, but this system cannot enforce read-only access",
                )
            }
            _ => ruling,
        }
    }

    /// Returns what the command reads, if it needs no approval because it only reads.
    fn read_scope(&self, request: &CommandRequest) -> Option<ReadScope> {
        self.policy.read_scope_in(&request.dir, request.as_line())
    }

    /// Returns the result of the probe when the sandbox was built.
    fn enforces_read_only(&self) -> bool {
        self.sandbox.report().read_only.is_enforced
    }

    /// Builds the command with the rights that its text determines. An approval by a person does
    /// not raise them: a command that only reads runs read-only in any case.
    fn command(&self, request: &CommandRequest, cx: &ToolCx) -> Command {
        let command = match &request.argv {
            None => self.sandbox.shell(&request.line),
            Some(argv) => self.sandbox.command(argv),
        };
        let progress = cx.progress.clone();
        let command = command
            .on_output(move |_, text| progress.report(text))
            .time_limit(request.time);
        // Read-only is decided again here, whether or not a person approved: files may have
        // changed.
        let command = match self
            .read_scope(request)
            .filter(|_| self.enforces_read_only())
        {
            Some(_) => command.read_only(),
            // A program in the workspace may have the same name as a system program that only
            // reads.
            None => command.use_system_programs(
                self.policy
                    .reading_programs_in(&request.dir, request.as_line()),
            ),
        };
        command.dir(&request.dir)
    }
}

#[async_trait]
impl Tool for RunCommand {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let request = CommandRequest::read(&args)
            .ok_or_else(|| invalid("`command` is missing, or an argument is not a string"))?;
        // Approval was decided earlier. Deny rules do not depend on the current files.
        if let Some(reason) = self
            .policy
            .denial_reason_in(&request.dir, request.as_line())
        {
            return Err(ToolError::new(
                ToolErrorKind::Denied,
                format!("this command is not allowed: {reason}"),
            ));
        }
        let run = std::pin::pin!(self.command(&request, cx).run());
        let cancelled = std::pin::pin!(cx.cancel.cancelled());
        match select(run, cancelled).await {
            Either::Left((finished, _)) => output(&finished.map_err(|error| failed(&error))?),
            Either::Right(_) => Err(ToolError::new(
                ToolErrorKind::Cancelled,
                "the command was cancelled before it finished",
            )),
        }
    }

    fn permit(&self, args: &Value) -> Permit {
        // Invalid arguments fail in `call`.
        CommandRequest::read(args)
            .map(|request| self.judge(&request))
            .unwrap_or_default()
    }
}

/// The arguments of a `run_command` call.
struct CommandRequest {
    line: String,
    /// The program and its arguments, if `args` requests a run without a shell.
    argv: Option<Vec<String>>,
    /// The folder in which the command starts.
    dir: String,
    time: Duration,
}

impl CommandRequest {
    fn as_line(&self) -> CommandLine<'_> {
        match &self.argv {
            None => CommandLine::Shell(&self.line),
            Some(argv) => CommandLine::Argv(argv),
        }
    }

    /// Returns `None` if `command` is missing or an argument has the wrong type. A missing time
    /// limit becomes the largest number, which the sandbox reduces to its own limit.
    fn read(args: &Value) -> Option<Self> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
        let line = text("command")?;
        let argv = match args.get("args") {
            None => None,
            Some(list) => {
                let args = list
                    .as_array()?
                    .iter()
                    .map(|arg| arg.as_str().map(str::to_owned));
                Some(
                    std::iter::once(Some(line.clone()))
                        .chain(args)
                        .collect::<Option<Vec<_>>>()?,
                )
            }
        };
        let seconds = args
            .get("timeout_seconds")
            .and_then(Value::as_u64)
            .unwrap_or(u64::MAX)
            .max(1);
        let dir = text("dir").unwrap_or_else(|| ".".to_owned());
        Some(Self {
            line,
            argv,
            dir,
            time: Duration::from_secs(seconds),
        })
    }
}

/// The description contains the time limit and the network access of the sandbox, so the model does
/// not try in vain.
fn spec(sandbox: &Sandbox) -> ToolSpec {
    let time = sandbox.time_limit();
    let network = match sandbox.network() {
        Network::None => " There is no network.",
        _ => "",
    };
    let description = format!(
        "Runs a command and returns what it wrote and its exit code. It begins in the workspace's \
            folder, and can \
         change files there and in $TMPDIR only.{network} Each call is a new shell: `cd` and \
         variables do not last. \
         There is no terminal and no input, so give options that keep programs from asking. \
         Everything that it \
         starts ends with it, background jobs too. It may take {time:?} at most. Long output is \
         cut in the middle: \
         use `grep`, `head` or `tail` to see what matters."
    );
    let input = json!({
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "description": "A line for /bin/sh, such as `cargo test 2>&1 | tail -n 40`; with \
                    `args`, the program alone.",
            },
            "args": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Arguments for the program in `command`, which then runs without a \
                    shell: nothing needs quoting.",
            },
            "dir": {
                "type": "string",
                "description": "The folder to begin in, relative to the workspace.",
            },
            "timeout_seconds": {
                "type": "integer",
                "minimum": 1,
                "description": format!("How long it may take; {} at most, and by \
                    default.", time.as_secs().max(1)),
            },
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    let hints = Hints::new().timeout(time.saturating_add(SLACK));
    ToolSpec::new("run_command", description)
        .with_input(input)
        .with_output(output_schema())
        .with_hints(hints)
}

fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "exit_code": {"type": ["integer", "null"], "description": "Null when it was ended from \
                outside."},
            "ended_by": {"type": "string", "description": "What ended it, if it did not end on \
                its own."},
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "truncated": {"type": "boolean", "description": "Whether something of the output is \
                left out."},
            "duration_ms": {"type": "integer"},
            "replaced_files": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Protected files that another program replaced meanwhile.",
            },
        },
        "required": ["exit_code", "stdout", "stderr", "truncated", "duration_ms"],
    })
}

/// The value contains both streams and the exit code; the text is for the model. A command that
/// failed is no error.
fn output(finished: &CommandOutput) -> Result<ToolOutput, ToolError> {
    let text = text(finished);
    if finished.exit == Exit::Limit(CommandLimit::Time) {
        let text = format!("the command timed out and was stopped; its output:\n{text}");
        return Err(ToolError::new(ToolErrorKind::Timeout, text));
    }
    let (code, ended_by) = match finished.exit {
        Exit::Code(code) => (Some(code), None),
        exit => (None, Some(exit.to_string())),
    };
    let mut value = json!({
        "exit_code": code,
        "stdout": finished.stdout.text,
        "stderr": finished.stderr.text,
        "truncated": finished.stdout.is_truncated() || finished.stderr.is_truncated(),
        "duration_ms": u64::try_from(finished.time.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(ended_by) = ended_by {
        value["ended_by"] = ended_by.into();
    }
    if !finished.replaced_files.is_empty() {
        value["replaced_files"] = json!(finished.replaced_files);
    }
    let mut output = ToolOutput::value(value);
    output.content.push(Content::Text(text));
    Ok(output)
}

/// Formats the result for the model: the output, the errors under a heading, and the exit status.
fn text(finished: &CommandOutput) -> String {
    let (out, err) = (&finished.stdout.text, &finished.stderr.text);
    let mut text = out.clone();
    if !err.is_empty() {
        end_line(&mut text);
        text.push_str("[stderr]\n");
        text.push_str(err);
    }
    if text.is_empty() {
        text.push_str("[no output]");
    }
    end_line(&mut text);
    let _ = write!(
        text,
        "[{} after {:.1} s]",
        finished.exit,
        finished.time.as_secs_f64()
    );
    for file in &finished.replaced_files {
        let path = file.to_string_lossy().escape_debug().to_string();
        let _ = write!(
            text,
            "\n[another program replaced the protected file `{path}` while the command ran; the \
                command may have read or changed the new file, so check it]"
        );
    }
    text
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn invalid(text: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArgs, text)
}

/// Errors that other arguments can avoid become `InvalidArgs`, and all others `Failed` with their
/// cause.
fn failed(error: &CommandError) -> ToolError {
    match error {
        CommandError::Empty
        | CommandError::NulByte(_)
        | CommandError::TooLong
        | CommandError::Directory(_) => invalid(error.to_string()),
        _ => match std::error::Error::source(error) {
            Some(cause) => ToolError::failed(format!("{error}: {cause}")),
            None => ToolError::failed(error.to_string()),
        },
    }
}
