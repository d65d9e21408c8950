//! The sandbox, its settings, and the check of the required level.
//!
//! All settings are validated in [`SandboxBuilder::build`], which also starts a probe process. A
//! sandbox therefore costs a few process starts to build and little to clone.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::environment::Environment;
use super::error::SandboxError;
use super::limits::Limits;
use super::private::PrivateFolder;
use super::report::{Level, SandboxReport};
use super::run::Command;
use super::system::System;
use crate::Workspace;

/// The network access of commands.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use levity_sandbox::{Level, Network, Sandbox, Workspace};
///
/// let workspace = Workspace::open(folder.path())?;
/// let closed = Sandbox::builder(&workspace).require_level(Level::Open).build()?;
/// assert_eq!(closed.network(), Network::None);
///
/// let open = Sandbox::builder(&workspace)
///     .require_level(Level::Open)
///     .network(Network::Any)
///     .build()?;
/// assert_eq!(open.network(), Network::Any);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Network {
    /// Commands have no network access at all.
    #[default]
    None,
    /// The same network access as the host.
    Any,
}

/// Runs commands in a workspace, under limits and isolated from everything else. Cloning is cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("levity-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// use levity_sandbox::{Level, Sandbox, Workspace};
///
/// let sandbox = Sandbox::builder(Workspace::open(&folder)?).require_level(Level::Open).build()?;
/// println!("{}", sandbox.report());
///
/// let finished = sandbox.shell("echo hello | tr a-z A-Z").run().await?;
/// assert!(finished.is_success());
/// assert_eq!(finished.stdout.text, "HELLO\n");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
///
/// # Promises
/// - A command gets no variable of the host except `PATH`, `LANG`, `LC_*` and those that you allow.
/// - `HOME` and `TMPDIR` are private folders of the sandbox, which are removed with it, unless you
///   set these variables.
/// - When a run ends, is dropped, or the host dies, the processes of the command end as well, as
///   far as [`SandboxReport::processes`] states.
/// - A protection that is reported as enforced holds for every command. If it cannot be set up for
///   one, that command does not run.
#[derive(Clone)]
pub struct Sandbox(pub(super) Arc<Inner>);

/// The state that all clones share. Commands hold a clone, so private folders exist as long as a
/// command runs.
pub(super) struct Inner {
    workspace: Workspace,
    pub(super) environment: Environment,
    pub(super) limits: Limits,
    network: Network,
    pub(super) system: System,
    pub(super) report: SandboxReport,
    // This field is last so that it is dropped after all others.
    _private: PrivateFolder,
}

impl Sandbox {
    /// Returns a builder for a sandbox that runs commands in a workspace.
    pub fn builder(workspace: impl Into<Workspace>) -> SandboxBuilder {
        SandboxBuilder::new(workspace.into())
    }

    /// Returns the workspace that commands run in.
    ///
    /// Changes by commands are not reported to [`Workspace::on_change`].
    pub fn workspace(&self) -> &Workspace {
        &self.0.workspace
    }

    /// Returns the protections that are enforced on this system.
    pub fn report(&self) -> &SandboxReport {
        &self.0.report
    }

    /// Returns the time limit of a command.
    pub fn time_limit(&self) -> Duration {
        self.0.limits.time
    }

    /// Returns the network access of commands.
    pub fn network(&self) -> Network {
        self.0.network
    }

    /// Creates a command from a program and its arguments. A name without `/` is searched for in
    /// `PATH`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// use levity_sandbox::{Level, Sandbox, Workspace};
    ///
    /// let sandbox =
    ///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
    /// // No shell is involved, so the argument is passed as it is.
    /// let finished = sandbox.command(["echo", "$HOME; ls"]).run().await?;
    /// assert_eq!(finished.stdout.text, "$HOME; ls\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn command<I, S>(&self, argv: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        Command::new(self.clone(), argv.into_iter().map(Into::into).collect())
    }

    /// Creates a command from a line for `/bin/sh`.
    ///
    /// The line is not checked here: pass it to
    /// [`CommandPolicy::judge`](crate::CommandPolicy::judge) first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// use levity_sandbox::{CommandLine, CommandPolicy, Level, Permit, Sandbox, Workspace};
    ///
    /// let sandbox =
    ///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
    /// let line = "echo one && echo two";
    /// if CommandPolicy::new().judge(CommandLine::Shell(line)) == Permit::Allow {
    ///     let finished = sandbox.shell(line).run().await?;
    ///     assert_eq!(finished.stdout.text, "one\ntwo\n");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn shell(&self, line: impl Into<OsString>) -> Command {
        self.command([OsString::from("/bin/sh"), "-c".into(), line.into()])
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("level", &self.0.report.level)
            .finish_non_exhaustive()
    }
}

