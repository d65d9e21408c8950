//! The process of a server: its start, its output and its end, including all its descendants.
//!
//! A server's program often starts others: `npx` starts `node`, a shell script starts a server. So
//! levity always handles the whole tree. Three mechanisms together find every descendant: a process
//! group of its own, a mark in the environment (Linux), and a watchdog process for the case that
//! levity itself is killed.
//!
//! The end is a sequence with limits: close stdin, wait for `grace`, SIGTERM, 1 s, SIGKILL, then
//! clean up descendants for about 2 s.

mod environment;
pub(crate) use environment::inherited;
#[cfg(target_os = "linux")]
mod scan;
mod stderr;
mod tree;
#[cfg(unix)]
mod watchdog;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::World;
use levity_rpc::LineWriter;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use self::stderr::Tail;
use self::tree::ProcessTree;
use super::ServerProcess;
use super::close::{CloseState, Stage};
use super::stdio::{self, StdioTransport};
use crate::config::{ServerConfig, Stdio};
use crate::event::Events;
use crate::{Error, ErrorKind, Result, ServerExit};

/// The maximum wait for the exit of a process that closed its stdout, before an error is reported.
const EXIT_WAIT: Duration = Duration::from_millis(500);
/// The maximum wait after SIGTERM.
const TERM_WAIT: Duration = Duration::from_secs(1);
/// The maximum wait after SIGKILL; only a process that hangs in the kernel reaches it.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// The process of a server.
///
/// Dropping it kills the process and all its descendants at once.
pub(crate) struct Process {
    shared: Arc<ProcessInner>,
    world: Arc<dyn World>,
    /// Closes the process's stdin.
    stdin: LineWriter<ChildStdin>,
    close_state: CloseState,
    /// The tasks that read stderr and wait for the exit.
    _tasks: JoinSet<()>,
}

/// The transport of messages from and to a server's process.
pub(crate) type Pipes = StdioTransport<ChildStdout, ChildStdin>;

struct ProcessInner {
    /// `None` after the process has ended and while its descendants are being cleaned up.
    tree: Mutex<Option<ProcessTree>>,
    tail: Tail,
    state: channel::Sender<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    exit: Option<ExitStatus>,
    /// `true` after stderr was closed.
    stderr_closed: bool,
    /// `true` after all descendants have ended too.
    is_cleaned_up: bool,
}

impl Process {
    /// Starts a server's program.
    ///
    /// # Errors
    /// Returns an error if the folder or the program does not exist, or if the program cannot be
    /// run.
    pub(crate) fn start(
        config: &ServerConfig,
        stdio: &Stdio,
        events: Events,
        world: Arc<dyn World>,
    ) -> Result<(Self, Pipes)> {
        let start_error = |message| Error::new(ErrorKind::Start, config.name.clone(), message);
        if let Some(folder) = stdio.cwd.as_deref().filter(|folder| !folder.is_dir()) {
            return Err(start_error(format!(
                "its working directory `{}` does not exist; check `cwd`",
                folder.display()
            )));
        }
        let started = tree::start(command(stdio));
        let (mut child, mut tree) = started
            .map_err(|error| start_error(start_problem(stdio, &config.display_target(), &error)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(start_error("cannot open its pipes".to_owned()));
        };
        tree.child = Some(child);
        let tail = Tail::new(events);
        let stdout_log = tail.clone();
        let pipes = stdio::lines(config.name.clone(), stdout, stdin, config.max_message)
            .on_junk(Box::new(move |line| stdout_log.push_stdout_line(line)));
        Ok((Self::new(tree, tail, stderr, &pipes, world), pipes))
    }

    fn new(
        tree: ProcessTree,
        tail: Tail,
        stderr: ChildStderr,
        pipes: &Pipes,
        world: Arc<dyn World>,
    ) -> Self {
        let state = channel::Sender::default();
        let shared = Arc::new(ProcessInner {
            tree: Mutex::new(Some(tree)),
            tail,
            state,
        });
        let close_state = pipes.close_state();
        let mut tasks = JoinSet::new();
        tasks.spawn(read_stderr(shared.clone(), stderr));
        tasks.spawn(wait_for_exit(shared.clone(), close_state.clone()));
        Self {
            shared,
            world,
            stdin: pipes.writer(),
            close_state,
            _tasks: tasks,
        }
    }

    /// Returns the exit status, if the process has ended, and the current end of its stderr.
    fn exit_info(&self) -> ServerExit {
        let exit = self.shared.state.borrow().exit;
        ServerExit {
            code: exit.and_then(|exit| exit.code()),
            signal: exit.and_then(signal_of),
            stderr: self.shared.tail.text(),
        }
    }

    /// Waits until the process itself has ended; its descendants may still run.
    async fn wait_exited(&self) {
        self.wait_for_state(|state| state.exit.is_some()).await;
    }

    fn is_running(&self) -> bool {
        self.shared.state.borrow().exit.is_none()
    }

    /// Waits for the exit; returns `false` after `limit`.
    async fn exits_within(&self, limit: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.wait_exited() => true,
            () = self.world.sleep(limit) => false,
        }
    }

