//! Agents from entries.

use std::sync::Arc;

use levity_core::{Limits, Model, ToolSpec};
use levity_llm::layers::{Dialect, TextTools};
use levity_loop::{Agent, AgentBuilder};

use super::Catalogue;
use super::entry::{Entry, Need};
use super::error::{AgentPart, CatalogueError, Missing};
use crate::parts::{Parts, Shared};

impl Catalogue {
    /// Builds the agent of this name.
    ///
    /// Tools that the model calls in its own way are called, and so are those that it writes as text, such as
    /// `{"call_tool": {"name": .., "arguments": {..}}}`, unless the entry says otherwise.
    ///
    /// # Errors
    /// When there is no such agent or it is switched off, when none of its models can be had, or when something that it
    /// needs is not among the parts.
    pub fn build(&self, name: &str, parts: &Parts) -> Result<Agent, CatalogueError> {
        let entry = self.able(name)?;
        let lacks = lacks(entry, parts);
        if let Some(missing) = lacks.iter().find(|missing| missing.needed) {
            return Err(needed(missing, parts));
        }
        let mut builder = Agent::builder(listening(parts.model_of(entry)?, entry.text_tools))
            .instructions(instructions(entry, &lacks))
            .max_turns(entry.max_turns)
            .policy(parts.policy.clone())
            .limits(limits(entry, parts.limits))
            .runtime(parts.runtime.clone());
        builder = with_tools(builder, entry, parts);
        if let Some(approver) = &parts.approver {
            builder = builder.approver(Shared(approver.clone()));
        }
        for source in &parts.context {
            builder = builder.context(source.clone());
        }
        if let Some(finish) = &parts.finish {
            builder = finish(&entry.name, builder);
        }
        let failed = |source| CatalogueError::Build { agent: entry.name.clone(), source: Box::new(source) };
        builder.build().map_err(failed)
    }

    /// What agents that are not switched off name and what is not among the parts: what they do without, and what keeps them
    /// from being built. Each of their models is looked for.
    pub fn missing(&self, parts: &Parts) -> Vec<Missing> {
        let able = self.entries().filter(|entry| entry.enabled);
        able.flat_map(|entry| lacks(entry, parts).into_iter().chain(models(entry, parts))).collect()
    }

    fn able(&self, name: &str) -> Result<&Entry, CatalogueError> {
        let Some(entry) = self.find(name) else {
            let near = crate::names::hint(name, self.entries().map(|entry| &*entry.name));
            return Err(CatalogueError::Unknown { name: crate::names::short(name).into_owned(), near });
        };
        if !entry.enabled {
            return Err(CatalogueError::Disabled { name: entry.name.clone() });
        }
        Ok(entry)
    }
}

/// What an agent names and what is not there, models aside.
fn lacks(entry: &Entry, parts: &Parts) -> Vec<Missing> {
    let there = |part: &AgentPart| match part {
        AgentPart::Server(name) => parts.servers.contains_key(name),
        AgentPart::Tool(name) => parts.tools.contains_key(name),
        AgentPart::Code => parts.has_code(),
        AgentPart::Model(_) => true,
    };
    let missing = entry.wanted().filter(|(part, _)| !there(part));
    let agent = &entry.name;
    missing.map(|(part, need)| Missing { agent: agent.clone(), part, needed: need == Need::Must }).collect()
}

/// The models of an agent that cannot be had. It can be built as long as there is one.
fn models(entry: &Entry, parts: &Parts) -> Vec<Missing> {
    let lost: Vec<_> = entry.models.iter().filter(|name| parts.find_model(name).is_err()).collect();
    let needed = lost.len() == entry.models.len();
    let agent = &entry.name;
    let missing =
        |name: &Arc<str>| Missing { agent: agent.clone(), part: AgentPart::Model(name.clone()), needed };
    lost.into_iter().map(missing).collect()
}

