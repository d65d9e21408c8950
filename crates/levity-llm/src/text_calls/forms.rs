//! The forms in which model families write calls.
//!
//! A text must consist of calls only; anything else makes it prose and yields `None`. The reader
//! skips markers without a meaning, reads the calls at the current position, and repeats. Some
//! forms are ambiguous: Python syntax counts only if the user did not ask for code, and a bare name
//! only after a label such as `Action:`.
//!
//! Examples of one call in several families:
//!
//! | family | text |
//! |---|---|
//! | Qwen, Hermes | `<tool_call>{"name": "now", "arguments": {}}</tool_call>` |
//! | Mistral | `[TOOL_CALLS]now[ARGS]{}` |
//! | Llama | `<function=now>{}</function>` |
//! | GLM | `<tool_call>now<arg_key>zone</arg_key><arg_value>UTC</arg_value></tool_call>` |
//! | ReAct prompts | `Action: now`, then `Action Input: {}` |

use std::sync::Arc;

use levity_core::ToolSpec;
use serde_json::{Map, Value};

use super::value::{call, calls, offered_tool, typed};
use super::{Call, python};
use crate::json;

/// The marker of a fenced block in Markdown.
pub(super) const FENCE: &str = "```";

/// Markers that start a call. Servers that support the model remove them; others deliver them as
/// text.
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

/// Markers between calls that carry no meaning.
const EMPTY_MARKERS: [&str; 46] = [
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

/// Labels before calls that carry no meaning.
const LABELS: [&str; 5] = ["[TOOL_CALLS]", "functools", ">>>", "Action:", "TOOL_CALL:"];

/// Labels after which a bare name is a call.
const NAME_LABELS: [&str; 2] = ["Action:", "TOOL_CALL:"];

/// Markers of a result that the model invents after its calls.
const INVENTED_RESULTS: [&str; 3] = ["<tool_response", "Observation:", "TOOL_RESULT:"];

/// Markers around thoughts that a model wrote before its calls.
const THOUGHTS: [(&str, &str); 2] = [
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("Thought:", "\nAction:"),
];

/// Markers between a name and its arguments.
const NAME_SEPARATORS: [&str; 6] = [
    "<|tool_call_argument_begin|>",
    "<｜tool▁sep｜>",
    "<|tool▁sep|>",
    "[ARGS]",
    "Action Input:",
    "ARGUMENTS:",
];

/// The maximum number of calls in one text.
const MAX_CALLS: usize = 64;

/// Returns the calls that make up a text, and their length; `None` if the text contains anything
/// else. A result that the model invents is ignored, together with all text after it.
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

/// Reads a whole text or the inside of a fence. A marker at the start changes the form: Python
/// syntax is then allowed, and a call without arguments counts.
fn read_part(text: &str, tools: &[Arc<ToolSpec>], form: Form) -> Option<(Vec<Call>, usize)> {
    let mut found = Vec::new();
    let mut rest = skip_markers(text);
    // After an explicit marker, the syntax comes from the model and not from a programmer.
    let marked = rest.len() < text.trim_start().len();
    while !rest.is_empty() {
        if !found.is_empty() && INVENTED_RESULTS.iter().any(|mark| rest.starts_with(mark)) {
            break;
        }
        let before = text[..text.len() - rest.len()].trim_end();
        let labelled = NAME_LABELS.iter().any(|label| before.ends_with(label));
        let form = Form {
            code: form.code || marked,
            bare: form.bare && !marked,
            labelled,
        };
        let (more, used) = calls_at_start(rest, tools, form)?;
        found.extend(more);
        if found.len() > MAX_CALLS || used == 0 {
            return None;
        }
        rest = skip_markers(&rest[used..]);
    }
    Some((found, text.len() - rest.len()))
}

/// Returns a text without leading white space, commas and meaningless markers.
///
/// It repeats until nothing changes, because markers come in any order.
fn skip_markers(text: &str) -> &str {
    let mut rest = text;
    loop {
        let before = rest.len();
        rest = rest.trim_start().trim_start_matches([',', ';']);
        for mark in EMPTY_MARKERS.iter().chain(&LABELS) {
            rest = rest.strip_prefix(mark).unwrap_or(rest);
        }
        for (open, close) in THOUGHTS {
            let thought = rest
                .strip_prefix(open)
                .and_then(|inside| inside.find(close));
            // The end of the thoughts may be the label of a call.
            rest = thought.map_or(rest, |at| &rest[open.len() + at..]);
            rest = rest.strip_prefix(close).unwrap_or(rest);
        }
        if rest.len() == before {
            return rest;
        }
    }
}

/// The accepted forms: calls in programming syntax, calls without a marker, and bare names.
///
/// `code` allows Python syntax, `bare` means that no marker precedes the call, and `labelled` that
/// a label does.
#[derive(Clone, Copy)]
struct Form {
    code: bool,
    bare: bool,
    labelled: bool,
}

/// Returns the calls at the start of a text, and their length.
///
/// The first character selects the forms to try. The length excludes markers after the calls.
fn calls_at_start(text: &str, tools: &[Arc<ToolSpec>], form: Form) -> Option<(Vec<Call>, usize)> {
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

/// Parses a name on a separate line.
fn name_alone(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let end = text.find('\n').unwrap_or(text.len());
    Some((
        vec![call(offered_tool(&text[..end], tools)?, Value::Null)?],
        end,
    ))
}

/// Without a marker, at least one call must have arguments.
fn python_calls(text: &str, tools: &[Arc<ToolSpec>], form: Form) -> Option<(Vec<Call>, usize)> {
    let end = end_of_part(text);
    let calls = python::calls(&text[..end], tools).filter(|_| form.code)?;
    // `now()` alone is as often a remark as a call.
    let says_something = !form.bare || calls.iter().any(|call| call.args != "{}");
    says_something.then_some((calls, end))
}

/// Parses calls between fences that contain nothing else.
///
/// A fence without an end reaches to the end of the text. The language `tool_code` of Gemma implies
/// Python syntax.
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

/// Parses an object or a list at the start of the text.
fn json_calls(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let (value, used) = json_value(text)?;
    // A superfluous bracket is a common mistake.
    let rest = text[used..].trim_start_matches(['}', ']', ' ', '\n']);
    Some((calls(&value, tools)?, text.len() - rest.len()))
}

/// Returns the object or list at the start of a text. An unclosed one is assumed to end with the
/// text, because a missing bracket at the end is the most common mistake.
///
/// The fallback repairs the JSON, and accepts the result only if it starts where the text starts.
fn json_value(text: &str) -> Option<(Value, usize)> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = stream.next() {
        return Some((value, stream.byte_offset()));
    }
    let end = json::balanced(text).unwrap_or_else(|| end_of_part(text));
    let repaired = json::repair(text.get(..end)?).ok()?;
    (repaired.span.start == 0).then_some((repaired.value, end))
}

/// Returns the position of the next marker, or the end of the text.
fn end_of_part(text: &str) -> usize {
    EMPTY_MARKERS
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len())
}

