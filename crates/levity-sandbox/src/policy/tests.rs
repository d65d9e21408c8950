use super::{CommandLine, CommandPolicy, Permit, ReadScope};

mod git;
mod hidden;
mod literal;
mod redirections;
#[cfg(unix)]
mod shells;

#[track_caller]
fn check(policy: &CommandPolicy, line: &str, expected: &str) {
    let ruling = match policy.judge(CommandLine::Shell(line)) {
        Permit::Allow => "allow",
        Permit::Ask { .. } => "ask",
        Permit::Deny { .. } => "deny",
    };
    assert_eq!(ruling, expected, "{line}");
}

#[test]
fn read_only_lines_are_allowed() {
    for line in [
        "ls",
        "ls -la src",
        "cat Cargo.toml | head -20",
        "grep -rn 'fn main' src && wc -l src/*.rs",
        "find . -name '*.rs'",
        "rg -n TODO",
        "echo \"a $ b\"",
        "cd crates/core; ls",
        "cat a 2>/dev/null",
        "ls > /dev/null 2>&1",
        "ls 2>&1 | tail -3",
        "sed -n 1,20p file",
        "sort a | uniq -c | sort -rn",
        "gcc --version",
        "git --version",
        "bash -lc \"ls src\"",
        "timeout 5 ls",
        "nice -n 5 cat a",
        "sh -c 'ls | wc -l'",
        "env",
        "test -f a && echo yes || echo no",
        "wc -l < notes.txt",
        "ls # rm x",
        "echo 'rm -rf /'",
        "printf '%s\\n' a b",
        "/usr/bin/ls",
        "command ls",
        "cat a\\ b",
        "true",
        "jq .name package.json",
        "tail -n +3 a | cut -d, -f2",
        "diff a b",
        "cat <<< hello",
        // The kernel limits which files these find and name.
        "ls .e*",
        "cat ?env",
        "cat [.]env",
        "rg x ./*",
        "rg x sub/[a]*",
        "find sub/* -name x",
        "sed -n 1,20p ./*.c",
        "sort ./*",
        "uniq a*",
        "uniq ./*",
        "tree ./*",
        "file ./*",
        "fd -e rs main",
        "file -b a",
        "jq -L . . b",
    ] {
        check(&CommandPolicy::new(), line, "allow");
    }
}

#[test]
fn read_scope_matches_files_that_line_reads() {
    use ReadScope::{Files, Nothing};
    let folder = tempfile::tempdir().unwrap();
    let policy = CommandPolicy::new()
        .with_workspace(&crate::Workspace::open(folder.path()).unwrap())
        .allow("make");
    for (line, scope) in [
        ("pwd", Some(Nothing)),
        (
            "echo a | tr a b | grep -v c | sort -rn -k 2 | head -5 | wc -l",
            Some(Nothing),
        ),
        ("echo a | sed -n 1,3p", Some(Nothing)),
        ("cd a && pwd 2>/dev/null", Some(Nothing)),
        // A line that is not plain may do more than it appears to.
        ("sh -c 'echo a | sed -n 1,3p'", Some(Files)),
        ("timeout 5 echo a", Some(Files)),
        ("printf a", Some(Files)),
        ("test a = b", Some(Files)),
        ("echo \"a $ b\"", Some(Files)),
        ("echo a # b", Some(Files)),
        ("git --version", Some(Files)),
        ("ls", Some(Files)),
        ("echo *", Some(Files)),
        ("cat a | head", Some(Files)),
        ("cat < a", Some(Files)),
        ("cat < /dev/null", Some(Nothing)),
        ("echo a | head b", Some(Files)),
        ("echo a | grep b c", Some(Files)),
        ("echo a | grep -f c", Some(Files)),
        ("echo a | grep -e b c", Some(Files)),
        ("echo a | grep -ie b c", Some(Files)),
        ("echo a | grep -r b", Some(Files)),
        ("echo a | grep --file=b", Some(Files)),
        ("echo a | sort --files0-from=b", None),
        ("echo a | tail -n 3 b", Some(Files)),
        ("date -uf.b", Some(Files)),
        ("find . -name a", Some(Files)),
        // A command that a rule allows has all rights, and no scope.
        ("make", None),
        ("make | tail -3; ls", None),
        // A command that needs approval has none either.
        ("rm a", None),
        ("cat a > b", None),
        ("make; cat a", None),
        ("make < a", None),
        ("make; git status", None),
        ("git status", None),
        ("cd a && git log | head -3; ls", None),
        ("cat /etc/passwd", None),
        ("cat $X", None),
    ] {
        assert_eq!(policy.read_scope(CommandLine::Shell(line)), scope, "{line}");
        let ruling = policy.judge(CommandLine::Shell(line));
        assert_eq!(
            ruling == Permit::Allow,
            scope.is_some() || line.starts_with("make |") || line == "make"
        );
    }
    assert_eq!(
        CommandPolicy::allow_all().read_scope(CommandLine::Shell("cat a")),
        None
    );
    assert_eq!(
        CommandPolicy::ask_all().read_scope(CommandLine::Shell("cat a")),
        None
    );
    assert_eq!(
        policy.read_scope_in("../a", CommandLine::Shell("cat a")),
        None
    );
}

