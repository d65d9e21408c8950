//! Detection of commands that one program runs on behalf of another.
//!
//! `sh -c`, `env`, `timeout`, `xargs` and others run what their arguments say. The policy must
//! judge that inner command, and not the wrapper. A form that is not certain gives
//! [`Inner::Unclear`], which needs approval.

use super::judge::name;

/// Shells whose `-c` option takes a line.
const SHELLS: [&str; 13] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh", "yash", "posh", "fish", "csh",
    "tcsh",
];

pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program)
}

/// The command that a program runs for its caller.
pub(super) enum Inner {
    None,
    /// A line for a shell, in this word.
    Line(usize),
    /// A program, from this word on.
    Words(usize),
    Unclear,
}

/// Programs that do nothing but run another program.
pub(super) const WRAPPERS: [&str; 14] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "command", "env", "exec", "nice", "nohup", "stdbuf",
    "timeout", "xargs",
];

/// Programs and shell builtins that run or rename others in ways that the policy does not follow.
const RUNNERS: &str = ". alias bind busybox capsh chroot chrt compgen complete doas enable entr \
    eval fakeroot fc flock hash \
    ionice ltrace mapfile nsenter numactl parallel pkexec readarray runuser script setsid sg \
    source ssh \
    strace su sudo systemd-run taskset time trap unshare watch";

/// Returns `true` if some shells run a part of a text that is used as a number or a variable:
/// `a[$(rm b)]`.
fn runs_index(text: &str) -> bool {
    text.contains('[') && text.contains(['$', '`'])
}

/// Finds the command that a program runs.
///
/// For example, `timeout 60 cargo test` gives `Words(2)`, `sh -c 'ls'` gives `Line(2)`, and `sudo
/// ls` is unclear.
pub(super) fn inner(texts: &[&str]) -> Inner {
    let program = name(texts[0]);
    if is_shell(program) {
        return shell_inner(texts);
    }
    match program {
        "command" | "exec" | "nohup" | "builtin" => after_options(texts, "", "", 0),
        "nice" => after_options(texts, "", "n", 0),
        "stdbuf" => after_options(texts, "", "ioe", 0),
        "timeout" => after_options(texts, "v", "ks", 1),
        "xargs" => xargs_inner(texts),
        "env" if texts.len() == 1 => Inner::None,
        "env" => match texts.get(1) {
            Some(text) if !text.starts_with('-') && !text.contains('=') => Inner::Words(1),
            _ => Inner::Unclear,
        },
        "test" | "[" | "printf" | "let" | "declare" | "typeset" | "local" | "export"
        | "readonly" | "read" | "unset"
            if texts[1..].iter().any(|text| runs_index(text)) =>
        {
            Inner::Unclear
        }
        _ if RUNNERS.split(' ').any(|runner| runner == program) => Inner::Unclear,
        _ => Inner::None,
    }
}

/// Finds the program that `xargs` runs. Its input may become a part of any argument, and so of a
/// line for a shell. With `-a` it reads a file that the other checks do not see.
fn xargs_inner(texts: &[&str]) -> Inner {
    match after_options(texts, "0rtx", "InPLdEs", 0) {
        Inner::Words(at)
            if texts
                .get(at)
                .is_some_and(|text| WRAPPERS.contains(&name(text))) =>
        {
            Inner::Unclear
        }
        other => other,
    }
}

/// Returns the texts that `xargs` with these options replaces with words of its input.
pub(super) fn xargs_replaces<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let attached = options
        .iter()
        .filter_map(|option| option.strip_prefix("-I"));
    let behind = options
        .windows(2)
        .filter(|pair| pair[0] == "-I")
        .map(|pair| pair[1]);
    attached
        .chain(behind)
        .filter(|text| !text.is_empty())
        .collect()
}

/// Finds the program after options, some of which take the next word as a value, and after `skip`
/// more words.
///
/// `flags` are options without a value, and `valued` those with one: `nice -n 5 make` has the
/// program at 3.
fn after_options(texts: &[&str], flags: &str, valued: &str, skip: usize) -> Inner {
    let mut at = 1;
    while let Some(option) = texts.get(at).and_then(|text| text.strip_prefix('-')) {
        match option.chars().next() {
            Some(first) if valued.contains(first) => at += 1 + usize::from(option.len() == 1),
            Some(_) if option.chars().all(|char| flags.contains(char)) => at += 1,
            // A value that looks like a program may follow.
            _ => return Inner::Unclear,
        }
    }
    Inner::Words(at + skip)
}

/// Only `-c` with at most two of the harmless flags `e`, `l`, `u` and `x` is accepted, followed by
/// the line.
fn shell_inner(texts: &[&str]) -> Inner {
    // Other options take a word themselves, and the line follows that word.
    let takes_line = |text: &&str| {
        let flags = text
            .strip_prefix('-')
            .and_then(|text| text.strip_suffix('c'));
        flags.is_some_and(|flags| {
            flags.len() <= 2 && flags.chars().all(|flag| "elux".contains(flag))
        })
    };
    match texts.get(1) {
        // Options may follow it, and the line follows them.
        Some(option)
            if takes_line(option) && texts.len() > 2 && !texts[2].starts_with(['-', '+']) =>
        {
            Inner::Line(2)
        }
        _ => Inner::Unclear,
    }
}
