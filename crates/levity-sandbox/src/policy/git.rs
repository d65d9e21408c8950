//! Commands of git: which change nothing, and which show what is in files.

use super::reach::{Scene, join, long_is, relative, short_has};
use super::read_only::no_option;
use super::repository::{self, Repository};
use crate::Workspace;

/// What it costs to look into a repository, in entries of folders.
const INSPECTION: usize = 500;

/// A command of git, without the folder that `-C` names.
struct Git<'a> {
    folder: Option<&'a str>,
    command: &'a str,
    rest: &'a [&'a str],
}

impl<'a> Git<'a> {
    fn of(args: &'a [&'a str]) -> Option<Self> {
        // `git -C dir status` is as good as `git status`; other options before the command can run programs.
        match args {
            ["-C", folder, command, rest @ ..] => Some(Self { folder: Some(folder), command, rest }),
            [command, rest @ ..] => Some(Self { folder: None, command, rest }),
            [] => None,
        }
    }

    fn words(&self) -> Vec<&'a str> {
        self.rest.iter().copied().filter(|arg| !arg.starts_with('-')).collect()
    }
}

/// Options that write a file, run a program, or have git read files that it does not track.
const ACTS: [&str; 14] = [
    "--output",
    "--ext-diff",
    "--textconv",
    "--open-files-in-pager",
    "--exec",
    "--upload-pack",
    "--show-signature",
    "--remerge-diff",
    "--no-index",
    "--untracked",
    "--verify",
    "--filters",
    "--recurse-submodules",
    "--submodule",
];