#[test]
fn lines_that_do_more_than_read_need_approval() {
    for line in [
        // Options of wrappers that expand to more words.
        "timeout $(echo 5 touch a --) true",
        "git status -s; timeout $(echo 5 git show HEAD~1:.env --) true",
        "nice -n $(echo 1 sh run.sh) true",
        "nice -n$(echo 1) sh true",
        "nice -n * true",
        "stdbuf -o $(echo L perl run.pl) true",
        "stdbuf -o `echo L` true",
        "timeout ${x} true",
        "env $(echo A=1) true",
        "xargs -n $(echo 1 touch) true",
        "sh -$(echo c) true",
        "rm a",
        "ls; rm a",
        "ls && rm a",
        "ls || rm a",
        "ls | xargs rm",
        "ls & rm a",
        "ls\nrm a",
        "echo a > b",
        "echo a >> b",
        "echo a >| b",
        "ls &> b",
        "ls >& b",
        "cat a > /dev/sda",
        "echo `rm a`",
        "echo $(rm a)",
        "echo \"$(rm a)\"",
        "echo \"`rm a`\"",
        "sh -c 'rm a'",
        "sh -c \"ls; rm a\"",
        "bash -c 'sh -c \"rm a\"'",
        "sh script.sh",
        "sh",
        "bash --rcfile x -c ls",
        "eval ls",
        "$CMD a",
        "l$X",
        "PATH=. ls",
        "A=b",
        "ls() { rm a; }",
        "(rm a)",
        "{ rm a; }",
        "if true; then rm a; fi",
        "for f in *; do rm $f; done",
        "! rm a",
        "time rm a",
        "find . -delete",
        "find . -exec rm {} +",
        "find . -fprint x",
        "sort -o a b",
        "sort --outp=a b",
        "sort -uo a b",
        "sed -i s/a/b/ c",
        "sed 's/a/b/w c' d",
        "sed -n '1e rm' a",
        "awk 1 a",
        "tree -o x",
        "uniq a b",
        "date -s tomorrow",
        "hostname evil",
        "rg --pre cat a",
        "fd -x rm",
        "fd -l",
        "fd --list-details a",
        "file -z a",
        "file -bZ a",
        "file --uncompress a",
        "./ls",
        "/tmp/ls",
        "../ls",
        "sudo ls",
        "env -i ls",
        "env A=b ls",
        "xargs --arg-file file rm x",
        "timeout --foo file rm",
        "nohup rm a",
        "exec rm a",
        "command rm a",
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat ../secret",
        "cat $HOME/x",
        "cat {a,/etc/passwd}",
        "cat a/../../b",
        "grep -f/etc/passwd a",
        "head --bytes=3 --foo=/etc/x",
        "cat < /etc/passwd",
        "cat < ../x",
        "cat <(rm a)",
        "ls >(rm a)",
        "cat <<EOF\nEOF",
        "echo $((1+1))",
        "echo ${A:=$(rm a)}",
        "echo $'\\x72'",
        "coproc rm a",
        "source a",
        ". a",
        "printf -v PATH .",
        "ls 'unclosed",
        "ls \"unclosed",
        "echo $(ls",
        "echo `ls",
        "ls \\",
        "python3 -c 'print(1)'",
        "cargo test",
        "make",
        "npm version",
        "curl https://example.org",
        "xargs cat",
        "echo a | xargs -I{} cat {}",
        "echo 'a; rm b' | xargs -I% sh -c 'echo %'",
        "echo a | xargs -I% env sh -c 'echo %'",
        "echo a | xargs timeout 5 bash -c 'echo %'",
        "xargs -a file echo",
        "xargs -afile echo",
        "echo a\\\nb",
        "echo \"$\\\n(rm a)\"",
        "echo $\\\nHOME",
        "cat <\\\n< ls\necho '$(rm a)'\nls",
        "echo a |\\\n| rm a",
        "sh -c 'echo \"$\\\n(rm a)\"'",
        "test -f \"$\\\r\n(rm a)\"",
        "busybox rm a",
        "case a in b) rm a;; esac",
        "ls\u{0}rm",
        // Some shells read these as two commands.
        "ls &>/dev/null rm a",
        "ls &>>/dev/null rm a",
        "cat a | uniq - b",
        "uniq -- -a -b",
        "tree -R -L 1 -H .",
        "bash -c 'test -v \"a[\\$(rm b)]\"'",
        "[ -v 'a[$(rm b)]' ]",
        "zsh -c 'printf %d \"a[\\`rm b\\`]\"'",
        "bash -oc posix 'rm a'",
        "echo a >&b",
        // Files of the working directory select which program has these names.
        "cargo --version",
        "rustc --version",
        "rustup --version",
        "yarn --version",
        "node --version",
        "python3 --version",
        "go --version",
    ] {
        check(&CommandPolicy::new(), line, "ask");
    }
    check(&CommandPolicy::new(), &"ls;".repeat(20_000), "ask");
    check(&CommandPolicy::new(), &"sh -c ".repeat(50), "ask");
    check(
        &CommandPolicy::new(),
        &format!("echo {}ls{}", "$(".repeat(40), ")".repeat(40)),
        "ask",
    );
}

