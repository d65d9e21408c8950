use std::time::Duration;

use levity_sandbox::{CommandLimit, CommandOutput, Exit, Mechanism, SandboxBuilder};

use super::DISABLED;
use super::fixture::Fixture;
use super::mounts::{PLACE, again_with};

/// Runs a line on every set of mechanisms where all processes are killed; none may remain.
async fn on_all(
    settings: impl Fn(SandboxBuilder) -> SandboxBuilder,
    line: &str,
    expected: &[Exit],
) {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, &settings);
        if !fixture.sandbox.report().processes.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                fixture.sandbox.report().processes
            );
            continue;
        }
        let finished = fixture
            .shell(line)
            .await
            .unwrap_or_else(|error| panic!("without {disabled:?}: {error:?}"));
        println!("without {disabled:?}: {}", finished.exit);
        assert!(
            expected.contains(&finished.exit) || is_refused_by_kernel(&finished),
            "without {disabled:?}: {finished:?}"
        );
        fixture.assert_empty();
    }
}

/// Returns `true` if a bomb reached the kernel's limit, and ended before the watcher ran.
fn is_refused_by_kernel(finished: &CommandOutput) -> bool {
    let ended = matches!(finished.exit, TIME | Exit::Code(2));
    ended && finished.stderr.text.contains("Cannot fork")
}

/// Limits with few processes and a short time, so that the kernel's higher limit does not slow down
/// other tests.
fn small(builder: SandboxBuilder) -> SandboxBuilder {
    builder.max_processes(16).time_limit(Duration::from_secs(6))
}

const PROCESSES: Exit = Exit::Limit(CommandLimit::Processes);
const MEMORY: Exit = Exit::Limit(CommandLimit::Memory);
const TIME: Exit = Exit::Limit(CommandLimit::Time);
const CPU: Exit = Exit::Limit(CommandLimit::CpuTime);

