//! Blocks of a reply while they come.

use levity_core::{CallId, Delta, ModelError, ModelErrorKind, Part, ProviderState, Thinking};
use serde_json::{Map, Value, json};

use super::NAME;
use crate::http::Sink;

/// How many bytes may be held back until a block is whole: 32 MiB.
const MOST_HELD: usize = 32 << 20;

/// How many blocks may be open at once. Servers that end theirs have one.
const MOST_OPEN: usize = 1_000;

/// The blocks that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<(Option<u64>, Block)>,
    calls: u32,
    /// What the last part is, to which more of the same kind would be added.
    last: Last,
    held: usize,
}

#[derive(Debug, Default, PartialEq)]
enum Last {
    #[default]
    Other,
    Text,
    Thinking,
}

#[derive(Debug)]
enum Block {
    Text {
        citations: Vec<Value>,
        said: bool,
    },
    Thinking {
        signature: String,
        said: bool,
    },
    Call {
        index: u32,
        input: Option<Value>,
    },
    /// A block that only the provider understands, and the JSON that comes for its input.
    Other {
        block: Map<String, Value>,
        input: String,
    },
}

/// A piece of a block.
pub(super) enum Piece {
    Text(String),
    Thinking(String),
    Signature(String),
    Json(String),
    Citation(Value),
    /// Fields of a block that only the provider understands.
    Fields(Value),
}

impl Blocks {
    /// How many calls there were.
    pub(super) fn calls(&self) -> u32 {
        self.calls
    }

    /// A block begins, with what is known of it.
    pub(super) fn begin(
        &mut self,
        index: Option<u64>,
        block: Value,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        self.end_others(sink);
        if self.open.len() >= MOST_OPEN {
            let message = format!("the reply has more than {MOST_OPEN} blocks without an end");
            return Err(ModelError::new(ModelErrorKind::Malformed, message));
        }
        let Value::Object(mut block) = block else {
            return Ok(());
        };
        let kind = block
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let begun = match &*kind {
            "text" => self.begin_text(&mut block, sink),
            "thinking" => self.begin_thinking(&mut block, sink),
            "tool_use" => self.begin_call(&mut block, sink),
            "" => return Ok(()),
            _ => Block::Other {
                block,
                input: String::new(),
            },
        };
        self.open.push((index, begun));
        Ok(())
    }

    fn begin_text(&mut self, block: &mut Map<String, Value>, sink: &mut Sink) -> Block {
        let citations = match block.shift_remove("citations") {
            Some(Value::Array(citations)) => Some(citations),
            _ => None,
        };
        // Citations belong to this text, and not to the one before.
        if citations.is_some() && self.last == Last::Text {
            self.seal(sink);
        }
        let mut begun = Block::Text {
            citations: citations.unwrap_or_default(),
            said: false,
        };
        self.say(&mut begun, take_text(block, "text"), sink);
        begun
    }

    fn begin_thinking(&mut self, block: &mut Map<String, Value>, sink: &mut Sink) -> Block {
        // A thought without a signature would take this one in, and then its signature.
        if self.last == Last::Thinking {
            self.seal(sink);
        }
        let mut begun = Block::Thinking {
            signature: take_text(block, "signature"),
            said: false,
        };
        self.say(&mut begun, take_text(block, "thinking"), sink);
        begun
    }

    /// Makes what comes next a part of its own: nothing is added to one that has data.
    fn seal(&mut self, sink: &mut Sink) {
        sink.push(Delta::Opaque(ProviderState::new(NAME, json!({}))));
        self.last = Last::Other;
    }

    fn begin_call(&mut self, block: &mut Map<String, Value>, sink: &mut Sink) -> Block {
        let index = self.calls;
        self.calls = self.calls.saturating_add(1);
        self.last = Last::Other;
        let (id, name) = (take_text(block, "id"), take_text(block, "name"));
        sink.push(Delta::CallStart {
            index,
            id: CallId::new(id),
            name,
        });
        if let Some(caller) = block
            .shift_remove("caller")
            .filter(|caller| !caller.is_null())
        {
            sink.push(Delta::Opaque(ProviderState::new(
                NAME,
                json!({ "caller": caller }),
            )));
        }
        let is_empty =
            |input: &Value| input.is_null() || input.as_object().is_some_and(Map::is_empty);
        Block::Call {
            index,
            input: block.shift_remove("input").filter(|input| !is_empty(input)),
        }
    }

