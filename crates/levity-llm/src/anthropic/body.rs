//! Writes the body of a request.
//!
//! Fields are written directly to bytes, without an intermediate JSON value for the conversation.
//! Fields of the user take precedence over those of levity; `tools` and `output_config` are merged
//! instead of replaced.
//!
//! A mark of the user anywhere in the request disables all marks of levity, so the conversation is
//! encoded before the first field is written.

use levity_core::{ModelError, OutputSchema, Request, ToolChoice};
use serde_json::{Map, Value, json};

use super::cache_marks::{MARK, Marks};
use super::encode::Target;
use super::generation::Generation;
use super::{Anthropic, messages, schema, thinking};
use crate::body::{Body, List, list, write as write_json};
use crate::http::WireRequest;

/// Returns the JSON body for a request.
///
/// Thinking is decided before the first field is written, because it changes the maximum reply
/// length.
///
/// # Errors
/// Returns `BadRequest` if a message contains media that the API does not accept.
pub(super) fn write(
    wire: &Anthropic,
    wire_request: WireRequest<'_>,
) -> Result<Vec<u8>, ModelError> {
    let WireRequest {
        card,
        request,
        stream,
        endpoint,
        origin,
    } = wire_request;
    let extra = Extra {
        request: &request.options.extra,
        all: endpoint.extra(),
    };
    let generation = wire.generation(card);
    let fixed = extra
        .get("thinking")
        .and_then(|thinking| thinking.get("budget_tokens")?.as_u64());
    let options = &request.options;
    let target = Target {
        origin,
        claude: generation != Generation::UNKNOWN,
    };
    let lines = messages::lines(request, target)?;
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
    // If the user sets any mark, levity sets none: the API accepts four in total, and no long-lived
    // mark after a short-lived one.
    let marks = if extra.is_marked() || messages::are_marked(&lines) {
        Marks::none()
    } else {
        wire.marks
    };
    body.system(request, shape.as_ref(), marks);
    body.tools(request, marks);
    let mut written = Ok(());
    let marks = if will_be_extended(request, extra) {
        marks
    } else {
        Marks::none()
    };
    body.raw("messages", |bytes| {
        written = messages::write(bytes, lines, generation, marks, target);
    });
    written?;
    if let Some(thinking) = &plan.thinking {
        body.own("thinking", thinking);
    }
    body.output(shape, plan.effort);
    body.options(request, target);
    Ok(body.finish())
}

/// Returns `true` if the request may enable thinking. Models with a token budget for thinking
/// (Claude 3.7 to 4.5) cannot start to think within a turn. During tool results, the model's last
/// message must start with its own thought. They also do not think if a call is required.
fn may_think(request: &Request, generation: Generation, lines: &[messages::Line<'_>]) -> bool {
    let is_free = matches!(request.tool_choice, ToolChoice::Auto | ToolChoice::None)
        || request.tools.is_empty();
    !generation.uses_thinking_budget() || (is_free && messages::may_start_with_thought(lines))
}

/// Returns `true` if the conversation will probably be sent again with more messages.
///
/// A mark on the only message of a single question would pay for a cache entry that nothing reads.
fn will_be_extended(request: &Request, extra: Extra<'_>) -> bool {
    request.history.len() > 1 || !request.tools.is_empty() || extra.get("tools").is_some()
}

/// The user's provider-specific fields: those of this request, and those of the endpoint.
///
/// Fields of the request hide fields of the same name in the endpoint.
#[derive(Clone, Copy)]
struct Extra<'a> {
    request: &'a Map<String, Value>,
    all: &'a Map<String, Value>,
}

impl<'a> Extra<'a> {
    /// Returns a field of the request, or otherwise of the endpoint.
    fn get(self, name: &str) -> Option<&'a Value> {
        self.request.get(name).or_else(|| self.all.get(name))
    }

    /// Iterates over all fields, each name once.
    fn iter(self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let others = self
            .all
            .iter()
            .filter(move |(name, _)| !self.request.contains_key(*name));
        self.request.iter().chain(others)
    }

    /// Returns `true` if the user sets a cache mark in any field, or lets the API do so.
    fn is_marked(self) -> bool {
        self.iter()
            .any(|(name, value)| name == MARK || has_mark(value))
    }

    /// Returns the provider's own tools that the user passes, such as `web_search`.
    fn tools(self) -> &'a [Value] {
        self.get("tools")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }
}

