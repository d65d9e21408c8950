//! Construction of agents from catalogue entries.
//!
//! A build first resolves the parts that the entry names, and fails on a missing required one
//! before anything else. Optional parts that are missing are told to the model at the end of its
//! prompt: otherwise it would call tools that its prompt mentions. Tools keep the order of the
//! entry, so the requests of a run stay the same from one start to the next.

use std::sync::Arc;

use levity_core::text::bare_model_name;
use levity_core::{Limits, Model, Tool, ToolSource, ToolSpec};
use levity_llm::layers::TextTools;
use levity_loop::{Agent, AgentBuilder};

use super::Catalogue;
use super::entry::{CatalogueEntry, NamedPart, Requirement};
use super::error::{AgentPart, CatalogueError, MissingPart};
use super::hint::hint;
use crate::parts::AgentParts;
use crate::shared::{ReadOnly, Shared, only_reads};

impl Catalogue {
    /// Builds the agent with this name.
    ///
    /// The agent accepts native tool calls and, unless the entry disables it, calls written as
    /// text, such as `{"call_tool": {"name": .., "arguments": {..}}}`.
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue, CatalogueEntry};
    /// use levity_core::ToolOutput;
    /// use levity_test::{RecordingTool, ScriptedModel};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let weather = RecordingTool::new("weather", |_| Ok(ToolOutput::text("rain")));
    /// let model = ScriptedModel::new()
    ///     .reply(r#"{"call_tool": {"name": "weather", "arguments": {}}}"#)
    ///     .reply("It rains.");
    /// let parts = AgentParts::new(model).tool(weather.clone());
    /// let entry = CatalogueEntry::new("Forecaster", "Tell the weather.").tools(["weather"]);
    /// let agent = Catalogue::empty().with(entry).build("Forecaster", &parts)?;
    /// assert_eq!(agent.run("Do I need an umbrella?").await?.text(), "It rains.");
    /// assert_eq!(weather.calls().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the agent does not exist or is disabled, if none of its models is available, or if
    /// a required part is missing.
    pub fn build(&self, name: &str, parts: &AgentParts) -> Result<Agent, CatalogueError> {
        let entry = self.find_enabled(name)?;
        let missing_parts = missing_parts(entry, parts);
        if let Some(missing) = missing_parts.iter().find(|missing| missing.required) {
            return Err(required_part_error(missing, parts));
        }
        let has_code = entry.code.is_some() && parts.has_code();
        let has_tools = entry.ask_user
            || has_code
            || !tools_of(entry, parts).is_empty()
            || !servers_of(entry, parts).is_empty();
        let mut builder = Agent::builder(with_text_tools(parts.model_of(entry)?, entry.text_tools))
            .instructions(instructions(entry, &missing_parts, has_tools))
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
        if let Some(workspace) = &parts.workspace {
            builder = builder.workspace_source(workspace.clone());
        }
        if let Some(finish) = &parts.finish {
            builder = finish(&entry.name, builder);
        }
        let failed = |source| CatalogueError::Build {
            agent: entry.name.clone(),
            source: Box::new(source),
        };
        builder.build().map_err(failed)
    }

    /// Returns the parts that enabled agents name but that are missing, both optional and required
    /// ones. This looks up each of their models.
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue};
    /// use levity_test::ScriptedModel;
    ///
    /// // The default agents work without any part.
    /// let missing = Catalogue::defaults().missing(&AgentParts::new(ScriptedModel::new()));
    /// assert!(missing.iter().all(|missing| !missing.required));
    /// ```
    pub fn missing(&self, parts: &AgentParts) -> Vec<MissingPart> {
        let enabled = self.entries().filter(|entry| entry.enabled);
        enabled
            .flat_map(|entry| {
                missing_parts(entry, parts)
                    .into_iter()
                    .chain(missing_models(entry, parts))
            })
            .collect()
    }

    /// Returns the names of the tools that an agent gets from these parts. They include those of
    /// MCP servers, the tool that runs Python, and `ask_user`. A server that has not started has no
    /// tools yet.
    ///
    /// ```
    /// # use levity_core::ToolOutput;
    /// use levity_agents::{AgentParts, Catalogue};
    /// # use levity_test::{RecordingTool, ScriptedModel};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let weather = RecordingTool::new("weather", |_| Ok(ToolOutput::text("rain")));
    /// let parts = AgentParts::new(ScriptedModel::new()).tool(weather);
    /// let agents = Catalogue::defaults();
    /// assert_eq!(agents.tool_names("Coder", &parts)?, ["weather"]);
    /// assert_eq!(agents.tool_names("Clarification", &parts)?, ["ask_user"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the agent does not exist or is disabled.
    pub fn tool_names(
        &self,
        name: &str,
        parts: &AgentParts,
    ) -> Result<Vec<String>, CatalogueError> {
        let entry = self.find_enabled(name)?;
        let mut names = tool_names(entry, parts);
        names.extend(entry.ask_user.then(|| "ask_user".to_owned()));
        Ok(names)
    }

    /// Returns the parts that no enabled agent uses: tools, servers and the Python program.
    ///
    /// ```
    /// # use levity_core::ToolOutput;
    /// # use levity_agents::{AgentPart, Catalogue, CatalogueEntry, AgentParts};
    /// # use levity_test::{RecordingTool, ScriptedModel};
    /// let tool = RecordingTool::new("weather", |_| Ok(ToolOutput::text("rain")));
    /// let parts = AgentParts::new(ScriptedModel::new()).tool(tool);
    /// assert_eq!(Catalogue::defaults().unused(&parts), [], "the Coder has all tools");
    /// let alone = Catalogue::empty().with(CatalogueEntry::new("Poet", "Write poems."));
    /// assert_eq!(alone.unused(&parts), [AgentPart::Tool("weather".into())]);
    /// ```
    pub fn unused(&self, parts: &AgentParts) -> Vec<AgentPart> {
        let enabled: Vec<&CatalogueEntry> = self.entries().filter(|entry| entry.enabled).collect();
        let tools = parts.tools.iter().filter(|(name, tool)| {
            !enabled
                .iter()
                .any(|entry| has_tool(entry, name, tool.spec()))
        });
        let servers = parts.servers.iter().filter(|(name, server)| {
            !enabled
                .iter()
                .any(|entry| match access(&entry.servers, name) {
                    Some(Access::All) => true,
                    // The tools of a server that has not started are unknown.
                    Some(Access::ReadOnly) => {
                        let tools = server.tools();
                        tools.is_empty() || tools.iter().any(|tool| only_reads(tool.spec()))
                    }
                    None => false,
                })
        });
        let code = parts.has_code() && enabled.iter().all(|entry| entry.code.is_none());
        let tools = tools.map(|(name, _)| AgentPart::Tool(name.clone()));
        let servers = servers.map(|(name, _)| AgentPart::Server(name.clone()));
        tools
            .chain(servers)
            .chain(code.then_some(AgentPart::Code))
            .collect()
    }

    /// # Errors
    /// Returns [`CatalogueError::Unknown`] with similar names, or [`CatalogueError::Disabled`].
    pub(crate) fn find_enabled(&self, name: &str) -> Result<&CatalogueEntry, CatalogueError> {
        let Some(entry) = self.find(name) else {
            let near = hint(name, self.entries().map(|entry| &*entry.name));
            return Err(CatalogueError::Unknown {
                name: levity_dag::__private::short(name).into_owned(),
                suggestion: near,
            });
        };
        if !entry.enabled {
            return Err(CatalogueError::Disabled {
                name: entry.name.clone(),
            });
        }
        Ok(entry)
    }
}

