//! Settings for policy, approval and guards.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{Approver, Guard, Resolver};
use levity_tools::Policy;

use super::AgentBuilder;
use crate::guards::GuardFailurePolicy;

impl AgentBuilder {
    /// Sets which calls are allowed, require approval or are denied; by default, destructive calls
    /// require approval.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    /// use levity_tools::{Policy, Rule};
    ///
    /// let policy = Policy::new().rule(Rule::tool("delete_*").deny("nothing is deleted today"));
    /// let agent = Agent::builder(ScriptedModel::new()).policy(policy).build()?;
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the approver of calls that the policy does not allow on its own; by default, the holder
    /// of the handle of a started run.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets the resolver, which finds out the outcome of calls that were in progress when a process
    /// ended.
    ///
    /// There is none by default, and the model learns that the outcome is unknown.
    pub fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Adds a guard, which checks input from people, calls, results and replies.
    ///
    /// Each guard sees the output of the one before. There are none by default, and an agent
    /// without guards pays no cost for them.
    ///
    /// While a guard checks replies, each reply is emitted as one piece after the guard has let it
    /// pass.
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

    /// Sets the timeout of a guard for one check;
    /// [`DEFAULT_GUARD_TIMEOUT`](Self::DEFAULT_GUARD_TIMEOUT) by default.
    pub fn guard_timeout(mut self, time: Duration) -> Self {
        self.guards.timeout = time;
        self
    }

    /// Sets what happens to an item when a guard fails; [`GuardFailurePolicy::Block`] by default.
    pub fn on_guard_failure(mut self, then: GuardFailurePolicy) -> Self {
        self.guards.when_failing = then;
        self
    }
}
