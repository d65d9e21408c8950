//! Lines whose programs have more than read rights.

use super::super::{literal, shell};
use super::check;
use crate::{CommandLine, CommandPolicy, Permit, ReadScope, Workspace};

/// Lines with programs that rules allow, judged by hand.
const LINES: &[(&str, &str)] = &[
    ("cargo test", "allow"),
    ("cargo test -- --nocapture", "allow"),
    ("cargo test -p core --features=a,b", "allow"),
    ("cargo test 'name with spaces'", "allow"),
    ("cargo test \"name with spaces\"", "allow"),
    ("cargo test 'a $b `c` \\ * {d} ~ !e #f'", "allow"),
    (
        "cargo test \"a * ? [b] {c,d} ~ ! # ; & | < > ( ) é\"",
        "allow",
    ),
    ("cargo test \"a\\|b\\.c\"", "allow"),
    ("cargo test ''", "allow"),
    ("cargo test a'b'\"c\"", "allow"),
    ("cd core && cargo test --quiet 2>&1 | tail -20", "allow"),
    ("cd crates/core; cargo test", "allow"),
    ("cargo test > /dev/null 2>&1", "allow"),
    (
        "cargo test 2>/dev/null | grep -v warning | sort | uniq -c",
        "allow",
    ),
    ("cargo test </dev/null", "allow"),
    ("cargo test >&2", "allow"),
    ("cargo test || echo failed", "allow"),
    ("cargo test;", "allow"),
    ("cargo test\n\ncargo test -q\n", "allow"),
    ("cargo test &&\n  make", "allow"),
    ("cargo test && ls target", "allow"),
    ("true && make CC=gcc all", "allow"),
    ("/usr/bin/make", "allow"),
    ("make | head -n 3 | wc -l", "allow"),
    ("git status && git diff --stat | head", "allow"),
    ("git log --oneline -5", "allow"),
    ("git log --oneline HEAD~3..HEAD^", "allow"),
    ("git log --format='%h %s' | grep fix", "allow"),
    ("cd sub && git status -s", "allow"),
    ("git status; ls", "allow"),
    // Lines that only read need not be plain, whatever rules there are.
    ("ls *.rs", "allow"),
    ("sh -c 'ls -l'", "allow"),
    ("timeout 5 cat a", "allow"),
    ("grep -rn foo src | wc -l", "allow"),
    // Expansions.
    ("cargo test *", "ask"),
    ("cargo test a?", "ask"),
    ("cargo test [a]", "ask"),
    ("cargo test {a,b}", "ask"),
    ("cargo test {}", "ask"),
    ("cargo test ~", "ask"),
    ("cargo test a=~", "ask"),
    ("cargo test a:~", "ask"),
    ("cargo test =ls", "ask"),
    ("cargo test $X", "ask"),
    ("cargo test \"$X\"", "ask"),
    ("cargo test $(pwd)", "ask"),
    ("cargo test `pwd`", "ask"),
    ("cargo test \"`pwd`\"", "ask"),
    ("cargo test $'a'", "ask"),
    ("cargo test $((1+1))", "ask"),
    ("cargo test a\\ b", "ask"),
    ("cargo test \"a\\\"b\"", "ask"),
    ("cargo test \"a\\\\b\"", "ask"),
    ("cargo test \"a\\$b\"", "ask"),
    ("cargo test \"a\\\nb\"", "ask"),
    ("cargo \\\n test", "ask"),
    ("cargo test !!", "ask"),
    ("cargo test # all", "ask"),
    ("cargo test a#b", "ask"),
    ("cargo test\r", "ask"),
    ("cargo test \u{7}", "ask"),
    ("cargo test 'a\u{1b}b'", "ask"),
    ("cargo test \u{e9}", "ask"),
    ("cargo test\u{a0}a", "ask"),
    ("'cargo' test", "ask"),
    ("car\"go\" test", "ask"),
    ("\\make", "ask"),
    // Operators and redirections.
    ("make &", "ask"),
    ("make & make", "ask"),
    ("make |& head", "ask"),
    ("make &>/dev/null", "ask"),
    ("make >&/dev/null", "ask"),
    ("make >| /dev/null", "ask"),
    ("make >>/dev/null", "ask"),
    ("make > out", "ask"),
    ("make >/dev/nullx", "ask"),
    ("make < a", "ask"),
    ("make <<< a", "ask"),
    ("make << a\na", "ask"),
    ("make <&1", "ask"),
    ("make 2>&-", "ask"),
    ("make 3>&1", "ask"),
    ("make 12>&1", "ask"),
    ("make a>/dev/null", "ask"),
    ("make {x}>/dev/null", "ask"),
    ("make 2>&1 all", "ask"),
    ("2>&1 make", "ask"),
    ("make ;; make", "ask"),
    ("make ; ; make", "ask"),
    ("make &&", "ask"),
    ("&& make", "ask"),
    // Constructs.
    ("(make)", "ask"),
    ("{ make; }", "ask"),
    ("! make", "ask"),
    ("time make", "ask"),
    ("if make; then make; fi", "ask"),
    ("for a in b; do make; done", "ask"),
    ("make() { make; }", "ask"),
    ("[[ a ]] && make", "ask"),
    ("case a in a) make;; esac", "ask"),
    ("A=b make", "ask"),
    ("A=b; make", "ask"),
    ("A[0]=b make", "ask"),
    // Programs that run others, and shell builtins.
    ("env make", "ask"),
    ("env A=b make", "ask"),
    ("timeout 5 make", "ask"),
    ("nice make", "ask"),
    ("nohup make", "ask"),
    ("command make", "ask"),
    ("exec make", "ask"),
    ("echo a | xargs make", "ask"),
    ("sh -c make", "ask"),
    ("sh -c 'git status'", "ask"),
    ("sudo make", "ask"),
    ("find . -exec make ';'", "ask"),
    ("make; test -f a", "ask"),
    ("[ -f a ] && make", "ask"),
    ("make; printf a", "ask"),
    ("export A=b; make", "ask"),
    ("set -e; make", "ask"),
    ("eval make", "ask"),
    ("source a; make", "ask"),
    (". a; make", "ask"),
    ("unset A; make", "ask"),
    ("exit 0; make", "ask"),
    ("pushd a && make", "ask"),
    // Programs that are neither filters nor allowed.
    ("make; cat a", "ask"),
    ("make | tee a", "ask"),
    ("make; find . -name a", "ask"),
    ("make; stat a", "ask"),
    ("make; date -f a", "ask"),
    ("make; head a", "ask"),
    ("make; grep a b", "ask"),
    ("make; sort -o a", "ask"),
    ("make; uniq - b", "ask"),
    ("make; env", "ask"),
    ("make; ./make", "ask"),
    ("git status; cat a", "ask"),
    ("git push; make", "ask"),
    ("git show HEAD", "ask"),
    ("git status | head a", "ask"),
    ("git log *", "ask"),
    ("git status $X", "ask"),
    ("git status > a", "ask"),
    ("git push", "ask"),
    ("cd; make", "ask"),
    ("cd -; make", "ask"),
    ("cd -P a; make", "ask"),
    ("cd ..; make", "ask"),
    ("cd a/../..; make", "ask"),
    ("cd /tmp && make", "ask"),
    ("cd ~ && make", "ask"),
    ("cd a b && make", "ask"),
    ("cd $X && make", "ask"),
    ("cd '' && make", "ask"),
];

