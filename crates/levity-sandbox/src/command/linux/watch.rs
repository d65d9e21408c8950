//! The watcher of a command: it waits until the command ends, the host closes its pipe, or a limit
//! is exceeded. Then it kills all remaining processes.
//!
//! This runs in a copy of a process with many threads, so nothing here allocates.
//!
//! The clock decides about time, `/proc` about memory, CPU time and processes. A count costs time,
//! so it runs every 25 milliseconds and less often if it is slow. A sudden increase of the system's
//! tasks triggers one at once: a fork bomb needs only milliseconds.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::census::Totals;
use super::checks::CoverState;
use super::inside::send;
use super::job::{Job, Record, found};
use crate::command::launch;

/// The maximum number of threads per allowed process of a command.
pub(super) const THREADS: u64 = 16;

/// The interval between two process counts, in milliseconds.
const TICK: u64 = 25;
/// The interval between two checks for a sudden increase of tasks, in milliseconds.
const CROWD_CHECK: u64 = 4;
/// The minimum number of new tasks that triggers a count.
const MIN_ROOM: u32 = 8;
/// The time for a command to end after it was asked to, in milliseconds.
const GRACE: u64 = 500;
/// The time for which the watcher tries to kill processes that do not die, in milliseconds.
const KILL_TIME: u64 = 10_000;

/// The maximum number of consecutive failures to count processes, for example because of too many
/// open files.
const FAILURES: u32 = 8;
/// The number of searches for a probe, of which at least one process is alive at any time.
const PROBE_ATTEMPTS: u32 = 100;

/// The number of attempts to restore a mount, one in a millisecond.
const RESTORE_ATTEMPTS: u32 = 250;

/// The maximum number of replaced files that are reported.
const MAX_REPORTED: u32 = 64;

/// The limits that the watcher enforces, as it reports them to the host.
pub(super) mod limit {
    pub(in super::super) const NONE: u8 = 0;
    pub(in super::super) const TIME: u8 = 1;
    pub(in super::super) const CPU: u8 = 2;
    pub(in super::super) const MEMORY: u8 = 3;
    pub(in super::super) const PROCESSES: u8 = 4;
    pub(in super::super) const UNCOUNTED: u8 = 5;
    /// A path that a command must not create lost its mount.
    pub(in super::super) const EXPOSED: u8 = 6;
}

/// The state of the watcher. It lives as long as the command, and a little longer to kill what is
/// left.
struct Watch<'a> {
    job: &'a mut Job,
    /// The command, and its exit status.
    command: i32,
    status: Option<i32>,
    /// The number of this process in `/proc`.
    own: Option<i32>,
    isolation: bool,
    /// The number of tasks of the system at the last count, and the increase that triggers a new
    /// count.
    tasks: u16,
    room: u32,
    /// The minimum of the system's shared memory since the command started.
    shared: u64,
    /// The number of consecutive counts that failed or were incomplete.
    failures: u32,
    /// A pipe that the command holds until it executes its program.
    before: &'a OwnedFd,
    /// The number of replaced files that were reported.
    reported: u32,
}

pub(super) fn watch(job: &mut Job, children: &OwnedFd, before: &OwnedFd, command: i32) -> ! {
    let proc = job.census.open().unwrap_or(-1);
    // The pipes that the command writes to must be open in it alone.
    let always = [&job.control, &job.report, children, before].map(AsRawFd::as_raw_fd);
    let mounts = job.mount_changes.as_ref().map(AsRawFd::as_raw_fd);
    // The list has room for all of them.
    job.keep.clear();
    job.keep.extend(always);
    job.keep.extend(mounts);
    job.keep.extend((proc >= 0).then_some(proc));
    job.keep.extend(job.checks.descriptors());
    job.keep.sort_unstable();
    launch::close_all_except(&job.keep);
    let isolation = job.mechanisms.is_isolated();
    let (own, tasks, room) = (job.census.own_pid().ok(), launch::tasks(), job.processes);
    let shared = launch::shared_memory();
    let mut watch = Watch {
        job,
        command,
        status: None,
        own,
        isolation,
        tasks,
        room,
        shared,
        failures: 0,
        before,
        reported: 0,
    };
    if watch.job.probe.is_some() && watch.finds_probe() {
        send(watch.job, Record::Found(found::COUNTED));
    }
    let mut limit = watch.until_end(children);
    let remaining = watch.kill_all();
    if limit == limit::NONE && watch.is_exposed(watch.job.checks.all()) {
        limit = limit::EXPOSED;
    }
    let status = watch.status.unwrap_or(libc::SIGKILL);
    send(
        watch.job,
        Record::Ended {
            status,
            limit,
            remaining,
        },
    );
    launch::exit(0)
}