    /// More of a block: of the one with this number, or of the last.
    pub(super) fn more(
        &mut self,
        index: Option<u64>,
        piece: Piece,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        let at = match index {
            Some(_) => self.open.iter().rposition(|(known, _)| *known == index),
            None => self.open.len().checked_sub(1),
        };
        // A text may come without a beginning.
        let Some(at) = at else {
            match piece {
                Piece::Text(text) => self.say(&mut Block::text(), text, sink),
                Piece::Thinking(text) => self.say(&mut Block::thinking(), text, sink),
                _ => {}
            }
            return Ok(());
        };
        let Some((_, block)) = self.open.get_mut(at) else {
            return Ok(());
        };
        let mut taken = std::mem::replace(block, Block::text());
        let result = self.take(&mut taken, piece, sink);
        if let Some((_, block)) = self.open.get_mut(at) {
            *block = taken;
        }
        result
    }

    fn take(&mut self, block: &mut Block, piece: Piece, sink: &mut Sink) -> Result<(), ModelError> {
        match (block, piece) {
            (Block::Other { block, .. }, Piece::Text(text)) => {
                self.hold(text.len())?;
                add_field(block, "text".to_owned(), text.into());
            }
            (block, Piece::Text(text)) => self.say_as(block, Block::text, text, sink),
            (block, Piece::Thinking(text)) => self.say_as(block, Block::thinking, text, sink),
            (Block::Thinking { signature, .. }, Piece::Signature(more)) => {
                self.hold(more.len())?;
                signature.push_str(&more);
            }
            (Block::Call { index, input }, Piece::Json(text)) if !text.is_empty() => {
                *input = None;
                sink.push(Delta::CallArgs {
                    index: *index,
                    text,
                });
            }
            (Block::Other { input, .. }, Piece::Json(text)) => {
                self.hold(text.len())?;
                input.push_str(&text);
            }
            (Block::Text { citations, .. }, Piece::Citation(citation)) => {
                self.hold(citation.to_string().len())?;
                citations.push(citation);
            }
            (Block::Other { block, .. }, Piece::Fields(Value::Object(fields))) => {
                self.hold(
                    fields
                        .iter()
                        .map(|(name, value)| name.len() + value.to_string().len())
                        .sum(),
                )?;
                fields
                    .into_iter()
                    .for_each(|(name, value)| add_field(block, name, value));
            }
            _ => {}
        }
        Ok(())
    }

    /// Text or thinking, of this block if it is one of that kind.
    fn say_as(&mut self, block: &mut Block, kind: fn() -> Block, text: String, sink: &mut Sink) {
        let mut other = kind();
        let same = std::mem::discriminant(block) == std::mem::discriminant(&other);
        self.say(if same { block } else { &mut other }, text, sink);
    }

    fn say(&mut self, block: &mut Block, text: String, sink: &mut Sink) {
        if text.is_empty() {
            return;
        }
        match block {
            Block::Text { said, .. } => {
                sink.push(Delta::Text(text));
                (*said, self.last) = (true, Last::Text);
            }
            Block::Thinking { said, .. } => {
                sink.push(Delta::Thinking(text));
                (*said, self.last) = (true, Last::Thinking);
            }
            _ => {}
        }
    }

    /// A block has come to its end.
    pub(super) fn end(&mut self, index: Option<u64>, sink: &mut Sink) {
        let at = match index {
            Some(_) => self.open.iter().rposition(|(known, _)| *known == index),
            None => self.open.len().checked_sub(1),
        };
        if let Some(at) = at {
            let (_, block) = self.open.remove(at);
            self.close(block, sink);
        }
    }

