//! Git in a sandbox: it works, and commands cannot change the programs that it runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use levity_sandbox::{Sandbox, Workspace};

use super::hidden::put;
use super::{DISABLED, disable};

#[tokio::test(flavor = "multi_thread")]
async fn git_works_and_hooks_are_protected() {
    for disabled in DISABLED {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), ".git/hooks/sample", "hook");
        put(folder.path(), ".git/config", "[core]\n");
        put(folder.path(), ".git/HEAD", "ref: refs/heads/main\n");
        let sandbox = disable(
            Sandbox::builder(Workspace::open(folder.path()).unwrap()),
            disabled,
        )
        .build()
        .unwrap();
        let finished = sandbox
            .shell("cat .git/config .git/HEAD && echo x > .git/index")
            .run()
            .await
            .unwrap();
        assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
        if !sandbox.report().hidden_files.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                sandbox.report().hidden_files
            );
            continue;
        }
        for line in [
            "echo x > .git/hooks/pre-commit",
            "echo x > .git/hooks/sample",
            "rm -rf .git/hooks",
            "mv .git/hooks .git/x",
            "echo x >> .git/config",
            "echo x > n && mv n .git/config",
            "echo ../evil > .git/commondir",
            "echo ../evil > n; mv n .git/commondir",
            "rm .git/commondir && echo ../evil > .git/commondir",
            "ln -sf ../evil .git/commondir",
        ] {
            let finished = sandbox.shell(line).run().await.unwrap();
            assert!(
                !finished.is_success(),
                "without {disabled:?}, `{line}`: {finished:?}"
            );
        }
        assert_eq!(
            fs::read_to_string(folder.path().join(".git/config")).unwrap(),
            "[core]\n"
        );
        assert_eq!(
            fs::read_dir(folder.path().join(".git/hooks"))
                .unwrap()
                .count(),
            1
        );
        assert!(!folder.path().join(".git/commondir").exists());
    }
}

#[tokio::test]
async fn repository_is_protected_among_more_than_can_get_placeholders() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), ".git/config", "[core]\n");
    put(folder.path(), ".git/HEAD", "ref: refs/heads/main\n");
    // These names come before `.git`.
    for n in 0..130 {
        fs::create_dir_all(folder.path().join(format!("!{n:03}/.git"))).unwrap();
    }
    let sandbox = Sandbox::builder(Workspace::open(folder.path()).unwrap())
        .build()
        .unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    let line = "echo ../evil > .git/commondir; echo x > .git/config.worktree; cat .git/HEAD";
    let finished = sandbox.shell(line).run().await.unwrap();
    assert_eq!(
        finished.stdout.text, "ref: refs/heads/main\n",
        "{finished:?}"
    );
    for name in ["commondir", "config.worktree"] {
        assert!(
            !folder.path().join(".git").join(name).exists(),
            "{name}: {finished:?}"
        );
    }
}

/// Creates a repository with a module, a linked worktree, one whose folder is elsewhere, and a bare
/// one.
fn repositories(root: &Path) {
    let bare = |name: &str| {
        for part in ["HEAD", "objects/x", "refs/x"] {
            put(root, &format!("{name}/{part}"), "ref: refs/heads/main\n");
        }
    };
    for name in [".git", ".git/modules/deep/m", "store", "linked", "unused"] {
        bare(name);
    }
    put(
        root,
        ".git/config",
        "[extensions]\n\tworktreeConfig = true\n",
    );
    put(root, ".git/worktrees/w/HEAD", "ref: refs/heads/main\n");
    put(root, ".git/worktrees/w/commondir", "../..\n");
    put(root, ".git/worktrees/w/gitdir", "../../../w/.git\n");
    put(root, "w/.git", "gitdir: ../.git/worktrees/w\n");
    put(root, "a/.git", "gitdir: ../store\n");
    fs::create_dir(root.join("b")).unwrap();
    symlink("../linked", root.join("b/.git")).unwrap();
    fs::create_dir(root.join("tools")).unwrap();
    symlink("../tools", root.join(".git/hooks")).unwrap();
}

