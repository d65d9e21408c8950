//! Commands of git that are known to show nothing of files but names, or only of files that are tracked.
//!
//! A command of git can read `.git`, and so every version of every file. Its options and operands are therefore on a list;
//! whatever is not is asked about.

use super::judge::join;
use super::repository::{self, Inspected};
use crate::Workspace;

/// What a command of git shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    /// Nothing of a repository.
    Nothing,
    /// Names, numbers and messages; or the contents of a file in the working tree, which the kernel guards.
    Names,
    /// Contents of files that the index tracks.
    Tracked,
}

/// A command of git, without the folder that `-C` names.
#[derive(Debug)]
pub(super) struct Git<'a> {
    folder: Option<&'a str>,
    command: &'a str,
    rest: &'a [&'a str],
}

/// Options that a command may have: short ones, short ones with a value, and long ones. A long one that ends in `=` has
/// a value behind it.
struct Options {
    flags: &'static str,
    valued: &'static str,
    long: &'static [&'static [&'static str]],
}

/// The arguments of a command whose options are all known.
struct Parsed<'a> {
    options: Vec<&'a str>,
    words: Vec<&'a str>,
    /// What stands behind `--`.
    paths: Vec<&'a str>,
}

impl<'a> Git<'a> {
    pub(super) fn of(args: &'a [&'a str]) -> Option<Self> {
        // Other options before the command can name repositories and settings.
        match args {
            ["-C", folder, command, rest @ ..] => Some(Self { folder: Some(folder), command, rest }),
            [command, rest @ ..] => Some(Self { folder: None, command, rest }),
            [] => None,
        }
    }

    /// What it shows; nothing where that is not known.
    pub(super) fn shows(&self) -> Option<Shows> {
        let parse = |options: &Options| Parsed::of(self.rest, options);
        let only_names = |fits: bool| fits.then_some(Shows::Names);
        match self.command {
            "version" | "--version" if self.rest.is_empty() => Some(Shows::Nothing),
            "status" => parse(&STATUS).map(|_| Shows::Names),
            "log" => only_names(parse(&LOG)?.has_revisions()),
            "shortlog" => only_names(parse(&SHORTLOG)?.has_revisions()),
            "rev-list" => only_names(parse(&REV_LIST)?.has_revisions()),
            "show" => {
                let parsed = parse(&LOG)?;
                // Any other name, and so any list of names, may be that of a file's contents.
                let lists = parsed.has(&["--all", "--branches", "--remotes", "--tags"]);
                let is_commit =
                    !lists && !parsed.words.is_empty() && parsed.words.iter().all(|word| is_commit(word));
                only_names(is_commit && parsed.asks_for_names())
            }
            "diff" => {
                let parsed = parse(&DIFF)?;
                let is_staged = parsed.has(&["--cached", "--staged"]);
                match parsed.asks_for_names() && !parsed.asks_for_contents() {
                    true => only_names(parsed.has_revisions()),
                    // What differs from a commit may be tracked no longer.
                    false => (parsed.words.is_empty() && !is_staged).then_some(Shows::Tracked),
                }
            }
            "grep" => {
                let parsed = parse(&GREP)?;
                let value = |option: &&str| option.chars().find(|char| GREP.valued.contains(*char));
                let short = |option: &&&str| !option.starts_with("--");
                let mut options = parsed.options.iter().filter(short);
                let has_pattern = options.any(|option| value(option) == Some('e'));
                (parsed.words.len() == usize::from(!has_pattern)).then_some(Shows::Tracked)
            }
            "blame" => {
                let parsed = parse(&BLAME)?;
                only_names(parsed.words.len() + parsed.paths.len() == 1)
            }
            "branch" => only_names(parse(&BRANCH)?.is_bare()),
            // With other options it shows what a tag is for, which may be any file.
            "tag" => match self.rest {
                [] => Some(Shows::Names),
                ["-l" | "--list", patterns @ ..] => {
                    only_names(!patterns.iter().any(|pattern| pattern.starts_with('-')))
                }
                _ => None,
            },
            "remote" => only_names(self.rest.is_empty()),
            "rev-parse" => only_names(parse(&REV_PARSE)?.has_revisions()),
            "describe" => only_names(parse(&DESCRIBE)?.has_revisions()),
            "merge-base" => only_names(parse(&MERGE_BASE)?.has_revisions()),
            "ls-files" => parse(&LS_FILES).map(|_| Shows::Names),
            "ls-tree" => parse(&LS_TREE).map(|_| Shows::Names),
            "check-ignore" => parse(&CHECK_IGNORE).map(|_| Shows::Names),
            "count-objects" => only_names(parse(&COUNT_OBJECTS)?.is_bare()),
            _ => None,
        }
    }

    /// Checks which file it names, and what the repositories in these folders would have it show.
    ///
    /// # Errors
    /// The reason to ask.
    pub(super) fn check(
        &self,
        space: &Workspace,
        folders: &[String],
        shows: Shows,
        line: &mut Inspected,
    ) -> Result<(), String> {
        for folder in folders {
            let folder = self.folder.map_or_else(|| folder.clone(), |below| join(folder, below));
            let options = if self.command == "blame" { &BLAME } else { &DIFF };
            let parsed = Parsed::of(self.rest, options).filter(|_| matches!(self.command, "blame" | "diff"));
            let operands = parsed.map_or_else(Vec::new, |parsed| [parsed.words, parsed.paths].concat());
            let mut paths = operands.iter().map(|operand| join(&folder, operand));
            if self.command == "blame" && paths.clone().any(|path| is_kept_apart(space, &path)) {
                return Err("it shows a file that is kept apart".to_owned());
            }
            // Where git finds no repository that it uses, it compares any two files or folders, those of `.git` too.
            let is_open = |path: &str| !is_kept_apart(space, path) && !space.root().join(path).is_dir();
            if self.command == "diff" && operands.len() > 1 && !paths.all(|path| is_open(&path)) {
                return Err("git may find no repository that it uses, and then compares any files".to_owned());
            }
            let tracks_denied = repository::inspect(space, &folder, shows == Shows::Tracked, line)?;
            if tracks_denied && shows == Shows::Tracked {
                return Err(format!(
                    "`git {}` may show what is kept apart: a denied file is tracked",
                    self.command
                ));
            }
        }
        Ok(())
    }
}

