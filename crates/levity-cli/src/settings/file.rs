//! The file `levity.toml`.
//!
//! The file is a TOML table. Keys at the top are names of options and apply to each command that
//! has the option. A table with the name of a command applies to this command and those below it:
//! `[serve]` applies to `serve http` and `serve mcp`, `[serve.http]` to the first alone.
//!
//! Every key and value is checked when the file is read, also those of other commands, because a
//! wrong setting is otherwise found weeks later. Errors name the line, the column and the next
//! step.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Command;
use levity::core::__private::sha256;
use levity::core::text::nearest;
use levity::llm::ModelList;
use levity_system::files;
use serde_json::json;
use toml::de::{DeTable, DeValue};

use crate::features::LEFT_OUT;
use crate::own_files;
use crate::terminal::chain;

use super::control::plain;
use super::{check_value, has_optional_value, is_flag, is_list, names, option};

/// The tables at the top of the file that extend the list of models, as in a file of
/// `LEVITY_MODELS`.
pub(super) const MODEL_TABLES: [&str; 2] = ["profiles", "servers"];

/// The name of the file.
pub(crate) const FILE: &str = "levity.toml";

/// The maximum size of the file: 1 MiB.
const MAX_SIZE: u64 = 1 << 20;

/// The maximum number of fields of an entry in which the faulty one is searched.
const MAX_FIELDS: usize = 100;

/// The content of the file.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    settings: Vec<Setting>,
    /// The SHA-256 hash of the bytes that were parsed.
    hash: String,
}

/// One setting in the file.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The command whose table has the setting; empty at the top of the file.
    command: Vec<String>,
    pub(crate) name: String,
    pub(crate) value: Value,
    /// The line of the file, from 1.
    pub(crate) line: usize,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Flag(bool),
    /// The values of an option, in the form that the command line has.
    Texts(Vec<String>),
}

impl SettingsFile {
    /// Reads the file of the current folder, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has a setting that no command accepts.
    pub(crate) fn read(root: &Command) -> Result<Option<Self>, String> {
        Self::read_in(Path::new(""), root)
    }

