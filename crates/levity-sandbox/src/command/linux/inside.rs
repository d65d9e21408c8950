//! Setup steps of the watcher and the command that put all mechanisms into force before anything
//! else runs.
//!
//! This runs in a copy of a process with many threads, so nothing here allocates.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsmount, fsopen, mount, mount_change, mount_remount,
    move_mount, open_tree,
};
use rustix::process::{Resource, Rlimit, chdir, setrlimit, setsid};

use super::checks::{CoverState, mount_over};
use super::host;
use super::job::{Cover, Identity, Isolation, Job, Probe, Record, Step, found};
use super::watch;
use crate::command::launch::{self, Sys};

/// Sends a record to the host. If that fails, there is no one to report it to.
pub(super) fn send(job: &Job, record: Record) {
    let _ = rustix::io::write(&job.report, &record.encode());
}

/// Reports a failed step and ends the process; the host then returns an error, and the program
/// never runs.
fn fail(job: &Job, step: Step, error: Errno) -> ! {
    fail_at(job, step, error, 0)
}

fn fail_at(job: &Job, step: Step, error: Errno, at: usize) -> ! {
    send(job, Record::Failed(step, error.raw_os_error(), at as u32));
    launch::exit(125)
}

/// Unwraps the result of a step that must not fail.
fn require<T>(job: &Job, step: Step, result: Sys<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(job, step, error),
    }
}

/// Returns `bit` if the step succeeded. A probe skips a failed step.
fn try_step(job: &Job, step: Step, result: Sys<()>, bit: u32) -> u32 {
    match result {
        Ok(()) => bit,
        Err(_) if job.probe.is_some() => 0,
        Err(error) => fail(job, step, error),
    }
}

/// Runs the watcher process.
pub(super) fn watcher(job: &mut Job) -> ! {
    job.yields = !launch::raise_priority();
    launch::close_all_except(&job.keep);
    if job.mechanisms.isolation == Isolation::UserNamespaces {
        require(job, Step::Ids, map_ids(job));
    }
    // If memory runs out, this tree is killed first, before programs of the user. Its kernel memory
    // does not count towards the limit, so this holds at every level. This is optional.
    let _ = write_file(c"/proc/self/oom_score_adj", b"500");
    if job.mechanisms.is_isolated() {
        let _ = launch::die_with_parent();
    }
    let mut bits = 0;
    if job.mechanisms.is_isolated() {
        bits |= mounts(job);
        if bits & found::HIDDEN != 0 {
            let checks = job.checks.open();
            require(job, Step::Hide, checks);
            job.mount_changes = require(job, Step::Hide, monitor_mounts(job));
            // A file may have been replaced before the changes were monitored.
            let is_open = |at: &usize| job.checks.state(*at) != CoverState::InPlace;
            if let Some(at) = job.checks.all().find(is_open) {
                fail_at(job, Step::Hide, Errno::STALE, at);
            }
        }
        if job.mechanisms.own_network {
            require(job, Step::Loopback, launch::loopback_up());
        }
    } else {
        require(job, Step::Orphans, launch::adopt_orphans());
    }
    let _ = launch::hide_memory();
    let _ = setsid();
    let children = require(job, Step::Fork, launch::child_signals());
    let flags = libc::SIGCHLD;
    job.mechanisms.own_proc &= job.probe.is_none() || bits & found::OWN_PROC != 0;
    // The command closes it by executing a program, and this process closes it when it starts to
    // watch.
    let pipe = host::pipe().map_err(|error| os_error(&error));
    let (before, _held) = require(job, Step::Fork, pipe);
    let command = launch::spawn(
        flags,
        job,
        if job.probe.is_some() { probe } else { command },
    );
    let command = require(job, Step::Fork, command);
    if job.probe.is_some() {
        send(job, Record::Found(bits));
    }
    watch::watch(job, &children, &before, command)
}

fn os_error(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Maps one user and one group to the same numbers as outside.
fn map_ids(job: &Job) -> Sys<()> {
    // If the file does not exist, groups may be set, and the next steps decide.
    let _ = write_file(c"/proc/self/setgroups", b"deny");
    write_file(c"/proc/self/uid_map", &job.maps[0])?;
    write_file(c"/proc/self/gid_map", &job.maps[1])
}

fn write_file(path: &CStr, bytes: &[u8]) -> Sys<()> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes).map(drop)
}

/// Sets up the mount namespace and returns the bits of completed steps. The order matters:
/// everything is made read-only first, since the covers are mounted on top of that. The new `/proc`
/// stays writable until the last step has used it.
fn mounts(job: &mut Job) -> u32 {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    require(job, Step::Mounts, mount_change(c"/", private));
    let mut bits = 0;
    let is_bounded = job.mechanisms.own_pids && limit_pids(job).is_ok();
    if job.mechanisms.frozen {
        bits |= try_step(job, Step::Freeze, freeze(&job.writable), found::FROZEN);
    }
    if job.mechanisms.hidden {
        bits |= hide(job);
    }
    if job.mechanisms.own_proc {
        // If it is unavailable, the watcher finds hidden processes by their parents.
        if let Ok(proc) = open_full_proc() {
            job.census.read_from(proc);
        }
        bits |= try_step(job, Step::Proc, own_proc(), found::OWN_PROC);
    }
    if job.mechanisms.own_pids {
        // In many containers this can be set only in the namespace's own `/proc`.
        let bounded = if is_bounded { Ok(()) } else { limit_pids(job) };
        bits |= try_step(job, Step::Pids, bounded, found::OWN_PIDS);
    }
    if bits & found::OWN_PROC != 0 {
        require(
            job,
            Step::Proc,
            mount_remount(c"/proc", MountFlags::BIND | QUIET, c""),
        );
    }
    bits
}

