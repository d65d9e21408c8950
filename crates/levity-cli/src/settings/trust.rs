//! The agreement of the user with the settings of a folder.
//!
//! A folder from a stranger must not start programs or redirect text merely because a user calls
//! levity in it. Settings that can do so are refused until the user runs `levity trust`, which
//! shows them first.
//!
//! The agreement covers the content of `levity.toml` and of all files that decide what levity does:
//! the folders of tools, agents and prompts, the config of MCP servers, and a script. levity stores
//! a hash of each, so a changed, added or removed file needs a new agreement; the error names it.
//! Programs that these files start are not covered.
//!
//! Agreements lie in the state folder of the user, one file for each folder, which no folder from
//! elsewhere can bring along.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use levity::core::__private::sha256;
use levity_system::{Replace, files};
use serde::{Deserialize, Serialize};

use super::file::MODEL_TABLES;
use super::file::Setting;
use super::{CONTROL_FILES, Choice, FILE, NEEDS_TRUST, Origin, SettingsFile, Value};
use crate::terminal::{note, print_text, report_error, shell_quote};
use crate::{mcp, state};

/// The maximum number of files that an agreement covers.
const MAX_FILES: usize = 2_000;

/// The maximum size of these files together: 64 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// The maximum number of changed files that an error names.
const MAX_NAMED: usize = 5;

/// The arguments of `levity trust`.
#[derive(Args)]
pub(crate) struct TrustArgs {
    /// Only show the settings that need trust.
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
struct Agreement {
    folder: PathBuf,
    files: BTreeMap<String, String>,
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
    let agreement = Agreement::of(&file)?;
    show(&settings, &agreement);
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

/// Trusts the settings of a folder that this program has just created.
///
/// # Errors
/// Returns an error if the agreement cannot be stored.
pub(crate) fn trust_new(root: &Command) -> Result<(), String> {
    match SettingsFile::read(root)? {
        Some(file) => Agreement::of(&file)?.store(),
        None => Ok(()),
    }
}

/// Refuses settings that need trust, unless the user trusts the folder as it is.
///
/// Only the settings of this call count: a command that uses none of them works in every folder.
/// `tables` names the tables of models that the call uses.
pub(super) fn check(
    file: &SettingsFile,
    choices: &[Choice],
    tables: &[&str],
) -> Result<(), String> {
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
        return Ok(());
    }
    let agreement = Agreement::of(file)?;
    let Some(stored) = Agreement::stored(&agreement.folder) else {
        let needed = needed.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "`{FILE}` in this folder is not trusted and sets {needed}; run `levity trust` to see \
                and accept its settings, or use `--no-settings` to ignore the file"
        ));
    };
    match changes(&stored, &agreement) {
        changes if changes.is_empty() => Ok(()),
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
    Ok(!needed || Agreement::of(file)?.is_stored())
}

fn needs_trust(setting: &Setting) -> bool {
    value_needs_trust(&setting.name, &setting.value)
}

/// A flag that is switched off gives nothing away. A model needs trust if it names an address
/// (`x:y@URL`) or a project of an account (`vertex:projects/..`).
fn value_needs_trust(name: &str, value: &Value) -> bool {
    match value {
        Value::Flag(false) => false,
        Value::Texts(texts) if name == "model" => {
            texts.iter().any(|text| text.contains(['@', '/']))
        }
        _ => NEEDS_TRUST.contains(&name) || MODEL_TABLES.contains(&name),
    }
}

impl Agreement {
    /// Returns the agreement with the current content of the folder.
    ///
    /// # Errors
    /// A file cannot be read, or there are too many of them to check.
    fn of(file: &SettingsFile) -> Result<Self, String> {
        let folder = std::env::current_dir().and_then(fs::canonicalize);
        let folder = folder.map_err(|error| format!("cannot find the current folder: {error}"))?;
        let mut hashes = Hashes::default();
        hashes.add(Path::new(FILE))?;
        for setting in file.all() {
            if let (true, Value::Texts(texts)) =
                (CONTROL_FILES.contains(&&*setting.name), &setting.value)
            {
                texts
                    .iter()
                    .try_for_each(|path| hashes.add(Path::new(path)))?;
            }
        }
        Ok(Self {
            folder,
            files: hashes.files,
        })
    }

    /// Returns the file that stores the agreement about a folder.
    fn path(folder: &Path) -> Result<PathBuf, String> {
        Ok(state::folder()?.join("trust").join(state::name_of(folder)))
    }

    /// Returns the stored agreement about a folder. A damaged one counts as none.
    fn stored(folder: &Path) -> Option<Self> {
        let bytes = files::read_at_most(&Self::path(folder).ok()?, MAX_BYTES).ok()?;
        let stored: Self = serde_json::from_slice(&bytes).ok()?;
        (stored.folder == folder).then_some(stored)
    }

    fn is_stored(&self) -> bool {
        Self::stored(&self.folder).is_some_and(|stored| stored == *self)
    }

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

/// Describes how files differ from those that the user agreed to.
fn changes(stored: &Agreement, now: &Agreement) -> Vec<String> {
    let paths: BTreeSet<_> = stored.files.keys().chain(now.files.keys()).collect();
    // The settings come first, because they decide which other files count.
    let (settings, others): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| *path == FILE);
    let changed = settings.into_iter().chain(others).filter_map(|path| {
        let verb = match (stored.files.get(path), now.files.get(path)) {
            (Some(before), Some(after)) if before == after => return None,
            (Some(_), Some(_)) => "was changed",
            (None, _) => "was added",
            (_, None) if Path::new(path).exists() => "is no longer named",
            (_, None) => "was removed",
        };
        Some(format!("`{path}` {verb}"))
    });
    let mut changed: Vec<_> = changed.collect();
    if changed.len() > MAX_NAMED {
        let more = changed.len() - MAX_NAMED;
        changed.truncate(MAX_NAMED);
        changed.push(format!("{more} other files differ"));
    }
    changed
}