#[test]
fn option_that_reads_names_from_file_needs_approval() {
    for line in [
        "sort --files0-from=a",
        "sort --files0-from a",
        "sort --files0=a",
        "sort --fi=a",
        "sort -n --files0-from=- < a",
        "echo a | sort --files0-from=-",
        "wc --files0-from=a",
        "wc -l --files0-f=a",
        "wc --f=a",
        "du --files0-from=-",
        "du -sh --files0-from=a",
        "find -files0-from a",
        "find -L -files0-from a -ls",
        "file -f a",
        "file -bf a",
        "file -fa",
        "file --files-from a",
        "file --files=a",
        "diff -l a b",
        "diff -rl a b",
        "diff --paginate a b",
        "sha256sum -c a",
        "sha256sum --check a",
        "sha256sum --che a",
        "sha512sum -bc a",
        "sha1sum -wc a",
        "md5sum -ca",
        "cksum -c a",
        "cksum -a sha256 --check a",
        "strings @a",
        "strings -a @a",
        "strings -- @a",
        "jq -f a b",
        "jq -nf a",
        "jq --from-file a b",
        "jq 'import \"a\" as $a; $a' b",
        "jq 'include \"a\"; .' b",
        "jq -n 'import \"passwd\" as $a {search: \"/etc\"}; $a'",
        "xargs -a a wc",
        "xargs --arg-file=a wc",
        "cat a | sh -c 'sort --files0-from=b'",
        "timeout 5 wc --files0-from=a",
        "command sort --files0-from=a",
        "/usr/bin/sort --files0-from=a",
        "tar -T a",
        "rsync --files-from=a b c",
        "env -S 'sort --files0-from=a'",
        "env --split-string='sort --files0-from=a'",
        "sort '--files0-from='a",
        "sort --files0\\-from=a",
    ] {
        check(&CommandPolicy::new(), line, "ask");
    }
}

