use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::names::{did_you_mean, short};
use crate::pattern::PatternTool;
use crate::rules::Rules;
use levity_core::{Error, Result};

mod failure;
mod history;
mod legs;
mod machine;
mod prompt;
mod record;
#[cfg(test)]
mod tests;
mod transfer;

pub use history::HandoffHistory;
pub(crate) use machine::HandoffMachine;

/// A pattern in which an agent has the conversation, and either answers or passes it on to another
/// agent.
///
/// Each worker has a tool `transfer_to`, whose call ends its part (its *leg*). The schema of the
/// tool lists the allowed recipients. A worker that answers with text ends the run.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{HandoffHistory, Handoff, Swarm};
/// use levity_test::ScriptedModel;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let desk = ScriptedModel::new().call(
///     "transfer_to",
///     json!({"to": "pilot", "note": "It is about the tide."}),
/// );
/// let pilot = ScriptedModel::new().reply("High water is at six.");
/// let handoff = Handoff::starting_with("desk")
///     .allow_transfers("desk", ["pilot"])
///     .history(HandoffHistory::TextOnly)
///     .max_handoffs(4);
/// let swarm = Swarm::builder(handoff)
///     .agent("desk", "Hears what callers want.", Agent::builder(desk).build()?)
///     .agent("pilot", "Knows tides and charts.", Agent::builder(pilot).build()?)
///     .build()?;
/// let finished = swarm.run("When can we sail?").await?;
/// assert_eq!(finished.text(), "High water is at six.");
/// assert_eq!(finished.last_speaker(), Some("pilot"));
/// # Ok(())
/// # }
/// ```
///
/// # The conversation
/// [`SwarmDetails::conversation`](crate::SwarmDetails::conversation) contains the messages from
/// before the run, the user's messages, and the messages and calls of each worker, including
/// `transfer_to`.
///
/// It does not contain the instructions that a worker gets when it takes over, because no
/// participant wrote them. Nor does it contain messages of failed attempts; those are in their
/// runs. At most 2,000 messages and 8 MiB are stored; the oldest are dropped, and a marker states
/// how many. The conversation is the memory of the workers: their
/// [`WorkerMemory`](crate::WorkerMemory) has no effect here.
///
/// [`SwarmInput::after`](crate::SwarmInput::after) continues with the worker that had the
/// conversation last. That worker sees all of it: a [`HandoffHistory`] applies only when the
/// conversation is passed on.
///
/// # Loops and failures
/// A worker may pass the conversation to the same recipient [`max_repeats`](Self::max_repeats)
/// times, and a run has at most [`max_handoffs`](Self::max_handoffs). Beyond that, or when a limit
/// of the run is near, the handoff is refused and reported as
/// [`SwarmNotice::LoopFound`](crate::SwarmNotice::LoopFound). The worker that has the conversation
/// must then answer, without the tool.
///
/// A failed leg is retried as often as its worker [allows](crate::Worker::retries). Then the
/// [fallback](crate::Worker::fallback) for the worker takes over. Then the conversation returns to
/// the previous worker, which receives the error and must answer without the tool. If no worker
/// remains, the run ends with [`Error::Unreached`](crate::Error::Unreached), which contains the
/// conversation.
///
/// Messages that the host sends during a leg are added to the next one. If the leg answers, its
/// worker is asked once more, with those messages.
///
/// A worker that is a [swarm](crate::Worker::swarm) does not see the conversation and cannot pass
/// it on. It receives the user's last message and the note, and its answer ends the run.
#[derive(Clone)]
pub struct Handoff {
    first: Arc<str>,
    to: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    carry: HandoffHistory,
    carry_to: BTreeMap<Arc<str>, HandoffHistory>,
    max_handoffs: u32,
    repeats: u32,
}

impl Handoff {
    /// The default maximum number of handoffs in a run: 10.
    pub const DEFAULT_HANDOFFS: u32 = 10;
    /// The default maximum number of handoffs from one worker to the same recipient: 2.
    pub const DEFAULT_REPEATS: u32 = 2;

    /// Creates a handoff that starts with this worker.
    ///
    /// ```
    /// use levity_swarm::Handoff;
    ///
    /// let handoff = Handoff::starting_with("triage")
    ///     .allow_transfers("triage", ["billing", "repairs"]);
    /// # let _ = handoff;
    /// ```
    pub fn starting_with(worker: impl Into<Arc<str>>) -> Self {
        Self {
            first: worker.into(),
            to: BTreeMap::new(),
            carry: HandoffHistory::default(),
            carry_to: BTreeMap::new(),
            max_handoffs: Self::DEFAULT_HANDOFFS,
            repeats: Self::DEFAULT_REPEATS,
        }
    }

