//! Validates the settings and builds an agent from them.
//!
//! The order matters in one place: the clone for [`Agent::to_builder`] is taken after the
//! conversations are fixed and before the parts are moved out. So agents built from it share one
//! store, with one queue per conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Digest, Error, Executor, Model, Result, ToolSpec, estimate_tokens};
use levity_memory::{Conversations, Window};
use levity_runtime::MemoryJournal;
use levity_tools::{ArgumentValidator, Dispatcher};
use serde_json::json;

use super::{AgentBuilder, ConversationStorage};
use crate::agent::{Agent, Inner};
use crate::executor::{
    AgentExecutor, CHEAP, OfferedTools, SLOTS, SUMMARISER, ToolsBound, ToolsDigest,
};
use crate::guards::{self, Guarded, Screen};
use crate::result_reader;
use crate::spec::SignalTool;
use crate::strategy::LowBudgetAction;

impl AgentBuilder {
    /// Builds the agent.
    ///
    /// # Errors
    /// Returns an error if tools clash, a schema is invalid, or settings contradict each other.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// let error = Agent::builder(ScriptedModel::new()).max_turns(0).build().unwrap_err();
    /// assert!(error.to_string().starts_with("`max_turns` is 0"));
    /// ```
    pub fn build(mut self) -> Result<Agent> {
        self.check()?;
        self.spec.has_tools = self.tool_count > 0;
        if self.audit && !self.runtime.journal().keeps() {
            self.runtime = self.runtime.with_journal(MemoryJournal::new());
        }
        let world = self.runtime.world().clone();
        let conversations = self.memory.take().map(|memory| match memory {
            ConversationStorage::Store(store) => Conversations::new(store).world(world.clone()),
            ConversationStorage::Conversations(conversations) => conversations,
        });
        self.memory = conversations
            .clone()
            .map(ConversationStorage::Conversations);
        let made_of = Arc::new(self.clone());
        self.set_window();
        let mut tools = Dispatcher::builder(self.tools.build()?)
            .world(world.clone())
            .policy(self.policy)
            .correct_arguments();
        if let Some(workspace) = &self.spec.workspace_source {
            tools = tools.workspace(workspace.clone());
        }
        if let Some(time) = self.tool_timeout {
            tools = tools.timeout(time);
        }
        if let Some(bytes) = self.max_output {
            tools = tools.max_output(bytes);
        }
        if let Some(calls) = self.max_concurrent {
            tools = tools.max_concurrent(calls);
        }
        if let Some(above) = self.search_above {
            tools = tools.tool_search(above);
        }
        let tools = tools.build()?;
        self.spec.signals = signals(self.signals)?;
        self.spec.finder = tools.finder();
        self.spec.tool_tokens = tools
            .offer(&[])
            .iter()
            .map(|spec| estimate_tokens(&json!(spec).to_string()))
            .sum();
        self.spec.reader = tools.reader();
        self.spec.max_piece = tools.max_output() - result_reader::MARKER;
        let mut settings = self.spec.settings();
        if !self.guards.all.is_empty() {
            let names: Vec<String> = self
                .guards
                .all
                .iter()
                .map(|guard| guards::name(&**guard))
                .collect();
            settings.push(("the guards".to_owned(), Digest::of(&names)));
        }
        let screen = (!self.guards.all.is_empty()).then(|| {
            let (guards, world, finishes) = (self.guards, world.clone(), self.spec.finishes);
            Arc::new(Screen {
                guards,
                world,
                finishes,
            })
        });
        let executor = Arc::new_cyclic(|me| AgentExecutor {
            me: me.clone(),
            model: self.model,
            slots: self.slots,
            tools,
            programs: self.programs,
            delegates: self.delegates,
            approver: self.approver,
            resolver: self.resolver,
            screen: screen.clone(),
            settings,
            conversations,
            world,
            model_timeout: self.model_timeout,
            offered: OfferedTools::default(),
            digest: ToolsDigest::default(),
            tools_bound: ToolsBound::default(),
        });
        let performer: Arc<dyn Executor> = match screen {
            None => executor.clone(),
            Some(screen) => Arc::new(Guarded::agent(executor.clone(), screen)),
        };
        Ok(Agent::new(Inner {
            spec: Arc::new(self.spec),
            executor,
            performer,
            runtime: self.runtime,
            limits: self.limits,
            context: self.context,
            context_budget: self.context_budget,
            audit: self.audit,
            name: self.name.clone(),
            made_of,
        }))
    }

