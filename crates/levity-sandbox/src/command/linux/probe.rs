//! Tests what this system can enforce, by trying it in a child.

use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::host::pipe;
use super::job::{Apart, Means, Probe, Record, Step, found};
use super::reading::Reading;
use super::system::System;
use super::watch::time;
use crate::command::builder::{Network, Setup};
use crate::command::error::SandboxError;
use crate::command::launch;
use crate::command::limits::Limits;
use crate::command::private::Private;
use crate::command::report::{Level, Mechanism, Protection, SandboxReport};

/// The result of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    bits: u32,
    /// `true` if a process that acts like a daemon ended with its command.
    killed_whole: bool,
}

impl Tried {
    fn has(self, bit: u32) -> bool {
        self.bits & bit != 0
    }
}

/// Returns the best mechanisms that work, and the result of their probe.
pub(super) fn means(setup: &Setup, private: &Private) -> Result<(Means, Tried), SandboxError> {
    let mut failure = None;
    for apart in [Apart::Namespaces, Apart::UserNamespaces, Apart::Nothing] {
        if is_left_out(setup, apart) {
            continue;
        }
        match attempt(setup, private, wanted(setup, apart)) {
            Ok(found) => return Ok(found),
            Err(Trouble::Fatal(error)) => return Err(error),
            Err(Trouble::Other(error)) => failure = Some(error),
        }
    }
    let failure = failure.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(SandboxError::Probe("no process could be started", failure))
}

enum Trouble {
    Fatal(SandboxError),
    /// It may work with other mechanisms.
    Other(io::Error),
}

fn is_left_out(setup: &Setup, apart: Apart) -> bool {
    let without = |name| setup.without.contains(&name);
    match apart {
        Apart::Namespaces => without("namespaces") || without("root"),
        Apart::UserNamespaces => without("namespaces"),
        Apart::Nothing => false,
    }
}

fn wanted(setup: &Setup, apart: Apart) -> Means {
    let with = |name| !setup.without.contains(&name);
    let is_apart = apart != Apart::Nothing;
    Means {
        apart,
        own_network: is_apart && setup.network == Network::None,
        frozen: is_apart && with("mounts"),
        hidden: is_apart && with("mounts"),
        own_proc: is_apart && with("proc"),
        own_pids: is_apart && with("pids") && has_own_pids(),
        landlock: if with("landlock") {
            launch::landlock_abi()
        } else {
            0
        },
        seccomp: with("seccomp"),
        counted: false,
    }
}

fn attempt(setup: &Setup, private: &Private, wanted: Means) -> Result<(Means, Tried), Trouble> {
    let system = System::with(clone(setup), private, wanted).map_err(Trouble::Fatal)?;
    let tried = try_out(&system, &setup.limits, private, None).map_err(Trouble::Other)?;
    let means = Means {
        frozen: tried.has(found::FROZEN),
        hidden: tried.has(found::HIDDEN),
        own_proc: tried.has(found::OWN_PROC),
        own_pids: tried.has(found::OWN_PIDS),
        landlock: if tried.has(found::LANDLOCK) {
            wanted.landlock
        } else {
            0
        },
        seccomp: tried.has(found::SECCOMP),
        counted: tried.has(found::COUNTED),
        ..system.means
    };
    Ok((means, tried))
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

fn try_out(
    system: &System,
    limits: &Limits,
    private: &Private,
    reading: Option<&Reading>,
) -> io::Result<Tried> {
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
            Record::Ended { .. } => {}
        }
    }
    let ended = records.iter().any(|record| {
        matches!(
            record,
            Record::Ended {
                left: 0,
                status: 0,
                ..
            }
        )
    });
    if !ended || bits & found::WORKS == 0 {
        return Err(io::Error::other("the probe process ended early"));
    }
    // Without a port to try, only the mechanisms in force count.
    if port == 0 && (system.means.own_network || bits & found::SECCOMP != 0) {
        bits |= found::NETWORK_HELD;
    }
    Ok(Tried {
        bits,
        killed_whole: is_let_go(&watched, RELEASE),
    })
}

