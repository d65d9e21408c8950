//! Settings of a folder and of the environment, as options of the commands.
//!
//! The file `levity.toml` in the current folder and variables such as `LEVITY_WORKSPACE` supply
//! values for options that a call does not give. The names of settings are those of the options, so
//! a new option that is added to one of the two lists below becomes a setting without more code.
//!
//! Settings are added to the arguments of the call before clap parses them. Defaults, conflicts,
//! required options and errors therefore work as if the user had typed them. The order is: an
//! option of the call, a variable, the table of the command in the file (`[run]`, `[serve.http]`),
//! the top of the file, the default of the option. A value replaces the values of later sources as
//! a whole, also in a list.
//!
//! The folder may come from a stranger. Only a few settings are harmless; all others need the
//! agreement of the user, which `trust` stores. See the page on untrusted folders.

mod control;
mod file;
mod show;
mod trust;
mod trusted_tools;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::{Arg, ArgAction, Command, Id};
use levity::core::ToolSource;
use levity::llm::ModelList;
use levity::tools::FolderTools;

use control::Contents;

pub(crate) use control::{new_folder, plain, remove_copies};
pub(crate) use file::{FILE, SettingsFile, Value};
pub(crate) use show::{ConfigArgs, config};
pub(crate) use trust::{TrustArgs, trust, trust_new};
pub(crate) use trusted_tools::TrustedTools;

/// Settings that a folder may make without the agreement of the user.
///
/// They can neither start a program, nor change a file or an address, nor show a file to a model.
/// `model` is one of them only if it names neither an address nor a project. The values of
/// `guard`, `planner`, `reflector`, `thinking` and of the settings in [`DEFAULTS`] need trust if
/// they let a run cost more than without the file.
const HARMLESS: [&str; 33] = [
    "about",
    "ask",
    "ask-plan",
    "guard",
    "instructions",
    "limit-calls",
    "limit-cost",
    "limit-time",
    "limit-tokens",
    "limit-tool-calls",
    "max-delegations",
    "max-parallel",
    "max-replans",
    "max-runs",
    "max-tasks",
    "max-turns",
    "mcp-wait",
    "model",
    "name",
    "no-context",
    "park",
    "planner",
    "python",
    "quiet",
    "read-only",
    "reflector",
    "start",
    "talk",
    "text-tools",
    "thinking",
    "token-share",
    "view",
    "worker",
];

/// Settings that take effect only in a trusted folder.
const NEEDS_TRUST: [&str; 32] = [
    "agents",
    "allow",
    "allow-host",
    "allow-origin",
    "allow-plaintext",
    "assume-price",
    "bus",
    "cache",
    "client-model",
    "commander",
    "debug-log",
    "facts",
    "http",
    "journal",
    "listen",
    "logs",
    "mcp",
    "memory",
    "network",
    "offer",
    "offer-model",
    "prompts",
    "read-limit",
    "recall",
    "script",
    "searxng",
    "sessions",
    "tool-routes",
    "tools",
    "weak",
    "web",
    "workspace",
];

/// The defaults of limits, in the command where each is lowest. A higher value needs trust.
///
/// The other limits (`limit-cost`, `limit-time`, `limit-tokens`) have no default, so each value is
/// lower.
const DEFAULTS: [(&str, u32); 9] = [
    ("limit-calls", 1_000),
    ("limit-tool-calls", 10_000),
    ("max-delegations", 32),
    ("max-parallel", 16),
    ("max-replans", 3),
    ("max-runs", 64),
    ("max-tasks", 64),
    ("max-turns", 10),
    ("token-share", 25),
];

/// Settings whose files decide about what levity does and which programs it starts.
///
/// The content of these files is part of what a user trusts. A variable must name them by an
/// absolute path, because a relative one would mean another file in each folder.
const CONTROL_FILES: [&str; 5] = ["agents", "mcp", "prompts", "script", "tools"];

/// Commands whose results must not depend on the folder in which they are called, or that deal with
/// settings themselves.
const WITHOUT_SETTINGS: [&str; 7] = [
    "config", "eval", "help", "init", "models", "sandbox", "trust",
];

