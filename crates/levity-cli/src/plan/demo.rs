//! A demonstration for when no model is configured: a plan, two parallel steps, one that fails, and
//! a change of the plan.
//!
//! The scripted model lets a user see a tree, a failure and a change of the plan without a key, a
//! cost or a network. It is a pure function of the last message of the user: it recognizes the
//! planner by sentences of levity's own instructions, and the steps by marks such as `[demo:
//! fails]` that its own plan contains.
//!
//! `paced` and `last_user_text` serve the demonstration of `swarm` too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity::core::{
    Deltas, ModelCard, ModelError, ModelErrorKind, Request, Response, Role, World as _,
};
use levity::prelude::*;
use levity::runtime::SystemWorld;
use levity::test::FunctionModel;
use serde_json::{Value, json};

/// The time that a reply takes on a terminal.
///
/// Long enough to see each step start and end, short enough for a demonstration of a few seconds.
pub(crate) const PAUSE: Duration = Duration::from_millis(700);

/// Makes a model that plays all agents of a short demonstration for any goal.
pub(super) fn model(pause: Duration) -> Arc<dyn Model> {
    paced(FunctionModel::new(reply), pause)
}

/// Wraps a model so that each reply takes `pause`.
pub(crate) fn paced(model: FunctionModel, pause: Duration) -> Arc<dyn Model> {
    Arc::new(PacedModel { model, pause })
}

/// Waits before it replies, in real time; without a terminal the pause is zero, so tests do not
/// wait.
struct PacedModel {
    model: FunctionModel,
    pause: Duration,
}

#[async_trait]
impl Model for PacedModel {
    fn card(&self) -> &ModelCard {
        self.model.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        if !self.pause.is_zero() {
            SystemWorld.sleep(self.pause).await;
        }
        self.model.stream(request).await
    }
}

/// The failure is a bad request, which no layer repeats, so the plan itself has to change.
fn reply(request: &Request) -> Result<Response, ModelError> {
    let prompt_text = last_user_text(request);
    let reply = match () {
        () if prompt_text.contains("Answer with the change of the plan alone") => changed_plan(),
        () if prompt_text.contains("Answer with the plan alone") => first_plan(),
        () if prompt_text.contains("[demo: fails]") => {
            return Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "the second source is down",
            ));
        }
        () if prompt_text.contains("[demo: answer]") => json!({"answer": ANSWER}),
        () if prompt_text.contains("[demo: other]") => json!({"second": "from memory"}),
        () => json!({"first": "from the first source"}),
    };
    Ok(Response::new(Message::assistant(reply.to_string())))
}

const ANSWER: &str = "A scripted model cannot answer this. It only showed how a plan is made, how \
    a step fails, and how another step replaces it.";

/// Returns an empty text if the history has no message of a user.
pub(crate) fn last_user_text(request: &Request) -> String {
    let messages = request.history.messages();
    let last = messages
        .iter()
        .rev()
        .find(|message| message.role == Role::User);
    last.map(|message| message.text().to_string())
        .unwrap_or_default()
}

/// Two steps run in parallel and one depends on both; the second one fails.
fn first_plan() -> Value {
    let step = |id: &str, agent: &str, about: &str, mark: &str, reads: &[&str], writes: &str| {
        let prompt = format!("{about} [demo: {mark}]");
        json!({
            "id": id,
            "agent": agent,
            "description": about,
            "prompt": prompt,
            "reads": reads,
            "writes": [writes],
        })
    };
    json!({"steps": [
        step("first", "Retriever", "Look at the first source.", "works", &[], "first"),
        step("second", "Retriever", "Look at the second source.", "fails", &[], "second"),
        step(
            "answer",
            "Summarizer",
            "Put both together.",
            "answer",
            &["first", "second"],
            "answer",
        ),
    ]})
}

/// Replaces the failed step by one that needs no source; `instead_of` keeps the dependency of the
/// last step intact.
fn changed_plan() -> Value {
    json!({
        "reason": "the second source is down",
        "add": [{
            "id": "recall", "agent": "Thinker", "description": "Do without the second source.",
            "prompt": "Say what is known without it. [demo: \
                other]", "writes": ["second"], "instead_of": "second"
        }]
    })
}
