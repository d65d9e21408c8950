//! Programs in processes of their own.
//!
//! A worker reads jobs from its standard input and writes what came of them to its standard output,
//! each as JSON behind its length in four bytes.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::CancelToken;
use tokio::sync::oneshot;

use crate::engine::{self, Job, Stretch, watch};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::limits::ProgramLimits;
use crate::place::STACK;

/// What tells a process that it is a worker.
const MARK: &str = "LEVITY_PYTHON_WORKER";

/// Whether this program serves as a worker when it is started as one.
static CAN_SERVE: AtomicBool = AtomicBool::new(false);

/// Makes this program one that can run Python in processes of its own: call it first thing in
/// `main`.
///
/// Started in the usual way, the program goes on at once. Started by levity as a worker, it runs
/// programs until it is no longer needed, and does not return.
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

/// This program, if it can serve as a worker.
pub(crate) fn own_program() -> Option<PathBuf> {
    CAN_SERVE
        .load(Ordering::Relaxed)
        .then(std::env::current_exe)?
        .ok()
}

/// Serves until nobody is there any more.
fn serve() -> ! {
    watch::make_expendable();
    let thread = std::thread::Builder::new()
        .name("python".to_owned())
        .stack_size(STACK);
    let served = thread
        .spawn(|| while serve_one().is_ok() {})
        .map(std::thread::JoinHandle::join);
    std::process::exit(i32::from(!matches!(served, Ok(Ok(())))));
}

fn serve_one() -> io::Result<()> {
    // Who started the worker is trusted with what it sends; memory for it is limited by the system
    // all the same.
    let job: Job = serde_json::from_slice(&read_frame(&mut io::stdin().lock(), usize::MAX)?)?;
    limit_memory(job.limits.memory);
    let stretch = engine::run(&job, &CancelToken::new());
    write_frame(&mut io::stdout().lock(), &serde_json::to_vec(&stretch)?)
}

/// Has the system refuse memory beyond the limit; by then the interpreter has refused it already,
/// unless it took much at once.
#[cfg(target_os = "linux")]
fn limit_memory(bytes: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const SLACK: usize = 32 << 20;
    let Some(now) = watch::data() else { return };
    let most = now.saturating_add(bytes).saturating_add(SLACK) as u64;
    let maximum = getrlimit(Resource::Data).maximum;
    let current = Some(maximum.map_or(most, |maximum| most.min(maximum)));
    // Where it cannot be set, the interpreter's own limit stands.
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

fn read_frame(from: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
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

/// A worker as those see it who give it work. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Arc<Mutex<Child>>,
    work: Sender<Work>,
    jobs: usize,
}

/// A job, how large its answer may be, and who waits for it.
type Work = (Arc<[u8]>, usize, oneshot::Sender<Result<Vec<u8>, Lost>>);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The worker was gone before it had the job.
    Before,
    /// The worker ended in the middle of it.
    Ended(Option<ExitStatus>),
    /// What it answered cannot be read.
    Garbled,
}

impl Lost {
    pub(crate) fn fault(&self) -> ProgramFault {
        match self {
            Self::Ended(Some(status)) if status.code() == Some(watch::OVERTIME) => {
                ProgramFault::new(
                    ProgramFaultKind::Time,
                    "the time is up, and the program did not stop: do less at a time",
                )
            }
            Self::Ended(_) => ProgramFault::new(
                ProgramFaultKind::Crashed,
                "the interpreter ran out of memory or stack: hold less at a time, and nest less \
                    deeply",
            ),
            Self::Before => {
                ProgramFault::new(ProgramFaultKind::Crashed, "the interpreter did not start")
            }
            Self::Garbled => ProgramFault::new(
                ProgramFaultKind::Crashed,
                "the interpreter's answer cannot be read",
            ),
        }
    }
}

impl Worker {
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
        thread.spawn(move || talk(&jobs, input, output, &shared))?;
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
    ) -> Result<Stretch, Lost> {
        self.jobs += 1;
        // What comes from the worker is not trusted: text may double in JSON, and base64 adds a
        // third.
        let parts = limits
            .snapshot
            .saturating_add(limits.result)
            .saturating_add(limits.output);
        let most = parts.saturating_mul(4).saturating_add(1 << 20);
        let (answer, wait) = oneshot::channel();
        self.work
            .send((job, most, answer))
            .map_err(|_| Lost::Before)?;
        let bytes = wait.await.map_err(|_| Lost::Before)??;
        serde_json::from_slice(&bytes).map_err(|_| Lost::Garbled)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have ended already; the thread that talks with it waits for it.
        let _ = child.kill();
    }
}

/// Hands jobs to a worker one after the other, until either side is gone.
fn talk(
    jobs: &Receiver<Work>,
    mut input: ChildStdin,
    mut output: ChildStdout,
    child: &Mutex<Child>,
) {
    while let Ok((job, most, answer)) = jobs.recv() {
        let sent = write_frame(&mut input, &job);
        let came = match sent {
            Err(_) => Err(Lost::Before),
            Ok(()) => read_frame(&mut output, most).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => Lost::Garbled,
                _ => Lost::Ended(end(child)),
            }),
        };
        let lost = came.is_err();
        // Whoever asked may have gone.
        let _ = answer.send(came);
        if lost {
            break;
        }
    }
    // A worker that hears no more ends by itself.
    drop((input, output));
    end(child);
}

/// Waits for a worker that is ending, so that nothing is left of it.
fn end(child: &Mutex<Child>) -> Option<ExitStatus> {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    child.wait().ok()
}