/// Options of commands that levity reads from the environment by other names, without settings.
///
/// A variable of this list only replaces the value in the file.
const OWN_VARIABLES: [(&str, &[&str]); 2] = [
    ("model", &["LEVITY_MODEL"]),
    ("mcp", &["LEVITY_MCP_SERVERS", "MCP_SERVERS_CONFIG"]),
];

/// The options that settings supplied to this process, by the ids that clap gives them.
static SUPPLIED: OnceLock<BTreeSet<String>> = OnceLock::new();

/// The files that control this process, and the settings of `levity.toml` that name them.
static CONTROL: OnceLock<Control> = OnceLock::new();

/// All commands with their options, for the settings of other folders.
static ROOT: OnceLock<Command> = OnceLock::new();

/// Files that settings may name, for a file of settings that cannot be read.
const USUAL_FILES: [&str; 7] = [
    "agents",
    "mcp.json",
    "mcp.yaml",
    "memory",
    "prompts",
    "script.json",
    "tools",
];

/// The trusted content of control files.
struct Control {
    contents: Contents,
    /// The settings that `levity.toml` supplies to this call.
    settings: BTreeSet<&'static str>,
}

/// The list of models that the settings define.
static MODELS: OnceLock<ModelList> = OnceLock::new();

/// Returns the list of models that the settings of this folder define.
pub(crate) fn models() -> Option<&'static ModelList> {
    MODELS.get()
}

/// Returns the files of levity that the settings of a workspace name, and the files of settings
/// themselves: an agent must not change what a later command does, wherever that is called.
///
/// Includes the current folder, and trusted folders below and above the workspace. The names count
/// even if this call ignores the settings.
pub(crate) fn named_files(workspace: &Path) -> Vec<PathBuf> {
    let mut folders = places_of_settings(workspace);
    folders.extend(agreements_near(workspace).map(|agreement| agreement.folder));
    folders.iter().flat_map(|folder| named_in(folder)).collect()
}

/// Returns the files that the settings of trusted folders near a workspace name.
pub(crate) fn named_by_trusted_settings(workspace: &Path) -> Vec<PathBuf> {
    let agreements = agreements_near(workspace);
    agreements
        .flat_map(|agreement| named_in(&agreement.folder))
        .collect()
}

/// Returns the files that matter for the trust in a workspace, even if they do not exist.
///
/// Without settings, an agent could create a file whose harmless settings apply without a question.
/// In a trusted folder whose settings were deleted, it could create all files again, with another
/// content. Otherwise the settings name these files.
pub(crate) fn trusted_files(workspace: &Path) -> Vec<PathBuf> {
    let settings = places_of_settings(workspace).into_iter();
    let mut files: Vec<_> = settings.map(|folder| folder.join(FILE)).collect();
    for agreement in agreements_near(workspace) {
        if !has_settings(&agreement.folder) {
            let names = agreement.files.keys();
            files.extend(names.map(|name| agreement.folder.join(name)));
        }
    }
    files
}

/// Returns `true` if a folder has a file of settings, or a link with this name. While a command
/// runs, an empty folder may take its place.
pub(crate) fn has_settings(folder: &Path) -> bool {
    let found = folder.join(FILE).symlink_metadata();
    found.is_ok_and(|found| !found.is_dir())
}

/// Returns the folders whose settings apply to the workspace: this one and the current one.
fn places_of_settings(workspace: &Path) -> BTreeSet<PathBuf> {
    let mut folders: BTreeSet<PathBuf> = std::env::current_dir().into_iter().collect();
    folders.insert(workspace.to_owned());
    folders
}

/// Returns the agreements about folders below and above the workspace.
fn agreements_near(workspace: &Path) -> impl Iterator<Item = trust::Agreement> {
    let agreements = trust::agreements().into_iter();
    agreements.filter(move |agreement| {
        let folder = &agreement.folder;
        folder.starts_with(workspace) || workspace.starts_with(folder)
    })
}

