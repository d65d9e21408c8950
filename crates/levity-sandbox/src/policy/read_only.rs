//! Commands that only read, as far as their arguments tell.

/// Whether a program with these arguments changes nothing.
pub(super) fn only_reads(program: &str, args: &[&str]) -> bool {
    match program {
        "find" => {
            none(args, &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls"])
                && no_prefix(args, "-fprint")
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
        "git" => git(args),
        "file" => no_option(args, "Cm", &["--compile", "--magic-file"]),
        _ if PLAIN.contains(&program) => true,
        _ if TELL_VERSION.contains(&program) => matches!(args, ["--version"]),
        _ => false,
    }
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

const TELL_VERSION: [&str; 20] = [
    "cargo", "clang", "cmake", "deno", "gcc", "go", "java", "make", "node", "npm", "npx", "perl", "pip",
    "pnpm", "python", "python3", "ruby", "rustc", "rustup", "yarn",
];

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
fn no_option(args: &[&str], short: &str, long: &[&str]) -> bool {
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

fn git(args: &[&str]) -> bool {
    // `git -C dir status` is as good as `git status`; other options before the command can run programs.
    let (command, rest) = match args {
        ["-C", _, command, rest @ ..] => (*command, rest),
        [command, rest @ ..] => (*command, rest),
        [] => return false,
    };
    let writes =
        &["--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--exec", "--upload-pack"];
    if !no_option(rest, "O", writes) {
        return false;
    }
    let words: Vec<&str> = rest.iter().copied().filter(|arg| !arg.starts_with('-')).collect();
    match command {
        "status" | "log" | "diff" | "show" | "rev-parse" | "ls-files" | "ls-tree" | "blame" | "describe"
        | "shortlog" | "grep" | "name-rev" | "merge-base" | "rev-list" | "count-objects" | "check-ignore"
        | "whatchanged" | "cherry" | "diff-tree" | "version" | "--version" => true,
        "branch" => words.is_empty() && no_option(rest, "dDmMcCuf", &BRANCH_WRITES),
        "tag" => words.is_empty() && no_option(rest, "asufdFme", &["--delete", "--edit", "--sign"]),
        "remote" => words.is_empty() || matches!(&*words, ["get-url", _]),
        "stash" | "worktree" => matches!(&*words, ["list"]),
        "config" => matches!(rest, ["--get" | "--get-all", _] | ["--list" | "-l"] | ["get", _] | ["list"]),
        "reflog" => words.is_empty() || words[0] == "show",
        _ => false,
    }
}

const BRANCH_WRITES: [&str; 9] = [
    "--delete",
    "--move",
    "--copy",
    "--force",
    "--set-upstream-to",
    "--unset-upstream",
    "--edit-description",
    "--create-reflog",
    "--track",
];
