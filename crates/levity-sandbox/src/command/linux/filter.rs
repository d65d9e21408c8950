//! Filters for system calls, which close what namespaces and Landlock leave open.
//!
//! Three programs are loaded, in this order: one denies calls, one reports calls as missing so that
//! programs fall back to older ones, and one lets calls succeed without an effect. Filters see
//! numbers and not the memory behind pointers, so a call whose arguments cannot be judged is denied
//! or reported as missing, whatever they are.
//!
//! The rules are a list of what is denied. Landlock denies by default what it knows; the filters
//! cover calls that it does not know, and whatever needs no file at all.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::job::Mechanisms;
use crate::command::builder::Network;
use crate::command::launch;

/// Placeholders in a program for the watcher's pid, and for its group, which are known only in the
/// child.
const WATCHER: u32 = 0x7A5A_11ED;
const WATCHER_GROUP: u32 = 0x7A5A_11EE;

/// Constants that are the same on all machines with seccomp. In `libc`, their types differ.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// The `seccomp` flag for a filter that reports calls to a listener.
const NEW_LISTENER: u64 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;

/// The first and the last request for terminals, pipes and sockets. No file system uses this range.
const TERMINAL: (u64, u64) = (0x5400, 0x54FF);
/// Requests to file systems that only query: the size of a block, flags, extents and attributes.
const QUERIES: [u64; 4] = [0x0002, 0x8008_6601, 0xC020_660B, 0x801C_581F];

/// The request type (second byte) of Btrfs, which has snapshots and subvolumes.
const BTRFS: u64 = 0x94;
/// The requests of this type that all file systems support, since they share contents of two open
/// files: FICLONE, FICLONERANGE and FIDEDUPERANGE.
const SHARING: [u64; 3] = [0x4004_9409, 0x4020_940D, 0xC018_9436];
/// The request types of bcachefs, which has the same features, and of OCFS2, which copies a file by
/// its path.
const OTHER_SNAPSHOTS: [u64; 2] = [0xBC, 0x6F];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the filters of a command; `None` if this machine is not supported.
pub(super) fn filters(mechanisms: &Mechanisms, network: Network) -> Option<Vec<BpfProgram>> {
    programs(mechanisms, denied(mechanisms, network)?)
}

/// Returns the filters of a read-only command. They also deny the network, and changes of modes,
/// owners, times and attributes, which Landlock does not cover.
pub(super) fn read_only_filters(mechanisms: &Mechanisms) -> Option<Vec<BpfProgram>> {
    let mut denied = denied(
        &Mechanisms {
            own_network: false,
            ..*mechanisms
        },
        Network::None,
    )?;
    denied.extend(calls(&CHANGES));
    #[cfg(target_arch = "x86_64")]
    denied.extend(calls(&OLD_CHANGES));
    file_requests(&mut denied)?;
    programs(mechanisms, denied)
}

/// Denies requests to file systems. They change flags, versions and keys of files that are open for
/// reading. Each file system has its own requests, and new ones appear. So only requests that are
/// known to be harmless are allowed.
fn file_requests(rules: &mut Rules) -> Option<()> {
    for outside in [
        (SeccompCmpOp::Lt, TERMINAL.0),
        (SeccompCmpOp::Gt, TERMINAL.1),
    ] {
        let asking = QUERIES.map(|request| (SeccompCmpOp::Ne, request));
        let condition =
            |(op, value)| SeccompCondition::new(1, SeccompCmpArgLen::Dword, op, value).ok();
        let conditions = [outside]
            .into_iter()
            .chain(asking)
            .map(condition)
            .collect::<Option<Vec<_>>>()?;
        rules
            .entry(libc::SYS_ioctl)
            .or_default()
            .push(SeccompRule::new(conditions).ok()?);
    }
    Some(())
}

