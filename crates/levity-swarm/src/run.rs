//! Inputs and runs of a swarm.

use levity_core::{
    ConversationId, Error, Executor, History, Limits, MachineKind, Message, Result, StoppedRun,
};
use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::text::is_blank;
use levity_runtime::{Conversational, MachineStart, Runnable, Runtime};
use serde_json::Value;

use crate::answer::{SwarmAnswer, SwarmDetails};
use crate::machine::SwarmMachine;
use crate::names::ROUTER;
use crate::pattern::Kind;
use crate::plan::{Delegation, PlanContext, check};
use crate::rules::Start;
use crate::swarm::Swarm;
use crate::worker::WorkerMemory;

/// The input of a swarm's run: the goal and its options.
///
/// ```
/// # use levity_swarm::{Delegation, SwarmInput};
/// let input = SwarmInput::from("Is it going to rain?").plan([Delegation::new(
///     "a",
///     "weather",
///     "Look it up.",
/// )]);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "an input does nothing until a swarm runs it"]
pub struct SwarmInput {
    goal: String,
    plan: Option<Vec<Delegation>>,
    /// The conversation for workers with a conversation memory.
    conversation: Option<ConversationId>,
    history: History,
    /// The messages of an earlier run, and its last worker.
    earlier: Vec<Arc<Message>>,
    first: Option<Arc<str>>,
}

impl SwarmInput {
    /// Sets a plan to carry out instead of asking the router for one. levity validates it before
    /// any work starts.
    ///
    /// The plan may have more delegations than
    /// [`Router::max_delegations`](crate::Router::max_delegations). The goal may then be empty.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Delegation, Router, Swarm, SwarmInput};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", pilot)
    ///     .build()?;
    /// let plan = [Delegation::new("tide", "pilot", "When is high water?")];
    /// let finished = swarm.run(SwarmInput::from("Can we sail?").plan(plan)).await?;
    /// assert_eq!(&*finished.report("tide").unwrap().text, "At six.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan(mut self, plan: impl IntoIterator<Item = Delegation>) -> Self {
        self.plan = Some(plan.into_iter().collect());
        self
    }

    /// Continues an earlier run of a handoff, with its conversation and its last worker. Other
    /// patterns reject this setting.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Handoff, Swarm, SwarmInput};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = ScriptedModel::new().reply("At six.").reply("As I said: at six.");
    /// let swarm = Swarm::builder(Handoff::starting_with("pilot"))
    ///     .agent("pilot", "Knows the tides.", Agent::builder(pilot).build()?)
    ///     .build()?;
    /// let first = swarm.run("When is high water?").await?;
    /// let second = swarm.run(SwarmInput::from("When was that?").after(&first)).await?;
    /// assert_eq!(second.text(), "As I said: at six.");
    /// assert_eq!(second.conversation().len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(mut self, earlier: &SwarmAnswer) -> Self {
        self.earlier = earlier.conversation().to_vec();
        self.first = earlier.last_speaker().map(Into::into);
        self
    }
}

impl From<&str> for SwarmInput {
    fn from(goal: &str) -> Self {
        goal.to_owned().into()
    }
}

impl From<String> for SwarmInput {
    fn from(goal: String) -> Self {
        Self {
            goal,
            ..Self::default()
        }
    }
}

impl From<Message> for SwarmInput {
    fn from(goal: Message) -> Self {
        goal.text().into_owned().into()
    }
}

impl Runnable for Swarm {
    type Input = SwarmInput;
    type Machine = SwarmMachine;
    type Output = SwarmAnswer;

    fn runtime(&self) -> &Runtime {
        Self::runtime(self)
    }

    fn executor(&self) -> Arc<dyn Executor> {
        Self::executor(self)
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn begin(&self, input: SwarmInput, limits: &Limits) -> Result<MachineStart<SwarmMachine>> {
        let SwarmInput {
            goal,
            plan,
            conversation,
            history,
            earlier,
            first,
        } = input;
        let history = if earlier.is_empty() {
            history.messages().to_vec()
        } else {
            earlier
        };
        let start = Start {
            plan,
            conversation,
            history,
            first,
            limits: *limits,
            ..self.begin_with(goal)
        };
        check_start(self, &start)?;
        Ok(MachineStart::now(SwarmMachine::new(
            self.inner.rules.clone(),
            start,
        )))
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<SwarmMachine, String> {
        SwarmMachine::check_kind(kind)?;
        Self::restore(self, state)
    }

    fn conclude(&self, reached: StoppedRun<SwarmMachine>) -> Result<SwarmAnswer> {
        reached.finish(SwarmDetails::new)
    }

    fn keeps_conversations(&self) -> bool {
        self.inner
            .rules
            .cards
            .values()
            .any(|card| matches!(card.scope, WorkerMemory::Conversation))
    }

    fn conversation(input: &mut SwarmInput) -> Option<&mut Option<ConversationId>> {
        Some(&mut input.conversation)
    }

    fn history(input: &mut SwarmInput) -> Option<&mut History> {
        Some(&mut input.history)
    }
}

impl Conversational for Swarm {}

/// Validates the input of the host before any work starts.
fn check_start(swarm: &Swarm, start: &Start) -> Result<()> {
    // A plan needs no goal.
    if start.plan.is_none() && is_blank(&start.goal) {
        return Err(Error::EmptyPrompt);
    }
    let rules = &swarm.inner.rules;
    if let Some(first) = start
        .first
        .as_ref()
        .filter(|first| !rules.cards.contains_key(*first))
    {
        return Err(Error::setting(
            "after",
            format!("ends with `{first}`, which is not a worker of this swarm"),
        ));
    }
    let continues = start.first.is_some() || !start.history.is_empty();
    if continues && !matches!(rules.pattern.0, Kind::Handoff(_)) {
        let setting = if start.first.is_some() {
            "after"
        } else {
            "history"
        };
        return Err(Error::setting(
            setting,
            "applies only to swarms with a `Handoff`; remove it",
        ));
    }
    let Some(plan) = &start.plan else {
        return Ok(());
    };
    let Kind::Router(router) = &rules.pattern.0 else {
        return Err(Error::setting(
            "plan",
            "applies only to swarms with a `Router`; remove it",
        ));
    };
    let done = BTreeMap::new();
    let max_delegations = router.max_delegations.max(plan.len());
    let known = PlanContext {
        workers: &rules.names,
        router: ROUTER,
        done: &done,
        reports: &[],
        max_delegations,
    };
    check(plan, &known).map(drop).map_err(Error::from)
}
