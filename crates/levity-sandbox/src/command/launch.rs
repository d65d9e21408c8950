//! System calls that have no safe form: calls that start processes, and calls that drop their
//! rights.
//!
//! Everything here may be called between `clone` and `exec` in a child of a process with many
//! threads: nothing allocates, locks or panics.
#![expect(unsafe_code, reason = "code between clone and exec has no safe form")]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::{io, mem, ptr};

use libc::{c_char, c_int, c_long, c_ulong};
use rustix::io::Errno;
use seccompiler::sock_filter;

pub(super) type Sys<T> = Result<T, Errno>;

fn check(result: c_long) -> Sys<c_long> {
    if result < 0 {
        let code = io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(result)
}

/// Strings in the form that `execve` requires.
pub(super) struct Strings {
    // The pointers point into these strings.
    _owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers point into strings that are owned and never changed.
unsafe impl Send for Strings {}

impl Strings {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        let ends = std::iter::once(ptr::null());
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain(ends)
            .collect();
        Self {
            _owned: strings,
            pointers,
        }
    }
}

/// Ends the child in every case: it must not return, or unwind, into the host's code.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        exit(126);
    }
}

/// Starts a child with a copy of this process's memory, which runs `work` and ends.
///
/// `work` must follow the rules of this module. `flags` are those of `clone`, and must not share
/// memory.
pub(super) fn spawn<T>(flags: c_int, with: &mut T, work: fn(&mut T) -> !) -> Sys<i32> {
    let flags =
        flags & !(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_SETTLS);
    // SAFETY: without `CLONE_VM` this is a fork; the child continues with a copy of this stack, and
    // never returns from here.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, c_long::from(flags), 0, 0, 0, 0) })?;
    if pid == 0 {
        let _end = ExitOnDrop;
        work(with);
    }
    i32::try_from(pid).map_err(|_| Errno::RANGE)
}

/// Ends this process immediately.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: the call runs no destructor and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Returns the next of these children that has ended; `None` if none has.
pub(super) fn wait(pid: i32, block: bool) -> Sys<Option<(i32, c_int)>> {
    let options = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for a write.
        match check(c_long::from(unsafe {
            libc::waitpid(pid, &raw mut status, options)
        })) {
            Err(Errno::INTR) => {}
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((pid as i32, status))),
            Err(error) => return Err(error),
        }
    }
}

/// Sends a signal, as `kill(2)` does.
pub(super) fn kill(pid: i32, signal: c_int) -> Sys<()> {
    // SAFETY: the call touches no memory.
    check(c_long::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

/// Returns the number of this process's group; `None` if it has none in this process namespace.
pub(super) fn own_group() -> Option<i32> {
    // SAFETY: the call touches no memory.
    Some(unsafe { libc::getpgrp() }).filter(|group| *group > 0)
}

/// Executes another program; returns only on failure.
pub(super) fn exec(program: &CStr, argv: &Strings, envp: &Strings) -> Errno {
    // SAFETY: all strings end with a zero, and both arrays end with a null pointer.
    let result = unsafe {
        libc::execve(
            program.as_ptr(),
            argv.pointers.as_ptr(),
            envp.pointers.as_ptr(),
        )
    };
    check(c_long::from(result)).err().unwrap_or(Errno::IO)
}

/// Closes every descriptor except these, which are in order.
pub(super) fn close_all_except(keep: &[i32]) {
    let mut first = 0;
    for &fd in keep {
        if first < fd {
            close_range(first, fd - 1);
        }
        first = fd + 1;
    }
    close_range(first, i32::MAX);
}

fn close_range(first: c_int, last: c_int) {
    // SAFETY: the caller owns no descriptor except those that it keeps.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // SAFETY: as above; the call touches no memory.
    let max = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(256, 65_536) as c_int;
    for fd in first..=last.min(max) {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Makes `to` a duplicate of `from` that stays open across `exec`.
pub(super) fn duplicate(from: BorrowedFd<'_>, to: c_int) -> Sys<()> {
    // SAFETY: `to` is a descriptor that nothing in this process uses: 0, 1 or 2 of a child.
    check(c_long::from(unsafe { libc::dup2(from.as_raw_fd(), to) })).map(drop)
}

/// Blocks all signals, and returns a descriptor that becomes readable when a child ends.
pub(super) fn child_signals() -> Sys<OwnedFd> {
    // SAFETY: the sets are initialised before they are used, and the descriptor is new.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigfillset(&raw mut set);
        check(c_long::from(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const set,
            ptr::null_mut(),
        )))?;
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        // If the host ignores this signal, children would vanish before they are waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let fd = check(c_long::from(libc::signalfd(
            -1,
            &raw const set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        )))?;
        Ok(OwnedFd::from_raw_fd(fd as c_int))
    }
}

/// Restores the default action of every signal, and unblocks all of them.
pub(super) fn reset_signals() {
    // SAFETY: the set is initialised before it is used; signals that cannot be set are skipped.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
}

