//! The items of a reply, piece by piece and whole.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::Media;

use super::{
    CallId, Decoder, Delta, Event, Map, NAME, Part, ProviderState, Sink, Text, Thinking, Value,
    json,
};
use crate::body::escaped;
use crate::responses::{IMAGE, LATER};

/// An item that has begun.
#[derive(Debug, Default)]
pub(super) struct Item {
    /// Its place in the reply and its id, as far as the server says.
    index: Option<u64>,
    id: String,
    pub(super) kind: Kind,
    /// The fields of the message that it is, but for what is in it.
    fields: Map<String, Value>,
    /// Whether a piece of what is open has come.
    said: bool,
    /// How many parts of a message have come to their end.
    closed: usize,
    /// The part of a thought that the last piece belonged to.
    thought: Option<(bool, u64)>,
    done: bool,
    /// A thought as it went out, and as the end of the reply has it if that differs.
    whole: Option<ProviderState>,
    later: Option<Value>,
}

/// What an item is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Kind {
    Message,
    Thought,
    /// A call, by its number.
    Call(u32),
    /// One whose input is text, and no JSON.
    Custom(u32),
    #[default]
    Other,
}

impl Decoder {
    /// The item of an event, which should have begun.
    fn at(&self, index: Option<u64>, id: &str) -> Option<usize> {
        let open = || self.items.iter().enumerate().rev();
        let found = match index {
            Some(_) => open().find(|(_, item)| item.index == index),
            None if !id.is_empty() => open().find(|(_, item)| item.id == id),
            None => open().next(),
        };
        found.map(|(at, _)| at)
    }

    /// Where an item of the whole reply is, if it came before.
    pub(super) fn known(&self, index: u64, item: &Value) -> Option<usize> {
        let id = text(item, "id");
        let is_same =
            |known: &Item| known.index == Some(index) || (!id.is_empty() && known.id == id);
        self.items
            .iter()
            .position(|known| known.done && is_same(known))
    }

