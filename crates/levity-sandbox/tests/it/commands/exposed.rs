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

/// Starts a command, and returns when it has created the file `started`.
async fn start(
    folder: &Path,
    sandbox: &Sandbox,
    line: &str,
) -> JoinHandle<Result<CommandOutput, CommandError>> {
    let command = sandbox.shell(format!("echo > started; {line}"));
    let running = tokio::spawn(async move { command.run().await });
    wait_for(&folder.join("started")).await;
    running
}

async fn wait_for(path: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < end, "{} is missing", path.display());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_ends_when_other_program_replaces_or_removes_protected_file() {
    for (name, is_replaced) in [
        (".git/config", true),
        (".env", true),
        (".env", false),
        (".git/commondir", false),
        (".ssh", false),
        ("settings.toml", true),
    ] {
        let Some((folder, sandbox)) = sandbox(&["settings.toml"]) else {
            return;
        };
        let running = start(folder.path(), &sandbox, "sleep 20").await;
        let path = folder.path().join(name);
        if is_replaced {
            put(folder.path(), "new", "new");
            fs::rename(folder.path().join("new"), &path).unwrap();
        } else if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let begin = Instant::now();
        let error = running.await.unwrap().unwrap_err();
        let CommandError::Exposed(found) = &error else {
            panic!("{name}: {error}");
        };
        assert_eq!(*found, path.canonicalize().unwrap_or(path), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{name}");
        // The next command protects the new file.
        if is_replaced {
            let line = format!("echo evil > {name}; cat {name}; true");
            let finished = sandbox.shell(line).run().await.unwrap();
            let shown = if name == ".git/config" { "new" } else { "" };
            assert_eq!(finished.stdout.text, shown, "{name}: {finished:?}");
        }
    }
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
    // A lock belongs to an open file, so this one counts like that of another process.
    let other = File::open(folder.path()).unwrap();
    flock(&other, FlockOperation::LockShared).unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn empty_file_of_user_is_not_removed() {
    let Some((folder, sandbox)) = sandbox(&["settings.toml"]) else {
        return;
    };
    put(folder.path(), "settings.toml", "");
    fs::create_dir(folder.path().join(".git/hooks")).unwrap();
    assert!(sandbox.shell("true").run().await.unwrap().is_success());
    assert!(folder.path().join("settings.toml").exists());
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
    let line = "while [ ! -e end ]; do sleep 0.01; done; cat settings.toml; \
        mkdir -p deep/er; echo evil > deep/er/settings.toml; echo evil > data.db-wal; \
        mv settings.toml x; rmdir deep; mv deep other; echo evil > settings.toml; echo done";
    let running = start(folder.path(), &sandbox, line).await;
    // Another program writes into the placeholder.
    fs::write(folder.path().join("settings.toml"), "secret").unwrap();
    put(folder.path(), "end", "");
    let finished = running.await.unwrap().unwrap();
    assert_eq!(finished.stdout.text, "done\n", "{finished:?}");
    assert_eq!(
        fs::read(folder.path().join("settings.toml")).unwrap(),
        b"secret"
    );
    for name in ["deep", "other", "x", "data.db-wal"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_of_existing_database_stays_reserved() {
    let Some((folder, sandbox)) = sandbox(&["data.db-wal", "data.db-journal"]) else {
        return;
    };
    put(folder.path(), "data.db", "x");
    assert!(sandbox.shell("true").run().await.unwrap().is_success());
    // A process that opened the database may write to its log.
    assert!(folder.path().join("data.db-wal").exists());
    assert!(!folder.path().join("data.db-journal").exists());
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
