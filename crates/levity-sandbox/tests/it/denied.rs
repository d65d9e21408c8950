//! Commands that would read denied files: they need approval, or run read-only and cannot read
//! them.
//!
//! Every line really runs, in a sandbox with mounts and in one without. Whatever the policy
//! decides, the kernel must protect the secret.
#![allow(clippy::print_stdout, reason = "skipped tests are printed")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandLine, CommandPolicy, Level, Permit, ReadScope, Sandbox, Workspace};
use tempfile::TempDir;

const SECRET: &str = "hush-7c1f";

/// A workspace with secrets in many places, and a policy that knows them.
struct Fixture {
    folder: TempDir,
    space: Workspace,
    policy: CommandPolicy,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for dir in [
            "src/deep", "sub/.ssh", "private", "open", "plain", "linked", "odd", "nb", "kept/dir",
        ] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for secret in [
            ".env",
            ".env.local",
            "server.pem",
            "sub/id_rsa",
            "sub/.ssh/config",
            "src/deep/.env",
            "private/a.txt",
            "odd/.env",
            "data.json.key",
            "kept/settings",
            "kept/dir/file",
        ] {
            fs::write(root.join(secret), format!("TOKEN={SECRET}\n")).unwrap();
        }
        for file in [
            "notes.txt",
            "a.txt",
            "open/a.txt",
            "src/main.rs",
            "plain/b.txt",
            ".env.example",
        ] {
            fs::write(root.join(file), "nothing\n").unwrap();
        }
        for (to, from) in [
            (".env", "link"),
            ("link", "link2"),
            ("sub/.ssh", "keys"),
            ("../.env", "linked/inner"),
            ("/etc", "etc"),
            // A denied name for a file or folder whose own name is not denied.
            ("settings", "kept/.npmrc"),
            ("dir", "kept/.aws"),
        ] {
            symlink(to, root.join(from)).unwrap();
        }
        for name in ["twin", "plain/twin", "plain/z.rs"] {
            fs::hard_link(root.join(".env"), root.join(name)).unwrap();
        }
        fs::write(
            root.join("nb").join(OsStr::from_bytes(b"z\xff.pem")),
            SECRET,
        )
        .unwrap();
        symlink(
            "../.env",
            root.join("nb").join(OsStr::from_bytes(b"zl\xff")),
        )
        .unwrap();
        fs::write(root.join("--files0-from=.env"), "").unwrap();
        fs::write(root.join("odd/@.env"), "").unwrap();
        fs::write(root.join("opts"), ".env\n").unwrap();
        fs::write(
            root.join("p"),
            "import \"data.json\" as $x {search: \"./\"}; $x",
        )
        .unwrap();
        fs::write(
            root.join("p2"),
            "import \"x\" as $x {search: \"./sub/.ssh\"}; $x",
        )
        .unwrap();
        fs::write(root.join("sub/.ssh/x.json"), format!("\"{SECRET}\"")).unwrap();
        fs::write(root.join("src/.ignore"), "\u{feff}!.env\n").unwrap();
        fs::write(root.join("again"), "!.env\n").unwrap();
        // A repository under another name, and one in it.
        for bare in [".bare", "sub/store"] {
            fs::create_dir_all(root.join(bare).join("objects")).unwrap();
            fs::create_dir_all(root.join(bare).join("refs")).unwrap();
            fs::write(root.join(bare).join("HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(
                root.join(bare).join("config"),
                format!("[remote]\nurl = https://u:{SECRET}@h\n"),
            )
            .unwrap();
        }
        // Deeper than a path can express.
        let name = "d".repeat(200);
        let line = format!(
            "i=0; while [ $i -lt 25 ]; do mkdir {name}; cd -P {name}; i=$((i+1)); done; echo \
                {SECRET} > .env"
        );
        let made = Command::new("/bin/sh")
            .args(["-c", &line])
            .current_dir(root)
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let space = Workspace::builder(root)
            .deny("private/*.txt")
            .build()
            .unwrap();
        let policy = CommandPolicy::new().with_workspace(&space);
        Self {
            folder,
            space,
            policy,
        }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// A sandbox with mounts and one without, as far as they can run commands read-only.
pub(crate) fn sandboxes(space: &Workspace) -> Vec<(&'static str, Sandbox)> {
    let builder = || {
        Sandbox::builder(space)
            .require_level(Level::Open)
            .max_output(16 << 20)
    };
    let both = [
        ("best", builder()),
        ("without mounts", builder().disable("namespaces")),
    ];
    let built = both.map(|(name, builder)| (name, builder.build().unwrap()));
    built
        .into_iter()
        .filter(|(name, sandbox)| {
            println!("{name}: {}", sandbox.report().read_only);
            sandbox.report().read_only.is_enforced
        })
        .collect()
}

/// Returns the output of each line when it runs read-only. The lines share a few shells, for speed.
pub(crate) async fn run_all(sandbox: &Sandbox, lines: &[&str]) -> Vec<String> {
    let mut outputs = Vec::new();
    for some in lines.chunks(200) {
        let quoted = some
            .iter()
            .map(|line| format!("(eval '{}') 2>&1 </dev/null", line.replace('\'', "'\\''")));
        let script = quoted.collect::<Vec<_>>().join("\necho; echo @@next@@\n");
        let done = sandbox
            .command(["sh"])
            .stdin(script)
            .read_only()
            .run()
            .await
            .unwrap();
        let parts: Vec<_> = done
            .stdout
            .text
            .split("@@next@@")
            .map(str::to_owned)
            .collect();
        assert_eq!(parts.len(), some.len(), "{done:?}");
        outputs.extend(parts);
    }
    outputs
}

pub(crate) fn git(root: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.c",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(["-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success(), "git {args:?}");
}

pub(crate) fn has_git() -> bool {
    Command::new("git").arg("--version").output().is_ok()
}

#[track_caller]
fn asks(policy: &CommandPolicy, line: &str) {
    let ruling = policy.judge(CommandLine::Shell(line));
    assert!(matches!(ruling, Permit::Ask { .. }), "{line}: {ruling:?}");
}

#[track_caller]
fn allows(policy: &CommandPolicy, line: &str) {
    assert_eq!(
        policy.judge(CommandLine::Shell(line)),
        Permit::Allow,
        "{line}"
    );
}

/// Lines that read a secret if nothing is enforced.
const SPELLED: &[&str] = &[
    "cat .env",
    "cat ./.env",
    "cat .//.env",
    "cat sub/../.env",
    "cat ./src/deep/.env",
    "cat .ENV",
    "cat .env.",
    "cat '.env'",
    "cat .e\"n\"v",
    "cat .en\\v",
    "cat -- .env",
    "cat .env/",
    "cat < .env",
    "cat 0<.env",
    "cat <./.env",
    "cat < link",
    "head -c10 .env",
    "head -c 10 -- .env",
    "tail -n1 server.pem",
    "grep -f.env a.txt",
    "grep -f .env a.txt",
    "grep --file=.env a.txt",
    "grep -rf.env src/main.rs",
    "grep TOKEN .env",
    "grep -H '' link",
    "cat link",
    "cat link2",
    "cat keys/config",
    "cat twin",
    "cat etc/passwd",
    "cat linked/inner",
    "cat *",
    "cat s*",
    "cat ser*m",
    "cat */id_rsa",
    "cat */id*",
    "cat sub/i?_rsa",
    "cat serve[r]*",
    "cat .e*",
    "cat .??v",
    "cat [.]env",
    "cat {.env,a.txt}",
    "cat **/id*",
    "wc -l *",
    "echo $(cat .env)",
    "echo \"`cat .env`\"",
    "cat \"$(echo .env)\"",
    "cat $X",
    "cat ~/.env",
    "ls | cat .env",
    "timeout 5 cat .env",
    "nice -n 5 cat .env",
    "sh -c 'cat .env'",
    "sh -c \"cat '.env'\"",
    "command cat .env",
    "echo .env | xargs cat",
    "find . -name .env -exec cat {} +",
    "find . -files0-from .env",
    "strings @.env",
    "cd odd; strings *",
    "cd odd && strings @*",
    "wc --files0-from=.env",
    "date -f .env",
    "sort .env",
    "diff .env a.txt",
    "diff a.txt private",
    "diff -r open .",
    "diff open sub",
    "cmp .env a.txt",
    "comm .env a.txt",
    "jq -R . .env",
    "jq --rawfile x .env -n '$x'",
    "jq -nR 'import \"./.env\" as $x; $x'",
    "base64 .env",
    "od -c .env",
    "hexdump -C .env",
    "nl .env",
    "tac .env",
    "rev .env",
    "paste .env",
    "sed -n 1p .env",
    "uniq .env",
    "cd src && cat deep/.env",
    "cd src/deep && cat .env",
    "cd src; cd deep; cat .env",
    "cd private && cat a.txt",
    "cd private; cat a*",
    "cd sub && cat id_rsa",
    "cd keys && cat config",
    "cd s* && cat id_rsa",
    "sh -c 'cd private'; cat a.txt; cd private; head a.txt",
    "zsh -c 'cd open; cd open private; cat a.txt'",
    "cd -P private; cat a.txt",
    "cd -- private; cat a.txt",
    "cat private/a.txt",
    "cat private/*",
    "cat PRIVATE/A.TXT",
    "grep -r . .",
    "grep -r TOKEN",
    "grep -rn TOKEN",
    "grep -R TOKEN src",
    "grep -r TOKEN src",
    "grep -r TOKEN sub plain",
    "grep -rA 3 TOKEN",
    "grep -r -A 3 TOKEN",
    "grep -r -m 1 TOKEN",
    "grep --recursive TOKEN",
    "grep --rec TOKEN .",
    "grep -d recurse TOKEN .",
    "grep --directories=recurse TOKEN .",
    "grep -r -e TOKEN",
    "grep -r --include='*' TOKEN .",
    "grep -r --include='.e*' TOKEN .",
    "grep -r --include='*.txt' nothing private",
    "grep -r --exclude-dir=.ssh TOKEN .",
    "grep -R nothing linked",
    "egrep -r TOKEN src",
    "rg TOKEN",
    "rg TOKEN sub",
    "rg --hidden TOKEN src",
    "rg -u TOKEN src",
    "rg -uu TOKEN src",
    "rg -. TOKEN src",
    "rg --no-ignore TOKEN src",
    "rg -f .env a.txt",
    "rg -g '.en*' TOKEN src",
    "rg -g'.e*' TOKEN src",
    "rg --glob='.e*' TOKEN src",
    "rg --iglob '.E*' TOKEN src",
    "rg -t sh TOKEN src",
    "rg --type-add 'x:.e*' -tx TOKEN src",
    "rg -L nothing linked",
    // Options that look like patterns, patterns that look like options.
    "grep -r -e hush -e --include=zzz .",
    "grep -rs hush . -- --include=zzz",
    "grep -r --label -e hush",
    "grep -rE -- '-e|.*'",
    "grep -rE -- '-e|hush' .",
    "rg -r -e hush",
    "rg --ignore-file=again hush src",
    "rg --ignore-file again hush src",
    "rg hush src",
    // Files of options, of names and of programs.
    "strings @opts",
    "cat $(cat opts)",
    "jq -n -f p",
    "jq -n -f p2",
    "jq -n --from-file p2",
    "jq -n 'import \"x\" as $x {search: \"./sub/.ssh\"}; $x'",
    "jq -L sub/.ssh -n 'import \"x\" as $x; $x'",
    "wc --files0-from=opts",
    // Names that are not UTF-8.
    "cat nb/z*",
    "cat nb/*",
    "grep -rh '' nb",
    "cd nb; head *",
    "head -c 99 nb/?l*",
    // Paths that are too long to be written.
    "grep -rh '' d*",
    "cd -P d*; cd -P d*; grep -rh '' .",
    "cd -P d*/d*/d*/d*/d*/d*/d*/d*; cd -P d*/d*/d*/d*/d*/d*/d*/d*; cd -P d*/d*/d*/d*/d*/d*/d*/d*; \
        cat d*/.env",
    // Other names of denied files.
    "grep -r hush plain",
    "cat plain/*",
    "cat plain/z.rs",
    "grep -rh --include='*.rs' TOKEN .",
    "cat kept/settings",
    "cat kept/.npmrc",
    "grep -r hush kept",
    "cat kept/dir/file",
    "cat kept/.aws/file",
    "grep -r hush kept/dir",
    // Indirect access.
    "cat /proc/self/cwd/.env",
    "cat /proc/self/root$PWD/.env",
    "cat $PWD/.env",
    "cat < link",
    "exec 3< link; cat <&3",
    "dd if=.env",
    "cp .env $TMPDIR/x; cat $TMPDIR/x",
    "ln .env $TMPDIR/x; cat $TMPDIR/x",
    "ln -s $PWD/.env $TMPDIR/x; cat $TMPDIR/x",
    "ln .env other; cat other",
    "mv .env other; cat other",
    "mv src other; cat other/deep/.env",
    "chmod 777 .env; cat .env",
    "tar cf - . | grep -a hush",
    "cat .bare/config",
    "cat sub/store/config",
    "grep -r hush .bare sub/store",
    "cd .bare && cat c*",
    "find . -type f -exec cat {} +",
    "find . -type f | xargs cat",
];

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reads_no_denied_file_in_any_spelling() {
    let fixture = Fixture::new();
    // Without a sandbox, the secrets can be read.
    let shown = Command::new("grep")
        .args(["-rh", "hush", "."])
        .current_dir(fixture.root())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains(SECRET));
    for (name, sandbox) in sandboxes(&fixture.space) {
        for (line, text) in SPELLED.iter().zip(run_all(&sandbox, SPELLED).await) {
            assert!(!text.contains(SECRET), "{name}: {line}: {text}");
        }
    }
    assert!(fixture.root().join("src/deep/.env").exists() && fixture.root().join(".env").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reads_other_files_without_approval() {
    const LINES: &[&str] = &[
        "cat notes.txt",
        "cat .env.example",
        "cat src/*.rs",
        "cat no*.txt | head -3",
        "cat plain/b*",
        "cat *.txt",
        "head -n 1 < notes.txt",
        "grep -h nothing src/main.rs",
        "grep -rh nothing plain",
        "grep -rh nothing open plain",
        "grep -rh --include='*.rs' nothing .",
        "grep -rh nothing src",
        "grep -rh nothing .",
        "grep -rh -A 3 nothing",
        "cat a.txt a.txt | sort | uniq",
        "cd src && cat main.rs",
        "cd open && cat a.txt",
        "sort -r notes.txt",
        "sh -c 'cat a.txt'",
        "bash -lc 'cat a.txt'",
        "diff -s a.txt notes.txt | tr i n; cat a.txt",
        "sed -n 1,3p notes.txt",
        "od -c notes.txt | head -1; cat notes.txt",
        "test -f a.txt && cat a.txt",
    ];
    let fixture = Fixture::new();
    for line in LINES {
        allows(&fixture.policy, line);
        assert_eq!(
            fixture.policy.read_scope(CommandLine::Shell(line)),
            Some(ReadScope::Files),
            "{line}"
        );
    }
    for (name, sandbox) in sandboxes(&fixture.space) {
        for (line, text) in LINES.iter().zip(run_all(&sandbox, LINES).await) {
            assert!(text.contains("nothing"), "{name}: {line}: {text}");
        }
        let names = run_all(&sandbox, &["ls", "find . -name main.rs", "ls -R src"]).await;
        assert!(
            names
                .iter()
                .all(|text| text.contains("main.rs") || text.contains("notes.txt")),
            "{names:?}"
        );
    }
}

#[test]
fn reading_denied_file_by_name_needs_approval() {
    let fixture = Fixture::new();
    for line in [
        "cat .env",
        "cat ./.env",
        "cat .ENV",
        "head -c 10 -- .env",
        "cat < .env",
        "grep TOKEN .env",
        "timeout 5 cat .env",
        "sh -c 'cat .env'",
        "cd src/deep && cat .env",
        "cd src; cat deep/.env",
        "cat private/a.txt",
        "cat sub/.ssh/config",
        "cat .git/config",
        "cat \"$(echo .env)\"",
        "cat $X",
        "cat ~/.env",
        "cat {.env,a.txt}",
    ] {
        asks(&fixture.policy, line);
    }
    let judge = |dir: &str, line: &str| fixture.policy.judge_in(dir, CommandLine::Shell(line));
    assert_eq!(judge("open", "cat a.txt"), Permit::Allow);
    for (dir, line) in [
        ("src", "cat deep/.env"),
        (".git", "cat config"),
        ("../other", "ls"),
        ("/etc", "ls"),
    ] {
        assert!(
            matches!(judge(dir, line), Permit::Ask { .. }),
            "{dir}: {line}"
        );
    }
}

/// Lines that show a committed secret if nothing is enforced.
const COMMITTED: &[&str] = &[
    "git show HEAD:.env",
    "git log -p",
    "git diff HEAD~1 HEAD",
    "git cat-file -p HEAD:.env",
    "git grep hush HEAD",
    "git -C dir show HEAD:.env",
    "git --git-dir=.git show HEAD:.env",
    "GIT_DIR=.git git show HEAD:.env",
    "git --git-dir=bare show HEAD:.env",
    "git -C bare log -p",
    "git diff --no-index a.txt .git/config",
    "git config --list",
    "cat .git/config",
    "cat bare/config",
    "grep -r hush .git bare",
];

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reads_nothing_of_repository() {
    if !has_git() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("dir")).unwrap();
    git(root, &["init", "-q"]);
    git(
        root,
        &["config", "remote.o.url", &format!("https://u:{SECRET}@h")],
    );
    fs::write(root.join("a.txt"), "one\n").unwrap();
    git(root, &["add", "-A"]);
    git(root, &["commit", "-qm", "one"]);
    fs::write(root.join(".env"), SECRET).unwrap();
    git(root, &["add", "-f", ".env"]);
    git(root, &["commit", "-qm", "two"]);
    git(root, &["clone", "-q", "--bare", ".", "bare"]);
    git(&root.join("bare"), &["config", "a.b", SECRET]);
    let space = Workspace::open(root).unwrap();
    for line in COMMITTED {
        let shown = Command::new("/bin/sh")
            .args(["-c", line])
            .current_dir(root)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(
            shown.contains("hush"),
            "`{line}` does not show the danger: {shown}"
        );
    }
    for (name, sandbox) in sandboxes(&space) {
        for (line, text) in COMMITTED.iter().zip(run_all(&sandbox, COMMITTED).await) {
            assert!(!text.contains(SECRET), "{name}: {line}: {text}");
        }
        assert!(
            run_all(&sandbox, &["cat a.txt"]).await[0].contains("one"),
            "{name}"
        );
    }
}

/// Programs and spellings that are combined to lines, most of which reach a secret.
const PROGRAMS: &[&str] = &[
    "cat",
    "head -c99",
    "tail -n9",
    "grep -h T",
    "grep -rh T",
    "grep -Rh T",
    "egrep -r T",
    "sort",
    "nl",
    "od -c",
    "diff a.txt",
    "diff -r open",
    "paste",
    "comm a.txt",
    "cut -c1-99",
    "tac",
    "strings",
    "wc --files0-from",
    "fold",
    "cat <",
    "head <",
    "cd src; cat",
    "cd sub && head",
    "cd private; cat",
    "cd open; cat",
    "rev",
    "join a.txt",
    "jq -R .",
    "column",
    "expand",
    "date -f",
    "file -f",
    "find -files0-from",
    "find",
    "ls -la",
    "xargs -a",
    "stat",
    "sed -n 1,9p",
];
const SPELLINGS: &[&str] = &[
    "",
    ".env",
    "./.env",
    "*",
    "./*",
    "s*",
    "*/*",
    "*/*/*",
    "sub",
    ".",
    "src",
    "src/deep",
    "link",
    "keys",
    "keys/*",
    "twin",
    "linked",
    "linked/*",
    "private",
    "private/*",
    "a.txt",
    "open",
    "open/*",
    "id_rsa",
    "id*",
    "deep/*",
    "deep/.e*",
    "-r .",
    "@.env",
    "-f.env",
    "--file=.env",
    "--from-file=.env",
    "notes.txt link2",
    "-- *",
    "?*",
    "l*k",
    "l*",
    "t*",
    "../.env",
    "*.pem",
    "*.pe[m]",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_combination_of_program_and_spelling_shows_secret() {
    let fixture = Fixture::new();
    let pairs = PROGRAMS
        .iter()
        .flat_map(|program| SPELLINGS.iter().map(move |it| format!("{program} {it}")));
    let lines: Vec<String> = pairs.collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let is_allowed = |line: &&&str| fixture.policy.judge(CommandLine::Shell(line)) == Permit::Allow;
    let allowed = lines.iter().filter(is_allowed).count();
    assert!(
        allowed > 500,
        "only {allowed} lines were allowed: the test has lost its point"
    );
    for (name, sandbox) in sandboxes(&fixture.space) {
        // Mounts hide files that the other mechanisms already hide, so a subset of the lines is
        // enough.
        let step = if name == "best" { 5 } else { 1 };
        let lines: Vec<&str> = lines.iter().copied().step_by(step).collect();
        for (line, text) in lines.iter().zip(run_all(&sandbox, &lines).await) {
            assert!(!text.contains("hush"), "{name}: {line}: {text}");
        }
    }
}
