use std::ffi::CStr;
use std::mem::MaybeUninit;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat, readlinkat_raw};
use rustix::io::{Errno, read};

/// With more processes on the system than this, the rest is not seen. It is more than Linux has by default.
const MOST: usize = 65_536;

/// The processes below one process, read from `/proc` without allocating.
#[derive(Debug)]
pub(super) struct Census {
    all: Vec<Seen>,
    ticks: u64,
    page: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    pid: i32,
    parent: i32,
    alive: bool,
    ours: bool,
    threads: u32,
    ticks: u64,
    pages: u64,
}

/// All processes of a command together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) count: u32,
    pub(super) threads: u32,
    pub(super) cpu_ms: u64,
    pub(super) memory: u64,
}

impl Census {
    pub(super) fn new((ticks, page): (u64, u64)) -> Self {
        Self { all: Vec::with_capacity(MOST), ticks, page }
    }

    /// This process, as `/proc` calls it.
    pub(super) fn own_pid() -> Result<i32, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 32];
        let (name, _) = readlinkat_raw(CWD, c"/proc/self", &mut buffer)?;
        number(name).and_then(|pid| i32::try_from(pid).ok()).ok_or(Errno::INVAL)
    }

    /// Looks at all processes, and finds those below `root`. `meet` is called with each of them as soon as it is
    /// found.
    ///
    /// The system lists processes in the order of their numbers, and those that begin meanwhile at the end. So what
    /// is stopped when it is met cannot run away: the list is read faster than processes are made.
    pub(super) fn take(&mut self, root: i32, meet: fn(i32)) -> Result<Sum, Errno> {
        self.list(root, meet)?;
        self.mark(root, meet);
        let mut sum = Sum::default();
        for seen in self.all.iter().filter(|seen| seen.ours) {
            sum.count += u32::from(seen.alive);
            sum.threads += seen.threads;
            sum.cpu_ms += seen.ticks * 1000 / self.ticks;
            sum.memory += seen.pages * self.page;
        }
        Ok(sum)
    }

    /// The processes that were found below the root and are alive.
    pub(super) fn alive(&self) -> impl Iterator<Item = i32> + '_ {
        self.all.iter().filter(|seen| seen.ours && seen.alive).map(|seen| seen.pid)
    }

    /// The memory of those that were found; what they share is counted once, where the system tells.
    pub(super) fn memory(&self) -> u64 {
        let of = |seen: &Seen| share(seen.pid).unwrap_or(seen.pages * self.page);
        self.all.iter().filter(|seen| seen.ours && seen.alive).map(of).sum()
    }

    /// Returns whether one of those that were found has shared memory, or may have.
    pub(super) fn share_memory(&self) -> bool {
        self.all.iter().any(|seen| seen.ours && seen.alive && has_shared_memory(seen.pid))
    }

    fn list(&mut self, root: i32, meet: fn(i32)) -> Result<(), Errno> {
        self.all.clear();
        let folder =
            openat(CWD, c"/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let Some(pid) = number(entry?.file_name().to_bytes()).and_then(|pid| i32::try_from(pid).ok())
            else {
                continue;
            };
            // One that has ended since is not missed.
            let Some(mut seen) = look(pid).filter(|_| self.all.len() < MOST) else { continue };
            seen.ours = seen.parent == root || self.is_ours(seen.parent);
            if seen.ours {
                meet(pid);
            }
            self.all.push(seen);
        }
        Ok(())
    }

    /// Whose parent is ours is ours, also when the parent's number is the higher one.
    fn mark(&mut self, root: i32, meet: fn(i32)) {
        loop {
            let mut changed = false;
            for at in 0..self.all.len() {
                let seen = self.all[at];
                if !seen.ours && (seen.parent == root || self.is_ours(seen.parent)) {
                    self.all[at].ours = true;
                    meet(seen.pid);
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn is_ours(&self, pid: i32) -> bool {
        self.all.binary_search_by_key(&pid, |seen| seen.pid).is_ok_and(|at| self.all[at].ours)
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn look(pid: i32) -> Option<Seen> {
    let mut buffer = [0; 1024];
    let stat = file(pid, c"stat", &mut buffer)?;
    // The name, in brackets, may have anything in it.
    let rest = &stat[stat.iter().rposition(|byte| *byte == b')')? + 2..];
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
    let alive = !matches!(state, b"Z" | b"X" | b"x");
    Some(Seen { pid, parent, alive, ours: false, threads, ticks, pages })
}

/// What a process has of memory, and its share of what it has with others, in bytes.
fn share(pid: i32) -> Option<u64> {
    let mut buffer = [0; 2048];
    let text = file(pid, c"smaps_rollup", &mut buffer)?;
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Pss:"))?;
    let digits =
        line.split(|byte| *byte == b' ').find(|field| field.first().is_some_and(u8::is_ascii_digit))?;
    Some(number(digits)? << 10)
}

/// Returns whether a process has memory mapped that others can share and that is in no file with a name; also if that is not known.
fn has_shared_memory(pid: i32) -> bool {
    const SHARED: &[u8] = b"/dev/zero (deleted)\n";
    let mut path = [0_u8; 64];
    let Some(path) = path_of(pid, c"maps", &mut path) else { return true };
    let fd = match openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::SRCH) => return false,
        Err(_) => return true,
        Ok(fd) => fd,
    };
    let mut buffer = [0; 8192];
    // What was read last may be the beginning of a match.
    let mut kept = 0;
    loop {
        match read(&fd, &mut buffer[kept..]) {
            Ok(0) | Err(Errno::SRCH) => return false,
            Err(Errno::INTR) => {}
            Err(_) => return true,
            Ok(more) => {
                let end = kept + more;
                if buffer[..end].windows(SHARED.len()).any(|part| part == SHARED) {
                    return true;
                }
                kept = end.min(SHARED.len() - 1);
                buffer.copy_within(end - kept..end, 0);
            }
        }
    }
}

/// The beginning of a file of a process.
fn file<'a>(pid: i32, name: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0_u8; 64];
    let path = path_of(pid, name, &mut path)?;
    let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut length = 0;
    while length < buffer.len() {
        match read(&fd, &mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(&buffer[..length])
}

/// `/proc/<pid>/<name>`, without allocating.
fn path_of<'a>(pid: i32, name: &CStr, buffer: &'a mut [u8; 64]) -> Option<&'a CStr> {
    let mut digits = [0_u8; 10];
    let mut at = digits.len();
    let mut left = u32::try_from(pid).ok()?;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let mut end = 0;
    for part in [&b"/proc/"[..], &digits[at..], b"/", name.to_bytes_with_nul()] {
        buffer.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    CStr::from_bytes_with_nul(&buffer[..end]).ok()
}