/// Compiles the rules for this machine; `None` on an architecture without seccomp support.
fn programs(mechanisms: &Mechanisms, denied: Rules) -> Option<Vec<BpfProgram>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    // The last program handles `seccomp` itself, so no program can be loaded after it.
    let kinds = [
        (denied, libc::EACCES),
        (calls(&MISSING), libc::ENOSYS),
        (no_op_calls(mechanisms)?, 0),
    ];
    let mut programs = Vec::new();
    for (rules, errno) in kinds {
        let action = SeccompAction::Errno(errno as u32);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).ok()?;
        programs.push(with_one_abi(BpfProgram::try_from(filter).ok()?));
    }
    Some(programs)
}

/// Writes the pid of the watcher, which is this process's parent, into the programs. Runs in the
/// child.
pub(super) fn name_watcher(programs: &mut [Vec<sock_filter>]) {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    for instruction in programs.iter_mut().flatten() {
        match instruction.k {
            WATCHER => instruction.k = parent as u32,
            WATCHER_GROUP => instruction.k = parent.wrapping_neg() as u32,
            _ => {}
        }
    }
}

/// Kills x32 calls: on x86-64 they have other numbers, which no rule would match.
fn with_one_abi(program: BpfProgram) -> BpfProgram {
    if !cfg!(target_arch = "x86_64") {
        return program;
    }
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const KILL_PROCESS: u32 = 0x8000_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut all = vec![
        instruction(LOAD_NUMBER, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 0, 1, 0x4000_0000),
        instruction(RETURN, 0, 0, KILL_PROCESS),
    ];
    all.extend(program);
    all
}

