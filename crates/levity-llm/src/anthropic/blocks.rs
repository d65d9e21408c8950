//! The blocks of a streamed reply.
//!
//! The API numbers its blocks and sends each as a start, fragments and an end. This module turns
//! them into deltas as they arrive, and holds back only what has no meaning in pieces: signatures,
//! citations and blocks that only the provider understands.
//!
//! Other servers of the protocol are less strict, so the module accepts fragments without a start,
//! blocks without an end and events without a number. The number of open blocks and the bytes that
//! are held are limited, because a server controls both.

use levity_core::{CallId, Delta, ModelError, ModelErrorKind, Part, ProviderState, Thinking};
use serde_json::{Map, Value, json};

use super::NAME;
use crate::http::Sink;

/// The maximum number of bytes that are held until a block is complete: 32 MiB.
const MAX_HELD_BYTES: usize = 32 << 20;

/// The maximum number of open blocks. Servers that end their blocks have one.
const MAX_OPEN_BLOCKS: usize = 1_000;

/// The blocks that have started and not ended.
///
/// Blocks are found by their number from the end, because a server that restarts its numbers means
/// the latest block. A block without a number is the last one.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<(Option<u64>, Block)>,
    /// The number of calls so far, which is also the index of the next call.
    calls: u32,
    /// The kind of the last part, which later deltas of the same kind would extend.
    last: LastKind,
    /// The bytes that are held for blocks of this reply, which only grow.
    held: usize,
}

/// The kind of content that the consumer's last part has. A consumer appends text to a part of the
/// same kind, which must not happen across blocks with a state of their own.
#[derive(Debug, Default, PartialEq)]
enum LastKind {
    #[default]
    Other,
    Text,
    Thinking,
}

/// A block that has started, with the data that is emitted at its end.
#[derive(Debug)]
enum Block {
    Text {
        /// The sources of the text, which the API expects back with it.
        citations: Vec<Value>,
        /// True if text was emitted. A state without text before it would attach to another part.
        has_delta: bool,
    },
    Thinking {
        /// The proof that Claude wrote the thought. It arrives in pieces and is valid only as a
        /// whole.
        signature: String,
        has_delta: bool,
    },
    Call {
        index: u32,
        /// Arguments that arrived with the start of the block, emitted at its end. A fragment
        /// replaces them.
        input: Option<Value>,
    },
    /// A block that only the provider understands, and the JSON that arrives for its input.
    Other {
        block: Map<String, Value>,
        input: String,
    },
}

/// A fragment of a block.
///
/// A fragment whose kind does not fit its block is emitted as a part of its own if it is text or
/// thinking, and dropped otherwise.
pub(super) enum Fragment {
    Text(String),
    Thinking(String),
    Signature(String),
    Json(String),
    Citation(Value),
    /// Fields of a block that only the provider understands.
    Fields(Value),
}

impl Blocks {
    /// Returns the number of calls.
    pub(super) fn calls(&self) -> u32 {
        self.calls
    }

