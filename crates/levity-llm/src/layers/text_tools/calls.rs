//! Tool calls in JSON, in all the forms that models write them.

use serde_json::{Map, Value};

/// What was found in a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Words.
    Text(String),
    /// Words that the model marked as its answer.
    Answer(String),
    /// Thoughts.
    Thinking(String),
    /// A call; the arguments are JSON if the model wrote JSON.
    Call {
        /// The tool.
        name: String,
        /// The arguments.
        args: String,
    },
}

impl Piece {
    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

/// What is known about the calls that may come.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The tools' names.
    pub(super) names: Vec<String>,
    /// Whether the answer has a shape of its own, which a call must not be mistaken for.
    pub(super) shaped: bool,
}

const NAME: [&str; 4] = ["action", "tool", "tool_name", "name"];
const ARGS: [&str; 8] =
    ["args", "input", "arguments", "parameters", "action_input", "tool_input", "tool_args", "params"];
const THOUGHT: [&str; 5] = ["thought", "thoughts", "thinking", "reasoning", "reason"];
const CALL: [&str; 4] = ["call_tool", "tool_call", "tool_calls", "function_call"];
const ANSWER: [&str; 3] = ["final_answer", "Final Answer", "final answer"];

/// Reads JSON that a model wrote: the text must begin and end as an object or a list does, and may be wrong inside.
pub(super) fn read_json(text: &str) -> Option<Value> {
    let text = text.trim();
    let framed = matches!(text.as_bytes(), [b'{', .., b'}'] | [b'[', .., b']']);
    serde_json::from_str(text).ok().or_else(|| framed.then(|| crate::json::parse(text).ok()).flatten())
}

impl Known {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The calls that a value is; `None` when it is something else. `sure` says that it stands where only a
    /// call can.
    pub(super) fn calls(&self, value: &Value, sure: bool) -> Option<Vec<Piece>> {
        match value {
            Value::Array(list) if !list.is_empty() => {
                let each: Option<Vec<_>> = list.iter().map(|value| self.calls(value, sure)).collect();
                Some(each?.concat())
            }
            Value::Object(map) => self.nested(map).or_else(|| self.plain(map, sure)),
            _ => None,
        }
    }

    /// A call within an object that has more to say: `{"thought": .., "call_tool": {..}}`.
    fn nested(&self, map: &Map<String, Value>) -> Option<Vec<Piece>> {
        if let Some(Value::Object(function)) = map.get("function") {
            return self.plain(function, true);
        }
        let key = CALL.into_iter().find(|key| map.contains_key(*key))?;
        let (calls, beside) = match map.get(key)? {
            Value::String(name) => (vec![call(name, first(map, &ARGS))?], true),
            inner => (self.calls(inner, true)?, false),
        };
        let mut pieces = thought(map);
        let rest = map.iter().filter(|(name, _)| {
            let known = *name == key || THOUGHT.contains(&name.as_str());
            !(known || (beside && ARGS.contains(&name.as_str())))
        });
        let rest: Map<String, Value> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !rest.is_empty() {
            pieces.push(Piece::Text(Value::Object(rest).to_string()));
        }
        pieces.extend(calls);
        Some(pieces)
    }

    /// A call that is an object of its own: `{"action": .., "args": {..}}`.
    fn plain(&self, map: &Map<String, Value>, sure: bool) -> Option<Vec<Piece>> {
        let (key, name) = NAME.into_iter().find_map(|key| Some((key, map.get(key)?.as_str()?)))?;
        let args = first(map, &ARGS);
        let known = self.contains(name);
        if ANSWER.contains(&name) && !known {
            return Some([thought(map), vec![Piece::Answer(answer(args?))]].concat());
        }
        let nothing_else = map.keys().all(|other| other == key || THOUGHT.contains(&other.as_str()));
        let named_so = key != "name" && args.is_some() && !self.shaped;
        if !(sure || named_so || (known && (args.is_some() || nothing_else))) {
            return None;
        }
        let mut pieces = thought(map);
        pieces.push(call(name, args)?);
        Some(pieces)
    }
}

fn first<'a>(map: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().find_map(|key| map.get(*key))
}

fn thought(map: &Map<String, Value>) -> Vec<Piece> {
    let text = first(map, &THOUGHT).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    text.map(|text| Piece::Thinking(text.to_owned())).into_iter().collect()
}

fn call(name: &str, args: Option<&Value>) -> Option<Piece> {
    let args = match args {
        None | Some(Value::Null) => String::new(),
        // Some models write the arguments as JSON in a string.
        Some(Value::String(text)) if read_json(text).is_some_and(|value| value.is_object()) => text.clone(),
        Some(value) => value.to_string(),
    };
    let name = name.trim();
    (!name.is_empty()).then(|| Piece::Call { name: name.to_owned(), args })
}

fn answer(args: &Value) -> String {
    let inner = args.as_object().filter(|map| map.len() == 1).and_then(|map| map.values().next());
    match inner.unwrap_or(args) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A call whose JSON is broken, as far as its name can be made out; what is there goes as its arguments, so
/// that the model is told.
pub(super) fn salvage(text: &str) -> Option<Piece> {
    let value_of = |key: &str| {
        let (_, after) = text.split_once(&format!("\"{key}\""))?;
        Some(after.trim_start().strip_prefix(':')?.trim_start())
    };
    let name = NAME
        .into_iter()
        .find_map(|key| value_of(key)?.strip_prefix('"')?.split_once('"').map(|(name, _)| name))?;
    let args = ARGS.into_iter().find_map(value_of).unwrap_or(text);
    // What happens to be JSON would be taken for the arguments.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(args).is_ok();
    let args = if is_json { text } else { args };
    (!name.trim().is_empty()).then(|| Piece::Call { name: name.trim().to_owned(), args: args.to_owned() })
}