    /// Reads the file of a folder, if there is one.
    pub(super) fn read_in(folder: &Path, root: &Command) -> Result<Option<Self>, String> {
        if !super::has_settings(folder) {
            return Ok(None);
        }
        let path = folder.join(FILE);
        let bytes = files::read_at_most(&path, MAX_SIZE)
            .map_err(|error| format!("cannot read `{FILE}`: {error}"))?;
        let hash = sha256(&bytes);
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("cannot read `{FILE}`: it is not UTF-8; save it as UTF-8"))?;
        // A key in quotes may contain a line break.
        let mut file = Self::parse(&text, root).map_err(|problem| plain(&problem))?;
        file.hash = hash;
        Ok(Some(file))
    }

    /// Returns the hash of the file's content.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// Reads the settings from the text of a file.
    fn parse(text: &str, root: &Command) -> Result<Self, String> {
        let table = DeTable::parse(text).map_err(|error| {
            let place = place(text, error.span().unwrap_or_default());
            let problem = one_line(error.message());
            format!("`{FILE}`, {place}: {problem}; correct this line")
        })?;
        let mut file = Self {
            settings: Vec::new(),
            hash: String::new(),
        };
        file.add_table(text, table.get_ref(), (root, root), &[])?;
        Ok(file)
    }

    /// Adds the settings of a table and of the tables of commands in it.
    fn add_table(
        &mut self,
        text: &str,
        table: &DeTable<'_>,
        (root, command): (&Command, &Command),
        path: &[String],
    ) -> Result<(), String> {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let failed = |span: Range<usize>, problem: String| {
                format!("`{FILE}`, {}: {problem}", place(text, span))
            };
            if path.is_empty()
                && LEFT_OUT.contains(&name)
                && let DeValue::Table(table) = value.get_ref()
            {
                let line = line_and_column(text, key.span().start).0;
                self.add_unchecked(table, &[name.to_owned()], line);
                continue;
            }
            if let Some(below) = command.find_subcommand(name)
                && let DeValue::Table(table) = value.get_ref()
            {
                let path = [path, &[name.to_owned()]].concat();
                self.add_table(text, table, (root, below), &path)?;
                continue;
            }
            if path.is_empty() && MODEL_TABLES.contains(&name) {
                let list = model_table(name, value.get_ref()).map_err(|fault| {
                    let span = fault.span.unwrap_or_else(|| key.span());
                    failed(span, format!("`{name}`: {}", fault.problem))
                })?;
                self.settings.push(Setting {
                    command: Vec::new(),
                    name: name.to_owned(),
                    value: Value::Texts(vec![list]),
                    line: line_and_column(text, key.span().start).0,
                });
                continue;
            }
            let arg = option_below(command, name).filter(|_| names().any(|known| known == name));
            let Some(arg) = arg else {
                return Err(failed(key.span(), unknown(name, command, root)));
            };
            let parsed = parse_value(arg, value.get_ref())
                .and_then(|value| check_value(arg, &value).map(|()| value))
                .map_err(|problem| failed(value.span(), format!("`{name}`: {problem}")))?;
            self.settings.push(Setting {
                command: path.to_vec(),
                name: name.to_owned(),
                value: parsed,
                line: line_and_column(text, key.span().start).0,
            });
        }
        Ok(())
    }

    /// Adds the settings of a command that this build leaves out. Another build uses them, so the
    /// files that they name are levity's own. All get the line of the table, since nothing shows
    /// them.
    fn add_unchecked(&mut self, table: &DeTable<'_>, path: &[String], line: usize) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let value = match value.get_ref() {
                DeValue::Table(table) => {
                    self.add_unchecked(table, &[path, &[name.to_owned()]].concat(), line);
                    continue;
                }
                DeValue::Boolean(flag) => Value::Flag(*flag),
                DeValue::Array(values) => {
                    let texts = values
                        .iter()
                        .filter_map(|value| scalar(value.get_ref()).ok());
                    Value::Texts(texts.collect())
                }
                value => Value::Texts(scalar(value).into_iter().collect()),
            };
            self.settings.push(Setting {
                command: path.to_vec(),
                name: name.to_owned(),
                value,
                line,
            });
        }
    }

    /// Returns the names of the tables of the model list that the file has.
    pub(super) fn model_tables(&self) -> impl Iterator<Item = &'static str> + '_ {
        let is_set = |name: &&str| self.settings.iter().any(|setting| setting.name == **name);
        MODEL_TABLES.into_iter().filter(is_set)
    }

    /// Returns the list of models that the file defines.
    pub(super) fn model_list(&self) -> ModelList {
        let tables = self.settings.iter().filter_map(|setting| {
            let Value::Texts(texts) = &setting.value else {
                return None;
            };
            let is_table = MODEL_TABLES.contains(&&*setting.name);
            ModelList::parse(texts.first().filter(|_| is_table)?).ok()
        });
        tables.fold(ModelList::default(), ModelList::with)
    }

    /// Returns the setting of this name for a command; that of the longest matching table wins.
    pub(crate) fn find(&self, command: &[&str], name: &str) -> Option<&Setting> {
        let applies = |setting: &&Setting| {
            let table = &setting.command;
            setting.name == name
                && table.len() <= command.len()
                && table
                    .iter()
                    .zip(command)
                    .all(|(table, command)| table == command)
        };
        let settings = self.settings.iter().filter(applies);
        settings.max_by_key(|setting| setting.command.len())
    }

    /// Returns the paths of levity's own files that the settings name.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let is_own = |setting: &&Setting| own_files::is_own(&setting.name);
        let own = self.settings.iter().filter(is_own);
        let texts = own.filter_map(|setting| match &setting.value {
            Value::Texts(texts) => Some(texts),
            Value::Flag(_) => None,
        });
        texts.flatten().map(PathBuf::from).collect()
    }

    /// Returns all settings, in the order of the file's tables.
    pub(crate) fn all(&self) -> &[Setting] {
        &self.settings
    }
}

impl Setting {
    /// Returns the setting as a line of the file.
    pub(crate) fn text(&self) -> String {
        if let (true, Value::Texts(texts)) = (MODEL_TABLES.contains(&&*self.name), &self.value) {
            let list = texts
                .iter()
                .filter_map(|text| serde_json::from_str(text).ok());
            let tables = list.map(|list: serde_json::Value| list[&self.name].to_string());
            return format!("[{}] {}", self.name, tables.collect::<String>());
        }
        let table = match self.command.is_empty() {
            true => String::new(),
            false => format!("[{}] ", self.command.join(".")),
        };
        format!("{table}{} = {}", self.name, self.value)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Texts(texts) => match &texts[..] {
                [number] if number.parse::<f64>().is_ok() => write!(f, "{number}"),
                [text] => write!(f, "{text:?}"),
                texts => write!(f, "{texts:?}"),
            },
        }
    }
}

/// Returns the option of a command, or else of the commands below it.
pub(super) fn option_below<'a>(command: &'a Command, name: &str) -> Option<&'a clap::Arg> {
    option(command, name)
        .filter(|arg| !arg.is_global_set())
        .or_else(|| {
            command
                .get_subcommands()
                .find_map(|below| option_below(below, name))
        })
}

/// A fault in a table of the model list, and its position if it is known.
struct ModelFault {
    problem: String,
    span: Option<Range<usize>>,
}

