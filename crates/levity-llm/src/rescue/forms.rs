//! The forms in which model families write calls.

use std::sync::Arc;

use levity_core::ToolSpec;
use serde_json::{Map, Value};

use super::value::{call, calls, offered, typed};
use super::{Call, python};
use crate::json;

pub(super) const FENCE: &str = "```";

/// Marks that begin a call. Servers that know the model take them out; others deliver them as text.
pub(super) const OPENERS: [&str; 29] = [
    "<tool_call>",
    "<tool_calls>",
    "<function=",
    "<function_call>",
    "<functioncall>",
    "<tools>",
    "<|tool_call|>",
    "<|tool_call>",
    "<|tool_call_start|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<start_function_call>",
    "<invoke name=",
    "<minimax:tool_call>",
    "<|python_start|>",
    "<|START_ACTION|>",
    "<|START_THINKING|>",
    "<|action_start|>",
    "<|tool▁calls▁begin|>",
    "<|tool▁call▁begin|>",
    "[TOOL_CALLS]",
    "functools[",
    ">>>",
    "Action:",
    "TOOL_CALL:",
    "Thought:",
];

/// Marks that stand between calls and say nothing.
const MARKS: [&str; 46] = [
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<function_call>",
    "</function_call>",
    "<functioncall>",
    "</functioncall>",
    "<tools>",
    "</tools>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|python_tag|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "</s>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜end▁of▁sentence｜>",
    "<|tool▁calls▁begin|>",
    "<|tool▁calls▁end|>",
    "<|tool▁call▁begin|>",
    "<|tool▁call▁end|>",
    "<start_function_call>",
    "<end_function_call>",
    "<start_function_response>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<|python_start|>",
    "<|python_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|action_start|>",
    "<|plugin|>",
    "<|action_end|>",
    "<|end|>",
];

/// Words that stand before calls and say nothing.
const LABELS: [&str; 5] = ["[TOOL_CALLS]", "functools", ">>>", "Action:", "TOOL_CALL:"];

/// Labels behind which a name alone is a call.
const NAME_LABELS: [&str; 2] = ["Action:", "TOOL_CALL:"];

/// Marks of a result that the model makes up behind its calls.
const MADE_UP: [&str; 3] = ["<tool_response", "Observation:", "TOOL_RESULT:"];

/// Marks around thoughts that a model wrote before its calls.
const THOUGHTS: [(&str, &str); 2] = [
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("Thought:", "\nAction:"),
];

/// Marks between a name and its arguments.
const BETWEEN: [&str; 6] = [
    "<|tool_call_argument_begin|>",
    "<｜tool▁sep｜>",
    "<|tool▁sep|>",
    "[ARGS]",
    "Action Input:",
    "ARGUMENTS:",
];

/// The most calls that one text may have.
const MOST: usize = 64;

/// The calls that a whole text is made of, and how long they are; `None` if there is anything else
/// in it. A result that the model makes up, and all that follows it, does not count.
pub(super) fn read(text: &str, tools: &[Arc<ToolSpec>], code: bool) -> Option<(Vec<Call>, usize)> {
    read_part(
        text,
        tools,
        Form {
            code,
            bare: true,
            labelled: false,
        },
    )
}

fn read_part(text: &str, tools: &[Arc<ToolSpec>], form: Form) -> Option<(Vec<Call>, usize)> {
    let mut found = Vec::new();
    let mut rest = skipped(text);
    // Behind a mark of its own, the syntax is the model's and not a programmer's.
    let marked = rest.len() < text.trim_start().len();
    while !rest.is_empty() {
        if !found.is_empty() && MADE_UP.iter().any(|mark| rest.starts_with(mark)) {
            break;
        }
        let before = text[..text.len() - rest.len()].trim_end();
        let labelled = NAME_LABELS.iter().any(|label| before.ends_with(label));
        let form = Form {
            code: form.code || marked,
            bare: form.bare && !marked,
            labelled,
        };
        let (more, used) = one(rest, tools, form)?;
        found.extend(more);
        if found.len() > MOST || used == 0 {
            return None;
        }
        rest = skipped(&rest[used..]);
    }
    Some((found, text.len() - rest.len()))
}

