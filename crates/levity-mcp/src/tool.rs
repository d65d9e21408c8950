//! Tools of servers as the tool registry sees them.
//!
//! A tool keeps its definition in two forms: the `spec` that models see, and the schema as the
//! server sent it. It survives a restart of its server, because it refers to the server and not to
//! a connection. After the servers were dropped, the weak reference is gone and each call fails
//! with "it was stopped".

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use levity_core::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec, estimate_tokens};
use levity_rpc::mcp::JsonObject;
use serde_json::Value;

use crate::convert::{self, Tasks};
use crate::server::ServerInner;
use crate::{Error, ErrorKind};

/// One tool of a server.
///
/// `tokens` is estimated once, because the status of a server sums it up often.
pub(crate) struct McpTool {
    spec: ToolSpec,
    original: String,
    title: Option<String>,
    as_task: bool,
    /// The schema of the arguments as the server sent it.
    schema: Arc<JsonObject>,
    tokens: u64,
    server: Weak<ServerInner>,
    server_name: Arc<str>,
}

impl McpTool {
    /// Creates the tool and returns it with the repairs that its definition needed, or the reason
    /// why it cannot be offered.
    pub(crate) fn new(
        server: &Arc<ServerInner>,
        entry: Value,
    ) -> Result<(Self, Vec<String>), String> {
        let tool = &convert::tool(entry)?;
        let config = &server.config;
        let name = server.namer.name(&tool.name);
        let (spec, info) = convert::spec(tool, name, config.trust, config.call_timeout)?;
        let tokens = estimate_tokens(&spec.name)
            + estimate_tokens(&spec.description)
            + estimate_tokens(&spec.input.to_string());
        let tool = Self {
            spec,
            original: info.name,
            title: info.title,
            as_task: info.tasks == Tasks::Required,
            schema: tool.input_schema.clone(),
            tokens,
            server: Arc::downgrade(server),
            server_name: config.name.clone(),
        };
        Ok((tool, info.problems))
    }

    /// Returns the name that the server gave the tool.
    pub(crate) fn original(&self) -> &str {
        &self.original
    }

    /// Returns the name that models see.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Returns the approximate number of tokens that the tool adds to a model request.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    pub(crate) fn schema(&self) -> &JsonObject {
        &self.schema
    }

    pub(crate) fn requires_task(&self) -> bool {
        self.as_task
    }

    /// Returns `true` if both tools have the same definition.
    pub(crate) fn has_same_definition(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.schema == other.schema
            && self.original == other.original
            && self.as_task == other.as_task
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let Some(server) = self.server.upgrade() else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                self.server_name.clone(),
                "it was stopped",
            )
            .into());
        };
        let (progress, cancel) = (cx.progress.clone(), Some(&cx.cancel));
        let result = server
            .call_raw(&self.original, args, self.as_task, progress, cancel)
            .await?;
        convert::output(result)
    }
}
