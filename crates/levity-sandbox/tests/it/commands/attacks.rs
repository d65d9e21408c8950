use levity_sandbox::{Exit, Report};

use super::RUNGS;
use super::arena::Arena;

/// What must hold for an attack to fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Needs {
    /// Nothing but that the command is run at all.
    Nothing,
    /// Files outside cannot be read.
    Files,
    /// Files outside cannot be changed, not even their modes.
    Mounts,
    Network,
    Seccomp,
    /// Other processes are out of reach.
    Others,
    /// What watches the command is out of reach.
    Watcher,
}

fn holds(report: &Report, needs: Needs) -> bool {
    let by = |name: &str| {
        report.guards().iter().any(|(_, guard)| guard.by.iter().any(|how| how.to_string() == name))
    };
    match needs {
        Needs::Nothing => true,
        Needs::Files => report.files.holds,
        Needs::Mounts => report.files.holds && report.files.note.is_none(),
        Needs::Network => report.network.holds,
        Needs::Seccomp => by("seccomp"),
        Needs::Others => report.others.holds,
        Needs::Watcher => report.processes.holds,
    }
}

/// A name, what must hold, and a line that writes `ESCAPED` when it got out. `$OUT` is a folder outside.
const LINES: &[(&str, Needs, &str)] = &[
    ("read by an absolute path", Needs::Files, "cat $OUT/secret && echo ESCAPED"),
    ("read by dots", Needs::Files, "cat ../outside/secret && echo ESCAPED"),
    ("read through a new link", Needs::Files, "ln -s $OUT/secret link; cat link && echo ESCAPED"),
    ("read through a linked folder", Needs::Files, "ln -s $OUT there; cat there/secret && echo ESCAPED"),
    ("read through a hard link", Needs::Files, "ln $OUT/secret hard && cat hard && echo ESCAPED"),
    ("read by /proc/self/root", Needs::Files, "cat /proc/self/root$OUT/secret && echo ESCAPED"),
    ("read by /proc/self/cwd", Needs::Files, "cat /proc/self/cwd/../outside/secret && echo ESCAPED"),
    ("read by /dev/fd", Needs::Files, "exec 3< $OUT/secret; cat /dev/fd/3 && echo ESCAPED"),
    ("list a folder outside", Needs::Files, "ls $OUT && echo ESCAPED"),
    ("list the root", Needs::Files, "ls / && echo ESCAPED"),
    ("list homes", Needs::Files, "ls /home /root && echo ESCAPED"),
    ("go up and list", Needs::Files, "cd ../outside && ls && echo ESCAPED"),
    ("read passwords", Needs::Files, "cat /etc/shadow /etc/sudoers && echo ESCAPED"),
    ("read private keys", Needs::Files, "ls /etc/ssl/private && echo ESCAPED"),
    ("read the kernel's log", Needs::Files, "head -c 1 /dev/kmsg && echo ESCAPED"),
    ("read memory", Needs::Files, "head -c 1 /dev/mem && echo ESCAPED"),
    (
        "read a disk",
        Needs::Files,
        "for d in /dev/vda /dev/sda /dev/nvme0n1; do head -c 1 $d && echo ESCAPED; done",
    ),
    ("write a new file", Needs::Files, "echo x > $OUT/new && echo ESCAPED"),
    ("overwrite a file", Needs::Files, "echo x > $OUT/secret && echo ESCAPED"),
    ("append through a link", Needs::Files, "ln -s $OUT/secret a; echo x >> a && echo ESCAPED"),
    ("remove a file", Needs::Files, "rm -f $OUT/secret && echo ESCAPED"),
    ("move a file out", Needs::Files, "touch f; mv f $OUT/f && echo ESCAPED"),
    ("move a file in", Needs::Files, "mv $OUT/secret in && echo ESCAPED"),
    ("make a folder", Needs::Files, "mkdir $OUT/new && echo ESCAPED"),
    ("remove a folder", Needs::Files, "rmdir $OUT/folder && echo ESCAPED"),
    ("make a link outside", Needs::Files, "ln -s x $OUT/link && echo ESCAPED"),
    ("make a pipe outside", Needs::Files, "mkfifo $OUT/pipe && echo ESCAPED"),
    (
        "write to shared memory",
        Needs::Files,
        "echo x > /dev/shm/levity-$$ && rm /dev/shm/levity-$$; echo ESCAPED-$?| grep D-0 && echo ESCAPED",
    ),
    (
        "write to the temporary folder",
        Needs::Files,
        "touch /tmp/levity-$MARK && rm /tmp/levity-$MARK && echo ESCAPED",
    ),
    ("write to a program", Needs::Files, "true >> /bin/true && echo ESCAPED"),
    (
        "write to the kernel's settings",
        Needs::Files,
        "cat /proc/sys/kernel/hostname > /proc/sys/kernel/hostname && echo ESCAPED",
    ),
    ("write to devices' settings", Needs::Files, "echo > /sys/kernel/uevent_helper && echo ESCAPED"),
    ("change a mode outside", Needs::Mounts, "chmod 600 $OUT/secret && echo ESCAPED"),
    ("change a time outside", Needs::Mounts, "touch -d 2001-01-01 $OUT/secret && echo ESCAPED"),
    ("change an owner outside", Needs::Mounts, "chown 1:1 $OUT/secret && echo ESCAPED"),
    ("read the host's environment", Needs::Others, "cat /proc/$HOST/environ && echo ESCAPED"),
    ("read the host's arguments", Needs::Others, "cat /proc/$HOST/cmdline && echo ESCAPED"),
    ("read the watcher's environment", Needs::Others, "cat /proc/$PPID/environ && echo ESCAPED"),
    ("read the watcher's arguments", Needs::Others, "cat /proc/$PPID/cmdline && echo ESCAPED"),
    ("read the watcher's memory", Needs::Others, "head -c 1 /proc/$PPID/mem && echo ESCAPED"),
    ("read the watcher's files", Needs::Others, "ls -l /proc/$PPID/fd/ && echo ESCAPED"),
    (
        "see other processes",
        Needs::Others,
        "for p in /proc/[0-9]*/cmdline; do cat $p; done 2>/dev/null | tr '\\0' ' ' | grep -q [i]t-&& echo ESCAPED",
    ),
    ("signal the host", Needs::Others, "kill -0 $HOST && echo ESCAPED"),
    ("signal the watcher", Needs::Watcher, "kill -9 $PPID; kill -TERM $PPID; sleep 0.1"),
    ("stop the watcher", Needs::Watcher, "kill -STOP $PPID; sleep 0.1; exit 3"),
    ("signal the first process", Needs::Others, "[ $PPID != 1 ] && kill -0 1 && echo ESCAPED"),
    ("open the terminal", Needs::Nothing, "sh -c ': < /dev/tty' && echo ESCAPED"),
    ("ask for the terminal", Needs::Nothing, "tty && echo ESCAPED"),
    ("make a device", Needs::Nothing, "mknod device c 1 1 && echo ESCAPED"),
    (
        "become somebody else",
        Needs::Nothing,
        "perl -e '$) = $( = 1; $> = $< = 1; exit($> == 1 && $< == 1 ? 0 : 1)' && echo ESCAPED",
    ),
    ("a user namespace", Needs::Seccomp, "unshare -Ur true && echo ESCAPED"),
    ("a mount namespace", Needs::Seccomp, "unshare -m true && echo ESCAPED"),
    ("a mount", Needs::Seccomp, "mount -t tmpfs none . && echo ESCAPED"),
    ("a mount taken away", Needs::Seccomp, "umount -l /proc && echo ESCAPED"),
    ("another root", Needs::Seccomp, "chroot . true && echo ESCAPED"),
    ("another namespace", Needs::Others, "nsenter -t 1 -m true && echo ESCAPED"),
    ("the host's limits", Needs::Others, "prlimit --pid $HOST --nofile=1:1 && echo ESCAPED"),
    ("names", Needs::Network, "getent hosts example.com && echo ESCAPED"),
    ("a higher limit", Needs::Nothing, "ulimit -f unlimited && echo ESCAPED"),
];

