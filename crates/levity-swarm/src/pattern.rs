//! The patterns of a swarm behind one type, so that a swarm has no type parameter.

use std::fmt;
use std::sync::Arc;

use levity_core::{Result, ToolSpec};
use levity_loop::Agent;
use serde_json::Value;

use crate::blackboard::{Blackboard, BlackboardMachine};
use crate::coordinator::{self, AnyCoordinator, Coordinator, CoordinatorMachine};
use crate::debate::{Debate, DebateMachine};
use crate::handoff::{Handoff, HandoffMachine};
use crate::machine::PatternMachine;
use crate::router::{Router, RouterMachine};
use crate::rules::{Rules, Start};

/// The pattern in which the workers of a swarm cooperate: a [`Router`], a [`Handoff`], a
/// [`Debate`], a [`Blackboard`] or a custom [`Coordinator`].
///
/// Every pattern converts into it, so you rarely name the type:
///
/// ```
/// use levity_swarm::{Debate, Pattern, Router};
///
/// let patterns: [Pattern; 2] = [Router::keywords().into(), Debate::unjudged().into()];
/// assert_eq!(format!("{:?}", patterns[1]), r#"Pattern("debate")"#);
/// ```
#[derive(Clone)]
pub struct Pattern(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Router(Router),
    Handoff(Handoff),
    Debate(Debate),
    Blackboard(Blackboard),
    Own(Arc<dyn AnyCoordinator>),
}

/// A tool that a pattern gives to a worker; calling a `Last` tool ends the worker's run.
pub(crate) enum PatternTool {
    Signal(ToolSpec),
    Last(ToolSpec),
}

impl Pattern {
    /// Returns the name of the pattern in a journal.
    pub(crate) fn name(&self) -> &str {
        match &self.0 {
            Kind::Router(_) => "router",
            Kind::Handoff(_) => "handoff",
            Kind::Debate(_) => "debate",
            Kind::Blackboard(_) => "blackboard",
            Kind::Own(own) => own.name(),
        }
    }

    /// Returns the agents that are not workers, with the names under which they run.
    pub(crate) fn lead_agents(&self) -> Result<Vec<(&'static str, Agent)>> {
        match &self.0 {
            Kind::Router(router) => router.lead_agents(),
            Kind::Handoff(_) | Kind::Own(_) => Ok(Vec::new()),
            Kind::Debate(debate) => debate.lead_agents(),
            Kind::Blackboard(board) => board.lead_agents(),
        }
    }

    /// Returns the tools that the pattern gives to a worker.
    pub(crate) fn extra_tools(&self, worker: &str, rules: &Rules) -> Vec<PatternTool> {
        match &self.0 {
            Kind::Router(_) | Kind::Debate(_) => Vec::new(),
            Kind::Handoff(handoff) => handoff.extra_tools(worker, rules),
            Kind::Blackboard(board) => board.extra_tools(worker, rules),
            Kind::Own(own) => own
                .tools(worker)
                .into_iter()
                .map(PatternTool::Signal)
                .collect(),
        }
    }

    /// Checks that the pattern fits these workers.
    pub(crate) fn check(&self, workers: &[Arc<str>]) -> Result<()> {
        match &self.0 {
            Kind::Router(router) => router.check(),
            Kind::Handoff(handoff) => handoff.check(workers),
            Kind::Debate(debate) => debate.check(workers),
            Kind::Blackboard(board) => board.check(workers),
            Kind::Own(own) => coordinator::check(&**own, workers),
        }
    }

    /// Returns the initial state of a custom pattern.
    pub(crate) fn state(&self) -> Option<Value> {
        match &self.0 {
            Kind::Own(own) => own.save().ok(),
            _ => None,
        }
    }

    /// Checks that the pattern can read the initial state of a run.
    pub(crate) fn check_state(&self, start: &Start) -> Result<(), String> {
        match &self.0 {
            Kind::Own(own) => own.restore(start.state.as_ref()).map(drop),
            _ => Ok(()),
        }
    }
}

/// Creates the machine of a pattern in its initial state.
pub(crate) fn create_machine(rules: &Rules, start: &Start) -> Box<dyn PatternMachine> {
    match &rules.pattern.0 {
        Kind::Router(router) => Box::new(RouterMachine::new(router, start)),
        Kind::Handoff(handoff) => Box::new(HandoffMachine::new(handoff, start)),
        Kind::Debate(debate) => Box::new(DebateMachine::new(debate, start)),
        Kind::Blackboard(board) => Box::new(BlackboardMachine::new(board, start)),
        Kind::Own(own) => Box::new(CoordinatorMachine::new(&**own, start)),
    }
}

impl From<Router> for Pattern {
    fn from(router: Router) -> Self {
        Self(Kind::Router(router))
    }
}

impl From<Handoff> for Pattern {
    fn from(handoff: Handoff) -> Self {
        Self(Kind::Handoff(handoff))
    }
}

impl From<Debate> for Pattern {
    fn from(debate: Debate) -> Self {
        Self(Kind::Debate(debate))
    }
}

impl From<Blackboard> for Pattern {
    fn from(board: Blackboard) -> Self {
        Self(Kind::Blackboard(board))
    }
}

impl<C: Coordinator> From<C> for Pattern {
    fn from(own: C) -> Self {
        Self(Kind::Own(Arc::new(own)))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.name()).finish()
    }
}