/// Returns the file of settings in a folder, and the files that it names.
fn named_in(folder: &Path) -> Vec<PathBuf> {
    if !has_settings(folder) {
        return Vec::new();
    }
    let read = |root| SettingsFile::read_in(folder, root).ok().flatten();
    let names = match ROOT.get().and_then(read) {
        Some(file) => file.paths(),
        None => USUAL_FILES.map(PathBuf::from).into(),
    };
    let names = names.into_iter().chain([PathBuf::from(FILE)]);
    names.map(|name| folder.join(name)).collect()
}

/// Returns the trusted content of the files that control levity, if `levity.toml` supplies this
/// setting and not the user in this call.
fn control(setting: &str) -> Option<&'static Contents> {
    let control = CONTROL.get()?;
    let is_supplied = control.settings.contains(setting);
    is_supplied.then_some(&control.contents)
}

/// Returns the text of the file that a setting names, if `levity.toml` supplies the setting.
///
/// The file itself must not be read again: it may have changed since its hash was checked.
pub(crate) fn control_text(setting: &str, path: &Path) -> Option<Result<String, String>> {
    Some(control(setting)?.text(path))
}

/// Reads the folder that a setting names.
///
/// If `levity.toml` supplies the setting, `read` gets a private copy of the trusted files, and the
/// name of the copy is replaced in errors.
pub(crate) fn with_folder<T>(
    setting: &str,
    folder: &Path,
    read: impl FnOnce(&Path) -> Result<T, String>,
) -> Result<T, String> {
    let Some(contents) = control(setting) else {
        return read(folder);
    };
    let copy = new_folder()?;
    contents.write(folder, &copy)?;
    let named = folder.display().to_string();
    read(&copy).map_err(|problem| problem.replace(&copy.display().to_string(), &named))
}

/// Opens the folder of tools that the setting `tools` names.
///
/// Tools of a folder that the user names in the call change with the folder; those of `levity.toml`
/// change only when the user trusts the folder again.
pub(crate) fn tools(
    folder: &Path,
    open: impl FnOnce(&Path) -> Result<FolderTools, String>,
) -> Result<Arc<dyn ToolSource>, String> {
    let Some(contents) = control("tools") else {
        return Ok(Arc::new(open(folder)?));
    };
    with_folder("tools", folder, |copy| {
        let files = contents.hashes_below(folder);
        Ok(Arc::new(TrustedTools::new(folder, copy, files, open(copy)?)?) as Arc<dyn ToolSource>)
    })
}

/// Returns `true` if a setting supplied the option, and not the user in this call.
///
/// Some commands refuse an option without effect. A setting serves many commands, so it may have no
/// effect on one of them.
pub(crate) fn is_supplied(id: &str) -> bool {
    SUPPLIED.get().is_some_and(|options| options.contains(id))
}

/// Returns the names of all settings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    HARMLESS.into_iter().chain(NEEDS_TRUST)
}

/// The source of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An option of the call.
    Call,
    /// A variable of the environment.
    Variable(String),
    /// A line of the file.
    Line(usize),
}

/// The value of one setting for a command.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The name of the setting.
    pub(crate) name: &'static str,
    /// The id of the option.
    id: Id,
    /// The name of the option on the command line, which may differ from that of the setting.
    long: String,
    /// `None` if the option is given in the call.
    pub(crate) value: Option<Value>,
    pub(crate) origin: Origin,
    /// The position in the arguments at which the option can be inserted.
    at: usize,
}

/// A call of the command, divided into its levels: the program, a command, a command below it.
struct Call<'a> {
    words: Vec<OsString>,
    levels: Vec<Level<'a>>,
}

/// A command of a call, and the options that were given to it.
struct Level<'a> {
    command: &'a Command,
    /// The position after the name of the command.
    at: usize,
    given: BTreeSet<Id>,
}

