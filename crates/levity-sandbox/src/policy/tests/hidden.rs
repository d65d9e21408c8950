//! Commands that are hidden in others, and in words that shells expand.

use super::check;
use crate::CommandPolicy;

/// Shell lines that a glob produces, so that the name of a file determines the command.
const LINES_WITH_PATTERNS: &[&str] = &[
    "sh -c 'ls '*",
    "sh -c *",
    "sh -c ?",
    "sh -c [a]",
    "sh -c ~",
    "sh -c {a,b}",
    "sh -c 'ls '?x",
    "sh -c \"ls \"[a]*",
    "sh -c 'ls '{a,b}",
    "sh -c ~/'ls'",
    "sh -c 'a=':~",
    "sh -c ls\\ *",
    "sh -c *' ls'",
    "sh -c 'ls '*' a'",
    "sh -c \"ls \"'a'*",
    "sh -ec 'ls '*",
    "bash -c 'ls '*",
    "bash -lc 'ls '*",
    "dash -c 'ls '*",
    "zsh -c 'ls '*",
    "ksh -c 'ls '*",
    "/bin/sh -c 'ls '*",
    "sh -c 'ls '* a",
    "sh -c 'ls '* 2>&1",
    "timeout 5 sh -c 'ls '*",
    "nice sh -c 'ls '*",
    "command sh -c 'ls '*",
    "env sh -c 'ls '*",
    "exec sh -c 'ls '*",
    "echo `sh -c 'ls '*`",
    "sh -c \"sh -c 'ls '*\"",
    "echo a | sh -c 'ls '*",
    // Words after the line are its arguments.
    "sh -c 'ls' *",
    "sh -c 'ls' sh {a,b}",
    "sh -c ls ~",
    "sh -c ls sh [a]",
    "sh -c ls $X",
    "sh -c ls sh \"$(pwd)\"",
    // In zsh it is the path of the program.
    "zsh -c =ls",
];

#[test]
fn shell_line_made_by_glob_needs_approval() {
    let folder = tempfile::tempdir().unwrap();
    let space = crate::Workspace::open(folder.path()).unwrap();
    let alone = CommandPolicy::new().with_workspace(&space);
    let beside = CommandPolicy::new()
        .with_workspace(&space)
        .allow("make")
        .allow("ls");
    let denying = CommandPolicy::allow_all().deny("git push", "no");
    for line in LINES_WITH_PATTERNS {
        check(&alone, line, "ask");
        check(&alone, &format!("git status; {line}"), "ask");
        check(&beside, line, "ask");
        check(&beside, &format!("make; {line}"), "ask");
        check(&denying, line, "ask");
        check(&denying, &format!("git push; {line}"), "deny");
        check(
            &CommandPolicy::deny_all().allow("sh").allow("ls"),
            line,
            "deny",
        );
        check(&CommandPolicy::allow_all(), line, "allow");
    }
    for line in [
        "sh -c 'ls *'",
        "sh -c \"ls *\"",
        "sh -c 'ls {a,b}' sh",
        "sh -c ls",
        "bash -c 'ls ?' a b",
    ] {
        check(
            &alone,
            line,
            if line.contains('{') { "ask" } else { "allow" },
        );
        check(&denying, line, "allow");
    }
}

#[test]
fn option_after_shell_c_hides_no_command() {
    let policy = CommandPolicy::allow_all().deny("git push", "no");
    for line in [
        "bash -c -x 'git push'",
        "sh -c -- 'git push'",
        "bash -c +x 'git push'",
        "sh -c -e 'git push'",
        "zsh -c '=git push'",
        "sh -c '{git,push}'",
    ] {
        check(&policy, line, "ask");
        check(&CommandPolicy::new(), line, "ask");
    }
}