/// Returns rules that match the calls whatever their arguments are.
fn calls(calls: &[c_long]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Returns the calls that fail with `EACCES` for every command.
fn denied(mechanisms: &Mechanisms, network: Network) -> Option<Rules> {
    let mut rules = calls(&ALWAYS);
    sockets(&mut rules, mechanisms, network)?;
    namespaces(&mut rules)?;
    other_processes(&mut rules, mechanisms.is_isolated())?;
    // These requests type characters into a terminal.
    add_rule_if(&mut rules, libc::SYS_ioctl, 1, SeccompCmpOp::Eq, TIOCSTI)?;
    add_rule_if(&mut rules, libc::SYS_ioctl, 1, SeccompCmpOp::Eq, TIOCLINUX)?;
    snapshots(&mut rules)?;
    add_rule_if(
        &mut rules,
        libc::SYS_seccomp,
        1,
        SeccompCmpOp::MaskedEq(NEW_LISTENER),
        NEW_LISTENER,
    )?;
    // A lease on a file makes every other process that opens it wait. A delegation is a lease that
    // also covers folders.
    const F_SETDELEG: i32 = 1040;
    for command in [libc::F_SETLEASE, F_SETDELEG] {
        add_rule_if(
            &mut rules,
            libc::SYS_fcntl,
            1,
            SeccompCmpOp::Eq,
            command as u64,
        )?;
    }
    set_user_id(&mut rules)?;
    if mechanisms.landlock < 3 {
        // Before its third version, Landlock allows truncating a file by its path.
        rules.insert(libc::SYS_truncate, Vec::new());
    }
    rules.extend(calls(&OBJECTS));
    socket_programs(&mut rules)?;
    if !mechanisms.is_isolated() {
        signals(&mut rules)?;
    }
    Some(rules)
}

/// Denies programs that filter the packets of a socket. The kernel counts them for no process, and
/// freeing thousands of them at once can block the whole machine.
fn socket_programs(rules: &mut Rules) -> Option<()> {
    for option in [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ] {
        add_rule_if_both(
            rules,
            libc::SYS_setsockopt,
            [
                (1, SeccompCmpOp::Eq, libc::SOL_SOCKET as u64),
                (2, SeccompCmpOp::Eq, option as u64),
            ],
        )?;
    }
    Some(())
}

/// Returns the calls that succeed without an effect.
///
/// A command loads no filters: each is a program in the kernel, like those of sockets. Tools such
/// as `file` refuse to work if their filter is denied, so the call succeeds instead; the command
/// stays under the filters of the sandbox. A filter with a listener returns a descriptor and is
/// denied.
///
/// Without its own namespace, a command also stays in one process group, which the kernel stops and
/// kills at once, however fast it grows.
fn no_op_calls(mechanisms: &Mechanisms) -> Option<Rules> {
    let mut rules = if mechanisms.is_isolated() {
        Rules::new()
    } else {
        calls(&[libc::SYS_setsid, libc::SYS_setpgid])
    };
    let filter = (SeccompCmpOp::Eq, u64::from(libc::SECCOMP_SET_MODE_FILTER));
    let no_listener = (SeccompCmpOp::MaskedEq(NEW_LISTENER), 0);
    add_rule_if_both(
        &mut rules,
        libc::SYS_seccomp,
        [(0, filter.0, filter.1), (1, no_listener.0, no_listener.1)],
    )?;
    add_rule_if_both(
        &mut rules,
        libc::SYS_prctl,
        [
            (0, SeccompCmpOp::Eq, libc::PR_SET_SECCOMP as u64),
            (1, SeccompCmpOp::Eq, u64::from(libc::SECCOMP_MODE_FILTER)),
        ],
    )?;
    Some(rules)
}

/// Denies requests for snapshots and the like. They show denied files under other names, past
/// mounts and Landlock, and their read-only contents cannot be removed.
fn snapshots(rules: &mut Rules) -> Option<()> {
    let of_type = |kind: u64| (SeccompCmpOp::MaskedEq(0xFF00), kind << 8);
    let other_processes = SHARING.map(|request| (SeccompCmpOp::Ne, request));
    let condition = |(op, value)| SeccompCondition::new(1, SeccompCmpArgLen::Dword, op, value).ok();
    let conditions = [of_type(BTRFS)]
        .into_iter()
        .chain(other_processes)
        .map(condition)
        .collect::<Option<Vec<_>>>()?;
    rules
        .entry(libc::SYS_ioctl)
        .or_default()
        .push(SeccompRule::new(conditions).ok()?);
    for kind in OTHER_SNAPSHOTS {
        let (op, value) = of_type(kind);
        add_rule_if(rules, libc::SYS_ioctl, 1, op, value)?;
    }
    Some(())
}

/// Denies files that run as their owner: other users of the host could find and run them. The flags
/// of `openat2` are behind a pointer, so that call is reported as missing.
fn set_user_id(rules: &mut Rules) -> Option<()> {
    const SET_USER_ID: u64 = 0o4000;
    /// The flag for a file without a name, without the flag for folders that accompanies it.
    const TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
    const FCHMODAT2: c_long = 452;
    let has = |bit: u64| (SeccompCmpOp::MaskedEq(bit), bit);
    let (op, value) = has(SET_USER_ID);
    let mut changes = vec![
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
        (libc::SYS_mknodat, 2),
    ];
    let mut opens = vec![(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    {
        changes.extend([
            (libc::SYS_chmod, 1),
            (libc::SYS_mknod, 1),
            (libc::SYS_creat, 1),
        ]);
        opens.push((libc::SYS_open, 1));
    }
    for (call, mode) in changes {
        add_rule_if(rules, call, mode, op.clone(), value)?;
    }
    for (call, flags) in opens {
        for creating in [libc::O_CREAT as u64, TMPFILE] {
            let (flag, bit) = has(creating);
            add_rule_if_both(
                rules,
                call,
                [(flags, flag, bit), (flags + 1, op.clone(), value)],
            )?;
        }
    }
    Some(())
}

/// Adds a rule that matches if one argument satisfies a comparison, in 32 bits.
fn add_rule_if(
    rules: &mut Rules,
    call: c_long,
    argument: u8,
    op: SeccompCmpOp,
    value: u64,
) -> Option<()> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).ok()?;
    rules
        .entry(call)
        .or_default()
        .push(SeccompRule::new(vec![condition]).ok()?);
    Some(())
}

/// Adds a rule that matches if two arguments satisfy a comparison, in 32 bits.
fn add_rule_if_both(
    rules: &mut Rules,
    call: c_long,
    conditions: [(u8, SeccompCmpOp, u64); 2],
) -> Option<()> {
    let condition = |(argument, op, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).ok()
    };
    let conditions = conditions
        .into_iter()
        .map(condition)
        .collect::<Option<Vec<_>>>()?;
    rules
        .entry(call)
        .or_default()
        .push(SeccompRule::new(conditions).ok()?);
    Some(())
}