/// The time until a pipe must be released after the process that held it was killed, in
/// milliseconds.
const RELEASE: u64 = 5000;

/// Waits until no process holds the other end of a pipe; returns `true` if that happened in time.
///
/// A process that another thread starts at the same moment has a copy of every descriptor until it
/// closes them. So a pipe that is still held at first is not evidence against the command.
fn is_let_go(watched: &OwnedFd, millis: u64) -> bool {
    let end = launch::millis().saturating_add(millis);
    loop {
        let left = end.saturating_sub(launch::millis());
        let mut polled = [PollFd::new(watched, PollFlags::IN)];
        match poll(&mut polled, Some(&time(left))) {
            Ok(ready) if ready > 0 => return polled[0].revents().contains(PollFlags::HUP),
            Ok(_) => return false,
            Err(Errno::INTR) if left > 0 => {}
            Err(_) => return false,
        }
    }
}

fn failed(step: Step, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    io::Error::new(error.kind(), format!("{}: {error}", step.name()))
}

/// Builds the report from the mechanisms and the result of their probe.
pub(super) fn report(setup: &Setup, means: &Means, tried: Tried) -> SandboxReport {
    SandboxReport {
        level: Level::Open,
        files: files(means, tried),
        hidden: hidden(means),
        network: network(setup, means, tried),
        processes: processes(means, tried),
        others: others(means, tried),
        memory: watched(tried, &[Mechanism::Rlimit]),
        process_count: process_count(means, tried),
        cpu_time: watched(tried, &[Mechanism::Rlimit]),
        file_size: file_size(tried),
        read_only: Protection::default(),
    }
    .ranked()
}

