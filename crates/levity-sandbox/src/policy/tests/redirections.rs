//! Words before redirections, which shells read in different ways.

use super::check;
use crate::{CommandLine, CommandPolicy};

#[test]
fn only_single_digit_before_redirection_is_descriptor() {
    let policy = CommandPolicy::new().allow("make").deny("rm", "no");
    for (line, expected) in [
        // Every shell reads one digit as a descriptor.
        ("echo a 1>&2", "allow"),
        ("echo a 9>&1", "allow"),
        ("echo a 1>&2 2>&1", "allow"),
        ("echo 12 2>&1", "allow"),
        ("ls 2>/dev/null", "allow"),
        ("ls 2> /dev/null", "allow"),
        ("ls 2>>/dev/null", "allow"),
        ("ls 2>|/dev/null", "allow"),
        ("cat 0</dev/null", "allow"),
        ("cat 0< a", "allow"),
        ("1>&2 echo a", "allow"),
        ("2>/dev/null ls", "allow"),
        ("seq 3 3>&2", "allow"),
        ("make 2>&1 | tail -n 40", "allow"),
        ("sh -c 'ls 2>&1'", "allow"),
        ("ls 2>a", "ask"),
        ("cat 0</etc/passwd", "ask"),
        ("rm 2>&1", "deny"),
        ("2>&1 rm a", "deny"),
        ("rm a 2>/dev/null", "deny"),
        ("1>&1 2>&2 rm", "deny"),
        // Every shell reads these as arguments.
        ("echo 12 >&2", "allow"),
        ("echo a1>&2", "allow"),
        ("echo 1a>&2", "allow"),
        ("echo -1>&2", "allow"),
        ("echo 1.5>&2", "allow"),
        ("echo '1'>&2", "allow"),
        ("echo \"1\">&2", "allow"),
        ("echo \\1>&2", "allow"),
        ("echo 1''>&2", "allow"),
        ("echo ''1>&2", "allow"),
        ("echo 1\"2\">&2", "allow"),
        ("echo '12'>&2", "allow"),
        ("echo \u{ff11}>&2", "allow"),
        ("echo \u{663}>&2", "allow"),
        ("echo 1$>&2", "allow"),
        ("'1'>&2 ls", "ask"),
        ("1\\2>&2 ls", "ask"),
        ("ls; rm a1>&2", "deny"),
        // The same applies to a digit next to an unknown word, which may be a program.
        ("`echo \"./evil.sh \"`1>&1", "ask"),
        ("`echo ./evil.sh`1>&1", "ask"),
        ("`echo ./evil.sh`12>&1", "ask"),
        ("`echo ./evil.sh`1</dev/null", "ask"),
        ("`echo ./evil.sh`1>>/dev/null", "ask"),
        ("`echo ./evil.sh`1>|/dev/null", "ask"),
        ("`echo ./evil.sh`1<&1", "ask"),
        ("`echo ./evil.sh`1<<<a", "ask"),
        ("``1>&1", "ask"),
        ("$(echo ./evil.sh)1>&2", "ask"),
        ("$(echo ./evil.sh)1>/dev/null", "ask"),
        ("1$(echo ./evil.sh)>&2", "ask"),
        ("1`echo ./evil.sh`>&2", "ask"),
        ("1`echo a`2>&2", "ask"),
        ("1$x>&2", "ask"),
        ("$x>&2", "ask"),
        ("$1>&2", "ask"),
        ("$@1>&1", "ask"),
        ("$?1>&1", "ask"),
        ("\"`echo ./evil.sh`\"1>&1", "ask"),
        ("ls; `echo ./evil.sh`1>&1", "ask"),
        ("ls | `echo ./evil.sh`1>&1", "ask"),
        ("make; `echo ./evil.sh`1>&1", "ask"),
        ("make `echo a`1>&2", "ask"),
        ("make 1$(echo a)>&2", "ask"),
        ("echo `echo a`1>&2", "ask"),
        ("cat $(echo .env)1>&2", "ask"),
        ("sh -c '`echo ./evil.sh`1>&1'", "ask"),
        ("timeout `echo 5`1>&1 ls", "ask"),
        ("echo $(`echo ./evil.sh`1>&1)", "ask"),
        ("`echo rm`1>&1", "ask"),
        ("`rm a`1>&1", "deny"),
        ("$(rm a)1>&2", "deny"),
        // Some shells read two digits as a descriptor, and others as an argument.
        ("cat 12>&1", "ask"),
        ("cat 12>/dev/null", "ask"),
        ("cat 12</dev/null", "ask"),
        ("cat 12<&1", "ask"),
        ("cat 12<<<a", "ask"),
        ("cat 00>&1", "ask"),
        ("cat 01>&2", "ask"),
        ("ls 123>>/dev/null", "ask"),
        ("12>&1 ls", "ask"),
        ("make 12>&1", "ask"),
        ("git branch; cat 12>&1", "ask"),
        ("sh -c 'cat 12>&1'", "ask"),
        ("echo $(cat 12>&1)", "ask"),
        ("echo `cat 12>&1`", "ask"),
        ("ls; 12>&1 rm", "ask"),
    ] {
        check(&policy, line, expected);
    }
}

