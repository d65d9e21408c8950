//! What is left of a process once nobody wants it any more, and how that is cleared away.

use std::io;
use std::process::ExitStatus;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::process::{Child, Command};

/// How often what is left is looked for, with growing pauses; two seconds in all. What was killed
/// is gone at the first or second look, unless it hangs in the kernel.
const LOOKS: u32 = 45;

/// A process with all that it started. Dropping it kills them.
pub(super) struct Remains {
    /// The process itself.
    pub(super) child: Option<Child>,
    family: Family,
    cleared: bool,
}

/// Starts a program so that all that it starts itself can be found.
pub(super) fn start(mut command: Command) -> io::Result<(Child, Remains)> {
    let mut family = Family::prepare(&mut command);
    let child = command.spawn()?;
    family.begin(&child);
    Ok((
        child,
        Remains {
            child: None,
            family,
            cleared: false,
        },
    ))
}

impl Remains {
    /// Waits for the process itself.
    pub(super) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        match &mut self.child {
            Some(child) => std::pin::pin!(child.wait()).poll(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotFound.into())),
        }
    }

    /// Asks the process and its group to end.
    pub(super) fn terminate(&mut self) {
        self.family.terminate();
    }

    /// Kills the process and its group.
    pub(super) fn kill(&mut self) {
        self.family.kill();
        // Once it is reaped, this does nothing.
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
    }

    /// Kills all that is left and waits until it is gone. It blocks, for some milliseconds as a
    /// rule and never for much more than two seconds.
    pub(super) fn clear(mut self) {
        self.cleared = true;
        for look in 0..LOOKS {
            let left = self.family.kill_left();
            if self.is_reaped() && !left {
                return;
            }
            std::thread::sleep(
                Duration::from_millis(1 << look.min(6)).min(Duration::from_millis(50)),
            );
        }
    }

    fn is_reaped(&mut self) -> bool {
        match &mut self.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        }
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        if self.cleared {
            return;
        }
        self.kill();
        let rest = Self {
            child: self.child.take(),
            family: std::mem::take(&mut self.family),
            cleared: true,
        };
        // The runtime may be ending, or gone, so this cannot be one of its tasks. Should the thread
        // not start, the runtime reaps the process; should the host end before it is done, the
        // watcher goes on.
        let clear = std::thread::Builder::new().name("levity-mcp-clear".into());
        let _ = clear.spawn(move || rest.clear());
    }
}

#[cfg(not(unix))]
use self::portable::Family;
#[cfg(unix)]
use self::unix::Family;

#[cfg(unix)]
mod unix {
    use rustix::process::{Pid, Signal, kill_process_group};
    use tokio::process::{Child, Command};

    use super::super::watch::{self, Guard};

    /// A process group, and those that left it.
    #[derive(Default)]
    pub(super) struct Family {
        group: Option<Pid>,
        /// What the environment of all of them has in it.
        mark: String,
        /// As long as it is there, the watcher kills them when the host ends.
        _guard: Option<Guard>,
    }

    impl Family {
        pub(super) fn prepare(command: &mut Command) -> Self {
            let mark = watch::mark();
            command.env(watch::VARIABLE, &mark).process_group(0);
            Self {
                group: None,
                mark,
                _guard: Some(Guard::new()),
            }
        }

        pub(super) fn begin(&mut self, child: &Child) {
            self.group = child
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .and_then(Pid::from_raw);
            if let (Some(guard), Some(group)) = (&mut self._guard, self.group) {
                guard.watch(group.as_raw_nonzero().get());
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

        /// Kills who is left; says whether there was anybody.
        #[cfg(target_os = "linux")]
        pub(super) fn kill_left(&mut self) -> bool {
            let left = super::super::scan::family(self.group, &self.mark);
            for id in &left {
                let _ = rustix::process::kill_process(*id, Signal::KILL);
            }
            !left.is_empty()
        }

        #[cfg(not(target_os = "linux"))]
        pub(super) fn kill_left(&mut self) -> bool {
            let _ = &self.mark;
            let left = self
                .group
                .is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok());
            if !left {
                // The number may be another's from now on.
                self.group = None;
            }
            left
        }
    }
}

#[cfg(not(unix))]
mod portable {
    use tokio::process::{Child, Command};

    /// Nothing is known of what a process started.
    #[derive(Default)]
    pub(super) struct Family;

    impl Family {
        pub(super) fn prepare(_: &mut Command) -> Self {
            Self
        }

        pub(super) fn begin(&mut self, _: &Child) {}

        pub(super) fn terminate(&self) {}

        pub(super) fn kill(&self) {}

        pub(super) fn kill_left(&mut self) -> bool {
            false
        }
    }
}
