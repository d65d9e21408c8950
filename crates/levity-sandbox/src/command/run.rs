//! One command: its settings and its run.
//!
//! A run blocks a thread of tokio's blocking pool, which cannot be cancelled. So the future holds
//! one end of a pipe: when it is dropped, that end closes, and the watcher kills the command. This
//! also works if the whole host process is killed.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, PipeReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::builder::Sandbox;
use super::captured::Stream;
use super::environment::Environment;
use super::error::CommandError;
use super::finished::CommandOutput;
use super::limits::Limits;

/// The interval at which a running command asks which paths are denied.
const DENIED_INTERVAL: Duration = Duration::from_millis(50);

pub(super) type Listener = dyn Fn(Stream, &str) + Send + Sync;

/// A command that has not started.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use std::time::Duration;
/// use levity_sandbox::{Level, Sandbox, Workspace};
///
/// let workspace = Workspace::open(folder.path())?;
/// workspace.create_dir("sub")?;
/// workspace.write("sub/a.txt", b"from a file\n")?;
/// let sandbox = Sandbox::builder(&workspace).require_level(Level::Open).build()?;
/// let command = sandbox
///     .command(["cat", "a.txt", "-"])
///     .dir("sub")
///     .stdin("from the input\n")
///     .time_limit(Duration::from_secs(10));
/// let finished = command.run().await?;
/// assert_eq!(finished.stdout.text, "from a file\nfrom the input\n");
/// # Ok(())
/// # }
/// ```
///
/// Its `Debug` shows the program and neither arguments nor input.
#[must_use]
pub struct Command {
    sandbox: Sandbox,
    spec: CommandSpec,
}

/// The description of a command for the platform-specific part.
///
/// It is a plain value: all checks of its content happen where the command starts.
pub(super) struct CommandSpec {
    pub(super) argv: Vec<OsString>,
    pub(super) environment: Environment,
    pub(super) dir: PathBuf,
    pub(super) stdin: Vec<u8>,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) limits: Limits,
    pub(super) read_only: bool,
    /// Programs that are searched for only outside of places that commands can change.
    pub(super) from_system: Vec<String>,
}

impl Command {
    pub(super) fn new(sandbox: Sandbox, argv: Vec<OsString>) -> Self {
        let spec = CommandSpec {
            argv,
            environment: sandbox.0.environment.clone(),
            dir: PathBuf::new(),
            stdin: Vec::new(),
            listener: None,
            limits: sandbox.0.limits,
            read_only: false,
            from_system: Vec::new(),
        };
        Self { sandbox, spec }
    }

