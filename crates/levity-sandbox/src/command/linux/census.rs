//! Counts the processes of a command, their memory and their CPU time.
//!
//! The watcher does this many times a second, in a process that must not allocate: all buffers
//! exist before the fork. Processes are found by their parents, not by a group or a session, which
//! a process can leave. An orphan becomes a child of the watcher, so every descendant stays below
//! it.
//!
//! A `/proc` that is mounted with `hidepid` shows processes incompletely. Those are found as
//! children that their parents list, and reported as `unseen`.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, readlinkat_raw, seek};
use rustix::io::{Errno, read};

/// The maximum number of processes of the system that are listed; further ones count as unseen. It
/// exceeds the default limit of Linux.
const MAX_PROCESSES: usize = 65_536;

/// The maximum number of unreadable processes that are remembered, to be signalled.
const MAX_HIDDEN: usize = 4096;

/// The maximum number of missing children of a process that are remembered during a second search.
const MAX_MISSING: usize = 8;

/// The processes below one process, read from `/proc` without allocating.
#[derive(Debug)]
pub(super) struct Census {
    all: Vec<ProcessInfo>,
    /// Processes that cannot be read, as far as there is room for them.
    hidden: Vec<i32>,
    /// The open folder `/proc`.
    proc: Option<OwnedFd>,
    /// `true` if that folder shows each process to every user.
    shows_all: bool,
    ticks: u64,
    page: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ProcessInfo {
    pid: i32,
    /// A thread of the process that has not ended. The first thread may have ended, and then shows
    /// no memory.
    thread: i32,
    parent: i32,
    alive: bool,
    ours: bool,
    threads: u32,
    ticks: u64,
    pages: u64,
    /// The size of its page tables in bytes.
    tables: u64,
}

/// The totals for all processes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) count: u32,
    pub(super) threads: u32,
    pub(super) cpu_ms: u64,
    pub(super) memory: u64,
    /// The number of processes that were found but cannot be read. Their children are not found at
    /// all.
    pub(super) unseen: u32,
}

impl Census {
    pub(super) fn new((ticks, page): (u64, u64)) -> Self {
        let (all, hidden) = (
            Vec::with_capacity(MAX_PROCESSES),
            Vec::with_capacity(MAX_HIDDEN),
        );
        Self {
            all,
            hidden,
            proc: None,
            shows_all: false,
            ticks,
            page,
        }
    }

    /// Reads from this mount of `/proc`, which hides no process.
    ///
    /// It belongs to the command's own process namespace, so it lists nothing but the command.
    pub(super) fn read_from(&mut self, proc: OwnedFd) {
        (self.proc, self.shows_all) = (Some(proc), true);
    }

