//! What is shown where no model is configured: a plan, two steps at a time, one that fails, and another way.

use levity::core::{ModelError, ModelErrorKind, Request, Response, Role};
use levity::prelude::*;
use levity::test::FunctionModel;
use serde_json::{Value, json};

/// A model that plays all agents of a short demonstration, whatever the goal is.
pub(super) fn model() -> FunctionModel {
    FunctionModel::new(|request| {
        let said = last_words(request);
        let reply = match () {
            () if said.contains("Answer with the change of the plan alone") => another_way(),
            () if said.contains("Answer with the plan alone") => first_plan(),
            () if said.contains("[demo: fails]") => {
                return Err(ModelError::new(ModelErrorKind::BadRequest, "the second source is down"));
            }
            () if said.contains("[demo: answer]") => json!({
                "answer": "A scripted stand-in cannot know. It only showed how a plan is made, how a step \
                           fails, and how another takes its place."
            }),
            () if said.contains("[demo: other]") => json!({"second": "from memory"}),
            () => json!({"first": "from the first source"}),
        };
        Ok(Response::new(Message::assistant(reply.to_string())))
    })
}

fn last_words(request: &Request) -> String {
    let messages = request.history.messages();
    let last = messages.iter().rev().find(|message| message.role == Role::User);
    last.map(|message| message.text().to_string()).unwrap_or_default()
}

fn first_plan() -> Value {
    let step = |id: &str, agent: &str, about: &str, mark: &str, reads: &[&str], writes: &str| {
        let prompt = format!("{about} [demo: {mark}]");
        json!({"id": id, "agent": agent, "description": about, "prompt": prompt, "reads": reads, "writes": [writes]})
    };
    json!({"steps": [
        step("first", "Retriever", "Look at the first source.", "works", &[], "first"),
        step("second", "Retriever", "Look at the second source.", "fails", &[], "second"),
        step("answer", "Summarizer", "Put both together.", "answer", &["first", "second"], "answer"),
    ]})
}

fn another_way() -> Value {
    json!({
        "reason": "the second source is down",
        "add": [{
            "id": "recall", "agent": "Thinker", "description": "Do without the second source.",
            "prompt": "Say what is known without it. [demo: other]", "writes": ["second"], "instead_of": "second"
        }]
    })
}