/// Lines of Perl, which speaks to the system more directly.
const PERL: &[(&str, Needs, &str)] = &[
    ("empty a file by its path", Needs::Files, "truncate(\"$ENV{OUT}/secret\", 0) && print 'ESCAPED'"),
    (
        "empty a file by opening it",
        Needs::Files,
        "use Fcntl; sysopen(F, \"$ENV{OUT}/secret\", O_RDONLY|O_TRUNC) && print 'ESCAPED'",
    ),
    (
        "TCP to the host",
        Needs::Network,
        "use Socket; socket(S,PF_INET,SOCK_STREAM,0) && connect(S,sockaddr_in($ENV{TCP},INADDR_LOOPBACK)) && print 'ESCAPED'",
    ),
    (
        "UDP to the host",
        Needs::Network,
        "use Socket; socket(S,PF_INET,SOCK_DGRAM,0) && send(S,'x',0,sockaddr_in($ENV{UDP},INADDR_LOOPBACK)); ",
    ),
    (
        "TCP to an address",
        Needs::Network,
        "use Socket; alarm 5; socket(S,PF_INET,SOCK_STREAM,0) && connect(S,sockaddr_in(80,inet_aton('1.1.1.1'))) && print 'ESCAPED'",
    ),
    (
        "IPv6",
        Needs::Network,
        "use Socket; alarm 5; socket(S,PF_INET6,SOCK_STREAM,0) && connect(S,pack_sockaddr_in6(80,inet_pton(AF_INET6,'2606:4700::1111'))) && print 'ESCAPED'",
    ),
    ("raw packets", Needs::Network, "use Socket; socket(S,PF_INET,SOCK_RAW,1) && print 'ESCAPED'"),
    ("packets of the device", Needs::Network, "use Socket; socket(S,17,SOCK_RAW,0) && print 'ESCAPED'"),
    (
        "a socket to the hypervisor",
        Needs::Network,
        "use Socket; socket(S,40,SOCK_STREAM,0) && print 'ESCAPED'",
    ),
    ("a socket to the kernel", Needs::Network, "use Socket; socket(S,16,SOCK_RAW,0) && print 'ESCAPED'"),
    ("a socket for ciphers", Needs::Network, "use Socket; socket(S,38,SOCK_SEQPACKET,0) && print 'ESCAPED'"),
    (
        "a service's socket",
        Needs::Network,
        "use Socket; socket(S,PF_UNIX,SOCK_STREAM,0) && connect(S,sockaddr_un(\"$ENV{OUT}/socket\")) && print 'ESCAPED'",
    ),
    (
        "a socket without a file",
        Needs::Network,
        "use Socket; socket(S,PF_UNIX,SOCK_STREAM,0) && connect(S,\"\\1\\0\\0levity\") && print 'ESCAPED'",
    ),
];

