//! Data that passes between the host and its child processes.
//!
//! A [`Job`] goes in: the child gets it as a copy of the host's memory. [`Record`]s come out: small
//! messages through a pipe. Neither side trusts the command: it has no access to either pipe.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use libc::c_int;
use seccompiler::sock_filter;

use super::census::Census;
use super::checks::CoverChecks;
use crate::command::launch::Strings;
pub(super) use crate::workspace::Identity;

/// The isolation of a command from other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// Namespaces, which a privileged host may create directly.
    Namespaces,
    /// Namespaces below a user namespace, which any user may create if the system supports it.
    UserNamespaces,
    /// No isolation from other processes.
    Nothing,
}

/// The mechanisms that are used. They were all tried when the sandbox was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanisms {
    pub(super) isolation: Isolation,
    /// A network namespace, with its own loopback device.
    pub(super) own_network: bool,
    /// Everything except the writable places is mounted read-only.
    pub(super) frozen: bool,
    /// Denied files are hidden under mounts.
    pub(super) hidden: bool,
    /// A `/proc` that shows only the command's own processes.
    pub(super) own_proc: bool,
    /// The process namespace has a highest number, so that it cannot contain more processes.
    pub(super) own_pids: bool,
    /// The version of Landlock, or 0.
    pub(super) landlock: u32,
    pub(super) seccomp: bool,
    /// Processes can be counted, so a command whose processes cannot be counted is ended.
    pub(super) counted: bool,
}

impl Mechanisms {
    /// Returns the flags for `clone`.
    pub(super) fn flags(&self) -> c_int {
        let isolation =
            libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        let network = if self.own_network {
            libc::CLONE_NEWNET
        } else {
            0
        };
        match self.isolation {
            Isolation::Namespaces => isolation | network,
            Isolation::UserNamespaces => isolation | network | libc::CLONE_NEWUSER,
            Isolation::Nothing => 0,
        }
    }

    pub(super) fn is_isolated(&self) -> bool {
        self.isolation != Isolation::Nothing
    }
}

/// The data that the child needs, prepared in advance: the child cannot allocate.
pub(super) struct Job {
    pub(super) mechanisms: Mechanisms,
    /// The operations to try instead of a command. A mechanism that fails is then skipped;
    /// otherwise it is fatal.
    pub(super) probe: Option<Probe>,
    pub(super) maps: [Vec<u8>; 2],
    pub(super) writable: Vec<CString>,
    /// The host retains them as well, to name the one that fails.
    pub(super) covers: Arc<Vec<Cover>>,
    /// The folders and names of the covers, for the check that they are in place.
    pub(super) checks: CoverChecks,
    pub(super) empty: CString,
    pub(super) ruleset: Option<OwnedFd>,
    /// The allowed access to `/proc`, as Landlock flags.
    pub(super) proc_access: u64,
    pub(super) filters: Vec<Vec<sock_filter>>,
    pub(super) capabilities: u64,
    pub(super) time_ms: u64,
    pub(super) cpu_ms: u64,
    pub(super) memory: u64,
    pub(super) processes: u32,
    /// The number of processes and threads that the kernel allows the user.
    pub(super) tasks: u64,
    /// The highest number of a process in its own namespace, as text.
    pub(super) pid_max: Vec<u8>,
    /// `true` if the command has a lower priority, so that it does not outrun the watcher.
    pub(super) yields: bool,
    pub(super) file_size: u64,
    pub(super) root: CString,
    pub(super) dir: CString,
    pub(super) programs: Vec<CString>,
    pub(super) argv: Strings,
    pub(super) envp: Strings,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) control: OwnedFd,
    pub(super) report: OwnedFd,
    pub(super) census: Census,
    /// Becomes readable when a mount of the command disappears. Opened after the last mount.
    pub(super) mount_changes: Option<OwnedFd>,
    /// The descriptors that stay open in the child, in order.
    pub(super) keep: Vec<c_int>,
}

impl Job {
    /// All other descriptors of the host are closed in the child, so no file or socket of the host
    /// leaks.
    pub(super) fn record_descriptors(&mut self) {
        let always = [
            &self.stdin,
            &self.stdout,
            &self.stderr,
            &self.control,
            &self.report,
        ];
        let held = self.probe.as_ref().map(|probe| &probe.held);
        let all = always.into_iter().chain(&self.ruleset).chain(held);
        self.keep = all.map(AsRawFd::as_raw_fd).collect();
        self.keep.sort_unstable();
        // The watcher adds its own, and cannot allocate.
        self.keep.reserve(self.covers.len() + 16);
    }
}

/// A path of the workspace that a mount hides or protects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) kind: CoverKind,
    pub(super) path: CString,
    /// The identity of the file at the path. If it has changed when it is covered, nothing runs.
    pub(super) identity: Identity,
}

/// The ways in which a mount covers a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CoverKind {
    /// A denied file, which can no longer be opened.
    File,
    /// A denied folder, which appears empty.
    Folder,
    /// A folder that could not be searched, which appears empty.
    Unknown,
    /// A path that no command may create, with a placeholder or a file of another program.
    Reserved,
    /// A file or folder that can only be read.
    Fixed,
    /// A folder that cannot be moved away to put another in its place.
    Pinned,
    /// The same, for a folder above a protected or reserved path.
    Anchored,
}

impl CoverKind {
    pub(super) fn hides(self) -> bool {
        matches!(
            self,
            Self::File | Self::Folder | Self::Unknown | Self::Reserved
        )
    }

    /// Returns `true` if the command must end when another program removes what is at the path: the
    /// command could put something else there.
    pub(super) fn must_exist(self) -> bool {
        matches!(self, Self::Fixed | Self::Reserved | Self::Anchored)
    }

