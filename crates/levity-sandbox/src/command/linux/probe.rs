//! Tests what this system can enforce, by trying it in a child.
//!
//! Queries such as "does the kernel have Landlock" are not enough: a container, a security module
//! or a setting may make a mechanism ineffective. So a child enters all mechanisms and then tries
//! to break out: it reads and writes a file, connects to a port and a socket, signals the host,
//! maps too much memory, and leaves a daemon behind. The report contains what failed.
//!
//! Isolation is tried from strong to weak, and the first kind that starts is used.

use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::host::pipe;
use super::job::{Isolation, Mechanisms, Probe, Record, Step, found};
use super::read_only_run::ReadOnlyRun;
use super::system::System;
use super::watch::{limit, time};
use crate::command::builder::{Network, Setup};
use crate::command::error::SandboxError;
use crate::command::launch;
use crate::command::limits::Limits;
use crate::command::private::PrivateFolder;
use crate::command::report::{Level, Mechanism, Protection, SandboxReport};

/// The result of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeResult {
    bits: u32,
    /// `true` if a process that acts like a daemon ended with its command.
    killed_whole: bool,
}

impl ProbeResult {
    fn has(self, bit: u32) -> bool {
        self.bits & bit != 0
    }
}

/// Returns the best mechanisms that work, and the result of their probe.
pub(super) fn mechanisms(
    setup: &Setup,
    private: &PrivateFolder,
) -> Result<(Mechanisms, ProbeResult), SandboxError> {
    let mut failure = None;
    for isolation in [
        Isolation::Namespaces,
        Isolation::UserNamespaces,
        Isolation::Nothing,
    ] {
        if is_disabled(setup, isolation) {
            continue;
        }
        match attempt(setup, private, wanted(setup, isolation)) {
            Ok(found) => return Ok(found),
            Err(AttemptError::Fatal(error)) => return Err(error),
            Err(AttemptError::Other(error)) => failure = Some(error),
        }
    }
    let failure = failure.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(SandboxError::Probe("no process could be started", failure))
}

enum AttemptError {
    Fatal(SandboxError),
    /// It may work with other mechanisms.
    Other(io::Error),
}

fn is_disabled(setup: &Setup, isolation: Isolation) -> bool {
    let without = |name| setup.without.contains(&name);
    match isolation {
        Isolation::Namespaces => without("namespaces") || without("root"),
        Isolation::UserNamespaces => without("namespaces"),
        Isolation::Nothing => false,
    }
}

/// Returns everything to try with this kind of isolation, without the mechanisms that tests
/// disable.
fn wanted(setup: &Setup, isolation: Isolation) -> Mechanisms {
    let with = |name| !setup.without.contains(&name);
    let is_isolated = isolation != Isolation::Nothing;
    Mechanisms {
        isolation,
        own_network: is_isolated && setup.network == Network::None,
        frozen: is_isolated && with("mounts"),
        hidden: is_isolated && with("mounts"),
        own_proc: is_isolated && with("proc"),
        own_pids: is_isolated && with("pids") && has_own_pids(),
        landlock: if with("landlock") {
            launch::landlock_abi()
        } else {
            0
        },
        seccomp: with("seccomp"),
        counted: false,
    }
}

/// Probes one set of mechanisms and returns those that could be set up.
fn attempt(
    setup: &Setup,
    private: &PrivateFolder,
    wanted: Mechanisms,
) -> Result<(Mechanisms, ProbeResult), AttemptError> {
    let system = System::with(clone(setup), private, wanted).map_err(AttemptError::Fatal)?;
    let probe_result =
        run_probe(&system, &setup.limits, private, None).map_err(AttemptError::Other)?;
    let mechanisms = Mechanisms {
        frozen: probe_result.has(found::FROZEN),
        hidden: probe_result.has(found::HIDDEN),
        own_proc: probe_result.has(found::OWN_PROC),
        own_pids: probe_result.has(found::OWN_PIDS),
        landlock: if probe_result.has(found::LANDLOCK) {
            wanted.landlock
        } else {
            0
        },
        seccomp: probe_result.has(found::SECCOMP),
        counted: probe_result.has(found::COUNTED),
        ..system.mechanisms
    };
    Ok((mechanisms, probe_result))
}