/// A text without the blanks, commas and empty marks in front of it.
fn skipped(text: &str) -> &str {
    let mut rest = text;
    loop {
        let before = rest.len();
        rest = rest.trim_start().trim_start_matches([',', ';']);
        for mark in MARKS.iter().chain(&LABELS) {
            rest = rest.strip_prefix(mark).unwrap_or(rest);
        }
        for (open, close) in THOUGHTS {
            let thought = rest
                .strip_prefix(open)
                .and_then(|inside| inside.find(close));
            // Its end may be the label of a call.
            rest = thought.map_or(rest, |at| &rest[open.len() + at..]);
            rest = rest.strip_prefix(close).unwrap_or(rest);
        }
        if rest.len() == before {
            return rest;
        }
    }
}

/// The forms that are accepted: calls in the syntax of a programming language, calls without a
/// mark, and names alone.
#[derive(Clone, Copy)]
struct Form {
    code: bool,
    bare: bool,
    labelled: bool,
}

/// The calls at the front of a text, and how long they are.
fn one(text: &str, tools: &[Arc<ToolSpec>], form: Form) -> Option<(Vec<Call>, usize)> {
    match text.chars().next()? {
        '`' => fenced(text, tools, form.code),
        '<' => tagged(text, tools),
        '{' => json_calls(text, tools),
        '[' => json_calls(text, tools).or_else(|| python_calls(text, tools, form)),
        _ => with_object(text, tools)
            .or_else(|| with_pairs(text, tools))
            .or_else(|| python_calls(text, tools, form))
            .or_else(|| name_alone(text, tools).filter(|_| form.labelled)),
    }
}

/// A name on a line of its own.
fn name_alone(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let end = text.find('\n').unwrap_or(text.len());
    Some((vec![call(offered(&text[..end], tools)?, Value::Null)?], end))
}

fn python_calls(text: &str, tools: &[Arc<ToolSpec>], form: Form) -> Option<(Vec<Call>, usize)> {
    let end = end_of_part(text);
    let calls = python::calls(&text[..end], tools).filter(|_| form.code)?;
    // `now()` alone is as often a remark as a call.
    let says_something = !form.bare || calls.iter().any(|call| call.args != "{}");
    says_something.then_some((calls, end))
}

/// Reads calls between fences; there may be nothing else.
fn fenced(text: &str, tools: &[Arc<ToolSpec>], code: bool) -> Option<(Vec<Call>, usize)> {
    let (language, body) = text.strip_prefix(FENCE)?.split_once('\n')?;
    let code = code || language.trim() == "tool_code";
    let from = text.len() - body.len();
    let (inside, used) = match body.find("\n```") {
        Some(close) => (&body[..close], from + close + 1 + FENCE.len()),
        None => (body, text.len()),
    };
    let (calls, read) = read_part(
        inside,
        tools,
        Form {
            code,
            bare: false,
            labelled: false,
        },
    )?;
    (!calls.is_empty() && read == inside.len()).then_some((calls, used))
}

/// An object or a list that begins the text.
fn json_calls(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let (value, used) = json_value(text)?;
    // A bracket too many is a frequent mistake.
    let rest = text[used..].trim_start_matches(['}', ']', ' ', '\n']);
    Some((calls(&value, tools)?, text.len() - rest.len()))
}

/// The object or list that begins a text. One that is not closed is taken to end with the text: a
/// bracket too few at the end is the most frequent mistake.
fn json_value(text: &str) -> Option<(Value, usize)> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = stream.next() {
        return Some((value, stream.byte_offset()));
    }
    let end = json::balanced(text).unwrap_or_else(|| end_of_part(text));
    let repaired = json::repair(text.get(..end)?).ok()?;
    (repaired.span.start == 0).then_some((repaired.value, end))
}

