use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Error, Model, Result};
use levity_loop::Agent;

use crate::judge::By;
use crate::names::ROUTER;

mod brief;
mod close;
mod machine;
mod planning;
mod shape;

pub(crate) use machine::Routed;

/// The name under which the results are put together by an agent of its own.
pub(crate) const SYNTHESIZER: &str = "synthesizer";

/// A router decides who does what, the workers do it, and the router puts together what they said.
///
/// It is asked for a plan as JSON, which is checked before anything begins. One that cannot be read
/// is mended; one that cannot be carried out is asked for once more, with what is wrong with it;
/// after that the words of the goal decide. Each of these is told as a
/// [`SwarmNotice`](crate::SwarmNotice).
///
/// ```
/// use levity_swarm::Router;
/// use levity_test::ScriptedModel;
///
/// let router = Router::new(ScriptedModel::new()).max_delegations(8).reassigns(2);
/// # let _ = router;
/// ```
#[derive(Clone)]
pub struct Router {
    by: Option<By>,
    synthesizer: Option<Agent>,
    pub(crate) synthesis: bool,
    pub(crate) tries: u32,
    pub(crate) reassigns: u32,
    pub(crate) most: usize,
    pub(crate) timeout: Duration,
}

impl Router {
    /// At most 32 delegations in a plan.
    pub const DEFAULT_DELEGATIONS: usize = 32;
    /// 10 minutes for a plan, or to put the results together.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    fn of(by: Option<By>) -> Self {
        let most = Self::DEFAULT_DELEGATIONS;
        Self {
            by,
            synthesizer: None,
            synthesis: true,
            tries: 2,
            reassigns: 1,
            most,
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }

    /// A router on this model, with instructions of its own.
    pub fn new(model: impl Model + 'static) -> Self {
        Self::of(Some(By::Model(Arc::new(model))))
    }

    /// An agent of yours as the router. It is told in each task what is wanted, and who there is.
    pub fn agent(agent: Agent) -> Self {
        Self::of(Some(By::Agent(agent)))
    }

    /// No router: the words of the goal decide who works on it, and what they say is listed.
    pub fn keywords() -> Self {
        Self {
            synthesis: false,
            ..Self::of(None)
        }
    }

    /// Another agent puts the results together.
    #[must_use]
    pub fn synthesizer(mut self, agent: Agent) -> Self {
        (self.synthesizer, self.synthesis) = (Some(agent), true);
        self
    }

    /// The results are listed, and no model puts them together.
    #[must_use]
    pub fn without_synthesis(mut self) -> Self {
        self.synthesis = false;
        self
    }

    /// How many delegations a plan may have; [`DEFAULT_DELEGATIONS`](Self::DEFAULT_DELEGATIONS) by
    /// default. A plan of the host's may have more.
    #[must_use]
    pub fn max_delegations(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// How often the router is asked for a plan, before the words of the goal decide; twice by
    /// default.
    #[must_use]
    pub fn tries(mut self, times: u32) -> Self {
        self.tries = times;
        self
    }

    /// How often the router may give work that failed to others; once by default.
    #[must_use]
    pub fn reassigns(mut self, times: u32) -> Self {
        self.reassigns = times;
        self
    }

    /// How long it may take for a plan, or to put the results together;
    /// [`DEFAULT_TIMEOUT`](Self::DEFAULT_TIMEOUT) by default.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Whether there is somebody who plans.
    pub(crate) fn plans(&self) -> bool {
        self.by.is_some() && self.tries > 0
    }

    /// Who puts the results together.
    pub(crate) fn closes(&self) -> Option<&'static str> {
        match (&self.synthesizer, &self.by) {
            _ if !self.synthesis => None,
            (Some(_), _) => Some(SYNTHESIZER),
            (None, Some(_)) => Some(ROUTER),
            (None, None) => None,
        }
    }

    pub(crate) fn leads(&self) -> Result<Vec<(&'static str, Agent)>> {
        // What has another shape is looked at by the swarm, and asked for again with what is wrong
        // with it.
        let by = |by: &By| by.agent(brief::INSTRUCTIONS, |agent| agent.output_retries(0));
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
        if self.most == 0 {
            return Err(Error::setting(
                "max_delegations",
                "is 0, so no plan could be made; 1 or more can",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("max_delegations", &self.most)
            .field("tries", &self.tries)
            .field("reassigns", &self.reassigns)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