/// Returns the arguments of a call with the settings that apply to it.
///
/// # Errors
/// The file or a variable is invalid, or the file has settings that need trust and is not trusted.
pub(crate) fn add(root: &Command, words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let _ = ROOT.set(root.clone());
    let call = Call::new(root, words);
    if !call.has_settings() {
        return Ok(call.words);
    }
    let file = SettingsFile::read(root)?;
    let choices = call.choices(file.as_ref())?;
    if let Some(file) = &file {
        let tables: Vec<_> = match call.opens_models() {
            true => file.model_tables().collect(),
            false => Vec::new(),
        };
        if let Some(contents) = trust::check(file, &choices, &tables)? {
            let supplied = choices.iter().filter(|choice| choice.value.is_some());
            let supplied = supplied.filter(|choice| matches!(choice.origin, Origin::Line(_)));
            let settings = supplied.map(|choice| choice.name).collect();
            let _ = CONTROL.set(Control { contents, settings });
        }
        if !tables.is_empty() {
            let _ = MODELS.set(file.model_list());
        }
    }
    let supplied = choices.iter().filter(|choice| choice.value.is_some());
    let _ = SUPPLIED.set(supplied.map(|choice| choice.id.to_string()).collect());
    Ok(call.with(&choices))
}

/// Returns the command that a call without one means: that of the option `--start`, of a variable
/// or of the file.
///
/// # Errors
/// The file or the variable is invalid.
pub(crate) fn start(root: &Command, words: &[OsString]) -> Result<String, String> {
    let call = Call::new(root, words.to_vec());
    let level = &call.levels[0];
    let default = || Ok("chat".to_owned());
    if level.given.contains("start") {
        let given = root.clone().subcommand_required(false);
        let matches = given.try_get_matches_from(words).ok();
        let start = matches.and_then(|matches| {
            let mut values = matches.get_raw("start")?;
            Some(values.next()?.to_string_lossy().into_owned())
        });
        // An invalid value is reported when the complete call is parsed.
        return start.map_or_else(default, Ok);
    }
    if level.given.contains("no_settings") {
        return default();
    }
    let file = SettingsFile::read(root)?;
    let choices = call.choices(file.as_ref())?;
    let choice = choices.into_iter().find(|choice| choice.name == "start");
    match choice.and_then(|choice| choice.value) {
        Some(Value::Texts(texts)) => texts.into_iter().next().map_or_else(default, Ok),
        _ => default(),
    }
}

impl<'a> Call<'a> {
    /// Finds the commands of a call and the options that were given to each. A flag with a value
    /// (`--web=false`) becomes a flag that is given or absent.
    ///
    /// Words that are no options or commands of levity stay as they are; clap reports them.
    fn new(root: &'a Command, words: Vec<OsString>) -> Self {
        let mut call = Self {
            words,
            levels: vec![Level::new(root, 1)],
        };
        let mut at = 1;
        while let Some(word) = call.words.get(at) {
            let word = word.to_str().unwrap_or_default().to_owned();
            if word == "--" {
                break;
            }
            at = match (word.strip_prefix("--"), word.strip_prefix('-')) {
                (Some(long), _) => call.long(long, at),
                (None, Some(short)) if !short.is_empty() => call.short(short, at),
                _ => call.command(&word, at),
            };
        }
        call
    }

    /// Notes an option such as `--model X` or `--model=X`, and returns the position after it.
    fn long(&mut self, text: &str, at: usize) -> usize {
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(level) = self.levels.last_mut() else {
            return at + 1;
        };
        let Some(arg) = option(level.command, name) else {
            return at + 1;
        };
        level.given.insert(arg.get_id().clone());
        match value {
            Some("true") if is_flag(arg) => self.words[at] = format!("--{name}").into(),
            Some("false") if is_flag(arg) => {
                self.words.remove(at);
                return at;
            }
            None if needs_value(arg) => return at + 2,
            _ => {}
        }
        at + 1
    }

    /// Notes options such as `-q`, and returns the position after them.
    fn short(&mut self, letters: &str, at: usize) -> usize {
        let Some(level) = self.levels.last_mut() else {
            return at + 1;
        };
        for (index, letter) in letters.char_indices() {
            let mut args = level.command.get_arguments();
            let Some(arg) = args.find(|arg| arg.get_short() == Some(letter)) else {
                break;
            };
            level.given.insert(arg.get_id().clone());
            if needs_value(arg) {
                let is_last = index + letter.len_utf8() == letters.len();
                return at + 1 + usize::from(is_last);
            }
        }
        at + 1
    }

