//! Lines with more than read rights, run by real shells: each program gets exactly the judged
//! words.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::literal;
use crate::{CommandLine, CommandPolicy, Permit, Workspace};

/// Parts of plain lines.
const PLAIN: &[&str] = &[
    "make",
    "make",
    "tool",
    "cargo test",
    "git status",
    "git log --oneline",
    "head -3",
    "grep a",
    "tail -n 1",
    "sort",
    "wc -l",
    "echo a",
    "true",
    "cd sub",
    "ls",
    "a",
    "b.txt",
    "--all",
    "-x=1",
    "HEAD~2",
    "a=b",
    "1",
    "2",
    "'a b'",
    "\"a b\"",
    "''",
    "\"\"",
    "'$X'",
    "'`a`'",
    "\"*\"",
    "'*'",
    "'{a,b}'",
    "'a;make b'",
    "\"a|b\"",
    "\"a\\|b\"",
    "\"a\\.b\"",
    "\"\\d+\"",
    "'a\\nb'",
    "'\\'",
    "\"a\nb\"",
    "\"é!\"",
    "'#'",
    "&&",
    "||",
    "|",
    ";",
    ";",
    "\n",
    " ",
    " ",
    " ",
    " ",
    " ",
    " ",
    " ",
    "\t",
    "2>&1",
    "1>&2",
    ">&2",
    ">/dev/null",
    "2> /dev/null",
    "</dev/null",
    "< /dev/null",
];

/// Parts that shells parse differently.
const ODD: &[&str] = &[
    "*",
    "?",
    "[a]*",
    "{a,b}",
    "{",
    "}",
    "~",
    "=",
    "$",
    "$X",
    "\"$X\"",
    "\"$(evil)\"",
    "\"`evil`\"",
    "\"a\\\"b\"",
    "\"\\\\\"",
    "$@",
    "$(evil)",
    "`evil`",
    "${PATH:=5}",
    "$((1))",
    "$'a'",
    "\\",
    "\\\n",
    "'",
    "\"",
    "#",
    "!",
    "&",
    "|&",
    ";;",
    "(",
    ")",
    "<",
    ">",
    ">>",
    "<<<",
    "<<",
    "&>",
    "12>&1",
    "3>&1",
    "{PATH}>/dev/null",
    "{x}<",
    "PATH=5",
    "A=b ",
    "\r",
    "\u{b}",
    "\u{a0}",
    "é",
    "evil",
    "./evil",
    "5/make",
    "sh -c 'make'",
    "bash -c \"make a\"",
    "xargs",
    "timeout 1",
    "env",
    "nice",
    "command",
    "exec",
    "eval",
    "time",
    "find . -exec",
    "printf abcde%n PATH",
    "printf -vPATH 5",
    "printf %d PATH=5",
    "test PATH=5 -eq 5",
    "[ 5 -eq PATH=5 ]",
    "read PATH",
    "export PATH=5",
    "set a",
    "unset PATH",
    "alias make=evil",
    "hash -p 5/make make",
    "trap evil EXIT",
    "if",
    "then",
    "fi",
    "for",
    "do",
    "done",
    "function",
    "[[",
    "]]",
    "case",
    "in",
    "esac",
    "-c",
    "cd ..",
    "cd -",
    "cat a",
];

