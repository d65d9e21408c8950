use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use super::AgentServer;
use crate::access::tenant_of;
use crate::library::{Library, Shelf};

/// How long a question may be.
const LONGEST_QUERY: usize = 4_000;

/// The tool `search`, in the shape that research clients expect: a list of ids, titles and
/// addresses.
pub(super) struct Search {
    spec: ToolSpec,
    shelf: Shelf,
}

impl Search {
    pub(super) fn new(shelf: Shelf) -> Self {
        let about =
            "Looks for documents that have to do with a question. `fetch` gives one by its id.";
        let result = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"}, "title": {"type": "string"},
                "url": {"type": "string"}, "text": {"type": "string"},
            },
            "required": ["id", "title", "url"],
        });
        let spec = ToolSpec::new("search", about)
            .with_input(one("query", "What to look for, in words."))
            .with_output(json!({
                "type": "object",
                "properties": {"results": {"type": "array", "items": result}},
                "required": ["results"],
            }))
            .with_hints(Hints::new().read_only());
        Self { spec, shelf }
    }
}

#[async_trait]
impl Tool for Search {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let query = text(&args, "query", LONGEST_QUERY)?;
        // Calls are made for a run that is named after the tenant.
        let tenant = tenant_of(cx.run.as_str()).unwrap_or_default();
        let found = self
            .shelf
            .search_for(tenant, query, AgentServer::SEARCH)
            .await?;
        Ok(ToolOutput::value(json!({"results": found})))
    }
}

/// The tool `fetch`: a whole document.
pub(super) struct Fetch {
    spec: ToolSpec,
    shelf: Shelf,
}

impl Fetch {
    pub(super) fn new(shelf: Shelf) -> Self {
        let spec = ToolSpec::new(
            "fetch",
            "Gives a document that `search` has found, by its id.",
        )
        .with_input(one("id", "The id, as `search` gave it."))
        .with_output(json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"}, "title": {"type": "string"}, "text": {"type": "string"},
                "url": {"type": "string"}, "metadata": {"type": "object"},
            },
            "required": ["id", "title", "text", "url"],
        }))
        .with_hints(Hints::new().read_only());
        Self { spec, shelf }
    }
}

#[async_trait]
impl Tool for Fetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let id = text(&args, "id", LONGEST_QUERY)?;
        match self.shelf.fetch(id).await? {
            Some(document) => Ok(ToolOutput::value(json!(document))),
            None => {
                let message = format!("there is no document `{id}`; take an id that `search` gave");
                Err(ToolError::new(ToolErrorKind::NotFound, message))
            }
        }
    }
}

fn one(name: &str, about: &str) -> Value {
    json!({
        "type": "object",
        "properties": {name: {"type": "string", "description": about}},
        "required": [name],
        "additionalProperties": false,
    })
}

fn text<'a>(args: &'a Value, name: &str, most: usize) -> Result<&'a str, ToolError> {
    let wrong = |message| ToolError::new(ToolErrorKind::InvalidArgs, message);
    let text = args[name]
        .as_str()
        .ok_or_else(|| wrong(format!("`{name}` is missing")))?;
    match text.len() > most {
        true => Err(wrong(format!(
            "`{name}` is longer than {most} bytes; say it shorter"
        ))),
        false => Ok(text),
    }
}
