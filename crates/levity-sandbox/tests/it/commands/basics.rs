use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use levity_sandbox::{Exit, Mechanism, Network, Stream};

use super::DISABLED;
use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_commands_work() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let check = async |line: &str, code: i32, out: &str| {
            let finished = fixture.shell(line).await.unwrap();
            let expected = (Exit::Code(code), out);
            assert_eq!(
                (finished.exit, finished.stdout.text.as_str()),
                expected,
                "without {disabled:?}: {finished:?}"
            );
        };
        check("echo hello", 0, "hello\n").await;
        check(
            "echo a > f && cat f && mkdir d && mv f d/f && cat d/f",
            0,
            "a\na\n",
        )
        .await;
        check(
            "printf '#!/bin/sh\\necho ran\\n' > s && chmod +x s && ./s",
            0,
            "ran\n",
        )
        .await;
        check(
            "echo x > $TMPDIR/t && cat $TMPDIR/t && echo y > ~/h && cat ~/h",
            0,
            "x\ny\n",
        )
        .await;
        check("cat; echo done", 0, "done\n").await;
        check("exec >&- 2>&-; echo lost; exit 7", 7, "").await;
        check("echo x > /dev/null; head -c 2 /dev/zero | wc -c", 0, "2\n").await;
        check("printf 'a\\377b\\303'", 0, "a\u{FFFD}b\u{FFFD}").await;
    }
}

#[tokio::test]
async fn exit_kinds_are_distinguished() {
    let fixture = Fixture::new(&[], |builder| builder);
    assert_eq!(fixture.shell("exit 3").await.unwrap().exit, Exit::Code(3));
    assert_eq!(
        fixture.shell("kill -TERM $$").await.unwrap().exit,
        Exit::Signal(15)
    );
    let finished = fixture
        .sandbox
        .command(["sh", "-c", "echo out; echo err >&2; exit 255"])
        .run()
        .await
        .unwrap();
    assert_eq!(finished.exit, Exit::Code(255));
    assert_eq!(
        (finished.stdout.text.as_str(), finished.stderr.text.as_str()),
        ("out\n", "err\n")
    );
}

#[tokio::test]
async fn environment_contains_only_named_variables() {
    let fixture = Fixture::new(&[], |builder| {
        builder.env("CI", "1").allow_env("LEVITY_NOT_SET")
    });
    let finished = fixture
        .sandbox
        .command(["env"])
        .env("MORE", "2")
        .run()
        .await
        .unwrap();
    let names: BTreeSet<_> = finished
        .stdout
        .text
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let named = [
        "PATH", "HOME", "TMPDIR", "TERM", "LANG", "CI", "MORE", "MARK", "OUT", "WORK", "HOST",
        "TCP", "UDP",
    ];
    for (name, _) in &names {
        assert!(
            named.contains(name) || name.starts_with("LC_"),
            "`{name}` is in the environment"
        );
    }
    assert!(
        names.contains(&("CI", "1"))
            && names.contains(&("MORE", "2"))
            && names.contains(&("TERM", "dumb"))
    );
}

#[tokio::test]
async fn command_reads_its_input() {
    let fixture = Fixture::new(&[], |builder| builder);
    let finished = fixture
        .sandbox
        .command(["cat"])
        .stdin("hello")
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "hello");
    // This is more than a pipe buffers, for a command that reads it and for one that does not.
    let long = "x".repeat(1 << 20);
    let finished = fixture
        .sandbox
        .command(["wc", "-c"])
        .stdin(long.clone())
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text.trim(), "1048576");
    assert!(
        fixture
            .sandbox
            .command(["true"])
            .stdin(long)
            .run()
            .await
            .unwrap()
            .is_success()
    );
}

#[tokio::test]
async fn listener_receives_output_in_chunks() {
    let fixture = Fixture::new(&[], |builder| builder.max_output(40_000));
    let heard = Arc::new(Mutex::new((String::new(), String::new(), 0)));
    let ear = Arc::clone(&heard);
    let line = "echo first; echo problem >&2; i=0; while [ $i -lt 2000 ]; do echo ääääääääää; \
        i=$((i+1)); done";
    let command = fixture.sandbox.shell(line).on_output(move |stream, text| {
        let mut heard = ear.lock().unwrap();
        heard.2 = heard.2.max(text.len());
        match stream {
            Stream::Stdout => heard.0.push_str(text),
            Stream::Stderr => heard.1.push_str(text),
        }
    });
    let finished = command.run().await.unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.0.starts_with("first\nää") && heard.1 == "problem\n");
    assert!(heard.2 <= 8 << 10, "a piece had {} bytes", heard.2);
    assert!(heard.0.len() <= 40_000);
    assert!(finished.stdout.is_truncated() && finished.stdout.text.contains("bytes left out"));
    assert!(finished.stdout.text.ends_with("ä\n"));
}