/// Parses `name {..}`, with or without markers between: Mistral, Kimi, DeepSeek, Functionary.
///
/// Also read are the forms `functions.name:0`, `call:name` and `name[CALL_ID]id[ARGS]`.
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
    // The arguments may be between fences.
    let fence = name.strip_suffix("json").map_or(name, str::trim_end);
    let (mut name, is_fenced) = match fence.strip_suffix(FENCE) {
        Some(name) => (name.trim_end(), true),
        None => (name, false),
    };
    for mark in NAME_SEPARATORS {
        name = name.strip_suffix(mark).unwrap_or(name).trim_end();
    }
    let name = name.split("[CALL_ID]").next()?;
    let (args, used) = json_value(&text[open..])?;
    let (args, mut used) = (unescaped(args), open + used);
    if is_fenced {
        let rest = &text[used..];
        used += rest.len() - rest.trim_start().strip_prefix(FENCE)?.len();
    }
    Some((vec![call(offered_tool(name, tools)?, args)?], used))
}

/// Removes the markers that Gemma puts around strings.
///
/// Keys are left alone; only string values carry the markers.
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

/// Parses `<function=name>..</function>` and `<invoke name="name">..</invoke>`.
///
/// The body is empty, a JSON object, or a sequence of parameters. A missing end tag is accepted.
fn tagged(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let (name, body, close) = if let Some(rest) = text.strip_prefix("<function=") {
        let (name, body) = rest.split_once('>')?;
        (name, body, "</function>")
    } else {
        let (name, body) = text.strip_prefix("<invoke name=\"")?.split_once("\">")?;
        (name, body, "</invoke>")
    };
    let tool = offered_tool(name, tools)?;
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

/// Parses a sequence of `<parameter=key>value</parameter>` or
/// `<parameter name="key">value</parameter>`.
///
/// Any text between two parameters makes the sequence invalid.
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

/// Parses a name and a sequence of `<arg_key>key</arg_key><arg_value>value</arg_value>`: GLM.
fn with_pairs(text: &str, tools: &[Arc<ToolSpec>]) -> Option<(Vec<Call>, usize)> {
    let end = end_of_part(text);
    let (name, pairs) = text[..end].split_once("<arg_key>")?;
    let tool = offered_tool(name, tools)?;
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