/// System calls that no command may make. They are named by their numbers, which differ between machines.
const CALLS: &[(&str, i64, &str)] = &[
    ("ptrace", libc::SYS_ptrace, "16, $ENV{HOST}, 0, 0"),
    ("process_vm_readv", libc::SYS_process_vm_readv, "$ENV{HOST}, 0, 0, 0, 0, 0"),
    ("process_vm_writev", libc::SYS_process_vm_writev, "$ENV{HOST}, 0, 0, 0, 0, 0"),
    ("kcmp", libc::SYS_kcmp, "$$, $$, 0, 0, 1"),
    ("keyctl", libc::SYS_keyctl, "0, -3, 1"),
    ("add_key", libc::SYS_add_key, "my $a = 'user', my $b = 'levity', my $c = 'x', 1, -2"),
    ("userfaultfd", libc::SYS_userfaultfd, "1"),
    ("fsopen", libc::SYS_fsopen, "my $a = 'tmpfs', 0"),
    ("open_tree", libc::SYS_open_tree, "-100, my $a = '/', 1"),
    ("unshare", libc::SYS_unshare, "0x10000000"),
    ("clone", libc::SYS_clone, "0x10000011, 0, 0, 0, 0"),
    ("io_uring_setup", libc::SYS_io_uring_setup, "1, my $a = \"\\0\" x 256"),
    ("memfd_create", libc::SYS_memfd_create, "my $a = 'x', 0"),
    ("shmget", libc::SYS_shmget, "0, 4096, 0x200 | 0600"),
    ("syslog", libc::SYS_syslog, "10, 0, 0"),
];