/// Tests whether commands can run read-only, by a run that tries to do more.
pub(super) fn read_only(system: &System, limits: &Limits, private: &Private) -> Protection {
    let means = &system.means;
    if means.landlock == 0 || !means.seccomp {
        return Protection::open([], "Landlock and seccomp are needed");
    }
    let by = [
        Mechanism::Landlock {
            abi: means.landlock,
        },
        Mechanism::Seccomp,
    ];
    if system.holds_programs() {
        return Protection::open(
            by,
            "the workspace contains the system's programs, which could not be executed",
        );
    }
    let Some(reading) = system.try_reading() else {
        return Protection::open(
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
    match try_out(system, limits, private, Some(&reading)) {
        Ok(tried) if needed.into_iter().all(|bit| tried.has(bit)) => Protection::held(by),
        _ => Protection::open(by, "a read-only command could do more than read"),
    }
}

fn files(means: &Means, tried: Tried) -> Protection {
    let mut by = Vec::new();
    if means.landlock > 0 {
        by.push(Mechanism::Landlock {
            abi: means.landlock,
        });
    }
    if means.frozen {
        by.push(Mechanism::MountNamespace);
    }
    let (reads, writes) = (tried.has(found::READS_HELD), tried.has(found::WRITES_HELD));
    if !writes {
        return Protection::open(by, "files outside can be read and changed");
    }
    if !reads {
        return Protection::open(by, "files outside can be read");
    }
    // Before the third version, Landlock allows truncating a readable file; mounts and filters
    // prevent that.
    let emptied = means.landlock < 3 && !means.frozen && (!means.seccomp || is_root());
    if emptied {
        return Protection::open(by, "readable files outside can be truncated");
    }
    if means.frozen {
        return Protection::held(by);
    }
    Protection::held(by).noted("modes, owners and times of files outside can be changed")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn hidden(means: &Means) -> Protection {
    if means.hidden {
        return Protection::held([Mechanism::MountNamespace]);
    }
    Protection::open([], "denied files of the workspace can be read by commands")
}

fn network(setup: &Setup, means: &Means, tried: Tried) -> Protection {
    let mut by = Vec::new();
    if means.own_network {
        by.push(Mechanism::NetworkNamespace);
    }
    if means.seccomp {
        by.push(Mechanism::Seccomp);
    }
    let is_open = setup.network == Network::Any;
    if !is_open && !tried.has(found::NETWORK_HELD) {
        return Protection::open(by, "the network can be reached");
    }
    // These sockets lead to the host itself, whichever network access is allowed.
    if !means.seccomp || !tried.has(found::SOCKETS_HELD) {
        return Protection::open(
            by,
            "services of the host can be reached through sockets in the file system",
        );
    }
    if is_open {
        Protection::held(by).noted("open, as configured")
    } else {
        Protection::held(by)
    }
}

fn processes(means: &Means, tried: Tried) -> Protection {
    let mut by = vec![if means.is_apart() {
        Mechanism::ProcessNamespace
    } else {
        Mechanism::Adoption
    }];
    if !means.is_apart() && means.seccomp {
        by.push(Mechanism::ProcessGroup);
    }
    if !tried.killed_whole {
        return Protection::open(by, "a process that detaches itself survives");
    }
    if !means.is_apart() && !tried.has(found::SIGNALS_HELD) {
        return Protection::open(by, "a command can kill its watcher");
    }
    Protection::held(by)
}

fn others(means: &Means, tried: Tried) -> Protection {
    let mut by = Vec::new();
    if means.is_apart() {
        by.push(Mechanism::ProcessNamespace);
    }
    if means.landlock > 0 {
        by.push(Mechanism::Landlock {
            abi: means.landlock,
        });
    }
    let unseen = means.own_proc || means.landlock > 0;
    let safe = means.is_apart() || (means.landlock >= 6 && tried.has(found::SIGNALS_HELD));
    match (unseen, safe) {
        // Landlock does not cover limits and priorities.
        (true, true) if !means.is_apart() && !means.seccomp => {
            Protection::open(by, "limits of processes of the same user can be changed")
        }
        (true, true) => Protection::held(by),
        (true, false) => Protection::open(by, "processes of the same user can be signalled"),
        (false, true) => Protection::open(by, "other processes can be seen"),
        (false, false) => Protection::open(
            by,
            "other processes can be seen, and those of the same user signalled",
        ),
    }
}

fn watched(tried: Tried, more: &[Mechanism]) -> Protection {
    let by = [more, &[Mechanism::Watcher]].concat();
    if tried.has(found::COUNTED) {
        Protection::held(by)
    } else {
        Protection::open(more, "processes cannot be counted")
    }
}

/// The kernel's limit counts all tasks, so it is wider; it stops commands that are faster than the
/// watcher.
fn process_count(means: &Means, tried: Tried) -> Protection {
    let mut by = Vec::new();
    if means.own_pids {
        by.push(Mechanism::ProcessNamespace);
    }
    if means.apart == Apart::UserNamespaces && !is_root() {
        by.push(Mechanism::Rlimit);
    }
    watched(tried, &by)
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

fn file_size(tried: Tried) -> Protection {
    if tried.has(found::FILE_SIZE_HELD) {
        Protection::held([Mechanism::Rlimit])
    } else {
        Protection::open([], "there is no limit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_that_another_thread_holds_for_a_moment_counts_as_let_go() {
        let (watched, held) = pipe().unwrap();
        let other = std::thread::spawn(move || {
            // This is long enough for the pipe to be held at the first check.
            (0..10_000).for_each(|_| std::thread::yield_now());
            drop(held);
        });
        assert!(is_let_go(&watched, 60_000));
        other.join().unwrap();
    }

    #[test]
    fn pipe_that_is_held_on_counts_as_held() {
        let (watched, _held) = pipe().unwrap();
        assert!(!is_let_go(&watched, 1));
    }
}
