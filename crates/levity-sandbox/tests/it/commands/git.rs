//! Git in a sandbox: it works, and commands cannot change the programs that it runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use levity_sandbox::{PathError, Sandbox, Workspace};

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

/// Creates a bare repository with a linked worktree. Both paths are relative to the workspace.
fn linked_worktree(root: &Path, bare: &str, common: &str, worktree: &str, pointer: &str) {
    for part in ["HEAD", "objects/x", "refs/x", "config", "hooks/sample"] {
        put(root, &format!("{bare}/{part}"), "first\n");
    }
    for (name, text) in [
        ("HEAD", "first\n"),
        ("commondir", common),
        ("gitdir", "first\n"),
    ] {
        put(root, &format!("{bare}/worktrees/w/{name}"), text);
    }
    put(root, &format!("{worktree}/.git"), pointer);
    put(root, &format!("{worktree}/file"), "first\n");
}

/// Tries to change each of these paths by commands and by file tools.
async fn assert_protected(root: &Path, protected: &[String], free: &[String]) {
    let workspace = Workspace::open(root).unwrap();
    for path in protected {
        assert!(
            matches!(workspace.write(path, b"evil"), Err(PathError::Denied(_))),
            "{path}"
        );
        assert!(workspace.denies(path), "{path}");
    }
    for path in free {
        assert!(!workspace.denies(path), "{path}");
        workspace.write(path, b"new").unwrap();
    }
    let before = snapshot(root);
    for disabled in [&[][..], &["root"]] {
        let sandbox = disable(Sandbox::builder(workspace.clone()), disabled);
        let sandbox = sandbox.build().unwrap();
        if !sandbox.report().hidden_files.is_enforced {
            println!("not tried: {}", sandbox.report().hidden_files);
            continue;
        }
        for at in protected {
            let folder = Path::new(at).parent().unwrap();
            let folder = if folder == Path::new("") {
                Path::new(".")
            } else {
                folder
            };
            let line = format!(
                "echo x > {at} && echo changed; echo x > n; mv -T n {at} && echo changed; rm -f n; \
                    rm -rf {at} && test -e {at}/.. && echo changed; \
                    ln -sfT ../x {at} && echo changed; \
                    mv {0} {0}.gone 2> /dev/null && mkdir {0} && echo x > {at} && echo changed",
                folder.display()
            );
            let finished = sandbox.shell(line).run().await.unwrap();
            assert_eq!(
                finished.stdout.text, "",
                "`{at}` without {disabled:?}: {finished:?}"
            );
        }
        for path in free {
            let line = format!("echo new > {path} && cat {path}");
            let finished = sandbox.shell(line).run().await.unwrap();
            assert_eq!(finished.stdout.text, "new\n", "`{path}`: {finished:?}");
        }
        drop(sandbox);
        for path in free {
            fs::write(root.join(path), "new").unwrap();
        }
        assert_eq!(snapshot(root), before, "without {disabled:?}");
    }
}

fn paths(folder: &str, names: &[&str]) -> Vec<String> {
    let names = names.iter();
    names
        .map(|name| {
            format!("{folder}/{name}")
                .trim_start_matches("./")
                .to_owned()
        })
        .collect()
}

const CONTROL: &[&str] = &[
    "config",
    "config.worktree",
    "hooks/post-checkout",
    "commondir",
];

