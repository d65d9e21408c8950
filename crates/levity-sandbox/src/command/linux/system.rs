//! One sandbox on Linux: its shared state, and the run of a command from its description to its
//! result.
//!
//! A run has these steps: find denied files, compute the rights, build a `Job`, start the watcher,
//! serve its pipes, and read its records. If a denied file moved between the search and the mount,
//! nothing has run yet, and the steps are repeated, up to 16 times.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;
use seccompiler::sock_filter;

use super::census::Census;
use super::checks::CoverChecks;
use super::hide::SearchResult;
use super::host::{HostPipes, InputWriter, OutputListener, OutputReader, move_above_stdio, pipe};
use super::job::{Cover, CoverKind, Identity, Isolation, Job, Mechanisms, Probe, Record, Step};
use super::mounts::SearchError;
use super::placeholders::Placeholders;
use super::places::Places;
use super::read_only_run::{ReadOnlyRun, Refusal};
use super::running::{CommandMark, ScanMark};
use super::search_limit::SearchLimit;
use super::watch::{THREADS, limit};
use super::{filter, hide, inside, probe};
use crate::Workspace;
use crate::command::builder::Setup;
use crate::command::captured::Stream;
use crate::command::environment::Environment;
use crate::command::error::{CommandError, SandboxError};
use crate::command::finished::{CommandLimit, CommandOutput, Exit};
use crate::command::launch::{self, Strings};
use crate::command::limits::Limits;
use crate::command::private::{PrivateFolder, RunFolder};
use crate::command::report::SandboxReport;
use crate::command::run::{CommandSpec, Control};

/// The number of searches for denied files if they are moved meanwhile.
const MAX_ATTEMPTS: usize = 16;

/// The time limit of a trial run before the first command.
const PROBE_TIME: Duration = Duration::from_secs(5);

const MOVED: &str =
    "denied files moved during the search; run it again when other commands have ended";

/// The state that all commands of a sandbox share.
#[derive(Debug)]
pub(in crate::command) struct System {
    workspace: Workspace,
    pub(super) mechanisms: Mechanisms,
    places: Places,
    filters: Vec<Vec<sock_filter>>,
    /// The filters of read-only commands; `None` if they cannot be enforced.
    read_only_filters: Option<Vec<Vec<sock_filter>>>,
    root: CString,
    empty: CString,
    writable: Vec<CString>,
    /// The sandbox's own folder.
    private: PathBuf,
}

impl System {
    pub(in crate::command) fn new(
        setup: Setup,
        private: &PrivateFolder,
    ) -> Result<(Self, SandboxReport), SandboxError> {
        let (mechanisms, probe_result) = probe::mechanisms(&setup, private)?;
        let mut report = probe::report(&setup, &mechanisms, probe_result);
        let limits = setup.limits;
        let mut system = Self::with(setup, private, mechanisms)?;
        report.read_only = probe::read_only(&system, &limits, private);
        if !report.read_only.is_enforced {
            system.read_only_filters = None;
        }
        Ok((system, report))
    }

    pub(super) fn with(
        setup: Setup,
        private: &PrivateFolder,
        mut mechanisms: Mechanisms,
    ) -> Result<Self, SandboxError> {
        let places = Places::new(&setup, private, mechanisms.landlock)?;
        let filters = filter::filters(&mechanisms, setup.network);
        mechanisms.seccomp &= filters.is_some();
        let can_hold = mechanisms.seccomp && mechanisms.landlock > 0;
        let read_only_filters = can_hold
            .then(|| filter::read_only_filters(&mechanisms))
            .flatten();
        let zero = SandboxError::Setting(
            "the workspace's path contains a NUL byte; use another \
            path",
        );
        let Some(root) = c_path(setup.workspace.root()) else {
            return Err(zero);
        };
        let Some(empty) = c_path(&private.empty()) else {
            return Err(zero);
        };
        // A place that is mounted read-only stays read-only.
        let writable = places.writable.iter().filter(|place| !is_read_only(place));
        let writable = writable.filter_map(|place| c_path(place)).collect();
        Ok(Self {
            workspace: setup.workspace,
            mechanisms,
            places,
            filters: filters.unwrap_or_default(),
            read_only_filters,
            root,
            empty,
            writable,
            private: private.root().to_owned(),
        })
    }

