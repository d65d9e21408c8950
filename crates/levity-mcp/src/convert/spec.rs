//! Conversion of a server's tools to tools of levity.
//!
//! A tool is either offered completely or not at all. Parts that only help, such as an output
//! schema that levity cannot check or a very long description, are repaired, and the status of the
//! server reports the repair. The timeout of the tool in the dispatcher is 5 s longer than that of
//! the call, so that the error of the connection, which names the server, comes first.

use std::time::Duration;

use levity_core::{Hints, ToolSpec};
use levity_rpc::mcp::{Tool, ToolAnnotations};

use super::schema;
use super::text::{short, truncate};
use crate::Trust;

/// The maximum length of a description, in bytes.
const MAX_DESCRIPTION: usize = 32 << 10;

/// The additional time that a dispatcher waits beyond the timeout of the connection, so that the
/// more precise error of the connection is reported.
const GRACE: Duration = Duration::from_secs(5);

/// The key under which the transport stores a tool property that rmcp's type lacks.
pub(crate) const EXECUTION: &str = "levity/execution";

/// The properties of a tool that are not in its spec.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolInfo {
    /// The name of the tool on the server.
    pub(crate) name: String,
    /// The title of the tool for people.
    pub(crate) title: Option<String>,
    /// The support of the tool for tasks.
    pub(crate) tasks: Tasks,
    /// The problems of the definition that were repaired; each names the tool.
    pub(crate) problems: Vec<String>,
}

/// The support of a tool for calls as a task, which the client polls for its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// The tool supports only plain calls.
    #[default]
    Forbidden,
    /// The tool supports both.
    Optional,
    /// The tool supports only tasks.
    Required,
}

/// Converts a tool of a server, with the name `name`. Its calls may take as long as `limit`.
///
/// # Errors
/// Returns a clause that names the tool, if it cannot be offered to models.
pub(crate) fn spec(
    tool: &Tool,
    name: String,
    trust: Trust,
    limit: Duration,
) -> Result<(ToolSpec, ToolInfo), String> {
    let named = |text: String| format!("the tool `{}` {text}", short(&tool.name));
    let input = schema::input(&tool.input_schema, &tool.name)
        .map_err(|problem| named(format!("is omitted: its input schema {problem}")))?;
    let mut problems = Vec::new();
    let output = tool.output_schema.as_ref().and_then(|output| {
        let ignore = |problem| {
            problems.push(named(format!(
                "is not checked against its output schema, which {problem}"
            )));
        };
        schema::output(output).map_err(ignore).ok()
    });
    let title = title(tool);
    let description = match tool.description.as_deref().unwrap_or_default().trim() {
        "" => title.as_deref().unwrap_or(&tool.name),
        text => text,
    };
    if description.len() > MAX_DESCRIPTION {
        let length = description.len();
        problems.push(named(format!(
            "has a description of {length} bytes, of which only the first {MAX_DESCRIPTION} are \
                shown"
        )));
    }
    let hints = hints(tool.annotations.as_ref(), trust).timeout(limit.saturating_add(GRACE));
    let mut spec = ToolSpec::new(name, truncate(description, MAX_DESCRIPTION))
        .with_input(input)
        .with_hints(hints);
    spec.output = output;
    Ok((
        spec,
        ToolInfo {
            name: tool.name.to_string(),
            title,
            tasks: tasks(tool),
            problems,
        },
    ))
}

/// Returns the title of a tool for people; older servers put it into the annotations.
fn title(tool: &Tool) -> Option<String> {
    let annotated = tool
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.title.as_deref());
    let title = tool.title.as_deref().or(annotated)?.trim();
    (!title.is_empty()).then(|| truncate(title, MAX_DESCRIPTION).to_owned())
}

/// Reads the support for tasks from where `tool_entry` stored it.
fn tasks(tool: &Tool) -> Tasks {
    let support = tool
        .meta
        .as_ref()
        .and_then(|meta| meta.get(EXECUTION)?.get("taskSupport")?.as_str());
    match support {
        Some("optional") => Tasks::Optional,
        Some("required") => Tasks::Required,
        _ => Tasks::Forbidden,
    }
}

/// Returns the hints for a tool, as far as its server is trusted.
///
/// By default, the protocol treats every tool as destructive. Most servers have no annotations at
/// all, and an approval before each of their calls would teach people to always approve. So a tool
/// is destructive if its server says so, or if it is annotated as writing and not as additive.
/// Without annotations, the policy must decide.
fn hints(annotations: Option<&ToolAnnotations>, trust: Trust) -> Hints {
    let mut hints = Hints::new();
    let Some(annotations) = annotations else {
        return hints;
    };
    let writes = annotations.read_only_hint == Some(false);
    hints.destructive = annotations.destructive_hint.unwrap_or(writes);
    if trust != Trust::Full {
        return hints;
    }
    match (annotations.read_only_hint, annotations.idempotent_hint) {
        // The other annotations are meaningless for a read-only tool.
        (Some(true), _) => Hints::new().read_only(),
        (_, Some(true)) => hints.idempotent(),
        _ => hints,
    }
}

#[cfg(test)]
mod tests;