/// Restricts the families of sockets. Sockets of the file system reach services of the host, such
/// as Docker's, independently of the network.
fn sockets(rules: &mut Rules, mechanisms: &Mechanisms, network: Network) -> Option<()> {
    pairs(rules)?;
    if network == Network::None && !mechanisms.own_network {
        // Only pairs are available, and those are connected. An end of a pair could still take a
        // name that others know.
        for call in [
            libc::SYS_socket,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_connect,
            libc::SYS_accept,
            libc::SYS_accept4,
        ] {
            rules.insert(call, Vec::new());
        }
        return Some(());
    }
    let mut families = vec![libc::AF_INET, libc::AF_INET6];
    if network == Network::Any {
        families.push(libc::AF_NETLINK);
        // The first protocol reports routes. Others report sockets, devices and processes of the
        // host.
        let routes = (2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64);
        add_rule_if_both(
            rules,
            libc::SYS_socket,
            [(0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64), routes],
        )?;
    }
    let not = |family: i32| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family as u64).ok()
    };
    let other_processes = families.into_iter().map(not).collect::<Option<Vec<_>>>()?;
    rules
        .entry(libc::SYS_socket)
        .or_default()
        .push(SeccompRule::new(other_processes).ok()?);
    // Raw sockets, of any family; the type has flags in its higher bits.
    const PACKET: i32 = 10;
    for kind in [libc::SOCK_RAW, PACKET] {
        add_rule_if(
            rules,
            libc::SYS_socket,
            1,
            SeccompCmpOp::MaskedEq(0xF),
            kind as u64,
        )?;
    }
    Some(())
}

/// Allows pairs of sockets whose ends cannot change: an end of a pair of streams is connected
/// permanently. An end for datagrams can connect or send to any socket that has a name, on the host
/// as well. The same applies to a raw one.
fn pairs(rules: &mut Rules) -> Option<()> {
    add_rule_if(
        rules,
        libc::SYS_socketpair,
        0,
        SeccompCmpOp::Ne,
        libc::AF_UNIX as u64,
    )?;
    // The types are numbers in the lower four bits, of which these two are allowed.
    const ALLOWED: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    for kind in (0..16).filter(|kind| !ALLOWED.contains(kind)) {
        add_rule_if(
            rules,
            libc::SYS_socketpair,
            1,
            SeccompCmpOp::MaskedEq(0xF),
            kind as u64,
        )?;
    }
    Some(())
}

/// Denies new namespaces: in its own namespace a command would have rights that the sandbox
/// removed.
fn namespaces(rules: &mut Rules) -> Option<()> {
    const NEWTIME: i32 = 0x80;
    let flags = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    for flag in flags.map(|flag| flag as u64) {
        add_rule_if(
            rules,
            libc::SYS_clone,
            0,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )?;
        add_rule_if(
            rules,
            libc::SYS_unshare,
            0,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )?;
    }
    // In `clone` this bit is a part of the signal.
    add_rule_if(
        rules,
        libc::SYS_unshare,
        0,
        SeccompCmpOp::MaskedEq(NEWTIME as u64),
        NEWTIME as u64,
    )
}

