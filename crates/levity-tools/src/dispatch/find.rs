//! The tool by which a model finds others, if there are too many to list them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levity_core::{Hints, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use super::Dispatcher;
use crate::registry::Registry;
use crate::text::{Truncated, floor};

/// The names of the tool; the second one if a tool of the registry has the first.
const FINDERS: [&str; 2] = ["find_tools", "levity_find_tools"];

/// The default number of results.
const DEFAULT_RESULTS: usize = 5;
/// The maximum number of results.
const MAX_RESULTS: usize = 20;
/// The maximum number of sources named to the model.
const MAX_SOURCES: usize = 40;

/// The condition under which tools are searched instead of listed.
#[derive(Debug)]
pub(super) struct Search {
    /// The number of tools above which they are searched.
    above: usize,
    name: &'static str,
    /// `true` once there were so many. It stays: tools that are added and removed should not make a
    /// model see all of them now and few later.
    on: AtomicBool,
}

impl Search {
    /// Returns `None` if no tool comes from a source, as there is nothing to search.
    pub(super) fn new(above: Option<usize>, registry: &Registry) -> Option<Self> {
        let above = above.filter(|_| registry.has_sources())?;
        let taken = registry.get(FINDERS[0]).is_some();
        Some(Self {
            above,
            name: FINDERS[usize::from(taken)],
            on: AtomicBool::new(false),
        })
    }

    fn is_on(&self, registry: &Registry) -> bool {
        let (all, of_sources) = registry.counts();
        if all > self.above && of_sources > 0 {
            self.on.store(true, Ordering::Relaxed);
        }
        self.on.load(Ordering::Relaxed)
    }
}

impl Dispatcher {
    /// Returns the name of the tool by which a model finds others; `None` if all are listed.
    pub fn finder(&self) -> Option<&'static str> {
        self.0.search.as_ref().map(|search| search.name)
    }

    /// Returns the specs for a request, given the tools that the conversation has found or called.
    ///
    /// All tools are returned, unless there are more than
    /// [`tool_search`](super::DispatcherBuilder::tool_search) allows. Then these are the tools that
    /// were added one by one, the one that finds others, and the existing ones of `found`, in that
    /// order. Newly found tools are added at the end.
    pub fn offer(&self, found: &[Arc<str>]) -> Arc<[Arc<ToolSpec>]> {
        let registry = &self.0.registry;
        let Some(search) = self
            .0
            .search
            .as_ref()
            .filter(|search| search.is_on(registry))
        else {
            return self.specs();
        };
        let fixed = registry.fixed().into_iter();
        let found = found.iter().filter_map(|name| registry.of_source(name));
        // A source may have a tool of this name by now; the dispatcher still answers to it.
        let found = found.filter(|spec| spec.name != search.name);
        fixed
            .chain([Arc::new(spec(search.name, registry))])
            .chain(found)
            .collect()
    }

    /// Returns `true` if a call searches for tools.
    pub(super) fn finds(&self, name: &str) -> bool {
        self.finder() == Some(name)
    }

    /// Returns the tools that a search call finds.
    pub(super) fn find_tools(&self, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let wanted = SearchArguments::of(call)?;
        let found = self.0.registry.find(&wanted.query, wanted.limit);
        if found.is_empty() {
            let sources = sources(&self.0.registry);
            return Ok(ToolOutput::value(json!({
                "tools": [],
                "note": format!("no tool fits; try other words. {sources}"),
            })));
        }
        let tools = shown(&found, self.0.max_output.saturating_sub(256));
        Ok(ToolOutput::value(json!({ "tools": tools })))
    }
}

/// Describes found tools: all of the first ones, and of the others as much as fits. They are
/// offered from now on, so the model sees the omitted parts there.
fn shown(found: &[Arc<ToolSpec>], mut room: usize) -> Vec<Value> {
    let length = |tool: &Value| tool.to_string().len() + 1;
    let mut tools = Vec::new();
    for spec in found {
        let words = &spec.description[..floor(&spec.description, 256)];
        let mut short = json!({"name": spec.name, "description": words});
        if length(&short) > room {
            short = json!({"name": spec.name});
        }
        let Some(left) = room.checked_sub(length(&short)) else {
            break;
        };
        room = left;
        tools.push(short);
    }
    for (tool, spec) in tools.iter_mut().zip(found) {
        let whole =
            json!({"name": spec.name, "description": spec.description, "input": spec.input});
        let Some(left) = (room + length(tool)).checked_sub(length(&whole)) else {
            break;
        };
        room = left;
        *tool = whole;
    }
    tools
}

fn spec(name: &str, registry: &Registry) -> ToolSpec {
    let about = format!(
        "Finds tools that are not listed here, by words for what they do. Those it returns can be \
            called from the next turn on. {}",
        sources(registry)
    );
    ToolSpec::new(name, about).with_hints(Hints::new().read_only()).with_input(json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the tool should do, in a few words, \
                or a part of its name."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "description": format!("How many to return; {DEFAULT_RESULTS} by default."),
            },
        },
        "required": ["query"],
        "additionalProperties": false,
    }))
}

/// Describes the sources of tools, in words that change only with the tools.
fn sources(registry: &Registry) -> String {
    let cost = registry.cost();
    let named = cost
        .iter()
        .take(MAX_SOURCES)
        .map(|cost| format!("`{}` ({})", Truncated(&cost.source, 64), cost.tools));
    let mut text = format!(
        "There are tools of {}",
        named.collect::<Vec<_>>().join(", ")
    );
    if cost.len() > MAX_SOURCES {
        text += &format!(" and {} more", cost.len() - MAX_SOURCES);
    }
    text + "."
}

/// The arguments of a search.
struct SearchArguments {
    query: String,
    limit: usize,
}

impl SearchArguments {
    fn of(call: &ToolCall) -> Result<Self, ToolError> {
        let wrong = |text: &str| Err(ToolError::new(ToolErrorKind::InvalidArgs, text));
        let empty = Map::new();
        let args = match &call.args {
            _ if call.raw.is_some() => return wrong("the arguments are not valid JSON"),
            Value::Null => &empty,
            Value::Object(args) => args,
            _ => return wrong("the arguments must be an object with a `query`"),
        };
        let query = args
            .get("query")
            .and_then(Value::as_str)
            .map(str::trim)
            .unwrap_or_default();
        if query.is_empty() {
            return wrong("`query` must describe in words what the tool should do");
        }
        let limit = match args.get("limit") {
            None | Some(Value::Null) => DEFAULT_RESULTS,
            // Some models write `5.0`; the cast saturates.
            Some(limit) => match limit.as_f64().filter(|limit| *limit >= 1.0) {
                Some(limit) => (limit as usize).min(MAX_RESULTS),
                None => return wrong("`limit` must be a whole number, 1 or more"),
            },
        };
        Ok(Self {
            query: query.to_owned(),
            limit,
        })
    }
}
