use std::fs;
use std::process::Command;

use levity_sandbox::{Mechanism, Sandbox, Workspace};

use super::RUNGS;
use super::arena::Arena;

#[tokio::test]
async fn a_file_sends_no_signal_to_the_watcher() {
    // F_SETOWN, F_SETSIG, and F_SETFL with O_ASYNC: whoever owns it is sent SIGKILL when it can be
    // read.
    let code = "pipe(R, W); fcntl(R, 8, getppid()); fcntl(R, 10, 9); fcntl(R, 4, 0x2000); \
        syswrite(W, q(x));
        select(undef, undef, undef, 0.2); print q(done)";
    for rung in RUNGS {
        let arena = Arena::new(rung, |builder| builder);
        if !arena.sandbox.report().processes.holds {
            println!(
                "without {rung:?} not tried: {}",
                arena.sandbox.report().processes
            );
            continue;
        }
        if !arena.shell("perl -e 1").await.unwrap().is_success() {
            println!("not tried: there is no Perl");
            return;
        }
        let finished = arena.sandbox.command(["perl", "-e", code]).run().await;
        assert_eq!(finished.unwrap().stdout.text, "done", "without {rung:?}");
        arena.assert_empty();
    }
}

#[tokio::test]
async fn what_git_executes_is_not_put_in_place_of_what_is_there() {
    for rung in [&[][..], &["root"], &["landlock"]] {
        let arena = Arena::new(rung, |builder| builder);
        if !arena.sandbox.report().hidden.holds {
            println!(
                "without {rung:?} not tried: {}",
                arena.sandbox.report().hidden
            );
            continue;
        }
        let git = arena.work().join(".git");
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::write(git.join("config"), "good").unwrap();
        fs::create_dir(arena.work().join("sub")).unwrap();
        fs::write(arena.work().join("sub/.git"), "gitdir: good").unwrap();
        for line in [
            "mv .git other && cp -r other .git && echo evil > .git/config",
            "echo evil > .git/config",
            "echo evil > .git/hooks/pre-commit",
            "mv .git/config old; echo evil > .git/config",
            "rm -rf .git; mkdir .git && echo evil > .git/config",
            "echo evil > sub/.git",
            "mv sub/.git old; echo evil > sub/.git",
        ] {
            let finished = arena.shell(line).await.unwrap();
            assert!(
                !finished.is_success(),
                "without {rung:?}, `{line}`: {finished:?}"
            );
            assert_eq!(
                fs::read_to_string(git.join("config")).unwrap(),
                "good",
                "{line}"
            );
            assert_eq!(
                fs::read_to_string(arena.work().join("sub/.git")).unwrap(),
                "gitdir: good",
                "{line}"
            );
        }
        // All else is Git's.
        let finished = arena
            .shell("echo x > .git/index.lock && mv .git/index.lock .git/index")
            .await
            .unwrap();
        assert!(finished.is_success(), "without {rung:?}: {finished:?}");
    }
}

/// Not a test: the next one runs it with something mounted in `LEVITY_WORK`.
#[tokio::test]
async fn host_with_a_mount() {
    let Ok(work) = std::env::var("LEVITY_WORK") else {
        return;
    };
    let sandbox = Sandbox::builder(Workspace::open(work).unwrap())
        .build()
        .unwrap();
    if !sandbox
        .report()
        .files
        .by
        .contains(&Mechanism::MountNamespace)
    {
        println!("not tried: {}", sandbox.report().files);
        return;
    }
    let finished = sandbox
        .shell("echo x > fixed/f; echo $?; echo y > free/f && echo y > f")
        .run()
        .await
        .unwrap();
    assert!(
        finished.is_success() && finished.stdout.text != "0\n",
        "{finished:?}"
    );
    println!("TRIED");
}

#[test]
fn what_is_mounted_read_only_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["fixed", "free"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let line = "mount --bind fixed fixed && mount -o remount,bind,ro fixed && mount --bind free \
        free && exec \"$@\"";
    let run = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", line, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "commands::kept::host_with_a_mount",
            "--nocapture",
        ])
        .current_dir(folder.path())
        .env("LEVITY_WORK", folder.path())
        .output();
    let Ok(run) = run else {
        return println!("not tried: there is no `unshare`");
    };
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    if !said.contains("running 1 test") {
        return println!("not tried: nothing can be mounted here");
    }
    assert!(run.status.success(), "{said}");
    assert!(!folder.path().join("fixed/f").exists());
    if said.contains("TRIED") {
        assert_eq!(
            fs::read_to_string(folder.path().join("free/f")).unwrap(),
            "y\n"
        );
    }
}

#[test]
fn what_is_dropped_before_it_begins_does_not_begin() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let arena = Arena::new(&[], |builder| builder);
    let (free, busy) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let other = tokio::task::spawn_blocking(move || busy.recv());
        let mut run = Box::pin(arena.sandbox.shell("echo x > begun; sleep 1000").run());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(run.as_mut().poll(&mut cx).is_pending());
        drop(run);
        free.send(()).unwrap();
        other.await.unwrap().unwrap();
        // The pool has one thread, so when this is done the command has had its turn.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    });
    assert!(!arena.work().join("begun").exists());
    arena.assert_empty();
}
