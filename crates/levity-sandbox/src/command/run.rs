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

pub(super) type Listener = dyn Fn(Stream, &str) + Send + Sync;

/// A command that has not begun.
#[must_use]
pub struct Command {
    sandbox: Sandbox,
    order: Order,
}

/// What the system's part is told of a command.
pub(super) struct Order {
    pub(super) argv: Vec<OsString>,
    pub(super) environment: Environment,
    pub(super) dir: PathBuf,
    pub(super) stdin: Vec<u8>,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) limits: Limits,
    pub(super) read_only: bool,
    /// Programs that are looked for outside of what commands can change.
    pub(super) from_system: Vec<String>,
}

impl Command {
    pub(super) fn new(sandbox: Sandbox, argv: Vec<OsString>) -> Self {
        let order = Order {
            argv,
            environment: sandbox.0.environment.clone(),
            dir: PathBuf::new(),
            stdin: Vec::new(),
            listener: None,
            limits: sandbox.0.limits,
            read_only: false,
            from_system: Vec::new(),
        };
        Self { sandbox, order }
    }

    /// The directory it begins in, relative to the workspace.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.order.dir = dir.into();
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.order.environment.set(name, value);
        self
    }

    /// Runs it read-only: the kernel lets it change nothing but temporary files, execute nothing of
    /// the workspace, reach no network, and read no file that the workspace denies and nothing of a
    /// repository. It has an empty home and a temporary folder of its own.
    /// [`CommandPolicy::read_scope`](crate::CommandPolicy::read_scope) says which commands must run
    /// in this way.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("levity-doc-read-only-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// use levity_sandbox::{Level, Sandbox, Workspace};
    ///
    /// let sandbox = Sandbox::builder(Workspace::open(&folder)?).at_least(Level::Open).build()?;
    /// if sandbox.report().read_only.holds {
    ///     let finished = sandbox.shell("echo text > made").read_only().run().await?;
    ///     assert!(!finished.is_success());
    /// }
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self) -> Self {
        self.order.read_only = true;
        self
    }

    /// Has these programs looked for outside of the workspace and of other places that commands can
    /// change, whatever `PATH` says. One that is not there fails. Others are found as before; where
    /// there is no Linux, or the system's temporary folder is in such a place, none is found in the
    /// workspace. Nor is one where a program of these is a script, which may run others by their
    /// names; `egrep`, `fgrep` and `which` are known, and `grep` is taken from outside for the
    /// first two.
    ///
    /// Use [`CommandPolicy::readers_in`](crate::CommandPolicy::readers_in) to find out which
    /// programs of a command are known by their names alone. A command that runs
    /// [read-only](Self::read_only) executes nothing of these places anyway.
    pub fn take_from_system<S: Into<String>>(
        mut self,
        programs: impl IntoIterator<Item = S>,
    ) -> Self {
        self.order
            .from_system
            .extend(programs.into_iter().map(Into::into));
        // A name with a folder is not looked for.
        self.order
            .from_system
            .retain(|name| !matches!(&**name, "" | "." | "..") && !name.contains('/'));
        self.order.from_system.sort_unstable();
        self.order.from_system.dedup();
        self
    }

    /// What it can read from its input, which is empty by default.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.order.stdin = bytes.into();
        self
    }

    /// How long it may take, if that is less than the sandbox allows.
    pub fn time(mut self, time: Duration) -> Self {
        self.order.limits.time = time.min(self.order.limits.time);
        self
    }

    /// Hands on what it writes while it runs, in pieces of at most 8 KiB of whole characters, and
    /// as much of each stream as the sandbox would keep. The command waits while `listener` works.
    pub fn on_output(mut self, listener: impl Fn(Stream, &str) + Send + Sync + 'static) -> Self {
        self.order.listener = Some(Arc::new(listener));
        self
    }

    /// Runs it. When this returns, nothing of it is running any more. Dropping the future kills all
    /// of it.
    ///
    /// # Errors
    /// When it could not be started, or not under the sandbox that was reported. A command that
    /// failed is no error.
    ///
    /// # Panics
    /// When the function given to [`on_output`](Self::on_output) did.
    pub async fn run(self) -> Result<CommandOutput, CommandError> {
        let Self { sandbox, order } = self;
        let setup = |source| CommandError::Setup {
            step: "a pipe",
            source,
        };
        // Whoever watches the command kills it when this end is closed, also because this process
        // died.
        let (control, _alive) = io::pipe().map_err(setup)?;
        let runtime = Handle::try_current().map_err(|_| CommandError::NoRuntime)?;
        let work = move || sandbox.0.system.run(&order, &control);
        match runtime.spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(CommandError::NoRuntime),
            },
        }
    }
}

impl fmt::Debug for Command {
    /// What is run and what it reads may be secret, so only the program is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.order.argv.first())
            .finish_non_exhaustive()
    }
}

/// The end of a pipe that is closed when nobody wants the command any more.
pub(super) type Control = PipeReader;