#[tokio::test]
async fn panic_of_listener_resumes_after_command_ends() {
    let fixture = Fixture::new(&[], |builder| builder);
    let command = fixture
        .sandbox
        .shell("echo hello; sleep 1000 & exit")
        .on_output(|_, _| panic!("on purpose"));
    let task = tokio::spawn(command.run());
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(fixture.left_running(), [0_i32; 0]);
}

#[tokio::test]
async fn command_starts_in_folder_of_workspace() {
    let fixture = Fixture::new(&[], |builder| builder);
    fs::create_dir_all(fixture.work().join("a/b")).unwrap();
    let finished = fixture
        .sandbox
        .command(["pwd"])
        .dir("a/./b")
        .run()
        .await
        .unwrap();
    assert!(
        finished.stdout.text.trim().ends_with("work/a/b"),
        "{finished:?}"
    );
    let finished = fixture
        .sandbox
        .command(["pwd"])
        .dir("")
        .run()
        .await
        .unwrap();
    assert!(
        finished.stdout.text.trim().ends_with("/work"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn allowed_places_can_be_used() {
    for disabled in DISABLED {
        let folder = tempfile::tempdir().unwrap();
        let (reads, writes) = (folder.path().join("reads"), folder.path().join("writes"));
        fs::create_dir(&reads).unwrap();
        fs::create_dir(&writes).unwrap();
        fs::write(reads.join("f"), "readable").unwrap();
        let fixture = Fixture::new(disabled, |builder| {
            builder
                .allow_read(&reads)
                .allow_write(&writes)
                .env("READS", &reads)
                .env("WRITES", &writes)
        });
        let finished = fixture
            .shell("cat $READS/f; echo new > $WRITES/f")
            .await
            .unwrap();
        assert!(
            finished.is_success() && finished.stdout.text == "readable",
            "without {disabled:?}: {finished:?}"
        );
        assert_eq!(fs::read_to_string(writes.join("f")).unwrap(), "new\n");
        if fixture.sandbox.report().files.is_enforced {
            let finished = fixture
                .shell("echo x > $READS/f || rm $READS/f || mkdir $READS/d")
                .await
                .unwrap();
            assert!(!finished.is_success(), "without {disabled:?}: {finished:?}");
            assert_eq!(fs::read_to_string(reads.join("f")).unwrap(), "readable");
        }
    }
}

#[tokio::test]
async fn command_has_its_own_loopback_device() {
    let fixture = Fixture::new(&[], |builder| builder);
    if !fixture
        .sandbox
        .report()
        .network
        .mechanisms
        .contains(&Mechanism::NetworkNamespace)
    {
        println!("not tried: there is no network namespace");
        return;
    }
    let code = "use IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => \
        q(127.0.0.1)) or die;
        my $c = IO::Socket::INET->new(PeerAddr => q(127.0.0.1), PeerPort => $l->sockport) or die; \
        print q(met)";
    let finished = fixture.sandbox.command(["perl", "-e", code]).run().await;
    match finished {
        Ok(finished) if finished.stdout.text == "met" => {}
        finished => assert!(fixture.shell("perl -e 1").await.is_err(), "{finished:?}"),
    }
}

#[tokio::test]
async fn network_can_be_allowed() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder.network(Network::Any));
        let code = "use Socket; socket(S,PF_INET,SOCK_STREAM,0) && \
            connect(S,sockaddr_in($ENV{TCP},INADDR_LOOPBACK)) && print 'met'";
        let finished = fixture.sandbox.command(["perl", "-e", code]).run().await;
        let Ok(finished) = finished else { return };
        assert_eq!(
            finished.stdout.text, "met",
            "without {disabled:?}: {finished:?}"
        );
        assert!(fixture.damage().is_some());
        // Sockets that lead to the host, and not to the network, stay unreachable.
        if fixture
            .sandbox
            .report()
            .network
            .mechanisms
            .contains(&Mechanism::Seccomp)
        {
            let code = "use Socket; socket(S,PF_UNIX,SOCK_STREAM,0) && print 'ESCAPED'";
            let finished = fixture
                .sandbox
                .command(["perl", "-e", code])
                .run()
                .await
                .unwrap();
            assert_eq!(finished.stdout.text, "", "without {disabled:?}");
        }
    }
}