#[tokio::test(flavor = "multi_thread")]
async fn bare_repository_with_linked_worktree_is_protected_in_part() {
    for (bare, worktree) in [("odd name", "w"), ("x", "x/main"), (".", "main")] {
        let bare = bare.replace(' ', "-");
        for absolute in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let root = &folder.path().canonicalize().unwrap();
            let up = "../".repeat(worktree.split('/').count());
            let (common, pointer) = match absolute {
                false => (
                    "../..\n".into(),
                    format!("gitdir: {up}{bare}/worktrees/w\n"),
                ),
                true => (
                    format!("{}\n", root.join(&bare).display()),
                    format!("gitdir: {}/worktrees/w\n", root.join(&bare).display()),
                ),
            };
            linked_worktree(root, &bare, &common, worktree, &pointer);
            let mut protected = paths(&bare, CONTROL);
            protected.extend(paths(&format!("{bare}/worktrees/w"), CONTROL));
            protected.extend(paths(&format!("{bare}/worktrees/w"), &["gitdir"]));
            let free = [format!("{worktree}/file"), format!("{bare}/notes")];
            assert_protected(root, &protected, &free).await;
            let workspace = Workspace::open(root).unwrap();
            for path in paths(
                &bare,
                &["HEAD", "objects/x", "FETCH_HEAD", "Config", "info/x"],
            ) {
                assert!(workspace.denies(&path), "{path}");
            }
            if bare != "." {
                assert!(matches!(
                    workspace.rename(&bare, "other"),
                    Err(PathError::Denied(_))
                ));
                workspace.create_dir("new").unwrap();
                fs::rename(root.join(&bare), root.join("moved")).unwrap();
                assert!(matches!(
                    workspace.rename("new", &bare),
                    Err(PathError::Denied(_))
                ));
                let read = workspace.read("moved/config", 9);
                assert!(matches!(read, Err(PathError::Denied(_))), "{read:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_that_is_bare_repository_is_protected() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for part in ["HEAD", "objects/x", "refs/x", "config"] {
        put(root, part, "first\n");
    }
    assert_protected(root, &paths(".", CONTROL), &paths(".", &["notes"])).await;
    let sandbox = Sandbox::builder(Workspace::open(root).unwrap())
        .build()
        .unwrap();
    if sandbox.report().hidden_files.is_enforced {
        // Without `HEAD`, it is still the same repository.
        for line in [
            "rm HEAD",
            "rm -rf objects refs; mv objects o; echo x > config",
        ] {
            let _ = sandbox.shell(line).run().await.unwrap();
        }
        assert_eq!(fs::read_to_string(root.join("config")).unwrap(), "first\n");
        assert!(root.join("objects").is_dir());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_of_links_to_git_settings_are_protected() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for part in ["objects/x", "refs/x", "modules/m/config", "HEAD"] {
        put(root, &format!(".git/{part}"), "first\n");
    }
    for part in [
        "conf/git",
        "tools/post-commit",
        "scripts/check",
        "away/config",
        "away/HEAD",
    ] {
        put(root, part, "first\n");
    }
    put(root, "ptr", "gitdir: ../way/../away\n");
    for name in ["w", "hop", "lost"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    for (to, from) in [
        ("conf", "settings"),
        ("../settings/git", ".git/config"),
        ("../tools/../tools", ".git/hooks"),
        ("../scripts/check", "tools/pre-commit"),
        ("../scripts/new", "tools/pre-push"),
        ("../lost/deep/worktree", ".git/config.worktree"),
        ("../ptr", "w/.git"),
        ("hop", "way"),
    ] {
        symlink(to, root.join(from)).unwrap();
    }
    let protected = [
        "conf/git",
        "settings",
        "tools/post-commit",
        "tools/new-hook",
        "scripts/check",
        "scripts/new",
        "lost/deep/worktree",
        "ptr",
        "way",
        "away/config",
        "away/hooks/post-checkout",
    ];
    let free = ["conf/other", "scripts/other"].map(str::to_owned);
    assert_protected(root, &protected.map(str::to_owned), &free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn link_from_hooks_to_workspace_is_named_in_error() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), ".git/HEAD", "first\n");
    symlink("..", folder.path().join(".git/hooks")).unwrap();
    let sandbox = Sandbox::builder(Workspace::open(folder.path()).unwrap());
    let sandbox = sandbox.build().unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    let error = sandbox.shell("true").run().await.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("`.git/hooks`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_whose_path_is_almost_too_long_is_protected_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    put(&root, "a", "open\n");
    let sandbox = Sandbox::builder(Workspace::open(&root).unwrap())
        .build()
        .unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    // `/.git/HEAD` fits, and `/.git/config.worktree` does not.
    let mut length = libc::PATH_MAX as usize - 1 - root.as_os_str().len() - "/.git/HEAD".len();
    let mut path = root.clone();
    while length > 0 {
        let name = if length > 201 { 200 } else { length - 1 };
        path.push("d".repeat(name));
        length -= name + 1;
    }
    fs::create_dir_all(path.join(".git")).unwrap();
    fs::write(path.join(".git/HEAD"), "first\n").unwrap();
    let below = path.strip_prefix(&root).unwrap().display().to_string();
    let (above, name) = below.rsplit_once('/').unwrap();
    let line = format!(
        "cat a; cd {above}; cd {name}/.git && cat HEAD && echo x > config; echo x > commondir; \
            mkdir hooks; ls"
    );
    let finished = sandbox.shell(line).run().await.unwrap();
    assert_eq!(finished.stdout.text, "open\nfirst\nHEAD\n", "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reads_nothing_of_bare_workspace() {
    for (bare, worktree) in [(".", "main"), ("x", "x/main")] {
        let folder = tempfile::tempdir().unwrap();
        let up = "../".repeat(worktree.split('/').count());
        let pointer = format!("gitdir: {up}{bare}/worktrees/w\n");
        linked_worktree(folder.path(), bare, "../..\n", worktree, &pointer);
        fs::write(folder.path().join(worktree).join("file"), "open\n").unwrap();
        for disabled in [&[][..], &["namespaces"]] {
            let sandbox = Sandbox::builder(Workspace::open(folder.path()).unwrap());
            let sandbox = disable(sandbox, disabled).build().unwrap();
            if !sandbox.report().read_only.is_enforced {
                println!("not tried: {}", sandbox.report().read_only);
                continue;
            }
            let line = format!("cat {worktree}/file; grep -rh first .; cat {bare}/config");
            let finished = sandbox.shell(line).read_only().run().await.unwrap();
            assert_eq!(finished.stdout.text, "open\n", "{bare}: {finished:?}");
        }
    }
}