/// Covers every path that was found.
fn hide(job: &Job) -> u32 {
    for (at, it) in job.covers.iter().enumerate() {
        match cover(job, it) {
            Ok(()) => {}
            Err(_) if job.probe.is_some() => return 0,
            Err(error) => fail_at(job, Step::Hide, error, at),
        }
    }
    found::HIDDEN
}

/// Sets the highest process number in this namespace, and so the number of processes. The kernel
/// enforces this even for root.
fn limit_pids(job: &Job) -> Sys<()> {
    write_file(c"/proc/sys/kernel/pid_max", &job.pid_max)
}

/// Makes everything read-only, except the writable places: they are cloned before, and mounted
/// back. So a read-only mount inside such a place stays read-only.
fn freeze(places: &[CString]) -> Sys<()> {
    let Some((place, others)) = places.split_first() else {
        return launch::make_read_only(c"/");
    };
    let whole = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let copy = open_tree(CWD, &**place, whole)?;
    freeze(others)?;
    move_mount(
        copy,
        c"",
        CWD,
        &**place,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

/// The flags for mounts that are only read.
const QUIET: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::RDONLY);

/// Mounts something over a path that was found, or fails: it must not be visible.
fn cover(job: &Job, cover: &Cover) -> Sys<()> {
    let target = open_found(cover)?;
    let stat = fstat(&target)?;
    mount_over(&target, &stat, cover.kind, &job.empty)
}

/// Opens the file that reports changes of the mounts. All earlier changes count as seen.
///
/// Another program can remove or replace a file under a mount, and the kernel then removes the
/// mount: its new content would be in reach of the command.
fn monitor_mounts(job: &Job) -> Sys<Option<OwnedFd>> {
    if job.covers.is_empty() {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, c"/proc/self/mountinfo", flags, Mode::empty()).map(Some)
}

/// Opens the target of a cover; returns `STALE` if it is not the one that was found.
fn open_found(cover: &Cover) -> Sys<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = match openat(CWD, &*cover.path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(Errno::STALE),
        opened => opened?,
    };
    if Identity::of(&fstat(&target)?) == cover.identity {
        Ok(target)
    } else {
        Err(Errno::STALE)
    }
}

/// Mounts a `/proc` for the own process namespace. It hides processes that cannot be inspected,
/// such as the watcher, which has the host's arguments. It is writable until the setup is complete.
fn own_proc() -> Sys<()> {
    mount(
        c"proc",
        c"/proc",
        c"proc",
        QUIET.difference(MountFlags::RDONLY),
        c"hidepid=4",
    )
}

/// Opens a `/proc` for the own process namespace that hides nothing, and is not in the file system.
/// The watcher uses it to count: not even root can inspect every process of a command.
fn open_full_proc() -> Sys<OwnedFd> {
    let fs = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let mount = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, quiet)?;
    openat(
        &mount,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Runs the command's process until it executes its program.
fn command(job: &mut Job) -> ! {
    // They would count towards the limit on its descriptors.
    job.checks.close();
    require(job, Step::Streams, streams(job));
    require(job, Step::Limits, limits(job));
    require(job, Step::Directory, enter(job));
    restrict(job);
    let mut worst = Errno::NOENT;
    for program in &job.programs {
        match launch::exec(program, &job.argv, &job.envp) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS | Errno::PERM => worst = Errno::ACCESS,
            error => fail(job, Step::Exec, error),
        }
    }
    fail(job, Step::Exec, worst)
}

/// Connects the standard streams, in a new session without a terminal.
fn streams(job: &Job) -> Sys<()> {
    setsid()?;
    launch::reset_signals();
    launch::duplicate(job.stdin.as_fd(), 0)?;
    launch::duplicate(job.stdout.as_fd(), 1)?;
    launch::duplicate(job.stderr.as_fd(), 2)
}

/// The nice value of a command, so that its watcher takes precedence.
const NICE: i32 = 10;

/// Sets the kernel's limits. Most apply to each process alone, and hold between two counts of the
/// watcher, which adds up all processes.
fn limits(job: &Job) -> Sys<()> {
    let seconds = job.cpu_ms.div_ceil(1000);
    limit(Resource::Cpu, seconds)?;
    // Address space that is reserved and not used is not memory, and many programs reserve plenty
    // of it.
    limit(Resource::Data, job.memory)?;
    limit(Resource::Fsize, job.file_size)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, 4096)?;
    limit(Resource::Memlock, 8 << 20)?;
    limit(Resource::Msgqueue, 0)?;
    // A process that may raise its own priority would take precedence over the watcher.
    limit(Resource::Nice, 0)?;
    limit(Resource::Rtprio, 0)?;
    if job.yields && rustix::process::getpriority_process(None)? < NICE {
        rustix::process::setpriority_process(None, NICE)?;
    }
    limit(Resource::Nproc, job.tasks)
}