/// Returns whether a path is denied, or leads to what is denied or elsewhere: the kernel leaves `.git` open to git, and a folder on the way
/// may be a link into it.
fn is_kept_apart(space: &Workspace, path: &str) -> bool {
    let real = match space.root().join(path).canonicalize() {
        Ok(real) => real,
        Err(error) => return !repository::is_absent(&error) || space.denies(path),
    };
    space.denies(path) || repository::relative(space, &real).is_none_or(|real| space.denies(&real))
}

impl<'a> Parsed<'a> {
    /// Takes arguments apart; nothing if an option is not on the list.
    fn of(rest: &[&'a str], options: &Options) -> Option<Self> {
        let mut parsed = Self { options: Vec::new(), words: Vec::new(), paths: Vec::new() };
        let mut at = 0;
        while let Some(&arg) = rest.get(at) {
            at += 1;
            if arg == "--" {
                parsed.paths.extend(&rest[at..]);
                break;
            }
            if arg.starts_with("--") {
                options.has_long(arg).then(|| parsed.options.push(arg))?;
            } else if let Some(short) = arg.strip_prefix('-').filter(|short| !short.is_empty()) {
                let is_number =
                    short.bytes().all(|byte| byte.is_ascii_digit()) && options.valued.contains('n');
                let value = short.find(|char| options.valued.contains(char));
                let flags = &short[..value.unwrap_or(short.len())];
                let is_known = flags.chars().all(|flag| options.flags.contains(flag));
                (is_number || is_known).then(|| parsed.options.push(arg))?;
                let behind = value.map(|value| short.split_at(value + 1));
                // Git takes a number for it only from the same word, and reads the next one as another option.
                if let Some((_, number)) = behind.filter(|(letters, _)| letters.ends_with('U')) {
                    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                    is_number.then_some(())?;
                } else if behind.is_some_and(|(_, attached)| attached.is_empty()) {
                    rest.get(at)?;
                    at += 1;
                }
            } else {
                parsed.words.push(arg);
            }
        }
        Some(parsed)
    }

    fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|option| names.contains(option))
    }

    fn is_bare(&self) -> bool {
        self.words.is_empty() && self.paths.is_empty()
    }

    fn has_revisions(&self) -> bool {
        self.words.iter().all(|word| is_revision(word))
    }

    /// Whether an option replaces the contents that would be shown otherwise.
    fn asks_for_names(&self) -> bool {
        self.options.iter().any(|option| {
            let name = option.split('=').next().unwrap_or(option);
            NAMES.iter().any(|names| names.trim_end_matches('=') == name) || *option == "-s"
        })
    }

    fn asks_for_contents(&self) -> bool {
        self.options.iter().any(|option| {
            let is_short = !option.starts_with("--") && option.contains(['p', 'u', 'U', 'W']);
            let name = option.split('=').next().unwrap_or(option);
            is_short || PATCH.iter().any(|patch| patch.trim_end_matches('=') == name)
        })
    }
}