    /// Returns `true` if the command must also end when something else is at the path: the command
    /// may have created it.
    pub(super) fn must_stay(self) -> bool {
        matches!(self, Self::Reserved | Self::Anchored)
    }
}

/// The operations that a probe tries.
pub(super) struct Probe {
    /// A file that must be out of reach.
    pub(super) canary: CString,
    /// A folder in which commands can usually create files, and read-only ones cannot.
    pub(super) folder: CString,
    /// A socket of the host in the file system, which must be out of reach.
    pub(super) socket: CString,
    /// A port of the host, or 0.
    pub(super) port: u16,
    /// The process number of the host.
    pub(super) pid: i32,
    /// A pipe that is held open by a process that tries to stay behind.
    pub(super) held: OwnedFd,
}

/// A record that the child sends to the host: 12 bytes through a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A step that must not fail has failed, with its error number and the index of the affected
    /// item.
    Failed(Step, i32, u32),
    /// The result of a probe: bits of [`found`].
    Found(u32),
    /// Another program replaced or removed the path with this index while the command ran.
    Replaced(u32),
    /// The command ended with a status of `waitpid`, perhaps by a limit, and this many processes
    /// remain.
    Ended {
        status: i32,
        limit: u8,
        remaining: u32,
    },
}

impl Record {
    pub(super) const SIZE: usize = 12;

    pub(super) fn encode(self) -> [u8; Self::SIZE] {
        let (kind, detail, a, b) = match self {
            Self::Failed(step, errno, at) => (1, step as u8, errno as u32, at),
            Self::Found(bits) => (2, 0, bits, 0),
            Self::Ended {
                status,
                limit,
                remaining,
            } => (3, limit, status as u32, remaining),
            Self::Replaced(at) => (4, 0, at, 0),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[0] = kind;
        bytes[1] = detail;
        bytes[4..8].copy_from_slice(&a.to_ne_bytes());
        bytes[8..].copy_from_slice(&b.to_ne_bytes());
        bytes
    }

    /// Returns `None` for bytes that no [`encode`](Self::encode) produces.
    pub(super) fn decode(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        match bytes[0] {
            1 => Some(Self::Failed(
                Step::ALL.into_iter().find(|step| *step as u8 == bytes[1])?,
                word(4) as i32,
                word(8),
            )),
            2 => Some(Self::Found(word(4))),
            3 => Some(Self::Ended {
                status: word(4) as i32,
                limit: bytes[1],
                remaining: word(8),
            }),
            4 => Some(Self::Replaced(word(4))),
            _ => None,
        }
    }
}

/// Bits of the result of a probe.
pub(super) mod found {
    /// The mechanisms that could be used.
    pub(in super::super) const FROZEN: u32 = 1;
    pub(in super::super) const HIDDEN: u32 = 1 << 1;
    pub(in super::super) const OWN_PROC: u32 = 1 << 2;
    pub(in super::super) const LANDLOCK: u32 = 1 << 3;
    pub(in super::super) const SECCOMP: u32 = 1 << 4;
    pub(in super::super) const OWN_PIDS: u32 = 1 << 5;
    /// The protections that were effective when tried.
    pub(in super::super) const READS_HELD: u32 = 1 << 8;
    pub(in super::super) const WRITES_HELD: u32 = 1 << 9;
    pub(in super::super) const NETWORK_HELD: u32 = 1 << 10;
    pub(in super::super) const SIGNALS_HELD: u32 = 1 << 11;
    pub(in super::super) const MEMORY_HELD: u32 = 1 << 12;
    pub(in super::super) const FILE_SIZE_HELD: u32 = 1 << 13;
    /// The required operations worked: the workspace can be listed.
    pub(in super::super) const WORKS: u32 = 1 << 14;
    /// The processes can be counted.
    pub(in super::super) const COUNTED: u32 = 1 << 15;
    /// A socket of the file system could not be reached.
    pub(in super::super) const SOCKETS_HELD: u32 = 1 << 16;
    /// No file could be created in the workspace or beside it.
    pub(in super::super) const CHANGES_HELD: u32 = 1 << 17;
    /// A process without parent was started, which must end with the command.
    pub(in super::super) const DETACHED: u32 = 1 << 18;
}

/// The setup steps that can fail before a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Ids = 1,
    Mounts,
    Freeze,
    Hide,
    Proc,
    Pids,
    Loopback,
    Orphans,
    Fork,
    Streams,
    Limits,
    Directory,
    Privileges,
    Landlock,
    Seccomp,
    Exec,
}

impl Step {
    const ALL: [Self; 16] = [
        Self::Ids,
        Self::Mounts,
        Self::Freeze,
        Self::Hide,
        Self::Proc,
        Self::Pids,
        Self::Loopback,
        Self::Orphans,
        Self::Fork,
        Self::Streams,
        Self::Limits,
        Self::Directory,
        Self::Privileges,
        Self::Landlock,
        Self::Seccomp,
        Self::Exec,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ids => "the user namespace",
            Self::Mounts => "the mount namespace",
            Self::Freeze => "read-only mounts",
            Self::Hide => "hiding denied files",
            Self::Proc => "its own `/proc`",
            Self::Pids => "the number of its processes",
            Self::Loopback => "the loopback device",
            Self::Orphans => "adopting orphans",
            Self::Fork => "a process",
            Self::Streams => "its input and output",
            Self::Limits => "its limits",
            Self::Directory => "its directory",
            Self::Privileges => "dropping privileges",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
            Self::Exec => "executing the program",
        }
    }
}