#[tokio::test(flavor = "multi_thread")]
async fn fork_bomb_is_ended() {
    on_all(
        small,
        "bomb() { bomb | bomb & }; bomb; sleep 1000",
        &[PROCESSES],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_bomb_of_detached_processes_is_ended() {
    // Each generation leaves its parent at once, in its own session.
    let line = "cat > b.sh <<'E'\nsetsid sh b.sh & setsid sh b.sh &\nE\nsh b.sh; sleep 1000";
    on_all(small, line, &[PROCESSES]).await;
}

#[tokio::test]
async fn kernel_limits_processes_of_namespace() {
    let before = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    for disabled in [&[][..], &["root"]] {
        let fixture = Fixture::new(disabled, |builder| builder.max_processes(16));
        let by = &fixture.sandbox.report().process_count.mechanisms;
        let finished = fixture.shell("cat /proc/sys/kernel/pid_max").await.unwrap();
        if !by.contains(&Mechanism::ProcessNamespace) || !finished.is_success() {
            println!("without {disabled:?} not tried: {by:?}");
            continue;
        }
        // 16 threads for each, and the numbers that the kernel uses only once.
        assert_eq!(finished.stdout.text.trim(), "557", "without {disabled:?}");
        let finished = fixture
            .shell("echo 9999 > /proc/sys/kernel/pid_max")
            .await
            .unwrap();
        assert!(!finished.is_success(), "without {disabled:?}: {finished:?}");
    }
    // The limit belongs to the namespace, and never to the system.
    assert_eq!(
        std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap(),
        before
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_children_end_command() {
    let line = "i=0; while [ $i -lt 2000 ]; do sleep 1000 & i=$((i+1)); done; wait";
    on_all(|builder| builder.max_processes(100), line, &[PROCESSES]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_sequential_children_are_allowed() {
    let line = "i=0; while [ $i -lt 1000 ]; do (exit 0); i=$((i+1)); done";
    on_all(|builder| builder.max_processes(8), line, &[Exit::Code(0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_limit_ends_command_that_ignores_signals() {
    let line = "trap '' TERM INT HUP; while :; do sleep 1000; done";
    on_all(
        |builder| builder.time_limit(Duration::from_millis(200)),
        line,
        &[TIME],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_limit_ends_stopped_command() {
    on_all(
        |builder| builder.time_limit(Duration::from_millis(200)),
        "kill -STOP $$",
        &[TIME],
    )
    .await;
}

#[tokio::test]
async fn command_receives_term_before_kill() {
    let fixture = Fixture::new(&[], |builder| {
        builder.time_limit(Duration::from_millis(300))
    });
    let line = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done";
    let finished = fixture.shell(line).await.unwrap();
    assert_eq!(
        (finished.exit, finished.stdout.text.as_str()),
        (TIME, "asked\n")
    );
    fixture.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_time_of_all_processes_is_limited() {
    let line = "for i in 1 2 3; do while :; do :; done & done; wait";
    on_all(
        |builder| builder.cpu_time_limit(Duration::from_secs(1)),
        line,
        &[CPU],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_one_process_is_limited() {
    // The kernel refuses it before the watcher sees it; the reaction is up to the program.
    let line = "head -c 1000000000 /dev/zero | tail -n 1 > /dev/null; test $? -eq 0 && echo \
        ESCAPED; exit 0";
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder.memory_limit(64 << 20));
        let finished = fixture.shell(line).await.unwrap();
        assert!(
            !finished.stdout.text.contains("ESCAPED"),
            "without {disabled:?}: {finished:?}"
        );
        fixture.assert_empty();
    }
}

/// A process that does not execute its program yet has a copy of the host's memory.
#[tokio::test(flavor = "multi_thread")]
async fn memory_of_host_does_not_count() {
    let host = vec![1_u8; 192 << 20];
    for disabled in DISABLED.iter().cycle().take(20) {
        let fixture = Fixture::new(disabled, |builder| builder.memory_limit(64 << 20));
        let finished = fixture.shell("exit 0").await.unwrap();
        assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
    }
    assert!(host.iter().all(|byte| *byte == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_all_processes_is_limited() {
    let line = "for i in 1 2 3 4 5 6; do (head -c 30000000 /dev/zero; sleep 1000) | tail -n 1 & \
        done; wait";
    on_all(|builder| builder.memory_limit(80 << 20), line, &[MEMORY]).await;
}

/// Perl code that fills shared memory, 32 MiB at a time, and then runs the given code with `$p`, of
/// which `$n` bytes are mapped.
fn share(then: &str) -> String {
    let (mmap, read) = (libc::SYS_mmap, libc::SYS_read);
    let code = format!(
        "open(Z, q(<), q(/dev/zero)); my $n = 32 << 20;
        for (1..8) {{ my $p = syscall({mmap}, 0, $n, 3, 0x21, -1, 0); syscall({read}, fileno(Z), \
        $p, $n); {then} }}
        sleep 1000"
    );
    format!("perl -e '{code}'")
}

#[tokio::test(flavor = "multi_thread")]
async fn unmapped_shared_memory_is_limited() {
    let given_up = share(&format!("syscall({}, $p, $n, 4)", libc::SYS_madvise));
    let unmapped = share(&format!(
        "syscall({}, $p + 4096, $n - 4096)",
        libc::SYS_munmap
    ));
    for line in [given_up, unmapped] {
        on_all(
            |builder| {
                builder
                    .memory_limit(64 << 20)
                    .time_limit(Duration::from_secs(8))
            },
            &line,
            &[MEMORY],
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_within_limit_is_allowed() {
    let line = share("1").replace("sleep 1000", "exit 0");
    on_all(
        |builder| builder.memory_limit(1 << 30),
        &line,
        &[Exit::Code(0)],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_tables_count_as_memory() {
    // One page is read in every 2 MiB, so that each needs a table and none needs memory for itself.
    let code = format!(
        "my $p = syscall({}, 0, 1 << 36, 1, 0x4022, -1, 0);
        for (my $at = 0; $at < 1 << 36; $at += 2 << 20) {{ unpack q(P1), pack q(J), $p + $at }}
        sleep 1000",
        libc::SYS_mmap
    );
    let limits = |builder: SandboxBuilder| {
        builder
            .memory_limit(64 << 20)
            .time_limit(Duration::from_secs(8))
    };
    on_all(limits, &format!("perl -e '{code}'"), &[MEMORY]).await;
}

#[tokio::test]
async fn process_with_ended_first_thread_is_counted() {
    if !std::process::Command::new("python3")
        .arg("-V")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("SKIPPED: there is no python3");
        return;
    }
    // The thread starts its work after the first one has ended.
    let one = |work: &str| {
        format!(
            "import ctypes, os, threading, time
def work():
    time.sleep(0.3)
    {work}
    time.sleep(1000)
def begin():
    threading.Thread(target=work).start()
    ctypes.CDLL(None).syscall({}, 0)
",
            libc::SYS_exit
        )
    };
    let limits = |builder: SandboxBuilder| {
        builder
            .memory_limit(256 << 20)
            .time_limit(Duration::from_secs(15))
    };
    let fork = |count: u32| {
        format!("for _ in range({count}):\n    if os.fork() == 0: begin()\ntime.sleep(1000)")
    };
    let eats = one("kept = b'x' * (60 << 20)") + &fork(8);
    on_all(limits, &format!("python3 -c \"{eats}\""), &[MEMORY]).await;
    let many = one("pass") + &fork(40);
    let limits = |builder: SandboxBuilder| {
        builder
            .max_processes(16)
            .time_limit(Duration::from_secs(15))
    };
    on_all(limits, &format!("python3 -c \"{many}\""), &[PROCESSES]).await;
}

/// Perl code that makes its process uninspectable, and starts 40 children.
fn hidden_children(then: &str) -> String {
    let prctl = libc::SYS_prctl;
    format!(
        "perl -e 'syscall({prctl}, 4, 0, 0, 0, 0); for (1..40) {{ unless (fork) {{ {then}; sleep \
            1000 }} }} sleep 1000'"
    )
}

/// Runs lines whose processes other processes cannot inspect, with as little of `/proc` visible as
/// the calling test requires.
async fn hidden_processes_are_counted() {
    let small = |builder: SandboxBuilder| {
        builder
            .max_processes(16)
            .memory_limit(96 << 20)
            .time_limit(Duration::from_secs(8))
    };
    on_all(small, &hidden_children("1"), &[PROCESSES, Exit::Uncounted]).await;
    // The maximum number of processes, so that only memory exceeds its limit.
    let eats = hidden_children("our $x = q(x) x (20 << 20)").replace("1..40", "1..8");
    on_all(small, &eats, &[MEMORY, Exit::Uncounted]).await;
    // A process that can be inspected is not ended.
    on_all(small, "sleep 0.2 | cat; sleep 0.2 & wait", &[Exit::Code(0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uninspectable_process_is_counted() {
    hidden_processes_are_counted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_process_is_counted() {
    if std::env::var_os(PLACE).is_some() {
        return hidden_processes_are_counted().await;
    }
    for (proc, rights) in [
        (
            "hidepid=4",
            "exec setpriv --bounding-set=-all --inh-caps=-all",
        ),
        // Its group could see all of them.
        (
            "hidepid=1",
            "exec setpriv --bounding-set=-all --inh-caps=-all --regid=65534 --clear-groups",
        ),
        (
            "hidepid=0",
            "exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace",
        ),
    ] {
        println!("{proc}, {rights}");
        let script = format!("mount -t proc -o {proc} proc /proc");
        again_with(
            "commands::limits::hidden_process_is_counted",
            |_| {},
            &script,
            rights,
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_ends_when_processes_cannot_be_counted() {
    if std::env::var_os(PLACE).is_none() {
        let test = "commands::limits::command_ends_when_processes_cannot_be_counted";
        again_with(test, |_| {}, "mount -t proc proc /proc", "exec");
        return;
    }
    let fixture = Fixture::new(&["namespaces"], |builder| builder);
    assert!(
        fixture.sandbox.report().process_count.is_enforced,
        "{}",
        fixture.sandbox.report()
    );
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none", "/proc"])
        .status();
    assert!(mount.unwrap().success());
    let finished = fixture.shell("sleep 1000").await.unwrap();
    assert_eq!(finished.exit, Exit::Uncounted, "{finished:?}");
    assert!(finished.exit.to_string().contains("could not be counted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn process_of_unreadable_program_is_counted() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| {
            builder.max_processes(16).time_limit(Duration::from_secs(8))
        });
        if !fixture.sandbox.report().processes.is_enforced {
            continue;
        }
        let program = fixture.work().join("shut");
        std::fs::copy("/bin/sh", &program).unwrap();
        // A group that is unknown in a user namespace removes all rights over the file. Only root
        // can assign it.
        let _ = chown(&program, None, Some(12_345));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o111)).unwrap();
        let line = "./shut -c 'i=0; while [ $i -lt 40 ]; do ./shut -c \"read x < fifo; :\" & \
            i=$((i+1)); done; wait'";
        let finished = fixture
            .shell(&format!("mkfifo fifo; {line}"))
            .await
            .unwrap();
        assert!(
            [PROCESSES, Exit::Uncounted].contains(&finished.exit),
            "without {disabled:?}: {finished:?}"
        );
        fixture.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_size_is_limited() {
    for line in [
        "exec head -c 100000000 /dev/zero > big",
        "exec dd if=/dev/zero of=big bs=1M count=1 seek=500",
    ] {
        let fixture = Fixture::new(&[], |builder| builder.max_file_size(1 << 20));
        let finished = fixture.shell(line).await.unwrap();
        assert!(!finished.is_success(), "{finished:?}");
        let size = std::fs::metadata(fixture.work().join("big")).map_or(0, |it| it.len());
        assert!(size <= 1 << 20, "it has {size} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_output_is_truncated() {
    let fixture = Fixture::new(&[], |builder| {
        builder
            .max_output(10_000)
            .time_limit(Duration::from_secs(3))
    });
    let finished = fixture
        .shell("yes 0123456789 | head -c 10000000000; yes error >&2")
        .await
        .unwrap();
    assert_eq!(finished.exit, TIME);
    assert!(
        finished.stdout.text.len() < 10_100 && finished.stdout.is_truncated(),
        "{}",
        finished.stdout.text.len()
    );
    assert!(finished.stdout.text.starts_with("0123456789\n"));
    assert!(finished.stderr.text.len() < 10_100);
    fixture.assert_empty();
}

#[tokio::test]
async fn default_limits_match_documentation() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = levity_sandbox::Workspace::open(folder.path()).unwrap();
    let sandbox = super::disable(levity_sandbox::Sandbox::builder(workspace), &[])
        .build()
        .unwrap();
    assert_eq!(sandbox.time_limit(), Duration::from_secs(120));
    // File sizes are given in blocks of 512 bytes, and memory in units of 1,024.
    for (limit, expected) in [
        ("-n", 4096),
        ("-c", 0),
        ("-t", 600),
        ("-f", (1 << 30) / 512),
        ("-d", (4 << 30) / 1024_u64),
    ] {
        for kind in ["-S", "-H"] {
            let finished = sandbox
                .shell(format!("ulimit {kind} {limit}"))
                .run()
                .await
                .unwrap();
            assert_eq!(
                finished.stdout.text.trim(),
                expected.to_string(),
                "`ulimit {kind} {limit}`"
            );
        }
    }
    let finished = sandbox
        .shell("yes | head -c 70000; yes | head -c 60000 >&2")
        .run()
        .await
        .unwrap();
    assert!(finished.stdout.is_truncated() && !finished.stderr.is_truncated());
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_of_all_processes_are_limited() {
    let code = "threads->create(sub { sleep 1000 }) or exit 3 for 1..60; sleep 2; print q(ESCAPED)";
    for disabled in DISABLED {
        // 16 for each, so 48.
        let fixture = Fixture::new(disabled, |builder| {
            builder
                .max_processes(3)
                .time_limit(Duration::from_secs(8))
                .memory_limit(8 << 30)
        });
        if !fixture.sandbox.report().processes.is_enforced {
            continue;
        }
        if !fixture
            .shell("perl -Mthreads -e 1")
            .await
            .unwrap()
            .is_success()
        {
            return println!("not tried: there is no Perl with threads");
        }
        let finished = fixture
            .shell(&format!("perl -Mthreads -e '{code}'"))
            .await
            .unwrap();
        assert!(
            !finished.stdout.text.contains("ESCAPED"),
            "without {disabled:?}: {finished:?}"
        );
        assert!(
            finished.exit == PROCESSES || finished.exit == Exit::Code(3),
            "without {disabled:?}: {finished:?}"
        );
        fixture.assert_empty();
    }
}
