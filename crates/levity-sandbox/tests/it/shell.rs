//! Lines that a policy allows, run by real shells: only programs that read run, and nothing is
//! written.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use levity_sandbox::{CommandLine, CommandPolicy, Permit, Workspace, WorkspaceBuilder};

/// Parts of lines: harmless and evil programs, and everything that a shell parses between them.
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

/// Names of files that become lines, words or programs when a glob expands to them.
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

/// Creates programs that only record that they ran, and with which arguments.
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
fn allowed_lines_run_only_reading_programs() {
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
        // Most lines begin with something harmless, or almost none would be allowed.
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
        "only {allowed} lines were allowed: the test is no longer meaningful"
    );
}

#[test]
fn shells_read_words_before_redirections_as_judged() {
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
    // Words that are judged as arguments need approval, so no shell may turn others into arguments.
    let denied = ["1", "2", "12"];
    let space = denied
        .into_iter()
        .fold(Workspace::builder(&work), WorkspaceBuilder::deny)
        .build()
        .unwrap();
    let policy = CommandPolicy::new().with_workspace(&space);
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
        "only {allowed} lines were allowed: the test is no longer meaningful"
    );
}

/// Runs lines that a policy allows in all shells, and checks that nothing evil runs. Returns the
/// number of allowed lines.
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
fn inner_shells_run_lines_as_judged() {
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
            "only {allowed} lines were allowed: the test is no longer meaningful"
        );
    }
}

#[test]
fn allowed_redirections_set_no_variables() {
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
    // Shell builtins, for which the shell itself performs the redirection.
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
        "only {allowed} lines were allowed: the test is no longer meaningful"
    );
}

proptest::proptest! {
    #[test]
    fn judging_random_text_does_not_panic(line in "\\PC{0,200}|[ \
        -~\n\t]{0,400}|[$(){}`'\"\\\\;&|<>#! \
        a\n]{0,200}") {
        let policy = CommandPolicy::new();
        let ruling = policy.judge(CommandLine::Shell(&line));
        // A second program that needs approval is never hidden by the text before it, unless that
        // is an open quote or a comment.
        if ruling == Permit::Allow && !line.contains('#') {
            let both = policy.judge(CommandLine::Shell(&format!("{line}\nevil")));
            proptest::prop_assert_ne!(both, Permit::Allow, "{:?}", line);
        }
    }
}

#[test]
fn call_with_long_arguments_needs_approval() {
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

/// Runs a line in a shell that finds only the programs of `bin`, which record their runs in `ran`.
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
