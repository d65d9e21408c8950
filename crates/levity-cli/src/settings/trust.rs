//! The agreement of the user with the settings of a folder.
//!
//! A folder from a stranger must not start programs or redirect text merely because a user calls
//! levity in it. Settings that can do so are refused until the user runs `levity trust`, which
//! shows them first.
//!
//! The agreement covers the content of `levity.toml` and of all files that decide what levity does:
//! the folders of tools, agents and prompts, the config of MCP servers, and a script. levity stores
//! a hash of each, so a changed, added or removed file needs a new agreement; the error names it.
//! Programs that these files start are not covered. Each file is read once (`control`): the hash,
//! the list that the user sees and the use of the file cannot differ.
//!
//! Agreements lie in the state folder of the user, one file for each folder, which no folder from
//! elsewhere can bring along.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use levity_system::{Replace, files};
use serde::{Deserialize, Serialize};

use super::control::{Contents, MAX_BYTES, plain};
use super::file::MODEL_TABLES;
use super::file::Setting;
use super::{CONTROL_FILES, Choice, DEFAULTS, FILE, NEEDS_TRUST, Origin, SettingsFile, Value};
use crate::terminal::{note, print_text, report_error, shell_quote};
use crate::{mcp, state};

/// The maximum number of changed files that an error names.
const MAX_NAMED: usize = 5;

/// The maximum number of files, and of programs of one setting, that are shown with the question.
const MAX_SHOWN: usize = 20;

/// The maximum number of characters of a shown line.
const MAX_LINE: usize = 400;

/// The maximum number of agreements to read.
const MAX_FOLDERS: usize = 2_000;

/// The arguments of `levity trust`.
#[derive(Args)]
pub(crate) struct TrustArgs {
    /// Only show the settings that need trust, with all files and complete lines.
    #[arg(long, conflicts_with_all = ["yes", "remove"])]
    show: bool,
    /// Trust the settings without asking.
    #[arg(long, short)]
    yes: bool,
    /// Withdraw the trust in this folder.
    #[arg(long, conflicts_with = "yes")]
    remove: bool,
}

/// The files to which the user agreed: the hash of each, by its path.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) folder: PathBuf,
    pub(super) files: BTreeMap<String, String>,
}

/// Shows the settings of the current folder that need trust, and stores the agreement of the user.
///
/// Exit codes: 0 if the folder is trusted or nothing needs trust, 1 if the user declines, 2 for an
/// invalid call or file.
pub(crate) fn trust(args: &TrustArgs, root: &Command) -> ExitCode {
    match run(args, root) {
        Ok(code) => code,
        Err(problem) => report_error(&problem, 2),
    }
}