/// Globs that expand to names of files, which can be any text: `-e1e sh evil.md`, `--pre=sh`,
/// `a[$(rm b)]`.
const MISLEADING: &[&str] = &[
    "sed -n 1p *",
    "sed -n 1,5p *.md",
    "sed -n 1p -*",
    "cd sub && sed -n 1p *",
    "sh -c 'sed -n 1p *'",
    "timeout 5 sed -n 1p ?x",
    "rg foo *",
    "rg foo [ab]*",
    "fd txt *",
    "fdfind txt *",
    "find * -name a",
    "file ?*",
    "sort *",
    "sort -*",
    "wc -l *",
    "du -sh *",
    "sha256sum [-a]*",
    "strings *",
    "jq . *",
    "diff * a",
    "tree *",
    "date *",
    "uniq *",
    "base64 *",
    "hexdump *",
    "column *",
    "xargs sed -n 1p *",
    "test -v BASH*",
    "bash -c 'test -v BASH*'",
    "[ -f a* ]",
    "printf ?v* a",
    "bash -c 'printf ?v* a'",
    "printf %s a*",
    "printf '%s' *; ls",
    "test 5 -eq *; ls",
    "sed -n 1p {-e,a}",
    "stat -c %n .?/a",
    "ls .*",
    "cat .[.]/a",
    "ls a/.?",
];

#[test]
fn glob_that_may_become_option_needs_approval() {
    let folder = tempfile::tempdir().unwrap();
    let policy =
        CommandPolicy::new().with_workspace(&crate::Workspace::open(folder.path()).unwrap());
    for line in MISLEADING {
        check(&CommandPolicy::new(), line, "ask");
        check(&policy, line, "ask");
    }
    for line in [
        "cat *",
        "grep foo *.rs",
        "head -3 *",
        "ls *",
        "wc -l ./*",
        "wc -l sub/*",
        "sort a*",
        "sed -n 1p ./*.md",
        "ls .g*",
        "rg foo src/*",
    ] {
        check(&policy, line, "allow");
    }
    let denying = CommandPolicy::allow_all().deny("rm", "no");
    for (line, expected) in [
        ("sed -n 1p *", "ask"),
        ("rg foo *", "ask"),
        ("sed -n 1p ./*", "allow"),
        ("cat *", "allow"),
    ] {
        check(&denying, line, expected);
    }
}

#[test]
fn rule_without_words_allows_nothing() {
    for empty in ["", " ", "\t\n", "\u{a0}"] {
        let json = serde_json::json!({"rules": [{"command": empty, "ruling": "allow"}]});
        let read: CommandPolicy = serde_json::from_value(json).unwrap();
        for policy in [CommandPolicy::new().allow(empty), read] {
            check(&policy, "rm a", "ask");
            check(&policy, "ls", "allow");
            assert_eq!(
                policy.read_scope(CommandLine::Shell("ls")),
                Some(ReadScope::Files)
            );
        }
        check(&CommandPolicy::deny_all().allow(empty), "ls", "deny");
        check(
            &CommandPolicy::ask_all().allow(empty).allow("ls"),
            "ls",
            "allow",
        );
        // A deny rule applies to every command.
        check(&CommandPolicy::new().deny(empty, "no"), "ls", "deny");
        check(
            &CommandPolicy::allow_all().deny(empty, "no"),
            "ls $X",
            "deny",
        );
        check(&CommandPolicy::allow_all().ask(empty, "sure?"), "ls", "ask");
        check(
            &CommandPolicy::allow_all().ask(empty, "sure?"),
            "ls $X",
            "ask",
        );
    }
}

#[test]
fn rules_take_precedence_over_read_only_lists() {
    let policy = CommandPolicy::new()
        .allow("cargo test")
        .allow("npm run *")
        .deny("git push", "no")
        .deny("rm", "no")
        .ask("ls -l", "why not");
    for (line, expected) in [
        ("cargo test", "allow"),
        ("cargo test -p core -- --nocapture", "allow"),
        ("cargo  'test'", "allow"),
        ("cargo publish", "ask"),
        ("cargo test > out", "ask"),
        ("cargo test $X", "ask"),
        ("./cargo test", "ask"),
        ("cargo test && cargo publish", "ask"),
        ("npm run build", "allow"),
        ("npm run", "ask"),
        ("git push", "deny"),
        ("ls; git push origin", "deny"),
        ("sh -c 'git push'", "deny"),
        ("ls | xargs rm", "deny"),
        ("/opt/bin/rm a", "deny"),
        ("echo $(git push)", "deny"),
        ("timeout 3 rm a", "deny"),
        ("rmdir a", "ask"),
        ("ls -l", "ask"),
        ("ls", "allow"),
        ("cargo test 2>&1 | tail -n 40 | grep -v warning", "allow"),
        ("cd core && cargo test; ls target", "allow"),
        // In one line with it, they would run with its rights.
        ("cargo test; cat a", "ask"),
        ("cargo test | tail -n 40 a", "ask"),
        ("cargo test < a", "ask"),
    ] {
        check(&policy, line, expected);
    }
}

