//! The threads and processes in which programs run.
//!
//! The pool holds idle workers, at most one per core. A worker is replaced after 1,000 programs, so
//! that memory that the interpreter leaks does not add up. A worker that exits between two programs
//! is replaced silently; one that exits during a program is a fault of that program.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::CancelToken;
use tokio::sync::{Semaphore, oneshot};

use crate::engine::{self, Job, Segment};
use crate::error::{Error, Result};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::worker::{self, Worker, WorkerError};

/// The thread or process in which programs run.
///
/// In a separate process, a program can at most end that process. The system limits its memory, a
/// program that does not stop is killed, and a bug of the interpreter affects nothing else. In a
/// thread of this process, only the interpreter enforces the limits; `docs/python.md` lists what
/// that does not cover.
///
/// ```
/// use levity_python::{Isolation, Python};
/// use serde_json::json;
///
/// let python = Python::isolated(Isolation::Thread);
/// assert!(!python.is_isolated());
/// assert_eq!(python.run_blocking("2 ** 10", json!({}))?.result, json!(1024));
/// # Ok::<(), levity_python::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// A separate process if one is available, which is the case after
    /// [`worker_main`](crate::worker_main); otherwise a thread.
    #[default]
    Auto,
    /// A separate process, started from this file: any program that calls
    /// [`worker_main`](crate::worker_main) first, such as `levity-python-worker`.
    Process(PathBuf),
    /// A thread of this process.
    Thread,
}

/// The stack size of the interpreter in bytes: enough for
/// [`MAX_RECURSION`](crate::ProgramLimits::MAX_RECURSION).
pub(crate) const STACK: usize = 256 << 20;
/// The number of programs that a worker runs before it is replaced.
const MAX_JOBS: usize = 1_000;

/// Runs segments of programs with limited parallelism.
#[derive(Debug)]
pub(crate) struct InterpreterPool {
    program: Option<PathBuf>,
    idle: Mutex<Vec<Worker>>,
    permits: Semaphore,
    parallel: usize,
}

impl InterpreterPool {
    pub(crate) fn new(isolation: Isolation, parallel: usize) -> Self {
        let program = match isolation {
            Isolation::Auto => worker::own_program(),
            Isolation::Process(path) => Some(path),
            Isolation::Thread => None,
        };
        Self {
            program,
            idle: Mutex::default(),
            permits: Semaphore::new(parallel.max(1)),
            parallel,
        }
    }

    pub(crate) fn is_process(&self) -> bool {
        self.program.is_some()
    }

    /// Runs a segment; dropping the future stops it.
    pub(crate) async fn run(&self, job: Job) -> Result<Segment> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        self.run_now(job).await
    }

    /// Runs a segment without waiting for a permit: the holder of the permit may wait for the very
    /// thread that would block here.
    pub(crate) async fn run_now(&self, job: Job) -> Result<Segment> {
        match &self.program {
            Some(program) => self.in_process(program.clone(), job).await,
            None => in_thread(job).await,
        }
    }

    /// Dropping the future drops the worker, which kills its process: the only way to stop code
    /// that does not cooperate.
    async fn in_process(&self, program: PathBuf, job: Job) -> Result<Segment> {
        let printed = job.printed.clone();
        let frame: Arc<[u8]> = serde_json::to_vec(&job).unwrap_or_default().into();
        let mut used = self.idle().pop();
        loop {
            let fresh = used.is_none();
            let mut worker = match used.take() {
                Some(worker) => worker,
                None => {
                    Worker::start(&program).map_err(|error| Error::Worker(error.to_string()))?
                }
            };
            // A worker that is dropped during a job is killed.
            let end = match worker.run(frame.clone(), &job.limits).await {
                Ok(segment) => {
                    self.give_back(worker);
                    return Ok(segment);
                }
                // The worker exited since its last use, before it received this program.
                Err(WorkerError::NotStarted) if !fresh => continue,
                Err(worker_error) => engine::End::Failed(worker_error.fault()),
            };
            return Ok(Segment {
                end,
                printed,
                time: std::time::Duration::ZERO,
            });
        }
    }

    fn give_back(&self, worker: Worker) {
        let mut idle = self.idle();
        if worker.jobs() < MAX_JOBS && idle.len() < self.parallel {
            idle.push(worker);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropping the future sets the cancel token. The thread continues until the interpreter checks it.
async fn in_thread(job: Job) -> Result<Segment> {
    let cancel = CancelToken::new();
    let _guard = cancel.clone().into_guard();
    let (done, wait) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("python".to_owned())
        .stack_size(STACK);
    thread
        .spawn(move || drop(done.send(engine::run(&job, &cancel))))
        .map_err(|error| Error::Worker(format!("cannot start a thread: {error}")))?;
    let panicked = |_| {
        ProgramFault::new(
            ProgramFaultKind::Crashed,
            "the interpreter panicked: write the program differently",
        )
        .into()
    };
    wait.await.map_err(panicked)
}