fn clone(setup: &Setup) -> Setup {
    Setup {
        workspace: setup.workspace.clone(),
        reads: setup.reads.clone(),
        writes: setup.writes.clone(),
        network: setup.network,
        limits: setup.limits,
        without: setup.without.clone(),
    }
}

/// Runs a probe with the rights of any command, or with those of a read-only run.
///
/// # Errors
/// Returns an error if a required step failed, or if the probe process could not list the
/// workspace.
fn run_probe(
    system: &System,
    limits: &Limits,
    private: &PrivateFolder,
    reading: Option<&ReadOnlyRun>,
) -> io::Result<ProbeResult> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
    let port = listener
        .as_ref()
        .and_then(|it| it.local_addr().ok())
        .map_or(0, |address| address.port());
    let canary = CString::new(private.canary().as_os_str().as_bytes())?;
    // If its path is too long for an address, no process can reach it.
    let _ = std::fs::remove_file(private.socket());
    let _service = UnixDatagram::bind(private.socket()).ok();
    let socket = CString::new(private.socket().as_os_str().as_bytes())?;
    let folder = CString::new(private.temp().as_os_str().as_bytes())?;
    let (watched, held) = pipe()?;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let records = system.probe(
        Probe {
            canary,
            folder,
            socket,
            port,
            pid,
            held,
        },
        limits,
        reading,
    )?;
    let mut bits = 0;
    for record in &records {
        match record {
            Record::Failed(step, errno, _) => return Err(failed(*step, *errno)),
            Record::Found(more) => bits |= more,
            Record::Ended { .. } | Record::Replaced(_) => {}
        }
    }
    let ended = records.iter().any(|record| {
        matches!(
            record,
            Record::Ended {
                remaining: 0,
                status: 0,
                ..
            }
        )
    });
    if !ended || bits & found::WORKS == 0 {
        let limit = records.iter().find_map(|record| match record {
            Record::Ended { limit, .. } => Some(*limit),
            _ => None,
        });
        let reason = match limit {
            Some(limit::NONE) | None => "",
            Some(limit::TIME) => " because it exceeded its limit of time",
            Some(limit::CPU) => " because it exceeded its limit of CPU time",
            Some(limit::MEMORY) => " because it exceeded its limit of memory",
            Some(limit::PROCESSES) => " because it exceeded its limit of processes",
            Some(_) => " because its processes or files changed",
        };
        let message = format!("the probe process ended early{reason}");
        return Err(io::Error::other(message));
    }
    // Without a port to try, only the mechanisms in force count.
    if port == 0 && (system.mechanisms.own_network || bits & found::SECCOMP != 0) {
        bits |= found::NETWORK_HELD;
    }
    Ok(ProbeResult {
        bits,
        killed_whole: bits & found::DETACHED != 0 && wait_for_release(&watched, RELEASE),
    })
}

/// The time until a pipe must be released after the process that held it was killed, in
/// milliseconds.
const RELEASE: u64 = 5000;

/// Waits until no process holds the other end of a pipe; returns `true` if that happened in time.
///
/// A process that another thread starts at the same moment has a copy of every descriptor until it
/// closes them. So a pipe that is still held at first is not evidence against the command.
fn wait_for_release(watched: &OwnedFd, millis: u64) -> bool {
    let end = launch::millis().saturating_add(millis);
    loop {
        let remaining = end.saturating_sub(launch::millis());
        let mut polled = [PollFd::new(watched, PollFlags::IN)];
        match poll(&mut polled, Some(&time(remaining))) {
            Ok(ready) if ready > 0 => return polled[0].revents().contains(PollFlags::HUP),
            Ok(_) => return false,
            Err(Errno::INTR) if remaining > 0 => {}
            Err(_) => return false,
        }
    }
}

fn failed(step: Step, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    io::Error::new(error.kind(), format!("{}: {error}", step.name()))
}

