use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::names::{did_you_mean, short};
use crate::pattern::Given;
use crate::rules::Rules;
use levity_core::{Error, Result};

mod brief;
mod carry;
mod fails;
mod legs;
mod machine;
mod record;
#[cfg(test)]
mod tests;
mod transfer;

pub use carry::HandoffHistory;
pub(crate) use machine::Handing;

/// An agent has the conversation, and answers or passes it on to another, who goes on with it.
///
/// Each worker has a tool `transfer_to`, whose call ends its part (its *leg*); whom it may name is
/// part of the tool's schema. Who answers in words ends the run.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{HandoffHistory, Handoff, Swarm};
/// use levity_test::ScriptedModel;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let desk = ScriptedModel::new().call("transfer_to", json!({"to": "pilot", "note": "It is about the tide."}));
/// let pilot = ScriptedModel::new().reply("High water is at six.");
/// let handoff = Handoff::starting_with("desk").to("desk", ["pilot"]).carry(HandoffHistory::Words).max_handoffs(4);
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
/// [`SwarmDetails::conversation`](crate::SwarmDetails::conversation) has what was said before the
/// run, the user's words, and what each worker said and called, `transfer_to` included. What a
/// worker is told when it takes over is for that leg only and does not stay: nobody has said it.
/// Nor does what was said in an attempt that failed; its run has it. At most 2,000 messages and 8
/// MiB are kept; the oldest leave, and a mark says how many. The conversation is what workers
/// remember: their [`WorkerMemory`](crate::WorkerMemory) makes no difference here.
///
/// [`SwarmInput::after`](crate::SwarmInput::after) goes on with whoever had the conversation last,
/// who then sees all of it: a [`HandoffHistory`] is for what goes along when it is passed on.
///
/// # Loops and failures
/// A worker may pass the conversation on to the same other [`max_repeats`](Self::max_repeats)
/// times, and there are [`max_handoffs`](Self::max_handoffs) in all. Past that, and when a limit of
/// the run is near, it is told so as [`SwarmNotice::LoopFound`](crate::SwarmNotice::LoopFound), and
/// who has the conversation must answer, without the tool.
///
/// A leg that fails is tried again as often as its worker [may](crate::Worker::retries); then who
/// [stands in](crate::Worker::stand_in) for the worker has it; then it goes back to whoever had
/// passed it on, who is told what failed and must answer, without the tool. When nobody is left,
/// the run ends with [`Error::Unreached`](crate::Error::Unreached), which carries the conversation.
///
/// What the host says to the run while a leg is under way goes along with the next one; when the
/// leg answers, its worker is asked once more, with those words.
///
/// A [swarm](crate::Worker::swarm) as a worker sees no conversation and cannot pass it on: it is
/// given the user's last words and the note, and its answer ends the run.
#[derive(Clone)]
pub struct Handoff {
    first: Arc<str>,
    to: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    carry: HandoffHistory,
    carry_to: BTreeMap<Arc<str>, HandoffHistory>,
    most: u32,
    repeats: u32,
}

impl Handoff {
    /// The conversation is passed on at most 10 times in a run.
    pub const DEFAULT_HANDOFFS: u32 = 10;
    /// It is passed on from one worker to the same other at most twice in a run.
    pub const DEFAULT_REPEATS: u32 = 2;

    /// The worker who has the conversation first.
    ///
    /// ```
    /// use levity_swarm::Handoff;
    ///
    /// let handoff = Handoff::starting_with("triage").to("triage", ["billing", "repairs"]);
    /// # let _ = handoff;
    /// ```
    pub fn starting_with(worker: impl Into<Arc<str>>) -> Self {
        Self {
            first: worker.into(),
            to: BTreeMap::new(),
            carry: HandoffHistory::default(),
            carry_to: BTreeMap::new(),
            most: Self::DEFAULT_HANDOFFS,
            repeats: Self::DEFAULT_REPEATS,
        }
    }

    /// Whom a worker may pass the conversation on to; to all others by default. More can be added
    /// by another call; with nobody named, the worker has to answer itself.
    #[must_use]
    pub fn to<N: Into<Arc<str>>>(
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

    /// What of the conversation goes along when it is passed on; [`HandoffHistory::Everything`] by
    /// default.
    #[must_use]
    pub fn carry(mut self, carry: HandoffHistory) -> Self {
        self.carry = carry;
        self
    }

    /// What goes along when it is passed on to this worker.
    ///
    /// ```
    /// use levity_swarm::{HandoffHistory, Handoff};
    ///
    /// let handoff = Handoff::starting_with("triage").carry(HandoffHistory::Words).carry_to("billing", HandoffHistory::Last(6));
    /// # let _ = handoff;
    /// ```
    #[must_use]
    pub fn carry_to(mut self, worker: impl Into<Arc<str>>, carry: HandoffHistory) -> Self {
        self.carry_to.insert(worker.into(), carry);
        self
    }

    /// How often the conversation may be passed on in a run;
    /// [`DEFAULT_HANDOFFS`](Self::DEFAULT_HANDOFFS) by default.
    #[must_use]
    pub fn max_handoffs(mut self, times: u32) -> Self {
        self.most = times;
        self
    }

    /// How often one worker may pass the conversation on to the same other in a run;
    /// [`DEFAULT_REPEATS`](Self::DEFAULT_REPEATS) by default.
    #[must_use]
    pub fn max_repeats(mut self, times: u32) -> Self {
        self.repeats = times;
        self
    }

    pub(crate) fn given(&self, worker: &str, rules: &Rules) -> Vec<Given> {
        transfer::spec(self, worker, rules)
            .map(Given::Last)
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
            known("to", from)?;
            others.iter().try_for_each(|name| known("to", name))?;
            if others.contains(from) {
                let problem = format!("lets `{}` pass on to itself; leave that out", short(from));
                return Err(Error::setting("to", problem));
            }
        }
        self.carry_to
            .keys()
            .try_for_each(|name| known("carry_to", name))?;
        if self.repeats == 0 {
            let problem = "is 0, so nothing could be passed on; `max_handoffs(0)` says so plainly";
            return Err(Error::setting("max_repeats", problem));
        }
        Ok(())
    }

    /// Whether one may pass on to another.
    fn allows(&self, from: &str, to: &str) -> bool {
        from != to
            && self
                .to
                .get(from)
                .is_none_or(|others| others.iter().any(|other| **other == *to))
    }

    /// What goes along to a worker.
    fn carry_for(&self, to: &str) -> &HandoffHistory {
        self.carry_to.get(to).unwrap_or(&self.carry)
    }
}

fn nobody(name: &str, workers: &[Arc<str>]) -> String {
    let meant = did_you_mean(name, workers.iter().map(|worker| &**worker));
    format!(
        "names `{}`, who is no worker of this swarm{meant}",
        short(name)
    )
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("starting_with", &self.first)
            .field("carry", &self.carry)
            .field("max_handoffs", &self.most)
            .field("max_repeats", &self.repeats)
            .finish_non_exhaustive()
    }
}