/// Returns `true` if the working directory is `root` or lies below it.
pub(super) fn is_within(root: &CStr) -> bool {
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer has the length that is passed.
    if unsafe { libc::getcwd(buffer.as_mut_ptr().cast(), buffer.len()) }.is_null() {
        return false;
    }
    let Ok(here) = CStr::from_bytes_until_nul(&buffer) else {
        return false;
    };
    let rest = here.to_bytes().strip_prefix(root.to_bytes());
    rest.is_some_and(|rest| {
        root.to_bytes() == b"/" || rest.is_empty() || rest.first() == Some(&b'/')
    })
}

fn prctl(option: c_int, value: c_ulong) -> Sys<()> {
    // SAFETY: the options used here take numbers only.
    check(c_long::from(unsafe { libc::prctl(option, value, 0, 0, 0) })).map(drop)
}

/// Prevents programs that are executed from now on from gaining privileges.
pub(super) fn no_new_privileges() -> Sys<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Makes this process the parent of descendants whose parents end.
pub(super) fn adopt_orphans() -> Sys<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Prevents other processes of the same user from reading this process's memory.
pub(super) fn hide_memory() -> Sys<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Kills this process when the thread that started it ends.
pub(super) fn die_with_parent() -> Sys<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong)
}

/// Drops all capabilities except those in the mask.
pub(super) fn keep_capabilities(mask: u64) -> Sys<()> {
    for capability in 0..64 {
        if mask & (1 << capability) == 0 && prctl(libc::PR_CAPBSET_READ, capability).is_ok() {
            // A process that cannot drop a capability from this set cannot use it anyway.
            let _ = prctl(libc::PR_CAPBSET_DROP, capability);
        }
    }
    // Version 3, for this process.
    let header = [0x2008_0522_u32, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: header and sets have the size that version 3 requires.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    // Effective, permitted, inheritable: the low halves, then the high ones.
    let sets = [
        sets[0] & low,
        sets[1] & low,
        0,
        sets[3] & high,
        sets[4] & high,
        0,
    ];
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Returns the kernel's Landlock version; 0 if it is missing or disabled.
pub(super) fn landlock_abi() -> u32 {
    // SAFETY: with this flag the call takes no pointer.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, 1) };
    u32::try_from(abi).unwrap_or(0)
}

/// Allows `access` beneath `duplicate`.
pub(super) fn landlock_allow(
    ruleset: BorrowedFd<'_>,
    duplicate: BorrowedFd<'_>,
    access: u64,
) -> Sys<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        parent: i32,
    }
    let rule = PathBeneath {
        access,
        parent: duplicate.as_raw_fd(),
    };
    // SAFETY: 1 is the rule type of this structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            1,
            &raw const rule,
            0,
        )
    };
    check(result).map(drop)
}

/// Drops all rights that the ruleset does not allow, permanently.
pub(super) fn landlock_enter(ruleset: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: the call takes no pointer.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

/// Installs a filter for all system calls, permanently.
pub(super) fn filter_calls(program: &[sock_filter]) -> Sys<()> {
    #[repr(C)]
    struct Program {
        len: libc::c_ushort,
        filter: *const sock_filter,
    }
    let len = libc::c_ushort::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = Program {
        len,
        filter: program.as_ptr(),
    };
    // SAFETY: the program is valid for the duration of the call.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
            0,
            0,
        )
    };
    check(c_long::from(result)).map(drop)
}

/// Attributes of a mount: `MOUNT_READ_ONLY` refuses all writes; `MOUNT_QUIET` also refuses
/// set-user-ID programs, devices and program execution.
pub(super) const MOUNT_READ_ONLY: u64 = 1;
pub(super) const MOUNT_QUIET: u64 = 0xF;

/// Makes a mount and all mounts below it read-only.
pub(super) fn make_read_only(path: &CStr) -> Sys<()> {
    set_mount(libc::AT_FDCWD, path, 0, MOUNT_READ_ONLY)
}

/// Sets attributes of an open mount, and of all mounts below it.
pub(super) fn restrict_mount(mount: BorrowedFd<'_>, attributes: u64) -> Sys<()> {
    set_mount(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, attributes)
}

fn set_mount(at: c_int, path: &CStr, flags: c_int, set: u64) -> Sys<()> {
    const RECURSIVE: c_int = 0x8000;
    // The attributes to set, the attributes to clear, and two unused fields.
    let attributes = [set, 0, 0, 0];
    let size = size_of_val(&attributes);
    // SAFETY: the path ends with a zero, and the attributes have the size that is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            RECURSIVE | flags,
            attributes.as_ptr(),
            size,
        )
    };
    check(result).map(drop)
}