/// Whether a command of git changes nothing, as far as its arguments tell.
pub(super) fn only_reads(args: &[&str]) -> bool {
    let Some(git) = Git::of(args) else { return false };
    let (rest, words) = (git.rest, git.words());
    // `%G?` has signatures verified by a program, and so has `%(signature)`.
    let verifies = |arg: &&str| arg.contains("%G") || arg.contains("%(signature") || arg.contains("remerge");
    let is_revision_check = git.command == "rev-parse" && rest.contains(&"--verify");
    let acts: Vec<&str> = ACTS.into_iter().filter(|act| *act != "--verify" || !is_revision_check).collect();
    if !no_option(rest, "O", &acts) || rest.iter().any(verifies) {
        return false;
    }
    match git.command {
        "status" | "log" | "diff" | "show" | "rev-parse" | "ls-files" | "ls-tree" | "blame" | "describe"
        | "shortlog" | "grep" | "name-rev" | "merge-base" | "rev-list" | "count-objects" | "check-ignore"
        | "whatchanged" | "cherry" | "diff-tree" | "version" | "--version" => true,
        "branch" => words.is_empty() && no_option(rest, "dDmMcCuf", &BRANCH_WRITES),
        "tag" => words.is_empty() && no_option(rest, "asufdFmev", &["--delete", "--edit", "--sign"]),
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

/// Checks what a command of git that only reads would run, and which files it would show.
///
/// # Errors
/// The reason to ask.
pub(super) fn check(space: Option<&Workspace>, scene: &mut Scene, args: &[&str]) -> Result<(), String> {
    let Some(git) = Git::of(args) else { return Ok(()) };
    if matches!(git.command, "version" | "--version") {
        return Ok(());
    }
    let Some(space) = space else {
        return Err("which programs the repository has git run is not known".to_owned());
    };
    let mut places = Vec::new();
    for folder in scene.folders()?.to_vec() {
        scene.spend(INSPECTION)?;
        let folder = git.folder.map_or_else(|| folder.clone(), |below| join(&folder, below));
        let repository = repository::inspect(space, &folder)?;
        places.push(Place { folder, repository });
    }
    if space.denies_nothing() || shows_no_denied(space, &git, &places) {
        return Ok(());
    }
    Err(format!("`git {}` may show what is kept apart; name single files after `--`", git.command))
}

/// Where a command may run, and the repository that git finds there.
struct Place {
    folder: String,
    repository: Option<Repository>,
}

/// Whether a command shows no contents of files, or only of such as are not denied.
fn shows_no_denied(space: &Workspace, git: &Git<'_>, places: &[Place]) -> bool {
    let words = git.words();
    let tracks_denied =
        places.iter().any(|place| place.repository.as_ref().is_none_or(|found| found.tracks_denied));
    match git.command {
        "status" => !git.rest.iter().any(|arg| short_has(arg, "v") || long_is(arg, &["verbose"])),
        "log" | "whatchanged" | "reflog" | "stash" => {
            shows_names(git.rest) || single_files(space, git, places)
        }
        "diff"
            if words.is_empty() && git.rest.iter().all(|arg| is_name_option(arg) || is_patch_option(arg)) =>
        {
            // What differs from the index is tracked in it; what differs from a commit may be tracked no longer.
            let is_staged =
                git.rest.iter().any(|arg| matches!(*arg, "--cached" | "--staged" | "--merge-base"));
            (!tracks_denied && !is_staged) || asks_for_names(git.rest)
        }
        "diff" | "diff-tree" => asks_for_names(git.rest) || single_files(space, git, places),
        "show" => {
            asks_for_names(git.rest)
                || single_files(space, git, places)
                || (!words.is_empty() && words.iter().all(|word| is_file_of_revision(space, places, word)))
        }
        "grep" => {
            let simple = |arg: &&&str| short_only(arg, "cEFGHhiIlLnPqvwW") || is_number(arg);
            let options = git.rest.iter().filter(|arg| arg.starts_with('-'));
            words.len() == 1 && !tracks_denied && options.into_iter().all(|arg| simple(&arg))
        }
        // Where it comes from may have a password in it.
        "remote" => git.rest.is_empty() || !space.denies(".git/config"),
        "config" => {
            let key = git.rest.last().map(|key| key.to_ascii_lowercase()).unwrap_or_default();
            let open = ["core.", "user.", "init.", "branch.", "color.", "pull.", "push."];
            open.iter().any(|open| key.starts_with(open)) || !space.denies(".git/config")
        }
        // Names and messages; of `blame`, one file that is named.
        _ => true,
    }
}

/// Whether all options are such as show names, numbers and messages.
fn shows_names(rest: &[&str]) -> bool {
    rest.iter().filter(|arg| arg.starts_with('-')).all(|arg| is_name_option(arg))
}

/// The same, and one of them replaces what would be shown otherwise.
fn asks_for_names(rest: &[&str]) -> bool {
    let replaces = |arg: &&str| {
        let name = arg.split('=').next().unwrap_or(arg);
        NAMES.contains(&name) || *arg == "-s"
    };
    shows_names(rest) && rest.iter().any(replaces)
}

/// Whether all that is shown is limited to files that are named behind `--` and tracked. What is not may have been a folder
/// once, whose files would be shown.
fn single_files(space: &Workspace, git: &Git<'_>, places: &[Place]) -> bool {
    let Some(at) = git.rest.iter().position(|arg| *arg == "--") else { return false };
    let (options, files) = (&git.rest[..at], &git.rest[at + 1..]);
    let is_file = |file: &str| {
        let plain = !file.starts_with([':', '-', '/']) && !file.contains(['*', '?', '[', '\\']);
        plain && places.iter().all(|place| is_tracked(space, place, file))
    };
    let follows = |arg: &&str| long_is(arg, &["follow"]);
    let mut options = options.iter().filter(|arg| arg.starts_with('-'));
    !files.is_empty()
        && files.iter().all(|file| is_file(file))
        && options.all(|arg| (is_name_option(arg) || is_patch_option(arg)) && !follows(arg))
}

/// Whether a path leads to a tracked file that is not denied.
fn is_tracked(space: &Workspace, place: &Place, file: &str) -> bool {
    let path = space.root().join(join(&place.folder, file));
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let real = path.canonicalize().ok().and_then(|real| relative(space, &real));
    let (Some(found), Some(real)) = (&place.repository, real) else { return false };
    is_file && !space.denies(&real) && found.files.contains(&real)
}

/// `HEAD:src/main.rs`: one file, which is not denied. The path begins where the repository does, or with `./` where the
/// command runs.
fn is_file_of_revision(space: &Workspace, places: &[Place], word: &str) -> bool {
    let Some((_, path)) = word.split_once(':') else { return false };
    // `:0:a` is a file of the index.
    let path = path.split_once(':').map_or(path, |(_, path)| path);
    let is_odd =
        word.contains(['{', '}']) || word.starts_with(":/") || path.is_empty() || path.starts_with('/');
    let is_open = |place: &Place| {
        let above = place.repository.as_ref().map(|found| &found.folder);
        let paths = above.into_iter().chain([&place.folder]).map(|folder| join(folder, path));
        paths.into_iter().all(|path| !space.denies(&path))
    };
    !is_odd && places.iter().all(is_open)
}

fn is_number(arg: &str) -> bool {
    arg.strip_prefix('-')
        .is_some_and(|number| !number.is_empty() && number.chars().all(|char| char.is_ascii_digit()))
}

/// Whether an argument is made of these short options alone.
fn short_only(arg: &str, short: &str) -> bool {
    arg.strip_prefix('-')
        .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| short.contains(flag)))
}

