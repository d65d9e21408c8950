//! The request's body.

use levity_core::{ModelError, OutputSchema, Request, ToolChoice};
use serde_json::{Map, Value, json};

use super::encode::To;
use super::generation::Generation;
use super::marks::{MARK, Marks};
use super::{Anthropic, messages, schema, thinking};
use crate::body::{Body, List, list, write as write_json};
use crate::http::Asked;

pub(super) fn write(wire: &Anthropic, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
    let Asked {
        card,
        request,
        stream,
        endpoint,
        origin,
    } = asked;
    let extra = Extra {
        request: &request.options.extra,
        all: endpoint.extra(),
    };
    let generation = wire.generation(card);
    let fixed = extra
        .get("thinking")
        .and_then(|thinking| thinking.get("budget_tokens")?.as_u64());
    let options = &request.options;
    let to = To {
        origin,
        claude: generation != Generation::UNKNOWN,
    };
    let lines = messages::lines(request, to)?;
    let mode = options
        .thinking
        .filter(|mode| thinking::is_off(*mode) || may_think(request, generation, &lines));
    let plan = thinking::plan(mode, generation, options.max_tokens, card.max_output, fixed);
    let shape = request.output.as_deref().map(Shape::of);
    let mut body = Draft {
        body: Body::new(),
        extra,
    };
    body.own("model", &card.id);
    body.own("max_tokens", &plan.max_tokens);
    if stream {
        body.own("stream", &true);
    }
    // Whoever marks something sets all marks: the API takes four in all, and no long-lived one
    // behind a short-lived.
    let marks = if extra.is_marked() || messages::are_marked(&lines) {
        Marks::none()
    } else {
        wire.marks
    };
    body.system(request, shape.as_ref(), marks);
    body.tools(request, marks);
    let mut written = Ok(());
    let marks = if is_lasting(request, extra) {
        marks
    } else {
        Marks::none()
    };
    body.raw("messages", |bytes| {
        written = messages::write(bytes, lines, generation, marks, to);
    });
    written?;
    if let Some(thinking) = &plan.thinking {
        body.own("thinking", thinking);
    }
    body.output(shape, plan.effort);
    body.options(request, to);
    Ok(body.finish())
}

/// Whether the model may be told to think here. Models that are given tokens for it (Claude 3.7 to
/// 4.5) refuse to begin in the middle of a turn: while tools answer, what the model said last must
/// begin with a thought of its own. Nor do they think where a call is demanded.
fn may_think(request: &Request, generation: Generation, lines: &[messages::Line<'_>]) -> bool {
    let is_free = matches!(request.tool_choice, ToolChoice::Auto | ToolChoice::None)
        || request.tools.is_empty();
    !generation.is_strict() || (is_free && messages::goes_on_thinking(lines))
}

/// Whether the conversation will likely be sent again with more behind it.
fn is_lasting(request: &Request, extra: Extra<'_>) -> bool {
    request.history.len() > 1 || !request.tools.is_empty() || extra.get("tools").is_some()
}

/// Fields of the provider's own that the user gives: with this request, and with every one.
#[derive(Clone, Copy)]
struct Extra<'a> {
    request: &'a Map<String, Value>,
    all: &'a Map<String, Value>,
}

impl<'a> Extra<'a> {
    fn get(self, name: &str) -> Option<&'a Value> {
        self.request.get(name).or_else(|| self.all.get(name))
    }

    fn iter(self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let others = self
            .all
            .iter()
            .filter(move |(name, _)| !self.request.contains_key(*name));
        self.request.iter().chain(others)
    }

    /// Whether the user marks something for the prompt cache, in any field, or has the API do so.
    fn is_marked(self) -> bool {
        self.iter()
            .any(|(name, value)| name == MARK || has_mark(value))
    }

    fn tools(self) -> &'a [Value] {
        self.get("tools")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }
}

fn has_mark(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_mark),
        Value::Object(fields) => fields.contains_key(MARK) || fields.values().any(has_mark),
        _ => false,
    }
}

/// How the shape of the answer is told.
enum Shape {
    /// The API holds the model to this schema.
    Held(Value),
    /// The model is asked to.
    Words(String),
}

impl Shape {
    fn of(output: &OutputSchema) -> Self {
        let words = || {
            let schema = &output.schema;
            format!(
                "Give your final answer as JSON, with nothing around it, that matches this JSON \
                    Schema:\n{schema}"
            )
        };
        schema::output(&output.schema).map_or_else(|| Self::Words(words()), Self::Held)
    }
}

/// A body under way.
struct Draft<'a> {
    body: Body,
    extra: Extra<'a>,
}

