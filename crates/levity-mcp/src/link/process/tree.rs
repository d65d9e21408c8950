//! A process with its descendants, and their cleanup.
//!
//! On Unix, the process is the leader of a group of its own, so one signal reaches all descendants
//! that stayed in it. On Linux, those that left it are found by a mark in their environment.
//! Elsewhere only the process itself is killed. Cleanup repeats its scan, because a descendant may
//! start another process while it is being killed.

use std::io;
use std::process::ExitStatus;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::process::{Child, Command};

/// The maximum number of scans for remaining processes, with growing delays; two seconds in total.
/// A killed process has ended by the first or second scan, unless it hangs in the kernel.
const MAX_SCANS: u32 = 45;

/// A process with all its descendants. Dropping it kills them.
pub(super) struct ProcessTree {
    /// The root process of the tree.
    pub(super) child: Option<Child>,
    group: ProcessGroup,
    is_cleaned_up: bool,
}

/// Starts a program so that all its descendants can be found.
pub(super) fn start(mut command: Command) -> io::Result<(Child, ProcessTree)> {
    let mut group = ProcessGroup::prepare(&mut command);
    let child = command.spawn()?;
    group.attach(&child);
    Ok((
        child,
        ProcessTree {
            child: None,
            group,
            is_cleaned_up: false,
        },
    ))
}

impl ProcessTree {
    /// Waits for the exit of the process itself.
    pub(super) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        match &mut self.child {
            Some(child) => std::pin::pin!(child.wait()).poll(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotFound.into())),
        }
    }

    /// Asks the process and its group to exit.
    pub(super) fn terminate(&mut self) {
        self.group.terminate();
    }

    /// Kills the process and its group.
    pub(super) fn kill(&mut self) {
        self.group.kill();
        // This does nothing after the process was reaped.
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
    }

    /// Kills all remaining processes and waits for their end. It blocks, usually for some
    /// milliseconds and never for much more than two seconds.
    pub(super) fn clean_up(mut self) {
        self.is_cleaned_up = true;
        for scan in 0..MAX_SCANS {
            let remaining = self.group.kill_remaining();
            if self.is_reaped() && !remaining {
                return;
            }
            std::thread::sleep(
                Duration::from_millis(1 << scan.min(6)).min(Duration::from_millis(50)),
            );
        }
    }

    /// Returns `true` after the exit status of the process was collected.
    fn is_reaped(&mut self) -> bool {
        match &mut self.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        }
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if self.is_cleaned_up {
            return;
        }
        self.kill();
        let rest = Self {
            child: self.child.take(),
            group: std::mem::take(&mut self.group),
            is_cleaned_up: true,
        };
        // The runtime may be shutting down, so this cannot be one of its tasks. If the thread does
        // not start, the runtime reaps the process; if the host ends first, the watchdog continues.
        let thread = std::thread::Builder::new().name("levity-mcp-clear".into());
        let _ = thread.spawn(move || rest.clean_up());
    }
}

#[cfg(not(unix))]
use self::portable::ProcessGroup;
#[cfg(unix)]
use self::unix::ProcessGroup;

#[cfg(unix)]
mod unix {
    use rustix::process::{Pid, Signal, kill_process_group};
    use tokio::process::{Child, Command};

    use super::super::watchdog::{self, Guard};

    /// A process group, and the processes that left it.
    #[derive(Default)]
    pub(super) struct ProcessGroup {
        group: Option<Pid>,
        /// The mark in the environment of all these processes.
        mark: String,
        /// The processes that the last scan killed.
        #[cfg(target_os = "linux")]
        killed: Vec<super::super::scan::Found>,
        /// While this exists, the watchdog kills the processes when the host ends.
        _guard: Option<Guard>,
    }

    impl ProcessGroup {
        pub(super) fn prepare(command: &mut Command) -> Self {
            let mark = watchdog::mark();
            command.env(watchdog::VARIABLE, &mark).process_group(0);
            Self {
                group: None,
                mark,
                #[cfg(target_os = "linux")]
                killed: Vec::new(),
                _guard: Some(Guard::new()),
            }
        }

        pub(super) fn attach(&mut self, child: &Child) {
            self.group = child
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .and_then(Pid::from_raw);
            if let (Some(guard), Some(group)) = (&mut self._guard, self.group) {
                guard.protect(group.as_raw_nonzero().get());
            }
        }

        pub(super) fn terminate(&self) {
            self.signal(Signal::TERM);
        }

        pub(super) fn kill(&self) {
            self.signal(Signal::KILL);
        }

        fn signal(&self, signal: Signal) {
            if let Some(group) = self.group {
                let _ = kill_process_group(group, signal);
            }
        }

        /// Kills remaining processes. Returns `true` if there were any.
        #[cfg(target_os = "linux")]
        pub(super) fn kill_remaining(&mut self) -> bool {
            let remaining = super::super::scan::find_family(self.group, &self.mark, &self.killed);
            for process in &remaining {
                let _ = rustix::process::kill_process(process.id, Signal::KILL);
            }
            self.killed = remaining;
            !self.killed.is_empty()
        }

        #[cfg(not(target_os = "linux"))]
        pub(super) fn kill_remaining(&mut self) -> bool {
            let _ = &self.mark;
            let remaining = self
                .group
                .is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok());
            if !remaining {
                // The group id may be reused from now on.
                self.group = None;
            }
            remaining
        }
    }
}

#[cfg(not(unix))]
mod portable {
    use tokio::process::{Child, Command};

    /// A fallback without knowledge of descendants.
    #[derive(Default)]
    pub(super) struct ProcessGroup;

    impl ProcessGroup {
        pub(super) fn prepare(_: &mut Command) -> Self {
            Self
        }

        pub(super) fn attach(&mut self, _: &Child) {}

        pub(super) fn terminate(&self) {}

        pub(super) fn kill(&self) {}

        pub(super) fn kill_remaining(&mut self) -> bool {
            false
        }
    }
}