/// Builds the report from the mechanisms and the result of their probe.
pub(super) fn report(
    setup: &Setup,
    mechanisms: &Mechanisms,
    probe_result: ProbeResult,
) -> SandboxReport {
    SandboxReport {
        level: Level::Open,
        files: files(mechanisms, probe_result),
        hidden_files: hidden(mechanisms),
        network: network(setup, mechanisms, probe_result),
        processes: processes(mechanisms, probe_result),
        other_processes: others(mechanisms, probe_result),
        memory: watched(probe_result, &[Mechanism::Rlimit]),
        process_count: process_count(mechanisms, probe_result),
        cpu_time: watched(probe_result, &[Mechanism::Rlimit]),
        file_size: file_size(probe_result),
        read_only: Protection::default(),
    }
    .ranked()
}

/// Tests whether commands can run read-only, by a run that tries to do more.
pub(super) fn read_only(system: &System, limits: &Limits, private: &PrivateFolder) -> Protection {
    let mechanisms = &system.mechanisms;
    if mechanisms.landlock == 0 || !mechanisms.seccomp {
        return Protection::not_enforced([], "Landlock and seccomp are needed");
    }
    let by = [
        Mechanism::Landlock {
            abi: mechanisms.landlock,
        },
        Mechanism::Seccomp,
    ];
    if system.contains_programs() {
        return Protection::not_enforced(
            by,
            "the workspace contains the system's programs, which could not be executed",
        );
    }
    let Some(reading) = system.try_reading() else {
        return Protection::not_enforced(
            by,
            "the workspace has too many files, or cannot be searched for denied ones",
        );
    };
    let needed = [
        found::LANDLOCK,
        found::SECCOMP,
        found::READS_HELD,
        found::WRITES_HELD,
        found::CHANGES_HELD,
        found::NETWORK_HELD,
        found::SOCKETS_HELD,
    ];
    match run_probe(system, limits, private, Some(&reading)) {
        Ok(probe_result) if needed.into_iter().all(|bit| probe_result.has(bit)) => {
            Protection::enforced(by)
        }
        _ => Protection::not_enforced(by, "a read-only command could do more than read"),
    }
}