impl From<&Workspace> for Workspace {
    fn from(workspace: &Workspace) -> Self {
        workspace.clone()
    }
}

/// The settings of a [`Sandbox`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use std::time::Duration;
/// use levity_sandbox::{Level, Sandbox, Workspace};
///
/// let sandbox = Sandbox::builder(Workspace::open(folder.path())?)
///     .env("GREETING", "hello")
///     .time_limit(Duration::from_secs(10))
///     .max_output(1024)
///     .require_level(Level::Open) // the default, `Guarded`, fails on systems without Landlock
///     .build()?;
/// let finished = sandbox.shell("echo $GREETING").run().await?;
/// assert_eq!(finished.stdout.text, "hello\n");
/// assert_eq!(sandbox.time_limit(), Duration::from_secs(10));
/// # Ok(())
/// # }
/// ```
///
/// | setting | default |
/// |---|---|
/// | [`network`](Self::network) | none |
/// | [`time_limit`](Self::time_limit) | 2 minutes |
/// | [`cpu_time_limit`](Self::cpu_time_limit) | 10 minutes |
/// | [`memory_limit`](Self::memory_limit) | 4 GiB |
/// | [`max_processes`](Self::max_processes) | 256 |
/// | [`max_file_size`](Self::max_file_size) | 1 GiB |
/// | [`max_output`](Self::max_output) | 64 KiB for each stream |
/// | [`require_level`](Self::require_level) | [`Level::Guarded`] |
#[derive(Debug)]
#[must_use]
pub struct SandboxBuilder {
    setup: Setup,
    environment: Environment,
    at_least: Level,
}

/// The settings for the platform-specific part of a sandbox.
///
/// `without` names mechanisms that tests disable, such as `"namespaces"` or `"landlock"`.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) workspace: Workspace,
    pub(super) reads: Vec<PathBuf>,
    pub(super) writes: Vec<PathBuf>,
    pub(super) network: Network,
    pub(super) limits: Limits,
    pub(super) without: Vec<&'static str>,
}

impl SandboxBuilder {
    fn new(workspace: Workspace) -> Self {
        let setup = Setup {
            workspace,
            reads: Vec::new(),
            writes: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            without: Vec::new(),
        };
        Self {
            setup,
            environment: Environment::new(),
            at_least: Level::Guarded,
        }
    }

    /// Passes a variable of the host's environment to commands, if it is set.
    ///
    /// The value is read now, not when a command runs. Do not pass variables with secrets: every
    /// command can print them.
    pub fn allow_env(mut self, name: impl Into<OsString>) -> Self {
        let name = name.into();
        if let Some(value) = std::env::var_os(&name) {
            self.environment.set(name, value);
        }
        self
    }