/// Enables the loopback device of this network namespace.
pub(super) fn loopback_up() -> Sys<()> {
    // SAFETY: the request is initialised, names a device and ends with a zero; the descriptor is
    // new.
    unsafe {
        let fd = check(c_long::from(libc::socket(
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        )))?;
        let fd = OwnedFd::from_raw_fd(fd as c_int);
        let mut request: libc::ifreq = mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as c_char, b'o' as c_char]);
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        check(c_long::from(libc::ioctl(
            fd.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )))
        .map(drop)
    }
}

/// Returns `true` if a port of the loopback address accepts a connection.
pub(super) fn connects(port: u16) -> bool {
    // SAFETY: the address is initialised and has the length that is passed; the descriptor is new.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return false;
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let length = size_of_val(&address) as libc::socklen_t;
        libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) == 0
    }
}

/// Returns `true` if a socket of the file system can be reached, from a new socket or from one end
/// of a pair.
pub(super) fn reaches_socket(path: &CStr) -> bool {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    let bytes = path.to_bytes();
    if bytes.len() >= address.sun_path.len() {
        return false;
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as c_char;
    }
    let length = size_of_val(&address) as libc::socklen_t;
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let mut ends = [-1; 4];
    // SAFETY: the ends are valid for writes, the address is initialised and has the length that is
    // passed, and all opened descriptors are closed here.
    unsafe {
        ends[0] = libc::socket(libc::AF_UNIX, kind, 0);
        libc::socketpair(libc::AF_UNIX, kind, 0, ends[1..].as_mut_ptr());
        let connects =
            |fd: &c_int| *fd >= 0 && libc::connect(*fd, (&raw const address).cast(), length) == 0;
        let reached = ends.iter().any(connects);
        for fd in ends.into_iter().filter(|fd| *fd >= 0) {
            libc::close(fd);
        }
        reached
    }
}

/// Returns `true` if this much memory can be mapped.
pub(super) fn can_map(bytes: u64) -> bool {
    let Ok(length) = usize::try_from(bytes) else {
        return false;
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping overlaps no other, and is only unmapped again.
    unsafe {
        let address = libc::mmap(ptr::null_mut(), length, access, flags, -1, 0);
        address != libc::MAP_FAILED && libc::munmap(address, length) == 0
    }
}

/// Leaves the session, if the filters allow it: they may let the call succeed without an effect,
/// and then it returns 0, which is no number of a session.
pub(super) fn try_leave_session() {
    // SAFETY: the call touches no memory.
    unsafe { libc::setsid() };
}

/// Waits for a signal that ends this process.
pub(super) fn pause() -> ! {
    loop {
        // SAFETY: the call touches no memory.
        unsafe { libc::pause() };
    }
}

/// Returns the milliseconds of a monotonic clock.
pub(super) fn millis() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for a write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Returns the CPU time of the children that were waited for, in milliseconds.
pub(super) fn children_cpu() -> u64 {
    // SAFETY: zeros are a valid value, and `usage` is valid for a write.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let millis = |time: libc::timeval| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000;
    millis(usage.ru_utime) + millis(usage.ru_stime)
}

/// Schedules this process, and not its children, soon after it wakes, as far as that is allowed.
/// Otherwise a bomb of a thousand processes would make it wait in line. Returns `true` if it takes
/// precedence over all others.
pub(super) fn raise_priority() -> bool {
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const NOT_FOR_CHILDREN: u64 = 1;
    let real_time = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_FIFO as u32,
        flags: NOT_FOR_CHILDREN,
        nice: 0,
        priority: 1,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // A short time slice leads to early scheduling.
    let short = Attributes {
        policy: libc::SCHED_OTHER as u32,
        priority: 0,
        runtime: 100_000,
        ..real_time
    };
    // SAFETY: the attributes have the size that they state.
    let set = |attributes: &Attributes| unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(attributes), 0) == 0
    };
    let first = set(&real_time);
    if !first {
        set(&short);
    }
    first
}

/// Returns the number of processes and threads of the system, modulo 65536.
pub(super) fn tasks() -> u16 {
    // SAFETY: zeros are a valid value, and `info` is valid for a write.
    unsafe {
        let mut info: libc::sysinfo = mem::zeroed();
        libc::sysinfo(&raw mut info);
        info.procs
    }
}

/// Returns the bytes of memory that belong to files without a disk, mapped or not, on the whole
/// system.
pub(super) fn shared_memory() -> u64 {
    // SAFETY: zeros are a valid value, and `info` is valid for a write.
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types differ between machines"
    )]
    unsafe {
        let mut info: libc::sysinfo = mem::zeroed();
        libc::sysinfo(&raw mut info);
        (info.sharedram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
    }
}

/// Returns the clock ticks per second, and the size of a page.
pub(super) fn units() -> (u64, u64) {
    // SAFETY: the call touches no memory.
    let (ticks, page) = unsafe {
        (
            libc::sysconf(libc::_SC_CLK_TCK),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    (
        u64::try_from(ticks).unwrap_or(100).max(1),
        u64::try_from(page).unwrap_or(4096).max(1),
    )
}