/// Shows the settings that need trust, and asks the user unless the arguments answer already.
fn run(args: &TrustArgs, root: &Command) -> Result<ExitCode, String> {
    if args.remove {
        return remove();
    }
    let Some(file) = SettingsFile::read(root)? else {
        return Err(format!(
            "there is no `{FILE}` in this folder; create one with `levity init`"
        ));
    };
    let settings: Vec<_> = file.all().iter().filter(|one| needs_trust(one)).collect();
    if settings.is_empty() {
        note(&format!("no setting in `{FILE}` needs trust"));
        return Ok(ExitCode::SUCCESS);
    }
    let (agreement, contents) = Agreement::of(&file)?;
    show(&settings, &agreement, &contents, args.show);
    if args.show || !args.yes && agreement.is_stored() {
        let state = match agreement.is_stored() {
            true => "trusted",
            false => "not trusted",
        };
        note(&format!("this folder is {state}"));
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && !confirm()? {
        note("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    agreement.store()?;
    note("this folder is trusted until one of these files changes");
    Ok(ExitCode::SUCCESS)
}

/// Trusts the settings of a folder that this program has just created. `reference` has the same
/// files, where no other program can have changed them.
///
/// # Errors
/// Returns an error if the files of the two folders differ, or if the agreement cannot be stored.
pub(crate) fn trust_new(folder: &Path, reference: &Path, root: &Command) -> Result<(), String> {
    let failed = |path: &Path, error| format!("cannot open `{}`: {error}", path.display());
    let folder = fs::canonicalize(folder).map_err(|error| failed(folder, error))?;
    // Paths in settings refer to the current folder.
    let agreement = |folder: &Path| {
        std::env::set_current_dir(folder).map_err(|error| failed(folder, error))?;
        let file = SettingsFile::read(root)?.ok_or(format!("`{FILE}` is missing"))?;
        Ok::<_, String>(Agreement::of(&file)?.0)
    };
    let expected = agreement(reference)?;
    let found = agreement(&folder)?;
    match describe(&changes(&expected.files, &found.files)) {
        changes if changes.is_empty() => found.store(),
        changes => Err(format!(
            "another program changed the new folder meanwhile: {}",
            changes.join(", ")
        )),
    }
}

/// Refuses settings that need trust, unless the user trusts the folder as it is.
///
/// Only the settings of this call count: a command that uses none of them works in every folder.
/// `tables` names the tables of models that the call uses. Returns the content of the files that
/// control levity, as the user trusts it, if a setting of this call needs trust.
pub(super) fn check(
    file: &SettingsFile,
    choices: &[Choice],
    tables: &[&str],
) -> Result<Option<Contents>, String> {
    let needed: BTreeSet<_> = choices
        .iter()
        .filter(|choice| matches!(choice.origin, Origin::Line(_)))
        .filter(|choice| {
            let value = choice.value.as_ref();
            value.is_some_and(|value| value_needs_trust(choice.name, value))
        })
        .map(|choice| choice.name)
        .chain(tables.iter().copied())
        .map(|name| format!("`{name}`"))
        .collect();
    if needed.is_empty() {
        return Ok(None);
    }
    let (agreement, contents) = Agreement::of(file)?;
    let Some(stored) = Agreement::stored(&agreement.folder) else {
        let needed = needed.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "`{FILE}` in this folder is not trusted and sets {needed}; run `levity trust` to see \
                and accept its settings, or use `--no-settings` to ignore the file"
        ));
    };
    match describe(&changes(&stored.files, &agreement.files)) {
        changes if changes.is_empty() => Ok(Some(contents)),
        changes => Err(format!(
            "you trusted this folder, but since then {}; run `levity trust` to see and accept the \
                settings again, or use `--no-settings` to ignore the file",
            changes.join(", ")
        )),
    }
}

/// Returns `true` if the current folder is trusted as it is.
pub(super) fn is_trusted(file: &SettingsFile) -> Result<bool, String> {
    let needed = file.all().iter().any(needs_trust);
    Ok(!needed || Agreement::of(file)?.0.is_stored())
}

/// Returns `true` if a setting of the file has no effect without the agreement of the user.
fn needs_trust(setting: &Setting) -> bool {
    value_needs_trust(&setting.name, &setting.value)
}

/// A flag that is switched off gives nothing away. A model needs trust if it names an address
/// (`x:y@URL`) or a project of an account (`vertex:projects/..`). Values that let a run cost more
/// than without the file need trust too.
fn value_needs_trust(name: &str, value: &Value) -> bool {
    let Value::Texts(texts) = value else {
        let is_on = *value == Value::Flag(true);
        return is_on && NEEDS_TRUST.contains(&name);
    };
    match name {
        "model" => texts.iter().any(|text| text.contains(['@', '/'])),
        "planner" | "reflector" => texts.iter().any(|text| text == "model"),
        // A model judges each text.
        "guard" => texts.iter().any(|text| text.starts_with("topic:")),
        "thinking" => !texts
            .iter()
            .all(|text| matches!(&**text, "off" | "0" | "auto")),
        _ => match DEFAULTS.iter().find(|(limit, _)| *limit == name) {
            Some((_, default)) => texts.iter().any(|text| !is_at_most(text, *default)),
            None => NEEDS_TRUST.contains(&name) || MODEL_TABLES.contains(&name),
        },
    }
}

/// Returns `true` for a number up to a maximum. A text that is no number needs trust.
fn is_at_most(text: &str, max: u32) -> bool {
    text.parse::<f64>()
        .is_ok_and(|number| number <= f64::from(max))
}

impl Agreement {
    /// Returns the agreement with the current content of the folder, and that content.
    ///
    /// # Errors
    /// A file cannot be read, or there are too many of them to check.
    fn of(file: &SettingsFile) -> Result<(Self, Contents), String> {
        let folder = current_folder()?;
        let mut contents = Contents::default();
        for setting in file.all() {
            if let (true, Value::Texts(texts)) =
                (CONTROL_FILES.contains(&&*setting.name), &setting.value)
            {
                texts
                    .iter()
                    .try_for_each(|path| contents.add(Path::new(path)))?;
            }
        }
        let mut files = contents.hashes();
        // The settings in use are those of the bytes with this hash.
        files.insert(FILE.to_owned(), file.hash().to_owned());
        Ok((Self { folder, files }, contents))
    }

    /// Returns the file that stores the agreement about a folder.
    pub(super) fn path(folder: &Path) -> Result<PathBuf, String> {
        Ok(state::folder()?.join("trust").join(state::name_of(folder)))
    }

    /// Returns the stored agreement about a folder. A damaged one counts as none.
    pub(super) fn stored(folder: &Path) -> Option<Self> {
        let stored = Self::read(&Self::path(folder).ok()?)?;
        (stored.folder == folder).then_some(stored)
    }

    /// Reads an agreement; `None` if it is missing, damaged or too large.
    fn read(path: &Path) -> Option<Self> {
        let bytes = files::read_at_most(path, MAX_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Returns `true` if the user agreed to exactly these files.
    fn is_stored(&self) -> bool {
        Self::stored(&self.folder).is_some_and(|stored| stored == *self)
    }

    /// Replaces the stored agreement about the folder by this one.
    fn store(&self) -> Result<(), String> {
        let path = Self::path(&self.folder)?;
        let failed = |error: io::Error| format!("cannot write `{}`: {error}", path.display());
        if let Some(above) = path.parent() {
            state::create(above)?;
        }
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other);
        text.and_then(|text| Replace::new(&path).synced().write(&text))
            .map_err(failed)
    }
}

/// Returns the current folder with its links resolved.
pub(super) fn current_folder() -> Result<PathBuf, String> {
    let folder = std::env::current_dir().and_then(fs::canonicalize);
    folder.map_err(|error| format!("cannot find the current folder: {error}"))
}

/// Returns the agreements of the user about all folders.
pub(super) fn agreements() -> Vec<Agreement> {
    let Ok(folder) = state::folder() else {
        return Vec::new();
    };
    let entries = fs::read_dir(folder.join("trust")).into_iter().flatten();
    let paths = entries
        .take(MAX_FOLDERS)
        .flatten()
        .map(|entry| entry.path());
    paths.filter_map(|path| Agreement::read(&path)).collect()
}

/// Returns the paths of files that differ, with the verb that describes the change.
pub(super) fn changes(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Vec<(String, &'static str)> {
    let paths: BTreeSet<_> = before.keys().chain(now.keys()).collect();
    // The settings come first, because they decide which other files count.
    let (settings, others): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| *path == FILE);
    let changed = settings.into_iter().chain(others).filter_map(|path| {
        let verb = match (before.get(path), now.get(path)) {
            (Some(before), Some(after)) if before == after => return None,
            (Some(_), Some(_)) => "was changed",
            (None, _) => "was added",
            (_, None) if Path::new(path).exists() => "is no longer named",
            (_, None) => "was removed",
        };
        Some((path.clone(), verb))
    });
    changed.collect()
}

/// Describes how files differ from those that the user agreed to.
fn describe(changes: &[(String, &str)]) -> Vec<String> {
    let named = changes.iter().take(MAX_NAMED);
    let mut texts: Vec<_> = named
        .map(|(path, verb)| format!("`{}` {verb}", plain(path)))
        .collect();
    if changes.len() > MAX_NAMED {
        texts.push(format!("{} other files differ", changes.len() - MAX_NAMED));
    }
    texts
}

/// Prints the settings that need trust, and what each allows, after the files that are trusted too.
///
/// The settings come last, next to the question, and long lists are shortened: a folder with many
/// files could otherwise push them out of sight. Every text from the folder is on one line, so it
/// cannot imitate a line of levity.
fn show(settings: &[&Setting], agreement: &Agreement, contents: &Contents, everything: bool) {
    let folder = agreement.folder.join(FILE).display().to_string();
    let mut lines = vec![plain(&folder)];
    let others = agreement.files.keys().filter(|path| *path != FILE);
    let others: Vec<_> = others
        .map(|path| format!("      - {}", shell_quote(&plain(path))))
        .collect();
    if !others.is_empty() {
        lines.push("  files that are trusted too:".to_owned());
        lines.extend(shortened(others, everything));
    }
    for setting in settings {
        lines.push(format!("  {}", plain(&setting.text())));
        lines.push(format!("      {}", allows(&setting.name)));
        if let ("mcp", Value::Texts(texts)) = (&*setting.name, &setting.value) {
            let paths = texts.iter().map(Path::new);
            let programs = paths.flat_map(|path| mcp::programs(path, &contents.text(path)));
            let programs = programs.map(|line| format!("      - {}", plain(&line)));
            lines.extend(shortened(programs.collect(), everything));
        }
    }
    for line in lines {
        print_text(&format!("{}\n", cut(line, everything)));
    }
}

/// Returns the first lines of a list, and the number of the others.
fn shortened(mut lines: Vec<String>, everything: bool) -> Vec<String> {
    if !everything && lines.len() > MAX_SHOWN {
        let more = lines.len() - MAX_SHOWN;
        lines.truncate(MAX_SHOWN);
        lines.push(format!(
            "      and {more} more; `levity trust --show` lists all"
        ));
    }
    lines
}

/// Returns the start of a line, and the number of the other characters.
fn cut(line: String, everything: bool) -> String {
    let count = line.chars().count();
    if everything || count <= MAX_LINE {
        return line;
    }
    let start: String = line.chars().take(MAX_LINE).collect();
    let more = count - MAX_LINE;
    format!("{start} … and {more} more characters; `levity trust --show` prints all")
}

/// Explains what a setting allows.
fn allows(name: &str) -> &'static str {
    match name {
        "workspace" => {
            "agents read and change the files of this folder, and run commands that you approve"
        }
        "allow" => "commands that begin with these words run without approval",
        "weak" => "commands run even if they cannot be isolated from your other files",
        "network" => "commands use the network",
        "tools" => "agents call the Python functions and programs of this folder",
        "mcp" => "these servers start with your rights, or receive what agents send them",
        "agents" => "the agents of a team have these instructions, models and tools",
        "prompts" => "clients of `levity serve mcp` can use these prompts",
        "script" => "this file answers in place of a model",
        "web" => "agents fetch pages from the web",
        "profiles" => "these models and options can be chosen by name",
        "servers" => "these servers receive your text and the key that each names",
        "searxng" => "this server receives what agents search for",
        "recall" => "levity stores answers here, and gives them to later runs",
        "debug-log" => "levity writes all prompts and replies here",
        "model" => "this server receives your text and answers it",
        "offer-model" => "clients of the server can send their text to these models",
        "thinking" => "models think more than without this setting, which costs more",
        "guard" => "a model judges each text, which costs a call",
        "planner" | "reflector" => "the agent calls its model more often, which costs more",
        "token-share" => {
            "one client can use a larger share of the server than without this setting"
        }
        limit if DEFAULTS.iter().any(|(name, _)| *name == limit) => {
            "a run can cost more than without this setting"
        }
        "assume-price" => "limits on money assume this price for models with an unknown price",
        "commander" => "this command runs outside any sandbox, for each task of a client",
        "allow-plaintext" | "allow-host" | "allow-origin" | "allow-changes" | "listen" | "http"
        | "client-model" | "offer" | "tool-routes" | "read-limit" => "servers accept or offer this",
        _ => "levity reads and writes its data here",
    }
}

/// Asks the user on the terminal.
///
/// # Errors
/// Returns an error if there is no terminal: a pipe must not agree by accident.
fn confirm() -> Result<bool, String> {
    if !io::stdin().is_terminal() {
        return Err("there is no terminal to ask on; add `--yes` to trust this folder".to_owned());
    }
    let _ = write!(io::stderr(), "Trust these settings? [y/N] ");
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| format!("cannot read the standard input: {error}"))?;
    Ok(matches!(&*line.trim().to_lowercase(), "y" | "yes"))
}

/// Withdraws the trust in the current folder.
fn remove() -> Result<ExitCode, String> {
    let path = Agreement::path(&current_folder()?)?;
    match fs::remove_file(&path) {
        Ok(()) => note("this folder is no longer trusted"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            note("this folder was not trusted");
        }
        Err(error) => return Err(format!("cannot remove `{}`: {error}", path.display())),
    }
    Ok(ExitCode::SUCCESS)
}