    /// Ends what was left open, but for calls: servers that do not end their blocks may go on with
    /// those.
    fn end_others(&mut self, sink: &mut Sink) {
        while let Some((_, block)) = self
            .open
            .pop_if(|(_, block)| !matches!(block, Block::Call { .. }))
        {
            self.close(block, sink);
        }
    }

    /// The reply has come to its end.
    pub(super) fn finish(&mut self, sink: &mut Sink) {
        for (_, block) in std::mem::take(&mut self.open) {
            self.close(block, sink);
        }
    }

    fn close(&mut self, block: Block, sink: &mut Sink) {
        match block {
            Block::Text {
                citations, said, ..
            } => {
                if said && !citations.is_empty() {
                    sink.push(Delta::Opaque(ProviderState::new(
                        NAME,
                        json!({ "citations": citations }),
                    )));
                    self.last = Last::Other;
                }
            }
            Block::Thinking { signature, .. } if signature.is_empty() => {}
            Block::Thinking { signature, said } => {
                let signature = ProviderState::new(NAME, json!({ "signature": signature }));
                if said {
                    sink.push(Delta::Opaque(signature));
                } else {
                    let mut silent = Thinking::new("");
                    silent.opaque = Some(signature);
                    sink.push(Delta::Part(Part::Thinking(silent)));
                }
                self.last = Last::Other;
            }
            Block::Call { index, input } => {
                if let Some(input) = input {
                    sink.push(Delta::CallArgs {
                        index,
                        text: input.to_string(),
                    });
                }
            }
            Block::Other { mut block, input } => {
                if let Ok(input) = serde_json::from_str::<Value>(&input) {
                    block.insert("input".to_owned(), input);
                }
                sink.push(Delta::Part(Part::Opaque(ProviderState::new(
                    NAME,
                    Value::Object(block),
                ))));
                self.last = Last::Other;
            }
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.held = self.held.saturating_add(bytes).saturating_add(1);
        if self.held <= MOST_HELD {
            return Ok(());
        }
        let message = format!("the reply has blocks of more than {MOST_HELD} bytes");
        Err(ModelError::new(ModelErrorKind::Malformed, message))
    }
}

impl Block {
    fn text() -> Self {
        Self::Text {
            citations: Vec::new(),
            said: false,
        }
    }

    fn thinking() -> Self {
        Self::Thinking {
            signature: String::new(),
            said: false,
        }
    }
}

fn take_text(block: &mut Map<String, Value>, name: &str) -> String {
    match block.shift_remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Goes on with a field of a block: texts are joined, but for what is sealed as a whole.
fn add_field(block: &mut Map<String, Value>, name: String, value: Value) {
    match (block.get_mut(&name), value) {
        _ if name == "type" => {}
        (Some(_), Value::Null) => {}
        (Some(Value::String(known)), Value::String(more)) if name != "encrypted_content" => {
            known.push_str(&more);
        }
        (_, value) => drop(block.insert(name, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_end_are_refused() {
        let (mut blocks, mut sink) = (Blocks::default(), Sink::default());
        let mut begin =
            |at| blocks.begin(Some(at), json!({"type": "tool_use", "id": "a"}), &mut sink);
        let refused = (0..2_000).find_map(|at| begin(at).err());
        assert_eq!(
            refused.map(|error| error.kind()),
            Some(ModelErrorKind::Malformed)
        );
    }

    #[test]
    fn a_block_without_end_is_refused() {
        let (mut blocks, mut sink) = (Blocks::default(), Sink::default());
        let begun = blocks.begin(
            Some(0),
            json!({"type": "server_tool_use", "input": {}}),
            &mut sink,
        );
        assert!(begun.is_ok());
        let piece = || Piece::Json("x".repeat(1 << 20));
        let refused = (0..40).find_map(|_| blocks.more(Some(0), piece(), &mut sink).err());
        assert_eq!(
            refused.map(|error| error.kind()),
            Some(ModelErrorKind::Malformed)
        );
    }
}