/// The hashes of files, within limits.
#[derive(Default)]
struct Hashes {
    files: BTreeMap<String, String>,
    bytes: u64,
}

impl Hashes {
    /// Adds a file, or all files below a folder. A missing one counts too, because levity would use
    /// it once it exists.
    ///
    /// Links are followed only if they are named in the settings. Within a folder, the target of a
    /// link counts as its content, and what the target contains does too if it is a file.
    fn add(&mut self, named: &Path) -> Result<(), String> {
        let mut open = vec![named.to_owned()];
        while let Some(path) = open.pop() {
            let failed = |error: io::Error| format!("cannot read `{}`: {error}", path.display());
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound && path == named => {
                    self.insert(&path, "missing".to_owned())?;
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let is_dir = match path == named {
                true => path.is_dir(),
                false => metadata.is_dir(),
            };
            if is_dir {
                let entries = fs::read_dir(&path).map_err(failed)?;
                for entry in entries.take(MAX_FILES + 1) {
                    open.push(entry.map_err(failed)?.path());
                }
                self.check_number(open.len() + self.files.len(), named)?;
                continue;
            }
            let target = match metadata.is_symlink() {
                true => fs::read_link(&path).map_err(failed)?.display().to_string(),
                false => String::new(),
            };
            let content = match fs::metadata(&path) {
                Ok(found) if found.is_file() => self.content(&path)?,
                Ok(found) if found.is_dir() && metadata.is_symlink() => "folder".to_owned(),
                Err(_) if metadata.is_symlink() => "missing".to_owned(),
                Ok(_) => {
                    return Err(format!(
                        "`{}` is neither a file nor a folder; remove it",
                        path.display()
                    ));
                }
                Err(error) => return Err(failed(error)),
            };
            self.insert(&path, format!("{content}{target}"))?;
        }
        Ok(())
    }

    fn content(&mut self, path: &Path) -> Result<String, String> {
        let bytes = files::read_at_most(path, MAX_BYTES)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        self.bytes += bytes.len() as u64;
        match self.bytes > MAX_BYTES {
            true => Err(format!(
                "the files that `{FILE}` names have more than {} MiB together, too much to check; \
                    name smaller ones",
                MAX_BYTES >> 20
            )),
            false => Ok(sha256(&bytes)),
        }
    }

    /// Two names that are not UTF-8 could look the same in the list, so they are errors.
    fn insert(&mut self, path: &Path, hash: String) -> Result<(), String> {
        let Some(name) = path.to_str() else {
            return Err(format!(
                "the name of `{}` is not UTF-8, so it cannot be checked; rename the file",
                path.display()
            ));
        };
        self.files.insert(name.to_owned(), hash);
        self.check_number(self.files.len(), path)
    }

    fn check_number(&self, files: usize, path: &Path) -> Result<(), String> {
        match files > MAX_FILES {
            true => Err(format!(
                "`{}`: the folders that `{FILE}` names have more than {MAX_FILES} files, too many \
                    to check; name smaller ones",
                path.display()
            )),
            false => Ok(()),
        }
    }
}

/// Prints the settings that need trust, and what each allows.
///
/// Every text from the folder is quoted or sanitized, so it cannot imitate a line of levity.
fn show(settings: &[&Setting], agreement: &Agreement) {
    let file = agreement.folder.join(FILE).display().to_string();
    print_text(&format!("{}\n", file.replace('\n', "\u{fffd}")));
    for setting in settings {
        let text = setting.text();
        print_text(&format!("  {text}\n      {}\n", allows(&setting.name)));
        if let ("mcp", Value::Texts(texts)) = (&*setting.name, &setting.value) {
            for line in texts.iter().flat_map(|path| mcp::programs(Path::new(path))) {
                print_text(&format!("      - {line}\n"));
            }
        }
    }
    let others = agreement.files.keys().filter(|path| *path != FILE);
    let others: Vec<_> = others.map(|path| shell_quote(path).into_owned()).collect();
    if !others.is_empty() {
        print_text("  files that are trusted too:\n");
        for path in others {
            print_text(&format!("      - {path}\n"));
        }
    }
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
        "assume-price" => "limits on money assume this price for models with an unknown price",
        "commander" => "this command runs outside any sandbox, for each task of a client",
        "allow-plaintext" | "allow-host" | "allow-origin" | "listen" | "http" | "client-model"
        | "offer" | "tool-routes" | "read-limit" => "servers accept or offer this",
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

fn remove() -> Result<ExitCode, String> {
    let folder = std::env::current_dir().and_then(fs::canonicalize);
    let folder = folder.map_err(|error| format!("cannot find the current folder: {error}"))?;
    let path = Agreement::path(&folder)?;
    match fs::remove_file(&path) {
        Ok(()) => note("this folder is no longer trusted"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            note("this folder was not trusted");
        }
        Err(error) => return Err(format!("cannot remove `{}`: {error}", path.display())),
    }
    Ok(ExitCode::SUCCESS)
}
