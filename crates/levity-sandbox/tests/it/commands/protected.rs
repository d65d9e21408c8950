use std::fs;
use std::process::Command;

use levity_sandbox::{Mechanism, Sandbox, Workspace};

use super::DISABLED;
use super::fixture::Fixture;

#[tokio::test]
async fn file_owner_signal_does_not_reach_watcher() {
    // F_SETOWN, F_SETSIG, and F_SETFL with O_ASYNC: the owner receives SIGKILL when data is
    // readable.
    let code = "pipe(R, W); fcntl(R, 8, getppid()); fcntl(R, 10, 9); fcntl(R, 4, 0x2000); \
        syswrite(W, q(x));
        select(undef, undef, undef, 0.2); print q(done)";
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !fixture.sandbox.report().processes.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                fixture.sandbox.report().processes
            );
            continue;
        }
        if !fixture.shell("perl -e 1").await.unwrap().is_success() {
            println!("not tried: there is no Perl");
            return;
        }
        let finished = fixture.sandbox.command(["perl", "-e", code]).run().await;
        assert_eq!(
            finished.unwrap().stdout.text,
            "done",
            "without {disabled:?}"
        );
        fixture.assert_empty();
    }
}

#[tokio::test]
async fn command_cannot_replace_files_that_git_executes() {
    for disabled in [&[][..], &["root"], &["landlock"]] {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !fixture.sandbox.report().hidden_files.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                fixture.sandbox.report().hidden_files
            );
            continue;
        }
        let git = fixture.work().join(".git");
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::write(git.join("config"), "good").unwrap();
        fs::create_dir(fixture.work().join("sub")).unwrap();
        fs::write(fixture.work().join("sub/.git"), "gitdir: good").unwrap();
        for line in [
            "mv .git other && cp -r other .git && echo evil > .git/config",
            "echo evil > .git/config",
            "echo evil > .git/hooks/pre-commit",
            "mv .git/config old; echo evil > .git/config",
            "rm -rf .git; mkdir .git && echo evil > .git/config",
            "echo evil > sub/.git",
            "mv sub/.git old; echo evil > sub/.git",
        ] {
            let finished = fixture.shell(line).await.unwrap();
            assert!(
                !finished.is_success(),
                "without {disabled:?}, `{line}`: {finished:?}"
            );
            assert_eq!(
                fs::read_to_string(git.join("config")).unwrap(),
                "good",
                "{line}"
            );
            assert_eq!(
                fs::read_to_string(fixture.work().join("sub/.git")).unwrap(),
                "gitdir: good",
                "{line}"
            );
        }
        // Everything else belongs to git.
        let finished = fixture
            .shell("echo x > .git/index.lock && mv .git/index.lock .git/index")
            .await
            .unwrap();
        assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
    }
}

/// Not a test: the next test runs it with something mounted in `LEVITY_WORK`.
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
        .mechanisms
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
fn read_only_mount_stays_read_only() {
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
            "commands::protected::host_with_a_mount",
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
fn command_dropped_before_start_does_not_run() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let fixture = Fixture::new(&[], |builder| builder);
    let (free, busy) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let other = tokio::task::spawn_blocking(move || busy.recv());
        let mut run = Box::pin(fixture.sandbox.shell("echo x > begun; sleep 1000").run());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(run.as_mut().poll(&mut cx).is_pending());
        drop(run);
        free.send(()).unwrap();
        other.await.unwrap().unwrap();
        // The pool has one thread, so the command has run when this is done.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    });
    assert!(!fixture.work().join("begun").exists());
    fixture.assert_empty();
}
