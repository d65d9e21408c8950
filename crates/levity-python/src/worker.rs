//! Worker processes that run programs.
//!
//! A worker reads jobs from its standard input and writes results to its standard output. Each
//! message is JSON with a length prefix of four bytes.
//!
//! The parent is trusted by the worker, but not the other way round: a program could take over the
//! interpreter. The parent therefore bounds the size of an answer, clears the environment of the
//! worker, and kills it when it is not needed.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::CancelToken;
use tokio::sync::oneshot;

use crate::engine::{self, Job, Segment, watch};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::isolation::STACK;
use crate::limits::ProgramLimits;

/// The environment variable that marks a process as a worker.
const MARK: &str = "LEVITY_PYTHON_WORKER";

/// Set if this program can act as a worker.
static CAN_SERVE: AtomicBool = AtomicBool::new(false);

/// Enables this program to run Python in separate processes. Call it first in `main`.
///
/// Started normally, the function returns at once. Started by levity as a worker, it runs programs
/// until it is no longer needed, and does not return.
///
/// ```
/// # use levity_python::Python;
/// levity_python::worker_main();
/// assert!(Python::new().is_isolated());
/// ```
pub fn worker_main() {
    if std::env::var_os(MARK).is_some() {
        serve();
    }
    CAN_SERVE.store(true, Ordering::Relaxed);
}

/// Returns the path of this program, if it can act as a worker.
pub(crate) fn own_program() -> Option<PathBuf> {
    CAN_SERVE
        .load(Ordering::Relaxed)
        .then(std::env::current_exe)?
        .ok()
}

/// Runs jobs until the parent closes the connection.
fn serve() -> ! {
    watch::allow_exit();
    let thread = std::thread::Builder::new()
        .name("python".to_owned())
        .stack_size(STACK);
    let served = thread
        .spawn(|| while serve_one().is_ok() {})
        .map(std::thread::JoinHandle::join);
    std::process::exit(i32::from(!matches!(served, Ok(Ok(())))));
}

/// Reads one job, runs it and writes its result. Any error ends the worker, because the stream is
/// then out of step.
fn serve_one() -> io::Result<()> {
    // The parent process is trusted, and the system limits the memory anyway.
    let job: Job = serde_json::from_slice(&read_frame(&mut io::stdin().lock(), usize::MAX)?)?;
    limit_memory(job.limits.memory);
    let segment = engine::run(&job, &CancelToken::new());
    write_frame(&mut io::stdout().lock(), &serde_json::to_vec(&segment)?)
}

/// Sets the system's memory limit. The interpreter normally enforces its own limit first, unless it
/// allocates much at once.
#[cfg(target_os = "linux")]
fn limit_memory(bytes: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const SLACK: usize = 32 << 20;
    let Some(now) = watch::data() else { return };
    let max = now.saturating_add(bytes).saturating_add(SLACK) as u64;
    let maximum = getrlimit(Resource::Data).maximum;
    let current = Some(maximum.map_or(max, |maximum| max.min(maximum)));
    // If the limit cannot be set, the interpreter's own limit applies.
    let _ = setrlimit(Resource::Data, Rlimit { current, maximum });
}

#[cfg(not(target_os = "linux"))]
fn limit_memory(_: usize) {}

fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length =
        u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a message of at most `max` bytes. Memory grows with the received bytes, not with the
/// announced length.
fn read_frame(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(bytes)
    }
}

/// The parent's handle of a worker. Dropping it kills the worker.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Arc<Mutex<Child>>,
    work: Sender<Work>,
    jobs: usize,
}

/// A job, the maximum size of its answer, and the channel for the answer.
type Work = (
    Arc<[u8]>,
    usize,
    oneshot::Sender<Result<Vec<u8>, WorkerError>>,
);

/// The reason for a missing answer.
#[derive(Debug)]
pub(crate) enum WorkerError {
    /// The worker exited before it received the job.
    NotStarted,
    /// The worker exited during the job.
    Ended(Option<ExitStatus>),
    /// The answer cannot be parsed.
    InvalidAnswer,
}

impl WorkerError {
    pub(crate) fn fault(&self) -> ProgramFault {
        match self {
            Self::Ended(Some(status)) if status.code() == Some(watch::OVERTIME) => {
                ProgramFault::new(
                    ProgramFaultKind::Time,
                    "the time limit is reached, and the program did not stop: do less at a time",
                )
            }
            Self::Ended(_) => ProgramFault::new(
                ProgramFaultKind::Crashed,
                "the interpreter ran out of memory or stack: store less at a time, and nest less \
                    deeply",
            ),
            Self::NotStarted => {
                ProgramFault::new(ProgramFaultKind::Crashed, "the interpreter did not start")
            }
            Self::InvalidAnswer => ProgramFault::new(
                ProgramFaultKind::Crashed,
                "cannot read the interpreter's answer",
            ),
        }
    }
}

impl Worker {
    /// Starts the process with an empty environment, and a thread that talks to it. Its standard
    /// error is discarded.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env(MARK, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let child = Arc::new(Mutex::new(child));
        let (work, jobs) = channel();
        let shared = child.clone();
        let thread = std::thread::Builder::new().name("python worker".to_owned());
        thread.spawn(move || exchange_jobs(&jobs, input, output, &shared))?;
        Ok(Self {
            child,
            work,
            jobs: 0,
        })
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    pub(crate) async fn run(
        &mut self,
        job: Arc<[u8]>,
        limits: &ProgramLimits,
    ) -> Result<Segment, WorkerError> {
        self.jobs += 1;
        // Output of the worker is not trusted: text may double in size in JSON, and base64 adds a
        // third.
        let parts = limits
            .snapshot
            .saturating_add(limits.result)
            .saturating_add(limits.output);
        let max = parts.saturating_mul(4).saturating_add(1 << 20);
        let (answer, wait) = oneshot::channel();
        self.work
            .send((job, max, answer))
            .map_err(|_| WorkerError::NotStarted)?;
        let bytes = wait.await.map_err(|_| WorkerError::NotStarted)??;
        serde_json::from_slice(&bytes).map_err(|_| WorkerError::InvalidAnswer)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // The worker may have exited already; its thread waits for it.
        let _ = child.kill();
    }
}

/// Sends jobs to a worker one after the other, until either side disconnects.
fn exchange_jobs(
    jobs: &Receiver<Work>,
    mut input: ChildStdin,
    mut output: ChildStdout,
    child: &Mutex<Child>,
) {
    while let Ok((job, max, answer)) = jobs.recv() {
        let sent = write_frame(&mut input, &job);
        let result = match sent {
            Err(_) => Err(WorkerError::NotStarted),
            Ok(()) => read_frame(&mut output, max).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => WorkerError::InvalidAnswer,
                _ => WorkerError::Ended(wait_for_exit(child)),
            }),
        };
        let failed = result.is_err();
        // The receiver may have been dropped.
        let _ = answer.send(result);
        if failed {
            break;
        }
    }
    // A worker exits when its input is closed.
    drop((input, output));
    wait_for_exit(child);
}

/// Waits for an exiting worker, so that no zombie process remains.
fn wait_for_exit(child: &Mutex<Child>) -> Option<ExitStatus> {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    child.wait().ok()
}