fn policy(folder: &tempfile::TempDir) -> CommandPolicy {
    let space = Workspace::open(folder.path()).unwrap();
    CommandPolicy::new()
        .with_workspace(&space)
        .allow("cargo test")
        .allow("make")
        .allow("git status")
        .allow("git diff")
        .allow("git log")
}

#[test]
fn line_with_allow_rule_must_be_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    for (line, expected) in LINES {
        check(&policy(&folder), line, expected);
        let both = format!("{line}\nmake $(pwd)");
        assert_ne!(
            policy(&folder).judge(CommandLine::Shell(&both)),
            Permit::Allow,
            "{both}"
        );
    }
    assert!(LINES.len() > 150);
}

#[test]
fn allow_rule_does_not_restrict_read_only_line() {
    let folder = tempfile::tempdir().unwrap();
    let named = ["ls", "cat", "head"]
        .into_iter()
        .fold(policy(&folder), CommandPolicy::allow);
    for (line, scope) in [
        ("ls", None),
        ("ls | head -3", None),
        ("cat a /etc/passwd", None),
        ("ls *", Some(ReadScope::Files)),
        ("cat a; stat b", Some(ReadScope::Files)),
        ("cat a | sort b", Some(ReadScope::Files)),
        ("sh -c 'cat a'", Some(ReadScope::Files)),
        ("for a in b", None),
        ("git log | head -3", None),
        ("head -3 # all", Some(ReadScope::Files)),
    ] {
        let (ruling, found) = (
            named.judge(CommandLine::Shell(line)),
            named.read_scope(CommandLine::Shell(line)),
        );
        assert_eq!(ruling == Permit::Allow, !line.starts_with("for"), "{line}");
        assert_eq!(found, scope, "{line}");
    }
    // An ask rule still applies.
    check(&named.clone().ask("ls", "sure?"), "ls; stat a", "ask");
    check(&named.deny("stat", "no"), "ls; stat a", "deny");
}