impl Options {
    fn has_long(&self, arg: &str) -> bool {
        if let Some(format) = arg.strip_prefix("--format=").or_else(|| arg.strip_prefix("--pretty=")) {
            return self.long.iter().any(|long| long.contains(&"--format=")) && is_safe_format(format);
        }
        let name = arg.find('=').map_or(arg, |end| &arg[..=end]);
        self.long.iter().any(|long| long.contains(&name))
    }
}

/// Options that show names or numbers in place of contents.
const NAMES: &[&str] = &[
    "--stat",
    "--stat=",
    "--shortstat",
    "--numstat",
    "--name-only",
    "--name-status",
    "--summary",
    "--no-patch",
    "--quiet",
];

/// Options that show contents.
const PATCH: &[&str] =
    &["--patch", "--unified=", "--word-diff", "--word-diff=", "--color-words", "--function-context"];

/// Options that choose commits, and how they are shown.
const COMMITS: &[&str] = &[
    "--abbrev",
    "--abbrev=",
    "--abbrev-commit",
    "--after=",
    "--all",
    "--author=",
    "--before=",
    "--branches",
    "--color",
    "--color=",
    "--committer=",
    "--date=",
    "--date-order",
    "--decorate",
    "--decorate=",
    "--diff-filter=",
    "--first-parent",
    "--follow",
    "--format=",
    "--graph",
    "--grep=",
    "--left-right",
    "--max-count=",
    "--merges",
    "--no-abbrev-commit",
    "--no-color",
    "--no-decorate",
    "--no-merges",
    "--no-renames",
    "--no-walk",
    "--oneline",
    "--pretty",
    "--regexp-ignore-case",
    "--relative-date",
    "--remotes",
    "--reverse",
    "--simplify-by-decoration",
    "--since=",
    "--skip=",
    "--tags",
    "--topo-order",
    "--until=",
];

const LOG: Options = Options { flags: "isz", valued: "n", long: &[COMMITS, NAMES] };
const SHORTLOG: Options =
    Options { flags: "sne", valued: "", long: &[COMMITS, &["--summary", "--numbered", "--email"]] };
const REV_LIST: Options = Options { flags: "i", valued: "n", long: &[COMMITS, &["--count"]] };
const DIFF: Options = Options {
    flags: "pubwsWRz",
    valued: "U",
    long: &[
        NAMES,
        PATCH,
        &[
            "--cached",
            "--color",
            "--color=",
            "--diff-filter=",
            "--exit-code",
            "--find-renames",
            "--histogram",
            "--ignore-all-space",
            "--ignore-blank-lines",
            "--ignore-space-change",
            "--merge-base",
            "--minimal",
            "--no-color",
            "--no-ext-diff",
            "--no-prefix",
            "--no-renames",
            "--no-textconv",
            "--patience",
            "--relative",
            "--staged",
        ],
    ],
};
const STATUS: Options = Options {
    flags: "sbzuonalrm",
    valued: "",
    long: &[&[
        "--ahead-behind",
        "--branch",
        "--ignored",
        "--long",
        "--no-ahead-behind",
        "--no-renames",
        "--porcelain",
        "--porcelain=",
        "--short",
        "--show-stash",
        "--untracked-files",
        "--untracked-files=",
    ]],
};
const GREP: Options = Options {
    flags: "cEFGHhiIlLnPqvwW",
    valued: "ABCe",
    long: &[&[
        "--break",
        "--color",
        "--color=",
        "--count",
        "--extended-regexp",
        "--files-with-matches",
        "--fixed-strings",
        "--heading",
        "--ignore-case",
        "--line-number",
        "--name-only",
        "--no-color",
        "--perl-regexp",
        "--show-function",
        "--word-regexp",
    ]],
};
const BLAME: Options = Options {
    // Not `M` and `C`: what follows them in the same word is their value.
    flags: "wsleftnbc",
    valued: "L",
    long: &[&[
        "--date=",
        "--line-porcelain",
        "--porcelain",
        "--root",
        "--show-email",
        "--show-name",
        "--show-number",
    ]],
};
const BRANCH: Options = Options {
    flags: "avrl",
    valued: "",
    long: &[&[
        "--all",
        "--color",
        "--color=",
        "--list",
        "--merged",
        "--no-color",
        "--no-merged",
        "--remotes",
        "--show-current",
        "--verbose",
    ]],
};
const REV_PARSE: Options = Options {
    flags: "q",
    valued: "",
    long: &[&[
        "--abbrev-ref",
        "--absolute-git-dir",
        "--git-common-dir",
        "--git-dir",
        "--is-bare-repository",
        "--is-inside-work-tree",
        "--quiet",
        "--short",
        "--short=",
        "--show-cdup",
        "--show-prefix",
        "--show-toplevel",
        "--symbolic-full-name",
        "--verify",
    ]],
};
const DESCRIBE: Options = Options {
    flags: "",
    valued: "",
    long: &[&[
        "--abbrev=",
        "--all",
        "--always",
        "--contains",
        "--dirty",
        "--exact-match",
        "--first-parent",
        "--long",
        "--tags",
    ]],
};
const MERGE_BASE: Options =
    Options { flags: "a", valued: "", long: &[&["--all", "--fork-point", "--is-ancestor", "--octopus"]] };