    /// Sets the recipients to which a worker may pass the conversation; all others by default.
    /// Another call adds more. With an empty list, the worker must answer itself.
    ///
    /// A name that is not a worker of the swarm is an error of
    /// [`build`](crate::SwarmBuilder::build).
    #[must_use]
    pub fn allow_transfers<N: Into<Arc<str>>>(
        mut self,
        worker: impl Into<Arc<str>>,
        others: impl IntoIterator<Item = N>,
    ) -> Self {
        self.to
            .entry(worker.into())
            .or_default()
            .extend(others.into_iter().map(Into::into));
        self
    }

    /// Sets the part of the conversation that a handoff includes; [`HandoffHistory::Everything`] by
    /// default.
    #[must_use]
    pub fn history(mut self, carry: HandoffHistory) -> Self {
        self.carry = carry;
        self
    }

    /// Sets the part of the conversation that a handoff to this worker includes.
    ///
    /// ```
    /// use levity_swarm::{HandoffHistory, Handoff};
    ///
    /// let handoff = Handoff::starting_with("triage")
    ///     .history(HandoffHistory::TextOnly)
    ///     .history_for("billing", HandoffHistory::Last(6));
    /// # let _ = handoff;
    /// ```
    #[must_use]
    pub fn history_for(mut self, worker: impl Into<Arc<str>>, carry: HandoffHistory) -> Self {
        self.carry_to.insert(worker.into(), carry);
        self
    }

    /// Sets the maximum number of handoffs in a run; [`DEFAULT_HANDOFFS`](Self::DEFAULT_HANDOFFS)
    /// by default.
    ///
    /// With 0, every worker must answer itself. Handoffs that levity refuses do not count.
    #[must_use]
    pub fn max_handoffs(mut self, times: u32) -> Self {
        self.max_handoffs = times;
        self
    }

    /// Sets the maximum number of handoffs from one worker to the same recipient in a run;
    /// [`DEFAULT_REPEATS`](Self::DEFAULT_REPEATS) by default.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Handoff, Swarm};
    /// use levity_test::ScriptedModel;
    ///
    /// # fn main() -> levity_swarm::Result<()> {
    /// let desk = Agent::builder(ScriptedModel::new()).build()?;
    /// let handoff = Handoff::starting_with("desk").max_repeats(0);
    /// let error = Swarm::builder(handoff).agent("desk", "Answers.", desk).build().unwrap_err();
    /// assert!(error.to_string().contains("max_handoffs(0)"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_repeats(mut self, times: u32) -> Self {
        self.repeats = times;
        self
    }

    pub(crate) fn extra_tools(&self, worker: &str, rules: &Rules) -> Vec<PatternTool> {
        transfer::spec(self, worker, rules)
            .map(PatternTool::Last)
            .into_iter()
            .collect()
    }

    pub(crate) fn check(&self, workers: &[Arc<str>]) -> Result<()> {
        let known = |setting, name: &Arc<str>| match workers.contains(name) {
            true => Ok(()),
            false => Err(Error::setting(setting, nobody(name, workers))),
        };
        known("starting_with", &self.first)?;
        for (from, others) in &self.to {
            known("allow_transfers", from)?;
            others
                .iter()
                .try_for_each(|name| known("allow_transfers", name))?;
            if others.contains(from) {
                let problem = format!(
                    "lets `{}` pass the conversation to itself; remove \
                    that",
                    short(from)
                );
                return Err(Error::setting("allow_transfers", problem));
            }
        }
        self.carry_to
            .keys()
            .try_for_each(|name| known("history_for", name))?;
        if self.repeats == 0 {
            let problem = "is 0, so no handoff could happen; use `max_handoffs(0)` for that";
            return Err(Error::setting("max_repeats", problem));
        }
        Ok(())
    }

    /// Returns `true` if one worker may pass the conversation to another.
    fn allows(&self, from: &str, to: &str) -> bool {
        from != to
            && self
                .to
                .get(from)
                .is_none_or(|others| others.iter().any(|other| **other == *to))
    }

    /// Returns the part of the conversation that a handoff to a worker includes.
    fn carry_for(&self, to: &str) -> &HandoffHistory {
        self.carry_to.get(to).unwrap_or(&self.carry)
    }
}

fn nobody(name: &str, workers: &[Arc<str>]) -> String {
    let meant = did_you_mean(name, workers.iter().map(|worker| &**worker));
    format!(
        "names `{}`, which is not a worker of this swarm{meant}",
        short(name)
    )
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("starting_with", &self.first)
            .field("carry", &self.carry)
            .field("max_handoffs", &self.max_handoffs)
            .field("max_repeats", &self.repeats)
            .finish_non_exhaustive()
    }
}