#[test]
fn reason_explains_how_to_rewrite_line() {
    let folder = tempfile::tempdir().unwrap();
    for (line, reason) in [
        (
            "cargo test *",
            "it combines `*` outside of quotes with `cargo test`, which a rule allows; write it as \
                plain words",
        ),
        ("make; export A=b", "`export` may change something"),
        (
            "make; printf a",
            "it combines `printf`, which is a shell builtin, with `make`, which a rule allows; \
                write it as plain words",
        ),
        (
            "make; nice ls",
            "it combines `nice`, which runs another program, with `make`, which a rule allows; \
                write \
                it as plain words",
        ),
        (
            "cargo test && cat a",
            "it mixes `cargo test`, which a rule allows, with `cat`; run them one by one",
        ),
        (
            "git show HEAD",
            "`git` runs programs that a repository's settings name, and can show every file that \
                was ever committed; if you trust the folder, allow it by a rule such as `git \
                status`",
        ),
    ] {
        assert_eq!(
            policy(&folder).judge(CommandLine::Shell(line)),
            Permit::ask(reason),
            "{line}"
        );
    }
    let named = CommandPolicy::deny_all().allow("make");
    assert_eq!(
        named.judge(CommandLine::Shell("make # all")),
        Permit::deny(
            "it combines `#` outside of quotes with `make`, which a rule allows; write it as plain \
                words"
        )
    );
}

#[test]
fn argv_call_is_judged_as_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (&["cargo", "test", "$X *"][..], true),
        (&["make", "a;b"], true),
        (&["git", "log", "--oneline"], true),
        (&["timeout", "5", "make"], false),
        (&["sh", "-c", "make"], false),
        (&["xargs", "make"], false),
        (&["env", "make"], false),
    ] {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let ruling = policy(&folder).judge(CommandLine::Argv(&words));
        assert_eq!(ruling == Permit::Allow, expected, "{words:?}: {ruling:?}");
    }
}

/// Lines in which a builtin of some shells computes, sets a variable or runs a text.
const COMPUTING: &[&str] = &[
    "printf 'abcde%n' PATH",
    "printf -- 'abcde%n' PATH",
    "printf '%(%F)T%n' 1 PATH",
    "printf %d PATH=5",
    "printf %i PATH++",
    "printf '%*s' PATH=5 a",
    "printf %d *",
    "printf *",
    "printf -v PATH .",
    "printf a",
    "test PATH=5 -eq 5",
    "test -t PATH=5",
    "test 5 -eq *",
    "test a = b",
    "[ a = b ]",
    "read PATH",
    "export PATH=5",
    "declare PATH=5",
    "typeset -i PATH",
    "readonly PATH=5",
    "let PATH=5",
    "set a b",
    "unset PATH",
    "shift",
    "getopts a PATH",
    "alias make=ls",
    "hash -p 5/a make",
    "trap ls EXIT",
    "mapfile PATH",
    "PATH=5",
    "{PATH}>/dev/null",
    ": ${PATH:=5}",
];

#[test]
fn computing_builtin_with_allowed_command_needs_approval() {
    let folder = tempfile::tempdir().unwrap();
    let policy = CommandPolicy::new()
        .allow("make")
        .with_workspace(&Workspace::open(folder.path()).unwrap());
    let builtins = [
        "printf", "test", "read", "export", "set", "unset", "let", "trap", "hash",
    ];
    let named = builtins
        .into_iter()
        .fold(policy.clone(), CommandPolicy::allow);
    for line in COMPUTING {
        for with_rights in ["make", "git status"] {
            for mixed in [
                format!("{line}; {with_rights}"),
                format!("{with_rights} && {line}"),
                format!("{with_rights} | {line}"),
                format!(
                    "bash -c \"{}; {with_rights}\"",
                    line.replace('$', "\\$").replace('`', "\\`")
                ),
            ] {
                check(&policy, &mixed, "ask");
                check(&named, &mixed, "ask");
            }
        }
        // Alone, it needs approval, or the kernel restricts it.
        let scope = policy.read_scope(CommandLine::Shell(line));
        assert!(
            matches!(scope, None | Some(ReadScope::Files)),
            "{line}: {scope:?}"
        );
    }
    for line in ["printf '%s\\n' a=b", "test a = b", "printf %d PATH=5"] {
        check(&policy, line, "allow");
        check(&named, line, "allow");
    }
}

proptest::proptest! {
    #[test]
    fn both_parsers_agree_on_plain_lines(
        line in "([a-z./=~^:,-]{1,5}|'[^']{0,4}'|\"[ \
            -~]{0,4}\"|[ \t\n;|&]{1,2}|[12]?>(&[12]|/dev/null)|</dev/null|[*$#(){}<!]){0,12}"
    ) {
        if let Ok(commands) = literal::parse(&line) {
            let others = shell::parse(&line).unwrap();
            proptest::prop_assert!(
                !others.iter().any(|other| other.sets || other.writes),
                "{line:?}"
            );
            let words = |commands: Vec<shell::Simple>| {
                commands.into_iter().map(|it| it.words).collect::<Vec<_>>()
            };
            proptest::prop_assert_eq!(words(commands), words(others));
        }
    }
}
