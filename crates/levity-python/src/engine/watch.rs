//! Monitoring of the process's memory while programs run.
//!
//! The interpreter checks a counter at every step that may allocate. The memory of one program
//! cannot be measured without a separate allocator. The counter therefore holds the memory of the
//! whole process, sampled every few milliseconds. Alone in a process, a program is measured
//! exactly. Next to others, all growth since the first of them started counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use monty_types::{BASELINE_MEMORY, LIVE_MEMORY};

use crate::limits::ProgramLimits;

/// The interval of the memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(2);
/// The time that a program may continue after its limit before its process is ended.
const GRACE: Duration = Duration::from_secs(2);

/// The number of programs that run in the process.
static RUNNING: Mutex<usize> = Mutex::new(0);
/// Set if the process may exit to stop a program.
static MAY_EXIT: AtomicBool = AtomicBool::new(false);

/// Allows the process to exit to stop a program that does not stop on its own.
pub(crate) fn allow_exit() {
    MAY_EXIT.store(true, Ordering::Relaxed);
}

/// The exit status of a process whose program did not stop in time.
pub(crate) const OVERTIME: i32 = 75;

/// Runs a program while its memory is monitored.
pub(crate) fn watched<T>(limits: ProgramLimits, program: impl FnOnce() -> T) -> T {
    let _running = Running::begin();
    std::thread::scope(|scope| {
        let (done, wait) = channel();
        let watcher = std::thread::Builder::new()
            .name("python watch".to_owned())
            .stack_size(64 << 10);
        // Without a watcher, the program still has its time limit.
        let _ = watcher.spawn_scoped(scope, move || watch(limits, &wait));
        let result = program();
        drop(done);
        result
    })
}

/// Samples the memory every 2 milliseconds until the program ends. In a worker, it also ends the
/// process if the program exceeds its time by 2 seconds, or if the parent has exited.
fn watch(limits: ProgramLimits, done: &Receiver<()>) {
    let (began, max) = (super::now(), limits.time.saturating_add(GRACE));
    let parent = parent();
    while done.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        sample();
        // After the parent process has exited, the result is no longer needed.
        let must_exit = super::now().duration_since(began) > max || self::parent() != parent;
        if must_exit && MAY_EXIT.load(Ordering::Relaxed) {
            std::process::exit(OVERTIME);
        }
    }
}

fn sample() {
    if let Some(bytes) = resident() {
        LIVE_MEMORY.store(bytes, Ordering::Relaxed);
    }
}

/// Returns the resident memory of the process in bytes, if the system reports it.
pub(crate) fn resident() -> Option<usize> {
    statm(1)
}

/// Returns the writable memory of the process in bytes, if the system reports it.
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

/// Counts running programs. The first one sets the baseline from which growth is measured.
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
