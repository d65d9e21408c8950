//! Repositories that tell git to run a program: no command that is allowed unasked runs it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandPolicy, Level, Line, Ruling, Sandbox, Workspace};
use tempfile::TempDir;

/// A workspace with a repository in it, and a place outside where a planted program leaves its mark.
struct Arena {
    folder: TempDir,
}

impl Arena {
    fn new() -> Self {
        let arena = Self { folder: tempfile::tempdir().unwrap() };
        for dir in ["work/dir", "home"] {
            fs::create_dir_all(arena.folder.path().join(dir)).unwrap();
        }
        arena.git(&["init", "-q"]);
        arena.write("a.txt", "one\n");
        arena.write("dir/b.txt", "one\n");
        arena.git(&["add", "-A"]);
        arena.git(&["commit", "-qm", "one"]);
        arena
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn mark(&self) -> PathBuf {
        self.folder.path().join("mark")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn append(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        let before = fs::read_to_string(&path).unwrap_or_default();
        self.write(name, &(before + text));
    }

    /// A script that leaves the mark.
    fn script(&self, name: &str) {
        self.write(name, &format!("#!/bin/sh\necho > {}\nexit 0\n", self.mark().display()));
        fs::set_permissions(self.work().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn git(&self, args: &[&str]) {
        self.git_in("work", args);
    }

    fn git_in(&self, dir: &str, args: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]);
        assert!(self.prepare(command.args(args), dir).status().unwrap().success(), "git {args:?}");
    }

    fn prepare<'a>(&self, command: &'a mut Command, dir: &str) -> &'a mut Command {
        command
            .current_dir(self.folder.path().join(dir))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
    }

    /// A line as a shell runs it, without any precaution.
    fn run(&self, line: &str) {
        let mut command = Command::new("/bin/sh");
        let _ = self.prepare(command.args(["-c", line]), "work").status().unwrap();
    }

    /// Whether the mark is there, which is removed.
    fn is_marked(&self) -> bool {
        fs::remove_file(self.mark()).is_ok()
    }

    fn policy(&self) -> CommandPolicy {
        CommandPolicy::new().within(&Workspace::open(self.work()).unwrap())
    }

    fn sandbox(&self) -> Sandbox {
        let home = self.folder.path().join("home");
        Sandbox::builder(Workspace::open(self.work()).unwrap())
            .write(self.folder.path())
            .env("HOME", home)
            .at_least(Level::Open)
            .build()
            .unwrap()
    }
}

fn has_git() -> bool {
    Command::new("git").arg("--version").output().is_ok()
}

/// Text for a repository's settings, in which `MARK` is a command that leaves the mark.
fn settings(arena: &Arena, place: &str, text: &str) {
    arena.append(place, &text.replace("MARK", &format!("touch {};:", arena.mark().display())));
}

/// A bare repository, as `write_file` can make one.
fn bare(arena: &Arena, dir: &str) {
    arena.write(&format!("{dir}/HEAD"), "ref: refs/heads/main\n");
    arena.write(&format!("{dir}/objects/keep"), "");
    arena.write(&format!("{dir}/refs/keep"), "");
    let config = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = \"MARK\"\n";
    settings(arena, &format!("{dir}/config"), config);
}

fn in_config(arena: &Arena, text: &str) {
    settings(arena, ".git/config", text);
}

/// Makes git look into a file anew.
fn touch(arena: &Arena) {
    arena.write("a.txt", "two\n");
}

fn driver(arena: &Arena, text: &str) {
    in_config(arena, text);
    arena.write(".gitattributes", "* filter=x diff=x merge=x\n");
    touch(arena);
}

/// A commit that bears a signature.
fn sign(arena: &Arena) {
    let head =
        Command::new("git").args(["rev-parse", "HEAD^{tree}"]).current_dir(arena.work()).output().unwrap();
    let tree = String::from_utf8(head.stdout).unwrap();
    let text = format!(
        "tree {}\nauthor a <a@b.c> 1 +0000\ncommitter a <a@b.c> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----\n\nx\n",
        tree.trim()
    );
    arena.write("../commit", &text);
    arena.run("git update-ref HEAD $(git hash-object -t commit -w ../commit)");
}

/// A repository inside the other, whose own settings are evil.
fn nested(arena: &Arena, track: &str) {
    fs::create_dir_all(arena.work().join("inner")).unwrap();
    arena.git_in("work/inner", &["init", "-q"]);
    arena.git_in("work/inner", &["commit", "-qm", "x", "--allow-empty"]);
    if track == "yes" {
        arena.git(&["add", "inner"]);
    }
    settings(arena, "inner/.git/config", "[core]\nfsmonitor = \"MARK\"\n");
}

