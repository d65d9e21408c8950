use std::fmt;

/// How firmly commands are held, from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Time and output are limited; a process that leaves the command's group lives on.
    Open,
    /// All limits hold, and nothing of a command outlives it.
    Limited,
    /// Also, files outside the workspace and the network are out of reach.
    Guarded,
    /// Also, a command sees no process but its own, and none of the workspace's denied files.
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

/// By what something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// Landlock, a part of the Linux kernel that restricts files.
    Landlock {
        /// Its version in this kernel.
        abi: u32,
    },
    /// A filter before system calls.
    Seccomp,
    /// A mount namespace of the command's own.
    MountNamespace,
    /// A network namespace of the command's own.
    NetworkNamespace,
    /// A process namespace of the command's own.
    ProcessNamespace,
    /// A process that takes in every orphan of the command, and kills it.
    Adoption,
    /// A limit that the kernel keeps for each process.
    Rlimit,
    /// Somebody who looks at the command's processes many times a second.
    Watcher,
    /// A process group. A process can leave it, unless seccomp keeps it there.
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
            Self::Adoption => f.write_str("adoption of orphans"),
            Self::Rlimit => f.write_str("rlimit"),
            Self::Watcher => f.write_str("watcher"),
            Self::ProcessGroup => f.write_str("process group"),
        }
    }
}

/// Whether something is held, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// Whether it holds. What only helps a little does not.
    pub holds: bool,
    /// By what, whether or not it is enough.
    pub by: Vec<Mechanism>,
    /// What is missing, or left open on purpose.
    pub note: Option<&'static str>,
}

impl Protection {
    #[cfg(target_os = "linux")]
    pub(super) fn held(by: impl Into<Vec<Mechanism>>) -> Self {
        Self {
            holds: true,
            by: by.into(),
            note: None,
        }
    }

    pub(super) fn open(by: impl Into<Vec<Mechanism>>, note: &'static str) -> Self {
        Self {
            holds: false,
            by: by.into(),
            note: Some(note),
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn noted(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.holds { "held" } else { "not held" })?;
        for (index, how) in self.by.iter().enumerate() {
            write!(f, "{}{how}", if index == 0 { " by " } else { ", " })?;
        }
        self.note.map_or(Ok(()), |note| write!(f, " ({note})"))
    }
}

/// What really holds commands on this system. It was found out by trying, not by asking.
///
/// Its `Display` is a table for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxReport {
    /// All of it in a word.
    pub level: Level,
    /// Files outside the workspace and the places that were opened up: not read, not changed.
    pub files: Protection,
    /// Files of the workspace that it denies: not read, not changed.
    pub hidden: Protection,
    /// The network.
    pub network: Protection,
    /// Every process of a command ends with it, whatever it does.
    pub processes: Protection,
    /// Processes that are none of the command's: not seen, not signalled.
    pub others: Protection,
    /// Memory of all its processes together.
    pub memory: Protection,
    /// The number of its processes.
    pub process_count: Protection,
    /// CPU time of all its processes together.
    pub cpu_time: Protection,
    /// The size of a file.
    pub file_size: Protection,
    /// Commands that are run [read-only](crate::Command::read_only): they change nothing, reach no
    /// network, and read no file that the workspace denies.
    pub read_only: Protection,
}

impl SandboxReport {
    /// Each guard with the name of what it guards.
    pub fn guards(&self) -> [(&'static str, &Protection); 10] {
        [
            ("files", &self.files),
            ("hidden files", &self.hidden),
            ("network", &self.network),
            ("killed whole", &self.processes),
            ("other processes", &self.others),
            ("memory", &self.memory),
            ("process count", &self.process_count),
            ("CPU time", &self.cpu_time),
            ("file size", &self.file_size),
            ("read-only runs", &self.read_only),
        ]
    }

    #[cfg(target_os = "linux")]
    /// Works out the level from the guards.
    pub(super) fn ranked(mut self) -> Self {
        let limited = [
            &self.processes,
            &self.memory,
            &self.process_count,
            &self.cpu_time,
        ];
        self.level = if !limited.iter().all(|guard| guard.holds) {
            Level::Open
        } else if !(self.files.holds && self.network.holds) {
            Level::Limited
        } else if !(self.hidden.holds && self.others.holds) {
            Level::Guarded
        } else {
            Level::Isolated
        };
        self
    }

    /// What keeps it from a level, in words.
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
        let lacks = |(name, guard): &(&str, &Protection)| !guard.holds && needed.contains(name);
        let lacking = self.guards().into_iter().filter(lacks);
        lacking
            .map(|(name, guard)| format!("{name} {guard}"))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:16} {}", "level", self.level)?;
        self.guards()
            .iter()
            .try_for_each(|(name, guard)| write!(f, "\n{name:16} {guard}"))
    }
}
