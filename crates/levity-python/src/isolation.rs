//! Where programs run.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::CancelToken;
use tokio::sync::{Semaphore, oneshot};

use crate::engine::{self, Job, Stretch};
use crate::error::{Error, Result};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::worker::{self, Lost, Worker};

/// Where programs run, and what holds them there.
///
/// In a process of its own a program can do no more than end that process: memory is limited by the
/// system, a program that does not stop is killed, and a fault of the interpreter ends nothing
/// else. In a thread of this process the same limits are kept by the interpreter alone;
/// `docs/python.md` says what that does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// In a process of its own where there is one to start, which is the case after
    /// [`worker_main`](crate::worker_main); else in a thread.
    #[default]
    Auto,
    /// In a process of its own, started from this file: any program that calls
    /// [`worker_main`](crate::worker_main) first thing, such as `levity-python-worker`.
    Process(PathBuf),
    /// In a thread of this process.
    Thread,
}

/// How many bytes of stack the interpreter has: enough for
/// [`MOST_RECURSION`](crate::ProgramLimits::MOST_RECURSION).
pub(crate) const STACK: usize = 256 << 20;
/// How many programs a worker runs before another takes its place.
const MAX_JOBS: usize = 1_000;

/// Runs stretches of programs, so many at a time.
#[derive(Debug)]
pub(crate) struct Place {
    program: Option<PathBuf>,
    idle: Mutex<Vec<Worker>>,
    room: Semaphore,
    parallel: usize,
}

impl Place {
    pub(crate) fn new(isolation: Isolation, parallel: usize) -> Self {
        let program = match isolation {
            Isolation::Auto => worker::own_program(),
            Isolation::Process(path) => Some(path),
            Isolation::Thread => None,
        };
        Self {
            program,
            idle: Mutex::default(),
            room: Semaphore::new(parallel.max(1)),
            parallel,
        }
    }

    pub(crate) fn is_process(&self) -> bool {
        self.program.is_some()
    }

    /// Runs a stretch; dropping the future stops it.
    pub(crate) async fn run(&self, job: Job) -> Result<Stretch> {
        // It is never closed.
        let _room = self.room.acquire().await;
        self.run_now(job).await
    }

    /// Runs a stretch without waiting for room: what has the room may wait for the very thread that
    /// would wait here.
    pub(crate) async fn run_now(&self, job: Job) -> Result<Stretch> {
        match &self.program {
            Some(program) => self.in_process(program.clone(), job).await,
            None => in_thread(job).await,
        }
    }

    async fn in_process(&self, program: PathBuf, job: Job) -> Result<Stretch> {
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
            // A worker that is dropped while it works is killed.
            let end = match worker.run(frame.clone(), &job.limits).await {
                Ok(stretch) => {
                    self.give_back(worker);
                    return Ok(stretch);
                }
                // It has died since it was last used, before it saw this program.
                Err(Lost::Before) if !fresh => continue,
                Err(lost) => engine::End::Failed(lost.fault()),
            };
            return Ok(Stretch {
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

async fn in_thread(job: Job) -> Result<Stretch> {
    let cancel = CancelToken::new();
    let _guard = cancel.clone().into_guard();
    let (done, wait) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("python".to_owned())
        .stack_size(STACK);
    thread
        .spawn(move || drop(done.send(engine::run(&job, &cancel))))
        .map_err(|error| Error::Worker(format!("there is no thread for it: {error}")))?;
    let gone = |_| {
        ProgramFault::new(
            ProgramFaultKind::Crashed,
            "the interpreter panicked: write the program in another way",
        )
        .into()
    };
    wait.await.map_err(gone)
}
