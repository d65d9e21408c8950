//! Lines that a policy allows, run by real shells: nothing runs but programs that only read, and
//! nothing is written.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandLine, CommandPolicy, Permit, Workspace, WorkspaceBuilder};

/// Pieces that lines are made of: harmless and evil programs, and all that a shell reads between
/// them.
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
    "{PATH}",
    "{PATH}>/dev/null",
    "{x}<",
    "sh -c 'ls '",
    "bash -c \"cat \"",
    "sh -c ls",
    "[a]*",
    "{a,b}",
    "printf ",
    "abcde%n",
    "PATH",
    "test ",
    " -eq ",
    "PATH=5",
];

/// Names of files that are lines, words or programs of their own once a pattern becomes them.
const NAMES: &[&str] = &[
    "a",
    "ls ;evil",
    "cat ;evil",
    "a;evil",
    ";evil",
    "-c",
    "ls|evil",
];

/// Folders that `PATH` may be set to, with programs that are evil whatever their names are.
const PLANTED: &[&str] = &["5", "10", "11", "12"];

const SHIMS: &[&str] = &[
    "ls", "cat", "head", "grep", "git", "find", "sort", "rm", "evil", "a", "b.txt", "out", "x",
    "timeout", "nice", "xargs", "env",
];

/// Programs that do nothing but write down that they ran, and with which arguments.
fn shims(folder: &Path) {
    for name in SHIMS {
        let runs = match *name {
            "timeout" => "shift; exec \"$@\"",
            "nice" | "env" | "xargs" => "exec \"$@\"",
            _ => "printf '%s\\n' \"$@\" >> \"$RAN/${0##*/}\"; exit 0",
        };
        program(&folder.join(name), runs);
    }
    for shell in ["sh", "bash", "dash"] {
        let path = Path::new("/bin").join(shell);
        if path.exists() {
            std::os::unix::fs::symlink(path, folder.join(shell)).unwrap();
        }
    }
}