    /// Runs a command to its end.
    pub(in crate::command) fn run(
        &self,
        spec: &CommandSpec,
        control: &Control,
    ) -> Result<CommandOutput, CommandError> {
        let limit = SearchLimit::start(spec.limits.time, Some(control));
        if limit.is_abandoned() {
            // The caller no longer waits for the command, so it does not start.
            return Err(CommandError::WatcherKilled);
        }
        let listener = spec.listener.clone();
        let program = spec
            .argv
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let dir = spec.dir.to_string_lossy().into_owned();
        let mut ear = OutputListener::new(listener);
        PrivateFolder::make_accessible(&self.private);
        let mut tries = 1;
        let (records, covers, out, err) = loop {
            let control = control
                .try_clone()
                .map_err(|source| setup("a descriptor", source))?;
            let (found, _mark) = self.search(spec.read_only, &limit)?;
            limit
                .check()
                .map_err(|source| setup(Step::Hide.name(), source))?;
            let reading = spec.read_only.then(|| self.reading(&found)).transpose()?;
            let mut covers = Vec::new();
            let mut _placeholders = None;
            if self.mechanisms.hidden {
                (covers, _placeholders) = self.covers(found, spec.read_only)?;
            }
            // The links exist until the command has ended.
            let mut _links = None;
            let covers = Arc::new(covers);
            let (job, host_pipes) = self.prepare(
                spec,
                control,
                limit.remaining(),
                Arc::clone(&covers),
                reading.as_ref(),
                &mut _links,
            )?;
            let (records, out, err) = run_job(job, host_pipes, &mut ear)?;
            // A file that was found has moved; nothing was run.
            let stale = Errno::STALE.raw_os_error();
            let moved =
                |it: &Record| matches!(it, Record::Failed(Step::Hide, errno, _) if *errno == stale);
            if !records.iter().any(moved) || tries == MAX_ATTEMPTS {
                break (records, covers, out, err);
            }
            tries += 1;
        };
        let exit = outcome(&records, &covers, &program, &dir)?;
        ear.resume_panic();
        let replaced_files = replaced_files(&records, &covers);
        Ok(CommandOutput {
            exit,
            stdout: out,
            stderr: err,
            time: limit.elapsed(),
            replaced_files,
        })
    }

    /// Returns the paths to hide from a command, and a mark to hold while the command runs.
    fn search(
        &self,
        read_only: bool,
        limit: &SearchLimit<'_>,
    ) -> Result<(SearchResult, Option<CommandMark>), CommandError> {
        let search = || match hide::search(&self.workspace, limit) {
            Ok(mut found) => {
                self.hide_outside(&mut found);
                found
                    .check()
                    .map_err(|source| setup(Step::Hide.name(), source))?;
                Ok(found)
            }
            Err(SearchError::Io(_)) if limit.is_abandoned() => Err(CommandError::WatcherKilled),
            Err(SearchError::Io(source)) => Err(setup(Step::Hide.name(), source)),
            Err(SearchError::Mount(mount)) => Err(CommandError::SecondMount(mount)),
        };
        if !self.mechanisms.hidden {
            // Without mounts, nothing is hidden from other commands.
            return Ok((
                if read_only {
                    search()?
                } else {
                    SearchResult::default()
                },
                None,
            ));
        }
        for _ in 0..MAX_ATTEMPTS {
            let scan = ScanMark::begin();
            let found = search()?;
            if let Some(mark) = scan.end(self.workspace.root(), &found) {
                return Ok((found, Some(mark)));
            }
        }
        Err(setup(Step::Hide.name(), io::Error::other(MOVED)))
    }

