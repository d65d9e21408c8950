//! Repositories that tell git to run a program: no command that is allowed unasked runs it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandPolicy, Level, Line, Permit, ReadScope, Sandbox, Workspace};
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

    /// A copy, which is quicker to have than another repository.
    fn copy(&self) -> Self {
        let arena = Self { folder: tempfile::tempdir().unwrap() };
        let parts = ["work", "home"].map(|name| self.folder.path().join(name));
        let copied = Command::new("cp").arg("-a").args(parts).arg(arena.folder.path()).status();
        assert!(copied.unwrap().success());
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

    /// A sandbox in which a command could leave the mark, with mounts or without.
    fn sandbox(&self, without: &[&'static str]) -> Sandbox {
        let builder = Sandbox::builder(Workspace::open(self.work()).unwrap())
            .write(self.folder.path())
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .at_least(Level::Open);
        without.iter().fold(builder, |builder, means| builder.without(means)).build().unwrap()
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
    ("order by signature", |a| in_config(a, "[branch]\nsort = signature\n"), "git branch", false),
    (
        "order by signature, all",
        |a| in_config(a, "[BRANCH]\nSort = -signature:key\n"),
        "git branch -a",
        false,
    ),
    ("order of tags", |a| in_config(a, "[tag]\nsort = signature\n"), "git tag", false),
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
    (
        "empty folder for a repository, filter of the one above",
        |a| {
            driver(a, "[filter \"x\"]\nclean = MARK cat\n");
            fs::create_dir_all(a.work().join("sub/.git")).unwrap();
        },
        "git -C sub status",
        true,
    ),
    (
        "repository without a head, filter of the one above",
        |a| {
            driver(a, "[filter \"x\"]\nclean = MARK cat\n");
            a.write("sub/.git/config", "[core]\nbare = false\n");
            a.write("sub/.git/HEAD", "x\n");
            a.write("sub/.git/objects/x", "");
            a.write("sub/.git/refs/x", "");
        },
        "cd sub; git status",
        true,
    ),
    (
        "repository inside whose name is no text",
        |a| {
            nested(a, "no");
            let name = OsStr::from_bytes(b"in\xffner");
            fs::rename(a.work().join("inner"), a.work().join(name)).unwrap();
            a.run("git add in*");
        },
        "git status",
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

#[tokio::test(flavor = "multi_thread")]
async fn planted_program_is_asked_about_and_changes_nothing_read_only() {
    if !has_git() {
        return;
    }
    let first = Arena::new();
    for (name, plant, line, is_sure) in PLANTS {
        let arena = first.copy();
        plant(&arena);
        arena.is_marked();
        let ruling = arena.policy().judge(Line::Shell(line));
        arena.run(line);
        assert!(arena.is_marked() || !is_sure, "{name}: `{line}` does not show the danger");
        assert!(matches!(ruling, Permit::Ask { .. }), "{name}: `{line}` is not asked about: {ruling:?}");
        // Between the decision and the run all may be planted.
        let sandbox = arena.sandbox(&["namespaces"]);
        if sandbox.report().read_only.holds {
            sandbox.shell(*line).read_only(ReadScope::Repository).run().await.unwrap();
            assert!(!arena.is_marked(), "{name}: `{line}`");
        }
    }
}

/// Lines that change something, or reach somebody, where nothing holds them.
const CHANGES: &[&str] = &[
    "echo x > made",
    "echo x >> a.txt",
    ": > a.txt",
    "truncate -s 0 a.txt",
    "rm a.txt",
    "rm -rf dir",
    "mkdir made",
    "mv a.txt made",
    "ln a.txt made",
    "ln -s a.txt made",
    "mkfifo made",
    "cp a.txt made",
    "cp a.txt ../made",
    "touch a.txt",
    "touch -d 2001-01-01 a.txt",
    "chmod 777 a.txt",
    "chmod 700 dir",
    "chown 1:1 a.txt",
    "setfattr -n user.x -v y a.txt",
    "sort -o made a.txt",
    "sort -o a.txt /dev/null",
    "uniq a.txt made",
    "tee made < a.txt",
    "find . -name a.txt -delete",
    "find . -name a.txt -exec rm {} +",
    "git add -A",
    "git commit -qam x",
    "git gc -q",
    "git config a.b c",
    "git branch made",
    "git tag made",
    "git stash",
    "echo x > .git/config",
    "echo x > $OLD_HOME/made",
    "touch ../made",
    "chmod 755 $TMPDIR/..",
    "echo x > $TMPDIR/../made",
    "echo x > $HOME/made",
    "echo x > $HOME/.profile",
    "dd if=/dev/zero of=a.txt count=1",
    "sed -i s/one/two/ a.txt",
    "python3 -c 'open(\"made\", \"w\")'",
    "python3 -c 'import os; os.utime(\"a.txt\", (1, 1))'",
];

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_changes_nothing_but_temporary_files() {
    if !has_git() {
        return;
    }
    let arena = Arena::new();
    let state = || {
        let mut list = Command::new("find");
        list.args([".", "-path", "./home", "-prune", "-o", "-printf", "%p %y %m %U %G %s %T@ %n\\n"]);
        String::from_utf8(list.current_dir(arena.folder.path()).output().unwrap().stdout).unwrap()
    };
    for without in [&[][..], &["namespaces"]] {
        let sandbox = arena.sandbox(without);
        if !sandbox.report().read_only.holds {
            continue;
        }
        let before = state();
        for scope in [ReadScope::Files, ReadScope::Repository] {
            super::denied::run_all(&sandbox, scope, CHANGES).await;
        }
        assert_eq!(state(), before, "{without:?}");
        // Each run has a temporary folder, which is empty again for the next.
        let line = "ls -A $TMPDIR $HOME | grep -v : | grep .; echo x > $TMPDIR/f && sort -S 32k a.txt && cat $TMPDIR/f";
        for _ in 0..2 {
            let done = sandbox.shell(line).read_only(ReadScope::Files).run().await.unwrap();
            assert_eq!(done.stdout.text, "one\nx\n", "{done:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reaches_no_network_whatever_the_sandbox_allows() {
    let arena = Arena::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo reached");
    for without in [&[][..], &["namespaces"]] {
        let builder = Sandbox::builder(Workspace::open(arena.work()).unwrap()).at_least(Level::Open);
        let builder = without.iter().fold(builder, |builder, means| builder.without(means));
        let sandbox = builder.network(levity_sandbox::Network::Any).build().unwrap();
        if !sandbox.report().read_only.holds {
            continue;
        }
        let run = async |line: levity_sandbox::Command| line.run().await.unwrap().stdout.text;
        assert_eq!(run(sandbox.shell(&line)).await, "reached\n", "{without:?}");
        assert_eq!(run(sandbox.shell(&line).read_only(ReadScope::Files)).await, "", "{without:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_runs_nothing_that_an_earlier_command_left() {
    let plants = "printf 'echo PLANTED\\n' | tee $HOME/.profile $HOME/.bash_profile $HOME/.bashrc > $HOME/.bash_login; \
        printf '[core]\\nfsmonitor = echo PLANTED >&2; false\\n[alias]\\nx = y\\n' > $HOME/.gitconfig; \
        mkdir -p $HOME/.config/git; cp $HOME/.gitconfig $HOME/.config/git/config; \
        echo 'def length: \"PLANTED\";' > $HOME/.jq; echo 'def length: \"PLANTED\";' > $TMPDIR/.jq; \
        mkdir bin; printf '#!/bin/sh\\necho PLANTED\\n' > bin/ls; chmod 755 bin/ls; ln -s bin way";
    let lines = [
        "sh -lc ls",
        "bash -lc ls",
        "bash -ic ls",
        "git status",
        "git log -1",
        "echo '[1]' | jq length",
        "ls",
        "cat a.txt",
        "./bin/ls",
        "bin/ls",
        "way/ls",
        "$PWD/bin/ls",
        "exec bin/ls",
        "env bin/ls",
        "timeout 5 bin/ls",
        "find a.txt -exec bin/ls {} +",
        "cp bin/ls $TMPDIR/x; $TMPDIR/x",
    ];
    for without in [&[][..], &["namespaces"]] {
        let arena = Arena::new();
        let root = arena.work();
        let builder = Sandbox::builder(Workspace::open(&root).unwrap()).at_least(Level::Open);
        let paths = ["way", "bin", "dir/../bin", "."].map(|name| root.join(name).display().to_string());
        let builder = builder.env("PATH", format!("{}:bin:/usr/bin:/bin", paths.join(":"))).output(1 << 20);
        let sandbox = without.iter().fold(builder, |builder, means| builder.without(means)).build().unwrap();
        if !sandbox.report().read_only.holds {
            continue;
        }
        assert!(sandbox.shell(plants).run().await.unwrap().is_success());
        let danger = sandbox.shell("sh -lc true; ls").run().await.unwrap().stdout.text;
        assert_eq!(danger.matches("PLANTED").count(), 2, "{danger}");
        for scope in [ReadScope::Files, ReadScope::Repository] {
            for (line, text) in lines.iter().zip(super::denied::run_all(&sandbox, scope, &lines).await) {
                assert!(!text.contains("PLANTED"), "{without:?}: {line}: {text}");
            }
            let text = super::denied::run_all(&sandbox, scope, &["ls"]).await;
            assert!(text[0].contains("a.txt"), "{text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn place_around_the_workspace_opens_nothing_of_it() {
    let arena = Arena::new();
    arena.write(".env", "hush");
    arena.write("run", "#!/bin/sh\necho PLANTED\n");
    arena.write("../tools/run", "#!/bin/sh\necho own\n");
    for name in ["work/run", "tools/run"] {
        let path = arena.folder.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for without in [&[][..], &["namespaces"]] {
        let builder = Sandbox::builder(Workspace::open(arena.work()).unwrap()).at_least(Level::Open);
        let builder = without.iter().fold(builder, |builder, means| builder.without(means));
        // The place holds the workspace, and another lies in it.
        let builder = builder.read(arena.folder.path()).read(arena.work().join("dir")).read(arena.work());
        let sandbox = builder.build().unwrap();
        if !sandbox.report().read_only.holds {
            continue;
        }
        let lines =
            ["../tools/run", "cat ../tools/run", "cat a.txt dir/b.txt", "cat .env; ./run; cat .git/config"];
        let texts = super::denied::run_all(&sandbox, ReadScope::Files, &lines).await;
        for (text, part) in texts.iter().zip(["own", "echo own", "one\none", "denied"]) {
            assert!(text.contains(part), "{without:?}: {text}");
        }
        assert!(!texts[3].contains("hush") && !texts[3].contains("PLANTED"), "{}", texts[3]);
        assert!(!texts[3].contains("[core]"), "{}", texts[3]);
    }
}

#[tokio::test]
async fn git_works_in_a_command_that_only_reads() {
    if !has_git() {
        return;
    }
    let arena = Arena::new();
    touch(&arena);
    for without in [&[][..], &["namespaces"]] {
        let sandbox = arena.sandbox(without);
        if !sandbox.report().read_only.holds {
            continue;
        }
        for own in ["", "'core.abbrev=9'"] {
            let line = sandbox.shell("git status --short && git log -1 --format=%h && git diff --stat");
            let line = if own.is_empty() { line } else { line.env("GIT_CONFIG_PARAMETERS", own) };
            let done = line.read_only(ReadScope::Repository).run().await.unwrap();
            let is_shown = done.is_success() && done.stdout.text.contains(" M a.txt");
            assert!(is_shown, "{} {}", done.stdout, done.stderr);
            let commit = done.stdout.text.lines().nth(1).unwrap();
            assert_eq!(commit.len(), if own.is_empty() { 7 } else { 9 }, "{commit}");
        }
        let done = sandbox.shell("git status").read_only(ReadScope::Files).run().await.unwrap();
        assert!(!done.is_success(), "{done:?}");
    }
}

#[tokio::test]
async fn read_only_command_is_refused_where_it_cannot_be_held() {
    let arena = Arena::new();
    for without in [&["landlock"][..], &["seccomp"], &["namespaces", "landlock", "seccomp"]] {
        let sandbox = arena.sandbox(without);
        assert!(!sandbox.report().read_only.holds, "{}", sandbox.report());
        let refused = sandbox.shell("ls").read_only(ReadScope::Files).run().await.unwrap_err();
        assert!(matches!(refused, levity_sandbox::CommandError::ReadOnly(_)), "{refused}");
    }
}

/// Parts of shells that may set `PATH` to a folder of the workspace, or run a text.
const COMPUTING: [&str; 9] = [
    "printf abcde%n PATH",
    "printf -- '%s%n' abcde PATH",
    "printf '%(%F)Tabcde%n' 0 PATH",
    "printf '%d' PATH=5",
    "printf '%*s' PATH=5 a",
    "printf '%s' *",
    "test PATH=5 -eq 5",
    "test 5 -eq *",
    "cd 5",
];

#[tokio::test]
async fn read_only_line_runs_no_program_that_a_computed_path_names() {
    let has_bash = Command::new("bash").args(["-c", "true"]).output().is_ok();
    if !has_git() || !has_bash {
        return;
    }
    let arena = Arena::new();
    arena.script("5/ls");
    arena.script("5/cat");
    arena.run("bash -c 'printf abcde%n PATH; ls'");
    assert!(arena.is_marked(), "nothing but the kernel prevents it");
    let policy = arena.policy().allow("ls");
    for without in [&[][..], &["namespaces"]] {
        let sandbox = arena.sandbox(without);
        if !sandbox.report().read_only.holds {
            continue;
        }
        for computing in COMPUTING {
            for line in [format!("bash -c \"{computing}; ls; cat\""), format!("{computing}; ls; cat a.txt")] {
                assert_eq!(policy.judge(Line::Shell(&line)), Permit::Allow, "{line}");
                // The rule for `ls` gives such a line no rights, and it never runs where nothing holds it.
                assert_eq!(policy.read_scope(Line::Shell(&line)), Some(ReadScope::Files), "{line}");
                sandbox.shell(&line).read_only(ReadScope::Files).run().await.unwrap();
                assert!(!arena.is_marked(), "without {without:?}: {line}");
            }
        }
    }
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
        ["branch.main.vscode-merge-base", "origin/main"],
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
            assert_eq!(arena.policy().judge(Line::Shell(line)), Permit::Allow, "{line}");
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
    assert_eq!(arena.policy().judge(Line::Shell("git -C tree log --oneline")), Permit::Allow);
    assert_eq!(arena.policy().judge(Line::Shell("git -C module status")), Permit::Allow);
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
        assert!(matches!(arena.policy().judge(Line::Shell("git status")), Permit::Ask { .. }), "{at}");
    }
}