    /// An item comes once more. Some servers encrypt a thought anew each time, and give it another
    /// id.
    pub(super) fn again(&mut self, at: usize, item: Value) {
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

    /// Thoughts that the end of the reply has otherwise go out with it, in their order.
    pub(super) fn last_words(&mut self, sink: &mut Sink) {
        let thoughts = self.items.iter_mut().filter(|item| item.whole.is_some());
        let later: Vec<Option<Value>> = thoughts.map(|item| item.later.take()).collect();
        if later.iter().any(Option::is_some) {
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(
                NAME,
                json!({ (LATER): later }),
            ))));
        }
    }

    /// An item begins. A call that does not say yet what it calls begins when it is whole.
    pub(super) fn added(&mut self, index: Option<u64>, item: &Value, sink: &mut Sink) {
        let is_call = matches!(text(item, "type"), "function_call" | "custom_tool_call");
        if !is_call || !text(item, "name").is_empty() {
            self.begin(index, item, sink);
        }
    }

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
            rest(item, &["type", "role", "status", "content"]),
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

    /// The item of an event, begun now if it had not.
    fn begun(&mut self, event: &Event<'_>, kind: Kind) -> usize {
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

    /// More text.
    pub(super) fn say(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let at = self.begun(event, Kind::Message);
        let Some(item) = self
            .items
            .get_mut(at)
            .filter(|item| item.kind == Kind::Message)
        else {
            return;
        };
        // A new part begins, and the one before had no end.
        let part = usize::try_from(event.content_index.unwrap_or(0)).unwrap_or(0);
        if part > item.closed && item.said && self.last == Some(at) {
            sink.push(Delta::Opaque(state(item, &Value::Null)));
        }
        if part > item.closed {
            (item.closed, item.said) = (part, false);
        }
        item.said |= !event.delta.is_empty();
        sink.text(&event.delta);
        self.last = Some(at).filter(|_| !event.delta.is_empty()).or(self.last);
    }

    /// More thinking, a summary or the thought itself. Parts are set apart.
    pub(super) fn think(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let at = self.begun(event, Kind::Thought);
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
        (item.thought, item.said) = (Some(part), true);
        sink.thinking(&event.delta);
        self.last = Some(at);
    }

    /// More arguments.
    pub(super) fn ask(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let Some(at) = self.at(event.output_index, &event.item_id) else {
            return;
        };
        let Some(item) = self.items.get_mut(at).filter(|_| !event.delta.is_empty()) else {
            return;
        };
        let (index, text) = match item.kind {
            Kind::Call(index) => (index, event.delta.clone().into_owned()),
            Kind::Custom(index) => {
                let quote = if item.said { "" } else { "\"" };
                (index, format!("{quote}{}", escaped(&event.delta)))
            }
            _ => return,
        };
        item.said = true;
        sink.push(Delta::CallArgs { index, text });
        self.last = Some(at);
    }

    /// A part of a message has come to its end.
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

    fn close(&mut self, at: usize, index: usize, part: &Value, sink: &mut Sink) {
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let said = item.said && index == item.closed;
        let opaque = state(item, part);
        (item.closed, item.said) = (index + 1, false);
        if !said {
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

    /// An item has come to its end, and is here whole.
    pub(super) fn done(&mut self, index: Option<u64>, whole: Value, sink: &mut Sink) {
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
                sink.push(Delta::Part(picture(whole)));
                self.last = Some(at);
            }
        }
    }

    /// Counts what the provider did itself and has a fee for.
    fn count_fee(&mut self, whole: &Value) {
        match text(whole, "type") {
            "web_search_call" | "file_search_call" => {
                self.searches = self.searches.saturating_add(1);
            }
            "code_interpreter_call" | "shell_call" => {
                // One that does not say where it ran is taken for one of its own.
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

    fn message_done(&mut self, at: usize, whole: Value, sink: &mut Sink) {
        let parts = whole
            .get("content")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        item.fields = rest(&whole, &["type", "role", "status", "content"]);
        let (closed, said) = (item.closed, item.said);
        for (index, part) in parts.iter().enumerate().skip(closed) {
            self.close(at, index, part, sink);
        }
        if parts.is_empty() && closed == 0 && !said {
            sink.push(Delta::Part(Part::Opaque(ProviderState::new(NAME, whole))));
            self.last = Some(at);
        }
    }

    fn thought_done(&mut self, at: usize, whole: Value, sink: &mut Sink) {
        let said = self.items.get(at).is_some_and(|item| item.said);
        let shown = if said { String::new() } else { thought(&whole) };
        let opaque = ProviderState::new(NAME, whole);
        if let Some(item) = self.items.get_mut(at) {
            item.whole = Some(opaque.clone());
        }
        if said && self.last == Some(at) {
            sink.push(Delta::Opaque(opaque));
        } else {
            let mut thinking = Thinking::new(shown);
            thinking.opaque = Some(opaque);
            sink.push(Delta::Part(Part::Thinking(thinking)));
        }
        self.last = Some(at);
    }

    fn call_done(&mut self, at: usize, index: u32, whole: &Value, sink: &mut Sink) {
        let Some(item) = self.items.get(at) else {
            return;
        };
        let custom = matches!(item.kind, Kind::Custom(_));
        let args = match (custom, item.said) {
            (true, true) => "\"".to_owned(),
            (true, false) => format!("\"{}\"", escaped(text(whole, "input"))),
            (false, true) => String::new(),
            (false, false) => match whole.get("arguments") {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            },
        };
        // What belongs to a call is put to the one that was heard of last.
        if !args.is_empty() || self.last != Some(at) {
            sink.push(Delta::CallArgs { index, text: args });
        }
        let mut fields = rest(whole, &["call_id", "name", "arguments", "input"]);
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

/// What a tool of the provider's own did: a picture, or an item that only the provider understands.
fn picture(mut item: Value) -> Part {
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

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The fields of an object but for these.
fn rest(value: &Value, but: &[&str]) -> Map<String, Value> {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, value)| !but.contains(&name.as_str()) && !value.is_null());
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What goes back with a part of a message: which message it is of, and what it has beside its
/// text.
fn state(item: &Item, part: &Value) -> ProviderState {
    let mut fields = rest(part, &["text", "refusal", "logprobs"]);
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

/// What of a thought is shown: its summary, and the thought itself.
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