#[tokio::test]
async fn private_folder_is_removed_with_sandbox() {
    let fixture = Fixture::new(&[], |builder| builder);
    let line = "mkdir -p ~/a/b && touch ~/a/b/c && chmod 0 ~/a/b ~/a && printf %s $HOME";
    let home = fixture.shell(line).await.unwrap().stdout.text;
    assert!(fs::metadata(&home).is_ok());
    drop(fixture);
    assert!(fs::metadata(&home).is_err(), "{home} is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_without_process_namespace_stays_in_session() {
    let fixture = Fixture::new(&["namespaces"], |builder| builder);
    if !fixture.sandbox.report().files.is_enforced {
        return println!("not tried: {}", fixture.sandbox.report().files);
    }
    for call in ["POSIX::setsid()", "POSIX::setpgid(0, 0)", "setpgrp(0, 0)"] {
        // The first process leads a session, so a child of it makes the call.
        let code = format!(
            "use POSIX; unless (fork) {{ my $g = getpgrp; print defined({call}) ? q(yes) : q(no), \
                getpgrp == $g ? 1 : 0 }} wait"
        );
        let finished = fixture
            .shell(&format!("perl -e '{code}'; :"))
            .await
            .unwrap();
        assert_eq!(finished.stdout.text, "yes1", "{call}: {finished:?}");
    }
    let finished = fixture
        .shell("ls /proc; cat /proc/self/status /proc/1/stat; ls /proc/self/fd")
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "", "{finished:?}");
}

#[tokio::test]
async fn command_without_real_time_watcher_has_lower_priority() {
    let fixture = Fixture::new(&[], |builder| builder);
    let is_root = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0;
    let finished = fixture.shell("nice").await.unwrap();
    let nice: i32 = finished.stdout.text.trim().parse().unwrap();
    assert!(is_root || nice >= 10, "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_retains_only_file_capabilities() {
    for disabled in [&[][..], &["root"]] {
        let fixture = Fixture::new(disabled, |builder| builder);
        let finished = fixture.shell("cat /proc/self/status").await.unwrap();
        if !finished.is_success() {
            println!("without {disabled:?} not tried: there is no `/proc`");
            continue;
        }
        let value = |name: &str| {
            let line = finished
                .stdout
                .text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        // The capabilities to change owners, modes and files of others.
        let over_files = if disabled.is_empty() { 0b1_1011 } else { 0 };
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let is_bound = name == "CapBnd:"
                && fs::read_to_string("/proc/self/status").is_ok_and(|status| {
                    // A user without the right to drop them cannot use them.
                    status.contains("CapEff:\t0000000000000000")
                });
            assert!(
                is_bound || value(name) & !over_files == 0,
                "without {disabled:?}: {name} {:x}",
                value(name)
            );
        }
        assert_eq!(value("NoNewPrivs:"), 1);
    }
}

#[tokio::test]
async fn named_programs_are_taken_from_system() {
    use std::os::unix::fs::PermissionsExt;

    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let bin = fixture.work().join("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["date", "own", "missing"] {
            fs::write(bin.join(name), "#!/bin/sh\necho planted $0\n").unwrap();
            fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:bin:/usr/bin:/bin", bin.display());
        let run = async |line: &str| {
            let command = fixture.sandbox.shell(line).env("PATH", &path);
            let names = [
                "date", "missing", "date", "", ".", "..", "../made", "/made", "a/b",
            ];
            let finished = command
                .use_system_programs(names)
                .use_system_programs(["date"])
                .run()
                .await
                .unwrap();
            (finished.is_success(), finished.stdout.text)
        };
        let (done, text) = run("date +x%%").await;
        assert_eq!(
            (done, text.as_str()),
            (true, "x%\n"),
            "without {disabled:?}"
        );
        assert_eq!(
            run("missing").await,
            (false, String::new()),
            "without {disabled:?}"
        );
        assert!(
            run("own").await.1.contains("planted"),
            "without {disabled:?}"
        );
        if fixture.sandbox.report().files.is_enforced {
            let line = "ln -sf $PWD/bin/own $(dirname $(command -v date))/date; date +x";
            assert_eq!(run(line).await.1, "x\n", "without {disabled:?}");
        }
    }
}