/// Returns `true` if a cache mark is anywhere within a value.
fn has_mark(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_mark),
        Value::Object(fields) => fields.contains_key(MARK) || fields.values().any(has_mark),
        _ => false,
    }
}

/// The way in which the request states the shape of the answer.
enum Shape {
    /// The API enforces this schema.
    Enforced(Value),
    /// The instructions describe the schema.
    Described(String),
}

impl Shape {
    /// Prefers the enforced form. The schema is described in words only if the API cannot enforce
    /// it.
    fn of(output: &OutputSchema) -> Self {
        let words = || {
            let schema = &output.schema;
            format!(
                "Give your final answer as JSON, with nothing around it, that matches this JSON \
                    Schema:\n{schema}"
            )
        };
        schema::output(&output.schema).map_or_else(|| Self::Described(words()), Self::Enforced)
    }
}

/// A body that is being written.
///
/// It skips fields that the user sets, and writes those of the user at the end.
struct Draft<'a> {
    body: Body,
    extra: Extra<'a>,
}

impl Draft<'_> {
    /// Adds a field, unless the user sets it.
    fn own(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        if self.extra.get(name).is_none() {
            self.body.field(name, value);
        }
    }

    /// Adds a field whose value the closure writes, unless the user sets the field.
    fn raw(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if self.extra.get(name).is_none() {
            self.body.raw(name, value);
        }
    }

    /// Writes the instructions: a plain string for a single text without a mark, otherwise a list
    /// of text blocks with the mark on the last one. Blank texts are omitted, because the API
    /// rejects them.
    fn system(&mut self, request: &Request, shape: Option<&Shape>, marks: Marks) {
        let words = match shape {
            Some(Shape::Described(words)) => Some(&**words),
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

    /// Writes the tools, followed by the provider's own.
    ///
    /// The mark is on the last of levity's own tools. Tools of the user's fields follow it, so a
    /// change of them does not invalidate the cached part.
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

    /// Writes the answer's schema and the effort, merged with the user's fields.
    ///
    /// `effort` and `format` of the user win over those that levity derives. The older field
    /// `output_format` also replaces the schema.
    fn output(&mut self, shape: Option<Shape>, effort: Option<&str>) {
        let given = self.extra.get("output_config");
        let mut config = given
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        if let Some(effort) = effort {
            config.entry("effort").or_insert_with(|| effort.into());
        }
        if let (Some(Shape::Enforced(schema)), None) = (shape, self.extra.get("output_format")) {
            config
                .entry("format")
                .or_insert_with(|| json!({"type": "json_schema", "schema": schema}));
        }
        if !config.is_empty() {
            self.body.field("output_config", &config);
        }
    }

    /// Writes sampling options, and the container if provider tools are offered.
    fn options(&mut self, request: &Request, target: Target<'_>) {
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
        if let Some(container) =
            container(request, target).filter(|_| !self.extra.tools().is_empty())
        {
            self.own("container", container);
        }
    }

    /// Appends the user's fields and closes the body.
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

/// Adds an item, with a cache mark if `here` is set.
fn add_marked(list: &mut List<'_>, item: &Value, marks: Marks, here: bool) {
    let mut bytes = Vec::new();
    write_json(&mut bytes, item);
    if here {
        marks.put(&mut bytes);
    }
    list.add(&bytes);
}

/// Returns the container in which the provider's tools last ran, so that they find their data
/// again.
///
/// Only the last reply of the model counts. The container of an earlier reply may have expired.
fn container<'a>(request: &'a Request, target: Target<'_>) -> Option<&'a Value> {
    let mut replies = request
        .history
        .messages()
        .iter()
        .rev()
        .filter(|m| m.role == levity_core::Role::Assistant);
    let parts = replies.next()?.parts.iter();
    parts.rev().find_map(|part| match part {
        levity_core::Part::Opaque(opaque) => target.own(Some(opaque))?.get("container"),
        _ => None,
    })
}
