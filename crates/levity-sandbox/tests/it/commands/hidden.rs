use std::fs;
use std::path::Path;

use levity_sandbox::{Sandbox, Workspace};

use super::{RUNGS, lower};

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Lines that would show a denied file, or change it.
const LINES: &[&str] = &[
    "cat .env sub/deep/.env id_rsa",
    "cat .ssh/id_ed25519 .ssh/config",
    "ls .ssh | grep .",
    "cat < .env",
    "cp .env copy && cat copy",
    "mv .env plain && cat plain",
    "ln .env hard && cat hard",
    "ln -s .env soft && cat soft",
    "cat /proc/self/cwd/.env",
    "cat /proc/self/root$PWD/.env",
    "cd sub && cat ../.env",
    "mv sub other && cat other/deep/.env",
    "grep -rh hush .",
    "umount .env && cat .env",
    "rm -f .env && echo changed",
    "echo changed > .env && echo changed",
    "chmod 777 .env; cat .env",
    "tar cf - . | grep -a hush",
];

#[tokio::test(flavor = "multi_thread")]
async fn denied_files_are_hidden_from_commands_too() {
    for rung in RUNGS {
        for line in LINES {
            let folder = tempfile::tempdir().unwrap();
            for name in [".env", "sub/deep/.env", "id_rsa", ".ssh/id_ed25519", ".ssh/config"] {
                put(folder.path(), name, "hush\n");
            }
            put(folder.path(), "plain.txt", "open\n");
            let sandbox =
                lower(Sandbox::builder(Workspace::open(folder.path()).unwrap()), rung).build().unwrap();
            if !sandbox.report().hidden.holds {
                println!("without {rung:?} not tried: {}", sandbox.report().hidden);
                break;
            }
            let finished = sandbox.shell(*line).run().await.unwrap();
            assert!(!finished.stdout.text.contains("hush"), "without {rung:?}, `{line}`: {finished:?}");
            assert!(!finished.stdout.text.contains("changed"), "without {rung:?}, `{line}`: {finished:?}");
            let after =
                ["", "other", "sub"].map(|it| fs::read_to_string(folder.path().join(it).join(".env")));
            assert_eq!(after[0].as_deref().unwrap(), "hush\n", "without {rung:?}, `{line}`");
            let finished = sandbox.command(["cat", "plain.txt"]).run().await.unwrap();
            assert_eq!(finished.stdout.text, "open\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_works_and_its_hooks_are_protected() {
    for rung in RUNGS {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), ".git/hooks/sample", "hook");
        put(folder.path(), ".git/config", "[core]\n");
        put(folder.path(), ".git/HEAD", "ref: refs/heads/main\n");
        let sandbox = lower(Sandbox::builder(Workspace::open(folder.path()).unwrap()), rung).build().unwrap();
        let finished = sandbox.shell("cat .git/config .git/HEAD && echo x > .git/index").run().await.unwrap();
        assert!(finished.is_success(), "without {rung:?}: {finished:?}");
        if !sandbox.report().hidden.holds {
            println!("without {rung:?} not tried: {}", sandbox.report().hidden);
            continue;
        }
        for line in [
            "echo x > .git/hooks/pre-commit",
            "echo x > .git/hooks/sample",
            "rm -rf .git/hooks",
            "mv .git/hooks .git/x",
            "echo x >> .git/config",
            "echo x > n && mv n .git/config",
        ] {
            let finished = sandbox.shell(line).run().await.unwrap();
            assert!(!finished.is_success(), "without {rung:?}, `{line}`: {finished:?}");
        }
        assert_eq!(fs::read_to_string(folder.path().join(".git/config")).unwrap(), "[core]\n");
        assert_eq!(fs::read_dir(folder.path().join(".git/hooks")).unwrap().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_workspace_is_only_read() {
    for rung in RUNGS {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "f", "kept\n");
        let workspace = Workspace::builder(folder.path()).read_only().build().unwrap();
        let sandbox = lower(Sandbox::builder(workspace), rung).build().unwrap();
        let finished = sandbox.shell("cat f && echo x > $TMPDIR/t").run().await.unwrap();
        assert!(finished.is_success() && finished.stdout.text == "kept\n", "without {rung:?}: {finished:?}");
        if !sandbox.report().files.holds {
            println!("without {rung:?} not tried: {}", sandbox.report().files);
            continue;
        }
        for line in
            ["echo x > f", "echo x > n", "rm -f f", "mv f g", "mkdir d", "ln -s f l", "chmod 0 f", "mkfifo p"]
        {
            // Modes are not known to Landlock.
            if line.starts_with("chmod") && sandbox.report().files.note.is_some() {
                continue;
            }
            let finished = sandbox.shell(line).run().await.unwrap();
            assert!(!finished.is_success(), "without {rung:?}, `{line}`: {finished:?}");
        }
        assert_eq!(fs::read_to_string(folder.path().join("f")).unwrap(), "kept\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