    /// Hides the targets of links with a denied name in places that were allowed. Other targets are
    /// out of reach, or belong to the system.
    fn hide_outside(&self, found: &mut SearchResult) {
        let covered: HashSet<CString> = found.elsewhere.iter().map(|it| it.path.clone()).collect();
        for target in &found.outside {
            let is_open = self
                .places
                .opened
                .iter()
                .any(|place| target.starts_with(place) && target != place);
            // Without them, no command could run.
            let is_needed = Places::programs().any(|place| place.starts_with(target))
                || self.private.starts_with(target);
            if !is_open || is_needed || target.starts_with(&self.private) {
                continue;
            }
            let (Ok(stat), Some(path)) = (rustix::fs::lstat(target), c_path(target)) else {
                continue;
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => CoverKind::Folder,
                FileType::RegularFile => CoverKind::File,
                _ => continue,
            };
            if !covered.contains(&path) {
                found.elsewhere.push(Cover {
                    kind,
                    path,
                    identity: Identity::of(&stat),
                });
            }
        }
    }

    /// Returns the covers to mount, and the placeholders that exist for them as long as the result
    /// is held.
    fn covers(
        &self,
        found: SearchResult,
        read_only: bool,
    ) -> Result<(Vec<Cover>, Option<Placeholders>), CommandError> {
        let SearchResult {
            mut covers,
            guarded,
            missing,
            elsewhere,
            ..
        } = found;
        // A folder that contains the workspace cannot be hidden without it.
        let root = self.workspace.root();
        let holds_root = |it: &Cover| root.starts_with(OsStr::from_bytes(it.path.as_bytes()));
        covers.extend(elsewhere.into_iter().filter(|it| !holds_root(it)));
        if read_only || self.workspace.is_read_only() {
            return Ok((hide::without_hidden(covers), None));
        }
        let mut placeholders = Placeholders::default();
        // A command could add many repositories, which must not use up the folders that may have
        // placeholders.
        placeholders
            .reserve(&self.workspace, &mut covers)
            .map_err(|source| setup(Step::Hide.name(), source))?;
        placeholders.put_into(&self.workspace, &guarded, &mut covers);
        placeholders
            .put_at(&self.workspace, &missing, &mut covers)
            .map_err(|source| setup(Step::Hide.name(), source))?;
        let covers = hide::pin_above(hide::without_hidden(covers), root);
        hide::check_number(&covers).map_err(|source| setup(Step::Hide.name(), source))?;
        Ok((covers, Some(placeholders)))
    }

    fn reading(&self, found: &SearchResult) -> Result<ReadOnlyRun, CommandError> {
        if self.read_only_filters.is_none() {
            return Err(CommandError::ReadOnly(
                "the kernel cannot enforce that here",
            ));
        }
        ReadOnlyRun::new(&self.workspace, &self.places, &self.private, found).map_err(|refusal| {
            match refusal {
                Refusal::TooManyRules => CommandError::ReadOnly(
                    "the workspace has too many entries in folders with denied files",
                ),
                Refusal::NoLandlock => CommandError::ReadOnly("Landlock is missing"),
                Refusal::Failed(source) => setup("what a command may read", source),
            }
        })
    }

