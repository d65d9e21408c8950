//! How much memory the process holds while programs run in it.
//!
//! The interpreter asks a counter at every step that may take memory. Nobody can count what one
//! program takes without an allocator of its own, so the counter is fed with what the whole process
//! holds, looked up every few milliseconds. Alone in a process, a program is measured exactly;
//! beside others, all that the process has grown since the first of them began counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use monty_types::{BASELINE_MEMORY, LIVE_MEMORY};

use crate::limits::ProgramLimits;

/// How often the memory is looked up.
const EVERY: Duration = Duration::from_millis(2);
/// How long a program may go on after its time, where it can be stopped by force.
const GRACE: Duration = Duration::from_secs(2);

/// How many programs run in the process.
static RUNNING: Mutex<usize> = Mutex::new(0);
/// Whether the process may be ended to stop a program.
static EXPENDABLE: AtomicBool = AtomicBool::new(false);

/// Lets the process be ended to stop a program that does not stop by itself.
pub(crate) fn make_expendable() {
    EXPENDABLE.store(true, Ordering::Relaxed);
}

/// The status that a process ends with when a program did not stop in time.
pub(crate) const OVERTIME: i32 = 75;

/// Runs a program while its memory is watched.
pub(crate) fn watched<T>(limits: ProgramLimits, program: impl FnOnce() -> T) -> T {
    let _running = Running::begin();
    std::thread::scope(|scope| {
        let (done, wait) = channel();
        let watcher = std::thread::Builder::new()
            .name("python watch".to_owned())
            .stack_size(64 << 10);
        // Without a watcher the program still has its time limit.
        let _ = watcher.spawn_scoped(scope, move || watch(limits, &wait));
        let result = program();
        drop(done);
        result
    })
}

fn watch(limits: ProgramLimits, done: &Receiver<()>) {
    let (began, most) = (super::now(), limits.time.saturating_add(GRACE));
    let parent = parent();
    while done.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        sample();
        // Nobody is there for the result of a process whose parent is gone.
        let in_vain = super::now().duration_since(began) > most || self::parent() != parent;
        if in_vain && EXPENDABLE.load(Ordering::Relaxed) {
            std::process::exit(OVERTIME);
        }
    }
}

fn sample() {
    if let Some(bytes) = resident() {
        LIVE_MEMORY.store(bytes, Ordering::Relaxed);
    }
}

/// How many bytes the process holds, where the system says.
pub(crate) fn resident() -> Option<usize> {
    statm(1)
}

/// How many bytes of memory the process may write to, where the system says.
#[cfg(target_os = "linux")]
pub(crate) fn data() -> Option<usize> {
    statm(5)
}

fn statm(field: usize) -> Option<usize> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_ascii_whitespace().nth(field)?.parse().ok()?;
    Some(pages.saturating_mul(page_size()))
}

#[cfg(unix)]
fn parent() -> Option<rustix::process::Pid> {
    rustix::process::getppid()
}

#[cfg(not(unix))]
fn parent() {}

#[cfg(unix)]
fn page_size() -> usize {
    rustix::param::page_size()
}

#[cfg(not(unix))]
fn page_size() -> usize {
    4096
}

struct Running;

impl Running {
    fn begin() -> Self {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if *running == 0 {
            sample();
            BASELINE_MEMORY.store(LIVE_MEMORY.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        *running += 1;
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}
