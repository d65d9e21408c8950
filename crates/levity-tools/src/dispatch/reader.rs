use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::output::MARKER;
use crate::aside::Aside;
use crate::entry::Entry;
use crate::error::Error;
use crate::registry::Registry;
use crate::text::Short;

/// What the reader is called; by the second name when a tool of the registry has the first.
const NAMES: [&str; 2] = ["read_result", "levity_read_result"];

type Specs = Arc<[Arc<ToolSpec>]>;

/// The tool that reads what was put aside, and its place among the others.
///
/// It is offered from the first cut on and stays: tools that come and go spoil the provider's prompt cache.
pub(super) struct Reader {
    entries: [Arc<Entry>; 2],
    aside: Arc<Aside>,
    /// The registry's specs, and the same with the reader's.
    joined: Mutex<Option<(Specs, Specs)>>,
}

impl Reader {
    pub(super) fn new(max_output: usize) -> Result<Self, Error> {
        let aside = Arc::new(Aside::default());
        let max = max_output - MARKER;
        let templates = TEMPLATES.as_ref().map_err(Clone::clone)?;
        let entries = templates.each_ref().map(|template| {
            let tool = ReadResult { spec: template.spec.clone(), aside: aside.clone(), max };
            Arc::new(template.with_tool(Arc::new(tool)))
        });
        Ok(Self { entries, aside, joined: Mutex::new(None) })
    }

    pub(super) fn aside(&self) -> &Aside {
        &self.aside
    }

    /// The reader, by either name: a model may use the one it was told, whatever happened to the tools since.
    pub(super) fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.iter().find(|entry| entry.spec.name == name).cloned()
    }

    pub(super) fn owns(&self, entry: &Arc<Entry>) -> bool {
        self.entries.iter().any(|own| Arc::ptr_eq(own, entry))
    }

    /// What it is called beside these tools.
    pub(super) fn name(specs: &[Arc<ToolSpec>]) -> &'static str {
        let taken = specs.iter().any(|spec| spec.name == NAMES[0]);
        if taken { NAMES[1] } else { NAMES[0] }
    }

    /// The specs of `registry` and, once something was put aside, the reader's.
    pub(super) fn join(&self, registry: &Registry) -> Specs {
        let specs = registry.specs();
        if !self.aside.was_used() {
            return specs;
        }
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        match &*joined {
            Some((base, all)) if Arc::ptr_eq(base, &specs) => all.clone(),
            _ => {
                let own = self.entry(Self::name(&specs)).map(|entry| entry.spec.clone());
                let all: Specs = specs.iter().cloned().chain(own).collect();
                *joined = Some((specs, all.clone()));
                all
            }
        }
    }
}

/// What all readers have in common, compiled once: there is a reader in every dispatcher.
static TEMPLATES: LazyLock<Result<[Entry; 2], Error>> = LazyLock::new(|| {
    let template = |name| {
        let spec = Arc::new(spec(name));
        Entry::new(Arc::new(ReadResult { spec, aside: Arc::default(), max: 0 }))
    };
    Ok([template(NAMES[0])?, template(NAMES[1])?])
});

struct ReadResult {
    spec: Arc<ToolSpec>,
    aside: Arc<Aside>,
    /// The longest piece; with the words around it, it is not cut again.
    max: usize,
}

#[derive(Deserialize)]
struct Args {
    id: String,
    #[serde(default)]
    offset: usize,
    length: Option<usize>,
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "Reads a part of an earlier tool result that was too long to be shown whole.")
        .with_hints(Hints::new().read_only())
        .with_input(json!({
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The id named where the result was cut."},
                "offset": {"type": "integer", "minimum": 0, "description": "The first byte to read; 0 by default."},
                // A piece of at least one character, so that reading on comes to an end.
                "length": {"type": "integer", "minimum": 4, "description": "How many bytes; as many as fit by default."},
            },
            "required": ["id"],
            "additionalProperties": false,
        }))
}

#[async_trait]
impl Tool for ReadResult {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let args: Args = serde_json::from_value(args)
            .map_err(|error| ToolError::failed("the arguments could not be read").with_source(error))?;
        let length = args.length.unwrap_or(self.max).min(self.max);
        let Some(piece) = self.aside.read(&args.id, args.offset, length) else {
            let id = Short(&args.id, 64);
            let text = format!("nothing is kept under `{id}` any more; make the call that returned it again");
            return Err(ToolError::failed(text));
        };
        let (start, end, total) = (piece.start, piece.end, piece.total);
        let next = if end < total { format!("read on at {end}") } else { "this is the end".into() };
        let note = format!("\n[bytes {start} to {end} of {total}; {next}]");
        let mut output = ToolOutput::text(piece.text);
        output.content.extend(ToolOutput::text(note).content);
        Ok(output)
    }
}