impl Draft<'_> {
    /// Adds a field, unless the user gives it.
    fn own(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        if self.extra.get(name).is_none() {
            self.body.field(name, value);
        }
    }

    fn raw(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if self.extra.get(name).is_none() {
            self.body.raw(name, value);
        }
    }

    fn system(&mut self, request: &Request, shape: Option<&Shape>, marks: Marks) {
        let words = match shape {
            Some(Shape::Words(words)) => Some(&**words),
            _ => None,
        };
        let texts: Vec<&str> = request.system.as_deref().into_iter().chain(words).collect();
        let texts: Vec<_> = texts
            .into_iter()
            .filter(|text| !text.trim().is_empty())
            .collect();
        match texts.as_slice() {
            [] => {}
            [text] if !marks.are_set() => self.own("system", text),
            texts => self.raw("system", |bytes| {
                list(bytes, |list| {
                    for (at, text) in texts.iter().enumerate() {
                        add_marked(
                            list,
                            &json!({"type": "text", "text": text}),
                            marks,
                            at + 1 == texts.len(),
                        );
                    }
                });
            }),
        }
    }

    /// The tools, and behind them those of the provider's own.
    fn tools(&mut self, request: &Request, marks: Marks) {
        let hosted = self.extra.tools();
        if request.tools.is_empty() && hosted.is_empty() {
            return;
        }
        let last = request.tools.len();
        self.body.raw("tools", |bytes| {
            list(bytes, |list| {
                for (at, tool) in request.tools.iter().enumerate() {
                    let mut json = Map::new();
                    json.insert("name".to_owned(), tool.name.as_str().into());
                    if !tool.description.is_empty() {
                        json.insert("description".to_owned(), tool.description.as_str().into());
                    }
                    json.insert(
                        "input_schema".to_owned(),
                        schema::input(&tool.input).into_owned(),
                    );
                    add_marked(list, &Value::Object(json), marks, at + 1 == last);
                }
                hosted.iter().for_each(|tool| list.item(tool));
            });
        });
        match &request.tool_choice {
            ToolChoice::None => self.own("tool_choice", &json!({"type": "none"})),
            ToolChoice::Required => self.own("tool_choice", &json!({"type": "any"})),
            ToolChoice::Tool(name) => {
                self.own("tool_choice", &json!({"type": "tool", "name": name}));
            }
            _ => {}
        }
    }

    /// The shape of the answer and the effort, beside what else the user puts there.
    fn output(&mut self, shape: Option<Shape>, effort: Option<&str>) {
        let given = self.extra.get("output_config");
        let mut config = given
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        if let Some(effort) = effort {
            config.entry("effort").or_insert_with(|| effort.into());
        }
        if let (Some(Shape::Held(schema)), None) = (shape, self.extra.get("output_format")) {
            config
                .entry("format")
                .or_insert_with(|| json!({"type": "json_schema", "schema": schema}));
        }
        if !config.is_empty() {
            self.body.field("output_config", &config);
        }
    }

    fn options(&mut self, request: &Request, to: To<'_>) {
        let options = &request.options;
        if let Some(temperature) = options.temperature {
            self.own("temperature", &temperature);
        }
        if let Some(top_p) = options.top_p {
            self.own("top_p", &top_p);
        }
        if !options.stop.is_empty() {
            self.own("stop_sequences", &options.stop);
        }
        if let Some(container) = container(request, to).filter(|_| !self.extra.tools().is_empty()) {
            self.own("container", container);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let merged = ["tools", "output_config"];
        for (name, value) in self
            .extra
            .iter()
            .filter(|(name, _)| !merged.contains(&name.as_str()))
        {
            self.body.field(name, value);
        }
        self.body.finish()
    }
}

/// Adds an item, with a mark if it is the one for it.
fn add_marked(list: &mut List<'_>, item: &Value, marks: Marks, here: bool) {
    let mut bytes = Vec::new();
    write_json(&mut bytes, item);
    if here {
        marks.put(&mut bytes);
    }
    list.add(&bytes);
}

/// Where the provider's own tools did their work when the model was last heard, so that they find
/// it again.
fn container<'a>(request: &'a Request, to: To<'_>) -> Option<&'a Value> {
    let mut replies = request
        .history
        .messages()
        .iter()
        .rev()
        .filter(|m| m.role == levity_core::Role::Assistant);
    let parts = replies.next()?.parts.iter();
    parts.rev().find_map(|part| match part {
        levity_core::Part::Opaque(opaque) => to.own(Some(opaque))?.get("container"),
        _ => None,
    })
}