/// Returns the missing parts of an agent, except models.
fn missing_parts(entry: &CatalogueEntry, parts: &AgentParts) -> Vec<MissingPart> {
    let is_available = |part: &AgentPart| match part {
        AgentPart::Server(name) => parts.servers.contains_key(name),
        AgentPart::Tool(name) => parts.tools.contains_key(name),
        AgentPart::Code => parts.has_code(),
        AgentPart::Model(_) => true,
    };
    let missing = entry.named_parts().filter(|(part, _)| !is_available(part));
    let agent = &entry.name;
    missing
        .map(|(part, need)| MissingPart {
            agent: agent.clone(),
            part,
            required: need == Requirement::Required,
        })
        .collect()
}

/// Returns the unavailable models of an agent. One available model is enough to build it.
fn missing_models(entry: &CatalogueEntry, parts: &AgentParts) -> Vec<MissingPart> {
    let lost: Vec<_> = entry
        .models
        .iter()
        .filter(|name| parts.find_model(name).is_err())
        .collect();
    let needed = lost.len() == entry.models.len();
    let agent = &entry.name;
    let missing = |name: &Arc<str>| MissingPart {
        agent: agent.clone(),
        part: AgentPart::Model(bare_model_name(name).into()),
        required: needed,
    };
    lost.into_iter().map(missing).collect()
}

