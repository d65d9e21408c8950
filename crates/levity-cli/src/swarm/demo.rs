//! A demonstration for when no model is configured: a plan, a worker with a tool, a worker that
//! fails and retries, and an answer.
//!
//! The scripted model is a pure function of a request: it recognizes the router, the worker and the
//! final answer by headings that levity's own instructions contain, and the steps by the marks
//! `[demo: ..]` that its own plan places into the tasks. It needs no network, costs nothing, and
//! gives the same run each time, apart from the time that the clock tool returns.
//!
//! The headings are coupled to the texts of levity-swarm. A changed heading makes the router's
//! reply a plain sentence, and the swarm then selects workers by keywords; the demonstration still
//! ends.

use std::sync::Arc;
use std::time::Duration;

use levity::core::{ModelError, ModelErrorKind, Part, Request, Response, Role, ToolCall};
use levity::prelude::*;
use levity::test::FunctionModel;
use serde_json::json;

use crate::plan::demo::{last_user_text, paced};

/// Makes a model that plays the router and all workers of a short demonstration for any goal.
///
/// `pause` delays each reply, so a person can follow the lines; it is zero without a terminal.
pub(super) fn model(pause: Duration) -> Arc<dyn Model> {
    paced(FunctionModel::new(reply), pause)
}

const ANSWER: &str = "A scripted model cannot answer this. It only showed how a router delegates: \
    the researcher read the clock, the coder failed once and retried, and the reviewer found no \
    problems.";

/// The coder fails on purpose with an error that a layer does not retry, so the retry is visible as
/// one of the swarm.
fn reply(request: &Request) -> Result<Response, ModelError> {
    let prompt = last_user_text(request);
    let text = match () {
        () if prompt.contains("# Who can work") => plan(&prompt),
        () if prompt.contains("# What the workers have said") => ANSWER.to_owned(),
        () if prompt.contains("[demo: find]") && may_call(request) => return Ok(read_clock()),
        () if prompt.contains("[demo: find]") => "It is a good time for a \
            demonstration."
            .to_owned(),
        () if prompt.contains("[demo: write]")
            && !prompt.contains(
                "# The attempt before \
            failed",
            ) =>
        {
            return Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "the scripted model fails once to show a retry",
            ));
        }
        () if prompt.contains("[demo: write]") => "Written, at the second attempt.".to_owned(),
        () => "I found nothing. Ready.".to_owned(),
    };
    Ok(Response::new(Message::assistant(text)))
}

/// Returns `true` if the model has the clock and has not called it yet.
fn may_call(request: &Request) -> bool {
    request.tools.iter().any(|tool| tool.name == "now")
        && request
            .history
            .messages()
            .iter()
            .all(|message| message.role != Role::Tool)
}

/// Calls the tool `now` without arguments and without an id.
fn read_clock() -> Response {
    Response::new(Message::new(
        Role::Assistant,
        [Part::ToolCall(ToolCall::new("", "now", json!({})))],
    ))
}

/// Plans the available workers one after the other.
///
/// Workers that `--worker` left out do not appear in the router's prompt, so the plan contains only
/// those that exist. Each delegation depends on the one before it.
fn plan(prompt: &str) -> String {
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
    let mut previous: Option<&str> = None;
    let mut plan = Vec::new();
    for (id, worker, task) in all
        .into_iter()
        .filter(|(_, worker, _)| prompt.contains(&format!("`{worker}`:")))
    {
        let needs: Vec<&str> = previous.replace(id).into_iter().collect();
        plan.push(json!({"id": id, "worker": worker, "task": task, "depends_on": needs}));
    }
    json!({"delegations": plan}).to_string()
}
