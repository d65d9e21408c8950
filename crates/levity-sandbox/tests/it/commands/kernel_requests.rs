//! Requests to the kernel that the filters of system calls deny.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use levity_sandbox::Exit;

use super::DISABLED;
use super::attacks::{Needs, attack, holds, perl};
use super::fixture::Fixture;

#[tokio::test]
async fn open_network_allows_only_route_queries() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| {
            builder.network(levity_sandbox::Network::Any)
        });
        let report = fixture.sandbox.report();
        assert_eq!(
            report.network.is_enforced,
            holds(report, Needs::Seccomp),
            "{report}"
        );
        if !holds(report, Needs::Seccomp) {
            continue;
        }
        for code in [
            "for my $p (1..31) { socket(S,16,$_,$p) && print 'ESCAPED' for 2,3 }",
            "PAIR(SOCK_DGRAM); connect(A,$file); send(A,'x',0); send(A,'x',0,$file); \
                send(A,'x',0,$name)",
            "for my $f (1,3..9,11..15,17..46) { socket(S,$f,$_,0) && print 'ESCAPED' for 1..5 }",
        ] {
            attack(&fixture, code, &perl(code)).await;
        }
    }
}

#[tokio::test]
async fn command_cannot_bind_abstract_socket_name() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !holds(fixture.sandbox.report(), Needs::Seccomp) {
            continue;
        }
        let name = SocketAddr::from_abstract_name(format!("{}-own", fixture.mark())).unwrap();
        let _taken = UnixListener::bind_addr(&name).unwrap();
        let code = "PAIR(SOCK_STREAM); bind(A,\"\\1\\0\\0$ENV{MARK}-own\"); print $!{EADDRINUSE} ? \
            'of the host' : 'done'";
        let finished = fixture.shell(&perl(code)).await.unwrap();
        assert!(
            !finished.stdout.text.contains("of the host"),
            "without {disabled:?}: {finished:?}"
        );
    }
}

/// Requests to file systems that change files open for reading: flags, versions, projects,
/// encryption, and requests of single file systems.
const CHANGING: &[u32] = &[
    0x4008_6602,
    0x4004_6602,
    0x4008_7602,
    0x4008_6604,
    0x401C_5820,
    0x4080_6685,
    0x800C_6613,
    0xC050_6617,
    0xC040_6618,
    0xC040_6619,
    0xC004_5877,
    0xC018_5879,
    0x4100_9432,
    0x6609,
    0x660C,
    0x5000_940E,
    0x4008_941A,
    0x4004_7211,
    0xF501,
    0x1,
    0x5301,
    0x5501,
];

#[tokio::test]
async fn read_only_command_can_query_but_not_change_files() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !fixture.sandbox.report().read_only.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                fixture.sandbox.report().read_only
            );
            continue;
        }
        std::fs::write(fixture.work().join("file"), "text").unwrap();
        // Terminals and pipes, the size of a block, and flags.
        for (requests, refused) in [
            (CHANGING, true),
            (&[0x5401, 0x5413, 0x541B, 0x2, 0x8008_6601], false),
        ] {
            for request in requests {
                let code = format!(
                    "open(F,\"<\",\"file\") or die; my $b = \"\\0\" x 4096; ioctl(F,{request},$b); \
                        print $!{{EACCES}} ? 1 : 0"
                );
                let line = perl(&code);
                let finished = fixture.sandbox.shell(line).read_only().run().await.unwrap();
                let expected = if refused { "1" } else { "0" };
                assert_eq!(
                    finished.stdout.text, expected,
                    "without {disabled:?}, {request:#x}: {finished:?}"
                );
            }
        }
    }
}

/// Returns, for each of a list of Perl expressions that make a call, `true` if a filter denies it.
/// F is an open file.
async fn denied(fixture: &Fixture, calls: &[String]) -> Option<Vec<bool>> {
    std::fs::write(fixture.work().join("file"), "text").unwrap();
    let each = calls
        .iter()
        .map(|call| format!("$! = 0; {call}; print $!{{EACCES}} ? 1 : 0;"));
    let code = format!(
        "open(F,\"+<\",\"file\") or die; my $b = \"\\0\" x 4096; {}",
        each.collect::<String>()
    );
    let finished = fixture.shell(&perl(&code)).await.unwrap();
    if finished.exit == Exit::Code(127) {
        println!("not tried: there is no Perl");
        return None;
    }
    assert_eq!(finished.stdout.text.len(), calls.len(), "{finished:?}");
    Some(
        finished
            .stdout
            .text
            .chars()
            .map(|char| char == '1')
            .collect(),
    )
}

/// Requests of Btrfs, bcachefs and OCFS2 for snapshots, subvolumes and the like. Their results show
/// files under new names, or cannot be removed.
const SNAPSHOTS: &[u32] = &[
    0x5000_9401,
    0x5000_9417,
    0x5000_9418,
    0x5000_940E,
    0x5000_940F,
    0x5000_943F,
    0x4008_941A,
    0xD000_9412,
    0xC400_945D,
    0x8000_94FF,
    0x401C_BC10,
    0x401C_BC11,
    0x4018_6F04,
];

/// Requests that share the contents of two open files.
const SHARING: &[u32] = &[0x4004_9409, 0x4020_940D, 0xC018_9436];

#[tokio::test]
async fn command_cannot_request_snapshots() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !holds(fixture.sandbox.report(), Needs::Seccomp) {
            continue;
        }
        for (requests, expected) in [(SNAPSHOTS, true), (SHARING, false)] {
            let calls: Vec<_> = requests
                .iter()
                .map(|request| format!("ioctl(F,{request},$b)"))
                .collect();
            let Some(denied) = denied(&fixture, &calls).await else {
                return;
            };
            for (request, denied) in requests.iter().zip(denied) {
                assert_eq!(denied, expected, "without {disabled:?}, {request:#x}");
            }
        }
    }
}

