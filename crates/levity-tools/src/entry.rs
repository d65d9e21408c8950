//! Tools with their compiled schemas.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Permit, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

use crate::error::Error;
use crate::schema::ToolSchema;
use crate::text::Truncated;

/// A tool with everything that is computed once.
pub(crate) struct Entry {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) input: Arc<ToolSchema>,
    pub(crate) output: Option<Arc<ToolSchema>>,
    /// The reason for which its outputs are not validated, although it has a schema for them.
    pub(crate) flaw: Option<Error>,
}

impl Entry {
    /// Creates the entry of a tool.
    ///
    /// # Errors
    /// Returns an error if the tool has an invalid name or schema.
    pub(crate) fn new(tool: Arc<dyn Tool>) -> Result<Self, Error> {
        let entry = Self::lenient(tool)?;
        match entry.flaw {
            Some(flaw) => Err(flaw),
            None => Ok(entry),
        }
    }

    /// Creates the entry of a foreign tool, which may have an invalid output schema.
    ///
    /// # Errors
    /// Returns an error if the tool has an invalid name or input schema.
    pub(crate) fn lenient(tool: Arc<dyn Tool>) -> Result<Self, Error> {
        let spec = Arc::new(tool.spec().clone());
        let name = &*spec.name;
        if !is_name(name) {
            return Err(Error::InvalidName(Truncated(name, 64).to_string()));
        }
        if spec.input.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(Error::NotAnObject(name.into()));
        }
        let input = Arc::new(ToolSchema::input(&spec)?);
        let (output, flaw) = match ToolSchema::output(&spec) {
            Ok(output) => (output.map(Arc::new), None),
            Err(flaw) => (None, Some(flaw)),
        };
        Ok(Self {
            tool,
            spec,
            input,
            output,
            flaw,
        })
    }

    /// Returns an entry for a tool of the same spec, without compiling anything again.
    pub(crate) fn with_tool(&self, tool: Arc<dyn Tool>) -> Self {
        Self {
            tool,
            spec: self.spec.clone(),
            input: self.input.clone(),
            output: self.output.clone(),
            flaw: self.flaw.clone(),
        }
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// A tool with another name.
pub(crate) struct Renamed<T> {
    spec: ToolSpec,
    tool: T,
}

impl<T: Tool> Renamed<T> {
    pub(crate) fn new(name: String, tool: T) -> Self {
        let mut spec = tool.spec().clone();
        spec.name = name;
        Self { spec, tool }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: Tool> Tool for Renamed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: serde_json::Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.tool.call(args, cx).await
    }

    async fn undo(&self, args: serde_json::Value, cx: &ToolCx) -> Result<(), ToolError> {
        self.tool.undo(args, cx).await
    }

    fn permit(&self, args: &serde_json::Value) -> Permit {
        self.tool.permit(args)
    }

    fn permit_blocks(&self) -> bool {
        self.tool.permit_blocks()
    }

    fn reports_changes(&self) -> bool {
        self.tool.reports_changes()
    }
}
