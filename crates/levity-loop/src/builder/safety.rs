//! What an agent may do, and who is asked.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{Approver, Guard, Resolver};
use levity_tools::Policy;

use super::AgentBuilder;
use crate::guards::WhenGuardFails;

impl AgentBuilder {
    /// Which calls are allowed, asked about or denied; by default, what may destroy something is
    /// asked about.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Who is asked about calls that policy does not allow by itself; by default, whoever holds the
    /// handle of a started run.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Who finds out what came of calls that were under way when a process ended; nobody by
    /// default, and the model is told that it is not known.
    pub fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Has this guard look at what goes in and out: what people say, calls, results, replies. Of
    /// several, each sees what the one before made of it. None by default, and an agent without any
    /// pays nothing for it.
    ///
    /// While a guard watches replies, they are told in one piece once it has let them pass.
    ///
    /// ```
    /// use levity_loop::{Agent, SecretGuard};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let model = ScriptedModel::new().reply("It is sk-0123456789abcdef.");
    /// let agent = Agent::builder(model).guard(SecretGuard::new()).build()?;
    /// assert_eq!(agent.run("What is the key?").await?.text(), "It is [secret: api key].");
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(mut self, guard: impl Guard + 'static) -> Self {
        self.guards.all.push(Arc::new(guard));
        self
    }

    /// How long a guard may look at one thing;
    /// [`DEFAULT_GUARD_TIMEOUT`](Self::DEFAULT_GUARD_TIMEOUT) by default.
    pub fn guard_timeout(mut self, time: Duration) -> Self {
        self.guards.timeout = time;
        self
    }

    /// What becomes of a thing when a guard fails; [`WhenGuardFails::Block`] by default.
    pub fn when_guard_fails(mut self, then: WhenGuardFails) -> Self {
        self.guards.when_failing = then;
        self
    }
}
