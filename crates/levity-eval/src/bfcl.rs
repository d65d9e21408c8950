//! Cases of the Berkeley Function Calling Leaderboard, version 4, with its own checker as the
//! judge.
//!
//! The Python package `bfcl-eval` (Apache-2.0) contains the data in the folder `bfcl_eval/data`;
//! this crate contains none of it. To unpack them without installing, run
//! `pip download --no-deps bfcl-eval` and `python3 -m zipfile -e bfcl_eval-*.whl DIR`.
//!
//! In the [multi-turn categories](MULTI_TURN_CATEGORIES), the package's own simulators run the
//! tools, in a [process for each trial](tool_host).
//!
//! Tools are offered as the leaderboard offers them to models with function calling: types are
//! those of JSON Schema, and `.` in a name is `_`.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use levity_core::Role;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::python::Script;
use crate::{
    Case, CaseMessage, Error, Expectation, ExpectedCall, Judge, OfferedTool, Result, Selection,
    ToolHost,
};

mod turns;

pub use turns::require_tools;

/// The categories with several turns, whose tools run and have state.
pub const MULTI_TURN_CATEGORIES: [&str; 4] = [
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
];

/// The categories with one turn.
pub const CATEGORIES: [&str; 5] = [
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
];

#[derive(Deserialize)]
struct Row {
    id: String,
    question: Vec<Vec<TurnMessage>>,
    function: Vec<Value>,
}

#[derive(Deserialize)]
struct TurnMessage {
    role: Role,
    content: String,
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    ground_truth: Vec<BTreeMap<String, BTreeMap<String, Vec<Value>>>>,
}

/// Reads the cases of some categories from the folder `bfcl_eval/data`.
///
/// ```
/// use std::path::Path;
///
/// use levity_eval::{Selection, bfcl};
///
/// let data = Path::new("bfcl_eval/data");
/// let error = bfcl::cases(data, &["poetry"], Selection::new()).unwrap_err();
/// assert!(error.to_string().starts_with("unknown category `poetry`; available: simple_python"));
/// ```
///
/// # Errors
/// Fails if a category is unknown or cannot be read, or if a case has an unexpected format.
pub fn cases(
    data: &Path,
    categories: &[impl AsRef<str>],
    selection: Selection,
) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for category in categories {
        cases.extend(category_cases(data, category.as_ref(), selection)?);
    }
    Ok(cases)
}

fn category_cases(data: &Path, category: &str, selection: Selection) -> Result<Vec<Case>> {
    let has_turns = MULTI_TURN_CATEGORIES.contains(&category);
    if !has_turns && !CATEGORIES.contains(&category) {
        let known = [&CATEGORIES[..], &MULTI_TURN_CATEGORIES[..]]
            .concat()
            .join(", ");
        return Err(Error::Suite(format!(
            "unknown category `{category}`; available: {known}"
        )));
    }
    let file = format!("BFCL_v4_{category}.json");
    if !data.join(&file).is_file() {
        return Err(Error::Suite(format!(
            "`{}` has no file `{file}`; pass the folder `bfcl_eval/data` of the Python package \
                `bfcl-eval`",
            data.display()
        )));
    }
    if has_turns {
        return turns::cases(data, category, selection);
    }
    let rows: Vec<Row> = lines(&data.join(&file))?;
    let answers: BTreeMap<String, Answer> = match category {
        "irrelevance" => BTreeMap::new(),
        _ => {
            let answers: Vec<Answer> = lines(&data.join("possible_answer").join(&file))?;
            answers
                .into_iter()
                .map(|answer| (answer.id.clone(), answer))
                .collect()
        }
    };
    selection
        .choose(rows)
        .map(|row| case(row, category, &answers))
        .collect()
}

fn case(row: Row, category: &str, answers: &BTreeMap<String, Answer>) -> Result<Case> {
    let Row {
        id,
        question,
        function,
    } = row;
    let wrong = |problem: &str| Error::Suite(format!("case `{id}` {problem}"));
    let [messages] = &question[..] else {
        return Err(wrong("has more than one turn"));
    };
    let messages = messages
        .iter()
        .map(|message| CaseMessage::new(message.role, &*message.content));
    let (expect, answer) = match (category, answers.get(&id)) {
        ("irrelevance", _) => (Expectation::NoCalls, Value::Null),
        (_, Some(answer)) => (expectation(answer), json!(answer.ground_truth)),
        (_, None) => return Err(wrong("has no possible answer")),
    };
    let mut case = Case::new(id.clone(), "", expect)
        .with_category(category)
        .with_messages(messages);
    let mut names = HashSet::new();
    for function in &function {
        let tool =
            tool(function).ok_or_else(|| wrong("has a function without a name or parameters"))?;
        if !names.insert(tool.name.clone()) {
            return Err(wrong(&format!(
                "has two functions that become `{}`",
                tool.name
            )));
        }
        case = case.with_tool(tool);
    }
    Ok(case.with_source(json!({"function": function, "answer": answer})))
}