    /// Builds the job. `links` receives the folder with links to programs, which must live as long
    /// as the command.
    fn prepare(
        &self,
        spec: &CommandSpec,
        control: Control,
        time: Duration,
        covers: Arc<Vec<Cover>>,
        reading: Option<&ReadOnlyRun>,
        links: &mut Option<RunFolder>,
    ) -> Result<(Job, HostPipes), CommandError> {
        let dir = self.directory(&spec.dir)?;
        let mut environment = Cow::Borrowed(&spec.environment);
        if let Some(reading) = reading {
            let home = self.private.join("empty");
            environment.to_mut().restrict_to_reading(
                self.workspace.root(),
                &home,
                reading.temp.path(),
            );
        } else if !spec.from_system.is_empty() {
            self.take_from_system(environment.to_mut(), &spec.from_system, links)?;
        }
        let programs = programs(spec, &environment)?;
        let argv = spec
            .argv
            .iter()
            .map(|arg| c_string(arg, "an argument"))
            .collect::<Result<_, _>>()?;
        let lines = environment.lines();
        let envp = lines
            .map(|line| c_string(&line, "the environment"))
            .collect::<Result<_, _>>()?;
        let (argv, envp) = (Strings::new(argv), Strings::new(envp));
        let pipes = Pipes::new(spec.stdin.clone(), spec.limits.output)
            .map_err(|source| setup("a pipe", source))?;
        let descriptor = |source| setup("a descriptor", source);
        let mut job = self.job(control, pipes.child).map_err(descriptor)?;
        if let Some(reading) = reading {
            self.restrict_to_reading(&mut job, reading)
                .map_err(descriptor)?;
        }
        job.limit(&Limits {
            time,
            ..spec.limits
        });
        job.checks = CoverChecks::new(&covers);
        (job.covers, job.dir, job.programs, job.argv, job.envp) =
            (covers, dir, programs, argv, envp);
        Ok((job, pipes.host))
    }

    /// Links programs from places that commands cannot change, in a folder that they cannot change.
    fn take_from_system(
        &self,
        environment: &mut Environment,
        programs: &[String],
        links: &mut Option<RunFolder>,
    ) -> Result<(), CommandError> {
        let mut places = vec![self.workspace.root()];
        places.extend(self.places.writable.iter().map(PathBuf::as_path));
        if places.iter().any(|place| self.private.starts_with(place)) {
            // Links would be in reach of commands.
            environment.remove_from_path(&places);
            return Ok(());
        }
        let failed = |source| setup("links to programs", source);
        let folder = links.insert(PrivateFolder::run_folder(&self.private).map_err(failed)?);
        environment
            .link_programs(programs, &places, folder.path())
            .map_err(failed)
    }

    /// Creates a job without a command.
    fn job(&self, control: Control, child: ChildEnds) -> io::Result<Job> {
        let ids = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let map = |id: u32| format!("{id} {id} 1\n").into_bytes();
        Ok(Job {
            mechanisms: self.mechanisms,
            probe: None,
            maps: [map(ids.0), map(ids.1)],
            writable: self.writable.clone(),
            covers: Arc::default(),
            empty: self.empty.clone(),
            ruleset: self.places.ruleset().map(move_above_stdio).transpose()?,
            proc_access: Places::proc_access(),
            filters: self.filters.clone(),
            capabilities: capabilities(&self.mechanisms),
            time_ms: 0,
            cpu_ms: 0,
            memory: 0,
            processes: 0,
            tasks: 0,
            pid_max: Vec::new(),
            yields: false,
            file_size: 0,
            root: self.root.clone(),
            dir: self.root.clone(),
            programs: Vec::new(),
            argv: Strings::new(Vec::new()),
            envp: Strings::new(Vec::new()),
            stdin: child.stdin,
            stdout: child.stdout,
            stderr: child.stderr,
            control: move_above_stdio(control.into())?,
            report: child.report,
            census: Census::new(launch::units()),
            checks: CoverChecks::default(),
            mount_changes: None,
            keep: Vec::new(),
        })
    }

    /// Gives a job the rights of a read-only command instead of its own.
    fn restrict_to_reading(&self, job: &mut Job, reading: &ReadOnlyRun) -> io::Result<()> {
        // In the host's network, `/proc/net` would reveal its sockets.
        job.mechanisms.own_network = job.mechanisms.is_isolated();
        job.ruleset = Some(move_above_stdio(reading.ruleset.try_clone()?)?);
        job.filters = self.read_only_filters.clone().unwrap_or_default();
        job.writable = c_path(reading.temp.path()).into_iter().collect();
        Ok(())
    }

