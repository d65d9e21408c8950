//! Attempts to leave the sandbox, on every combination of mechanisms.

use levity_sandbox::{Exit, SandboxReport};

use super::DISABLED;
use super::fixture::Fixture;

/// The protection that must be enforced for an attack to fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Needs {
    /// No protection: the command only has to run.
    Nothing,
    /// Files outside cannot be read.
    Files,
    /// Files outside cannot be changed, not even their modes.
    Mounts,
    Network,
    Seccomp,
    /// Other processes are out of reach.
    Others,
    /// The watcher of the command is out of reach.
    Watcher,
}

pub(super) fn holds(report: &SandboxReport, needs: Needs) -> bool {
    let by = |name: &str| {
        report
            .protections()
            .iter()
            .any(|(_, guard)| guard.mechanisms.iter().any(|how| how.to_string() == name))
    };
    match needs {
        Needs::Nothing => true,
        Needs::Files => report.files.is_enforced,
        Needs::Mounts => report.files.is_enforced && report.files.note.is_none(),
        Needs::Network => report.network.is_enforced,
        Needs::Seccomp => by("seccomp"),
        Needs::Others => report.other_processes.is_enforced,
        Needs::Watcher => report.processes.is_enforced,
    }
}

/// A name, the required protection, and a line that writes `ESCAPED` if it escaped. `$OUT` is a
/// folder outside.
const LINES: &[(&str, Needs, &str)] = &[
    (
        "read by an absolute path",
        Needs::Files,
        "cat $OUT/secret && echo ESCAPED",
    ),
    (
        "read by dots",
        Needs::Files,
        "cat ../outside/secret && echo ESCAPED",
    ),
    (
        "read through a new link",
        Needs::Files,
        "ln -s $OUT/secret link; cat link && echo ESCAPED",
    ),
    (
        "read through a linked folder",
        Needs::Files,
        "ln -s $OUT there; cat there/secret && echo ESCAPED",
    ),
    (
        "read through a hard link",
        Needs::Files,
        "ln $OUT/secret hard && cat hard && echo ESCAPED",
    ),
    (
        "read by /proc/self/root",
        Needs::Files,
        "cat /proc/self/root$OUT/secret && echo ESCAPED",
    ),
    (
        "read by /proc/self/cwd",
        Needs::Files,
        "cat /proc/self/cwd/../outside/secret && echo ESCAPED",
    ),
    (
        "read by /dev/fd",
        Needs::Files,
        "exec 3< $OUT/secret; cat /dev/fd/3 && echo ESCAPED",
    ),
    (
        "list a folder outside",
        Needs::Files,
        "ls $OUT && echo ESCAPED",
    ),
    ("list the root", Needs::Files, "ls / && echo ESCAPED"),
    ("list homes", Needs::Files, "ls /home /root && echo ESCAPED"),
    (
        "go up and list",
        Needs::Files,
        "cd ../outside && ls && echo ESCAPED",
    ),
    (
        "read passwords",
        Needs::Files,
        "cat /etc/shadow /etc/sudoers && echo ESCAPED",
    ),
    (
        "read private keys",
        Needs::Files,
        "ls /etc/ssl/private && echo ESCAPED",
    ),
    (
        "read the kernel's log",
        Needs::Files,
        "head -c 1 /dev/kmsg && echo ESCAPED",
    ),
    (
        "read memory",
        Needs::Files,
        "head -c 1 /dev/mem && echo ESCAPED",
    ),
    (
        "read a disk",
        Needs::Files,
        "for d in /dev/vda /dev/sda /dev/nvme0n1; do head -c 1 $d && echo ESCAPED; done",
    ),
    (
        "write a new file",
        Needs::Files,
        "echo x > $OUT/new && echo ESCAPED",
    ),
    (
        "overwrite a file",
        Needs::Files,
        "echo x > $OUT/secret && echo ESCAPED",
    ),
    (
        "append through a link",
        Needs::Files,
        "ln -s $OUT/secret a; echo x >> a && echo ESCAPED",
    ),
    (
        "remove a file",
        Needs::Files,
        "rm -f $OUT/secret && echo ESCAPED",
    ),
    (
        "move a file out",
        Needs::Files,
        "touch f; mv f $OUT/f && echo ESCAPED",
    ),
    (
        "move a file in",
        Needs::Files,
        "mv $OUT/secret in && echo ESCAPED",
    ),
    (
        "make a folder",
        Needs::Files,
        "mkdir $OUT/new && echo ESCAPED",
    ),
    (
        "remove a folder",
        Needs::Files,
        "rmdir $OUT/folder && echo ESCAPED",
    ),
    (
        "make a link outside",
        Needs::Files,
        "ln -s x $OUT/link && echo ESCAPED",
    ),
    (
        "make a pipe outside",
        Needs::Files,
        "mkfifo $OUT/pipe && echo ESCAPED",
    ),
    (
        "write to shared memory",
        Needs::Files,
        "echo x > /dev/shm/levity-$$ && rm /dev/shm/levity-$$; echo ESCAPED-$?| grep D-0 && echo \
            ESCAPED",
    ),
    (
        "write to the temporary folder",
        Needs::Files,
        "touch /tmp/levity-$MARK && rm /tmp/levity-$MARK && echo ESCAPED",
    ),
    (
        "write to a program",
        Needs::Files,
        "true >> /bin/true && echo ESCAPED",
    ),
    (
        "write to the kernel's settings",
        Needs::Files,
        "cat /proc/sys/kernel/hostname > /proc/sys/kernel/hostname && echo ESCAPED",
    ),
    (
        "write to devices' settings",
        Needs::Files,
        "echo > /sys/kernel/uevent_helper && echo ESCAPED",
    ),
    (
        "change a mode outside",
        Needs::Mounts,
        "chmod 600 $OUT/secret && echo ESCAPED",
    ),
    (
        "change a time outside",
        Needs::Mounts,
        "touch -d 2001-01-01 $OUT/secret && echo ESCAPED",
    ),
    (
        "change an owner outside",
        Needs::Mounts,
        "chown 1:1 $OUT/secret && echo ESCAPED",
    ),
    (
        "read the host's environment",
        Needs::Others,
        "cat /proc/$HOST/environ && echo ESCAPED",
    ),
    (
        "read the host's arguments",
        Needs::Others,
        "cat /proc/$HOST/cmdline && echo ESCAPED",
    ),
    (
        "read the watcher's environment",
        Needs::Others,
        "cat /proc/$PPID/environ && echo ESCAPED",
    ),
    (
        "read the watcher's arguments",
        Needs::Others,
        "cat /proc/$PPID/cmdline && echo ESCAPED",
    ),
    (
        "read the watcher's memory",
        Needs::Others,
        "head -c 1 /proc/$PPID/mem && echo ESCAPED",
    ),
    (
        "read the watcher's files",
        Needs::Others,
        "ls -l /proc/$PPID/fd/ && echo ESCAPED",
    ),
    (
        "see other processes",
        Needs::Others,
        "for p in /proc/[0-9]*/cmdline; do cat $p; done 2>/dev/null | tr '\\0' ' ' | grep -q \
            [i]t-&& echo ESCAPED",
    ),
    (
        "signal the host",
        Needs::Others,
        "kill -0 $HOST && echo ESCAPED",
    ),
    (
        "signal the watcher",
        Needs::Watcher,
        "kill -9 $PPID; kill -TERM $PPID; sleep 0.1",
    ),
    (
        "stop the watcher",
        Needs::Watcher,
        "kill -STOP $PPID; sleep 0.1; exit 3",
    ),
    (
        "signal the first process",
        Needs::Others,
        "[ $PPID != 1 ] && kill -0 1 && echo ESCAPED",
    ),
    (
        "open the terminal",
        Needs::Nothing,
        "sh -c ': < /dev/tty' && echo ESCAPED",
    ),
    (
        "ask for the terminal",
        Needs::Nothing,
        "tty && echo ESCAPED",
    ),
    (
        "make a device",
        Needs::Nothing,
        "mknod device c 1 1 && echo ESCAPED",
    ),
    (
        "become somebody else",
        Needs::Nothing,
        "perl -e '$) = $( = 1; $> = $< = 1; exit($> == 1 && $< == 1 ? 0 : 1)' && echo ESCAPED",
    ),
    (
        "a user namespace",
        Needs::Seccomp,
        "unshare -Ur true && echo ESCAPED",
    ),
    (
        "a mount namespace",
        Needs::Seccomp,
        "unshare -m true && echo ESCAPED",
    ),
    (
        "a mount",
        Needs::Seccomp,
        "mount -t tmpfs none . && echo ESCAPED",
    ),
    (
        "a mount taken away",
        Needs::Seccomp,
        "umount -l /proc && echo ESCAPED",
    ),
    (
        "another root",
        Needs::Seccomp,
        "chroot . true && echo ESCAPED",
    ),
    (
        "another namespace",
        Needs::Others,
        "nsenter -t 1 -m true && echo ESCAPED",
    ),
    (
        "the host's limits",
        Needs::Others,
        "prlimit --pid $HOST --nofile=1:1 && echo ESCAPED",
    ),
    (
        "names",
        Needs::Network,
        "getent hosts example.com && echo ESCAPED",
    ),
    (
        "a higher limit",
        Needs::Nothing,
        "ulimit -f unlimited && echo ESCAPED",
    ),
];