#[test]
fn expanding_word_does_not_match_as_literal_text() {
    let policy = CommandPolicy::new()
        .deny("git push", "no")
        .ask("npm publish", "sure?")
        .deny("/opt/tool run", "no")
        .allow("git")
        .allow("npm")
        .allow("/opt/tool")
        .allow("make t?st")
        .allow("cargo test*")
        .allow("go run *")
        .ask("git tag", "never reached");
    for (line, expected) in [
        ("git log *", "ask"),
        ("git log '*'", "allow"),
        ("git tag", "allow"),
        ("git pu*", "ask"),
        ("git {push,origin}", "ask"),
        ("git [p]ush", "ask"),
        ("git ?ush", "ask"),
        ("git ~", "ask"),
        ("git $X", "ask"),
        ("git push *", "deny"),
        ("npm install *", "ask"),
        ("npm install a", "allow"),
        ("npm publis?", "ask"),
        ("npm {publish,a}", "ask"),
        ("npm publish", "ask"),
        ("npm publish $X", "ask"),
        ("/opt/tool r*", "ask"),
        ("/opt/tool stop", "allow"),
        ("make test", "allow"),
        ("make test *", "ask"),
        ("make t*st", "ask"),
        ("make t[e]st", "ask"),
        ("cargo test", "allow"),
        ("cargo test*", "ask"),
        ("cargo test{,s}", "ask"),
        ("go run *", "ask"),
        ("go run a/*.go b", "ask"),
        ("go run a/b.go b", "allow"),
        ("go {run,build} a", "ask"),
        ("go run $X", "ask"),
    ] {
        check(&policy, line, expected);
    }
    let policy = CommandPolicy::allow_all().ask("git push", "sure?");
    for (line, expected) in [
        ("git push", "ask"),
        ("git push $X", "ask"),
        ("git push *", "ask"),
        ("git $X", "ask"),
        ("git pu*", "ask"),
        ("echo push | xargs git", "ask"),
        ("git log $X", "allow"),
        ("cargo *", "allow"),
    ] {
        check(&policy, line, expected);
    }
    check(
        &CommandPolicy::deny_all().ask("git push", "sure?"),
        "git push $X",
        "deny",
    );
    // A text that only looks like `/dev/null`.
    let policy = CommandPolicy::new().allow("make");
    for line in [
        "cat < $X/dev/null",
        "cat < /dev/null$X",
        "make; cat < $(echo .)/dev/null",
        "make < `echo .`/dev/null",
        "cat $X/dev/null",
        "make > $X/dev/null",
    ] {
        check(&policy, line, "ask");
    }
    check(&policy, "make < /dev/null; cat </dev/null", "allow");
}

