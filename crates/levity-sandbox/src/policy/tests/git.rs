//! Lines with git: a person or a rule decides on them, and no file does.

use std::fs;

use super::check;
use crate::{CommandLine, CommandPolicy, Permit, Workspace};

/// Lines that show something of a repository, or make git run programs that its settings name.
const LINES: &[&str] = &[
    "git",
    "git version",
    "git --version --build-options",
    "git --exec-path",
    "git status",
    "git status -sb -uno",
    "git status -v",
    "git log --oneline -5",
    "git log -p -- a",
    "git log --format=%G?",
    "git log --show-signature",
    "git log --output=x",
    "git diff",
    "git diff --stat HEAD~1",
    "git diff --cached",
    "git diff --ext-diff",
    "git diff --no-index a .git/config",
    "git diff -- empty sub/.git/config",
    "git diff *",
    "git show",
    "git show --stat HEAD~0",
    "git show HEAD:.env",
    "git show -s secret",
    "git grep one",
    "git grep -O hush",
    "git grep --recurse-submodules hush",
    "git blame a.txt",
    "git blame -ML .env HEAD~1",
    "git ls-files -m",
    "git ls-tree -r HEAD",
    "git cat-file -p HEAD:.env",
    "git describe --always --dirty",
    "git branch -a",
    "git branch --format='%(signature)'",
    "git tag -l -n",
    "git tag -v v1",
    "git for-each-ref --format='%(raw)'",
    "git rev-parse HEAD",
    "git remote -v",
    "git config --list",
    "git reflog -p",
    "git stash list",
    "git worktree list",
    "git archive HEAD~1",
    "git alias-of-the-repository",
    "git commit -am x",
    "git push",
    "git -C sub status",
    "git -C evil status",
    "git -c core.fsmonitor=x status",
    "git --git-dir=evil status",
    "git --no-pager log",
    "/usr/bin/git status",
    "./git status",
    "cd sub && git status",
    "cd sub; cd evil; git status",
    "sh -c 'cd evil; git status'",
    "timeout 5 git status",
    "command git status",
    "env git status",
    "echo status | xargs git",
    "echo $(git status)",
    "echo `git status`",
    "git status; cat a",
    "cat a; git status",
    "ls | git diff --no-index - .git/config",
    "git log | head -3",
    "git --version; git status",
    "find . -exec git status ';'",
];

/// Creates a workspace with these files.
fn workspace(files: &[(&str, &str)]) -> (tempfile::TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let space = Workspace::open(folder.path()).unwrap();
    (folder, space)
}

#[test]
fn git_line_needs_approval_for_any_repository() {
    let harmless = [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/objects/x", ""),
        (".git/refs/x", ""),
        ("a", ""),
    ];
    let planted = [
        ("evil/HEAD", "ref: refs/heads/main\n"),
        ("evil/objects/x", ""),
        ("evil/refs/x", ""),
        (
            "evil/config",
            "[core]\nbare = false\nworktree = .\nfsmonitor = \"touch mark\"\n",
        ),
    ];
    for files in [&[][..], &harmless, &planted] {
        let (_folder, space) = workspace(files);
        for policy in [
            CommandPolicy::new(),
            CommandPolicy::new().with_workspace(&space),
        ] {
            for line in LINES {
                check(&policy, line, "ask");
                assert_eq!(policy.read_scope(CommandLine::Shell(line)), None, "{line}");
            }
            check(&policy, "git --version", "allow");
            let Permit::Ask { reason } = policy.judge(CommandLine::Shell("git status")) else {
                panic!()
            };
            assert!(
                reason.contains("allow it by a rule such as `git status`"),
                "{reason}"
            );
        }
    }
}

#[test]
fn allow_rule_for_git_command_excludes_options_before_it() {
    let policy = CommandPolicy::new().allow("git status").allow("git diff");
    for (line, expected) in [
        ("git status", "allow"),
        (
            "git status -sb; git diff --stat HEAD~1 -- a | head",
            "allow",
        ),
        ("cd sub && git status 2>&1", "allow"),
        ("/usr/bin/git status", "allow"),
        ("git log", "ask"),
        ("git status; git log", "ask"),
        ("git status; cat a", "ask"),
        ("git status *", "ask"),
        ("git status > a", "ask"),
        ("./git status", "ask"),
        ("git -C evil status", "ask"),
        ("git -C . status", "ask"),
        ("git -c core.fsmonitor=x status", "ask"),
        ("git --git-dir=x status", "ask"),
        ("git --git-dir x status", "ask"),
        ("git --work-tree=x status", "ask"),
        ("git --config-env=core.fsmonitor=X status", "ask"),
        ("git --exec-path=. status", "ask"),
        ("git --no-pager status", "ask"),
        ("GIT_DIR=evil git status", "ask"),
        ("env GIT_DIR=evil git status", "ask"),
        ("sh -c 'git status'", "ask"),
        ("timeout 5 git status", "ask"),
    ] {
        check(&policy, line, expected);
        assert_eq!(policy.read_scope(CommandLine::Shell(line)), None, "{line}");
    }
}

#[test]
fn deny_and_ask_rules_match_git_options_before_command() {
    for (line, denied, asked) in [
        ("git -C . push", "deny", "ask"),
        ("git --no-pager push", "deny", "ask"),
        ("git -c a=b --git-dir x push origin", "deny", "ask"),
        ("git -C $X push", "deny", "ask"),
        ("/opt/git -C . push", "deny", "ask"),
        ("git -c push log", "allow", "allow"),
        ("git -C . log", "allow", "allow"),
        // An unknown word may become the command, or more words.
        ("git -C . $X", "ask", "ask"),
        ("git -C . pu*", "ask", "ask"),
        ("git -C $X", "ask", "ask"),
        ("git --no-pager `echo push`", "ask", "ask"),
        ("git -C . log $X", "allow", "allow"),
        ("git --shallow-file x push", "deny", "ask"),
        ("/usr/lib/git-core/git-push origin", "deny", "ask"),
        // An alias, or an unknown option, may turn it into another command.
        ("git -c alias.p=push p", "ask", "ask"),
        ("git -c ALIAS.p='!git push' p", "ask", "ask"),
        ("git --config-env=alias.p=X p", "ask", "ask"),
        ("git --exec-path=. log", "ask", "ask"),
        ("git --new-option x push", "ask", "ask"),
        ("git rebase --exec='git push' --root", "ask", "ask"),
        ("git rebase -x'git push' --root", "ask", "ask"),
        ("git rebase -x 'git -C . push' --root", "ask", "ask"),
        ("echo push | xargs -I X git X origin", "ask", "ask"),
        ("echo sh | xargs -IX git puX origin", "ask", "ask"),
        ("echo a | xargs -I X git log X", "allow", "allow"),
    ] {
        check(
            &CommandPolicy::allow_all().deny("git push", "no"),
            line,
            denied,
        );
        check(
            &CommandPolicy::allow_all().ask("git push", "sure?"),
            line,
            asked,
        );
    }
    for line in [
        "git rebase --exec='git push' --root",
        "git --shallow-file x push",
        "git -c alias.p=push p",
    ] {
        let permit = CommandPolicy::new()
            .allow("git")
            .deny("git push", "no")
            .judge(CommandLine::Shell(line));
        assert_ne!(permit, Permit::Allow, "{line}");
    }
}