/// Perl code, which makes system calls more directly.
const PERL: &[(&str, Needs, &str)] = &[
    (
        "empty a file by its path",
        Needs::Files,
        "truncate(\"$ENV{OUT}/secret\", 0) && print 'ESCAPED'",
    ),
    (
        "empty a file by opening it",
        Needs::Files,
        "use Fcntl; sysopen(F, \"$ENV{OUT}/secret\", O_RDONLY|O_TRUNC) && print 'ESCAPED'",
    ),
    (
        "TCP to the host",
        Needs::Network,
        "use Socket; socket(S,PF_INET,SOCK_STREAM,0) && \
            connect(S,sockaddr_in($ENV{TCP},INADDR_LOOPBACK)) && print 'ESCAPED'",
    ),
    (
        "UDP to the host",
        Needs::Network,
        "use Socket; socket(S,PF_INET,SOCK_DGRAM,0) && \
            send(S,'x',0,sockaddr_in($ENV{UDP},INADDR_LOOPBACK)); ",
    ),
    (
        "TCP to an address",
        Needs::Network,
        "use Socket; alarm 5; socket(S,PF_INET,SOCK_STREAM,0) && \
            connect(S,sockaddr_in(80,inet_aton('1.1.1.1'))) && print 'ESCAPED'",
    ),
    (
        "IPv6",
        Needs::Network,
        "use Socket; alarm 5; socket(S,PF_INET6,SOCK_STREAM,0) && \
            connect(S,pack_sockaddr_in6(80,inet_pton(AF_INET6,'2606:4700::1111'))) && print \
            'ESCAPED'",
    ),
    (
        "raw packets",
        Needs::Network,
        "use Socket; socket(S,PF_INET,SOCK_RAW,1) && print 'ESCAPED'",
    ),
    (
        "packets of the device",
        Needs::Network,
        "use Socket; socket(S,17,SOCK_RAW,0) && print 'ESCAPED'",
    ),
    (
        "a socket to the hypervisor",
        Needs::Network,
        "use Socket; socket(S,40,SOCK_STREAM,0) && print 'ESCAPED'",
    ),
    (
        "a socket to the kernel",
        Needs::Network,
        "use Socket; socket(S,16,SOCK_RAW,0) && print 'ESCAPED'",
    ),
    (
        "a socket for ciphers",
        Needs::Network,
        "use Socket; socket(S,38,SOCK_SEQPACKET,0) && print 'ESCAPED'",
    ),
    (
        "a service's socket",
        Needs::Network,
        "use Socket; socket(S,PF_UNIX,SOCK_STREAM,0) && \
            connect(S,sockaddr_un(\"$ENV{OUT}/socket\")) && print 'ESCAPED'",
    ),
    (
        "a socket without a file",
        Needs::Network,
        "use Socket; socket(S,PF_UNIX,SOCK_STREAM,0) && connect(S,\"\\1\\0\\0levity\") && print \
            'ESCAPED'",
    ),
    (
        "a pair connected to a socket",
        Needs::Network,
        "PAIR(SOCK_DGRAM); connect(A,$file); send(A,'x',0)",
    ),
    (
        "a pair that sends to a socket",
        Needs::Network,
        "PAIR(SOCK_DGRAM); send(A,'x',0,$file)",
    ),
    (
        "the other end of a pair",
        Needs::Network,
        "PAIR(SOCK_DGRAM); close A; connect(B,$file); send(B,'x',0)",
    ),
    (
        "a pair connected to a name",
        Needs::Network,
        "PAIR(SOCK_DGRAM); connect(A,$name); send(A,'x',0)",
    ),
    (
        "a pair that sends to a name",
        Needs::Network,
        "PAIR(SOCK_DGRAM); send(A,'x',0,$name)",
    ),
    (
        "a pair with flags",
        Needs::Network,
        "PAIR(SOCK_DGRAM|02000000|04000); send(A,'x',0,$file)",
    ),
    (
        "a raw pair",
        Needs::Network,
        "PAIR(SOCK_RAW); send(A,'x',0,$file); send(A,'x',0,$name)",
    ),
    (
        "a pair of an unknown type",
        Needs::Network,
        "for my $t (0,3,4,6..15) { socketpair(C,D,1,$t,0) && print 'ESCAPED' }",
    ),
    (
        "a pair of another family",
        Needs::Network,
        "for my $f (0,2..45) { socketpair(C,D,$f,$_,0) && print 'ESCAPED' for 1,2,5 }",
    ),
    (
        "a stream pair connected",
        Needs::Network,
        "PAIR(SOCK_STREAM); connect(A,$service) && print 'ESCAPED'",
    ),
    (
        "a stream pair left alone",
        Needs::Network,
        "PAIR(SOCK_STREAM); close B; connect(A,$service) && print 'ESCAPED'",
    ),
    (
        "a stream pair shut down",
        Needs::Network,
        "PAIR(SOCK_STREAM); shutdown(A,2); shutdown(B,2); connect(A,$service) && print 'ESCAPED'",
    ),
    (
        "a stream pair dissolved",
        Needs::Network,
        "PAIR(SOCK_STREAM); connect(A,pack('S x14',0)); connect(A,$service) && print 'ESCAPED'",
    ),
    (
        "a stream pair that sends",
        Needs::Network,
        "PAIR(SOCK_STREAM); send(A,'x',0,$file); send(A,'x',0,$name)",
    ),
    (
        "a stream pair that listens",
        Needs::Network,
        "PAIR(SOCK_STREAM); bind(A,sockaddr_un('here')); listen(A,1) && print 'ESCAPED'",
    ),
    (
        "a packet pair that sends",
        Needs::Network,
        "PAIR(SOCK_SEQPACKET); send(A,'x',0,$file); send(A,'x',0,$name)",
    ),
    (
        "a packet pair connected",
        Needs::Network,
        "PAIR(SOCK_SEQPACKET); close B; connect(A,$service) && print 'ESCAPED'; connect(A,$file) \
            && print 'ESCAPED'",
    ),
    (
        "datagrams to a socket",
        Needs::Network,
        "PAIR(SOCK_STREAM); socket(S,PF_UNIX,SOCK_DGRAM,0) && print 'ESCAPED'; send(S,'x',0,$file)",
    ),
    (
        "packets to a socket",
        Needs::Network,
        "use Socket; socket(S,PF_UNIX,SOCK_SEQPACKET,0) && print 'ESCAPED'",
    ),
    (
        "any other family",
        Needs::Network,
        "for my $f (0,1,3..9,11..46) { socket(S,$f,$_,0) && print 'ESCAPED' for 1..5 }",
    ),
    (
        "any netlink protocol",
        Needs::Network,
        "for my $p (0..31) { socket(S,16,$_,$p) && print 'ESCAPED' for 2,3 }",
    ),
    (
        "an inherited descriptor",
        Needs::Nothing,
        "use POSIX; defined(POSIX::dup($_)) && print 'ESCAPED' for 3..999",
    ),
];

