//! Other programs, other processes and other commands that replace or remove protected files while
//! a command runs, and files that do not exist yet.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use levity_sandbox::{CommandError, CommandOutput, Sandbox, Workspace};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::hidden::put;

/// Creates a workspace with a repository and a secret, unless this system cannot hide files.
fn sandbox(reserved: &[&str]) -> Option<(TempDir, Sandbox)> {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        ".git/HEAD",
        ".git/objects/x",
        ".git/refs/x",
        ".env",
        ".ssh/id",
    ];
    for name in names {
        put(folder.path(), name, "ref: refs/heads/main\n");
    }
    put(folder.path(), ".git/config", "[core]\n");
    let sandbox = open(folder.path(), reserved)?;
    Some((folder, sandbox))
}

fn open(folder: &Path, reserved: &[&str]) -> Option<Sandbox> {
    let workspace = reserved
        .iter()
        .fold(Workspace::builder(folder), |builder, path| {
            builder.deny(format!("/{path}")).reserve(*path)
        });
    let sandbox = Sandbox::builder(workspace.build().unwrap());
    let sandbox = sandbox.time_limit(Duration::from_secs(30)).build().unwrap();
    let is_enforced = sandbox.report().hidden_files.is_enforced;
    if !is_enforced {
        println!("not tried: {}", sandbox.report().hidden_files);
    }
    is_enforced.then_some(sandbox)
}

/// A line that waits for the file `end`.
const WAIT: &str = "while [ ! -e end ]; do sleep 0.01; done";

/// Starts a command, and returns when it has created the file `started`.
async fn start(
    folder: &Path,
    sandbox: &Sandbox,
    line: &str,
) -> JoinHandle<Result<CommandOutput, CommandError>> {
    let command = sandbox.shell(format!("echo > started; {line}"));
    let mut running = tokio::spawn(async move { command.run().await });
    let started = folder.join("started");
    tokio::select! {
        () = wait_for(&started) => running,
        ended = &mut running => panic!("{ended:?}"),
    }
}