/// Checks a table of the model list, and returns it as the JSON of such a list.
///
/// The reader of the list knows positions in that JSON only. The entry in the file is found by
/// reading each entry alone, and its field by leaving out one field after the other: without the
/// faulty one, the message changes.
fn model_table(name: &str, value: &DeValue<'_>) -> Result<String, ModelFault> {
    let without_place = |problem| ModelFault {
        problem,
        span: None,
    };
    let DeValue::Table(entries) = value else {
        let problem = format!("use a table such as `[{name}.fast]`");
        return Err(without_place(problem));
    };
    let whole = to_json(value).map_err(without_place)?;
    let list = |table: &serde_json::Value| json!({name: table}).to_string();
    let Err(problem) = parse_models(&list(&whole)) else {
        return Ok(list(&whole));
    };
    let has_problem = |entry: &str, fields: &serde_json::Value| {
        let alone = json!({ entry: fields });
        parse_models(&list(&alone)).err().as_ref() == Some(&problem)
    };
    let mut span = None;
    for (entry, fields) in entries {
        let name = entry.get_ref().as_ref();
        if !has_problem(name, &whole[name]) {
            continue;
        }
        span = Some(entry.span());
        if let DeValue::Table(fields) = fields.get_ref() {
            let is_at = |key: &str| {
                let mut others = whole[name].clone();
                others.as_object_mut().and_then(|others| others.remove(key));
                !has_problem(name, &others)
            };
            let mut keys = fields.keys().take(MAX_FIELDS);
            let field = keys.find(|key| is_at(key.get_ref().as_ref()));
            span = field.map(toml::Spanned::span).or(span);
        }
        break;
    }
    Err(ModelFault { problem, span })
}

/// Parses a list of models; the error has no position.
fn parse_models(list: &str) -> Result<(), String> {
    ModelList::parse(list).map(drop).map_err(|error| {
        let text = chain(&error);
        match text.split_once(": ") {
            Some((place, reason)) if place.contains(", column ") => reason.to_owned(),
            _ => text,
        }
    })
}

/// Converts a value of TOML to JSON.
fn to_json(value: &DeValue<'_>) -> Result<serde_json::Value, String> {
    Ok(match value {
        DeValue::Table(table) => {
            let fields = table.iter().map(|(key, value)| {
                let value = to_json(value.get_ref())?;
                Ok((key.get_ref().to_string(), value))
            });
            serde_json::Value::Object(fields.collect::<Result<_, String>>()?)
        }
        DeValue::Array(values) => {
            let values = values.iter().map(|value| to_json(value.get_ref()));
            serde_json::Value::Array(values.collect::<Result<_, String>>()?)
        }
        DeValue::Boolean(flag) => json!(flag),
        DeValue::Integer(_) => json!(scalar(value)?.parse::<i64>().unwrap_or_default()),
        DeValue::Float(number) => json!(number.as_str().parse::<f64>().unwrap_or_default()),
        DeValue::String(text) => json!(text),
        value => json!(scalar(value)?),
    })
}

/// Converts a value of TOML by the kind of its option.
fn parse_value(arg: &clap::Arg, value: &DeValue<'_>) -> Result<Value, String> {
    match value {
        DeValue::Boolean(flag) if is_flag(arg) || has_optional_value(arg) => Ok(Value::Flag(*flag)),
        _ if is_flag(arg) => Err("use `true` or `false`".to_owned()),
        DeValue::Array(values) if is_list(arg) => {
            let texts = values.iter().map(|value| scalar(value.get_ref()));
            Ok(Value::Texts(texts.collect::<Result<_, _>>()?))
        }
        DeValue::Array(_) => Err("it has one value; use no list".to_owned()),
        value => Ok(Value::Texts(vec![scalar(value)?])),
    }
}

/// Returns a single value as text. Control characters have no use in an option and could hide the
/// rest of a line from the user.
fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if text.contains('\0') => {
            Err("it contains a zero byte; remove it".to_owned())
        }
        DeValue::String(text) if text.is_empty() => {
            Err("it is empty; set a value, or remove the line".to_owned())
        }
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "the number is too large".to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err("use a text in quotes or a number".to_owned()),
    }
}

/// Describes a key that a table must not have. `command` is the one whose table has it.
fn unknown(name: &str, command: &Command, root: &Command) -> String {
    if command.find_subcommand(name).is_some() {
        return format!("`{name}` is a command; write its settings below a line `[{name}]`");
    }
    if names().any(|known| known == name) {
        let mut commands = root.get_subcommands();
        if let Some(other) = commands.find(|other| option_below(other, name).is_some()) {
            let (command, other) = (command.get_name(), other.get_name());
            return format!(
                "`levity {command}` has no setting `{name}`; move it to the top of the file, or to \
                    a table such as `[{other}]`"
            );
        }
    }
    let known = names().filter(|known| option_below(command, known).is_some());
    let mut known: Vec<&str> = known.collect();
    known.extend(command.get_subcommands().map(Command::get_name));
    known.extend(MODEL_TABLES);
    match nearest(name, known) {
        Some(near) => format!("unknown setting `{name}`; did you mean `{near}`?"),
        None => format!(
            "unknown setting `{name}`; `levity config show` lists the settings of a command"
        ),
    }
}

/// Returns a position for an error message.
fn place(text: &str, span: Range<usize>) -> String {
    let (line, column) = line_and_column(text, span.start);
    format!("line {line}, column {column}")
}

/// Returns the line and the column of a byte, both from 1; columns count characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// Returns a text with each run of white space as one space.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