/// Options that show names or numbers in place of contents.
const NAMES: [&str; 9] = [
    "--stat",
    "--shortstat",
    "--numstat",
    "--name-only",
    "--name-status",
    "--summary",
    "--no-patch",
    "--quiet",
    "--dirstat",
];

/// Options that show nothing of files beside their names.
const HARMLESS: [&str; 47] = [
    "--",
    "--abbrev",
    "--abbrev-commit",
    "--after",
    "--all",
    "--author",
    "--author-date-order",
    "--before",
    "--branches",
    "--cached",
    "--cherry",
    "--color",
    "--committer",
    "--date",
    "--date-order",
    "--decorate",
    "--diff-filter",
    "--first-parent",
    "--follow",
    "--format",
    "--graph",
    "--grep",
    "--left-right",
    "--max-count",
    "--merge-base",
    "--merges",
    "--no-color",
    "--no-decorate",
    "--no-merges",
    "--no-pager",
    "--no-renames",
    "--no-walk",
    "--oneline",
    "--pretty",
    "--regexp-ignore-case",
    "--relative",
    "--relative-date",
    "--remotes",
    "--reverse",
    "--simplify-by-decoration",
    "--since",
    "--skip",
    "--staged",
    "--tags",
    "--topo-order",
    "--until",
    "--walk-reflogs",
];

fn is_name_option(arg: &str) -> bool {
    let name = arg.split('=').next().unwrap_or(arg);
    let count = arg.strip_prefix("-n").is_some_and(|count| count.chars().all(|char| char.is_ascii_digit()));
    NAMES.contains(&name)
        || HARMLESS.contains(&name)
        || count
        || is_number(arg)
        || matches!(arg, "-s" | "-i" | "-r" | "-z" | "-g")
}

/// Options that show how files differ, and nothing else than those that are named.
fn is_patch_option(arg: &str) -> bool {
    let name = arg.split('=').next().unwrap_or(arg);
    let long = [
        "--patch",
        "--unified",
        "--word-diff",
        "--color-words",
        "--ignore-all-space",
        "--ignore-space-change",
        "--ignore-blank-lines",
        "--histogram",
        "--patience",
        "--minimal",
        "--function-context",
    ];
    let context = arg.strip_prefix("-U").is_some_and(|count| count.chars().all(|char| char.is_ascii_digit()));
    long.contains(&name) || context || matches!(arg, "-p" | "-u" | "-w" | "-b" | "-W" | "-R")
}
