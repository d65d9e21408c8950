//! The cases of the multi-turn categories.
//!
//! The data name classes of simulated tools. Their functions are read from the documentation files
//! of the package, and some are withheld until a later turn, where an empty message means "here are
//! more functions".

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{TurnMessage, lines, tool};
use crate::{
    Case, CaseMessage, CaseTurn, Error, Expectation, OfferedTool, Result, Selection, ToolHost,
};

/// The file in `multi_turn_func_doc` that describes the functions of each class.
const DOCS: [(&str, &str); 8] = [
    ("GorillaFileSystem", "gorilla_file_system.json"),
    ("MathAPI", "math_api.json"),
    ("MessageAPI", "message_api.json"),
    ("TicketAPI", "ticket_api.json"),
    ("TradingBot", "trading_bot.json"),
    ("TravelAPI", "travel_booking.json"),
    ("TwitterAPI", "posting_api.json"),
    ("VehicleControlAPI", "vehicle_control.json"),
];

/// The package's constant with the user's message at a turn that adds functions.
const ADDED: &str = "DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC";

#[derive(Deserialize)]
struct Row {
    id: String,
    question: Vec<Vec<TurnMessage>>,
    involved_classes: Vec<String>,
    #[serde(default)]
    initial_config: Map<String, Value>,
    /// The functions that are withheld, by the turn that adds them, from 0.
    #[serde(default)]
    missed_function: BTreeMap<usize, Vec<String>>,
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    ground_truth: Vec<Vec<String>>,
}

pub(super) fn cases(data: &Path, category: &str, selection: Selection) -> Result<Vec<Case>> {
    let file = format!("BFCL_v4_{category}.json");
    let rows: Vec<Row> = lines(&data.join(&file))?;
    let answers: Vec<Answer> = lines(&data.join("possible_answer").join(&file))?;
    let mut suite = Suite {
        data,
        category,
        answers: answers
            .into_iter()
            .map(|answer| (answer.id, answer.ground_truth))
            .collect(),
        docs: BTreeMap::new(),
        added: None,
    };
    selection.choose(rows).map(|row| suite.case(row)).collect()
}

/// Files of the package, each read once.
struct Suite<'a> {
    data: &'a Path,
    category: &'a str,
    answers: BTreeMap<String, Vec<Vec<String>>>,
    docs: BTreeMap<String, Vec<OfferedTool>>,
    added: Option<String>,
}

impl Suite<'_> {
    fn case(&mut self, row: Row) -> Result<Case> {
        let Row {
            id,
            question,
            involved_classes,
            initial_config,
            missed_function,
        } = row;
        let wrong = |problem: &str| Error::Suite(format!("case `{id}` {problem}"));
        let answer = self
            .answers
            .remove(&id)
            .ok_or_else(|| wrong("has no possible answer"))?;
        if answer.len() != question.len() {
            return Err(wrong(
                "has a different number of turns than its possible answer",
            ));
        }
        if missed_function.keys().any(|turn| *turn >= question.len()) {
            return Err(wrong(
                "withholds functions until a turn that does not exist",
            ));
        }
        let mut tools = Vec::new();
        for class in &involved_classes {
            tools.extend_from_slice(self.tools_of(&id, class)?);
        }
        let mut names = HashSet::new();
        if let Some(twice) = tools.iter().find(|tool| !names.insert(&*tool.name)) {
            return Err(wrong(&format!("has two functions `{}`", twice.name)));
        }
        let mut turns = Vec::new();
        for (index, messages) in question.into_iter().enumerate() {
            let held = missed_function.get(&index).map_or(&[][..], Vec::as_slice);
            let mut turn = CaseTurn::new(match messages.is_empty() {
                true if held.is_empty() => return Err(wrong("has a turn without a message")),
                true => vec![CaseMessage::new(levity_core::Role::User, self.added()?)],
                false => messages
                    .into_iter()
                    .map(|message| CaseMessage::new(message.role, message.content))
                    .collect(),
            });
            for name in held {
                let index = tools.iter().position(|tool| tool.name == *name);
                let index = index
                    .ok_or_else(|| wrong(&format!("withholds `{name}`, which it does not have")))?;
                turn.tools.push(tools.remove(index));
            }
            turns.push(turn);
        }
        let mut turns = turns.into_iter();
        let Some(first) = turns.next() else {
            return Err(wrong("has no turn"));
        };
        let mut case = Case::new(id, "", Expectation::JudgeOnly)
            .with_category(self.category)
            .with_messages(first.messages)
            .with_source(json!({"answer": answer}));
        tools.extend(first.tools);
        (case.tools, case.turns) = (tools, turns.collect());
        Ok(case.with_environment(json!({
            "classes": involved_classes,
            "config": initial_config,
            "long_context": self.category.contains("long_context"),
        })))
    }

    fn tools_of(&mut self, id: &str, class: &str) -> Result<&[OfferedTool]> {
        if !self.docs.contains_key(class) {
            let wrong = |problem: String| Error::Suite(format!("case `{id}` {problem}"));
            let (_, file) = DOCS
                .iter()
                .find(|(name, _)| *name == class)
                .ok_or_else(|| wrong(format!("has tools of the unknown class `{class}`")))?;
            let path = self.data.join("multi_turn_func_doc").join(file);
            let functions: Vec<Value> = lines(&path)?;
            let tools = functions.iter().map(tool).collect::<Option<Vec<_>>>();
            let tools = tools.ok_or_else(|| {
                Error::Suite(format!(
                    "`{}` has a function without a name or parameters",
                    path.display()
                ))
            })?;
            self.docs.insert(class.to_owned(), tools);
        }
        Ok(self.docs.get(class).map_or(&[], Vec::as_slice))
    }

    /// Returns the user's message at a turn that adds functions, read from the package.
    fn added(&mut self) -> Result<String> {
        if let Some(added) = &self.added {
            return Ok(added.clone());
        }
        let path = self.data.join("../constants/default_prompts.py");
        let text = fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
        let added = constant(&text, ADDED);
        let added = added
            .ok_or_else(|| Error::Suite(format!("`{}` has no text `{ADDED}`", path.display())))?;
        Ok(self.added.insert(added).clone())
    }
}

/// Returns the text of a Python constant: one string without escapes.
fn constant(source: &str, name: &str) -> Option<String> {
    let (_, rest) = source.split_once(&format!("\n{name} = "))?;
    let rest = rest
        .trim_start_matches(|c: char| c == '(' || c.is_whitespace())
        .strip_prefix('"')?;
    let (text, _) = rest.split_once('"')?;
    (!text.contains(['\\', '\n'])).then(|| text.to_owned())
}

/// Starts and stops the tools of a minimal set of cases that covers all classes, so that an error
/// occurs before the first model call.
///
/// # Errors
/// Fails if Python, the package or one of its dependencies is missing.
pub async fn require_tools(host: &ToolHost, cases: &[Case]) -> Result<()> {
    let mut seen = HashSet::new();
    for case in cases {
        let Some(environment) = &case.environment else {
            continue;
        };
        let classes = environment["classes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Value::to_string);
        let new: Vec<_> = classes.filter(|class| !seen.contains(class)).collect();
        if !new.is_empty() {
            host.open(case).await?;
            seen.extend(new);
        }
    }
    Ok(())
}