    /// Waits until the state of the process satisfies the condition.
    async fn wait_for_state(&self, reached: impl Fn(&State) -> bool) {
        let mut state = self.shared.state.subscribe();
        // The sender lives as long as this process does.
        let _ = state.wait_for(reached).await;
    }

    /// Sends a signal to the tree, unless the process has ended already.
    fn signal(&self, send: impl FnOnce(&mut ProcessTree)) {
        if let Some(tree) = &mut *self.shared.tree() {
            send(tree);
        }
    }
}

#[async_trait]
impl ServerProcess for Process {
    /// Waits for half a second at most, and not at all while the connection is open.
    async fn exit_status(&self) -> Option<ServerExit> {
        if self.close_state.stage() != Stage::Open {
            tokio::select! {
                () = self.wait_for_state(|state| state.exit.is_some() && state.stderr_closed) => {}
                () = self.world.sleep(EXIT_WAIT) => {}
            }
        }
        Some(self.exit_info())
    }

    /// Closes stdin, which asks the process to exit. After `grace` it gets SIGTERM, and a second
    /// later it is killed. Remaining descendants are killed in any case.
    async fn stop(&self, grace: Duration) {
        self.close_state.close(None);
        self.stdin.close();
        if !self.exits_within(grace).await {
            self.signal(ProcessTree::terminate);
            if !self.exits_within(TERM_WAIT).await {
                self.signal(ProcessTree::kill);
            }
        }
        tokio::select! {
            () = self.wait_for_state(|state| state.is_cleaned_up) => {}
            () = self.world.sleep(KILL_WAIT) => {}
        }
    }

    fn kill(&self) {
        self.close_state.close(None);
        self.stdin.close();
        self.signal(ProcessTree::kill);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.close_state.close(None);
        self.stdin.close();
        // Dropping the process tree kills it.
        let tree = self.shared.tree().take();
        drop(tree);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("running", &self.is_running())
            .finish_non_exhaustive()
    }
}

impl ProcessInner {
    fn tree(&self) -> MutexGuard<'_, Option<ProcessTree>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the exit, then cleans up remaining descendants.
async fn wait_for_exit(shared: Arc<ProcessInner>, close_state: CloseState) {
    let exit = poll_fn(|cx| match &mut *shared.tree() {
        Some(tree) => tree.poll_wait(cx).map(Some),
        None => std::task::Poll::Ready(None),
    });
    let Some(exit) = exit.await else { return };
    let Some(mut tree) = shared.tree().take() else {
        return;
    };
    // Remaining descendants hold the pipes open.
    tree.kill();
    shared
        .state
        .send_modify(|state| state.exit = Some(exit.unwrap_or_default()));
    close_state.peer_closed();
    let _ = tokio::task::spawn_blocking(move || tree.clean_up()).await;
    shared.state.send_modify(|state| state.is_cleaned_up = true);
}

/// Reads stderr to its end, and records that.
async fn read_stderr(shared: Arc<ProcessInner>, stderr: ChildStderr) {
    shared.tail.read_stderr(stderr).await;
    shared.state.send_modify(|state| state.stderr_closed = true);
}

/// Builds the command. Its environment starts empty: inherited variables first, then configured
/// ones.
fn command(stdio: &Stdio) -> Command {
    let mut command = Command::new(&stdio.command);
    command.args(&stdio.args).env_clear();
    command.envs(inherited(&stdio.inherit)).envs(&stdio.env);
    if let Some(folder) = &stdio.cwd {
        command.current_dir(folder);
    }
    use std::process::Stdio as Io;
    command
        .stdin(Io::piped())
        .stdout(Io::piped())
        .stderr(Io::piped())
        .kill_on_drop(true);
    command
}

/// Describes why a program could not be started, and the next step.
fn start_problem(stdio: &Stdio, name: &str, error: &io::Error) -> String {
    let is_path = stdio.command.contains(std::path::is_separator);
    match error.kind() {
        io::ErrorKind::NotFound if is_path && std::path::Path::new(&stdio.command).exists() => {
            format!(
                "its program `{name}` names an interpreter in its first line that does not exist; \
                    install it"
            )
        }
        io::ErrorKind::NotFound if is_path => {
            format!("its program `{name}` does not exist; check `command`")
        }
        io::ErrorKind::NotFound => {
            format!(
                "its program `{name}` was not found in `PATH`; install it or set `command` to its \
                    full \
                    path"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("no permission to run its program `{name}`; is it executable?")
        }
        io::ErrorKind::InvalidInput => {
            "its command, arguments or environment contain a zero byte".to_owned()
        }
        io::ErrorKind::ArgumentListTooLong => {
            "its arguments and environment are too long".to_owned()
        }
        _ => format!("cannot start its program `{name}`: {error}"),
    }
}

#[cfg(unix)]
fn signal_of(exit: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&exit)
}

#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
