//! The items of a reply, as deltas and complete.
//!
//! State is attached to the last part that was emitted. So each function records which item
//! received the last delta, and an item whose state would attach to the wrong part emits a part of
//! its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::Media;

use super::{
    CallId, Decoder, Delta, Event, Map, NAME, Part, ProviderState, Sink, Text, Thinking, Value,
    json,
};
use crate::body::escaped;
use crate::responses::{IMAGE, LATER_THOUGHTS};

/// An item that has started.
///
/// Items are found by their index, otherwise by their id, otherwise the last one is meant.
#[derive(Debug, Default)]
pub(super) struct Item {
    /// Its index in the reply and its id, if the server sends them.
    index: Option<u64>,
    id: String,
    pub(super) kind: Kind,
    /// The fields of its message, without the content.
    fields: Map<String, Value>,
    /// True if a delta of the open part has arrived.
    has_delta: bool,
    /// The number of completed parts of a message.
    closed: usize,
    /// The part of a thought that received the last delta.
    thought: Option<(bool, u64)>,
    done: bool,
    /// A thought as it was emitted, and as the end of the reply repeats it if that differs.
    whole: Option<ProviderState>,
    later: Option<Value>,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Kind {
    Message,
    Thought,
    /// A call, by its number.
    Call(u32),
    /// A call whose input is free text, not JSON.
    Custom(u32),
    #[default]
    Other,
}

impl Decoder {
    /// Returns the item of an event, which should have started.
    ///
    /// The search runs from the end, because events almost always concern the newest item.
    fn at(&self, index: Option<u64>, id: &str) -> Option<usize> {
        let open = || self.items.iter().enumerate().rev();
        let found = match index {
            Some(_) => open().find(|(_, item)| item.index == index),
            None if !id.is_empty() => open().find(|(_, item)| item.id == id),
            None => open().next(),
        };
        found.map(|(at, _)| at)
    }

    /// Returns the index of an item of the complete reply, if it arrived before.
    pub(super) fn known(&self, index: u64, item: &Value) -> Option<usize> {
        let id = text(item, "id");
        let is_same =
            |known: &Item| known.index == Some(index) || (!id.is_empty() && known.id == id);
        self.items
            .iter()
            .position(|known| known.done && is_same(known))
    }

    /// Handles a repeated item. Some servers encrypt a thought again each time, with another id.
    ///
    /// The later version is the one that is sent back.
    pub(super) fn repeat_item(&mut self, at: usize, item: Value) {
        let Some(known) = self.items.get_mut(at) else {
            return;
        };
        let Some(whole) = &known.whole else { return };
        let names = ["id", "encrypted_content"];
        let changed = names
            .iter()
            .any(|name| !text(&item, name).is_empty() && item[*name] != whole.data[*name]);
        known.later = changed.then_some(item);
    }

