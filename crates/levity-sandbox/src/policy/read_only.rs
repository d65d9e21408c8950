//! Commands that only read, as far as their arguments tell.

use super::git;

/// Whether a program with these arguments changes nothing.
pub(super) fn only_reads(program: &str, args: &[&str]) -> bool {
    match program {
        // A file of names would be shown line by line, as names that are not there.
        "find" => {
            none(args, &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-files0-from"])
                && no_prefix(args, "-fprint")
        }
        "wc" | "du" => no_option(args, "", &["--files0-from"]),
        "cksum" | "md5sum" | "sha1sum" | "sha256sum" | "sha512sum" => no_option(args, "c", &["--check"]),
        // Its programs may read other files as modules.
        "jq" => {
            no_option(args, "L", &["--library-path"])
                && !args.iter().any(|arg| arg.contains("import") || arg.contains("include"))
        }
        "fd" | "fdfind" => no_option(args, "xX", &["--exec", "--exec-batch"]),
        "rg" => no_option(args, "z", &["--pre", "--pre-glob", "--hostname-bin", "--search-zip"]),
        "sort" => no_option(
            args,
            "oT",
            &["--output", "--compress-program", "--temporary-directory", "--files0-from"],
        ),
        // With `-R` it writes a page into each folder.
        "tree" => no_option(args, "oR", &["--output"]),
        "date" => no_option(args, "s", &["--set"]) && args.iter().all(|arg| arg.starts_with(['-', '+'])),
        // A second name would be written to.
        "uniq" => none(args, &["--"]) && args.iter().filter(|arg| is_name(arg)).count() <= 1,
        // Where it is a part of the shell it can set a variable.
        "printf" => no_option(args, "v", &[]) && computes_nothing(args),
        "test" | "[" => none(args, &["-v", "-R"]) && computes_nothing(args),
        "base64" => no_option(args, "o", &["--output"]),
        "hostname" | "env" | "printenv" | "pwd" => args.is_empty(),
        "sed" => prints_lines(args),
        "git" => git::only_reads(args),
        "file" => no_option(args, "Cmfp", &["--compile", "--magic-file", "--files-from", "--preserve-date"]),
        _ if PLAIN.contains(&program) => true,
        _ if TELL_VERSION.contains(&program) => matches!(args, ["--version"]),
        _ => false,
    }
}

/// Whether no argument can make a program write or run something, so that names of files may stand for options.
pub(super) fn is_harmless(program: &str) -> bool {
    PLAIN.contains(&program)
}

/// Programs that write nothing and run nothing, whatever their arguments are.
const PLAIN: [&str; 51] = [
    "basename",
    "cat",
    "cd",
    "cksum",
    "cmp",
    "column",
    "comm",
    "cut",
    "df",
    "diff",
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
    "tr",
    "true",
    "uname",
    "wc",
    "which",
    "whoami",
];

/// Programs whose version is told by themselves. For others a file of the working directory says which program of that
/// name runs: `rust-toolchain.toml` for `cargo`, `.yarnrc.yml` for `yarn`, `.tool-versions` for all that have shims.
const TELL_VERSION: [&str; 4] = ["clang", "cmake", "gcc", "make"];

fn none(args: &[&str], forbidden: &[&str]) -> bool {
    !args.iter().any(|arg| forbidden.contains(arg))
}

/// Whether an argument is no option: `-` alone is a name, for the input.
fn is_name(arg: &str) -> bool {
    arg == "-" || !arg.starts_with('-')
}

/// Some shells compute what stands for a number, and run what stands for an index of it: `a[$(rm b)]`.
fn computes_nothing(args: &[&str]) -> bool {
    !args.iter().any(|arg| arg.contains('[') && arg.contains(['$', '`']))
}

fn no_prefix(args: &[&str], prefix: &str) -> bool {
    !args.iter().any(|arg| arg.starts_with(prefix))
}

/// Whether none of these options is there: long ones also shortened or with a value, short ones also among others.
pub(super) fn no_option(args: &[&str], short: &str, long: &[&str]) -> bool {
    !args.iter().any(|arg| match arg.strip_prefix("--") {
        Some("") => false,
        Some(name) => {
            let name = name.split('=').next().unwrap_or(name);
            long.iter().any(|long| long.trim_start_matches('-').starts_with(name))
        }
        None => arg.starts_with('-') && arg.contains(|char| short.contains(char)),
    })
}

/// `sed -n 3,7p file`: all other scripts may write files or run programs.
fn prints_lines(args: &[&str]) -> bool {
    let ["-n", script, files @ ..] = args else { return false };
    let lines = script.strip_suffix('p').unwrap_or("");
    !lines.is_empty()
        && lines.chars().all(|char| char.is_ascii_digit() || char == ',' || char == '$')
        && !files.iter().any(|file| file.starts_with('-'))
}