fn needed(missing: &Missing, parts: &Parts) -> CatalogueError {
    let near = match &missing.part {
        AgentPart::Server(name) => {
            let hint = crate::names::hint(name, parts.servers.keys().map(|name| &**name));
            format!("{hint}; add it, or write `{name}?` to do without it")
        }
        AgentPart::Tool(name) => {
            let hint = crate::names::hint(name, parts.tools.keys().map(|name| &**name));
            format!("{hint}; add it, or write `{name}?` to do without it")
        }
        _ => "; add it, or write `code: optional` to do without it".to_owned(),
    };
    CatalogueError::Missing { missing: missing.clone(), near }
}

/// The model with an ear for calls that are written as text.
fn listening(model: Arc<dyn Model>, text_tools: bool) -> Arc<dyn Model> {
    match (text_tools, model.card().abilities.tools) {
        (false, _) => model,
        (true, true) => Arc::new(TextTools::new(model).beside_native()),
        (true, false) => Arc::new(TextTools::new(model).dialect(Dialect::CallTool)),
    }
}

fn limits(entry: &Entry, limits: Limits) -> Limits {
    let mut limits = entry.budget.map_or(limits, |budget| budget.within(limits));
    limits.wall_time = match (entry.timeout, limits.wall_time) {
        (Some(own), Some(all)) => Some(own.min(all)),
        (own, all) => own.or(all),
    };
    limits
}

fn with_tools(mut builder: AgentBuilder, entry: &Entry, parts: &Parts) -> AgentBuilder {
    let servers: Vec<_> = entry.servers.iter().filter_map(|wanted| parts.servers.get(&wanted.name)).collect();
    let tools: Vec<_> =
        entry.tools.iter().filter_map(|wanted| parts.tools.get(&wanted.name)).cloned().collect();
    if entry.code.is_some() {
        let of_servers = servers.iter().flat_map(|server| server.tools());
        let specs: Vec<ToolSpec> =
            tools.iter().cloned().chain(of_servers).map(|tool| tool.spec().clone()).collect();
        if let Some(program) = parts.program(&specs) {
            builder = builder.program(Shared(program));
        }
    }
    if !tools.is_empty() {
        builder = builder.tools(tools);
    }
    for server in servers {
        builder = builder.source(Shared(server.clone()));
    }
    if entry.ask_user { builder.ask_user() } else { builder }
}

/// The prompt, and what the agent has to do without: it is not to make up tools that it was told of elsewhere.
fn instructions(entry: &Entry, lacks: &[Missing]) -> String {
    let mut text = entry.prompt.trim_end().to_owned();
    if lacks.is_empty() {
        return text;
    }
    text.push_str("\n\n# What is not here\n");
    for missing in lacks {
        match &missing.part {
            AgentPart::Code => text.push_str(
                "- Python cannot be run. Do not answer with code: work the result out yourself and answer with the values.\n",
            ),
            part => text.push_str(&format!("- There is no such thing as {part}.\n")),
        }
    }
    let wanted = entry.wanted().count() + usize::from(entry.ask_user);
    let has_tools = wanted > lacks.len();
    text.push_str(match has_tools {
        true => "Call only the tools that you are offered, and never make up a result.",
        false => {
            "You have no tools. Never call one and never make up a result: answer from your inputs and from what you know, \
             and say what you could not look up."
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levity_core::Limits;

    use super::{Entry, limits};
    use crate::step::Budget;

    #[test]
    fn an_entry_limits_what_all_may_use() {
        let all = Limits::new().tokens(1_000).wall_time(Duration::from_secs(60));
        let entry = |seconds| Entry::new("A", "a").timeout(Duration::from_secs(seconds));
        assert_eq!(limits(&Entry::new("A", "a"), all), all);
        assert_eq!(limits(&entry(5), all), all.wall_time(Duration::from_secs(5)));
        assert_eq!(limits(&entry(500), all), all, "the shorter of both");
        let budget = Entry::new("A", "a").budget(Budget::new().tokens(9).model_calls(2));
        assert_eq!(limits(&budget, all), all.tokens(9).model_calls(2));
    }
}
