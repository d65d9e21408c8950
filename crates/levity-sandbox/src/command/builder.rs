use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::environment::Environment;
use super::error::SandboxError;
use super::limits::Limits;
use super::private::Private;
use super::report::{Level, SandboxReport};
use super::run::Command;
use super::system::System;
use crate::Workspace;

/// What of the network commands may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Everything that the host reaches.
    Any,
}

/// Runs commands in a workspace, under limits, and away from everything else. Cloning costs
/// nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("levity-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// use levity_sandbox::{Level, Sandbox, Workspace};
///
/// let sandbox = Sandbox::builder(Workspace::open(&folder)?).at_least(Level::Open).build()?;
/// println!("{}", sandbox.report());
///
/// let finished = sandbox.shell("echo hello | tr a-z A-Z").run().await?;
/// assert!(finished.is_success());
/// assert_eq!(finished.stdout.text, "HELLO\n");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sandbox(pub(super) Arc<Inner>);

pub(super) struct Inner {
    workspace: Workspace,
    pub(super) environment: Environment,
    pub(super) limits: Limits,
    network: Network,
    pub(super) system: System,
    pub(super) report: SandboxReport,
    // Removed after all else.
    _private: Private,
}

impl Sandbox {
    /// Begins a sandbox for the commands of a workspace.
    pub fn builder(workspace: impl Into<Workspace>) -> SandboxBuilder {
        SandboxBuilder::new(workspace.into())
    }

    /// The workspace that commands run in.
    pub fn workspace(&self) -> &Workspace {
        &self.0.workspace
    }

    /// What really holds commands here.
    pub fn report(&self) -> &SandboxReport {
        &self.0.report
    }

    /// How long a command may take.
    pub fn time(&self) -> Duration {
        self.0.limits.time
    }

    /// What of the network commands may reach.
    pub fn network(&self) -> Network {
        self.0.network
    }

    /// A program with arguments. A name without `/` is looked for in `PATH`.
    pub fn command<I, S>(&self, argv: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        Command::new(self.clone(), argv.into_iter().map(Into::into).collect())
    }

    /// A line for `/bin/sh`.
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

/// What a [`Sandbox`] is made of.
#[derive(Debug)]
#[must_use]
pub struct SandboxBuilder {
    setup: Setup,
    environment: Environment,
    at_least: Level,
}

/// What the system's part of a sandbox is told.
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

    /// Hands a variable of the host's environment on to commands, if it is set.
    pub fn allow_env(mut self, name: impl Into<OsString>) -> Self {
        let name = name.into();
        if let Some(value) = std::env::var_os(&name) {
            self.environment.set(name, value);
        }
        self
    }

    /// Sets a variable for commands.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.set(name, value);
        self
    }

    /// Lets commands read, list and execute what is in another place.
    pub fn read(mut self, place: impl Into<PathBuf>) -> Self {
        self.setup.reads.push(place.into());
        self
    }

    /// Lets commands do everything in another place, also where the workspace is read-only.
    pub fn write(mut self, place: impl Into<PathBuf>) -> Self {
        self.setup.writes.push(place.into());
        self
    }

    /// What of the network commands may reach; nothing by default.
    pub fn network(mut self, network: Network) -> Self {
        self.setup.network = network;
        self
    }

    /// How long a command may take; two minutes by default.
    pub fn time(mut self, time: Duration) -> Self {
        self.setup.limits.time = time;
        self
    }

    /// How much CPU time all its processes may take together; ten minutes by default.
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.setup.limits.cpu_time = time;
        self
    }

    /// How many bytes of memory all its processes may use together; 4 GiB by default.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.setup.limits.memory = bytes;
        self
    }

    /// How many processes it may have at a time; 256 by default.
    pub fn processes(mut self, count: u32) -> Self {
        self.setup.limits.processes = count;
        self
    }

    /// How many bytes a file that it writes may have; 1 GiB by default.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.setup.limits.file_size = bytes;
        self
    }

    /// How many bytes of its output are kept, and as many of its errors; 64 KiB by default.
    pub fn output(mut self, bytes: usize) -> Self {
        self.setup.limits.output = bytes;
        self
    }

    /// How firmly commands must be held; [`Level::Guarded`] by default. A system that cannot is
    /// refused.
    pub fn at_least(mut self, level: Level) -> Self {
        self.at_least = level;
        self
    }

    /// Does without a means, as if the system did not have it.
    #[doc(hidden)]
    pub fn without(mut self, means: &'static str) -> Self {
        self.setup.without.push(means);
        self
    }

    /// Finds out what the system can do, by doing it.
    ///
    /// # Errors
    /// When that is less than was demanded, a place is not there, or a limit is 0.
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
                "a limit of 0 lets nothing run; leave it out for the default",
            ));
        }
        let private =
            Private::new().map_err(|error| SandboxError::Place(std::env::temp_dir(), error))?;
        for (name, place) in [("HOME", private.home()), ("TMPDIR", private.temp())] {
            if environment.get(name).is_none() {
                environment.set(name, place);
            }
        }
        let workspace = setup.workspace.clone();
        let (system, report) = System::new(setup, &private)?;
        if report.level < at_least {
            let missing = report.missing(at_least);
            return Err(SandboxError::Weak {
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