/// Creates a folder of programs that record their words, each run in a separate file.
fn recorders(folder: &Path, names: &[&str], words: &str) {
    fs::create_dir(folder).unwrap();
    for name in names {
        let path = folder.join(name);
        fs::write(
            &path,
            format!("#!/bin/sh\nprintf '%s\\001' {words} > \"$RAN/$$\"\n"),
        )
        .unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Runs a line, and returns the words of each program that ran, sorted.
fn run(shell: &str, line: &str, root: &Path) -> Vec<Vec<String>> {
    let ran = root.join("ran");
    let mut command = Command::new(shell);
    command
        .args(["-c", line])
        .current_dir(root.join("work"))
        .env_clear();
    command.env("PATH", root.join("bin")).env("RAN", &ran);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(&ran).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        found.push(
            text.strip_suffix('\u{1}')
                .unwrap()
                .split('\u{1}')
                .map(str::to_owned)
                .collect(),
        );
        fs::remove_file(path).unwrap();
    }
    found.sort();
    found
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

    fn line(&mut self) -> String {
        let mut line =
            ["make ", "tool ", "git status ", "cd sub && make ", ""][self.roll(5)].to_owned();
        let odd = self.roll(3) == 0;
        for _ in 0..1 + self.roll(8) {
            let pieces = if odd && self.roll(4) == 0 { ODD } else { PLAIN };
            line.push_str(pieces[self.roll(pieces.len())]);
            line.push_str(["", " ", " "][self.roll(3)]);
        }
        line
    }
}

#[test]
fn shells_run_exactly_the_judged_words_of_allowed_lines() {
    const PROGRAMS: [&str; 10] = [
        "make", "tool", "cargo", "git", "head", "grep", "tail", "sort", "wc", "ls",
    ];
    let root = tempfile::tempdir().unwrap();
    let [bin, ran, work] = ["bin", "ran", "work"].map(|name| root.path().join(name));
    let others = ["evil", "a", "b.txt", "cat", "xargs", "timeout", "env"];
    recorders(
        &bin,
        &[&PROGRAMS[..], &others].concat(),
        "\"${0##*/}\" \"$@\"",
    );
    fs::create_dir(&ran).unwrap();
    fs::create_dir_all(work.join("sub")).unwrap();
    for name in ["a", "-c", "a;evil", "ls ;evil"] {
        fs::write(work.join(name), "").unwrap();
    }
    // A folder that a variable may be set to, whose programs differ from the judged ones.
    recorders(&work.join("5"), &PROGRAMS, "evil");
    let space = Workspace::open(&work).unwrap();
    let rules = ["make", "tool", "cargo test", "git status", "git log"];
    let policy = rules.into_iter().fold(
        CommandPolicy::new().with_workspace(&space),
        CommandPolicy::allow,
    );
    let shells = ["/bin/bash", "/bin/dash"]
        .into_iter()
        .filter(|shell| Path::new(shell).exists());
    let shells: Vec<&str> = shells.collect();
    let (mut dice, mut compared) = (Dice(11), 0);
    for _ in 0..200_000 {
        let line = dice.line();
        let only_reads = policy.read_scope(CommandLine::Shell(&line)).is_some();
        if only_reads || policy.judge(CommandLine::Shell(&line)) != Permit::Allow {
            continue;
        }
        compared += 1;
        if compared > 400 {
            break;
        }
        let commands = literal::parse(&line).unwrap();
        let mut judged: Vec<Vec<String>> = commands
            .iter()
            .map(|command| {
                command
                    .words
                    .iter()
                    .map(|word| word.text.clone())
                    .collect::<Vec<_>>()
            })
            .filter(|words| PROGRAMS.contains(&&*words[0]))
            .collect();
        judged.sort();
        // Every program succeeds, so all of them run, unless the line branches.
        let runs_all = !line.contains("||") && !line.contains("cd sub");
        for shell in &shells {
            let mut ran = run(shell, &line, root.path());
            if !runs_all {
                let mut remaining = judged.clone();
                for words in ran.drain(..) {
                    let at = remaining.iter().position(|it| *it == words);
                    remaining
                        .remove(at.unwrap_or_else(|| panic!("{shell} ran {words:?}: {line:?}")));
                }
                continue;
            }
            assert_eq!(ran, judged, "{shell}: {line:?}");
        }
    }
    assert!(
        compared > 300,
        "only {compared} lines were compared: the test is no longer meaningful"
    );
    assert_eq!(fs::read_dir(&work).unwrap().count(), 6, "a line wrote");
}