/// The suggestion lists similar parts and the way to make the part optional.
fn required_part_error(missing: &MissingPart, parts: &AgentParts) -> CatalogueError {
    let near = match &missing.part {
        AgentPart::Server(name) => {
            let hint = hint(name, parts.servers.keys().map(|name| &**name));
            format!("{hint}; add it, or write `{name}?` to make it optional")
        }
        AgentPart::Tool(name) => {
            let hint = hint(name, parts.tools.keys().map(|name| &**name));
            format!("{hint}; add it, or write `{name}?` to make it optional")
        }
        _ => "; add it, or write `code: optional` to make it optional".to_owned(),
    };
    CatalogueError::Missing {
        missing: missing.clone(),
        suggestion: near,
    }
}

/// Wraps the model so that it parses tool calls from text.
fn with_text_tools(model: Arc<dyn Model>, text_tools: bool) -> Arc<dyn Model> {
    match (text_tools, model.card().capabilities.tools) {
        (false, _) => model,
        (true, true) => Arc::new(TextTools::new(model).with_native_calls()),
        (true, false) => Arc::new(TextTools::new(model)),
    }
}

/// Returns the lower of both limits, for each limit.
fn limits(entry: &CatalogueEntry, limits: Limits) -> Limits {
    let mut limits = entry.budget.map_or(limits, |budget| budget.within(limits));
    limits.wall_time = match (entry.timeout, limits.wall_time) {
        (Some(own), Some(all)) => Some(own.min(all)),
        (own, all) => own.or(all),
    };
    limits
}

/// The Python program is created here, because it must know the other tools.
fn with_tools(
    mut builder: AgentBuilder,
    entry: &CatalogueEntry,
    parts: &AgentParts,
) -> AgentBuilder {
    let (tools, servers) = (tools_of(entry, parts), servers_of(entry, parts));
    if entry.code.is_some()
        && let Some(program) = parts.program(&specs_of(&tools, &servers))
    {
        builder = builder.program(Shared(program));
    }
    if !tools.is_empty() {
        builder = builder.tools(tools);
    }
    for server in servers {
        builder = builder.source(server);
    }
    if entry.ask_user {
        builder.ask_user()
    } else {
        builder
    }
}

/// The tools of a server that an agent gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    All,
    ReadOnly,
}

/// Returns the access that a list of names grants to a part.
fn access(list: &[NamedPart], name: &str) -> Option<Access> {
    let has = |pattern: &str| list.iter().any(|named| &*named.name == pattern);
    match () {
        () if has(name) || has(NamedPart::ALL) => Some(Access::All),
        () if has(NamedPart::READ_ONLY) => Some(Access::ReadOnly),
        () => None,
    }
}

/// Returns `true` if the entry grants this tool, by name or by pattern.
fn has_tool(entry: &CatalogueEntry, name: &str, spec: &ToolSpec) -> bool {
    match access(&entry.tools, name) {
        Some(Access::All) => true,
        Some(Access::ReadOnly) => only_reads(spec),
        None => false,
    }
}

/// Returns the tools of an agent: named ones in their order, then the others.
fn tools_of(entry: &CatalogueEntry, parts: &AgentParts) -> Vec<Arc<dyn Tool>> {
    let is_named = |name: &str| entry.tools.iter().any(|named| &*named.name == name);
    let named = entry
        .tools
        .iter()
        .filter_map(|named| parts.tools.get(&named.name));
    let others = parts
        .tools
        .iter()
        .filter(|(name, tool)| !is_named(name) && has_tool(entry, name, tool.spec()));
    named.chain(others.map(|(_, tool)| tool)).cloned().collect()
}

