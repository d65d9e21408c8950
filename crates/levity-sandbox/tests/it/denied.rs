//! Commands that would read what the workspace denies: they are asked about, or run read-only and read nothing of it.
//!
//! Every line runs for real, in a sandbox with mounts and in one without. Whatever the policy says of a line, the kernel must
//! keep its secret.
#![allow(clippy::print_stdout, reason = "what this system cannot hold is left out aloud")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandPolicy, Level, Line, Permit, ReadScope, Sandbox, Workspace};
use tempfile::TempDir;

const SECRET: &str = "hush-7c1f";

/// A workspace with secrets in many places, and a policy that knows them.
struct Arena {
    folder: TempDir,
    space: Workspace,
    policy: CommandPolicy,
}

impl Arena {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for dir in ["src/deep", "sub/.ssh", "private", "open", "plain", "linked", "odd", "nb", "kept/dir"] {
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
        for file in ["notes.txt", "a.txt", "open/a.txt", "src/main.rs", "plain/b.txt", ".env.example"] {
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
        fs::write(root.join("nb").join(OsStr::from_bytes(b"z\xff.pem")), SECRET).unwrap();
        symlink("../.env", root.join("nb").join(OsStr::from_bytes(b"zl\xff"))).unwrap();
        fs::write(root.join("--files0-from=.env"), "").unwrap();
        fs::write(root.join("odd/@.env"), "").unwrap();
        fs::write(root.join("opts"), ".env\n").unwrap();
        fs::write(root.join("p"), "import \"data.json\" as $x {search: \"./\"}; $x").unwrap();
        fs::write(root.join("p2"), "import \"x\" as $x {search: \"./sub/.ssh\"}; $x").unwrap();
        fs::write(root.join("sub/.ssh/x.json"), format!("\"{SECRET}\"")).unwrap();
        fs::write(root.join("src/.ignore"), "\u{feff}!.env\n").unwrap();
        fs::write(root.join("again"), "!.env\n").unwrap();
        // A repository under another name, and one in it.
        for bare in [".bare", "sub/store"] {
            fs::create_dir_all(root.join(bare).join("objects")).unwrap();
            fs::create_dir_all(root.join(bare).join("refs")).unwrap();
            fs::write(root.join(bare).join("HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(root.join(bare).join("config"), format!("[remote]\nurl = https://u:{SECRET}@h\n"))
                .unwrap();
        }
        // Deeper than a path can say.
        let name = "d".repeat(200);
        let line = format!(
            "i=0; while [ $i -lt 25 ]; do mkdir {name}; cd -P {name}; i=$((i+1)); done; echo {SECRET} > .env"
        );
        let made =
            Command::new("/bin/sh").args(["-c", &line]).current_dir(root).stderr(Stdio::null()).status();
        assert!(made.unwrap().success());
        let space = Workspace::builder(root).deny("private/*.txt").build().unwrap();
        let policy = CommandPolicy::new().within(&space);
        Self { folder, space, policy }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// A sandbox with mounts and one without, as far as they can run commands read-only.
pub(crate) fn sandboxes(space: &Workspace) -> Vec<(&'static str, Sandbox)> {
    let builder = || Sandbox::builder(space).at_least(Level::Open).output(16 << 20);
    let both = [("best", builder()), ("without mounts", builder().without("namespaces"))];
    let built = both.map(|(name, builder)| (name, builder.build().unwrap()));
    built
        .into_iter()
        .filter(|(name, sandbox)| {
            println!("{name}: {}", sandbox.report().read_only);
            sandbox.report().read_only.holds
        })
        .collect()
}

/// What each of these lines writes when it runs read-only. They share a few shells, to be quick.
pub(crate) async fn run_all(sandbox: &Sandbox, scope: ReadScope, lines: &[&str]) -> Vec<String> {
    let mut outputs = Vec::new();
    for some in lines.chunks(200) {
        let quoted =
            some.iter().map(|line| format!("(eval '{}') 2>&1 </dev/null", line.replace('\'', "'\\''")));
        let script = quoted.collect::<Vec<_>>().join("\necho; echo @@next@@\n");
        let done = sandbox.command(["sh"]).stdin(script).read_only(scope).run().await.unwrap();
        let parts: Vec<_> = done.stdout.text.split("@@next@@").map(str::to_owned).collect();
        assert_eq!(parts.len(), some.len(), "{done:?}");
        outputs.extend(parts);
    }
    outputs
}

pub(crate) fn git(root: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"])
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

/// What git says in one line.
fn ask_git(root: &Path, args: &[&str]) -> String {
    let done = Command::new("git").args(args).current_dir(root).env("HOME", root).output().unwrap();
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

pub(crate) fn has_git() -> bool {
    Command::new("git").arg("--version").output().is_ok()
}

#[track_caller]
fn asks(policy: &CommandPolicy, line: &str) {
    let ruling = policy.judge(Line::Shell(line));
    assert!(matches!(ruling, Permit::Ask { .. }), "{line}: {ruling:?}");
}

#[track_caller]
fn allows(policy: &CommandPolicy, line: &str) {
    assert_eq!(policy.judge(Line::Shell(line)), Permit::Allow, "{line}");
}

/// Lines that read a secret where nothing holds them.
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
    // Names that are no text.
    "cat nb/z*",
    "cat nb/*",
    "grep -rh '' nb",
    "cd nb; head *",
    "head -c 99 nb/?l*",
    // Paths that are too long to be written down.
    "grep -rh '' d*",
    "cd -P d*; cd -P d*; grep -rh '' .",
    "cd -P d*/d*/d*/d*/d*/d*/d*/d*; cd -P d*/d*/d*/d*/d*/d*/d*/d*; cd -P d*/d*/d*/d*/d*/d*/d*/d*; cat d*/.env",
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
    // Ways around.
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
    let arena = Arena::new();
    // The secrets can be read where nothing holds a command.
    let shown = Command::new("grep").args(["-rh", "hush", "."]).current_dir(arena.root()).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains(SECRET));
    for (name, sandbox) in sandboxes(&arena.space) {
        for (line, text) in SPELLED.iter().zip(run_all(&sandbox, ReadScope::Files, SPELLED).await) {
            assert!(!text.contains(SECRET), "{name}: {line}: {text}");
        }
    }
    assert!(arena.root().join("src/deep/.env").exists() && arena.root().join(".env").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_command_reads_other_files_without_a_question() {
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
    let arena = Arena::new();
    for line in LINES {
        allows(&arena.policy, line);
        assert_eq!(arena.policy.read_scope(Line::Shell(line)), Some(ReadScope::Files), "{line}");
    }
    for (name, sandbox) in sandboxes(&arena.space) {
        for (line, text) in LINES.iter().zip(run_all(&sandbox, ReadScope::Files, LINES).await) {
            assert!(text.contains("nothing"), "{name}: {line}: {text}");
        }
        let names = run_all(&sandbox, ReadScope::Files, &["ls", "find . -name main.rs", "ls -R src"]).await;
        assert!(names.iter().all(|text| text.contains("main.rs") || text.contains("notes.txt")), "{names:?}");
    }
}

#[test]
fn reading_denied_file_by_its_name_is_asked_about() {
    let arena = Arena::new();
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
        asks(&arena.policy, line);
    }
    let judge = |dir: &str, line: &str| arena.policy.judge_in(dir, Line::Shell(line));
    assert_eq!(judge("open", "cat a.txt"), Permit::Allow);
    for (dir, line) in [("src", "cat deep/.env"), (".git", "cat config"), ("../other", "ls"), ("/etc", "ls")]
    {
        assert!(matches!(judge(dir, line), Permit::Ask { .. }), "{dir}: {line}");
    }
}

/// A repository whose history, tags and folders hold a secret that no file of the working tree has under an open name.
fn repository() -> (TempDir, Vec<(&'static str, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    git(root, &["init", "-q"]);
    let put = |name: &str, text: &str| {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    };
    for file in ["a.txt", "src.rs", "dir/b.txt"] {
        put(file, "one\n");
    }
    put(".env", SECRET);
    // Folders that become files.
    put("cfg/.env", SECRET);
    put("gone/.env", SECRET);
    put(".ssh/config", SECRET);
    git(root, &["add", "-A"]);
    git(root, &["commit", "-qm", "one"]);
    let names = vec![
        ("BLOB", ask_git(root, &["rev-parse", "HEAD:.env"])),
        ("EMPTY", ask_git(root, &["hash-object", "-t", "tree", "/dev/null"])),
        ("TREE", ask_git(root, &["rev-parse", "HEAD^{tree}"])),
    ];
    git(root, &["tag", "secret", &names[0].1]);
    git(root, &["tag", "-a", "-m", "note", "annotated", &names[0].1]);
    git(root, &["rm", "-qr", "--cached", ".env", "cfg", "gone", ".ssh"]);
    fs::remove_dir_all(root.join("cfg")).unwrap();
    fs::remove_dir_all(root.join("gone")).unwrap();
    put("cfg", "one\n");
    put("gone", "");
    put("other", "two\n");
    git(root, &["add", "cfg", "gone"]);
    git(root, &["commit", "-qm", "two"]);
    (folder, names)
}

fn with_names(line: &str, names: &[(&str, String)]) -> String {
    names.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value))
}

/// Commands of git that show the secret, or could.
const SHOWING: &[&str] = &[
    "git show -s BLOB",
    "git show --stat BLOB",
    "git show --name-only BLOB",
    "git show BLOB",
    "git show BLOB -- a.txt",
    "git diff -U HEAD~1",
    "git diff -pU HEAD~1",
    "git diff -WU HEAD~1",
    "git diff -U --no-index -- a.txt .git/config",
    "git diff -U --submodule=diff",
    "git diff BLOB -- a.txt",
    "git diff BLOB EMPTY",
    "git diff --stat BLOB HEAD:a.txt",
    "git diff HEAD:a.txt BLOB",
    "git show TREE:.env",
    "git show TREE:cfg/.env -- a.txt",
    "git show --stat TREE:.env",
    "git diff TREE EMPTY -- cfg",
    "git diff-tree -p TREE EMPTY -- cfg",
    "git diff-tree -p HEAD~1 HEAD",
    "git tag '--format=%(raw)'",
    "git tag --format='%(contents)'",
    "git tag -n",
    "git tag -n5 -l",
    "git tag -l -n",
    "git branch --format='%(raw)'",
    "git for-each-ref --format='%(raw)'",
    "git show secret",
    "git show -s secret",
    "git show --stat secret",
    "git show annotated",
    "git show -s annotated",
    "git show --stat --all",
    "git show -s --tags",
    "git show --stat @",
    "git show --stat main",
    "git log -p -- cfg",
    "git log -p -- gone",
    "git show HEAD -- cfg",
    "git show HEAD~1 -- cfg",
    "git diff HEAD~1 -- cfg",
    "git diff HEAD~1 HEAD -- gone",
    "git log '--format=%-GG'",
    "git log --format=%GG",
    "git log '--format=%+G?'",
    "git log --format='%(trailers)'",
    "git log --format=%N",
    "git log --format=own",
    "git log --pretty=own",
    "git reflog",
    "git reflog -p",
    "git reflog show HEAD",
    "git stash list",
    "git stash list -p",
    "git worktree list",
    "git show HEAD:.env",
    "git show HEAD~1:.env",
    "git show HEAD~1:./.env",
    "git show :.env",
    "git show :0:.env",
    "git show",
    "git show HEAD",
    "git show HEAD~1",
    "git show 'HEAD^{/one}'",
    "git show --stat 'HEAD^{tree}'",
    "git show ':/one'",
    "git show --stat -p HEAD",
    "git show -s -p HEAD",
    "git show --stat HEAD BLOB",
    "git show --stat HEAD",
    "git show --stat",
    "git show -s --format=%s HEAD",
    "git log -p",
    "git log -u -1",
    "git log -c",
    "git log -m",
    "git log --cc",
    "git log --patch -- .",
    "git log -p --follow -- a.txt",
    "git log -L1,2:a.txt",
    "git log -Shush",
    "git log -G hush",
    "git log --stat -U1",
    "git log --full-diff -p -- a.txt",
    "git log -g",
    "git log --walk-reflogs",
    "git log --no-such-option",
    "git log --output=x",
    "git log HEAD:.env",
    "git whatchanged -p",
    "git diff HEAD~1",
    "git diff --cached",
    "git diff --staged -- .",
    "git diff --stat -p --cached",
    "git diff HEAD~1 HEAD",
    "git diff --no-index a.txt .env",
    "git diff --merge-base HEAD~1",
    "git status -v",
    "git status -vv",
    "git status --verbose",
    "git blame .env",
    "git blame -ML .env HEAD~1",
    "git blame -CL .env HEAD~1",
    "git blame -wML .env HEAD~1",
    "git blame -CCL .env HEAD~1",
    "git blame HEAD~1 -- .env",
    "git blame HEAD~1 a.txt",
    "git blame --contents .env a.txt",
    "git blame --ignore-revs-file=.env a.txt",
    "git grep hush HEAD~1",
    "git grep hush BLOB",
    "git grep -ne hush BLOB",
    "git grep -e hush HEAD~1",
    "git grep --cached hush",
    "git grep --no-index hush",
    "git grep --untracked hush",
    "git grep --recurse-submodules hush",
    "git grep -f .env",
    "git grep -O hush",
    "git rev-list --objects HEAD",
    "git config --list",
    "git config -l",
    "git config --get remote.origin.url",
    "git remote -v",
    "git remote get-url origin",
    "git cat-file -p BLOB",
    "git archive HEAD~1",
    "git -C . show HEAD~1",
    "git --git-dir=.git show HEAD~1",
    "git -c core.pager=cat log",
    "git --no-pager log",
    "cd dir && git log -p",
    // Beside git, others could read what is in `.git`.
    "git status; cat a.txt",
    "git status && head -c 99 *",
    "git status | xargs cat",
    "git log | grep -f a.txt",
    "git log | grep x a.txt",
    "git log | grep -r x",
    "git status; grep -r x",
    "git log | sort a.txt",
    "git log | wc --files0-from=a.txt",
    "git log | tail a.txt",
    "git status < a.txt",
    "git status; date -uf.git/config",
    "git status; find -files0-from a.txt",
    "git status; du --files0-from=a.txt",
    "git status; tree --fromfile a.txt",
    "git status; jq -R .",
    "git status; sed -n 1p a.txt",
    "git status; file *",
];

/// Commands of git that are allowed, and show something else.
const OPEN: &[&str] = &[
    "git status",
    "git status --short",
    "git status -sb -uno",
    "git status --untracked-files=all",
    "git log --oneline -5",
    "git log --stat",
    "git log --all --graph --decorate --oneline",
    "git log --format=%H -n 3",
    "git log '--format=%h %an %ad %s%n%b' --date=short",
    "git log BLOB --oneline",
    "git log secret",
    "git log --stat TREE",
    "git log -- cfg gone",
    "git log HEAD~1..HEAD -- .env",
    "git shortlog -sne HEAD",
    "git rev-list --count HEAD",
    "git rev-list --all",
    "git rev-list BLOB",
    "git show --stat HEAD~0",
    "git show -s --format=%s HEAD~0",
    "git show --name-only HEAD~1",
    "git show --name-status HEAD^ -- cfg",
    "git diff",
    "git diff -U1 -w",
    "git diff -- cfg gone a.txt",
    "git diff -- cfg none",
    "git diff --stat HEAD~1",
    "git diff --name-only HEAD~1 HEAD",
    "git diff --cached --name-only",
    "git blame a.txt",
    "git blame -L 1,1 -- a.txt",
    "git grep -n one",
    "git grep one -- cfg",
    "git grep -e hush",
    "git grep hush",
    "git ls-files",
    "git ls-files --others --exclude-standard",
    "git ls-tree -r HEAD",
    "git ls-tree --name-only TREE",
    "git branch -a",
    "git branch -vv",
    "git branch --show-current",
    "git tag",
    "git tag -l 's*'",
    "git remote",
    "git rev-parse --abbrev-ref HEAD",
    "git rev-parse --verify HEAD",
    "git rev-parse --show-toplevel",
    "git describe --always --dirty",
    "git merge-base HEAD HEAD~1",
    "git check-ignore -v a.txt",
    "git -C dir status",
    "cd dir; git log --oneline",
    "git log --oneline | head -3 | wc -l",
    "git status --short | grep -v '^??' | sort | uniq -c",
    "git diff | grep -c '^+'; echo done; ls dir",
    "git log --format=%s | sed -n 1,2p | tr a-z A-Z | cut -c1-9",
];

#[tokio::test(flavor = "multi_thread")]
async fn head_that_is_no_commit_shows_nothing() {
    if !has_git() {
        return;
    }
    let (folder, names) = repository();
    let git = folder.path().join(".git");
    let head = fs::read_to_string(git.join("HEAD")).unwrap();
    let branch = git.join(head.trim().strip_prefix("ref: ").unwrap());
    let commit = fs::read_to_string(&branch).unwrap();
    let blob = with_names("BLOB", &names);
    let replaced = git.join("refs/replace").join(commit.trim());
    fs::create_dir_all(replaced.parent().unwrap()).unwrap();
    let lines =
        ["git show --stat HEAD~0", "git show -s HEAD^0", "git log --stat -1", "git diff --stat HEAD~0"];
    for (head, replacement) in [(&*blob, None), (&*commit, Some(&*blob))] {
        fs::write(&branch, format!("{}\n", head.trim())).unwrap();
        if let Some(blob) = replacement {
            fs::write(&replaced, format!("{blob}\n")).unwrap();
        }
        let space = Workspace::open(folder.path()).unwrap();
        let policy = CommandPolicy::new().within(&space);
        asks(&policy, "git show --stat HEAD");
        for (name, sandbox) in sandboxes(&space) {
            for (line, text) in lines.iter().zip(run_all(&sandbox, ReadScope::Repository, &lines).await) {
                assert!(!text.contains(SECRET), "{name}: {line}: {text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_command_that_may_show_denied_contents_is_asked_about() {
    if !has_git() {
        return;
    }
    let (folder, names) = repository();
    let space = Workspace::open(folder.path()).unwrap();
    let policy = CommandPolicy::new().within(&space);
    for line in SHOWING {
        asks(&policy, &with_names(line, &names));
    }
    let open: Vec<String> = OPEN.iter().map(|line| with_names(line, &names)).collect();
    let open: Vec<&str> = open.iter().map(String::as_str).collect();
    for line in &open {
        allows(&policy, line);
        assert_eq!(policy.read_scope(Line::Shell(line)), Some(ReadScope::Repository), "{line}");
    }
    for (name, sandbox) in sandboxes(&space) {
        for (line, text) in open.iter().zip(run_all(&sandbox, ReadScope::Repository, &open).await) {
            assert!(!text.contains(SECRET), "{name}: {line}: {text}");
        }
        let seen = ["git log -1 --format=%s", "git grep -h one -- src.rs", "git status --short other"];
        let texts = run_all(&sandbox, ReadScope::Repository, &seen).await;
        for (text, part) in texts.iter().zip(["two", "one", "?? other"]) {
            assert!(text.contains(part), "{name}: {text}");
        }
        // Without leave for the repository, nothing of it can be read.
        let showing: Vec<String> = SHOWING.iter().map(|line| with_names(line, &names)).collect();
        let showing: Vec<&str> = showing.iter().map(String::as_str).collect();
        for (line, text) in showing.iter().zip(run_all(&sandbox, ReadScope::Files, &showing).await) {
            assert!(!text.contains(SECRET), "{name}: {line}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_command_over_a_tracked_secret_is_asked_about_or_shows_nothing() {
    if !has_git() {
        return;
    }
    // What is done to the repository, the line, and whether it may be allowed.
    type Done = fn(&Path);
    let rows: &[(&str, Done, &str, bool)] = &[
        ("tracked", |_| {}, "git diff", false),
        ("tracked, grep", |_| {}, "git grep hush", false),
        ("tracked, names", |_| {}, "git diff --stat", true),
        ("tracked, status", |_| {}, "git status", true),
        (
            "not in the working tree",
            |root| git(root, &["update-index", "--skip-worktree", ".env"]),
            "git grep hush",
            false,
        ),
        (
            "empty folder for a repository",
            |root| fs::create_dir_all(root.join("dir/.git")).unwrap(),
            "git -C dir diff",
            false,
        ),
        (
            "link to a folder of keys",
            |root| {
                git(root, &["rm", "-q", "--cached", ".env"]);
                fs::create_dir(root.join(".ssh")).unwrap();
                fs::write(root.join(".ssh/config"), SECRET).unwrap();
                fs::create_dir(root.join("keys")).unwrap();
                fs::write(root.join("keys/config"), "one").unwrap();
                git(root, &["add", "keys/config"]);
                fs::remove_dir_all(root.join("keys")).unwrap();
                symlink(".ssh", root.join("keys")).unwrap();
            },
            "git grep -h hush",
            false,
        ),
        (
            "hard link",
            |root| {
                git(root, &["rm", "-q", "--cached", ".env"]);
                fs::remove_file(root.join("a.txt")).unwrap();
                fs::hard_link(root.join(".env"), root.join("a.txt")).unwrap();
            },
            "git diff; git grep hush",
            false,
        ),
        (
            "hard link that is committed",
            |root| {
                git(root, &["rm", "-q", "--cached", ".env"]);
                fs::hard_link(root.join(".env"), root.join("twin")).unwrap();
                git(root, &["add", "twin"]);
                git(root, &["commit", "-qm", "two"]);
                git(root, &["update-index", "--assume-unchanged", "twin"]);
            },
            "git status; git grep hush",
            false,
        ),
        (
            "hard link, names",
            |root| fs::hard_link(root.join(".env"), root.join("t")).unwrap(),
            "git status",
            true,
        ),
        (
            "target of a link with a denied name",
            |root| {
                git(root, &["rm", "-q", "--cached", ".env"]);
                fs::write(root.join("settings"), SECRET).unwrap();
                git(root, &["add", "settings"]);
                git(root, &["commit", "-qm", "two"]);
                git(root, &["update-index", "--assume-unchanged", "settings"]);
                symlink("settings", root.join(".env.local")).unwrap();
            },
            "git grep hush",
            false,
        ),
        (
            "folder that a denied name points to",
            |root| {
                git(root, &["rm", "-q", "--cached", ".env"]);
                fs::create_dir(root.join("keys")).unwrap();
                fs::write(root.join("keys/id"), SECRET).unwrap();
                git(root, &["add", "keys/id"]);
                git(root, &["commit", "-qm", "two"]);
                fs::remove_file(root.join("keys/id")).unwrap();
                symlink("keys", root.join(".ssh")).unwrap();
            },
            "git diff -- keys",
            false,
        ),
        (
            "repositories inside",
            |root| {
                git(root, &["rm", "-q", "--cached", ".env"]);
                let inner = root.join("inner");
                fs::create_dir(&inner).unwrap();
                git(&inner, &["init", "-q"]);
                fs::write(inner.join(".env"), SECRET).unwrap();
                git(&inner, &["add", "-f", ".env"]);
                git(&inner, &["commit", "-qm", "one"]);
                git(root, &["add", "inner"]);
                git(root, &["config", "submodule.recurse", "true"]);
            },
            "git grep hush",
            false,
        ),
    ];
    for (name, done, line, may_run) in rows {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, &["init", "-q"]);
        for (file, text) in [(".env", SECRET), ("a.txt", "one\n"), ("dir/b.txt", "one\n")] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), text).unwrap();
        }
        git(root, &["add", "-A"]);
        git(root, &["commit", "-qm", "one"]);
        fs::write(root.join(".env"), format!("{SECRET}\n")).unwrap();
        done(root);
        let space = Workspace::open(root).unwrap();
        let policy = CommandPolicy::new().within(&space);
        match may_run {
            true => allows(&policy, line),
            false => asks(&policy, line),
        }
        for (level, sandbox) in sandboxes(&space).into_iter().filter(|_| *may_run) {
            let text = run_all(&sandbox, ReadScope::Repository, &[line]).await;
            assert!(!text[0].contains(SECRET), "{level}: {name}: {line}: {text:?}");
        }
    }
}

/// Lines that show files of `.git` where git uses no repository.
const WITHOUT_REPOSITORY: &[&str] = &[
    "git diff -- empty sub/.git/config",
    "git diff -- sub/.git/config empty",
    "git diff -U1 -- empty sub/.git/config",
    "git diff -R -- empty sub/.git/config",
    "git diff --word-diff -- empty sub/.git/config",
    "git diff -- none sub",
    "git diff -- none sub .git",
    "git diff --stat empty sub/.git/config",
    "git diff --numstat -- empty sub/.git/config",
    "git diff --quiet -- empty sub/.git/config",
    "git -C dir diff -- empty sub/.git/config",
    "cd dir; git diff -- empty sub/.git/config",
    "cd dir && git diff -- empty sub/.git/config",
    "sh -c 'git diff -- empty sub/.git/config'",
    "timeout 5 git diff -- empty sub/.git/config",
    "git status; git diff -- empty sub/.git/config",
];

#[tokio::test(flavor = "multi_thread")]
async fn git_diff_of_two_files_without_a_repository_is_asked_about() {
    if !has_git() {
        return;
    }
    // What is done to the workspace, in which `sub` is a repository, and whether all repositories are understood.
    type Done = fn(&Path);
    let rows: &[(&str, bool, Done)] = &[
        ("no repository", true, |_| {}),
        ("hidden repository", true, |root| {
            git(root, &["init", "-q"]);
            symlink(".git/HEAD", root.join("a.key")).unwrap();
        }),
        ("unknown format", false, |root| {
            git(root, &["init", "-q"]);
            fs::write(root.join(".git/config"), "[core]\nrepositoryformatversion = 99\n").unwrap();
        }),
        ("extension without its format", false, |root| {
            git(root, &["init", "-q"]);
            let config = "[core]\nrepositoryformatversion = 0\n[extensions]\nobjectformat = sha1\n";
            fs::write(root.join(".git/config"), config).unwrap();
        }),
        ("another owner", true, |root| {
            git(root, &["init", "-q"]);
            // Only root can give a file away.
            let _ = std::os::unix::fs::chown(root.join(".git"), Some(4242), None);
        }),
    ];
    for (name, is_understood, done) in rows {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for part in [".", "dir"] {
            fs::create_dir_all(root.join(part).join("sub")).unwrap();
            fs::create_dir_all(root.join(part).join("none")).unwrap();
            fs::write(root.join(part).join("empty"), "").unwrap();
            git(&root.join(part).join("sub"), &["init", "-q"]);
            git(&root.join(part).join("sub"), &["config", "remote.o.url", &format!("https://u:{SECRET}@h")]);
        }
        done(root);
        use std::os::unix::fs::MetadataExt as _;
        let is_root = fs::metadata(root).unwrap().uid() == 0;
        if *name == "another owner" && !is_root {
            continue;
        }
        let space = Workspace::open(root).unwrap();
        let policy = CommandPolicy::new().within(&space);
        for line in WITHOUT_REPOSITORY {
            asks(&policy, line);
        }
        for line in ["git status", "git diff", "git -C sub diff -- a b", "git -C sub diff --stat"] {
            match is_understood {
                true => allows(&policy, line),
                false => asks(&policy, line),
            }
        }
        // The danger is there.
        for (level, sandbox) in sandboxes(&space) {
            let text = run_all(&sandbox, ReadScope::Repository, &WITHOUT_REPOSITORY[..1]).await;
            assert!(text[0].contains(SECRET), "{level}: {name}: {text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_above_one_that_is_hidden_from_git_is_looked_at() {
    if !has_git() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    git(root, &["init", "-q"]);
    fs::write(root.join(".gitattributes"), "a filter=x\n").unwrap();
    fs::write(root.join("a"), "one").unwrap();
    git(root, &["add", "a"]);
    fs::write(root.join("a"), "two").unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    git(&root.join("sub"), &["init", "-q"]);
    symlink("sub/.git/HEAD", root.join("a.key")).unwrap();
    let space = Workspace::open(root).unwrap();
    let policy = CommandPolicy::new().within(&space);
    allows(&policy, "git -C sub status");
    git(root, &["config", "filter.x.clean", &format!("echo {SECRET} >&2; cat")]);
    asks(&policy, "git -C sub status");
    // The danger is there.
    for (level, sandbox) in sandboxes(&space) {
        let text = run_all(&sandbox, ReadScope::Repository, &["git -C sub status 2>&1"]).await;
        assert!(text[0].contains(SECRET), "{level}: {text:?}");
    }
}

/// Programs and spellings that lines are made of, most of which reach a secret.
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
async fn no_line_of_programs_and_spellings_shows_a_secret() {
    let arena = Arena::new();
    let pairs = PROGRAMS.iter().flat_map(|program| SPELLINGS.iter().map(move |it| format!("{program} {it}")));
    let lines: Vec<String> = pairs.collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let is_allowed = |line: &&&str| arena.policy.judge(Line::Shell(line)) == Permit::Allow;
    let allowed = lines.iter().filter(is_allowed).count();
    assert!(allowed > 500, "only {allowed} lines were allowed: the test has lost its point");
    for (name, sandbox) in sandboxes(&arena.space) {
        // Mounts hide what the other means hide already, so some of the lines do for them.
        let step = if name == "best" { 5 } else { 1 };
        let lines: Vec<&str> = lines.iter().copied().step_by(step).collect();
        for (line, text) in lines.iter().zip(run_all(&sandbox, ReadScope::Files, &lines).await) {
            assert!(!text.contains("hush"), "{name}: {line}: {text}");
        }
    }
}
