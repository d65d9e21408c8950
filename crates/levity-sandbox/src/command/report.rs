//! Levels of isolation, and the report on what a system enforces.
//!
//! A level is computed from the protections and never set directly on Linux, so it cannot promise
//! more than they do. File sizes and read-only runs do not count for a level: the first is a matter
//! of resources, and the second is checked when such a run starts.

use std::fmt;

/// The level of isolation of commands, from weak to strong.
///
/// Levels are ordered, so they can be compared.
///
/// ```
/// use levity_sandbox::Level;
///
/// assert!(Level::Open < Level::Limited && Level::Guarded < Level::Isolated);
/// assert_eq!(Level::Guarded.to_string(), "guarded");
/// ```
///
/// | level | typical system |
/// |---|---|
/// | `Open` | not Linux, or a Linux whose processes cannot be counted |
/// | `Limited` | Linux without Landlock |
/// | `Guarded` | Linux with Landlock and seccomp, in a container without namespaces |
/// | `Isolated` | Linux with Landlock, seccomp and namespaces |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Time and output are limited. A process that leaves the command's group survives.
    Open,
    /// All limits are enforced, and no process of a command outlives it.
    Limited,
    /// In addition, files outside the workspace and the network are out of reach.
    Guarded,
    /// In addition, a command sees only its own processes, and none of the workspace's denied
    /// files.
    Isolated,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Limited => "limited",
            Self::Guarded => "guarded",
            Self::Isolated => "isolated",
        })
    }
}

/// The mechanism that enforces a protection.
///
/// ```
/// use levity_sandbox::Mechanism;
///
/// assert_eq!(Mechanism::Landlock { abi: 6 }.to_string(), "Landlock 6");
/// assert_eq!(Mechanism::Seccomp.to_string(), "seccomp");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// Landlock, a part of the Linux kernel that restricts files.
    Landlock {
        /// The Landlock version of this kernel.
        abi: u32,
    },
    /// A filter for system calls.
    Seccomp,
    /// A separate mount namespace for the command.
    MountNamespace,
    /// A separate network namespace for the command.
    NetworkNamespace,
    /// A separate process namespace for the command.
    ProcessNamespace,
    /// A process that adopts every orphan of the command, and kills it.
    OrphanReaper,
    /// A limit that the kernel enforces for each process.
    Rlimit,
    /// A process that checks the command's processes many times a second.
    Watcher,
    /// A process group. A process can leave it, unless seccomp prevents that.
    ProcessGroup,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Landlock { abi } => write!(f, "Landlock {abi}"),
            Self::Seccomp => f.write_str("seccomp"),
            Self::MountNamespace => f.write_str("mount namespace"),
            Self::NetworkNamespace => f.write_str("network namespace"),
            Self::ProcessNamespace => f.write_str("process namespace"),
            Self::OrphanReaper => f.write_str("adoption of orphans"),
            Self::Rlimit => f.write_str("rlimit"),
            Self::Watcher => f.write_str("watcher"),
            Self::ProcessGroup => f.write_str("process group"),
        }
    }
}

/// The state of one protection and its mechanisms.
///
/// Its `Display` is a phrase such as `enforced by Landlock 6, mount namespace`.
///
/// ```
/// use levity_sandbox::Protection;
///
/// let unknown = Protection::default();
/// assert!(!unknown.is_enforced);
/// assert_eq!(unknown.to_string(), "not enforced");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// `true` if the protection is enforced. A mechanism that only helps partly does not count.
    pub is_enforced: bool,
    /// The mechanisms, whether or not they are sufficient.
    pub mechanisms: Vec<Mechanism>,
    /// A note on gaps, or on exceptions that are intentional.
    pub note: Option<&'static str>,
}

impl Protection {
    #[cfg(target_os = "linux")]
    pub(super) fn enforced(by: impl Into<Vec<Mechanism>>) -> Self {
        Self {
            is_enforced: true,
            mechanisms: by.into(),
            note: None,
        }
    }