/// Calls for System V objects, and for queues, that others have created. Numbers of objects can be
/// guessed.
const OBJECTS: &[(i64, &str)] = &[
    (libc::SYS_shmat, "-1, 0, 0"),
    (libc::SYS_shmctl, "-1, 2, $b"),
    (libc::SYS_semop, "-1, $b, 1"),
    (libc::SYS_semtimedop, "-1, $b, 1, 0"),
    (libc::SYS_semctl, "-1, 0, 12, 0"),
    (libc::SYS_semget, "0, 1, 0"),
    (libc::SYS_msgsnd, "-1, $b, 1, 04000"),
    (libc::SYS_msgrcv, "-1, $b, 1, 0, 04000"),
    (libc::SYS_msgctl, "-1, 2, $b"),
    (libc::SYS_msgget, "0, 0"),
    (libc::SYS_mq_unlink, "$n"),
    (libc::SYS_mq_open, "$n, 0, 0, 0"),
];

#[tokio::test]
async fn command_cannot_use_system_v_objects() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !holds(fixture.sandbox.report(), Needs::Seccomp) {
            continue;
        }
        let call = |(number, args): &(i64, &str)| {
            format!("my $n = \"levity-none\"; syscall({number}, {args})")
        };
        let calls: Vec<_> = OBJECTS.iter().map(call).collect();
        let Some(denied) = denied(&fixture, &calls).await else {
            return;
        };
        for ((number, _), denied) in OBJECTS.iter().zip(denied) {
            assert!(denied, "without {disabled:?}, call {number}");
        }
    }
}

/// Socket filters are denied. System call filters appear to be loaded and have no effect: each
/// would deny the call `getpid`, which still works in the end.
#[tokio::test]
async fn command_cannot_load_kernel_filters() {
    let code = r#"
        use Socket;
        socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or die;
        # A program that accepts all bytes, and one that denies `getpid`.
        my $all = pack("SCCL", 0x06, 0, 0, 0xFFFF);
        my $accept = pack("Sx6P", 1, $all);
        for my $option (26, 50, 51, 52) {
            $! = 0;
            setsockopt(A, 1, $option, $accept);
            print $!{EACCES} ? 1 : 0;
        }
        my $getpid = pack("(SCCL)4", 0x20, 0, 0, 0, 0x15, 0, 1, GETPID,
            0x06, 0, 0, 0x50001, 0x06, 0, 0, 0x7FFF0000);
        my $deny = pack("Sx6P", 4, $getpid);
        print syscall(PRCTL, 22, 2, $deny);
        print syscall(SECCOMP, 1, 0, $deny);
        print syscall(SECCOMP, 1, 8, $deny) == -1 && $!{EACCES} ? 1 : 0;
        print syscall(GETPID) > 0 ? 1 : 0;
    "#;
    let code = code
        .replace("GETPID", &libc::SYS_getpid.to_string())
        .replace("PRCTL", &libc::SYS_prctl.to_string())
        .replace("SECCOMP", &libc::SYS_seccomp.to_string());
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !holds(fixture.sandbox.report(), Needs::Seccomp) {
            continue;
        }
        let finished = fixture.shell(&perl(&code)).await.unwrap();
        if finished.exit == Exit::Code(127) {
            println!("not tried: there is no Perl");
            return;
        }
        assert_eq!(
            finished.stdout.text, "11110011",
            "without {disabled:?}: {finished:?}"
        );
    }
}

/// Leases and delegations make others wait that open a file or a folder.
#[tokio::test]
async fn command_cannot_take_lease() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !holds(fixture.sandbox.report(), Needs::Seccomp) {
            continue;
        }
        let calls = [1024, 1040].map(|command| format!("fcntl(F,{command},$b)"));
        let Some(denied) = denied(&fixture, &calls).await else {
            return;
        };
        assert_eq!(denied, [true, true], "without {disabled:?}");
    }
}

#[tokio::test]
async fn read_only_command_sees_no_host_sockets() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !fixture.sandbox.report().read_only.is_enforced {
            continue;
        }
        let line = "cat /proc/net/unix /proc/self/net/unix; true";
        let finished = fixture.sandbox.shell(line).read_only().run().await.unwrap();
        assert!(
            !finished.stdout.text.contains(fixture.mark()),
            "without {disabled:?}: {finished:?}"
        );
    }
}

#[tokio::test]
async fn command_that_locks_private_folders_does_not_block_others() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let line = "chmod 000 $TMPDIR $HOME; cd /; chmod 000 ${TMPDIR%/*}/empty ${TMPDIR%/*}; true";
        fixture.shell(line).await.unwrap();
        let finished = fixture
            .shell("echo x > $TMPDIR/x && echo x > $HOME/x")
            .await
            .unwrap();
        assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
        fixture.shell(line).await.unwrap();
        if fixture.sandbox.report().read_only.is_enforced {
            let finished = fixture
                .sandbox
                .shell("echo x > $TMPDIR/x; ls $HOME")
                .read_only()
                .run();
            let finished = finished.await.unwrap();
            assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
        }
    }
}

/// Root could give a file any group, and every user who runs it the rights of that group.
#[tokio::test]
async fn command_cannot_create_set_group_id_file() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let line = "cp /bin/cat own; chgrp 42 own; chmod g+s own; test ! -g own || test $(stat -c \
            %g own) != 42";
        let finished = fixture.shell(line).await.unwrap();
        assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
    }
}