fn expectation(answer: &Answer) -> Expectation {
    let calls = answer
        .ground_truth
        .iter()
        .flatten()
        .map(|(name, arguments)| {
            let call = ExpectedCall::new(sent_name(name));
            arguments.iter().fold(call, |call, (name, values)| {
                call.with_argument(name, values.clone())
            })
        });
    Expectation::calls(calls)
}

/// Returns a function's name as providers accept it.
fn sent_name(name: &str) -> String {
    name.replace('.', "_")
}

fn tool(function: &Value) -> Option<OfferedTool> {
    let name = function.get("name")?.as_str()?;
    let description = function
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut parameters = function.get("parameters")?.as_object()?.clone();
    parameters.insert("type".to_owned(), "object".into());
    if let Some(Value::Object(properties)) = parameters.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
    Some(OfferedTool::new(sent_name(name), description).with_parameters(parameters.into()))
}

/// Converts the leaderboard's types to JSON Schema, in place and recursively.
///
/// The conversion is the one of the leaderboard, down to the sentence that it adds to floats, so
/// that models see the same.
fn schema(value: &mut Value) {
    let Value::Object(map) = value else { return };
    let kind = map
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("string")
        .to_owned();
    if kind == "float" {
        map.insert("format".to_owned(), "float".into());
        let description = map
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        map.insert(
            "description".to_owned(),
            format!("{description} This is a float type value.").into(),
        );
    }
    map.insert("type".to_owned(), json_type(&kind).into());
    below(map);
}

fn below(map: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
    if let Some(Value::Object(items)) = map.get_mut("items") {
        let kind = items.get("type").and_then(Value::as_str).map(json_type);
        if let Some(kind) = kind {
            items.insert("type".to_owned(), kind.into());
        }
        below(items);
    }
}

fn json_type(kind: &str) -> &'static str {
    match kind {
        "integer" | "byte" | "short" | "long" | "Bigint" => "integer",
        "number" | "float" | "double" => "number",
        "boolean" | "bool" => "boolean",
        "array" | "list" | "tuple" | "ArrayList" | "Array" | "Queue" | "Stack" => "array",
        "dict" | "object" | "HashMap" | "Hashtable" => "object",
        _ => "string",
    }
}

/// Reads one value from each line of a file of the package.
fn lines<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(at, line)| {
        serde_json::from_str(line).map_err(|error| Error::Line {
            path: path.to_owned(),
            line: at + 1,
            problem: error.to_string(),
        })
    });
    read.collect()
}

/// Creates the judge from the package's own checker, which a short Python script of this crate
/// imports. `python` names the interpreter. The package is found next to `data`, or among the
/// installed packages; none of its dependencies is required.
///
/// **The code of the package runs with your rights.** `data` must be a folder that you trust, not
/// one that a file names. Python starts isolated: in the root folder, with only `PATH`, `HOME`,
/// `LANG` and their counterparts on Windows, and with no additional import path.
pub fn judge(python: impl Into<OsString>, data: Option<&Path>) -> Judge {
    let package = data.and_then(package_folder);
    Judge::script(
        python,
        Script {
            text: include_str!("../judge/bfcl.py"),
            package,
        },
    )
}

/// Creates the tool host from the package's own simulators, which a short Python script of this
/// crate runs. It also requires the Python package `mpmath`; otherwise the notes of [`judge`]
/// apply.
pub fn tool_host(python: impl Into<OsString>, data: Option<&Path>) -> ToolHost {
    let package = data.and_then(package_folder);
    ToolHost::script(
        python,
        Script {
            text: include_str!("../judge/bfcl_tools.py"),
            package,
        },
    )
}

/// Returns the folder that contains the package `bfcl_eval` with this `data`.
fn package_folder(data: &Path) -> Option<PathBuf> {
    let data = fs::canonicalize(data).ok()?;
    Some(data.parent()?.parent()?.to_owned())
}