    /// Starts a block with its initial fields.
    ///
    /// # Errors
    /// Returns `Malformed` if more than 1,000 blocks are open. Blocks that are not objects or have
    /// no type are skipped.
    pub(super) fn begin(
        &mut self,
        index: Option<u64>,
        block: Value,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        self.end_others(sink);
        if self.open.len() >= MAX_OPEN_BLOCKS {
            let message = format!("the reply has more than {MAX_OPEN_BLOCKS} unfinished blocks");
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
        let started = match &*kind {
            "text" => self.begin_text(&mut block, sink),
            "thinking" => self.begin_thinking(&mut block, sink),
            "tool_use" => self.begin_call(&mut block, sink),
            "" => return Ok(()),
            _ => Block::Other {
                block,
                input: String::new(),
            },
        };
        self.open.push((index, started));
        Ok(())
    }

    /// Starts a text, which may already contain text and citations. A text with citations never
    /// joins the text before it.
    fn begin_text(&mut self, block: &mut Map<String, Value>, sink: &mut Sink) -> Block {
        let citations = match block.shift_remove("citations") {
            Some(Value::Array(citations)) => Some(citations),
            _ => None,
        };
        // Citations belong to this text, and not to the previous one.
        if citations.is_some() && self.last == LastKind::Text {
            self.start_new_part(sink);
        }
        let mut started = Block::Text {
            citations: citations.unwrap_or_default(),
            has_delta: false,
        };
        self.emit_text(&mut started, take_text(block, "text"), sink);
        started
    }

    /// Starts a thought. Two thoughts in a row stay separate parts, each with its own signature.
    fn begin_thinking(&mut self, block: &mut Map<String, Value>, sink: &mut Sink) -> Block {
        // A thought without a signature would absorb this one and then its signature.
        if self.last == LastKind::Thinking {
            self.start_new_part(sink);
        }
        let mut started = Block::Thinking {
            signature: take_text(block, "signature"),
            has_delta: false,
        };
        self.emit_text(&mut started, take_text(block, "thinking"), sink);
        started
    }

    /// Makes the next content a separate part: a part with state is never extended.
    ///
    /// The empty state carries no data, and the encoder sends nothing for it.
    fn start_new_part(&mut self, sink: &mut Sink) {
        sink.push(Delta::Opaque(ProviderState::new(NAME, json!({}))));
        self.last = LastKind::Other;
    }

    /// Starts a call of a local tool. `caller` names a provider tool that made the call from within
    /// its code; it goes back with the call.
    fn begin_call(&mut self, block: &mut Map<String, Value>, sink: &mut Sink) -> Block {
        let index = self.calls;
        self.calls = self.calls.saturating_add(1);
        self.last = LastKind::Other;
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

    /// Adds a fragment to the block with this number, or to the last one.
    ///
    /// # Errors
    /// Returns `Malformed` if more than 32 MiB are held in this reply.
    pub(super) fn add_fragment(
        &mut self,
        index: Option<u64>,
        fragment: Fragment,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        let at = match index {
            Some(_) => self.open.iter().rposition(|(known, _)| *known == index),
            None => self.open.len().checked_sub(1),
        };
        // A text may arrive without a start event.
        let Some(at) = at else {
            match fragment {
                Fragment::Text(text) => self.emit_text(&mut Block::text(), text, sink),
                Fragment::Thinking(text) => self.emit_text(&mut Block::thinking(), text, sink),
                _ => {}
            }
            return Ok(());
        };
        let Some((_, block)) = self.open.get_mut(at) else {
            return Ok(());
        };
        let mut current = std::mem::replace(block, Block::text());
        let result = self.take(&mut current, fragment, sink);
        if let Some((_, block)) = self.open.get_mut(at) {
            *block = current;
        }
        result
    }

    /// Adds a fragment to a block of its kind, or emits it on its own. The block is borrowed
    /// separately from `self`, so [`add_fragment`](Self::add_fragment) takes it out of the list for
    /// that time.
    fn take(
        &mut self,
        block: &mut Block,
        fragment: Fragment,
        sink: &mut Sink,
    ) -> Result<(), ModelError> {
        match (block, fragment) {
            (Block::Other { block, .. }, Fragment::Text(text)) => {
                self.hold(text.len())?;
                add_field(block, "text".to_owned(), text.into());
            }
            (block, Fragment::Text(text)) => self.emit_as(block, Block::text, text, sink),
            (block, Fragment::Thinking(text)) => self.emit_as(block, Block::thinking, text, sink),
            (Block::Thinking { signature, .. }, Fragment::Signature(more)) => {
                self.hold(more.len())?;
                signature.push_str(&more);
            }
            (Block::Call { index, input }, Fragment::Json(text)) if !text.is_empty() => {
                *input = None;
                sink.push(Delta::CallArgs {
                    index: *index,
                    text,
                });
            }
            (Block::Other { input, .. }, Fragment::Json(text)) => {
                self.hold(text.len())?;
                input.push_str(&text);
            }
            (Block::Text { citations, .. }, Fragment::Citation(citation)) => {
                self.hold(citation.to_string().len())?;
                citations.push(citation);
            }
            (Block::Other { block, .. }, Fragment::Fields(Value::Object(fields))) => {
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

    /// Emits text or thinking, for this block if it has that kind.
    fn emit_as(&mut self, block: &mut Block, kind: fn() -> Block, text: String, sink: &mut Sink) {
        let mut other = kind();
        let same = std::mem::discriminant(block) == std::mem::discriminant(&other);
        self.emit_text(if same { block } else { &mut other }, text, sink);
    }

    /// Emits text as a delta of the block's kind, unless it is empty.
    fn emit_text(&mut self, block: &mut Block, text: String, sink: &mut Sink) {
        if text.is_empty() {
            return;
        }
        match block {
            Block::Text { has_delta, .. } => {
                sink.push(Delta::Text(text));
                (*has_delta, self.last) = (true, LastKind::Text);
            }
            Block::Thinking { has_delta, .. } => {
                sink.push(Delta::Thinking(text));
                (*has_delta, self.last) = (true, LastKind::Thinking);
            }
            _ => {}
        }
    }

    /// Ends the block with this number, or the last one.
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

    /// Ends open blocks except calls: servers that do not end their blocks may continue calls.
    fn end_others(&mut self, sink: &mut Sink) {
        while let Some((_, block)) = self
            .open
            .pop_if(|(_, block)| !matches!(block, Block::Call { .. }))
        {
            self.close(block, sink);
        }
    }

    /// Ends all open blocks of the reply.
    ///
    /// The blocks end in the order of their start, which is the order of the parts in the message.
    pub(super) fn finish(&mut self, sink: &mut Sink) {
        for (_, block) in std::mem::take(&mut self.open) {
            self.close(block, sink);
        }
    }

    /// Emits the data that was held for a block. A signature without a visible thought becomes an
    /// empty thought, because the API expects it back in that place.
    fn close(&mut self, block: Block, sink: &mut Sink) {
        match block {
            Block::Text {
                citations,
                has_delta,
                ..
            } => {
                if has_delta && !citations.is_empty() {
                    sink.push(Delta::Opaque(ProviderState::new(
                        NAME,
                        json!({ "citations": citations }),
                    )));
                    self.last = LastKind::Other;
                }
            }
            Block::Thinking { signature, .. } if signature.is_empty() => {}
            Block::Thinking {
                signature,
                has_delta,
            } => {
                let signature = ProviderState::new(NAME, json!({ "signature": signature }));
                if has_delta {
                    sink.push(Delta::Opaque(signature));
                } else {
                    let mut silent = Thinking::new("");
                    silent.opaque = Some(signature);
                    sink.push(Delta::Part(Part::Thinking(silent)));
                }
                self.last = LastKind::Other;
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
                self.last = LastKind::Other;
            }
        }
    }

    /// Counts held bytes. Each call counts one byte more, so that a stream of empty fragments
    /// reaches the limit too.
    fn hold(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.held = self.held.saturating_add(bytes).saturating_add(1);
        if self.held <= MAX_HELD_BYTES {
            return Ok(());
        }
        let message = format!("the reply has blocks larger than {MAX_HELD_BYTES} bytes");
        Err(ModelError::new(ModelErrorKind::Malformed, message))
    }
}

impl Block {
    fn text() -> Self {
        Self::Text {
            citations: Vec::new(),
            has_delta: false,
        }
    }

    fn thinking() -> Self {
        Self::Thinking {
            signature: String::new(),
            has_delta: false,
        }
    }
}

/// Removes a field and returns its text; any other value counts as an empty text.
fn take_text(block: &mut Map<String, Value>, name: &str) -> String {
    match block.shift_remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Extends a field of a block: texts are concatenated, except encrypted ones.
///
/// The type stays, `null` does not replace a value, and a new value of any other kind replaces the
/// old one. Encrypted content arrives complete each time, so a concatenation would corrupt it.
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
    fn too_many_open_calls_return_error() {
        let (mut blocks, mut sink) = (Blocks::default(), Sink::default());
        let mut begin =
            |at| blocks.begin(Some(at), json!({"type": "tool_use", "id": "a"}), &mut sink);
        let error = (0..2_000).find_map(|at| begin(at).err());
        assert_eq!(
            error.map(|error| error.kind()),
            Some(ModelErrorKind::Malformed)
        );
    }

    #[test]
    fn oversized_block_returns_error() {
        let (mut blocks, mut sink) = (Blocks::default(), Sink::default());
        let started = blocks.begin(
            Some(0),
            json!({"type": "server_tool_use", "input": {}}),
            &mut sink,
        );
        assert!(started.is_ok());
        let fragment = || Fragment::Json("x".repeat(1 << 20));
        let error = (0..40).find_map(|_| blocks.add_fragment(Some(0), fragment(), &mut sink).err());
        assert_eq!(
            error.map(|error| error.kind()),
            Some(ModelErrorKind::Malformed)
        );
    }
}