    /// Sets the window to what the models have room for beside their replies.
    fn set_window(&mut self) {
        let others = self
            .slots
            .iter()
            .filter(|(slot, _)| *slot != SUMMARISER)
            .map(|(_, model)| model);
        let models = std::iter::once(&self.model).chain(others);
        let capacity = models
            .filter_map(|model| room(&**model, self.spec.options.max_tokens))
            .min();
        let fit = |window: Window| match (window.max_tokens(), capacity) {
            (None, Some(capacity)) => window.tokens(capacity),
            _ => window,
        };
        self.spec.window = fit(self
            .window
            .clone()
            .unwrap_or_else(|| Window::new().all_messages()));
        self.spec.talk_window = fit(self.window.clone().unwrap_or_default());
        let summariser = self.slots.get(SUMMARISER).unwrap_or(&self.model);
        if let Some(room) = room(&**summariser, None) {
            self.spec.summary_room = room / 2;
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |setting, problem: &str| Err(Error::setting(setting, problem));
        if self.spec.max_turns == 0 {
            return wrong(
                "max_turns",
                "is 0, but an agent needs a turn to answer; set 1 or more",
            );
        }
        if self.spec.max_calls == 0 {
            return wrong("max_calls_per_turn", "is 0; leave out the tools instead");
        }
        if self.spec.single_tool && self.tool_count == 0 {
            return wrong(
                "single_tool",
                "is set, but there is no tool; add one with `.tool(..)`",
            );
        }
        if let Some(slot) = self
            .slots
            .keys()
            .find(|slot| !SLOTS[1..].contains(&slot.as_str()))
        {
            let problem = format!(
                "has no slot `{slot}`; there are `planner`, `reflector`, `summariser` and `cheap`"
            );
            return wrong("model_for", &problem);
        }
        let cheap = self.slots.contains_key(CHEAP);
        if cheap && self.spec.when_low != LowBudgetAction::Switch {
            return wrong(
                "model_for",
                "has a `cheap` model that nothing calls; add \
                    `.on_low_budget(LowBudgetAction::Switch)`",
            );
        }
        if !cheap && self.spec.when_low == LowBudgetAction::Switch {
            let problem = "is `LowBudgetAction::Switch`, but there is no model to switch to; add \
                `.model_for(\"cheap\", ..)`";
            return wrong("on_low_budget", problem);
        }
        Ok(())
    }
}

/// Returns the tools that are signals, with the validators of their arguments.
fn signals(specs: Vec<(Arc<ToolSpec>, bool)>) -> Result<BTreeMap<String, SignalTool>> {
    let tool = |(spec, is_last): (Arc<ToolSpec>, bool)| {
        let name = spec.name.clone();
        Ok((
            name,
            SignalTool {
                arguments: ArgumentValidator::new(spec)?,
                is_last,
            },
        ))
    };
    specs.into_iter().map(tool).collect()
}

/// Returns the tokens that a model has room for in a request, with a reserve.
///
/// Counts are estimates until the provider has counted.
///
/// The reply gets what the request allows, at most a quarter of the window, and 5 % of the rest
/// stay free.
fn room(model: &dyn Model, max_tokens: Option<u64>) -> Option<u64> {
    let card = model.card();
    let window = card.window?;
    let reply = max_tokens
        .or(card.max_output)
        .unwrap_or(8_192)
        .min(window / 4);
    Some((window - reply) / 20 * 19)
}