    /// Returns `true` if programs of the system are in the workspace.
    pub(super) fn contains_programs(&self) -> bool {
        Places::programs().any(|place| place.starts_with(self.workspace.root()))
    }

    /// Prepares a read-only run of the workspace for a trial; `None` if that is impossible.
    pub(super) fn try_reading(&self) -> Option<ReadOnlyRun> {
        let limit = SearchLimit::start(PROBE_TIME, None);
        let found = hide::search(&self.workspace, &limit).ok()?;
        self.reading(&found).ok()
    }

    /// Creates a job that tests the mechanisms, with the rights of any command or of a read-only
    /// one.
    pub(super) fn probe(
        &self,
        probe: Probe,
        limits: &Limits,
        reading: Option<&ReadOnlyRun>,
    ) -> io::Result<Vec<Record>> {
        let (control, _alive) = io::pipe()?;
        let pipes = Pipes::new(Vec::new(), 0)?;
        let mut job = self.job(control, pipes.child)?;
        if let Some(reading) = reading {
            self.restrict_to_reading(&mut job, reading)?;
        }
        job.probe = Some(probe);
        job.limit(limits);
        job.time_ms = millis(PROBE_TIME);
        // Hiding is tested on a folder that no workspace contains.
        let stat = rustix::fs::stat(&*self.empty)?;
        let (kind, path) = (CoverKind::Folder, self.empty.clone());
        job.covers = Arc::new(vec![Cover {
            kind,
            path,
            identity: Identity::of(&stat),
        }]);
        let (records, ..) =
            run_job(job, pipes.host, &mut OutputListener::new(None)).map_err(io::Error::other)?;
        Ok(records)
    }

    /// Checks the text of a directory. The child checks the real path after it has entered it.
    fn directory(&self, dir: &Path) -> Result<CString, CommandError> {
        let outside = || CommandError::Directory(dir.to_string_lossy().into_owned());
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !dir.components().all(inside) {
            return Err(outside());
        }
        c_path(&self.workspace.root().join(dir)).ok_or_else(outside)
    }
}

impl Job {
    /// Sets the limits in the units that the child needs, and derives the kernel's own limits from
    /// them.
    fn limit(&mut self, limits: &Limits) {
        self.time_ms = millis(limits.time);
        self.cpu_ms = millis(limits.cpu_time);
        (self.memory, self.processes, self.file_size) =
            (limits.memory, limits.processes, limits.file_size);
        // In a user namespace the kernel counts the processes in it. Elsewhere it counts all
        // processes of the user, which is at most the system's total. Root has no limit.
        let before = if self.mechanisms.isolation == Isolation::UserNamespaces {
            0
        } else {
            all_tasks()
        };
        let max = u64::from(limits.processes) * THREADS;
        self.tasks = before + max;
        self.pid_max = probe::pid_max(max).to_string().into_bytes();
    }
}

/// Returns the number of processes and threads of the system; more than enough if it is unknown.
fn all_tasks() -> u64 {
    let text = fs::read_to_string("/proc/loadavg").ok();
    let total = text
        .as_deref()
        .and_then(|text| text.split(['/', ' ']).nth(4)?.parse().ok());
    total.unwrap_or(1 << 22)
}

/// Starts the job, serves it and waits for its end.
fn run_job(
    mut job: Job,
    mut host_pipes: HostPipes,
    ear: &mut OutputListener,
) -> Result<(Vec<Record>, crate::CapturedOutput, crate::CapturedOutput), CommandError> {
    job.record_descriptors();
    let (flags, time) = (job.mechanisms.flags(), job.time_ms);
    let pid = launch::spawn(flags, &mut job, inside::watcher);
    // The child's ends must be open in the child alone.
    drop(job);
    let pid = pid.map_err(|error| setup("namespaces", error.into()))?;
    let records = host_pipes.serve(ear, pid, time);
    // A host that ignores its children has none to wait for.
    let _ = launch::wait(pid, true);
    let HostPipes { out, err, .. } = host_pipes;
    Ok((records, out.finish(ear), err.finish(ear)))
}