/// Sets a limit, unless it is already lower.
fn limit(resource: Resource, max: u64) -> Sys<()> {
    let now = rustix::process::getrlimit(resource);
    let least = |now: Option<u64>| Some(now.map_or(max, |now| now.min(max)));
    setrlimit(
        resource,
        Rlimit {
            current: least(now.current),
            maximum: least(now.maximum),
        },
    )
}

/// Enters the directory, and checks that it is in the workspace.
fn enter(job: &Job) -> Sys<()> {
    chdir(&*job.dir)?;
    if launch::is_within(&job.root) {
        Ok(())
    } else {
        Err(Errno::XDEV)
    }
}

/// Drops the rights that the command does not need, and returns the bits of the completed steps.
fn restrict(job: &mut Job) -> u32 {
    let mut bits = 0;
    require(
        job,
        Step::Privileges,
        launch::keep_capabilities(job.capabilities),
    );
    require(job, Step::Privileges, launch::no_new_privileges());
    if job.mechanisms.landlock > 0 {
        bits |= try_step(job, Step::Landlock, landlock(job), found::LANDLOCK);
    }
    if job.mechanisms.seccomp {
        if !job.mechanisms.is_isolated() {
            super::filter::name_watcher(&mut job.filters);
        }
        let filtered = job
            .filters
            .iter()
            .try_for_each(|filter| launch::filter_calls(filter));
        bits |= try_step(job, Step::Seccomp, filtered, found::SECCOMP);
    }
    bits
}

/// Adds the command's own `/proc` to the ruleset, which did not exist when the ruleset was created,
/// and enters it.
fn landlock(job: &Job) -> Sys<()> {
    let ruleset = job.ruleset.as_ref().ok_or(Errno::NOSYS)?;
    if job.mechanisms.own_proc {
        let proc = openat(CWD, c"/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        launch::landlock_allow(ruleset.as_fd(), proc.as_fd(), job.proc_access)?;
    }
    launch::landlock_enter(ruleset.as_fd())
}

/// Runs instead of a command, and tries operations that must fail.
fn probe(job: &mut Job) -> ! {
    require(job, Step::Streams, streams(job));
    require(job, Step::Limits, limits(job));
    require(job, Step::Directory, enter(job));
    let mut bits = restrict(job);
    if let Some(probe) = &job.probe {
        bits |= attempts(job, probe);
        bits |= detach();
    }
    send(job, Record::Found(bits));
    launch::exit(0)
}

/// Starts a process that acts like a daemon, and holds a pipe that the host monitors.
fn detach() -> u32 {
    let parent = launch::spawn(libc::SIGCHLD, &mut (), |()| {
        launch::try_leave_session();
        let daemon = launch::spawn(libc::SIGCHLD, &mut (), |()| launch::pause());
        launch::exit(i32::from(daemon.is_err()))
    });
    let ended = parent.and_then(|pid| launch::wait(pid, true));
    match ended {
        Ok(Some((_, 0))) => found::DETACHED,
        _ => 0,
    }
}

/// Tries what a command must not be able to do, and returns a bit for each protection that held.
fn attempts(job: &Job, probe: &Probe) -> u32 {
    let opens =
        |path: &CStr, flags| openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).is_ok();
    // A file without a name leaves nothing behind if it can be created.
    let makes = |path: &CStr| {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).is_ok()
    };
    let signals_held = match job.mechanisms.isolation {
        Isolation::Nothing => launch::kill(probe.pid, 0).is_err(),
        // A process outside the namespace has no number in it.
        _ => true,
    };
    let results = [
        (!opens(&probe.canary, OFlags::RDONLY), found::READS_HELD),
        (!opens(&probe.canary, OFlags::WRONLY), found::WRITES_HELD),
        (
            probe.port > 0 && !launch::connects(probe.port),
            found::NETWORK_HELD,
        ),
        (!launch::reaches_socket(&probe.socket), found::SOCKETS_HELD),
        (signals_held, found::SIGNALS_HELD),
        (!makes(c".") && !makes(&probe.folder), found::CHANGES_HELD),
        (
            !launch::can_map(job.memory.saturating_add(1 << 20)),
            found::MEMORY_HELD,
        ),
        (
            has_limit(Resource::Fsize, job.file_size),
            found::FILE_SIZE_HELD,
        ),
        (
            opens(c".", OFlags::RDONLY | OFlags::DIRECTORY),
            found::WORKS,
        ),
    ];
    results
        .into_iter()
        .filter(|(holds, _)| *holds)
        .fold(0, |bits, (_, bit)| bits | bit)
}

fn has_limit(resource: Resource, max: u64) -> bool {
    rustix::process::getrlimit(resource)
        .maximum
        .is_some_and(|limit| limit <= max)
}