#[test]
fn word_before_redirection_hides_no_denied_command() {
    let policy = CommandPolicy::allow_all().deny("git push", "no");
    for (line, expected) in [
        ("git 2>&1 push", "deny"),
        ("git push 2>&1", "deny"),
        ("ls 2>&1 `git push`1>&2", "deny"),
        ("`echo git push`1>&1", "ask"),
        ("`echo \"git push \"`1>&1", "ask"),
        ("$(echo git)1>&1 push", "ask"),
        ("git `echo \"push \"`1>&1", "ask"),
        ("git 1$(echo)>&2 push", "ask"),
        ("git $@1>&2 push", "ask"),
        ("git 12>&1 push", "ask"),
        ("12>&1 git push", "ask"),
        ("git log 2>&1", "allow"),
    ] {
        check(&policy, line, expected);
        let denied = policy.denial_reason_in(".", CommandLine::Shell(line));
        assert_eq!(denied.is_some(), expected == "deny", "{line}");
    }
    // No approval is requested if only rules can allow.
    for line in ["`echo ls`1>&1", "ls 12>&1"] {
        check(
            &CommandPolicy::deny_all().allow("ls").allow("echo"),
            line,
            "deny",
        );
    }
}

#[test]
fn redirection_that_sets_variable_needs_approval() {
    let folder = tempfile::tempdir().unwrap();
    let alone =
        CommandPolicy::new().with_workspace(&crate::Workspace::open(folder.path()).unwrap());
    let beside = alone.clone().allow("make");
    let denying = CommandPolicy::allow_all().deny("git push", "no");
    for word in [
        "{PATH}",
        "{x}",
        "{_}",
        "{a[0]}",
        "{a[$(pwd)]}",
        "{a[\"1 2\"]}",
        "{a.b}",
        "{}",
        "{x\\}",
        "{a,b}",
    ] {
        for redirection in [
            ">/dev/null",
            "> /dev/null",
            ">>/dev/null",
            ">|/dev/null",
            ">&1",
            ">&-",
            "</dev/null",
            "< /dev/null",
            "<&1",
            "<&-",
            "<<<a",
            "<>/dev/null",
            "<<a",
            ">a",
            "<a",
        ] {
            for line in [
                format!("{word}{redirection}"),
                format!("ls {word}{redirection}"),
                format!("{word}{redirection} ls"),
                format!("ls a{redirection} {word}{redirection}"),
                format!("ls; echo a | cat {word}{redirection}; pwd"),
                format!("echo `pwd {word}{redirection}`"),
            ] {
                check(&alone, &line, "ask");
                check(&beside, &format!("make; {line}"), "ask");
                check(&denying, &line, "ask");
            }
        }
    }
    for line in [
        "echo '{x}'>/dev/null",
        "echo \\{x}>/dev/null",
        "echo \"{x}\" 2>&1",
        "echo a}>/dev/null",
        "echo '{'x}>/dev/null",
    ] {
        check(&alone, line, "allow");
    }
    for line in ["zsh -c '<1-9>/dev/null'", "cat <->/dev/null", "<1->a ls"] {
        check(&alone, line, "ask");
        check(&denying, line, "ask");
    }
}