    /// Descends into a command, if the word names one, and returns the position after it.
    fn command(&mut self, word: &str, at: usize) -> usize {
        let level = self.levels.last().map(|level| level.command);
        if let Some(command) = level.and_then(|level| level.find_subcommand(word)) {
            self.levels.push(Level::new(command, at + 1));
        }
        at + 1
    }

    /// The names of the commands, such as `serve` and `http`.
    fn path(&self) -> Vec<&'a str> {
        let commands = self.levels.iter().skip(1);
        commands.map(|level| level.command.get_name()).collect()
    }

    /// Returns `true` if the command can open a model.
    fn opens_models(&self) -> bool {
        self.levels
            .iter()
            .any(|level| option(level.command, "model").is_some())
    }

    /// Returns `false` for commands without settings, and for calls that ask for help.
    fn has_settings(&self) -> bool {
        let is_given = |id: &str| self.levels.iter().any(|level| level.given.contains(id));
        let is_help = |word: &OsString| word == "--help" || word == "-h";
        let has_settings = self
            .path()
            .first()
            .is_some_and(|command| !WITHOUT_SETTINGS.contains(command));
        let mut options = self.words.iter().take_while(|word| *word != "--");
        has_settings && !is_given("no_settings") && !options.any(is_help)
    }

    /// Returns the value of each setting that an option of the call, a variable or the file gives.
    ///
    /// # Errors
    /// A variable has a value that its option does not accept.
    fn choices(&self, file: Option<&SettingsFile>) -> Result<Vec<Choice>, String> {
        let path = self.path();
        let mut choices = Vec::new();
        for level in &self.levels {
            for name in names() {
                let Some(arg) = option(level.command, name).filter(|arg| !arg.is_global_set())
                else {
                    continue;
                };
                let choice = |value, origin| Choice {
                    name,
                    id: arg.get_id().clone(),
                    long: arg.get_long().unwrap_or(name).to_owned(),
                    value,
                    origin,
                    at: level.at,
                };
                if level.given.contains(arg.get_id()) {
                    choices.push(choice(None, Origin::Call));
                } else if level.excludes(arg) {
                } else if let Some((variable, value)) = variable(name, arg)? {
                    choices.push(choice(value, Origin::Variable(variable)));
                } else if let Some(setting) = file.and_then(|file| file.find(&path, name)) {
                    let value = Some(setting.value.clone());
                    choices.push(choice(value, Origin::Line(setting.line)));
                }
            }
        }
        Ok(choices)
    }

    /// Returns the arguments with the settings after the names of their commands.
    fn with(self, choices: &[Choice]) -> Vec<OsString> {
        let mut words = self.words;
        for choice in choices.iter().rev() {
            let name = &choice.long;
            let inserted: Vec<OsString> = match &choice.value {
                None | Some(Value::Flag(false)) => Vec::new(),
                Some(Value::Flag(true)) => vec![format!("--{name}").into()],
                Some(Value::Texts(texts)) => texts
                    .iter()
                    .map(|text| format!("--{name}={text}").into())
                    .collect(),
            };
            words.splice(choice.at..choice.at, inserted);
        }
        words
    }
}

impl<'a> Level<'a> {
    fn new(command: &'a Command, at: usize) -> Self {
        Self {
            command,
            at,
            given: BTreeSet::new(),
        }
    }

    /// Returns `true` if an option of the call excludes this one.
    fn excludes(&self, arg: &Arg) -> bool {
        let given = self
            .command
            .get_arguments()
            .filter(|other| self.given.contains(other.get_id()));
        let conflicts = |one: &Arg, other: &Arg| {
            let conflicts = self.command.get_arg_conflicts_with(one);
            conflicts.iter().any(|arg| arg.get_id() == other.get_id())
        };
        given
            .into_iter()
            .any(|other| conflicts(arg, other) || conflicts(other, arg))
    }
}