/// Denies signals to the host, the watcher, and every process.
fn signals(rules: &mut Rules) -> Option<()> {
    let host = rustix::process::getpid().as_raw_nonzero().get();
    // A group that began in another process namespace has no number here, so no process can name
    // it.
    let group = launch::own_group().map(|group| group.wrapping_neg() as u32);
    let masks = [host as u32, -1_i32 as u32, WATCHER, WATCHER_GROUP];
    let calls = [
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
    ];
    for target in masks.into_iter().chain(group) {
        for call in calls {
            add_rule_if(rules, call, 0, SeccompCmpOp::Eq, u64::from(target))?;
        }
    }
    // A readable file can send a signal to its assigned owner.
    const SETSIG: i32 = 10;
    const SETOWN_EX: i32 = 15;
    for command in [libc::F_SETOWN, SETSIG, SETOWN_EX] {
        add_rule_if(rules, libc::SYS_fcntl, 1, SeccompCmpOp::Eq, command as u64)?;
    }
    for request in [FIOSETOWN, SIOCSPGRP] {
        add_rule_if(rules, libc::SYS_ioctl, 1, SeccompCmpOp::Eq, request)?;
    }
    rules.insert(libc::SYS_pidfd_send_signal, Vec::new());
    rules.insert(libc::SYS_rt_tgsigqueueinfo, Vec::new());
    Some(())
}

/// Denies calls that change another process: its priority, its limits, where it runs and where its
/// memory is. A command that makes the watcher wait outruns it. Without a namespace, all processes
/// of the user are in reach.
///
/// In its own namespace, a command owns all processes except the first, which is the watcher.
/// Elsewhere a program may change itself, which is number 0, and no process by its number.
fn other_processes(rules: &mut Rules, is_isolated: bool) -> Option<()> {
    const WATCHER_IN_NAMESPACE: u64 = 1;
    let target = if is_isolated {
        (SeccompCmpOp::Eq, WATCHER_IN_NAMESPACE)
    } else {
        (SeccompCmpOp::Ne, 0)
    };
    for call in [
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
    ] {
        add_rule_if(rules, call, 0, target.0.clone(), target.1)?;
    }
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
        libc::SYS_get_robust_list,
    ] {
        add_rule_if(rules, call, 0, SeccompCmpOp::Ne, 0)?;
    }
    // The first argument selects a process, a group, or all processes of a user.
    for (call, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        let user = process + 2;
        let kind = if is_isolated {
            (SeccompCmpOp::Eq, user)
        } else {
            (SeccompCmpOp::Ne, process)
        };
        add_rule_if(rules, call, 0, kind.0, kind.1)?;
        add_rule_if(rules, call, 1, target.0.clone(), target.1)?;
    }
    // This call selects which processes may share a core.
    const PR_SCHED_CORE: u64 = 62;
    add_rule_if(rules, libc::SYS_prctl, 0, SeccompCmpOp::Eq, PR_SCHED_CORE)
}

/// Calls that are reported as missing; programs have an alternative for each.
const MISSING: [c_long; 13] = [
    // Its flags are behind a pointer, which a filter cannot follow.
    libc::SYS_clone3,
    // It performs the work of other calls, past their filters.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory that belongs to no process is counted for none.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_vmsplice,
    // Rule sets and queues of the kernel, whose memory is counted for no process.
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_io_setup,
    // Its flags are also behind a pointer.
    libc::SYS_openat2,
];

/// Calls for System V objects and for message queues. Their memory is counted for no process, so it
/// is outside the memory limit. Without a namespace they also outlive the command, and the objects
/// of other processes can be reached by guessing their numbers.
const OBJECTS: [c_long; 12] = [
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that change the metadata of a file. Some have the same number on all machines.
const CHANGES: [c_long; 15] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // `fchmodat2`, `setxattrat`, `removexattrat` and `file_setattr`.
    452,
    463,
    466,
    469,
];

/// Older forms of these calls, which only older machines have.
#[cfg(target_arch = "x86_64")]
const OLD_CHANGES: [c_long; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];

/// Calls that no command needs, and that could be used to escape, or to attack other processes.
const ALWAYS: [c_long; 47] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    // `open_tree_attr`, which has this number on all machines.
    467,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];
