use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Error, Model, Result};
use levity_loop::Agent;

use crate::judge::AgentSource;
use crate::names::ROUTER;

mod machine;
mod planning;
mod prompt;
mod schema;
mod synthesis;

pub(crate) use machine::RouterMachine;

/// The name of a separate agent that combines the results.
pub(crate) const SYNTHESIZER: &str = "synthesizer";

/// A pattern in which a router delegates work to workers and combines their results.
///
/// The router returns a plan as JSON, and levity validates it before any work starts. levity
/// repairs malformed JSON. If the plan is invalid, levity asks once more and includes the faults.
/// After that, the keywords of the goal decide. A [`SwarmNotice`](crate::SwarmNotice) reports each
/// of these steps.
///
/// ```
/// use levity_swarm::Router;
/// use levity_test::ScriptedModel;
///
/// let router = Router::new(ScriptedModel::new()).max_delegations(8).max_reassignments(2);
/// # let _ = router;
/// ```
#[derive(Clone)]
pub struct Router {
    by: Option<AgentSource>,
    synthesizer: Option<Agent>,
    pub(crate) synthesis: bool,
    pub(crate) tries: u32,
    pub(crate) reassigns: u32,
    pub(crate) max_delegations: usize,
    pub(crate) timeout: Duration,
}

impl Router {
    /// The default maximum number of delegations in a plan: 32.
    pub const DEFAULT_DELEGATIONS: usize = 32;
    /// The default timeout for a plan or for combining the results: 10 minutes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    fn of(by: Option<AgentSource>) -> Self {
        let max_delegations = Self::DEFAULT_DELEGATIONS;
        Self {
            by,
            synthesizer: None,
            synthesis: true,
            tries: 2,
            reassigns: 1,
            max_delegations,
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }

    /// Creates a router on this model, with default instructions.
    pub fn new(model: impl Model + 'static) -> Self {
        Self::of(Some(AgentSource::Model(Arc::new(model))))
    }

    /// Uses your agent as the router. Each task tells it what to return and lists the workers.
    ///
    /// Each request for a plan sets the schema of a plan as its structured output.
    pub fn agent(agent: Agent) -> Self {
        Self::of(Some(AgentSource::Agent(agent)))
    }

    /// Creates a pattern without a router: the keywords of the goal select the workers, and their
    /// results are listed.
    ///
    /// A keyword of a worker counts three points, a word of its name two, and a word of its
    /// description one. The best three workers are chosen, and work one after the other. If no word
    /// matches, the first worker gets the goal.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm, Worker};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let agent = |says: &str| Agent::builder(ScriptedModel::new().reply(says)).build();
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .worker(Worker::new("cook", "Cooks meals.", agent("Soup.")?))
    ///     .worker(Worker::new("pilot", "Reads charts.", agent("At six.")?).keywords(["tide"]))
    ///     .build()?;
    /// assert_eq!(swarm.run("When does the tide turn?").await?.text(), "At six.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn keywords() -> Self {
        Self {
            synthesis: false,
            ..Self::of(None)
        }
    }

    /// Sets a separate agent that combines the results.
    ///
    /// It also applies to a router [by keywords](Self::keywords).
    #[must_use]
    pub fn synthesizer(mut self, agent: Agent) -> Self {
        (self.synthesizer, self.synthesis) = (Some(agent), true);
        self
    }

    /// Lists the results instead of combining them with a model.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let plan = r#"{"delegations": [{"id": "tide", "worker": "pilot", "task": "When?"},
    ///     {"id": "wind", "worker": "watch", "task": "From where?"}]}"#;
    /// let router = ScriptedModel::new().reply(plan);
    /// let agent = |says: &str| Agent::builder(ScriptedModel::new().reply(says)).build();
    /// let swarm = Swarm::builder(Router::new(router).without_synthesis())
    ///     .agent("pilot", "Knows the tides.", agent("At six.")?)
    ///     .agent("watch", "Looks at the sky.", agent("From the west.")?)
    ///     .build()?;
    /// let finished = swarm.run("Can we sail?").await?;
    /// assert!(finished.text().contains("At six.") && finished.text().contains("From the west."));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn without_synthesis(mut self) -> Self {
        self.synthesis = false;
        self
    }

    /// Sets the maximum number of delegations in a plan;
    /// [`DEFAULT_DELEGATIONS`](Self::DEFAULT_DELEGATIONS) by default. A plan that the host passes
    /// may have more.
    #[must_use]
    pub fn max_delegations(mut self, count: usize) -> Self {
        self.max_delegations = count;
        self
    }

    /// Sets how many times the router is asked for a plan before the keywords of the goal decide;
    /// twice by default.
    ///
    /// With 0, the router never plans, and only combines the results.
    #[must_use]
    pub fn max_attempts(mut self, times: u32) -> Self {
        self.tries = times;
        self
    }

    /// Sets how many times the router may reassign failed work; once by default.
    ///
    /// levity asks only if work failed. Work that the host stopped, or that was skipped, is not
    /// reassigned.
    #[must_use]
    pub fn max_reassignments(mut self, times: u32) -> Self {
        self.reassigns = times;
        self
    }

    /// Sets the timeout for a plan or for combining the results;
    /// [`DEFAULT_TIMEOUT`](Self::DEFAULT_TIMEOUT) by default.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Returns `true` if there is an agent that plans.
    pub(crate) fn can_plan(&self) -> bool {
        self.by.is_some() && self.tries > 0
    }

    /// Returns the name of the agent that combines the results.
    pub(crate) fn synthesizer_name(&self) -> Option<&'static str> {
        match (&self.synthesizer, &self.by) {
            _ if !self.synthesis => None,
            (Some(_), _) => Some(SYNTHESIZER),
            (None, Some(_)) => Some(ROUTER),
            (None, None) => None,
        }
    }

    pub(crate) fn lead_agents(&self) -> Result<Vec<(&'static str, Agent)>> {
        // The swarm checks the shape of the output and asks again with the faults, so the agent
        // does not retry.
        let by = |by: &AgentSource| by.agent(prompt::INSTRUCTIONS, |agent| agent.output_retries(0));
        let router = self.by.iter().map(|one| Ok((ROUTER, by(one)?)));
        router
            .chain(
                self.synthesizer
                    .clone()
                    .map(|agent| Ok((SYNTHESIZER, agent))),
            )
            .collect()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.max_delegations == 0 {
            return Err(Error::setting(
                "max_delegations",
                "is 0, so no plan could be made; set 1 or more",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("max_delegations", &self.max_delegations)
            .field("tries", &self.tries)
            .field("reassigns", &self.reassigns)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