#[test]
fn policy_can_allow_ask_or_deny_all() {
    check(&CommandPolicy::allow_all(), "rm -rf a > b; (x)", "allow");
    check(
        &CommandPolicy::allow_all().deny("rm", "no"),
        "ls && rm a",
        "deny",
    );
    // A line that cannot be analyzed may hide a denied command.
    check(
        &CommandPolicy::allow_all().deny("rm", "no"),
        "(rm a)",
        "ask",
    );
    check(&CommandPolicy::ask_all(), "ls", "ask");
    check(&CommandPolicy::ask_all().allow("ls"), "ls", "allow");
    check(
        &CommandPolicy::deny_all().allow("ls"),
        "ls -l | ls",
        "allow",
    );
    check(&CommandPolicy::deny_all().allow("ls"), "ls > a", "deny");
    check(&CommandPolicy::deny_all().allow("ls"), "cat a", "deny");
    check(&CommandPolicy::deny_all().allow("ls"), "(ls)", "deny");
    check(&CommandPolicy::new(), "  ", "deny");
}

#[test]
fn lines_with_denied_files_need_approval() {
    let folder = tempfile::tempdir().unwrap();
    let policy =
        CommandPolicy::new().with_workspace(&crate::Workspace::open(folder.path()).unwrap());
    check(&policy, "cat a", "allow");
    check(&policy, "cat .env", "ask");
    let judge =
        |policy: &CommandPolicy, dir| policy.judge_in(dir, CommandLine::Shell("cat config"));
    assert_eq!(judge(&policy, "src"), Permit::Allow);
    assert_eq!(judge(&policy, "."), Permit::Allow);
    for dir in [".git", "sub/.git", "../other", "/etc", ".ssh"] {
        assert!(matches!(judge(&policy, dir), Permit::Ask { .. }), "{dir}");
    }
    assert_eq!(
        judge(&CommandPolicy::allow_all(), "../other"),
        Permit::Allow
    );
}

#[test]
fn argv_words_are_judged_literally() {
    let judge = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        CommandPolicy::new().judge(CommandLine::Argv(&words))
    };
    assert_eq!(judge(&["cat", "a; rm b"]), Permit::Allow);
    assert_eq!(judge(&["echo", "$(rm a)"]), Permit::Allow);
    assert_eq!(
        judge(&["sh", "-c", "rm a"]),
        Permit::ask("`rm` may change something")
    );
    assert_eq!(
        judge(&["rm", "a"]),
        Permit::ask("`rm` may change something")
    );
    assert!(matches!(judge(&[]), Permit::Deny { .. }));
}

#[test]
fn policy_survives_serde_round_trip() {
    let policy = CommandPolicy::new()
        .allow("cargo test")
        .deny("git push", "no");
    let json = serde_json::to_value(&policy).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"rules": [
            {"command": "cargo test", "ruling": "allow"},
            {"command": "git push", "ruling": {"deny": {"reason": "no"}}},
        ]})
    );
    let again: CommandPolicy = serde_json::from_value(json).unwrap();
    check(&again, "cargo test", "allow");
    check(&again, "git push", "deny");
}

#[test]
fn judging_many_cd_commands_takes_linear_time() {
    let line: String = (0..400).map(|number| format!("cd d{number}; ")).collect();
    let folder = tempfile::tempdir().unwrap();
    let policy =
        CommandPolicy::new().with_workspace(&crate::Workspace::open(folder.path()).unwrap());
    // Each `cd` would double the number of possible folders.
    assert!(matches!(
        policy.judge(CommandLine::Shell(&format!("{line}strings *"))),
        Permit::Ask { .. }
    ));
}