#[test]
fn program_run_by_search_is_denied_by_its_rule() {
    let policy = CommandPolicy::allow_all()
        .deny("git push", "no")
        .deny("rm", "no")
        .ask("mv", "sure?");
    for (line, expected) in [
        ("find . -exec rm {} +", "deny"),
        ("find . -name '*.o' -execdir /bin/rm {} ';'", "deny"),
        ("find . -ok git push ';'", "deny"),
        ("find . -exec sh -c 'rm a' ';'", "deny"),
        ("find . -exec true ';' -exec rm {} ';'", "deny"),
        ("find . -exec env rm {} ';'", "deny"),
        ("fd -e o -x rm", "deny"),
        ("fdfind a --exec-batch git push", "deny"),
        ("timeout 5 find . -exec rm {} +", "deny"),
        ("find . -exec mv {} b ';'", "ask"),
        ("find . -exec git {} ';'", "ask"),
        ("find . -exec {} ';'", "ask"),
        ("find . -exec sh {} ';'", "ask"),
        ("find . -exec wc -l {} +", "allow"),
        ("find . -name rm", "allow"),
        ("fd -e o rm", "allow"),
        ("find src/* -name a", "allow"),
        // Words that may become the option that runs a program.
        ("find {-exec,rm,a} +", "ask"),
        ("find . {-exec,rm} a +", "ask"),
        ("find . $X", "ask"),
        ("find . `echo -exec rm a +`", "ask"),
        ("find *", "ask"),
        ("find . -ex?c rm a +", "ask"),
        ("fd {-x,rm}", "ask"),
        ("fd $X", "ask"),
        ("fd -xrm", "ask"),
        ("fd -Hx rm", "ask"),
        ("fd --exec=rm", "ask"),
        ("timeout 5 find {-exec,rm,a} +", "ask"),
        ("sh -c 'find {-exec,rm,a} +'", "ask"),
        // Programs that may run others.
        ("setsid rm a", "ask"),
        ("ionice -c 3 rm a", "ask"),
        ("/usr/bin/time rm a", "ask"),
        ("frobnicate -x rm a", "ask"),
        ("frobnicate /bin/rm a", "ask"),
        ("frobnicate git push", "ask"),
        ("frobnicate git $X", "ask"),
        ("frobnicate {rm,a}", "ask"),
        ("frobnicate a{,b}", "ask"),
        ("rg --pre rm x", "ask"),
        ("git bisect run rm a", "ask"),
        ("frobnicate a b", "allow"),
        ("frobnicate git log", "allow"),
        ("frobnicate 'rm a'", "ask"),
        ("frobnicate 'a rm'", "allow"),
        ("rbash -c 'rm a'", "deny"),
        ("fish -c 'rm a'", "deny"),
        ("sg users 'rm a'", "ask"),
        ("capsh -- -c 'rm a'", "ask"),
        ("PS4='$(rm a)' bash -xc :", "ask"),
        ("A=1 make", "allow"),
        ("fd -x ls ';' -xrm", "ask"),
        ("fd . -x ls ';' --exec=rm", "ask"),
        ("cargo build -p a", "allow"),
        ("nice ls rm", "allow"),
        ("grep rm a", "allow"),
        // Shell builtins that run or rename programs.
        ("trap 'rm a' EXIT", "ask"),
        ("alias ls=rm\nls a", "ask"),
        ("hash -p /bin/rm ls; ls a", "ask"),
        ("bash -c \"test -v 'a[\\$(rm b)]'\"", "ask"),
        ("test -v 'a[$(rm b)]'", "ask"),
        ("printf %d 'a[`rm b`]'", "ask"),
        ("test a = b", "allow"),
    ] {
        check(&policy, line, expected);
    }
    // A rule for the search also allows the programs that it runs.
    check(
        &CommandPolicy::new().allow("find"),
        "find . -exec rm '{}' +",
        "allow",
    );
    check(
        &CommandPolicy::new().allow("find"),
        "find . -exec rm {} +",
        "ask",
    );
    check(
        &CommandPolicy::deny_all().allow("find"),
        "find . -exec rm '{}' +",
        "allow",
    );
    check(
        &CommandPolicy::deny_all().allow("find"),
        "find . -exec rm {} +",
        "deny",
    );
    check(
        &CommandPolicy::new().allow("find").deny("rm", "no"),
        "find . -exec rm {} +",
        "deny",
    );
}

#[test]
fn word_that_may_expand_to_denied_command_needs_approval() {
    let policy = CommandPolicy::allow_all().deny("git push", "no");
    for (line, expected) in [
        ("git $(echo push)", "ask"),
        ("git $X", "ask"),
        ("git pu*", "ask"),
        ("git `echo push` origin", "ask"),
        ("git log $X", "allow"),
        ("cargo $X", "allow"),
        ("git push $X", "deny"),
    ] {
        check(&policy, line, expected);
    }
}

#[test]
fn snapshot_folder_of_file_system_needs_approval() {
    let folder = tempfile::tempdir().unwrap();
    let space = crate::Workspace::open(folder.path()).unwrap();
    let policy = CommandPolicy::new().with_workspace(&space);
    for line in [
        "cat .zfs/snapshot/monday/.env",
        "cat src/.snap/monday/a.rs",
        "ls && cat .snapshot/hourly.0/a.rs",
    ] {
        check(&policy, line, "ask");
    }
    check(&policy, "cat src/a.snap", "allow");
}