    /// Sets the directory that the command starts in, relative to the workspace.
    ///
    /// The path must not contain `..`, and its real path must be in the workspace; otherwise the
    /// run fails with [`CommandError::Directory`].
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.spec.dir = dir.into();
        self
    }

    /// Sets an environment variable of the command.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # use levity_sandbox::{Level, Sandbox, Workspace};
    /// # let sandbox =
    /// #     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
    /// let finished = sandbox.shell("echo $LEVEL").env("LEVEL", "debug").run().await?;
    /// assert_eq!(finished.stdout.text, "debug\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.spec.environment.set(name, value);
        self
    }

    /// Runs the command read-only. The kernel prevents it from changing anything but temporary
    /// files and from executing files of the workspace. It cannot reach the network, and cannot
    /// read files that the workspace denies or anything of a repository. It has an empty home and
    /// its own temporary folder.
    ///
    /// [`CommandPolicy::read_scope`](crate::CommandPolicy::read_scope) returns which commands must
    /// run in this way.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder =
    /// #     std::env::temp_dir().join(format!("levity-doc-read-only-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// use levity_sandbox::{Level, Sandbox, Workspace};
    ///
    /// let workspace = Workspace::open(&folder)?;
    /// let sandbox = Sandbox::builder(workspace).require_level(Level::Open).build()?;
    /// if sandbox.report().read_only.is_enforced {
    ///     let finished = sandbox.shell("echo text > made").read_only().run().await?;
    ///     assert!(!finished.is_success());
    /// }
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self) -> Self {
        self.spec.read_only = true;
        self
    }

    /// Searches for these programs outside of the workspace and of other places that commands can
    /// change, whatever `PATH` contains. A program that does not exist there fails. Other programs
    /// are found as before.
    ///
    /// No program is found in the workspace in three cases: on systems other than Linux, if the
    /// system's temporary folder is in such a place, and if one of these programs is a script,
    /// which may run others by their names. `egrep`, `fgrep` and `which` are known scripts, and
    /// `grep` is taken from outside for the first two.
    ///
    /// Use [`CommandPolicy::reading_programs_in`](crate::CommandPolicy::reading_programs_in) to
    /// find out which programs of a command are known by their names alone. A command that runs
    /// [read-only](Self::read_only) executes nothing in these places anyway.
    pub fn use_system_programs<S: Into<String>>(
        mut self,
        programs: impl IntoIterator<Item = S>,
    ) -> Self {
        self.spec
            .from_system
            .extend(programs.into_iter().map(Into::into));
        // A name with a folder is not searched for in `PATH`.
        self.spec
            .from_system
            .retain(|name| !matches!(&**name, "" | "." | "..") && !name.contains('/'));
        self.spec.from_system.sort_unstable();
        self.spec.from_system.dedup();
        self
    }

    /// Sets the standard input of the command, which is empty by default.
    ///
    /// A command may end without reading all of its input. That is no error.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.spec.stdin = bytes.into();
        self
    }

    /// Sets the time limit of this command, if it is less than that of the sandbox.
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.spec.limits.time = time.min(self.spec.limits.time);
        self
    }

    /// Calls `listener` with the output while the command runs, in chunks of at most 8 KiB of whole
    /// characters. Each stream is passed on up to the output limit of the sandbox. The command
    /// waits while `listener` works.
    pub fn on_output(mut self, listener: impl Fn(Stream, &str) + Send + Sync + 'static) -> Self {
        self.spec.listener = Some(Arc::new(listener));
        self
    }

    /// Runs the command. When this returns, none of its processes is running. Dropping the future
    /// kills all of them.
    ///
    /// A command that waits for an approval should not be built before it is approved: nothing runs
    /// until the future is polled.
    ///
    /// # Errors
    /// Returns an error if the command could not be started, or not under the reported protections.
    /// A command that fails is not an error.
    ///
    /// # Panics
    /// Panics if the function passed to [`on_output`](Self::on_output) panicked.
    pub async fn run(self) -> Result<CommandOutput, CommandError> {
        let Self { sandbox, spec } = self;
        let setup = |source| CommandError::Setup {
            step: "a pipe",
            source,
        };
        // The watcher kills the command when this end is closed, even if that is because this
        // process died.
        let (control, alive) = io::pipe().map_err(setup)?;
        let runtime = Handle::try_current().map_err(|_| CommandError::NoRuntime)?;
        let workspace = sandbox.workspace().clone();
        let denied = workspace.refresh_denied();
        let work = move || sandbox.0.system.run(&spec, &control);
        let mut work = runtime.spawn_blocking(work);
        let finished = loop {
            if !workspace.can_deny_more() {
                break (&mut work).await;
            }
            match tokio::time::timeout(DENIED_INTERVAL, &mut work).await {
                Ok(finished) => break finished,
                Err(_) if workspace.refresh_denied() == denied => {}
                Err(_) => {
                    drop(alive);
                    let _ = work.await;
                    return Err(CommandError::Changed);
                }
            }
        };
        match finished {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(CommandError::NoRuntime),
            },
        }
    }
}

impl fmt::Debug for Command {
    /// The arguments and the input may be secret, so only the program is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.spec.argv.first())
            .finish_non_exhaustive()
    }
}

/// The read end of a pipe that is closed when the caller drops the command.
pub(super) type Control = PipeReader;