/// A server that is named gets full access, even if a read-only pattern is there as well.
fn servers_of(entry: &CatalogueEntry, parts: &AgentParts) -> Vec<Arc<dyn ToolSource>> {
    let is_named = |name: &str| entry.servers.iter().any(|named| &*named.name == name);
    let named = entry
        .servers
        .iter()
        .filter_map(|named| parts.servers.get(&named.name))
        .cloned();
    let others = parts.servers.iter().filter(|(name, _)| !is_named(name));
    let others = others.filter_map(|(name, server)| match access(&entry.servers, name)? {
        Access::All => Some(server.clone()),
        Access::ReadOnly => Some(Arc::new(ReadOnly(server.clone())) as Arc<dyn ToolSource>),
    });
    named.chain(others).collect()
}

/// Reads the current tools of the servers; one that has not started has none.
fn specs_of(tools: &[Arc<dyn Tool>], servers: &[Arc<dyn ToolSource>]) -> Vec<ToolSpec> {
    let of_servers = servers.iter().flat_map(ToolSource::tools);
    tools
        .iter()
        .cloned()
        .chain(of_servers)
        .map(|tool| tool.spec().clone())
        .collect()
}

/// Returns the names of the tools and of the program that runs Python.
fn tool_names(entry: &CatalogueEntry, parts: &AgentParts) -> Vec<String> {
    let specs = specs_of(&tools_of(entry, parts), &servers_of(entry, parts));
    let mut names: Vec<String> = specs.into_iter().map(|spec| spec.name).collect();
    let program = parts.program(&[]).filter(|_| entry.code.is_some());
    names.extend(program.map(|program| program.spec().name.clone()));
    names
}

/// Returns the description of an agent with its tools, by which the planner chooses.
pub(crate) fn description_with_tools(entry: &CatalogueEntry, parts: &AgentParts) -> Arc<str> {
    /// The maximum number of tools in a description.
    const MAX_TOOLS: usize = 24;
    let mut names = tool_names(entry, parts);
    if names.is_empty() {
        return entry.description.clone();
    }
    let more = names.len().saturating_sub(MAX_TOOLS);
    names.truncate(MAX_TOOLS);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{} Tools: {}{more}.", entry.description, names.join(", ")).into()
}

/// Returns the prompt with the missing parts, so that the agent does not invent tools mentioned
/// elsewhere.
fn instructions(entry: &CatalogueEntry, missing_parts: &[MissingPart], has_tools: bool) -> String {
    let mut text = entry.prompt.trim_end().to_owned();
    if missing_parts.is_empty() {
        return text;
    }
    text.push_str("\n\n# What is not here\n");
    for missing in missing_parts {
        match &missing.part {
            AgentPart::Code => text.push_str(
                "- Python cannot be run. Do not answer with code: work the result out yourself and \
                    answer with the values.\n",
            ),
            part => text.push_str(&format!("- There is no such thing as {part}.\n")),
        }
    }
    text.push_str(match has_tools {
        true => "Call only the tools that you are offered, and never make up a result.",
        false => {
            "You have no tools. Never call one and never make up a result: answer from your inputs \
                and from what you know, \
             and say what you could not look up."
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levity_core::Limits;

    use super::{CatalogueEntry, limits};
    use levity_dag::Budget;

    #[test]
    fn entry_limits_narrow_general_limits() {
        let all = Limits::new()
            .tokens(1_000)
            .wall_time(Duration::from_secs(60));
        let entry = |seconds| CatalogueEntry::new("A", "a").timeout(Duration::from_secs(seconds));
        assert_eq!(limits(&CatalogueEntry::new("A", "a"), all), all);
        assert_eq!(
            limits(&entry(5), all),
            all.wall_time(Duration::from_secs(5))
        );
        assert_eq!(limits(&entry(500), all), all, "the shorter of both");
        let budget = CatalogueEntry::new("A", "a").budget(Budget::new().tokens(9).model_calls(2));
        assert_eq!(limits(&budget, all), all.tokens(9).model_calls(2));
    }
}
