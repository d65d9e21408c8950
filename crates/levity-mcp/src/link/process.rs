//! A server's process: how it is started, listened to and ended, with all that it started itself.

mod environment;
pub(crate) use environment::inherited;
mod remains;
#[cfg(target_os = "linux")]
mod scan;
mod stderr;
#[cfg(unix)]
mod watch;

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

use self::remains::Remains;
use self::stderr::Tail;
use super::Lifeline;
use super::end::{End, Stage};
use super::stdio::{self, StdioTransport};
use crate::config::{ServerConfig, Stdio};
use crate::event::Events;
use crate::{Error, ErrorKind, Result, ServerExit};

/// How long a process that closed its stdout may take to be gone, when that is asked for an error.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a process may take after SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(1);
/// How long a process may take after SIGKILL; only one that hangs in the kernel takes it.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// A server's process.
///
/// Dropping it kills the process and all that it started, at once.
pub(crate) struct Process {
    shared: Arc<Shared>,
    world: Arc<dyn World>,
    /// Closes its stdin.
    stdin: LineWriter<ChildStdin>,
    end: End,
    /// Reads its stderr and waits for its exit.
    _tasks: JoinSet<()>,
}

/// The messages from and to a server's process.
pub(crate) type Pipes = StdioTransport<ChildStdout, ChildStdin>;

struct Shared {
    /// None once it has ended and what it left behind is being cleared away.
    remains: Mutex<Option<Remains>>,
    tail: Tail,
    state: channel::Sender<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    exit: Option<ExitStatus>,
    /// Nothing more comes from its stderr.
    silent: bool,
    /// All that it started is gone too.
    cleared: bool,
}

impl Process {
    /// Starts a server's program.
    ///
    /// # Errors
    /// When the folder or the program is not there, or the program cannot be run.
    pub(crate) fn start(
        config: &ServerConfig,
        stdio: &Stdio,
        events: Events,
        world: Arc<dyn World>,
    ) -> Result<(Self, Pipes)> {
        let refuse = |message| Error::new(ErrorKind::Start, config.name.clone(), message);
        if let Some(folder) = stdio.cwd.as_deref().filter(|folder| !folder.is_dir()) {
            return Err(refuse(format!(
                "its folder `{}` does not exist; check `cwd`",
                folder.display()
            )));
        }
        let started = remains::start(command(stdio));
        let (mut child, mut remains) =
            started.map_err(|error| refuse(why(stdio, &config.place(), &error)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(refuse("its pipes could not be opened".to_owned()));
        };
        remains.child = Some(child);
        let tail = Tail::new(events);
        let heard = tail.clone();
        let pipes = stdio::lines(config.name.clone(), stdout, stdin, config.max_message)
            .on_junk(Box::new(move |line| heard.line_of_stdout(line)));
        Ok((Self::new(remains, tail, stderr, &pipes, world), pipes))
    }

    fn new(
        remains: Remains,
        tail: Tail,
        stderr: ChildStderr,
        pipes: &Pipes,
        world: Arc<dyn World>,
    ) -> Self {
        let state = channel::Sender::default();
        let shared = Arc::new(Shared {
            remains: Mutex::new(Some(remains)),
            tail,
            state,
        });
        let end = pipes.end();
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(shared.clone(), stderr));
        tasks.spawn(wait(shared.clone(), end.clone()));
        Self {
            shared,
            world,
            stdin: pipes.writer(),
            end,
            _tasks: tasks,
        }
    }

    /// How the process ended, if it has, and its last words so far.
    fn last_words(&self) -> ServerExit {
        let exit = self.shared.state.borrow().exit;
        ServerExit {
            code: exit.and_then(|exit| exit.code()),
            signal: exit.and_then(signal_of),
            stderr: self.shared.tail.text(),
        }
    }

    async fn exited(&self) {
        self.until(|state| state.exit.is_some()).await;
    }

    fn is_running(&self) -> bool {
        self.shared.state.borrow().exit.is_none()
    }

    async fn ended_within(&self, limit: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.exited() => true,
            () = self.world.sleep(limit) => false,
        }
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        let mut state = self.shared.state.subscribe();
        // The sender lives as long as this process does.
        let _ = state.wait_for(reached).await;
    }

    fn signal(&self, send: impl FnOnce(&mut Remains)) {
        if let Some(remains) = &mut *self.shared.remains() {
            send(remains);
        }
    }
}

#[async_trait]
impl Lifeline for Process {
    /// It waits for half a second at most, and not at all while the connection is open.
    async fn death(&self) -> Option<ServerExit> {
        if self.end.stage() != Stage::Open {
            tokio::select! {
                () = self.until(|state| state.exit.is_some() && state.silent) => {}
                () = self.world.sleep(LAST_WORDS) => {}
            }
        }
        Some(self.last_words())
    }

    /// Its stdin is closed, which asks it to end; after `grace` it is told to by SIGTERM, and a
    /// second later it is killed. What it started and left behind is killed in any case.
    async fn end(&self, grace: Duration) {
        self.end.over(None);
        self.stdin.close();
        if !self.ended_within(grace).await {
            self.signal(Remains::terminate);
            if !self.ended_within(AFTER_TERM).await {
                self.signal(Remains::kill);
            }
        }
        tokio::select! {
            () = self.until(|state| state.cleared) => {}
            () = self.world.sleep(AFTER_KILL) => {}
        }
    }

    fn kill(&self) {
        self.end.over(None);
        self.stdin.close();
        self.signal(Remains::kill);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end.over(None);
        self.stdin.close();
        // Dropping what remains kills it.
        let remains = self.shared.remains().take();
        drop(remains);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("running", &self.is_running())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn remains(&self) -> MutexGuard<'_, Option<Remains>> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the exit, then clears away what the process left behind.
async fn wait(shared: Arc<Shared>, end: End) {
    let exit = poll_fn(|cx| match &mut *shared.remains() {
        Some(remains) => remains.poll_wait(cx).map(Some),
        None => std::task::Poll::Ready(None),
    });
    let Some(exit) = exit.await else { return };
    let Some(mut remains) = shared.remains().take() else {
        return;
    };
    // Those that are left hold its pipes open.
    remains.kill();
    shared
        .state
        .send_modify(|state| state.exit = Some(exit.unwrap_or_default()));
    end.gone();
    let _ = tokio::task::spawn_blocking(move || remains.clear()).await;
    shared.state.send_modify(|state| state.cleared = true);
}

async fn listen(shared: Arc<Shared>, stderr: ChildStderr) {
    shared.tail.listen(stderr).await;
    shared.state.send_modify(|state| state.silent = true);
}

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

/// Why a program could not be started, and what to do.
fn why(stdio: &Stdio, name: &str, error: &io::Error) -> String {
    let is_path = stdio.command.contains(std::path::is_separator);
    match error.kind() {
        io::ErrorKind::NotFound if is_path && std::path::Path::new(&stdio.command).exists() => {
            format!(
                "its program `{name}` names an interpreter in its first line that does not exist"
            )
        }
        io::ErrorKind::NotFound if is_path => {
            format!("its program `{name}` does not exist; check `command`")
        }
        io::ErrorKind::NotFound => {
            format!(
                "its program `{name}` was not found in `PATH`; install it or give its whole path \
                    as `command`"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("its program `{name}` may not be run; is it executable?")
        }
        io::ErrorKind::InvalidInput => {
            "its command, arguments or environment have a zero byte in them".to_owned()
        }
        io::ErrorKind::ArgumentListTooLong => {
            "its arguments and environment are too long".to_owned()
        }
        _ => format!("its program `{name}` could not be started: {error}"),
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
