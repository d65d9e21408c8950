//! The tools by which a model asks the user and by which it finishes the run.
//!
//! The loop performs these calls itself. They are listed like tools because every model knows how
//! to call a tool, and no model needs a special protocol for it.

use levity_core::{Hints, ToolError, ToolErrorKind, ToolSpec};
use serde_json::{Value, json};

/// The name of the tool that asks the user.
pub(crate) const ASK: &str = "ask_user";

/// The name of the tool that ends the run.
pub(crate) const FINISH: &str = "finish";

/// The reply to the model when no one answers its question.
pub(crate) const UNANSWERED: &str = "go on with what you know, and say what you assumed";

/// The reply to the model when its signal is recorded.
pub(crate) const RECORDED: &str = "noted";

/// The reply to the model when a message arrived before a signal that would have ended the run.
pub(crate) const MESSAGE_PENDING: &str = "this was not taken, since something was said \
    meanwhile; look at \
    that first, then call it again if it still holds";

/// The reply to the model when it calls an ending tool together with other tools.
pub(crate) fn not_alone_text(name: &str) -> String {
    format!(
        "`{name}` was called beside other tools, so it was left out; look at their results first, \
            then call it alone"
    )
}

pub(crate) fn ask_spec() -> ToolSpec {
    ToolSpec::new(
        ASK,
        "Asks the user a question and waits for the answer. Use it when the task is unclear and a \
            wrong guess \
         would cost much; ask for one thing at a time.",
    )
    .with_hints(Hints::new().read_only())
    .with_input(json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question, with what the user needs \
                to answer it."},
            "options": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Answers to choose from, if there are such.",
            },
        },
        "required": ["question"],
        "additionalProperties": false,
    }))
}

pub(crate) fn finish_spec() -> ToolSpec {
    ToolSpec::new(
        FINISH,
        "Ends the work with the final answer. Call it alone, once everything is done.",
    )
    .with_hints(Hints::new().read_only())
    .with_input(json!({
        "type": "object",
        "properties": {"answer": {"description": "The final answer to the task, whole."}},
        "required": ["answer"],
        "additionalProperties": false,
    }))
}

/// Returns the question of a call, with the answers to choose from.
pub(crate) fn question(args: &Value) -> Result<String, ToolError> {
    let Some(question) = args
        .get("question")
        .and_then(Value::as_str)
        .filter(|text| !text.trim().is_empty())
    else {
        return Err(ToolError::new(
            ToolErrorKind::InvalidArgs,
            "`question` must be a text that is not empty",
        ));
    };
    let options = args
        .get("options")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let options: Vec<&str> = options.collect();
    Ok(match &*options {
        [] => question.to_owned(),
        options => format!("{question} ({})", options.join(" / ")),
    })
}

/// Returns the answer of a call that ends the run, as text.
pub(crate) fn answer(args: &Value) -> Result<String, ToolError> {
    match args.get("answer") {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        Some(value @ (Value::Object(_) | Value::Array(_) | Value::Number(_) | Value::Bool(_))) => {
            Ok(value.to_string())
        }
        _ => Err(ToolError::new(
            ToolErrorKind::InvalidArgs,
            "`answer` must be there and not be empty",
        )),
    }
}
