//! Programs that only read, and the files that they reach.
//!
//! Such a program runs read-only, and the kernel enforces that. The lists of options only avoid
//! runs that would fail: a command that tries to write needs approval. The list of filters, which
//! read no file at all, must be exact: they may run in one line with commands that have more
//! rights.

use super::shell::Word;

/// Returns `true` if a program with these arguments changes nothing.
pub(super) fn only_reads(program: &str, args: &[&str]) -> bool {
    match program {
        "find" => {
            none(
                args,
                &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls"],
            ) && !args.iter().any(|arg| arg.starts_with("-fprint"))
        }
        // With `-l` it runs `ls`.
        "fd" | "fdfind" => no_option(args, "lxX", &["--list-details", "--exec", "--exec-batch"]),
        "rg" => no_option(
            args,
            "z",
            &["--pre", "--pre-glob", "--hostname-bin", "--search-zip"],
        ),
        "sort" => no_option(
            args,
            "oT",
            &["--output", "--compress-program", "--temporary-directory"],
        ),
        // With `-l` it runs `pr`.
        "diff" => no_option(args, "l", &["--paginate"]),
        // With `-R` it writes a page into each folder.
        "tree" => no_option(args, "oR", &["--output"]),
        "date" => {
            no_option(args, "s", &["--set"]) && args.iter().all(|arg| arg.starts_with(['-', '+']))
        }
        // It would write to a second name.
        "uniq" => none(args, &["--"]) && args.iter().filter(|arg| is_name(arg)).count() <= 1,
        // As a shell builtin it can set a variable.
        "printf" => no_option(args, "v", &[]),
        "base64" => no_option(args, "o", &["--output"]),
        "hostname" | "env" | "printenv" | "pwd" => args.is_empty(),
        "sed" => prints_lines(args),
        // With `-z` it runs the program that decompresses a file.
        "file" => no_option(
            args,
            "CpzZ",
            &[
                "--compile",
                "--preserve-date",
                "--uncompress",
                "--uncompress-noreport",
            ],
        ),
        _ if PLAIN.contains(&program) => true,
        _ if PRINT_VERSION.contains(&program) => matches!(args, ["--version"]),
        _ => false,
    }
}

/// Returns `true` if a file may determine which other files a program reads, or what it does. No
/// word of the line names those files.
pub(super) fn reads_named_by_file(program: &str, args: &[&str]) -> bool {
    match program {
        "sort" | "wc" | "du" => !no_option(args, "", &["--files0-from"]),
        "find" => !none(args, &["-files0-from"]),
        "file" => !no_option(args, "f", &["--files-from"]),
        "cksum" | "md5sum" | "sha1sum" | "sha256sum" | "sha512sum" => {
            !no_option(args, "c", &["--check"])
        }
        // The file contains more arguments.
        "strings" => args.iter().any(|arg| arg.starts_with('@')),
        // A jq program can name modules and data.
        "jq" => {
            let names = |arg: &&str| arg.contains("import") || arg.contains("include");
            !no_option(args, "f", &["--from-file"]) || args.iter().any(names)
        }
        _ => false,
    }
}

/// Programs that write nothing, run nothing and read no other files, even if the name of a file is
/// an option to them.
const GLOB_SAFE: &str = "basename cat cmp comm cut dirname echo egrep fgrep fold grep head ls \
    nl paste readlink realpath rev stat tac tail";

/// Returns `true` if a program may do more than read because of the expansion of a glob: the name
/// of a file can be any option.
pub(super) fn is_unsafe_with_glob(program: &str, word: &Word) -> bool {
    let is_safe = GLOB_SAFE.split_whitespace().any(|name| name == program);
    may_run_program(program, word) || (word.may_be_option() && !is_safe)
}

/// Returns `true` if a program that only reads may run another one because of the expansion of a
/// word.
pub(super) fn may_run_program(program: &str, word: &Word) -> bool {
    match program {
        // As shell builtins, they run a part of the name: `a[$(rm b)]`.
        "[" | "printf" | "test" => word.expands,
        "diff" | "fd" | "fdfind" | "file" | "find" | "rg" | "sed" | "sort" => word.may_be_option(),
        _ => false,
    }
}

/// Returns `true` if a program that only reads may show contents of files that its arguments name.
/// `expands` is set if the shell replaces an argument with names of files, which may look like
/// options.
pub(super) fn shows_files(program: &str, args: &[&str], expands: bool) -> bool {
    match program {
        "echo" | "ls" => false,
        _ if expands => true,
        "[" | "cd" | "df" | "env" | "hostname" | "printenv" | "printf" | "ps" | "readlink"
        | "realpath" | "stat" | "test" | "which" => false,
        "date" => !no_option(args, "fr", &["--file", "--reference"]),
        "find" => !none(args, &["-files0-from"]),
        "du" => !no_option(args, "X", &["--files0-from", "--exclude-from"]),
        _ => !is_filter(program, args),
    }
}

