//! Programs and settings in the workspace: a read-only command runs none of them, and changes
//! nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandLine, CommandPolicy, Level, Permit, ReadScope, Sandbox, Workspace};
use tempfile::TempDir;

/// A workspace with a repository in it, and a place outside where a planted program leaves its
/// mark.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for dir in ["work/dir", "home"] {
            fs::create_dir_all(fixture.folder.path().join(dir)).unwrap();
        }
        fixture.git(&["init", "-q"]);
        fixture.write("a.txt", "one\n");
        fixture.write("dir/b.txt", "one\n");
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "one"]);
        fixture
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

    /// Creates a script that leaves the mark.
    fn script(&self, name: &str) {
        self.write(
            name,
            &format!("#!/bin/sh\necho > {}\nexit 0\n", self.mark().display()),
        );
        fs::set_permissions(self.work().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn git(&self, args: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]);
        assert!(
            self.prepare(command.args(args)).status().unwrap().success(),
            "git {args:?}"
        );
    }

    fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
    }

    /// Runs a line in a shell, without any precaution.
    fn run(&self, line: &str) {
        let mut command = Command::new("/bin/sh");
        let _ = self.prepare(command.args(["-c", line])).status().unwrap();
    }

    /// Returns `true` if the mark exists, and removes it.
    fn is_marked(&self) -> bool {
        fs::remove_file(self.mark()).is_ok()
    }

    fn policy(&self) -> CommandPolicy {
        CommandPolicy::new().with_workspace(&Workspace::open(self.work()).unwrap())
    }

    /// Returns a sandbox in which a command could leave the mark, with mounts or without.
    fn sandbox(&self, without: &[&'static str]) -> Sandbox {
        let builder = Sandbox::builder(Workspace::open(self.work()).unwrap())
            .allow_write(self.folder.path())
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .require_level(Level::Open);
        without
            .iter()
            .fold(builder, |builder, means| builder.disable(means))
            .build()
            .unwrap()
    }
}

fn has_git() -> bool {
    Command::new("git").arg("--version").output().is_ok()
}