    /// Sets an environment variable for commands.
    ///
    /// A variable that is set here replaces the default one, also `PATH`, `HOME` and `TMPDIR`.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.set(name, value);
        self
    }

    /// Allows commands to read, list and execute files in another place.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let data = tempfile::tempdir()?;
    /// use std::ffi::OsString;
    /// use levity_sandbox::{Level, Sandbox, Workspace};
    ///
    /// let input = data.path().join("input.txt");
    /// std::fs::write(&input, "42")?;
    /// let sandbox = Sandbox::builder(Workspace::open(folder.path())?)
    ///     .allow_read(data.path())
    ///     .require_level(Level::Open)
    ///     .build()?;
    /// let finished = sandbox.command([OsString::from("cat"), input.into()]).run().await?;
    /// assert_eq!(finished.stdout.text, "42");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The system's programs, libraries and harmless settings can be read without this call.
    pub fn allow_read(mut self, place: impl Into<PathBuf>) -> Self {
        self.setup.reads.push(place.into());
        self
    }

    /// Allows commands full access to another place, even if the workspace is read-only.
    ///
    /// A build cache is a typical place. Files there survive the sandbox, and the next command
    /// executes what an earlier one left in them.
    pub fn allow_write(mut self, place: impl Into<PathBuf>) -> Self {
        self.setup.writes.push(place.into());
        self
    }

    /// Sets the network access of commands; none by default.
    pub fn network(mut self, network: Network) -> Self {
        self.setup.network = network;
        self
    }

    /// Sets the time limit of a command; two minutes by default.
    ///
    /// The limit includes the search of the workspace for denied files before the command starts.
    /// On Linux, a command that exceeds it gets `SIGTERM`, and half a second to end.
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.setup.limits.time = time;
        self
    }

    /// Sets the CPU time limit for all processes of a command together; ten minutes by default.
    pub fn cpu_time_limit(mut self, time: Duration) -> Self {
        self.setup.limits.cpu_time = time;
        self
    }

    /// Sets the memory limit in bytes for all processes of a command together; 4 GiB by default.
    ///
    /// Memory that is reserved and not used does not count. A process that asks the kernel for more
    /// data than this fails to get it; the sum over all processes is checked up to 40 times a
    /// second.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.setup.limits.memory = bytes;
        self
    }

    /// Sets the maximum number of simultaneous processes of a command; 256 by default.
    ///
    /// A command may have 16 threads for each of these processes.
    pub fn max_processes(mut self, count: u32) -> Self {
        self.setup.limits.processes = count;
        self
    }

    /// Sets the maximum size in bytes of a file that a command writes; 1 GiB by default.
    pub fn max_file_size(mut self, bytes: u64) -> Self {
        self.setup.limits.file_size = bytes;
        self
    }

    /// Sets the maximum number of captured bytes for each of stdout and stderr; 64 KiB by default.
    ///
    /// A stream that exceeds the limit keeps its beginning and its end, and the command is not
    /// stopped.
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.setup.limits.output = bytes;
        self
    }

    /// Sets the minimum level of isolation; [`Level::Guarded`] by default. On a system that cannot
    /// reach it, [`build`](Self::build) fails.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use levity_sandbox::{Level, Sandbox, SandboxError, Workspace};
    ///
    /// let workspace = Workspace::open(folder.path())?;
    /// match Sandbox::builder(&workspace).require_level(Level::Isolated).build() {
    ///     Ok(sandbox) => assert_eq!(sandbox.report().level, Level::Isolated),
    ///     Err(SandboxError::InsufficientLevel { report, .. }) => {
    ///         assert!(report.level < Level::Isolated);
    ///     }
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn require_level(mut self, level: Level) -> Self {
        self.at_least = level;
        self
    }

    /// Disables a mechanism, as if the system did not have it.
    #[doc(hidden)]
    pub fn disable(mut self, mechanisms: &'static str) -> Self {
        self.setup.without.push(mechanisms);
        self
    }

    /// Tests what the system can enforce, and creates the sandbox.
    ///
    /// A build starts several short processes that try to break each protection. Build a sandbox
    /// once, and clone it.
    ///
    /// # Errors
    /// Returns an error if the level is below the minimum, a place does not exist, or a limit is 0.
    pub fn build(self) -> Result<Sandbox, SandboxError> {
        let Self {
            setup,
            mut environment,
            at_least,
        } = self;
        let (limits, network) = (setup.limits, setup.network);
        if limits.time.is_zero()
            || limits.cpu_time.is_zero()
            || limits.memory == 0
            || limits.processes == 0
        {
            return Err(SandboxError::Setting(
                "a limit of 0 prevents every command; omit it for the default",
            ));
        }
        let private = PrivateFolder::new()
            .map_err(|error| SandboxError::Place(std::env::temp_dir(), error))?;
        for (name, place) in [("HOME", private.home()), ("TMPDIR", private.temp())] {
            if environment.get(name).is_none() {
                environment.set(name, place);
            }
        }
        let workspace = setup.workspace.clone();
        let (system, report) = System::new(setup, &private)?;
        if report.level < at_least {
            let missing = report.missing(at_least);
            return Err(SandboxError::InsufficientLevel {
                wanted: at_least,
                missing,
                report: Box::new(report),
            });
        }
        Ok(Sandbox(Arc::new(Inner {
            workspace,
            environment,
            limits,
            network,
            system,
            report,
            _private: private,
        })))
    }
}
