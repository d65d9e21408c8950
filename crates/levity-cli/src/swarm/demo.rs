//! What is shown where no model is configured: a plan, a worker with a tool, one that fails and
//! tries again, an answer.

use std::sync::Arc;
use std::time::Duration;

use levity::core::{ModelError, ModelErrorKind, Part, Request, Response, Role, ToolCall};
use levity::prelude::*;
use levity::test::FunctionModel;
use serde_json::json;

use crate::plan::demo::{last_words, paced};

/// A model that plays the router and all workers of a short demonstration, whatever the goal is.
pub(super) fn model(pause: Duration) -> Arc<dyn Model> {
    paced(FunctionModel::new(reply), pause)
}

const ANSWER: &str = "A scripted stand-in cannot know. It only showed how a router delegates: the \
    researcher looked at the \
                      clock, the coder failed once and tried again, and the reviewer found \
                      nothing.";

fn reply(request: &Request) -> Result<Response, ModelError> {
    let said = last_words(request);
    let words = match () {
        () if said.contains("# Who can work") => plan(&said),
        () if said.contains("# What the workers have said") => ANSWER.to_owned(),
        () if said.contains("[demo: find]") && may_call(request) => return Ok(look_at_the_clock()),
        () if said.contains("[demo: find]") => "It is a good time for a demonstration.".to_owned(),
        () if said.contains("[demo: write]") && !said.contains("# The attempt before failed") => {
            return Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "the stand-in fails once, to show how that looks",
            ));
        }
        () if said.contains("[demo: write]") => "Written, at the second attempt.".to_owned(),
        () => "I found nothing. Ready.".to_owned(),
    };
    Ok(Response::new(Message::assistant(words)))
}

/// Whether it has the clock and has not looked at it yet.
fn may_call(request: &Request) -> bool {
    request.tools.iter().any(|tool| tool.name == "now")
        && request
            .history
            .messages()
            .iter()
            .all(|message| message.role != Role::Tool)
}

fn look_at_the_clock() -> Response {
    Response::new(Message::new(
        Role::Assistant,
        [Part::ToolCall(ToolCall::new("", "now", json!({})))],
    ))
}

/// One after the other, as far as they are there.
fn plan(said: &str) -> String {
    let all = [
        (
            "find",
            "researcher",
            "Find out what there is to know. [demo: find]",
        ),
        ("write", "coder", "Write it. [demo: write]"),
        (
            "review",
            "reviewer",
            "Look over what was written. [demo: review]",
        ),
    ];
    let mut before: Option<&str> = None;
    let mut plan = Vec::new();
    for (id, worker, task) in all
        .into_iter()
        .filter(|(_, worker, _)| said.contains(&format!("`{worker}`:")))
    {
        let needs: Vec<&str> = before.replace(id).into_iter().collect();
        plan.push(json!({"id": id, "worker": worker, "task": task, "depends_on": needs}));
    }
    json!({"delegations": plan}).to_string()
}