    pub(super) fn not_enforced(by: impl Into<Vec<Mechanism>>, note: &'static str) -> Self {
        Self {
            is_enforced: false,
            mechanisms: by.into(),
            note: Some(note),
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn with_note(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_enforced {
            "enforced"
        } else {
            "not enforced"
        })?;
        for (index, mechanism) in self.mechanisms.iter().enumerate() {
            write!(f, "{}{mechanism}", if index == 0 { " by " } else { ", " })?;
        }
        self.note.map_or(Ok(()), |note| write!(f, " ({note})"))
    }
}

/// The protections that are enforced on this system. They were tested by trying, not by querying.
///
/// Its `Display` is a table for people.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use levity_sandbox::{Level, Sandbox, Workspace};
///
/// let sandbox =
///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
/// let report = sandbox.report();
/// for (name, protection) in report.protections() {
///     if !protection.is_enforced {
///         println!("warning: {name} {protection}");
///     }
/// }
/// assert!(report.to_string().starts_with("level "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxReport {
    /// The overall level of isolation.
    pub level: Level,
    /// Files outside the workspace and the allowed places cannot be read or changed.
    pub files: Protection,
    /// Files that the workspace denies cannot be read or changed.
    pub hidden_files: Protection,
    /// The network cannot be reached.
    pub network: Protection,
    /// Every process of a command ends with it, whatever it does.
    pub processes: Protection,
    /// Processes outside the command cannot be seen or signalled.
    pub other_processes: Protection,
    /// The memory of all its processes together is limited.
    pub memory: Protection,
    /// The number of its processes is limited.
    pub process_count: Protection,
    /// The CPU time of all its processes together is limited.
    pub cpu_time: Protection,
    /// The size of a file is limited.
    pub file_size: Protection,
    /// Commands that run [read-only](crate::Command::read_only) change nothing, reach no network,
    /// and read no file that the workspace denies.
    pub read_only: Protection,
}

impl SandboxReport {
    /// Returns each protection with its name.
    ///
    /// The order and the names are those of the table that `Display` writes.
    pub fn protections(&self) -> [(&'static str, &Protection); 10] {
        [
            ("files", &self.files),
            ("hidden files", &self.hidden_files),
            ("network", &self.network),
            ("killed whole", &self.processes),
            ("other processes", &self.other_processes),
            ("memory", &self.memory),
            ("process count", &self.process_count),
            ("CPU time", &self.cpu_time),
            ("file size", &self.file_size),
            ("read-only runs", &self.read_only),
        ]
    }

    #[cfg(target_os = "linux")]
    /// Computes the level from the protections.
    pub(super) fn ranked(mut self) -> Self {
        let limited = [
            &self.processes,
            &self.memory,
            &self.process_count,
            &self.cpu_time,
        ];
        self.level = if !limited.iter().all(|guard| guard.is_enforced) {
            Level::Open
        } else if !(self.files.is_enforced && self.network.is_enforced) {
            Level::Limited
        } else if !(self.hidden_files.is_enforced && self.other_processes.is_enforced) {
            Level::Guarded
        } else {
            Level::Isolated
        };
        self
    }

    /// Describes the protections that are missing for a level.
    ///
    /// The text is a part of an error, such as `files not enforced (files outside can be read)`;
    /// parts are joined by `; `.
    pub(super) fn missing(&self, wanted: Level) -> String {
        let needed = match wanted {
            Level::Open => &[][..],
            Level::Limited => &["killed whole", "memory", "process count", "CPU time"],
            Level::Guarded => &[
                "killed whole",
                "memory",
                "process count",
                "CPU time",
                "files",
                "network",
            ],
            Level::Isolated => &[
                "killed whole",
                "memory",
                "process count",
                "CPU time",
                "files",
                "network",
                "hidden files",
                "other processes",
            ],
        };
        let lacks =
            |(name, guard): &(&str, &Protection)| !guard.is_enforced && needed.contains(name);
        let lacking = self.protections().into_iter().filter(lacks);
        lacking
            .map(|(name, guard)| format!("{name} {guard}"))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:16} {}", "level", self.level)?;
        self.protections()
            .iter()
            .try_for_each(|(name, guard)| write!(f, "\n{name:16} {guard}"))
    }
}