fn snapshot(root: &Path) -> Vec<String> {
    let found = std::process::Command::new("find")
        .arg(root)
        .args(["-printf", "%p %y %s %l\n"])
        .output();
    let mut lines: Vec<_> = String::from_utf8(found.unwrap().stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    // The sizes of folders are not meaningful.
    lines.retain(|line| !line.contains(" d "));
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn command_cannot_change_programs_that_git_runs() {
    for disabled in [&[][..], &["root"]] {
        let folder = tempfile::tempdir().unwrap();
        repositories(folder.path());
        let before = snapshot(folder.path());
        let sandbox = disable(
            Sandbox::builder(Workspace::open(folder.path()).unwrap()),
            disabled,
        )
        .build()
        .unwrap();
        if !sandbox.report().hidden_files.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                sandbox.report().hidden_files
            );
            continue;
        }
        for (repository, names) in [
            (
                ".git",
                &["hooks", "config", "config.worktree", "commondir"][..],
            ),
            (".git/modules/deep/m", &["hooks", "config", "commondir"]),
            (
                ".git/worktrees/w",
                &["commondir", "gitdir", "config", "hooks", "config.worktree"],
            ),
            (
                "store",
                &["hooks", "config", "commondir", "config.worktree"],
            ),
            ("linked", &["hooks", "config", "commondir"]),
        ] {
            for name in names {
                let at = format!("{repository}/{name}");
                let mut lines = vec![
                    format!("rm -rf {at} && echo changed"),
                    format!("mv {at} gone && echo changed; rm -rf gone"),
                    format!("echo x > n; mv -T n {at} && echo changed; rm n"),
                    format!("ln -sfT ../x {at} && echo changed"),
                ];
                if at != ".git/hooks" {
                    lines.push(format!("echo x > {at} && echo changed"));
                    lines.push(format!("echo x > {at}/post-checkout && echo changed"));
                }
                let line = lines.join("; ");
                let finished = sandbox.shell(line).run().await.unwrap();
                assert_eq!(
                    finished.stdout.text, "",
                    "without {disabled:?}, `{at}`: {finished:?}"
                );
            }
        }
        for line in [
            "rm a/.git",
            "rm b/.git",
            "echo x > w/.git",
            "mv .git g",
            "ln -sfT unused b/.git",
        ] {
            let finished = sandbox.shell(line).run().await.unwrap();
            assert!(
                !finished.is_success(),
                "without {disabled:?}, `{line}`: {finished:?}"
            );
        }
        assert_eq!(snapshot(folder.path()), before, "without {disabled:?}");
        let line = "echo x > .git/index && mkdir -p .git/refs/heads && rm -r unused && echo x > \
            linked/index";
        let finished = sandbox.shell(line).run().await.unwrap();
        assert!(finished.is_success(), "without {disabled:?}: {finished:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholders_last_until_last_command_ends() {
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@b.c"])
            .args(args)
            .current_dir(folder.path());
        command.output().is_ok_and(|done| done.status.success())
    };
    put(folder.path(), "file", "one\n");
    if !git(&["init", "-q"]) {
        return println!("not tried: there is no git");
    }
    let sandbox = disable(
        Sandbox::builder(Workspace::open(folder.path()).unwrap()),
        &[],
    )
    .build()
    .unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    let placeholder = folder.path().join(".git/commondir");
    // The state that a killed process leaves behind.
    fs::write(&placeholder, "./././.\n").unwrap();
    let (begun, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let waiting = sandbox
        .shell("echo begun; sleep 1000")
        .on_output(move |_, _| _ = begun.send(()))
        .run();
    let work = async {
        heard.recv().await.unwrap();
        let line =
            "git -c user.name=a -c user.email=a@b.c commit -qm two --allow-empty && git status";
        assert!(git(&["add", "-A"]) && git(&["commit", "-qm", "one"]) && git(&["status"]));
        for _ in 0..2 {
            let finished = sandbox.shell(line).run().await.unwrap();
            assert!(finished.is_success(), "{finished:?}");
            assert!(placeholder.exists());
        }
        assert!(
            git(&["log", "-3"])
                && git(&["checkout", "-qb", "new"])
                && git(&["gc", "-q"])
                && git(&["fsck"])
        );
    };
    tokio::select! {
        ended = waiting => panic!("it ended: {ended:?}"),
        () = work => {}
    }
    // The first one is killed in the background.
    let finished = sandbox.shell("true").run().await.unwrap();
    assert!(finished.is_success());
    while placeholder.exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_link_to_git_hooks_does_not_stop_commands() {
    let targets = [
        ".git/config",
        ".git/hooks",
        ".git/commondir",
        ".git/config.worktree",
        ".git/gitdir",
        ".git/HEAD",
        ".git/modules/a/config",
        ".git/modules/a",
        ".git",
        ".",
        "..",
        "plain.txt",
        "nowhere",
    ];
    for disabled in [&[][..], &["root"], &["namespaces"]] {
        for target in targets {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            for git in [".git", ".git/modules/a"] {
                for name in [
                    "HEAD",
                    "objects/x",
                    "refs/x",
                    "config",
                    "hooks/x",
                    "config.worktree",
                    "gitdir",
                ] {
                    put(root, &format!("{git}/{name}"), "first\n");
                }
            }
            // The state that a killed process leaves behind.
            put(root, ".git/commondir", "./././.\n");
            put(root, "plain.txt", "open\n");
            put(root, "other.txt", "open\n");
            symlink(target, root.join("a.key")).unwrap();
            let sandbox = disable(Sandbox::builder(Workspace::open(root).unwrap()), disabled)
                .build()
                .unwrap();
            let line =
                "cat other.txt; echo bad > .git/config; echo bad > .git/hooks/x; rm -rf .git/hooks";
            for _ in 0..2 {
                let finished = sandbox.shell(line).run().await;
                let finished = finished
                    .unwrap_or_else(|error| panic!("{target} without {disabled:?}: {error:?}"));
                assert_eq!(
                    finished.stdout.text, "open\n",
                    "{target} without {disabled:?}"
                );
            }
            if sandbox.report().hidden_files.is_enforced {
                for name in [".git/config", ".git/hooks/x"] {
                    assert_eq!(
                        fs::read_to_string(root.join(name)).unwrap(),
                        "first\n",
                        "{target}: {name}"
                    );
                }
                let finished = sandbox.shell("cat a.key").run().await.unwrap();
                let text = &finished.stdout.text;
                assert!(
                    !text.contains("first") && !text.contains("open"),
                    "{target} without {disabled:?}: {text}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_git_settings_do_not_stop_commands() {
    for hard_link in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), ".git/config", "first\n");
        put(folder.path(), ".git/hooks/x", "first\n");
        put(folder.path(), "other.txt", "open\n");
        let mut builder = Workspace::builder(folder.path());
        if hard_link {
            fs::hard_link(
                folder.path().join(".git/config"),
                folder.path().join("a.key"),
            )
            .unwrap();
        } else {
            builder = builder.deny("config").deny("hooks");
        }
        let sandbox = disable(Sandbox::builder(builder.build().unwrap()), &[])
            .build()
            .unwrap();
        let line = "cat other.txt .git/config; echo bad > .git/config; rm -f .git/config";
        let finished = sandbox.shell(line).run().await.unwrap();
        if sandbox.report().hidden_files.is_enforced {
            assert_eq!(finished.stdout.text, "open\n");
            assert_eq!(
                fs::read_to_string(folder.path().join(".git/config")).unwrap(),
                "first\n"
            );
        }
    }
}