/// Lines that change something, or reach a server, if nothing is enforced.
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
    let fixture = Fixture::new();
    let state = || {
        let mut list = Command::new("find");
        list.args([
            ".",
            "-path",
            "./home",
            "-prune",
            "-o",
            "-printf",
            "%p %y %m %U %G %s %T@ %n\\n",
        ]);
        String::from_utf8(
            list.current_dir(fixture.folder.path())
                .output()
                .unwrap()
                .stdout,
        )
        .unwrap()
    };
    for without in [&[][..], &["namespaces"]] {
        let sandbox = fixture.sandbox(without);
        if !sandbox.report().read_only.is_enforced {
            continue;
        }
        let before = state();
        super::denied::run_all(&sandbox, CHANGES).await;
        assert_eq!(state(), before, "{without:?}");
        // Each run has a temporary folder, which is empty again for the next.
        let line = "ls -A $TMPDIR $HOME | grep -v : | grep .; echo x > $TMPDIR/f && sort -S 32k \
            a.txt && cat $TMPDIR/f";
        for _ in 0..2 {
            let done = sandbox.shell(line).read_only().run().await.unwrap();
            assert_eq!(done.stdout.text, "one\nx\n", "{done:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reaches_no_network() {
    let fixture = Fixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo reached");
    for without in [&[][..], &["namespaces"]] {
        let builder =
            Sandbox::builder(Workspace::open(fixture.work()).unwrap()).require_level(Level::Open);
        let builder = without
            .iter()
            .fold(builder, |builder, means| builder.disable(means));
        let sandbox = builder
            .network(levity_sandbox::Network::Any)
            .build()
            .unwrap();
        if !sandbox.report().read_only.is_enforced {
            continue;
        }
        let run = async |line: levity_sandbox::Command| line.run().await.unwrap().stdout.text;
        assert_eq!(run(sandbox.shell(&line)).await, "reached\n", "{without:?}");
        assert_eq!(
            run(sandbox.shell(&line).read_only()).await,
            "",
            "{without:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_runs_nothing_left_by_earlier_command() {
    let plants = "printf 'echo PLANTED\\n' | tee $HOME/.profile $HOME/.bash_profile $HOME/.bashrc \
        > $HOME/.bash_login; \
        printf '[core]\\nfsmonitor = echo PLANTED >&2; false\\n[alias]\\nx = y\\n' > \
        $HOME/.gitconfig; \
        mkdir -p $HOME/.config/git; cp $HOME/.gitconfig $HOME/.config/git/config; \
        echo 'def length: \"PLANTED\";' > $HOME/.jq; echo 'def length: \"PLANTED\";' > \
        $TMPDIR/.jq; \
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
        let fixture = Fixture::new();
        let root = fixture.work();
        let builder = Sandbox::builder(Workspace::open(&root).unwrap()).require_level(Level::Open);
        let paths =
            ["way", "bin", "dir/../bin", "."].map(|name| root.join(name).display().to_string());
        let builder = builder
            .env("PATH", format!("{}:bin:/usr/bin:/bin", paths.join(":")))
            .max_output(1 << 20);
        let sandbox = without
            .iter()
            .fold(builder, |builder, means| builder.disable(means))
            .build()
            .unwrap();
        if !sandbox.report().read_only.is_enforced {
            continue;
        }
        assert!(sandbox.shell(plants).run().await.unwrap().is_success());
        let danger = sandbox
            .shell("sh -lc true; ls")
            .run()
            .await
            .unwrap()
            .stdout
            .text;
        assert_eq!(danger.matches("PLANTED").count(), 2, "{danger}");
        for (line, text) in lines
            .iter()
            .zip(super::denied::run_all(&sandbox, &lines).await)
        {
            assert!(!text.contains("PLANTED"), "{without:?}: {line}: {text}");
        }
        let text = super::denied::run_all(&sandbox, &["ls"]).await;
        assert!(text[0].contains("a.txt"), "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn place_around_workspace_exposes_no_denied_file() {
    let fixture = Fixture::new();
    fixture.write(".env", "hush");
    fixture.write("run", "#!/bin/sh\necho PLANTED\n");
    fixture.write("../tools/run", "#!/bin/sh\necho own\n");
    for name in ["work/run", "tools/run"] {
        let path = fixture.folder.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for without in [&[][..], &["namespaces"]] {
        let builder =
            Sandbox::builder(Workspace::open(fixture.work()).unwrap()).require_level(Level::Open);
        let builder = without
            .iter()
            .fold(builder, |builder, means| builder.disable(means));
        // The place contains the workspace, and another place is in it.
        let builder = builder
            .allow_read(fixture.folder.path())
            .allow_read(fixture.work().join("dir"))
            .allow_read(fixture.work());
        let sandbox = builder.build().unwrap();
        if !sandbox.report().read_only.is_enforced {
            continue;
        }
        let lines = [
            "../tools/run",
            "cat ../tools/run",
            "cat a.txt dir/b.txt",
            "cat .env; ./run; cat .git/config",
        ];
        let texts = super::denied::run_all(&sandbox, &lines).await;
        for (text, part) in texts.iter().zip(["own", "echo own", "one\none", "denied"]) {
            assert!(text.contains(part), "{without:?}: {text}");
        }
        assert!(
            !texts[3].contains("hush") && !texts[3].contains("PLANTED"),
            "{}",
            texts[3]
        );
        assert!(!texts[3].contains("[core]"), "{}", texts[3]);
    }
}

#[tokio::test]
async fn read_only_command_is_refused_if_not_enforceable() {
    let fixture = Fixture::new();
    for without in [
        &["landlock"][..],
        &["seccomp"],
        &["namespaces", "landlock", "seccomp"],
    ] {
        let sandbox = fixture.sandbox(without);
        assert!(
            !sandbox.report().read_only.is_enforced,
            "{}",
            sandbox.report()
        );
        let refused = sandbox.shell("ls").read_only().run().await.unwrap_err();
        assert!(
            matches!(refused, levity_sandbox::CommandError::ReadOnly(_)),
            "{refused}"
        );
    }
}

/// Shell builtins that may set `PATH` to a folder of the workspace, or run a text.
const COMPUTING: [&str; 7] = [
    "printf abcde%n PATH",
    "printf -- '%s%n' abcde PATH",
    "printf '%(%F)Tabcde%n' 0 PATH",
    "printf '%d' PATH=5",
    "printf '%*s' PATH=5 a",
    "test PATH=5 -eq 5",
    "cd 5",
];

#[tokio::test]
async fn read_only_line_runs_no_program_of_computed_path() {
    let has_bash = Command::new("bash").args(["-c", "true"]).output().is_ok();
    if !has_git() || !has_bash {
        return;
    }
    let fixture = Fixture::new();
    fixture.script("5/ls");
    fixture.script("5/cat");
    fixture.run("bash -c 'printf abcde%n PATH; ls'");
    assert!(fixture.is_marked(), "nothing but the kernel prevents it");
    let policy = fixture.policy().allow("ls");
    for without in [&[][..], &["namespaces"]] {
        let sandbox = fixture.sandbox(without);
        if !sandbox.report().read_only.is_enforced {
            continue;
        }
        for computing in COMPUTING {
            for line in [
                format!("bash -c \"{computing}; ls; cat\""),
                format!("{computing}; ls; cat a.txt"),
            ] {
                assert_eq!(
                    policy.judge(CommandLine::Shell(&line)),
                    Permit::Allow,
                    "{line}"
                );
                // The rule for `ls` gives such a line no rights, and it never runs without
                // enforcement.
                assert_eq!(
                    policy.read_scope(CommandLine::Shell(&line)),
                    Some(ReadScope::Files),
                    "{line}"
                );
                sandbox.shell(&line).read_only().run().await.unwrap();
                assert!(!fixture.is_marked(), "without {without:?}: {line}");
            }
        }
    }
}