/// Programs that work on their input if no argument names a file. Each entry lists options, options
/// with a value, and the number of arguments that are not files.
const FILTERS: &[(&str, &str, &str, usize)] = &[
    ("cat", "nbsAETv", "", 0),
    ("column", "t", "s", 0),
    ("cut", "sz", "dfcb", 0),
    ("egrep", GREP_FLAGS, GREP_VALUED, 1),
    ("fgrep", GREP_FLAGS, GREP_VALUED, 1),
    ("fold", "sb", "w", 0),
    ("grep", GREP_FLAGS, GREP_VALUED, 1),
    ("head", "qvz", "nc", 0),
    ("nl", "p", "bdfhilnsvw", 0),
    ("rev", "", "", 0),
    ("sort", "bdfghiMnRrVuzs", "kt", 0),
    ("tac", "", "", 0),
    ("tail", "qvz", "nc", 0),
    ("tr", "cCdst", "", 2),
    ("uniq", "cdiuz", "fsw", 0),
    ("wc", "lwcmL", "", 0),
];

const GREP_FLAGS: &str = "EFGPivnwxcqohHlLasyz";
const GREP_VALUED: &str = "meABC";

/// Long options that many filters share, and that name no file.
const LONG: [&str; 8] = [
    "--color=always",
    "--color=auto",
    "--color=never",
    "--count",
    "--ignore-case",
    "--invert-match",
    "--line-number",
    "--only-matching",
];

/// Returns `true` if a program works on its arguments and its input alone. Such a program may run
/// in one line with commands that have more rights.
pub(super) fn is_filter(program: &str, args: &[&str]) -> bool {
    match program {
        "basename" | "dirname" | "echo" | "false" | "id" | "nproc" | "pwd" | "seq" | "sleep"
        | "true" | "uname" | "whoami" => return true,
        "date" => return args.iter().all(|arg| arg.starts_with('+') || *arg == "-u"),
        // Only `-n 1,5p` without a file is a filter.
        "sed" => return args.len() == 2 && prints_lines(args),
        _ => {}
    }
    let Some((_, flags, valued, words)) = FILTERS.iter().find(|(name, ..)| *name == program) else {
        return false;
    };
    let (mut at, mut count, mut has_pattern) = (0, 0, false);
    while let Some(arg) = args.get(at) {
        at += 1;
        if LONG.contains(arg) {
            continue;
        }
        match arg.strip_prefix('-') {
            Some(short) if !short.is_empty() => {
                if short.bytes().all(|byte| byte.is_ascii_digit()) {
                    continue;
                }
                let value = short.find(|char| valued.contains(char));
                if !short[..value.unwrap_or(short.len())]
                    .chars()
                    .all(|flag| flags.contains(flag))
                {
                    return false;
                }
                has_pattern |= value.is_some_and(|value| short[value..].starts_with('e'));
                at += usize::from(value.is_some_and(|value| value + 1 == short.len()));
            }
            _ => count += 1,
        }
    }
    let words = if has_pattern { 0 } else { *words };
    at == args.len() && count <= words
}

/// Programs that write nothing and run nothing, whatever their arguments are.
const PLAIN: [&str; 52] = [
    "[",
    "basename",
    "cat",
    "cd",
    "cksum",
    "cmp",
    "column",
    "comm",
    "cut",
    "df",
    "dirname",
    "du",
    "echo",
    "egrep",
    "expand",
    "false",
    "fgrep",
    "fmt",
    "fold",
    "grep",
    "head",
    "hexdump",
    "id",
    "join",
    "jq",
    "ls",
    "md5sum",
    "nl",
    "nproc",
    "od",
    "paste",
    "ps",
    "readlink",
    "realpath",
    "rev",
    "seq",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "sleep",
    "stat",
    "strings",
    "sum",
    "tac",
    "tail",
    "test",
    "tr",
    "true",
    "uname",
    "wc",
    "which",
    "whoami",
];

/// Programs that print their own version. For others, a file of the working directory selects which
/// program of that name runs: `rust-toolchain.toml` for `cargo`, `.yarnrc.yml` for `yarn`,
/// `.tool-versions` for all that have shims.
const PRINT_VERSION: [&str; 5] = ["clang", "cmake", "gcc", "git", "make"];

fn none(args: &[&str], forbidden: &[&str]) -> bool {
    !args.iter().any(|arg| forbidden.contains(arg))
}

/// Returns `true` if an argument is not an option: `-` alone is a name, for the input.
fn is_name(arg: &str) -> bool {
    arg == "-" || !arg.starts_with('-')
}

/// Returns `true` if none of these options is present. Long options also match if shortened or with
/// a value, short ones also in a group.
fn no_option(args: &[&str], short: &str, long: &[&str]) -> bool {
    !args.iter().any(|arg| match arg.strip_prefix("--") {
        Some("") => false,
        Some(name) => {
            let name = name.split('=').next().unwrap_or(name);
            long.iter()
                .any(|long| long.trim_start_matches('-').starts_with(name))
        }
        None => arg.starts_with('-') && arg.contains(|char| short.contains(char)),
    })
}

/// Returns `true` for `sed -n 3,7p file`: all other scripts may write files or run programs.
fn prints_lines(args: &[&str]) -> bool {
    let ["-n", script, files @ ..] = args else {
        return false;
    };
    let lines = script.strip_suffix('p').unwrap_or("");
    !lines.is_empty()
        && lines
            .chars()
            .all(|char| char.is_ascii_digit() || char == ',' || char == '$')
        && !files.iter().any(|file| file.starts_with('-'))
}