struct Pipes {
    child: ChildEnds,
    host: HostPipes,
}

struct ChildEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    report: OwnedFd,
}

impl Pipes {
    fn new(input: Vec<u8>, output: usize) -> io::Result<Self> {
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        let (text, report) = pipe()?;
        let (stdin, feed) = if input.is_empty() {
            (move_above_stdio(File::open("/dev/null")?.into())?, None)
        } else {
            let (stdin, feed) = pipe()?;
            (stdin, Some(feed))
        };
        let host = HostPipes {
            report: text,
            out: OutputReader::new(out, Stream::Stdout, output)?,
            err: OutputReader::new(err, Stream::Stderr, output)?,
            feed: InputWriter::new(feed, input)?,
        };
        Ok(Self {
            child: ChildEnds {
                stdin,
                stdout,
                stderr,
                report,
            },
            host,
        })
    }
}

fn setup(step: &'static str, source: io::Error) -> CommandError {
    CommandError::Setup { step, source }
}

/// Converts the watcher's records into a result.
fn outcome(
    records: &[Record],
    covers: &[Cover],
    program: &str,
    dir: &str,
) -> Result<Exit, CommandError> {
    let failed = records.iter().find_map(|record| match record {
        Record::Failed(step, errno, at) => Some((*step, Errno::from_raw_os_error(*errno), *at)),
        _ => None,
    });
    if let Some((step, errno, at)) = failed {
        return Err(match (step, errno) {
            (Step::Exec, Errno::NOENT) => CommandError::NotFound(program.to_owned()),
            (Step::Exec, Errno::TOOBIG) => CommandError::TooLong,
            (
                Step::Exec,
                Errno::ACCESS | Errno::NOEXEC | Errno::ISDIR | Errno::LOOP | Errno::NAMETOOLONG,
            ) => CommandError::NotExecutable(program.to_owned()),
            (Step::Directory, _) => CommandError::Directory(dir.to_owned()),
            (Step::Hide, errno) => {
                let path = covers
                    .get(at as usize)
                    .map_or(b"".as_slice(), |it| it.path.as_bytes());
                setup(Step::Hide.name(), hide_error(path, errno))
            }
            (step, errno) => setup(step.name(), errno.into()),
        });
    }
    let ended = records.iter().find_map(|record| match record {
        Record::Ended {
            status,
            limit,
            remaining,
        } => Some((*status, *limit, *remaining)),
        _ => None,
    });
    match ended {
        None => Err(CommandError::WatcherKilled),
        Some((_, _, remaining)) if remaining > 0 => Err(CommandError::Survivors(remaining)),
        Some((_, limit::EXPOSED, _)) => {
            let path = replaced_files(records, covers).pop();
            Err(CommandError::Exposed(path.unwrap_or_default()))
        }
        Some((status, limit, _)) => Ok(exit(status, limit)),
    }
}

/// Returns the files that other programs replaced, each once.
fn replaced_files(records: &[Record], covers: &[Cover]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for record in records {
        if let Record::Replaced(at) = record
            && let Some(cover) = covers.get(*at as usize)
        {
            let path = PathBuf::from(OsStr::from_bytes(cover.path.as_bytes()));
            files.retain(|known| *known != path);
            files.push(path);
        }
    }
    files
}

/// Builds the error for a file that could not be hidden or protected.
fn hide_error(path: &[u8], errno: Errno) -> io::Error {
    // A name may contain any character, and the message may be shown in a terminal.
    let path = String::from_utf8_lossy(path).escape_debug().to_string();
    match errno {
        Errno::STALE => io::Error::other(format!(
            "`{path}` is not the file that the search found: {MOVED}"
        )),
        Errno::MFILE | Errno::NFILE => io::Error::other(
            "too many folders contain hidden files; raise the limit on open files (`ulimit -n`)",
        ),
        errno => {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("`{path}`: {error}"))
        }
    }
}

