//! Lines that a policy allows, run by real shells: nothing runs but programs that only read, and nothing is written.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandPolicy, Line, Permit, Workspace, WorkspaceBuilder};

/// Pieces that lines are made of: harmless and evil programs, and all that a shell reads between them.
const PIECES: &[&str] = &[
    "ls",
    "cat",
    "head",
    "grep",
    "echo",
    "git status",
    "find .",
    "sort",
    "rm",
    "evil",
    "sh",
    "bash",
    "-c",
    "xargs",
    "timeout 1",
    "nice",
    "command",
    "env",
    "exec",
    "eval",
    "a",
    "b.txt",
    "-o",
    "out",
    "x=1",
    "x",
    "=",
    "*",
    "?",
    " ",
    " ",
    " ",
    " ",
    "\t",
    "\n",
    ";",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    ">",
    ">>",
    "<",
    "<<<",
    "<<",
    "2>",
    "&>",
    ">&",
    "1",
    "2",
    "-",
    "/dev/null",
    "'",
    "'",
    "\"",
    "\"",
    "`",
    "$",
    "$(",
    "${",
    "((",
    "(",
    ")",
    "{",
    "}",
    "\\",
    "#",
    "!",
    "~",
    "[",
    "]",
    "[[",
    "if",
    "then",
    "fi",
    "for",
    "do",
    "done",
    "function",
    "time",
    "'rm'",
    "\"evil\"",
    "r''m",
    "\\rm",
    "$'rm'",
    "$\"rm\"",
    "sh -c 'rm a'",
    "sh -c \"evil\"",
    "$(evil)",
    "`evil`",
    "`echo \"evil \"`",
    "$(echo evil)",
    "12",
    "1>&1",
    "2>&1",
    "=$(evil)",
    "e\\\nvil",
    "\r",
];

const SHIMS: &[&str] = &[
    "ls", "cat", "head", "grep", "git", "find", "sort", "rm", "evil", "a", "b.txt", "out", "x", "timeout",
    "nice", "xargs", "env",
];