/// Objects that are missing, and are fetched when they are needed.
fn partial(arena: &Arena, remote: &str) {
    in_config(
        arena,
        "[extensions]\npartialClone = o\n[core]\nrepositoryformatversion = 1\n[protocol \"ext\"]\nallow = always\n",
    );
    in_config(arena, &format!("[remote \"o\"]\npromisor = true\n{remote}\n"));
    let name =
        Command::new("git").args(["rev-parse", "HEAD:a.txt"]).current_dir(arena.work()).output().unwrap();
    let name = String::from_utf8(name.stdout).unwrap();
    let (start, end) = name.trim().split_at(2);
    fs::remove_file(arena.work().join(".git/objects").join(start).join(end)).unwrap();
    touch(arena);
}

type Plant = fn(&Arena);

/// What is planted, a line that would run it, and whether it surely does with every git.
const PLANTS: &[(&str, Plant, &str, bool)] = &[
    ("fsmonitor", |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"), "git status", true),
    ("fsmonitor, diff", |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"), "git diff", true),
    ("fsmonitor, files", |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"), "git ls-files -m", true),
    (
        "fsmonitor, dirty",
        |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"),
        "git describe --always --dirty",
        true,
    ),
    ("fsmonitor, names", |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"), "git diff --stat", true),
    ("fsmonitor, -C", |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"), "git -C dir status", true),
    ("fsmonitor, cd", |a| in_config(a, "[core]\nfsmonitor = \"MARK\"\n"), "cd dir && git status", true),
    ("other case", |a| in_config(a, "[CoRe]\nFsMonitor = \"MARK\"\n"), "git status", true),
    ("one line", |a| in_config(a, "[core] fsmonitor = \"MARK\"\n"), "git status", true),
    ("no blank", |a| in_config(a, "[core]fsmonitor=\"MARK\"\n"), "git status", true),
    ("continued", |a| in_config(a, "[core]\nabbrev = 7 ; \\\nfsmonitor = \"MARK\"\n"), "git status", false),
    ("continued value", |a| in_config(a, "[core]\nfsmonitor = \\\n \"MARK\"\n"), "git status", true),
    ("hidden by a comment", |a| in_config(a, "[core] # x\nfsmonitor = \"MARK\"\n"), "git status", true),
    ("line ends", |a| in_config(a, "[core]\r\nfsmonitor = \"MARK\"\r\n"), "git status", true),
    ("old section", |a| driver(a, "[diff.x]\ntextconv = MARK cat\n"), "git diff", true),
    ("tab", |a| in_config(a, "[core]\tfsmonitor\t=\t\"MARK\"\n"), "git status", true),
    (
        "include",
        |a| {
            in_config(a, "[include]\npath = ../evil.cfg\n");
            settings(a, "evil.cfg", "[core]\nfsmonitor = \"MARK\"\n");
        },
        "git status",
        true,
    ),
    (
        "conditional include",
        |a| {
            in_config(a, "[includeIf \"gitdir:**\"]\npath = ../evil.cfg\n");
            settings(a, "evil.cfg", "[core]\nfsmonitor = \"MARK\"\n");
        },
        "git status",
        true,
    ),
    (
        "settings of a work tree",
        |a| {
            in_config(a, "[extensions]\nworktreeConfig = true\n");
            settings(a, ".git/config.worktree", "[core]\nfsmonitor = \"MARK\"\n");
        },
        "git status",
        true,
    ),
    ("clean filter", |a| driver(a, "[filter \"x\"]\nclean = MARK cat\n"), "git status", true),
    ("clean filter, diff", |a| driver(a, "[filter \"x\"]\nclean = MARK cat\n"), "git diff", true),
    ("clean filter, blame", |a| driver(a, "[filter \"x\"]\nclean = MARK cat\n"), "git blame a.txt", true),
    ("filter process", |a| driver(a, "[filter \"x\"]\nprocess = MARK cat\n"), "git status", true),
    ("textconv", |a| driver(a, "[diff \"x\"]\ntextconv = MARK cat\n"), "git diff", true),
    ("textconv, file", |a| driver(a, "[diff \"x\"]\ntextconv = MARK cat\n"), "git diff HEAD -- a.txt", true),
    ("textconv, log", |a| driver(a, "[diff \"x\"]\ntextconv = MARK cat\n"), "git log -p -- a.txt", true),
    ("textconv, blame", |a| driver(a, "[diff \"x\"]\ntextconv = MARK cat\n"), "git blame a.txt", true),
    ("diff command", |a| driver(a, "[diff \"x\"]\ncommand = MARK\n"), "git diff", true),
    ("external diff", |a| driver(a, "[diff]\nexternal = MARK\n"), "git diff", true),
    ("external diff, file", |a| driver(a, "[diff]\nexternal = MARK\n"), "git diff HEAD -- a.txt", true),
    (
        "hook",
        |a| {
            a.script(".git/hooks/post-index-change");
            touch(a);
            a.write("a.txt", "one\n");
        },
        "git status",
        true,
    ),
    (
        "place of hooks",
        |a| {
            in_config(a, "[core]\nhooksPath = dir\n");
            a.script("dir/post-index-change");
            a.write("a.txt", "one\n");
        },
        "git status",
        true,
    ),
    (
        "signatures",
        |a| {
            in_config(a, "[log]\nshowSignature = true\n[gpg]\nprogram = ./evil\n");
            a.script("evil");
            sign(a);
        },
        "git log -1",
        true,
    ),
    (
        "signatures by a format",
        |a| {
            in_config(a, "[format]\npretty = %G?\n[gpg]\nprogram = ./evil\n");
            a.script("evil");
            sign(a);
        },
        "git log -1",
        true,
    ),
    (
        "signatures by an alias of a format",
        |a| {
            in_config(a, "[pretty]\nx = %G?\n[gpg]\nprogram = ./evil\n");
            a.script("evil");
            sign(a);
        },
        "git log -1 --format=x",
        true,
    ),
    ("repository inside", |a| nested(a, "yes"), "git status", true),
    ("repository inside, diff", |a| nested(a, "yes"), "git diff", true),
    ("repository inside, untracked", |a| nested(a, "no"), "git -C inner status", true),
    ("bare", |a| bare(a, "evil"), "git -C evil status", true),
    ("bare, cd", |a| bare(a, "evil"), "cd evil && git status", true),
    ("bare, cd twice", |a| bare(a, "dir/evil"), "cd dir; cd evil; git status", true),
    ("bare, in a shell", |a| bare(a, "evil"), "sh -c 'cd evil; git status'", true),
    ("bare, dots", |a| bare(a, "evil"), "git -C ./evil/. status", true),
    ("bare, cd and -C", |a| bare(a, "dir/evil"), "cd dir && git -C evil status", true),
    (
        "bare, above",
        |a| {
            bare(a, "evil");
            a.write("evil/sub/x", "");
        },
        "git -C evil/sub status",
        true,
    ),
    (
        "bare, by a link",
        |a| {
            bare(a, "dir/evil");
            symlink("dir/evil", a.work().join("way")).unwrap();
        },
        "git -C way status",
        true,
    ),
    (
        "bare, with a common folder",
        |a| {
            bare(a, "evil");
            fs::rename(a.work().join("evil/objects"), a.work().join("dir/objects")).unwrap();
            fs::rename(a.work().join("evil/refs"), a.work().join("dir/refs")).unwrap();
            fs::rename(a.work().join("evil/config"), a.work().join("dir/config")).unwrap();
            a.write("evil/commondir", "../dir\n");
        },
        "git -C evil status",
        false,
    ),
    (
        "file that names another folder",
        |a| {
            bare(a, "evil");
            a.write("dir/.git", "gitdir: ../evil\n");
        },
        "git -C dir status",
        true,
    ),
    (
        "link to another folder",
        |a| {
            bare(a, "evil");
            symlink("../evil", a.work().join("dir/.git")).unwrap();
        },
        "git -C dir status",
        true,
    ),
    ("fetch by a helper", |a| partial(a, "url = ext::sh -c touch% ../mark"), "git show HEAD:a.txt", true),
    (
        "fetch by upload-pack",
        |a| partial(a, "url = dir\nuploadpack = touch ../mark;"),
        "git show HEAD:a.txt",
        true,
    ),
    (
        "fetch by ssh",
        |a| partial(a, "url = ssh://h/x\n[core]\nsshCommand = touch ../mark;"),
        "git show HEAD:a.txt",
        true,
    ),
];

#[test]
fn planted_program_is_not_run_by_an_allowed_line() {
    if !has_git() {
        return;
    }
    for (name, plant, line, is_sure) in PLANTS {
        let arena = Arena::new();
        plant(&arena);
        arena.is_marked();
        let ruling = arena.policy().judge(Line::Shell(line));
        arena.run(line);
        assert!(arena.is_marked() || !is_sure, "{name}: `{line}` does not show the danger");
        assert!(matches!(ruling, Ruling::Ask { .. }), "{name}: `{line}` is not asked about: {ruling:?}");
    }
}

#[tokio::test]
async fn command_that_only_reads_runs_nothing_that_was_planted_meanwhile() {
    if !has_git() {
        return;
    }
    // What file tools can plant, or a hook: no settings of a repository that is there already.
    for (name, plant, line, _) in PLANTS.iter().filter(|(name, ..)| {
        ["bare", "hook", "fsmonitor", "fetch by", "place of hooks"].iter().any(|kind| name.starts_with(kind))
    }) {
        let arena = Arena::new();
        plant(&arena);
        arena.is_marked();
        let sandbox = arena.sandbox();
        sandbox.shell(*line).env("GIT_CONFIG_NOSYSTEM", "1").read_only().run().await.unwrap();
        assert!(!arena.is_marked(), "{name}: `{line}`");
    }
}

#[tokio::test]
async fn git_works_in_a_command_that_only_reads() {
    if !has_git() {
        return;
    }
    let arena = Arena::new();
    touch(&arena);
    let sandbox = arena.sandbox();
    for own in ["", "'core.abbrev=9'"] {
        let line = sandbox.shell("git status --short && git log -1 --format=%h && git diff --stat");
        let line = if own.is_empty() { line } else { line.env("GIT_CONFIG_PARAMETERS", own) };
        let done = line.env("GIT_CONFIG_NOSYSTEM", "1").read_only().run().await.unwrap();
        assert!(
            done.is_success() && done.stdout.text.contains(" M a.txt"),
            "{} {}",
            done.stdout,
            done.stderr
        );
        let commit = done.stdout.text.lines().nth(1).unwrap();
        assert_eq!(commit.len(), if own.is_empty() { 7 } else { 9 }, "{commit}");
    }
}

#[tokio::test]
async fn command_that_only_reads_finds_no_program_in_the_workspace() {
    let arena = Arena::new();
    arena.script("bin/ls");
    let path = format!("{}:.:bin:/usr/bin:/bin", arena.work().join("bin").display());
    let sandbox = arena.sandbox();
    let run = async |line: levity_sandbox::Command| {
        line.env("PATH", &path).run().await.unwrap();
        arena.is_marked()
    };
    assert!(run(sandbox.shell("ls")).await);
    let line = sandbox.shell("ls").env("PATH", &path).read_only();
    line.run().await.unwrap();
    assert!(!arena.is_marked());
}

#[test]
fn ordinary_repositories_are_not_asked_about() {
    if !has_git() {
        return;
    }
    let arena = Arena::new();
    for setting in [
        ["remote.origin.url", "https://example.org/x.git"],
        ["remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"],
        ["branch.main.remote", "origin"],
        ["branch.main.merge", "refs/heads/main"],
        ["user.name", "A B"],
        ["core.autocrlf", "input"],
        ["alias.co", "checkout"],
        ["pull.rebase", "true"],
    ] {
        arena.git(&["config", setting[0], setting[1]]);
    }
    let lines = [
        "git status",
        "git log --oneline",
        "git diff",
        "git -C dir status -s",
        "git branch -vv",
        "git grep one",
    ];
    let check = |arena: &Arena| {
        for line in lines {
            assert_eq!(arena.policy().judge(Line::Shell(line)), Ruling::Allow, "{line}");
        }
    };
    check(&arena);
    for version in ["2", "3", "4"] {
        arena.git(&["update-index", "--index-version", version]);
        check(&arena);
    }
    // A work tree and a repository inside, as git makes them.
    arena.git(&["worktree", "add", "-q", "tree"]);
    check(&arena);
    let source = arena.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    arena.git_in("source", &["init", "-q"]);
    arena.git_in("source", &["commit", "-qm", "x", "--allow-empty"]);
    arena.git(&["submodule", "--quiet", "add", source.to_str().unwrap(), "module"]);
    check(&arena);
    assert_eq!(arena.policy().judge(Line::Shell("git -C tree log --oneline")), Ruling::Allow);
    assert_eq!(arena.policy().judge(Line::Shell("git -C module status")), Ruling::Allow);
}

#[test]
fn damaged_index_is_asked_about() {
    if !has_git() {
        return;
    }
    let arena = Arena::new();
    let path = arena.work().join(".git/index");
    let index = fs::read(&path).unwrap();
    for cut in 0..index.len() {
        fs::write(&path, &index[..cut]).unwrap();
        let _ = arena.policy().judge(Line::Shell("git status"));
    }
    for (at, byte) in [(0, 0), (7, 9), (8, 0xff), (11, 0xff)] {
        let mut index = index.clone();
        index[at] = byte;
        fs::write(&path, &index).unwrap();
        assert!(matches!(arena.policy().judge(Line::Shell("git status")), Ruling::Ask { .. }), "{at}");
    }
}