    /// Emits thoughts that the end of the reply repeats differently, in their order.
    ///
    /// The list has one entry per thought, `null` for thoughts that did not change.
    pub(super) fn emit_later_thoughts(&mut self, sink: &mut Sink) {
        let thoughts = self.items.iter_mut().filter(|item| item.whole.is_some());
        let later: Vec<Option<Value>> = thoughts.map(|item| item.later.take()).collect();
        if later.iter().any(Option::is_some) {
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(
                NAME,
                json!({ (LATER_THOUGHTS): later }),
            ))));
        }
    }

    /// Starts an item. A call without a name starts only when it is complete.
    pub(super) fn item_added(&mut self, index: Option<u64>, item: &Value, sink: &mut Sink) {
        let is_call = matches!(text(item, "type"), "function_call" | "custom_tool_call");
        if !is_call || !text(item, "name").is_empty() {
            self.begin(index, item, sink);
        }
    }

    /// Starts an item and returns its position. A call is emitted at once, with its name.
    fn begin(&mut self, index: Option<u64>, item: &Value, sink: &mut Sink) -> usize {
        let at = self.items.len();
        let kind = match text(item, "type") {
            "message" => Kind::Message,
            "reasoning" => Kind::Thought,
            "function_call" => Kind::Call(self.calls),
            "custom_tool_call" => Kind::Custom(self.calls),
            _ => Kind::Other,
        };
        if let Kind::Call(number) | Kind::Custom(number) = kind {
            self.calls += 1;
            let (id, name) = (
                CallId::new(text(item, "call_id")),
                text(item, "name").to_owned(),
            );
            sink.push(Delta::CallStart {
                index: number,
                id,
                name,
            });
            self.last = Some(at);
        }
        let (id, fields) = (
            text(item, "id").to_owned(),
            fields_except(item, &["type", "role", "status", "content"]),
        );
        self.items.push(Item {
            index,
            id,
            kind,
            fields,
            ..Item::default()
        });
        at
    }

    /// Returns the item of an event, and starts it if necessary.
    fn item_of_event(&mut self, event: &Event<'_>, kind: Kind) -> usize {
        if let Some(at) = self.at(event.output_index, &event.item_id) {
            return at;
        }
        let (index, id) = (event.output_index, event.item_id.clone().into_owned());
        self.items.push(Item {
            index,
            id,
            kind,
            ..Item::default()
        });
        self.items.len() - 1
    }

    /// Adds more text to an item.
    ///
    /// Text for an item of another kind is dropped.
    pub(super) fn add_text(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let at = self.item_of_event(event, Kind::Message);
        let Some(item) = self
            .items
            .get_mut(at)
            .filter(|item| item.kind == Kind::Message)
        else {
            return;
        };
        // A new part starts, and the previous one had no end.
        let part = usize::try_from(event.content_index.unwrap_or(0)).unwrap_or(0);
        if part > item.closed && item.has_delta && self.last == Some(at) {
            sink.push(Delta::Opaque(state(item, &Value::Null)));
        }
        if part > item.closed {
            (item.closed, item.has_delta) = (part, false);
        }
        item.has_delta |= !event.delta.is_empty();
        sink.text(&event.delta);
        self.last = Some(at).filter(|_| !event.delta.is_empty()).or(self.last);
    }

    /// Adds more thinking: a summary or the thought itself. Parts are separated.
    ///
    /// A blank line separates two parts of a summary.
    pub(super) fn add_thinking(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let at = self.item_of_event(event, Kind::Thought);
        let Some(item) = self.items.get_mut(at).filter(|_| !event.delta.is_empty()) else {
            return;
        };
        let is_summary = event.kind.contains("summary");
        let part = if is_summary {
            event.summary_index
        } else {
            event.content_index
        };
        let part = (is_summary, part.unwrap_or(0));
        if item.thought.is_some_and(|before| before != part) {
            sink.thinking("\n\n");
        }
        (item.thought, item.has_delta) = (Some(part), true);
        sink.thinking(&event.delta);
        self.last = Some(at);
    }

    /// Adds more arguments to a call.
    ///
    /// Free text of a custom tool becomes a JSON string, whose closing quote follows at the end of
    /// the item.
    pub(super) fn add_arguments(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let Some(at) = self.at(event.output_index, &event.item_id) else {
            return;
        };
        let Some(item) = self.items.get_mut(at).filter(|_| !event.delta.is_empty()) else {
            return;
        };
        let (index, text) = match item.kind {
            Kind::Call(index) => (index, event.delta.clone().into_owned()),
            Kind::Custom(index) => {
                let quote = if item.has_delta { "" } else { "\"" };
                (index, format!("{quote}{}", escaped(&event.delta)))
            }
            _ => return,
        };
        item.has_delta = true;
        sink.push(Delta::CallArgs { index, text });
        self.last = Some(at);
    }

    /// Completes a part of a message.
    pub(super) fn part_done(&mut self, event: &Event<'_>, part: &Value, sink: &mut Sink) {
        let Some(at) = self.at(event.output_index, &event.item_id) else {
            return;
        };
        let index = usize::try_from(event.content_index.unwrap_or(0)).unwrap_or(0);
        if self
            .items
            .get(at)
            .is_some_and(|item| item.kind == Kind::Message && index >= item.closed)
        {
            self.close(at, index, part, sink);
        }
    }

    /// Completes a part: emits its text if no delta did, and attaches its state.
    fn close(&mut self, at: usize, index: usize, part: &Value, sink: &mut Sink) {
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let has_delta = item.has_delta && index == item.closed;
        let opaque = state(item, part);
        (item.closed, item.has_delta) = (index + 1, false);
        if !has_delta {
            let name = if text(part, "type") == "refusal" {
                "refusal"
            } else {
                "text"
            };
            let mut whole = Text::new(text(part, name));
            whole.opaque = Some(opaque);
            sink.push(Delta::Part(Part::Text(whole)));
        } else if self.last == Some(at) {
            sink.push(Delta::Opaque(opaque));
        }
        self.last = Some(at);
    }

    /// Completes an item, which arrives as a whole.
    ///
    /// An item that was never announced starts and ends here, which is the normal case without
    /// streaming.
    pub(super) fn item_done(&mut self, index: Option<u64>, whole: Value, sink: &mut Sink) {
        let open = self
            .at(index, text(&whole, "id"))
            .filter(|at| self.items.get(*at).is_some_and(|item| !item.done));
        let at = open.unwrap_or_else(|| self.begin(index, &whole, sink));
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        item.done = true;
        if item.id.is_empty() {
            item.id = text(&whole, "id").to_owned();
        }
        match item.kind {
            Kind::Message => self.message_done(at, whole, sink),
            Kind::Thought => self.thought_done(at, whole, sink),
            Kind::Call(index) | Kind::Custom(index) => self.call_done(at, index, &whole, sink),
            Kind::Other => {
                self.count_fee(&whole);
                sink.push(Delta::Part(provider_tool_part(whole)));
                self.last = Some(at);
            }
        }
    }

    /// Counts provider-side actions that have a fee.
    fn count_fee(&mut self, whole: &Value) {
        match text(whole, "type") {
            "web_search_call" | "file_search_call" => {
                self.searches = self.searches.saturating_add(1);
            }
            "code_interpreter_call" | "shell_call" => {
                // A session without a container id counts separately.
                let place = [text(whole, "container_id"), text(whole, "id")];
                let place = place
                    .into_iter()
                    .find(|place| !place.is_empty())
                    .unwrap_or_default();
                self.sessions.insert(place.to_owned());
            }
            _ => {}
        }
    }

    /// Completes a message: closes the parts that are still open. A message without content is kept
    /// as state, because the API expects the item back.
    fn message_done(&mut self, at: usize, whole: Value, sink: &mut Sink) {
        let parts = whole
            .get("content")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        item.fields = fields_except(&whole, &["type", "role", "status", "content"]);
        let (closed, has_delta) = (item.closed, item.has_delta);
        for (index, part) in parts.iter().enumerate().skip(closed) {
            self.close(at, index, part, sink);
        }
        if parts.is_empty() && closed == 0 && !has_delta {
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(NAME, whole))));
            self.last = Some(at);
        }
    }

    /// Completes a thought. Its whole item is the state, because encrypted content must go back
    /// unchanged.
    fn thought_done(&mut self, at: usize, whole: Value, sink: &mut Sink) {
        let has_delta = self.items.get(at).is_some_and(|item| item.has_delta);
        let shown = if has_delta {
            String::new()
        } else {
            thought(&whole)
        };
        let opaque = ProviderState::new(NAME, whole);
        if let Some(item) = self.items.get_mut(at) {
            item.whole = Some(opaque.clone());
        }
        if has_delta && self.last == Some(at) {
            sink.push(Delta::Opaque(opaque));
        } else {
            let mut thinking = Thinking::new(shown);
            thinking.opaque = Some(opaque);
            sink.push(Delta::Part(Part::Thinking(thinking)));
        }
        self.last = Some(at);
    }

    /// Completes a call: emits arguments that no delta brought, closes a free text, and attaches
    /// the other fields of the item.
    fn call_done(&mut self, at: usize, index: u32, whole: &Value, sink: &mut Sink) {
        let Some(item) = self.items.get(at) else {
            return;
        };
        let custom = matches!(item.kind, Kind::Custom(_));
        let args = match (custom, item.has_delta) {
            (true, true) => "\"".to_owned(),
            (true, false) => format!("\"{}\"", escaped(text(whole, "input"))),
            (false, true) => String::new(),
            (false, false) => match whole.get("arguments") {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            },
        };
        // State of a call is attached to the last emitted one.
        if !args.is_empty() || self.last != Some(at) {
            sink.push(Delta::CallArgs { index, text: args });
        }
        let mut fields = fields_except(whole, &["call_id", "name", "arguments", "input"]);
        if !custom {
            fields.shift_remove("type");
        }
        sink.push(Delta::Opaque(ProviderState::new(
            NAME,
            Value::Object(fields),
        )));
        self.last = Some(at);
    }
}

