//! The tool by which a model finds others, where there are too many to tell it of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levity_core::{Hints, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use super::Dispatcher;
use crate::registry::Registry;
use crate::text::{Short, floor};

/// What the tool is called; by the second name when a tool of the registry has the first.
const FINDERS: [&str; 2] = ["find_tools", "levity_find_tools"];

/// How many tools are found, if the model does not say.
const USUAL: usize = 5;
/// How many may be found at a time.
const MOST: usize = 20;
/// How many sources are named to the model.
const MOST_SOURCES: usize = 40;

/// When tools are searched in place of being told.
#[derive(Debug)]
pub(super) struct Search {
    /// With more tools than this.
    above: usize,
    name: &'static str,
    /// Whether there were so many. Then it stays: tools that come and go should not make a model
    /// see all of them now and few then.
    on: AtomicBool,
}

impl Search {
    /// Nothing where no tool comes from a source, as nothing would be searched.
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
    /// What the tool is called by which a model finds others; nothing where it is told of all.
    pub fn finder(&self) -> Option<&'static str> {
        self.0.search.as_ref().map(|search| search.name)
    }

    /// What a model is told when the conversation has found or called these tools.
    ///
    /// That is everything, unless there are more tools than
    /// [`tool_search`](super::DispatcherBuilder::tool_search) allows. Then it is the tools that
    /// were added one by one, the one that finds others, and of the others those of `found` that
    /// are there, in that order: more of them are added behind those that were told before.
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
        // A source may have a tool of this name by now; the dispatcher answers to it.
        let found = found.filter(|spec| spec.name != search.name);
        fixed
            .chain([Arc::new(spec(search.name, registry))])
            .chain(found)
            .collect()
    }

    /// Whether a call looks for tools.
    pub(super) fn finds(&self, name: &str) -> bool {
        self.finder() == Some(name)
    }

    /// What a call that looks for tools finds.
    pub(super) fn find_tools(&self, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let wanted = Wanted::of(call)?;
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

/// What is told of tools that were found: all of the first ones, and of the others as much as there
/// is room for. They are offered from now on, so what is left out here is told there.
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
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": format!("How many to return; {USUAL} by default.")},
        },
        "required": ["query"],
        "additionalProperties": false,
    }))
}

/// Where tools can be found, in words that change only with the tools.
fn sources(registry: &Registry) -> String {
    let cost = registry.cost();
    let named = cost
        .iter()
        .take(MOST_SOURCES)
        .map(|cost| format!("`{}` ({})", Short(&cost.source, 64), cost.tools));
    let mut text = format!(
        "There are tools of {}",
        named.collect::<Vec<_>>().join(", ")
    );
    if cost.len() > MOST_SOURCES {
        text += &format!(" and {} more", cost.len() - MOST_SOURCES);
    }
    text + "."
}

/// What a call looks for.
struct Wanted {
    query: String,
    limit: usize,
}

impl Wanted {
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
            return wrong("`query` must say in words what the tool should do");
        }
        let limit = match args.get("limit") {
            None | Some(Value::Null) => USUAL,
            // Some models write `5.0`; the cast saturates.
            Some(limit) => match limit.as_f64().filter(|limit| *limit >= 1.0) {
                Some(limit) => (limit as usize).min(MOST),
                None => return wrong("`limit` must be a whole number, 1 or more"),
            },
        };
        Ok(Self {
            query: query.to_owned(),
            limit,
        })
    }
}