    /// Opens the existing `/proc`, unless a mount that hides nothing is set.
    pub(super) fn open(&mut self) -> Result<RawFd, Errno> {
        if self.proc.is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.proc = Some(openat(CWD, c"/proc", flags, Mode::empty())?);
        }
        self.proc().map(AsRawFd::as_raw_fd)
    }

    fn proc(&self) -> Result<&OwnedFd, Errno> {
        self.proc.as_ref().ok_or(Errno::BADF)
    }

    /// Returns the number of this process in `/proc`.
    ///
    /// This differs from `getpid` if `/proc` belongs to another process namespace.
    pub(super) fn own_pid(&self) -> Result<i32, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 32];
        let (name, _) = readlinkat_raw(self.proc()?, c"self", &mut buffer)?;
        number(name)
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or(Errno::INVAL)
    }

    /// Lists all processes, and finds those below `root`. Calls `on_found` with each of them as
    /// soon as it is found.
    ///
    /// The system lists processes in the order of their numbers, and new ones at the end. So a
    /// process that is stopped when it is met cannot escape: reading the list is faster than
    /// creating processes.
    pub(super) fn take(&mut self, root: i32, on_found: fn(i32)) -> Result<Totals, Errno> {
        self.list(root, on_found)?;
        self.mark(root, on_found);
        let mut totals = Totals::default();
        for at in 0..self.all.len() {
            if self.all[at].ours {
                self.all[at].tables = page_tables(self.proc()?, self.all[at].thread)?;
                let info = self.all[at];
                totals.count += u32::from(info.alive);
                totals.threads += info.threads;
                totals.cpu_ms += info.ticks * 1000 / self.ticks;
                totals.memory += info.pages * self.page + info.tables;
            }
        }
        if !self.shows_all {
            totals.unseen = self.find_hidden(root, on_found)?;
        }
        Ok(totals)
    }

    /// Returns the processes below the root that are alive.
    pub(super) fn alive(&self) -> impl Iterator<Item = i32> + '_ {
        let info = self
            .all
            .iter()
            .filter(|info| info.ours && info.alive)
            .map(|info| info.pid);
        info.chain(self.hidden.iter().copied())
    }

    /// Returns the memory of the processes that were found, with their page tables. Shared memory
    /// is counted once, if the system reports it.
    pub(super) fn memory(&self) -> u64 {
        let proc = self.proc.as_ref();
        let of = |info: &ProcessInfo| {
            proc.and_then(|proc| share(proc, info.thread))
                .unwrap_or(info.pages * self.page)
                + info.tables
        };
        self.all
            .iter()
            .filter(|info| info.ours && info.alive)
            .map(of)
            .sum()
    }

    /// Returns `true` if one of the processes that were found has shared memory, or may have.
    pub(super) fn share_memory(&self) -> bool {
        let Some(proc) = &self.proc else { return true };
        self.all
            .iter()
            .any(|info| info.ours && info.alive && has_shared_memory(proc, info.thread))
    }

    /// Fills `all` in the order of process numbers, which later lookups rely on.
    fn list(&mut self, root: i32, on_found: fn(i32)) -> Result<(), Errno> {
        self.all.clear();
        self.hidden.clear();
        let proc = self.proc.as_ref().ok_or(Errno::BADF)?;
        seek(proc, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(proc, &mut buffer);
        while let Some(entry) = entries.next() {
            let Some(pid) =
                number(entry?.file_name().to_bytes()).and_then(|pid| i32::try_from(pid).ok())
            else {
                continue;
            };
            let mut info = match read_process(proc, pid) {
                Ok(Some(info)) if self.all.len() < MAX_PROCESSES => info,
                // A process that has ended since then is not missed.
                Ok(_) => continue,
                // It may belong to any user. If it belongs to the command, it is missing below its
                // parent.
                Err(Errno::PERM | Errno::ACCESS) if !self.shows_all => continue,
                Err(error) => return Err(error),
            };
            info.ours = info.parent == root || is_ours(&self.all, info.parent);
            if info.ours {
                on_found(pid);
            }
            self.all.push(info);
        }
        Ok(())
    }

    /// Counts the processes that are known by their parents alone.
    ///
    /// The first unreadable process of a branch is a child of a readable one, or of the root, which
    /// adopts orphans.
    fn find_hidden(&mut self, root: i32, on_found: fn(i32)) -> Result<u32, Errno> {
        let mut unseen = self.missing(root, 1, on_found)?;
        for at in 0..self.all.len() {
            let info = self.all[at];
            if info.ours && info.alive {
                unseen += self.missing(info.pid, info.threads, on_found)?;
            }
        }
        Ok(unseen)
    }

    /// Every thread lists its own children, so a process with several threads is searched thread by
    /// thread.
    fn missing(&mut self, parent: i32, threads: u32, on_found: fn(i32)) -> Result<u32, Errno> {
        if threads < 2 {
            return self.missing_of(parent, parent, on_found);
        }
        let mut path = [0; PATH];
        let path = path_of(&[Part::Pid(parent), Part::Name(b"/task")], &mut path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(
            self.proc()?,
            path.ok_or(Errno::NAMETOOLONG)?,
            flags,
            Mode::empty(),
        );
        let Some(folder) = if_there(folder)? else {
            return Ok(0);
        };
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(folder, &mut buffer);
        let mut missing = 0;
        while let Some(entry) = entries.next() {
            let Some(entry) = if_there(entry)? else { break };
            if let Some(thread) =
                number(entry.file_name().to_bytes()).and_then(|it| i32::try_from(it).ok())
            {
                missing += self.missing_of(parent, thread, on_found)?;
            }
        }
        Ok(missing)
    }

    /// Counts the children of a thread that are not listed, and are still its children after a
    /// second search.
    fn missing_of(&mut self, process: i32, thread: i32, on_found: fn(i32)) -> Result<u32, Errno> {
        let Self {
            all, hidden, proc, ..
        } = self;
        let proc = proc.as_ref().ok_or(Errno::BADF)?;
        let (mut missing, mut count, mut trouble) = ([0; MAX_MISSING], 0, None);
        for_each_child(proc, process, thread, |child| {
            if count == MAX_MISSING || all.binary_search_by_key(&child, |info| info.pid).is_ok() {
                return;
            }
            match read_process(proc, child) {
                // It started after the list was read.
                Ok(Some(_)) if all.len() < MAX_PROCESSES => {}
                Ok(_) | Err(Errno::PERM | Errno::ACCESS) => {
                    missing[count] = child;
                    count += 1;
                }
                Err(error) => trouble = Some(error),
            }
        })?;
        if let Some(error) = trouble {
            return Err(error);
        }
        let mut unseen = 0;
        if count > 0 {
            for_each_child(proc, process, thread, |child| {
                if missing[..count].contains(&child) {
                    unseen += 1;
                    on_found(child);
                    if hidden.len() < MAX_HIDDEN {
                        hidden.push(child);
                    }
                }
            })?;
        }
        Ok(unseen)
    }

    /// Marks every process whose parent is marked, even if the parent's number is the higher one.
    fn mark(&mut self, root: i32, on_found: fn(i32)) {
        loop {
            let mut changed = false;
            for at in 0..self.all.len() {
                let info = self.all[at];
                if !info.ours && (info.parent == root || is_ours(&self.all, info.parent)) {
                    self.all[at].ours = true;
                    on_found(info.pid);
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }
}

fn is_ours(all: &[ProcessInfo], pid: i32) -> bool {
    all.binary_search_by_key(&pid, |info| info.pid)
        .is_ok_and(|at| all[at].ours)
}

/// Parses a decimal number without allocating; `None` for an empty text, another character, or an
/// overflow.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Reads the state of a process; `None` if it has ended, or is hidden.
fn read_process(proc: &OwnedFd, pid: i32) -> Result<Option<ProcessInfo>, Errno> {
    let mut buffer = [0; 1024];
    let Some(stat) = file(proc, pid, b"/stat", &mut buffer)? else {
        return Ok(None);
    };
    let (mut info, has_ended) = parse(pid, stat).ok_or(Errno::INVAL)?;
    if has_ended && info.alive {
        read_live_thread(proc, &mut info)?;
    }
    Ok(Some(info))
}

/// Finds the memory of a process whose first thread has ended before others.
fn read_live_thread(proc: &OwnedFd, info: &mut ProcessInfo) -> Result<(), Errno> {
    let mut path = [0; PATH];
    let path = path_of(&[Part::Pid(info.pid), Part::Name(b"/task")], &mut path);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(proc, path.ok_or(Errno::NAMETOOLONG)?, flags, Mode::empty());
    let Some(folder) = if_there(folder)? else {
        return Ok(());
    };
    let mut names = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(folder, &mut names);
    while let Some(entry) = entries.next() {
        let Some(entry) = if_there(entry)? else { break };
        let Some(thread) =
            number(entry.file_name().to_bytes()).and_then(|it| i32::try_from(it).ok())
        else {
            continue;
        };
        let mut buffer = [0; 1024];
        // A thread has its own folder, which is not listed.
        let Some(stat) = file(proc, thread, b"/stat", &mut buffer)? else {
            continue;
        };
        let (found, has_ended) = parse(thread, stat).ok_or(Errno::INVAL)?;
        if !has_ended {
            (info.thread, info.pages) = (thread, found.pages);
            break;
        }
    }
    Ok(())
}

/// Parses a line of `stat` into its process. The flag is set if the thread that gives the process
/// its number has ended.
fn parse(pid: i32, stat: &[u8]) -> Option<(ProcessInfo, bool)> {
    // The name, in brackets, may contain any character.
    let rest = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 2..)?;
    let mut fields = rest.split(|byte| *byte == b' ');
    let state = fields.next()?;
    let parent = i32::try_from(number(fields.next()?)?).ok()?;
    // utime, stime, cutime, cstime are the fields 14 to 17, and the state is the third.
    let mut times = fields.skip(9);
    let mut ticks = 0;
    for _ in 0..4 {
        ticks += number(times.next()?)?;
    }
    let threads = times.nth(2).and_then(number).unwrap_or(1) as u32;
    let pages = times.nth(3).and_then(number).unwrap_or(0);
    let has_ended = matches!(state, b"Z" | b"X" | b"x");
    let alive = !has_ended || threads > 1;
    let info = ProcessInfo {
        pid,
        thread: pid,
        parent,
        alive,
        ours: false,
        threads,
        ticks,
        pages,
        tables: 0,
    };
    Some((info, has_ended))
}

/// Returns the size of a process's page tables in bytes; 0 if it has ended.
fn page_tables(proc: &OwnedFd, pid: i32) -> Result<u64, Errno> {
    const KEY: &[u8] = b"\nVmPTE:";
    /// The maximum length of the line, in bytes.
    const LINE: usize = 64;
    let Some(fd) = open(proc, pid, b"/status")? else {
        return Ok(0);
    };
    let mut buffer = [0; 4096];
    // The end of the previous read may be the beginning of the line: a process can have many
    // groups, and they precede it.
    let mut retained = 0;
    loop {
        let more = match read(&fd, &mut buffer[retained..]) {
            Err(Errno::INTR) => continue,
            Err(Errno::SRCH) => return Ok(0),
            more => more?,
        };
        let end = retained + more;
        let at = buffer[..end]
            .windows(KEY.len())
            .position(|part| part == KEY);
        if let Some(at) = at.filter(|at| more == 0 || at + LINE <= end) {
            return kilobytes(&buffer[at + KEY.len()..end]).ok_or(Errno::INVAL);
        }
        if more == 0 {
            // A process without memory has no such line.
            return Ok(0);
        }
        retained = end.min(LINE + KEY.len());
        buffer.copy_within(end - retained..end, 0);
    }
}

/// Returns the first number of a line, times 1024.
fn kilobytes(line: &[u8]) -> Option<u64> {
    let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\n'));
    number(fields.find(|field| !field.is_empty())?)?.checked_mul(1024)
}

/// Calls `on_found` with each child of a thread. There is none if the thread has ended, or if the
/// system does not list children.
fn for_each_child(
    proc: &OwnedFd,
    process: i32,
    thread: i32,
    mut on_found: impl FnMut(i32),
) -> Result<(), Errno> {
    let mut path = [0; PATH];
    let parts = [
        Part::Pid(process),
        Part::Name(b"/task/"),
        Part::Pid(thread),
        Part::Name(b"/children"),
    ];
    let path = path_of(&parts, &mut path).ok_or(Errno::NAMETOOLONG)?;
    let Some(fd) = if_there(openat(
        proc,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ))?
    else {
        return Ok(());
    };
    let mut buffer = [0; 4096];
    let mut child = 0_i32;
    loop {
        let more = match read(&fd, &mut buffer) {
            Err(Errno::INTR) => continue,
            more => if_there(more)?.unwrap_or(0),
        };
        for byte in &buffer[..more] {
            if byte.is_ascii_digit() {
                child = child
                    .saturating_mul(10)
                    .saturating_add(i32::from(byte - b'0'));
            } else if child > 0 {
                on_found(std::mem::take(&mut child));
            }
        }
        if more == 0 {
            if child > 0 {
                on_found(child);
            }
            return Ok(());
        }
    }
}

/// Converts an error to `None` if the process has ended meanwhile, or is hidden.
fn if_there<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the memory of a process, with its share of shared memory, in bytes.
fn share(proc: &OwnedFd, pid: i32) -> Option<u64> {
    let mut buffer = [0; 2048];
    let text = file(proc, pid, b"/smaps_rollup", &mut buffer).ok()??;
    kilobytes(
        text.split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(b"Pss:"))?,
    )
}

/// Returns `true` if a process has mapped memory that others can share and that is in no named
/// file, or if that is unknown.
fn has_shared_memory(proc: &OwnedFd, pid: i32) -> bool {
    const SHARED: &[u8] = b"/dev/zero (deleted)\n";
    let fd = match open(proc, pid, b"/maps") {
        Ok(None) => return false,
        Err(_) => return true,
        Ok(Some(fd)) => fd,
    };
    let mut buffer = [0; 8192];
    // The end of the previous read may be the beginning of a match.
    let mut retained = 0;
    loop {
        match read(&fd, &mut buffer[retained..]) {
            Ok(0) | Err(Errno::SRCH) => return false,
            Err(Errno::INTR) => {}
            Err(_) => return true,
            Ok(more) => {
                let end = retained + more;
                if buffer[..end]
                    .windows(SHARED.len())
                    .any(|part| part == SHARED)
                {
                    return true;
                }
                retained = end.min(SHARED.len() - 1);
                buffer.copy_within(end - retained..end, 0);
            }
        }
    }
}

fn open(proc: &OwnedFd, pid: i32, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let mut path = [0; PATH];
    let path = path_of(&[Part::Pid(pid), Part::Name(name)], &mut path).ok_or(Errno::NAMETOOLONG)?;
    if_there(openat(
        proc,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ))
}

/// Reads the beginning of a file of a process.
fn file<'a>(
    proc: &OwnedFd,
    pid: i32,
    name: &[u8],
    buffer: &'a mut [u8],
) -> Result<Option<&'a [u8]>, Errno> {
    let Some(fd) = open(proc, pid, name)? else {
        return Ok(None);
    };
    let mut length = 0;
    while length < buffer.len() {
        match read(&fd, &mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(Errno::SRCH | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(&buffer[..length]))
}

/// A part of a path in `/proc`.
enum Part<'a> {
    Pid(i32),
    Name(&'a [u8]),
}

/// The maximum length of a path: two numbers, and the names around them.
const PATH: usize = 64;

/// Joins the parts of a path, without allocating.
fn path_of<'a>(parts: &[Part<'_>], buffer: &'a mut [u8; PATH]) -> Option<&'a CStr> {
    let mut end = 0;
    for part in parts {
        let mut digits = [0_u8; 10];
        let part = match part {
            Part::Name(name) => name,
            Part::Pid(pid) => decimal(*pid, &mut digits)?,
        };
        buffer.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    *buffer.get_mut(end)? = 0;
    CStr::from_bytes_with_nul(&buffer[..=end]).ok()
}

fn decimal(pid: i32, digits: &mut [u8; 10]) -> Option<&[u8]> {
    let mut rest = u32::try_from(pid).ok()?;
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return Some(&digits[at..]);
        }
    }
}
