//! The tools `search` and `fetch`, with the argument and result formats that research clients
//! expect. Both are read-only. The tenant of a call comes from its run id, so a library can share
//! its capacity fairly.

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use super::AgentServer;
use crate::access::tenant_of;
use crate::library::{CombinedLibrary, Library};

/// The maximum length of a query in bytes.
const MAX_QUERY_BYTES: usize = 4_000;

/// The tool `search`, in the format that research clients expect: a list of ids, titles and URLs.
pub(super) struct Search {
    spec: ToolSpec,
    library: CombinedLibrary,
}

impl Search {
    pub(super) fn new(library: CombinedLibrary) -> Self {
        let description =
            "Searches for documents that match a question. `fetch` returns one by its id.";
        let result = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"}, "title": {"type": "string"},
                "url": {"type": "string"}, "text": {"type": "string"},
            },
            "required": ["id", "title", "url"],
        });
        let spec = ToolSpec::new("search", description)
            .with_input(single_argument("query", "What to search for, in words."))
            .with_output(json!({
                "type": "object",
                "properties": {"results": {"type": "array", "items": result}},
                "required": ["results"],
            }))
            .with_hints(Hints::new().read_only());
        Self { spec, library }
    }
}

#[async_trait]
impl Tool for Search {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let query = text(&args, "query", MAX_QUERY_BYTES)?;
        // The run id of a call begins with the name of the tenant.
        let tenant = tenant_of(cx.run.as_str()).unwrap_or_default();
        let found = self
            .library
            .search_for(tenant, query, AgentServer::MAX_SEARCH_RESULTS)
            .await?;
        Ok(ToolOutput::value(json!({"results": found})))
    }
}

/// The tool `fetch`, which returns a whole document.
pub(super) struct Fetch {
    spec: ToolSpec,
    library: CombinedLibrary,
}

impl Fetch {
    pub(super) fn new(library: CombinedLibrary) -> Self {
        let spec = ToolSpec::new(
            "fetch",
            "Returns a document that `search` has found, by its id.",
        )
        .with_input(single_argument("id", "The id, as `search` returned it."))
        .with_output(json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"}, "title": {"type": "string"}, "text": {"type": "string"},
                "url": {"type": "string"}, "metadata": {"type": "object"},
            },
            "required": ["id", "title", "text", "url"],
        }))
        .with_hints(Hints::new().read_only());
        Self { spec, library }
    }
}

#[async_trait]
impl Tool for Fetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let id = text(&args, "id", MAX_QUERY_BYTES)?;
        match self.library.fetch(id).await? {
            Some(document) => Ok(ToolOutput::value(json!(document))),
            None => {
                let message = format!(
                    "no document has the id `{id}`; use an id that `search` \
                    returned"
                );
                Err(ToolError::new(ToolErrorKind::NotFound, message))
            }
        }
    }
}

fn single_argument(name: &str, description: &str) -> Value {
    json!({
        "type": "object",
        "properties": {name: {"type": "string", "description": description}},
        "required": [name],
        "additionalProperties": false,
    })
}

/// Returns a required argument. Queries and ids are limited to 4,000 bytes.
fn text<'a>(args: &'a Value, name: &str, limit: usize) -> Result<&'a str, ToolError> {
    let wrong = |message| ToolError::new(ToolErrorKind::InvalidArgs, message);
    let text = args[name]
        .as_str()
        .ok_or_else(|| wrong(format!("`{name}` is missing; pass it as a string")))?;
    match text.len() > limit {
        true => Err(wrong(format!(
            "`{name}` is longer than {limit} bytes; shorten it"
        ))),
        false => Ok(text),
    }
}
