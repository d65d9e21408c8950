use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use levity_sandbox::{Exit, Mechanism, Network, Stream};

use super::RUNGS;
use super::arena::Arena;

#[tokio::test(flavor = "multi_thread")]
async fn commands_do_what_they_should() {
    for rung in RUNGS {
        let arena = Arena::new(rung, |builder| builder);
        let check = async |line: &str, code: i32, out: &str| {
            let finished = arena.shell(line).await.unwrap();
            let expected = (Exit::Code(code), out);
            assert_eq!(
                (finished.exit, finished.stdout.text.as_str()),
                expected,
                "without {rung:?}: {finished:?}"
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
async fn exits_are_told_apart() {
    let arena = Arena::new(&[], |builder| builder);
    assert_eq!(arena.shell("exit 3").await.unwrap().exit, Exit::Code(3));
    assert_eq!(
        arena.shell("kill -TERM $$").await.unwrap().exit,
        Exit::Signal(15)
    );
    let finished = arena
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
async fn only_what_was_named_is_in_the_environment() {
    let arena = Arena::new(&[], |builder| {
        builder.env("CI", "1").allow_env("LEVITY_NOT_SET")
    });
    let finished = arena
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
async fn input_can_be_given() {
    let arena = Arena::new(&[], |builder| builder);
    let finished = arena
        .sandbox
        .command(["cat"])
        .stdin("hello")
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "hello");
    // More than a pipe takes at once, to one that reads it and to one that does not.
    let long = "x".repeat(1 << 20);
    let finished = arena
        .sandbox
        .command(["wc", "-c"])
        .stdin(long.clone())
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text.trim(), "1048576");
    assert!(
        arena
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
async fn output_is_handed_on_in_pieces() {
    let arena = Arena::new(&[], |builder| builder.output(40_000));
    let heard = Arc::new(Mutex::new((String::new(), String::new(), 0)));
    let ear = Arc::clone(&heard);
    let line = "echo first; echo problem >&2; i=0; while [ $i -lt 2000 ]; do echo ääääääääää; \
        i=$((i+1)); done";
    let command = arena.sandbox.shell(line).on_output(move |stream, text| {
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
    assert!(finished.stdout.is_cut() && finished.stdout.text.contains("bytes left out"));
    assert!(finished.stdout.text.ends_with("ä\n"));
}

#[tokio::test]
async fn a_listener_that_panics_is_heard_after_the_end() {
    let arena = Arena::new(&[], |builder| builder);
    let command = arena
        .sandbox
        .shell("echo hello; sleep 1000 & exit")
        .on_output(|_, _| panic!("on purpose"));
    let task = tokio::spawn(command.run());
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(arena.left_running(), [0_i32; 0]);
}

#[tokio::test]
async fn directories_of_the_workspace_can_be_begun_in() {
    let arena = Arena::new(&[], |builder| builder);
    fs::create_dir_all(arena.work().join("a/b")).unwrap();
    let finished = arena
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
    let finished = arena.sandbox.command(["pwd"]).dir("").run().await.unwrap();
    assert!(
        finished.stdout.text.trim().ends_with("/work"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn places_can_be_opened_up() {
    for rung in RUNGS {
        let folder = tempfile::tempdir().unwrap();
        let (reads, writes) = (folder.path().join("reads"), folder.path().join("writes"));
        fs::create_dir(&reads).unwrap();
        fs::create_dir(&writes).unwrap();
        fs::write(reads.join("f"), "readable").unwrap();
        let arena = Arena::new(rung, |builder| {
            builder
                .read(&reads)
                .write(&writes)
                .env("READS", &reads)
                .env("WRITES", &writes)
        });
        let finished = arena
            .shell("cat $READS/f; echo new > $WRITES/f")
            .await
            .unwrap();
        assert!(
            finished.is_success() && finished.stdout.text == "readable",
            "without {rung:?}: {finished:?}"
        );
        assert_eq!(fs::read_to_string(writes.join("f")).unwrap(), "new\n");
        if arena.sandbox.report().files.holds {
            let finished = arena
                .shell("echo x > $READS/f || rm $READS/f || mkdir $READS/d")
                .await
                .unwrap();
            assert!(!finished.is_success(), "without {rung:?}: {finished:?}");
            assert_eq!(fs::read_to_string(reads.join("f")).unwrap(), "readable");
        }
    }
}

#[tokio::test]
async fn the_loopback_device_is_the_commands_own() {
    let arena = Arena::new(&[], |builder| builder);
    if !arena
        .sandbox
        .report()
        .network
        .by
        .contains(&Mechanism::NetworkNamespace)
    {
        println!("not tried: there is no network namespace");
        return;
    }
    let code = "use IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => \
        q(127.0.0.1)) or die;
        my $c = IO::Socket::INET->new(PeerAddr => q(127.0.0.1), PeerPort => $l->sockport) or die; \
        print q(met)";
    let finished = arena.sandbox.command(["perl", "-e", code]).run().await;
    match finished {
        Ok(finished) if finished.stdout.text == "met" => {}
        finished => assert!(arena.shell("perl -e 1").await.is_err(), "{finished:?}"),
    }
}

#[tokio::test]
async fn the_network_can_be_opened() {
    for rung in RUNGS {
        let arena = Arena::new(rung, |builder| builder.network(Network::Any));
        let code = "use Socket; socket(S,PF_INET,SOCK_STREAM,0) && \
            connect(S,sockaddr_in($ENV{TCP},INADDR_LOOPBACK)) && print 'met'";
        let finished = arena.sandbox.command(["perl", "-e", code]).run().await;
        let Ok(finished) = finished else { return };
        assert_eq!(
            finished.stdout.text, "met",
            "without {rung:?}: {finished:?}"
        );
        assert!(arena.damage().is_some());
        // What is not the network, but a door to the host, stays shut.
        if arena
            .sandbox
            .report()
            .network
            .by
            .contains(&Mechanism::Seccomp)
        {
            let code = "use Socket; socket(S,PF_UNIX,SOCK_STREAM,0) && print 'ESCAPED'";
            let finished = arena
                .sandbox
                .command(["perl", "-e", code])
                .run()
                .await
                .unwrap();
            assert_eq!(finished.stdout.text, "", "without {rung:?}");
        }
    }
}

#[tokio::test]
async fn the_private_folder_is_removed() {
    let arena = Arena::new(&[], |builder| builder);
    let line = "mkdir -p ~/a/b && touch ~/a/b/c && chmod 0 ~/a/b ~/a && printf %s $HOME";
    let home = arena.shell(line).await.unwrap().stdout.text;
    assert!(fs::metadata(&home).is_ok());
    drop(arena);
    assert!(fs::metadata(&home).is_err(), "{home} is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_without_a_process_namespace_stays_in_its_session_and_sees_no_process() {
    let arena = Arena::new(&["namespaces"], |builder| builder);
    if !arena.sandbox.report().files.holds {
        return println!("not tried: {}", arena.sandbox.report().files);
    }
    for call in ["POSIX::setsid()", "POSIX::setpgid(0, 0)", "setpgrp(0, 0)"] {
        // The first process leads a session, so a child of it asks.
        let code = format!(
            "use POSIX; unless (fork) {{ my $g = getpgrp; print defined({call}) ? q(yes) : q(no), \
                getpgrp == $g ? 1 : 0 }} wait"
        );
        let finished = arena.shell(&format!("perl -e '{code}'; :")).await.unwrap();
        assert_eq!(finished.stdout.text, "yes1", "{call}: {finished:?}");
    }
    let finished = arena
        .shell("ls /proc; cat /proc/self/status /proc/1/stat; ls /proc/self/fd")
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "", "{finished:?}");
}

#[tokio::test]
async fn command_of_a_user_without_real_time_priority_steps_back() {
    let arena = Arena::new(&[], |builder| builder);
    let is_root = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0;
    let finished = arena.shell("nice").await.unwrap();
    let nice: i32 = finished.stdout.text.trim().parse().unwrap();
    assert!(is_root || nice >= 10, "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_has_no_capabilities_but_those_of_root_over_files() {
    for rung in [&[][..], &["root"]] {
        let arena = Arena::new(rung, |builder| builder);
        let finished = arena.shell("cat /proc/self/status").await.unwrap();
        if !finished.is_success() {
            println!("without {rung:?} not tried: there is no `/proc`");
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
        // To change owners, modes and files of others.
        let over_files = if rung.is_empty() { 0b1_1011 } else { 0 };
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let is_bound = name == "CapBnd:"
                && fs::read_to_string("/proc/self/status").is_ok_and(|status| {
                    // A user without the right to drop them has none of their power.
                    status.contains("CapEff:\t0000000000000000")
                });
            assert!(
                is_bound || value(name) & !over_files == 0,
                "without {rung:?}: {name} {:x}",
                value(name)
            );
        }
        assert_eq!(value("NoNewPrivs:"), 1);
    }
}

#[tokio::test]
async fn programs_are_taken_from_the_system_by_their_names_alone() {
    use std::os::unix::fs::PermissionsExt;

    for rung in RUNGS {
        let arena = Arena::new(rung, |builder| builder);
        let bin = arena.work().join("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["date", "own", "missing"] {
            fs::write(bin.join(name), "#!/bin/sh\necho planted $0\n").unwrap();
            fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:bin:/usr/bin:/bin", bin.display());
        let run = async |line: &str| {
            let command = arena.sandbox.shell(line).env("PATH", &path);
            let names = [
                "date", "missing", "date", "", ".", "..", "../made", "/made", "a/b",
            ];
            let finished = command
                .take_from_system(names)
                .take_from_system(["date"])
                .run()
                .await
                .unwrap();
            (finished.is_success(), finished.stdout.text)
        };
        let (done, text) = run("date +x%%").await;
        assert_eq!((done, text.as_str()), (true, "x%\n"), "without {rung:?}");
        assert_eq!(
            run("missing").await,
            (false, String::new()),
            "without {rung:?}"
        );
        assert!(run("own").await.1.contains("planted"), "without {rung:?}");
        if arena.sandbox.report().files.holds {
            let line = "ln -sf $PWD/bin/own $(dirname $(command -v date))/date; date +x";
            assert_eq!(run(line).await.1, "x\n", "without {rung:?}");
        }
    }
}