fn files(mechanisms: &Mechanisms, probe_result: ProbeResult) -> Protection {
    let mut by = Vec::new();
    if mechanisms.landlock > 0 {
        by.push(Mechanism::Landlock {
            abi: mechanisms.landlock,
        });
    }
    if mechanisms.frozen {
        by.push(Mechanism::MountNamespace);
    }
    let (reads, writes) = (
        probe_result.has(found::READS_HELD),
        probe_result.has(found::WRITES_HELD),
    );
    if !writes {
        return Protection::not_enforced(by, "files outside can be read and changed");
    }
    if !reads {
        return Protection::not_enforced(by, "files outside can be read");
    }
    // Before the third version, Landlock allows truncating a readable file; mounts and filters
    // prevent that.
    let emptied =
        mechanisms.landlock < 3 && !mechanisms.frozen && (!mechanisms.seccomp || is_root());
    if emptied {
        return Protection::not_enforced(by, "readable files outside can be truncated");
    }
    if mechanisms.frozen {
        return Protection::enforced(by);
    }
    Protection::enforced(by).with_note("modes, owners and times of files outside can be changed")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn hidden(mechanisms: &Mechanisms) -> Protection {
    if mechanisms.hidden {
        return Protection::enforced([Mechanism::MountNamespace]);
    }
    Protection::not_enforced(
        [],
        "commands can read and change denied files of the workspace",
    )
}

fn network(setup: &Setup, mechanisms: &Mechanisms, probe_result: ProbeResult) -> Protection {
    let mut by = Vec::new();
    if mechanisms.own_network {
        by.push(Mechanism::NetworkNamespace);
    }
    if mechanisms.seccomp {
        by.push(Mechanism::Seccomp);
    }
    let is_open = setup.network == Network::Any;
    if !is_open && !probe_result.has(found::NETWORK_HELD) {
        return Protection::not_enforced(by, "the network can be reached");
    }
    // These sockets lead to the host itself, whichever network access is allowed.
    if !mechanisms.seccomp || !probe_result.has(found::SOCKETS_HELD) {
        return Protection::not_enforced(
            by,
            "services of the host can be reached through sockets in the file system",
        );
    }
    if is_open {
        Protection::enforced(by).with_note("open, as configured")
    } else {
        Protection::enforced(by)
    }
}

fn processes(mechanisms: &Mechanisms, probe_result: ProbeResult) -> Protection {
    let mut by = vec![if mechanisms.is_isolated() {
        Mechanism::ProcessNamespace
    } else {
        Mechanism::OrphanReaper
    }];
    if !mechanisms.is_isolated() && mechanisms.seccomp {
        by.push(Mechanism::ProcessGroup);
    }
    if !probe_result.killed_whole {
        return Protection::not_enforced(by, "a process that detaches itself survives");
    }
    if !mechanisms.is_isolated() && !probe_result.has(found::SIGNALS_HELD) {
        return Protection::not_enforced(by, "a command can kill its watcher");
    }
    Protection::enforced(by)
}

/// Two questions count: can other processes be seen, and can they be signalled or changed.
fn others(mechanisms: &Mechanisms, probe_result: ProbeResult) -> Protection {
    let mut by = Vec::new();
    if mechanisms.is_isolated() {
        by.push(Mechanism::ProcessNamespace);
    }
    if mechanisms.landlock > 0 {
        by.push(Mechanism::Landlock {
            abi: mechanisms.landlock,
        });
    }
    let unseen = mechanisms.own_proc || mechanisms.landlock > 0;
    let safe = mechanisms.is_isolated()
        || (mechanisms.landlock >= 6 && probe_result.has(found::SIGNALS_HELD));
    match (unseen, safe) {
        // Landlock does not cover limits and priorities.
        (true, true) if !mechanisms.is_isolated() && !mechanisms.seccomp => {
            Protection::not_enforced(by, "limits of processes of the same user can be changed")
        }
        (true, true) => Protection::enforced(by),
        (true, false) => {
            Protection::not_enforced(by, "processes of the same user can be signalled")
        }
        (false, true) => Protection::not_enforced(by, "other processes can be seen"),
        (false, false) => Protection::not_enforced(
            by,
            "other processes can be seen, and those of the same user signalled",
        ),
    }
}

fn watched(probe_result: ProbeResult, more: &[Mechanism]) -> Protection {
    let by = [more, &[Mechanism::Watcher]].concat();
    if probe_result.has(found::COUNTED) {
        Protection::enforced(by)
    } else {
        Protection::not_enforced(more, "processes cannot be counted")
    }
}

/// The kernel's limit counts all tasks, so it is wider; it stops commands that are faster than the
/// watcher.
fn process_count(mechanisms: &Mechanisms, probe_result: ProbeResult) -> Protection {
    let mut by = Vec::new();
    if mechanisms.own_pids {
        by.push(Mechanism::ProcessNamespace);
    }
    if mechanisms.isolation == Isolation::UserNamespaces && !is_root() {
        by.push(Mechanism::Rlimit);
    }
    watched(probe_result, &by)
}

/// Returns `true` if each process namespace has its own highest number. Before Linux 6.14 there is
/// one for the whole system, which must not be changed.
fn has_own_pids() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut parts = release
        .split(|char: char| !char.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (6, 14)
}

/// Returns the highest number for this many tasks. The kernel never reuses the first 300, and
/// requires 8 for each processor.
pub(super) fn pid_max(tasks: u64) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    (tasks + 301).max(processors * 8).clamp(301, 4 << 20)
}

fn file_size(probe_result: ProbeResult) -> Protection {
    if probe_result.has(found::FILE_SIZE_HELD) {
        Protection::enforced([Mechanism::Rlimit])
    } else {
        Protection::not_enforced([], "there is no limit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_held_briefly_by_another_thread_counts_as_released() {
        let (watched, held) = pipe().unwrap();
        let other = std::thread::spawn(move || {
            // This is long enough for the pipe to be held at the first check.
            (0..10_000).for_each(|_| std::thread::yield_now());
            drop(held);
        });
        assert!(wait_for_release(&watched, 60_000));
        other.join().unwrap();
    }

    #[test]
    fn pipe_held_past_time_limit_counts_as_held() {
        let (watched, _held) = pipe().unwrap();
        assert!(!wait_for_release(&watched, 1));
    }
}
