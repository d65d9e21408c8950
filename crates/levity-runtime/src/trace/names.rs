//! The names of the conventions.

use levity_core::{Failure, Finish, MachineKind, ModelErrorKind, Status, ToolErrorKind};

use super::SpanName;

/// The kind of a run, in the terms of the conventions.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Agent,
    /// Several agents: a swarm, a graph.
    Workflow,
    /// The run of a program, which answers the call of a tool.
    Tool,
}

impl Operation {
    pub(super) fn of(kind: &MachineKind) -> Self {
        match &*kind.name {
            "graph" | "swarm" => Self::Workflow,
            "python" => Self::Tool,
            _ => Self::Agent,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "invoke_agent",
            Self::Workflow => "invoke_workflow",
            Self::Tool => "execute_tool",
        }
    }

    /// Returns the field for the name of the runnable.
    pub(super) fn name_field(self) -> &'static str {
        match self {
            Self::Agent => "gen_ai.agent.name",
            Self::Workflow => "gen_ai.workflow.name",
            Self::Tool => "gen_ai.tool.name",
        }
    }

    pub(super) fn title(self, name: Option<&str>) -> SpanName<'_> {
        SpanName(self.as_str(), name)
    }
}

/// Returns a provider's name: the conventions have their own for some.
pub(super) fn provider(name: &str) -> &str {
    match name {
        "gemini" => "gcp.gemini",
        "vertex" => "gcp.vertex_ai",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        "openai-chat" => "openai",
        "azure" => "azure.ai.openai",
        other => other,
    }
}

pub(super) fn finish(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Paused => "pause_turn",
        Finish::Other(word) => word,
        _ => "other",
    }
}

pub(super) fn model_error(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::RateLimited { .. } => "rate_limited",
        ModelErrorKind::Overloaded => "overloaded",
        ModelErrorKind::Auth => "auth",
        ModelErrorKind::BadRequest => "bad_request",
        ModelErrorKind::ContextTooLong => "context_too_long",
        ModelErrorKind::ContentFiltered => "content_filtered",
        ModelErrorKind::Timeout => "timeout",
        ModelErrorKind::Transport => "transport",
        ModelErrorKind::Malformed => "malformed",
        ModelErrorKind::Server => "server",
        ModelErrorKind::Unpriced => "unpriced",
        _ => "_OTHER",
    }
}

pub(super) fn tool_error(kind: ToolErrorKind) -> &'static str {
    match kind {
        ToolErrorKind::NotFound => "not_found",
        ToolErrorKind::InvalidArgs => "invalid_args",
        ToolErrorKind::Denied => "denied",
        ToolErrorKind::Timeout => "timeout",
        ToolErrorKind::Failed => "failed",
        ToolErrorKind::InvalidOutput => "invalid_output",
        ToolErrorKind::Cancelled => "cancelled",
        ToolErrorKind::Unknown => "unknown",
        _ => "_OTHER",
    }
}

pub(super) fn status(status: &Status) -> &'static str {
    match status {
        Status::Complete => "complete",
        Status::BestEffort(_) => "best_effort",
        Status::Partial(_) => "partial",
        Status::Cancelled { .. } => "cancelled",
        Status::Failed(_) => "failed",
        _ => "other",
    }
}

pub(super) fn failure(failure: &Failure) -> &'static str {
    match failure {
        Failure::Model(error) => model_error(error.kind()),
        Failure::Behaviour(_) => "behaviour",
        Failure::Output(_) => "output",
        Failure::Program(error) => tool_error(error.kind()),
        Failure::Memory(_) => "memory",
        Failure::GoalNotReached(_) => "unreached",
        Failure::Blocked(_) => "blocked",
        _ => "_OTHER",
    }
}
