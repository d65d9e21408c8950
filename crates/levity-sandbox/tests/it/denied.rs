//! Commands that would read what the workspace denies: none of them runs unasked.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandPolicy, Line, Ruling, Workspace};
use tempfile::TempDir;

const SECRET: &str = "hush-7c1f";

/// A workspace with secrets in many places, and a policy that knows them.
fn arena() -> (TempDir, CommandPolicy) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for dir in ["src/deep", "sub/.ssh", "private", "open", "plain", "linked"] {
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
    ] {
        fs::write(root.join(secret), format!("TOKEN={SECRET}\n")).unwrap();
    }
    for file in ["notes.txt", "a.txt", "open/a.txt", "src/main.rs", "plain/b.txt", ".env.example"] {
        fs::write(root.join(file), "nothing\n").unwrap();
    }
    symlink(".env", root.join("link")).unwrap();
    symlink("link", root.join("link2")).unwrap();
    symlink("sub/.ssh", root.join("keys")).unwrap();
    symlink("../.env", root.join("linked/inner")).unwrap();
    symlink("/etc", root.join("etc")).unwrap();
    fs::hard_link(root.join(".env"), root.join("twin")).unwrap();
    fs::write(root.join("--files0-from=.env"), "").unwrap();
    fs::create_dir(root.join("odd")).unwrap();
    fs::write(root.join("odd/@.env"), "").unwrap();
    fs::write(root.join("odd/.env"), SECRET).unwrap();
    let space = Workspace::builder(root).deny("private/*.txt").build().unwrap();
    (folder, CommandPolicy::new().within(&space))
}