/// Finds the next mark, or the end of the text.
fn end_of_part(text: &str) -> usize {
    MARKS
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len())
}

/// `name {..}`, with or without marks between: Mistral, Kimi, DeepSeek, Functionary.
fn with_object(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let open = text.find('{')?;
    let mut name = text[..open].trim();
    let separated = |rest: &'_ str| {
        ["<｜tool▁sep｜>", "<|tool▁sep|>"]
            .iter()
            .any(|mark| rest.starts_with(mark))
    };
    if let Some(rest) = name.strip_prefix("function").filter(|rest| separated(rest)) {
        name = rest.split_once('>').map_or(name, |(_, name)| name);
    }
    name = name.strip_prefix("call:").unwrap_or(name);
    // The arguments may stand between fences.
    let fence = name.strip_suffix("json").map_or(name, str::trim_end);
    let (mut name, is_fenced) = match fence.strip_suffix(FENCE) {
        Some(name) => (name.trim_end(), true),
        None => (name, false),
    };
    for mark in BETWEEN {
        name = name.strip_suffix(mark).unwrap_or(name).trim_end();
    }
    let name = name.split("[CALL_ID]").next()?;
    let (args, used) = json_value(&text[open..])?;
    let (args, mut used) = (unescaped(args), open + used);
    if is_fenced {
        let rest = &text[used..];
        used += rest.len() - rest.trim_start().strip_prefix(FENCE)?.len();
    }
    Some((vec![call(offered(name, tools)?, args)?], used))
}

/// A value without the marks that Gemma puts around strings.
fn unescaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("<escape>", "")),
        Value::Array(items) => Value::Array(items.into_iter().map(unescaped).collect()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (key, unescaped(value)))
                .collect(),
        ),
        other => other,
    }
}

/// `<function=name>..</function>` and `<invoke name="name">..</invoke>`.
fn tagged(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let (name, body, close) = if let Some(rest) = text.strip_prefix("<function=") {
        let (name, body) = rest.split_once('>')?;
        (name, body, "</function>")
    } else {
        let (name, body) = text.strip_prefix("<invoke name=\"")?.split_once("\">")?;
        (name, body, "</invoke>")
    };
    let tool = offered(name, tools)?;
    let from = text.len() - body.len();
    let (inside, used) = match body.find(close) {
        Some(at) => (&body[..at], from + at + close.len()),
        None => (body, text.len()),
    };
    let args = match inside.trim() {
        "" => Value::Object(Map::new()),
        inside if inside.starts_with('{') => json_value(inside)?.0,
        inside => Value::Object(parameters(tool, inside)?),
    };
    Some((vec![call(tool, args)?], used))
}

/// `<parameter=key>value</parameter>` or `<parameter name="key">value</parameter>`, one after the
/// other.
fn parameters(tool: &ToolSpec, text: &str) -> Option<Map<String, Value>> {
    let mut args = Map::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, after) = match rest.strip_prefix("<parameter=") {
            Some(after) => after.split_once('>')?,
            None => rest.strip_prefix("<parameter name=\"")?.split_once("\">")?,
        };
        let (value, after) = after.split_once("</parameter>")?;
        args.insert(key.to_owned(), typed(tool, key, value));
        rest = after.trim_start();
    }
    Some(args)
}

/// A name, then `<arg_key>key</arg_key><arg_value>value</arg_value>` one after the other: GLM.
fn with_pairs(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let end = end_of_part(text);
    let (name, pairs) = text[..end].split_once("<arg_key>")?;
    let tool = offered(name, tools)?;
    let mut args = Map::new();
    for pair in pairs.split("<arg_key>") {
        let (key, value) = pair.split_once("</arg_key>")?;
        let value = value
            .trim()
            .strip_prefix("<arg_value>")?
            .strip_suffix("</arg_value>")?;
        args.insert(key.trim().to_owned(), typed(tool, key.trim(), value));
    }
    Some((vec![call(tool, Value::Object(args))?], end))
}