/// Converts the result of a provider-side tool: an image, or an item that only the provider
/// understands.
///
/// The bytes of an image are stored once, in the media, and not in its state as well.
fn provider_tool_part(mut item: Value) -> Part {
    let bytes = match text(&item, "type") {
        IMAGE => STANDARD
            .decode(text(&item, "result"))
            .ok()
            .filter(|bytes| !bytes.is_empty()),
        _ => None,
    };
    let Some(bytes) = bytes else {
        return Part::Opaque(ProviderState::new(NAME, item));
    };
    let format = match text(&item, "output_format") {
        "" => "png",
        format => format,
    };
    let mut media = Media::bytes(format!("image/{format}"), bytes);
    item.as_object_mut().map(|item| item.shift_remove("result"));
    media.opaque = Some(ProviderState::new(NAME, item));
    Part::Media(media)
}

/// Returns a text field; empty if it is missing or of another type.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the fields of an object except these.
///
/// Fields that are `null` are left out as well.
fn fields_except(value: &Value, excluded: &[&str]) -> Map<String, Value> {
    let fields = value.as_object().into_iter().flatten();
    let fields =
        fields.filter(|(name, value)| !excluded.contains(&name.as_str()) && !value.is_null());
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the state that is sent back with a part of a message: its message, and its fields other
/// than the text.
///
/// Fields with the default value (`output_text`, no annotations) are left out, so that most parts
/// need only their message.
fn state(item: &Item, part: &Value) -> ProviderState {
    let mut fields = fields_except(part, &["text", "refusal", "logprobs"]);
    if fields.get("type").is_some_and(|kind| kind == "output_text") {
        fields.shift_remove("type");
    }
    fields.retain(|name, value| {
        name != "annotations" || value.as_array().is_some_and(|list| !list.is_empty())
    });
    let mut data = json!({"item": item.fields});
    if !fields.is_empty() {
        data = json!({"item": item.fields, "part": fields});
    }
    ProviderState::new(NAME, data)
}

/// Returns the visible text of a thought: its summary, and the thought itself.
fn thought(whole: &Value) -> String {
    let lists = ["summary", "content"]
        .iter()
        .filter_map(|name| whole.get(*name)?.as_array());
    let texts: Vec<&str> = lists
        .flatten()
        .map(|part| text(part, "text"))
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n\n")
}