/// Programs that do nothing but write down that they ran, and with which arguments.
fn shims(folder: &Path) {
    for name in SHIMS {
        let runs = match *name {
            "timeout" => "shift; exec \"$@\"",
            "nice" | "env" | "xargs" => "exec \"$@\"",
            _ => "printf '%s\\n' \"$@\" >> \"$RAN/${0##*/}\"; exit 0",
        };
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{runs}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Random numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

#[test]
fn allowed_lines_run_only_what_reads() {
    let root = tempfile::tempdir().unwrap();
    let [bin, ran, work] = ["bin", "ran", "work"].map(|name| root.path().join(name));
    for folder in [&bin, &ran, &work] {
        fs::create_dir(folder).unwrap();
    }
    shims(&bin);
    let shells: Vec<&str> =
        ["/bin/sh", "/bin/bash", "/bin/dash"].into_iter().filter(|shell| Path::new(shell).exists()).collect();
    let policy = CommandPolicy::new();
    let (mut dice, mut allowed) = (Dice(7), 0);
    for _ in 0..400_000 {
        let pieces = 1 + dice.roll(9);
        // Most lines begin with something harmless, or next to none would be allowed.
        let mut line = if dice.roll(4) > 0 { PIECES[dice.roll(8)].to_owned() + " " } else { String::new() };
        for _ in 0..pieces {
            line.push_str(PIECES[dice.roll(PIECES.len())]);
        }
        if policy.judge(Line::Shell(&line)) != Permit::Allow {
            continue;
        }
        allowed += 1;
        if allowed > 600 {
            break;
        }
        for shell in &shells {
            fs::write(work.join("a"), "").unwrap();
            run_in(shell, &line, &work, &bin, &ran);
            for name in names(&ran) {
                let reads = ["ls", "cat", "head", "grep", "git", "find", "sort"].contains(&&*name);
                assert!(reads, "{shell} ran {name}: {line:?}");
                fs::remove_file(ran.join(name)).unwrap();
            }
            assert_eq!(names(&work), ["a"], "{shell} wrote: {line:?}");
        }
    }
    assert!(allowed > 300, "only {allowed} lines were allowed: the test has lost its point");
}

#[test]
fn allowed_words_before_a_redirection_are_read_by_shells_as_they_were_judged() {
    const PARTS: [&str; 19] = [
        "",
        "1",
        "2",
        "12",
        "a",
        "cat",
        "evil",
        "'evil'",
        "`echo evil`",
        "`echo \"evil \"`",
        "$(echo evil)",
        "$x",
        "$@",
        "$?",
        "$",
        "''",
        "\"1\"",
        "\\1",
        "-",
    ];
    let root = tempfile::tempdir().unwrap();
    let [bin, ran, work] = ["bin", "ran", "work"].map(|name| root.path().join(name));
    for folder in [&bin, &ran, &work] {
        fs::create_dir(folder).unwrap();
    }
    shims(&bin);
    // Words that are judged as arguments are asked about, so no shell may make arguments of others.
    let denied = ["1", "2", "12"];
    let space = denied.into_iter().fold(Workspace::builder(&work), WorkspaceBuilder::deny).build().unwrap();
    let policy = CommandPolicy::new().within(&space);
    let shells: Vec<&str> =
        ["/bin/bash", "/bin/dash"].into_iter().filter(|shell| Path::new(shell).exists()).collect();
    let mut allowed = 0;
    for before in ["", "cat ", "echo a | "] {
        for (first, second) in PARTS.iter().flat_map(|first| PARTS.map(|second| (first, second))) {
            for after in [">&1", "</dev/null", ">/dev/null cat", "<&1 a"] {
                let line = format!("{before}{first}{second}{after}");
                if policy.judge(Line::Shell(&line)) != Permit::Allow {
                    continue;
                }
                allowed += 1;
                for shell in &shells {
                    run_in(shell, &line, &work, &bin, &ran);
                    for name in names(&ran) {
                        assert_eq!(name, "cat", "{shell} ran {name}: {line:?}");
                        let given = fs::read_to_string(ran.join(&name)).unwrap();
                        assert!(!given.lines().any(|it| denied.contains(&it)), "{shell} {line:?}: {given:?}");
                        fs::remove_file(ran.join(name)).unwrap();
                    }
                    assert!(names(&work).is_empty(), "{shell} wrote: {line:?}");
                }
            }
        }
    }
    assert!(allowed > 40, "only {allowed} lines were allowed: the test has lost its point");
}

proptest::proptest! {
    #[test]
    fn any_text_is_judged(line in "\\PC{0,200}|[ -~\n\t]{0,400}|[$(){}`'\"\\\\;&|<>#! a\n]{0,200}") {
        let policy = CommandPolicy::new();
        let ruling = policy.judge(Line::Shell(&line));
        // A second program that is surely asked about is never hidden by what stands before it, unless that is
        // a quote or a comment that goes on.
        if ruling == Permit::Allow && !line.contains('#') {
            let both = policy.judge(Line::Shell(&format!("{line}\nevil")));
            proptest::prop_assert_ne!(both, Permit::Allow, "{:?}", line);
        }
    }
}

#[test]
fn call_with_long_arguments_is_asked_about_like_a_long_line() {
    let policy = CommandPolicy::new();
    for size in [100, 20_000] {
        let words = ["cat".to_owned(), "a".repeat(size)];
        let expected =
            if size == 100 { Permit::Allow } else { Permit::ask("it is too long to be looked into") };
        assert_eq!(policy.judge(Line::Argv(&words)), expected);
        assert_eq!(policy.judge(Line::Shell(&words.join(" "))), expected);
    }
}

/// Runs a line in a shell that finds only the programs of `bin`, which note in `ran` that they were run.
fn run_in(shell: &str, line: &str, work: &Path, bin: &Path, ran: &Path) {
    let mut command = Command::new(shell);
    command.args(["-c", line]).current_dir(work).env_clear().env("PATH", bin).env("RAN", ran);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
}