impl Watch<'_> {
    /// Waits for the end of the command, or for a reason to end it.
    fn until_end(&mut self, children: &OwnedFd) -> u8 {
        let start = launch::millis();
        let end = start.saturating_add(self.job.time_ms);
        let mut kill_at = None;
        let mut next = start + TICK;
        loop {
            let now = launch::millis();
            if kill_at.is_none() && now >= end {
                self.terminate_all();
                kill_at = Some(now.saturating_add(GRACE));
            }
            if kill_at.is_some_and(|at| now >= at) {
                return limit::TIME;
            }
            let exceeded_limit = if self.is_crowded() {
                self.exceeded_limit_while_stopped()
            } else {
                limit::NONE
            };
            if exceeded_limit != limit::NONE {
                return exceeded_limit;
            }
            if now >= next {
                let exceeded_limit = self.exceeded_limit(|_| {});
                if exceeded_limit != limit::NONE {
                    return exceeded_limit;
                }
                let some = self.job.checks.slice();
                if self.is_exposed(some) {
                    return limit::EXPOSED;
                }
                // A count takes long if there are many processes; it may take only a small part of
                // the time.
                let took = launch::millis().saturating_sub(now);
                next = now + TICK.max(took * 20);
            }
            let wake = kill_at
                .unwrap_or(end)
                .saturating_sub(launch::millis())
                .min(CROWD_CHECK);
            let ready = wait(&self.job.control, children, &self.job.mount_changes, wake);
            if ready.mounts_changed && self.is_exposed(self.job.checks.all()) {
                return limit::EXPOSED;
            }
            drain(children);
            self.reap();
            if self.status.is_some() || ready.is_dropped {
                return if kill_at.is_some() {
                    limit::TIME
                } else {
                    limit::NONE
                };
            }
        }
    }

    /// Returns `true` if the system has so many new tasks that the command may have too many.
    fn is_crowded(&self) -> bool {
        let more = launch::tasks().wrapping_sub(self.tasks);
        // A decrease looks like a very large increase.
        more < u16::MAX / 2 && u32::from(more) > self.room
    }

    /// Checks mounts, and covers files again that another program put in place of hidden or
    /// protected ones. Returns `true` if that is impossible, or if a path is free that must not be.
    ///
    /// The command is stopped meanwhile.
    fn is_exposed(&mut self, range: Range<usize>) -> bool {
        let is_open = |at: &usize| self.job.checks.state(*at) != CoverState::InPlace;
        let Some(first) = range.clone().find(is_open) else {
            return false;
        };
        stop(-1);
        let is_exposed = (first..range.end).any(|at| !self.restore(at));
        if !is_exposed {
            resume(-1);
        }
        is_exposed
    }

    /// Restores the mount over one path if it is missing; returns `false` if the command must end.
    ///
    /// While another program renames a file over the old one, nothing can be mounted on the old one
    /// any more. Therefore the watcher tries again for a moment. It stops the command each time,
    /// because the kernel may continue a process that asked for a SIGCONT before.
    fn restore(&mut self, at: usize) -> bool {
        let Some(kind) = self.job.covers.get(at).map(|cover| cover.kind) else {
            return true;
        };
        let mut is_reported = false;
        for _ in 0..RESTORE_ATTEMPTS {
            match self.job.checks.state(at) {
                CoverState::InPlace => return true,
                // The user removed a denied file: nothing is left to hide.
                CoverState::Missing if !kind.must_exist() => return true,
                CoverState::Missing => break,
                CoverState::Replaced if kind.must_stay() => break,
                CoverState::Replaced => {
                    if !is_reported {
                        is_reported = true;
                        self.report(at);
                    }
                    let restored = self.job.checks.cover_again(at, kind, &self.job.empty);
                    if restored.is_ok() {
                        continue;
                    }
                }
            }
            let _ = poll(&mut [], Some(&time(1)));
            stop(-1);
        }
        send(self.job, Record::Replaced(at as u32));
        false
    }

    /// Reports a replaced file, unless there are too many of them.
    fn report(&mut self, at: usize) {
        if self.reported < MAX_REPORTED {
            self.reported += 1;
            send(self.job, Record::Replaced(at as u32));
        }
    }

    /// Returns the limit that is exceeded, computed while all processes are stopped: a fork bomb is
    /// faster than any count.
    fn exceeded_limit_while_stopped(&mut self) -> u8 {
        let exceeded_limit = if self.isolation {
            stop(-1);
            self.exceeded_limit(|_| {})
        } else {
            // Most fork bombs stay in the command's group, which the kernel stops at once.
            stop(-self.command);
            self.exceeded_limit(stop)
        };
        if exceeded_limit != limit::NONE {
            return exceeded_limit;
        }
        if self.isolation {
            resume(-1);
        } else {
            self.job.census.alive().for_each(resume);
            resume(-self.command);
        }
        limit::NONE
    }

    /// Returns the limit that is exceeded.
    fn exceeded_limit(&mut self, on_found: fn(i32)) -> u8 {
        let tasks = launch::tasks();
        let totals = self.census(on_found);
        self.failures = match &totals {
            None => self.failures + 1,
            // A process that executes another program cannot be inspected for a moment, but hardly
            // at two counts in a row.
            Some(totals) if totals.unseen > 0 && self.is_program() => self.failures + FAILURES / 2,
            Some(_) => 0,
        };
        if self.job.mechanisms.counted && self.failures >= FAILURES {
            return limit::UNCOUNTED;
        }
        let Some(totals) = totals else {
            return limit::NONE;
        };
        // A program with many threads must not be stopped for each of them, nor at each count.
        self.tasks = tasks;
        let count = totals.count + totals.unseen;
        self.room = self
            .job
            .processes
            .saturating_sub(count)
            .max(self.job.processes / 4)
            .max(MIN_ROOM);
        let job = &self.job;
        if count > job.processes || u64::from(totals.threads) > u64::from(job.processes) * THREADS {
            return limit::PROCESSES;
        }
        if totals.memory > job.memory && self.is_program() && job.census.memory() > job.memory {
            return limit::MEMORY;
        }
        // A process can release pages of shared memory, and most of a mapping, and the pages
        // remain. They are counted for the system alone, so this checks whether the command has any
        // share in them.
        let shared = launch::shared_memory();
        self.shared = self.shared.min(shared);
        if shared - self.shared > job.memory && self.is_program() && job.census.share_memory() {
            return limit::MEMORY;
        }
        if totals.cpu_ms + launch::children_cpu() > job.cpu_ms {
            return limit::CPU;
        }
        limit::NONE
    }

    fn census(&mut self, on_found: fn(i32)) -> Option<Totals> {
        self.job.census.take(self.own?, on_found).ok()
    }

    /// Returns `true` if the processes of a probe are found. Like those of a command, they may not
    /// be inspectable.
    fn finds_probe(&mut self) -> bool {
        (0..PROBE_ATTEMPTS).any(|_| {
            self.census(|_| {})
                .is_some_and(|totals| totals.count + totals.unseen > 0)
        })
    }

    /// Returns `true` if the command executes its program. Before that, it has a copy of the host's
    /// memory, which does not count, and no process may inspect it.
    fn is_program(&self) -> bool {
        let mut polled = [PollFd::new(self.before, PollFlags::IN)];
        poll(&mut polled, Some(&time(0))).is_ok_and(|ready| ready > 0)
    }

    /// Waits for children that have ended; returns `true` if any remain.
    fn reap(&mut self) -> bool {
        loop {
            match launch::wait(-1, false) {
                Ok(Some((pid, status))) if pid == self.command => self.status = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Asks all processes to end, before they are killed.
    fn terminate_all(&mut self) {
        if self.isolation {
            terminate(-1);
            return;
        }
        let _ = self.census(terminate);
    }

    /// Kills all remaining processes, and returns the number of survivors.
    fn kill_all(&mut self) -> u32 {
        let end = launch::millis().saturating_add(KILL_TIME);
        while self.reap() {
            if self.isolation {
                // The kernel sends it to the whole namespace at once, and no process can start
                // another meanwhile.
                kill(-1);
            } else {
                self.kill_below();
            }
            if !self.reap() {
                break;
            }
            if launch::millis() >= end {
                // At least one is known from `reap`, though it may not be visible.
                return self
                    .census(|_| {})
                    .map_or(u32::MAX, |totals| totals.count.max(1));
            }
            let _ = poll(&mut [], Some(&time(1)));
        }
        0
    }

    /// Kills the group, including invisible processes, which the kernel does at once. Then stops
    /// every other descendant as it is found, and kills them: a stopped process starts no other.
    fn kill_below(&mut self) {
        kill(-self.command);
        if self.own.is_none() {
            return;
        }
        let _ = self.census(stop);
        self.job.census.alive().for_each(kill);
    }
}

// A process that cannot be signalled has ended. In a namespace, the numbers in `/proc` may differ
// from those of the namespace. So there all are signalled at once, by -1, and none by its number.

fn stop(pid: i32) {
    let _ = launch::kill(pid, libc::SIGSTOP);
}

fn resume(pid: i32) {
    let _ = launch::kill(pid, libc::SIGCONT);
}

fn terminate(pid: i32) {
    let _ = launch::kill(pid, libc::SIGTERM);
}

fn kill(pid: i32) {
    let _ = launch::kill(pid, libc::SIGKILL);
}

pub(super) fn time(millis: u64) -> Timespec {
    Timespec {
        tv_sec: (millis / 1000) as _,
        tv_nsec: (millis % 1000 * 1_000_000) as _,
    }
}

/// The events for which the watcher waits.
struct Ready {
    /// The host closed its end of the pipe.
    is_dropped: bool,
    mounts_changed: bool,
}

/// Waits until the host closes its pipe, a child ends, or the mounts change.
fn wait(control: &OwnedFd, children: &OwnedFd, mounts: &Option<OwnedFd>, millis: u64) -> Ready {
    let mut polled = [
        PollFd::new(control, PollFlags::IN),
        PollFd::new(children, PollFlags::IN),
        PollFd::new(mounts.as_ref().unwrap_or(children), PollFlags::PRI),
    ];
    let result = poll(&mut polled, Some(&time(millis)));
    let [host, _, mount_list] = polled.map(|it| it.revents());
    match result {
        Ok(_) => Ready {
            is_dropped: !host.is_empty(),
            mounts_changed: mounts.is_some() && !mount_list.is_empty(),
        },
        Err(error) => Ready {
            is_dropped: error != Errno::INTR,
            mounts_changed: false,
        },
    }
}

/// Discards the pending signals.
fn drain(children: &OwnedFd) {
    let mut buffer = [0; 1024];
    while rustix::io::read(children, &mut buffer).is_ok_and(|length| length > 0) {}
}