fn git(root: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"])
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

fn has_git() -> bool {
    Command::new("git").arg("--version").output().is_ok()
}

#[track_caller]
fn asks(policy: &CommandPolicy, line: &str) {
    let ruling = policy.judge(Line::Shell(line));
    assert!(matches!(ruling, Ruling::Ask { .. }), "{line}: {ruling:?}");
}

#[track_caller]
fn allows(policy: &CommandPolicy, line: &str) {
    assert_eq!(policy.judge(Line::Shell(line)), Ruling::Allow, "{line}");
}

#[test]
fn reading_denied_file_is_asked_about_in_every_spelling() {
    let (_folder, policy) = arena();
    for line in [
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
    ] {
        asks(&policy, line);
    }
}

#[test]
fn reading_other_files_is_allowed() {
    let (_folder, policy) = arena();
    for line in [
        "cat notes.txt",
        "cat .env.example",
        "cat src/*.rs",
        "cat no*.txt | head -3",
        "cat plain/*",
        "ls -la",
        "ls -R",
        "find . -name '*.rs'",
        "grep process.env src/main.rs",
        "grep -rn nothing plain",
        "grep -rn nothing open plain",
        "grep -rn --include='*.rs' nothing .",
        "grep -rn --include='*.rs' nothing src",
        "grep -r -A 3 nothing plain",
        "grep -n 'a: (b)' notes.txt",
        "grep -n 'https://example.org' notes.txt",
        "rg nothing src",
        "rg -n nothing plain",
        "diff a.txt notes.txt",
        "diff -r open plain",
        "cd src && cat main.rs",
        "cd open && cat a.txt",
        "cat < notes.txt",
        "cat no-such-file",
    ] {
        allows(&policy, line);
    }
}

#[test]
fn ignore_file_that_reincludes_hidden_files_makes_a_search_asked_about() {
    let (folder, policy) = arena();
    allows(&policy, "rg nothing src");
    for (place, text) in
        [("src/.ignore", "!.env\n"), (".rgignore", "x\n!.env\n"), ("src/deep/.gitignore", "!*\n")]
    {
        fs::write(folder.path().join(place), text).unwrap();
        asks(&policy, "rg nothing src");
        fs::remove_file(folder.path().join(place)).unwrap();
    }
    allows(&policy, "rg nothing src");
}

#[test]
fn folder_that_cannot_be_looked_through_is_asked_about() {
    let (folder, policy) = arena();
    let many = folder.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..20_001 {
        fs::write(many.join(number.to_string()), "").unwrap();
    }
    asks(&policy, "grep -r x many");
    asks(&policy, "cat many/*");
    allows(&policy, "cat many/7");
}

#[test]
fn folder_that_a_command_begins_in_counts() {
    let (_folder, policy) = arena();
    let judge = |dir: &str, line: &str| policy.judge_in(dir, Line::Shell(line));
    assert_eq!(judge("open", "cat a.txt"), Ruling::Allow);
    assert_eq!(judge("src", "cat main.rs"), Ruling::Allow);
    for (dir, line) in [
        ("private", "cat a.txt"),
        ("private", "cat *"),
        ("src", "cat deep/.env"),
        ("src", "grep -r TOKEN"),
        ("src/deep", "cat .env"),
        ("keys", "cat config"),
        ("linked", "cat inner"),
        ("etc", "cat passwd"),
    ] {
        assert!(matches!(judge(dir, line), Ruling::Ask { .. }), "{dir}: {line}");
    }
    let words = ["cat", ".env"].map(str::to_owned);
    assert!(matches!(policy.judge(Line::Argv(&words)), Ruling::Ask { .. }));
}

#[test]
fn git_command_that_shows_contents_of_denied_files_is_asked_about() {
    if !has_git() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    git(root, &["init", "-q"]);
    for file in ["a.txt", "src.rs", "dir/b.txt"] {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), "one\n").unwrap();
    }
    fs::write(root.join(".env"), SECRET).unwrap();
    git(root, &["add", "-A"]);
    git(root, &["commit", "-qm", "one"]);
    let space = Workspace::open(root).unwrap();
    let policy = CommandPolicy::new().within(&space);
    for line in ["git diff", "git grep one", "git diff -p", "git grep -n hush"] {
        asks(&policy, line);
    }
    // A file in place of a folder that was: its history would be shown.
    fs::create_dir(root.join("gone")).unwrap();
    fs::write(root.join("gone/.env"), SECRET).unwrap();
    git(root, &["add", "-A"]);
    git(root, &["commit", "-qm", "gone"]);
    git(root, &["rm", "-qr", "gone"]);
    fs::write(root.join("gone"), "").unwrap();
    git(root, &["rm", "-q", "--cached", ".env"]);
    git(root, &["commit", "-qm", "two"]);
    for line in [
        "git show HEAD:.env",
        "git show HEAD~1:.env",
        "git show HEAD~1:./.env",
        "git show :.env",
        "git show :0:.env",
        "git show HEAD~1",
        "git show",
        "git show HEAD",
        "git show 'HEAD^{/one}'",
        "git show ':/one'",
        "git show --stat -p HEAD",
        "git show -s -p HEAD",
        "git show HEAD:a.txt HEAD~1",
        "git log -p",
        "git log -u -1",
        "git log --patch -- .",
        "git log -p -- dir",
        "git log -p --follow -- a.txt",
        "git log -p -- ':!a.txt'",
        "git log -p -- '*.txt'",
        "git log -L1,2:a.txt",
        "git log -p -- gone",
        "git diff HEAD~2 -- gone",
        "git diff HEAD -- no-such-file",
        "git log -Shush",
        "git log -G hush",
        "git log --stat -U1",
        "git log -p --author a.txt",
        "git whatchanged -p",
        "git reflog -p",
        "git stash list -p",
        "git diff HEAD~1",
        "git diff --cached",
        "git diff --staged -- .",
        "git diff HEAD~1 HEAD",
        "git diff HEAD~1 -- .env",
        "git diff-tree -p HEAD",
        "git status -v",
        "git status -vv",
        "git blame .env",
        "git blame HEAD~1 -- .env",
        "git grep hush HEAD~1",
        "git grep --no-index hush",
        "git grep --untracked hush",
        "git grep -e hush HEAD~1",
        "git config --list",
        "git config -l",
        "git config --get remote.origin.url",
        "git config --get http.extraheader",
        "git remote -v",
        "git remote get-url origin",
        "git -C . show HEAD~1",
        "cd dir && git log -p",
        "git --git-dir=.git show HEAD~1",
        "git cat-file -p HEAD~1:.env",
        "git archive HEAD~1",
        "cat .git/config",
        "ls .git/objects",
    ] {
        asks(&policy, line);
    }
    for line in [
        "git status",
        "git status --short",
        "git status --untracked-files=all",
        "git log --oneline -5",
        "git log --stat",
        "git log --format=%H -n 3",
        "git log -p -- a.txt",
        "git log -p -2 -- a.txt dir/b.txt",
        "git show --stat HEAD",
        "git show -s --format=%s HEAD",
        "git show --name-only HEAD~1",
        "git show HEAD:a.txt",
        "git show HEAD~1:dir/b.txt",
        "git diff",
        "git diff -U1 -w",
        "git diff --stat HEAD~1",
        "git diff --cached --name-only",
        "git diff HEAD~1 -- a.txt",
        "git diff --word-diff HEAD~1 -- dir/b.txt",
        "git blame a.txt",
        "git grep -n one",
        "git ls-files",
        "git ls-tree -r HEAD",
        "git branch -a",
        "git remote",
        "git rev-parse --abbrev-ref HEAD",
        "git rev-parse --verify HEAD",
        "git config --get user.name",
        "git -C dir status",
        "cd dir; git log --oneline",
        "bash -lc 'git status'",
    ] {
        allows(&policy, line);
    }
    let nothing = Workspace::builder(root).allow_all().build().unwrap();
    allows(&CommandPolicy::new().within(&nothing), "git show HEAD~1");
}