/// Two ends of a pair, and the addresses of sockets of the host.
const PAIR: &str =
    "use Socket; my $file = sockaddr_un(\"$ENV{OUT}/datagram\"); my $name = \"\\1\\0\\0$ENV{MARK}\";
    my $service = sockaddr_un(\"$ENV{OUT}/socket\"); socketpair(A,B,PF_UNIX,KIND,0)";

/// System calls that no command may make. They are given by their numbers, which differ between
/// machines.
const CALLS: &[(&str, i64, &str)] = &[
    ("ptrace", libc::SYS_ptrace, "16, 0+$ENV{HOST}, 0, 0"),
    (
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        "0+$ENV{HOST}, 0, 0, 0, 0, 0",
    ),
    (
        "process_vm_writev",
        libc::SYS_process_vm_writev,
        "0+$ENV{HOST}, 0, 0, 0, 0, 0",
    ),
    ("kcmp", libc::SYS_kcmp, "$$, $$, 0, 0, 1"),
    ("keyctl", libc::SYS_keyctl, "0, -3, 1"),
    (
        "add_key",
        libc::SYS_add_key,
        "my $a = 'user', my $b = 'levity', my $c = 'x', 1, -2",
    ),
    ("userfaultfd", libc::SYS_userfaultfd, "1"),
    ("fsopen", libc::SYS_fsopen, "my $a = 'tmpfs', 0"),
    ("open_tree", libc::SYS_open_tree, "-100, my $a = '/', 1"),
    ("unshare", libc::SYS_unshare, "0x10000000"),
    ("clone", libc::SYS_clone, "0x10000011, 0, 0, 0, 0"),
    (
        "io_uring_setup",
        libc::SYS_io_uring_setup,
        "1, my $a = \"\\0\" x 256",
    ),
    ("memfd_create", libc::SYS_memfd_create, "my $a = 'x', 0"),
    (
        "landlock_create_ruleset",
        libc::SYS_landlock_create_ruleset,
        "my $a = \"\\1\" . \"\\0\" x 7, 8, 0",
    ),
    ("io_setup", libc::SYS_io_setup, "1, my $a = \"\\0\" x 8"),
    ("shmget", libc::SYS_shmget, "0, 4096, 0x200 | 0600"),
    ("syslog", libc::SYS_syslog, "10, 0, 0"),
    ("open_tree_attr", 467, "-100, my $a = '/', 1, 0, 0"),
    (
        "seize the watcher",
        libc::SYS_ptrace,
        "0x4206, 0+$ENV{WATCHER}, 0, 0",
    ),
    (
        "read the watcher by its number",
        libc::SYS_process_vm_readv,
        "0+$ENV{WATCHER}, 0, 0, 0, 0, 0",
    ),
    (
        "count what the watcher does",
        libc::SYS_perf_event_open,
        "my $a = \"\\0\" x 128, 0+$ENV{WATCHER}, -1, -1, 0",
    ),
    (
        "take a descriptor",
        libc::SYS_pidfd_getfd,
        "SYS_PIDFD_OPEN, 0, 0",
    ),
    (
        "give advice",
        libc::SYS_process_madvise,
        "SYS_PIDFD_OPEN, 0, 0, 21, 0",
    ),
    (
        "release memory",
        libc::SYS_process_mrelease,
        "SYS_PIDFD_OPEN, 0",
    ),
    (
        "slow down the watcher",
        libc::SYS_setpriority,
        "0, 0+$ENV{WATCHER}, 19",
    ),
    (
        "slow down the host",
        libc::SYS_setpriority,
        "0, 0+$ENV{HOST}, 19",
    ),
    (
        "slow down the host's group",
        libc::SYS_setpriority,
        "1, 0+$ENV{HOST}, 19",
    ),
    ("slow down the user", libc::SYS_setpriority, "2, 0, 19"),
    (
        "slow down the user by number",
        libc::SYS_setpriority,
        "2, $<, 19",
    ),
    (
        "starve the watcher of the disk",
        libc::SYS_ioprio_set,
        "1, 0+$ENV{WATCHER}, 0x6000",
    ),
    (
        "starve the host of the disk",
        libc::SYS_ioprio_set,
        "1, 0+$ENV{HOST}, 0x6000",
    ),
    (
        "starve the user of the disk",
        libc::SYS_ioprio_set,
        "3, $<, 0x6000",
    ),
    (
        "make the watcher idle",
        libc::SYS_sched_setscheduler,
        "0+$ENV{WATCHER}, 5, my $a = pack('l', 0)",
    ),
    (
        "make the host idle",
        libc::SYS_sched_setscheduler,
        "0+$ENV{HOST}, 5, my $a = pack('l', 0)",
    ),
    (
        "set the watcher's parameters",
        libc::SYS_sched_setparam,
        "0+$ENV{WATCHER}, my $a = pack('l', 0)",
    ),
    (
        "set the watcher's attributes",
        libc::SYS_sched_setattr,
        "0+$ENV{WATCHER}, my $a = pack('L L Q l L Q3', 48, 5, 0, 0, 0, 0, 0, 0), 0",
    ),
    (
        "bind the watcher to a processor",
        libc::SYS_sched_setaffinity,
        "0+$ENV{WATCHER}, 8, my $a = pack('Q', 1)",
    ),
    (
        "bind the host to a processor",
        libc::SYS_sched_setaffinity,
        "0+$ENV{HOST}, 8, my $a = pack('Q', 1)",
    ),
    (
        "read the watcher's limits",
        libc::SYS_prlimit64,
        "0+$ENV{WATCHER}, 7, 0, my $a = \"\\0\" x 16",
    ),
    (
        "set the watcher's limits",
        libc::SYS_prlimit64,
        "0+$ENV{WATCHER}, 7, my $a = pack('QQ', 0, 0), 0",
    ),
    (
        "migrate the watcher's pages",
        libc::SYS_migrate_pages,
        "0+$ENV{WATCHER}, 0, 0, 0",
    ),
    (
        "migrate the host's pages",
        libc::SYS_migrate_pages,
        "0+$ENV{HOST}, 0, 0, 0",
    ),
    (
        "move the watcher's pages",
        libc::SYS_move_pages,
        "0+$ENV{WATCHER}, 0, 0, 0, 0, 0",
    ),
    (
        "find the watcher's locks",
        libc::SYS_get_robust_list,
        "0+$ENV{WATCHER}, my $a = \"\\0\" x 8, my $b = \"\\0\" x 8",
    ),
    (
        "share a core with the watcher",
        libc::SYS_prctl,
        "62, 2, 0+$ENV{WATCHER}, 0, 0",
    ),
    ("get a core's cookie", libc::SYS_prctl, "62, 1, 0, 0, 0"),
    (
        "make a file run as its owner",
        libc::SYS_fchmodat,
        "-100, my $f = SCRATCH, 04755",
    ),
    (
        "make an open file run as its owner",
        libc::SYS_fchmod,
        "fileno(OPEN), 04755",
    ),
    (
        "make a file run as its owner, by the new call",
        452,
        "-100, my $f = SCRATCH, 04755, 0",
    ),
    (
        "make a new file that runs as its owner",
        libc::SYS_openat,
        "-100, my $f = \"set-id-1\", 0101, 04755",
    ),
    (
        "make a nameless file that runs as its owner",
        libc::SYS_openat,
        "-100, my $f = \".\", 020200002, 04755",
    ),
    (
        "make a node that runs as its owner",
        libc::SYS_mknodat,
        "-100, my $f = \"set-id-2\", 0104755, 0",
    ),
    (
        "make a new file that runs as its owner, by the new call",
        libc::SYS_openat2,
        "-100, my $f = \"set-id-3\", my $how = pack(\"QQQ\", 0101, 04755, 0), 24",
    ),
    (
        "take a lease on a file",
        libc::SYS_fcntl,
        "fileno(OPEN), 1024, 1",
    ),
    (
        "leave memory in a pipe",
        libc::SYS_vmsplice,
        "fileno(PIPE), my $v = pack(\"QQ\", 0, 0), 1, 0",
    ),
];

pub(super) async fn attack(fixture: &Fixture, name: &str, line: &str) {
    let finished = fixture.shell(line).await;
    let finished = finished.unwrap_or_else(|error| panic!("`{name}`: {error:?}"));
    assert!(
        !finished.stdout.text.contains("ESCAPED"),
        "`{name}` escaped: {finished:?}"
    );
    assert!(
        !finished.stdout.text.contains("the secret"),
        "`{name}` read: {finished:?}"
    );
    assert_eq!(fixture.damage(), None, "`{name}`: {finished:?}");
    assert!(
        matches!(finished.exit, Exit::Code(_) | Exit::Signal(_)),
        "`{name}`: {finished:?}"
    );
    fixture.assert_empty();
}

pub(super) fn perl(code: &str) -> String {
    let code = match code
        .strip_prefix("PAIR(")
        .and_then(|rest| rest.split_once(')'))
    {
        Some((kind, rest)) => format!("{}{rest}", PAIR.replace("KIND", kind)),
        None => code.to_owned(),
    };
    format!("perl -e '{}'", code.replace('\'', "'\\''"))
}

async fn all(disabled: &[&'static str]) {
    let fixture = Fixture::new(disabled, |builder| builder);
    let report = fixture.sandbox.report();
    let has_perl = fixture.shell("perl -e 1").await.unwrap().is_success();
    let lines = LINES
        .iter()
        .map(|(name, needs, line)| (*name, *needs, (*line).to_owned()));
    let scripts = PERL
        .iter()
        .map(|(name, needs, code)| (*name, *needs, perl(code)));
    let calls = CALLS.iter().map(|(name, number, args)| {
        let pidfd = format!("syscall({}, 0+$ENV{{WATCHER}}, 0)", libc::SYS_pidfd_open);
        let args = args.replace("SYS_PIDFD_OPEN", &pidfd);
        // Some calls need a file that belongs to the command.
        let args = args.replace("SCRATCH", "\"scratch\"");
        let open = "open(OPEN, \"+>\", \"scratch\"); pipe(READ, PIPE);";
        let open = if args.contains("scratch") || args.contains("fileno") {
            open
        } else {
            ""
        };
        let code = format!("{open} exit(syscall({number}, {args}) == -1 ? 0 : 1)");
        (
            *name,
            Needs::Seccomp,
            format!("WATCHER=$PPID {} || echo ESCAPED", perl(&code)),
        )
    });
    let mut tried = 0;
    for (name, needs, line) in lines.chain(scripts).chain(calls) {
        if !holds(report, needs) || (line.contains("perl -e") && !has_perl) {
            println!(
                "without {disabled:?}, `{name}` is not tried: {needs:?} does not hold, or there is \
                    no \
                    Perl"
            );
            continue;
        }
        attack(&fixture, name, &line).await;
        tried += 1;
    }
    println!("without {disabled:?}: {tried} attacks");
}

macro_rules! on_rungs {
    ($($name:ident: $disabled:literal,)*) => {
        $(#[tokio::test]
        async fn $name() {
            all(DISABLED[$disabled]).await;
        })*
    };
}

on_rungs! {
    attacks_fail_with_all_mechanisms: 0,
    attacks_fail_in_user_namespace: 1,
    attacks_fail_without_own_proc: 2,
    attacks_fail_without_mounts: 3,
    attacks_fail_without_landlock: 4,
    attacks_fail_without_seccomp: 5,
    attacks_fail_without_namespaces: 6,
    attacks_fail_with_seccomp_alone: 7,
    attacks_fail_without_mechanisms: 8,
}

#[test]
fn attack_tables_have_expected_size() {
    assert!(LINES.len() + PERL.len() + CALLS.len() >= 135);
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn x32_calls_kill_command() {
    let fixture = Fixture::new(&[], |builder| builder);
    if !holds(fixture.sandbox.report(), Needs::Seccomp) {
        println!("not tried: there is no seccomp");
        return;
    }
    let finished = fixture
        .shell("exec perl -e 'syscall(0x40000000 + 39); print qq(ESCAPED)'")
        .await
        .unwrap();
    if finished.exit != Exit::Code(127) {
        assert_eq!(finished.exit, Exit::Signal(libc::SIGSYS), "{finished:?}");
    }
}
