//! Somebody who looks at what there is and says whether it is enough.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use levity_core::text::{clipped, fenced, head};
use levity_core::{Error, Limits, Model, Result};
use levity_graph::Drafts;
use levity_llm::json::repair;
use levity_loop::{Agent, AgentBuilder};
use serde_json::{Map, Value};

use crate::desk::{Desk, Work};
use crate::effort;
use crate::names::JUDGE;
use crate::router::Router;

/// Who judges, until the swarm is built.
#[derive(Clone)]
pub(crate) struct Judge {
    by: Option<By>,
    /// Whether it looks after each round, and not at the end alone.
    pub(crate) each_round: bool,
    pub(crate) timeout: Duration,
}

/// Who plans or judges, until the swarm is built.
#[derive(Clone)]
pub(crate) enum By {
    Model(Arc<dyn Model>),
    Agent(Agent),
}

impl By {
    /// The agent, or one on the model with these instructions, set up further.
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
    fn of(by: Option<By>) -> Self {
        Self {
            by,
            each_round: false,
            timeout: Router::DEFAULT_TIMEOUT,
        }
    }

    pub(crate) fn model(model: impl Model + 'static) -> Self {
        Self::of(Some(By::Model(Arc::new(model))))
    }

    pub(crate) fn agent(agent: Agent) -> Self {
        Self::of(Some(By::Agent(agent)))
    }

    pub(crate) fn nobody() -> Self {
        Self::of(None)
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.by.is_some()
    }

    pub(crate) fn leads(&self, instructions: &str) -> Result<Vec<(&'static str, Agent)>> {
        self.by
            .iter()
            .map(|by| Ok((JUDGE, by.agent(instructions, |agent| agent)?)))
            .collect()
    }

    pub(crate) fn check(&self, rounds: u32, most: u32) -> Result<()> {
        if rounds == 0 || rounds > most {
            let problem = format!("is {rounds}; it can be 1 to {most}");
            return Err(Error::setting("rounds", problem));
        }
        if self.each_round && self.by.is_none() {
            let problem =
                "needs somebody who judges, and there is nobody; leave it out or name a judge";
            return Err(Error::setting("judge_each_round", problem));
        }
        Ok(())
    }

    /// What it is to do. Between rounds it has a share of what is left, as the workers have; at the
    /// end all of it.
    pub(crate) fn work(&self, task: String, last: bool, desk: &Desk) -> Work {
        let mut limits: Limits = match last {
            true => crate::executor::unlimited(),
            false => effort::share(desk, desk.rules.order.len()),
        };
        limits.wall_time = Some(self.timeout);
        Work {
            limits: Some(limits),
            ..Work::new(task)
        }
    }
}

/// What a judge has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether it is enough; unknown when it was not said.
    pub(crate) done: Option<bool>,
    pub(crate) answer: String,
    pub(crate) reason: String,
}

/// What is asked for.
pub(crate) const SHAPE: &str =
    "Answer with this JSON alone:\n{\"done\": true, \"answer\": \"..\", \"reason\": \"..\"}\n";

/// How much of a reason is kept.
const MOST_REASON: usize = 4_000;

impl Verdict {
    /// The words for the others.
    pub(crate) fn words(&self) -> Arc<str> {
        match (self.reason.is_empty(), self.done) {
            (false, _) => self.reason.as_str().into(),
            (true, Some(false)) => "It is not enough yet.".into(),
            (true, _) => "It is enough.".into(),
        }
    }
}

/// Reads a verdict, or says what is wrong with it.
pub(crate) fn read(text: &str) -> std::result::Result<Verdict, String> {
    let value = repair(text)
        .map_err(|error| format!("it is no JSON: {error}"))?
        .value;
    let Value::Object(fields) = value else {
        return Err("it is no JSON object with `done`, `answer` and `reason`".to_owned());
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
        return Err("it has neither `done` nor `answer`".to_owned());
    }
    Ok(Verdict {
        done,
        answer,
        reason: head(&reason, MOST_REASON).to_owned(),
    })
}

/// What a judge said that is no verdict, as an answer in its own words; nothing when it is JSON
/// that has none.
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

/// How often a verdict is asked for.
pub(crate) const TRIES: u32 = 2;

/// Says what is wrong with the answer before, if there was one.
pub(crate) fn complain(drafts: &Drafts, text: &mut String) {
    /// How much is shown of what was answered before, in bytes.
    const MOST_SHOWN: usize = 8_000;
    let [complaint, ..] = drafts.complaints() else {
        return;
    };
    let previous = fenced(&clipped(drafts.previous().unwrap_or_default(), MOST_SHOWN));
    let _ = write!(
        text,
        "\n# What you answered before\n{previous}\n\n# What is wrong with it\n- \
            {complaint}\nAnswer with the JSON alone.\n"
    );
}

#[cfg(test)]
mod tests;