/// A limit that the watcher reports takes precedence over the signal by which the command ended.
fn exit(status: i32, limit: u8) -> Exit {
    match limit {
        limit::TIME => return Exit::Limit(CommandLimit::Time),
        limit::CPU => return Exit::Limit(CommandLimit::CpuTime),
        limit::MEMORY => return Exit::Limit(CommandLimit::Memory),
        limit::PROCESSES => return Exit::Limit(CommandLimit::Processes),
        limit::UNCOUNTED => return Exit::Uncounted,
        _ => {}
    }
    if !libc::WIFSIGNALED(status) {
        return Exit::Code(libc::WEXITSTATUS(status));
    }
    match libc::WTERMSIG(status) {
        libc::SIGXCPU => Exit::Limit(CommandLimit::CpuTime),
        libc::SIGXFSZ => Exit::Limit(CommandLimit::FileSize),
        signal => Exit::Signal(signal),
    }
}

/// Returns the candidate paths of the program: the given path, or one in each folder of `PATH`.
fn programs(spec: &CommandSpec, environment: &Environment) -> Result<Vec<CString>, CommandError> {
    let program = spec
        .argv
        .first()
        .filter(|name| !name.is_empty())
        .ok_or(CommandError::Empty)?;
    let name = c_string(program, "the program")?;
    if name.as_bytes().contains(&b'/') {
        return Ok(vec![name]);
    }
    let path = environment.get("PATH").unwrap_or_default();
    // A relative folder would be one of the workspace.
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let files = folders
        .map(|folder| folder.join(program))
        .filter(|file| file.is_file());
    let programs: Vec<_> = files.filter_map(|file| c_path(&file)).collect();
    if programs.is_empty() {
        return Err(CommandError::NotFound(
            program.to_string_lossy().into_owned(),
        ));
    }
    Ok(programs)
}

fn c_string(string: &OsStr, what: &'static str) -> Result<CString, CommandError> {
    CString::new(string.as_bytes()).map_err(|_| CommandError::NulByte(what))
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_read_only(place: &Path) -> bool {
    rustix::fs::statvfs(place)
        .is_ok_and(|it| it.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Returns the capabilities that a command retains. If root runs it, it retains those over files,
/// so that it can work in a workspace of another user. Without CAP_FSETID, no file that it creates
/// runs with the rights of a group that it is not in.
fn capabilities(mechanisms: &Mechanisms) -> u64 {
    const CHOWN: u64 = 1;
    const DAC_OVERRIDE: u64 = 1 << 1;
    const FOWNER: u64 = 1 << 3;
    if mechanisms.isolation == Isolation::UserNamespaces {
        0
    } else {
        CHOWN | DAC_OVERRIDE | FOWNER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_names_path_that_could_not_be_hidden() {
        let identity = Identity::of(&rustix::fs::stat("/").unwrap());
        let cover = |path: &str| Cover {
            kind: CoverKind::File,
            path: CString::new(path).unwrap(),
            identity,
        };
        let covers = [cover("/w/one.key"), cover("/w/two\n.key")];
        for (errno, at, expected) in [
            (
                Errno::STALE,
                0,
                "`/w/one.key` is not the file that the search found: denied files moved",
            ),
            (
                Errno::STALE,
                1,
                "`/w/two\\n.key` is not the file that the search found",
            ),
            (Errno::NOSPC, 1, "`/w/two\\n.key`: No space left"),
        ] {
            let record = Record::Failed(Step::Hide, errno.raw_os_error(), at);
            let record = Record::decode(&record.encode()).unwrap();
            let error = outcome(&[record], &covers, "a", ".").unwrap_err();
            let CommandError::Setup { source, .. } = &error else {
                panic!("{error:?}")
            };
            assert!(source.to_string().starts_with(expected), "{source}");
        }
    }
}