#[test]
fn paths_of_git_begin_where_git_says() {
    if !has_git() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("project");
    for dir in ["private", "open/deep"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in ["private/a.txt", "open/a.txt", "a.txt"] {
        fs::write(root.join(file), "one\n").unwrap();
    }
    git(&root, &["init", "-q"]);
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-qm", "one"]);
    let space = Workspace::builder(folder.path()).deny("project/private/*.txt").build().unwrap();
    let policy = CommandPolicy::new().within(&space);
    for line in [
        "git -C project show HEAD:private/a.txt",
        "git -C project/private show HEAD:./a.txt",
        "git -C project/open show HEAD:private/a.txt",
        "git -C project/open/deep show :0:private/a.txt",
        "cd project/open; git show HEAD:private/a.txt",
        "cd project && git -C private blame a.txt",
        "git -C project/private blame a.txt",
        "git -C project/private blame HEAD -- a.txt",
        "git -C project/private diff HEAD -- a.txt",
        "git -C project/private log -p -- a.txt",
        "git -C project diff",
    ] {
        asks(&policy, line);
    }
    for line in [
        "git -C project show HEAD:open/a.txt",
        "git -C project/open show HEAD:./a.txt",
        "git -C project/open blame a.txt",
        "git -C project/open diff HEAD -- a.txt",
        "git -C project log -p -- open/a.txt ./a.txt",
    ] {
        allows(&policy, line);
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

#[test]
fn no_allowed_line_shows_a_secret() {
    let (folder, policy) = arena();
    let mut allowed = 0;
    for program in PROGRAMS {
        for spelling in SPELLINGS {
            let line = format!("{program} {spelling}");
            if policy.judge(Line::Shell(&line)) != Ruling::Allow {
                continue;
            }
            allowed += 1;
            let done = Command::new("/bin/sh")
                .args(["-c", &line])
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = [done.stdout, done.stderr].concat();
            assert!(!String::from_utf8_lossy(&text).contains("hush"), "{line}");
        }
    }
    assert!(allowed > 100, "only {allowed} lines were allowed: the test has lost its point");
}