async fn wait_for(path: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < end, "{} is missing", path.display());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Another program puts a new file in place of an old one.
fn replace(path: &Path, text: &str, is_moved_first: bool) {
    if is_moved_first {
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::write(path, text).unwrap();
    } else {
        fs::write(path.with_extension("new"), text).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_file_is_hidden_or_protected_again_and_reported() {
    for (name, is_moved_first) in [
        (".env", false),
        (".env", true),
        (".git/config", false),
        (".git/config", true),
        ("sub/.env", true),
    ] {
        let Some((folder, sandbox)) = sandbox(&["settings.toml"]) else {
            return;
        };
        put(folder.path(), "sub/.env", "old");
        let line = format!("{WAIT}; echo evil >> {name}; cat {name}; echo done");
        let running = start(folder.path(), &sandbox, &line).await;
        let path = folder.path().join(name);
        replace(&path, "new\n", is_moved_first);
        // The watcher has seen it when it has looked at all files a few times.
        tokio::time::sleep(Duration::from_millis(300)).await;
        put(folder.path(), "end", "");
        let finished = running.await.unwrap().unwrap();
        let shown = if name == ".git/config" { "new\n" } else { "" };
        assert_eq!(finished.stdout.text, format!("{shown}done\n"), "{name}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n", "{name}");
        let path = path.canonicalize().unwrap();
        assert_eq!(finished.replaced_files, [path], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_replaced_at_end_is_reported() {
    let Some((folder, sandbox)) = sandbox(&[]) else {
        return;
    };
    let line = "mv started ready; while [ -e ready ]; do :; done";
    let command = sandbox.shell(format!("echo > started; {line}"));
    let running = tokio::spawn(async move { command.run().await });
    wait_for(&folder.path().join("ready")).await;
    replace(&folder.path().join(".env"), "new", true);
    fs::remove_file(folder.path().join("ready")).unwrap();
    let finished = running.await.unwrap().unwrap();
    assert_eq!(finished.replaced_files.len(), 1, "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_ends_when_path_that_it_must_not_create_becomes_free() {
    for name in [
        ".git/config",
        ".git/commondir",
        "settings.toml",
        "present.toml",
    ] {
        let Some((folder, _)) = sandbox(&[]) else {
            return;
        };
        put(folder.path(), "present.toml", "old");
        let Some(sandbox) = open(folder.path(), &["settings.toml", "present.toml"]) else {
            return;
        };
        let running = start(folder.path(), &sandbox, "sleep 20").await;
        let path = folder.path().canonicalize().unwrap().join(name);
        let begin = Instant::now();
        if path.is_dir() {
            fs::remove_dir(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let error = running.await.unwrap().unwrap_err();
        let CommandError::Exposed(found) = &error else {
            panic!("{name}: {error}");
        };
        assert_eq!(*found, path, "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{name}");
    }
}

/// A command that continues although it is stopped, because a timer sends SIGCONT.
#[tokio::test(flavor = "multi_thread")]
async fn command_that_ignores_stop_ends_when_reserved_path_becomes_free() {
    let Some((folder, sandbox)) = sandbox(&["settings.toml"]) else {
        return;
    };
    let code = "use POSIX; for (1..20) { if (!fork) { while (1) { kill 'CONT', getppid(); } } } \
        open(F, '>started'); close F; while (1) { open(F, '>>settings.toml') && print F 'evil'; }";
    let command = sandbox.command(["perl", "-e", code]);
    let running = tokio::spawn(async move { command.run().await });
    let end = Instant::now() + Duration::from_secs(20);
    while !folder.path().join("started").exists() {
        if running.is_finished() || Instant::now() > end {
            println!("not tried: there is no Perl");
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fs::remove_dir(folder.path().join("settings.toml")).unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, CommandError::Exposed(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_ends_when_other_program_replaces_folder_above_protected_path() {
    for name in ["sub", ".git", "data"] {
        let Some((folder, _)) = sandbox(&[]) else {
            return;
        };
        for name in [
            "sub/.git/HEAD",
            "sub/.git/objects/x",
            "sub/.git/refs/x",
            "data/x",
        ] {
            put(folder.path(), name, "ref: refs/heads/main\n");
        }
        let Some(sandbox) = open(folder.path(), &["data/mem.db-wal"]) else {
            return;
        };
        let running = start(folder.path(), &sandbox, "sleep 20").await;
        let path = folder.path().canonicalize().unwrap().join(name);
        fs::rename(&path, folder.path().join("old")).unwrap();
        fs::create_dir(&path).unwrap();
        let error = running.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, CommandError::Exposed(found) if *found == path),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_file_that_is_removed_and_created_again_stays_hidden() {
    let Some((folder, sandbox)) = sandbox(&[]) else {
        return;
    };
    let line = format!("{WAIT}; cat .env; ls .ssh; echo done");
    let running = start(folder.path(), &sandbox, &line).await;
    fs::remove_file(folder.path().join(".env")).unwrap();
    fs::remove_dir_all(folder.path().join(".ssh")).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    put(folder.path(), ".env", "new secret");
    put(folder.path(), ".ssh/id_new", "new secret");
    tokio::time::sleep(Duration::from_millis(300)).await;
    put(folder.path(), "end", "");
    let finished = running.await.unwrap().unwrap();
    assert_eq!(finished.stdout.text, "done\n", "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_does_not_depend_on_folders_that_command_moves() {
    for link in [format!("{:0300}", 0), "/root".to_owned(), ".".to_owned()] {
        let Some((folder, sandbox)) = sandbox(&[]) else {
            return;
        };
        put(folder.path(), "app/deep/.env", "old");
        let line = format!(
            "mv app moved; ln -s {link} app; echo > started2; {WAIT}; cat moved/deep/.env; \
                mv app x; mv moved app; cat app/deep/.env; echo done"
        );
        let running = start(folder.path(), &sandbox, &line).await;
        wait_for(&folder.path().join("started2")).await;
        replace(&folder.path().join("moved/deep/.env"), "new secret\n", true);
        tokio::time::sleep(Duration::from_millis(300)).await;
        put(folder.path(), "end", "");
        let finished = running.await.unwrap().unwrap();
        assert_eq!(finished.stdout.text, "done\n", "{finished:?}");
        assert_eq!(finished.replaced_files.len(), 1, "{finished:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_above_protected_and_reserved_paths_cannot_be_moved() {
    let folder = tempfile::tempdir().unwrap();
    let bare = |name: &str| {
        for part in ["HEAD", "objects/x", "refs/x", "config"] {
            put(
                folder.path(),
                &format!("{name}/{part}"),
                "ref: refs/heads/main\n",
            );
        }
    };
    for name in [
        ".git",
        ".git/modules/lib",
        ".git/worktrees/tree",
        "deep/store",
        "sub/.git",
    ] {
        bare(name);
    }
    put(folder.path(), "linked/.git", "gitdir: ../deep/store\n");
    put(folder.path(), "data/other", "");
    let Some(sandbox) = open(folder.path(), &["data/mem.db-wal", "data/settings.toml"]) else {
        return;
    };
    let files = [
        ("data", "settings.toml"),
        ("data", "mem.db-wal"),
        (".git/modules/lib", "config"),
        (".git/modules", "lib/config"),
        (".git/worktrees/tree", "config"),
        ("deep/store", "config"),
        ("deep", "store/config"),
        ("sub", ".git/config"),
        ("sub", ".git/commondir"),
        ("linked", ".git"),
    ];
    for (path, file) in files {
        let (text, file) = (fs::read(folder.path().join(path).join(file)).ok(), file);
        // `mv` copies what it cannot rename, and removes what it can.
        for line in [
            format!("mv {path} moved; mkdir -p {path}; echo evil > {path}/{file}"),
            format!("rm -rf moved {path}; mkdir -p {path}/lib {path}/store {path}/.git"),
            format!("cd {path}; mkdir objects refs; echo evil > HEAD; echo evil > {file}"),
            format!("rm -rf moved; echo evil > {path}/{file}"),
        ] {
            sandbox.shell(&line).run().await.unwrap();
            let now = fs::read(folder.path().join(path).join(file)).ok();
            let has_changed = now.is_some() && now != text;
            assert!(!has_changed, "{line}: {:?}", now.map(String::from_utf8));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_adds_all_files_while_paths_are_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let init = std::process::Command::new("git")
        .args(["init", "-q"])
        .current_dir(folder.path())
        .status();
    if !init.is_ok_and(|status| status.success()) {
        println!("not tried: there is no git");
        return;
    }
    put(folder.path(), "file", "text");
    let Some(sandbox) = open(folder.path(), &["settings.toml", ".env", "deep/a"]) else {
        return;
    };
    let line = "git add -A && git stash list && git status --porcelain && cp -r . \"$TMPDIR/copy\"";
    let finished = sandbox.shell(line).run().await.unwrap();
    assert_eq!(finished.stdout.text, "A  file\n", "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_command_in_outer_workspace_does_not_end_command_in_inner_one() {
    let Some((folder, outer)) = sandbox(&["settings.toml"]) else {
        return;
    };
    for name in ["sub/.git/HEAD", "sub/.git/objects/x", "sub/.git/refs/x"] {
        put(folder.path(), name, "ref: refs/heads/main\n");
    }
    let Some(inner) = open(&folder.path().join("sub"), &["settings.toml"]) else {
        return;
    };
    let running = start(&folder.path().join("sub"), &inner, WAIT).await;
    assert!(outer.shell("true").run().await.unwrap().is_success());
    put(folder.path(), "sub/end", "");
    assert!(running.await.unwrap().unwrap().is_success());
    assert!(!folder.path().join("sub/.git/commondir").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn command_continues_when_other_program_changes_other_files() {
    let Some((folder, sandbox)) = sandbox(&["settings.toml"]) else {
        return;
    };
    let running = start(
        folder.path(),
        &sandbox,
        "while [ ! -e end ]; do sleep 0.01; done",
    )
    .await;
    for n in 0..50 {
        put(folder.path(), "new", "new");
        fs::rename(folder.path().join("new"), folder.path().join("other")).unwrap();
        put(folder.path(), &format!("more/{n}"), "");
    }
    fs::remove_dir_all(folder.path().join("more")).unwrap();
    put(folder.path(), "end", "");
    let finished = running.await.unwrap().unwrap();
    assert!(finished.is_success(), "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholders_remain_while_other_process_uses_workspace() {
    let Some((folder, sandbox)) = sandbox(&["settings.toml", "missing/tools/a.py"]) else {
        return;
    };
    let names = [".git/commondir", ".git/hooks", "settings.toml", "missing"];
    let existing = || names.map(|name| folder.path().join(name).exists());
    // A lock belongs to an open file, so these count like those of another process.
    let other = ["", ".git"].map(|name| File::open(folder.path().join(name)).unwrap());
    for folder in &other {
        flock(folder, FlockOperation::LockShared).unwrap();
    }
    assert!(sandbox.shell("true").run().await.unwrap().is_success());
    assert_eq!(existing(), [true; 4]);
    // Another process finds them, protects them, and removes them at its end.
    drop(other);
    let line = "! echo x > settings.toml && ! mkdir -p missing/tools && ! echo x > missing/a && \
        ! echo x > .git/commondir";
    let finished = sandbox.shell(line).run().await.unwrap();
    assert!(finished.is_success(), "{finished:?}");
    assert_eq!(existing(), [false; 4]);
}

/// A command can create more repositories than may have placeholders.
#[tokio::test(flavor = "multi_thread")]
async fn reserved_path_remains_in_workspace_with_many_repositories() {
    let Some((folder, sandbox)) = sandbox(&["settings.toml"]) else {
        return;
    };
    let line = "for n in $(seq 140); do mkdir -p a/$n/.git/objects a/$n/.git/refs; echo \
        'ref: refs/heads/main' > a/$n/.git/HEAD; done";
    assert!(sandbox.shell(line).run().await.unwrap().is_success());
    let other = File::open(folder.path()).unwrap();
    let running = start(folder.path(), &sandbox, WAIT).await;
    // Commands in other workspaces have their own limit.
    let (_workspace, free) = self::sandbox(&["settings.toml"]).unwrap();
    assert!(free.shell("exit 0").run().await.unwrap().is_success());
    // Without a lock, another process could remove the placeholder.
    let locked = flock(&other, FlockOperation::NonBlockingLockExclusive);
    put(folder.path(), "end", "");
    assert!(running.await.unwrap().unwrap().is_success());
    assert_eq!(locked, Err(rustix::io::Errno::AGAIN));
    let line = "for n in 1 140; do ! mkdir a/$n/.git/hooks && ! echo > a/$n/.git/config; done";
    let finished = sandbox.shell(line).run().await.unwrap();
    assert!(finished.is_success(), "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_file_of_user_is_not_removed() {
    let Some((folder, sandbox)) = sandbox(&["settings.toml", "data.db-wal"]) else {
        return;
    };
    put(folder.path(), "settings.toml", "");
    put(folder.path(), "data.db-wal", "");
    fs::create_dir(folder.path().join(".git/hooks")).unwrap();
    assert!(sandbox.shell("true").run().await.unwrap().is_success());
    assert!(folder.path().join("settings.toml").exists());
    assert!(folder.path().join("data.db-wal").exists());
    assert!(folder.path().join(".git/hooks").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_stays_protected_after_command_that_moved_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a/.git/HEAD", "a/.git/objects/x", "a/.git/refs/x"] {
        put(folder.path(), name, "ref: refs/heads/main\n");
    }
    let Some(sandbox) = open(folder.path(), &[]) else {
        return;
    };
    let line = "mv a b; echo > moved; while [ ! -e first-ends ]; do sleep 0.01; done";
    let first = start(folder.path(), &sandbox, line).await;
    wait_for(&folder.path().join("moved")).await;
    let line = "echo > second; while [ ! -e second-ends ]; do sleep 0.01; done; \
        echo evil > b/.git/commondir; echo evil > b/.git/config";
    let second = sandbox.shell(line);
    let second = tokio::spawn(async move { second.run().await });
    wait_for(&folder.path().join("second")).await;
    put(folder.path(), "first-ends", "");
    assert!(first.await.unwrap().unwrap().is_success());
    put(folder.path(), "second-ends", "");
    let second = second.await.unwrap();
    assert!(second.is_ok_and(|it| !it.is_success()));
    for name in ["b/.git/commondir", "b/.git/config"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_paths_are_neither_created_nor_read() {
    let reserved = ["deep/er/settings.toml", "data.db-wal", "settings.toml"];
    let Some((folder, sandbox)) = sandbox(&reserved) else {
        return;
    };
    let line = "while [ ! -e end ]; do sleep 0.01; done; cat settings.toml/a data.db-wal; \
        mkdir -p deep/er; echo evil > deep/er/settings.toml; echo evil > data.db-wal; \
        mv settings.toml x; rmdir deep; mv deep other; echo evil > settings.toml; echo done";
    let running = start(folder.path(), &sandbox, line).await;
    // Another program writes into the placeholders.
    fs::write(folder.path().join("settings.toml/a"), "secret").unwrap();
    fs::write(folder.path().join("data.db-wal"), "secret").unwrap();
    put(folder.path(), "end", "");
    let finished = running.await.unwrap().unwrap();
    assert_eq!(finished.stdout.text, "done\n", "{finished:?}");
    for name in ["settings.toml/a", "data.db-wal"] {
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"secret");
    }
    for name in ["deep", "other", "x"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn link_in_reserved_path_is_not_replaced() {
    let Some((folder, sandbox)) = sandbox(&["link/runs"]) else {
        return;
    };
    put(folder.path(), "real/x", "");
    std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
    let line = "rm link; mkdir link; mv link other; ln -sfn .git link; echo > link/new";
    sandbox.shell(line).run().await.unwrap();
    let target = fs::read_link(folder.path().join("link")).unwrap();
    assert_eq!(target, Path::new("real"));
}

#[tokio::test(flavor = "multi_thread")]
async fn log_of_existing_database_stays_reserved() {
    let Some((folder, sandbox)) = sandbox(&["data.db-wal", "none.db-wal"]) else {
        return;
    };
    put(folder.path(), "data.db", "x");
    assert!(sandbox.shell("true").run().await.unwrap().is_success());
    // A process that opened the database may write to its log.
    assert!(folder.path().join("data.db-wal").exists());
    assert!(!folder.path().join("none.db-wal").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn command_does_not_run_if_path_cannot_be_reserved() {
    let Some((folder, sandbox)) = sandbox(&["locked/settings.toml", "file/settings.toml"]) else {
        return;
    };
    put(folder.path(), "file", "");
    let error = sandbox.shell("true").run().await.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("`file/settings.toml`"), "{text}");
    fs::remove_file(folder.path().join("file")).unwrap();
    // Root can write to each folder.
    fs::create_dir(folder.path().join("locked")).unwrap();
    let mode = fs::Permissions::from_mode(0o555);
    fs::set_permissions(folder.path().join("locked"), mode).unwrap();
    let result = sandbox.shell("true").run().await;
    if rustix::process::geteuid().is_root() {
        assert!(result.is_ok_and(|it| it.is_success()));
    } else {
        let error = result.unwrap_err();
        let text = std::error::Error::source(&error).unwrap().to_string();
        assert!(text.contains("`locked/settings.toml`"), "{text}");
    }
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path().join("locked"), mode).unwrap();
}
