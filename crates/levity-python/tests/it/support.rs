use levity_core::{Message, Role, ToolOutput};
use levity_loop::{Agent, AgentBuilder, Answer};
use levity_python::{Isolation, Python, RunPython};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};

/// Returns both kinds of isolation.
pub(crate) fn places() -> [Isolation; 2] {
    [
        Isolation::Process(env!("CARGO_BIN_EXE_levity-python-worker").into()),
        Isolation::Thread,
    ]
}

pub(crate) fn python() -> Python {
    Python::isolated(places()[0].clone())
}

/// Creates a tool that adds one to `n` and records its calls.
pub(crate) fn add_one() -> RecordingTool {
    let add = |args: &Value| {
        Ok(ToolOutput::value(json!(
            args["n"].as_i64().unwrap_or_default() + 1
        )))
    };
    RecordingTool::new("add_one", add).with_input(json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": false,
    }))
}

/// Creates an agent whose model runs code with these arguments and then ends.
pub(crate) fn agent(args: Value, program: RunPython) -> AgentBuilder {
    let model = ScriptedModel::new()
        .call("run_python", args)
        .reply("Done.")
        .by_history();
    Agent::builder(model).program(program)
}

/// Returns the result of the model's only call: failure, value and text.
pub(crate) fn call_result(answer: &Answer) -> (bool, Value, String) {
    let messages = answer.history().messages();
    let message: &Message = messages
        .iter()
        .find(|message| message.role == Role::Tool)
        .unwrap();
    let result = message.results().next().unwrap();
    (
        result.is_error(),
        result.value.clone().unwrap_or_default(),
        result.text().into_owned(),
    )
}
