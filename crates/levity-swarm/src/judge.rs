//! An agent that judges the current results and decides whether to stop.
//!
//! A judge returns `{"done": .., "answer": .., "reason": ..}` as text. The text is repaired like a
//! plan, and one unreadable answer is followed by one more request with the complaint.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use levity_core::text::{clipped, fenced, head};
use levity_core::{Error, Limits, Model, Result};
use levity_graph::Drafts;
use levity_llm::json::repair;
use levity_loop::{Agent, AgentBuilder};
use serde_json::{Map, Value};

use crate::names::JUDGE;
use crate::router::Router;
use crate::shared_state::{SharedState, Work};
use crate::work_limits;

/// The configuration of a judge until the swarm is built.
#[derive(Clone)]
pub(crate) struct Judge {
    by: Option<AgentSource>,
    /// `true` if it judges after each round, not only at the end.
    pub(crate) each_round: bool,
    pub(crate) timeout: Duration,
}

/// The model or agent of a planner or judge until the swarm is built.
#[derive(Clone)]
pub(crate) enum AgentSource {
    Model(Arc<dyn Model>),
    Agent(Agent),
}

impl AgentSource {
    /// Returns the agent, or builds one on the model with these instructions and further settings.
    pub(crate) fn agent(
        &self,
        instructions: &str,
        set_up: impl FnOnce(AgentBuilder) -> AgentBuilder,
    ) -> Result<Agent> {
        match self {
            Self::Agent(agent) => Ok(agent.clone()),
            Self::Model(model) => {
                set_up(Agent::builder(model.clone()).instructions(instructions)).build()
            }
        }
    }
}

impl Judge {
    fn of(by: Option<AgentSource>) -> Self {
        Self {
            by,
            each_round: false,
            timeout: Router::DEFAULT_TIMEOUT,
        }
    }

    pub(crate) fn model(model: impl Model + 'static) -> Self {
        Self::of(Some(AgentSource::Model(Arc::new(model))))
    }

    pub(crate) fn agent(agent: Agent) -> Self {
        Self::of(Some(AgentSource::Agent(agent)))
    }

    pub(crate) fn none() -> Self {
        Self::of(None)
    }

    /// Returns `true` if there is a judge.
    pub(crate) fn exists(&self) -> bool {
        self.by.is_some()
    }

    pub(crate) fn lead_agents(&self, instructions: &str) -> Result<Vec<(&'static str, Agent)>> {
        self.by
            .iter()
            .map(|by| Ok((JUDGE, by.agent(instructions, |agent| agent)?)))
            .collect()
    }

    pub(crate) fn check(&self, rounds: u32, max_rounds: u32) -> Result<()> {
        if rounds == 0 || rounds > max_rounds {
            let problem = format!("is {rounds}; set 1 to {max_rounds}");
            return Err(Error::setting("rounds", problem));
        }
        if self.each_round && self.by.is_none() {
            let problem = "needs a judge, but none is set; remove it or set a judge";
            return Err(Error::setting("judge_each_round", problem));
        }
        Ok(())
    }

    /// Returns the work of the judge. Between rounds it gets a share of the remaining limits like a
    /// worker; at the end it gets all of them.
    pub(crate) fn work(&self, task: String, last: bool, shared: &SharedState) -> Work {
        let mut limits: Limits = match last {
            true => crate::executor::unlimited(),
            false => work_limits::share(shared, shared.rules.order.len()),
        };
        limits.wall_time = Some(self.timeout);
        Work {
            limits: Some(limits),
            ..Work::new(task)
        }
    }
}

/// The verdict of a judge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// `true` if the work is sufficient; `None` if the judge did not state it.
    pub(crate) done: Option<bool>,
    pub(crate) answer: String,
    pub(crate) reason: String,
}

/// The requested format of a verdict.
pub(crate) const SHAPE: &str =
    "Answer with this JSON alone:\n{\"done\": true, \"answer\": \"..\", \"reason\": \"..\"}\n";

/// The maximum size of a stored reason, in bytes.
const MAX_REASON_BYTES: usize = 4_000;

impl Verdict {
    /// Returns the text of the verdict for the other members.
    pub(crate) fn words(&self) -> Arc<str> {
        match (self.reason.is_empty(), self.done) {
            (false, _) => self.reason.as_str().into(),
            (true, Some(false)) => "It is not enough yet.".into(),
            (true, _) => "It is enough.".into(),
        }
    }
}

/// Reads a verdict, or returns a description of the problem.
pub(crate) fn read(text: &str) -> std::result::Result<Verdict, String> {
    let value = repair(text)
        .map_err(|error| format!("the answer is not JSON: {error}"))?
        .value;
    let Value::Object(fields) = value else {
        return Err(
            "the answer is not a JSON object with `done`, `answer` and `reason`".to_owned(),
        );
    };
    let done = match fields.get("done") {
        Some(Value::Bool(done)) => Some(*done),
        Some(Value::String(word)) if ["true", "yes"].contains(&&*word.to_lowercase()) => Some(true),
        Some(Value::String(word)) if ["false", "no"].contains(&&*word.to_lowercase()) => {
            Some(false)
        }
        _ => None,
    };
    let (answer, reason) = (words(&fields, "answer"), words(&fields, "reason"));
    if done.is_none() && answer.is_empty() {
        return Err("the answer has neither `done` nor `answer`".to_owned());
    }
    Ok(Verdict {
        done,
        answer,
        reason: head(&reason, MAX_REASON_BYTES).to_owned(),
    })
}

/// Returns an unreadable verdict as a plain text answer, or `None` if it is JSON or empty.
pub(crate) fn in_words(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_empty = match serde_json::from_str(text) {
        Ok(value) => matches!(value, Value::Null | Value::Array(_) | Value::Object(_)),
        Err(_) => text.is_empty(),
    };
    (!is_empty).then_some(text)
}

fn words(fields: &Map<String, Value>, key: &str) -> String {
    match fields.get(key) {
        Some(Value::String(text)) => text.trim().to_owned(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

/// The maximum number of requests for a verdict.
pub(crate) const MAX_ATTEMPTS: u32 = 2;

/// Adds the problem of the previous answer to the prompt, if there was one.
pub(crate) fn write_complaint(drafts: &Drafts, text: &mut String) {
    /// The maximum size of the previous answer in the prompt, in bytes.
    const MAX_PREVIOUS_BYTES: usize = 8_000;
    let [complaint, ..] = drafts.complaints() else {
        return;
    };
    let previous = fenced(&clipped(
        drafts.previous().unwrap_or_default(),
        MAX_PREVIOUS_BYTES,
    ));
    let _ = write!(
        text,
        "\n# What you answered before\n{previous}\n\n# What is wrong with it\n- \
            {complaint}\nAnswer with the JSON alone.\n"
    );
}

#[cfg(test)]
mod tests;