async fn attack(arena: &Arena, name: &str, line: &str) {
    let finished = arena.shell(line).await;
    let finished = finished.unwrap_or_else(|error| panic!("`{name}`: {error:?}"));
    assert!(!finished.stdout.text.contains("ESCAPED"), "`{name}` got out: {finished:?}");
    assert!(!finished.stdout.text.contains("the secret"), "`{name}` read: {finished:?}");
    assert_eq!(arena.damage(), None, "`{name}`: {finished:?}");
    assert!(matches!(finished.exit, Exit::Code(_) | Exit::Signal(_)), "`{name}`: {finished:?}");
    arena.assert_empty();
}

fn perl(code: &str) -> String {
    format!("perl -e '{}'", code.replace('\'', "'\\''"))
}

async fn all(rung: &[&'static str]) {
    let arena = Arena::new(rung, |builder| builder);
    let report = arena.sandbox.report();
    let has_perl = arena.shell("perl -e 1").await.unwrap().is_success();
    let lines = LINES.iter().map(|(name, needs, line)| (*name, *needs, (*line).to_owned()));
    let scripts = PERL.iter().map(|(name, needs, code)| (*name, *needs, perl(code)));
    let calls = CALLS.iter().map(|(name, number, args)| {
        let code = format!("exit(syscall({number}, {args}) == -1 ? 0 : 1)");
        (*name, Needs::Seccomp, format!("{} || echo ESCAPED", perl(&code)))
    });
    let mut tried = 0;
    for (name, needs, line) in lines.chain(scripts).chain(calls) {
        if !holds(report, needs) || (line.starts_with("perl") && !has_perl) {
            println!("without {rung:?}, `{name}` is not tried: {needs:?} does not hold, or there is no Perl");
            continue;
        }
        attack(&arena, name, &line).await;
        tried += 1;
    }
    println!("without {rung:?}: {tried} attacks");
}

macro_rules! on_rungs {
    ($($name:ident: $rung:literal,)*) => {
        $(#[tokio::test]
        async fn $name() {
            all(RUNGS[$rung]).await;
        })*
    };
}

on_rungs! {
    attacks_on_all_means: 0,
    attacks_in_a_user_namespace: 1,
    attacks_without_own_proc: 2,
    attacks_without_mounts: 3,
    attacks_without_landlock: 4,
    attacks_without_seccomp: 5,
    attacks_without_namespaces: 6,
    attacks_on_seccomp_alone: 7,
    attacks_on_nothing: 8,
}

#[test]
fn there_are_many_attacks() {
    assert!(LINES.len() + PERL.len() + CALLS.len() >= 80);
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn calls_of_another_abi_are_fatal() {
    let arena = Arena::new(&[], |builder| builder);
    if !holds(arena.sandbox.report(), Needs::Seccomp) {
        println!("not tried: there is no seccomp");
        return;
    }
    let finished = arena.shell("exec perl -e 'syscall(0x40000000 + 39); print qq(ESCAPED)'").await.unwrap();
    if finished.exit != Exit::Code(127) {
        assert_eq!(finished.exit, Exit::Signal(libc::SIGSYS), "{finished:?}");
    }
}
