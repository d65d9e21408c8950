//! Tools of servers as tools of levity.

use std::time::Duration;

use levity_core::{Hints, ToolSpec};
use levity_rpc::mcp::{Tool, ToolAnnotations};

use super::schema;
use super::text::{cut, short};
use crate::Trust;

/// The longest description that is taken over.
const LONGEST: usize = 32 << 10;

/// How much longer a dispatcher waits for a call than the connection does, so that the error of the
/// connection, which knows more, is the one that is told.
const GRACE: Duration = Duration::from_secs(5);

/// Where the transport puts what the protocol says of a tool and rmcp's type has no field for.
pub(crate) const EXECUTION: &str = "levity/execution";

/// What is known of a tool beside its spec.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    /// Its name on the server.
    pub(crate) name: String,
    /// What people call it.
    pub(crate) title: Option<String>,
    /// Whether it is called as a task.
    pub(crate) tasks: Tasks,
    /// What was wrong with it and could be mended; each names the tool.
    pub(crate) problems: Vec<String>,
}

/// Whether a tool can be called as a task, which goes on while its client asks how far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// Only as a plain call.
    #[default]
    Forbidden,
    /// Either way.
    Optional,
    /// Only as a task.
    Required,
}

/// A tool of a server under a name of ours. Its calls may take as long as `limit`.
///
/// # Errors
/// A clause that names the tool, when models cannot be offered it.
pub(crate) fn spec(
    tool: &Tool,
    name: String,
    trust: Trust,
    limit: Duration,
) -> Result<(ToolSpec, Kept), String> {
    let named = |text: String| format!("the tool `{}` {text}", short(&tool.name));
    let input = schema::input(&tool.input_schema, &tool.name)
        .map_err(|flaw| named(format!("is left out: its input schema {flaw}")))?;
    let mut problems = Vec::new();
    let output = tool.output_schema.as_ref().and_then(|output| {
        let wrong = |flaw| {
            problems.push(named(format!(
                "is not held to its output schema, which {flaw}"
            )));
        };
        schema::output(output).map_err(wrong).ok()
    });
    let title = title(tool);
    let description = match tool.description.as_deref().unwrap_or_default().trim() {
        "" => title.as_deref().unwrap_or(&tool.name),
        text => text,
    };
    if description.len() > LONGEST {
        let length = description.len();
        problems.push(named(format!(
            "is described in {length} bytes, of which the first {LONGEST} are shown"
        )));
    }
    let hints = hints(tool.annotations.as_ref(), trust).timeout(limit.saturating_add(GRACE));
    let mut spec = ToolSpec::new(name, cut(description, LONGEST))
        .with_input(input)
        .with_hints(hints);
    spec.output = output;
    Ok((
        spec,
        Kept {
            name: tool.name.to_string(),
            title,
            tasks: tasks(tool),
            problems,
        },
    ))
}

fn title(tool: &Tool) -> Option<String> {
    let noted = tool
        .annotations
        .as_ref()
        .and_then(|said| said.title.as_deref());
    let title = tool.title.as_deref().or(noted)?.trim();
    (!title.is_empty()).then(|| cut(title, LONGEST).to_owned())
}

fn tasks(tool: &Tool) -> Tasks {
    let said = tool
        .meta
        .as_ref()
        .and_then(|meta| meta.get(EXECUTION)?.get("taskSupport")?.as_str());
    match said {
        Some("optional") => Tasks::Optional,
        Some("required") => Tasks::Required,
        _ => Tasks::Forbidden,
    }
}

/// How a tool behaves, as far as its server is believed.
///
/// The protocol's default is that a tool may destroy something unless it says otherwise. Most
/// servers say nothing at all, and asking before each of their calls would teach people to say yes.
/// So a tool may destroy something when its server says so, or when it says that the tool writes
/// and not that it only adds; where it says nothing, policy has to.
fn hints(said: Option<&ToolAnnotations>, trust: Trust) -> Hints {
    let mut hints = Hints::new();
    let Some(said) = said else { return hints };
    let writes = said.read_only_hint == Some(false);
    hints.destructive = said.destructive_hint.unwrap_or(writes);
    if trust != Trust::Full {
        return hints;
    }
    match (said.read_only_hint, said.idempotent_hint) {
        // The other hints mean nothing for a tool that only reads.
        (Some(true), _) => Hints::new().read_only(),
        (_, Some(true)) => hints.idempotent(),
        _ => hints,
    }
}

#[cfg(test)]
mod tests;
