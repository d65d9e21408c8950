//! The command that shows settings and where they come from.
//!
//! `levity config show` lists each setting of a command with its value and origin, without running
//! anything, so it also works in a folder that is not trusted. `levity config schema` prints a JSON
//! schema of `levity.toml` for editors, made from the options of the commands.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, Args, Command, Subcommand};
use serde_json::{Map, Value as Json, json};

use super::{
    Call, FILE, Origin, SettingsFile, WITHOUT_SETTINGS, has_optional_value, is_flag, is_list,
    names, option, trust,
};
use crate::terminal::{note, print_json, print_text, report_error};

/// The arguments of `levity config`.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Print the value of each setting of a command, and where it comes from.
    Show(Show),
    /// Print a JSON schema of `levity.toml`.
    Schema,
}

#[derive(Args)]
struct Show {
    /// Command whose settings to print, such as `plan` or `serve http`.
    #[arg(default_value = "run")]
    command: Vec<String>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Prints settings or their schema: 0, or 2 if a setting or the call is invalid.
pub(crate) fn config(args: &ConfigArgs, root: &Command) -> ExitCode {
    match &args.action {
        Action::Show(args) => match show(args, root) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => report_error(&problem, 2),
        },
        Action::Schema => {
            let schema = serde_json::to_string_pretty(&schema(root)).unwrap_or_default();
            print_text(&format!("{schema}\n"));
            ExitCode::SUCCESS
        }
    }
}

/// Prints each setting of a command with its value and its origin, in alphabetical order.
///
/// Settings that the command does not have are left out. The default command is `levity run`.
fn show(args: &Show, root: &Command) -> Result<(), String> {
    let words = std::iter::once("levity").chain(args.command.iter().map(String::as_str));
    let call = Call::new(root, words.map(OsString::from).collect());
    if call.path().len() != args.command.len() || !call.has_settings() {
        return Err(format!(
            "there is no command `{}` with settings; use one such as `run` or `serve http`",
            args.command.join(" ")
        ));
    }
    let file = SettingsFile::read(root)?;
    let choices = call.choices(file.as_ref())?;
    let commands = call.levels.iter().map(|level| level.command);
    let options = commands
        .flat_map(|command| names().filter_map(move |name| Some((name, option(command, name)?))));
    let mut rows = Vec::new();
    for (name, arg) in options.filter(|(_, arg)| !arg.is_global_set()) {
        let choice = choices.iter().find(|choice| choice.name == name);
        let (value, origin) = match choice {
            Some(choice) => {
                let value = choice.value.as_ref().map(ToString::to_string);
                // Only the name of a model is shown: a config of servers may contain keys.
                let model = || {
                    std::env::var("LEVITY_MODEL")
                        .ok()
                        .filter(|_| name == "model")
                };
                let value = value.or_else(model);
                (value, origin(&choice.origin))
            }
            None => (default(arg), "default".to_owned()),
        };
        rows.push((name, value, origin));
    }
    rows.sort_unstable();
    print_rows(&rows, args.json);
    if let Some(file) = &file
        && !trust::is_trusted(file)?
    {
        note(&format!(
            "`{FILE}` is not trusted; `levity trust` shows the settings that need trust"
        ));
    }
    Ok(())
}

/// Prints columns of equal width, or JSON. A long value moves the origin to the right.
fn print_rows(rows: &[(&str, Option<String>, String)], json: bool) {
    for (name, value, origin) in rows {
        if json {
            print_json(&json!({"name": name, "value": value, "origin": origin}));
        } else {
            let value = value.as_deref().unwrap_or("-").replace('\n', " ");
            print_text(&format!("{name:<18} {value:<28} {origin}\n"));
        }
    }
}

/// Names the place that a value comes from, as in the third column.
fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Call => "the call".to_owned(),
        Origin::Variable(name) => name.clone(),
        Origin::Line(line) => format!("{FILE}, line {line}"),
    }
}

/// Returns the default of an option, from its definition or from its help.
fn default(arg: &Arg) -> Option<String> {
    if is_flag(arg) {
        return Some("false".to_owned());
    }
    let values = arg.get_default_values();
    if let Some(value) = values.first() {
        return Some(value.to_string_lossy().into_owned());
    }
    let help = arg.get_help()?.to_string();
    let (_, default) = help.rsplit_once("[default: ")?;
    Some(default.split_once(']')?.0.to_owned())
}

/// Returns the JSON schema of the file.
fn schema(root: &Command) -> Json {
    let mut schema = table(root);
    for name in super::file::MODEL_TABLES {
        schema["properties"][name] = json!({
            "type": "object",
            "additionalProperties": {"type": "object"},
            "description": "Models by name, as in a list of models (docs/models.md)",
        });
    }
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("levity.toml");
    schema["description"] = json!(
        "Settings of the levity command for one folder. The settings at the top apply to all \
            commands, those of a table to one command."
    );
    schema
}

/// The table of a command has its settings and the tables of the commands below it.
fn table(command: &Command) -> Json {
    let mut properties = Map::new();
    for name in names() {
        if let Some(arg) = super::file::option_below(command, name) {
            properties.insert(name.to_owned(), property(arg));
        }
    }
    for below in command.get_subcommands() {
        let table = table(below);
        let has_settings = table["properties"]
            .as_object()
            .is_some_and(|all| !all.is_empty());
        if has_settings && !WITHOUT_SETTINGS.contains(&below.get_name()) {
            properties.insert(below.get_name().to_owned(), table);
        }
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// The schema of one setting. Numbers may also be written as texts, as on the command line.
fn property(arg: &Arg) -> Json {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let one = json!({"type": ["string", "number"]});
    let mut schema = match () {
        () if is_flag(arg) => json!({"type": "boolean"}),
        () if is_list(arg) => json!({"anyOf": [one, {"type": "array", "items": one}]}),
        () if has_optional_value(arg) => json!({"type": ["boolean", "string"]}),
        () => one,
    };
    schema["description"] = json!(help);
    schema
}