const LS_FILES: Options = Options {
    flags: "cdmoikstuz",
    valued: "",
    long: &[&[
        "--cached",
        "--deleted",
        "--directory",
        "--error-unmatch",
        "--exclude-standard",
        "--full-name",
        "--modified",
        "--no-empty-directory",
        "--others",
        "--stage",
        "--unmerged",
    ]],
};
const LS_TREE: Options = Options {
    flags: "rtdlz",
    valued: "",
    long: &[&["--abbrev=", "--full-name", "--full-tree", "--long", "--name-only", "--name-status"]],
};
const CHECK_IGNORE: Options =
    Options { flags: "vnq", valued: "", long: &[&["--non-matching", "--quiet", "--verbose"]] };
const COUNT_OBJECTS: Options =
    Options { flags: "vH", valued: "", long: &[&["--human-readable", "--verbose"]] };

/// `HEAD~0`, `HEAD~2`, `HEAD^`: a commit, or an error. `HEAD` alone may be any object, if somebody has written its name there.
fn is_commit(word: &str) -> bool {
    let is_way = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'~' | b'^'));
    // `HEAD1` is a name of its own.
    word.strip_prefix("HEAD").is_some_and(|rest| is_way(rest) && rest.starts_with(['~', '^']))
}

/// Options of git itself that take the next word as a value.
const GLOBAL_VALUED: [&str; 8] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--config-env",
    "--super-prefix",
    "--attr-source",
];

/// A command of git without the options that stand before it, for rules that speak of the command.
pub(super) fn without_global_options<'a>(texts: &[&'a str]) -> Vec<&'a str> {
    let mut rest = texts.get(1..).unwrap_or_default();
    while let [option, after @ ..] = rest
        && option.starts_with('-')
    {
        rest = if GLOBAL_VALUED.contains(option) { after.get(1..).unwrap_or_default() } else { after };
    }
    std::iter::once("git").chain(rest.iter().copied()).collect()
}

/// A revision or a range, by names and numbers alone: no file of a revision, and no search for one.
fn is_revision(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./~^@-+".contains(&byte))
}

/// Whether a format shows nothing but names, numbers and messages. Others verify signatures by a program, or show notes.
fn is_safe_format(format: &str) -> bool {
    const KNOWN: [&str; 8] = ["oneline", "short", "medium", "full", "fuller", "reference", "email", "raw"];
    let format = format.strip_prefix("format:").or_else(|| format.strip_prefix("tformat:")).unwrap_or(format);
    let mut parts = format.split('%');
    let start = parts.next().unwrap_or_default();
    let mut is_escaped = false;
    let mut has_any = false;
    for part in parts {
        has_any = true;
        if is_escaped {
            is_escaped = false;
            continue;
        }
        // `%%` is a sign of its own, and what follows is text.
        is_escaped = part.is_empty();
        if !is_escaped && !is_safe_placeholder(part) {
            return false;
        }
    }
    // A name of its own may stand for any format, which the repository's settings say.
    has_any || KNOWN.contains(&start) || start.is_empty()
}

/// Whether the text behind a `%` begins with a placeholder that is known.
fn is_safe_placeholder(text: &str) -> bool {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some('H' | 'h' | 'T' | 't' | 'P' | 'p' | 'n' | 's' | 'f' | 'b' | 'B' | 'd' | 'D' | 'm'), _) => true,
        (Some('a'), Some(next)) => "nNeElLdDrtiIsh".contains(next),
        (Some('c'), Some(next)) => "nNeElLdDrtiIsh".contains(next),
        (Some('x'), Some(next)) => next.is_ascii_hexdigit(),
        (Some('C'), _) => ["Cred", "Cgreen", "Cblue", "Creset", "C("].iter().any(|it| text.starts_with(it)),
        (Some('<' | '>'), Some('(')) => true,
        _ => false,
    }
}