/// Returns the option of a command by its long name or one of its other names.
fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let is_named = |arg: &&Arg| {
        arg.get_long() == Some(name)
            || arg
                .get_all_aliases()
                .is_some_and(|names| names.contains(&name))
    };
    command.get_arguments().find(is_named)
}

/// Returns `true` for an option without a value.
fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// Returns `true` for an option that may be given more than once.
fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// Returns `true` if the next word is the value of the option.
fn needs_value(arg: &Arg) -> bool {
    let values = arg.get_num_args();
    arg.get_action().takes_values() && values.is_none_or(|values| values.min_values() > 0)
}

/// Returns `true` if the option also works without a value, as `--cache` does.
fn has_optional_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !needs_value(arg)
}

/// Checks a value by the rules of its option.
///
/// # Errors
/// Returns the reason in the words that clap would print for the option on the command line.
fn check_value(arg: &Arg, value: &Value) -> Result<(), String> {
    let Value::Texts(texts) = value else {
        return Ok(());
    };
    let plain = Arg::new("value")
        .long("value")
        .action(arg.get_action().clone())
        .num_args(arg.get_num_args().unwrap_or_else(|| 1.into()))
        .value_parser(arg.get_value_parser().clone());
    let command = Command::new("levity").no_binary_name(true).arg(plain);
    let words = texts.iter().map(|text| format!("--value={text}"));
    let parsed = command.try_get_matches_from(words);
    parsed.map(drop).map_err(|error| {
        let line = crate::usage::one_line(&error.render().to_string());
        // The option is not on the command line, so only the reason is useful.
        let reason = line.split_once("': ").map(|(_, reason)| reason.to_owned());
        let choice = line.split_once("; use ");
        let choice = choice.map(|(_, names)| format!("it is invalid; use {names}"));
        reason.or(choice).unwrap_or(line)
    })
}

/// Returns the variable that sets an option, and its value. There is no value if levity reads the
/// variable elsewhere.
///
/// # Errors
/// The option does not accept the value, or a file that controls levity has a relative path.
fn variable(name: &str, arg: &Arg) -> Result<Option<(String, Option<Value>)>, String> {
    let is_set = |variable: &str| std::env::var(variable).is_ok_and(|value| !value.is_empty());
    if let Some((_, variables)) = OWN_VARIABLES.iter().find(|(own, _)| *own == name) {
        let variable = variables.iter().find(|variable| is_set(variable));
        return Ok(variable.map(|variable| ((*variable).to_owned(), None)));
    }
    let variable = variable_name(name);
    if !is_set(&variable) {
        return Ok(None);
    }
    let text = std::env::var(&variable).unwrap_or_default();
    let value = match (is_flag(arg) || has_optional_value(arg), &*text) {
        (true, "true" | "1") => Value::Flag(true),
        (true, "false" | "0") => Value::Flag(false),
        _ if is_flag(arg) => {
            return Err(format!("`{variable}` is `{text}`; use `true` or `false`"));
        }
        _ => Value::Texts(vec![text]),
    };
    if let Value::Texts(texts) = &value
        && CONTROL_FILES.contains(&name)
        && !texts.iter().all(|text| Path::new(text).is_absolute())
    {
        return Err(format!(
            "`{variable}` is a relative path, which means another file in each folder; use an \
                absolute path, or set `{name}` in `{FILE}`"
        ));
    }
    check_value(arg, &value).map_err(|reason| format!("`{variable}`: {reason}"))?;
    Ok(Some((variable, Some(value))))
}

/// Returns `true` if the files of a setting decide about what levity does.
pub(crate) fn names_control_file(setting: &str) -> bool {
    CONTROL_FILES.contains(&setting)
}

/// Returns the variable of a setting, such as `LEVITY_MAX_TURNS`.
pub(crate) fn variable_name(name: &str) -> String {
    format!("LEVITY_{}", name.to_uppercase().replace('-', "_"))
}