fn program(path: &Path, runs: &str) {
    fs::write(path, format!("#!/bin/sh\n{runs}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Fills a folder with names that are dangerous to shells, and returns all of them.
fn plant(work: &Path) -> Vec<String> {
    NAMES
        .iter()
        .for_each(|name| fs::write(work.join(name), "").unwrap());
    for folder in PLANTED {
        fs::create_dir(work.join(folder)).unwrap();
        for name in SHIMS.iter().chain(&["sh", "bash", "pwd"]) {
            program(
                &work.join(folder).join(name),
                "echo \"$0\" >> \"$RAN/evil\"",
            );
        }
    }
    names(work)
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
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
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
    let planted = plant(&work);
    let shells: Vec<&str> = ["/bin/sh", "/bin/bash", "/bin/dash"]
        .into_iter()
        .filter(|shell| Path::new(shell).exists())
        .collect();
    let policy = CommandPolicy::new();
    let (mut dice, mut allowed) = (Dice(7), 0);
    for _ in 0..400_000 {
        let pieces = 1 + dice.roll(9);
        // Most lines begin with something harmless, or next to none would be allowed.
        let mut line = if dice.roll(4) > 0 {
            PIECES[dice.roll(8)].to_owned() + " "
        } else {
            String::new()
        };
        for _ in 0..pieces {
            line.push_str(PIECES[dice.roll(PIECES.len())]);
        }
        if policy.judge(CommandLine::Shell(&line)) != Permit::Allow {
            continue;
        }
        allowed += 1;
        if allowed > 600 {
            break;
        }
        for shell in &shells {
            run_in(shell, &line, &work, &bin, &ran);
            for name in names(&ran) {
                let reads = ["ls", "cat", "head", "grep", "find", "sort"].contains(&&*name);
                assert!(reads, "{shell} ran {name}: {line:?}");
                fs::remove_file(ran.join(name)).unwrap();
            }
            assert_eq!(names(&work), planted, "{shell} wrote: {line:?}");
        }
    }
    assert!(
        allowed > 300,
        "only {allowed} lines were allowed: the test has lost its point"
    );
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
    let space = denied
        .into_iter()
        .fold(Workspace::builder(&work), WorkspaceBuilder::deny)
        .build()
        .unwrap();
    let policy = CommandPolicy::new().within(&space);
    let shells: Vec<&str> = ["/bin/bash", "/bin/dash"]
        .into_iter()
        .filter(|shell| Path::new(shell).exists())
        .collect();
    let mut allowed = 0;
    for before in ["", "cat ", "echo a | "] {
        for (first, second) in PARTS
            .iter()
            .flat_map(|first| PARTS.map(|second| (first, second)))
        {
            for after in [">&1", "</dev/null", ">/dev/null cat", "<&1 a"] {
                let line = format!("{before}{first}{second}{after}");
                if policy.judge(CommandLine::Shell(&line)) != Permit::Allow {
                    continue;
                }
                allowed += 1;
                for shell in &shells {
                    run_in(shell, &line, &work, &bin, &ran);
                    for name in names(&ran) {
                        assert_eq!(name, "cat", "{shell} ran {name}: {line:?}");
                        let given = fs::read_to_string(ran.join(&name)).unwrap();
                        assert!(
                            !given.lines().any(|it| denied.contains(&it)),
                            "{shell} {line:?}: {given:?}"
                        );
                        fs::remove_file(ran.join(name)).unwrap();
                    }
                    assert!(names(&work).is_empty(), "{shell} wrote: {line:?}");
                }
            }
        }
    }
    assert!(
        allowed > 40,
        "only {allowed} lines were allowed: the test has lost its point"
    );
}

/// Runs lines that a policy allows in all shells, and checks that nothing evil runs. Returns how
/// many were allowed.
fn check_lines(policy: &CommandPolicy, lines: impl Iterator<Item = String>) -> usize {
    let root = tempfile::tempdir().unwrap();
    let [bin, ran, work] = ["bin", "ran", "work"].map(|name| root.path().join(name));
    for folder in [&bin, &ran, &work] {
        fs::create_dir(folder).unwrap();
    }
    shims(&bin);
    let planted = plant(&work);
    let shells: Vec<&str> = ["/bin/bash", "/bin/dash"]
        .into_iter()
        .filter(|shell| Path::new(shell).exists())
        .collect();
    let mut allowed = 0;
    for line in lines.filter(|line| policy.judge(CommandLine::Shell(line)) == Permit::Allow) {
        allowed += 1;
        for shell in &shells {
            run_in(shell, &line, &work, &bin, &ran);
            for name in names(&ran) {
                assert!(
                    !["evil", "rm"].contains(&&*name),
                    "{shell} ran {name}: {line:?}"
                );
                fs::remove_file(ran.join(name)).unwrap();
            }
            assert_eq!(names(&work), planted, "{shell} wrote: {line:?}");
        }
    }
    allowed
}

#[test]
fn allowed_lines_for_inner_shells_are_what_was_judged() {
    const TEXTS: [&str; 6] = ["", "'ls '", "\"cat \"", "ls", "ls\\ ", "'ls a'"];
    const ENDS: [&str; 13] = [
        "",
        "*",
        "?*",
        "[a]*",
        "[;]*",
        "{a,b}",
        "{\\;evil,b}",
        "~",
        "' '*",
        "'*'",
        "\"?\"",
        "\\*",
        "' a'",
    ];
    const BEHIND: [&str; 6] = ["", " *", " a", " {a,b}", " 2>&1", " $X"];
    for policy in [
        CommandPolicy::new(),
        CommandPolicy::new().allow("ls").allow("cat"),
        CommandPolicy::allow_all().deny("evil", "no"),
    ] {
        let shells = [
            "sh -c ",
            "bash -ec ",
            "timeout 1 sh -c ",
            "sh -c -- ",
            "bash -c -x ",
        ];
        let texts = shells
            .into_iter()
            .flat_map(|shell| TEXTS.map(|text| format!("{shell}{text}")));
        let ends = texts.flat_map(|text| ENDS.map(|end| format!("{text}{end}")));
        let lines = ends.flat_map(|line| BEHIND.map(|behind| format!("{line}{behind}")));
        let allowed = check_lines(&policy, lines);
        assert!(
            allowed > 30,
            "only {allowed} lines were allowed: the test has lost its point"
        );
    }
}

#[test]
fn allowed_redirections_leave_variables_as_they_are() {
    const WORDS: [&str; 12] = [
        "{PATH}",
        "{x}",
        "{PATH[0]}",
        "'{PATH}'",
        "\\{PATH}",
        "{PATH\\}",
        "\"{\"PATH}",
        "PATH}",
        "{PATH",
        "{PATH}1",
        "1",
        "{PATH} ",
    ];
    const REDIRECTIONS: [&str; 8] = [
        ">/dev/null",
        ">>/dev/null",
        ">|/dev/null",
        ">&1",
        ">&-",
        "</dev/null",
        "<&1",
        "<<<a",
    ];
    // Parts of the shell, for which the shell itself sets what a redirection sets.
    let policy = ["ls", "cat", "echo", "test", "cd"]
        .into_iter()
        .fold(CommandPolicy::new(), CommandPolicy::allow);
    let words = WORDS
        .into_iter()
        .flat_map(|word| REDIRECTIONS.map(|redirection| format!("{word}{redirection}")));
    let lines = words.flat_map(|it| {
        [
            format!("ls {it}; cat"),
            format!("{it} ls; ls"),
            format!("echo a {it}; ls; cat"),
            format!("test a {it} && cat"),
            format!("cd . {it}; ls"),
        ]
    });
    let allowed = check_lines(&policy, lines);
    assert!(
        allowed > 100,
        "only {allowed} lines were allowed: the test has lost its point"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_judged(line in "\\PC{0,200}|[ -~\n\t]{0,400}|[$(){}`'\"\\\\;&|<>#! \
        a\n]{0,200}") {
        let policy = CommandPolicy::new();
        let ruling = policy.judge(CommandLine::Shell(&line));
        // A second program that is surely asked about is never hidden by what stands before it,
        // unless that is a quote or a comment that goes on.
        if ruling == Permit::Allow && !line.contains('#') {
            let both = policy.judge(CommandLine::Shell(&format!("{line}\nevil")));
            proptest::prop_assert_ne!(both, Permit::Allow, "{:?}", line);
        }
    }
}

#[test]
fn call_with_long_arguments_is_asked_about_like_a_long_line() {
    let policy = CommandPolicy::new();
    for size in [100, 20_000] {
        let words = ["cat".to_owned(), "a".repeat(size)];
        let expected = if size == 100 {
            Permit::Allow
        } else {
            Permit::ask("it is too long to be analyzed")
        };
        assert_eq!(policy.judge(CommandLine::Argv(&words)), expected);
        assert_eq!(policy.judge(CommandLine::Shell(&words.join(" "))), expected);
    }
}

/// Runs a line in a shell that finds only the programs of `bin`, which note in `ran` that they were
/// run.
fn run_in(shell: &str, line: &str, work: &Path, bin: &Path, ran: &Path) {
    let mut command = Command::new(shell);
    command
        .args(["-c", line])
        .current_dir(work)
        .env_clear()
        .env("PATH", bin)
        .env("RAN", ran);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
}
